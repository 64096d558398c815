/* Which buffers a stage has, who uses them, and where the core keeps note of it. */
#include "runtime/sched/state.h"

#include "runtime/base/minmax.h"

#include <assert.h>
#include <string.h>

/* Virtual micro-batches of chunks [first, end) at once. */
static int stored_of(const struct plan *plan, int stage, int first, int end)
{
        const struct policy_chunks chunks = {first, end};
        return policy_get(plan->policy)->stored(plan, stage, chunks, core_pipeline_limit(plan));
}

static int stored_of_all(const struct plan *plan, int stage)
{
        return stored_of(plan, stage, 0, plan->virtual_stages);
}

bool core_offloads(const struct plan *plan, int stage)
{
        return plan->offload_activations && stored_of_all(plan, stage) > SLOTS_OFFLOADED &&
               !policy_get(plan->policy)->deferred;
}

int core_head_slots(const struct plan *plan, int stage)
{
        const int last = plan->virtual_stages - 1;
        const bool own = last > 0 && stage == plan->pp - 1 && !core_offloads(plan, stage);
        return own ? stored_of(plan, stage, last, last + 1) : 0;
}

struct core_limits core_limits(const struct plan *plan, int stage)
{
        const struct policy *policy = policy_get(plan->policy);
        int limit = core_pipeline_limit(plan);
        bool chunks = plan->virtual_stages > 1;
        bool first = stage == 0 && !chunks, last = stage == plan->pp - 1 && !chunks;
        int stored = stored_of_all(plan, stage), head = core_head_slots(plan, stage);
        int slots = head > 0 ? stored_of(plan, stage, 0, plan->virtual_stages - 1) + head : stored;
        bool offloaded = core_offloads(plan, stage);
        /* Blocking, nothing is received ahead; but a stage whose backwards are in two parts takes the next
         * activations in the exchange that sends a gradient, while the micro-batch that this is of keeps its
         * input until its weights have had their turn. */
        const int exchanged = stored + (policy->deferred != NULL);
        int received = plan->blocking ? min_int(exchanged, plan->micro_batches * plan->virtual_stages)
                                      : policy->received(plan, stage, limit);
        int ahead = !last + !first + (chunks && stage == plan->pp - 1);
        /* One gradient buffer is worked on; one more is being received, and one more is being sent, unless
         * messages block: nothing is received ahead then. Where gradients begin and others come back for
         * chunks before, those that begin have one more.
         * Validation offloads nothing, but runs in the slots of the training that it interrupts. */
        return (struct core_limits){
                .slots = offloaded ? SLOTS_OFFLOADED : slots,
                .host_slots = offloaded && !plan->forward_only ? stored : 0,
                .inputs = first ? 0 : received,
                .gradients = 1 + (plan->blocking ? policy->warm_up != NULL : ahead),
                .deferred = policy->deferred ? policy->deferred(plan, stage) : 0,
        };
}

static size_t gathered_bytes(const struct plan *plan, const struct core_stage *part)
{
        if (!gather_planned(plan))
                return 0;
        const struct core_gathers g = core_gathers(plan, &part->units);
        return (size_t)(g.weights.ends + g.weights.blocks) * sizeof(struct gathered) +
               (size_t)(g.gradients.ends + g.gradients.blocks) * sizeof(struct reduced);
}

static size_t table_bytes(const struct plan *plan, const struct core_stage *part)
{
        struct core_limits l = core_limits(plan, part->stage);
        size_t vmbs = (size_t)plan_vmbs(plan), host_slots = (size_t)l.host_slots;
        size_t buffers = (size_t)(l.inputs + l.slots + l.gradients) + host_slots;
        size_t ints = 3 * vmbs + (host_slots ? vmbs + host_slots : 0) + buffers +
                      (size_t)optimizer_chunks(plan, part);
        const size_t deferred = (size_t)l.deferred * (sizeof(struct deferred) + sizeof(int));
        const size_t used = 5; /* a count for each table of users */
        return buffers * sizeof(struct arrival) + (ints + used) * sizeof(int) + deferred +
               gathered_bytes(plan, part);
}

size_t core_bytes(const struct plan *plan, const struct core_stage *stage)
{
        return sizeof(struct core) + table_bytes(plan, stage);
}

void core_clear_tables(struct core *core)
{
        const struct core_stage part = core_part(core);
        memset(core->tables, 0, table_bytes(&core->plan, &part));
}

struct core_pool core_forward_slots(const struct core *core, int chunk)
{
        if (activations_offloaded(core))
                return (struct core_pool){0, FORWARD_SLOTS, false};
        const int slots = core->limits.slots, others = slots - core->own_head_slots;
        if (core->own_head_slots == 0)
                return (struct core_pool){0, slots, true};
        return core_is_last(core, chunk) ? (struct core_pool){others, core->own_head_slots, false}
                                         : (struct core_pool){0, others, false};
}

int64_t core_chunk_bytes(const struct core *core, int chunk)
{
        const bool shorter = chunk < core->longer_first || chunk >= core->longer_end;
        return core->slot_bytes - (shorter ? core->shorter_bytes : 0) +
               (core_is_first(core, chunk) ? core->embedded_bytes : 0) +
               (core_is_last(core, chunk) ? core->head_bytes : 0);
}

int buffer_acquire(int *users_of, struct core_pool buffers, int *buffer_of, int vmb, int users)
{
        for (int i = buffers.first; i < buffers.first + buffers.count; i++)
                if (users_of[i] == 0) {
                        users_of[i] = users;
                        users_of[-1]++;
                        if (vmb >= 0)
                                buffer_of[vmb] = i;
                        return i;
                }
        assert(!"a buffer is free");
        return -1;
}

int buffer_free(const int *users_of, struct core_pool buffers)
{
        int free = 0;
        if (buffers.all)
                return buffers.count - users_of[-1];
        for (int i = buffers.first; i < buffers.first + buffers.count; i++)
                free += users_of[i] == 0;
        return free;
}

void buffer_release(int *users_of, int buffer)
{
        assert(users_of[buffer] > 0);
        if (--users_of[buffer] == 0)
                users_of[-1]--;
}

struct core_limits core_in_use(const struct core *core)
{
        struct core_tables t = core_tables((struct core *)core);
        return (struct core_limits){
                .slots = t.slot_users[-1],
                .host_slots = t.host_slot_users[-1],
                .inputs = t.input_users[-1],
                .gradients = t.gradient_users[-1],
                .deferred = t.deferred_users[-1],
        };
}

int64_t core_stored_bytes(const struct core *core, bool offloaded)
{
        struct core_tables t = core_tables((struct core *)core);
        const int last = core->plan.virtual_stages - 1, own = core->own_head_slots;
        const int64_t any = core->slot_bytes + core->first * core->embedded_bytes;
        if (own == 0)
                return (offloaded ? t.host_slot_users : t.slot_users)[-1] *
                       (any + core->last * core->head_bytes);
        const int64_t shorter = core->longer_first == last ? core->shorter_bytes : 0;
        const int used = own - buffer_free(t.slot_users, core_forward_slots(core, last));
        return used * core_chunk_bytes(core, last) + (t.slot_users[-1] - used) * (any - shorter);
}
