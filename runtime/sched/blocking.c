/* Blocking messages, as Megatron-LM's schedules have them (Narayanan et al. 2021): a stage sends what it has
 * computed and receives what it computes next, and computes nothing meanwhile. Nothing is received ahead.
 *
 * A send and a receive with one neighbour (after a forward, before a backward: send_forward_recv_backward;
 * after a backward, before a forward: send_backward_recv_forward) go together: were one to wait for the
 * other, two neighbours in the midst of 1F1B would wait for each other for ever. Those with different
 * neighbours (warm-up and its mirror image) follow each other: first all is sent, then the next receive is
 * posted.
 *
 * Chunks of the model on a ring of ranks (Megatron-LM's send_forward_backward_recv_forward_backward): a
 * forward and the backward in turn with it are computed one after the other; then what both send, and what
 * the next two wait for, goes together, all four. In warm-up and cool-down it is one each way. */
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
        if (!core->plan.blocking || blocking_in_pair(core))
                return false;
        return core->exchanging || core->send_activation >= 0 || core->send_gradient >= 0;
}

/* Forwards that have no backward yet, beyond those of the warm-up: -1 in it. Only where `warm_up` is known.
 */
static int ahead_of_warm_up(const struct core *core)
{
        const int warm_up = policy_get(core->plan.policy)->warm_up(&core->plan, core->stage);
        return core->forwards_done - core->backwards_done - warm_up;
}

bool blocking_in_pair(const struct core *core)
{
        return core->plan.blocking && policy_get(core->plan.policy)->warm_up && !core->plan.forward_only &&
               ahead_of_warm_up(core) > 0;
}

/* Whether the turn of `work` is in the next exchange. */
static bool in_exchange(const struct core *core, enum op_kind work)
{
        const bool all_forward = core->forwards_done == plan_vmbs(&core->plan);
        if (work == OP_FORWARD)
                return !all_forward;
        return all_forward || ahead_of_warm_up(core) == 0;
}

static bool has_arrived(const struct core *core, enum op_kind work, int vmb)
{
        const struct arrival *queue = core_tables((struct core *)core).queue;
        for (int i = 0; i < core->arrivals; i++)
                if (queue[i].work == work && (vmb < 0 || queue[i].vmb == vmb))
                        return true;
        return false;
}

/* `vmb`: whose turn it is, or -1 after the last. */
static bool permits_in_ring(const struct core *core, enum op_kind work, int vmb)
{
        if (core->computing || blocking_in_pair(core) || vmb < 0 || !in_exchange(core, work))
                return false;
        const int chunk = core_chunk(core, vmb);
        if (work == OP_FORWARD ? core_is_first(core, chunk) : core_is_last(core, chunk))
                return false;
        return !has_arrived(core, work, vmb);
}

bool blocking_permits(const struct core *core, enum op_kind receive, enum policy_choice wanted, int vmb)
{
        const bool activation = receive == OP_RECEIVE_ACTIVATION;
        const enum op_kind work = activation ? OP_FORWARD : OP_BACKWARD;
        const enum op_kind onward = activation ? OP_SEND_ACTIVATION : OP_SEND_GRADIENT;
        const unsigned receives = bit(OP_RECEIVE_ACTIVATION) | bit(OP_RECEIVE_GRADIENT);
        if (policy_get(core->plan.policy)->warm_up)
                return !(core->exchanging & bit(receive)) && permits_in_ring(core, work, vmb);
        if (core->computing || core->exchanging & receives)
                return false;
        if (wanted != (activation ? CHOOSE_FORWARD : CHOOSE_BACKWARD))
                return false;
        return !(core->exchanging & bit(onward)) && !has_arrived(core, work, -1);
}
