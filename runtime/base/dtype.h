/* The storage formats of tensor elements. The name of a dtype on the command line and in files is that of the
 * training precision which stores tensors in it (--precision). Conversions between formats are in fp16.h. */
#ifndef RANVIER_RUNTIME_BASE_DTYPE_H
#define RANVIER_RUNTIME_BASE_DTYPE_H

/* DTYPE_FP32 is what kernels compute with; it stands for the type `real` of runtime/device/real.h, which
 * is double in the double build. The others are stored in 16 bits and computed with in fp32. DTYPE_FP16
 * has numbers up to 65504 alone, so its gradients need loss scaling (runtime/optim); DTYPE_BF16 has the
 * range of fp32. */
enum dtype { DTYPE_FP32, DTYPE_FP16, DTYPE_BF16, DTYPES };

/* Returns the bytes of one element: 4 or 2. In the double build use work_element_bytes (models/work.h). */
static inline int dtype_bytes(enum dtype dtype)
{
        return dtype == DTYPE_FP32 ? 4 : 2;
}

/* Returns the precision that stores tensors in this dtype: "fp32", "mixed" (fp16) or "bf16". The second
 * function is the inverse, and returns -1 if there is no precision of that name. */
const char *dtype_precision(enum dtype dtype);
int dtype_of_precision(const char *name);

#endif
