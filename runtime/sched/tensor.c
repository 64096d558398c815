/* Shards of a stage (tensor parallelism), replicas over which its experts are spread, and replicas that have
 * parts of the same sequences (context parallelism): a forward or
 * backward in which they sum, gather, scatter or exchange what each has a part of is a chain: a part
 * computes, a collective of the shards follows, the next part computes, and so on. Where the chain ends is
 * the world's to say, from the list of models/workload.h: it fills in op.more, and the group, when a part
 * completes. So what a chunk, a part of a backward or a recomputed forward needs is not known here.
 *
 * The compute lane is taken from the first part to the last, and every shard takes the same decisions in the
 * same order, since they follow from the plan alone: policies whose order depends on what arrives first are
 * not for several shards of several stages (runtime/plan/options.c refuses them). The rest of the core sees
 * the operation whole: it begins with its first part, and is over when its last is. */
#include "runtime/sched/state.h"

static bool has(const struct core *core, const struct op *op)
{
        return plan_parts_passes(&core->plan) && op_of_pass(op);
}

static bool goes_on(struct core *core, struct op *op)
{
        if (!op->more)
                return false;
        struct op *next = core_continue(core, op);
        next->bytes = 0;
        if (op->kind == OP_TENSOR) {
                op_become(next, op->of);
                next->segment++;
        } else {
                op_become(next, OP_TENSOR); /* of the group that the world said */
        }
        return true;
}

const struct chain tensor_chain = {has, goes_on};
