#include "calibrate/profile/surface_fit.h"

#include "runtime/base/number.h"

#include <gsl/gsl_multimin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Estimates that a fit looks at: evenly spread over the points, as many as decide. */
enum { MODEL_POINTS = 1500, TRIAL_POINTS = 400, QUALITY_POINTS = 2000 };

/* ---- the model ---- */

enum { FIGURES = 5, STEPS = 300 };

static double *figure(struct surface_model *model, int which)
{
        double *const figures[FIGURES] = {&model->efficiency, &model->memory_efficiency,
                                          &model->overhead_seconds, &model->half_tile, &model->fill};
        return figures[which];
}

/* What figures can be: rates are no better than the datasheet's, and a kernel starts in a millisecond. */
static const double largest[FIGURES] = {1, 1, 1e-3, 4096, 65536};

static void set_figures(struct surface_model *model, const gsl_vector *logarithms)
{
        for (int i = 0; i < FIGURES; i++)
                *figure(model, i) = fmin(exp(gsl_vector_get(logarithms, (size_t)i)), largest[i]);
}

static int stride(int count, int most)
{
        return count > most ? (count + most - 1) / most : 1;
}

/* The mean absolute logarithm of measured over modelled. */
static double misfit(const gsl_vector *logarithms, void *context)
{
        struct surface *surface = context;
        const int step = stride(surface->count, MODEL_POINTS);
        double sum = 0;
        int count = 0;
        set_figures(&surface->model, logarithms);
        for (int i = 0; i < surface->count; i += step, count++) {
                const struct surface_point *point = &surface->points[i];
                sum += fabs(log(point->seconds / surface_model_seconds(surface, &point->shape)));
        }
        return sum / count;
}

/* By Nelder and Mead's simplex, in logarithms: choices of tiles and waves have no derivatives. */
static bool fit_model(struct surface *surface)
{
        static const double begin[FIGURES] = {0.7, 0.8, 3e-6, 32, 64};
        gsl_multimin_fminimizer *minimizer =
                gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, FIGURES);
        gsl_vector *at = gsl_vector_alloc(FIGURES), *step = gsl_vector_alloc(FIGURES);
        gsl_multimin_function function = {.f = misfit, .n = FIGURES, .params = surface};
        if (!minimizer || !at || !step)
                return false;
        for (size_t i = 0; i < FIGURES; i++)
                gsl_vector_set(at, i, log(begin[i]));
        gsl_vector_set_all(step, 0.4);
        gsl_multimin_fminimizer_set(minimizer, &function, at, step);
        for (int i = 0; i < STEPS && gsl_multimin_fminimizer_iterate(minimizer) == 0; i++)
                if (gsl_multimin_fminimizer_size(minimizer) < 1e-3)
                        break;
        set_figures(&surface->model, gsl_multimin_fminimizer_x(minimizer));
        gsl_multimin_fminimizer_free(minimizer);
        gsl_vector_free(at);
        gsl_vector_free(step);
        return true;
}

/* ---- how far points say something of others ---- */

static bool is_itself(const void *context, int point)
{
        return *(const int *)context == point;
}

/* Errors of estimates of every step-th point from the others: |logarithm|, and that over the deviation. */
static int leave_out(const struct surface_cloud *cloud, const struct surface_kriging *kriging, int step,
                     double *error, double *standard)
{
        int count = 0;
        for (int i = 0; i < cloud->count; i += step) {
                double deviation;
                const double estimate =
                        surface_estimate(cloud, kriging, cloud->x[i], is_itself, &i, &deviation);
                if (isnan(estimate))
                        continue;
                error[count] = fabs(cloud->residual[i] - estimate);
                standard[count] = error[count] / deviation;
                count++;
        }
        return count;
}

/* A weighing of the middle and the ends. */
static double score(const struct surface_cloud *cloud, const struct surface_kriging *kriging, double *scratch)
{
        double *standard = scratch + cloud->count;
        const int count = leave_out(cloud, kriging, stride(cloud->count, TRIAL_POINTS), scratch, standard);
        if (count == 0)
                return INFINITY;
        return quantile(scratch, count, 0.5) + 0.4 * quantile(scratch, count, 0.9);
}

static bool try(const struct surface_cloud *cloud, struct surface_kriging candidate,
                struct surface_kriging *best, double *least, double *scratch)
{
        const double found = score(cloud, &candidate, scratch);
        if (!(found < *least * (1 - 1e-3)))
                return false;
        *least = found;
        *best = candidate;
        return true;
}

/* Doubles and halves one length after the other, and the nugget, while that makes estimates better. */
static void fit_lengths(const struct surface_cloud *cloud, struct surface_kriging *kriging, double *scratch)
{
        enum { ROUNDS = 3 };
        static const double factors[] = {0.5, 2};
        double least = score(cloud, kriging, scratch);
        bool better = true;
        for (int round = 0; round < ROUNDS && better; round++) {
                better = false;
                for (int i = 0; i <= SURFACE_COORDINATES; i++)
                        for (int j = 0; j < 2; j++) {
                                struct surface_kriging candidate = *kriging;
                                *(i < SURFACE_COORDINATES ? &candidate.length[i] : &candidate.nugget) *=
                                        factors[j];
                                better |= try(cloud, candidate, kriging, &least, scratch);
                        }
        }
}

/* So that nine errors in ten are inside 1.645 deviations. */
static void fit_spread(const struct surface_cloud *cloud, struct surface_kriging *kriging, double *scratch)
{
        static const double NINE_IN_TEN = 1.6448536;
        double *standard = scratch + cloud->count;
        const int count = leave_out(cloud, kriging, stride(cloud->count, QUALITY_POINTS), scratch, standard);
        if (count > 0)
                kriging->spread *= quantile(standard, count, 0.9) / NINE_IN_TEN;
}

/* ---- whole regions ---- */

struct region {
        const struct surface_cloud *cloud;
        int coordinate;
        double low, high;
};

static bool in_region(const void *context, int point)
{
        const struct region *region = context;
        const double x = region->cloud->x[point][region->coordinate];
        return x >= region->low && x <= region->high;
}

static void judge_region(const struct region *region, const struct surface_kriging *kriging, const char *name,
                         double *scratch, struct surface_quality *quality)
{
        const struct surface_cloud *cloud = region->cloud;
        int inside = 0, count = 0;
        for (int i = 0; i < cloud->count; i++)
                inside += in_region(region, i);
        if (inside == 0 || inside > cloud->count / 2)
                return;
        for (int i = 0, seen = 0; i < cloud->count; i++) {
                double deviation;
                if (!in_region(region, i) || seen++ % stride(inside, TRIAL_POINTS) != 0)
                        continue;
                const double estimate =
                        surface_estimate(cloud, kriging, cloud->x[i], in_region, region, &deviation);
                if (!isnan(estimate))
                        scratch[count++] = fabs(exp(estimate - cloud->residual[i]) - 1);
        }
        const double median = count ? quantile(scratch, count, 0.5) : 0;
        if (median <= quality->regions_median)
                return;
        quality->regions_median = median;
        quality->regions_tenth = quantile(scratch, count, 0.9);
        snprintf(quality->region, sizeof quality->region, "%s", name);
}

/* All shapes with the largest m, n or k (or tokens): what lies beyond is modelled. */
static void judge_regions(const struct surface *surface, double *scratch, struct surface_quality *quality)
{
        static const char *const names[SURFACE_FORMS][3] = {
                [SURFACE_PRODUCT] = {"largest m", "largest n", "largest k"},
                [SURFACE_ATTENTION] = {"longest sequences", NULL, NULL}};
        for (int i = 0; i < 3; i++) {
                struct region region = {&surface->cloud, i, -INFINITY, INFINITY};
                if (!names[surface->form][i])
                        continue;
                for (int j = 0; j < surface->cloud.count; j++)
                        region.low = fmax(region.low, surface->cloud.x[j][i]);
                judge_region(&region, &surface->kriging, names[surface->form][i], scratch, quality);
        }
}

static void judge(struct surface *surface, double *scratch)
{
        const struct surface_cloud *cloud = &surface->cloud;
        struct surface_quality *quality = &surface->quality;
        double *standard = scratch + cloud->count;
        const int count =
                leave_out(cloud, &surface->kriging, stride(cloud->count, QUALITY_POINTS), scratch, standard);
        *quality = (struct surface_quality){0};
        if (count == 0)
                return;
        for (int i = 0; i < count; i++)
                scratch[i] = expm1(scratch[i]);
        quality->left_out_median = quantile(scratch, count, 0.5);
        quality->left_out_tenth = quantile(scratch, count, 0.9);
        judge_regions(surface, scratch, quality);
}

/* ---- all of it ---- */

static void fit_cloud(const struct surface_cloud *cloud, struct surface_kriging *kriging, double *scratch)
{
        if (cloud->count < SURFACE_LEAST_POINTS)
                return;
        fit_lengths(cloud, kriging, scratch);
        fit_spread(cloud, kriging, scratch);
}

bool surface_fit(struct surface *surface)
{
        static const struct surface_kriging begin[SURFACE_FORMS] = {
                [SURFACE_PRODUCT] = {{1.5, 4, 10, 4, 3, 3}, 0.05, 0.1},
                [SURFACE_ATTENTION] = {{4, 4, 1, 4, 12, 3}, 0.02, 0.1}};
        const int most = surface->count > surface->training.count ? surface->count : surface->training.count;
        double *scratch = malloc(2 * (size_t)(most + 1) * sizeof *scratch);
        surface->kriging = surface->training.kriging = begin[surface->form];
        bool done = scratch && fit_model(surface) && surface_prepare(surface);
        if (done) {
                fit_cloud(&surface->cloud, &surface->kriging, scratch);
                judge(surface, scratch);
                done = surface_prepare(surface); /* what training differs by depends on the lengths */
        }
        if (done)
                fit_cloud(&surface->training.cloud, &surface->training.kriging, scratch);
        free(scratch);
        return done;
}
