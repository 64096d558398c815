#include "calibrate/profile/model.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#define AT(parameter) .name = #parameter, .offset = offsetof(struct kernel_model, parameter)

const struct model_parameter model_parameters[MODEL_PARAMETERS] = {
        {AT(flops_per_second), .max = INFINITY, .not_zero = true},
        {AT(bytes_per_second), .max = INFINITY, .not_zero = true},
        {AT(cache_bytes), .max = INFINITY, .not_zero = true},
        {AT(cache_bytes_per_second), .max = INFINITY, .not_zero = true},
        {AT(efficiency), .max = 1, .not_zero = true},
        {AT(batched_efficiency), .max = 1, .not_zero = true},
        {AT(long_dimension), .max = 1e9, .whole = true, .not_zero = true},
        {AT(long_efficiency), .max = 1, .not_zero = true},
        {AT(exposed), .max = 1},
        {AT(overhead_seconds), .max = MODEL_MAX_SECONDS},
        {AT(minimum_seconds), .max = MODEL_MAX_SECONDS},
        {AT(batch_multiple), .max = 1e9, .whole = true, .not_zero = true},
        {AT(odd_batch_seconds), .max = MODEL_MAX_SECONDS},
        {AT(half_m), .max = INFINITY},
        {AT(half_n), .max = INFINITY},
        {AT(half_k), .max = INFINITY},
        {AT(tile_m), .max = 1e9, .whole = true, .not_zero = true},
        {AT(tile_n), .max = 1e9, .whole = true, .not_zero = true},
        {AT(tile_k), .max = 1e9, .whole = true, .not_zero = true},
        {AT(processors), .max = 1e9, .whole = true, .not_zero = true},
        {AT(error), .max = INFINITY, .not_zero = true},
};

/* Tiles along a dimension; one if it is not tiled, or not there. */
static double tiles_along(double size, double tile)
{
        return tile > 0 && size > 0 ? ceil(size / tile) : 1;
}

static double padding(double size, double tile)
{
        return tile > 0 && size > 0 ? tiles_along(size, tile) * tile / size : 1;
}

static double saturation(double size, double half)
{
        return size > 0 ? 1 + half / size : 1;
}

static double wave_padding(const struct kernel_model *model, const struct model_work *work)
{
        double tiles =
                work->batch * tiles_along(work->m, model->tile_m) * tiles_along(work->n, model->tile_n);
        return padding(tiles, model->processors);
}

static bool batched(const struct kernel_model *model, const struct model_work *work)
{
        return model->batched_efficiency > 0 && work->batch > 1;
}

static double efficiency_of(const struct kernel_model *model, const struct model_work *work)
{
        const double longest = fmax(work->m, fmax(work->n, work->k));
        const double plain = model->efficiency > 0 ? model->efficiency : 1;
        const bool is_long = model->long_efficiency > 0 && longest >= model->long_dimension;
        return (batched(model, work) ? model->batched_efficiency : plain) *
               (is_long ? model->long_efficiency : 1);
}

static double compute_seconds(const struct kernel_model *model, const struct model_work *work)
{
        if (model->flops_per_second == 0)
                return 0;
        if (batched(model, work))
                return work->flops / model->flops_per_second;
        return work->flops / model->flops_per_second * padding(work->m, model->tile_m) *
               padding(work->n, model->tile_n) * padding(work->k, model->tile_k) * wave_padding(model, work) *
               saturation(work->m, model->half_m) * saturation(work->n, model->half_n) *
               saturation(work->k, model->half_k);
}

static double odd_seconds(const struct kernel_model *model, const struct model_work *work)
{
        const bool odd = model->batch_multiple > 0 && fmod(work->batch, model->batch_multiple) != 0;
        return odd ? model->odd_batch_seconds : 0;
}

/* What the cache holds comes from there. */
static double memory_seconds(const struct kernel_model *model, double bytes)
{
        const double cached = fmin(bytes, model->cache_bytes);
        double seconds = cached > 0 ? cached / model->cache_bytes_per_second : 0;
        if (model->bytes_per_second > 0)
                seconds += (bytes - cached) / model->bytes_per_second;
        return seconds;
}

double model_work_seconds(const struct kernel_model *model, const struct model_work *work)
{
        const double efficiency = efficiency_of(model, work);
        const double compute = compute_seconds(model, work) / efficiency;
        const double memory = memory_seconds(model, work->bytes) / efficiency;
        const double device = fmax(compute, memory) + model->exposed * fmin(compute, memory);
        return model->overhead_seconds + fmax(model->minimum_seconds, device) + odd_seconds(model, work);
}

struct model_work model_work_of(const struct kernel *kernel)
{
        return (struct model_work){.flops = kernel_flops(kernel),
                                   .bytes = kernel_bytes(kernel),
                                   .batch = (double)kernel->batch,
                                   .m = (double)kernel->m,
                                   .n = (double)kernel->n,
                                   .k = (double)kernel->k};
}

double model_seconds(const struct kernel_model *model, const struct kernel *kernel)
{
        const struct model_work work = model_work_of(kernel);
        return model_work_seconds(model, &work);
}
