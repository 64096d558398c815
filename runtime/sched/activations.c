/* Offloaded activations (the idea is vDNN's, Rhu et al. 2016): after its forward a micro-batch's activations
 * are stored on the host, before its backward they are fetched. What to fetch is decided when the lane is
 * idle: what a backward waits for comes first; with nothing to wait for, the micro-batch that went forward
 * longest ago is fetched ahead. Such a guess may hold one slot only: if gradients come in another order, the
 * other slot serves them. */
#include "runtime/sched/state.h"

#include <assert.h>
#include <string.h>

bool activations_offloaded(const struct core *core)
{
        return core->limits.host_slots > 0;
}

static void set_returned(struct core *core, int i, int vmb, int demanded)
{
        core->returned[i].vmb = vmb;
        core->returned[i].demanded = demanded;
        core->returned[i].there = 0;
}

void activations_start(struct core *core)
{
        core->store = -1;
        core->on_host = 0;
        core->fetching = false;
        for (int i = 0; i < BACKWARD_SLOTS; i++)
                set_returned(core, i, -1, 0);
}

/* Which backward's slot `vmb` holds, or -1; of -1: a free one. */
static int holder(const struct core *core, int vmb)
{
        for (int i = 0; i < BACKWARD_SLOTS; i++)
                if (core->returned[i].vmb == vmb)
                        return i;
        return -1;
}

void activations_demand(struct core *core, int vmb)
{
        int i = holder(core, vmb);
        if (i >= 0)
                core->returned[i].demanded = 1;
}

bool activations_there(const struct core *core, int vmb)
{
        if (!activations_offloaded(core))
                return true;
        int i = holder(core, vmb);
        return i >= 0 && core->returned[i].there;
}

void activations_leave(struct core *core, int slot)
{
        if (activations_offloaded(core))
                set_returned(core, slot - FORWARD_SLOTS, -1, 0);
}

/* There is a host slot: a policy never has more micro-batches between forward and backward than it says. */
static bool next_store(struct core *core, struct op *op)
{
        struct core_tables t = core_tables(core);
        if (core->store < 0 || core->send_activation >= 0)
                return false;
        *op = core_op_of_vmb(core, OP_STORE_ACTIVATIONS, core->store);
        op->slot = t.slot_of[core->store];
        op->host_slot =
                buffer_acquire(t.host_slot_users, (struct core_pool){0, core->limits.host_slots, true},
                               t.host_slot_of, core->store, 1);
        op->bytes = core_chunk_bytes(core, op->chunk);
        t.slot_of[core->store] = 0; /* the send has been issued, and knows the slot */
        core->store = -1;
        return true;
}

static int place_on_host(const struct core *core, const struct core_tables *t, int vmb)
{
        for (int i = 0; i < core->on_host; i++)
                if (t->offloaded[i] == vmb)
                        return i;
        return -1;
}

/* Where the policy says the order of backwards, nothing else is fetched: the next that has no slot, once it
 * is on the host. */
static int choose_in_order(const struct core *core, const struct core_tables *t)
{
        const struct policy *policy = policy_get(core->plan.policy);
        for (int nth = core->backwards_started; nth < plan_vmbs(&core->plan); nth++) {
                const int vmb = policy->nth_backward(&core->plan, nth);
                if (holder(core, vmb) < 0)
                        return place_on_host(core, t, vmb);
        }
        return -1;
}

/* Place in the list of offloaded virtual micro-batches of the one to be fetched, or -1. */
static int choose(const struct core *core, const struct core_tables *t, bool *demanded)
{
        *demanded = true;
        if (policy_get(core->plan.policy)->nth_backward)
                return choose_in_order(core, t);
        for (int i = 0; i < core->arrivals; i++)
                if (t->queue[i].work == OP_BACKWARD) {
                        int place = place_on_host(core, t, t->queue[i].vmb);
                        if (place >= 0)
                                return place;
                }
        *demanded = false;
        for (int i = 0; i < BACKWARD_SLOTS; i++)
                if (core->returned[i].vmb >= 0 && !core->returned[i].demanded)
                        return -1;
        return core->on_host > 0 ? 0 : -1;
}

static bool next_fetch(struct core *core, struct op *op)
{
        struct core_tables t = core_tables(core);
        int to = holder(core, -1);
        if (core->fetching || to < 0)
                return false;
        bool demanded;
        int place = choose(core, &t, &demanded);
        if (place < 0)
                return false;
        int vmb = t.offloaded[place];
        core->on_host--;
        memmove(&t.offloaded[place], &t.offloaded[place + 1],
                (size_t)(core->on_host - place) * sizeof *t.offloaded);
        t.offloaded[core->on_host] = 0;
        set_returned(core, to, vmb, demanded);
        core->fetching = true;
        *op = core_op_of_vmb(core, OP_FETCH_ACTIVATIONS, vmb);
        op->slot = buffer_acquire(t.slot_users, (struct core_pool){FORWARD_SLOTS + to, 1, false}, t.slot_of,
                                  vmb, 1 /* the backward */);
        op->host_slot = t.host_slot_of[vmb];
        op->bytes = core_chunk_bytes(core, op->chunk);
        return true;
}

bool activations_next(struct core *core, struct op *op)
{
        return activations_offloaded(core) && (next_store(core, op) || next_fetch(core, op));
}

void activations_complete(struct core *core, const struct op *op)
{
        struct core_tables t = core_tables(core);
        if (op->kind == OP_STORE_ACTIVATIONS) {
                buffer_release(t.slot_users, op->slot);
                t.offloaded[core->on_host++] = core_vmb(core, op);
        } else {
                assert(op->kind == OP_FETCH_ACTIVATIONS);
                buffer_release(t.host_slot_users, op->host_slot);
                t.host_slot_of[core_vmb(core, op)] = 0;
                core->fetching = false;
                core->returned[op->slot - FORWARD_SLOTS].there = 1;
        }
}
