/* driver.h over SimGrid: every rank is an engine and a few lanes; a lane is a SimGrid actor with a queue.
 *
 * issue() only writes memory: it queues the operation and notes which lanes have something to do. They are
 * woken after the engine has returned, because a call into SimGrid lets other actors run inside the caller's
 * loop. How long an operation takes is said by a `struct sim_physics`: priced (sim/priced.c) or recorded
 * (sim/replay.c). */
#ifndef RANVIER_SIM_DRIVER_SIM_H
#define RANVIER_SIM_DRIVER_SIM_H

#include "runtime/engine/engine.h"
#include "runtime/engine/options.h"
#include "runtime/engine/phases.h"
#include "sim/network.h"

struct sim_rank;
struct sim_world;

/* An operation on a lane. */
struct sim_op {
        struct op op;
        double issued;  /* simulated seconds */
        int collective; /* collectives: how many this rank issued on the group before */
        double ends;    /* of a physics that overlaps: when it completes */
};

/* Queue of operations and the actor that works on it. */
struct sim_lane {
        struct sim_rank *rank;
        enum op_lane lane;
        struct sim_op *queue; /* ring buffer; capacity is a power of two */
        unsigned head, count, capacity;
        sg_actor_t actor;
        bool waits;       /* the actor is suspended until it is woken */
        bool marked;      /* stands in the world's list of lanes to wake */
        sg_mailbox_t box; /* the physics' own: where a message lane sends to or receives from */
};

/* The physics' own: a device's link to the host, whose two directions slow each other down. */
struct sim_host_link {
        struct sim_copy {
                bool copying;
                double left;        /* of the copy, 1 to 0, at `since` */
                double alone, both; /* seconds of all of it, alone and beside the other direction */
        } copies[2];                /* to the device, to the host */
        double since;
};

enum { SIM_GROUPS = GROUP_WORLD + 1 };

struct sim_rank {
        struct sim_world *world;
        int rank, stage, replica;
        struct network_place place;
        struct core *core;
        struct engine engine;
        struct ledger ledger;
        struct sim_lane *lanes[LANES]; /* NULL where the stage has no use for one */
        struct sim_host_link host_link;
        int collectives[SIM_GROUPS]; /* issued so far */
        int done;                    /* batches */
        double start_seconds;        /* when its first batch starts */
};

/* What operations take. */
struct sim_physics {
        /* An operation was issued. Writes memory only; may mark lanes to be woken. May be NULL. */
        void (*issued)(void *context, struct sim_rank *rank, struct sim_op *op);
        /* In the lane's actor: returns when `op` is complete, with micro_batch filled in for receives. If
         * `overlaps`, returns as soon as op->ends is known instead. */
        void (*perform)(void *context, struct sim_lane *lane, struct sim_op *op);
        /* Operations of a lane may complete in another order than they were issued in, as MPI's sends do. */
        bool overlaps;
        void *context;
};

struct sim_world {
        const struct options *options;
        struct plan plan;
        struct sim_physics physics;
        struct trace *trace; /* may be NULL */
        int ranks, batches;
        struct sim_rank *rank;     /* [ranks] */
        struct batch_times *times; /* [batches][ranks] */
        struct sim_lane **wake;
        int wake_count, wake_capacity;
        int64_t operations; /* issued by all ranks */
};

/* Builds ranks, engines and lanes; SimGrid must have its platform. */
int sim_world_init(struct sim_world *world, const struct options *options, const struct sim_physics *physics,
                   struct trace *trace, int batches, const struct network_place *places,
                   struct rv_error_info *err);
void sim_world_free(struct sim_world *world);

/* Runs the simulation to its end. An error says which rank waits for what if the schedule is deadlocked. */
int sim_world_run(struct sim_world *world, struct rv_error_info *err);

/* For the physics. Notes that `lane` has something to do (memory only). */
void sim_lane_mark(struct sim_lane *lane);
/* In the lane's actor: sleeps until the lane is woken; what it waits for must be looked at again then. */
void sim_lane_wait(struct sim_lane *lane);

/* Whether all ranks of a group take part in what this lane does. */
static inline bool sim_lane_collects(enum op_lane lane)
{
        return lane == LANE_COLLECTIVE || lane == LANE_SCALARS;
}

/* The rank at the other end of a message lane. */
struct sim_rank *sim_peer(const struct sim_rank *rank, enum op_lane lane);

/* Ranks of a collective's group: `size` of them, the i-th is sim_group_member(), this rank the `index`-th. */
struct sim_group {
        enum op_group kind;
        int size, index;
        int first, stride; /* member i is rank first + i stride */
        int id;            /* tells groups of one kind apart */
};
struct sim_group sim_group_of(const struct sim_rank *rank, enum op_group kind);
static inline int sim_group_member(const struct sim_group *group, int i)
{
        return group->first + i * group->stride;
}

#endif
