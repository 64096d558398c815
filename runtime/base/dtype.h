/* What elements of tensors are stored as. */
#ifndef RANVIER_RUNTIME_BASE_DTYPE_H
#define RANVIER_RUNTIME_BASE_DTYPE_H

/* fp32 is what the kernels compute with, and `real` of device/real.h: double in the double build. The others
 * are stored in 16 bits and computed with in fp32. */
enum dtype { DTYPE_FP32, DTYPE_FP16, DTYPE_BF16, DTYPES };

/* Bytes of an element: 4 or 2. */
static inline int dtype_bytes(enum dtype dtype)
{
        return dtype == DTYPE_FP32 ? 4 : 2;
}

/* What --precision calls it: "fp32", "mixed" (fp16), "bf16"; and back, -1 if there is none of that name. */
const char *dtype_precision(enum dtype dtype);
int dtype_of_precision(const char *name);

#endif
