/* The figures that `ranvier plot` and `ranvier compare --plot` draw. Each reads and checks its inputs, writes
 * them as columns and runs the gnuplot script of its name. 0, or a negative enum rv_error with a sentence. */
#ifndef RANVIER_PLOTS_FIGURES_H
#define RANVIER_PLOTS_FIGURES_H

#include "plots/run.h"

/* Time per batch, predicted over measured, with the diagonal and a band of 5 %. Runs come in pairs. */
int figures_predicted_measured(const char *out, const struct run *runs, int count, struct rv_error_info *err);

/* Tokens a second, and percent of peak where it is known, by number of GPUs; a line a model and world. */
int figures_throughput(const char *out, const struct run *runs, int count, struct rv_error_info *err);

/* Device memory of the largest rank by category; a bar a report. */
int figures_memory(const char *out, const struct run *runs, int count, struct rv_error_info *err);

/* Seconds of a batch by phase: compute, collectives of shards, bubble, all-reduce, optimizer; a bar a
 * report. */
int figures_phases(const char *out, const struct run *runs, int count, struct rv_error_info *err);

/* Who did what when in batch `batch` (-1: the middle one) of a trace. */
int figures_timeline(const char *out, const char *trace, int batch, struct rv_error_info *err);

/* The end of batch `batch` (-1: the middle one) on rank `rank` (-1: the one where it takes longest): from the
 * end of its last backward to that of its last operation, a row a lane, and how long each lane is busy. */
int figures_optimizer(const char *out, const char *trace, int batch, int rank, struct rv_error_info *err);

/* Train and validation loss by step, a colour a CSV file of ranvier train. */
int figures_loss(const char *out, char *const *paths, int count, struct rv_error_info *err);

/* Of the CSV of ranvier sweep: tokens a second and percent of peak of the best plans with and without
 * offloading, and what the other simulated plans do, by number of GPUs. */
int figures_sweep_throughput(const char *out, const char *path, struct rv_error_info *err);

/* Of the same: device memory of the largest GPU, and of all, of the best plans. */
int figures_sweep_memory(const char *out, const char *path, struct rv_error_info *err);

#endif
