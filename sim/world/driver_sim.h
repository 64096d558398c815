/* driver.h over SimGrid: every rank is an engine and a few lanes, each a queue of which one operation at a
 * time is under way.
 *
 * Nothing waits: an operation that begins either knows when it ends, which is noted in an agenda, or is a
 * flow of SimGrid's that says when it has ended (sim/world/flow.h). Only collectives, which are written as
 * what a member does step by step, run in an actor, and only where there is another member. issue() only
 * writes memory: it queues the operation and marks the lane; marked lanes are looked at after the engine has
 * returned. How long an operation takes is said by a `struct sim_physics`: priced (sim/world/priced.c) or
 * recorded (sim/world/replay.c). */
#ifndef RANVIER_SIM_WORLD_DRIVER_SIM_H
#define RANVIER_SIM_WORLD_DRIVER_SIM_H

#include "runtime/engine/engine.h"
#include "runtime/engine/host_link.h"
#include "runtime/plan/options.h"
#include "runtime/engine/phases.h"
#include "runtime/base/agenda.h"
#include "sim/world/network.h"

struct sim_rank;
struct sim_world;

/* An operation on a lane. */
struct sim_op {
        struct op op;
        double issued;  /* simulated seconds */
        int collective; /* collectives: how many this rank issued on the group before */
        double ends;    /* of a physics that overlaps: when it completes */
};

/* What an entry of the agenda is about. */
enum sim_subject { SIM_RANK_STARTS, SIM_LANE_ENDS, SIM_OPERATION_ENDS };

struct sim_lane {
        enum sim_subject subject; /* first: SIM_LANE_ENDS */
        struct sim_rank *rank;
        enum op_lane lane;
        struct sim_op *queue; /* ring buffer; capacity is a power of two */
        unsigned head, count, capacity;
        struct sim_op now; /* the operation that has left the queue */
        bool ready;        /* there is one, and it has not begun: it waits for something */
        bool busy;         /* there is one, and it has begun */
        bool marked;       /* stands in the world's list of lanes to look at */
        unsigned serial;   /* of the moment noted last for its end: earlier ones are void */
        sg_actor_t actor;  /* of a collective lane, once it was needed */
};

enum { SIM_GROUPS = GROUP_WORLD + 1 };

struct sim_rank {
        enum sim_subject subject; /* first: SIM_RANK_STARTS */
        struct sim_world *world;
        int rank, stage, replica;
        struct network_place place;
        struct core *core;
        struct engine engine;
        struct ledger ledger;
        struct sim_lane *lanes[LANES]; /* NULL where the stage has no use for one */
        struct host_link host_link;    /* the physics' own */
        int collectives[SIM_GROUPS];   /* issued so far */
        int done;                      /* batches */
        double start_seconds;          /* when its first batch starts */
};

/* What operations take. */
struct sim_physics {
        /* An operation was issued. Writes memory only; may mark lanes. May be NULL. */
        void (*issued)(void *context, struct sim_rank *rank, struct sim_op *op);
        /* Begins lane->now: says when it ends (sim_lane_ends), starts a flow that ends it, or hands it to
         * the lane's actor (sim_lane_collect). False: not yet; it is asked again whenever the lane is
         * marked. Receives: fills in now.op.micro_batch before the end. If `overlaps`, sets now.ends. */
        bool (*begin)(void *context, struct sim_lane *lane);
        /* In the lane's actor: takes part in the collective lane->now, returns when it is over. */
        void (*collect)(void *context, struct sim_lane *lane);
        /* Operations of a lane may complete in another order than they were issued in, as MPI's sends do. */
        bool overlaps;
        void *context;
};

struct sim_world {
        const struct options *options;
        struct plan plan;
        struct sim_physics physics;
        struct trace *trace;       /* may be NULL */
        bool folded;               /* ranks of the first replica stand for those of all */
        int ranks, batches;        /* ranks: simulated */
        struct sim_rank *rank;     /* [ranks] */
        struct batch_times *times; /* [batches][ranks] */
        struct agenda agenda;
        double now;   /* seconds: a reading of SimGrid's clock, taken once a callback */
        double alarm; /* what the alarm is set to; infinity: it is not */
        struct sim_lane **marked;
        int marked_count, marked_capacity;
        int64_t operations; /* issued by all ranks */
        int at_gate[LANES]; /* ranks that wait for the others in a collective over all */
};

/* Builds ranks, engines and lanes; SimGrid must have its platform. places: by rank of the plan. */
int sim_world_init(struct sim_world *world, const struct options *options, bool folded,
                   const struct sim_physics *physics, struct trace *trace, int batches,
                   const struct network_place *places, struct rv_error_info *err);
void sim_world_free(struct sim_world *world);

/* Runs the simulation to its end. An error says which rank waits for what if the schedule is deadlocked. */
int sim_world_run(struct sim_world *world, struct rv_error_info *err);

/* For the physics: `lane` has something to look at (memory only). */
void sim_lane_mark(struct sim_lane *lane);

/* The operation under way ends at this moment, whatever was said of it before. */
void sim_lane_ends(struct sim_lane *lane, double seconds);

/* lane->now is a collective with other members: the lane's actor takes part in it. */
void sim_lane_collect(struct sim_lane *lane);

/* A flow of `bytes` that belongs to what `lane` has under way: ends it. */
void sim_lane_flow(struct sim_lane *lane, sg_host_t from, sg_host_t to, int64_t bytes);

/* The host that a lane's messages leave from or come to. */
sg_host_t sim_lane_host(const struct sim_lane *lane);

/* The message lane at the other end of this one. */
struct sim_lane *sim_lane_opposite(const struct sim_lane *lane);

/* Whether all ranks of a group take part in what this lane does. */
static inline bool sim_lane_collects(enum op_lane lane)
{
        return lane == LANE_COLLECTIVE || lane == LANE_SCALARS || lane == LANE_TENSOR;
}

/* The simulated rank that is, or stands for, rank `rank` of the plan. */
struct sim_rank *sim_find(const struct sim_world *world, int rank);

/* The rank at the other end of a message lane. */
struct sim_rank *sim_peer(const struct sim_rank *rank, enum op_lane lane);

/* A collective's group. */
struct sim_group {
        enum op_group kind;
        struct plan_group ranks; /* the first tells groups of one kind apart */
        /* Not NULL: the others are copies of this rank, which alone is simulated, here (collective.h). */
        const struct network_place *twins;
};
struct sim_group sim_group_of(const struct sim_rank *rank, enum op_group kind);
static inline int sim_group_member(const struct sim_group *group, int i)
{
        return group->ranks.first + i * group->ranks.stride;
}

#endif
