/* Which plans a sweep simulates: of each group the best on paper first, and on until none that is left can
 * beat the best one found. This module only chooses; sweep.c and plan.c run the jobs (jobs.h) and ask again
 * with their outcomes. */
#ifndef RANVIER_SIM_SEARCH_SEARCH_H
#define RANVIER_SIM_SEARCH_SEARCH_H

#include "sim/search/jobs.h"

/* Returns 0 if some plan fits and can be priced and predicted, else an error that says what is nearest to it;
 * asked before plans are simulated. */
int search_check(const struct space_groups *groups, struct rv_error_info *err);

/* Says whether a job is of a plan of the group. */
bool search_has(const struct space_group *group, const struct job *job);

/* Compares simulated plans of one group, as qsort wants it: the faster one comes first, of equally fast ones
 * the one that was first on paper. */
int search_order(const struct job *a, const struct job *b);

/* What is known of a group after some of its plans were simulated. */
struct search_state {
        /* NULL if no simulation succeeded. */
        const struct job *best;
        /* Simulated time / time on paper over those that succeeded; INFINITY and 0 if none did. */
        double min, max;
        /* Time on paper of the best plan that is not to be simulated so far; NAN if there is none. */
        double next_seconds;
};
struct search_state search_look(const struct space_group *group, const struct jobs *jobs);

/* Adds to `jobs` the plans of the group that are to be simulated next. The first call adds the number that
 * space.simulate asks for, with SPACE_AUTO `first` of them. Later calls add none unless it is SPACE_AUTO, and
 * then those (up to 16) that would beat the best if they were faster, against their time on paper, by
 * space.margin more than any plan seen (any, if no simulation succeeded). Returns how many were added; 0
 * means that the search is over. An error is negative. */
int search_next(const struct space *space, struct space_group *group, struct jobs *jobs, int first,
                struct rv_error_info *err);

#endif
