/* AxoNN's order on the shards of a stage between others. It goes by what arrives first, on which shards could
 * disagree. So shard 0 decides for all of them: it tells the others what its policy has chosen (OP_DECISION),
 * and every shard, itself too, begins that when it knows of it and has what it needs. The others keep one
 * decision posted and hold at most one. What was decided may not have arrived there yet; they wait for it.
 * Messages come to all shards in one order, since the shards of the neighbours have agreed on it, so nothing
 * that comes later takes a buffer from what is waited for: no more buffers are needed than on one shard. */
#include "runtime/sched/state.h"

#include <assert.h>

/* The number of a message says it all, and is as long as this. */
enum { DECISION_BYTES = 8 };

bool core_decides(const struct plan *plan, int stage)
{
        return plan->tp > 1 && policy_get(plan->policy)->by_arrival && !plan->forward_only && stage > 0 &&
               stage < plan->pp - 1;
}

int core_decision_number(const struct plan *plan, const struct op *decision)
{
        return 2 * (decision->chunk * plan->micro_batches + decision->micro_batch) +
               (decision->of == OP_BACKWARD);
}

void core_set_decision(const struct plan *plan, struct op *decision, int number)
{
        decision->of = number % 2 ? OP_BACKWARD : OP_FORWARD;
        core_set_vmb(plan, decision, number / 2);
}

struct op core_decision(void)
{
        struct op op = core_new_op(OP_DECISION);
        op.group = GROUP_TENSOR;
        op.bytes = DECISION_BYTES;
        return op;
}

bool decision_wanted(const struct core *core)
{
        const struct decision_state *d = &core->decision;
        return !d->under_way && !d->known && d->made < 2 * plan_vmbs(&core->plan);
}

struct op decision_begin(struct core *core)
{
        core->decision.under_way = true;
        core->decision.made++;
        return core_decision();
}

void decision_complete(struct core *core, const struct op *decision)
{
        struct decision_state *d = &core->decision;
        assert(d->under_way && (decision->of == OP_FORWARD || decision->of == OP_BACKWARD));
        d->under_way = false;
        d->known = true;
        d->work = (int)decision->of;
        d->vmb = core_vmb(core, decision);
}

enum policy_choice decision_take(struct core *core, const struct policy_view *view)
{
        struct decision_state *d = &core->decision;
        const bool forward = d->work == OP_FORWARD;
        if (!d->known || (forward ? view->forward_ready : view->backward_ready) != d->vmb)
                return CHOOSE_WAIT;
        d->known = false; /* what is over leaves no trace */
        d->work = 0;
        d->vmb = 0;
        return forward ? CHOOSE_FORWARD : CHOOSE_BACKWARD;
}
