/* driver.h over SimGrid: every rank is an engine and a few lanes, each a queue of which one operation at a
 * time is under way.
 *
 * Nothing waits: an operation that begins either knows when it ends, which is noted in an agenda, or is a
 * flow of SimGrid's that says when it has ended (sim/world/flow.h). Only collectives, which are written as
 * what a member does step by step, run in an actor, and only where there is another member. issue() only
 * writes memory: it queues the operation and marks the lane; marked lanes are looked at after the engine has
 * returned. How long an operation takes is said by a `struct sim_physics`: priced (sim/world/priced.c) or
 * recorded (sim/world/replay.c).
 *
 * predict.c builds, runs and frees a world; the two physics and collective.c use the rest. Times are
 * simulated seconds. */
#ifndef RANVIER_SIM_WORLD_DRIVER_SIM_H
#define RANVIER_SIM_WORLD_DRIVER_SIM_H

#include "runtime/engine/engine.h"
#include "runtime/engine/host_link.h"
#include "runtime/plan/options.h"
#include "runtime/engine/phases.h"
#include "runtime/base/agenda.h"
#include "runtime/base/progress.h"
#include "sim/world/network.h"

struct sim_rank;
struct sim_world;

/* An operation on a lane. */
struct sim_op {
        struct op op;
        /* When the engine issued it. */
        double issued;
        /* Of a collective: how many collectives this rank issued on the group before. */
        int collective;
        /* When it completes; only used by a physics that overlaps. */
        double ends;
};

/* What an entry of the agenda, or a flow, is about. The entry points to a struct whose first member this is.
 */
enum sim_subject { SIM_RANK_STARTS, SIM_LANE_ENDS, SIM_OPERATION_ENDS, SIM_EXCHANGE };

struct sim_lane {
        /* SIM_LANE_ENDS; must be the first member. */
        enum sim_subject subject;
        struct sim_rank *rank;
        enum op_lane lane;
        /* A ring buffer of the operations that wait; capacity is a power of two. */
        struct sim_op *queue;
        unsigned head, count, capacity;
        /* The operation that left the queue last, while `ready` or `busy`. */
        struct sim_op now;
        /* It has not begun, because it waits for something. */
        bool ready;
        /* It has begun and not ended. */
        bool busy;
        /* The lane stands in the world's list of lanes to look at. */
        bool marked;
        /* Number of the agenda's entry that was noted last for the end; earlier entries are void. */
        unsigned serial;
        /* Of a lane of collectives, once it was needed. */
        sg_actor_t actor;
};

enum { SIM_GROUPS = GROUP_WORLD + 1 };

struct sim_rank {
        /* SIM_RANK_STARTS; must be the first member. */
        enum sim_subject subject;
        struct sim_world *world;
        int rank, stage, replica;
        struct network_place place;
        struct core *core;
        struct engine engine;
        struct ledger ledger;
        /* NULL where the stage has no use for a lane. */
        struct sim_lane *lanes[LANES];
        /* For the physics, which alone uses it. */
        struct host_link host_link;
        /* When collectives of shards leave the links inside nodes, and between them, free. */
        double links_free[2];
        /* When the pass began of which the compute lane had the first part last. */
        double pass_began;
        /* How many collectives were issued so far on each kind of group. */
        int collectives[SIM_GROUPS];
        /* How many batches are complete. */
        int done;
        /* When the first batch starts. */
        double start_seconds;
};

/* Says what operations take. */
struct sim_physics {
        /* Called when an operation was issued. It may only write memory and mark lanes. May be NULL. */
        void (*issued)(void *context, struct sim_rank *rank, struct sim_op *op);
        /* Begins lane->now: says when it ends (sim_lane_ends), starts a flow that ends it (sim_lane_flow), or
         * hands it to the lane's actor (sim_lane_collect). Returns false if it cannot begin yet; then it is
         * asked again whenever the lane is marked. For a receive it sets the virtual micro-batch of now.op
         * (core_set_vmb) before the end. If `overlaps`, it says when the operation ends in now.ends
         * instead. */
        bool (*begin)(void *context, struct sim_lane *lane);
        /* Called when an operation of the lane has ended, before anything follows from that. May be NULL. */
        void (*ended)(void *context, struct sim_lane *lane);
        /* Called in the lane's actor: takes part in the collective lane->now and returns when it is over. */
        void (*collect)(void *context, struct sim_lane *lane);
        /* Operations of a lane may complete in another order than they were issued in, as MPI's sends do. */
        bool overlaps;
        void *context;
};

/* Which ranks are not simulated: those of all replicas but the first, which stands for all; all shards of a
 * stage but the first, likewise. */
struct sim_folds {
        bool replicas, shards;
};

struct sim_world {
        const struct options *options;
        struct plan plan;
        struct sim_physics physics;
        /* Where operations are recorded; NULL if they are not. */
        struct trace *trace;
        struct sim_folds folds;
        /* The number of simulated ranks, and of batches that each of them runs. */
        int ranks, batches;
        /* The batch, counted from 0, that a checkpoint follows; -1: none. */
        int saves;
        /* [ranks] */
        struct sim_rank *rank;
        /* [batches][ranks] */
        struct batch_times *times;
        struct agenda agenda;
        /* SimGrid's clock, read once in each callback. */
        double now;
        /* The moment that the alarm is set to; INFINITY if it is not set. */
        double alarm;
        /* Lanes to look at; there is room for all. */
        struct sim_lane **marked;
        int marked_count, marked_capacity;
        /* How many operations all simulated ranks issued. */
        int64_t operations;
        /* By lane: how many ranks wait in a collective over all ranks. */
        int at_gate[LANES];
        /* Set by the caller: progress is shown, by the backwards that are done. */
        bool shows;
        struct progress progress;
        int64_t backwards;
};

/* Builds ranks, engines and lanes; network_open must have been called. `places` are indexed by rank of the
 * plan and copied. `options` and `trace` (may be NULL) must live as long as the world; `physics` is copied,
 * its context is not. Returns RV_ESYSTEM if memory runs out. The caller calls sim_world_free, after an error
 * too. */
int sim_world_init(struct sim_world *world, const struct options *options, struct sim_folds folds,
                   const struct sim_physics *physics, struct trace *trace, int batches, int saves,
                   const struct network_place *places, struct rv_error_info *err);
void sim_world_free(struct sim_world *world);

/* Runs the simulation to its end. If the schedule is deadlocked returns RV_EPLAN with the first rank that has
 * not finished, its batch, and how many operations it has under way. */
int sim_world_run(struct sim_world *world, struct rv_error_info *err);

/* ---- for the physics ---- */

/* Notes that the lane has something to look at. Writes memory only. */
void sim_lane_mark(struct sim_lane *lane);

/* Says that the operation under way ends at this moment (or now, if that is past), whatever was said of it
 * before. */
void sim_lane_ends(struct sim_lane *lane, double seconds);

/* Has the lane's actor take part in the collective lane->now, which has other members
 * (sim_physics.collect). */
void sim_lane_collect(struct sim_lane *lane);

/* Starts a flow of `bytes` for what the lane has under way. Its end ends the operation, and that of the
 * opposite lane if it is a message. */
void sim_lane_flow(struct sim_lane *lane, sg_host_t from, sg_host_t to, int64_t bytes);

/* Returns the host that the lane's messages leave from or arrive at: its end in host memory if they are
 * staged, else the device. */
sg_host_t sim_lane_host(const struct sim_lane *lane);

/* Returns the lane at the other end of a message lane; NULL for other lanes. */
struct sim_lane *sim_lane_opposite(const struct sim_lane *lane);

/* Says whether all ranks of a group take part in what this lane does. */
static inline bool sim_lane_collects(enum op_lane lane)
{
        return op_lane_of_replicas(lane) || lane == LANE_SCALARS || lane == LANE_TENSOR;
}

/* Returns the simulated rank that is, or stands for, rank `rank` of the plan. */
struct sim_rank *sim_find(const struct sim_world *world, int rank);

/* Returns the rank at the other end of a message lane. */
struct sim_rank *sim_peer(const struct sim_rank *rank, enum op_lane lane);

/* The group of ranks that does a collective. */
struct sim_group {
        enum op_group kind;
        /* Ranks of the plan. The first one tells groups of one kind apart. */
        struct plan_group ranks;
        /* If not NULL, the other members are copies of this rank, which alone is simulated, on these hosts
         * (collective.h). */
        const struct network_place *twins;
};
struct sim_group sim_group_of(const struct sim_rank *rank, enum op_group kind);
/* A collective in which every member may send to every other: as many flows at once, and `seconds` more when
 * the last one is over. It then ends on the lane of all members, and is freed; who begins it has allocated it
 * by malloc, and starts at least one flow. */
struct sim_exchange {
        /* SIM_EXCHANGE; must be the first member. */
        enum sim_subject subject;
        struct sim_world *world;
        struct sim_group group;
        enum op_lane lane;
        int flows;
        double seconds;
};
/* Starts the flow of `bytes` from a member to another. */
void sim_exchange_flow(struct sim_exchange *, int from, int to, double bytes);
/* The same where the members are copies of one: from that to its twins in its node (`far`: in others). */
void sim_exchange_flow_to_twins(struct sim_exchange *, bool far, double bytes);
/* Returns the rank of the plan that is member `i`. */
static inline int sim_group_member(const struct sim_group *group, int i)
{
        return group->ranks.first + i * group->ranks.stride;
}

#endif
