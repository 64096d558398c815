/* Runs that somebody measured, each as a plan on a machine that can be predicted.
 *
 * validate.c opens the rows of its tables here, runs measured.jobs (jobs_run), and verdict.c then asks what
 * each run was predicted to take and by how much that is wrong. */
#ifndef RANVIER_SIM_EVIDENCE_MEASURED_H
#define RANVIER_SIM_EVIDENCE_MEASURED_H

#include "runtime/engine/capacity.h"
#include "sim/evidence/frameworks.h"
#include "sim/search/jobs.h"
#include "sim/evidence/table.h"

enum { MEASURED_NAME = 128 };

struct measured_run {
        const struct table *table;
        const struct table_row *row;
        /* Of the plan; a profile's "fitted_on" calls the run so. */
        char name[MEASURED_NAME];
        /* The profile was fitted on this run. */
        bool fitted;
        /* The plan needs something that is not built yet, and `why` says what. Such a run has no machine and
         * no job. */
        bool skipped;
        struct rv_error_info why;
        struct candidate candidate;
        /* What a rank has, and the need of the rank that is furthest beyond it, or that needs most. */
        struct capacity capacity;
        struct capacity_need need;
        /* If the plan does not fit, something that its row leaves out saved memory, or the count is wrong. */
        bool fits;
        /* NULL if the run is skipped. */
        const struct job *job;
};

struct measured_machine {
        const char *profile, *platform;
        struct machine machine;
};

struct measured {
        struct measured_run *runs;
        int count;
        /* One for each profile, platform and number of GPUs. */
        struct measured_machine *machines;
        int machine_count;
        struct frameworks frameworks; /* of all runs */
        /* Of the runs that are not skipped, the most costly first. */
        struct jobs jobs;
};

/* What holds where a row says nothing. */
struct measured_defaults {
        /* Parsed, not resolved. */
        struct options plan;
        /* NULL means that the row's GPU chooses it. */
        const char *profile, *platform;
};

/* Makes plans of the rows of `count` tables and opens their machines. A row whose plan cannot be, or whose
 * GPU has no known profile or platform while none is given, is RV_EINPUT or RV_EPLAN with file and line.
 * `tables` and `defaults` must live as long as `measured`. The caller calls measured_close, after an error
 * too. */
int measured_open(struct measured *measured, const struct table *tables, int count,
                  const struct measured_defaults *defaults, struct rv_error_info *err);
void measured_close(struct measured *measured);

/* Whether a prediction was asked for, and was made. */
bool measured_predicted(const struct measured_run *run);

/* Returns the prediction of what the row measured, in the row's unit; NAN if there is none (yet). */
double measured_prediction(const struct measured_run *run);

/* Fills the interval in which nine such figures in ten would lie, in the row's unit; returns false if it is
 * not known. */
bool measured_interval(const struct measured_run *run, double *low, double *high);

/* Returns predicted / measured - 1. For a measured band it is 0 inside, else the error from the nearer edge.
 * NAN if there is no prediction. */
double measured_error(const struct measured_run *run);

/* Returns the bytes that are predicted to be in use at once on the device that has most, and, of a row that
 * measured that, predicted / measured - 1. The run must be predicted. */
double measured_memory(const struct measured_run *run);
double measured_memory_error(const struct measured_run *run);

/* The GPUs that a row can name, with the profile and platform that stand for them: one line, for help. */
extern const char *const measured_gpus;

#endif
