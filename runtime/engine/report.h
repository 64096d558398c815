/* The report: the same JSON from both worlds. */
#ifndef RANVIER_RUNTIME_ENGINE_REPORT_H
#define RANVIER_RUNTIME_ENGINE_REPORT_H

#include "runtime/engine/engine.h"
#include "runtime/engine/options.h"

#define RANVIER_VERSION "0.1.0"

struct report {
        const char *world;           /* "real" or "simulated" */
        const char *command;
        const struct options *options;
        const double *batch_seconds; /* of each measured batch */
        int batches;
        double pipeline_seconds, allreduce_seconds, optimizer_seconds, bubble_fraction; /* of the median batch */
        double peak_flops_per_gpu_per_second; /* 0: not known */
        int64_t tokens;              /* to train on, for training_days */
        int ranks;
        const int64_t (*rank_bytes)[MEMORY_CATEGORIES];      /* allocated on each rank's device */
        const int64_t *rank_live_peak;                       /* most bytes in use at once on each rank */
        int64_t host_peak_bytes;                             /* largest rank; 0 if not known */
        const double *loss;          /* real only; NULL otherwise */
        int losses;
        json_t *extra;               /* further members (profile, platform, notes), may be NULL; borrowed */
};

/* Median, and percentiles by linear interpolation; `values` is sorted in place. q in [0, 1]. */
double report_quantile(double *values, int count, double q);

/* The report as JSON (caller owns) and as the short table that commands print. */
json_t *report_json(const struct report *report);
void report_print(const struct report *report, FILE *stream);

#endif
