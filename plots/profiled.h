/* A prediction beside what PyTorch's profiler saw of the same training on one GPU or CPU: where the time of a
 * step goes, by phase and by kind of work (`ranvier compare TIMELINE TRACE`). */
#ifndef RANVIER_PLOTS_PROFILED_H
#define RANVIER_PLOTS_PROFILED_H

#include "runtime/base/error.h"

#include <stdio.h>

/* In the order of the table. What forward, backward and optimizer have is the time of their kernels or
 * operators; that of forward and backward is parted by kinds of work, too. */
enum profiled_row {
        PROFILED_STEP,
        PROFILED_FORWARD,
        PROFILED_BACKWARD,
        PROFILED_OPTIMIZER,
        /* The rest: launches, waits for other GPUs or the host, loading of data. */
        PROFILED_BETWEEN,
        /* Between GPUs, beside the others or not. */
        PROFILED_COLLECTIVES,
        PROFILED_PRODUCTS,
        /* Attention as one kernel, and products of many matrices with the softmax between them. */
        PROFILED_ATTENTION,
        PROFILED_NORMS,
        PROFILED_ACTIVATIONS,
        PROFILED_EMBEDDINGS,
        PROFILED_LOSS,
        /* Sums, functions of elements, copies, sums over axes, fills. */
        PROFILED_ELEMENTS,
        /* What no kernel of ours does, or is not known. */
        PROFILED_FOREIGN,
        PROFILED_ROWS
};

struct profiled {
        char model[128], machine[128], device[96]; /* "": not said */
        int rank, batch;
        int steps, left_out; /* that were taken, and that took longer than the others */
        double predicted[PROFILED_ROWS], measured[PROFILED_ROWS]; /* seconds of a batch, and of a step */
        /* Floating-point operations of the products of one matrix. */
        double predicted_flops, measured_flops;
        /* What lies between the two files' clocks: the microseconds, in the profiler's, at which the first
         * step that was taken began, and the seconds, in the timeline's, at which its batch did. */
        double step_microseconds, batch_seconds;
};

/* Reads a timeline that `ranvier simulate --trace` wrote and a trace of PyTorch's profiler. `rank` is whose
 * GPU was traced. Figures of the trace are means over its steps, as calibrate --from-trace takes them.
 * RV_EINPUT: one of them cannot be read, the timeline has no kernels or no such rank, or the trace has no
 * steps. */
int profiled_read(struct profiled *, const char *timeline, const char *trace, int rank,
                  struct rv_error_info *err);

/* Print it, and write it as a CSV: a line a row of the table, in seconds, and one of the products'
 * operations. */
void profiled_print(const struct profiled *, FILE *out);
int profiled_write_csv(const struct profiled *, const char *path, struct rv_error_info *err);

/* Writes both files as one that Perfetto and chrome://tracing open, whole or not at all (merge.c): the
 * timeline's ranks above, each named as predicted; time 0 is where its batch begins, and the first step that
 * was taken. */
int profiled_merge(const struct profiled *, const char *timeline, const char *trace, const char *path,
                   struct rv_error_info *err);

#endif
