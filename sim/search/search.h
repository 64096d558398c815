/* Which plans a sweep simulates: the best on paper first, and on until none that is left can beat the best
 * one found. */
#ifndef RANVIER_SIM_SEARCH_SEARCH_H
#define RANVIER_SIM_SEARCH_SEARCH_H

#include "sim/search/jobs.h"

/* Whether a job is of a plan of the group. */
bool search_has(const struct space_group *group, const struct job *job);

/* The order of simulated plans, as qsort has it: the fastest first, of equally fast ones the one that was
 * first on paper. */
int search_order(const struct job *a, const struct job *b);

/* What is known of a group after some of its plans were simulated. */
struct search_state {
        const struct job *best; /* NULL: none succeeded */
        double min, max;        /* simulated time / time on paper, over those that succeeded */
        double next_seconds;    /* on paper, of the best plan that is not simulated; NAN: there is none */
};
struct search_state search_look(const struct space_group *group, const struct jobs *jobs);

/* Adds to `jobs` the plans of the group that are to be simulated next, `first` of them at first. Returns how
 * many; 0: the search is over, because the number that `space.simulate` asks for is simulated, or, with
 * SPACE_AUTO, because no plan that is left can beat the best: not if it were faster than on paper by 5 % more
 * than any plan seen. An error is negative. */
int search_next(const struct space *space, struct space_group *group, struct jobs *jobs, int first,
                struct rv_error_info *err);

#endif
