/* Prints the table of a load's fits at the end of `ranvier calibrate`: how well each model and line meets
 * the points that it was fitted to, and points that it did not see. It fits nothing itself (profile/fit.h
 * does). */
#ifndef RANVIER_CALIBRATE_FITS_H
#define RANVIER_CALIBRATE_FITS_H

#include "calibrate/profile/profile.h"

/* Prints a row for each kernel and line that has a fit: its points, the median and worst residual, the
 * median and worst leave-one-out error, and the figures that were found. */
void fits_print(const struct profile_load *load, FILE *stream);

#endif
