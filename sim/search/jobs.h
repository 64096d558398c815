/* Many predictions at once. SimGrid runs once in a process, so each prediction is made in a child process,
 * which sends its outcome back through a pipe. sweep.c and validate.c are the callers. */
#ifndef RANVIER_SIM_SEARCH_JOBS_H
#define RANVIER_SIM_SEARCH_JOBS_H

#include "runtime/report/figures.h"
#include "sim/search/space.h"
#include "sim/world/checkpoints.h"

enum outcome_state { OUTCOME_PENDING, OUTCOME_DONE, OUTCOME_FAILED };

/* What was predicted. It is plain data without pointers, so that it can go through a pipe as it is. */
struct outcome {
        enum outcome_state state;
        struct figures figures;
        /* Host memory that a rank's device copies from and to, of the rank with most of it. */
        int64_t host_bytes;
        /* How many different kernels the plan has, and how many of them are measured or by tables of measured
         * ones. */
        int shapes, shapes_measured;
        /* OUTCOME_FAILED: a sentence that says why. */
        char failure[sizeof((struct rv_error_info *)0)->sentence];
};

struct job {
        const struct candidate *candidate;
        /* The index in the order of adding, the same on every rank that shares the work. */
        int number;
        /* About how many operations the simulation has. */
        double cost;
        bool apart; /* to compare with: never the answer */
        struct outcome outcome;
};

/* A list of jobs. All zero is an empty list; the caller frees `list`. */
struct jobs {
        struct job *list;
        int count;
        /* Of the whole training, for its days. */
        double tokens;
        /* If it asks for any: the figures are of a training that keeps checkpoints. */
        struct checkpoints_asked checkpoints;
        /* Whether outcomes should have intervals (figures.low and high). */
        bool intervals;
};

/* Adds `count` candidates behind the jobs of the list, the most costly of them first, so that the last ones
 * do not keep all waiting. The candidates must live as long as the list. Pointers to earlier jobs become
 * invalid. Returns RV_ESYSTEM if memory runs out. */
int jobs_add(struct jobs *jobs, const struct candidate *const *candidates, int count,
             struct rv_error_info *err);

/* Predicts the jobs `index`, index + shares, ... in at most `at_once` (one or more) processes at a time, and
 * fills their outcomes. `tick` is called whenever some have ended, and at least about once a second; when it
 * returns false, nothing more is begun, and what is under way is given up: those jobs stay pending. A
 * prediction that fails, or a process that dies, is an outcome and no error; RV_ESYSTEM means that no process
 * could be started. */
int jobs_run(struct jobs *jobs, int index, int shares, int at_once, bool (*tick)(void *context),
             void *context, struct rv_error_info *err);

/* Says whether a smaller share of the kernels was measured for `a` than for `b`. */
bool outcome_measured_less(const struct outcome *a, const struct outcome *b);

/* Returns how many processor cores this process may use, at least 1. */
int jobs_cores(void);

#endif
