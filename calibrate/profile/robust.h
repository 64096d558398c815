/* Robust nonlinear least squares (GSL's Levenberg-Marquardt under weights that are found again and again). */
#ifndef RANVIER_CALIBRATE_PROFILE_ROBUST_H
#define RANVIER_CALIBRATE_PROFILE_ROBUST_H

#include <stdbool.h>

/* A curve with positive parameters. */
struct robust_problem {
        int points, parameters;
        /* Residuals of all points at these parameters, into residual[points]. */
        void (*residuals)(void *context, const double *parameter, double *residual);
        void *context;
};

/* Finds the parameters, from those that it is given, whose residuals are small for most points: first least
 * absolute residuals and then, if `bisquare`, Tukey's bisquare weights, with the median absolute residual as
 * scale (Huber, Robust Statistics, 1981, ch. 7). `residual` [points] is what is left over. Steps are taken in
 * the parameters' logarithms, which keeps them positive. Needs at least as many points as parameters. */
void robust_fit(const struct robust_problem *problem, bool bisquare, double *parameter, double *residual);

#endif
