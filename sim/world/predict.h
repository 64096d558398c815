/* One prediction: a plan on a machine, priced, weighed, run in SimGrid, collected. */
#ifndef RANVIER_SIM_WORLD_PREDICT_H
#define RANVIER_SIM_WORLD_PREDICT_H

#include "runtime/report/report.h"
#include "sim/world/driver_sim.h"
#include "sim/world/machine.h"
#include "sim/world/costs.h"

struct prediction {
        const struct options *options;   /* resolved */
        const struct machine *machine;   /* NULL: replayed */
        struct costs costs;              /* replayed: no prices, and a platform without a network */
        struct memory_bytes *rank_bytes; /* [ranks] */
        struct network_place *places;    /* [ranks] */
        struct trace trace;              /* if asked for */
        struct sim_world world;
        bool folded;             /* one replica was simulated for all */
        const char *not_folded;  /* why not, where it was tried; else NULL */
        double *batch_seconds;   /* [batches] */
        struct phases phases;    /* of the median batch */
        int64_t *rank_live_peak; /* [ranks] */
};

/* Prices the plan and weighs its ranks. `options` and `machine` (NULL for a run that is replayed) stay the
 * caller's and must live as long. The caller closes, after an error too. */
int predict_open(struct prediction *p, const struct options *options, const struct machine *machine,
                 struct rv_error_info *err);
void predict_close(struct prediction *p);

/* Runs `batches` in SimGrid, which is possible once a process. `physics`: what operations take; NULL: what
 * was priced. start_seconds[ranks]: when each rank begins; NULL: all at once. */
int predict_run(struct prediction *p, const struct sim_physics *physics, const double *start_seconds,
                int batches, bool traced, struct rv_error_info *err);

/* What report_json and report_print need; `command` and `extra` stay the caller's. */
struct report predict_report(const struct prediction *p, const char *command, double tokens, json_t *extra);

#endif
