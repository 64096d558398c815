/* The kernels of the CPU device whose tensors are stored as fp16: pieces of them are converted into a
 * scratch, computed with in `real` by the kernels of cpu_kernels.h, and rounded once on the way back. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_HALF_H
#define RANVIER_RUNTIME_DEVICE_CPU_HALF_H

#include "models/half.h"
#include "runtime/device/cpu_kernels.h"

/* Elements of the scratch: one row of the most logits that models/gpt.c lets a model have, which is more than
 * any other kernel needs at once. It is the emulation's own, as BLAS has buffers for packing: a device with
 * arithmetic in fp16 needs none, so it is not counted as device memory. */
enum { CPU_HALF_SCRATCH = 1 << 21 };

/* Runs a kernel with kernel->half set. */
void cpu_half(const struct kernel *kernel, const struct kernel_args *args, real *scratch);

typedef void cpu_half_fn(const struct kernel *kernel, const struct kernel_args *args, real *scratch);
cpu_half_fn cpu_half_matmul, cpu_half_rows, cpu_half_squared_norm;
cpu_kernel_fn cpu_half_embedding, cpu_half_embedding_backward;
cpu_kernel_fn cpu_half_adamw, cpu_half_overflow, cpu_half_unscale, cpu_half_clear;

static inline void reals_from_half(real *restrict to, const uint16_t *restrict from, int64_t count)
{
#ifdef RANVIER_DOUBLE
        for (int64_t i = 0; i < count; i++)
                to[i] = (real)half_to_float(from[i]);
#else
        half_to_floats(to, from, count);
#endif
}

static inline void reals_to_half(uint16_t *restrict to, const real *restrict from, int64_t count)
{
#ifdef RANVIER_DOUBLE
        for (int64_t i = 0; i < count; i++)
                to[i] = half_from_float((float)from[i]);
#else
        half_from_floats(to, from, count);
#endif
}

#endif
