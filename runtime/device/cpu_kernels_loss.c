/* Cross-entropy of logits (N, V) with integer targets. */
#include "runtime/device/cpu_kernels.h"
#include "runtime/device/cpu_math.h"

/* Sum of e^(x - most) over a row, without writing it. */
static real exp_sum(const real *x, int64_t V, real most)
{
        real lane[LANES_IN_SUM] = {0};
        int64_t i = 0;
        for (; i + LANES_IN_SUM <= V; i += LANES_IN_SUM)
                for (int j = 0; j < LANES_IN_SUM; j++)
                        lane[j] += real_exp(x[i + j] - most);
        for (int j = 0; i + j < V; j++)
                lane[j] += real_exp(x[i + j] - most);
        return lanes_sum(lane);
}

/* -log softmax(row)[target] = log(sum e^(x - most)) + most - x[target]. */
static double row_loss(real sum, real most, real logit)
{
        return log((double)sum) + ((double)most - (double)logit);
}

/* Leaves scale (softmax - onehot) in the logits. */
void cpu_cross_entropy(const struct kernel *kernel, const struct kernel_args *args)
{
        double *restrict loss = args->p[0];
        real *restrict x = args->p[1];
        const int32_t *restrict targets = args->p[2];
        const int64_t N = kernel->m, V = kernel->n;
        const real scale = (real)args->scalar[0];
        for (int64_t n = 0; n < N; n++, x += V) {
                const real most = row_max(x, V), logit = x[targets[n]];
                for (int64_t v = 0; v < V; v++)
                        x[v] = real_exp(x[v] - most);
                const real sum = row_sum(x, V), rescale = scale / sum;
                for (int64_t v = 0; v < V; v++)
                        x[v] *= rescale;
                x[targets[n]] -= scale;
                *loss += row_loss(sum, most, logit);
        }
}

void cpu_cross_entropy_loss(const struct kernel *kernel, const struct kernel_args *args)
{
        double *restrict loss = args->p[0];
        const real *restrict x = args->p[1];
        const int32_t *restrict targets = args->p[2];
        const int64_t N = kernel->m, V = kernel->n;
        for (int64_t n = 0; n < N; n++, x += V) {
                const real most = row_max(x, V);
                *loss += row_loss(exp_sum(x, V, most), most, x[targets[n]]);
        }
}
