/* Points -> models of kernels and lines: which of the model's effects the points show, their sizes, and how
 * far the result can be trusted. */
#ifndef RANVIER_CALIBRATE_PROFILE_FIT_H
#define RANVIER_CALIBRATE_PROFILE_FIT_H

#include "calibrate/profile/profile.h"

/* The model of one kind's points in one format, without a model where there are none. Effects are added one
 * by one, as long as the points ask for them (fit.c says how), and fitted by robust least squares on relative
 * residuals. On a device of `processors` multiprocessors (0: a CPU core) tiles and waves are tried too.
 * quality has the residuals and, by fitting again without each point, the leave-one-out errors; error is
 * fit_error() of these, or 0 with fewer than two points. */
struct kernel_model fit_kernels(const struct kernel_point *points, int count, enum kernel_kind kind,
                                enum dtype dtype, int processors);
struct line_fit fit_line(const struct line_point *points, int count);

/* The relative standard error of one more price by a fit, from |relative errors| of prices that it did not
 * see (sorted in place). What a normal error of this size exceeds once in ten times is what those exceeded
 * once in ten times, times Student's t over the normal quantile for so few: sigma = q90 / 1.645 x t95(dof)
 * / 1.645. */
double fit_error(double *absolute_errors, int count, int parameters);

/* A standard deviation that was found with so many degrees of freedom (at least 1), as that of the normal
 * distribution whose 90 % interval is as wide as Student's. */
double fit_widened(double deviation, int freedom);

#endif
