/* SwiGLU (Shazeer 2020): the product of silu(gate), which is the gate times its logistic 1 / (1 + e^-gate),
 * and `up`. */
#include "runtime/device/cpu/kernels/kernels.h"
#include "runtime/device/cpu/kernels/math.h"

void cpu_swiglu(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict y = args->p[0];
        const real *restrict gate = args->p[1];
        const int64_t m = kernel->m, n = kernel->n;
        for (int64_t i = 0; i < m; i++, y += n, gate += 2 * n) {
                const real *restrict up = gate + n;
                for (int64_t j = 0; j < n; j++)
                        y[j] = gate[j] / (1 + real_exp(-gate[j])) * up[j];
        }
}

/* The slope of silu at g is s + g s (1 - s) with the logistic s, and 1 - s as e^-g s so that nothing cancels.
 */
void cpu_swiglu_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict dgate = args->p[0];
        const real *restrict dy = args->p[1], *restrict gate = args->p[2];
        const int64_t m = kernel->m, n = kernel->n;
        for (int64_t i = 0; i < m; i++, dgate += 2 * n, dy += n, gate += 2 * n) {
                real *restrict dup = dgate + n;
                const real *restrict up = gate + n;
                for (int64_t j = 0; j < n; j++) {
                        const real e = real_exp(-gate[j]), s = 1 / (1 + e), silu = gate[j] * s;
                        dup[j] = dy[j] * silu;
                        dgate[j] = dy[j] * up[j] * (s + silu * (e * s));
                }
        }
}

static void scale_row(real *restrict x, int64_t n, real factor)
{
        for (int64_t j = 0; j < n; j++)
                x[j] *= factor;
}

void cpu_weighted_swiglu(const struct kernel *kernel, const struct kernel_args *args)
{
        real *y = args->p[0];
        const real *gate = args->p[1], *w = args->p[2];
        const int64_t n = kernel->n;
        struct kernel row = *kernel;
        row.m = 1;
        for (int64_t i = 0; i < kernel->m; i++, y += n, gate += 2 * n) {
                cpu_swiglu(&row, &(struct kernel_args){.p = {y, (void *)gate}});
                scale_row(y, n, w[i]);
        }
}

/* A weight's gradient is the sum of dy times what it multiplies: of up and what is up's gradient without it.
 */
void cpu_weighted_swiglu_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        real *dgate = args->p[0], *dw = args->p[1];
        const real *dy = args->p[2], *gate = args->p[3], *w = args->p[4];
        const int64_t n = kernel->n;
        struct kernel row = *kernel;
        row.m = 1;
        for (int64_t i = 0; i < kernel->m; i++, dgate += 2 * n, dy += n, gate += 2 * n) {
                cpu_swiglu_backward(&row, &(struct kernel_args){.p = {dgate, (void *)dy, (void *)gate}});
                dw[i] = row_dot(dgate + n, gate + n, n);
                scale_row(dgate, 2 * n, w[i]);
        }
}
