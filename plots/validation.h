/* The CSV of `ranvier validate`: predictions against runs that others measured. */
#ifndef RANVIER_PLOTS_VALIDATION_H
#define RANVIER_PLOTS_VALIDATION_H

#include "runtime/base/error.h"

#include <stdbool.h>

/* One run. */
struct validation_run {
        double seconds;     /* predicted, of a batch */
        double error;       /* predicted / measured - 1, of times */
        bool fitted;        /* something was fitted on it */
        bool known, inside; /* an interval was predicted, and the measured value is in it */
};

/* Reads the CSV at `path` into a new array that the caller frees, of `count` runs, at least one. Columns are
 * found by their names in the first line. NULL with a sentence that names file and line. */
struct validation_run *validation_read(const char *path, int *count, struct rv_error_info *err);

/* Writes "63 runs: median error 3.9 %, ..." and returns `text`. Errors are of runs that nothing was fitted
 * on, if there are any. */
enum { VALIDATION_TEXT = 256 };
char *validation_summary(const struct validation_run *runs, int count, char text[VALIDATION_TEXT]);

#endif
