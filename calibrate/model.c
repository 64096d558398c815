#include "calibrate/model.h"

#include <math.h>
#include <stddef.h>

#define AT(parameter) .name = #parameter, .offset = offsetof(struct kernel_model, parameter)

const struct model_parameter model_parameters[MODEL_PARAMETERS] = {
        {AT(flops_per_second), .most = INFINITY, .not_zero = true},
        {AT(bytes_per_second), .most = INFINITY, .not_zero = true},
        {AT(efficiency), .most = 1, .not_zero = true},
        {AT(exposed), .most = 1},
        {AT(overhead_seconds), .most = INFINITY},
        {AT(half_m), .most = INFINITY},
        {AT(half_n), .most = INFINITY},
        {AT(half_k), .most = INFINITY},
        {AT(tile_m), .most = 1e9, .whole = true, .not_zero = true},
        {AT(tile_n), .most = 1e9, .whole = true, .not_zero = true},
        {AT(tile_k), .most = 1e9, .whole = true, .not_zero = true},
        {AT(processors), .most = 1e9, .whole = true, .not_zero = true},
        {AT(error), .most = INFINITY, .not_zero = true},
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

static double wave_padding(const struct kernel_model *model, const struct kernel *kernel)
{
        double tiles = (double)kernel->batch * tiles_along((double)kernel->m, model->tile_m) *
                       tiles_along((double)kernel->n, model->tile_n);
        return padding(tiles, model->processors);
}

static double compute_seconds(const struct kernel_model *model, const struct kernel *kernel)
{
        const double m = (double)kernel->m, n = (double)kernel->n, k = (double)kernel->k;
        if (model->flops_per_second == 0)
                return 0;
        return kernel_flops(kernel) / model->flops_per_second * padding(m, model->tile_m) *
               padding(n, model->tile_n) * padding(k, model->tile_k) * wave_padding(model, kernel) *
               saturation(m, model->half_m) * saturation(n, model->half_n) * saturation(k, model->half_k);
}

double model_seconds(const struct kernel_model *model, const struct kernel *kernel)
{
        const double efficiency = model->efficiency > 0 ? model->efficiency : 1;
        const double compute = compute_seconds(model, kernel) / efficiency;
        const double memory = model->bytes_per_second > 0
                                      ? kernel_bytes(kernel) / (model->bytes_per_second * efficiency)
                                      : 0;
        return model->overhead_seconds + fmax(compute, memory) + model->exposed * fmin(compute, memory);
}
