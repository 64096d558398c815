/* The CSV of `ranvier sweep`: read, and every number that the figures need checked. */
#ifndef RANVIER_PLOTS_SWEEP_H
#define RANVIER_PLOTS_SWEEP_H

#include "plots/figure.h"

#include <stdint.h>

/* A plan that the sweep simulated. */
struct sweep_plan {
        int gpus, pp, dp, micro_batch_size;
        bool offload, offload_activations;
        char recompute; /* as sweep_plan_text says it; 0: nothing */
        bool best;      /* of its number of GPUs and offload */
        double tokens_per_second;
        double percent_of_peak;    /* NAN: not known */
        int64_t device_peak_bytes; /* of the GPU that needs most */
        int64_t device_total_bytes;
        int line; /* of the file, from 1 */
};

/* The best plans of one number of GPUs; NULL where there is none. */
struct sweep_pair {
        int gpus;
        const struct sweep_plan *best[2]; /* [offload] */
};

struct sweep {
        struct sweep_plan *plans; /* as in the file */
        int count, capacity;
        struct sweep_pair *pairs; /* by GPUs, the fewest first; only numbers with a best plan */
        int pair_count;
        bool has[2]; /* [offload]: whether any best plan is so */
};

/* Columns are found by their names in the first line; others may stand between them. RV_EINPUT with file,
 * line and what is wrong if one is missing, a line is cut, a value is not what its column holds, or two plans
 * are the best of the same. If it fails, `sweep` holds nothing. */
int sweep_read(struct sweep *sweep, const char *path, struct rv_error_info *err);
void sweep_free(struct sweep *sweep);

/* "12 × 4, b 2 r a": stages, replicas, micro-batch; recomputed (s selective, r full, l layer); activations
 * offloaded. */
enum { SWEEP_TEXT = 64 };
char *sweep_plan_text(char text[SWEEP_TEXT], const struct sweep_plan *plan);

/* How much more tokens a second the best plan with offloading makes than the one without, in percent; NAN
 * unless there are both. */
double sweep_gain_percent(const struct sweep_pair *pair);

/* Sets the variable numbers: of GPUs that have a best plan, as words. */
void sweep_name_numbers(struct figure *figure, const struct sweep *sweep);

/* Sets the variable plan_key: what sweep_plan_text says of the best plans. */
void sweep_explain_plans(struct figure *figure, const struct sweep *sweep);

/* Sets the variable source: the file's name without its folder. */
void sweep_name_source(struct figure *figure, const char *path);

#endif
