/* What a sweep found: the best of each group, as a table, a CSV and figures. */
#ifndef RANVIER_SIM_SEARCH_RESULTS_H
#define RANVIER_SIM_SEARCH_RESULTS_H

#include "sim/search/jobs.h"

enum { RESULTS_FIXED = 4096 };

struct results {
        const struct space *space;
        const struct space_groups *groups;
        const struct jobs *jobs;
        const char *profile, *platform; /* as the command line names them */
        bool preset;                    /* --plans was given */
        const char *fixed; /* flags that hold for all plans, each after a blank, for `ranvier simulate` */
};

/* How many simulations failed, after saying so, each in a sentence. */
int results_say_failures(const struct results *results, FILE *stream);

/* The best plans of each group, with the interval in which nine batches in ten lie; for each number of
 * devices what offloading gains and the command that simulates the best plan; what was considered, left out
 * and not tried. */
void results_print(const struct results *results, FILE *stream);

/* Every simulated plan, one a line, by its time on paper; `rank` counts from 1, the fastest of its group, by
 * simulated time. ranvier plot's sweep figures read it. */
int results_write_csv(const struct results *results, const char *path, struct rv_error_info *err);

/* Draws PREFIX-throughput.png and PREFIX-memory.png from the CSV, with the ranvier-plot beside this program.
 */
int results_plot(const char *csv, const char *prefix, struct rv_error_info *err);

#endif
