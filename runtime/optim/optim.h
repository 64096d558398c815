/* The optimizer of a training: AdamW with a learning rate that warms up and then falls on a cosine, clipping
 * by the global norm of the gradients, and dynamic loss scaling for fp16. Functions that take a struct
 * nn_stage enqueue kernels on the compute lane of its device and do not wait for them; the driver
 * (runtime/real/driver_real.h) calls them for the operations of the core. The others compute on the host.
 * What is summed over ranks is the driver's matter. */
#ifndef RANVIER_RUNTIME_OPTIM_OPTIM_H
#define RANVIER_RUNTIME_OPTIM_OPTIM_H

#include "runtime/device/kernels.h"
#include "runtime/nn/nn.h"

struct optim {
        double lr, min_lr;     /* the learning rate at its peak, and at the end of the cosine */
        int64_t warmup, steps; /* of linear warm-up, and of the whole training */
        double beta1, beta2, epsilon, weight_decay;
        double clip; /* the global norm to which gradients are clipped; 0: they are not */
        /* Steps so far that an overflow skipped. The moments' bias correction does not count them (as
         * PyTorch's GradScaler does it), but the learning rate does. */
        int64_t skipped;
};

/* Returns the learning rate of `step` (from 0). */
double optim_lr(const struct optim *, int64_t step);

/* For mixed precision: enqueues a look at the gradients of parameters [offset, offset + count). If they are
 * stored in 16 bits scalars[NN_OVERFLOW] becomes 1 if one of them is beyond `limit` or not a number, else 0;
 * if they are kept in fp32, their squared norm. optim_overflows says whether what was found, or the sum of
 * what all ranks found, is an overflow. */
void optim_check_overflow(struct nn_stage *, int64_t offset, int64_t count, double limit);
bool optim_overflows(const struct nn_stage *, double found);

/* Enqueues that all gradients become 0: after an overflow, and with ZeRO after all updates. */
void optim_clear(struct nn_stage *);
/* Of the first `count` alone. */
void optim_clear_first(struct nn_stage *, int64_t count);

/* Logical replicas: enqueue that what is in nn->gradient_sums[level] is added to the gradients; and that
 * these are copied there and become 0. */
void optim_add_sum(struct nn_stage *, int level);
void optim_keep_sum(struct nn_stage *, int level);

/* Enqueues the squared norm of the gradients that this stage counts, into scalars[NN_SQUARED_NORM]. These are
 * all of them, but on the last of several stages not those of a tied head, which the first stage counts. With
 * ZeRO they are those of this replica's shares. */
void optim_norm(struct nn_stage *);
/* Of the first `count` alone, whatever they are. */
void optim_norm_of_first(struct nn_stage *, int64_t count);

/* Returns the factor that gradients are multiplied with to clip them: min(1, clip / sqrt(squared_norm)), or 1
 * if clip is 0. */
double optim_clip_factor(const struct optim *, double squared_norm);

/* Enqueues the update of parameters [offset, offset + count): the kernels that workload_update lists.
 * Gradients are multiplied with scalars[NN_GRADIENT_SCALE]. `place` is where the optimizer's arrays have
 * these parameters: `offset`, but with ZeRO. `buffer` says in which of the stage's buckets an offloaded
 * update works, which nn_fetch must have filled; -1 means in place. `step` counts from 0. */
void optim_update(struct nn_stage *, const struct optim *, int64_t step, int64_t offset, int64_t place,
                  int64_t count, int buffer);

/* Dynamic loss scaling for fp16, with AxoNN's constants. The scale begins at 2^16. It halves with every
 * overflow, but not below 2^10, and doubles after 200 steps without one, but not above 2^24. For other
 * formats the scale stays 1, since bf16 has the range of fp32. All ranks call loss_scaler_step alike, so all
 * have the same scale. */
struct loss_scaler {
        double scale, min, max;
        int clean_steps; /* without an overflow, since the scale changed last */
        int stuck;       /* overflows in a row although the scale was at its least */
};
void loss_scaler_init(struct loss_scaler *, enum dtype dtype);
/* Tells the scaler whether the step that has ended overflowed. */
void loss_scaler_step(struct loss_scaler *, bool overflow);

/* Returns the largest gradient that may go into an all-reduce over `replicas` in this format. If none is
 * beyond it, no sum can overflow, rounded partial sums and the two copies of a tied embedding included. It is
 * the same share of 1 / replicas on every layout, so that all layouts skip the same steps. Gradients are
 * checked before the all-reduce, so that updates can begin while its later chunks are under way. */
double optim_overflow_limit(int replicas, enum dtype dtype);

#endif
