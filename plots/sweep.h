/* The CSV of `ranvier sweep`, as its two figures need it: read, and every number that they need checked; and
 * what they share of texts. The sweep itself is in sim/search; the CSV is all that is known of it here. */
#ifndef RANVIER_PLOTS_SWEEP_H
#define RANVIER_PLOTS_SWEEP_H

#include "plots/figure.h"

#include <stdint.h>

/* A plan that the sweep simulated. */
struct sweep_plan {
        /* micro_batch_size is in sequences. */
        int gpus, pp, dp, micro_batch_size;
        /* What files of older versions do not say is 1, or for zero 0. */
        int tp, virtual_stages, ep, cp, zero;
        /* "" in files of older versions. */
        char schedule[32];
        bool blocking;
        /* The optimizer's state, stored activations, or weights, are in host memory. */
        bool offload, offload_activations, offload_parameters;
        /* What a device has; 0: not known. */
        int64_t device_memory_bytes;
        /* The letter of sweep_plan_text for what is recomputed; 0 if nothing is. */
        char recompute;
        /* It is the best plan of its number of GPUs and its `offload`. */
        bool best;
        double tokens_per_second;
        /* NAN if it is not known. */
        double percent_of_peak;
        /* Of the GPU that needs most, and of all GPUs. */
        int64_t device_peak_bytes;
        int64_t device_total_bytes;
        /* Of the file, from 1. */
        int line;
};

/* The best plans of one number of GPUs, without and with offloading: best[offload], NULL where there is
 * none. */
struct sweep_pair {
        int gpus;
        const struct sweep_plan *best[2];
};

struct sweep {
        /* [count], in the order of the file. */
        struct sweep_plan *plans;
        int count, capacity;
        /* [pair_count], the fewest GPUs first; only numbers of GPUs that have a best plan. At least one. */
        struct sweep_pair *pairs;
        int pair_count;
        /* has[offload]: whether there is any such best plan. */
        bool has[2];
        /* Whether not all best plans have the same schedule. */
        bool several_schedules;
        /* What the plans are of and for: "" or 0 in files of older versions. batch_size is in sequences, of
         * seq_len tokens. */
        char model[64], machine[64];
        int64_t batch_size, seq_len;
};

/* Reads the CSV at `path`. Columns are found by their names in the first line; others may stand between them.
 * RV_EINPUT with file, line and what is wrong if a column is missing, a line is cut, a value is not what its
 * column holds, two plans are the best of the same, or none is the best; RV_ESYSTEM if memory runs out. The
 * caller calls sweep_free; after an error `sweep` holds nothing. */
int sweep_read(struct sweep *sweep, const char *path, struct rv_error_info *err);
void sweep_free(struct sweep *sweep);

/* Writes a plan for labels, such as "12 × 4, b 2 r a": stages × replicas, and × shards if there are any; b
 * and the micro-batch size; what is recomputed (s selective, r full, l layer, n norms, g SwiGLU, e norms and
 * SwiGLU); a if activations are offloaded, w if weights are. What else makes the plan is in a second line,
 * behind gnuplot's
 * "\\n": "1f1b, ZeRO-1", with the schedule if the best plans have several. Returns whether there is one. */
enum { SWEEP_TEXT = 192 };
bool sweep_plan_text(char text[SWEEP_TEXT], const struct sweep *sweep, const struct sweep_plan *plan);

/* Returns how many percent more tokens a second the best plan with offloading makes than the one without; NAN
 * unless there are both. */
double sweep_gain_percent(const struct sweep_pair *pair);

/* Sets the script's variable numbers to the numbers of GPUs that have a best plan, parted by blanks. */
void sweep_name_numbers(struct figure *figure, const struct sweep *sweep);

/* Sets the variable plan_key to an explanation of the letters that sweep_plan_text uses for the best
 * plans. */
void sweep_explain_plans(struct figure *figure, const struct sweep *sweep);

/* Sets the variable what to the model, batch, cluster and, if there is one only, schedule, as far as the file
 * has them: ": gpt-12b, batch 1,536 × 512 tokens, summit, axonn". */
void sweep_describe(struct figure *figure, const struct sweep *sweep);

/* Sets the variable source to the file's name without its folder. */
void sweep_name_source(struct figure *figure, const char *path);

#endif
