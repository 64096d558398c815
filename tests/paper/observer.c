#include "tests/paper/observer.h"

#include "runtime/sched/policy.h"
#include "tests/paper/equal_stages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A buffer: whose data it holds, whether the data is there yet, and how many have still to be done with it.
 */
struct place {
        int vmb;
        bool there, fetched;
        int left;
};

/* How often something happened to a virtual micro-batch on a rank: a micro-batch in one of its chunks. */
struct passed {
        int received, forwarded, sent, gradient_received, backwarded, weighed, gradient_sent;
};

/* A gradient's place in host memory, staged: what is there, or on its way. */
enum mirror { MIRROR_FREE, MIRROR_OUT, MIRROR_THERE, MIRROR_SUMMING, MIRROR_SUMMED, MIRROR_IN };

/* How often something happened to a parameter on a rank. */
struct touched {
        int reduced, exchanged, fetched, updated, written;
        int looked;          /* at for overflow */
        int fresh, gathered; /* zero: updated and complete; weights gathered */
        bool exchanging;     /* the exchange of the embedding was issued */
        bool own;            /* zero: of this replica's shares, as a reduce-scatter said */
        int64_t place;       /* of the optimizer's arrays, counted from 1; 0: not known yet */
        enum mirror mirror;
};

/* Zero 2 and 3: buffers, of which a unit's weights are in one and its gradients in one. */
enum { UNITS = PAPER_BLOCKS + 2 };
struct unit_buffer {
        int unit;           /* -1: of none yet */
        bool there, in_use; /* gathered; computed with, or reduced */
        int summed;         /* micro-batches whose gradients are in it */
};
/* What is known of a unit: of how many micro-batches its gradients were made, and are in the replica's share.
 */
struct unit {
        int made, reduced;
};

/* What is in flight on a lane, oldest first. */
struct lane_queue {
        int serials[128], count;
};

struct seen {
        struct core_limits limits;
        struct passed *passed;   /* [vmbs] */
        struct touched *touched; /* [parameters] */
        bool *taken;             /* [parameters]: by place */
        struct place *slots, *host_slots, *inputs, *gradients, *deferred;
        struct place *host_outputs, *host_inputs, *host_gradients; /* staged; one beside each of the above */
        struct lane_queue lanes[LANES];
        int replicas; /* logical ones whose gradients have been added up */
        int messages; /* under way, with their copies */
        int under_way;
        int checks, overflows_known, norms, scalars, clears; /* completed */
        int fetches, updates, write_backs;                   /* issued */
        bool overflow, embedding_update;
        int64_t final;                          /* gradients from here on, while the last backward goes on */
        int buffer[PLAN_UPDATE_BUFFERS];        /* the update that it is for, or -1 */
        bool buffer_there[PLAN_UPDATE_BUFFERS]; /* fetched */
        bool buffer_ready[PLAN_UPDATE_BUFFERS]; /* updated */
        int fetch_order[128];                   /* the update of each fetch */
        uint64_t collectives[GROUP_WORLD + 1];  /* hash of what was issued, in order */
        int chain, chain_vmb;                   /* spread experts: how far a forward or backward has come */
        enum op_kind decided;                   /* OP_FORWARD or OP_BACKWARD of this one is to be computed, */
        int decided_vmb;
        bool deciding, told; /* which is being told to the other shards, or was */
        bool passing;        /* zero 2 and 3: a forward or backward is under way */
        struct op pass;
        int begun, computed; /* of its units */
        bool sums;           /* the shards' sum of one that has been computed is to come */
        struct unit units[UNITS];
        struct unit_buffer weights[2 + UNITS], unit_gradients[2 + UNITS];
};

struct observer {
        struct plan plan;
        int64_t parameters, experts;
        int ranks;
        bool eager, overflow;
        struct seen *seen;
        const char *broken;
};

static void expect(struct observer *o, bool holds, const char *property)
{
        if (!holds && !o->broken)
                o->broken = property;
}

const char *observer_broken(const struct observer *observer)
{
        return observer->broken;
}

static void *allocate(int64_t count, size_t size)
{
        void *memory = calloc((size_t)count + 1, size);
        assert(memory);
        return memory;
}

void observer_delete(struct observer *o)
{
        for (int rank = 0; rank < o->ranks; rank++) {
                struct seen *s = &o->seen[rank];
                free(s->passed);
                free(s->touched);
                free(s->taken);
                free(s->slots);
                free(s->host_slots);
                free(s->inputs);
                free(s->gradients);
                free(s->deferred);
                free(s->host_outputs);
                free(s->host_inputs);
                free(s->host_gradients);
        }
        free(o->seen);
        free(o);
}

/* The optimizer's work is shared by chunks; with zero 2 and 3 each replica has parameters of its own. */
static bool shares_chunks(const struct observer *o)
{
        return o->plan.zero == 1;
}

static bool gathers_units(const struct observer *o)
{
        return o->plan.zero >= 2;
}

/* Replicas that share units: of neighbouring numbers. */
static int sharers_of(const struct observer *o)
{
        return o->plan.sharers ? o->plan.sharers : o->plan.dp;
}

/* Whether shares are summed behind the pipeline, over the replicas that have the same. */
static bool sums_shares(const struct observer *o)
{
        return gathers_units(o) && sharers_of(o) < o->plan.dp;
}

/* Whether parameter p is of experts, of which each replica has others: those of replicas that lie plan.ep
 * apart are the same. */
static bool is_spread(const struct observer *o, int64_t p)
{
        return p < o->experts;
}

/* Of tokens between replicas that share experts, or of keys between those that have parts of sequences. */
static bool exchanges(const struct observer *o)
{
        return o->plan.ep > 1 || o->plan.cp > 1;
}

static bool exchanges_both(const struct observer *o)
{
        return o->plan.ep > 1 && o->plan.cp > 1;
}

/* With both, rows of experts are exchanged behind the part that ends the ring. */
static enum op_group exchange_group(const struct observer *o, const struct op *op)
{
        const bool rows = exchanges_both(o) && op->segment == PAPER_PARTS - 1;
        return o->plan.cp > 1 && !rows ? GROUP_CONTEXT : GROUP_EXPERTS;
}

/* Between the replicas of which gradients of p are summed. */
static enum op_group group_of(const struct observer *o, int64_t p)
{
        return gathers_units(o) ? GROUP_SHARE_DATA : is_spread(o, p) ? GROUP_EXPERT_DATA : GROUP_DATA;
}

/* The first replica of that group, and how far the next one is from it. */
static struct same {
        int first, apart;
} same_as(const struct observer *o, int rank, int64_t p)
{
        const int replica = plan_replica(&o->plan, rank);
        return is_spread(o, p) ? (struct same){replica % o->plan.ep, o->plan.ep} : (struct same){0, 1};
}

/* ---- virtual micro-batches ---- */

static int vmb_of(const struct observer *o, const struct op *op)
{
        return op->chunk * o->plan.micro_batches + op->micro_batch;
}

/* A virtual micro-batch of the model's first chunk, of its last one. */
static bool is_first(const struct observer *o, int rank, int vmb)
{
        return plan_stage(&o->plan, rank) == 0 && vmb < o->plan.micro_batches;
}

static bool is_last(const struct observer *o, int rank, int vmb)
{
        return plan_stage(&o->plan, rank) == o->plan.pp - 1 &&
               vmb >= plan_vmbs(&o->plan) - o->plan.micro_batches;
}

/* Of a slot that is stored and fetched. */
static int64_t vmb_bytes(const struct observer *o, int rank, int vmb)
{
        return PAPER_SLOT_BYTES + (is_first(o, rank, vmb) ? PAPER_EMBEDDED_BYTES : 0) +
               (is_last(o, rank, vmb) ? PAPER_HEAD_BYTES : 0);
}

/* ---- buffers ---- */

static void fill(struct observer *o, struct place *place, int vmb, int uses)
{
        expect(o, place->left == 0, "a buffer in use is not overwritten");
        *place = (struct place){.vmb = vmb, .left = uses};
}

static void arrived(struct place *place, int vmb)
{
        place->vmb = vmb;
        place->there = true;
}

static void leave(struct observer *o, struct place *place)
{
        expect(o, place->left > 0, "a buffer is let go once a use");
        place->left--;
}

static bool holds(const struct place *place, int vmb)
{
        return place->left > 0 && place->there && place->vmb == vmb;
}

static int used(const struct place *places, int count)
{
        int sum = 0;
        for (int i = 0; i < count; i++)
                sum += places[i].left > 0;
        return sum;
}

static bool offloads(const struct observer *o, int rank)
{
        return o->seen[rank].limits.host_slots > 0;
}

/* The rule of offloaded activations: two slots for forwards, two for backwards, and of these one at most for
 * a backward that is not known to be next. */
static void check_halves(struct observer *o, int rank)
{
        const struct seen *s = &o->seen[rank];
        const struct core_limits limits = s->limits;
        int forwards = 0, backwards = 0, guesses = 0;
        for (int i = 0; i < limits.slots; i++) {
                const struct place *slot = &s->slots[i];
                forwards += slot->left > 0 && !slot->fetched;
                backwards += slot->left > 0 && slot->fetched;
                guesses += slot->left > 0 && slot->fetched && !is_last(o, rank, slot->vmb) &&
                           !s->passed[slot->vmb].gradient_received;
        }
        expect(o, limits.slots == 4, "a stage that offloads has four slots");
        expect(o, forwards <= 2 && backwards <= 2, "forwards hold two slots at most, backwards too");
        bool guessed = policy_get(o->plan.policy)->nth_backward == NULL; /* else the order is known */
        expect(o, !guessed || guesses <= 1, "what is fetched ahead holds one slot at most");
}

static void check_use(struct observer *o, int rank, struct core_limits in_use)
{
        const struct seen *s = &o->seen[rank];
        const struct core_limits limits = s->limits;
        /* A pass whose first unit waits for a buffer has its slot and gradient already. */
        const int waits = gathers_units(o) && !s->passing;
        const int slots = in_use.slots - used(s->slots, limits.slots),
                  gradients = in_use.gradients - used(s->gradients, limits.gradients);
        expect(o,
               slots >= 0 && slots <= waits && gradients >= 0 && gradients <= waits &&
                       in_use.host_slots == used(s->host_slots, limits.host_slots) &&
                       in_use.inputs == used(s->inputs, limits.inputs) &&
                       in_use.deferred == used(s->deferred, limits.deferred),
               "the core counts as in use what is in use");
        if (limits.host_slots)
                check_halves(o, rank);
}

/* ---- staging ---- */

/* The device's buffer of a message, and the host's beside it. */
struct pair {
        struct place *device, *host;
};

static struct pair pair_of(const struct observer *o, int rank, const struct op *op)
{
        const struct seen *s = &o->seen[rank];
        switch (op->of) {
        case OP_SEND_ACTIVATION:
                return (struct pair){&s->slots[op->slot], &s->host_outputs[op->slot]};
        case OP_RECEIVE_ACTIVATION:
                return (struct pair){&s->inputs[op->input], &s->host_inputs[op->input]};
        default:
                return (struct pair){&s->gradients[op->gradient], &s->host_gradients[op->gradient]};
        }
}

static bool is_receive(enum op_kind kind)
{
        return kind == OP_RECEIVE_ACTIVATION || kind == OP_RECEIVE_GRADIENT;
}

/* A micro-batch's activations or gradient are on the device. */
static void arrive(struct observer *o, int rank, const struct op *op)
{
        struct passed *passed = &o->seen[rank].passed[vmb_of(o, op)];
        arrived(pair_of(o, rank, op).device, vmb_of(o, op));
        passed->received += op->of == OP_RECEIVE_ACTIVATION;
        passed->gradient_received += op->of == OP_RECEIVE_GRADIENT;
}

static void issue_stage(struct observer *o, int rank, const struct op *op)
{
        struct pair pair = pair_of(o, rank, op);
        bool out = op->kind == OP_STAGE_OUT;
        expect(o,
               o->plan.stage_messages && op->bytes == o->plan.message_bytes &&
                       op->lane == (out ? LANE_DEVICE_TO_HOST : LANE_HOST_TO_DEVICE),
               "a staged message is copied on the lane of its direction");
        expect(o, out != is_receive(op->of), "what is sent is copied out, what is received is copied in");
        expect(o, holds(out ? pair.device : pair.host, vmb_of(o, op)), "a copy has its own data");
        if (out)
                fill(o, pair.host, vmb_of(o, op), 1);
}

static void complete_stage(struct observer *o, int rank, const struct op *op)
{
        struct pair pair = pair_of(o, rank, op);
        if (op->kind == OP_STAGE_OUT) {
                pair.host->there = true;
                return;
        }
        leave(o, pair.host);
        arrive(o, rank, op);
}

/* A message that is posted or sent, with its buffer in host memory. */
static void issue_staged_message(struct observer *o, int rank, const struct op *op)
{
        struct place *host = pair_of(o, rank, op).host;
        if (is_receive(op->kind))
                fill(o, host, -1, 1);
        else
                expect(o, holds(host, vmb_of(o, op)), "what is sent from host memory was copied there");
}

static void complete_receive(struct observer *o, int rank, const struct op *op)
{
        if (o->plan.stage_messages)
                arrived(pair_of(o, rank, op).host, vmb_of(o, op));
        else
                arrive(o, rank, op);
}

static void complete_send(struct observer *o, int rank, const struct op *op)
{
        struct pair pair = pair_of(o, rank, op);
        leave(o, pair.device);
        if (o->plan.stage_messages)
                leave(o, pair.host);
}

/* What a sum or a copy around it makes of a gradient's place in host memory. */
static void move_mirror(struct observer *o, int rank, const struct op *op, enum mirror from, enum mirror to)
{
        for (int64_t p = op->offset; p < op->offset + op->count; p++) {
                struct touched *t = &o->seen[rank].touched[p];
                expect(o, t->mirror == from, "a gradient is copied out, summed and copied in, in this order");
                t->mirror = to;
        }
}

static void issue_sum(struct observer *o, int rank, const struct op *op)
{
        if (!o->plan.stage_allreduce) {
                expect(o, op->kind == op->of, "copies are of staged sums");
                return;
        }
        if (op->kind == OP_STAGE_OUT)
                move_mirror(o, rank, op, MIRROR_FREE, MIRROR_OUT);
        else if (op->kind == op->of)
                move_mirror(o, rank, op, MIRROR_THERE, MIRROR_SUMMING);
        else
                move_mirror(o, rank, op, MIRROR_SUMMED, MIRROR_IN);
}

/* Returns whether the gradients on the device are the sums. */
static bool complete_sum(struct observer *o, int rank, const struct op *op)
{
        if (!o->plan.stage_allreduce)
                return true;
        if (op->kind == OP_STAGE_OUT)
                move_mirror(o, rank, op, MIRROR_OUT, MIRROR_THERE);
        else if (op->kind == op->of)
                move_mirror(o, rank, op, MIRROR_SUMMING, MIRROR_SUMMED);
        else
                move_mirror(o, rank, op, MIRROR_IN, MIRROR_FREE);
        return op->kind == OP_STAGE_IN;
}

/* ---- the pipeline ---- */

static void issue_forward(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        int m = vmb_of(o, op);
        bool first = is_first(o, rank, m), last = is_last(o, rank, m);
        expect(o, first || holds(&s->inputs[op->input], m), "a forward has its own activations");
        expect(o, s->passed[m].forwarded == 0, "a micro-batch goes forward once");
        s->under_way++;
        if (first && o->plan.policy == POLICY_AXONN && !o->plan.forward_only)
                expect(o, s->under_way <= core_pipeline_limit(&o->plan),
                       "micro-batches under way never exceed the pipeline limit");
        int uses = !last + !o->plan.forward_only; /* the send; the backward or the store */
        fill(o, &s->slots[op->slot], m, uses ? uses : 1);
}

/* The second part of a backward: nothing of the micro-batch was given away since the first. */
static void issue_weights(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        int m = vmb_of(o, op);
        expect(o, s->passed[m].backwarded == 1 && s->passed[m].weighed == 0,
               "weights' gradients are added once, after the input's gradient");
        expect(o, m == 0 || s->passed[m - 1].weighed == 1, "weights' gradients are added in order");
        expect(o, holds(&s->slots[op->slot], m), "a backward has its own stored activations");
        expect(o, is_first(o, rank, m) || holds(&s->inputs[op->input], m), "a backward has its own input");
        expect(o, holds(&s->deferred[op->deferred], m),
               "weights' gradients have what backward left for them");
}

static bool overlaps(const struct observer *o)
{
        return o->plan.overlap_allreduce && o->plan.dp > 1;
}

/* All other micro-batches have gone backward in the chunk; of a second part: have had theirs. */
static bool goes_last(const struct observer *o, int rank, const struct op *op)
{
        int left = 0;
        for (int m = 0; m < o->plan.micro_batches; m++) {
                const struct passed *passed = &o->seen[rank].passed[op->chunk * o->plan.micro_batches + m];
                left += (op->parts & OP_INPUT_GRADIENT ? passed->backwarded : passed->weighed) == 0;
        }
        return left == 1;
}

static bool ends_unit(const struct observer *o, int rank, int64_t p);

/* Zero 2 has all weights always. */
static bool has_weights(const struct observer *o)
{
        return o->plan.zero == 2;
}

/* Whether parameter p of the rank is of the embedding that first and last stage share. */
static bool shared(const struct observer *o, int rank, int64_t p)
{
        int stage = plan_stage(&o->plan, rank);
        if (!o->plan.tied || o->plan.pp == 1 || o->plan.forward_only)
                return false;
        if (has_weights(o))
                return ends_unit(o, rank, p);
        return (stage == 0 && !is_spread(o, p) && p < o->experts + o->plan.embedding_parameters) ||
               (stage == o->plan.pp - 1 && p >= o->parameters - o->plan.embedding_parameters);
}

/* How far into its chunk parameter p is: chunks are counted from where the shared embedding begins or ends,
 * those of experts from the first one. */
static int64_t in_chunk(const struct observer *o, int rank, int64_t p)
{
        const int64_t chunk = o->plan.bucket_parameters * o->plan.allreduce_buckets;
        const bool last = plan_stage(&o->plan, rank) > 0, tied = o->plan.tied && o->plan.pp > 1;
        const int64_t embedding = tied ? o->plan.embedding_parameters : 0;
        const int64_t begin = last ? o->parameters - embedding
                                   : o->experts + embedding; /* of the embedding, or behind it */
        const bool from_edge = last ? shared(o, rank, p) : !shared(o, rank, p);
        if (is_spread(o, p))
                return p % chunk;
        return (p - (from_edge ? begin : o->experts)) % chunk;
}

/* Whether [offset, offset + count) lies in one chunk. */
static bool of_one_chunk(const struct observer *o, int rank, const struct op *op)
{
        return in_chunk(o, rank, op->offset) + op->count - 1 ==
                       in_chunk(o, rank, op->offset + op->count - 1) &&
               shared(o, rank, op->offset) == shared(o, rank, op->offset + op->count - 1) &&
               is_spread(o, op->offset) == is_spread(o, op->offset + op->count - 1);
}

static void issue_range(struct observer *o, int rank, const struct op *op)
{
        const struct seen *s = &o->seen[rank];
        expect(o, (op->count > 0) == (overlaps(o) && goes_last(o, rank, op)),
               "the last backward of each chunk goes in ranges");
        expect(o,
               op->count == 0 || (op->offset + op->count == s->final && in_chunk(o, rank, op->offset) == 0),
               "each range begins with a chunk and ends where the last one began");
}

/* What goes on has all that it began with. */
static void issue_next_range(struct observer *o, int rank, const struct op *op)
{
        const struct seen *s = &o->seen[rank];
        int m = vmb_of(o, op);
        const bool second = op->parts == OP_WEIGHT_GRADIENT;
        expect(o, op->count > 0 && (second ? s->passed[m].weighed : s->passed[m].backwarded) == 0,
               "a backward goes on before it has ended");
        expect(o, holds(&s->slots[op->slot], m) && (second || s->gradients[op->gradient].left > 0),
               "and keeps its buffers");
        expect(o, op->deferred < 0 || holds(&s->deferred[op->deferred], m) || !second,
               "and what its first part left");
        if (o->plan.mixed)
                for (int64_t p = s->final; p < o->parameters; p++)
                        expect(o, s->touched[p].looked == 1, "a range is looked at before the next one");
}

static void issue_look(struct observer *o, int rank, const struct op *op)
{
        expect(o, o->plan.mixed && op->offset == o->seen[rank].final && op->lane == LANE_COMPUTE,
               "what has become final is looked at");
}

static void issue_backward(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        const bool parted = policy_get(o->plan.policy)->deferred;
        int m = vmb_of(o, op);
        issue_range(o, rank, op);
        if (op->range > 0) {
                issue_next_range(o, rank, op);
                return;
        }
        expect(o, (op->parts == (OP_INPUT_GRADIENT | OP_WEIGHT_GRADIENT)) == !parted,
               "a backward is parted where the policy says so");
        if (op->parts == OP_WEIGHT_GRADIENT) {
                issue_weights(o, rank, op);
                return;
        }
        if (parted)
                fill(o, &s->deferred[op->deferred], m, 1);
        struct place *gradient = &s->gradients[op->gradient];
        expect(o, !o->plan.forward_only, "validation has no backward");
        expect(o, s->passed[m].forwarded == 1 && s->passed[m].backwarded == 0,
               "a micro-batch goes backward once, after its forward");
        expect(o, holds(&s->slots[op->slot], m), "a backward has its own stored activations");
        expect(o, s->slots[op->slot].fetched == offloads(o, rank), "offloaded activations are fetched first");
        expect(o, is_first(o, rank, m) || holds(&s->inputs[op->input], m), "a backward has its own input");
        if (is_last(o, rank, m))
                fill(o, gradient, m, 1);
        else
                expect(o, holds(gradient, m), "a backward has its own gradient");
}

/* All micro-batches of a logical replica are through, and none of the next one's. */
static void issue_add_replica(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        const int each = plan_logical_micro_batches(&o->plan), end = (s->replicas + 1) * each;
        expect(o, plan_logical(&o->plan) > 1 && op->bucket == s->replicas,
               "logical replicas are added in order");
        expect(o, op->offset == 0 && op->count == o->parameters, "all of a replica's gradients are added");
        for (int m = 0; m < o->plan.micro_batches; m++)
                expect(o, s->passed[m].weighed == (m < end),
                       "a replica is added when its last backward is over, and before the next one's first");
}

static void issue_pipeline(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        int m = vmb_of(o, op);
        bool chunks = o->plan.virtual_stages > 1, first = is_first(o, rank, m), last = is_last(o, rank, m);
        bool first_rank = plan_stage(&o->plan, rank) == 0,
             last_rank = plan_stage(&o->plan, rank) == o->plan.pp - 1;
        if (o->plan.stage_messages && op->lane >= LANE_RECEIVE_PREVIOUS && op->lane <= LANE_SEND_NEXT)
                issue_staged_message(o, rank, op);
        switch (op->kind) {
        case OP_STAGE_OUT:
        case OP_STAGE_IN:
                issue_stage(o, rank, op);
                break;
        case OP_RECEIVE_ACTIVATION:
                expect(o, chunks || !first_rank, "the first stage receives no activations");
                fill(o, &s->inputs[op->input], -1, 1);
                break;
        case OP_FORWARD:
                issue_forward(o, rank, op);
                break;
        case OP_SEND_ACTIVATION:
                expect(o, !last && holds(&s->slots[op->slot], m), "a forward's output is sent");
                break;
        case OP_RECEIVE_GRADIENT:
                expect(o, chunks || !last_rank, "the last stage receives no gradients");
                fill(o, &s->gradients[op->gradient], -1, 1);
                break;
        case OP_BACKWARD:
                issue_backward(o, rank, op);
                break;
        case OP_ADD_REPLICA:
                issue_add_replica(o, rank, op);
                break;
        case OP_CHECK_OVERFLOW:
                issue_look(o, rank, op);
                break;
        case OP_SEND_GRADIENT:
                expect(o, !first && holds(&s->gradients[op->gradient], m) && s->passed[m].backwarded == 1,
                       "a gradient is sent after its backward");
                break;
        case OP_STORE_ACTIVATIONS:
                expect(o,
                       offloads(o, rank) && op->lane == LANE_DEVICE_TO_HOST &&
                               op->bytes == vmb_bytes(o, rank, m),
                       "a stage that offloads stores a slot's bytes");
                expect(o, holds(&s->slots[op->slot], m) && !s->slots[op->slot].fetched,
                       "a forward's activations are stored");
                fill(o, &s->host_slots[op->host_slot], m, 1);
                break;
        case OP_FETCH_ACTIVATIONS:
                expect(o, op->lane == LANE_HOST_TO_DEVICE && op->bytes == vmb_bytes(o, rank, m),
                       "a fetch brings a slot's bytes");
                expect(o, holds(&s->host_slots[op->host_slot], m), "what was stored is fetched");
                fill(o, &s->slots[op->slot], m, 1);
                s->slots[op->slot].fetched = true;
                break;
        default:
                break;
        }
}

/* Of a backward, or of its last range. */
static void end_backward(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        int m = vmb_of(o, op);
        if (op->parts & OP_WEIGHT_GRADIENT) {
                s->passed[m].weighed++;
                s->under_way--;
                leave(o, &s->slots[op->slot]);
                if (!is_first(o, rank, m))
                        leave(o, &s->inputs[op->input]);
        }
        if (op->parts == OP_WEIGHT_GRADIENT)
                leave(o, &s->deferred[op->deferred]);
        if (!(op->parts & OP_INPUT_GRADIENT))
                return;
        s->passed[m].backwarded++;
        if (op->deferred >= 0)
                s->deferred[op->deferred].there = true;
        if (is_first(o, rank, m))
                leave(o, &s->gradients[op->gradient]);
        if (is_last(o, rank, m))
                s->gradients[op->gradient].there = true;
}

/* What is made final by the last range of a chunk that is not the rank's first is looked at beside others. */
static void complete_backward(struct observer *o, int rank, const struct op *op)
{
        const bool early = op->count > 0 && (op->further || op->chunk > 0);
        if (early)
                o->seen[rank].final = op->offset;
        if (!op->further && !(early && o->plan.mixed))
                end_backward(o, rank, op);
}

static void complete_look(struct observer *o, int rank, const struct op *op)
{
        for (int64_t p = op->offset; p < op->offset + op->count; p++)
                o->seen[rank].touched[p].looked++;
        if (op->of == OP_BACKWARD && !op->further)
                end_backward(o, rank, op);
}

static void complete_pipeline(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        int m = vmb_of(o, op);
        switch (op->kind) {
        case OP_STAGE_OUT:
        case OP_STAGE_IN:
                complete_stage(o, rank, op);
                break;
        case OP_RECEIVE_ACTIVATION:
        case OP_RECEIVE_GRADIENT:
                complete_receive(o, rank, op);
                break;
        case OP_FORWARD:
                s->passed[m].forwarded++;
                s->slots[op->slot].there = true;
                if (o->plan.forward_only && !is_first(o, rank, m))
                        leave(o, &s->inputs[op->input]);
                if (o->plan.forward_only && is_last(o, rank, m))
                        leave(o, &s->slots[op->slot]);
                break;
        case OP_SEND_ACTIVATION:
                s->passed[m].sent++;
                complete_send(o, rank, op);
                break;
        case OP_BACKWARD:
                complete_backward(o, rank, op);
                break;
        case OP_ADD_REPLICA:
                s->replicas++;
                break;
        case OP_CHECK_OVERFLOW:
                complete_look(o, rank, op);
                break;
        case OP_SEND_GRADIENT:
                s->passed[m].gradient_sent++;
                complete_send(o, rank, op);
                break;
        case OP_STORE_ACTIVATIONS:
                leave(o, &s->slots[op->slot]);
                s->host_slots[op->host_slot].there = true;
                break;
        case OP_FETCH_ACTIVATIONS:
                leave(o, &s->host_slots[op->host_slot]);
                s->slots[op->slot].there = true;
                break;
        default:
                break;
        }
}

/* ---- passes, or units of them, of spread experts, or of parts of sequences, part by part ---- */

/* Whether it is a part, or an exchange between parts. */
static bool is_part(const struct observer *o, const struct op *op)
{
        return exchanges(o) && op_of_pass(op) && (op->kind == op->of || op->kind == OP_TENSOR);
}

/* A part computes, an exchange follows, the next part computes, ...; in this order. */
static void issue_part(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        const bool exchange = op->kind == OP_TENSOR;
        const uint64_t word =
                (((uint64_t)op->of * 64 + (uint64_t)op->range) * 64 + (uint64_t)op->segment) * 1024 +
                (uint64_t)vmb_of(o, op);
        if (s->chain == 0)
                s->chain_vmb = vmb_of(o, op);
        expect(o, op->lane == (exchange ? LANE_TENSOR : LANE_COMPUTE) && vmb_of(o, op) == s->chain_vmb,
               "a pass that has begun goes on to its end");
        if (exchanges_both(o) && s->chain > PAPER_PARTS)
                expect(o,
                       op->segment == (exchange ? PAPER_PARTS - 1 : PAPER_PARTS) &&
                               exchange == (s->chain == PAPER_PARTS + 1),
                       "rows of experts are exchanged behind a ring, and a part follows");
        else if (o->plan.cp >
                 1) /* the middle one of three parts beside the one exchange, the last behind both */
                expect(o, op->segment == (exchange ? 0 : (s->chain + 1) / 2) && (s->chain == 1 || !exchange),
                       "a part is computed beside an exchange, and the next one when both are over");
        else
                expect(o, op->segment == s->chain / 2 && exchange == s->chain % 2,
                       "parts and exchanges of a pass take turns");
        expect(o, !exchange || op->group == exchange_group(o, op),
               "replicas exchange with those that have all experts, or the rest of their sequences");
        if (exchange)
                s->collectives[op->group] = (s->collectives[op->group] ^ (word + 1)) * 0x100000001B3u;
}

/* Returns whether it was the last one. */
static bool complete_part(const struct observer *o, int rank)
{
        struct seen *s = &o->seen[rank];
        const int in_ring = PAPER_PARTS + 1, in_turn = 2 * PAPER_PARTS - 1;
        if (++s->chain < (exchanges_both(o) ? in_ring + 2 : o->plan.cp > 1 ? in_ring : in_turn))
                return false;
        s->chain = 0;
        return true;
}

/* The same operation, as it is whole. */
static struct op whole_pass(const struct op *part)
{
        struct op pass = *part;
        pass.kind = part->of;
        pass.segment = pass.range = 0;
        pass.count = 0;
        return pass;
}

/* The whole of it, or of a range of a last backward. */
static struct op with_range(const struct op *part)
{
        struct op pass = whole_pass(part);
        pass.range = part->range;
        pass.count = part->count;
        return pass;
}

static void issue_parted(struct observer *o, int rank, const struct op *op)
{
        const struct op pass = with_range(op);
        if (o->seen[rank].chain == 0)
                issue_pipeline(o, rank, &pass);
        issue_part(o, rank, op);
}

static void complete_parted(struct observer *o, int rank, const struct op *op)
{
        const struct op pass = with_range(op);
        if (complete_part(o, rank))
                complete_pipeline(o, rank, &pass);
}

/* ---- passes of zero 2 and 3, unit by unit ---- */

static int layers_of(const struct observer *o)
{
        return o->plan.unit_layers > 1 ? o->plan.unit_layers : 1;
}

/* Units of a model of one stage. */
static int units_in(const struct observer *o)
{
        return 2 + (PAPER_BLOCKS + layers_of(o) - 1) / layers_of(o);
}

static bool has_embedding(const struct observer *o, int rank)
{
        return plan_stage(&o->plan, rank) == 0;
}

static bool has_head(const struct observer *o, int rank)
{
        return plan_stage(&o->plan, rank) == o->plan.pp - 1;
}

/* Whether the head's unit is the embedding's. */
static bool is_tied(const struct observer *o)
{
        return o->plan.tied && o->plan.pp == 1;
}

/* Parts of a pass. */
static int parts_in(const struct observer *o, int rank)
{
        return units_in(o) - !has_embedding(o, rank) - !has_head(o, rank);
}

/* Which unit a part is about: 0 the embedding, then the blocks, then the head, which is 0 too if it is tied.
 */
static int unit_of(const struct observer *o, int rank, const struct op *op)
{
        const int last = units_in(o) - 1, nth = op->range,
                  at = !has_embedding(o, rank) + (op->of == OP_FORWARD ? nth : parts_in(o, rank) - 1 - nth);
        return at == last && is_tied(o) ? 0 : at;
}

/* Counted block by block. */
static int64_t unit_parameters(const struct observer *o, int rank, int unit)
{
        const struct core_units units = paper_units(&o->plan, plan_stage(&o->plan, rank));
        int64_t count = 0;
        if (unit == 0)
                return units.embedding + (is_tied(o) ? units.head : 0);
        if (unit == units_in(o) - 1)
                return units.head;
        for (int block = 0; block < PAPER_BLOCKS; block++)
                if (block / layers_of(o) == unit - 1)
                        count += block < PAPER_DENSE ? PAPER_DENSE_BLOCK : PAPER_BLOCK;
        return count;
}

static bool is_head(const struct observer *o, int rank, const struct op *op)
{
        return has_head(o, rank) && op->range == (op->of == OP_FORWARD ? parts_in(o, rank) - 1 : 0);
}

static bool is_back_to_embedding(const struct observer *o, int rank, const struct op *op)
{
        return has_embedding(o, rank) && op->of == OP_BACKWARD && op->range == parts_in(o, rank) - 1;
}

static bool is_for_batch(const struct observer *o)
{
        return o->plan.gathered == GATHERED_FOR_BATCH;
}

/* Of the embedding and the head. */
static int ends_of(const struct observer *o, int rank, bool stay)
{
        const int ends = has_embedding(o, rank) + (has_head(o, rank) && !is_tied(o));
        return stay || ends == 0 ? ends : 1;
}

/* Embedding and head have the first buffers, one each where they `stay`, blocks the others; how many there
 * are follows from the plan. */
static void check_buffer(struct observer *o, int rank, int unit, int buffer, int blocks, bool stay)
{
        const int ends = ends_of(o, rank, stay), last = units_in(o) - 1;
        const bool end = unit == 0 || unit == last;
        const int most = blocks < last - 1 ? blocks : last - 1;
        expect(o, buffer >= 0 && (end ? buffer < ends : buffer >= ends && buffer < ends + most),
               "a unit is in a buffer of its sort");
}

static void issue_gather(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        const int unit = unit_of(o, rank, op),
                  ahead = s->passing && op->of == OP_FORWARD && s->pass.of == OP_BACKWARD ? units_in(o) : 0;
        check_buffer(o, rank, unit, op->gathered,
                     o->plan.gathered == GATHERED_FOR_PASS ? 1 + o->plan.prefetch : PAPER_BLOCKS,
                     is_for_batch(o));
        expect(o, !has_weights(o), "what is there always is not gathered in a pass");
        struct unit_buffer *buffer = &s->weights[op->gathered];
        expect(o, op->count == unit_parameters(o, rank, unit) && !is_back_to_embedding(o, rank, op),
               "a unit's weights are gathered, where it has use for them");
        expect(o, !buffer->in_use, "no weights come where others are read");
        for (int i = 0; i < 2 + UNITS; i++)
                expect(o, s->weights[i].unit != unit, "what is there is not gathered again");
        expect(o,
               op->range + ahead < s->begun + o->plan.prefetch ||
                       (s->begun == s->computed && op->range <= s->computed),
               "weights are gathered no more units ahead than the plan says");
        *buffer = (struct unit_buffer){.unit = unit};
}

/* What a unit's gradients begin with. */
static void begin_gradients(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        const int unit = unit_of(o, rank, op);
        check_buffer(o, rank, unit, op->reduced, is_for_batch(o) ? PAPER_BLOCKS : 2, is_for_batch(o));
        struct unit_buffer *buffer = &s->unit_gradients[op->reduced];
        expect(o, !buffer->in_use, "no gradients are made where others are reduced");
        for (int i = 0; i < 2 + UNITS; i++)
                expect(o, s->unit_gradients[i].unit != unit || i == op->reduced,
                       "a unit's gradients are in one buffer");
        if (op->begins == GRADIENTS_ADD) {
                expect(o, buffer->unit == unit, "what is added to is there");
                return;
        }
        expect(o, buffer->unit < 0, "a buffer is free when a unit begins in it");
        expect(o, op->begins == GRADIENTS_CLEAR || s->units[unit].reduced > 0,
               "a share is loaded when there is something in it");
        *buffer = (struct unit_buffer){.unit = unit,
                                       .summed = op->begins == GRADIENTS_LOAD ? s->units[unit].reduced : 0};
}

static void compute_unit(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        expect(o, op->lane == LANE_COMPUTE && op->count == 0, "a unit is computed on the compute lane");
        expect(o, op->range == s->begun && s->begun == s->computed, "units are computed one by one");
        if (is_back_to_embedding(o, rank, op)) {
                expect(o, op->gathered < 0, "an embedding's backward reads no weights");
        } else {
                struct unit_buffer *buffer = &s->weights[op->gathered];
                expect(o, buffer->unit == unit_of(o, rank, op) && buffer->there, "a unit has its weights");
                buffer->in_use = true;
        }
        if (op->of == OP_BACKWARD)
                begin_gradients(o, rank, op);
        s->begun++;
}

static void issue_scatter(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        const int unit = unit_of(o, rank, op);
        struct unit_buffer *buffer = &s->unit_gradients[op->reduced];
        expect(o, op->kind == OP_REDUCE_SCATTER && op->count == unit_parameters(o, rank, unit),
               "a unit's gradients are reduced");
        expect(o, buffer->unit == unit && !buffer->in_use && buffer->summed == s->units[unit].made,
               "when they are complete, and of all micro-batches so far");
        buffer->in_use = true;
}

static bool any_reduced(const struct seen *s)
{
        for (int i = 0; i < 2 + UNITS; i++)
                if (s->unit_gradients[i].in_use)
                        return true;
        return false;
}

/* Whether shards sum what they have alike of a unit when it has been computed: for the last time. */
static bool sums_shards(const struct observer *o, int rank, const struct op *op)
{
        const struct core_units units = paper_units(&o->plan, plan_stage(&o->plan, rank));
        const int unit = unit_of(o, rank, op);
        return op->of == OP_BACKWARD && !(is_tied(o) && is_head(o, rank, op)) &&
               core_unit_sum(&o->plan, &units, unit).count > 0 &&
               o->seen[rank].units[unit].made == o->plan.micro_batches - 1;
}

static void issue_shard_sum(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        const struct core_units units = paper_units(&o->plan, plan_stage(&o->plan, rank));
        const struct plan_range alike = core_unit_sum(&o->plan, &units, unit_of(o, rank, op));
        expect(o,
               op->lane == LANE_TENSOR && op->group == GROUP_TENSOR && op->offset == alike.begin &&
                       op->count == alike.count && op->bytes == op->count * o->plan.element_bytes,
               "shards sum what they have alike of a unit");
        expect(o, s->sums && op->range == s->computed, "when it has been computed for the last time");
}

static void issue_unit(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        if (is_part(o, op) && (op->kind == OP_TENSOR || op->segment > 0)) {
                issue_part(o, rank, op);
                return;
        }
        if (op->kind == OP_ALLREDUCE) {
                issue_shard_sum(o, rank, op);
                return;
        }
        if (!s->passing && op->kind != OP_REDUCE_SCATTER) {
                s->pass = whole_pass(op);
                s->passing = true;
                s->begun = s->computed = 0;
                issue_pipeline(o, rank, &s->pass);
        }
        expect(o, op->range >= 0 && op->range < parts_in(o, rank), "a pass has the units of its stage");
        if (op->kind == op->of) {
                expect(o, !o->plan.blocking || !any_reduced(s), "blocking gradients are reduced first");
                compute_unit(o, rank, op);
                if (is_part(o, op))
                        issue_part(o, rank, op);
                return;
        }
        const uint64_t word =
                ((uint64_t)op->kind * 64 + (uint64_t)op->range) * 1024 + (uint64_t)vmb_of(o, op);
        s->collectives[op->group] = (s->collectives[op->group] ^ (word + 1)) * 0x100000001B3u;
        expect(o,
               op->lane == LANE_COLLECTIVE &&
                       op->group == (sharers_of(o) < o->plan.dp ? GROUP_SHARERS : GROUP_DATA) &&
                       op->bytes == op->count * o->plan.element_bytes,
               "units are gathered and reduced between the replicas that share them");
        if (op->kind == OP_REDUCE_SCATTER)
                issue_scatter(o, rank, op);
        else
                issue_gather(o, rank, op);
}

/* A backward's unit frees its weights, unless these stay for the batch. */
static void unit_computed(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        struct unit *unit = &s->units[unit_of(o, rank, op)];
        s->computed++;
        if (op->gathered >= 0) {
                s->weights[op->gathered].in_use = false;
                if (op->of == OP_BACKWARD && !is_for_batch(o) && !has_weights(o))
                        s->weights[op->gathered].unit = -1;
        }
        if (op->of == OP_BACKWARD && !(is_tied(o) && is_head(o, rank, op))) {
                unit->made++;
                s->unit_gradients[op->reduced].summed++;
        }
        if (s->computed < parts_in(o, rank))
                return;
        s->passing = false;
        complete_pipeline(o, rank, &s->pass);
}

static void complete_unit(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        if (op->kind == OP_ALL_GATHER) {
                expect(o, s->weights[op->gathered].unit == unit_of(o, rank, op),
                       "weights come to where they were to");
                s->weights[op->gathered].there = true;
        } else if (op->kind == OP_REDUCE_SCATTER) {
                s->units[unit_of(o, rank, op)].reduced = s->unit_gradients[op->reduced].summed;
                s->unit_gradients[op->reduced] = (struct unit_buffer){.unit = -1};
        } else if (!is_part(o, op) || complete_part(o, rank)) {
                s->sums = op->kind != OP_ALLREDUCE && sums_shards(o, rank, op);
                if (!s->sums)
                        unit_computed(o, rank, op);
        }
}

/* Zero 2: which buffer has a unit's weights. */
static int weights_of(const struct observer *o, int rank, int unit)
{
        const int ends = ends_of(o, rank, true);
        return unit == 0 ? 0 : unit == units_in(o) - 1 ? ends - 1 : ends - 1 + unit;
}

/* What a replica has of a unit, in the unit and where it is kept. */
struct share {
        int64_t begin, count, place;
};

static struct share share_of(const struct observer *o, int rank, int unit)
{
        const int sharers = sharers_of(o), sharer = plan_replica(&o->plan, rank) % sharers;
        int64_t place = 0, each = 0;
        for (int before = 0; before <= unit; before++) {
                place += each;
                each = (unit_parameters(o, rank, before) + sharers - 1) / sharers;
        }
        int64_t count = 0;
        for (int64_t p = 0; p < unit_parameters(o, rank, unit); p++)
                count += p / each == sharer;
        return (struct share){sharer * each, count, place};
}

/* Zero 2: whether what is kept at p is of the embedding that ends a unit of the first and the last stage. */
static bool ends_unit(const struct observer *o, int rank, int64_t p)
{
        const int unit = has_embedding(o, rank) ? 0 : units_in(o) - 1;
        const struct share share = share_of(o, rank, unit);
        const int64_t at = share.begin + p - share.place, all = unit_parameters(o, rank, unit);
        return p >= share.place && p < share.place + share.count && at >= all - o->plan.embedding_parameters;
}

static void begin_with_weights(struct observer *o, int rank)
{
        struct seen *s = &o->seen[rank];
        for (int unit = 0; unit < units_in(o) - is_tied(o); unit++) {
                const struct share share = share_of(o, rank, unit);
                if (unit_parameters(o, rank, unit) == 0)
                        continue;
                s->weights[weights_of(o, rank, unit)] = (struct unit_buffer){.unit = unit, .there = true};
                for (int64_t i = 0; i < share.count; i++)
                        s->touched[share.place + i].own = true;
        }
}

/* An update, or a copy for one, or a gather, of a unit: becomes the same of what is kept. */
static struct op of_kept(struct observer *o, int rank, const struct op *op)
{
        struct op kept = *op;
        if (!has_weights(o) || op_of_pass(op) || op->gathered < 0)
                return kept;
        const int unit = o->seen[rank].weights[op->gathered].unit;
        expect(o, unit >= 0, "weights are in the buffers of units");
        const struct share share = share_of(o, rank, unit > 0 ? unit : 0);
        if (op->kind == OP_ALL_GATHER) {
                expect(o, op->offset == 0 && op->count == unit_parameters(o, rank, unit),
                       "a unit is gathered whole");
                kept.offset = share.place;
                kept.count = share.count;
                return kept;
        }
        const int64_t at = op->offset - share.begin;
        expect(o, at >= 0 && op->count >= 1 && at + op->count <= share.count && op->place == share.place + at,
               "a replica updates its share of a unit, with what it keeps of it");
        kept.offset = op->place;
        return kept;
}

/* A unit's gradients, of all micro-batches, are in the shares. */
static bool is_reduced(const struct observer *o, int rank, int unit)
{
        return o->seen[rank].units[unit].reduced == o->plan.micro_batches;
}

static bool all_reduced(const struct observer *o, int rank)
{
        for (int unit = !has_embedding(o, rank); unit < units_in(o) - (is_tied(o) || !has_head(o, rank));
             unit++)
                if (!is_reduced(o, rank, unit))
                        return false;
        return true;
}

/* Of which unit what is kept at `place` is a share. */
static int unit_with(const struct observer *o, int rank, int64_t place)
{
        int found = 0;
        for (int unit = 0; unit < units_in(o); unit++)
                if (unit_parameters(o, rank, unit) > 0 && share_of(o, rank, unit).place <= place &&
                    !(is_tied(o) && unit == units_in(o) - 1))
                        found = unit;
        return found;
}

/* ---- what follows it ---- */

static bool computed(const struct observer *o, int rank)
{
        for (int m = 0; m < plan_vmbs(&o->plan); m++)
                if (!o->seen[rank].passed[m].weighed)
                        return false;
        return true;
}

/* The sums that the gradient of p takes part in have been made. */
static bool summed(const struct observer *o, int rank, int64_t p)
{
        const struct touched *t = &o->seen[rank].touched[p];
        const bool elsewhere = shares_chunks(o) && !t->own;
        if (has_weights(o) && !t->own) /* what pads a share */
                return true;
        return (o->plan.dp == 1 || (gathers_units(o) && !sums_shares(o)) || t->reduced == 1) &&
               (!shared(o, rank, p) || elsewhere || t->exchanged == 1);
}

/* Zero: whether parameter p of a chunk is in this replica's share: the replica-th of equal parts, rounded up.
 */
static bool in_share(const struct observer *o, int rank, const struct op *chunk, int64_t p)
{
        const struct same same = same_as(o, rank, p);
        const int64_t replicas = o->plan.dp / same.apart, each = (chunk->count + replicas - 1) / replicas;
        return (p - chunk->offset) / each == plan_replica(&o->plan, rank) / same.apart;
}

static bool all_summed(const struct observer *o, int rank)
{
        for (int64_t p = 0; p < o->parameters; p++)
                if (!summed(o, rank, p))
                        return false;
        return true;
}

/* Hybrid shards: what a replica keeps is summed between the groups. */
static bool shares_summed(const struct observer *o, int rank)
{
        for (int64_t p = 0; p < o->parameters; p++)
                if (o->seen[rank].touched[p].reduced != 1 &&
                    (o->seen[rank].touched[p].own || !has_weights(o)))
                        return false;
        return true;
}

static bool no_overflow(const struct observer *o, int rank)
{
        const struct seen *s = &o->seen[rank];
        return !o->plan.mixed || (s->overflows_known == 1 && !s->overflow);
}

/* Of gradients, directly or staged. */
static void check_sum(struct observer *o, int rank, const struct op *op)
{
        const struct seen *s = &o->seen[rank];
        const bool over = computed(o, rank), units = op->group == GROUP_SHARE_DATA;
        for (int64_t p = op->offset; p < op->offset + op->count; p++) {
                expect(o, p < o->parameters, "sums are of parameters");
                expect(o, units ? is_reduced(o, rank, unit_with(o, rank, p)) : over || p >= s->final,
                       "gradients are summed when they are final");
                expect(o, !o->plan.mixed || s->touched[p].looked == !units,
                       "local gradients are looked at before sums change them, or sums are");
                expect(o,
                       op->group == group_of(o, p) || (op->group == GROUP_EMBEDDING && shared(o, rank, p) &&
                                                       (o->plan.dp == 1 || s->touched[p].reduced == 1 ||
                                                        (gathers_units(o) && !sums_shares(o)))),
                       "the shared embedding, and no more, is summed after the replicas");
                o->seen[rank].touched[p].exchanging |= op->group == GROUP_EMBEDDING;
        }
        issue_sum(o, rank, op);
}

/* Zero 2. */
static void check_unit_gather(struct observer *o, int rank, const struct op *kept)
{
        expect(o, no_overflow(o, rank) && kept->group == (sums_shares(o) ? GROUP_SHARERS : GROUP_DATA),
               "a unit is gathered from those that share it, where there is no overflow");
        for (int64_t p = kept->offset; p < kept->offset + kept->count; p++)
                expect(o, o->seen[rank].touched[p].fresh == 1,
                       "a unit is gathered when the share of it is updated");
        for (int64_t p = 0; p < o->parameters; p++)
                expect(o, !shared(o, rank, p) || o->seen[rank].touched[p].exchanging,
                       "and after the exchange of the embedding");
}

static void check_gather(struct observer *o, int rank, const struct op *op)
{
        const struct seen *s = &o->seen[rank];
        if (has_weights(o)) {
                check_unit_gather(o, rank, op);
                return;
        }
        expect(o, shares_chunks(o) && no_overflow(o, rank),
               "weights are gathered where replicas have shares, and there is no overflow");
        for (int64_t p = op->offset; p < op->offset + op->count; p++) {
                expect(o, op->group == group_of(o, p), "weights are gathered from those that have them");
                expect(o, p < o->parameters && s->touched[p].reduced == 1,
                       "weights are gathered after their gradients were summed");
                expect(o, !in_share(o, rank, op, p) || s->touched[p].fresh == 1,
                       "weights are gathered when the share of them is updated");
        }
        for (int64_t p = 0; p < o->parameters; p++)
                expect(o, !s->touched[p].own || !shared(o, rank, p) || s->touched[p].exchanging,
                       "weights are gathered after the exchange of the embedding");
        issue_sum(o, rank, op);
}

static void issue_collective(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        const bool of_unit =
                has_weights(o) && op->kind == OP_ALL_GATHER; /* of which members have other shares */
        uint64_t words[] = {op->kind, of_unit ? (uint64_t)op->gathered : (uint64_t)op->count,
                            op->group == GROUP_EMBEDDING ? 0 : (uint64_t)op->offset};
        for (int i = 0; i < 3; i++)
                s->collectives[op->group] = (s->collectives[op->group] ^ (words[i] + 1)) * 0x100000001B3u;
        bool gathers = op->kind == OP_ALL_GATHER;
        bool gradients = gathers || op->kind == OP_REDUCE_SCATTER || op->kind == OP_ALLREDUCE;
        bool scatters = shares_chunks(o) && op->group != GROUP_EMBEDDING;
        expect(o,
               op->lane == (!gradients                      ? LANE_SCALARS
                            : op->group == GROUP_SHARE_DATA ? LANE_SHARES
                                                            : LANE_COLLECTIVE) &&
                       (gradients || op->group == GROUP_WORLD),
               "the numbers that all ranks agree on do not wait behind the gradients");
        if (op->kind == OP_REDUCE_OVERFLOW)
                expect(o, o->plan.mixed && s->checks == 1 && op->bytes == sizeof(double),
                       "overflow is one number");
        if (op->kind == OP_REDUCE_SCALARS)
                expect(o, !o->plan.clip || o->plan.forward_only || s->overflow || s->norms == 1,
                       "the norm is reduced after it is known");
        expect(o, !gradients || of_unit || scatters == (op->kind != OP_ALLREDUCE),
               "with zero replicas reduce-scatter and gather, else they all-reduce");
        if (gathers)
                check_gather(o, rank, op);
        else if (gradients)
                check_sum(o, rank, op);
}

static bool touches_embedding(const struct observer *o, int rank, const struct op *op)
{
        return shared(o, rank, op->offset) || shared(o, rank, op->offset + op->count - 1);
}

/* Zero: every update has a place of its own in arrays that are no longer than a share of each chunk, rounded
 * up. */
static void check_places(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        const int64_t chunk = o->plan.bucket_parameters * o->plan.allreduce_buckets;
        const int64_t of_experts = exchanges(o) ? o->experts * o->plan.ep / o->plan.dp + 2 : 0;
        const int64_t max =
                of_experts + (o->parameters - o->experts) / o->plan.dp + o->parameters / chunk + 2;
        expect(o, op->count >= 1 && op->count <= plan_update_parameters(&o->plan),
               "an update fits the buffers of the plan");
        expect(o, op->count <= core_update_parameters(&o->plan, o->parameters), "and those of the stage");
        expect(o, op->place >= 0 && op->place + op->count <= max, "shares take a share of memory");
        for (int64_t i = 0; i < op->count; i++) {
                struct touched *t = &s->touched[op->offset + i];
                const int64_t place = op->place + i;
                expect(o, op->kind != OP_UPDATE || t->own, "a replica updates its own share");
                expect(o, t->place ? t->place == place + 1 : !s->taken[place],
                       "a parameter keeps a place of its own");
                t->place = place + 1;
                s->taken[place] = true;
        }
}

static void check_range(struct observer *o, int rank, const struct op *op)
{
        if (shares_chunks(o)) {
                check_places(o, rank, op);
                return;
        }
        expect(o, op->place == op->offset, "parameters lie where their gradients do");
        if (has_weights(o) || sums_shares(o)) {
                expect(o, op->count >= 1 && op->count <= core_update_parameters(&o->plan, o->parameters),
                       "an update fits the buffers of the stage");
                return;
        }
        int64_t bucket = o->plan.bucket_parameters;
        if (o->plan.offload && bucket > o->parameters)
                bucket = o->parameters;
        int64_t max = o->plan.offload ? (bucket + 2) / 3 : bucket;
        expect(o,
               op->count >= 1 && op->count <= max && of_one_chunk(o, rank, op) &&
                       in_chunk(o, rank, op->offset) % max == 0,
               "an update is of a bucket, offloaded of its third");
        expect(o, op->count <= plan_update_parameters(&o->plan), "an update fits the buffers of the plan");
}

static void issue_update(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        check_range(o, rank, op);
        expect(o, no_overflow(o, rank), "an update knows that there is no overflow");
        expect(o, !o->plan.clip || s->scalars == 1, "with clipping an update follows the norm");
        for (int64_t p = op->offset; p < op->offset + op->count; p++) {
                expect(o, summed(o, rank, p), "an update follows the sums of its gradients");
                expect(o, s->touched[p].updated++ == 0, "a parameter is updated once");
        }
        bool embedding = !has_weights(o) && touches_embedding(o, rank, op);
        expect(o, embedding || !s->embedding_update, "updates of the shared embedding come last");
        s->embedding_update = embedding;
        int nth = s->updates++;
        if (!o->plan.offload) {
                expect(o, op->buffer == -1, "without offloading there are no buffers");
                return;
        }
        expect(o, nth < s->fetches && s->fetch_order[nth] == op->bucket, "updates go in order of fetches");
        expect(o, op->buffer >= 0 && s->buffer[op->buffer] == op->bucket && s->buffer_there[op->buffer],
               "an update has its own parameters in its buffer");
}

static void issue_copy(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        bool fetch = op->kind == OP_FETCH;
        check_range(o, rank, op);
        expect(o,
               op->lane == (fetch ? LANE_HOST_TO_DEVICE : LANE_DEVICE_TO_HOST) && o->plan.offload &&
                       op->bytes == 12 * op->count && op->buffer >= 0 && op->buffer < PLAN_UPDATE_BUFFERS,
               "copies of an update are of three fp32 arrays");
        expect(o, computed(o, rank), "fetches begin when the pipeline is done");
        if (!fetch) {
                expect(o, s->buffer[op->buffer] == op->bucket && s->buffer_ready[op->buffer],
                       "what was updated is written back");
                expect(o, s->fetch_order[s->write_backs++] == op->bucket,
                       "write backs go in order of fetches");
                return;
        }
        expect(o, !s->overflow, "after an overflow nothing more is fetched");
        expect(o, s->buffer[op->buffer] == -1, "a buffer is fetched into when it is free");
        s->fetch_order[s->fetches++] = op->bucket;
        s->buffer[op->buffer] = op->bucket;
        s->buffer_there[op->buffer] = s->buffer_ready[op->buffer] = false;
}

static bool all_fresh(const struct observer *o, int rank)
{
        for (int64_t p = 0; p < o->parameters; p++)
                if (o->seen[rank].touched[p].own && o->seen[rank].touched[p].fresh != 1)
                        return false;
        return shares_chunks(o);
}

static void issue_stage_of_sum(struct observer *o, int rank, const struct op *op)
{
        const bool out = op->kind == OP_STAGE_OUT, gathers = op->of == OP_ALL_GATHER;
        const bool share = gathers ? out : op->of == OP_REDUCE_SCATTER && !out;
        int64_t count = 0;
        for (int64_t p = op->offset; p < op->offset + op->count; p++)
                count += !share || in_share(o, rank, op, p);
        expect(o,
               o->plan.stage_allreduce && op->bytes == count * o->plan.element_bytes &&
                       op->lane == (out ? LANE_DEVICE_TO_HOST : LANE_HOST_TO_DEVICE),
               "a staged sum is copied on the lane of its direction, a share where that is all");
        if (gathers)
                check_gather(o, rank, op);
        else
                check_sum(o, rank, op);
}

static void issue_optimizer(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        const bool of_shares = op->group == GROUP_SHARE_DATA && !o->plan.blocking;
        const bool early = of_shares || (overlaps(o) && op->group == GROUP_DATA &&
                                         (op->of == OP_ALLREDUCE || op->of == OP_REDUCE_SCATTER));
        expect(o, early || o->plan.forward_only || computed(o, rank), "the optimizer follows the pipeline");
        expect(o, !gathers_units(o) || of_shares || o->plan.forward_only || all_reduced(o, rank),
               "and the reductions of all units");
        switch (op->kind) {
        case OP_CHECK_OVERFLOW:
                expect(o, o->plan.mixed && op->offset == 0 && op->count == s->final,
                       "all gradients are looked at");
                expect(o, !sums_shares(o) || shares_summed(o, rank), "of hybrid shards their sums are");
                break;
        case OP_ALLREDUCE:
        case OP_REDUCE_SCATTER:
        case OP_ALL_GATHER:
        case OP_REDUCE_OVERFLOW:
        case OP_REDUCE_SCALARS:
                issue_collective(o, rank, op);
                break;
        case OP_NORM:
                expect(o, o->plan.clip && no_overflow(o, rank) && all_summed(o, rank),
                       "the norm is of final gradients, without overflow");
                break;
        case OP_UPDATE:
                issue_update(o, rank, op);
                break;
        case OP_STAGE_OUT:
        case OP_STAGE_IN:
                issue_stage_of_sum(o, rank, op);
                break;
        case OP_CLEAR:
                expect(o, all_summed(o, rank) && op->offset == 0 && op->count == o->parameters,
                       "all is cleared after every sum");
                expect(o, s->overflow || all_fresh(o, rank),
                       "after an overflow, or with zero after all updates");
                break;
        default:
                issue_copy(o, rank, op);
        }
}

static void complete_optimizer(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        bool gathers = op->of == OP_ALL_GATHER;
        bool sums = (gathers || op->of == OP_ALLREDUCE || op->of == OP_REDUCE_SCATTER) &&
                    complete_sum(o, rank, op);
        for (int64_t p = op->offset; p < op->offset + op->count; p++) {
                struct touched *t = &s->touched[p];
                t->reduced += sums && !gathers && op->group == group_of(o, p);
                t->gathered += sums && gathers;
                t->fresh += op->kind == OP_UPDATE;
                t->own = t->own || (op->of == OP_REDUCE_SCATTER && in_share(o, rank, op, p));
                t->exchanged += sums && op->group == GROUP_EMBEDDING;
                t->fetched += op->kind == OP_FETCH;
                t->written += op->kind == OP_WRITE_BACK;
        }
        if (op->kind == OP_CHECK_OVERFLOW)
                complete_look(o, rank, op);
        s->checks += op->kind == OP_CHECK_OVERFLOW;
        s->norms += op->kind == OP_NORM;
        s->scalars += op->kind == OP_REDUCE_SCALARS;
        s->clears += op->kind == OP_CLEAR;
        if (op->kind == OP_REDUCE_OVERFLOW) {
                s->overflows_known++;
                s->overflow = op->overflow;
        }
        if (op->kind == OP_FETCH)
                s->buffer_there[op->buffer] = true;
        if (op->kind == OP_UPDATE && op->buffer >= 0)
                s->buffer_ready[op->buffer] = true;
        if (op->kind == OP_WRITE_BACK)
                s->buffer[op->buffer] = -1;
}

/* ---- what the first shard decides ---- */

static void issue_decision(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        expect(o, core_decides(&o->plan, plan_stage(&o->plan, rank)) && op->lane == LANE_DECISION,
               "where shards could disagree one decides");
        expect(o, !s->deciding && !s->told && s->lanes[LANE_COMPUTE].count == 0,
               "a decision is about what is computed next");
        s->deciding = true;
        s->decided = op->of;
        s->decided_vmb = vmb_of(o, op);
}

static void complete_decision(struct observer *o, int rank)
{
        o->seen[rank].deciding = false;
        o->seen[rank].told = true;
}

static void check_decided(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        if (!core_decides(&o->plan, plan_stage(&o->plan, rank)) ||
            (op->kind != OP_FORWARD && op->kind != OP_BACKWARD) || op->range > 0)
                return;
        expect(o, s->told && op->kind == s->decided && vmb_of(o, op) == s->decided_vmb,
               "the first shard keeps to what it told the others");
        s->told = false;
}

/* ---- all of it ---- */

struct observer *observer_new(const struct plan *plan, int64_t parameters, bool eager, bool overflow)
{
        struct observer *o = allocate(1, sizeof *o);
        o->plan = *plan;
        o->parameters = parameters;
        o->experts = paper_expert_parameters(plan, parameters);
        o->ranks = plan_ranks(plan);
        o->eager = eager;
        o->overflow = overflow;
        o->seen = allocate(o->ranks, sizeof *o->seen);
        for (int rank = 0; rank < o->ranks; rank++) {
                struct seen *s = &o->seen[rank];
                const struct core_limits limits = core_limits(plan, plan_stage(plan, rank));
                s->limits = limits;
                s->final = parameters;
                s->passed = allocate(plan_vmbs(plan), sizeof *s->passed);
                s->touched = allocate(parameters, sizeof *s->touched);
                s->taken = allocate(parameters, sizeof *s->taken);
                s->slots = allocate(limits.slots, sizeof *s->slots);
                s->host_slots = allocate(limits.host_slots, sizeof *s->host_slots);
                s->inputs = allocate(limits.inputs, sizeof *s->inputs);
                s->gradients = allocate(limits.gradients, sizeof *s->gradients);
                s->deferred = allocate(limits.deferred, sizeof *s->deferred);
                s->host_outputs = allocate(limits.slots, sizeof *s->host_outputs);
                s->host_inputs = allocate(limits.inputs, sizeof *s->host_inputs);
                s->host_gradients = allocate(limits.gradients, sizeof *s->host_gradients);
                for (int i = 0; i < PLAN_UPDATE_BUFFERS; i++)
                        s->buffer[i] = -1;
                for (int i = 0; i < 2 + UNITS; i++)
                        s->weights[i].unit = s->unit_gradients[i].unit = -1;
                if (has_weights(o))
                        begin_with_weights(o, rank);
        }
        return o;
}

static bool of_pipeline(enum op_kind kind)
{
        return kind <= OP_ADD_REPLICA || kind == OP_STORE_ACTIVATIONS || kind == OP_FETCH_ACTIVATIONS;
}

static bool of_message(const struct op *op)
{
        return op->of == OP_SEND_ACTIVATION || op->of == OP_SEND_GRADIENT || is_receive(op->of);
}

/* While a message is under way nothing computes; with one neighbour at most one goes each way. */
static void check_blocking(struct observer *o, int rank, const struct op *op)
{
        struct seen *s = &o->seen[rank];
        if (!o->plan.blocking)
                return;
        expect(o, op->lane != LANE_COMPUTE || s->messages == 0, "a blocking message holds up computation");
        expect(o, !of_message(op) || s->lanes[LANE_COMPUTE].count == 0,
               "a blocking message is not issued while something computes");
        if (of_message(op))
                s->messages +=
                        op->kind == (is_receive(op->of) || !o->plan.stage_messages ? op->of : OP_STAGE_OUT);
        expect(o, s->messages <= (policy_get(o->plan.policy)->warm_up ? 4 : 2),
               "a send and a receive are under way at most, on a ring one more of each");
}

static void end_blocking(struct observer *o, int rank, const struct op *op)
{
        if (o->plan.blocking && of_message(op))
                o->seen[rank].messages -=
                        op->kind == (is_receive(op->of) && o->plan.stage_messages ? OP_STAGE_IN : op->of);
}

void observer_issue(struct observer *o, int rank, const struct op *issued, struct core_limits in_use)
{
        const struct op kept = of_kept(o, rank, issued), *op = &kept;
        struct lane_queue *lane = &o->seen[rank].lanes[op->lane];
        expect(o, op->lane != LANE_COMPUTE || lane->count == 0, "one operation at a time computes");
        assert(lane->count < (int)(sizeof lane->serials / sizeof *lane->serials));
        lane->serials[lane->count++] = op->serial;
        check_blocking(o, rank, op);
        check_decided(o, rank, op);
        if (op->kind == OP_DECISION)
                issue_decision(o, rank, op);
        else if (gathers_units(o) && op_of_pass(op))
                issue_unit(o, rank, op);
        else if (is_part(o, op))
                issue_parted(o, rank, op);
        else if (of_pipeline(op->of))
                issue_pipeline(o, rank, op);
        else
                issue_optimizer(o, rank, op);
        check_use(o, rank, in_use);
}

void observer_complete(struct observer *o, int rank, const struct op *completed)
{
        const struct op kept = of_kept(o, rank, completed), *op = &kept;
        struct lane_queue *lane = &o->seen[rank].lanes[op->lane];
        int at = 0;
        while (at < lane->count && lane->serials[at] != op->serial)
                at++;
        expect(o, at < lane->count, "what completes was issued");
        end_blocking(o, rank, op);
        bool collective = op_lane_of_replicas(op->lane) || op->lane == LANE_SCALARS;
        expect(o, at == 0 || (o->eager && collective), "a lane keeps its order");
        if (at < lane->count)
                memmove(&lane->serials[at], &lane->serials[at + 1],
                        (size_t)(--lane->count - at) * sizeof *lane->serials);
        if (op->kind == OP_DECISION)
                complete_decision(o, rank);
        else if (gathers_units(o) && op_of_pass(op))
                complete_unit(o, rank, op);
        else if (is_part(o, op))
                complete_parted(o, rank, op);
        else if (of_pipeline(op->of))
                complete_pipeline(o, rank, op);
        else
                complete_optimizer(o, rank, op);
}

static void end_vmbs(struct observer *o, int rank)
{
        int back = !o->plan.forward_only;
        for (int m = 0; m < plan_vmbs(&o->plan); m++) {
                const struct passed *p = &o->seen[rank].passed[m];
                bool first = is_first(o, rank, m), last = is_last(o, rank, m);
                expect(o, p->forwarded == 1 && p->backwarded == back && p->weighed == back,
                       "each micro-batch goes forward and backward once a stage");
                expect(o, p->received == !first && p->sent == !last,
                       "activations travel once between neighbours");
                expect(o, p->gradient_received == (back && !last) && p->gradient_sent == (back && !first),
                       "gradients travel once between neighbours");
        }
}

/* How many replicas updated parameter p; without zero as if it were one. */
static int updates_of(const struct observer *o, int rank, int64_t p)
{
        const struct same same = same_as(o, rank, p);
        int updates = 0;
        if (!shares_chunks(o))
                return o->seen[rank].touched[p].updated;
        for (int replica = same.first; replica < o->plan.dp; replica += same.apart)
                updates += o->seen[plan_rank(&o->plan, replica, plan_stage(&o->plan, rank), 0)]
                                   .touched[p]
                                   .updated;
        return updates;
}

static void end_parameters(struct observer *o, int rank)
{
        const struct plan *plan = &o->plan;
        const struct seen *s = &o->seen[rank];
        bool train = !plan->forward_only, updated = train && !o->overflow;
        for (int64_t p = 0; p < o->parameters; p++) {
                const struct touched *t = &s->touched[p];
                const bool own = !(shares_chunks(o) || has_weights(o)) || t->own;
                const bool sums = train && plan->dp > 1 && (!gathers_units(o) || sums_shares(o)) &&
                                  (own || !has_weights(o));
                expect(o, t->looked == (train && plan->mixed), "every gradient is looked at once");
                expect(o, t->reduced == sums && t->exchanged == (own && shared(o, rank, p)),
                       "every gradient is summed, in a step with overflow too");
                expect(o, t->updated == (updated && own),
                       "every parameter is updated once, after an overflow none");
                expect(o, own || !t->fetched, "a replica fetches its own share");
                expect(o, t->gathered == (updated && (shares_chunks(o) || (has_weights(o) && own))),
                       "with zero every weight is gathered");
                expect(o, !train || updates_of(o, rank, p) == (updated && (own || !has_weights(o))),
                       "by one replica, or each");
                expect(o,
                       t->written == (updated && plan->offload && own) &&
                               t->fetched <= (train && plan->offload) && t->fetched >= t->written,
                       "what is updated is fetched and written back, after an overflow nothing");
        }
        expect(o, s->scalars == 1, "the scalars are reduced once");
        expect(o, s->checks == (train && plan->mixed) && s->overflows_known == s->checks,
               "all ranks agree once on whether there was an overflow");
        expect(o, s->overflow == o->overflow && s->clears == (o->overflow || (train && shares_chunks(o))),
               "an overflow clears once, as zero does");
        expect(o, s->norms == (updated && plan->clip), "there is a norm if there is clipping");
}

/* All members of each of the rank's groups issued the same, in the same order. */
static void end_collectives(struct observer *o, int rank)
{
        const struct plan *plan = &o->plan;
        const struct seen *s = &o->seen[rank];
        int stage = plan_stage(plan, rank), replica = plan_replica(plan, rank);
        const int ep = plan_expert_ranks(plan), cp = plan_context_ranks(plan);
        const struct seen *same_stage = &o->seen[plan_rank(plan, 0, stage, 0)];
        const struct seen *same_experts = &o->seen[plan_rank(plan, replica % ep, stage, 0)];
        const struct seen *other_experts = &o->seen[plan_rank(plan, replica - replica % ep, stage, 0)];
        const struct seen *same_sequences = &o->seen[plan_rank(plan, replica - replica % cp, stage, 0)];
        const int shares = sharers_of(o);
        const struct seen *other_shares = &o->seen[plan_rank(plan, replica - replica % shares, stage, 0)];
        const struct seen *same_share = &o->seen[plan_rank(plan, replica % shares, stage, 0)];
        const struct seen *other_end = &o->seen[plan_rank(plan, replica, plan->pp - 1 - stage, 0)];
        expect(o,
               s->collectives[GROUP_WORLD] == o->seen[0].collectives[GROUP_WORLD] &&
                       s->collectives[GROUP_DATA] == same_stage->collectives[GROUP_DATA] &&
                       s->collectives[GROUP_EXPERT_DATA] == same_experts->collectives[GROUP_EXPERT_DATA] &&
                       s->collectives[GROUP_EXPERTS] == other_experts->collectives[GROUP_EXPERTS] &&
                       s->collectives[GROUP_CONTEXT] == same_sequences->collectives[GROUP_CONTEXT] &&
                       s->collectives[GROUP_SHARERS] == other_shares->collectives[GROUP_SHARERS] &&
                       s->collectives[GROUP_SHARE_DATA] == same_share->collectives[GROUP_SHARE_DATA],
               "collectives are issued in the same order on all members of a group");
        if (stage == 0)
                expect(o, s->collectives[GROUP_EMBEDDING] == other_end->collectives[GROUP_EMBEDDING],
                       "first and last stage exchange the same embedding");
}

void observer_end(struct observer *o)
{
        for (int rank = 0; rank < o->ranks; rank += o->plan.tp) { /* the first shard stands for all */
                end_vmbs(o, rank);
                expect(o,
                       plan_logical(&o->plan) == 1 ||
                               o->seen[rank].replicas == (o->plan.forward_only ? 0 : o->plan.logical),
                       "all logical replicas are added");
                end_parameters(o, rank);
                end_collectives(o, rank);
                struct core_limits none = {0};
                check_use(o, rank, none);
                for (int lane = 0; lane < LANES; lane++)
                        expect(o, o->seen[rank].lanes[lane].count == 0, "what is issued completes");
        }
}
