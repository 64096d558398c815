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

struct core_limits core_limits(const struct plan *plan, int stage)
{
        const struct policy *policy = policy_get(plan->policy);
        int limit = core_pipeline_limit(plan);
        bool first = stage == 0, last = stage == plan->pp - 1;
        /* One gradient buffer is worked on; one more is being received, and one more is being sent. */
        return (struct core_limits){
                .slots = policy->stored(plan, stage, limit),
                .inputs = first ? 0 : policy->received(plan, stage, limit),
                .gradients = 1 + !last + !first,
        };
}

struct core_tables core_tables(struct core *core)
{
        int m = core->plan.micro_batches;
        struct core_limits l = core->limits;
        int *at = core->tables;
        struct core_tables t;
        t.queue = (struct arrival *)at;
        at += (size_t)(l.inputs + l.slots + l.gradients) * (sizeof(struct arrival) / sizeof(int));
        t.input_of = at;
        t.slot_of = at += m;
        t.gradient_of = at += m;
        t.input_users = at += m;
        t.slot_users = at += l.inputs;
        t.gradient_users = at += l.slots;
        t.chunk_done = at + l.gradients;
        return t;
}

static size_t table_ints(const struct plan *plan, int stage, int64_t parameters)
{
        struct core_limits l = core_limits(plan, stage);
        int buffers = l.inputs + l.slots + l.gradients;
        return (size_t)buffers * (1 + sizeof(struct arrival) / sizeof(int)) +
               3 * (size_t)plan->micro_batches + (size_t)optimizer_chunks(plan, parameters);
}

size_t core_bytes(const struct plan *plan, int stage, int64_t parameters)
{
        return sizeof(struct core) + table_ints(plan, stage, parameters) * sizeof(int);
}

struct core *core_init(void *memory, const struct plan *plan, int stage, int64_t parameters,
                       int64_t slot_bytes)
{
        assert(plan->pp >= 1 && plan->dp >= 1 && plan->micro_batches >= 1 && stage >= 0 && stage < plan->pp);
        assert(plan->bucket_parameters >= 1 && plan->allreduce_buckets >= 1 && parameters >= 1);
        memset(memory, 0, core_bytes(plan, stage, parameters));
        struct core *core = memory;
        memcpy(&core->plan, plan, sizeof *plan);
        core->stage = stage;
        core->limit = core_pipeline_limit(plan);
        core->first = stage == 0;
        core->last = stage == plan->pp - 1;
        core->parameters = parameters;
        core->slot_bytes = slot_bytes;
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
        memset(core->tables, 0, table_ints(&core->plan, core->stage, core->parameters) * sizeof(int));
        optimizer_start(core);
}

/* Takes a free buffer for `micro_batch`, with `users` that must each let go of it before it is free again. */
static int acquire(int *users_of, int buffers, int *buffer_of, int micro_batch, int users)
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

static bool any_free(const int *users_of, int buffers)
{
        for (int i = 0; i < buffers; i++)
                if (users_of[i] == 0)
                        return true;
        return false;
}

static void release(int *users_of, int buffer)
{
        assert(users_of[buffer] > 0);
        users_of[buffer]--;
}

static struct op new_op(enum op_kind kind, enum op_lane lane, int micro_batch)
{
        struct op op;
        memset(&op, 0, sizeof op); /* padding too: operations are hashed */
        op.kind = kind;
        op.lane = lane;
        op.micro_batch = micro_batch;
        op.input = op.slot = op.host_slot = op.gradient = op.bucket = op.buffer = -1;
        return op;
}

static bool next_send(struct core *core, struct op *op)
{
        struct core_tables t = core_tables(core);
        if (core->send_activation >= 0) {
                *op = new_op(OP_SEND_ACTIVATION, LANE_SEND_NEXT, core->send_activation);
                op->slot = t.slot_of[op->micro_batch];
                op->bytes = core->plan.message_bytes;
                core->send_activation = -1;
                return true;
        }
        if (core->send_gradient >= 0) {
                *op = new_op(OP_SEND_GRADIENT, LANE_SEND_PREVIOUS, core->send_gradient);
                op->gradient = t.gradient_of[op->micro_batch];
                op->bytes = core->plan.message_bytes;
                core->send_gradient = -1;
                return true;
        }
        return false;
}

/* One receive stays posted on each side while messages are still to come and a buffer is free. */
static bool next_receive(struct core *core, struct op *op)
{
        struct core_tables t = core_tables(core);
        int m = core->plan.micro_batches;
        if (!core->first && !core->receiving_activation && core->activations_posted < m &&
            any_free(t.input_users, core->limits.inputs)) {
                *op = new_op(OP_RECEIVE_ACTIVATION, LANE_RECEIVE_PREVIOUS, -1);
                op->input = acquire(t.input_users, core->limits.inputs, NULL, -1, 1);
                op->bytes = core->plan.message_bytes;
                core->receiving_activation = true;
                core->activations_posted++;
                return true;
        }
        if (!core->last && !core->plan.forward_only && !core->receiving_gradient &&
            core->gradients_posted < m && any_free(t.gradient_users, core->limits.gradients)) {
                *op = new_op(OP_RECEIVE_GRADIENT, LANE_RECEIVE_NEXT, -1);
                op->gradient = acquire(t.gradient_users, core->limits.gradients, NULL, -1, 1);
                op->bytes = core->plan.message_bytes;
                core->receiving_gradient = true;
                core->gradients_posted++;
                return true;
        }
        return false;
}

/* Place in the queue of the oldest arrival to be worked on so, or -1. */
static int oldest(struct core *core, enum op_kind work)
{
        struct arrival *queue = core_tables(core).queue;
        for (int i = 0; i < core->arrivals; i++)
                if (queue[i].work == work)
                        return i;
        return -1;
}

static void arrive(struct core *core, int micro_batch, enum op_kind work)
{
        struct core_tables t = core_tables(core);
        struct arrival *arrival = &t.queue[core->arrivals++];
        arrival->micro_batch = micro_batch;
        arrival->work = work;
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
        struct op op = new_op(OP_FORWARD, LANE_COMPUTE, micro_batch);
        int users = (core->plan.forward_only ? 0 : 1) + !core->last; /* the backward, and the send */
        op.input = core->first ? -1 : t.input_of[micro_batch];
        op.slot = acquire(t.slot_users, core->limits.slots, t.slot_of, micro_batch, users > 0 ? users : 1);
        core->forwards_started++;
        return op;
}

static struct op begin_backward(struct core *core, int micro_batch)
{
        struct core_tables t = core_tables(core);
        struct op op = new_op(OP_BACKWARD, LANE_COMPUTE, micro_batch);
        if (core->last)
                acquire(t.gradient_users, core->limits.gradients, t.gradient_of, micro_batch, 1);
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
        if (any_free(t.slot_users, core->limits.slots)) {
                if (core->first && core->forwards_started < core->plan.micro_batches)
                        view.forward_ready = core->forwards_started;
                else if (*forward_at >= 0)
                        view.forward_ready = t.queue[*forward_at].micro_batch;
        }
        if (*backward_at >= 0 && (!core->last || any_free(t.gradient_users, core->limits.gradients)))
                view.backward_ready = t.queue[*backward_at].micro_batch;
        view.forward_came_first = *forward_at >= 0 && *forward_at < *backward_at;
        return view;
}

static bool next_compute(struct core *core, struct op *op)
{
        if (core->computing || !core->loaded)
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
        *op = new_op(OP_LOAD, LANE_HOST_TO_DEVICE, -1);
        op->bytes = core->plan.load_bytes * (core->first + core->last);
        return true;
}

bool core_next(struct core *core, struct op *op)
{
        bool found = next_load(core, op) || next_send(core, op) || next_receive(core, op) ||
                     next_compute(core, op) || optimizer_next(core, op);
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
        if (core->plan.forward_only) {
                if (!core->first)
                        release(t.input_users, op->input);
                if (core->last)
                        release(t.slot_users, op->slot);
        } else if (core->last) {
                arrive(core, op->micro_batch, OP_BACKWARD);
        }
}

static void backward_done(struct core *core, const struct op *op)
{
        struct core_tables t = core_tables(core);
        core->computing = false;
        core->backwards_done++;
        release(t.slot_users, op->slot);
        if (core->first) {
                release(t.gradient_users, op->gradient);
        } else {
                release(t.input_users, op->input);
                core->send_gradient = op->micro_batch;
        }
}

void core_complete(struct core *core, const struct op *op)
{
        struct core_tables t = core_tables(core);
        assert(core->in_flight > 0);
        core->in_flight--;
        switch (op->kind) {
        case OP_LOAD:
                core->loaded = true;
                break;
        case OP_RECEIVE_ACTIVATION:
                assert(op->micro_batch >= 0 && op->micro_batch < core->plan.micro_batches);
                core->receiving_activation = false;
                t.input_of[op->micro_batch] = op->input;
                arrive(core, op->micro_batch, OP_FORWARD);
                break;
        case OP_RECEIVE_GRADIENT:
                assert(op->micro_batch >= 0 && op->micro_batch < core->plan.micro_batches);
                core->receiving_gradient = false;
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
                release(t.slot_users, op->slot);
                break;
        case OP_SEND_GRADIENT:
                release(t.gradient_users, op->gradient);
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
        return core->in_flight == 0 && core->send_activation < 0 && core->send_gradient < 0 &&
               core_pipeline_done(core) && optimizer_done(core);
}

int core_in_flight(const struct core *core)
{
        return core->in_flight;
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
                .inputs = in_use(t.input_users, core->limits.inputs),
                .gradients = in_use(t.gradient_users, core->limits.gradients),
        };
}
