#include "runtime/engine/paper_plan.h"

#include "runtime/base/minmax.h"
#include "runtime/engine/paper.h"
#include "runtime/sched/policy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PRICED_COLLECTIVES = 8, PRICED_LAYERS = 16 };

/* The passes of a chunk: forward, backward (or its first part), and a backward's second part. */
enum { THERE, BACK, LATER, PASSES };

/* What a stage's messages and collectives cost, for one replica. */
struct stage_costs {
        double next_message, previous_message; /* seconds of one to the neighbour after and before it */
        double decision;                       /* of what to compute; 0 where shards have no need of it */
        /* [chunks][PASSES]: the collectives of shards in the passes of each chunk. */
        double *tensor;
        double forward, backward;  /* what a micro-batch keeps its compute lane, in all chunks */
        double copy, copies;       /* see price_activations; 0: they are not offloaded */
        int64_t update;            /* parameters of the largest update of the plan */
        struct priced_collective { /* the first of those that were asked for: a rank has no more kinds and
                                      sizes */
                enum op_kind kind;
                enum op_group group;
                int64_t bytes;
                double seconds;
        } known[PRICED_COLLECTIVES];
        int known_count;
};

struct batch {
        const struct options *options;
        const struct paper_links *links;
        struct plan plan;
        int joined;                     /* updates that are run as one, see join_updates */
        int replica;                    /* folded: which one stands for all */
        struct stage_costs *stages;     /* [pp] of one replica, or [dp x pp] */
        double *tensors;                /* all of the stages' */
        const struct core_stage *parts; /* [pp], for the core */
        int members;                    /* that are run, replica x pp + stage: of one replica or all */
        bool apart;                     /* what follows the pipeline is run apart */
        double *through;                /* then: [members]: when each has worked on all micro-batches */
        struct passing *passing;        /* of the run under way */
        struct priced_layer {           /* collectives of layers of ranges and units, as in `known` */
                const struct price_pass *pass;
                int rank;
                double seconds;
        } layers[PRICED_LAYERS];
        int layer_count;
};

static struct stage_costs *stage_of(const struct batch *b, int rank)
{
        const int replica = b->links->folded ? 0 : plan_replica(&b->plan, rank);
        return &b->stages[replica * b->plan.pp + plan_stage(&b->plan, rank)];
}

static const struct price_list *prices_of(const struct batch *b, int rank)
{
        return b->links->prices(b->links->context, rank);
}

/* The rank that stands for all of a stage. */
static int standing_for(const struct batch *b, int stage)
{
        return plan_rank(&b->plan, b->replica, stage, 0);
}

/* ---- replicas ---- */

static void price_messages(const struct batch *b, int replica, struct stage_costs *stages)
{
        for (int i = 0; i < b->plan.pp && b->plan.pp > 1; i++) {
                const int rank = plan_rank(&b->plan, replica, i, 0), next = plan_next_rank(&b->plan, rank);
                const double seconds = b->links->message(b->links->context, rank, next);
                stages[i].next_message = seconds;
                stages[(i + 1) % b->plan.pp].previous_message = seconds;
        }
}

/* Whether passes have collectives in them: of shards, or of spread experts. */
static bool has_parts(const struct batch *b)
{
        return plan_parts_passes(&b->plan);
}

/* What the rank with the most rows of experts takes longer for a pass than with an even share, layer by
 * layer: all wait for it. */
static double slowest_experts(const struct batch *b, int rank, enum op_kind kind, int chunk)
{
        const struct price_list *prices = prices_of(b, rank);
        const int stage = plan_stage(&b->plan, rank);
        struct op op = {.kind = kind, .of = kind, .chunk = chunk};
        double seconds = 0;
        const int parts = prices->loads ? price_pass_of(prices, stage, &op)->parts : 0;
        for (; op.segment < parts; op.segment++)
                seconds += price_imbalance(prices, stage, &op, price_slowest(prices, stage, &op));
        return seconds;
}

/* Likewise for a unit. */
static double slowest_in_unit(const struct price_list *prices, int stage, const struct op *unit)
{
        double seconds = 0;
        struct op op = *unit;
        for (op.segment = 0; prices->loads && price_behind(prices, stage, &op).pass; op.segment++)
                seconds += price_imbalance(prices, stage, &op, price_slowest(prices, stage, &op));
        return seconds;
}

static void price_tensors(const struct batch *b, int rank, struct stage_costs *stage)
{
        const struct stage_price *prices = prices_of(b, rank)->stages;
        const bool parted = options_parts_backward(b->options);
        for (int i = 0; has_parts(b) && i < b->plan.virtual_stages; i++) {
                const struct stage_price *chunk = &prices[i * b->plan.pp + plan_stage(&b->plan, rank)];
                const struct price_pass *passes[PASSES] = {&chunk->forward, &chunk->backward,
                                                           parted ? &chunk->weights : NULL};
                double *tensor = &stage->tensor[i * PASSES];
                for (int pass = 0; pass < PASSES && passes[pass]; pass++)
                        tensor[pass] = b->links->tensor(b->links->context, rank, passes[pass]);
                tensor[THERE] += slowest_experts(b, rank, OP_FORWARD, i);
                tensor[BACK] += slowest_experts(b, rank, OP_BACKWARD, i);
        }
}

/* What a replica's links cost: one micro-batch's messages there and back, and the collectives of
 * the slowest stage's shards for all of them. */
static double links_seconds(const struct batch *b, const struct stage_costs *stages)
{
        double messages = 0, shards = 0;
        for (int i = 0; i < b->plan.pp; i++) {
                double own = 0;
                messages += i < b->plan.pp - 1 || b->plan.virtual_stages > 1 ? 2 * stages[i].next_message : 0;
                for (int pass = 0; pass < PASSES * b->plan.virtual_stages; pass++)
                        own += stages[i].tensor[pass];
                shards = fmax(shards, own);
        }
        return messages + b->plan.micro_batches * shards;
}

static void price_replica(struct batch *b, int replica, struct stage_costs *stages)
{
        const struct op decision = core_decision();
        price_messages(b, replica, stages);
        for (int i = 0; i < b->plan.pp; i++) {
                const int rank = plan_rank(&b->plan, replica, i, 0);
                price_tensors(b, rank, &stages[i]);
                if (core_decides(&b->plan, i))
                        stages[i].decision = b->links->collective(b->links->context, rank, &decision);
        }
}

/* Replicas begin at different places of nodes: after as many as there are GPUs in a node the places repeat.
 * The one whose links cost most stands for all. */
static void choose_replica(struct batch *b)
{
        const int places = b->links->places;
        double longest = -1;
        int slowest = 0;
        for (int replica = 0; replica < b->plan.dp && replica < places; replica++) {
                price_replica(b, replica, b->stages);
                const double cost = links_seconds(b, b->stages);
                if (cost > longest * (1 + 1e-12)) {
                        longest = cost;
                        slowest = replica;
                }
        }
        b->replica = slowest;
        price_replica(b, slowest, b->stages);
}

/* ---- collectives ---- */

/* The ends of a pipeline lie in one node in some replicas, and apart in others. */
static double slowest_exchange(const struct batch *b, const struct op *op)
{
        double slowest = 0;
        for (int replica = 0; replica < b->plan.dp && replica < b->links->places; replica++)
                slowest = fmax(slowest, b->links->collective(b->links->context,
                                                             plan_rank(&b->plan, replica, 0, 0), op));
        return slowest;
}

static double collective(const struct batch *b, int rank, const struct op *op)
{
        struct stage_costs *stage = stage_of(b, rank);
        for (int i = 0; i < stage->known_count; i++) {
                const struct priced_collective *k = &stage->known[i];
                if (k->kind == op->kind && k->group == op->group && k->bytes == op->bytes)
                        return k->seconds;
        }
        const bool exchange = b->links->folded && op->group == GROUP_EMBEDDING;
        const double seconds =
                exchange ? slowest_exchange(b, op) : b->links->collective(b->links->context, rank, op);
        if (stage->known_count < PRICED_COLLECTIVES)
                stage->known[stage->known_count++] =
                        (struct priced_collective){op->kind, op->group, op->bytes, seconds};
        return seconds;
}

static double copy(const struct batch *b, const struct op *op, int ways)
{
        return b->links->copy(b->links->context, op, ways > 1);
}

/* ---- the physics ---- */

/* All parts of a pass, and the collectives of shards between them. */
static double pass(const struct batch *b, int rank, enum op_kind kind, int chunk, int parts)
{
        const struct op op = {.kind = kind, .of = kind, .chunk = chunk, .parts = parts};
        const struct price_pass *own = price_pass_of(prices_of(b, rank), plan_stage(&b->plan, rank), &op);
        const int which = kind == OP_FORWARD ? THERE : parts == OP_WEIGHT_GRADIENT ? LATER : BACK;
        return price_pass_seconds(own, has_parts(b) ? stage_of(b, rank)->tensor[PASSES * chunk + which] : 0);
}

/* The collectives of shards in a layer, of the replica that stands for all. A batch works on the same layers
 * for every micro-batch. */
static double layer_tensor(struct batch *b, int rank, const struct price_pass *pass)
{
        for (int i = 0; i < b->layer_count; i++)
                if (b->layers[i].pass == pass && b->layers[i].rank == rank)
                        return b->layers[i].seconds;
        const int of = b->links->folded ? standing_for(b, plan_stage(&b->plan, rank)) : rank;
        const double seconds = b->links->tensor(b->links->context, of, pass);
        if (b->layer_count < PRICED_LAYERS)
                b->layers[b->layer_count++] = (struct priced_layer){pass, rank, seconds};
        return seconds;
}

/* All parts of a range of a last backward, or of a unit, and the collectives of shards between them. */
static double range_seconds(struct batch *b, int rank, const struct op *op)
{
        const struct price_list *prices = prices_of(b, rank);
        const double start = prices->stages[plan_stage(&b->plan, rank)].start;
        struct price_layers layers[PRICE_UNITS];
        const int count = price_range(prices, plan_stage(&b->plan, rank), op, layers);
        double seconds = start + price_unit_gradients(prices, plan_stage(&b->plan, rank), op) +
                         slowest_in_unit(prices, plan_stage(&b->plan, rank), op);
        for (int i = 0; i < count; i++)
                seconds += layers[i].times *
                           (layers[i].pass->seconds - start + layer_tensor(b, rank, layers[i].pass));
        return seconds;
}

/* With shards a pass is one operation here, and so is a range or unit of one. */
static double pass_seconds(struct batch *b, int rank, const struct op *op)
{
        if (!price_has_range(prices_of(b, rank), plan_stage(&b->plan, rank), op))
                return pass(b, rank, op->kind, op->chunk, op->parts);
        return has_parts(b) ? range_seconds(b, rank, op)
                            : price_operation(prices_of(b, rank), plan_stage(&b->plan, rank), op);
}

/* Several updates as one, or the copies before or after them: as long as all of them. */
static double joined(struct batch *b, int rank, const struct op *op, int ways)
{
        const int64_t each = stage_of(b, rank)->update;
        struct op one = *op;
        if (b->joined > 1) {
                one.count = each;
                one.bytes = op->kind == OP_FETCH ? plan_fetched_bytes(&b->plan, each)
                                                 : plan_written_bytes(&b->plan, each);
        }
        const double seconds = op->kind == OP_UPDATE
                                       ? price_operation(prices_of(b, rank), plan_stage(&b->plan, rank), &one)
                                       : copy(b, &one, ways);
        return seconds * (double)op->count / (double)one.count;
}

static double seconds(void *context, int rank, const struct op *op)
{
        struct batch *b = context;
        switch (op->kind) {
        case OP_FORWARD:
        case OP_BACKWARD:
                return pass_seconds(b, rank, op);
        case OP_DECISION:
                return stage_of(b, rank)->decision;
        case OP_SEND_ACTIVATION:
                return stage_of(b, rank)->next_message;
        case OP_SEND_GRADIENT:
                return stage_of(b, rank)->previous_message;
        case OP_UPDATE:
        case OP_FETCH:
        case OP_WRITE_BACK:
                return joined(b, rank, op, 1);
        case OP_ALLREDUCE:
        case OP_REDUCE_SCATTER:
        case OP_ALL_GATHER:
        case OP_REDUCE_SCALARS:
        case OP_REDUCE_OVERFLOW:
                return collective(b, rank, op);
        default:
                return op_copies(op->kind)
                               ? copy(b, op, 1)
                               : price_operation(prices_of(b, rank), plan_stage(&b->plan, rank), op);
        }
}

static double both_ways(void *context, int rank, const struct op *op)
{
        struct batch *b = context;
        const bool update = op->kind == OP_FETCH || op->kind == OP_WRITE_BACK;
        const double alone = update ? joined(b, rank, op, 1) : copy(b, op, 1);
        return fmax(alone, update ? joined(b, rank, op, 2) : copy(b, op, 2));
}

/* A pass of shards is one operation here, with all collectives in it: nothing else can begin
 * between its parts. A backward beside which gradients are summed goes on to the end of a layer. */
static void fill(void *context, int rank, struct op *op)
{
        const struct batch *b = context;
        price_widen(prices_of(b, rank), plan_stage(&b->plan, rank), op);
}

/* ---- a batch ---- */

static const struct policy *policy_of(const struct plan *plan)
{
        return policy_get(plan->policy);
}

/* What a run of some micro-batches found. Between two that are so many apart: done backward on the first
 * stage (GPipe: and forward on the last, added); NAN: there are fewer. */
struct batch_run {
        double end; /* of the batch; apart: of the pipeline on the last rank that is through. NAN: not known
                     */
        double spacing, spacing_before; /* of a period at the end of the run, and of one before */
};

/* When the micro-batches of the first chunk were done backward on the first stage, those of the last forward
 * on the last. */
struct passing {
        struct paper *paper;
        double *backward, *forward; /* [micro_batches] */
        int backwards, forwards;
};

static void note_passing(void *context, int rank, const struct op *op)
{
        const struct batch *b = context;
        struct passing *p = b->passing;
        const struct plan *plan = &b->plan;
        if ((op->kind != OP_FORWARD && op->kind != OP_BACKWARD) || op->segment > 0 || op->range > 0)
                return; /* a later part of one */
        const int stage = plan_stage(plan, rank), replica = plan_replica(plan, rank);
        if (op->kind == OP_BACKWARD && stage == 0 && replica == 0 && op->chunk == 0 &&
            op->parts & OP_INPUT_GRADIENT)
                p->backward[p->backwards++] = paper_now(p->paper);
        if (op->kind == OP_FORWARD && stage == plan->pp - 1 && replica == 0 &&
            op->chunk == plan->virtual_stages - 1)
                p->forward[p->forwards++] = paper_now(p->paper);
}

/* `end`: micro-batches at the end that are left out. */
static double spacing(const double *times, int count, int end, int period)
{
        const int last = count - 1 - end;
        return last >= period ? times[last] - times[last - period] : NAN;
}

/* What is done beside the last micro-batch keeps only that one; with AxoNN's order, in which whatever comes
 * first is worked on, all of those that are under way when the last one begins go faster. */
static struct batch_run describe(const struct batch *b, double end, int period)
{
        const struct plan *plan = &b->plan;
        const struct passing *p = b->passing;
        const int last = 1 + (policy_of(plan)->by_arrival ? core_pipeline_limit(plan) : 0);
        struct batch_run run = {end, spacing(p->backward, p->backwards, last, period),
                                spacing(p->backward, p->backwards, last + period, period)};
        if (policy_of(plan)->forwards_first) {
                run.spacing += spacing(p->forward, p->forwards, last, period);
                run.spacing_before += spacing(p->forward, p->forwards, last + period, period);
        }
        return run;
}

static struct paper *new_paper(struct batch *b, const struct plan *plan)
{
        const struct paper_setting setting = {
                .plan = plan,
                .stages = b->parts,
                .folded = b->links->folded,
                .physics = {.seconds = seconds, .fill = fill, .both_ways = both_ways, .context = b},
                .completed = b->passing ? note_passing : NULL};
        return paper_new(&setting);
}

/* NAN: it came to rest before its end. */
static double run_to_end(struct batch *b, struct paper *paper)
{
        if (!b->apart) {
                const double found = paper_run(paper);
                return found >= 0 ? found : NAN;
        }
        double end = 0;
        if (!paper_run_pipeline(paper, b->through))
                return NAN;
        for (int i = 0; i < b->members; i++)
                end = fmax(end, b->through[i]);
        return end;
}

/* `period`: micro-batches. */
static struct batch_run run(struct batch *b, int micro_batches, int period)
{
        struct plan plan = b->plan; /* what is loaded is of the whole batch */
        struct batch_run found = {NAN, NAN, NAN};
        double *times = malloc(2 * (size_t)micro_batches * sizeof *times);
        if (!times)
                return found;
        plan.micro_batches = micro_batches;
        struct passing passing = {.backward = times, .forward = times + micro_batches};
        b->passing = &passing;
        passing.paper = new_paper(b, &plan);
        if (passing.paper)
                found = describe(b, run_to_end(b, passing.paper), period);
        paper_delete(passing.paper);
        b->passing = NULL;
        free(times);
        return found;
}

/* What follows the pipeline, which was run before: returns when the batch ends. */
static double run_after(struct batch *b)
{
        struct plan plan = b->plan;
        plan.micro_batches = 0;
        struct paper *paper = new_paper(b, &plan);
        const double end = paper ? paper_run_after(paper, b->through) : -1;
        paper_delete(paper);
        return end >= 0 ? end : NAN;
}

/* ---- many micro-batches ---- */

/* Seconds that a micro-batch keeps the compute lane of a stage, forward or backward, with the decision on it.
 */
static double work_of(const struct batch *b, int stage, enum op_kind kind)
{
        const int rank = standing_for(b, stage);
        const bool parted = kind == OP_BACKWARD && options_parts_backward(b->options);
        double sum = b->stages[stage].decision;
        for (int i = 0; i < b->plan.virtual_stages; i++)
                sum += pass(b, rank, kind, i, OP_INPUT_GRADIENT) +
                       (parted ? pass(b, rank, kind, i, OP_WEIGHT_GRADIENT) : 0);
        return sum;
}

/* Blocking messages of a micro-batch, there and back, keep a stage from computing: of 1F1B one each way goes
 * together. */
static double held_seconds(const struct batch *b, int stage)
{
        const struct plan *plan = &b->plan;
        if (!plan->blocking || plan->virtual_stages > 1)
                return 0;
        const double before = stage > 0 ? b->stages[stage].previous_message : 0;
        const double after = stage < plan->pp - 1 ? b->stages[stage].next_message : 0;
        return (before + after) * (policy_of(plan)->forwards_first ? 2 : 1);
}

/* Micro-batches whose activations a stage stores at once. */
static int stored_on(const struct plan *plan, int stage)
{
        return policy_of(plan)->stored(plan, stage, (struct policy_chunks){0, 1}, core_pipeline_limit(plan));
}

/* In a fixed order that takes forwards and backwards in turn a stage has so many micro-batches more under way
 * than a later one (1F1B: as many as there are stages from the one to the other): in the time in which one
 * goes forward and backward through the stages between them, so many do. */
static double min_of_chains(const struct batch *b)
{
        const struct plan *plan = &b->plan;
        double min = 0;
        for (int i = 0; i < plan->pp; i++) {
                double trip = 0;
                for (int j = i; j < plan->pp; j++) {
                        trip += b->stages[j].forward + b->stages[j].backward;
                        trip += j > i ? 2 * b->stages[j].previous_message : 0;
                        const int more = stored_on(plan, i) - (j + 1 < plan->pp ? stored_on(plan, j + 1) : 0);
                        min = more > 0 ? fmax(min, trip / more) : min;
                }
        }
        return min;
}

/* Any schedule has so many slots for a micro-batch's activations, from its forward to its backward, while
 * that goes on to the last stage and back; of a backward in two parts only the first is waited for. */
static double min_of_slots(const struct batch *b)
{
        const struct plan *plan = &b->plan;
        double min = 0, trip = 0;
        for (int i = plan->pp - 1; i >= 0; i--) {
                const struct core_limits limits = core_limits(plan, i);
                const int slots = limits.host_slots > limits.slots ? limits.host_slots : limits.slots;
                const int rank = standing_for(b, i);
                trip += b->stages[i].forward + pass(b, rank, OP_BACKWARD, 0, OP_INPUT_GRADIENT);
                trip += i < plan->pp - 1 ? 2 * b->stages[i].next_message : 0;
                min = fmax(min, trip / slots);
        }
        return min;
}

/* What the copies of activations of one chunk and micro-batch take, alone, and those of all chunks, both ways
 * at one time. */
static void price_activations(struct batch *b, int stage)
{
        const struct core_stage *part = &b->parts[stage];
        const struct op store = {.kind = OP_STORE_ACTIVATIONS,
                                 .bytes = part->slot_bytes - part->shorter_bytes};
        struct stage_costs *s = &b->stages[stage];
        s->copy = s->copies = 0;
        if (core_limits(&b->plan, stage).host_slots == 0)
                return;
        s->copy = copy(b, &store, 1);
        s->copies = b->plan.virtual_stages * both_ways(b, standing_for(b, stage), &store);
}

/* No schedule brings micro-batches through faster than this, each: a stage has so much work with one (GPipe:
 * all forwards, then all backwards, so that each has a slowest stage of its own); offloaded activations are
 * stored and fetched, at the same time if need be; and what is said above. */
static double min_seconds(struct batch *b)
{
        const struct plan *plan = &b->plan;
        double min = 0, forwards = 0, backwards = 0;
        for (int i = 0; i < plan->pp; i++) {
                struct stage_costs *s = &b->stages[i];
                s->forward = work_of(b, i, OP_FORWARD);
                s->backward = work_of(b, i, OP_BACKWARD);
                forwards = fmax(forwards, s->forward);
                backwards = fmax(backwards, s->backward);
                min = fmax(min, s->forward + s->backward + held_seconds(b, i));
                price_activations(b, i);
                min = fmax(min, s->copies);
        }
        const struct policy *policy = policy_of(plan);
        if (policy->forwards_first)
                return fmax(min, forwards + backwards);
        if (plan->virtual_stages > 1)
                return min;
        const bool in_turn = !policy->by_arrival && !policy->deferred;
        return fmax(min, in_turn ? min_of_chains(b) : min_of_slots(b));
}

/* Backwards that a stage takes right after the forward of the same chunk and micro-batch, as the last one
 * does with its last chunk: offloaded activations go to the host and back meanwhile, and nothing is computed.
 */
static int backwards_at_once(const struct plan *plan, int stage)
{
        const struct policy *policy = policy_of(plan);
        int count = 0;
        if (!policy->warm_up || !policy->nth_forward)
                return 0;
        const int warm_up = policy->warm_up(plan, stage), all = plan_vmbs(plan);
        for (int nth = 0; warm_up + nth < all; nth++)
                count += policy->nth_forward(plan, warm_up + nth) == policy->nth_backward(plan, nth);
        return count;
}

/* No schedule ends a batch sooner: a stage begins when the stages before it have worked on one micro-batch,
 * has its own work on all of them and waits in it, and stores and fetches the activations of each; after the
 * last backward (of a backward in two parts, its first part) those stages have one more each. */
static double least_seconds(const struct batch *b)
{
        const bool parted = options_parts_backward(b->options);
        double least = 0, before = 0, after = 0;
        for (int i = 0; i < b->plan.pp; i++) {
                const struct stage_costs *s = &b->stages[i];
                const int rank = standing_for(b, i);
                double later = 0;
                for (int chunk = 0; parted && chunk < b->plan.virtual_stages; chunk++)
                        later += pass(b, rank, OP_BACKWARD, chunk, OP_WEIGHT_GRADIENT);
                const double waits = s->copies > 0 ? 2 * s->copy * backwards_at_once(&b->plan, i) : 0;
                const double all = b->plan.micro_batches * (s->forward + s->backward) + waits;
                least = fmax(least, before + all + fmax(0, after - b->plan.micro_batches * later));
                least = fmax(least, before + b->plan.micro_batches * s->copies + after);
                before += pass(b, rank, OP_FORWARD, 0, OP_INPUT_GRADIENT);
                after += pass(b, rank, OP_BACKWARD, 0, OP_INPUT_GRADIENT);
        }
        return least;
}

/* Runs of few micro-batches, in the hope that the schedule has settled by then. */
struct settling {
        int first, period; /* micro-batches of the shortest run, and by how many each other is longer */
};

static bool same(double a, double b)
{
        return fabs(a - b) <= 1e-6 * b; /* false if one is not known */
}

/* The end of a run as it goes on to all micro-batches, `each` seconds apart. */
static double go_on(struct batch *b, double end, int micro_batches, double each)
{
        const double later = (b->plan.micro_batches - micro_batches) * each;
        for (int i = 0; b->apart && i < b->members; i++)
                b->through[i] += later;
        return end + later;
}

/* The functions below return the end of the batch as it goes on from a run of few micro-batches, or NAN if
 * they do not show how it does. `min`: no micro-batch follows another one faster.
 *
 * The last of them follow each other as fast as they can. */
static double at_full_speed(struct batch *b, struct settling s, double min)
{
        const int micro_batches = s.first + s.period;
        if (micro_batches >= b->plan.micro_batches)
                return NAN;
        const struct batch_run found = run(b, micro_batches, s.period);
        return same(found.spacing, s.period * min) ? go_on(b, found.end, micro_batches, min) : NAN;
}

/* They do, or they follow each other evenly over twice as many as there are in a round. */
static double at_even_speed(struct batch *b, struct settling s, double min)
{
        const int micro_batches = s.first + 2 * s.period;
        if (micro_batches >= b->plan.micro_batches)
                return NAN;
        const struct batch_run found = run(b, micro_batches, s.period);
        const bool full = same(found.spacing, s.period * min);
        const bool even = same(found.spacing, found.spacing_before) && found.spacing > s.period * min;
        return full || even ? go_on(b, found.end, micro_batches, found.spacing / s.period) : NAN;
}

/* Runs of different lengths are compared: two must differ by as little as they can, which is enough if `full`
 * says so; three must differ evenly, which is enough if `even` does. */
static double of_lengths(struct batch *b, struct settling s, double min, bool full, bool even)
{
        const int middle = s.first + s.period, longest = middle + s.period, all = b->plan.micro_batches;
        if ((full ? middle : longest) >= all)
                return NAN;
        const double one = run(b, s.first, s.period).end, two = run(b, middle, s.period).end;
        const double step = two - one;
        if (full && same(step, s.period * min))
                return go_on(b, two, middle, step / s.period);
        if (!even || longest >= all || step < s.period * min * (1 - 1e-6))
                return NAN;
        const double three = run(b, longest, s.period).end;
        return same(three - two, step) ? go_on(b, three, longest, step / s.period) : NAN;
}

/* Runs with `filled` micro-batches and more, so that whole periods are left of `all`. */
static struct settling settle(int filled, int period, int all)
{
        return (struct settling){filled + (all - filled) % period, period};
}

/* Most schedules have settled as soon as the pipeline is full, if work is all that limits; AxoNN's takes a
 * round more. */
static double steady_soon(struct batch *b, int filled, int round, bool lengths, double min)
{
        const int all = b->plan.micro_batches, few = 2;
        if (lengths)
                return of_lengths(b, settle(filled, few, all), min, true, false);
        if (policy_of(&b->plan)->by_arrival)
                return at_full_speed(b, settle(2 * round, round, all), min);
        return at_full_speed(b, settle(filled, few, all), min);
}

/* A schedule settles when the pipeline is full and offloaded activations have gone through all of their
 * slots, or some rounds later. Where work is all that limits, every micro-batch then takes as long; else what
 * happens may go in rounds of as many as the first stage lets into the pipeline at once (GPipe lets all;
 * then, and with interleaved chunks, of the stages). Copies that could fall behind later do so within some
 * rounds. Where it does not settle soon, or there are few micro-batches, all are run.
 *
 * The first stage's last micro-batches do not show how a batch goes on where stages end with work that they
 * kept back (interleaved, backwards in two parts), where copies of activations are still behind, or where
 * replicas differ. */
static double steady(struct batch *b, double min)
{
        const struct plan *plan = &b->plan;
        const bool offload = plan->offload_activations, interleaved = plan->virtual_stages > 1;
        const bool parted = options_parts_backward(b->options);
        const bool lengths = offload || interleaved || parted || !b->links->folded;
        const int all = plan->micro_batches, few = offload ? 8 : 2;
        const int at_once = stored_on(plan, 0);
        const int round = interleaved || at_once >= all ? plan->pp : at_once;
        const int filled = max_int(plan->pp, round) + (interleaved ? 0 : few);
        double found = offload || interleaved ? NAN : steady_soon(b, filled, round, lengths, min);
        for (int times = 1; isnan(found); times *= 2) {
                const int period = times * round * ((few + round - 1) / round);
                const struct settling s = settle(times * filled, period, all);
                if (s.first + period >= all)
                        break;
                found = lengths ? of_lengths(b, s, min, !offload, true) : at_even_speed(b, s, min);
        }
        return isnan(found) ? run(b, all, 1).end : found;
}

static int64_t largest_update(const struct stage_price *price)
{
        int64_t largest = 1;
        for (int i = 0; i < price->update_count; i++)
                if (price->updates[i].parameters > largest)
                        largest = price->updates[i].parameters;
        return largest;
}

/* A large model has thousands of updates, each with a fetch and a write back. Those of a chunk are run as
 * fewer, which changes what begins before and ends after them by a few updates, where that is nothing beside
 * the pipeline. */
static void join_updates(struct batch *b, double min)
{
        const double nothing = 1e-3; /* of the batch */
        double longest = 0;
        for (int i = 0; i < b->plan.pp; i++) {
                const int rank = standing_for(b, i);
                const struct op update = {.kind = OP_UPDATE, .of = OP_UPDATE, .count = b->stages[i].update};
                const struct op fetch = {.kind = OP_FETCH,
                                         .of = OP_FETCH,
                                         .count = update.count,
                                         .bytes = plan_offloaded_bytes(update.count)};
                longest = fmax(longest, seconds(b, rank, &update));
                longest = fmax(longest, b->plan.offload ? both_ways(b, rank, &fetch) : 0);
        }
        const double pipeline = b->plan.micro_batches * min;
        while (b->plan.allreduce_buckets % 2 == 0 && (2 * 2 * b->joined - 1) * longest < nothing * pipeline) {
                b->joined *= 2;
                b->plan.allreduce_buckets /= 2;
                b->plan.bucket_parameters *= 2;
        }
}

/* With overlapping all-reduces, zero 2 and 3, and staged messages what follows the pipeline is not apart. */
static bool is_apart(const struct plan *plan)
{
        return !plan->overlap_allreduce && plan->zero < 2 && !plan->stage_messages;
}

/* All that the pipeline's run follows from, if activations stay where they are. */
enum { KEY_PLAN = 9 };

static size_t key_count(const struct batch *b)
{
        return KEY_PLAN + (size_t)b->members * (3 + 3 * (size_t)b->plan.virtual_stages);
}

static void describe_pipeline(const struct batch *b, double *key)
{
        const struct plan *plan = &b->plan;
        const bool parted = options_parts_backward(b->options);
        const double of_plan[KEY_PLAN] = {plan->policy,
                                          plan->pp,
                                          plan->virtual_stages,
                                          plan->micro_batches,
                                          core_pipeline_limit(plan),
                                          plan->blocking,
                                          parted,
                                          b->members,
                                          (double)plan->load_bytes};
        memcpy(key, of_plan, sizeof of_plan);
        key += KEY_PLAN;
        for (int i = 0; i < b->members; i++) {
                const int rank = plan_rank(plan, i / plan->pp, i % plan->pp, 0);
                *key++ = b->stages[i].next_message;
                *key++ = b->stages[i].previous_message;
                *key++ = b->stages[i].decision;
                for (int chunk = 0; chunk < plan->virtual_stages; chunk++) {
                        *key++ = pass(b, rank, OP_FORWARD, chunk, OP_INPUT_GRADIENT);
                        *key++ = pass(b, rank, OP_BACKWARD, chunk, OP_INPUT_GRADIENT);
                        *key++ = parted ? pass(b, rank, OP_BACKWARD, chunk, OP_WEIGHT_GRADIENT) : 0;
                }
        }
}

/* Fills in `through`, which is also the pipeline's value in the memo. Only of one replica: that of many is
 * large. */
static bool run_pipeline(struct batch *b, double min, struct memo *memo)
{
        const size_t keys = key_count(b), values = (size_t)b->members;
        const bool kept = memo && b->links->folded && !b->plan.offload_activations;
        double *key = kept ? malloc(keys * sizeof *key) : NULL;
        const double *known = NULL;
        if (key) {
                describe_pipeline(b, key);
                known = memo_find(memo, key, keys);
        }
        const bool ended = known || !isnan(steady(b, min));
        if (known)
                memcpy(b->through, known, values * sizeof *known);
        else if (key && ended)
                memo_keep(memo, key, keys, b->through, values);
        free(key);
        return ended;
}

static double run_batch(struct batch *b, bool whole, struct paper_bound *bound, struct memo *memo)
{
        if (whole)
                return run(b, b->plan.micro_batches, 1).end;
        const double min = min_seconds(b);
        if (bound)
                bound->least = least_seconds(b);
        if (bound && bound->least > bound->limit)
                return bound->least;
        if (plan_logical(&b->plan) > 1) /* whose sums come between micro-batches */
                return run(b, b->plan.micro_batches, 1).end;
        join_updates(b, min);
        b->apart = is_apart(&b->plan);
        if (!b->apart)
                return steady(b, min);
        return run_pipeline(b, min, memo) ? run_after(b) : NAN;
}

/* `first`: the first replica stands for all; it costs no more than the slowest. */
static void price_members(struct batch *b, bool first)
{
        const int pp = b->plan.pp;
        for (int i = 0; i < b->members; i++)
                b->stages[i].tensor = &b->tensors[PASSES * b->plan.virtual_stages * i];
        if (b->links->folded && first)
                price_replica(b, 0, b->stages);
        else if (b->links->folded)
                choose_replica(b);
        for (int i = 0; !b->links->folded && i < b->plan.dp; i++)
                price_replica(b, i, &b->stages[i * pp]);
        for (int i = 0; i < b->members; i++)
                b->stages[i].update =
                        largest_update(&prices_of(b, plan_rank(&b->plan, 0, i % pp, 0))->stages[i % pp]);
}

double paper_plan_seconds(const struct options *o, const struct paper_links *links, bool whole,
                          struct paper_bound *bound, struct memo *memo)
{
        struct batch b = {.options = o, .links = links, .plan = options_plan(o, false), .joined = 1};
        const int pp = b.plan.pp;
        struct core_stage *parts = calloc((size_t)pp, sizeof *parts);
        double found = NAN;
        b.members = links->folded ? pp : pp * b.plan.dp;
        b.stages = calloc((size_t)b.members, sizeof *b.stages);
        b.tensors = calloc(PASSES * (size_t)(b.members * b.plan.virtual_stages), sizeof *b.tensors);
        b.through = calloc((size_t)b.members, sizeof *b.through);
        b.parts = parts;
        if (parts && b.stages && b.tensors && b.through) {
                for (int i = 0; i < pp; i++)
                        parts[i] = options_core_stage(o, i, 0);
                price_members(&b, bound && bound->limit <= 0);
                found = run_batch(&b, whole, bound, memo);
        }
        free(parts);
        free(b.stages);
        free(b.tensors);
        free(b.through);
        return found;
}
