/* Units of ZeRO-3 and ZeRO-2.
 *
 * ZeRO-3 (Rajbhandari et al. 2020), or FSDP: every replica has a share of each unit's weights and gradients,
 * and a forward or backward is a chain of units: the embedding, blocks (plan.unit_layers of them at once),
 * the head. A unit's weights are all-gathered into a buffer before it is computed; backward, its gradients
 * are made in a buffer, and reduced to their shares, scattered, when it has been computed.
 *
 * Weights are gathered up to plan.prefetch units ahead of the one that is computed, as buffers allow; none
 * ahead: when nothing is computed. What is still in a buffer is not gathered again: the last units of a
 * forward, as many as there are buffers, are there for its backward; and where weights stay for a micro-batch
 * or the batch every unit has a buffer of its own. A unit is freed after its backward, unless it stays for
 * the batch. An embedding's backward needs no weights. Behind a backward the weights of the next forward are
 * gathered ahead, if it is sure that one follows.
 *
 * A pass is over when its last unit has been computed: the gradients of its last units are reduced beside
 * what follows. Their buffers are two, so that a unit's work and the reduction of the one before overlap. The
 * first micro-batch's gradients begin as zeros, the next ones' with what the replica's share has by then: a
 * reduce-scatter then leaves the sum of all so far. Where weights stay for the batch gradients do, too, each
 * unit's in a buffer of its own, and are reduced in the last backward only. A tied head's gradients are the
 * embedding's, and stay from its backward to that one's.
 *
 * Gradients of 16 bits that are reduced in fp32 are widened into a buffer beside the unit's when its backward
 * is over, which leaves the unit's cleared, and what the replica's share has by then is added there.
 *
 * ZeRO-2 is this without the gathers: every unit's weights are in a buffer of their own, always, and only
 * gradients are shared. The optimizer gathers what it has updated (optimizer.c).
 *
 * Hybrid shards (HSDP): groups of plan.sharers replicas each share all of it, and gather and reduce among
 * themselves; replicas of different groups that have the same share of a unit sum it when it has been reduced
 * for the last time of the batch, on a lane of its own (optimizer.c).
 *
 * All collectives are issued when a unit's work begins or ends, never when another collective does, so their
 * order is the same on every replica, however long each takes. Replicas must go through their micro-batches
 * in the same order too; on the one stage that there is every policy has one.
 *
 * Offloaded parameters: a replica's share of a unit comes from host memory to its place in the unit's buffer
 * first, and is gathered in place. Fetches end in the order of their issue, so gathers keep theirs, and a
 * reduction waits for fetches that were asked for before its gradients were complete, as its place among the
 * collectives is behind their gathers. The next unit waits with it.
 *
 * Spread experts: replicas that have the same experts share those of a unit, and all replicas all else of it
 * (FSDP with experts on a mesh of their own). So a unit of them is gathered by two collectives, one issued
 * behind the other, and its gradients are reduced by two.
 *
 * With shards a unit is a chain of parts and collectives itself (tensor.c). What sequence parallel shards
 * have alike of a unit is summed in its buffer of gradients when it has been computed for the last time,
 * which is one more collective that the compute lane waits for; then it is reduced.
 *
 * If the plan's communication blocks, gradients are reduced before anything goes on: the next unit's weights
 * are asked for, and its work begins, after that. */
#include "runtime/sched/state.h"

#include "runtime/base/minmax.h"

#include <assert.h>
#include <string.h>

bool gather_planned(const struct plan *plan)
{
        return plan->zero >= 2;
}

/* ---- units ---- */

static int layers_of(const struct plan *plan)
{
        return plan->unit_layers > 1 ? plan->unit_layers : 1;
}

static bool has_embedding(const struct core_units *units)
{
        return units->embedding > 0;
}

struct core_unit_counts core_units_of(const struct plan *plan, const struct core_units *units)
{
        const int blocks = (units->blocks + layers_of(plan) - 1) / layers_of(plan);
        return (struct core_unit_counts){.blocks = blocks,
                                         .all = 1 + blocks + !units->tied,
                                         .parts = has_embedding(units) + blocks + (units->head > 0)};
}

/* Of what a unit's layers have, embedding, dense block, block and head, all together. */
static int64_t sum_of_layers(const struct plan *plan, const struct core_units *u, int unit,
                             const int64_t of[4])
{
        const int first = (unit - 1) * layers_of(plan), end = min_int(first + layers_of(plan), u->blocks),
                  dense = max_int(min_int(end, u->dense) - first, 0);
        if (unit == 0)
                return of[0] + (u->tied ? of[3] : 0);
        return first >= u->blocks ? of[3] : dense * of[1] + (end - first - dense) * of[2];
}

int64_t core_unit_parameters(const struct plan *plan, const struct core_units *u, int unit)
{
        return sum_of_layers(plan, u, unit,
                             (const int64_t[]){u->embedding, u->dense_block, u->block, u->head});
}

struct plan_range core_unit_sum(const struct plan *plan, const struct core_units *u, int unit)
{
        const int64_t begins[] = {u->sums.embedding.begin, u->sums.dense_block.begin, u->sums.block.begin,
                                  u->sums.head.begin},
                      counts[] = {u->sums.embedding.count, u->sums.dense_block.count, u->sums.block.count,
                                  u->sums.head.count};
        return (struct plan_range){sum_of_layers(plan, u, unit, begins),
                                   sum_of_layers(plan, u, unit, counts)};
}

/* Of a unit's parameters, those of spread experts. */
static int64_t experts_of(const struct plan *plan, const struct core_units *units, int unit)
{
        return sum_of_layers(plan, units, unit, (const int64_t[]){0, 0, units->experts, 0});
}

/* What a replica keeps of so many that are shared among a group. */
static int64_t share_among(const struct plan *plan, enum op_group group, int64_t count)
{
        const int sharers = plan_sharers(plan, group);
        return (count + sharers - 1) / sharers;
}

static int64_t share_of(const struct plan *plan, const struct core_units *units, int unit)
{
        const int64_t experts = experts_of(plan, units, unit);
        return share_among(plan, GROUP_EXPERT_DATA, experts) +
               share_among(plan, plan_unit_group(plan), core_unit_parameters(plan, units, unit) - experts);
}

int64_t core_unit_place(const struct plan *plan, const struct core_units *units, int unit)
{
        const int each = layers_of(plan), odd = (units->dense + each - 1) / each, full = units->blocks / each;
        int64_t place = 0;
        int at = 0;
        while (at < unit && at <= odd)
                place += share_of(plan, units, at++);
        if (at < unit && at <= full) { /* as large as this one */
                const int alike = min_int(unit, full + 1) - at;
                place += alike * share_of(plan, units, at);
                at += alike;
        }
        while (at < unit)
                place += share_of(plan, units, at++);
        return place;
}

int core_unit_parts(const struct plan *plan, const struct core_units *units, int unit,
                    struct core_unit_part parts[CORE_UNIT_PARTS])
{
        const int64_t all = core_unit_parameters(plan, units, unit), experts = experts_of(plan, units, unit),
                      place = core_unit_place(plan, units, unit);
        int count = 0;
        if (experts > 0)
                parts[count++] = (struct core_unit_part){GROUP_EXPERT_DATA, 0, experts, place};
        if (all > experts)
                parts[count++] =
                        (struct core_unit_part){plan_unit_group(plan), experts, all - experts,
                                                place + share_among(plan, GROUP_EXPERT_DATA, experts)};
        return count;
}

/* Whether gradients are whole until the last backward of the batch; and weights there between micro-batches.
 */
static bool gradients_stay(const struct plan *plan)
{
        return plan->gathered == GATHERED_FOR_BATCH;
}

static bool weights_stay(const struct plan *plan)
{
        return plan->zero == 2 || plan->gathered == GATHERED_FOR_BATCH;
}

struct core_gathers core_gathers(const struct plan *plan, const struct core_units *units)
{
        const int blocks = core_units_of(plan, units).blocks,
                  ends = has_embedding(units) + (units->head > 0 && !units->tied), turns = min_int(ends, 1);
        const int alternate = min_int(plan->blocking ? 1 : 2, blocks);
        const bool own = weights_stay(plan) || plan->gathered == GATHERED_FOR_MICRO_BATCH;
        return (struct core_gathers){.weights = {.ends = weights_stay(plan) ? ends : turns,
                                                 .blocks = own ? blocks : min_int(1 + plan->prefetch, blocks),
                                                 .own = own},
                                     .gradients = {.ends = gradients_stay(plan) ? ends : turns,
                                                   .blocks = gradients_stay(plan) ? blocks : alternate,
                                                   .own = gradients_stay(plan)}};
}

/* ---- the units of a pass ---- */

int core_unit_nth(const struct plan *plan, const struct core_units *units, int nth)
{
        return units->tied && nth == core_units_of(plan, units).parts - 1 ? 0 : nth + !has_embedding(units);
}

/* The unit that is the nth of the pass under way, or, behind a backward's last, of the next forward. */
static int unit_of(const struct core *core, int nth)
{
        const struct gather_state *g = &core->gather;
        const bool next = nth >= g->units;
        const int at = next ? nth - g->units : g->pass.kind == OP_FORWARD ? nth : g->units - 1 - nth;
        return core_unit_nth(&core->plan, &core->units, at);
}

static bool is_back_to_embedding(const struct core *core, int nth)
{
        return core->gather.pass.kind == OP_BACKWARD && nth == core->gather.units - 1 &&
               has_embedding(&core->units);
}

static bool needs_weights(const struct core *core, int nth)
{
        return !is_back_to_embedding(core, nth);
}

/* Whether the nth unit's gradients are to be reduced when it has been computed. */
static bool completes(const struct core *core, int nth)
{
        if (core->gather.pass.kind == OP_FORWARD || (core->units.tied && nth == 0))
                return false;
        return !gradients_stay(&core->plan) || core->backwards_started == core->plan.micro_batches;
}

/* ---- buffers ---- */

static int all_buffers(const struct core_unit_buffers *buffers)
{
        return buffers->ends + buffers->blocks;
}

/* The buffer that is a unit's own; -1: units of blocks take turns. */
static int own_buffer(const struct core *core, const struct core_unit_buffers *buffers, int unit)
{
        if (unit == 0 || unit > core_units_of(&core->plan, &core->units).blocks)
                return unit == 0 ? 0 : buffers->ends - 1;
        return buffers->own ? buffers->ends + unit - 1 : -1;
}

int gather_buffer(const struct core *core, int unit)
{
        return own_buffer(core, &core->gathers.weights, unit);
}

/* Where a unit's weights are, or are on their way to; -1: nowhere. */
static int buffer_with(struct core *core, int unit)
{
        const struct gathered *buffers = core_tables(core).gathered;
        for (int i = 0; i < all_buffers(&core->gathers.weights); i++)
                if (buffers[i].unit == unit + 1)
                        return i;
        return -1;
}

/* Where they may be gathered: an empty buffer, or the one with the unit that a backward would need last. */
static int buffer_for(struct core *core, int unit)
{
        const struct gathered *buffers = core_tables(core).gathered;
        const struct core_unit_buffers *weights = &core->gathers.weights;
        const int own = own_buffer(core, weights, unit);
        int found = -1;
        if (own >= 0)
                return own;
        for (int i = weights->ends; i < all_buffers(weights); i++)
                if (!buffers[i].needed && (found < 0 || buffers[i].unit < buffers[found].unit))
                        found = i;
        return found;
}

static bool is_reducing(struct core *core, int unit)
{
        const struct reduced *reduced = core_tables(core).reduced;
        for (int i = 0; i < all_buffers(&core->gathers.gradients); i++)
                if (reduced[i].unit == unit + 1)
                        return true;
        return false;
}

/* The buffer in which the nth unit of a backward may make its gradients; -1: none is free, or what an earlier
 * micro-batch adds to this replica's share is still to come: a network may end a later reduction first. */
static int buffer_to_reduce(struct core *core, int nth)
{
        const struct core_unit_buffers *gradients = &core->gathers.gradients;
        const int unit = unit_of(core, nth), own = own_buffer(core, gradients, unit);
        const struct reduced *reduced = core_tables(core).reduced;
        if (gradients_stay(&core->plan) || (core->units.tied && is_back_to_embedding(core, nth)))
                return own;
        if (own >= 0)
                return reduced[own].unit ? -1 : own;
        for (int i = gradients->ends; !is_reducing(core, unit) && i < all_buffers(gradients); i++)
                if (!reduced[i].unit)
                        return i;
        return -1;
}

/* ---- operations ---- */

static struct op part_of(const struct core *core, int nth)
{
        const struct gather_state *g = &core->gather;
        struct op op;
        memcpy(&op, &g->pass, sizeof op);
        op.range = nth;
        op.place = core_unit_place(&core->plan, &core->units, unit_of(core, nth));
        return op;
}

static int parts_of(const struct core *core, int unit)
{
        struct core_unit_part parts[CORE_UNIT_PARTS];
        return core_unit_parts(&core->plan, &core->units, unit, parts);
}

/* Of a part of the unit; returns whether another one follows. */
static bool make_collective(const struct core *core, struct op *op, enum op_kind kind, int unit, int part)
{
        struct core_unit_part parts[CORE_UNIT_PARTS];
        const int count = core_unit_parts(&core->plan, &core->units, unit, parts);
        op_become(op, kind);
        op->group = parts[part].group;
        op->offset = parts[part].offset;
        op->count = parts[part].count;
        op->place = parts[part].place;
        op->bytes = op->count *
                    (kind == OP_ALL_GATHER ? core->plan.element_bytes : plan_gradient_bytes(&core->plan));
        return part + 1 < count;
}

/* The gather before the nth unit: of this pass, or of the next forward. */
static struct op gather_of(const struct core *core, int nth)
{
        const int beyond = nth - core->gather.units;
        if (beyond < 0)
                return part_of(core, nth);
        struct op op = core_op_of_vmb(core, OP_FORWARD, core->forwards_started);
        op.range = beyond;
        op.place = core_unit_place(&core->plan, &core->units, unit_of(core, nth));
        return op;
}

/* Nothing is waited for but gradients, if these block. */
static bool held_up(const struct core *core)
{
        return core->plan.blocking && (core->gather.scattering > 0 || core->gather.reduces);
}

/* Whether the next weights may be asked for: of the pass, or, where no backward waits, of the next forward.
 */
static bool may_gather(const struct core *core)
{
        const struct gather_state *g = &core->gather;
        const bool back = g->pass.kind == OP_BACKWARD,
                   follows = back && core->plan.pp == 1 && core->arrivals == 0 &&
                             core->forwards_started < core->plan.micro_batches;
        const int nth = g->gathers, ahead = back && core->plan.blocking ? 0 : core->plan.prefetch;
        if (nth >= g->units && !(follows && nth < 2 * g->units))
                return false;
        return !held_up(core) && (ahead > 0 ? nth < g->begun + ahead : nth <= g->computed);
}

/* Makes a gather the fetch that it follows, if shares are in host memory. */
static void fetch_first(struct core *core, struct op *gather)
{
        if (!core->plan.offload_parameters)
                return;
        op_become(gather, OP_FETCH_WEIGHTS);
        gather->bytes = plan_own(&core->plan, gather->group, core->replica, gather->count).count *
                        core->plan.element_bytes;
        core->gather.fetching++;
}

/* And what follows it. */
static void gather_fetched(struct core *core, const struct op *fetch)
{
        struct gather_state *g = &core->gather;
        struct op *gather = core_continue(core, fetch);
        op_become(gather, OP_ALL_GATHER);
        gather->bytes = gather->count * core->plan.element_bytes;
        g->fetching--;
        g->behind -= g->behind > 0;
}

/* The gather of the next part of the unit that was asked for last, into a buffer. */
static void gather_part(struct core *core, int buffer, struct op *op)
{
        struct gather_state *g = &core->gather;
        const int nth = g->gathers - 1;
        *op = gather_of(core, nth);
        op->gathered = buffer;
        g->asked = make_collective(core, op, OP_ALL_GATHER, unit_of(core, nth), g->asked) ? g->asked + 1 : 0;
        fetch_first(core, op);
}

/* Goes past units whose weights are there or not needed, to the next gather. */
static bool next_gather(struct core *core, struct op *op)
{
        struct gather_state *g = &core->gather;
        struct gathered *buffers = core_tables(core).gathered;
        if (g->asked > 0) {
                gather_part(core, buffer_with(core, unit_of(core, g->gathers - 1)), op);
                return true;
        }
        for (; may_gather(core); g->gathers++) {
                const int unit = unit_of(core, g->gathers), there = buffer_with(core, unit);
                if (!needs_weights(core, g->gathers))
                        continue;
                const int at = there >= 0 ? there : buffer_for(core, unit);
                if (at < 0 || buffers[at].needed) /* of the unit before that computes with these */
                        return false;
                buffers[at].needed = 1;
                if (there >= 0)
                        continue;
                buffers[at].unit = unit + 1;
                buffers[at].there = 0;
                g->gathers++;
                gather_part(core, at, op);
                return true;
        }
        return false;
}

/* Gives the nth unit of a backward its buffer of gradients; returns whether there is one. */
static bool begin_gradients(struct core *core, int nth, struct op *op)
{
        const bool first = core->backwards_started == 1, batch = gradients_stay(&core->plan),
                   adds = core->units.tied && is_back_to_embedding(core, nth);
        op->reduced = buffer_to_reduce(core, nth);
        if (op->reduced < 0)
                return false;
        op->widens = core->plan.reduce_fp32 && completes(core, nth);
        op->loads = op->widens && !first;
        op->begins = core->plan.reduce_fp32 || adds || (batch && !first) ? GRADIENTS_ADD
                     : first                                             ? GRADIENTS_CLEAR
                                                                         : GRADIENTS_LOAD;
        const int unit = unit_of(core, nth);
        core_tables(core).reduced[op->reduced] = (struct reduced){unit + 1, parts_of(core, unit)};
        return true;
}

/* A unit that has its weights, and room for its gradients. */
static bool next_unit(struct core *core, struct op *op)
{
        struct gather_state *g = &core->gather;
        const int nth = g->begun, unit = unit_of(core, nth);
        if (nth == g->units || nth > g->computed || held_up(core) || g->reduces || g->gathers <= nth)
                return false;
        *op = part_of(core, nth);
        if (needs_weights(core, nth)) {
                op->gathered = buffer_with(core, unit);
                if (core_tables(core).gathered[op->gathered].there < parts_of(core, unit))
                        return false;
        }
        if (g->pass.kind == OP_BACKWARD && !begin_gradients(core, nth, op))
                return false;
        g->begun++;
        return true;
}

void gather_start(struct core *core)
{
        struct gathered *buffers = core_tables(core).gathered;
        const int units = core->plan.zero == 2 ? core_units_of(&core->plan, &core->units).all : 0;
        for (int unit = 0; unit < units; unit++)
                if (core_unit_parameters(&core->plan, &core->units, unit) > 0)
                        buffers[gather_buffer(core, unit)] = (struct gathered){.unit = unit + 1, .there = 1};
}

bool gather_begin(struct core *core, struct op *pass)
{
        struct gather_state *g = &core->gather;
        if (!gather_planned(&core->plan))
                return true;
        assert(g->units == 0 && (g->ahead == 0 || pass->kind == OP_FORWARD));
        memcpy(&g->pass, pass, sizeof *pass);
        g->units = core_units_of(&core->plan, &core->units).parts;
        g->gathers = g->ahead;
        g->ahead = 0;
        return gather_next(core, pass);
}

static void reduce_part(struct core *core, struct op *op)
{
        struct gather_state *g = &core->gather;
        const int unit = core_tables(core).reduced[g->reduce.reduced].unit - 1;
        memcpy(op, &g->reduce, sizeof *op);
        g->reduces = make_collective(core, op, OP_REDUCE_SCATTER, unit, g->issued);
        g->issued = g->reduces ? g->issued + 1 : 0;
        if (!g->reduces)
                memset(&g->reduce, 0, sizeof g->reduce); /* what is over leaves no trace */
        g->scattering++;
}

bool gather_next(struct core *core, struct op *op)
{
        struct gather_state *g = &core->gather;
        if (g->units > 0 && next_gather(core, op)) /* first what work waits for */
                return true;
        if (g->reduces && g->behind == 0) {
                reduce_part(core, op);
                return true;
        }
        return g->units > 0 && next_unit(core, op);
}

bool gather_idle(const struct core *core)
{
        return core->gather.scattering == 0 && !core->gather.reduces;
}

bool gather_reduced(struct core *core, int unit)
{
        const struct gather_state *g = &core->gather;
        const int at = unit - !has_embedding(&core->units);
        const bool past = g->units == 0 || g->computed > g->units - 1 - at;
        return core->backwards_started == core->plan.micro_batches && past && !is_reducing(core, unit);
}

/* ---- completions ---- */

static bool has(const struct core *core, const struct op *op)
{
        return gather_planned(&core->plan) && op_of_pass(op);
}

/* Whether what shards have alike of the unit that has been computed is to be summed before it is reduced: in
 * the last backward, with all that earlier micro-batches left in this replica's share. */
static bool sums_shards(const struct core *core)
{
        const int nth = core->gather.computed;
        return completes(core, nth) && core->backwards_started == core->plan.micro_batches &&
               core_unit_sum(&core->plan, &core->units, unit_of(core, nth)).count > 0;
}

static void sum_shards(struct core *core, const struct op *part)
{
        struct op *sum = core_continue(core, part);
        const struct plan_range alike =
                core_unit_sum(&core->plan, &core->units, unit_of(core, core->gather.computed));
        op_become(sum, OP_ALLREDUCE);
        sum->lane = LANE_TENSOR;
        sum->group = GROUP_TENSOR;
        sum->segment = 0;
        sum->offset = alike.begin;
        sum->count = alike.count;
        sum->bytes = alike.count * plan_gradient_bytes(&core->plan);
}

static void computed(struct core *core, const struct op *op)
{
        struct gather_state *g = &core->gather;
        const int nth = g->computed;
        g->computed++;
        if (op->gathered >= 0) {
                struct gathered *buffer = core_tables(core).gathered + op->gathered;
                buffer->needed = 0;
                if (g->pass.kind == OP_BACKWARD && !weights_stay(&core->plan))
                        buffer->unit = buffer->there = 0;
        }
        if (completes(core, nth)) {
                memcpy(&g->reduce, op, sizeof *op);
                g->reduce.gathered = -1;
                g->reduce.segment = 0;
                g->reduce.begins = GRADIENTS_ADD;
                g->reduce.widens = g->reduce.loads = false;
                g->reduces = true;
                g->behind = g->fetching;
        }
}

static bool goes_on(struct core *core, struct op *op)
{
        struct gather_state *g = &core->gather;
        if (op->kind == OP_FETCH_WEIGHTS) {
                gather_fetched(core, op);
                return true;
        }
        if (op->kind == OP_ALL_GATHER) {
                core_tables(core).gathered[op->gathered].there++;
                return true;
        }
        if (op->kind == OP_REDUCE_SCATTER) {
                struct reduced *reduced = core_tables(core).reduced + op->reduced;
                g->scattering--;
                if (--reduced->left == 0)
                        reduced->unit = 0;
                return true;
        }
        if (op->kind != OP_ALLREDUCE && sums_shards(core)) {
                sum_shards(core, op);
                return true;
        }
        computed(core, op);
        if (g->computed < g->units)
                return true;
        assert(g->asked == 0);
        memcpy(op, &g->pass, sizeof *op);
        memset(&g->pass, 0, sizeof g->pass); /* what is over leaves no trace */
        g->ahead = g->gathers - g->units;
        g->units = g->gathers = g->begun = g->computed = 0;
        return false;
}

const struct chain gather_chain = {has, goes_on};
