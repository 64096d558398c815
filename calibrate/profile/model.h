/* Seconds of a kernel from its shape, by figures that mean something: rates, sizes at which they are half
 * reached, tiles, processors. A model is written by hand from a datasheet or fitted to points (fit.h). This
 * file has the formula; profile.h reads and writes models, and asks them about kernels that have no
 * point. */
#ifndef RANVIER_CALIBRATE_PROFILE_MODEL_H
#define RANVIER_CALIBRATE_PROFILE_MODEL_H

#include "models/workload.h"

/* How well a fit meets the points that it was made from: |fitted / measured - 1|, and the same of each point
 * by the fit over all others. Zeros: not known. */
struct fit_quality {
        int points;
        double median_error, worst_error;
        double left_out_median_error, left_out_worst_error;
};

/* The formula. A parameter that is 0 has no effect.
 *
 *   pad     = product over the dimensions m, n, k of  ceil(d / tile_d) tile_d / d
 *   tiles   = batch ceil(m / tile_m) ceil(n / tile_n), an absent tile being the whole dimension
 *   wave    = ceil(tiles / processors) processors / tiles
 *   sat     = product over the dimensions of  1 + half_d / d
 *   compute = flops pad wave sat / (flops_per_second efficiency)
 *   memory  = (min(bytes, cache_bytes) / cache_bytes_per_second
 *              + max(bytes - cache_bytes, 0) / bytes_per_second) / efficiency
 *   seconds = overhead + max(minimum, max(compute, memory) + exposed min(compute, memory)) + odd
 *
 * efficiency is multiplied by long_efficiency where a dimension reaches long_dimension; where batch > 1 it is
 * batched_efficiency, if there is one, and then pad, wave and sat are 1. minimum is what a kernel takes at
 * least where the host is slower to launch it than the device to run it, and launches do not run ahead. odd
 * is odd_batch_seconds where batch is no multiple of batch_multiple (a library's fast kernel needs one and is
 * replaced by several slow ones).
 *
 * flops and bytes are kernel_flops and kernel_bytes; a dimension that a kernel does not have (0) does not
 * count. Tiles and waves: NVIDIA, Matrix Multiplication Background User's Guide, "Tile quantization" and
 * "Wave quantization". max(compute, memory): the roofline of Williams et al. 2009. d / (d + half_d):
 * Hockney's n_1/2 (Hockney and Jesshope 1981), of each dimension. */
struct kernel_model {
        double flops_per_second, bytes_per_second;
        double cache_bytes, cache_bytes_per_second; /* both or neither */
        double efficiency;                          /* of both rates; at most 1; 0 stands for 1 */
        double batched_efficiency;                  /* of products of batch > 1 */
        double long_dimension, long_efficiency;     /* both or neither */
        /* Which part of the shorter of computing and memory the longer does not hide: from 0, a roofline, to
         * 1, their sum. */
        double exposed;
        double overhead_seconds, minimum_seconds;
        double batch_multiple, odd_batch_seconds; /* both or neither */
        /* The size of each dimension at which half of the rate is reached. */
        double half_m, half_n, half_k;
        double tile_m, tile_n, tile_k, processors; /* whole numbers */
        /* The relative standard error of the seconds; 0: not known. */
        double error;
        struct fit_quality quality;
        /* There is a model; false: the other members say nothing. */
        bool present;
};

/* Returns what a model gives for a kernel. */
double model_seconds(const struct kernel_model *model, const struct kernel *kernel);

/* What of a kernel the formula needs. A fit, which asks often, counts flops and bytes once. */
struct model_work {
        double flops, bytes, batch, m, n, k;
};
struct model_work model_work_of(const struct kernel *kernel);
double model_work_seconds(const struct kernel_model *model, const struct model_work *work);

/* A limit for what a profile may say: no kernel, copy or message takes longer. */
#define MODEL_MAX_SECONDS 1e6

/* The parameters by name, `error` included: a table by which a profile's file is read and written. */
struct model_parameter {
        const char *name;
        size_t offset; /* of a double in struct kernel_model */
        double max;    /* the largest value that a file may have */
        bool whole;    /* it is a whole number */
        bool not_zero; /* a file must not say 0, as of a rate: a parameter without effect is left out */
};
enum { MODEL_PARAMETERS = 21 };
extern const struct model_parameter model_parameters[MODEL_PARAMETERS];

/* Returns where a parameter of a model is. */
static inline double *model_at(struct kernel_model *model, const struct model_parameter *parameter)
{
        return (void *)((char *)model + parameter->offset);
}

#endif
