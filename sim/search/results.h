/* What a sweep found, for readers: the best plans of each group as a table, all simulated plans as CSV, and
 * figures drawn from the CSV. sweep.c calls it on the first rank when the search is over. */
#ifndef RANVIER_SIM_SEARCH_RESULTS_H
#define RANVIER_SIM_SEARCH_RESULTS_H

#include "sim/search/ask.h"
#include "sim/search/jobs.h"

struct results {
        const struct ask *ask;
        const struct space_groups *groups;
        const struct jobs *jobs;
};

/* Writes a sentence for each simulation that failed or has no outcome, and returns how many there are. */
int results_say_failures(const struct results *results, FILE *stream);

/* Prints up to five plans of each group with the interval in which nine batches in ten lie; for each number
 * of devices what offloading gains and the command that simulates the best plan; and what was considered,
 * left out and not tried. */
void results_print(const struct results *results, FILE *stream);

/* Writes every plan whose simulation succeeded, one a line, group by group in the order of their time on
 * paper. The column `rank` counts from 1, the fastest of the group by simulated time. ranvier plot's sweep
 * figures read the file. */
int results_write_csv(const struct results *results, const char *path, struct rv_error_info *err);

/* Draws PREFIX-throughput.png and PREFIX-memory.png from the CSV with the program ranvier-plot beside this
 * one. Returns RV_ESYSTEM if it cannot be started or fails. */
int results_plot(const char *csv, const char *prefix, struct rv_error_info *err);

#endif
