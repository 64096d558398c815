/* Replicas that one rank works for (--logical-dp): its micro-batches are those of one logical replica behind
 * those of another, and their gradients are added up as the replicas' own ranks would have: neighbours first,
 * then pairs of neighbours, and so on, which is the order of the network's sums (runtime/net/shared_sum.h).
 * So they are the same bits on fewer ranks.
 *
 * Backwards come in the order of micro-batches, whatever the policy: neighbours send in the order in which
 * they receive. When the last one of a logical replica is over, its gradients are added, before the next pass
 * begins. Sums that are not complete wait in arrays beside the gradients, one for each level of the tree, and
 * the next replica's gradients begin as zeros. */
#include "runtime/sched/state.h"

#include <assert.h>

bool core_stands_for(const struct plan *plan)
{
        const int logical = plan_logical(plan);
        return (logical & (logical - 1)) == 0 && plan->micro_batches % logical == 0 && plan->zero <= 1 &&
               plan->ep <= 1 && plan->cp <= 1 && plan->virtual_stages == 1 && !plan->sequence_parallel &&
               plan_shards_z(plan) == 1 && !plan->overlap_allreduce && !policy_get(plan->policy)->deferred;
}

int core_logical_levels(const struct plan *plan)
{
        int levels = 0;
        while (1 << levels < plan_logical(plan))
                levels++;
        return levels;
}

int core_logical_sums(int replica)
{
        int sums = 0;
        while (replica >> sums & 1)
                sums++;
        return sums;
}

static bool adds(const struct core *core)
{
        return plan_logical(&core->plan) > 1 && core->plan.micro_batches > 0 && !core->plan.forward_only;
}

bool logical_next(struct core *core, struct op *op)
{
        if (!adds(core) ||
            core->weights_done / plan_logical_micro_batches(&core->plan) == core->replicas_added)
                return false;
        *op = core_new_op(OP_ADD_REPLICA);
        op->bucket = core->replicas_added;
        op->count = core->parameters;
        core->computing = true;
        return true;
}

void logical_complete(struct core *core)
{
        core->computing = false;
        core->replicas_added++;
}

bool logical_done(const struct core *core)
{
        return !adds(core) || core->replicas_added == plan_logical(&core->plan);
}
