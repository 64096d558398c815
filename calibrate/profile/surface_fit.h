/* Fits a surface (surface.h) to its points: the model's free figures, how far points say something of others,
 * and how wrong estimates are of points that they did not see. */
#ifndef RANVIER_CALIBRATE_PROFILE_SURFACE_FIT_H
#define RANVIER_CALIBRATE_PROFILE_SURFACE_FIT_H

#include "calibrate/profile/surface.h"

/* The fewest points that a surface is fitted to. */
enum { SURFACE_LEAST_POINTS = 20 };

/* Fits surface->model (its datasheet's figures are given), kriging and quality to surface->points, and, if
 * there is a training table, that one's kriging; prepares the clouds. What one point or region is predicted
 * by did not see it. Deterministic. Returns false if there is no memory. */
bool surface_fit(struct surface *surface);

#endif
