/* Shards of a stage (tensor parallelism), replicas over which its experts are spread, and replicas that have
 * parts of the same sequences (context parallelism): a forward or
 * backward in which they sum, gather, scatter or exchange what each has a part of is a chain: a part
 * computes, a collective of the shards follows, the next part computes, and so on. Where the chain ends is
 * the world's to say, from the list of models/workload.h: it fills in op.more, and the group, when a part
 * completes. So what a chunk, a part of a backward or a recomputed forward needs is not known here.
 *
 * A collective may run beside the part behind it (op.beside), which is then issued with it; what comes next,
 * a collective or, where the world says so (op.joins), a part without one, waits for both.
 *
 * The compute lane is taken from the first part to the last, and every shard takes the same decisions in the
 * same order, since they follow from the plan alone, or, where they depend on what arrives first, from what
 * shard 0 tells the others (decision.c; replicas have no such thing, and runtime/plan/rows.c refuses what
 * they could disagree on). The rest of the core sees the operation whole: it begins with its first part, and
 * is over when its last is. */
#include "runtime/sched/state.h"

#include <string.h>

static bool has(const struct core *core, const struct op *op)
{
        return plan_parts_passes(&core->plan) && op_of_pass(op) &&
               (op->kind == op->of || op->kind == OP_TENSOR);
}

/* A part has been computed, and no collective is under way. */
static bool follow(struct core *core, const struct op *part)
{
        struct tensor_state *t = &core->tensor;
        if (!part->more)
                return false;
        struct op *next = core_continue(core, part);
        next->bytes = 0;
        if (part->joins) {
                next->segment++;
                return true;
        }
        if (part->beside) {
                t->under_way = t->follows = true;
                memcpy(&t->part, next, sizeof *next);
                t->part.segment++;
        }
        op_become(next, OP_TENSOR); /* of the group that the world said */
        next->beside = part->beside;
        return true;
}

bool tensor_next(struct core *core, struct op *op)
{
        struct tensor_state *t = &core->tensor;
        if (!t->follows)
                return false;
        memcpy(op, &t->part, sizeof *op);
        memset(&t->part, 0, sizeof t->part); /* what is over leaves no trace */
        t->follows = false;
        return true;
}

/* The collective is over: so is its part, or it comes next, or it is under way. */
static bool exchanged(struct core *core, struct op *op)
{
        struct tensor_state *t = &core->tensor;
        if (!t->under_way) {
                struct op *next = core_continue(core, op);
                op_become(next, op->of);
                next->segment++;
                return true;
        }
        const bool computed = t->computed;
        if (computed)
                memcpy(op, &t->part, sizeof *op);
        memset(t, 0, sizeof *t);
        return !computed || follow(core, op);
}

static bool goes_on(struct core *core, struct op *op)
{
        struct tensor_state *t = &core->tensor;
        if (op->kind == OP_TENSOR)
                return exchanged(core, op);
        if (!t->under_way)
                return follow(core, op);
        t->computed = true;
        memcpy(&t->part, op, sizeof *op);
        return true;
}

const struct chain tensor_chain = {has, goes_on};
