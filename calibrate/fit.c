#include "calibrate/fit.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

enum { MOST_TERMS = 3 };

/* Seconds as a sum of terms: `cost` (points, terms) row by row, the more telling terms first. */
struct problem {
        int points, terms;
        const double *cost, *seconds;
};

/* What came out: a coefficient a term (0 where the term was dropped) and the relative residuals. */
struct solution {
        double coefficient[MOST_TERMS];
        double median_error, worst_error;
};

/* Entry of the system that is solved: relative residuals mean dividing every equation by its seconds. */
static double entry(const struct problem *p, int point, int term)
{
        return p->cost[point * p->terms + term] / p->seconds[point];
}

static double column_norm(const struct problem *p, int term)
{
        double sum = 0;
        for (int i = 0; i < p->points; i++)
                sum += entry(p, i, term) * entry(p, i, term);
        return sqrt(sum);
}

/* Whether two terms are the same up to a factor over these points: a fit could not tell them apart. */
static bool parallel(const struct problem *p, int a, int b)
{
        double dot = 0;
        for (int i = 0; i < p->points; i++)
                dot += entry(p, i, a) * entry(p, i, b);
        return dot > (1 - 1e-6) * column_norm(p, a) * column_norm(p, b);
}

/* Picks the terms that these points can determine: no more than points, none that is zero or repeats another.
 */
static int pick_terms(const struct problem *p, int picked[MOST_TERMS])
{
        int count = 0;
        for (int term = 0; term < p->terms && count < p->points; term++) {
                bool tells = column_norm(p, term) > 0;
                for (int i = 0; i < count && tells; i++)
                        tells = !parallel(p, picked[i], term);
                if (tells)
                        picked[count++] = term;
        }
        return count;
}

/* Least squares and then, with points to spare, bisquare weights. The robust pass fits what least squares
 * left over: GSL takes its least scale of residuals from the spread of y, which is zero for the right side of
 * ones. */
static void solve(const gsl_matrix *X, gsl_vector *c)
{
        size_t n = X->size1, p = X->size2;
        double chi_squared;
        gsl_vector *y = gsl_vector_alloc(n), *step = gsl_vector_alloc(p);
        gsl_matrix *covariance = gsl_matrix_alloc(p, p);
        gsl_multifit_linear_workspace *linear = gsl_multifit_linear_alloc(n, p);
        gsl_vector_set_all(y, 1);
        gsl_multifit_linear(X, y, c, covariance, &chi_squared, linear);
        gsl_multifit_linear_residuals(X, y, c, y);
        if (n > p) {
                gsl_multifit_robust_workspace *robust =
                        gsl_multifit_robust_alloc(gsl_multifit_robust_bisquare, n, p);
                int status = gsl_multifit_robust(X, y, step, covariance, robust);
                /* Out of iterations it still leaves the last, usable step. */
                if (status == GSL_SUCCESS || status == GSL_EMAXITER)
                        gsl_vector_add(c, step);
                gsl_multifit_robust_free(robust);
        }
        gsl_multifit_linear_free(linear);
        gsl_matrix_free(covariance);
        gsl_vector_free(step);
        gsl_vector_free(y);
}

/* Fits the picked terms, columns scaled to length one; returns the index of the most negative one or -1. */
static int fit_picked(const struct problem *p, const int *picked, int count, double coefficient[MOST_TERMS])
{
        gsl_matrix *X = gsl_matrix_alloc((size_t)p->points, (size_t)count);
        gsl_vector *c = gsl_vector_alloc((size_t)count);
        int worst = -1;
        double least = 0;
        for (int j = 0; j < count; j++) {
                double norm = column_norm(p, picked[j]);
                for (int i = 0; i < p->points; i++)
                        gsl_matrix_set(X, (size_t)i, (size_t)j, entry(p, i, picked[j]) / norm);
        }
        solve(X, c);
        for (int j = 0; j < count; j++) {
                double scaled = gsl_vector_get(c, (size_t)j);
                coefficient[picked[j]] = scaled / column_norm(p, picked[j]);
                if (scaled < least) {
                        least = scaled;
                        worst = j;
                }
        }
        gsl_vector_free(c);
        gsl_matrix_free(X);
        return worst;
}

static void residuals(const struct problem *p, struct solution *solution)
{
        double *error = malloc((size_t)p->points * sizeof *error);
        if (!error)
                abort();
        for (int i = 0; i < p->points; i++) {
                double relative = -1;
                for (int j = 0; j < p->terms; j++)
                        relative += entry(p, i, j) * solution->coefficient[j];
                error[i] = fabs(relative);
        }
        gsl_sort(error, 1, (size_t)p->points);
        solution->median_error = gsl_stats_median_from_sorted_data(error, 1, (size_t)p->points);
        solution->worst_error = error[p->points - 1];
        free(error);
}

/* Non-negative by dropping the most negative term and fitting again: with three terms there is little to
 * search. A single remaining term of positive costs and seconds is positive. */
static struct solution fit_terms(const struct problem *p)
{
        struct solution solution = {0};
        int picked[MOST_TERMS];
        gsl_error_handler_t *handler = gsl_set_error_handler_off();
        for (int count = pick_terms(p, picked); count > 0; count--) {
                int drop = fit_picked(p, picked, count, solution.coefficient);
                if (drop < 0)
                        break;
                solution.coefficient[picked[drop]] = 0;
                for (int j = drop; j + 1 < count; j++)
                        picked[j] = picked[j + 1];
        }
        residuals(p, &solution);
        gsl_set_error_handler(handler);
        return solution;
}

struct kernel_model fit_kernels(const struct kernel_point *points, int count, enum kernel_kind kind,
                                enum half half)
{
        struct kernel_model fit = {0};
        double *cost = malloc((size_t)(count + 1) * MOST_TERMS * sizeof *cost);
        double *seconds = malloc((size_t)(count + 1) * sizeof *seconds);
        if (!cost || !seconds)
                abort();
        int n = 0;
        for (int i = 0; i < count; i++) {
                if (points[i].kernel.kind != kind || points[i].kernel.half != half)
                        continue;
                /* Flops first: a single point is best scaled by them. Bytes last: the first to go. */
                cost[MOST_TERMS * n] = kernel_flops(&points[i].kernel);
                cost[MOST_TERMS * n + 1] = 1;
                cost[MOST_TERMS * n + 2] = kernel_bytes(&points[i].kernel);
                seconds[n++] = points[i].seconds;
        }
        if (n > 0) {
                struct solution s = fit_terms(&(struct problem){n, MOST_TERMS, cost, seconds});
                fit = (struct kernel_model){
                        .flops_per_second = s.coefficient[0] > 0 ? 1 / s.coefficient[0] : 0,
                        .overhead_seconds = s.coefficient[1],
                        .bytes_per_second = s.coefficient[2] > 0 ? 1 / s.coefficient[2] : 0,
                        .exposed = 1,
                        .quality = {.points = n,
                                    .median_error = s.median_error,
                                    .worst_error = s.worst_error},
                        .present = true};
        }
        free(seconds);
        free(cost);
        return fit;
}

struct line_fit fit_line(const struct line_point *points, int count)
{
        struct line_fit fit = {0};
        if (count == 0)
                return fit;
        double *cost = malloc((size_t)count * 2 * sizeof *cost);
        double *seconds = malloc((size_t)count * sizeof *seconds);
        if (!cost || !seconds)
                abort();
        for (int i = 0; i < count; i++) {
                cost[2 * i] = (double)points[i].bytes;
                cost[2 * i + 1] = 1;
                seconds[i] = points[i].seconds;
        }
        struct solution s = fit_terms(&(struct problem){count, 2, cost, seconds});
        fit = (struct line_fit){
                .seconds_per_byte = s.coefficient[0],
                .latency_seconds = s.coefficient[1],
                .quality = {.points = count, .median_error = s.median_error, .worst_error = s.worst_error},
                .present = true};
        free(seconds);
        free(cost);
        return fit;
}
