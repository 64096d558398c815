/* A report file of `ranvier train` or `ranvier simulate`, as compare and the figures need it: read, and every
 * number of it checked. Whoever draws or compares reports begins with runs_read. */
#ifndef RANVIER_PLOTS_RUN_H
#define RANVIER_PLOTS_RUN_H

#include "plots/plan_text.h"

#include "models/memory.h"
#include "runtime/plan/grid.h"
#include "runtime/report/figures.h"

struct run {
        const char *path;
        /* The whole report; texts below point into it. */
        json_t *document;
        /* Of the simulated world; else of the real one. */
        bool simulated;
        struct gpt gpt;
        /* Ranks along each axis: pp stages, dp replicas, tp shards. */
        GRID_SIZES;
        int context_ranks; /* over so many each sequence is spread, beside the replicas; 1 in older reports */
        /* In sequences, and tokens of a sequence. */
        int micro_batch_size, seq_len;
        /* In sequences. */
        int64_t batch_size;
        const char *schedule;
        /* What figures call the plan beside its grid (plan_text.h), and what it does to save memory. */
        char how[PLAN_TEXT], saving[PLAN_TEXT];
        /* What a device has; 0 in reports that do not say. */
        int64_t device_capacity_bytes;
        struct figures figures;
        /* Of the rank with most device bytes. Categories that older reports do not have are 0. */
        struct memory_bytes bytes;
};

/* Reads `count` reports into a new array, which runs_free frees, or returns NULL with a sentence (err->code
 * is RV_EINPUT for a report, RV_ESYSTEM for memory). `paths` must outlive the array. */
struct run *runs_read(char *const *paths, int count, struct rv_error_info *err);
void runs_free(struct run *runs, int count);

/* Returns RV_EINPUT with a sentence unless `predicted` is simulated, `measured` is real, and both have the
 * same model and plan; the sentence names the first difference. Where the measurement is of a CPU, both must
 * have as many threads a rank too, as far as they say. */
int runs_check_pair(const struct run *predicted, const struct run *measured, struct rv_error_info *err);

/* Returns predicted / measured - 1, in percent. */
double runs_error_percent(double predicted, double measured);

#endif
