/* The scheduling core: events in, operations out. It decides what one rank does next in a training or
 * validation batch, and nothing else. There is one core for each rank, and a core knows its own stage only:
 * what other ranks do reaches it as messages that have arrived and collectives that have completed.
 *
 *      core_init(memory, &plan, &stage);
 *      core_start(core);                        a batch begins
 *      while (core_next(core, &op)) issue(op);  after core_start and after every core_complete
 *      core_complete(core, &op);                the world finished an operation
 *      core_done(core)                          the batch is complete on this rank
 *
 * runtime/engine makes these calls for the programs, and hands the operations to a world: real devices,
 * SimGrid or a simulation on paper. The plan (plan.h) says what is to be done, a policy (policy.h) what is
 * computed first.
 *
 * The core is pure: no clock, threads, I/O, MPI, CUDA or SimGrid, and no allocation, since the caller brings
 * core_bytes() bytes. The state has no pointers, so a core may be copied, compared and hashed as bytes (the
 * exhaustive test does). Calls that break the rules below are programming errors, which assertions
 * look for; no function returns an error. */
#ifndef RANVIER_RUNTIME_SCHED_CORE_H
#define RANVIER_RUNTIME_SCHED_CORE_H

#include "runtime/sched/op.h"
#include "runtime/sched/plan.h"

#include <stddef.h>

struct core;

/* How many buffers of each sort the schedule of a stage uses at most. Memory is allocated, and predicted, by
 * these numbers, and operations name buffers by indices below them. */
struct core_limits {
        /* Slots on the device, each for the stored activations of a micro-batch in one chunk; those of all
         * chunks together. */
        int slots;
        /* Slots on the host, for offloaded activations. 0 if the stage offloads none, because it stores few
         * enough, because the policy splits backwards, or in validation. */
        int host_slots;
        /* Buffers for received activations; 0 on the first stage of a model that has one chunk a rank. */
        int inputs;
        /* Buffers for gradients that are received, worked on in place and sent. */
        int gradients;
        /* Buffers for what the first part of a backward leaves to the second; 0 unless the policy splits
         * backwards. */
        int deferred;
};
/* Returns the limits of `stage` (0 .. pp - 1). */
struct core_limits core_limits(const struct plan *plan, int stage);

/* Returns how many of the slots of `stage`, the last ones, are for the model's last chunk alone, whose head
 * may be large; the others are for all other chunks. 0: any chunk takes any slot, as where the stage has not
 * that chunk or no other one, or activations are offloaded. */
int core_head_slots(const struct plan *plan, int stage);

/* Returns the most micro-batches that axonn lets into a pipeline at once: plan.pipeline_limit or its default,
 * pp, and never more than the batch has. */
int core_pipeline_limit(const struct plan *plan);

/* Returns how many parameters one optimizer update works on, at most, on a stage of `parameters` parameters.
 * That is plan_update_parameters, or a third of the stage if the optimizer is offloaded and the stage is
 * smaller than a bucket. With ZeRO-1 the replica's part of each chunk is worked through in equal updates, of
 * which this is the size. */
int64_t core_update_parameters(const struct plan *plan, int64_t parameters);

/* Returns how many parameters' gradients one all-reduce sums: a chunk. The last chunk of a stage may have
 * fewer. */
int64_t core_chunk_parameters(const struct plan *plan);

/* What a core knows of its rank's part of the model: sizes, no layers. */
struct core_stage {
        int stage; /* position in the pipeline, below plan.pp */
        /* The parameters that this rank has an optimizer for: all of the stage, with ZeRO-2 and 3 its share
         * of them; at least 1. With ZeRO-1 it is the whole stage too: regions.h works out the shares. */
        int64_t parameters;
        /* Bytes that one micro-batch's stored activations take in one chunk; and what the first and the last
         * chunk of the model store beyond that, for the embedding and for the head. Of several chunks those
         * before `longer_first`, and from `longer_end` on, may store `shorter_bytes` less. */
        int64_t slot_bytes;
        int64_t embedded_bytes, head_bytes, shorter_bytes;
        int longer_first, longer_end;
        /* The parameters [offset, offset + count) that every shard has whole and whose gradients are summed
         * over the shards first, because a shard has them for its own heads only (norms of heads), or, with
         * sequence parallelism, for its own rows (norms, biases of sums). Count 0: there are none. */
        int64_t replicated_offset, replicated_count;
        /* The parameters that every shard has whole, those among them, of all layers: a range behind the
         * others, but for an embedding that is shared with the first stage. Count 0: there are none. */
        int64_t common_offset, common_count;
        /* Of them, those of experts that are spread over replicas (plan.ep above 1): the first ones. */
        int64_t expert_parameters;
        /* Of this rank's share of a checkpoint, as it is copied and written; of hybrid shards the first group
         * writes, and the others nothing. */
        int64_t checkpoint_bytes;
        int replica; /* below plan.dp; with ZeRO it decides which shares are this rank's */
        int shard;   /* below plan.tp; the first one decides for all where shards could disagree */
        /* For ZeRO-2 and 3 only, see gather.c. The stage has `blocks` blocks, at least 1, of which the first
         * `dense` are of another size; the other members are parameters: of the embedding, a block, the
         * head's own, 0 on a stage that does not have it. `tied`: the head works with the embedding's as
         * well, so that these and its own are one unit. On several stages, where first and last share an
         * embedding (plan.embedding_parameters), it ends the unit of either, which has as many parameters on
         * both. */
        struct core_units {
                int blocks, dense;
                bool tied;
                int64_t embedding, dense_block, block, head;
                /* Of a block that is not dense, its first ones: of experts that are spread over replicas. */
                int64_t experts;
                /* Which of each, from its first one on, have gradients that are the sum of those of all
                 * shards (replicated_count above, which is 0 then). In a unit of several these come behind
                 * what comes before them in any. */
                struct {
                        struct plan_range embedding, dense_block, block, head;
                } sums;
        } units;
};

/* ZeRO-2 and 3: what a stage is gathered, and reduced, in. Unit 0 is the embedding, with a tied head's own
 * parameters behind it; then come `blocks` units of blocks; a head that is not tied is the last one. An
 * embedding or head that a stage does not have is a unit without parameters, of which nothing is done.
 * core_units_of returns how many there are of both, and how many parts a pass has. */
struct core_unit_counts {
        int blocks, all, parts;
};
struct core_unit_counts core_units_of(const struct plan *plan, const struct core_units *units);
/* Returns the unit that is the nth part of a forward; a tied head is unit 0 here too. */
int core_unit_nth(const struct plan *plan, const struct core_units *units, int nth);
/* Returns the parameters of a unit; and where this replica keeps its share of them, behind the shares of the
 * units before. Shares are of equal size on all replicas, rounded up. Of one unit more than there are: what a
 * replica keeps in all. */
int64_t core_unit_parameters(const struct plan *plan, const struct core_units *units, int unit);
int64_t core_unit_place(const struct plan *plan, const struct core_units *units, int unit);
/* The parameters [offset, offset + count) of a unit, which are gathered and reduced by one collective of
 * `group`, and of which this replica's share (plan_own) is at `place` of what it keeps. core_unit_parts
 * stores what a unit consists of and returns how many parts these are: spread experts, which replicas with
 * the same ones share, and all else. */
struct core_unit_part {
        enum op_group group;
        int64_t offset, count, place;
};
enum { CORE_UNIT_PARTS = 2 };
int core_unit_parts(const struct plan *plan, const struct core_units *units, int unit,
                    struct core_unit_part parts[CORE_UNIT_PARTS]);
/* Returns which of a unit's gradients shards sum. */
struct plan_range core_unit_sum(const struct plan *plan, const struct core_units *units, int unit);

/* ZeRO-2 and 3: buffers of whole units' weights, and of their gradients. The first `ends` are for the
 * embedding and the head (1: both take turns in it, or are one unit), the others for units of blocks; `own`:
 * each has its own, else they take turns. */
struct core_gathers {
        struct core_unit_buffers {
                int ends, blocks;
                bool own;
        } weights, gradients;
};
struct core_gathers core_gathers(const struct plan *plan, const struct core_units *units);

/* Returns the bytes that core_init needs. */
size_t core_bytes(const struct plan *plan, const struct core_stage *stage);

/* Makes a core in `memory`, which is and stays the caller's: core_bytes() bytes, aligned as malloc aligns.
 * `plan` and `stage` are copied. There is nothing to free but the memory. Returns the core, at the beginning
 * of `memory`; core_start must come before the first core_next.
 *
 * The plan must be sound, which is asserted:
 * - pp, dp, tp, virtual_stages, bucket_parameters and allreduce_buckets are at least 1; micro_batches is at
 * least 0 (a batch of 0 has only what follows the pipeline).
 * - `offload` needs `mixed`.
 * - virtual_stages above 1 needs the interleaved policy, which needs micro_batches to be a multiple of pp.
 * - ep divides dp.
 * - `overlap_allreduce` needs zero 0 or 1, ep 1 and cp 1.
 * - `logical` above 1 needs core_stands_for.
 * - zero 2 and 3 need a policy that does not split backwards; 3 one stage, 2 ep 1 and one chunk a rank. */
struct core *core_init(void *memory, const struct plan *plan, const struct core_stage *stage);

/* A message carries one number beside its data: the virtual micro-batch (plan_vmbs) that it is for, as its
 * receiver numbers it. core_message_vmb returns that number for the message `sent`, which the rank of `stage`
 * has issued. */
int core_message_vmb(const struct plan *plan, int stage, const struct op *sent);
/* Sets the chunk and micro-batch of `received`, a receive that has completed with the number `vmb`. To be
 * called before core_complete is told. */
void core_set_vmb(const struct plan *plan, struct op *received, int vmb);

/* Returns whether replicas of this plan may stand for `logical` ones each (logical.c): that is a power of two
 * which divides the micro-batches, and nothing else in the plan sums gradients in an order of its own. */
bool core_stands_for(const struct plan *plan);
/* Returns how many arrays there are beside the gradients for sums of logical replicas that wait, one for each
 * level of the tree: log2(logical). */
int core_logical_levels(const struct plan *plan);
/* Returns how many of them, those of levels 0, 1, ... in this order, are added to what the logical replica
 * `replica` made. Unless that was the last one, the sum then waits in the array of the next level, and the
 * gradients begin again as zeros. */
int core_logical_sums(int replica);

/* Returns whether the shards of `stage` follow what the first of them decides (decision.c). */
bool core_decides(const struct plan *plan, int stage);
/* Returns a decision that is not known yet: all that a world needs to price one. */
struct op core_decision(void);
/* A decision is one number, as a message carries it beside its data. core_decision_number returns that of an
 * OP_DECISION that shard 0 has issued; core_set_decision sets `of`, chunk and micro-batch of another shard's
 * by it, before core_complete is told. */
int core_decision_number(const struct plan *plan, const struct op *decision);
void core_set_decision(const struct plan *plan, struct op *decision, int number);

/* Begins a batch and forgets the one before, of which no operation may be under way but an OP_WRITE. */
void core_start(struct core *core);
/* Hands out one operation that can begin now: fills in `op` and returns true. Returns false, with `op`
 * unspecified, if nothing can begin before another operation completes. To be called until it returns
 * false. */
bool core_next(struct core *core, struct op *op);
/* Tells the core that the world has finished `op`: the operation as it was issued, with the members that the
 * driver fills in (op.h). Operations of different lanes may complete in any order. core_next must have been
 * called since the completion before this one. */
void core_complete(struct core *core, const struct op *op);
/* Returns whether the batch is complete on this rank: nothing is under way, and nothing is to come. A
 * checkpoint may still be written (core_writing). */
bool core_done(const struct core *core);

/* Returns whether the pipeline phase is over on this rank: all forwards and backwards of the batch are done
 * (in validation all forwards). What follows is the optimizer's. */
bool core_pipeline_done(const struct core *core);

/* Returns whether an OP_WRITE is under way. It may complete at any time, in later batches or between two. */
bool core_writing(const struct core *core);

/* Returns how many operations of the batch were issued and have not completed; an OP_WRITE is of none. */
int core_in_flight(const struct core *core);

/* Returns how many buffers of each sort are in use now. */
struct core_limits core_in_use(const struct core *core);

/* Returns the bytes of the slots that are in use now: of those on the device or, if `offloaded`, of those on
 * the host. */
int64_t core_stored_bytes(const struct core *core, bool offloaded);

#endif
