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
        assert(plan->micro_batches >= 0 && stage >= 0 && stage < plan->pp);
        assert(plan->bucket_parameters >= 1 && plan->allreduce_buckets >= 1 && part->parameters >= 1);
        assert(plan->mixed || !plan->offload);
        assert(plan->zero == 3 || !plan->offload_parameters);
        assert(plan->dp % plan_expert_replicas(plan) == 0 && plan->dp % plan_context_ranks(plan) == 0);
        assert(plan->dp % plan_share_ranks(plan) == 0 && (plan->zero >= 1 || !plan_hybrid(plan)));
        assert(plan->ep <= 1 || !plan_hybrid(plan));
        assert(plan->policy == POLICY_INTERLEAVED ? plan->micro_batches % plan->pp == 0
                                                  : plan->virtual_stages == 1);
        assert(!gather_planned(plan) ||
               ((plan->pp == 1 || plan->zero == 2) && plan->virtual_stages == 1 &&
                (plan->ep <= 1 || plan->zero == 3) && !policy_get(plan->policy)->deferred &&
                part->units.blocks > 0 && plan->prefetch >= 0 && part->replicated_count == 0));
        assert(!plan->overlap_allreduce || (plan->zero <= 1 && plan->ep <= 1));
        assert(plan_logical(plan) == 1 || core_stands_for(plan));
        assert(part->replica >= 0 && part->replica < plan->dp);
        assert(part->shard >= 0 && part->shard < plan->tp);
        assert(!core_decides(plan, stage) || (plan->ep <= 1 && plan->cp <= 1 && !plan->offload_activations));
        memset(memory, 0, core_bytes(plan, part));
        struct core *core = memory;
        memcpy(&core->plan, plan, sizeof *plan);
        core->stage = stage;
        core->replica = part->replica;
        core->decided = core_decides(plan, stage);
        core->decides = part->shard == 0;
        core->limit = core_pipeline_limit(plan);
        core->first = stage == 0;
        core->last = stage == plan->pp - 1;
        core->parameters = part->parameters;
        core->slot_bytes = part->slot_bytes;
        core->embedded_bytes = part->embedded_bytes;
        core->head_bytes = part->head_bytes;
        core->shorter_bytes = part->shorter_bytes;
        core->longer_first = part->longer_first;
        core->longer_end = part->longer_end;
        core->replicated_offset = part->replicated_offset;
        core->replicated_count = part->replicated_count;
        core->common_offset = part->common_offset;
        core->common_count = part->common_count;
        core->expert_parameters = part->expert_parameters;
        core->checkpoint_bytes = plan_writes(plan, part->replica) ? part->checkpoint_bytes : 0;
        core->limits = core_limits(plan, stage);
        core->own_head_slots = core_head_slots(plan, stage);
        core->units = part->units;
        if (gather_planned(plan))
                core->gathers = core_gathers(plan, &part->units);
        return core;
}

void core_start(struct core *core)
{
        assert(core->in_flight == 0 && saving_done(core));
        core->load_issued = false;
        core->loaded = core->plan.micro_batches == 0 || !(core->first || core->last);
        core->activations_posted = core->gradients_posted = 0;
        core->forwards_started = core->forwards_done = 0;
        core->backwards_started = core->backwards_done = 0;
        core->weights_done = core->deferred = 0;
        core->replicas_added = 0;
        core->send_activation = core->send_gradient = -1;
        core->arrivals = 0;
        core->exchanging = 0;
        assert(core->gather.units == 0 && gather_idle(core) && !core->tensor.under_way &&
               core->tensor.along_z == 0);
        core_clear_tables(core);
        gather_start(core);
        assert(!core->decision.under_way && !core->decision.known);
        core->decision.made = 0;
        activations_start(core);
        optimizer_start(core);
}

struct op core_new_op(enum op_kind kind)
{
        static const struct op none = {.micro_batch = -1,
                                       .input = -1,
                                       .slot = -1,
                                       .host_slot = -1,
                                       .gradient = -1,
                                       .deferred = -1,
                                       .gathered = -1,
                                       .reduced = -1,
                                       .bucket = -1,
                                       .buffer = -1};
        struct op op;
        memcpy(&op, &none, sizeof op); /* padding too: operations are hashed */
        op.of = kind;
        op_become(&op, kind);
        return op;
}

struct op core_op_of_vmb(const struct core *core, enum op_kind kind, int vmb)
{
        struct op op = core_new_op(kind);
        op.chunk = core_chunk(core, vmb);
        op.micro_batch = vmb - op.chunk * core->plan.micro_batches;
        return op;
}

int core_message_vmb(const struct plan *plan, int stage, const struct op *sent)
{
        const bool backward = sent->of == OP_SEND_GRADIENT;
        const int chunk = sent->chunk + (backward ? -(stage == 0) : stage == plan->pp - 1);
        assert(chunk >= 0 && chunk < plan->virtual_stages);
        return chunk * plan->micro_batches + sent->micro_batch;
}

void core_set_vmb(const struct plan *plan, struct op *received, int vmb)
{
        received->chunk = vmb / plan->micro_batches;
        received->micro_batch = vmb % plan->micro_batches;
}

static bool next_send(struct core *core, struct op *op)
{
        struct core_tables t = core_tables(core);
        if (blocking_in_pair(core))
                return false;
        if (core->send_activation >= 0) {
                *op = core_op_of_vmb(core, OP_SEND_ACTIVATION, core->send_activation);
                op->slot = t.slot_of[core->send_activation];
                op->bytes = core->plan.message_bytes;
                core->send_activation = -1;
                blocking_begin(core, op);
                return true;
        }
        if (core->send_gradient >= 0) {
                *op = core_op_of_vmb(core, OP_SEND_GRADIENT, core->send_gradient);
                op->gradient = t.gradient_of[core->send_gradient];
                op->bytes = core->plan.message_bytes;
                core->send_gradient = -1;
                blocking_begin(core, op);
                return true;
        }
        return false;
}

static struct core_pool inputs_of(const struct core *core)
{
        return (struct core_pool){0, core->limits.inputs, true};
}

static struct core_pool gradients_of(const struct core *core)
{
        return (struct core_pool){0, core->limits.gradients, true};
}

/* Place in the queue of the oldest arrival that can be worked on so, or -1. `vmb`: of this one, if not -1.
 */
static int oldest(struct core *core, enum op_kind work, int vmb)
{
        struct arrival *queue = core_tables(core).queue;
        for (int i = 0; i < core->arrivals; i++)
                if (queue[i].work == work && (vmb < 0 || queue[i].vmb == vmb) &&
                    (work == OP_FORWARD || activations_there(core, queue[i].vmb)))
                        return i;
        return -1;
}

static void arrive(struct core *core, int vmb, enum op_kind work)
{
        struct core_tables t = core_tables(core);
        struct arrival *arrival = &t.queue[core->arrivals++];
        arrival->vmb = vmb;
        arrival->work = work;
        if (work == OP_BACKWARD)
                activations_demand(core, vmb);
}

static void take(struct core *core, int place)
{
        struct core_tables t = core_tables(core);
        struct arrival *queue = t.queue;
        core->arrivals--;
        memmove(&queue[place], &queue[place + 1], (size_t)(core->arrivals - place) * sizeof *queue);
        memset(&queue[core->arrivals], 0, sizeof *queue);
}

static struct op begin_forward(struct core *core, int vmb)
{
        struct core_tables t = core_tables(core);
        struct op op = core_op_of_vmb(core, OP_FORWARD, vmb);
        /* The backward, or, offloaded, the store; and the send. */
        int users = (core->plan.forward_only ? 0 : 1) + !core_is_last(core, op.chunk);
        op.input = core_is_first(core, op.chunk) ? -1 : t.input_of[vmb];
        op.slot = buffer_acquire(t.slot_users, core_forward_slots(core, op.chunk), t.slot_of, vmb,
                                 users > 0 ? users : 1);
        core->forwards_started++;
        return op;
}

static struct op begin_backward(struct core *core, int vmb)
{
        struct core_tables t = core_tables(core);
        struct op op = core_op_of_vmb(core, OP_BACKWARD, vmb);
        if (core_is_last(core, op.chunk))
                buffer_acquire(t.gradient_users, gradients_of(core), t.gradient_of, vmb, 1);
        op.parts = OP_INPUT_GRADIENT | OP_WEIGHT_GRADIENT;
        op.input = core_is_first(core, op.chunk) ? -1 : t.input_of[vmb];
        op.slot = t.slot_of[vmb];
        op.gradient = t.gradient_of[vmb];
        core->backwards_started++;
        if (weights_parted(core))
                weights_begin_input(core, &op);
        overlap_begin(core, &op);
        return op;
}

/* The virtual micro-batch whose turn it is to go forward, or backward, where the policy says so; else, or
 * after the last one, -1. */
static int turn(const struct core *core, enum op_kind work)
{
        const struct policy *policy = policy_get(core->plan.policy);
        const int nth = work == OP_FORWARD ? core->forwards_started : core->backwards_started;
        if (!policy->nth_forward || nth == plan_vmbs(&core->plan))
                return -1;
        return (work == OP_FORWARD ? policy->nth_forward : policy->nth_backward)(&core->plan, nth);
}

/* Piece that could go forward, or -1; `at`: its place in the queue, or -1. The first chunk needs no message.
 */
static int ready_forward(struct core *core, int at)
{
        struct core_tables t = core_tables(core);
        int vmb = turn(core, OP_FORWARD);
        if (core->first && vmb < 0 && core->plan.virtual_stages == 1 &&
            core->forwards_started < core->plan.micro_batches)
                vmb = core->forwards_started;
        else if (vmb < 0 || !core_is_first(core, core_chunk(core, vmb)))
                vmb = at >= 0 ? t.queue[at].vmb : -1;
        if (vmb < 0 || !buffer_free(t.slot_users, core_forward_slots(core, core_chunk(core, vmb))))
                return -1;
        return vmb;
}

static int ready_backward(struct core *core, int at)
{
        struct core_tables t = core_tables(core);
        if (at < 0 || !weights_room(core))
                return -1;
        const int vmb = t.queue[at].vmb;
        const bool begins = core_is_last(core, core_chunk(core, vmb));
        return begins && !buffer_free(t.gradient_users, gradients_of(core)) ? -1 : vmb;
}

/* What the policy may choose between now; `forward_at`, `backward_at`: their places in the queue. */
static struct policy_view look(struct core *core, int *forward_at, int *backward_at)
{
        *forward_at = oldest(core, OP_FORWARD, turn(core, OP_FORWARD));
        *backward_at = oldest(core, OP_BACKWARD, turn(core, OP_BACKWARD));
        return (struct policy_view){
                .stage = core->stage,
                .stages = core->plan.pp,
                .chunks = core->plan.virtual_stages,
                .micro_batches = core->plan.micro_batches,
                .pipeline_limit = core->limit,
                .forwards = core->forwards_done,
                .backwards = core->backwards_done,
                .weights = core->weights_done,
                .forward_ready = ready_forward(core, *forward_at),
                .backward_ready = ready_backward(core, *backward_at),
                .weight_ready = weights_ready(core),
                .forward_came_first = *forward_at >= 0 && *forward_at < *backward_at,
                .offloads = activations_offloaded(core),
        };
}

/* What the policy computes next, if everything that it may choose between is there. */
static enum policy_choice wanted(struct core *core)
{
        int forward_at, backward_at;
        if (core->plan.forward_only)
                return CHOOSE_FORWARD;
        struct policy_view view = look(core, &forward_at, &backward_at);
        view.forward_ready = view.backward_ready = 0;
        view.weights = view.backwards; /* gradients of weights wait for no message */
        view.weight_ready = -1;
        return policy_get(core->plan.policy)->choose(&view);
}

static bool may_post(struct core *core, enum op_kind receive)
{
        const enum op_kind work = receive == OP_RECEIVE_ACTIVATION ? OP_FORWARD : OP_BACKWARD;
        return !core->plan.blocking || blocking_permits(core, receive, wanted(core), turn(core, work));
}

/* One receive stays posted on each side while messages are still to come and a buffer is free; blocking, of
 * what is computed next. The first chunk receives no activations, the last one no gradients; where others do,
 * its gradients keep a buffer. */
static bool next_receive(struct core *core, struct op *op)
{
        struct core_tables t = core_tables(core);
        const int m = core->plan.micro_batches, vmbs = plan_vmbs(&core->plan);
        if (!core->receiving_activation && core->activations_posted < vmbs - core->first * m &&
            buffer_free(t.input_users, inputs_of(core)) && may_post(core, OP_RECEIVE_ACTIVATION)) {
                *op = core_new_op(OP_RECEIVE_ACTIVATION);
                op->input = buffer_acquire(t.input_users, inputs_of(core), NULL, -1, 1);
                op->bytes = core->plan.message_bytes;
                core->receiving_activation = true;
                core->activations_posted++;
                blocking_begin(core, op);
                return true;
        }
        if (!core->plan.forward_only && !core->receiving_gradient &&
            core->gradients_posted < vmbs - core->last * m &&
            buffer_free(t.gradient_users, gradients_of(core)) > (core->last && !core->plan.blocking) &&
            may_post(core, OP_RECEIVE_GRADIENT)) {
                *op = core_new_op(OP_RECEIVE_GRADIENT);
                op->gradient = buffer_acquire(t.gradient_users, gradients_of(core), NULL, -1, 1);
                op->bytes = core->plan.message_bytes;
                core->receiving_gradient = true;
                core->gradients_posted++;
                blocking_begin(core, op);
                return true;
        }
        return false;
}

static enum policy_choice choose(const struct core *core, const struct policy_view *view)
{
        if (core->plan.forward_only)
                return view->forward_ready >= 0 ? CHOOSE_FORWARD : CHOOSE_WAIT;
        return policy_get(core->plan.policy)->choose(view);
}

/* What shard 0 computes next, as soon as it can, for the others to follow; there, the one decision that they
 * have asked for ahead. */
static bool next_decision(struct core *core, struct op *op)
{
        int forward_at, backward_at;
        if (!core->decided || !decision_wanted(core) || (core->decides && core->computing))
                return false;
        if (!core->decides) {
                *op = decision_begin(core);
                return true;
        }
        const struct policy_view view = look(core, &forward_at, &backward_at);
        const enum policy_choice choice = choose(core, &view);
        if (choice == CHOOSE_WAIT)
                return false;
        const bool forward = choice == CHOOSE_FORWARD;
        *op = decision_begin(core);
        op->of = forward ? OP_FORWARD : OP_BACKWARD;
        core_set_vmb(&core->plan, op, forward ? view.forward_ready : view.backward_ready);
        return true;
}

static bool next_compute(struct core *core, struct op *op)
{
        if (core->computing || !core->loaded || blocking_holds(core))
                return false;
        if (logical_next(core, op))
                return true;
        int forward_at, backward_at;
        const struct policy_view view = look(core, &forward_at, &backward_at);
        const enum policy_choice choice = core->decided ? decision_take(core, &view) : choose(core, &view);
        if (choice == CHOOSE_WAIT)
                return false;
        core->computing = true;
        if (choice == CHOOSE_FORWARD) {
                assert(view.forward_ready >= 0);
                *op = begin_forward(core, view.forward_ready);
                if (!core_is_first(core, op->chunk))
                        take(core, forward_at);
        } else if (choice == CHOOSE_WEIGHT) {
                assert(view.weight_ready >= 0);
                *op = weights_begin(core);
        } else {
                assert(view.backward_ready >= 0);
                *op = begin_backward(core, view.backward_ready);
                take(core, backward_at);
        }
        return gather_begin(core, op);
}

static bool next_load(struct core *core, struct op *op)
{
        if (core->loaded || core->load_issued)
                return false;
        core->load_issued = true;
        *op = core_new_op(OP_LOAD);
        op->bytes = core->plan.load_bytes * (core->first + core->last);
        return true;
}

static bool next_operation(struct core *core, struct op *op)
{
        bool found = next_load(core, op) || next_send(core, op) || next_receive(core, op) ||
                     activations_next(core, op) || next_decision(core, op) || next_compute(core, op) ||
                     optimizer_next(core, op) || saving_next(core, op);
        if (found)
                staging_begin(core, op);
        return found;
}

struct op *core_continue(struct core *core, const struct op *part)
{
        assert(!core->continues); /* core_next comes between two completions */
        core->continues = true;
        memcpy(&core->next, part, sizeof *part);
        core->next.more = core->next.beside = core->next.joins = false;
        core->next.left = 0;
        return &core->next;
}

static bool next_part(struct core *core, struct op *op)
{
        if (!core->continues)
                return false;
        memcpy(op, &core->next, sizeof *op);
        memset(&core->next, 0, sizeof core->next); /* what is over leaves no trace */
        core->continues = false;
        return true;
}

bool core_next(struct core *core, struct op *op)
{
        bool found = next_part(core, op) || tensor_next(core, op) || gather_next(core, op) ||
                     next_operation(core, op);
        core->in_flight += found && op->kind != OP_WRITE;
        return found;
}

static void forward_done(struct core *core, const struct op *op)
{
        struct core_tables t = core_tables(core);
        const int vmb = core_vmb(core, op);
        const bool first = core_is_first(core, op->chunk), last = core_is_last(core, op->chunk);
        core->computing = false;
        core->forwards_done++;
        if (!last)
                core->send_activation = vmb;
        if (activations_offloaded(core))
                core->store = vmb;
        if (core->plan.forward_only) {
                if (!first)
                        buffer_release(t.input_users, op->input);
                if (last)
                        buffer_release(t.slot_users, op->slot);
        } else if (last) {
                arrive(core, vmb, OP_BACKWARD);
        }
}

static void input_gradient_done(struct core *core, const struct op *op)
{
        struct core_tables t = core_tables(core);
        const int vmb = core_vmb(core, op);
        core->backwards_done++;
        if (core_is_first(core, op->chunk)) {
                buffer_release(t.gradient_users, op->gradient);
                t.gradient_of[vmb] = 0;
        } else {
                core->send_gradient = vmb;
        }
}

/* What is over leaves no trace, so that states which differ in their past only are the same bytes. */
static void leave(struct core *core, const struct op *op)
{
        struct core_tables t = core_tables(core);
        const int vmb = core_vmb(core, op);
        weights_done(core, op);
        buffer_release(t.slot_users, op->slot);
        t.slot_of[vmb] = 0;
        activations_leave(core, op->slot);
        if (!core_is_first(core, op->chunk)) {
                buffer_release(t.input_users, op->input);
                t.input_of[vmb] = 0;
        }
}

static void backward_done(struct core *core, const struct op *op)
{
        core->computing = false;
        if (op->parts & OP_INPUT_GRADIENT)
                input_gradient_done(core, op);
        if (op->parts == OP_INPUT_GRADIENT)
                weights_defer(core, op);
        else
                leave(core, op);
}

/* The message is there, so that the next receive may be posted. */
static void received(struct core *core, const struct op *op)
{
        if (op->kind != OP_RECEIVE_ACTIVATION && op->kind != OP_RECEIVE_GRADIENT)
                return;
        assert(op->micro_batch >= 0 && op->micro_batch < core->plan.micro_batches);
        assert(op->chunk >= 0 && op->chunk < core->plan.virtual_stages);
        if (op->kind == OP_RECEIVE_ACTIVATION)
                core->receiving_activation = false;
        else
                core->receiving_gradient = false;
}

/* Whether what has completed is a part of an operation that goes on; else it becomes the whole of it. */
static bool goes_on(struct core *core, struct op *op)
{
        static const struct chain *const inner_first[] = {&tensor_chain, &overlap_chain, &gather_chain,
                                                          &staging_chain};
        const struct chain *of = NULL;
        for (size_t i = 0; i < sizeof inner_first / sizeof *inner_first; i++)
                if (inner_first[i]->has(core, op)) {
                        assert(!of || (of == &tensor_chain && (inner_first[i] == &overlap_chain ||
                                                               inner_first[i] == &gather_chain)));
                        of = inner_first[i];
                        if (of->goes_on(core, op))
                                return true;
                }
        op->kind = op->of;
        return false;
}

void core_complete(struct core *core, const struct op *done)
{
        struct core_tables t = core_tables(core);
        struct op whole = *done, *op = &whole;
        assert(done->kind == OP_WRITE ? core->writing : core->in_flight > 0);
        core->in_flight -= done->kind != OP_WRITE;
        received(core, done);
        if (op->kind == OP_DECISION) {
                decision_complete(core, op);
                return;
        }
        if (goes_on(core, op))
                return;
        blocking_end(core, op);
        switch (op->kind) {
        case OP_LOAD:
                core->loaded = true;
                break;
        case OP_RECEIVE_ACTIVATION:
                t.input_of[core_vmb(core, op)] = op->input;
                arrive(core, core_vmb(core, op), OP_FORWARD);
                break;
        case OP_RECEIVE_GRADIENT:
                t.gradient_of[core_vmb(core, op)] = op->gradient;
                arrive(core, core_vmb(core, op), OP_BACKWARD);
                break;
        case OP_FORWARD:
                forward_done(core, op);
                break;
        case OP_BACKWARD:
                backward_done(core, op);
                break;
        case OP_ADD_REPLICA:
                logical_complete(core);
                break;
        case OP_SEND_ACTIVATION:
                buffer_release(t.slot_users, op->slot);
                break;
        case OP_SEND_GRADIENT:
                buffer_release(t.gradient_users, op->gradient);
                t.gradient_of[core_vmb(core, op)] = 0;
                break;
        case OP_STORE_ACTIVATIONS:
        case OP_FETCH_ACTIVATIONS:
                activations_complete(core, op);
                break;
        case OP_SNAPSHOT:
        case OP_WRITE:
                saving_complete(core, op);
                break;
        default:
                optimizer_complete(core, op);
        }
}

bool core_pipeline_done(const struct core *core)
{
        int done = core->plan.forward_only ? core->forwards_done : core->weights_done;
        return done == plan_vmbs(&core->plan) && gather_idle(core) && logical_done(core);
}

bool core_done(const struct core *core)
{
        return core->in_flight == 0 && !core->continues && core->send_activation < 0 &&
               core->send_gradient < 0 && core_pipeline_done(core) && optimizer_done(core) &&
               saving_done(core);
}

int core_in_flight(const struct core *core)
{
        return core->in_flight;
}
