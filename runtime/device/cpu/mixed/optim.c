/* What the optimizer does with 16-bit gradients before AdamW: norm, search for an overflow, unscale, clear.
 * All of them pass over memory once. */
#include "runtime/device/cpu/mixed/mixed.h"

#include <string.h>

enum { PIECE = 1 << 13 }; /* elements at a time: in fp32 they stay in the first-level cache */

static int64_t vmb_of(int64_t left)
{
        return left < PIECE ? left : PIECE;
}

void cpu_mixed_squared_norm(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        const uint16_t *x = args->p[1];
        struct kernel piece = *kernel;
        struct kernel_args with = *args;
        with.p[1] = scratch;
        int64_t at = 0;
        do { /* once for no elements too: the sum is written */
                piece.m = vmb_of(kernel->m - at);
                reals_from(kernel->dtype, scratch, x + at, piece.m);
                cpu_squared_norm(&piece, &with);
                piece.accumulate = 1;
        } while ((at += piece.m) < kernel->m);
}

/* Without their sign, the bits of either format are in the order of their sizes, infinity above all numbers
 * and NaN above infinity. */
static int size_bits(uint16_t stored)
{
        return stored & 0x7fff;
}

/* The bits of the largest finite number of a format that is at most `limit` (>= 0). */
static int limit_bits(enum dtype dtype, double limit)
{
        const int largest = dtype == DTYPE_BF16 ? 0x7f7f : 0x7bff; /* 3.39e38, 65504 */
        const uint16_t nearest =
                dtype == DTYPE_BF16 ? bf16_from_float((float)limit) : fp16_from_float((float)limit);
        const float value = dtype == DTYPE_BF16 ? bf16_to_float(nearest) : fp16_to_float(nearest);
        const int bits = (double)value > limit ? nearest - 1 : nearest;
        return bits < largest ? bits : largest;
}

void cpu_mixed_overflow(const struct kernel *kernel, const struct kernel_args *args)
{
        double *found = args->p[0];
        const uint16_t *restrict g = args->p[1];
        int max = 0;
        for (int64_t i = 0; i < kernel->m; i++)
                max = size_bits(g[i]) > max ? size_bits(g[i]) : max;
        *found = max > limit_bits(kernel->dtype, args->scalar[0]);
}

void cpu_mixed_unscale(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict out = args->p[0];
        uint16_t *restrict g = args->p[1];
        const real scale = (real) * (const double *)args->p[2];
        for (int64_t at = 0; at < kernel->m; at += PIECE, out += PIECE, g += PIECE) {
                const int64_t n = vmb_of(kernel->m - at);
                reals_from(kernel->dtype, out, g, n);
                for (int64_t i = 0; i < n; i++)
                        out[i] *= scale;
                memset(g, 0, (size_t)n * sizeof *g);
        }
}

void cpu_mixed_clear(const struct kernel *kernel, const struct kernel_args *args)
{
        memset(args->p[0], 0, (size_t)kernel->m * sizeof(uint16_t));
}
