/* What the shards of a stage do together in the midst of a forward or backward. Private to nn.
 *
 * A pass is written as if nothing came between its kernels. It runs in segments: the functions below count
 * what shards do together, and kernels are launched in the segment that is asked for alone; the others are
 * walked past (device->passing), and blocks that lie outside it are skipped whole. With one shard a pass is
 * one segment, and the functions below do nothing. */
#ifndef RANVIER_RUNTIME_NN_SHARDS_H
#define RANVIER_RUNTIME_NN_SHARDS_H

#include "runtime/nn/nn.h"

struct nn_walk {
        int at;      /* things done together so far in this pass */
        int segment; /* the segment that runs */
};

/* Begins a walk to segment nn->segment; ends it: whether shards do something together behind it, which then
 * stands in nn->together. */
void shards_begin(struct nn_stage *nn);
bool shards_end(struct nn_stage *nn);

/* Whether a block in which shards do `count` things together lies outside the segment; it is then counted. */
bool shards_skip(const struct nn_stage *nn, int count);

/* Sequence parallel: whether a shard has some of the rows of what is not split. */
bool shards_scattered(const struct nn_stage *nn);

/* All N rows of what a shard has `own` rows of (N,C): in work_gather, until the next call. If it has all
 * rows, `own`. */
const void *shards_gather(const struct nn_stage *nn, const void *own);

/* `partial` (N,C) is each shard's part of a sum: returns where the sum is; if scattered, its own rows, in
 * `own`. */
void *shards_sum(const struct nn_stage *nn, void *partial, void *own);

/* Each shard's numbers of the loss, in place in work_losses. */
void shards_gather_losses(const struct nn_stage *nn);

#endif
