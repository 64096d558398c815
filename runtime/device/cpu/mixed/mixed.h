/* The kernels of the CPU device whose tensors are stored in 16 bits, fp16 or bf16 as kernel->dtype says:
 * pieces of them are converted into the scratch, computed with in `real` by the kernels of
 * cpu/kernels/kernels.h, and rounded once on the way back. cpu_run calls cpu_mixed for them, which picks
 * one of the functions below. One path serves both formats: which conversion it is, is chosen where
 * elements are read and written, by the functions at the end of this header. Fused attention, which is in
 * cpu/kernels, uses these too. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_MIXED_MIXED_H
#define RANVIER_RUNTIME_DEVICE_CPU_MIXED_MIXED_H

#include "runtime/base/fp16.h"
#include "runtime/device/cpu/kernels/kernels.h"

#include <string.h>

/* Runs a kernel with kernel->dtype set. */
cpu_scratch_fn cpu_mixed;

/* The kinds, or groups of them. cpu_mixed_rows is all that work on rows: norms, biases, residuals, GELU,
 * SwiGLU, rotary positions, softmax and the loss. */
cpu_scratch_fn cpu_mixed_matmul, cpu_mixed_matmul_fused, cpu_mixed_matmul_layernorm, cpu_mixed_rows,
        cpu_mixed_squared_norm;
cpu_kernel_fn cpu_mixed_embedding, cpu_mixed_embedding_backward;
cpu_kernel_fn cpu_mixed_adamw, cpu_mixed_overflow, cpu_mixed_unscale, cpu_mixed_clear;

/* Convert `count` elements as they are stored to reals, and reals to what is stored, rounded to the
 * nearest, ties to even. With DTYPE_FP32 they are copied: what is stored is `real` then. `to` and `from`
 * must not overlap. */
static inline void reals_from(enum dtype dtype, real *restrict to, const void *restrict from, int64_t count)
{
        if (dtype == DTYPE_FP32) {
                memcpy(to, from, (size_t)count * sizeof *to);
                return;
        }
        const uint16_t *restrict shorts = from;
#ifdef RANVIER_DOUBLE
        for (int64_t i = 0; i < count; i++)
                to[i] = (real)(dtype == DTYPE_BF16 ? bf16_to_float(shorts[i]) : fp16_to_float(shorts[i]));
#else
        if (dtype == DTYPE_BF16)
                bf16_to_floats(to, shorts, count);
        else
                fp16_to_floats(to, shorts, count);
#endif
}

static inline void reals_to(enum dtype dtype, void *restrict to, const real *restrict from, int64_t count)
{
        if (dtype == DTYPE_FP32) {
                memcpy(to, from, (size_t)count * sizeof *from);
                return;
        }
        uint16_t *restrict shorts = to;
#ifdef RANVIER_DOUBLE
        for (int64_t i = 0; i < count; i++)
                shorts[i] = dtype == DTYPE_BF16 ? bf16_from_float((float)from[i])
                                                : fp16_from_float((float)from[i]);
#else
        if (dtype == DTYPE_BF16)
                bf16_from_floats(shorts, from, count);
        else
                fp16_from_floats(shorts, from, count);
#endif
}

/* Returns the bytes of an element: 2, or those of a `real`. */
static inline int64_t element_bytes(enum dtype dtype)
{
        return dtype == DTYPE_FP32 ? (int64_t)sizeof(real) : 2;
}

/* Returns where element number `at` of a tensor is. */
static inline void *element_of(enum dtype dtype, const void *tensor, int64_t at)
{
        return (char *)tensor + at * element_bytes(dtype);
}

/* Convert rows x columns elements of a matrix, stored from element `at` on with `ld` elements from row to
 * row, to a dense tile of reals, and such a tile to them. */
static inline void tile_from(enum dtype dtype, real *tile, const void *from, int64_t at, int64_t ld,
                             int64_t rows, int64_t columns)
{
        for (int64_t i = 0; i < rows; i++)
                reals_from(dtype, tile + i * columns, element_of(dtype, from, at + i * ld), columns);
}

static inline void tile_to(enum dtype dtype, void *to, const real *tile, int64_t at, int64_t ld, int64_t rows,
                           int64_t columns)
{
        for (int64_t i = 0; i < rows; i++)
                reals_to(dtype, element_of(dtype, to, at + i * ld), tile + i * columns, columns);
}

#endif
