/* The table of a load's fits: how well they meet their points, and points that they did not see. */
#ifndef RANVIER_CALIBRATE_FITS_H
#define RANVIER_CALIBRATE_FITS_H

#include "calibrate/profile/profile.h"

void fits_print(const struct profile_load *load, FILE *stream);

#endif
