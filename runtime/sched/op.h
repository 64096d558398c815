/* An operation: one unit of work that the core issues and a world carries out, on real devices, in SimGrid or
 * on paper. struct op says what it is and which buffers, parameters and bytes it is about. */
#ifndef RANVIER_RUNTIME_SCHED_OP_H
#define RANVIER_RUNTIME_SCHED_OP_H

#include "runtime/sched/plan.h"

enum op_kind {
        OP_LOAD,               /* host to device: the batch's tokens (first stage) and targets (last) */
        OP_RECEIVE_ACTIVATION, /* into `input`; the driver fills in `chunk` and `micro_batch` on completion */
        OP_FORWARD,            /* `input` (-1 on the first stage) -> `slot` */
        OP_SEND_ACTIVATION,    /* the output of `slot` to the next stage */
        OP_RECEIVE_GRADIENT,   /* into `gradient`; the driver fills in the same on completion */
        OP_BACKWARD,           /* of `slot`, `gradient` transformed in place; see `parts` */
        OP_SEND_GRADIENT,      /* `gradient` to the previous stage */
        OP_ALLREDUCE,          /* sum parameters' gradients [offset, offset + count) over `group` */
        OP_NORM,               /* squared norm of this stage's gradients */
        OP_REDUCE_SCALARS,     /* over all ranks: squared norm and loss */
        OP_UPDATE,         /* AdamW on parameters [offset, offset + count), the `bucket`-th update; offloaded:
                              in `buffer` */
        OP_CHECK_OVERFLOW, /* mixed: whether a gradient of this rank is too large to be summed */
        OP_REDUCE_OVERFLOW,   /* over all ranks; the driver fills in `overflow` on completion */
        OP_CLEAR,             /* after an overflow, instead of all updates: gradients become zero */
        OP_FETCH,             /* host to device: master parameters and moments of an update into `buffer` */
        OP_WRITE_BACK,        /* device to host: the same from `buffer` */
        OP_STORE_ACTIVATIONS, /* device to host: `slot` into `host_slot` */
        OP_FETCH_ACTIVATIONS, /* host to device: `host_slot` into `slot` */
        OP_STAGE_OUT,         /* device to host: what the message or all-reduce `of` is going to send */
        OP_STAGE_IN,          /* host to device: what the message or all-reduce `of` has brought */
        OP_TENSOR,            /* a collective of a stage's shards behind the `segment`-th part of `of` */
        OP_REDUCE_SCATTER, /* zero: sum gradients [offset, offset + count) over `group`, each its share; in a
                              forward or backward (`of`, zero 3) `count` of its `segment`-th unit, see
                              gather.c */
        OP_ALL_GATHER,     /* zero: weights, alike, of which each has its share */
        OP_KINDS
};

/* A lane runs its operations one after the other, in the order of issue; lanes run at the same time. Messages
 * have a lane for each neighbour and direction. */
enum op_lane {
        LANE_COMPUTE,
        LANE_HOST_TO_DEVICE,
        LANE_DEVICE_TO_HOST,
        LANE_RECEIVE_PREVIOUS,
        LANE_RECEIVE_NEXT,
        LANE_SEND_PREVIOUS,
        LANE_SEND_NEXT,
        LANE_COLLECTIVE,
        LANE_SCALARS, /* the few numbers that all ranks agree on, which so do not wait behind gradients */
        LANE_TENSOR,  /* collectives of shards; the compute lane waits for them */
        LANES
};

/* The lane on which operations of a kind run. */
enum op_lane op_lane_of(enum op_kind kind);

/* Whether an operation of this kind copies between host and device. */
static inline bool op_copies(enum op_kind kind)
{
        return op_lane_of(kind) == LANE_HOST_TO_DEVICE || op_lane_of(kind) == LANE_DEVICE_TO_HOST;
}

/* For a lane of messages: the neighbour's lane at the other end, and whether the neighbour is the previous
 * rank. For other lanes: LANES, and false. */
enum op_lane op_lane_opposite(enum op_lane lane);
bool op_lane_to_previous(enum op_lane lane);

/* The neighbour at the other end of a lane of messages. */
static inline int op_lane_peer(const struct plan *plan, int rank, enum op_lane lane)
{
        return op_lane_to_previous(lane) ? plan_previous_rank(plan, rank) : plan_next_rank(plan, rank);
}

enum {
        OP_INPUT_GRADIENT = 1,
        OP_WEIGHT_GRADIENT = 2
}; /* the parts of a backward, as bits; both, unless the policy splits backwards */

struct op {
        enum op_kind kind;
        enum op_lane lane;
        enum op_kind of; /* OP_STAGE_OUT, OP_STAGE_IN, OP_TENSOR, and in a forward or backward also
                            OP_CHECK_OVERFLOW, OP_REDUCE_SCATTER, OP_ALL_GATHER: what it is a part of; else
                            `kind` */
        int parts;       /* OP_BACKWARD */
        int chunk;       /* of this rank's part of the model: 0 but of an interleaved schedule */
        int micro_batch; /* -1 where it has no meaning or is not known yet */
        int input;       /* input buffer, or -1 */
        int slot;        /* stored activations, or -1 */
        int host_slot;   /* offloaded activations, or -1 */
        int gradient;    /* gradient buffer, or -1 */
        int deferred;    /* OP_BACKWARD in parts: buffer of what the weights' gradients need, else -1 */
        int bucket;      /* OP_UPDATE, OP_FETCH, OP_WRITE_BACK: which update; OP_ALLREDUCE, OP_REDUCE_SCATTER,
                            OP_ALL_GATHER: which chunk */
        int buffer;      /* offloaded updates: which buffers, below PLAN_UPDATE_BUFFERS; else -1 */
        bool overflow;   /* OP_REDUCE_OVERFLOW, on completion: some rank's gradients are too large */
        int segment;     /* of a forward or backward: which part, counted in the order of work; see tensor.c,
                            gather.c */
        bool more;       /* of these, on completion, filled in by the driver: another part follows */
        enum op_group group;
        int64_t offset, count; /* parameters; OP_BACKWARD: 0, or a range to make final, see overlap.c */
        int64_t place;         /* of the optimizer's own arrays, what belongs to `offset` (see regions.h) */
        int64_t bytes;         /* of a message, copy or all-reduce */
        int serial;            /* the engine's, to know the operation again; the core ignores it */
};

/* Makes it one of another kind, on that kind's lane. */
static inline void op_become(struct op *op, enum op_kind kind)
{
        op->kind = kind;
        op->lane = op_lane_of(kind);
}

/* A forward or backward, or a part of one. */
static inline bool op_of_pass(const struct op *op)
{
        return op->of == OP_FORWARD || op->of == OP_BACKWARD;
}

const char *op_name(enum op_kind kind); /* "forward", "send activation", ... */
const char *op_lane_name(enum op_lane lane);

#endif
