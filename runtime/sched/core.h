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

/* How many buffers of each sort the schedule of a stage uses at most. */
struct core_limits {
        int slots;      /* on the device, each for the stored activations of a micro-batch in one chunk; those
                           of all chunks */
        int host_slots; /* on the host, for offloaded activations; 0 if the stage offloads none, because it
                           stores few enough or because the policy splits backwards */
        int inputs; /* for received activations; 0 on the first stage of a model that has one chunk a rank */
        int gradients; /* for gradients that are received, worked on and sent */
        int deferred;  /* for what the first part of a backward leaves to the second; 0 unless the policy
                          splits backwards */
};
struct core_limits core_limits(const struct plan *plan, int stage);

/* How many of the slots can hold a micro-batch of `chunk`. All of them if activations are offloaded; else
 * each chunk has slots of its own, which lie one chunk after the other. */
int core_chunk_slots(const struct plan *plan, int stage, int chunk);

/* The most micro-batches that axonn lets into a pipeline at once: plan.pipeline_limit or its default, pp, and
 * never more than there are. */
int core_pipeline_limit(const struct plan *plan);

/* How many parameters one optimizer update of a stage works on, at most. That is plan_update_parameters, or a
 * third of the stage if the optimizer is offloaded and the stage is smaller than a bucket. With ZeRO-1 it is
 * this replica's part of that, so that the part of a chunk is worked through in equal updates. */
int64_t core_update_parameters(const struct plan *plan, int64_t parameters);

/* How many parameters' gradients one all-reduce sums; the last one of a stage may have fewer. */
int64_t core_chunk_parameters(const struct plan *plan);

/* What a core knows of its rank's part of the model: sizes, no layers. */
struct core_stage {
        int stage;          /* of plan.pp */
        int64_t parameters; /* that this rank updates (with ZeRO-3 its share of the stage); at least 1 */
        int64_t slot_bytes; /* of a micro-batch's stored activations in one chunk, */
        int64_t embedded_bytes,
                head_bytes; /* and what the first and the last chunk of the model store beyond that */
        /* With sequence parallelism: the parameters that every shard has whole (norms, biases of sums). A
         * shard has their gradients for its own rows only, so they are summed over the shards first. Count 0:
         * none. */
        int64_t replicated_offset, replicated_count;
        int replica; /* of plan.dp, which decides the parts that are this rank's with ZeRO */
        /* For ZeRO-3 only, see gather.c: how many blocks a chunk has, and the parameters of each unit that is
         * gathered whole before it is computed. `head_gradient`: of the head, those whose gradients are
         * reduced when its backward is done (a tied head's other gradients are the embedding's). */
        struct core_units {
                int64_t blocks, embedding, block, head, head_gradient;
        } units;
};

size_t core_bytes(const struct plan *plan, const struct core_stage *stage);

/* Makes a core in `memory`, which is the caller's: core_bytes() bytes, aligned as malloc aligns. `plan` and
 * `stage` are copied. The plan must be sound: pp, dp, tp, virtual_stages, bucket_parameters and
 * allreduce_buckets are at least 1; micro_batches is at least 0 (a batch of 0 has only what follows the
 * pipeline); offload needs mixed; virtual_stages above 1 needs the interleaved policy, and then micro_batches
 * is a multiple of pp. */
struct core *core_init(void *memory, const struct plan *plan, const struct core_stage *stage);

/* A message carries one number: which virtual micro-batch it is for its receiver. The first function says it
 * for the message `sent`, which the rank of `stage` has issued; the second one writes it into `received`, a
 * receive that has completed, before core_complete is told. */
int core_message_vmb(const struct plan *plan, int stage, const struct op *sent);
void core_set_vmb(const struct plan *plan, struct op *received, int vmb);

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
