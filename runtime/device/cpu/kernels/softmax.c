/* Causal softmax of attention scores, forward and backward, a row at a time. */
#include "runtime/device/cpu/kernels/kernels.h"
#include "runtime/device/cpu/kernels/math.h"

/* Row t has t + 1 columns that count. Working on whole groups of lanes is faster than a scalar tail: the
 * columns that are too many become -infinity, whose exponential is an exact zero. */
static int64_t whole_lanes(int64_t columns, int64_t T)
{
        const int64_t whole = (columns + LANES_IN_SUM - 1) / LANES_IN_SUM * LANES_IN_SUM;
        return whole < T ? whole : T;
}

void cpu_softmax(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict s = args->p[0];
        const real scale = (real)args->scalar[0];
        const int64_t T = kernel->n, rows = kernel->batch * kernel->m, first = args->ld[1];
        for (int64_t i = 0; i < rows; i++, s += T) {
                const int64_t t = (first + i) % T, width = whole_lanes(t + 1, T);
                for (int64_t j = t + 1; j < width; j++)
                        s[j] = -INFINITY;
                const real max = row_max(s, width) * scale;
                for (int64_t j = 0; j < width; j++)
                        s[j] = real_exp(s[j] * scale - max);
                const real rescale = 1 / row_sum(s, width);
                for (int64_t j = 0; j < width; j++)
                        s[j] *= rescale;
                for (int64_t j = width; j < T; j++)
                        s[j] = 0;
        }
}

/* ds = scale p (dp - sum(dp p)). */
void cpu_softmax_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict dp = args->p[0];
        const real *restrict p = args->p[1];
        const real scale = (real)args->scalar[0];
        const int64_t T = kernel->n, rows = kernel->batch * kernel->m, first = args->ld[1];
        for (int64_t i = 0; i < rows; i++, dp += T, p += T) {
                const int64_t t = (first + i) % T;
                const real sum = row_dot(dp, p, t + 1);
                for (int64_t j = 0; j <= t; j++)
                        dp[j] = scale * p[j] * (dp[j] - sum);
                for (int64_t j = t + 1; j < T; j++)
                        dp[j] = 0;
        }
}
