/* Where the time of a batch goes (`ranvier train --kernels`). This module takes the time of every kernel from
 * the device's recorder, adds the times up by kind and role over a batch, takes medians over many batches,
 * and compares them with the roofline: what the machine could do at most, measured before the training. It
 * sees kernels alone; the time in between, for messages, copies and rests, is what is left of the batch.
 *
 * Each rank measures for itself: kernel_times_init, then kernel_times_begin and _end around each batch that
 * counts, and kernel_times_summary once. Rank 0 gathers the summaries and prints them. */
#ifndef RANVIER_RUNTIME_REAL_KERNEL_TIMES_H
#define RANVIER_RUNTIME_REAL_KERNEL_TIMES_H

#include "runtime/device/device.h"

#include <stdio.h>

/* What a matrix product is for. Kernels that are not one product have ROLE_NONE. */
enum kernel_role {
        ROLE_NONE,
        ROLE_FORWARD,
        ROLE_INPUT_GRADIENT,
        ROLE_WEIGHT_GRADIENT,
        ROLE_SCORES, /* attention's batches of small products */
        ROLE_OUTPUT, /* the projection to the vocabulary, forward and backward */
        KERNEL_ROLES
};

/* What this machine does at most, on the threads that train, with all ranks at it at once. */
struct machine_rates {
        double flops_per_second; /* of a large matrix product */
        double bytes_per_second; /* of a kernel that passes over large arrays */
};

/* Measures the rates in a second or so, on a device that it opens for that and closes again. To measure what
 * ranks leave each other, all ranks call it at the same time, before they open the device that trains.
 * Returns 0, or a negative rv_error if the device cannot be opened or there is not enough memory. */
int machine_rates_measure(struct machine_rates *rates, const char *device,
                          const struct device_request *request, enum dtype dtype, struct rv_error_info *err);

/* The kernels of one kind and role in a batch, together. */
struct kernel_row {
        int kind, role; /* enum kernel_kind, enum kernel_role */
        int64_t calls;
        double flops, bytes; /* of all calls, by the kernel's shapes */
        /* The time that the machine's rates allow: the sum over calls of max(flops / rate, bytes / rate). */
        double roof_seconds;
        double seconds; /* in a summary: the median over the batches */
};

enum {
        KERNEL_ROWS = KERNEL_KINDS * KERNEL_ROLES,
        KERNEL_BATCHES = 256 /* medians are over the last so many batches */
};

/* What a rank knows in the end. It has no pointers, so it can be sent to rank 0. */
struct kernel_summary {
        struct machine_rates rates;
        double batch_seconds; /* median */
        int batches, rows;
        /* [rows], the one with the longest time first. Calls, flops and bytes are those of the last batch. */
        struct kernel_row row[KERNEL_ROWS];
};

/* What a rank collects. It is large; allocate it. */
struct kernel_times {
        struct machine_rates rates; /* the caller fills them after kernel_times_init */
        /* By which the output projection is known: n_embd, and this shard's part of the vocabulary (0:
         * see kernel_times_init). */
        int64_t width, vocabulary;
        int64_t batches; /* that were counted so far */
        /* What was noted in the batch that runs, or ran last, at kind x KERNEL_ROLES + role. */
        struct kernel_row now[KERNEL_ROWS];
        /* Of each counted batch, at its number modulo KERNEL_BATCHES. */
        double seconds[KERNEL_ROWS][KERNEL_BATCHES], batch_seconds[KERNEL_BATCHES];
};

/* Sets everything to zero but width and vocabulary, for a model in `shards` shards. The output projection is
 * told from other products by its shape. If the vocabulary is as wide as one of a layer's matrices, no shape
 * tells it, and it counts among the other products. */
void kernel_times_init(struct kernel_times *times, const struct gpt *gpt, int shards);

/* Counts one kernel that took `seconds`. It is a recorder of a struct device; `times` is a struct
 * kernel_times. */
void kernel_times_note(void *times, const struct kernel *kernel, double seconds, double end);

/* The first sets the device's recorder for a batch that counts; the second removes it and keeps the batch's
 * times. Nothing may be queued on the device at either moment. `batch_seconds` is how long the batch took. */
void kernel_times_begin(struct kernel_times *times, struct device *device);
void kernel_times_end(struct kernel_times *times, struct device *device, double batch_seconds);

/* Summarises the batches that were counted, of which there must be one. The times of the batches are sorted
 * in place, so nothing may be counted afterwards. */
void kernel_times_summary(struct kernel_times *times, struct kernel_summary *summary);

/* Returns "forward", "input gradient" and so on; "" for ROLE_NONE. */
const char *kernel_role_name(enum kernel_role role);

/* Prints a table of the rank whose kernels take longest; `ranks` has the summaries of `count` ranks. */
void kernel_summary_print(const struct kernel_summary *ranks, int count, FILE *stream);

/* Returns the summaries of all ranks as a JSON array, which the caller owns. */
json_t *kernel_summary_json(const struct kernel_summary *ranks, int count);

#endif
