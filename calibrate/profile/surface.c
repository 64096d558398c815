#include "calibrate/profile/surface.h"

#include <gsl/gsl_linalg.h>
#include <math.h>
#include <stdlib.h>

/* How many of the nearest points an estimate is made from. */
enum { NEIGHBOURS = 32 };

static void free_cloud(struct surface_cloud *cloud)
{
        free(cloud->x);
        free(cloud->residual);
        *cloud = (struct surface_cloud){0};
}

void surface_free(struct surface *surface)
{
        free_cloud(&surface->cloud);
        free_cloud(&surface->training.cloud);
        free(surface->points);
        free(surface->training.points);
        *surface = (struct surface){0};
}

/* ---- kernels ---- */

static enum surface_pass pass_of_product(const struct kernel *kernel)
{
        if (kernel->transpose_a)
                return SURFACE_WEIGHT_GRADIENT;
        return kernel->transpose_b ? SURFACE_FORWARD : SURFACE_INPUT_GRADIENT;
}

bool surface_shape_of(const struct kernel *kernel, enum surface_form *form, struct surface_shape *shape,
                      enum surface_pass *pass)
{
        const double m = (double)kernel->m, n = (double)kernel->n, k = (double)kernel->k;
        const double batch = (double)kernel->batch, experts = kernel->experts > 1 ? kernel->experts : 1;
        *form = SURFACE_PRODUCT;
        *shape = (struct surface_shape){batch, m, n, k, 1};
        switch (kernel->kind) {
        case KERNEL_MATMUL:
        case KERNEL_MATMUL_BIAS:
        case KERNEL_MATMUL_BIAS_GELU:
        case KERNEL_MATMUL_BIAS_RESIDUAL:
                *pass = pass_of_product(kernel);
                return true;
        case KERNEL_MATMUL_GELU_BACKWARD:
                *pass = SURFACE_INPUT_GRADIENT;
                return true;
        case KERNEL_GROUPED_MATMUL:
                *shape = (struct surface_shape){experts, fmax(m / experts, 1), n, k, 1};
                *pass = kernel->transpose_b ? SURFACE_FORWARD : SURFACE_INPUT_GRADIENT;
                return true;
        case KERNEL_GROUPED_MATMUL_BACKWARD:
                *shape = (struct surface_shape){experts, m, n, fmax(k / experts, 1), 1};
                *pass = SURFACE_WEIGHT_GRADIENT;
                return true;
        case KERNEL_ATTENTION:
        case KERNEL_CONTEXT_ATTENTION:
        case KERNEL_ATTENTION_BACKWARD:
        case KERNEL_CONTEXT_ATTENTION_BACKWARD:
                *form = SURFACE_ATTENTION;
                *shape = (struct surface_shape){batch, m, m, k, kernel_group(kernel)};
                *pass = kernel->kind == KERNEL_ATTENTION || kernel->kind == KERNEL_CONTEXT_ATTENTION
                                ? SURFACE_FORWARD
                                : SURFACE_INPUT_GRADIENT;
                return true;
        default:
                return false;
        }
}

/* ---- the model ---- */

/* Tiles that libraries have kernels for, and into how many parts of k they split a product. */
static const double tiles[][2] = {{64, 64},   {64, 128},  {128, 64}, {128, 128},
                                  {128, 256}, {256, 128}, {64, 256}, {256, 256}};
static const double splits[] = {1, 2, 4, 8};
enum { TILES = sizeof tiles / sizeof *tiles, SPLITS = sizeof splits / sizeof *splits };
static const double ACCUMULATOR_BYTES = 4;

static double bytes_rate(const struct surface_model *model)
{
        return model->bytes_per_second * model->memory_efficiency;
}

static double tiled_seconds(const struct surface_model *model, const struct surface_shape *s,
                            const double tile[2], double split)
{
        const double count = s->batch * ceil(s->m / tile[0]) * ceil(s->n / tile[1]) * split;
        const double waves = ceil(count / model->processors);
        const double rate = model->flops_per_second * model->efficiency / model->processors;
        const double flops = 2 * tile[0] * tile[1] * (s->k / split + model->fill);
        const double partial = split > 1 ? split * ACCUMULATOR_BYTES * s->batch * s->m * s->n : 0;
        return waves * flops / rate * (1 + model->half_tile * (1 / tile[0] + 1 / tile[1])) +
               partial / bytes_rate(model);
}

static double product_seconds(const struct surface_model *model, const struct surface_shape *s,
                              double *memory)
{
        double best = INFINITY;
        for (int i = 0; i < TILES; i++)
                for (int j = 0; j < SPLITS; j++)
                        best = fmin(best, tiled_seconds(model, s, tiles[i], splits[j]));
        const double input = model->input_bytes * (s->m * s->k + s->n * s->k);
        *memory = s->batch * (input + model->output_bytes * s->m * s->n) / bytes_rate(model);
        return best;
}

/* Blocks of 128 queries, each with the keys up to its own: half of them on average. Few waves of blocks end
 * together, many are mixed. */
static double attention_seconds(const struct surface_model *model, const struct surface_shape *s,
                                double *memory)
{
        static const double QUERIES = 128, FEW_WAVES = 4;
        const double waves = s->batch * ceil(s->m / QUERIES) / model->processors;
        const double rate = model->flops_per_second * model->efficiency / model->processors * s->k /
                            (s->k + model->half_tile);
        const double block = 4 * QUERIES * s->k * (s->m / 2 + model->fill) / rate;
        *memory = s->batch * s->m * s->k * (2 + 2 / s->group) * model->input_bytes / bytes_rate(model);
        return block * (waves < FEW_WAVES ? ceil(waves) : waves + 0.5);
}

double surface_model_seconds(const struct surface *surface, const struct surface_shape *shape)
{
        const struct surface_model *model = &surface->model;
        double memory;
        const double compute = surface->form == SURFACE_PRODUCT ? product_seconds(model, shape, &memory)
                                                                : attention_seconds(model, shape, &memory);
        return fmax(compute, memory) + model->overhead_seconds;
}

/* Attention computes the scores of half of all pairs and multiplies them by values; its backward has five
 * such products instead of two. */
double surface_flops(const struct surface *surface, const struct surface_shape *s, enum surface_pass pass)
{
        const double product = 2 * s->batch * s->m * s->n * s->k;
        if (surface->form == SURFACE_PRODUCT)
                return product;
        return product / 2 * (pass == SURFACE_FORWARD ? 2 : 5);
}

/* ---- distances ---- */

enum { PASS = SURFACE_COORDINATES - 1 };

static void coordinates(enum surface_form form, const struct surface_shape *s, enum surface_pass pass,
                        double x[SURFACE_COORDINATES])
{
        static const double WHOLE_TILE = 128;
        const bool product = form == SURFACE_PRODUCT;
        x[0] = log2(s->m);
        x[1] = product ? log2(s->n) : 0;
        x[2] = log2(s->k);
        x[3] = log2(s->batch);
        x[4] = product ? fmod(s->m, WHOLE_TILE) != 0 : log2(s->group);
        x[PASS] = (double)pass;
}

/* Passes differ or they do not: one is as far from another as from the third. */
static double distance(const struct surface_kriging *kriging, const double *a, const double *b)
{
        double sum = 0;
        for (int i = 0; i < PASS; i++)
                if (a[i] != b[i])
                        sum += fabs(a[i] - b[i]) / kriging->length[i];
        return a[PASS] == b[PASS] ? sum : sum + 1 / kriging->length[PASS];
}

/* ---- kriging ---- */

struct neighbour {
        int point;
        double distance;
};

/* Keeps the nearest, in order. */
static int keep(struct neighbour *near, int count, struct neighbour found)
{
        int at = count < NEIGHBOURS ? count : NEIGHBOURS - 1;
        while (at > 0 && near[at - 1].distance > found.distance) {
                near[at] = near[at - 1];
                at--;
        }
        near[at] = found;
        return count < NEIGHBOURS ? count + 1 : count;
}

static int find_near(const struct surface_cloud *cloud, const struct surface_kriging *kriging,
                     const double *x, bool (*left_out)(const void *context, int point), const void *context,
                     struct neighbour *near)
{
        int count = 0;
        for (int i = 0; i < cloud->count; i++) {
                const struct neighbour found = {i, distance(kriging, x, cloud->x[i])};
                if (count == NEIGHBOURS && found.distance >= near[NEIGHBOURS - 1].distance)
                        continue;
                if (!left_out || !left_out(context, i))
                        count = keep(near, count, found);
        }
        return count;
}

/* Ordinary kriging: the weights add up to 1, so that the mean need not be known. */
static double solve(const struct surface_cloud *cloud, const struct surface_kriging *kriging,
                    const struct neighbour *near, int count, double *deviation)
{
        double a[NEIGHBOURS * NEIGHBOURS], one[NEIGHBOURS], to[NEIGHBOURS], sums[3] = {0}, estimate = 0;
        gsl_matrix_view matrix = gsl_matrix_view_array(a, (size_t)count, (size_t)count);
        gsl_vector_view ones = gsl_vector_view_array(one, (size_t)count);
        gsl_vector_view tos = gsl_vector_view_array(to, (size_t)count);
        for (int i = 0; i < count; i++) {
                for (int j = 0; j < i; j++)
                        a[i * count + j] = a[j * count + i] =
                                exp(-distance(kriging, cloud->x[near[i].point], cloud->x[near[j].point]));
                a[i * count + i] = 1 + kriging->nugget;
                one[i] = 1;
                to[i] = exp(-near[i].distance);
        }
        gsl_linalg_cholesky_decomp1(&matrix.matrix);
        gsl_linalg_cholesky_svx(&matrix.matrix, &ones.vector);
        gsl_linalg_cholesky_svx(&matrix.matrix, &tos.vector);
        for (int i = 0; i < count; i++) {
                sums[0] += one[i];
                sums[1] += to[i];
                sums[2] += to[i] * exp(-near[i].distance);
        }
        const double lagrange = (1 - sums[1]) / sums[0];
        for (int i = 0; i < count; i++)
                estimate += (to[i] + lagrange * one[i]) * cloud->residual[near[i].point];
        const double variance = 1 + kriging->nugget - sums[2] + lagrange * (1 - sums[1]);
        *deviation = kriging->spread * sqrt(fmax(variance, kriging->nugget));
        return estimate;
}

double surface_estimate(const struct surface_cloud *cloud, const struct surface_kriging *kriging,
                        const double x[SURFACE_COORDINATES], bool (*left_out)(const void *context, int point),
                        const void *context, double *deviation)
{
        struct neighbour near[NEIGHBOURS];
        const int count = find_near(cloud, kriging, x, left_out, context, near);
        *deviation = kriging->spread;
        return count < 2 ? NAN : solve(cloud, kriging, near, count, deviation);
}

/* ---- asking ---- */

static bool open_cloud(struct surface_cloud *cloud, int count)
{
        free_cloud(cloud);
        cloud->x = malloc((size_t)(count + 1) * sizeof *cloud->x);
        cloud->residual = malloc((size_t)(count + 1) * sizeof *cloud->residual);
        cloud->count = cloud->x && cloud->residual ? count : 0;
        return cloud->x && cloud->residual;
}

static void set_point(struct surface_cloud *cloud, int i, enum surface_form form,
                      const struct surface_point *point, double expected)
{
        coordinates(form, &point->shape, point->pass, cloud->x[i]);
        cloud->residual[i] = log(point->seconds / expected);
        cloud->has[point->pass] = true;
}

/* What the points around say, at a pass that they have; NAN: there are none. */
static double estimate_at(const struct surface *surface, const struct surface_cloud *cloud,
                          const struct surface_kriging *kriging, const struct surface_shape *shape,
                          enum surface_pass pass, double *deviation)
{
        double x[SURFACE_COORDINATES];
        coordinates(surface->form, shape, pass, x);
        return surface_estimate(cloud, kriging, x, NULL, NULL, deviation);
}

static double loop_seconds(const struct surface *surface, const struct surface_shape *shape,
                           enum surface_pass pass, double *deviation)
{
        const bool has = surface->cloud.has[pass];
        const double ratio = has || surface->ratio[pass] == 0 ? 1 : surface->ratio[pass];
        const double seconds = surface_model_seconds(surface, shape) * ratio;
        const double residual = estimate_at(surface, &surface->cloud, &surface->kriging, shape,
                                            has ? pass : SURFACE_FORWARD, deviation);
        return isnan(residual) ? seconds : seconds * exp(residual);
}

bool surface_prepare(struct surface *surface)
{
        struct surface_training *training = &surface->training;
        double deviation;
        if (!open_cloud(&surface->cloud, surface->count) || !open_cloud(&training->cloud, training->count))
                return false;
        for (int i = 0; i < surface->count; i++)
                set_point(&surface->cloud, i, surface->form, &surface->points[i],
                          surface_model_seconds(surface, &surface->points[i].shape));
        for (int i = 0; i < training->count; i++) {
                const struct surface_point *point = &training->points[i];
                set_point(&training->cloud, i, surface->form, point,
                          loop_seconds(surface, &point->shape, point->pass, &deviation));
        }
        return true;
}

double surface_seconds(const struct surface *surface, const struct surface_shape *shape,
                       enum surface_pass pass, bool training, double sustained, double *error)
{
        const struct surface_training *trained = &surface->training;
        double deviation, seconds = loop_seconds(surface, shape, pass, &deviation);
        if (training && trained->cloud.has[pass])
                seconds *= exp(
                        estimate_at(surface, &trained->cloud, &trained->kriging, shape, pass, &deviation));
        else if (training)
                seconds = fmax(seconds, surface_flops(surface, shape, pass) /
                                                (sustained * surface->model.flops_per_second));
        if (error)
                *error = deviation;
        return seconds;
}
