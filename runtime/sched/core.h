/* The scheduling core: events in, operations out. One core a rank; a core knows its own stage only.
 *
 *      core_init(memory, &plan, &stage);
 *      core_start(core);                        a batch begins
 *      while (core_next(core, &op)) issue(op);  after core_start and after every core_complete
 *      core_complete(core, &op);                the world finished an operation
 *      core_done(core)                          the batch is complete on this rank
 *
 * Pure: no clock, threads, I/O, MPI, CUDA, SimGrid, and no allocation: the caller brings core_bytes() bytes.
 * The state has no pointers, so a core may be copied, compared and hashed as bytes (the exhaustive test
 * does). */
#ifndef RANVIER_RUNTIME_SCHED_CORE_H
#define RANVIER_RUNTIME_SCHED_CORE_H

#include "runtime/sched/op.h"
#include "runtime/sched/plan.h"

#include <stddef.h>

struct core;

/* How many buffers of each sort the schedule of `stage` uses at most. */
struct core_limits {
        int slots;      /* stored activations, on the device, of all chunks */
        int host_slots; /* offloaded activations; 0: this stage offloads none (it stores few enough, or its
                           backwards are in parts) */
        int inputs;     /* received activations; 0 on the first stage of one chunk */
        int gradients;  /* gradients received, worked on, sent */
        int deferred;   /* what backwards leave for the gradients of weights; 0: these are not parted */
};
struct core_limits core_limits(const struct plan *plan, int stage);

/* Of these slots, those that can hold a micro-batch of `chunk`: offloaded, all; else each chunk has its own,
 * and they lie in the order of the chunks. */
int core_chunk_slots(const struct plan *plan, int stage, int chunk);

/* AxoNN's limit after its default (pp) and the number of micro-batches are taken into account. */
int core_pipeline_limit(const struct plan *plan);

/* Parameters that one optimizer update of a stage works on: plan_update_parameters, but of a stage smaller
 * than a bucket, offloaded, a third of the stage. With zero the stage's share of it, and a chunk's share is
 * worked through in equal parts. */
int64_t core_update_parameters(const struct plan *plan, int64_t parameters);

/* What is all-reduced at once; the last chunk of a stage may have less. */
int64_t core_chunk_parameters(const struct plan *plan);

/* What a core knows of its rank's part of the model. */
struct core_stage {
        int stage;          /* of plan.pp */
        int64_t parameters; /* of this rank (zero 3: its share), for buckets; at least 1 */
        int64_t slot_bytes; /* of a micro-batch's stored activations in one chunk, */
        int64_t embedded_bytes,
                head_bytes; /* and what the first and the last chunk of the model store more */
        /* Sequence parallel shards: parameters whose gradients are first summed over the shards, because each
         * has that of its rows only; 0: none. */
        int64_t replicated_offset, replicated_count;
        int replica; /* of plan.dp: which shares are this rank's (zero) */
        /* Zero 3, else not looked at: blocks of one chunk, and parameters of what is gathered whole before it
         * is computed; of the head also how many of them have gradients that are reduced when its backward is
         * done (a tied one's others are the embedding's). See gather.c. */
        struct core_units {
                int64_t blocks, embedding, block, head, head_gradient;
        } units;
};

size_t core_bytes(const struct plan *plan, const struct core_stage *stage);

/* `memory`: core_bytes() bytes aligned as malloc aligns; `plan` and `stage` are copied. The plan must be
 * sound: pp, dp, tp, virtual_stages, bucket_parameters, allreduce_buckets >= 1, micro_batches >= 0 (0: a
 * batch is what follows the pipeline, alone), offload only if mixed, virtual_stages > 1 only if interleaved,
 * and then micro_batches a multiple of pp. */
struct core *core_init(void *memory, const struct plan *plan, const struct core_stage *stage);

/* A message carries one number: the piece (see plan_pieces) that it is for its receiver. `sent` was issued by
 * the rank at position `stage`; and into a receive that has completed, on whatever rank. */
int core_message_piece(const struct plan *plan, int stage, const struct op *sent);
void core_set_piece(const struct plan *plan, struct op *received, int piece);

void core_start(struct core *core);
bool core_next(struct core *core, struct op *op);
void core_complete(struct core *core, const struct op *op);
bool core_done(const struct core *core);

/* The pipeline phase is over on this rank: all that it has to compute for the micro-batches is done. */
bool core_pipeline_done(const struct core *core);

/* Operations issued and not completed. */
int core_in_flight(const struct core *core);

/* How many buffers of each sort are in use now. */
struct core_limits core_in_use(const struct core *core);

/* Bytes of the slots that are in use now, on the device or offloaded. */
int64_t core_stored_bytes(const struct core *core, bool offloaded);

#endif
