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

/* Of `count` elements of a row at most LANES_IN_SUM, n elements before what its gates are for: their
 * gradients, and what each adds to the gradient of the row's weight w. */
static inline void weighted_slopes(real *restrict dgate, real *restrict lane, const real *restrict dy,
                                   const real *restrict gate, int64_t n, int count, real w)
{
        for (int j = 0; j < count; j++) {
                const real e = real_exp(-gate[j]), s = 1 / (1 + e), silu = gate[j] * s, up = gate[n + j];
                lane[j] += dy[j] * silu * up;
                dgate[n + j] = w * (dy[j] * silu);
                dgate[j] = w * (dy[j] * up * (s + silu * (e * s)));
        }
}

void cpu_weighted_swiglu_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        real *dgate = args->p[0], *dw = args->p[1];
        const real *dy = args->p[2], *gate = args->p[3], *w = args->p[4];
        const int64_t n = kernel->n;
        for (int64_t i = 0; i < kernel->m; i++, dgate += 2 * n, dy += n, gate += 2 * n) {
                real lane[LANES_IN_SUM] = {0};
                int64_t j = 0;
                for (; j + LANES_IN_SUM <= n; j += LANES_IN_SUM)
                        weighted_slopes(dgate + j, lane, dy + j, gate + j, n, LANES_IN_SUM, w[i]);
                weighted_slopes(dgate + j, lane, dy + j, gate + j, n, (int)(n - j), w[i]);
                dw[i] = lanes_sum(lane);
        }
}
