/* The physics of a replay: operations take what the trace of a real run recorded. With it the simulated
 * run must make the real run's decisions, in the same order on every rank, because the same schedule runs in
 * both.
 *
 * `ranvier simulate --replay` calls replay_open, replay_settle, replay_physics, then predict_run and
 * replay_compare. A replay runs one batch, and it cannot replay a batch whose step was skipped after an
 * overflow. */
#ifndef RANVIER_SIM_WORLD_REPLAY_H
#define RANVIER_SIM_WORLD_REPLAY_H

#include "runtime/plan/options.h"
#include "sim/world/driver_sim.h"

/* A list that only grows; the first `taken` of its `count` entries have been used. */
struct replay_list {
        struct replay_entry {
                double seconds;
                /* That of a message: its virtual micro-batch, or core_decision_number; -1 for a collective.
                 */
                int number;
        } * entries;
        int count, taken, capacity;
};

struct replay_rank {
        /* By receive lane: when the messages on their way arrive, in the order in which they were sent. */
        struct replay_list arrivals[LANES];
        /* By group: when this rank issued its collectives, in that order. */
        struct replay_list issues[SIM_GROUPS];
};

struct replay {
        /* The records of the one batch, sorted for look-ups (by_identity in replay.c). */
        struct trace recorded;
        int batch, ranks;
        /* Set by replay_physics. */
        const struct options *options;
        /* Recorded seconds at which the first rank began. */
        double origin;
        /* [ranks] */
        struct replay_rank *rank;
        /* The first operation that was looked for and that the trace lacks, if any_missing. */
        struct trace_record missing;
        bool any_missing;
};

/* Reads batch `batch` (-1 means the last one) of the trace at `path`, which must be of a run on `ranks`
 * ranks. RV_EINPUT says what is wrong with the trace, RV_EPLAN that its ranks are others. The caller calls
 * replay_close, after an error too. */
int replay_open(struct replay *replay, const char *path, int batch, int ranks, struct rv_error_info *err);
void replay_close(struct replay *replay);

/* Sets --messages and --allreduce, where they are auto, to the routes that the trace has; RV_EPLAN if the
 * plan asks for the other route. Must be called before predict_open. Whether kernels were fused cannot be
 * seen in a trace. */
int replay_settle(const struct replay *replay, const char *path, struct options *options,
                  struct rv_error_info *err);

/* Returns the physics. `replay` and the plan's `options` must live as long as it. An operation that the trace
 * lacks takes no time; replay_compare tells of it. */
struct sim_physics replay_physics(struct replay *replay, const struct options *options);

/* Returns when rank `rank` began the batch, in seconds after the first rank did. */
double replay_start(const struct replay *replay, int rank);

/* Compares, after the run, the order in which each rank issued its compute operations with that of the trace.
 * Fills how many there are and how many stand in the same place. RV_ESYSTEM tells the first difference (or
 * that memory ran out), RV_EINPUT that the trace is of another plan; then the counts may not be filled. */
int replay_compare(const struct replay *replay, const struct trace *simulated, int64_t *operations,
                   int64_t *identical, struct rv_error_info *err);

#endif
