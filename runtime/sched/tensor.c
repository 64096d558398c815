/* Shards of a stage (tensor parallelism), replicas over which its experts are spread, and replicas that have
 * parts of the same sequences (context parallelism): a forward or
 * backward in which they sum, gather, scatter or exchange what each has a part of is a chain: a part
 * computes, a collective of the shards follows, the next part computes, and so on. Where the chain ends is
 * the world's to say, from the list of models/workload.h: it fills in op.more, and the group, when a part
 * completes. So what a chunk, a part of a backward or a recomputed forward needs is not known here.
 *
 * A collective may run beside the part behind it (op.beside), which is then issued with it; what comes next,
 * a collective or, where the world says so (op.joins), a part without one, waits for both. Those along z of a
 * grid of shards have a lane of their own then, and are awaited on their own: a part waits until so few of
 * them are under way as the world says (op.left), since they end in the order in which they were issued.
 *
 * The compute lane is taken from the first part to the last, and every shard takes the same decisions in the
 * same order, since they follow from the plan alone, or, where they depend on what arrives first, from what
 * shard 0 tells the others (decision.c; replicas have no such thing, and runtime/plan/rows.c refuses what
 * they could disagree on). The rest of the core sees the operation whole: it begins with its first part, and
 * is over when its last is. */
#include "runtime/sched/state.h"

#include <assert.h>
#include <string.h>

static bool has(const struct core *core, const struct op *op)
{
        return plan_parts_passes(&core->plan) && op_of_pass(op) &&
               (op->kind == op->of || op->kind == OP_TENSOR);
}

/* A collective or join along z that the others do not wait for. */
static bool is_along_z(const struct op *part)
{
        return part->group == GROUP_TENSOR_Z && (part->beside || part->joins);
}

/* A part waits for collectives along z, of which one may have been issued before it. */
static void await_z(struct core *core, const struct op *part)
{
        struct tensor_state *t = &core->tensor;
        struct op next = *part;
        next.more = next.beside = next.joins = false;
        next.left = 0;
        next.bytes = 0;
        next.segment++;
        if (part->beside) {
                struct op *collective = core_continue(core, part);
                collective->bytes = 0;
                op_become(collective, OP_TENSOR);
                collective->lane = LANE_TENSOR_Z;
                collective->beside = true;
                t->along_z++;
        }
        t->waits = t->along_z > part->left;
        t->follows = !t->waits;
        t->left = (short)(t->waits ? part->left : 0);
        memcpy(&t->part, &next, sizeof next);
}

/* A part has been computed, and no collective that what follows would wait for is under way. */
static bool follow(struct core *core, const struct op *part)
{
        struct tensor_state *t = &core->tensor;
        assert(part->more || t->along_z == 0);
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

static bool ended_along_z(struct tensor_state *t)
{
        t->along_z--;
        if (t->waits && t->along_z <= t->left) {
                t->waits = false;
                t->left = 0;
                t->follows = true;
        }
        return true;
}

/* The collective is over: so is its part, or it comes next, or it is under way. */
static bool exchanged(struct core *core, struct op *op)
{
        struct tensor_state *t = &core->tensor;
        if (op->lane == LANE_TENSOR_Z)
                return ended_along_z(t);
        if (!t->under_way) {
                struct op *next = core_continue(core, op);
                op_become(next, op->of);
                next->segment++;
                return true;
        }
        const bool computed = t->computed;
        t->under_way = t->computed = false;
        if (!computed)
                return true;
        memcpy(op, &t->part, sizeof *op);
        memset(&t->part, 0, sizeof t->part);
        return follow(core, op);
}

static bool goes_on(struct core *core, struct op *op)
{
        struct tensor_state *t = &core->tensor;
        if (op->kind == OP_TENSOR)
                return exchanged(core, op);
        if (is_along_z(op)) {
                await_z(core, op);
                return true;
        }
        if (!t->under_way)
                return follow(core, op);
        t->computed = true;
        memcpy(&t->part, op, sizeof *op);
        return true;
}

const struct chain tensor_chain = {has, goes_on};
