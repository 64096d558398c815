/* Fits models of kernels and lines to measured points: which of the model's effects the points show, the
 * size of each, and how far the result can be trusted. samples.h calls it when a profile is made; a
 * prediction only uses the result. */
#ifndef RANVIER_CALIBRATE_PROFILE_FIT_H
#define RANVIER_CALIBRATE_PROFILE_FIT_H

#include "calibrate/profile/profile.h"

/* Fits the model of one kind of kernel in one format, to those of `count` points that are of both; without
 * any, the model is not `present`. Effects are added one by one, as long as the points ask for them (fit.c
 * says how), and fitted by robust least squares on relative residuals. On a device of `processors`
 * multiprocessors (0: a CPU core) tiles and waves are tried too. `quality` has the residuals and, by fitting
 * again without each point, the leave-one-out errors; `error` is fit_error() of these, or 0 with fewer than
 * two points. */
struct kernel_model fit_kernels(const struct kernel_point *points, int count, enum kernel_kind kind,
                                enum dtype dtype, int processors);
/* Fits a line to all of `count` points, in the same way: a latency and seconds a byte, either of which may
 * be 0. */
struct line_fit fit_line(const struct line_point *points, int count);

/* Returns the relative standard error of one more price by a fit of so many parameters, from `count`
 * |relative errors| of prices that it did not see (sorted in place); 0 with fewer than two. What a normal
 * error of this size exceeds once in ten times is what those exceeded once in ten times, times Student's t
 * over the normal quantile for so few: sigma = q90 / 1.645 x t95(count - parameters) / 1.645. */
double fit_error(double *absolute_errors, int count, int parameters);

/* Returns the standard deviation of the normal distribution whose 90 % interval is as wide as Student's, for
 * a standard deviation that was found with `freedom` degrees of freedom, at least 1. */
double fit_widened(double deviation, int freedom);

#endif
