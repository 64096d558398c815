#include "runtime/optim/optim.h"

#include <math.h>

double optim_lr(const struct optim *optim, int64_t step)
{
        const double pi = 3.14159265358979323846;
        if (step < optim->warmup)
                return optim->lr * (double)(step + 1) / (double)optim->warmup;
        if (step >= optim->steps)
                return optim->min_lr;
        const double progress = (double)(step - optim->warmup) / (double)(optim->steps - optim->warmup);
        return optim->min_lr + 0.5 * (1 + cos(pi * progress)) * (optim->lr - optim->min_lr);
}

/* What gradients are kept in. */
static enum dtype kept_as(const struct nn_stage *nn)
{
        return memory_copies_gradients(&nn->plan) ? nn->plan.work.dtype : DTYPE_FP32;
}

static void squared_norm(struct nn_stage *nn, int64_t offset, int64_t count, bool accumulate,
                         enum nn_scalar to)
{
        const struct kernel norm = {.kind = KERNEL_SQUARED_NORM,
                                    .dtype = (unsigned char)kept_as(nn),
                                    .accumulate = accumulate,
                                    .batch = 1,
                                    .m = count};
        nn->device->ops->launch(nn->device, &norm,
                                &(struct kernel_args){.p = {&nn->scalars[to], nn_gradients_at(nn, offset)}});
}

/* The squared norm of gradients [begin, begin + count), added to the scalar if there is `more` before. */
static void norm_of(struct nn_stage *nn, int64_t begin, int64_t count, bool *more)
{
        if (count <= 0)
                return;
        squared_norm(nn, begin, count, *more, NN_SQUARED_NORM);
        *more = true;
}

/* ZeRO-2 and 3: the gradients that the replica keeps of the stage's first `count` parameters, as far as they
 * follow each other. */
static void norm_of_kept(struct nn_stage *nn, int64_t count)
{
        int64_t begin = 0;
        bool counts = true, more = false;
        for (int i = 0; i < nn->own_count; i++) {
                const bool counted = nn->own[i].offset < count;
                if (counts && !counted)
                        norm_of(nn, begin, nn->own[i].place - begin, &more);
                if (!counts && counted)
                        begin = nn->own[i].place;
                counts = counted;
        }
        if (counts)
                norm_of(nn, begin, nn->kept - begin, &more);
}

void optim_norm_of_first(struct nn_stage *nn, int64_t count)
{
        bool more = false;
        norm_of(nn, 0, count, &more);
}

void optim_norm(struct nn_stage *nn)
{
        struct stage counts = nn->stage;
        if (nn->own) /* each replica counts its shares, of experts and of all else */
                counts.expert_rank = 0;
        const int64_t count = workload_norm(&nn->gpt, &counts, nn->plan.work.dtype).m;
        bool more = false;
        if (nn->own && nn->plan.gathered) {
                norm_of_kept(nn, count);
                return;
        }
        for (int i = 0; nn->own && i < nn->own_count; i++) { /* a replica may have nothing: the scalar is 0 */
                const int64_t begin = nn->own[i].offset, end = begin + nn->own[i].count;
                norm_of(nn, begin, (end < count ? end : count) - begin, &more);
        }
        if (!nn->own)
                optim_norm_of_first(nn, count);
}

void optim_check_overflow(struct nn_stage *nn, int64_t offset, int64_t count, double limit)
{
        if (!memory_copies_gradients(&nn->plan))
                squared_norm(nn, offset, count, false, NN_OVERFLOW);
        else
                kernels_overflow(nn->device, &nn->scalars[NN_OVERFLOW], nn_at(nn, nn->gradients, offset),
                                 count, limit);
}

bool optim_overflows(const struct nn_stage *nn, double found)
{
        return memory_copies_gradients(&nn->plan) ? found > 0 : !isfinite(found);
}

void optim_clear_first(struct nn_stage *nn, int64_t count)
{
        const struct kernel clear = workload_clear(count, kept_as(nn));
        nn->device->ops->launch(nn->device, &clear, &(struct kernel_args){.p = {nn->gradients}});
}

void optim_clear(struct nn_stage *nn)
{
        optim_clear_first(nn, nn->kept);
}

void optim_add_sum(struct nn_stage *nn, int level)
{
        const struct kernel add = workload_add_gradients(nn->kept, kept_as(nn));
        nn->device->ops->launch(nn->device, &add,
                                &(struct kernel_args){.p = {nn->gradients, nn->gradient_sums[level]}});
}

void optim_keep_sum(struct nn_stage *nn, int level)
{
        struct kernel copies[WORKLOAD_COPY_KERNELS];
        const int count = workload_copy_gradients(nn->kept, kept_as(nn), copies);
        int64_t at = 0;
        for (int i = 0; i < count; i++) {
                nn->device->ops->launch(
                        nn->device, &copies[i],
                        &(struct kernel_args){.p = {nn_sum_at(nn, level, at), nn_gradients_at(nn, at)}});
                at += copies[i].m * copies[i].n;
        }
        optim_clear(nn);
}

/* The largest fp16 is 65504. The sum of `replicas` gradients, and of two such sums where an embedding is
 * shared, is below it if each is below 65504 / (2 replicas), and half of that leaves room for the rounding of
 * partial sums, 2^-11 each, of up to a thousand replicas (bf16: 2^-8 each, and what is as large as that was
 * never a gradient). Where nothing is summed, or no embedding shared, a larger limit would do, but then
 * layouts would skip different steps: a replica's gradients are about 1 / replicas of the batch's, so with
 * one factor for all they overflow for the same batches. */
double optim_overflow_limit(int replicas, enum dtype dtype)
{
        const double largest = dtype == DTYPE_BF16 ? 0x1.fep127 : 65504;
        return largest / (4.0 * replicas);
}

double optim_clip_factor(const struct optim *optim, double squared_norm)
{
        const double norm = sqrt(squared_norm);
        return optim->clip > 0 && norm > optim->clip ? optim->clip / norm : 1;
}

void optim_update(struct nn_stage *nn, const struct optim *optim, int64_t step, int64_t offset, int64_t place,
                  int64_t count, int buffer)
{
        const struct adamw adamw = {.lr = optim_lr(optim, step),
                                    .beta1 = optim->beta1,
                                    .beta2 = optim->beta2,
                                    .epsilon = optim->epsilon,
                                    .weight_decay = optim->weight_decay,
                                    .step = step + 1 - optim->skipped,
                                    .wide_gradients = nn->plan.work.wide_gradients};
        const double *scale = &nn->scalars[NN_GRADIENT_SCALE];
        const int64_t kept = nn->plan.gathered ? place : offset; /* where gradients are */
        const struct nn_bucket *bucket = buffer >= 0 ? &nn->buckets[buffer] : NULL;
        void *weights = bucket && bucket->weights ? bucket->weights : nn_at(nn, nn->weights, offset),
             *gradients = nn_gradients_at(nn, kept);
        if (!work_mixed(&nn->plan.work)) {
                kernels_adamw(nn->device, weights, gradients, nn->adam_m + place, nn->adam_v + place, NULL,
                              nn->ranges, scale, kept, count, &adamw);
                return;
        }
        struct nn_bucket b;
        if (nn->plan.offload)
                b = *bucket;
        else
                b = (struct nn_bucket){NULL, nn->master + place, nn->master_gradients + place,
                                       nn->adam_m + place, nn->adam_v + place};
        if (!memory_copies_gradients(&nn->plan)) {
                kernels_adamw(nn->device, b.master, gradients, b.adam_m, b.adam_v, weights, nn->ranges, scale,
                              kept, count, &adamw);
                return;
        }
        kernels_unscale(nn->device, b.gradients, gradients, scale, count);
        kernels_adamw(nn->device, b.master, b.gradients, b.adam_m, b.adam_v, weights, nn->ranges, NULL, kept,
                      count, &adamw);
}

void loss_scaler_init(struct loss_scaler *scaler, enum dtype dtype)
{
        *scaler = dtype == DTYPE_FP16 ? (struct loss_scaler){.scale = 0x1p16, .min = 0x1p10, .max = 0x1p24}
                                      : (struct loss_scaler){.scale = 1, .min = 1, .max = 1};
}

void loss_scaler_step(struct loss_scaler *scaler, bool overflow)
{
        enum { CLEAN_STEPS = 200 };
        scaler->stuck = overflow && scaler->scale == scaler->min ? scaler->stuck + 1 : 0;
        if (overflow) {
                scaler->scale = fmax(scaler->scale / 2, scaler->min);
                scaler->clean_steps = 0;
        } else if (++scaler->clean_steps == CLEAN_STEPS) {
                scaler->scale = fmin(scaler->scale * 2, scaler->max);
                scaler->clean_steps = 0;
        }
}
