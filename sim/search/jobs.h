/* Many predictions at once: SimGrid runs once a process, so each has a process of its own. */
#ifndef RANVIER_SIM_SEARCH_JOBS_H
#define RANVIER_SIM_SEARCH_JOBS_H

#include "runtime/report/figures.h"
#include "sim/search/space.h"

enum outcome_state { OUTCOME_PENDING, OUTCOME_DONE, OUTCOME_FAILED };

/* What was predicted; plain data, so that it goes through a pipe as it is. */
struct outcome {
        enum outcome_state state;
        struct figures figures;
        int64_t host_bytes;          /* that a rank's device copies from and to: the largest rank's */
        int shapes, shapes_measured; /* different kernels, and how many of them have a measured point */
        char failure[512];           /* OUTCOME_FAILED: a sentence */
};

struct job {
        const struct candidate *candidate;
        int number;  /* in the order of the groups: the same on every rank that shares the work */
        double cost; /* operations of the simulation, about */
        struct outcome outcome;
};

struct jobs {
        struct job *list; /* of those added together the longest first, so that the last ones do not keep all
                             waiting */
        int count;
        double tokens;  /* of the training */
        bool intervals; /* are asked for */
};

/* Adds `count` candidates behind those of the list (the longest of them first), which must live as long. An
 * empty struct jobs is an empty list; the caller frees list. */
int jobs_add(struct jobs *jobs, const struct candidate *const *candidates, int count,
             struct rv_error_info *err);

/* Predicts jobs `index`, index + shares, ... in at most `at_once` processes (one or more) at a time. `tick`
 * is called after each, and at least once a second. A prediction that fails, or a process that dies, is an
 * outcome. */
int jobs_run(struct jobs *jobs, int index, int shares, int at_once, void (*tick)(void *context),
             void *context, struct rv_error_info *err);

/* Whether a smaller share of the kernels of `a` than of `b` was measured. */
bool outcome_measured_less(const struct outcome *a, const struct outcome *b);

/* Processor cores that this process may use. */
int jobs_cores(void);

#endif
