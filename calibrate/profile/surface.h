/* What products and attention take on a device of which many shapes were measured: a physical model of the
 * device, and what the measured shapes nearby differ from it by.
 *
 * The model knows tiles and which of them is chosen, waves of tiles over the processors, products that are
 * split along k, memory, and the start of a kernel. The logarithm of measured over modelled seconds is then
 * interpolated by ordinary kriging (Matheron 1963; Rasmussen and Williams 2006, ch. 2): points are trusted
 * the more the nearer they are, in the logarithms of the shape, and the estimate says how uncertain it is.
 * Far from all points what is left is the model, times what the nearest points differ from it by.
 *
 * Tables of measured kernels are of short loops, in which a device runs at its highest clock. In a training
 * run power limits it: it is taken that kernels reach a part of the peak at most (calibrate/README.md has
 * what long loops show: on a B200 0.49 where its short loops reach 0.65 to 0.75), or else what shapes took
 * that were measured in long loops (struct surface_training). Times are in seconds, errors are relative
 * standard errors. */
#ifndef RANVIER_CALIBRATE_PROFILE_SURFACE_H
#define RANVIER_CALIBRATE_PROFILE_SURFACE_H

#include "models/workload.h"

#include <stdbool.h>

enum surface_form { SURFACE_PRODUCT, SURFACE_ATTENTION, SURFACE_FORMS };

/* Which of the kernels of a layer: y = x W^T (and attention forward), the gradient of x (and attention's
 * backward), the gradient of W. */
enum surface_pass { SURFACE_FORWARD, SURFACE_INPUT_GRADIENT, SURFACE_WEIGHT_GRADIENT, SURFACE_PASSES };

/* Of a product: `batch` products (or experts) of C (m,n), inner k; m, n and k are those of each. Of
 * attention: `batch` is sequences x heads of queries, m the tokens of a sequence, k the width of a head,
 * `group` the heads of queries that share one of keys; n is m. */
struct surface_shape {
        double batch, m, n, k, group;
};

struct surface_point {
        struct surface_shape shape;
        enum surface_pass pass;
        double seconds;
};

/* In how many directions shapes differ: of products log2 of m, n, k and batch, and whether m is whole tiles
 * of 128; of attention log2 of m, k, group and batch. The last one is the pass. */
enum { SURFACE_COORDINATES = 6 };

/* The model. The first five are the device's datasheet and the format's elements, the others were fitted. */
struct surface_model {
        double processors, flops_per_second, bytes_per_second;
        double input_bytes, output_bytes; /* of an element */
        double efficiency;                /* of flops_per_second, in tiles without end */
        double memory_efficiency;         /* of bytes_per_second */
        double overhead_seconds;          /* a kernel's start and end */
        /* A tile of a x b reaches 1 / (1 + half_tile (1 / a + 1 / b)) of the rate; of attention a head of k
         * columns k / (k + half_tile). */
        double half_tile;
        /* What a tile spends beside its own inner dimension, in elements of that (of attention: keys). */
        double fill;
};

/* How points are weighed: a distance is the sum of |difference| / length over the coordinates; two points at
 * distance d correlate by exp(-d). */
struct surface_kriging {
        double length[SURFACE_COORDINATES];
        /* What repeats of one shape differ by, and what far shapes differ by: variance of the first over that
         * of the second, and the standard deviation of the second, of logarithms. */
        double nugget, spread;
};

/* Errors at points that an estimate did not see: relative, absolute. */
struct surface_quality {
        double left_out_median, left_out_tenth; /* each point alone; the tenth is what one in ten exceeds */
        double regions_median, regions_tenth;   /* the worst of whole regions left out */
        char region[32];                        /* which one that was */
};

/* Points as the kriging sees them: where they lie, log(measured / expected) of each, and of which passes
 * there are any. */
struct surface_cloud {
        double (*x)[SURFACE_COORDINATES];
        double *residual;
        int count;
        bool has[SURFACE_PASSES];
};

/* Kernels as in a training run: shapes timed in long loops, in each pass, against the short loops' seconds.
 */
struct surface_training {
        struct surface_point *points;
        int count;
        struct surface_kriging kriging;
        struct surface_cloud cloud;
};

/* Its owner fills everything but the clouds, calls surface_prepare, and in the end surface_free, which frees
 * its arrays. */
struct surface {
        enum surface_form form;
        struct surface_model model;
        struct surface_kriging kriging;
        struct surface_quality quality;
        struct surface_point *points;
        int count;
        /* Of a pass that has no points: its seconds over the forward's of the same shape; 0 stands for 1. */
        double ratio[SURFACE_PASSES];
        struct surface_training training;
        struct surface_cloud cloud;
};

/* Finds where the points lie, and what they differ from the model by; again after either changes. Returns
 * false if there is no memory. */
bool surface_prepare(struct surface *surface);
void surface_free(struct surface *surface);

/* Which form prices a kernel, its shape and pass; false: none does. */
bool surface_shape_of(const struct kernel *kernel, enum surface_form *form, struct surface_shape *shape,
                      enum surface_pass *pass);

/* Returns what the model alone says. */
double surface_model_seconds(const struct surface *surface, const struct surface_shape *shape);

/* Returns the floating-point operations of a shape. */
double surface_flops(const struct surface *surface, const struct surface_shape *shape,
                     enum surface_pass pass);

/* Returns the seconds of a shape in a short loop, or, if `training`, in a training run: by the training table
 * where that has the pass, else at `sustained` of the peak's rate at most (1: as in the short loop). `error`
 * (may be NULL) becomes their relative standard error. */
double surface_seconds(const struct surface *surface, const struct surface_shape *shape,
                       enum surface_pass pass, bool training, double sustained, double *error);

/* For fits: estimates a point's residual from the others, without those for which left_out() is true (of
 * which it should be one itself). `deviation` becomes the estimate's standard deviation. NAN if fewer than
 * two points are left. */
double surface_estimate(const struct surface_cloud *cloud, const struct surface_kriging *kriging,
                        const double x[SURFACE_COORDINATES], bool (*left_out)(const void *context, int point),
                        const void *context, double *deviation);

#endif
