/* An operation: one unit of work that the scheduling core issues and a world carries out, on real devices, in
 * SimGrid or on paper. struct op says what kind of work it is, on which lane it runs, and which buffers,
 * parameters and bytes it is about.
 *
 * core_next (core.h) fills in an operation, runtime/engine gives it a serial number and hands it to the
 * world's driver (runtime/engine/driver.h), and the operation comes back through core_complete when the world
 * is done with it. Buffers are named by their index; which memory that is, the world decides. In this header
 * `the driver` is the world's side of that exchange. */
#ifndef RANVIER_RUNTIME_SCHED_OP_H
#define RANVIER_RUNTIME_SCHED_OP_H

#include "runtime/sched/plan.h"

/* The kinds of operations. The comment on each kind names the members of struct op that say what it works on:
 * `input`, `slot`, `gradient` and so on. The lane of each kind is fixed, see op_lane_of; only sums between
 * groups of hybrid shards have one of their own, LANE_SHARES. */
enum op_kind {
        /* Copies the tokens of a batch (first stage) and its targets (last stage) from the host to
         * the device. */
        OP_LOAD,
        /* Receives the activations of a micro-batch into `input`. Which one it is, is not known when the
         * receive is posted: the driver sets `chunk` and `micro_batch` on completion (core_set_vmb). */
        OP_RECEIVE_ACTIVATION,
        /* Computes from `input` (-1 on a stage that begins with the embedding) and stores
         * activations in `slot`. */
        OP_FORWARD,
        /* Sends the output that is in `slot` to the next stage. */
        OP_SEND_ACTIVATION,
        /* Receives the gradient of an output into `gradient`; completed as OP_RECEIVE_ACTIVATION is. */
        OP_RECEIVE_GRADIENT,
        /* Computes gradients from what `slot` and `input` hold. The gradient of the output, in `gradient`,
         * becomes that of the input in place. `parts` says whether it is a whole backward. */
        OP_BACKWARD,
        /* Sends `gradient` to the previous stage. */
        OP_SEND_GRADIENT,
        /* Adds the gradients of the `bucket`-th of the logical replicas that this one stands for to those of
         * the ones before; see logical.c. */
        OP_ADD_REPLICA,
        /* Sums the gradients of parameters [offset, offset + count) over `group`. As a part of a backward
         * (ZeRO-2, 3) these are in the buffer `reduced`, see gather.c. */
        OP_ALLREDUCE,
        /* Computes the squared norm of this stage's gradients, with ZeRO of this replica's shares of
         * them. */
        OP_NORM,
        /* Sums the squared norm, the loss, and what ranks have to tell each other, over all ranks: OP_SCALARS
         * doubles. */
        OP_REDUCE_SCALARS,
        /* Applies AdamW to parameters [offset, offset + count): the `bucket`-th update. If the optimizer is
         * offloaded, its state is in `buffer`. */
        OP_UPDATE,
        /* With plan.mixed: looks for a gradient of this rank that is too large to be summed. */
        OP_CHECK_OVERFLOW,
        /* Tells all ranks whether any of them found one; the driver sets `overflow` on completion. */
        OP_REDUCE_OVERFLOW,
        /* Sets all gradients to zero: after an overflow, instead of the updates; with ZeRO-1 also after
         * them. */
        OP_CLEAR,
        /* Copies the master parameters and moments of an update from the host into `buffer`. */
        OP_FETCH,
        /* Copies the same from `buffer` back to the host. */
        OP_WRITE_BACK,
        /* With plan.offload_parameters: copies this replica's share of the `count` weights of a unit to its
         * place in the buffer `gathered`, before the OP_ALL_GATHER of a pass; or, in fp32 without an
         * offloaded optimizer, the weights of an update into `buffer`. */
        OP_FETCH_WEIGHTS,
        /* And without an offloaded optimizer, whose OP_WRITE_BACK has them too: copies an update's weights
         * from `buffer` to the host. */
        OP_STORE_WEIGHTS,
        /* Copies the stored activations in `slot` to the host, into `host_slot`. */
        OP_STORE_ACTIVATIONS,
        /* Copies those in `host_slot` to the device, into `slot`. */
        OP_FETCH_ACTIVATIONS,
        /* Copies to the host what the message or collective `of` is going to send; see staging.c. */
        OP_STAGE_OUT,
        /* Copies to the device what the message or collective `of` has brought to the host. */
        OP_STAGE_IN,
        /* A collective of a stage's shards, or of the ranks that share its experts, which follows the
         * `segment`-th part of the pass `of`, or of one of its ranges or units; see tensor.c. */
        OP_TENSOR,
        /* With ZeRO: sums the gradients [offset, offset + count) over `group` and leaves each member its
         * share of the sums. As a part of a pass (ZeRO-2, 3) it is about the `count` gradients, in the buffer
         * `reduced`, of the pass's `range`-th unit, see gather.c. */
        OP_REDUCE_SCATTER,
        /* With ZeRO: gives every member of `group` the weights of which each has its share; addressed
         * likewise, but that a unit's go to the buffer `gathered`. */
        OP_ALL_GATHER,
        /* Tells the other shards of a stage what is computed next: the forward or backward `of` of a
         * micro-batch; see decision.c. On shard 0 it goes to each of them. On the others it comes from there,
         * and the driver sets `of`, `chunk` and `micro_batch` on completion (core_set_decision). */
        OP_DECISION,
        /* Copies this rank's share of a checkpoint to host memory, behind all else of a batch; see saving.c.
         */
        OP_SNAPSHOT,
        /* Writes that copy to a file, beside the batches that follow. */
        OP_WRITE,
        OP_KINDS
};

/* The lanes of a rank. A lane runs its operations one after the other, in the order of issue; lanes run at
 * the same time. Messages have a lane for each neighbour and direction. */
enum op_lane {
        LANE_COMPUTE,
        LANE_HOST_TO_DEVICE,
        LANE_DEVICE_TO_HOST,
        LANE_RECEIVE_PREVIOUS,
        LANE_RECEIVE_NEXT,
        LANE_SEND_PREVIOUS,
        LANE_SEND_NEXT,
        LANE_COLLECTIVE,
        /* For the few numbers that all ranks agree on: here they do not wait behind gradients. */
        LANE_SCALARS,
        /* For the collectives of shards inside a pass. The compute lane waits for them. */
        LANE_TENSOR,
        /* For what shard 0 of a stage decides: few bytes, that wait for no collective. */
        LANE_DECISION,
        /* For the sums between groups of hybrid shards, beside what each group gathers and reduces. */
        LANE_SHARES,
        /* For collectives of shards along z that run beside the parts of a pass, in their order. */
        LANE_TENSOR_Z,
        /* For files. Alone of all lanes, what it has under way may outlast a batch. */
        LANE_FILES,
        LANES
};

/* Whether a lane is for sums of gradients and gathers of weights between replicas. */
static inline bool op_lane_of_replicas(enum op_lane lane)
{
        return lane == LANE_COLLECTIVE || lane == LANE_SHARES;
}

/* Returns the lane on which operations of a kind run. */
enum op_lane op_lane_of(enum op_kind kind);

/* Whether an operation of this kind copies between host and device. */
static inline bool op_copies(enum op_kind kind)
{
        return op_lane_of(kind) == LANE_HOST_TO_DEVICE || op_lane_of(kind) == LANE_DEVICE_TO_HOST;
}

/* Returns the lane at the other end of a lane of messages: what one rank puts on LANE_SEND_NEXT, its
 * neighbour receives on LANE_RECEIVE_PREVIOUS. Returns LANES for a lane that carries no messages. */
enum op_lane op_lane_opposite(enum op_lane lane);
/* Returns whether a lane carries messages to or from the previous rank; false for lanes without messages. */
bool op_lane_to_previous(enum op_lane lane);

/* Returns the rank at the other end of a lane of messages of `rank`. */
static inline int op_lane_peer(const struct plan *plan, int rank, enum op_lane lane)
{
        return op_lane_to_previous(lane) ? plan_previous_rank(plan, rank) : plan_next_rank(plan, rank);
}

/* What an OP_REDUCE_SCALARS sums. */
enum { OP_SCALARS = 5 };

/* The parts of a backward, as bits: the gradient of the input, and the gradients of the weights. A backward
 * has both, unless the policy splits backwards in two operations (policy.h). */
enum { OP_INPUT_GRADIENT = 1, OP_WEIGHT_GRADIENT = 2 };

/* ZeRO-2 and 3: what a unit's backward does with the buffer of the unit's gradients before it adds to it:
 * nothing, clears it, or clears it and adds what earlier micro-batches left in this replica's share of the
 * gradients.
 */
enum op_gradients { GRADIENTS_ADD, GRADIENTS_CLEAR, GRADIENTS_LOAD };

/* One operation. Indices of buffers are -1 where the operation has no such buffer; numbers that a kind does
 * not use are 0, `bucket` and `buffer` -1. All bytes are set, padding too, because the exhaustive test hashes
 * operations. */
struct op {
        enum op_kind kind;
        enum op_lane lane;
        /* The operation that this one is a part of: the message or collective that OP_STAGE_OUT and
         * OP_STAGE_IN copy for; the forward or backward to which an OP_TENSOR, OP_CHECK_OVERFLOW,
         * OP_ALLREDUCE, OP_REDUCE_SCATTER or OP_ALL_GATHER belongs, if it belongs to one; what an OP_DECISION
         * decides on. Otherwise `of` equals `kind`. */
        enum op_kind of;
        int parts;       /* OP_BACKWARD: OP_INPUT_GRADIENT, OP_WEIGHT_GRADIENT or both */
        int chunk;       /* which of this rank's chunks of the model; 0 if not interleaved */
        int micro_batch; /* -1 where it has no meaning or is not known yet */
        int input;       /* buffer of received activations */
        int slot;        /* stored activations on the device */
        int host_slot;   /* offloaded activations on the host */
        int gradient;    /* buffer of a gradient that is received, worked on or sent */
        /* OP_BACKWARD in two parts: the buffer of what the gradients of the weights need. */
        int deferred;
        /* Parts of a forward or backward with ZeRO-2 or 3: the buffers of the unit's weights and of its
         * gradients (core_gathers), and what is to be done with the latter first. ZeRO-2: also those weights
         * that OP_UPDATE writes, whose `offset` is in this buffer, and that OP_ALL_GATHER gathers then. */
        int gathered, reduced;
        enum op_gradients begins;
        /* OP_UPDATE, OP_FETCH, OP_WRITE_BACK: which update (regions.h). OP_ALLREDUCE, OP_REDUCE_SCATTER,
         * OP_ALL_GATHER of the optimizer: which chunk of parameters. OP_ADD_REPLICA: which logical
         * replica. */
        int bucket;
        /* Updates that work in buffers: which set of these, below PLAN_UPDATE_BUFFERS. */
        int buffer;
        /* Parts of a forward or backward, or of one of its ranges or units: which part, counted in the order
         * of work (tensor.c). */
        int segment;
        /* Backwards in ranges (overlap.c), passes in units (gather.c): which of these, counted likewise. */
        int range;
        enum op_group group; /* of a collective: which ranks take part */
        /* Given by the engine, to recognise the operation when it completes; the core ignores it. */
        int serial;
        /* OP_REDUCE_OVERFLOW, set by the driver on completion: the gradients of some rank are too large. */
        bool overflow;
        /* Of a range, set by the driver on completion: the same backward has another one. */
        bool further;
        /* Parts of a forward or backward, set by the driver on completion: another part follows. Behind a
         * part that computed with shards or spread experts, it also sets the group of the collective that
         * follows. OP_REDUCE_SCALARS, set likewise, on all ranks alike: a checkpoint follows the batch. */
        bool more;
        /* Likewise, of what follows such a part: the collective runs beside the next part; or there is none,
         * and what follows waits for the one that runs beside this part. */
        bool beside, joins;
        /* Units' backwards with plan.reduce_fp32: the unit's gradients are complete, and are widened to be
         * reduced; and what this replica's share has of earlier micro-batches is added to them then. */
        bool widens, loads;
        /* Of a collective or join that is of GROUP_TENSOR_Z, set as `beside` is: how many of that group's
         * collectives may be under way when the next part begins. */
        unsigned char left;
        /* The parameters [offset, offset + count) of the stage. OP_BACKWARD: 0 and 0, or a range whose
         * gradients it is to make final, see overlap.c. */
        int64_t offset, count;
        /* Where the optimizer's own arrays have what belongs to parameter `offset` (region_range.place).
         * Parts of a forward or backward with ZeRO-2 or 3: where this replica's share of the unit is in what
         * it keeps. */
        int64_t place;
        int64_t bytes; /* of a message, copy or collective; 0 for OP_TENSOR, whose size the world knows */
};
/* No padding, which copies may leave as anything. */
_Static_assert(sizeof(struct op) == 20 * sizeof(int) + 8 * sizeof(bool) + 4 * sizeof(int64_t),
               "struct op has padding");

/* Changes the kind of an operation, and its lane with it. `of` stays. */
static inline void op_become(struct op *op, enum op_kind kind)
{
        op->kind = kind;
        op->lane = op_lane_of(kind);
}

/* Returns whether the operation is a forward or a backward, or a part of one. */
static inline bool op_of_pass(const struct op *op)
{
        return op->kind != OP_DECISION && (op->of == OP_FORWARD || op->of == OP_BACKWARD);
}

/* These return what traces and tables call a kind or a lane ("forward", "send activation", "host to device"):
 * a constant string. */
const char *op_name(enum op_kind kind);
const char *op_lane_name(enum op_lane lane);

#endif
