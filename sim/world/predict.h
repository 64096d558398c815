/* One prediction: a plan on a machine, priced, its ranks weighed, run in SimGrid, and collected for a report.
 *
 * The order of calls is predict_open, predict_run, predict_report, predict_close. `ranvier simulate` makes
 * one prediction, and each process of `ranvier sweep` and `ranvier validate` makes one (search/jobs.c),
 * because SimGrid runs once in a process. Whether the plan fits the memory is not checked here but by the
 * callers (runtime/engine/capacity.h). */
#ifndef RANVIER_SIM_WORLD_PREDICT_H
#define RANVIER_SIM_WORLD_PREDICT_H

#include "runtime/report/report.h"
#include "sim/world/driver_sim.h"
#include "sim/world/machine.h"
#include "sim/world/costs.h"

/* What one checkpoint costs: its bytes (of the rank that has most, and of all), and seconds. */
struct checkpoint_costs {
        int64_t rank_bytes, bytes;
        /* In which training waits for the copy to host memory; by how much the batches are longer beside
         * which it is written; and, hidden behind these, until the last rank has written. */
        double exposed_seconds, slower_seconds, writing_seconds;
};

/* Arrays over ranks have an entry for each rank of the plan, folded or not. */
struct prediction {
        /* The resolved plan; the caller's. */
        const struct options *options;
        /* The caller's; NULL for a replay. */
        const struct machine *machine;
        /* For a replay there are no prices, and the platform has no network. */
        struct costs costs;
        /* Set by the caller behind predict_open: a long simulation shows how far it is. */
        bool shows;
        /* [ranks]: the memory that each rank allocates. */
        struct memory_bytes *rank_bytes;
        /* Where ranks run, by rank; of a folded plan perhaps those of the first replica only. */
        struct network_place *places;
        /* Empty unless a trace was asked for. */
        struct trace trace;
        struct sim_world world;
        /* One replica was simulated for all; one shard of each stage for all. */
        struct sim_folds folds;
        /* Why replicas were not folded although that was tried, as a clause, where a user should know; else
         * NULL. */
        const char *not_folded, *shards_not_folded;
        /* How many batches were asked for; and the seconds of each, [batches]. */
        int batches;
        double *batch_seconds;
        /* If the caller asked for a checkpoint (predict_save): what it costs. */
        bool saves;
        struct checkpoint_costs checkpoint;
        /* Phases of the batch whose time is nearest to the median. */
        struct phases phases;
        /* [ranks]: most device bytes in use at once. */
        int64_t *rank_live_peak;
};

/* Prices the plan and computes the memory of its ranks. `options` and `machine` (NULL for a replay) stay the
 * caller's and must live as long as `p`. Errors are those of costs_open. The caller calls predict_close,
 * after an error too. */
int predict_open(struct prediction *p, const struct options *options, const struct machine *machine,
                 struct rv_error_info *err);
void predict_close(struct prediction *p);

/* Asks, behind predict_open, for what a checkpoint costs: one follows the last batch, and is written beside
 * one more. Nodes write at `bytes_per_second` each, 0: as the platform says, or else as was measured.
 * RV_EINPUT where nothing says it. */
int predict_save(struct prediction *p, double bytes_per_second, struct rv_error_info *err);
/* The sentence of a platform of which nothing says what its nodes write to files. Returns RV_EINPUT. */
int predict_no_file_rate(const char *platform, struct rv_error_info *err);

/* Runs `batches` batches in SimGrid, which is possible once in a process, and fills the results. `physics`
 * says what operations take; NULL means the prices of predict_open. start_seconds[ranks] says when each rank
 * begins; NULL means that all begin at 0. With `traced` every operation is recorded in p->trace. Returns
 * RV_EPLAN where the schedule is deadlocked or folding was insisted on and is not possible, and the errors of
 * network_open. */
int predict_run(struct prediction *p, const struct sim_physics *physics, const double *start_seconds,
                int batches, bool traced, struct rv_error_info *err);

/* Returns what report_json and report_print need of a prediction that was run. The report refers to `p`.
 * `command` (may be NULL) and `extra` (may be NULL) stay the caller's. `tokens` are those of the whole
 * training. */
struct report predict_report(const struct prediction *p, const char *command, double tokens, json_t *extra);

#endif
