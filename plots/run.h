/* A report file as compare and the figures need it: read, and every number of it checked. */
#ifndef RANVIER_PLOTS_RUN_H
#define RANVIER_PLOTS_RUN_H

#include "models/memory.h"
#include "runtime/plan/grid.h"
#include "runtime/report/figures.h"

struct run {
        const char *path;
        json_t *document; /* the whole report */
        bool simulated;
        struct gpt gpt;
        GRID_SIZES;
        int micro_batch_size, seq_len;
        int64_t batch_size;
        const char *schedule;
        char how[64]; /* what figures call it: "1f1b, blocking, ZeRO-1" */
        bool offload; /* false in reports that do not say */
        struct figures figures;
        struct memory_bytes bytes; /* of the rank with most device bytes */
};

/* Reads `count` reports into a new array, or returns NULL with a sentence. `paths` must outlive it. */
struct run *runs_read(char *const *paths, int count, struct rv_error_info *err);
void runs_free(struct run *runs, int count);

/* RV_EINPUT with a sentence unless `predicted` is simulated, `measured` is real, and both have the same
 * model, the same plan and, as far as they say, the same threads a rank; the sentence names the first
 * difference. */
int runs_check_pair(const struct run *predicted, const struct run *measured, struct rv_error_info *err);

/* predicted / measured - 1, in percent. */
double runs_error_percent(double predicted, double measured);

#endif
