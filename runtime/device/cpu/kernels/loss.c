/* Cross-entropy of logits (N, V) with integer targets. */
#include "runtime/device/cpu/kernels/kernels.h"
#include "runtime/device/cpu/kernels/math.h"

#include <math.h>

/* Elements between rows of logits. */
static int64_t apart(const struct kernel_args *args)
{
        return args->stride[0][1];
}

/* Sum of e^(x - max) over a row, without writing it. */
static real exp_sum(const real *x, int64_t V, real max)
{
        real lane[LANES_IN_SUM] = {0};
        int64_t i = 0;
        for (; i + LANES_IN_SUM <= V; i += LANES_IN_SUM)
                for (int j = 0; j < LANES_IN_SUM; j++)
                        lane[j] += real_exp(x[i + j] - max);
        for (int j = 0; i + j < V; j++)
                lane[j] += real_exp(x[i + j] - max);
        return lanes_sum(lane);
}

/* -log softmax(row)[target] = log(sum e^(x - max)) + max - x[target]. */
static double row_loss(real sum, real max, real logit)
{
        return log((double)sum) + ((double)max - (double)logit);
}

/* ---- over a part of the vocabulary: see cross_entropy in kernels.h ---- */

/* What a row's softmax and loss are made of. */
struct numbers {
        real max, sum, logit;
};

static struct numbers *numbers_of(const struct kernel_args *args, int64_t shard, int64_t row)
{
        const int64_t rows = args->ld[2], first = args->ld[1];
        return (struct numbers *)args->p[3] + shard * rows + first + row;
}

/* Of a row, of which one logit may be the target's. */
static void write_numbers(const struct kernel *kernel, const struct kernel_args *args)
{
        const real *x = args->p[1];
        const int32_t *targets = args->p[2];
        const int64_t first = args->ld[0], valid = args->stride[0][0];
        for (int64_t n = 0; n < kernel->m; n++, x += apart(args)) {
                const int64_t target = targets[n] - first;
                const real max = valid > 0 ? row_max(x, valid) : (real)-INFINITY;
                *numbers_of(args, 0, n) = (struct numbers){
                        .max = max,
                        .sum = valid > 0 ? exp_sum(x, valid, max) : 0,
                        .logit = target >= 0 && target < valid ? x[target] : 0,
                };
        }
}

/* Of the whole row, from those of its parts, first to last. */
static struct numbers all_numbers(const struct kernel_args *args, int64_t row)
{
        struct numbers all = {(real)-INFINITY, 0, 0};
        for (int64_t shard = 0; shard < args->inner; shard++) {
                const struct numbers *part = numbers_of(args, shard, row);
                all.max = part->max > all.max ? part->max : all.max;
                all.logit += part->logit;
        }
        for (int64_t shard = 0; shard < args->inner; shard++) {
                const struct numbers *part = numbers_of(args, shard, row);
                all.sum += part->sum * real_exp(part->max - all.max);
        }
        return all;
}

static void cross_entropy_part(const struct kernel *kernel, const struct kernel_args *args)
{
        double *restrict loss = args->p[0];
        real *restrict x = args->p[1];
        const int32_t *restrict targets = args->p[2];
        const int64_t V = kernel->n, first = args->ld[0], valid = args->stride[0][0];
        const real scale = (real)args->scalar[0];
        for (int64_t n = 0; n < kernel->m; n++, x += apart(args)) {
                const struct numbers all = all_numbers(args, n);
                const real rescale = scale / all.sum;
                const int64_t target = targets[n] - first;
                for (int64_t v = 0; v < V; v++)
                        x[v] = v < valid ? rescale * real_exp(x[v] - all.max) : 0;
                if (target >= 0 && target < valid)
                        x[target] -= scale;
                *loss += row_loss(all.sum, all.max, all.logit);
        }
}

static void loss_of_numbers(const struct kernel *kernel, const struct kernel_args *args)
{
        double *loss = args->p[0];
        for (int64_t n = 0; n < kernel->m; n++) {
                const struct numbers all = all_numbers(args, n);
                *loss += row_loss(all.sum, all.max, all.logit);
        }
}

/* ---- over all of it ---- */

/* Leaves scale (softmax - onehot) in the logits. */
void cpu_cross_entropy(const struct kernel *kernel, const struct kernel_args *args)
{
        if (args->p[3]) {
                cross_entropy_part(kernel, args);
                return;
        }
        double *restrict loss = args->p[0];
        real *restrict x = args->p[1];
        const int32_t *restrict targets = args->p[2];
        const int64_t N = kernel->m, V = kernel->n;
        const real scale = (real)args->scalar[0];
        for (int64_t n = 0; n < N; n++, x += apart(args)) {
                const real max = row_max(x, V), logit = x[targets[n]];
                for (int64_t v = 0; v < V; v++)
                        x[v] = real_exp(x[v] - max);
                const real sum = row_sum(x, V), rescale = scale / sum;
                for (int64_t v = 0; v < V; v++)
                        x[v] *= rescale;
                x[targets[n]] -= scale;
                *loss += row_loss(sum, max, logit);
        }
}

void cpu_cross_entropy_loss(const struct kernel *kernel, const struct kernel_args *args)
{
        if (args->p[3]) {
                (args->p[1] ? write_numbers : loss_of_numbers)(kernel, args);
                return;
        }
        double *restrict loss = args->p[0];
        const real *restrict x = args->p[1];
        const int32_t *restrict targets = args->p[2];
        const int64_t N = kernel->m, V = kernel->n;
        for (int64_t n = 0; n < N; n++, x += apart(args)) {
                const real max = row_max(x, V);
                *loss += row_loss(exp_sum(x, V, max), max, x[targets[n]]);
        }
}
