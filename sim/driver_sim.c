#include "sim/driver_sim.h"

#include <assert.h>
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

/* ---- waking ---- */

void sim_lane_mark(struct sim_lane *lane)
{
        struct sim_world *world = lane->rank->world;
        if (lane->marked)
                return;
        assert(world->wake_count < world->wake_capacity); /* room for every lane */
        lane->marked = true;
        world->wake[world->wake_count++] = lane;
}

/* Other actors may run, and mark and wake lanes, inside each resume: so nothing is kept over it. (Suspending
 * and resuming takes about a tenth less processor time than semaphores.) */
static void wake_marked(struct sim_world *world)
{
        while (world->wake_count > 0) {
                struct sim_lane *lane = world->wake[--world->wake_count];
                lane->marked = false;
                if (lane->waits) {
                        lane->waits = false;
                        sg_actor_resume(lane->actor);
                }
        }
}

void sim_lane_wait(struct sim_lane *lane)
{
        lane->waits = true;
        sg_actor_suspend(lane->actor);
}

/* ---- the driver's two functions ---- */

static void sim_issue(void *context, const struct op *op)
{
        struct sim_rank *rank = context;
        struct sim_world *world = rank->world;
        struct sim_lane *lane = rank->lanes[op->lane];
        assert(lane);
        struct sim_op queued = {.op = *op, .issued = simgrid_get_clock()};
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
        (void)context;
        return simgrid_get_clock();
}

/* ---- lanes ---- */

static bool finished(const struct sim_rank *rank)
{
        return rank->done == rank->world->batches;
}

/* A batch is complete on this rank: keeps its times and begins the next one, or lets the lanes end. */
static void end_batch(struct sim_rank *rank)
{
        const struct engine *e = &rank->engine;
        rank->world->times[rank->done++ * rank->world->ranks + rank->rank] = (struct batch_times){
                .started = e->started,
                .pipeline_end = e->pipeline_end,
                .allreduce_end = e->allreduce_end,
                .ended = e->ended,
                .busy_seconds = e->busy_seconds,
        };
        if (!finished(rank)) {
                engine_start(&rank->engine);
                return;
        }
        for (int i = 0; i < LANES; i++)
                if (rank->lanes[i])
                        sim_lane_mark(rank->lanes[i]);
}

static void complete(struct sim_rank *rank, const struct op *done)
{
        engine_complete(&rank->engine, done);
        if (engine_done(&rank->engine))
                end_batch(rank);
        wake_marked(rank->world);
}

/* An operation that ends on its own, with the rank that it belongs to. */
struct loose_op {
        struct sim_rank *rank;
        struct sim_op op;
};

static void loose_actor(int argc, char **argv)
{
        (void)argc, (void)argv;
        struct loose_op *loose = sg_actor_self_get_data();
        if (loose->op.ends > simgrid_get_clock())
                sg_actor_sleep_until(loose->op.ends);
        complete(loose->rank, &loose->op.op);
        free(loose);
}

static void start_actor(const char *name, sg_host_t host, void (*code)(int, char **), void *data)
{
        sg_actor_t actor = sg_actor_init(name, host);
        sg_actor_set_data(actor, data);
        sg_actor_start_(actor, code, 0, NULL);
}

static void let_loose(struct sim_rank *rank, const struct sim_op *op)
{
        struct loose_op *loose = malloc(sizeof *loose);
        if (!loose)
                abort(); /* a driver cannot fail */
        *loose = (struct loose_op){rank, *op};
        start_actor(op_name(op->op.kind), rank->place.device, loose_actor, loose);
}

static void lane_actor(int argc, char **argv)
{
        (void)argc, (void)argv;
        struct sim_lane *lane = sg_actor_self_get_data();
        struct sim_rank *rank = lane->rank;
        struct sim_world *world = rank->world;
        lane->actor = sg_actor_self();
        if (lane->lane == LANE_COMPUTE) { /* it starts the rank */
                sg_actor_sleep_for(rank->start_seconds);
                engine_start(&rank->engine);
                wake_marked(world);
        }
        while (!finished(rank)) {
                if (lane->count == 0) {
                        sim_lane_wait(lane);
                        continue;
                }
                struct sim_op op = pop(lane);
                world->physics.perform(world->physics.context, lane, &op);
                if (world->physics.overlaps)
                        let_loose(rank, &op);
                else
                        complete(rank, &op.op);
        }
}

/* ---- building ---- */

static bool lane_used(const struct sim_world *world, int stage, enum op_lane lane)
{
        bool first = stage == 0, last = stage == world->plan.pp - 1;
        bool copies = world->plan.offload || core_limits(&world->plan, stage).host_slots > 0 ||
                      world->plan.stage_messages || world->plan.stage_allreduce;
        switch (lane) {
        case LANE_HOST_TO_DEVICE:
                return first || last || copies;
        case LANE_DEVICE_TO_HOST:
                return copies;
        case LANE_RECEIVE_PREVIOUS:
        case LANE_SEND_PREVIOUS:
                return !first;
        case LANE_RECEIVE_NEXT:
        case LANE_SEND_NEXT:
                return !last;
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
        lane->rank = rank;
        lane->lane = id;
        return 0;
}

static int build_rank(struct sim_world *world, int index)
{
        const struct options *o = world->options;
        struct sim_rank *rank = &world->rank[index];
        rank->stage = plan_stage(&world->plan, index);
        struct stage stage = partition_stage(&o->gpt, o->pp, rank->stage);
        struct memory_plan memory = options_memory(o, rank->stage);
        struct memory_layout layout = memory_layout(&o->gpt, &stage, &memory);
        int64_t parameters = partition_parameters(&o->gpt, &stage);
        const struct core_stage part = {rank->stage, parameters, layout.slot};
        struct memory_bytes bytes;
        rank->world = world;
        rank->rank = index;
        rank->replica = plan_replica(&world->plan, index);
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
        rank->engine.slot_bytes = layout.slot;
        rank->engine.message_bytes = layout.message;
        for (int i = 0; i < LANES; i++)
                if (lane_used(world, rank->stage, (enum op_lane)i) && build_lane(rank, (enum op_lane)i))
                        return -1;
        return 0;
}

int sim_world_init(struct sim_world *world, const struct options *options, const struct sim_physics *physics,
                   struct trace *trace, int batches, const struct network_place *places,
                   struct rv_error_info *err)
{
        *world = (struct sim_world){
                .options = options,
                .plan = options_plan(options, false),
                .physics = *physics,
                .trace = trace,
                .ranks = (int)options_ranks(options),
                .batches = batches,
        };
        world->wake_capacity = world->ranks * LANES;
        world->rank = calloc((size_t)world->ranks, sizeof *world->rank);
        world->wake = calloc((size_t)world->wake_capacity, sizeof(struct sim_lane *));
        world->times = calloc((size_t)batches * (size_t)world->ranks, sizeof *world->times);
        int rc = world->rank && world->wake && world->times ? 0 : -1;
        for (int i = 0; rc == 0 && i < world->ranks; i++) {
                rc = build_rank(world, i);
                world->rank[i].place = places[i];
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
        free(world->wake);
        free(world->times);
        *world = (struct sim_world){0};
}

/* Where an actor sends from: what is staged is in host memory. The scalars lie there anyway, but are few. */
static sg_host_t lane_host(const struct sim_world *world, const struct sim_lane *lane)
{
        const struct network_place *place = &lane->rank->place;
        const bool message = lane->lane >= LANE_RECEIVE_PREVIOUS && lane->lane <= LANE_SEND_NEXT;
        if ((message && world->plan.stage_messages) ||
            (lane->lane == LANE_COLLECTIVE && world->plan.stage_allreduce))
                return place->staging;
        return place->device;
}

int sim_world_run(struct sim_world *world, struct rv_error_info *err)
{
        for (int i = 0; i < world->ranks; i++)
                for (int j = 0; j < LANES; j++) {
                        struct sim_lane *lane = world->rank[i].lanes[j];
                        if (!lane)
                                continue;
                        start_actor(op_lane_name(lane->lane), lane_host(world, lane), lane_actor, lane);
                }
        simgrid_run();
        for (int i = 0; i < world->ranks; i++)
                if (!finished(&world->rank[i]))
                        return rv_fail(err, RV_EPLAN,
                                       "the schedule is deadlocked at %.6f s: rank %d has %d operations "
                                       "under way in "
                                       "batch %d",
                                       simgrid_get_clock(), i, core_in_flight(world->rank[i].core),
                                       world->rank[i].done);
        return 0;
}

/* ---- who talks to whom ---- */

struct sim_rank *sim_peer(const struct sim_rank *rank, enum op_lane lane)
{
        bool previous = lane == LANE_RECEIVE_PREVIOUS || lane == LANE_SEND_PREVIOUS;
        return &rank->world->rank[rank->rank + (previous ? -1 : 1) * plan_stage_stride(&rank->world->plan)];
}

struct sim_group sim_group_of(const struct sim_rank *rank, enum op_group kind)
{
        const struct plan *plan = &rank->world->plan;
        const int me = rank->rank, stages = plan_stage_stride(plan), replicas = plan_replica_stride(plan);
        const int shards = plan_shard_stride(plan), shard = plan_shard(plan, me);
        const int of_pipeline = me - rank->stage * stages, of_replicas = me - rank->replica * replicas;
        const int of_shards = me - shard * shards;
        switch (kind) {
        case GROUP_EMBEDDING:
                return (struct sim_group){
                        kind, 2, rank->stage != 0, of_pipeline, (plan->pp - 1) * stages, of_pipeline};
        case GROUP_DATA:
                return (struct sim_group){kind, plan->dp, rank->replica, of_replicas, replicas, of_replicas};
        case GROUP_TENSOR:
                return (struct sim_group){kind, plan->tp, shard, of_shards, shards, of_shards};
        default:
                return (struct sim_group){kind, rank->world->ranks, rank->rank, 0, 1, 0};
        }
}
