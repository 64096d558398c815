/* What ranks bring to rank 0 outside of batches, for it to be written. Collective: every
 * rank calls, in the same order. */
#ifndef RANVIER_RUNTIME_REAL_COLLECT_H
#define RANVIER_RUNTIME_REAL_COLLECT_H

#include "runtime/plan/options.h"
#include "runtime/engine/trace.h"
#include "runtime/net/net.h"
#include "runtime/nn/nn.h"

/* Adds the records of all other ranks to rank 0's trace. */
void collect_trace(struct net *, struct trace *);

/* Writes the model to `path` from the stages of replica 0, on rank 0. */
int collect_checkpoint(struct net *, const struct options *, struct nn_stage *, const char *path,
                       int64_t step, struct rv_error_info *err);

/* Sums `values` of all replicas of a stage, in place on each. Any number of elements: MPI counts them in an
 * int. */
void collect_sum(struct net *, float *values, int64_t elements);

#endif
