/* The pipeline phase. Nothing is queued: core_next looks at the state for something that can begin now, and
 * the state changes only when an operation is handed out or completed. */
#include "runtime/sched/core.h"
#include "runtime/sched/state.h"

#include <assert.h>
#include <string.h>

int core_pipeline_limit(const struct plan *plan)
{
        int limit = plan->pipeline_limit > 0 ? plan->pipeline_limit : plan->pp;
        return limit < plan->micro_batches ? limit : plan->micro_batches;
}

struct core *core_init(void *memory, const struct plan *plan, const struct core_stage *part)
{
        const int stage = part->stage;
        assert(plan->pp >= 1 && plan->dp >= 1 && plan->tp >= 1 && plan->virtual_stages >= 1);
        assert(plan->micro_batches >= 1 && stage >= 0 && stage < plan->pp);
        assert(plan->bucket_parameters >= 1 && plan->allreduce_buckets >= 1 && part->parameters >= 1);
        assert(plan->mixed || !plan->offload);
        memset(memory, 0, core_bytes(plan, part));
        struct core *core = memory;
        memcpy(&core->plan, plan, sizeof *plan);
        core->stage = stage;
        core->limit = core_pipeline_limit(plan);
        core->first = stage == 0;
        core->last = stage == plan->pp - 1;
        core->parameters = part->parameters;
        core->slot_bytes = part->slot_bytes;
        core->replicated_offset = part->replicated_offset;
        core->replicated_count = part->replicated_count;
        core->limits = core_limits(plan, stage);
        return core;
}

void core_start(struct core *core)
{
        assert(core->in_flight == 0);
        core->load_issued = false;
        core->loaded = !(core->first || core->last);
        core->activations_posted = core->gradients_posted = 0;
        core->forwards_started = core->forwards_done = 0;
        core->backwards_started = core->backwards_done = 0;
        core->send_activation = core->send_gradient = -1;
        core->arrivals = 0;
        core->exchanging = 0;
        core_clear_tables(core);
        activations_start(core);
        optimizer_start(core);
}

struct op core_new_op(enum op_kind kind, enum op_lane lane, int micro_batch)
{
        struct op op;
        memset(&op, 0, sizeof op); /* padding too: operations are hashed */
        op.kind = op.of = kind;
        op.lane = lane;
        op.micro_batch = micro_batch;
        op.input = op.slot = op.host_slot = op.gradient = op.bucket = op.buffer = -1;
        return op;
}

static bool next_send(struct core *core, struct op *op)
{
        struct core_tables t = core_tables(core);
        if (core->send_activation >= 0) {
                *op = core_new_op(OP_SEND_ACTIVATION, LANE_SEND_NEXT, core->send_activation);
                op->slot = t.slot_of[op->micro_batch];
                op->bytes = core->plan.message_bytes;
                core->send_activation = -1;
                blocking_begin(core, op);
                return true;
        }
        if (core->send_gradient >= 0) {
                *op = core_new_op(OP_SEND_GRADIENT, LANE_SEND_PREVIOUS, core->send_gradient);
                op->gradient = t.gradient_of[op->micro_batch];
                op->bytes = core->plan.message_bytes;
                core->send_gradient = -1;
                blocking_begin(core, op);
                return true;
        }
        return false;
}

/* Place in the queue of the oldest arrival that can be worked on so, or -1. */
static int oldest(struct core *core, enum op_kind work)
{
        struct arrival *queue = core_tables(core).queue;
        for (int i = 0; i < core->arrivals; i++)
                if (queue[i].work == work &&
                    (work == OP_FORWARD || activations_there(core, queue[i].micro_batch)))
                        return i;
        return -1;
}

static void arrive(struct core *core, int micro_batch, enum op_kind work)
{
        struct core_tables t = core_tables(core);
        struct arrival *arrival = &t.queue[core->arrivals++];
        arrival->micro_batch = micro_batch;
        arrival->work = work;
        if (work == OP_BACKWARD)
                activations_demand(core, micro_batch);
}

static void take(struct core *core, int place)
{
        struct core_tables t = core_tables(core);
        struct arrival *queue = t.queue;
        core->arrivals--;
        memmove(&queue[place], &queue[place + 1], (size_t)(core->arrivals - place) * sizeof *queue);
        memset(&queue[core->arrivals], 0, sizeof *queue);
}

static struct op begin_forward(struct core *core, int micro_batch)
{
        struct core_tables t = core_tables(core);
        struct op op = core_new_op(OP_FORWARD, LANE_COMPUTE, micro_batch);
        /* The backward, or, offloaded, the store; and the send. */
        int users = (core->plan.forward_only ? 0 : 1) + !core->last;
        op.input = core->first ? -1 : t.input_of[micro_batch];
        op.slot = buffer_acquire(t.slot_users, activations_forward_slots(core), t.slot_of, micro_batch,
                                 users > 0 ? users : 1);
        core->forwards_started++;
        return op;
}

static struct op begin_backward(struct core *core, int micro_batch)
{
        struct core_tables t = core_tables(core);
        struct op op = core_new_op(OP_BACKWARD, LANE_COMPUTE, micro_batch);
        if (core->last)
                buffer_acquire(t.gradient_users, core->limits.gradients, t.gradient_of, micro_batch, 1);
        op.parts = OP_INPUT_GRADIENT | OP_WEIGHT_GRADIENT;
        op.input = core->first ? -1 : t.input_of[micro_batch];
        op.slot = t.slot_of[micro_batch];
        op.gradient = t.gradient_of[micro_batch];
        core->backwards_started++;
        return op;
}

/* What the policy may choose between now; `forward_at`, `backward_at`: their places in the queue. */
static struct policy_view look(struct core *core, int *forward_at, int *backward_at)
{
        struct core_tables t = core_tables(core);
        struct policy_view view = {
                .stage = core->stage,
                .stages = core->plan.pp,
                .micro_batches = core->plan.micro_batches,
                .pipeline_limit = core->limit,
                .forwards = core->forwards_done,
                .backwards = core->backwards_done,
                .forward_ready = -1,
                .backward_ready = -1,
        };
        *forward_at = oldest(core, OP_FORWARD);
        *backward_at = oldest(core, OP_BACKWARD);
        if (buffer_any_free(t.slot_users, activations_forward_slots(core))) {
                if (core->first && core->forwards_started < core->plan.micro_batches)
                        view.forward_ready = core->forwards_started;
                else if (*forward_at >= 0)
                        view.forward_ready = t.queue[*forward_at].micro_batch;
        }
        if (*backward_at >= 0 && (!core->last || buffer_any_free(t.gradient_users, core->limits.gradients)))
                view.backward_ready = t.queue[*backward_at].micro_batch;
        view.forward_came_first = *forward_at >= 0 && *forward_at < *backward_at;
        return view;
}

/* What the policy computes next, if everything that it may choose between is there. */
static enum policy_choice wanted(struct core *core)
{
        int forward_at, backward_at;
        if (core->plan.forward_only)
                return CHOOSE_FORWARD;
        struct policy_view view = look(core, &forward_at, &backward_at);
        view.forward_ready = view.backward_ready = 0;
        return policy_get(core->plan.policy)->choose(&view);
}

static bool may_post(struct core *core, enum op_kind receive)
{
        return !core->plan.blocking || blocking_permits(core, receive, wanted(core));
}

/* One receive stays posted on each side while messages are still to come and a buffer is free; blocking, of
 * what is computed next. */
static bool next_receive(struct core *core, struct op *op)
{
        struct core_tables t = core_tables(core);
        int m = core->plan.micro_batches;
        if (!core->first && !core->receiving_activation && core->activations_posted < m &&
            buffer_any_free(t.input_users, core->limits.inputs) && may_post(core, OP_RECEIVE_ACTIVATION)) {
                *op = core_new_op(OP_RECEIVE_ACTIVATION, LANE_RECEIVE_PREVIOUS, -1);
                op->input = buffer_acquire(t.input_users, core->limits.inputs, NULL, -1, 1);
                op->bytes = core->plan.message_bytes;
                core->receiving_activation = true;
                core->activations_posted++;
                blocking_begin(core, op);
                return true;
        }
        if (!core->last && !core->plan.forward_only && !core->receiving_gradient &&
            core->gradients_posted < m && buffer_any_free(t.gradient_users, core->limits.gradients) &&
            may_post(core, OP_RECEIVE_GRADIENT)) {
                *op = core_new_op(OP_RECEIVE_GRADIENT, LANE_RECEIVE_NEXT, -1);
                op->gradient = buffer_acquire(t.gradient_users, core->limits.gradients, NULL, -1, 1);
                op->bytes = core->plan.message_bytes;
                core->receiving_gradient = true;
                core->gradients_posted++;
                blocking_begin(core, op);
                return true;
        }
        return false;
}

static bool next_compute(struct core *core, struct op *op)
{
        if (core->computing || !core->loaded || blocking_holds(core))
                return false;
        int forward_at, backward_at;
        struct policy_view view = look(core, &forward_at, &backward_at);
        enum policy_choice choice = policy_get(core->plan.policy)->choose(&view);
        if (core->plan.forward_only)
                choice = view.forward_ready >= 0 ? CHOOSE_FORWARD : CHOOSE_WAIT;
        if (choice == CHOOSE_WAIT)
                return false;
        core->computing = true;
        if (choice == CHOOSE_FORWARD) {
                assert(view.forward_ready >= 0);
                *op = begin_forward(core, view.forward_ready);
                if (!core->first)
                        take(core, forward_at);
        } else {
                assert(view.backward_ready >= 0);
                *op = begin_backward(core, view.backward_ready);
                take(core, backward_at);
        }
        return true;
}

static bool next_load(struct core *core, struct op *op)
{
        if (core->loaded || core->load_issued)
                return false;
        core->load_issued = true;
        *op = core_new_op(OP_LOAD, LANE_HOST_TO_DEVICE, -1);
        op->bytes = core->plan.load_bytes * (core->first + core->last);
        return true;
}

static bool next_operation(struct core *core, struct op *op)
{
        bool found = next_load(core, op) || next_send(core, op) || next_receive(core, op) ||
                     activations_next(core, op) || next_compute(core, op) || optimizer_next(core, op);
        if (found)
                staging_begin(core, op);
        return found;
}

bool core_next(struct core *core, struct op *op)
{
        bool found = staging_next(core, op) || next_operation(core, op);
        core->in_flight += found;
        return found;
}

static void forward_done(struct core *core, const struct op *op)
{
        struct core_tables t = core_tables(core);
        core->computing = false;
        core->forwards_done++;
        if (!core->last)
                core->send_activation = op->micro_batch;
        if (activations_offloaded(core))
                core->store = op->micro_batch;
        if (core->plan.forward_only) {
                if (!core->first)
                        buffer_release(t.input_users, op->input);
                if (core->last)
                        buffer_release(t.slot_users, op->slot);
        } else if (core->last) {
                arrive(core, op->micro_batch, OP_BACKWARD);
        }
}

/* What is over leaves no trace, so that states which differ in their past only are the same bytes. */
static void backward_done(struct core *core, const struct op *op)
{
        struct core_tables t = core_tables(core);
        core->computing = false;
        core->backwards_done++;
        buffer_release(t.slot_users, op->slot);
        t.slot_of[op->micro_batch] = 0;
        activations_leave(core, op->slot);
        if (core->first) {
                buffer_release(t.gradient_users, op->gradient);
                t.gradient_of[op->micro_batch] = 0;
        } else {
                buffer_release(t.input_users, op->input);
                t.input_of[op->micro_batch] = 0;
                core->send_gradient = op->micro_batch;
        }
}

/* The message is there, so that the next receive may be posted. */
static void received(struct core *core, const struct op *op)
{
        if (op->kind != OP_RECEIVE_ACTIVATION && op->kind != OP_RECEIVE_GRADIENT)
                return;
        assert(op->micro_batch >= 0 && op->micro_batch < core->plan.micro_batches);
        if (op->kind == OP_RECEIVE_ACTIVATION)
                core->receiving_activation = false;
        else
                core->receiving_gradient = false;
}

void core_complete(struct core *core, const struct op *done)
{
        struct core_tables t = core_tables(core);
        struct op whole = *done, *op = &whole;
        assert(core->in_flight > 0);
        core->in_flight--;
        received(core, done);
        if (tensor_continue(core, op) || staging_continue(core, op))
                return;
        blocking_end(core, op);
        switch (op->kind) {
        case OP_LOAD:
                core->loaded = true;
                break;
        case OP_RECEIVE_ACTIVATION:
                t.input_of[op->micro_batch] = op->input;
                arrive(core, op->micro_batch, OP_FORWARD);
                break;
        case OP_RECEIVE_GRADIENT:
                t.gradient_of[op->micro_batch] = op->gradient;
                arrive(core, op->micro_batch, OP_BACKWARD);
                break;
        case OP_FORWARD:
                forward_done(core, op);
                break;
        case OP_BACKWARD:
                backward_done(core, op);
                break;
        case OP_SEND_ACTIVATION:
                buffer_release(t.slot_users, op->slot);
                break;
        case OP_SEND_GRADIENT:
                buffer_release(t.gradient_users, op->gradient);
                t.gradient_of[op->micro_batch] = 0;
                break;
        case OP_STORE_ACTIVATIONS:
        case OP_FETCH_ACTIVATIONS:
                activations_complete(core, op);
                break;
        default:
                optimizer_complete(core, op);
        }
}

bool core_pipeline_done(const struct core *core)
{
        int done = core->plan.forward_only ? core->forwards_done : core->backwards_done;
        return done == core->plan.micro_batches;
}

bool core_done(const struct core *core)
{
        return core->in_flight == 0 && !core->continues && core->send_activation < 0 &&
               core->send_gradient < 0 && core_pipeline_done(core) && optimizer_done(core);
}

int core_in_flight(const struct core *core)
{
        return core->in_flight;
}
