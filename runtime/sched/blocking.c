/* Blocking messages, as Megatron-LM's schedules have them (Narayanan et al. 2021): a stage sends what it has
 * computed and receives what it computes next, and computes nothing meanwhile. Nothing is received ahead.
 *
 * A send and a receive with one neighbour (after a forward, before a backward: send_forward_recv_backward;
 * after a backward, before a forward: send_backward_recv_forward) go together: were one to wait for the
 * other, two neighbours in the midst of 1F1B would wait for each other for ever. Those with different
 * neighbours (warm-up and its mirror image) follow each other: first all is sent, then the next receive is
 * posted. A policy whose stages are a ring lets these go together too, for the same reason. */
#include "runtime/sched/state.h"

static unsigned bit(enum op_kind kind)
{
        return 1u << kind;
}

void blocking_begin(struct core *core, const struct op *message)
{
        if (core->plan.blocking)
                core->exchanging |= bit(message->kind);
}

void blocking_end(struct core *core, const struct op *message)
{
        core->exchanging &= ~bit(message->kind);
}

bool blocking_holds(const struct core *core)
{
        return core->plan.blocking &&
               (core->exchanging || core->send_activation >= 0 || core->send_gradient >= 0);
}

bool blocking_permits(const struct core *core, enum op_kind receive, enum policy_choice wanted)
{
        const bool activation = receive == OP_RECEIVE_ACTIVATION;
        const enum op_kind work = activation ? OP_FORWARD : OP_BACKWARD;
        const enum op_kind onward = activation ? OP_SEND_ACTIVATION : OP_SEND_GRADIENT;
        const unsigned receives = bit(OP_RECEIVE_ACTIVATION) | bit(OP_RECEIVE_GRADIENT);
        if (core->computing || core->exchanging & receives)
                return false;
        if (wanted != (activation ? CHOOSE_FORWARD : CHOOSE_BACKWARD))
                return false;
        if (core->exchanging & bit(onward) && !policy_get(core->plan.policy)->exchanges)
                return false;
        const struct arrival *queue = core_tables((struct core *)core).queue;
        for (int i = 0; i < core->arrivals; i++)
                if (queue[i].work == work)
                        return false; /* it is there */
        return true;
}
