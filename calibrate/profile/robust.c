#include "calibrate/profile/robust.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit_nlinear.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Each begins where the last one ended. */
enum { ABSOLUTE_ROUNDS = 6, BISQUARE_ROUNDS = 8, FIRST_STEPS = 30, MORE_STEPS = 3 };
static const double BISQUARE = 4.685;      /* 95 % efficient where noise is normal */
static const double NORMAL_SCALE = 1.4826; /* median absolute residual -> standard deviation */
static const double MIN_RESIDUAL = 1e-10;  /* nearer than that is met */
static const double LARGEST_LOGARITHM = 80;
static const double SETTLED = 1e-7; /* relative change of a parameter */

struct solver {
        const struct robust_problem *problem;
        double *parameter, *residual; /* scratch: of one evaluation */
        gsl_vector *logarithm, *weight;
        gsl_multifit_nlinear_fdf fdf;
        gsl_multifit_nlinear_workspace *workspace;
};

static void exponentials(const gsl_vector *logarithm, double *parameter)
{
        for (size_t i = 0; i < logarithm->size; i++)
                parameter[i] =
                        exp(fmax(fmin(gsl_vector_get(logarithm, i), LARGEST_LOGARITHM), -LARGEST_LOGARITHM));
}

static int evaluate(const gsl_vector *logarithm, void *context, gsl_vector *residual)
{
        const struct solver *solver = context;
        exponentials(logarithm, solver->parameter);
        solver->problem->residuals(solver->problem->context, solver->parameter, solver->residual);
        for (size_t i = 0; i < residual->size; i++) /* it may be a column of a matrix */
                gsl_vector_set(residual, i, solver->residual[i]);
        return GSL_SUCCESS;
}

/* Least squares under the weights as they are. Where it stops short of its tolerance the point it has come to
 * is used. Returns whether the parameters moved. */
static bool solve(struct solver *solver, size_t max_steps, double *residual)
{
        int info;
        double moved = 0;
        gsl_multifit_nlinear_winit(solver->logarithm, solver->weight, &solver->fdf, solver->workspace);
        gsl_multifit_nlinear_driver(max_steps, 1e-10, 1e-12, 0, NULL, NULL, &info, solver->workspace);
        const gsl_vector *position = gsl_multifit_nlinear_position(solver->workspace);
        for (size_t i = 0; i < position->size; i++)
                moved = fmax(moved, fabs(gsl_vector_get(position, i) - gsl_vector_get(solver->logarithm, i)));
        gsl_vector_memcpy(solver->logarithm, position);
        exponentials(solver->logarithm, solver->parameter);
        solver->problem->residuals(solver->problem->context, solver->parameter, residual);
        return moved > SETTLED;
}

/* 1 / |residual|: what is minimised is then the sum of absolute residuals. */
static void weigh_absolute(struct solver *solver, const double *residual, double scale)
{
        for (size_t i = 0; i < solver->weight->size; i++)
                gsl_vector_set(solver->weight, i,
                               scale / fmax(fabs(residual[i]), fmax(1e-3 * scale, MIN_RESIDUAL)));
}

static void weigh_bisquare(struct solver *solver, const double *residual, double scale)
{
        for (size_t i = 0; i < solver->weight->size; i++) {
                const double far = residual[i] / (BISQUARE * scale);
                gsl_vector_set(solver->weight, i, fabs(far) < 1 ? (1 - far * far) * (1 - far * far) : 0);
        }
}

/* Of most residuals: the median of the absolute ones, without as many of the smallest as there are
 * parameters, which could always be met. */
static double scale_of(const double *residual, int points, int parameters, double *sorted)
{
        for (int i = 0; i < points; i++)
                sorted[i] = fabs(residual[i]);
        gsl_sort(sorted, 1, (size_t)points);
        const int first = parameters < points ? parameters : points - 1;
        return fmax(NORMAL_SCALE *
                            gsl_stats_median_from_sorted_data(sorted + first, 1, (size_t)(points - first)),
                    MIN_RESIDUAL);
}

static void iterate(struct solver *solver, bool bisquare, double *residual)
{
        const int n = solver->problem->points, p = solver->problem->parameters;
        double *sorted = malloc((size_t)n * sizeof *sorted);
        if (!sorted)
                abort();
        gsl_vector_set_all(solver->weight, 1);
        solve(solver, FIRST_STEPS, residual);
        bool moved = n > p;
        for (int i = 0; i < ABSOLUTE_ROUNDS && moved; i++) {
                weigh_absolute(solver, residual, scale_of(residual, n, p, sorted));
                moved = solve(solver, MORE_STEPS, residual);
        }
        moved = n > p && bisquare;
        for (int i = 0; i < BISQUARE_ROUNDS && moved; i++) {
                weigh_bisquare(solver, residual, scale_of(residual, n, p, sorted));
                moved = solve(solver, MORE_STEPS, residual);
        }
        free(sorted);
}

void robust_fit(const struct robust_problem *problem, bool bisquare, double *parameter, double *residual)
{
        const size_t n = (size_t)problem->points, p = (size_t)problem->parameters;
        gsl_multifit_nlinear_parameters settings = gsl_multifit_nlinear_default_parameters();
        gsl_error_handler_t *handler = gsl_set_error_handler_off();
        struct solver solver = {
                .problem = problem,
                .parameter = parameter,
                .residual = malloc(n * sizeof(double)),
                .logarithm = gsl_vector_alloc(p),
                .weight = gsl_vector_alloc(n),
                .workspace = gsl_multifit_nlinear_alloc(gsl_multifit_nlinear_trust, &settings, n, p)};
        if (!solver.residual)
                abort();
        solver.fdf = (gsl_multifit_nlinear_fdf){.f = evaluate, .n = n, .p = p, .params = &solver};
        for (size_t i = 0; i < p; i++)
                gsl_vector_set(solver.logarithm, i, log(parameter[i]));
        iterate(&solver, bisquare, residual);
        exponentials(solver.logarithm, parameter);
        gsl_multifit_nlinear_free(solver.workspace);
        free(solver.residual);
        gsl_vector_free(solver.weight);
        gsl_vector_free(solver.logarithm);
        gsl_set_error_handler(handler);
}
