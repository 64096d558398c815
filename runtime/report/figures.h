/* The figures of a batch: the numbers that a report consists of, each with a row in one table. Reports are
 * written and read by the rows, and so are the results that the processes of a sweep pass to each other.
 * Tables show a figure by the label and unit in its row. A new figure needs a member of struct figures, its
 * row (figures.c), and what report_figures (report.h) makes of it. */
#ifndef RANVIER_RUNTIME_REPORT_FIGURES_H
#define RANVIER_RUNTIME_REPORT_FIGURES_H

#include "runtime/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The figures of one run. Times are in seconds; a figure that is not known is 0. */
struct figures {
        /* Quantiles of the times of the batches: half of them took less than the median, one in ten less than
         * p10, and nine in ten less than p90. */
        double median, p10, p90;
        /* Of a prediction: nine batches in ten lie between them. */
        double low, high;
        int64_t batches; /* how many were measured or simulated */
        /* By the median time: tokens a second, over all ranks; floating-point operations a second of one
         * device, recomputed ones included (gpt_batch_flops); these as a percentage of what the device could
         * do at most; and the days that training_tokens take. */
        double tokens_per_second, flops_per_gpu_per_second, percent_of_peak, training_days;
        int64_t training_tokens;
        /* Where the time of the median batch went: see struct phases (runtime/engine/phases.h). */
        double pipeline_seconds, allreduce_seconds, optimizer_seconds, busiest_seconds, tensor_seconds;
        double bubble_fraction; /* of the pipeline's seconds; 1 is all of them */
        /* Bytes allocated on the device by the rank that has most there, the number of that rank, and the sum
         * of all ranks. */
        int64_t device_peak_bytes;
        int64_t largest_rank;
        int64_t device_total_bytes;
        /* The most bytes that were in use on a device at the same time, at most what is allocated, since
         * buffers are not all full at once; of the rank with the most. */
        int64_t live_peak_bytes;
        /* The most memory that the process of a rank had, all of it; of the rank with the most. */
        int64_t host_peak_bytes;
        /* Host memory of largest_rank that its device copies from and to. */
        int64_t host_offloaded_bytes;
};

/* What a figure is measured in, and so how figures_text writes it. */
enum figure_unit {
        FIGURE_SECONDS,
        FIGURE_BYTES,
        FIGURE_COUNT,
        FIGURE_FLOPS, /* floating-point operations a second */
        FIGURE_PERCENT,
        /* 1 is all; written as a percentage. */
        FIGURE_FRACTION,
        FIGURE_DAYS
};

/* One row of the table. */
struct figure_row {
        /* The figure is the member `key` of the object `room` of a report, such as "pipeline_seconds" of
         * "phases", or of the report itself if `room` is NULL. */
        const char *room, *key;
        /* What tables call it; NULL: it is not shown by itself. */
        const char *label;
        enum figure_unit unit;
        enum { FIGURE_REAL, FIGURE_WHOLE } type; /* a double, or an int64_t */
        size_t offset;                           /* of the member in struct figures */
        /* How a report says 0: as the number, or, if 0 means "not known", as null or by leaving it out. */
        enum { FIGURE_ALWAYS, FIGURE_OR_NULL, FIGURE_OR_ABSENT } known;
        /* The least value that figures_read accepts, and whether it refuses a report without the figure. */
        double min;
        bool needed;
};
/* The table, in the order of a report, and how many rows it has. */
extern const struct figure_row figure_rows[];
extern const int figure_count;

/* Returns the value of the row's figure, whole numbers too as a double. */
double figures_value(const struct figure_row *, const struct figures *);

/* Writes a value as a reader wants it, such as "12.300 ms", "1.25 GiB" or "41.2 %". `text` has NUMBER_TEXT
 * characters (runtime/base/number.h) and is returned. */
char *figures_text(const struct figure_row *, double value, char *text);

/* Adds the members that the rows name to a report. Objects for them are made if they are missing. */
void figures_write(const struct figures *, json_t *report);

/* Reads the figures of a report that came from the file `path`. Figures that are missing and not needed
 * become 0. Of `low` and `high` a report has neither, or both, with the median between them. Returns 0, or
 * RV_EINPUT with a sentence that names the file, the line and a member that is missing or is not a number
 * within its bounds. */
int figures_read(struct figures *, const char *path, const json_t *report, struct rv_error_info *err);

#endif
