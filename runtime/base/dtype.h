/* The storage formats of tensor elements. The name of a dtype on the command line and in files is that of the
 * training precision which stores tensors in it (--precision). Conversions between formats are in fp16.h. */
#ifndef RANVIER_RUNTIME_BASE_DTYPE_H
#define RANVIER_RUNTIME_BASE_DTYPE_H

#include "runtime/base/words.h"

#include <stdbool.h>

/* DTYPE_FP32 is what kernels compute with; it stands for the type `real` of runtime/device/real.h, which
 * is double in the double build. The others are stored in 16 bits and computed with in fp32. DTYPE_FP16
 * has numbers up to 65504 alone, so its gradients need loss scaling (runtime/optim); DTYPE_BF16 has the
 * range of fp32. */
enum dtype { DTYPE_FP32, DTYPE_FP16, DTYPE_BF16, DTYPES };

/* What matrix products read, where that is not what tensors are stored as: copies with fewer bits, which are
 * made before. FORMAT_FP8 has one byte an element and a scale for each tensor (Micikevicius et al. 2022);
 * FORMAT_NVFP4 half a byte, and a byte of scale for every 16 elements (NVIDIA, Pretraining Large Language
 * Models with NVFP4, 2025). */
enum product_format { FORMAT_STORED, FORMAT_FP8, FORMAT_NVFP4, FORMATS };

/* Returns the bytes of so many elements in a format, which is not FORMAT_STORED. */
double format_bytes(enum product_format format, double elements);

/* Returns the bytes of one element: 4 or 2. In the double build use work_element_bytes (models/work.h). */
static inline int dtype_bytes(enum dtype dtype)
{
        return dtype == DTYPE_FP32 ? 4 : 2;
}

/* Returns the other dtype of 16 bits; of fp32 itself. */
static inline enum dtype dtype_twin(enum dtype dtype)
{
        return dtype == DTYPE_FP32 ? DTYPE_FP32 : dtype == DTYPE_FP16 ? DTYPE_BF16 : DTYPE_FP16;
}

/* Returns the precision that stores tensors in this dtype: "fp32", "mixed" (fp16) or "bf16". The second
 * function is the inverse, and returns -1 if there is no precision of that name. */
const char *dtype_precision(enum dtype dtype);
int dtype_of_precision(const char *name);
extern const struct option_words dtype_precision_words; /* all of them */

/* The same of a precision whose products have a format of their own: "fp8" and "nvfp4" store tensors in bf16,
 * and stand for a format; the others stand for FORMAT_STORED. precision_of_name returns whether there is a
 * precision of that name. */
const char *precision_name(enum dtype dtype, enum product_format format);
bool precision_of_name(const char *name, enum dtype *dtype, enum product_format *format);

#endif
