/* Predicted against measured: tables for people, CSV for programs. Runs come in pairs, predicted first. */
#ifndef RANVIER_PLOTS_COMPARE_H
#define RANVIER_PLOTS_COMPARE_H

#include "plots/run.h"

#include <stdio.h>

/* Over all pairs: absolute errors of the time per batch in percent, and in how many pairs memory is exact. */
struct compare_summary {
        double median_percent, worst_percent;
        int worst; /* which pair, from 0 */
        int exact;
        int intervals, inside; /* predictions with an interval, and measured ones that lie in it */
};

/* Whether the measured time per batch lies in the predicted interval, which there is. */
bool compare_inside(const struct run *predicted, const struct run *measured);

int compare_summarize(const struct run *runs, int count, struct compare_summary *summary,
                      struct rv_error_info *err);

/* One pair: quantity by quantity. */
void compare_print_pair(const struct run *predicted, const struct run *measured, FILE *out);

/* Several: a row a pair, and the summary. */
void compare_print_all(const struct run *runs, int count, const struct compare_summary *summary, FILE *out);

/* A row a pair, with every quantity in plain units. */
int compare_write_csv(const struct run *runs, int count, const char *path, struct rv_error_info *err);

#endif
