/* The kernels of the CPU device whose tensors are stored in 16 bits, fp16 or bf16 as kernel->half says:
 * pieces of them are converted into the scratch, computed with in `real` by the kernels of cpu/kernels.h, and
 * rounded once on the way back. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_HALF_HALF_H
#define RANVIER_RUNTIME_DEVICE_CPU_HALF_HALF_H

#include "runtime/base/half.h"
#include "runtime/device/cpu/kernels/kernels.h"

#include <string.h>

/* Runs a kernel with kernel->half set. */
cpu_scratch_fn cpu_half;

cpu_scratch_fn cpu_half_matmul, cpu_half_matmul_fused, cpu_half_matmul_layernorm, cpu_half_rows,
        cpu_half_squared_norm;
cpu_kernel_fn cpu_half_embedding, cpu_half_embedding_backward;
cpu_kernel_fn cpu_half_adamw, cpu_half_overflow, cpu_half_unscale, cpu_half_clear;

/* `count` elements as they are stored, to and from reals; HALF_NONE copies. */
static inline void reals_from(enum half format, real *restrict to, const void *restrict from, int64_t count)
{
        if (format == HALF_NONE) {
                memcpy(to, from, (size_t)count * sizeof *to);
                return;
        }
        const uint16_t *restrict halves = from;
#ifdef RANVIER_DOUBLE
        for (int64_t i = 0; i < count; i++)
                to[i] = (real)(format == HALF_BF16 ? bf16_to_float(halves[i]) : half_to_float(halves[i]));
#else
        if (format == HALF_BF16)
                bf16_to_floats(to, halves, count);
        else
                half_to_floats(to, halves, count);
#endif
}

static inline void reals_to(enum half format, void *restrict to, const real *restrict from, int64_t count)
{
        if (format == HALF_NONE) {
                memcpy(to, from, (size_t)count * sizeof *from);
                return;
        }
        uint16_t *restrict halves = to;
#ifdef RANVIER_DOUBLE
        for (int64_t i = 0; i < count; i++)
                halves[i] = format == HALF_BF16 ? bf16_from_float((float)from[i])
                                                : half_from_float((float)from[i]);
#else
        if (format == HALF_BF16)
                bf16_from_floats(halves, from, count);
        else
                half_from_floats(halves, from, count);
#endif
}

static inline int64_t element_bytes(enum half format)
{
        return format == HALF_NONE ? (int64_t)sizeof(real) : 2;
}

/* The element `at` of a tensor. */
static inline void *element_of(enum half format, const void *tensor, int64_t at)
{
        return (char *)tensor + at * element_bytes(format);
}

/* rows x columns of a matrix, stored from element `at` on with `ld` elements a row, to and from a dense tile.
 */
static inline void tile_from(enum half format, real *tile, const void *from, int64_t at, int64_t ld,
                             int64_t rows, int64_t columns)
{
        for (int64_t i = 0; i < rows; i++)
                reals_from(format, tile + i * columns, element_of(format, from, at + i * ld), columns);
}

static inline void tile_to(enum half format, void *to, const real *tile, int64_t at, int64_t ld, int64_t rows,
                           int64_t columns)
{
        for (int64_t i = 0; i < rows; i++)
                reals_to(format, element_of(format, to, at + i * ld), tile + i * columns, columns);
}

static inline int64_t least(int64_t a, int64_t b)
{
        return a < b ? a : b;
}

#endif
