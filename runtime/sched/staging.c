/* Messages and all-reduces of a network that does not reach device memory, each a chain of parts: a copy to
 * the host, the operation itself in host memory, a copy to the device. A send has no copy back and a receive
 * none out. The rest of the core sees the operation alone: it begins when its first part is issued, and is
 * over when its last part is.
 *
 * The world pairs host buffers with the device's one to one: with a slot for the output that is sent, with an
 * input, with a gradient buffer, with a parameter's gradient. So nothing more is to be counted here. A host
 * buffer is in use from the first part to the last, and all that time the device buffer beside it is taken:
 * by the send that still has to let go of it, by the receive that acquired it when it was posted, or, a range
 * of gradients, by its one all-reduce of a group (the embedding's comes when all chunks are done). The device
 * buffer is not given to another micro-batch before that, and so neither is the host's.
 *
 * Copies of one lane complete in the order in which they are issued, so the all-reduces that follow them are
 * posted in the order of the plan, on all ranks of a group alike.
 *
 * Zero: a chunk's gradients have been reduce-scattered, and copied in, before its weights are gathered: both
 * go through the same place on the host. */
#include "runtime/sched/state.h"

#include <assert.h>
#include <string.h>

/* What shards sum is not among gradients that the plan takes through host memory. */
static bool is_staged(const struct plan *plan, const struct op *op)
{
        switch (op->of) {
        case OP_SEND_ACTIVATION:
        case OP_SEND_GRADIENT:
        case OP_RECEIVE_ACTIVATION:
        case OP_RECEIVE_GRADIENT:
                return plan->stage_messages;
        case OP_ALLREDUCE:
                return plan->stage_allreduce && !plan_group_of_shards(op->group);
        case OP_REDUCE_SCATTER:
        case OP_ALL_GATHER:
                return plan->stage_allreduce;
        default:
                return false;
        }
}

static bool receives(enum op_kind kind)
{
        return kind == OP_RECEIVE_ACTIVATION || kind == OP_RECEIVE_GRADIENT;
}

static bool sends(enum op_kind kind)
{
        return kind == OP_SEND_ACTIVATION || kind == OP_SEND_GRADIENT;
}

/* Of a reduce-scatter only the rank's share is brought, of an all-gather only that is sent. */
static void become(const struct core *core, struct op *op, enum op_kind kind)
{
        op_become(op, kind);
        if (op->of != OP_REDUCE_SCATTER && op->of != OP_ALL_GATHER)
                return;
        const bool share = kind == (op->of == OP_ALL_GATHER ? OP_STAGE_OUT : OP_STAGE_IN);
        op->bytes =
                (share ? plan_own(&core->plan, op->group, core->replica, op->count).count : op->count) *
                (op->of == OP_REDUCE_SCATTER ? plan_gradient_bytes(&core->plan) : core->plan.element_bytes);
}

void staging_begin(const struct core *core, struct op *op)
{
        if (is_staged(&core->plan, op) && !receives(op->kind))
                become(core, op, OP_STAGE_OUT);
}

/* The part that follows `op`, or OP_KINDS: none does. */
static enum op_kind next_part(const struct op *op)
{
        if (op->kind == OP_STAGE_OUT)
                return op->of;
        return op->kind == OP_STAGE_IN || sends(op->kind) ? OP_KINDS : OP_STAGE_IN;
}

static bool has(const struct core *core, const struct op *op)
{
        return is_staged(&core->plan, op);
}

static bool goes_on(struct core *core, struct op *op)
{
        const enum op_kind part = next_part(op);
        if (part == OP_KINDS)
                return false;
        become(core, core_continue(core, op), part);
        return true;
}

const struct chain staging_chain = {has, goes_on};
