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
        double clip; /* global norm; 0: off */
};

/* Learning rate of `step` (from 0): linear warm-up to lr, then a cosine to min_lr at `steps`. */
double optim_lr(const struct optim *, int64_t step);

/* Enqueues scalars[1] = squared norm of the gradients that this stage counts: all, but on the last of several
 * stages not the tied head (the first stage counts it). */
void optim_norm(struct nn_stage *);

/* min(1, clip / sqrt(squared_norm)): the factor that the gradients are multiplied with; 1 if clip is 0. */
double optim_clip_factor(const struct optim *, double squared_norm);

/* Enqueues AdamW for parameters [offset, offset + count) with scalars[2] as gradient scale. step from 0. */
void optim_update(struct nn_stage *, const struct optim *, int64_t step, int64_t offset, int64_t count);

#endif
