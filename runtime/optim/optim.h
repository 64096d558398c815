/* The optimizer step as enqueued kernels: global norm, clipping factor, AdamW; and the learning rate's
 * course. */
#ifndef RANVIER_RUNTIME_OPTIM_OPTIM_H
#define RANVIER_RUNTIME_OPTIM_OPTIM_H

#include "runtime/device/kernels.h"
#include "runtime/nn/nn.h"

struct optim {
        double lr, min_lr;     /* peak, and at the end of the cosine */
        int64_t warmup, steps; /* linear warm-up steps; total steps */
        double beta1, beta2, epsilon, weight_decay;
        double clip;     /* global norm; 0: off */
        int64_t skipped; /* steps so far that an overflow skipped: the moments' bias correction does not count
                            them (as PyTorch's GradScaler does it), the learning rate's course does */
};

/* Learning rate of `step` (from 0): linear warm-up to lr, then a cosine to min_lr at `steps`. */
double optim_lr(const struct optim *, int64_t step);

/* Mixed: enqueues the look for gradients beyond `limit` or not a number, into scalars[NN_OVERFLOW]. */
void optim_check_overflow(struct nn_stage *, int64_t offset, int64_t count, double limit);

/* After an overflow, and with zero after all updates: enqueues gradients = 0. */
void optim_clear(struct nn_stage *);

/* Enqueues scalars[NN_SQUARED_NORM] = squared norm of the gradients that this stage counts: all, but on the
 * last of several stages not the tied head (the first stage counts it). Zero: of this replica's shares. */
void optim_norm(struct nn_stage *);

/* min(1, clip / sqrt(squared_norm)): the factor that the gradients are multiplied with; 1 if clip is 0. */
double optim_clip_factor(const struct optim *, double squared_norm);

/* Enqueues what workload_update lists for parameters [offset, offset + count), with
 * scalars[NN_GRADIENT_SCALE] as gradient scale; in buckets[buffer], or in place if that is -1. `place`: where
 * the optimizer's arrays have them. step from 0. */
void optim_update(struct nn_stage *, const struct optim *, int64_t step, int64_t offset, int64_t place,
                  int64_t count, int buffer);

/* Dynamic loss scaling of fp16 (AxoNN's constants): begins at 2^16, halves with an overflow but not below
 * 2^10, doubles after 200 steps without one but not above 2^24. bf16 has the range of fp32: the scale
 * stays 1. */
struct loss_scaler {
        double scale, min, max;
        int clean_steps; /* since the last change */
        int stuck;       /* overflows in a row although the scale was at its least */
};
void loss_scaler_init(struct loss_scaler *, enum dtype dtype);
void loss_scaler_step(struct loss_scaler *, bool overflow);

/* The largest gradient that may go into an all-reduce over `replicas` in this format: with none beyond it no
 * sum can overflow, rounded partial sums and the two copies of a tied embedding included. The same share of 1
 * / replicas on every layout, so that all skip the same steps. An overflow is looked for before the
 * all-reduce, so that updates can begin while its later chunks are under way. */
double optim_overflow_limit(int replicas, enum dtype dtype);

#endif
