#include "runtime/device/cuda/attention_plans.h"

#include "runtime/base/plugin.h"
#include "runtime/device/cuda/attention_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A shape that was met; without a plan it is ours. */
struct entry {
        struct attention_shape shape;
        struct attention_library_plan *plan;
};

struct cuda_attention {
        const struct attention_library *library;
        bool must; /* what the library does not do is a failure */
        void *workspace;
        struct entry *entries;
        int count;
        char sentence[2 * ATTENTION_WHY];
};

struct cuda_attention *cuda_attention_new(enum attention_source source, struct rv_error_info *err)
{
        char why[ATTENTION_WHY] = "";
        struct rv_error_info missing = {0};
        attention_library_fn *open = (attention_library_fn *)plugin_load(
                "attention_cudnn.so", "RANVIER_ATTENTION_CUDNN", ATTENTION_LIBRARY_SYMBOL,
                "--attention cudnn",
                "where the CUDA toolkit, cuDNN and the headers of cudnn-frontend are, 'make "
                "CUDNN_FRONTEND=FOLDER' builds it",
                &missing);
        const struct attention_library *library = open ? open(why) : NULL;
        if (open && !library)
                rv_fail(&missing, RV_ENOTBUILT, "--attention cudnn: %s", why);
        if (!library) {
                if (source == ATTENTION_CUDNN)
                        *err = missing;
                return NULL;
        }
        struct cuda_attention *attention = calloc(1, sizeof *attention);
        if (!attention) {
                rv_fail(err, RV_ESYSTEM, "--attention: no host memory for the library's plans");
                return NULL;
        }
        attention->library = library;
        attention->must = source == ATTENTION_CUDNN;
        return attention;
}

void cuda_attention_work_in(struct cuda_attention *attention, void *workspace)
{
        attention->workspace = workspace;
}

void cuda_attention_delete(struct cuda_attention *attention)
{
        if (!attention)
                return;
        for (int i = 0; i < attention->count; i++)
                attention->library->free(attention->entries[i].plan);
        free(attention->entries);
        free(attention);
}

const char *cuda_attention_name(const struct cuda_attention *attention)
{
        return attention->library->name;
}

/* Whether the kernel is of a kind that the library may have; then its shape. */
static bool shape_of(const struct kernel *kernel, const struct kernel_args *args,
                     struct attention_shape *shape)
{
        if ((kernel->kind != KERNEL_ATTENTION && kernel->kind != KERNEL_ATTENTION_BACKWARD) ||
            kernel->dtype == DTYPE_FP32)
                return false;
        memset(shape, 0, sizeof *shape); /* shapes are compared by their bytes */
        shape->backward = kernel->kind == KERNEL_ATTENTION_BACKWARD;
        shape->bf16 = kernel->dtype == DTYPE_BF16;
        shape->sequences = kernel->batch / args->inner;
        shape->T = kernel->m;
        shape->heads = args->inner;
        shape->kv_heads = args->inner / kernel_group(kernel);
        shape->hs = kernel->k;
        shape->scale = (float)args->scalar[0];
        return true;
}

/* Libraries load 16 bytes at a time; where rows begin follows from the shape. */
static bool aligned(const struct attention_shape *shape, void *const p[])
{
        for (int i = 0; i < (shape->backward ? 6 : 3); i++)
                if ((uintptr_t)p[i] % 16 != 0)
                        return false;
        return true;
}

static struct entry *find(const struct cuda_attention *attention, const struct attention_shape *shape)
{
        for (int i = 0; i < attention->count; i++)
                if (memcmp(&attention->entries[i].shape, shape, sizeof *shape) == 0)
                        return &attention->entries[i];
        return NULL;
}

/* Asks the library. Without a plan, and where it must have one, the sentence says why. */
static struct entry *add(struct cuda_attention *attention, const struct attention_shape *shape)
{
        char why[ATTENTION_WHY] = "";
        const struct attention_library *library = attention->library;
        struct entry *entries = realloc(attention->entries, (size_t)(attention->count + 1) * sizeof *entries);
        if (!entries) {
                snprintf(attention->sentence, sizeof attention->sentence, "no host memory for a plan");
                return NULL;
        }
        attention->entries = entries;
        struct attention_library_plan *plan = library->plan(shape, why);
        if (plan && library->workspace_bytes(plan) > CUDA_ATTENTION_WORKSPACE_BYTES) {
                snprintf(why, sizeof why, "it would work in %.2f GiB of memory, %.2f are kept for it",
                         (double)library->workspace_bytes(plan) / 0x1p30,
                         (double)CUDA_ATTENTION_WORKSPACE_BYTES / 0x1p30);
                library->free(plan);
                plan = NULL;
        }
        snprintf(attention->sentence, sizeof attention->sentence,
                 "%s does not do it (%s); --attention auto takes our kernel then", library->name, why);
        struct entry *entry = &entries[attention->count++];
        memcpy(&entry->shape, shape, sizeof *shape); /* padding, too */
        entry->plan = plan;
        return entry;
}

bool cuda_attention_is_new(const struct cuda_attention *attention, const struct kernel *kernel,
                           const struct kernel_args *args)
{
        struct attention_shape shape;
        return shape_of(kernel, args, &shape) && !find(attention, &shape);
}

void cuda_attention_prepare(struct cuda_attention *attention, const struct kernel *kernel,
                            const struct kernel_args *args)
{
        struct attention_shape shape;
        if (shape_of(kernel, args, &shape) && !find(attention, &shape))
                add(attention, &shape);
}

const char *cuda_attention_run(struct cuda_attention *attention, cudaStream_t stream,
                               const struct kernel *kernel, const struct kernel_args *args, bool *done)
{
        struct attention_shape shape;
        *done = false;
        if (!shape_of(kernel, args, &shape))
                return NULL;
        struct entry *entry = find(attention, &shape);
        if (!entry)
                entry = add(attention, &shape);
        if (!entry || (!entry->plan && attention->must))
                return attention->sentence;
        if (!entry->plan || !aligned(&shape, args->p))
                return NULL;
        *done = true;
        return attention->library->run(entry->plan, stream, args->p, attention->workspace);
}
