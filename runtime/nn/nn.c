/* A stage's buffers. */
#include "runtime/nn/nn.h"
#include "runtime/nn/slot.h"

#include <assert.h>
#include <stdlib.h>

/* Consecutive tensors that are treated alike become one range. */
static struct adamw_range *decay_ranges(const struct tensor *tensors, int count)
{
        struct adamw_range *ranges = calloc((size_t)count, sizeof *ranges);
        if (!ranges)
                return NULL;
        int last = -1;
        for (int i = 0; i < count; i++) {
                if (last < 0 || ranges[last].decay != (int)tensors[i].decay)
                        ranges[++last].decay = tensors[i].decay;
                ranges[last].end = tensors[i].offset + tensors[i].elements;
        }
        return ranges;
}

/* The host side: which tensors, and tables of buffers. */
static bool allocate_host(struct nn_stage *nn)
{
        nn->tensor_count = partition_tensors(&nn->gpt, &nn->stage, NULL);
        nn->tensors = calloc((size_t)nn->tensor_count, sizeof *nn->tensors);
        if (!nn->tensors)
                return false;
        partition_tensors(&nn->gpt, &nn->stage, nn->tensors);
        nn->ranges = decay_ranges(nn->tensors, nn->tensor_count);
        nn->slots = calloc((size_t)nn->plan.slots + 1, sizeof *nn->slots);
        nn->inputs = calloc((size_t)nn->plan.input_buffers + 1, sizeof *nn->inputs);
        nn->gradient_buffers = calloc((size_t)nn->plan.gradient_buffers + 1, sizeof *nn->gradient_buffers);
        return nn->ranges && nn->slots && nn->inputs && nn->gradient_buffers;
}

/* Device memory, zeroed; after a first failure nothing more is asked for. */
static void *allocate(const struct nn_stage *nn, enum memory_category category, int64_t bytes, bool *ok)
{
        void *memory = *ok ? nn->device->ops->alloc(nn->device, category, bytes) : NULL;
        *ok = memory != NULL;
        return memory;
}

static bool allocate_parameters(struct nn_stage *nn, bool optimizer)
{
        const int64_t bytes = nn->layout.parameters;
        bool ok = true;
        nn->weights = allocate(nn, MEMORY_WEIGHTS, bytes, &ok);
        nn->gradients = allocate(nn, MEMORY_GRADIENTS, bytes, &ok);
        if (optimizer) {
                nn->adam_m = allocate(nn, MEMORY_OPTIMIZER, bytes, &ok);
                nn->adam_v = allocate(nn, MEMORY_OPTIMIZER, bytes, &ok);
        }
        return ok;
}

static bool allocate_buffers(struct nn_stage *nn)
{
        const struct memory_layout *l = &nn->layout;
        bool ok = true;
        for (int i = 0; i < nn->plan.slots; i++)
                nn->slots[i] = allocate(nn, MEMORY_ACTIVATIONS, l->slot, &ok);
        for (int i = 0; i < nn->plan.input_buffers; i++)
                nn->inputs[i] = allocate(nn, MEMORY_MESSAGES, l->message, &ok);
        for (int i = 0; i < nn->plan.gradient_buffers; i++)
                nn->gradient_buffers[i] = allocate(nn, MEMORY_MESSAGES, l->message, &ok);
        nn->work_c = allocate(nn, MEMORY_WORKSPACE, l->work_c, &ok);
        nn->work_4c = allocate(nn, MEMORY_WORKSPACE, l->work_4c, &ok);
        nn->work_qkv = allocate(nn, MEMORY_WORKSPACE, l->work_qkv, &ok);
        nn->work_attention = allocate(nn, MEMORY_WORKSPACE, l->work_attention, &ok);
        nn->scalars = allocate(nn, MEMORY_WORKSPACE, l->work_scalars, &ok);
        if (nn->stage.first)
                nn->tokens = allocate(nn, MEMORY_TOKENS, l->tokens, &ok);
        if (nn->stage.last)
                nn->targets = allocate(nn, MEMORY_TOKENS, l->tokens, &ok);
        return ok;
}

/* What the stage will allocate, after what the device holds already. */
static int check_memory(const struct nn_stage *nn, bool optimizer, struct rv_error_info *err)
{
        const double gib = 1024.0 * 1024.0 * 1024.0;
        int64_t bytes[MEMORY_CATEGORIES], free_bytes = nn->device->memory_bytes;
        int64_t total = memory_stage(&nn->gpt, &nn->stage, &nn->plan, bytes);
        if (!optimizer)
                total -= bytes[MEMORY_OPTIMIZER];
        for (int category = 0; category < MEMORY_CATEGORIES; category++)
                free_bytes -= nn->device->bytes[category];
        if (total <= free_bytes)
                return RV_OK;
        return rv_fail(err, RV_ESYSTEM,
                       "stage %d of %d of %s needs %.1f GiB, device %s has %.1f GiB for it; a smaller model, "
                       "more stages, smaller micro-batches or shorter sequences need less",
                       nn->stage.index, nn->stage.stages, nn->gpt.name, (double)total / gib,
                       nn->device->ops->name, (double)free_bytes / gib);
}

struct nn_stage *nn_open(struct device *device, const struct gpt *gpt, const struct stage *stage,
                         const struct memory_plan *plan, bool optimizer, struct rv_error_info *err)
{
        assert(plan->element_bytes == (int)sizeof(real));
        struct nn_stage *nn = calloc(1, sizeof *nn);
        if (!nn) {
                rv_fail(err, RV_ESYSTEM, "no host memory for a stage of %s", gpt->name);
                return NULL;
        }
        nn->device = device;
        nn->gpt = *gpt;
        nn->stage = *stage;
        nn->plan = *plan;
        nn->layout = memory_layout(gpt, stage, plan);
        nn->parameters = partition_parameters(gpt, stage);
        int status = check_memory(nn, optimizer, err);
        if (status == RV_OK &&
            (!allocate_host(nn) || !allocate_parameters(nn, optimizer) || !allocate_buffers(nn)))
                status = rv_fail(err, RV_ESYSTEM, "device %s gave less memory than stage %d of %s needs",
                                 device->ops->name, stage->index, gpt->name);
        if (status != RV_OK) {
                nn_close(nn);
                return NULL;
        }
        return nn;
}

void nn_close(struct nn_stage *nn)
{
        if (!nn)
                return;
        free(nn->tensors);
        free(nn->ranges);
        free(nn->slots);
        free(nn->inputs);
        free(nn->gradient_buffers);
        free(nn);
}

real *nn_output(struct nn_stage *nn, int slot)
{
        return slot_block(nn, slot, nn->stage.layers - 1).residual2;
}

real *nn_logits(struct nn_stage *nn, int slot)
{
        assert(nn->stage.last);
        return slot_final(nn, slot).logits;
}
