#include "runtime/device/cuda/attention_plans.h"

#include "runtime/base/plugin.h"
#include "runtime/device/cuda/attention_library.h"
#include "runtime/device/cuda/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A shape that was met; without a plan it is not the library's. */
struct entry {
        struct attention_shape shape;
        struct attention_library_plan *plan;
        char why[ATTENTION_WHY]; /* there is none */
        bool ran;
};

struct cuda_attention {
        const struct attention_library *library;
        bool must; /* what the library does not do is a failure */
        void *workspace;
        struct entry *entries;
        int count;
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

void cuda_attention_count(const struct cuda_attention *attention, struct device_description *description)
{
        snprintf(description->attention, sizeof description->attention, "%s", attention->library->name);
        description->attention_shapes = attention->count;
        description->library_attention_shapes = 0;
        for (int i = 0; i < attention->count; i++)
                description->library_attention_shapes += attention->entries[i].ran;
}

/* ---- plans ---- */

/* Whether the kernel is of a kind that the library may have; then its shape. */
static bool shape_of(const struct kernel *kernel, const struct kernel_args *args,
                     struct attention_shape *shape)
{
        if ((kernel->kind != KERNEL_ATTENTION && kernel->kind != KERNEL_ATTENTION_BACKWARD) ||
            kernel->dtype == DTYPE_FP32 || args->inner < 1 || kernel->batch % args->inner != 0)
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

/* Libraries load 16 bytes at a time; where rows begin follows from the shape. They do not have `rows`. */
static bool aligned(const struct attention_shape *shape, void *const p[])
{
        enum { ROWS = 1 };
        for (int i = 0; i < (shape->backward ? 6 : 3); i++)
                if (!(shape->backward && i == ROWS) && (uintptr_t)p[i] % 16 != 0)
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

/* The library's plan, or why there is none. */
static void make_plan(const struct attention_library *library, struct entry *entry)
{
        entry->plan = library->plan(&entry->shape, entry->why);
        if (!entry->plan)
                return;
        const int64_t bytes = library->workspace_bytes(entry->plan);
        if (bytes <= ATTENTION_WORKSPACE_BYTES)
                return;
        snprintf(entry->why, sizeof entry->why, "it would work in %.2f GiB of memory, %.2f are kept for it",
                 (double)bytes / 0x1p30, (double)ATTENTION_WORKSPACE_BYTES / 0x1p30);
        library->free(entry->plan);
        entry->plan = NULL;
}

/* RANVIER_CUDA_PLANS: a line for each shape. */
static void tell(const struct attention_library *library, const struct entry *entry)
{
        const struct attention_shape *of = &entry->shape;
        if (!getenv("RANVIER_CUDA_PLANS"))
                return;
        fprintf(stderr, "attention%s of %lld sequences of %lld tokens, %lld / %lld heads of %lld: %s%s\n",
                of->backward ? "_backward" : "", (long long)of->sequences, (long long)of->T,
                (long long)of->heads, (long long)of->kv_heads, (long long)of->hs,
                entry->plan ? library->name : "ours, ", entry->why);
}

/* Asks the library. NULL: there is no memory. */
static struct entry *add(struct cuda_attention *attention, const struct attention_shape *shape)
{
        struct entry *entries = realloc(attention->entries, (size_t)(attention->count + 1) * sizeof *entries);
        if (!entries)
                return NULL;
        attention->entries = entries;
        struct entry *entry = &entries[attention->count++];
        memset(entry, 0, sizeof *entry);
        memcpy(&entry->shape, shape, sizeof *shape); /* padding, too */
        make_plan(attention->library, entry);
        tell(attention->library, entry);
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

enum attention_outcome cuda_attention_run(struct cuda_attention *attention, cudaStream_t stream,
                                          const struct kernel *kernel, const struct kernel_args *args,
                                          const char **why)
{
        struct attention_shape shape;
        if (!shape_of(kernel, args, &shape))
                return ATTENTION_IS_OURS;
        struct entry *entry = find(attention, &shape);
        if (!entry)
                entry = add(attention, &shape);
        if (!entry || !entry->plan || !aligned(&shape, args->p)) {
                *why = !entry        ? "no host memory for its plan"
                       : entry->plan ? "operands do not begin at multiples of 16 bytes"
                                     : entry->why;
                return attention->must ? ATTENTION_IS_REFUSED : ATTENTION_IS_OURS;
        }
        entry->ran = true;
        *why = attention->library->run(entry->plan, stream, args->p, attention->workspace);
        if (!*why && shape.backward) {
                const cudaError_t status = cuda_attention_rows(stream, kernel, args, NULL);
                *why = status == cudaSuccess ? NULL : cudaGetErrorString(status);
        }
        return *why ? ATTENTION_FAILED : ATTENTION_IS_QUEUED;
}
