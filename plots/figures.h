/* The figures that `ranvier plot` and `ranvier compare --plot` draw, one function and one gnuplot script
 * each.
 *
 * Figures of reports take runs that the caller has read (run.h), `count` of them and at least one; figures of
 * a trace or a CSV read the file themselves. `out` is the image to write, whose name ends in .png or .svg.
 * All return 0, or a negative enum rv_error with a sentence. */
#ifndef RANVIER_PLOTS_FIGURES_H
#define RANVIER_PLOTS_FIGURES_H

#include "plots/run.h"

#include "runtime/base/parse.h"

/* Draws the time per batch, predicted over measured, with the diagonal and a band of 5 %, and the errors by
 * themselves. Runs come in pairs, the prediction first, that the caller has checked with runs_check_pair. */
int figures_predicted_measured(const char *out, const struct run *runs, int count, struct rv_error_info *err);

/* Draws tokens a second, and percent of peak where it is known, by number of GPUs. Reports of the same model,
 * world (simulated or measured) and run.how are one line, which goes through the fastest of each number of
 * GPUs. */
int figures_throughput(const char *out, const struct run *runs, int count, struct rv_error_info *err);

/* Draws the memory of the largest rank by category, on the device and, if any report has it, on the host: a
 * bar for each report. */
int figures_memory(const char *out, const struct run *runs, int count, struct rv_error_info *err);

/* Draws the seconds of a batch by phase (compute, collectives of shards, bubble, all-reduce, optimizer): a
 * bar for each report. */
int figures_phases(const char *out, const struct run *runs, int count, struct rv_error_info *err);

/* What of a batch a timeline shows. */
struct timeline_cut {
        int batch;       /* -1: the middle one of the trace */
        double from, to; /* seconds since the batch began; `to` may be INFINITY */
        /* The ranks, in any order; with a count of 0 the figure chooses. */
        struct int_list ranks;
};

/* Draws what the lanes of ranks did when in one batch of the trace at path `trace`. Unless the ranks are
 * given, of more than 12 only the first pipeline is shown, and of more than 32 as many, evenly chosen. Of
 * more than 4 only compute lanes are shown, and where operations are too short to be seen, the share of the
 * time that each kind has instead of them. A batch, a time or a rank that the trace does not have is
 * RV_EINPUT. */
int figures_timeline(const char *out, const char *trace, const struct timeline_cut *cut,
                     struct rv_error_info *err);

/* Draws the end of batch `batch` (-1 means the middle one) on rank `rank` (-1 means the one where it takes
 * longest): from the end of its last backward to that of its last operation, a row for each lane, and how
 * long each lane is busy. A batch without an update after a last backward is RV_EINPUT. */
int figures_optimizer(const char *out, const char *trace, int batch, int rank, struct rv_error_info *err);

/* Draws train and validation loss by step, a colour for each CSV file of ranvier train among the `count`
 * paths. The report (.json) of the same training may follow each: it tells the validation before the first
 * step. */
int figures_loss(const char *out, char *const *paths, int count, struct rv_error_info *err);

/* Draws, from the CSV of ranvier sweep at `path`, tokens a second and percent of peak of the best plans with
 * and without offloading, and what the other simulated plans do, by number of GPUs. */
int figures_sweep_throughput(const char *out, const char *path, struct rv_error_info *err);

/* Draws, from the same file, the device memory of the best plans: of the largest GPU, and of all GPUs
 * together. */
int figures_sweep_memory(const char *out, const char *path, struct rv_error_info *err);

/* Draws, from the CSV of ranvier validate at `path`, seconds a batch, predicted over measured, of all runs.
 */
int figures_validation(const char *out, const char *path, struct rv_error_info *err);

#endif
