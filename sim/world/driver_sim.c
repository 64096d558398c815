#include "sim/world/driver_sim.h"

#include "sim/world/flow.h"

#include <assert.h>
#include <math.h>
#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <stdlib.h>

/* ---- queues ---- */

static void push(struct sim_lane *lane, const struct sim_op *op)
{
        if (lane->count == lane->capacity) {
                unsigned old = lane->capacity, new = old ? 2 * old : 2;
                struct sim_op *grown = malloc(new * sizeof *grown);
                if (!grown)
                        abort(); /* a driver cannot fail */
                for (unsigned i = 0; i < old; i++)
                        grown[i] = lane->queue[(lane->head + i) & (old - 1)];
                free(lane->queue);
                lane->queue = grown;
                lane->capacity = new;
                lane->head = 0;
        }
        lane->queue[(lane->head + lane->count++) & (lane->capacity - 1)] = *op;
}

static struct sim_op pop(struct sim_lane *lane)
{
        struct sim_op op = lane->queue[lane->head];
        lane->head = (lane->head + 1) & (lane->capacity - 1);
        lane->count--;
        return op;
}

/* ---- moments ---- */

static void note(struct sim_world *world, double seconds, void *what, unsigned serial)
{
        agenda_note(&world->agenda, seconds, what, serial);
        if (seconds < world->alarm) {
                world->alarm = seconds;
                flow_alarm(seconds);
        }
}

void sim_lane_mark(struct sim_lane *lane)
{
        struct sim_world *world = lane->rank->world;
        if (lane->marked)
                return;
        assert(world->marked_count < world->marked_capacity); /* room for every lane */
        lane->marked = true;
        world->marked[world->marked_count++] = lane;
}

/* A moment that has passed by less than the clock's precision is now. */
void sim_lane_ends(struct sim_lane *lane, double seconds)
{
        const double now = lane->rank->world->now;
        note(lane->rank->world, seconds > now ? seconds : now, lane, ++lane->serial);
}

/* ---- the driver's two functions ---- */

static void sim_issue(void *context, const struct op *op)
{
        struct sim_rank *rank = context;
        struct sim_world *world = rank->world;
        struct sim_lane *lane = rank->lanes[op->lane];
        assert(lane);
        struct sim_op queued = {.op = *op, .issued = world->now};
        if (sim_lane_collects(op->lane))
                queued.collective = rank->collectives[op->group]++;
        world->operations++;
        if (world->physics.issued)
                world->physics.issued(world->physics.context, rank, &queued);
        push(lane, &queued);
        sim_lane_mark(lane);
}

static double sim_now(void *context)
{
        const struct sim_rank *rank = context;
        return rank->world->now;
}

/* ---- lanes ---- */

static bool finished(const struct sim_rank *rank)
{
        return rank->done == rank->world->batches;
}

/* An operation that ends on its own. */
struct loose_op {
        enum sim_subject subject; /* first: SIM_OPERATION_ENDS */
        struct sim_rank *rank;
        struct op op;
};

static void let_loose(struct sim_lane *lane)
{
        struct sim_world *world = lane->rank->world;
        struct loose_op *loose = malloc(sizeof *loose);
        if (!loose)
                abort(); /* a driver cannot fail */
        *loose = (struct loose_op){SIM_OPERATION_ENDS, lane->rank, lane->now.op};
        note(world, fmax(lane->now.ends, world->now), loose, 0);
}

/* Begins what the lane can begin. */
static void look_at(struct sim_lane *lane)
{
        const struct sim_physics *physics = &lane->rank->world->physics;
        while (!lane->busy && (lane->ready || lane->count > 0)) {
                if (!lane->ready)
                        lane->now = pop(lane);
                lane->ready = true;
                if (!physics->begin(physics->context, lane))
                        return;
                lane->ready = false;
                if (physics->overlaps)
                        let_loose(lane);
                else
                        lane->busy = true;
        }
}

static void look_at_marked(struct sim_world *world)
{
        while (world->marked_count > 0) {
                struct sim_lane *lane = world->marked[--world->marked_count];
                lane->marked = false;
                look_at(lane);
        }
}

/* A batch is complete on this rank: keeps its times and begins the next one, or lets its actors end. */
static void end_batch(struct sim_rank *rank)
{
        const int64_t index = rank - rank->world->rank;
        rank->world->times[(int64_t)rank->done++ * rank->world->ranks + index] = engine_times(&rank->engine);
        if (!finished(rank)) {
                engine_start(&rank->engine);
                return;
        }
        for (int i = 0; i < LANES; i++)
                if (rank->lanes[i] && rank->lanes[i]->actor)
                        sg_actor_resume(rank->lanes[i]->actor);
}

/* By the work that there is most of. */
static void show_progress(struct sim_world *world)
{
        enum { SELDOM = 4096 };
        if (++world->backwards % SELDOM)
                return;
        const double all = (double)world->ranks * world->batches * plan_vmbs(&world->plan);
        progress_show(&world->progress, fmin(1, (double)world->backwards / all), "simulating");
}

static void complete(struct sim_rank *rank, const struct op *done)
{
        if (rank->world->shows && done->kind == OP_BACKWARD)
                show_progress(rank->world);
        engine_complete(&rank->engine, done);
        if (engine_done(&rank->engine) && !finished(rank)) /* a write may outlast the last batch */
                end_batch(rank);
}

/* The operation under way on a lane is over. */
static void lane_ended(struct sim_lane *lane)
{
        const struct sim_physics *physics = &lane->rank->world->physics;
        lane->busy = false;
        if (physics->ended)
                physics->ended(physics->context, lane);
        if (lane->count > 0)
                sim_lane_mark(lane);
        const struct op done = lane->now.op; /* the next one may begin meanwhile */
        complete(lane->rank, &done);
        look_at_marked(lane->rank->world);
}

/* ---- what SimGrid tells ---- */

static void happen(struct sim_world *world, const struct agenda_entry *entry)
{
        switch (*(enum sim_subject *)entry->what) {
        case SIM_RANK_STARTS: {
                struct sim_rank *rank = entry->what;
                engine_start(&rank->engine);
                break;
        }
        case SIM_LANE_ENDS: {
                struct sim_lane *lane = entry->what;
                if (entry->serial == lane->serial)
                        lane_ended(lane);
                break;
        }
        default: {
                struct loose_op *loose = entry->what;
                complete(loose->rank, &loose->op);
                free(loose);
        }
        }
        look_at_marked(world);
}

static void alarm_rings(void *context)
{
        struct sim_world *world = context;
        struct agenda_entry entry;
        world->now = flow_now();
        world->alarm = INFINITY;
        while (agenda_take(&world->agenda, world->now, &entry))
                happen(world, &entry);
        if (world->agenda.count > 0 && world->agenda.heap[0].seconds < world->alarm) {
                world->alarm = world->agenda.heap[0].seconds;
                flow_alarm(world->alarm);
        }
}

/* Of an exchange: when the last of its flows is over, it ends on all members' lanes. */
static void exchange_over(struct sim_exchange *exchange)
{
        const struct sim_exchange over = *exchange;
        if (--exchange->flows > 0)
                return;
        free(exchange);
        for (int i = 0; i < over.group.ranks.size; i++)
                sim_lane_ends(sim_find(over.world, sim_group_member(&over.group, i))->lanes[over.lane],
                              over.world->now + over.seconds);
}

/* A message ends on both sides, a copy on its own. */
static void flow_over(void *context, void *what)
{
        struct sim_world *world = context;
        world->now = flow_now();
        if (*(enum sim_subject *)what == SIM_EXCHANGE) {
                exchange_over(what);
                return;
        }
        struct sim_lane *lane = what, *opposite = sim_lane_opposite(lane);
        lane_ended(lane);
        if (opposite)
                lane_ended(opposite);
}

/* ---- collectives ---- */

static void lane_actor(int argc, char **argv)
{
        (void)argc, (void)argv;
        struct sim_lane *lane = sg_actor_self_get_data();
        struct sim_world *world = lane->rank->world;
        while (!finished(lane->rank)) {
                world->physics.collect(world->physics.context, lane);
                note(world, simgrid_get_clock(), lane, ++lane->serial);
                sg_actor_suspend(sg_actor_self());
        }
}

void sim_lane_collect(struct sim_lane *lane)
{
        if (lane->actor) {
                sg_actor_resume(lane->actor);
                return;
        }
        lane->actor = sg_actor_init(op_lane_name(lane->lane), sim_lane_host(lane));
        sg_actor_set_data(lane->actor, lane);
        sg_actor_start_(lane->actor, lane_actor, 0, NULL);
}

void sim_lane_flow(struct sim_lane *lane, sg_host_t from, sg_host_t to, int64_t bytes)
{
        flow_start(from, to, (double)bytes, lane);
}

void sim_exchange_flow(struct sim_exchange *exchange, int from, int to, double bytes)
{
        const struct sim_lane *ends[] = {
                sim_find(exchange->world, sim_group_member(&exchange->group, from))->lanes[exchange->lane],
                sim_find(exchange->world, sim_group_member(&exchange->group, to))->lanes[exchange->lane]};
        exchange->flows++;
        flow_start(sim_lane_host(ends[0]), sim_lane_host(ends[1]), bytes, exchange);
}

void sim_exchange_flow_to_twins(struct sim_exchange *exchange, bool far, double bytes)
{
        const struct sim_lane *lane =
                sim_find(exchange->world, sim_group_member(&exchange->group, 0))->lanes[exchange->lane];
        const struct network_place *twins = exchange->group.twins;
        exchange->flows++;
        flow_start(sim_lane_host(lane), far ? twins->far : twins->near, bytes, exchange);
}

/* ---- building ---- */

static bool lane_used(const struct sim_world *world, int stage, enum op_lane lane)
{
        const bool first = stage == 0, last = stage == world->plan.pp - 1;
        const bool around = world->plan.virtual_stages > 1; /* the ends of a pipeline are neighbours */
        bool copies = plan_buffers_updates(&world->plan) || core_limits(&world->plan, stage).host_slots > 0 ||
                      world->plan.stage_messages || world->plan.stage_allreduce;
        switch (lane) {
        case LANE_HOST_TO_DEVICE:
                return first || last || copies;
        case LANE_DEVICE_TO_HOST:
                return copies || world->saves >= 0;
        case LANE_FILES:
                return world->saves >= 0;
        case LANE_RECEIVE_PREVIOUS:
        case LANE_SEND_PREVIOUS:
                return !first || around;
        case LANE_RECEIVE_NEXT:
        case LANE_SEND_NEXT:
                return !last || around;
        case LANE_TENSOR:
                return plan_parts_passes(&world->plan);
        case LANE_TENSOR_Z:
                return plan_shards_z(&world->plan) > 1;
        case LANE_DECISION:
                return core_decides(&world->plan, stage);
        case LANE_SHARES:
                return plan_sums_shares(&world->plan);
        default:
                return true;
        }
}

static int build_lane(struct sim_rank *rank, enum op_lane id)
{
        struct sim_lane *lane = calloc(1, sizeof *lane);
        if (!lane)
                return -1;
        rank->lanes[id] = lane;
        lane->subject = SIM_LANE_ENDS;
        lane->rank = rank;
        lane->lane = id;
        return 0;
}

/* `index` counts the ranks of the plan. */
static int build_rank(struct sim_world *world, int index)
{
        const struct options *o = world->options;
        struct sim_rank *rank = sim_find(world, index);
        rank->stage = plan_stage(&world->plan, index);
        struct stage stage = options_stage(o, rank->stage);
        struct memory_plan memory = options_memory(o, rank->stage);
        struct memory_layout layout = memory_layout(&o->gpt, &stage, &memory);
        rank->subject = SIM_RANK_STARTS;
        rank->world = world;
        rank->rank = index;
        rank->replica = plan_replica(&world->plan, index);
        struct core_stage part = options_core_stage(o, rank->stage, plan_shard(&world->plan, index));
        part.replica = rank->replica;
        struct memory_bytes bytes;
        rank->core = malloc(core_bytes(&world->plan, &part));
        if (!rank->core)
                return -1;
        core_init(rank->core, &world->plan, &part);
        ledger_init(&rank->ledger);
        memory_stage(&o->gpt, &stage, &memory, &bytes);
        ledger_add_fixed(&rank->ledger, &bytes);
        engine_init(&rank->engine, rank->core,
                    (struct driver){.issue = sim_issue, .now = sim_now, .world = rank}, world->trace,
                    &rank->ledger, index);
        rank->engine.deferred_bytes = layout.deferred;
        rank->engine.message_bytes = layout.message;
        for (int i = 0; i < LANES; i++)
                if (lane_used(world, rank->stage, (enum op_lane)i) && build_lane(rank, (enum op_lane)i))
                        return -1;
        return 0;
}

/* Whether a rank of the plan is simulated itself. */
static bool stands_for_itself(const struct sim_world *world, int rank)
{
        return (!world->folds.replicas || plan_replica(&world->plan, rank) == 0) &&
               (!world->folds.shards || plan_shard(&world->plan, rank) == 0);
}

int sim_world_init(struct sim_world *world, const struct options *options, struct sim_folds folds,
                   const struct sim_physics *physics, struct trace *trace, int batches, int saves,
                   const struct network_place *places, struct rv_error_info *err)
{
        *world = (struct sim_world){
                .options = options,
                .plan = options_plan(options, false),
                .physics = *physics,
                .trace = trace,
                .folds = folds,
                .ranks = (int)options_ranks(options) / (folds.replicas ? options_replicas(options) : 1) /
                         (folds.shards ? options->tp : 1),
                .batches = batches,
                .saves = saves,
        };
        world->marked_capacity = world->ranks * LANES;
        world->rank = calloc((size_t)world->ranks, sizeof *world->rank);
        world->marked = calloc((size_t)world->marked_capacity, sizeof(struct sim_lane *));
        world->times = calloc((size_t)batches * (size_t)world->ranks, sizeof *world->times);
        int rc = world->rank && world->marked && world->times ? 0 : -1;
        for (int i = 0; rc == 0 && i < plan_ranks(&world->plan); i++) {
                if (!stands_for_itself(world, i))
                        continue;
                rc = build_rank(world, i);
                sim_find(world, i)->place = places[i];
        }
        return rc ? rv_fail(err, RV_ESYSTEM, "no memory to simulate %d ranks", world->ranks) : 0;
}

static void free_rank(struct sim_rank *rank)
{
        for (int i = 0; i < LANES; i++)
                if (rank->lanes[i]) {
                        free(rank->lanes[i]->queue);
                        free(rank->lanes[i]);
                }
        if (rank->world) {
                engine_free(&rank->engine);
        }
        free(rank->core);
}

void sim_world_free(struct sim_world *world)
{
        for (int i = 0; world->rank && i < world->ranks; i++)
                free_rank(&world->rank[i]);
        free(world->rank);
        free(world->marked);
        agenda_free(&world->agenda);
        free(world->times);
        *world = (struct sim_world){0};
}

/* What is staged is in host memory. The scalars lie there anyway, but are few. */
sg_host_t sim_lane_host(const struct sim_lane *lane)
{
        const struct plan *plan = &lane->rank->world->plan;
        const struct network_place *place = &lane->rank->place;
        const bool message = op_lane_opposite(lane->lane) < LANES;
        if ((message && plan->stage_messages) || (op_lane_of_replicas(lane->lane) && plan->stage_allreduce))
                return place->staging;
        return place->device;
}

int sim_world_run(struct sim_world *world, struct rv_error_info *err)
{
        flow_listen((struct flow_listener){flow_over, alarm_rings, world});
        world->alarm = INFINITY;
        progress_begin(&world->progress);
        for (int i = 0; i < world->ranks; i++)
                note(world, world->rank[i].start_seconds, &world->rank[i], 0);
        simgrid_run();
        if (world->shows)
                progress_end(&world->progress, NULL);
        for (int i = 0; i < world->ranks; i++)
                if (!finished(&world->rank[i]))
                        return rv_fail(err, RV_EPLAN,
                                       "the schedule is deadlocked at %.6f s: rank %d has %d operations "
                                       "under way in "
                                       "batch %d",
                                       simgrid_get_clock(), world->rank[i].rank,
                                       core_in_flight(world->rank[i].core), world->rank[i].done);
        return 0;
}

/* ---- who talks to whom ---- */

struct sim_rank *sim_find(const struct sim_world *world, int rank)
{
        const struct plan *plan = &world->plan;
        if (!world->folds.replicas && !world->folds.shards)
                return &world->rank[rank];
        const int replica = world->folds.replicas ? 0 : plan_replica(plan, rank),
                  stage = plan_stage(plan, rank);
        const int shard = world->folds.shards ? 0 : plan_shard(plan, rank);
        return &world->rank[(replica * plan->pp + stage) * (world->folds.shards ? 1 : plan->tp) + shard];
}

struct sim_rank *sim_peer(const struct sim_rank *rank, enum op_lane lane)
{
        return sim_find(rank->world, op_lane_peer(&rank->world->plan, rank->rank, lane));
}

struct sim_lane *sim_lane_opposite(const struct sim_lane *lane)
{
        const enum op_lane opposite = op_lane_opposite(lane->lane);
        return opposite < LANES ? sim_peer(lane->rank, lane->lane)->lanes[opposite] : NULL;
}

/* Whether the members of a rank's groups of one kind are copies of it. */
static bool is_folded(const struct sim_world *world, enum op_group kind)
{
        switch (kind) {
        case GROUP_EXPERTS:
                return plan_expert_replicas(&world->plan) > 1 ? world->folds.replicas : world->folds.shards;
        case GROUP_DATA:
        case GROUP_EXPERT_DATA:
        case GROUP_CONTEXT:
        case GROUP_SHARERS:
        case GROUP_SHARE_DATA:
                return world->folds.replicas;
        case GROUP_TENSOR:
        case GROUP_TENSOR_X:
        case GROUP_TENSOR_Z:
                return world->folds.shards;
        default:
                return false;
        }
}

struct sim_group sim_group_of(const struct sim_rank *rank, enum op_group kind)
{
        return (struct sim_group){.kind = kind,
                                  .ranks = plan_group(&rank->world->plan, rank->rank, kind),
                                  .twins = is_folded(rank->world, kind) ? &rank->place : NULL};
}
