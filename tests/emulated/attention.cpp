/* A library of attention that is not NVIDIA's, for tests of how one is called: it does heads of a multiple of
 * 8 columns, by the device's own kernels. Backward's sums of rows are in its workspace, of whose size it says
 * more than the device has where RANVIER_EMULATED_WORKSPACE is set. RANVIER_EMULATED_ATTENTION names a file
 * that a line is added to for each run. */
#include "runtime/device/cuda/attention_library.h"
#include "runtime/device/cuda/launch.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

struct attention_library_plan {
        struct attention_shape shape;
};

static void note(const struct attention_shape *shape)
{
        const char *path = getenv("RANVIER_EMULATED_ATTENTION");
        FILE *file = path ? fopen(path, "a") : NULL;
        if (!file)
                return;
        fprintf(file, "%s %d %d %d/%d x %d\n", shape->backward ? "backward" : "forward",
                (int)shape->sequences, (int)shape->T, (int)shape->heads, (int)shape->kv_heads,
                (int)shape->hs);
        fclose(file);
}

static struct attention_library_plan *make_plan(const struct attention_shape *shape, char why[ATTENTION_WHY])
{
        if (shape->hs % 8 != 0) {
                snprintf(why, ATTENTION_WHY, "heads of %d columns", (int)shape->hs);
                return NULL;
        }
        struct attention_library_plan *plan = new attention_library_plan;
        memcpy(&plan->shape, shape, sizeof *shape);
        return plan;
}

static int64_t workspace_bytes(const struct attention_library_plan *plan)
{
        const struct attention_shape *of = &plan->shape;
        if (of->backward && getenv("RANVIER_EMULATED_WORKSPACE"))
                return INT64_C(1) << 40;
        return of->backward ? of->sequences * of->heads * of->T * (int64_t)sizeof(float) : 0;
}

static const char *run(struct attention_library_plan *plan, cudaStream_t stream, void *const p[],
                       void *workspace)
{
        const struct attention_shape *of = &plan->shape;
        note(of);
        struct kernel kernel = {};
        kernel.kind = of->backward ? KERNEL_ATTENTION_BACKWARD : KERNEL_ATTENTION;
        kernel.dtype = of->bf16 ? DTYPE_BF16 : DTYPE_FP16;
        kernel.group = (int)(of->heads / of->kv_heads);
        kernel.batch = of->sequences * of->heads;
        kernel.m = kernel.n = of->T;
        kernel.k = of->hs;
        struct kernel_args args = {};
        memcpy(args.p, p, (of->backward ? 6 : 3) * sizeof *p);
        if (of->backward)
                args.p[1] = workspace;
        args.inner = of->heads;
        args.scalar[0] = (double)of->scale;
        const struct cuda_work work = {};
        const cudaError_t status =
                (of->backward ? cuda_attention_backward : cuda_attention)(stream, &kernel, &args, &work);
        return status == cudaSuccess ? NULL : "the emulated kernel";
}

static void free_plan(struct attention_library_plan *plan)
{
        delete plan;
}

extern "C" __attribute__((visibility("default"))) const struct attention_library *
attention_library_open(char why[ATTENTION_WHY])
{
        static const struct attention_library library = {"emulated attention", make_plan, workspace_bytes,
                                                         run, free_plan};
        if (!getenv("RANVIER_EMULATED_NO_ATTENTION"))
                return &library;
        snprintf(why, ATTENTION_WHY, "cuDNN 9 does not load: it is not there");
        return NULL;
}
