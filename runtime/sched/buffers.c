/* Which buffers a stage has, who uses them, and where the core keeps note of it. */
#include "runtime/sched/state.h"

#include <assert.h>
#include <string.h>

struct core_limits core_limits(const struct plan *plan, int stage)
{
        const struct policy *policy = policy_get(plan->policy);
        int limit = core_pipeline_limit(plan);
        bool first = stage == 0, last = stage == plan->pp - 1;
        int stored = policy->stored(plan, stage, limit), on_device = FORWARD_SLOTS + BACKWARD_SLOTS;
        bool offloaded = plan->offload_activations && stored > on_device;
        int received = plan->blocking ? stored : policy->received(plan, stage, limit);
        /* One gradient buffer is worked on; one more is being received, and one more is being sent, unless
         * messages block: nothing is received ahead then.
         * Validation offloads nothing, but runs in the slots of the training that it interrupts. */
        return (struct core_limits){
                .slots = offloaded ? on_device : stored,
                .host_slots = offloaded && !plan->forward_only ? stored : 0,
                .inputs = first ? 0 : received,
                .gradients = plan->blocking ? 1 + policy->exchanges : 1 + !last + !first,
        };
}

static size_t table_bytes(const struct plan *plan, int stage, int64_t parameters)
{
        struct core_limits l = core_limits(plan, stage);
        size_t m = (size_t)plan->micro_batches, host_slots = (size_t)l.host_slots;
        size_t buffers = (size_t)(l.inputs + l.slots + l.gradients) + host_slots;
        size_t ints = 3 * m + (host_slots ? m + host_slots : 0) + buffers +
                      (size_t)optimizer_chunks(plan, parameters);
        return buffers * sizeof(struct arrival) + ints * sizeof(int);
}

size_t core_bytes(const struct plan *plan, const struct core_stage *stage)
{
        return sizeof(struct core) + table_bytes(plan, stage->stage, stage->parameters);
}

void core_clear_tables(struct core *core)
{
        memset(core->tables, 0, table_bytes(&core->plan, core->stage, core->parameters));
}

int buffer_acquire(int *users_of, int buffers, int *buffer_of, int micro_batch, int users)
{
        for (int i = 0; i < buffers; i++)
                if (users_of[i] == 0) {
                        users_of[i] = users;
                        if (micro_batch >= 0)
                                buffer_of[micro_batch] = i;
                        return i;
                }
        assert(!"a buffer is free");
        return -1;
}

bool buffer_any_free(const int *users_of, int buffers)
{
        for (int i = 0; i < buffers; i++)
                if (users_of[i] == 0)
                        return true;
        return false;
}

void buffer_release(int *users_of, int buffer)
{
        assert(users_of[buffer] > 0);
        users_of[buffer]--;
}

static int in_use(const int *users_of, int buffers)
{
        int used = 0;
        for (int i = 0; i < buffers; i++)
                used += users_of[i] > 0;
        return used;
}

struct core_limits core_in_use(const struct core *core)
{
        struct core_tables t = core_tables((struct core *)core);
        return (struct core_limits){
                .slots = in_use(t.slot_users, core->limits.slots),
                .host_slots = in_use(t.host_slot_users, core->limits.host_slots),
                .inputs = in_use(t.input_users, core->limits.inputs),
                .gradients = in_use(t.gradient_users, core->limits.gradients),
        };
}
