/* RMSNorm (Zhang & Sennrich 2019), forward and backward, of a row, or of a head, at a time. */
#include "runtime/device/cpu/kernels/kernels.h"
#include "runtime/device/cpu/kernels/math.h"

#include <string.h>

/* y = x rstd w; returns rstd. */
static real normalise(real *restrict y, const real *restrict x, const real *restrict w, int64_t C,
                      double epsilon)
{
        const real mean_square = row_dot(x, x, C) / (real)C;
        const real rstd = (real)(1.0 / sqrt((double)mean_square + epsilon));
        for (int64_t c = 0; c < C; c++)
                y[c] = x[c] * rstd * w[c];
        return rstd;
}

void cpu_rmsnorm(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict y = args->p[0], *restrict rstds = args->p[1];
        const real *restrict x = args->p[2];
        const int64_t N = kernel->m, C = kernel->n;
        for (int64_t n = 0; n < N; n++, x += C, y += C)
                rstds[n] = normalise(y, x, args->p[3], C, args->scalar[0]);
}

/* The weight of the head that begins at column `at`. */
static int64_t weight_of(const struct kernel *kernel, const struct kernel_args *args, int64_t at)
{
        return at < args->ld[0] ? 0 : kernel->k;
}

void cpu_head_rmsnorm(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict y = args->p[0], *restrict rstds = args->p[1];
        const real *restrict x = args->p[2], *restrict w = args->p[3];
        const int64_t N = kernel->m, C = kernel->n, k = kernel->k, end = args->inner;
        for (int64_t n = 0; n < N; n++, x += C, y += C, rstds += C / k) {
                for (int64_t at = 0; at < end; at += k)
                        rstds[at / k] = normalise(y + at, x + at, w + weight_of(kernel, args, at), k,
                                                  args->scalar[0]);
                memcpy(y + end, x + end, (size_t)(C - end) * sizeof *y);
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

/* dx, which holds dy, becomes rstd (dy w - h mean(dy w h)). */
void cpu_head_rmsnorm_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict dx = args->p[0], *restrict dw = args->p[1];
        const real *restrict x = args->p[2], *restrict rstds = args->p[3], *restrict w = args->p[4];
        const int64_t N = kernel->m, C = kernel->n, k = kernel->k;
        for (int64_t n = 0; n < N; n++, dx += C, x += C, rstds += C / k)
                for (int64_t at = 0; at < args->inner; at += k) {
                        const int64_t of = weight_of(kernel, args, at);
                        const real rstd = rstds[at / k];
                        const real mean_gh =
                                row_gradients(dw + of, dx + at, x + at, w + of, k, rstd) / (real)k;
                        for (int64_t c = 0; c < k; c++)
                                dx[at + c] = rstd * (dx[at + c] * w[of + c] - x[at + c] * rstd * mean_gh);
                }
}
