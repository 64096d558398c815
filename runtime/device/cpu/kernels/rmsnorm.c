/* RMSNorm (Zhang & Sennrich 2019), forward and backward, a row at a time. */
#include "runtime/device/cpu/kernels/kernels.h"
#include "runtime/device/cpu/kernels/math.h"

/* y = x rstd w. */
void cpu_rmsnorm(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict y = args->p[0], *restrict rstds = args->p[1];
        const real *restrict x = args->p[2], *restrict w = args->p[3];
        const int64_t N = kernel->m, C = kernel->n;
        for (int64_t n = 0; n < N; n++, x += C, y += C) {
                const real mean_square = row_dot(x, x, C) / (real)C;
                const real rstd = (real)(1.0 / sqrt((double)mean_square + args->scalar[0]));
                rstds[n] = rstd;
                for (int64_t c = 0; c < C; c++)
                        y[c] = x[c] * rstd * w[c];
        }
}

/* With h = x rstd: adds dy h into dw; returns the sum of dy w h over the row. */
static real row_gradients(real *restrict dw, const real *restrict dy, const real *restrict x,
                          const real *restrict w, int64_t C, real rstd)
{
        real gh[LANES_IN_SUM] = {0};
        int64_t i = 0;
        for (; i + LANES_IN_SUM <= C; i += LANES_IN_SUM) {
                for (int j = 0; j < LANES_IN_SUM; j++) {
                        const real dy_h = dy[i + j] * (x[i + j] * rstd);
                        gh[j] += dy_h * w[i + j];
                        dw[i + j] += dy_h;
                }
        }
        for (int j = 0; i + j < C; j++) {
                const real dy_h = dy[i + j] * (x[i + j] * rstd);
                gh[j] += dy_h * w[i + j];
                dw[i + j] += dy_h;
        }
        return lanes_sum(gh);
}

/* dx (+)= rstd (dy w - h mean(dy w h)). */
void cpu_rmsnorm_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict dx = args->p[0], *restrict dw = args->p[1];
        const real *restrict dy = args->p[2], *restrict x = args->p[3], *restrict rstds = args->p[4];
        const real *restrict w = args->p[5];
        const int64_t N = kernel->m, C = kernel->n;
        for (int64_t n = 0; n < N; n++, dx += C, dy += C, x += C) {
                const real rstd = rstds[n], mean_gh = row_gradients(dw, dy, x, w, C, rstd) / (real)C;
                if (kernel->accumulate)
                        for (int64_t c = 0; c < C; c++)
                                dx[c] += rstd * (dy[c] * w[c] - x[c] * rstd * mean_gh);
                else
                        for (int64_t c = 0; c < C; c++)
                                dx[c] = rstd * (dy[c] * w[c] - x[c] * rstd * mean_gh);
        }
}
