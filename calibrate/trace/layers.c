#include "calibrate/trace/layers.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool layers_product(const struct kernel *kernel)
{
        return kernel_descriptor(kernel->kind)->products == 1 && kernel->batch == 1;
}

static bool is_elsewhere(const struct kernel *kernel)
{
        return kernel_of_mixture(kernel->kind) || kernel->kind == KERNEL_LATENT_QKV ||
               kernel->kind == KERNEL_SPLIT_COLUMNS;
}

static bool are_here(const struct layers *layers)
{
        for (int i = 0; i < layers->count; i++)
                if (is_elsewhere(&layers->kernels[i]))
                        return false;
        return true;
}

/* The forward's kernels to the front: where the loss is made in the backward, its forward is there too. */
static int part_forward(struct kernel *kernels, int count)
{
        struct kernel *backward = malloc((size_t)count * sizeof *backward);
        int forward = 0, behind = 0;
        if (!backward)
                abort();
        for (int i = 0; i < count; i++)
                if (kernels[i].part)
                        backward[behind++] = kernels[i];
                else
                        kernels[forward++] = kernels[i];
        memcpy(kernels + forward, backward, (size_t)behind * sizeof *backward);
        free(backward);
        return forward;
}

static void add_to(struct layers_range *range, int index)
{
        if (!range->count)
                range->first = index;
        range->count++;
}

/* Sums of a bias's gradient belong to its product. */
static void place_kernels(struct layers *layers, int forward)
{
        int product = 0;
        for (int i = 0; i < forward; i++) {
                const bool is_product = layers_product(&layers->kernels[i]);
                add_to(&layers->places[2 * product + is_product].forward, i);
                product += is_product;
        }
        for (int i = forward; i < layers->count; i++) {
                const struct kernel *kernel = &layers->kernels[i];
                const bool is_product = layers_product(kernel);
                product -= is_product && kernel->part == PART_INPUT;
                add_to(&layers->places[2 * product + (is_product || kernel->kind == KERNEL_BIAS_BACKWARD)]
                                .backward,
                       i);
        }
        assert(product == 0);
}

int layers_init(struct layers *layers, const struct gpt *gpt, int micro_batch_size, int seq_len,
                enum dtype dtype, struct rv_error_info *err)
{
        const struct work work = {.micro_batch_size = micro_batch_size,
                                  .seq_len = seq_len,
                                  .dtype = dtype,
                                  .fused = true,
                                  .tp = 1,
                                  .wide_gradients = work_wide_by_default(dtype),
                                  .logits_bytes = INT64_MAX};
        const struct stage stage = partition_stage(gpt, 1, 0);
        struct kernel updates[WORKLOAD_UPDATE_KERNELS];
        const int first = workload_forward(gpt, &stage, &work, false, NULL),
                  second = workload_backward(gpt, &stage, &work, NULL);
        *layers = (struct layers){
                .count = first + second, .forward = first, .B = micro_batch_size, .S = seq_len};
        layers->kernels = malloc((size_t)layers->count * sizeof *layers->kernels);
        if (!layers->kernels)
                abort();
        workload_forward(gpt, &stage, &work, false, layers->kernels);
        workload_backward(gpt, &stage, &work, layers->kernels + first);
        if (!are_here(layers)) {
                layers_free(layers);
                return rv_fail(
                        err, RV_ENOTBUILT,
                        "--from-trace: %.80s has experts or latent attention, whose operators in a trace "
                        "are not mapped yet; dense models are",
                        gpt->name);
        }
        const int forward = part_forward(layers->kernels, layers->count);
        for (int i = 0; i < forward; i++)
                layers->products += layers_product(&layers->kernels[i]);
        layers->places = calloc(2 * (size_t)layers->products + 1, sizeof *layers->places);
        if (!layers->places)
                abort();
        place_kernels(layers, forward);
        const int64_t parameters = partition_parameters(gpt, &stage);
        const int count = workload_update(parameters, dtype, work.wide_gradients, updates);
        layers->norm = workload_norm(gpt, &stage, dtype);
        layers->update = updates[count - 1];
        layers->update.wide = work.wide_gradients;
        layers->norms = 1 + work.wide_gradients;
        layers->norm.m *= layers->norms; /* bytes of fp32, as a profile in 16 bits has them */
        return RV_OK;
}

void layers_free(struct layers *layers)
{
        free(layers->kernels);
        free(layers->places);
        *layers = (struct layers){0};
}
