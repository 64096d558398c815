/* Robust least squares (GSL) for the cost models of profile.h. */
#ifndef RANVIER_CALIBRATE_FIT_H
#define RANVIER_CALIBRATE_FIT_H

#include "calibrate/profile.h"

/* Non-negative robust fits that minimise relative residuals (each equation divided by its seconds). Of the
 * points of one kind in one format. */
struct kernel_model fit_kernels(const struct kernel_point *points, int count, enum kernel_kind kind,
                                enum half half);
struct line_fit fit_line(const struct line_point *points, int count);

#endif
