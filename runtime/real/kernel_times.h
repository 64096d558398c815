/* Where a batch's time goes: kernels by kind and role, each beside what the machine could do. */
#ifndef RANVIER_RUNTIME_REAL_KERNEL_TIMES_H
#define RANVIER_RUNTIME_REAL_KERNEL_TIMES_H

#include "runtime/device/device.h"

#include <stdio.h>

/* What a product of matrices is for; other kernels have none of it. */
enum kernel_role {
        ROLE_NONE,
        ROLE_FORWARD,
        ROLE_INPUT_GRADIENT,
        ROLE_WEIGHT_GRADIENT,
        ROLE_SCORES, /* attention's batches of small ones */
        ROLE_OUTPUT, /* the projection to the vocabulary, forward and backward */
        KERNEL_ROLES
};

/* Rates of this machine, on the threads that train, with all ranks at it at once. */
struct machine_rates {
        double flops_per_second; /* of a large matrix product */
        double bytes_per_second; /* of a kernel that passes over large arrays */
};

/* Measures them on a device of its own, in a second or so; RV_OK or why it could not be opened. */
int machine_rates_measure(struct machine_rates *rates, const char *device,
                          const struct device_request *request, enum dtype dtype, struct rv_error_info *err);

/* The kernels of one kind and role in a batch. */
struct kernel_row {
        int kind, role;
        int64_t calls;
        double flops, bytes;
        double roof_seconds; /* sum over calls of max(flops / rate, bytes / rate) */
        double seconds;      /* median over the batches */
};

enum {
        KERNEL_ROWS = KERNEL_KINDS * KERNEL_ROLES,
        KERNEL_BATCHES = 256 /* that a median is over, the last ones */
};

/* What a rank knows in the end. */
struct kernel_summary {
        struct machine_rates rates;
        double batch_seconds; /* median */
        int batches, rows;
        struct kernel_row row[KERNEL_ROWS]; /* [rows], the longest first */
};

struct kernel_times {
        struct machine_rates rates;
        int64_t width, vocabulary; /* n_embd, and the tokens of this shard; 0: see init */
        int64_t batches;
        struct kernel_row now[KERNEL_ROWS]; /* of the batch that runs; seconds: its own */
        double seconds[KERNEL_ROWS][KERNEL_BATCHES], batch_seconds[KERNEL_BATCHES];
};

/* Of a vocabulary that is as wide as a layer's matrices no shape tells the output projection apart: then it
 * counts among the other products. rates are the caller's to fill. */
void kernel_times_init(struct kernel_times *times, const struct gpt *gpt, int shards);

/* A kernel of a batch: struct device's recorder, with the kernel_times as its context. */
void kernel_times_note(void *times, const struct kernel *kernel, double seconds, double end);

/* Around a batch that counts. Nothing is queued on the device at either. */
void kernel_times_begin(struct kernel_times *times, struct device *device);
void kernel_times_end(struct kernel_times *times, struct device *device, double batch_seconds);

void kernel_times_summary(struct kernel_times *times, struct kernel_summary *summary);

/* "forward", "input gradient", ...; "" if none. */
const char *kernel_role_name(enum kernel_role role);

/* The rank whose kernels take longest, as a table; all of them as JSON, which the caller owns. */
void kernel_summary_print(const struct kernel_summary *ranks, int count, FILE *stream);
json_t *kernel_summary_json(const struct kernel_summary *ranks, int count);

#endif
