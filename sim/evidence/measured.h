/* Runs that somebody measured, each as a plan on a machine that can be predicted. */
#ifndef RANVIER_SIM_EVIDENCE_MEASURED_H
#define RANVIER_SIM_EVIDENCE_MEASURED_H

#include "runtime/engine/capacity.h"
#include "sim/search/jobs.h"
#include "sim/evidence/table.h"

enum { MEASURED_NAME = 128 };

struct measured_run {
        const struct table *table;
        const struct table_row *row;
        char name[MEASURED_NAME]; /* of the plan; what a profile's "fitted_on" calls it */
        bool fitted;              /* the profile was fitted on it */
        bool skipped;             /* its plan is not built yet; why says what of it */
        struct rv_error_info why;
        struct candidate candidate;
        struct capacity capacity;  /* what a rank of it has, */
        struct capacity_need need; /* and what the rank needs that is furthest beyond that, or needs most */
        bool fits;             /* if not, something that its row leaves out saved memory, or it is wrong */
        const struct job *job; /* NULL: skipped */
};

struct measured_machine {
        const char *profile, *platform;
        struct machine machine;
};

struct measured {
        struct measured_run *runs;
        int count;
        struct measured_machine *machines;
        int machine_count;
        struct jobs jobs; /* of those that are not skipped */
};

/* What rows leave open. */
struct measured_defaults {
        struct options plan;            /* parsed, not resolved */
        const char *profile, *platform; /* NULL: by the row's GPU */
};

/* Makes plans of the rows of `count` tables and opens their machines. A row whose plan cannot be, or that
 * needs a profile nobody named, is RV_EINPUT or RV_EPLAN with file and line. `tables` and `defaults` must
 * live as long. The caller frees, after an error too. */
int measured_open(struct measured *measured, const struct table *tables, int count,
                  const struct measured_defaults *defaults, struct rv_error_info *err);
void measured_close(struct measured *measured);

/* What `row` measured of this run, in the row's unit, as predicted; NAN before it is. */
double measured_prediction(const struct measured_run *run);

/* The interval in which nine such figures in ten would lie; false: it is not known. */
bool measured_interval(const struct measured_run *run, double *low, double *high);

/* predicted / measured - 1; 0 inside a band, else from its nearer edge. */
double measured_error(const struct measured_run *run);

/* GPUs and the profile and platform that stand for them, for help: one line. */
extern const char measured_gpus[];

#endif
