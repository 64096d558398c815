/* Predicted against measured, for `ranvier compare`: tables for people and CSV for programs.
 *
 * Runs come in an array of pairs, the prediction first: runs[0] and runs[1] are a pair, runs[2] and runs[3]
 * the next. `count` is the number of runs, twice that of pairs. The caller has checked each pair with
 * runs_check_pair. */
#ifndef RANVIER_PLOTS_COMPARE_H
#define RANVIER_PLOTS_COMPARE_H

#include "plots/run.h"

#include <stdio.h>

/* What all pairs say together. */
struct compare_summary {
        /* Absolute errors of the time per batch in percent. */
        double median_percent, worst_percent;
        /* The pair with the worst error, from 0. */
        int worst;
        /* Pairs whose bytes are equal in every category, on the device and on the host. */
        int exact;
        /* Predictions that have an interval, and those of them whose measured time lies in it. */
        int intervals, inside;
};

/* Says whether the measured time per batch (the median) lies in the predicted interval, which there must be
 * (predicted->figures.high > 0). */
bool compare_inside(const struct run *predicted, const struct run *measured);

/* Fills `summary`. Returns RV_ESYSTEM if memory runs out. */
int compare_summarize(const struct run *runs, int count, struct compare_summary *summary,
                      struct rv_error_info *err);

/* Prints one pair, quantity by quantity: times, tokens a second, phases, and bytes by category, each
 * predicted, measured and the error. */
void compare_print_pair(const struct run *predicted, const struct run *measured, FILE *out);

/* Prints a row for each of several pairs, and the summary. */
void compare_print_all(const struct run *runs, int count, const struct compare_summary *summary, FILE *out);

/* Writes a row for each pair with every quantity in seconds, bytes, tokens per second or percent. The file
 * appears whole or not at all. */
int compare_write_csv(const struct run *runs, int count, const char *path, struct rv_error_info *err);

#endif
