/* The figures of a batch, one row each: reports are written and read, and passed between processes, by the
 * rows. A new figure is a member, its row, and what report_figures makes of it. */
#ifndef RANVIER_RUNTIME_REPORT_FIGURES_H
#define RANVIER_RUNTIME_REPORT_FIGURES_H

#include "runtime/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Times are in seconds; what is not known is 0. */
struct figures {
        double median, p10, p90; /* of the batches' times */
        double low, high;        /* predicted: nine batches in ten lie between them */
        int64_t batches;
        double tokens_per_second, flops_per_gpu_per_second, percent_of_peak, training_days;
        int64_t training_tokens;
        double pipeline_seconds, allreduce_seconds, optimizer_seconds, busiest_seconds, tensor_seconds;
        double bubble_fraction;       /* of the pipeline's seconds */
        int64_t device_peak_bytes;    /* of the rank that needs most on its device, */
        int64_t largest_rank;         /* which is this one; */
        int64_t device_total_bytes;   /* and of all ranks */
        int64_t live_peak_bytes;      /* in use at once */
        int64_t host_peak_bytes;      /* of a whole process, the largest rank's */
        int64_t host_offloaded_bytes; /* of largest_rank, what its device copies from and to */
};

enum figure_unit {
        FIGURE_SECONDS,
        FIGURE_BYTES,
        FIGURE_COUNT,
        FIGURE_FLOPS,
        FIGURE_PERCENT,
        FIGURE_FRACTION,
        FIGURE_DAYS
};

struct figure_row {
        const char *room, *key; /* of a report: "phases", "pipeline_seconds"; room NULL: at the top */
        const char *label;      /* for readers; NULL: not shown by itself */
        enum figure_unit unit;
        enum { FIGURE_REAL, FIGURE_WHOLE } type;
        size_t offset; /* in struct figures */
        enum {
                FIGURE_ALWAYS,
                FIGURE_OR_NULL,
                FIGURE_OR_ABSENT
        } known;    /* how a 0 that means "not known" is written */
        double min; /* which a report's must have, if `needed` */
        bool needed;
};
extern const struct figure_row figure_rows[];
extern const int figure_count;

double figures_value(const struct figure_row *, const struct figures *);

/* A value as a reader wants it: "12.3 ms", "1.25 GiB", "41.2 %". Returns `text`, of NUMBER_TEXT characters.
 */
char *figures_text(const struct figure_row *, double value, char *text);

/* Sets the members of a report that the rows say; its rooms are made where they are missing. */
void figures_write(const struct figures *, json_t *report);

/* Reads them. RV_EINPUT names the file, the line and a member that is missing or not a number in its bounds.
 */
int figures_read(struct figures *, const char *path, const json_t *report, struct rv_error_info *err);

#endif
