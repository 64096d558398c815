/* What operations take, recorded: the trace of a real run plays the part of the clock. With it the simulated
 * run must make the real run's decisions, in the same order on every rank (the second invariant of the
 * project: the schedule is what runs). */
#ifndef RANVIER_SIM_WORLD_REPLAY_H
#define RANVIER_SIM_WORLD_REPLAY_H

#include "runtime/plan/options.h"
#include "sim/world/driver_sim.h"

/* A list that only grows; `taken` of its entries have been used. */
struct replay_list {
        struct replay_entry {
                double seconds;
                int vmb; /* of a message */
        } * entries;
        int count, taken, capacity;
};

struct replay_rank {
        struct replay_list arrivals[LANES]; /* of a receive lane: messages on their way, in sending order */
        struct replay_list issues[SIM_GROUPS]; /* when its collectives were issued, in that order */
};

struct replay {
        struct trace recorded; /* the records of one batch, sorted as by_identity in replay.c */
        int batch, ranks;
        const struct options *options; /* of the plan */
        double origin;                 /* recorded seconds when the first rank began */
        struct replay_rank *rank;      /* [ranks] */
        struct trace_record missing;   /* the first operation that the trace lacks ... */
        bool any_missing;              /* ... if there is one */
};

/* Reads batch `batch` (-1: the last one) of a trace of a run on `ranks` ranks. */
int replay_open(struct replay *replay, const char *path, int batch, int ranks, struct rv_error_info *err);
void replay_close(struct replay *replay);

/* What of a plan the trace at `path` knows: --messages and --allreduce auto become the routes that it has,
 * another one is refused. (Fused kernels leave no mark in a trace.) */
int replay_settle(const struct replay *replay, const char *path, struct options *options,
                  struct rv_error_info *err);

/* `replay` and the plan's `options` must live as long as the physics. */
struct sim_physics replay_physics(struct replay *replay, const struct options *options);

/* When rank `rank` began the batch, in seconds after the first rank did. */
double replay_start(const struct replay *replay, int rank);

/* After the run: compares, rank by rank, the order in which compute operations were issued. Fills how many
 * there are and how many stand in the same place; RV_ESYSTEM with the first difference in a sentence if they
 * differ, RV_EINPUT if the trace is of another plan. */
int replay_compare(const struct replay *replay, const struct trace *simulated, int64_t *operations,
                   int64_t *identical, struct rv_error_info *err);

#endif
