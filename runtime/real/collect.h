/* What the ranks of a training bring to rank 0 when a batch is not running, so that rank 0 can write it:
 * records of the trace, and the parameters for a checkpoint. All functions are collective: every rank calls
 * them, in the same order, and no message of a batch may be under way. They abort the program if there is no
 * memory, because other ranks wait for their messages. */
#ifndef RANVIER_RUNTIME_REAL_COLLECT_H
#define RANVIER_RUNTIME_REAL_COLLECT_H

#include "runtime/plan/options.h"
#include "runtime/engine/trace.h"
#include "runtime/net/net.h"
#include "runtime/nn/nn.h"

/* Appends the records of all other ranks to rank 0's trace, in the order of ranks. Their own traces stay as
 * they are. */
void collect_trace(struct net *, struct trace *);

/* Writes the model to the folder or file `path` on rank 0, as checkpoint.h describes. `step` says how many
 * batches it was trained on. The parameters come from the stages of replica 0 (and of those that have the
 * other experts), one tensor after another, so rank 0 needs memory for a few tensors only; with ZeRO-1 and
 * mixed precision, whose replicas have a share of the master parameters each, all replicas take part. Waits
 * for the device first. Returns 0, or a negative rv_error with a sentence, the same on every rank. */
int collect_checkpoint(struct net *, const struct options *, struct nn_stage *, const char *path,
                       int64_t step, struct rv_error_info *err);

/* Sums `values` over a group, in place on each member. Any number of elements is right, also more than the
 * int in which MPI counts them. */
void collect_sum(struct net *, float *values, int64_t elements, enum net_group group);

#endif
