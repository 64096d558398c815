#include "calibrate/profile/fit.h"

#include "calibrate/profile/robust.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a fit looks for, in the order in which it is tried. */
enum effect { BYTES, FLOPS, OVERHEAD, HALF_M, HALF_N, HALF_K, CACHE, CACHE_RATE, EFFECTS };
static const size_t effect_offset[EFFECTS] = {
        [BYTES] = offsetof(struct kernel_model, bytes_per_second),
        [FLOPS] = offsetof(struct kernel_model, flops_per_second),
        [OVERHEAD] = offsetof(struct kernel_model, overhead_seconds),
        [HALF_M] = offsetof(struct kernel_model, half_m),
        [HALF_N] = offsetof(struct kernel_model, half_n),
        [HALF_K] = offsetof(struct kernel_model, half_k),
        [CACHE] = offsetof(struct kernel_model, cache_bytes), /* these two always together */
        [CACHE_RATE] = offsetof(struct kernel_model, cache_bytes_per_second),
};

/* Tiles that cuBLAS and CUTLASS have kernels of, in rows and columns. */
static const double tiles[][2] = {{64, 64}, {128, 64}, {128, 128}, {256, 128}};
enum { TILES = sizeof tiles / sizeof *tiles };

enum { MANY = 20 };

/* Points repeat to no better than this: a model that meets them closer has explained nothing. */
static const double MIN_ERROR = 1e-3;
/* A gain of less is none: it would depend on where a search began. */
static const double MIN_GAIN = 1e-3;

/* The points of one fit. */
struct sample {
        struct model_work work;
        double seconds;
};
struct data {
        const struct sample *samples;
        int count, processors;
        bool product; /* they are of a kind of products */
};

/* A model with some of the effects; those that it has not are 0 in it. */
struct candidate {
        struct kernel_model model;
        bool has[EFFECTS];
        double score; /* lower is better */
};

static double *value_of(struct kernel_model *model, enum effect effect)
{
        return (void *)((char *)model + effect_offset[effect]);
}

static int parameters_of(const struct candidate *candidate)
{
        int count = candidate->model.processors > 0; /* tiles are chosen, as a parameter is */
        for (int effect = 0; effect < EFFECTS; effect++)
                count += candidate->has[effect];
        return count;
}

/* ---- the sizes of a candidate's effects ---- */

struct fitting {
        const struct data *data;
        struct candidate *candidate;
};

/* What a cache does not hold comes no faster than what it holds: else the bytes beyond it would be free. */
static void set_effects(struct candidate *candidate, const double *parameter)
{
        struct kernel_model *model = &candidate->model;
        for (int effect = 0; effect < EFFECTS; effect++)
                if (candidate->has[effect])
                        *value_of(model, (enum effect)effect) = *parameter++;
        if (candidate->has[CACHE_RATE])
                model->bytes_per_second = fmin(model->bytes_per_second, model->cache_bytes_per_second);
}

static double relative_error(const struct kernel_model *model, const struct sample *sample)
{
        return model_work_seconds(model, &sample->work) / sample->seconds - 1;
}

static void residuals(void *context, const double *parameter, double *residual)
{
        const struct fitting *fitting = context;
        set_effects(fitting->candidate, parameter);
        for (int i = 0; i < fitting->data->count; i++)
                residual[i] = relative_error(&fitting->candidate->model, &fitting->data->samples[i]);
}

/* Schwarz's criterion for errors of Laplace's distribution: n log(mean |error|)^2 + parameters log n. One
 * outlier more or less decides little: none counts for more than all of a price. */
static double score(const double *residual, int count, int parameters)
{
        double sum = 0;
        for (int i = 0; i < count; i++)
                sum += fmin(fabs(residual[i]), 1);
        return 2 * count * log(sum / count + MIN_ERROR) + parameters * log(count);
}

/* Fits the effects that the candidate has, from the sizes that they have now. */
static void fit_effects(const struct data *data, bool bisquare, struct candidate *candidate)
{
        struct fitting fitting = {data, candidate};
        struct robust_problem problem = {.points = data->count, .residuals = residuals, .context = &fitting};
        double parameter[EFFECTS], *residual = malloc((size_t)data->count * sizeof *residual);
        if (!residual)
                abort();
        for (int effect = 0; effect < EFFECTS; effect++)
                if (candidate->has[effect])
                        parameter[problem.parameters++] = *value_of(&candidate->model, (enum effect)effect);
        robust_fit(&problem, bisquare, parameter, residual);
        set_effects(candidate, parameter);
        candidate->score = score(residual, data->count, parameters_of(candidate));
        free(residual);
}

/* ---- which effects there are ---- */

/* What an effect is of, in a point: flops, bytes, a dimension, seconds. */
static double base_of(const struct sample *sample, enum effect effect)
{
        const struct model_work *work = &sample->work;
        const double bases[EFFECTS] = {
                [BYTES] = work->bytes, [FLOPS] = work->flops,     [OVERHEAD] = sample->seconds,
                [HALF_M] = work->m,    [HALF_N] = work->n,        [HALF_K] = work->k,
                [CACHE] = work->bytes, [CACHE_RATE] = work->bytes};
        return bases[effect];
}

/* Where to begin: rates that explain the median point by themselves, an overhead of the quickest point's
 * half, and a tenth of the least dimension; a cache of the fewest bytes, twice as fast. 0: the points say
 * nothing of this effect. */
static double begin_at(const struct data *data, enum effect effect)
{
        double min = INFINITY, max = 0, *rate = malloc((size_t)data->count * sizeof *rate), middle;
        if (!rate)
                abort();
        for (int i = 0; i < data->count; i++) {
                const double base = base_of(&data->samples[i], effect);
                min = fmin(min, base);
                max = fmax(max, base);
                rate[i] = base / data->samples[i].seconds;
        }
        gsl_sort(rate, 1, (size_t)data->count);
        middle = gsl_stats_median_from_sorted_data(rate, 1, (size_t)data->count);
        free(rate);
        if (effect == BYTES || effect == FLOPS)
                return middle;
        if (effect == CACHE_RATE)
                return 2 * middle;
        if (effect == OVERHEAD)
                return min / 2;
        if (effect == CACHE)
                return max > min ? min : 0;
        return max > min ? min / 10 : 0; /* one size tells nothing of others */
}

/* A rate and an overhead, where there are two points to tell them; of further ones each by two points. */
static int max_parameters(const struct data *data)
{
        const int each = data->count / 2;
        return data->count < 2 ? data->count : each > 2 ? each : 2;
}

static void consider(const struct data *data, struct candidate candidate, struct candidate *best)
{
        if (parameters_of(&candidate) > max_parameters(data))
                return;
        fit_effects(data, false, &candidate); /* its score is of absolute residuals too */
        if (candidate.score < best->score - MIN_GAIN)
                *best = candidate;
}

/* Twice as fast as the rest; its size is looked for from the fewest bytes up. */
static void consider_cache(const struct data *data, struct candidate cached, struct candidate *best)
{
        const double min = cached.model.cache_bytes;
        cached.has[CACHE_RATE] = true;
        for (int i = 0; i < 4; i++) {
                cached.model.cache_bytes = min * (1 << 2 * i);
                cached.model.cache_bytes_per_second = begin_at(data, CACHE_RATE);
                consider(data, cached, best);
        }
}

/* The candidate with one effect more. Beside computing, memory may be hidden by it or come on top. */
static void consider_more(const struct data *data, const struct candidate *from, enum effect effect,
                          struct candidate *best)
{
        struct candidate more = *from;
        const bool halves = effect == HALF_M || effect == HALF_N || effect == HALF_K;
        if ((halves && !from->has[FLOPS]) || (effect == CACHE && !from->has[BYTES]) || effect == CACHE_RATE)
                return;
        *value_of(&more.model, effect) = begin_at(data, effect);
        if (*value_of(&more.model, effect) == 0)
                return;
        more.has[effect] = true;
        if (effect == CACHE) {
                consider_cache(data, more, best);
                return;
        }
        consider(data, more, best);
        if (more.has[BYTES] && more.has[FLOPS]) {
                more.model.exposed = 1 - more.model.exposed;
                consider(data, more, best);
        }
}

/* The candidate without one of its effects, but not without all that grows with the work. */
static void consider_less(const struct data *data, const struct candidate *from, enum effect effect,
                          struct candidate *best)
{
        struct candidate less = *from;
        if (effect == CACHE_RATE)
                return;
        less.has[effect] = false;
        *value_of(&less.model, effect) = 0;
        if (effect == CACHE || (effect == BYTES && from->has[CACHE])) {
                less.has[CACHE] = less.has[CACHE_RATE] = false;
                less.model.cache_bytes = less.model.cache_bytes_per_second = 0;
        }
        if (!less.has[BYTES] || !less.has[FLOPS])
                less.model.exposed = 0;
        if (less.has[BYTES] || less.has[FLOPS])
                consider(data, less, best);
}

static void consider_tiles(const struct data *data, const struct candidate *from, struct candidate *best)
{
        for (int i = 0; i < TILES && data->processors > 0 && from->has[FLOPS]; i++) {
                struct candidate tiled = *from;
                tiled.model.tile_m = tiles[i][0];
                tiled.model.tile_n = tiles[i][1];
                tiled.model.processors = data->processors;
                consider(data, tiled, best);
        }
}

/* The best of all changes of one effect, as long as there is one that is better. */
static struct candidate improve(const struct data *data, struct candidate best)
{
        struct candidate from;
        do {
                from = best;
                for (int effect = 0; effect < EFFECTS; effect++)
                        if (from.has[effect])
                                consider_less(data, &from, (enum effect)effect, &best);
                        else
                                consider_more(data, &from, (enum effect)effect, &best);
                consider_tiles(data, &from, &best);
        } while (best.score < from.score);
        return best;
}

/* Computing with every dimension's half size that the points can tell. */
static struct candidate all_halves(const struct data *data)
{
        struct candidate all = {.model.present = true, .score = INFINITY}, found = all;
        for (int effect = FLOPS; effect < EFFECTS; effect++) {
                if (effect != FLOPS && effect != HALF_M && effect != HALF_N && effect != HALF_K)
                        continue;
                *value_of(&all.model, (enum effect)effect) = begin_at(data, (enum effect)effect);
                all.has[effect] = *value_of(&all.model, (enum effect)effect) > 0;
        }
        if (all.has[FLOPS])
                consider(data, all, &found);
        return found;
}

/* A rate at which no point spends a noticeable part of its time is none: points that noise keeps from growing
 * with the work. */
static void drop_endless_rate(const struct data *data, struct candidate *candidate, enum effect effect)
{
        double part = 0, *rate = value_of(&candidate->model, effect);
        for (int i = 0; i < data->count && candidate->has[effect]; i++)
                part = fmax(part, base_of(&data->samples[i], effect) / *rate / data->samples[i].seconds);
        if (candidate->has[effect] && part < 1e-6) {
                candidate->has[effect] = false;
                *rate = 0;
        }
}

/* Begins with computing or memory alone, whichever fits better (where they are proportional a product
 * computes and others move bytes). Memory on top of computing looks much as half sizes of all dimensions do,
 * and from there one change leads nowhere; so it begins there too. */
static struct candidate choose(const struct data *data)
{
        const struct candidate nothing = {.model.present = true, .score = INFINITY};
        const bool product = data->product;
        struct candidate one = nothing, all = all_halves(data);
        consider_more(data, &nothing, product ? FLOPS : BYTES, &one);
        consider_more(data, &nothing, product ? BYTES : FLOPS, &one);
        one = improve(data, one);
        if (all.score < INFINITY)
                all = improve(data, all);
        if (all.score < one.score - MIN_GAIN)
                one = all;
        fit_effects(data, true, &one);
        drop_endless_rate(data, &one, BYTES);
        drop_endless_rate(data, &one, FLOPS);
        return one;
}

/* ---- how good it is ---- */

double fit_widened(double deviation, int freedom)
{
        return deviation * gsl_cdf_tdist_Pinv(0.95, freedom) / gsl_cdf_ugaussian_Pinv(0.95);
}

double fit_error(double *absolute_errors, int count, int parameters)
{
        const int freedom = count - parameters > 1 ? count - parameters : 1;
        if (count < 2)
                return 0;
        gsl_sort(absolute_errors, 1, (size_t)count);
        const double tenth = gsl_stats_quantile_from_sorted_data(absolute_errors, 1, (size_t)count, 0.9);
        return fit_widened(tenth / gsl_cdf_ugaussian_Pinv(0.95), freedom);
}

static void summarise(double *absolute_errors, int count, double *median, double *worst)
{
        gsl_sort(absolute_errors, 1, (size_t)count);
        *median = gsl_stats_median_from_sorted_data(absolute_errors, 1, (size_t)count);
        *worst = absolute_errors[count - 1];
}

/* |relative error| of each sample by a model that was chosen and fitted without it. Among many points one
 * does not decide which effects there are: `found`, which all of them chose, is fitted again without it. */
static void leave_one_out(const struct data *data, const struct candidate *found, double *error)
{
        struct sample *others = malloc((size_t)data->count * sizeof *others);
        if (!others)
                abort();
        for (int i = 0; i < data->count; i++) {
                struct data without = *data;
                without.samples = others;
                without.count--;
                memcpy(others, data->samples, (size_t)i * sizeof *others);
                memcpy(others + i, data->samples + i + 1, (size_t)(data->count - 1 - i) * sizeof *others);
                struct candidate left = *found;
                if (data->count > MANY)
                        fit_effects(&without, true, &left);
                else
                        left = choose(&without);
                error[i] = fabs(relative_error(&left.model, &data->samples[i]));
        }
        free(others);
}

static struct kernel_model fit_samples(const struct data *data)
{
        if (data->count == 0)
                return (struct kernel_model){0};
        struct candidate found = choose(data);
        struct fit_quality *quality = &found.model.quality;
        double *error = malloc((size_t)data->count * sizeof *error);
        if (!error)
                abort();
        for (int i = 0; i < data->count; i++)
                error[i] = fabs(relative_error(&found.model, &data->samples[i]));
        summarise(error, data->count, &quality->median_error, &quality->worst_error);
        quality->points = data->count;
        if (data->count > 1) {
                leave_one_out(data, &found, error);
                found.model.error = fit_error(error, data->count, parameters_of(&found));
                summarise(error, data->count, &quality->left_out_median_error,
                          &quality->left_out_worst_error);
        }
        free(error);
        return found.model;
}

struct kernel_model fit_kernels(const struct kernel_point *points, int count, enum kernel_kind kind,
                                enum dtype dtype, int processors)
{
        struct sample *samples = malloc((size_t)(count + 1) * sizeof *samples);
        struct data data = {samples, 0, processors, kernel_descriptor(kind)->products > 0};
        if (!samples)
                abort();
        for (int i = 0; i < count; i++)
                if (points[i].kernel.kind == kind && points[i].kernel.dtype == dtype)
                        samples[data.count++] =
                                (struct sample){model_work_of(&points[i].kernel), points[i].seconds};
        struct kernel_model model = fit_samples(&data);
        free(samples);
        return model;
}

/* A line is a model that knows bytes and overhead only. */
struct line_fit fit_line(const struct line_point *points, int count)
{
        struct sample *samples = malloc((size_t)(count + 1) * sizeof *samples);
        const struct data data = {samples, count, 0, false};
        if (!samples)
                abort();
        for (int i = 0; i < count; i++)
                samples[i] =
                        (struct sample){{.bytes = (double)points[i].bytes, .batch = 1}, points[i].seconds};
        const struct kernel_model model = fit_samples(&data);
        free(samples);
        return (struct line_fit){.latency_seconds = model.overhead_seconds,
                                 .seconds_per_byte =
                                         model.bytes_per_second > 0 ? 1 / model.bytes_per_second : 0,
                                 .error = model.error,
                                 .quality = model.quality,
                                 .present = model.present};
}
