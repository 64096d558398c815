/* Robust nonlinear least squares: GSL's Levenberg-Marquardt under weights that are found again and again, so
 * that a few outliers do not decide a fit. fit.h is its one caller in the program. */
#ifndef RANVIER_CALIBRATE_PROFILE_ROBUST_H
#define RANVIER_CALIBRATE_PROFILE_ROBUST_H

#include <stdbool.h>

/* A curve with positive parameters, and the points that it should meet. */
struct robust_problem {
        int points, parameters;
        /* Writes the residuals of all points at these parameters into residual[points]. */
        void (*residuals)(void *context, const double *parameter, double *residual);
        void *context;
};

/* Finds the parameters whose residuals are small for most points. `parameter` [parameters] holds positive
 * values to begin at, and becomes the result; `residual` [points] becomes what is left over. First it
 * minimises the absolute residuals and then, if `bisquare`, uses Tukey's bisquare weights, with the median
 * absolute residual as scale (Huber, Robust Statistics, 1981, ch. 7). Steps are taken in the parameters'
 * logarithms, which keeps them positive. Needs at least as many points as parameters. While it runs, GSL's
 * error handler, which all threads share, is off. */
void robust_fit(const struct robust_problem *problem, bool bisquare, double *parameter, double *residual);

#endif
