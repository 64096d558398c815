/* LayerNorm (Ba, Kiros & Hinton 2016), forward and backward, a row at a time. */
#include "runtime/device/cpu/kernels/kernels.h"
#include "runtime/device/cpu/kernels/math.h"

static const double epsilon = 1e-5; /* GPT-2's */

static real variance(const real *x, int64_t C, real mean)
{
        real lane[LANES_IN_SUM] = {0};
        int64_t i = 0;
        for (; i + LANES_IN_SUM <= C; i += LANES_IN_SUM)
                for (int j = 0; j < LANES_IN_SUM; j++)
                        lane[j] += (x[i + j] - mean) * (x[i + j] - mean);
        for (int j = 0; i + j < C; j++)
                lane[j] += (x[i + j] - mean) * (x[i + j] - mean);
        return lanes_sum(lane) / (real)C;
}

/* y = (x - mean) rstd (w + more) + b. */
void cpu_layernorm(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict y = args->p[0], *restrict stats = args->p[1];
        const real *restrict x = args->p[2], *restrict w = args->p[3], *restrict b = args->p[4];
        const real more = (real)args->scalar[0];
        const int64_t N = kernel->m, C = kernel->n, rstds = args->ld[0];
        for (int64_t n = 0; n < N; n++, x += C, y += C) {
                const real mean = row_sum(x, C) / (real)C;
                const real rstd = (real)(1.0 / sqrt((double)variance(x, C, mean) + epsilon));
                stats[n] = mean;
                stats[rstds + n] = rstd;
                for (int64_t c = 0; c < C; c++)
                        y[c] = (x[c] - mean) * rstd * (w[c] + more) + b[c];
        }
}

/* With g = dy (w + more) and h = (x - mean) rstd: the sums of g and of g h over the row; adds dy into db and
 * dy h into dw. */
static void row_gradients(real *restrict dw, real *restrict db, const real *restrict dy,
                          const real *restrict x, const real *restrict w, real more, int64_t C, real mean,
                          real rstd, real *sum_g, real *sum_gh)
{
        real g[LANES_IN_SUM] = {0}, gh[LANES_IN_SUM] = {0};
        int64_t i = 0;
        for (; i + LANES_IN_SUM <= C; i += LANES_IN_SUM) {
                for (int j = 0; j < LANES_IN_SUM; j++) {
                        const real h = (x[i + j] - mean) * rstd, d = dy[i + j];
                        g[j] += d * (w[i + j] + more);
                        gh[j] += d * (w[i + j] + more) * h;
                        db[i + j] += d;
                        dw[i + j] += d * h;
                }
        }
        for (int j = 0; i + j < C; j++) {
                const real h = (x[i + j] - mean) * rstd, d = dy[i + j];
                g[j] += d * (w[i + j] + more);
                gh[j] += d * (w[i + j] + more) * h;
                db[i + j] += d;
                dw[i + j] += d * h;
        }
        *sum_g = lanes_sum(g);
        *sum_gh = lanes_sum(gh);
}

/* dx (+)= rstd (g - mean(g) - h mean(g h)). */
void cpu_layernorm_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict dx = args->p[0], *restrict dw = args->p[1], *restrict db = args->p[2];
        const real *restrict dy = args->p[3], *restrict x = args->p[4], *restrict stats = args->p[5];
        const real *restrict w = args->p[6];
        const real more = (real)args->scalar[0];
        const int64_t N = kernel->m, C = kernel->n, rstds = args->ld[0];
        for (int64_t n = 0; n < N; n++, dx += C, dy += C, x += C) {
                const real mean = stats[n], rstd = stats[rstds + n];
                real mean_g, mean_gh;
                row_gradients(dw, db, dy, x, w, more, C, mean, rstd, &mean_g, &mean_gh);
                mean_g /= (real)C;
                mean_gh /= (real)C;
                if (kernel->accumulate)
                        for (int64_t c = 0; c < C; c++)
                                dx[c] += rstd *
                                         (dy[c] * (w[c] + more) - mean_g - (x[c] - mean) * rstd * mean_gh);
                else
                        for (int64_t c = 0; c < C; c++)
                                dx[c] = rstd *
                                        (dy[c] * (w[c] + more) - mean_g - (x[c] - mean) * rstd * mean_gh);
        }
}
