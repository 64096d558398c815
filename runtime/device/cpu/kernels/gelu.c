/* GELU with the tanh approximation (Hendrycks & Gimpel 2016), as GPT-2: x (1 + tanh u) / 2 with
 * u = sqrt(2 / pi) (x + 0.044715 x^3). Written as x s with the logistic s = 1 / (1 + e^(-2u)) = (1 + tanh u)
 * / 2, which is one exponential and keeps its relative accuracy where 1 + tanh u would cancel. */
#include "runtime/device/cpu/kernels/kernels.h"
#include "runtime/device/cpu/kernels/math.h"

static const real cubic = (real)0.044715;
static const real two_root = (real)1.5957691216057307118; /* 2 sqrt(2 / pi) */

/* h (m,n) += b; g = gelu(h). */
void cpu_bias_gelu(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict g = args->p[0], *restrict h = args->p[1];
        const real *restrict b = args->p[2];
        const int64_t m = kernel->m, n = kernel->n;
        for (int64_t i = 0; i < m; i++, g += n, h += n) {
                for (int64_t j = 0; j < n; j++) {
                        const real x = h[j] + b[j];
                        h[j] = x;
                        g[j] = x / (1 + real_exp(-two_root * x * (1 + cubic * x * x)));
                }
        }
}

/* dh holds dg: dh = dg (s + x s (1 - s) 2u'), with 1 - s as e^(-2u) s so that nothing cancels. */
void cpu_gelu_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict dh = args->p[0];
        const real *restrict h = args->p[1];
        const int64_t count = kernel->m * kernel->n;
        for (int64_t i = 0; i < count; i++) {
                const real x = h[i];
                const real e = real_exp(-two_root * x * (1 + cubic * x * x));
                const real s = 1 / (1 + e);
                dh[i] *= s + x * s * (e * s) * two_root * (1 + 3 * cubic * x * x);
        }
}
