#include "sim/world/priced.h"

#include "sim/world/copies.h"
#include "sim/world/tensor.h"

#include <assert.h>
#include <math.h>
#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <stdlib.h>

/* A message begins when both ends have come to it. The payload is the virtual micro-batch's number. */
static bool begin_message(struct sim_lane *lane)
{
        struct sim_lane *opposite = sim_lane_opposite(lane);
        const bool sends = lane->lane == LANE_SEND_PREVIOUS || lane->lane == LANE_SEND_NEXT;
        struct sim_lane *sender = sends ? lane : opposite, *receiver = sends ? opposite : lane;
        if (!opposite->ready)
                return false;
        opposite->ready = false;
        opposite->busy = true;
        const struct plan *plan = &lane->rank->world->plan;
        core_set_vmb(plan, &receiver->now.op, core_message_vmb(plan, sender->rank->stage, &sender->now.op));
        sim_lane_flow(sender, sim_lane_host(sender), sim_lane_host(receiver), sender->now.op.bytes);
        return true;
}

/* Seconds of a collective of shards behind a part, looked up again only for another one. */
static double tensor_of(struct priced *priced, struct plan_group shards, const struct price_pass *pass,
                        int part)
{
        enum { KINDS = KERNEL_ENTRIES - KERNEL_KINDS };
        const struct kernel *collective = &pass->collectives[part];
        const int kind = (int)collective->kind - KERNEL_KINDS;
        struct priced_tensor *known =
                &priced->tensors[(shards.first / shards.size * KINDS + kind) % PRICED_TENSORS];
        if (known->size != shards.size || known->id != shards.first ||
            !kernel_same(&known->collective, collective)) {
                *known = (struct priced_tensor){
                        shards.size, shards.first, *collective,
                        tensor_part_seconds(&priced->costs->platform, shards, pass, part)};
        }
        return known->seconds;
}

/* ---- collectives that all members begin at once, when the last of them has come ---- */

static struct sim_lane *member_lane(const struct sim_lane *lane, const struct sim_group *group, int member)
{
        return sim_find(lane->rank->world, sim_group_member(group, member))->lanes[lane->lane];
}

/* How many members of a group are simulated. */
static int simulated(const struct sim_group *group)
{
        return group->twins ? 1 : group->ranks.size;
}

/* Whether all have come; from then on they are busy. It is looked first for the next one, since members come
 * in their order. */
static bool all_came(const struct sim_lane *lane, const struct sim_group *group)
{
        const int size = group->ranks.size;
        for (int i = 1; i < simulated(group); i++)
                if (!member_lane(lane, group, (group->ranks.index + i) % size)->ready)
                        return false;
        for (int i = 0; i < simulated(group); i++) {
                struct sim_lane *other = member_lane(lane, group, i);
                other->ready = false;
                other->busy = true;
        }
        return true;
}

static void end_all(struct priced *priced, const struct sim_lane *lane, const struct sim_group *group,
                    double seconds)
{
        for (int i = 0; i < simulated(group); i++)
                crowd_begin(&priced->crowd, member_lane(lane, group, i), 1, seconds);
}

/* ---- shards, and replicas that share experts or sequences ---- */

/* Of members that are copies of one: all that it sends inside its node is one flow, and all that leaves it.
 */
static void exchange_with_twins(const struct priced *priced, struct sim_exchange *exchange,
                                const struct collective_exchange *costs, double each)
{
        const struct plan_group members = exchange->group.ranks;
        const struct collective_group gpus = {members.first, members.stride, members.size, 1};
        const struct collective_shape shape = collective_shape(&priced->costs->platform, &gpus);
        const int near = (shape.nodes > 1 ? shape.per_node : members.size) - 1, far = members.size - 1 - near;
        /* As many flows as there are, where gathers of layers share the links with them flow by flow. */
        const bool beside = exchange->world->plan.zero == 3;
        for (int i = 0; i < (beside ? near : near > 0); i++)
                sim_exchange_flow_to_twins(exchange, false,
                                           costs->near_per_byte * (beside ? each : near * each));
        for (int i = 0; i < (beside ? far : far > 0); i++)
                sim_exchange_flow_to_twins(exchange, true,
                                           costs->far_per_byte * (beside ? each : far * each));
}

/* An exchange inside a pass, of which the caller adds the flows. */
static struct sim_exchange *new_exchange(const struct sim_rank *rank, const struct sim_group *group,
                                         double seconds)
{
        struct sim_exchange *exchange = malloc(sizeof *exchange);
        if (!exchange)
                abort(); /* a driver cannot fail */
        *exchange = (struct sim_exchange){.subject = SIM_EXCHANGE,
                                          .world = rank->world,
                                          .group = *group,
                                          .lane = LANE_TENSOR,
                                          .seconds = seconds};
        return exchange;
}

static bool are_of_one_node(const struct priced *priced, const struct sim_group *group, int i, int j)
{
        const struct platform *platform = &priced->costs->platform;
        const int first = group->ranks.first, stride = group->ranks.stride;
        return platform_place(platform, first + i * stride).node ==
               platform_place(platform, first + j * stride).node;
}

/* Rows of experts to and from every member: flows of as many bytes as go to the experts that it has. */
static void begin_exchange(const struct priced *priced, const struct sim_rank *rank,
                           const struct sim_group *group, const struct op *op)
{
        const struct price_list *prices = &priced->costs->prices;
        const struct price_behind at = price_behind(prices, rank->stage, op);
        const struct kernel *kernel = &at.pass->collectives[at.part];
        const struct collective_exchange costs =
                tensor_exchange(&priced->costs->platform, group->ranks, kernel);
        struct sim_exchange *exchange = new_exchange(rank, group, costs.start_seconds);
        const double even = (double)kernel_collective_bytes(kernel, sizeof(float)) / group->ranks.size;
        if (group->twins) {
                exchange_with_twins(priced, exchange, &costs, even);
                return;
        }
        for (int i = 0; i < group->ranks.size; i++)
                for (int j = 0; j < group->ranks.size; j++) {
                        const bool counts = kernel->kind == KERNEL_EXPERT_COUNTS;
                        const int experts = kernel->kind == KERNEL_EXPERT_COMBINE ? i : j;
                        const double load = counts ? 1 : price_load(prices, rank->stage, op, experts);
                        if (i != j)
                                sim_exchange_flow(exchange, i, j,
                                                  even * load *
                                                          (are_of_one_node(priced, group, i, j)
                                                                   ? costs.near_per_byte
                                                                   : costs.far_per_byte));
                }
}

/* What ranks that have parts of sequences send to the next, and get from the one before: a flow each. */
static void begin_shift(const struct priced *priced, const struct sim_rank *rank,
                        const struct sim_group *group, const struct kernel *kernel)
{
        struct sim_exchange *exchange = new_exchange(
                rank, group, tensor_exchange(&priced->costs->platform, group->ranks, kernel).start_seconds);
        const double bytes = (double)kernel_collective_bytes(kernel, sizeof(float));
        if (group->twins) { /* all send inside their nodes, or all to others (fold.c) */
                const struct collective_group gpus = {group->ranks.first, group->ranks.stride,
                                                      group->ranks.size, 1};
                const struct collective_shape shape = collective_shape(&priced->costs->platform, &gpus);
                sim_exchange_flow_to_twins(exchange, shape.nodes > 1, bytes);
                return;
        }
        for (int i = 0; i < group->ranks.size; i++)
                sim_exchange_flow(exchange, i, (i + 1) % group->ranks.size, bytes);
}

/* Those over the same links, inside nodes or between them, take turns. */
static void end_in_turn(struct priced *priced, struct sim_lane *lane, const struct sim_group *group, bool far,
                        double seconds)
{
        double begin = lane->rank->world->now;
        for (int i = 0; i < simulated(group); i++)
                begin = fmax(begin, member_lane(lane, group, i)->rank->links_free[far]);
        for (int i = 0; i < simulated(group); i++) {
                struct sim_lane *member = member_lane(lane, group, i);
                member->rank->links_free[far] = begin + seconds;
                crowd_begin(&priced->crowd, member, 1, begin + seconds - lane->rank->world->now);
        }
}

/* A collective of shards begins when the last of them has come to it, and takes the closed form: there are
 * thousands a batch, one after another, or, along an axis of a grid each, in turns, on links that nothing
 * else uses meanwhile. So does one of spread experts begin, whose links others use too. */
static bool begin_tensor(struct priced *priced, struct sim_lane *lane)
{
        const struct sim_rank *rank = lane->rank;
        struct op *op = &lane->now.op;
        const struct sim_group group = sim_group_of(rank, op->group);
        op->more = true; /* a part follows, an empty one behind the last */
        if (!all_came(lane, &group))
                return false;
        if (op->group == GROUP_EXPERTS) {
                begin_exchange(priced, rank, &group, op);
                return true;
        }
        const struct price_behind at = price_behind(&priced->costs->prices, rank->stage, op);
        if (at.pass->collectives[at.part].kind == KERNEL_CONTEXT_SHIFT) {
                begin_shift(priced, rank, &group, &at.pass->collectives[at.part]);
                return true;
        }
        end_in_turn(priced, lane, &group, tensor_leaves_node(&priced->costs->platform, group.ranks),
                    tensor_of(priced, group.ranks, at.pass, at.part));
        return true;
}

/* What the first shard has decided is known to all, itself too, after a message. */
static bool begin_decision(struct priced *priced, struct sim_lane *lane)
{
        const struct sim_rank *rank = lane->rank;
        const struct plan *plan = &rank->world->plan;
        const struct sim_group shards = sim_group_of(rank, GROUP_TENSOR);
        if (!all_came(lane, &shards))
                return false;
        const int number = core_decision_number(plan, &member_lane(lane, &shards, 0)->now.op);
        for (int i = 0; i < simulated(&shards); i++)
                core_set_decision(plan, &member_lane(lane, &shards, i)->now.op, number);
        end_all(priced, lane, &shards,
                tensor_decision_seconds(&priced->costs->platform, shards.ranks, lane->now.op.bytes));
        return true;
}

/* How a group lies on the platform, looked up again only for another one. Replicas of all stages sum their
 * gradients at about the same time. */
static struct priced_shape *shape_of(struct priced *priced, const struct sim_group *group)
{
        struct priced_shape *known = &priced->shapes[group->kind][group->ranks.first % PRICED_SHAPES];
        if (!known->shape.size || known->id != group->ranks.first) {
                const struct collective_group gpus = costs_group(priced->costs, group->ranks, group->kind);
                known->id = group->ranks.first;
                known->bytes = -1;
                known->shape = collective_shape(&priced->costs->platform, &gpus);
        }
        return known;
}

static void run_collective(struct priced *priced, struct sim_lane *lane, const struct sim_group *group)
{
        const struct op *op = &lane->now.op;
        const enum dtype dtype = costs_format(priced->costs, op);
        const enum collective_kind kind = costs_collective(op);
        struct priced_shape *known = shape_of(priced, group);
        if (known->bytes != op->bytes || known->kind != kind || known->dtype != dtype) {
                known->kind = kind;
                known->dtype = dtype;
                known->bytes = op->bytes;
                known->costs =
                        collective_choose(&priced->costs->platform, &known->shape, kind, op->bytes, dtype);
        }
        const struct collective_shape shape = known->shape; /* another group may take its place meanwhile */
        const struct collective_costs costs = known->costs;
        collective_run(group, &shape, &costs, kind, op->bytes);
        const int processors = priced->crowd.processors;
        if (processors > 0 && shape.size > processors) /* what members copy and sum is work of these too */
                sg_actor_sleep_for(collective_estimate(&shape, &costs, kind, op->bytes) *
                                   ((double)shape.size / processors - 1));
}

/* ---- units of ZeRO-3 ---- */

/* The entry of a unit's collective, a new one if there is none; NULL if there is no room. */
static struct priced_unit *unit_of(struct priced *priced, const struct sim_lane *lane,
                                   const struct sim_group *group)
{
        const struct op *op = &lane->now.op;
        for (int i = 0; i < priced->unit_count; i++) {
                struct priced_unit *unit = &priced->units[i];
                if (unit->kind == op->kind && unit->group == group->kind && unit->bytes == op->bytes &&
                    unit->first == group->ranks.first)
                        return unit;
        }
        if (priced->unit_count == PRICED_UNITS)
                return NULL;
        struct priced_unit *unit = &priced->units[priced->unit_count++];
        *unit = (struct priced_unit){.kind = op->kind,
                                     .group = group->kind,
                                     .first = group->ranks.first,
                                     .bytes = op->bytes,
                                     .collective = lane->now.collective,
                                     .seconds = NAN};
        return unit;
}

/* What shards have alike of a unit is summed by the closed form, as their other collectives are. */
static bool begin_shard_sum(struct priced *priced, struct sim_lane *lane)
{
        const struct sim_group group = sim_group_of(lane->rank, lane->now.op.group);
        const struct collective_group gpus = costs_group(priced->costs, group.ranks, group.kind);
        if (!all_came(lane, &group))
                return false;
        end_all(priced, lane, &group,
                tensor_sum_seconds(&priced->costs->platform, &gpus, lane->now.op.bytes,
                                   costs_format(priced->costs, &lane->now.op)));
        return true;
}

/* Whether nothing crosses a link but collectives of replicas that all do the same: no messages, and no copies
 * but those of tokens. */
static bool has_links_alone(const struct plan *plan)
{
        return plan->pp == 1 && plan->tp == 1 && plan->cp <= 1 && plan->ep <= 1 &&
               !plan_buffers_updates(plan) && !plan->offload_activations && !plan->stage_allreduce;
}

/* Members that come to a collective while the first of its kind is under way wait until that is over: it
 * could not end before the last of them had left that one. */
static bool begin_unit(struct priced *priced, struct sim_lane *lane)
{
        const struct sim_group group = sim_group_of(lane->rank, lane->now.op.group);
        double seconds = tensor_line_seconds(&priced->costs->platform, group.ranks,
                                             priced->costs->machine->load, lane->now.op.bytes);
        if (isnan(seconds) && has_links_alone(&lane->rank->world->plan)) {
                const struct priced_unit *unit = unit_of(priced, lane, &group);
                if (unit && isnan(unit->seconds) && unit->collective != lane->now.collective)
                        return false;
                seconds = unit ? unit->seconds : NAN;
        }
        if (isnan(seconds)) {
                sim_lane_collect(lane);
                return true;
        }
        if (!all_came(lane, &group))
                return false;
        end_all(priced, lane, &group, seconds);
        return true;
}

/* The first of its kind is over for a member. */
static void note_unit(struct priced_unit *unit, struct sim_lane *lane, const struct sim_group *group,
                      double began)
{
        unit->began = fmax(unit->began, began);
        if (++unit->ended < simulated(group))
                return;
        unit->seconds = simgrid_get_clock() - unit->began;
        for (int i = 0; i < simulated(group); i++)
                sim_lane_mark(member_lane(lane, group, i));
}

/* In the lane's actor. */
static void collect(void *context, struct sim_lane *lane)
{
        struct priced *priced = context;
        const struct sim_group group = sim_group_of(lane->rank, lane->now.op.group);
        const double began = simgrid_get_clock();
        run_collective(priced, lane, &group);
        if (!op_of_pass(&lane->now.op) || !has_links_alone(&lane->rank->world->plan))
                return;
        struct priced_unit *unit = unit_of(priced, lane, &group);
        if (unit && unit->collective == lane->now.collective)
                note_unit(unit, lane, &group, began);
}

/* ---- scalars ---- */

static double gate_seconds(struct priced *priced, const struct sim_lane *lane)
{
        const struct op *op = &lane->now.op;
        const struct plan_group all = plan_group(&lane->rank->world->plan, lane->rank->rank, GROUP_WORLD);
        const struct collective_group gpus = costs_group(priced->costs, all, GROUP_WORLD);
        return collective_seconds(&priced->costs->platform, &gpus, COLLECTIVE_ALLREDUCE, op->bytes,
                                  DTYPE_FP32);
}

/* What is between all ranks and takes its closed form from when the last of them has come: the few bytes that
 * all agree on. As messages, with
 * partners that differ from replica to replica, these would shift the replicas' other messages against each
 * other by microseconds, and so, where links are full, all that follows by a few thousandths of an
 * all-reduce. */
static void pass_gate(struct priced *priced, struct sim_lane *lane)
{
        struct sim_world *world = lane->rank->world;
        if (++world->at_gate[lane->lane] < world->ranks)
                return;
        const double seconds = gate_seconds(priced, lane);
        world->at_gate[lane->lane] = 0;
        for (int i = 0; i < world->ranks; i++)
                sim_lane_ends(world->rank[i].lanes[lane->lane], world->now + seconds);
}

static void copy_both_ways(struct sim_lane *lane, double alone, double both)
{
        struct host_link *link = &lane->rank->host_link;
        const enum host_link_way way = host_link_way_of(lane->lane), back = host_link_back(way);
        host_link_begin(link, way, lane->rank->world->now, alone, both);
        sim_lane_ends(lane, host_link_end(link, way));
        if (link->copies[back].copying)
                sim_lane_ends(lane->rank->lanes[back == HOST_LINK_TO_HOST ? LANE_DEVICE_TO_HOST
                                                                          : LANE_HOST_TO_DEVICE],
                              host_link_end(link, back));
}

static struct crowd *lanes_of(const struct priced *priced, const struct sim_lane *lane)
{
        return &priced->lanes[lane->rank - lane->rank->world->rank];
}

/* Begins an operation of a lane that shares the rank's processors with the others. Those of an offloaded
 * optimizer phase were measured while all three lanes were at work: alone they take their part of that, but a
 * copy no less than one that was measured alone. */
static void begin_on_lane(struct priced *priced, struct sim_lane *lane, double seconds)
{
        const struct profile_load *measured = priced->costs->platform.copies;
        const struct op *op = &lane->now.op;
        const int mine = priced->costs->platform.lane_processors, copies = 2;
        if (op->kind == OP_FETCH || op->kind == OP_UPDATE || op->kind == OP_WRITE_BACK)
                seconds *= (double)mine / (mine + copies);
        if (op->kind == OP_FETCH || op->kind == OP_WRITE_BACK)
                seconds =
                        fmax(seconds,
                             profile_line_seconds(measured, op->kind == OP_FETCH ? LINE_COPY : LINE_COPY_BACK,
                                                  op->bytes, priced->costs->machine->fits_only));
        crowd_begin(lanes_of(priced, lane), lane, lane->lane == LANE_COMPUTE ? mine : 1, seconds);
}

static void copy_measured(struct priced *priced, struct sim_lane *lane, const struct op *op)
{
        const double alone =
                copies_seconds(&priced->costs->platform, op, priced->costs->machine->fits_only, false);
        if (priced->lanes && (op->kind == OP_FETCH || op->kind == OP_WRITE_BACK))
                begin_on_lane(priced, lane, alone);
        else if (priced->costs->platform.copies->lines[LINE_COPY_BOTH].fit.present)
                copy_both_ways(lane, alone,
                               copies_seconds(&priced->costs->platform, op, priced->costs->machine->fits_only,
                                              true));
        else
                sim_lane_ends(lane, lane->rank->world->now + alone);
}

/* What the ranks of a node write together goes to one disk, or over one link to it. */
static void write_file(struct priced *priced, struct sim_lane *lane)
{
        const struct file_seconds file =
                copies_file_seconds(&priced->costs->platform, &lane->rank->world->plan, lane->rank->rank,
                                    lane->now.op.bytes, priced->costs->machine->fits_only);
        /* A kernel ends when the last of its threads does, whichever has less of its processor. */
        const int threads = priced->lanes ? priced->costs->platform.lane_processors : 1;
        if (file.work > 0)
                crowd_begin(priced->lanes ? lanes_of(priced, lane) : &priced->crowd, lane,
                            threads * file.work / file.all, file.all);
        else
                sim_lane_ends(lane, lane->rank->world->now + file.all);
}

/* Between host and device: as it was measured, or a flow over the links between them. */
static void copy(struct priced *priced, struct sim_lane *lane, const struct op *op)
{
        const struct network_place *place = &lane->rank->place;
        if (priced->costs->platform.copies)
                copy_measured(priced, lane, op);
        else if (place->memory && lane->lane == LANE_HOST_TO_DEVICE)
                sim_lane_flow(lane, place->memory, place->device, op->bytes);
        else if (place->memory)
                sim_lane_flow(lane, place->device, place->memory, op->bytes);
        else
                sim_lane_ends(lane, lane->rank->world->now);
}

/* What the rank's share of experts' rows adds to a part. */
static double imbalance(const struct price_list *prices, const struct sim_rank *rank, const struct op *op)
{
        if (!prices->loads || op->count > 0)
                return 0;
        const int member = plan_group(&rank->world->plan, rank->rank, GROUP_EXPERTS).index;
        return price_imbalance(prices, rank->stage, op, price_load(prices, rank->stage, op, member));
}

/* Until the host has launched all of an operation's kernels. */
static double unlaunched(const struct price_list *prices, struct sim_rank *rank, const struct op *op)
{
        const double now = rank->world->now, launched = price_launched(prices, rank->stage, op);
        if (op->segment == 0)
                rank->pass_began = now;
        return rank->pass_began + launched - now;
}

/* Says of a part of a forward or backward whether another follows, and how far a range brings gradients. */
static void compute(struct priced *priced, const struct price_list *prices, struct sim_lane *lane)
{
        struct op *op = &lane->now.op;
        const int stage = lane->rank->stage;
        const bool pass = op->kind == OP_FORWARD || op->kind == OP_BACKWARD;
        const double seconds =
                fmax(price_operation(prices, stage, op) + (pass ? imbalance(prices, lane->rank, op) : 0),
                     unlaunched(prices, lane->rank, op));
        if (priced->lanes)
                begin_on_lane(priced, lane, seconds);
        else
                crowd_begin(&priced->crowd, lane, 1, seconds);
        op->more = false;
        if (!pass)
                return;
        price_widen(prices, stage, op);
        const struct price_behind behind = price_behind(prices, stage, op);
        op->more = behind.pass != NULL;
        if (op->more) {
                const struct kernel *collective = &behind.pass->collectives[behind.part];
                op->group = price_group(collective->kind);
                op->beside = collective->beside;
                op->joins = kernel_joins(collective->kind);
                op->left = collective->left;
        }
}

static bool begin(void *context, struct sim_lane *lane)
{
        struct priced *priced = context;
        const struct op *op = &lane->now.op;
        const double now = lane->rank->world->now;
        if (op_copies(op->kind)) {
                copy(priced, lane, op);
                return true;
        }
        if (op->kind == OP_REDUCE_SCALARS)
                lane->now.op.more = lane->rank->done == lane->rank->world->saves;
        switch (op->kind) {
        case OP_SEND_ACTIVATION:
        case OP_SEND_GRADIENT:
        case OP_RECEIVE_ACTIVATION:
        case OP_RECEIVE_GRADIENT:
                return begin_message(lane);
        case OP_WRITE:
                write_file(priced, lane);
                return true;
        case OP_ALLREDUCE:
        case OP_REDUCE_SCATTER:
        case OP_ALL_GATHER:
        case OP_REDUCE_SCALARS:
        case OP_REDUCE_OVERFLOW: /* there is none: op.overflow stays false */
                if (op->group == GROUP_WORLD &&
                    !priced->costs->platform.xml[0]) /* whose links are not ours to read */
                        pass_gate(priced, lane);
                else if (sim_group_of(lane->rank, op->group).ranks.size == 1)
                        sim_lane_ends(lane, now);
                else if (op->lane == LANE_TENSOR)
                        return begin_shard_sum(priced, lane);
                else if (op_of_pass(op))
                        return begin_unit(priced, lane);
                else
                        sim_lane_collect(lane);
                return true;
        case OP_TENSOR:
                return begin_tensor(priced, lane);
        case OP_DECISION:
                return begin_decision(priced, lane);
        default:
                assert(lane->lane == LANE_COMPUTE);
                compute(priced, costs_prices(priced->costs, lane->rank->rank), lane);
                return true;
        }
}

static void ended(void *context, struct sim_lane *lane)
{
        struct priced *priced = context;
        crowd_end(&priced->crowd, lane);
        if (priced->lanes)
                crowd_end(lanes_of(priced, lane), lane);
}

struct sim_physics priced_physics(struct priced *priced)
{
        return (struct sim_physics){.begin = begin, .ended = ended, .collect = collect, .context = priced};
}

int priced_init(struct priced *priced, const struct costs *costs, const struct options *options, int ranks,
                bool saves, struct rv_error_info *err)
{
        const struct platform *platform = &costs->platform;
        *priced = (struct priced){.costs = costs,
                                  .dtype = options->dtype,
                                  .ranks = ranks,
                                  .crowd = {.processors = platform->processors,
                                            .ranks = platform->gpus_per_node,
                                            .waiting = platform->waiting}};
        if (!(options->offload || saves) || platform->lane_processors == 0)
                return RV_OK;
        priced->lanes = calloc((size_t)ranks, sizeof *priced->lanes);
        if (!priced->lanes)
                return rv_fail(err, RV_ESYSTEM, "no memory for the processors of %d ranks", ranks);
        for (int i = 0; i < ranks; i++)
                priced->lanes[i].processors = platform->lane_processors;
        return RV_OK;
}

void priced_free(struct priced *priced)
{
        for (int i = 0; priced->lanes && i < priced->ranks; i++)
                crowd_free(&priced->lanes[i]);
        free(priced->lanes);
        crowd_free(&priced->crowd);
}
