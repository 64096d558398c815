/* What a sweep found: the best of each group, as a table, a CSV and figures. */
#ifndef RANVIER_SIM_RESULTS_H
#define RANVIER_SIM_RESULTS_H

#include "sim/jobs.h"

struct results {
        const struct space *space;
        const struct space_groups *groups;
        const struct jobs *jobs;
        const char *profile, *platform; /* as the command line names them */
};

/* The fastest plan of a group, or NULL: nothing fits, or nothing could be simulated. Of equally fast ones the
 * one that the estimate put first. */
const struct job *results_best(const struct results *results, const struct space_group *group);

/* How many simulations failed, after saying so, each in a sentence. */
int results_say_failures(const struct results *results, FILE *stream);

/* The table, a line for each number of devices on what offloading gains, and what was considered. */
void results_print(const struct results *results, FILE *stream);

/* Every simulated plan, one a line; ranvier plot's sweep figures read it. */
int results_write_csv(const struct results *results, const char *path, struct rv_error_info *err);

/* Draws PREFIX-throughput.png and PREFIX-memory.png from the CSV, with the ranvier-plot beside this program.
 */
int results_plot(const char *csv, const char *prefix, struct rv_error_info *err);

#endif
