/* The CUDA device: three streams, events that are polled, kernels of launch.h and products of matmul.h. Only
 * the thread that opened it calls it. */
#include "runtime/device/cuda/cuda.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The least compute capability that kernels were built for, 10 major + minor. */
#ifndef CUDA_MIN_CAPABILITY
#define CUDA_MIN_CAPABILITY 70
#endif

enum {
        EVENTS = 256,           /* of each pool, at first */
        LATER_BYTES = 256 << 20 /* device memory that a rank leaves for what is loaded after the device was
                                   opened: kernels, graphs */
};

/* Kinds that are not here are products. */
static cuda_launch_fn *const kernels[KERNEL_KINDS] = {
        [KERNEL_EMBEDDING] = cuda_embedding,
        [KERNEL_EMBEDDING_BACKWARD] = cuda_embedding_backward,
        [KERNEL_LAYERNORM] = cuda_layernorm,
        [KERNEL_LAYERNORM_BACKWARD] = cuda_layernorm_backward,
        [KERNEL_BIAS] = cuda_bias,
        [KERNEL_BIAS_BACKWARD] = cuda_bias_backward,
        [KERNEL_BIAS_GELU] = cuda_bias_gelu,
        [KERNEL_GELU_BACKWARD] = cuda_gelu_backward,
        [KERNEL_BIAS_RESIDUAL] = cuda_bias_residual,
        [KERNEL_RESIDUAL] = cuda_residual,
        [KERNEL_RMSNORM] = cuda_rmsnorm,
        [KERNEL_RMSNORM_BACKWARD] = cuda_rmsnorm_backward,
        [KERNEL_HEAD_RMSNORM] = cuda_head_rmsnorm,
        [KERNEL_HEAD_RMSNORM_BACKWARD] = cuda_head_rmsnorm_backward,
        [KERNEL_ROPE] = cuda_rope,
        [KERNEL_SPLIT_COLUMNS] = cuda_split_columns,
        [KERNEL_JOIN_COLUMNS] = cuda_join_columns,
        [KERNEL_LATENT_QKV] = cuda_latent_qkv,
        [KERNEL_LATENT_QKV_BACKWARD] = cuda_latent_qkv_backward,
        [KERNEL_NARROW] = cuda_narrow,
        [KERNEL_WIDEN] = cuda_widen,
        [KERNEL_LAST_COLUMNS] = cuda_last_columns,
        [KERNEL_SET_LAST_COLUMNS] = cuda_set_last_columns,
        [KERNEL_SWIGLU] = cuda_swiglu,
        [KERNEL_SWIGLU_BACKWARD] = cuda_swiglu_backward,
        [KERNEL_SQUARED_RELU] = cuda_squared_relu,
        [KERNEL_SQUARED_RELU_BACKWARD] = cuda_squared_relu_backward,
        [KERNEL_ROUTE] = cuda_route,
        [KERNEL_ROUTE_BACKWARD] = cuda_route_backward,
        [KERNEL_EXPERT_ENDS] = cuda_expert_ends,
        [KERNEL_PERMUTE] = cuda_permute,
        [KERNEL_UNPERMUTE] = cuda_unpermute,
        [KERNEL_GROUPED_MATMUL] = cuda_grouped_matmul,
        [KERNEL_GROUPED_MATMUL_BACKWARD] = cuda_grouped_matmul_backward,
        [KERNEL_WEIGHTED_SWIGLU] = cuda_weighted_swiglu,
        [KERNEL_WEIGHTED_SWIGLU_BACKWARD] = cuda_weighted_swiglu_backward,
        [KERNEL_SOFTMAX] = cuda_softmax,
        [KERNEL_SOFTMAX_BACKWARD] = cuda_softmax_backward,
        [KERNEL_CROSS_ENTROPY] = cuda_cross_entropy,
        [KERNEL_CROSS_ENTROPY_LOSS] = cuda_cross_entropy,
        [KERNEL_SQUARED_NORM] = cuda_squared_norm,
        [KERNEL_ADAMW] = cuda_adamw,
        [KERNEL_OVERFLOW] = cuda_overflow,
        [KERNEL_UNSCALE] = cuda_unscale,
        [KERNEL_CLEAR] = cuda_clear,
        [KERNEL_ATTENTION] = cuda_attention,
        [KERNEL_ATTENTION_BACKWARD] = cuda_attention_backward,
        [KERNEL_CONTEXT_ATTENTION] = cuda_context_attention,
        [KERNEL_CONTEXT_ATTENTION_BACKWARD] = cuda_context_attention_backward,
};

static struct cuda_device *cuda_of(struct device *device)
{
        return (struct cuda_device *)device; /* its first member */
}

/* ---- failures ---- */

static void fail(struct cuda_device *cuda, const char *sentence)
{
        cuda_gate_release(&cuda->gate);
        if (cuda->base.fail)
                cuda->base.fail(cuda->base.fail_context, sentence);
        fprintf(stderr, "ranvier: %s\n", sentence);
        exit(1);
}

/* Work runs later than the call that queued it: what a call reports may have happened before. */
static void check(struct cuda_device *cuda, cudaError_t status, const char *what)
{
        char sentence[512];
        if (status == cudaSuccess)
                return;
        snprintf(sentence, sizeof sentence, "%s: %s failed, or work that was queued before it: %s",
                 cuda->name, what, cudaGetErrorString(status));
        fail(cuda, sentence);
}

static void fail_kernel(struct cuda_device *cuda, const struct kernel *kernel, const char *reason)
{
        static const char *const formats[] = {
                [DTYPE_FP32] = "fp32", [DTYPE_FP16] = "fp16", [DTYPE_BF16] = "bf16"};
        char sentence[512];
        snprintf(sentence, sizeof sentence,
                 "%s: kernel %s (m %lld, n %lld, k %lld, batch %lld, %s) failed, or work that was queued "
                 "before it: %s",
                 cuda->name, kernel_name(kernel->kind), (long long)kernel->m, (long long)kernel->n,
                 (long long)kernel->k, (long long)kernel->batch, formats[kernel->dtype], reason);
        fail(cuda, sentence);
}

/* ---- kernels ---- */

/* Returns whether the kernel was a library's. */
static bool run_by_library(struct cuda_device *cuda, cudaStream_t stream, const struct kernel *kernel,
                           const struct kernel_args *args)
{
        char sentence[640];
        const char *why = "";
        switch (cuda_attention_run(cuda->attention, stream, kernel, args, &why)) {
        case ATTENTION_IS_OURS:
                return false;
        case ATTENTION_IS_QUEUED:
                return true;
        case ATTENTION_FAILED:
                fail_kernel(cuda, kernel, why);
                return true;
        case ATTENTION_IS_REFUSED:
                break;
        }
        snprintf(sentence, sizeof sentence,
                 "%s: --attention cudnn, but the library does not do %s of heads of %lld columns and "
                 "sequences of %lld tokens (--attention auto takes our kernel): %s",
                 cuda->name, kernel_name(kernel->kind), (long long)kernel->k, (long long)kernel->m, why);
        fail(cuda, sentence);
        return true;
}

static void run_kernel(void *context, const struct kernel *kernel, const struct kernel_args *args)
{
        struct cuda_device *cuda = context;
        cudaStream_t stream = cuda->lanes[DEVICE_COMPUTE].stream;
        cuda_launch_fn *const launch = kernels[kernel->kind];
        const char *reason;
        if (cuda->attention && run_by_library(cuda, stream, kernel, args))
                return;
        if (launch) {
                const cudaError_t status = launch(stream, kernel, args, &cuda->work);
                reason = status == cudaSuccess ? NULL : cudaGetErrorString(status);
        } else {
                reason = cuda_matmul(cuda->matmul, stream, kernel, args);
        }
        if (reason)
                fail_kernel(cuda, kernel, reason);
}

/* A moment that both clocks know, close to what is timed after it: CUDA gives times as float differences,
 * which would be coarse after minutes. The lane is idle, so that this waits for nothing; where it took long,
 * the host had other work between the event and its clock. */
static void set_reference(struct cuda_device *cuda)
{
        enum { TRIES_OF_REFERENCE = 8 };
        const double soon = 1e-4;
        for (int i = 0; i < TRIES_OF_REFERENCE; i++) {
                const double before = device_seconds();
                check(cuda, cudaEventRecord(cuda->reference, cuda->lanes[DEVICE_COMPUTE].stream), "an event");
                check(cuda, cudaEventSynchronize(cuda->reference), "an event");
                cuda->reference_seconds = device_seconds();
                if (cuda->reference_seconds - before < soon)
                        return;
        }
}

static void run_timed(struct cuda_device *cuda, const struct kernel *kernel, const struct kernel_args *args)
{
        cudaStream_t stream = cuda->lanes[DEVICE_COMPUTE].stream;
        struct cuda_pending pending = {.token = -1, .kernel = *kernel};
        if (!cuda_queue_oldest(&cuda->kernels))
                set_reference(cuda);
        /* New events may wait for the device; making a plan may, and would be timed. */
        const bool is_new = cuda->attention && cuda_attention_is_new(cuda->attention, kernel, args);
        if (cuda->timed.count < 2 || is_new)
                cuda_gate_release(&cuda->gate);
        if (is_new)
                cuda_attention_prepare(cuda->attention, kernel, args);
        check(cuda, cuda_events_take(&cuda->timed, &pending.start), "a new event");
        check(cuda, cuda_events_take(&cuda->timed, &pending.event), "a new event");
        check(cuda, cuda_gate_hold(&cuda->gate, stream, kernel, args), "a gate before timed kernels");
        check(cuda, cudaEventRecord(pending.start, stream), "an event");
        run_kernel(cuda, kernel, args);
        check(cuda, cudaEventRecord(pending.event, stream), "an event");
        if (!cuda->grouped)
                cuda_gate_release(&cuda->gate);
        cuda_queue_push(&cuda->kernels, &pending);
}

static void cuda_launch(struct device *device, const struct kernel *kernel, const struct kernel_args *args)
{
        struct cuda_device *cuda = cuda_of(device);
        if (device->recorder)
                run_timed(cuda, kernel, args);
        else if (cuda->graphs && cuda_graphs_open(cuda->graphs))
                check(cuda, cuda_graphs_add(cuda->graphs, kernel, args), "a group of kernels");
        else
                run_kernel(cuda, kernel, args);
}

static void cuda_begin_group(struct device *device)
{
        struct cuda_device *cuda = cuda_of(device);
        cuda->grouped = true;
        if (cuda->graphs && !device->recorder)
                cuda_graphs_begin(cuda->graphs);
}

static void cuda_end_group(struct device *device)
{
        struct cuda_device *cuda = cuda_of(device);
        cuda->grouped = false;
        cuda_gate_release(&cuda->gate);
        if (cuda->graphs && !device->recorder)
                check(cuda, cuda_graphs_end(cuda->graphs), "a group of kernels as a CUDA graph");
}

/* ---- copies and events ---- */

static void cuda_copy(struct device *device, enum device_lane lane, void *to, const void *from, int64_t bytes)
{
        struct cuda_device *cuda = cuda_of(device);
        assert(lane == DEVICE_HOST_TO_DEVICE || lane == DEVICE_DEVICE_TO_HOST);
        const bool up = lane == DEVICE_HOST_TO_DEVICE;
        check(cuda,
              cudaMemcpyAsync(to, from, (size_t)bytes, up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                              cuda->lanes[lane].stream),
              up ? "a copy to the device" : "a copy to the host");
}

static void cuda_record(struct device *device, enum device_lane lane, int token)
{
        struct cuda_device *cuda = cuda_of(device);
        struct cuda_pending pending = {.token = token};
        assert(token >= 0);
        assert(!cuda->graphs || !cuda_graphs_open(cuda->graphs));
        check(cuda, cuda_events_take(&cuda->events, &pending.event), "a new event");
        check(cuda, cudaEventRecord(pending.event, cuda->lanes[lane].stream), "an event");
        cuda_queue_push(&cuda->lanes[lane].tokens, &pending);
}

/* The oldest of a queue if it was reached, else NULL. */
static const struct cuda_pending *reached(struct cuda_device *cuda, const struct cuda_queue *queue)
{
        const struct cuda_pending *oldest = cuda_queue_oldest(queue);
        if (!oldest)
                return NULL;
        const cudaError_t status = cudaEventQuery(oldest->event);
        if (status == cudaErrorNotReady) {
                (void)cudaGetLastError(); /* else the next launch would be told */
                return NULL;
        }
        check(cuda, status, "a kernel or a copy");
        return oldest;
}

static float milliseconds_between(struct cuda_device *cuda, cudaEvent_t start, cudaEvent_t end)
{
        float milliseconds = 0;
        check(cuda, cudaEventElapsedTime(&milliseconds, start, end), "timing a kernel");
        return milliseconds;
}

/* Times are then of launches too, or of what held the host up. */
static void check_gate(struct cuda_device *cuda)
{
        char sentence[512];
        if (!cuda_gate_gave_up(&cuda->gate))
                return;
        snprintf(
                sentence, sizeof sentence,
                "%s: kernels that are timed waited seconds for the host to launch %d more: the host must not "
                "wait for the device between them, and is not to be stopped (by a debugger, say)",
                cuda->name, CUDA_GATE_KERNELS);
        fail(cuda, sentence);
}

/* Tells the recorder of the kernels that are through. */
static void deliver(struct cuda_device *cuda)
{
        check_gate(cuda);
        for (const struct cuda_pending *oldest; (oldest = reached(cuda, &cuda->kernels));) {
                const struct cuda_pending kernel = *oldest;
                const double seconds = 1e-3 * (double)milliseconds_between(cuda, kernel.start, kernel.event);
                const double end = cuda->reference_seconds +
                                   1e-3 * (double)milliseconds_between(cuda, cuda->reference, kernel.event);
                cuda_queue_pop(&cuda->kernels);
                cuda_events_give(&cuda->timed, kernel.start);
                cuda_events_give(&cuda->timed, kernel.event);
                if (cuda->base.recorder)
                        cuda->base.recorder(cuda->base.recorder_context, &kernel.kernel, seconds, end);
        }
}

/* Kernels that are timed come before a token that was recorded after them. */
static int cuda_poll(struct device *device)
{
        struct cuda_device *cuda = cuda_of(device);
        for (int lane = 0; lane < DEVICE_LANES; lane++) {
                struct cuda_queue *tokens = &cuda->lanes[lane].tokens;
                const struct cuda_pending *oldest = reached(cuda, tokens);
                if (lane == DEVICE_COMPUTE)
                        deliver(cuda);
                if (oldest) {
                        const int token = oldest->token;
                        cuda_events_give(&cuda->events, oldest->event);
                        cuda_queue_pop(tokens);
                        return token;
                }
        }
        return -1;
}

static void cuda_synchronize(struct device *device)
{
        struct cuda_device *cuda = cuda_of(device);
        for (int lane = 0; lane < DEVICE_LANES; lane++)
                check(cuda, cudaStreamSynchronize(cuda->lanes[lane].stream), "a kernel or a copy");
        deliver(cuda);
        cuda_matmul_count(cuda->matmul, &device->description);
        if (cuda->attention)
                cuda_attention_count(cuda->attention, &device->description);
}

static char *cuda_timed_products(struct device *device)
{
        return cuda_matmul_products(cuda_of(device)->matmul);
}

/* ---- memory ---- */

static int cuda_reserve(struct device *device, const int64_t bytes[MEMORY_SPACES], struct rv_error_info *err)
{
        struct cuda_device *cuda = cuda_of(device);
        const cudaError_t status =
                cuda_arena_reserve(&cuda->arena, bytes, cuda->lanes[DEVICE_COMPUTE].stream);
        if (status == cudaSuccess)
                return RV_OK;
        return rv_fail(err, RV_ESYSTEM,
                       "%s: no %.2f GiB of device memory in one piece with %.2f GiB of pinned host memory "
                       "beside it: %s",
                       cuda->name, (double)bytes[MEMORY_DEVICE] / 0x1p30, (double)bytes[MEMORY_HOST] / 0x1p30,
                       cudaGetErrorString(status));
}

static void *cuda_alloc(struct device *device, enum memory_space space, enum memory_category category,
                        int64_t bytes)
{
        struct cuda_device *cuda = cuda_of(device);
        if (bytes > INT64_MAX - MEMORY_ALIGNMENT)
                return NULL;
        const int64_t rounded = memory_aligned(bytes > 0 ? bytes : 1);
        if (rounded > device->limit_bytes[space] - memory_total(&device->bytes, space))
                return NULL;
        void *memory;
        if (cuda_arena_alloc(&cuda->arena, space, rounded, cuda->lanes[DEVICE_COMPUTE].stream, &memory))
                return NULL;
        device->bytes.in[space][category] += memory_aligned(bytes);
        return memory;
}

static void cuda_memory(struct device *device, int64_t *free_bytes, int64_t *total_bytes)
{
        struct cuda_device *cuda = cuda_of(device);
        size_t free_now = 0, total = 0;
        check(cuda, cudaMemGetInfo(&free_now, &total), "asking for the free memory");
        *free_bytes = (int64_t)free_now;
        *total_bytes = (int64_t)total;
}

/* Not to be pinned is no failure: copies then block, and are slower. */
static void cuda_pin(struct device *device, void *memory, int64_t bytes)
{
        (void)device;
        if (cudaHostRegister(memory, (size_t)bytes, cudaHostRegisterPortable) != cudaSuccess)
                (void)cudaGetLastError();
}

static void cuda_unpin(struct device *device, void *memory)
{
        (void)device;
        if (cudaHostUnregister(memory) != cudaSuccess)
                (void)cudaGetLastError();
}

/* ---- opening and closing ---- */

static void lane_close(struct cuda_device *cuda, struct cuda_lane *lane)
{
        for (const struct cuda_pending *oldest; (oldest = cuda_queue_oldest(&lane->tokens));) {
                cuda_events_give(&cuda->events, oldest->event);
                cuda_queue_pop(&lane->tokens);
        }
        cuda_queue_free(&lane->tokens);
        if (lane->stream)
                cudaStreamDestroy(lane->stream);
}

static void kernels_close(struct cuda_device *cuda)
{
        for (const struct cuda_pending *oldest; (oldest = cuda_queue_oldest(&cuda->kernels));) {
                cuda_events_give(&cuda->timed, oldest->start);
                cuda_events_give(&cuda->timed, oldest->event);
                cuda_queue_pop(&cuda->kernels);
        }
        cuda_queue_free(&cuda->kernels);
}

/* Also after a failure, so nothing is checked. */
static void cuda_close(struct device *device)
{
        struct cuda_device *cuda = cuda_of(device);
        cuda_gate_release(&cuda->gate);
        for (int lane = 0; lane < DEVICE_LANES; lane++)
                if (cuda->lanes[lane].stream)
                        (void)cudaStreamSynchronize(cuda->lanes[lane].stream);
        cuda_graphs_delete(cuda->graphs);
        cuda_matmul_delete(cuda->matmul);
        cuda_attention_delete(cuda->attention);
        for (int lane = 0; lane < DEVICE_LANES; lane++)
                lane_close(cuda, &cuda->lanes[lane]);
        kernels_close(cuda);
        cuda_events_free(&cuda->events);
        cuda_events_free(&cuda->timed);
        cuda_gate_free(&cuda->gate);
        if (cuda->reference)
                cudaEventDestroy(cuda->reference);
        cuda_arena_free(&cuda->arena);
        if (cuda->own)
                cudaFree(cuda->own);
        free(cuda);
}

/* Whether there is a GPU that this build and the driver can use: how many. */
static int count_gpus(int *gpus, struct rv_error_info *err)
{
        int driver = 0, runtime = 0;
        (void)cudaDriverGetVersion(&driver);
        (void)cudaRuntimeGetVersion(&runtime);
        if (driver == 0)
                return rv_fail(
                        err, RV_ENOTBUILT,
                        "--device cuda: this machine has no NVIDIA driver (libcuda.so.1); --device cpu "
                        "needs none");
        const cudaError_t status = cudaGetDeviceCount(gpus);
        if (status == cudaErrorInsufficientDriver)
                return rv_fail(err, RV_ENOTBUILT,
                               "--device cuda: the NVIDIA driver is made for CUDA %d.%d, device_cuda.so was "
                               "built with %d.%d: a newer driver or an older toolkit would do",
                               driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
        if (status == cudaErrorNoDevice || (status == cudaSuccess && *gpus == 0))
                return rv_fail(err, RV_ENOTBUILT,
                               "--device cuda: this machine has no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides "
                               "it; --device cpu needs none");
        if (status != cudaSuccess)
                return rv_fail(err, RV_ENOTBUILT, "--device cuda: CUDA does not start: %s",
                               cudaGetErrorString(status));
        return RV_OK;
}

/* The first status that is not a success. */
static void keep(cudaError_t *first, cudaError_t status)
{
        if (*first == cudaSuccess)
                *first = status;
}

/* The kernel module's version, "580.159.03"; empty where the driver does not show it. */
static void driver_version(char *version, size_t bytes)
{
        char line[256] = "";
        FILE *file = fopen("/proc/driver/nvidia/version", "r");
        version[0] = '\0';
        if (!file)
                return;
        if (!fgets(line, sizeof line, file))
                line[0] = '\0';
        fclose(file);
        char *rest;
        for (char *word = strtok_r(line, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest)) {
                if (strspn(word, "0123456789.") == strlen(word) && strchr(word, '.')) {
                        snprintf(version, bytes, "%s", word);
                        return;
                }
        }
}

static cudaError_t describe(struct cuda_device *cuda)
{
        struct device_description *d = &cuda->base.description;
        struct cudaDeviceProp properties;
        int major = 0, minor = 0, kilohertz = 0, memory_kilohertz = 0, driver = 0;
        char version[32];
        cudaError_t first = cudaGetDeviceProperties(&properties, cuda->gpu);
        if (first != cudaSuccess)
                return first;
        keep(&first, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->gpu));
        keep(&first, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda->gpu));
        keep(&first, cudaDeviceGetAttribute(&d->processors, cudaDevAttrMultiProcessorCount, cuda->gpu));
        /* What only reports show may be refused, as virtual GPUs do: then it is 0. */
        if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, cuda->gpu) != cudaSuccess ||
            cudaDeviceGetAttribute(&memory_kilohertz, cudaDevAttrMemoryClockRate, cuda->gpu) != cudaSuccess ||
            cudaDriverGetVersion(&driver) != cudaSuccess)
                (void)cudaGetLastError();
        driver_version(version, sizeof version);
        snprintf(d->name, sizeof d->name, "%.*s", (int)sizeof d->name - 1, properties.name);
        snprintf(d->driver, sizeof d->driver, version[0] ? "%s (CUDA %d.%d)" : "%sCUDA %d.%d", version,
                 driver / 1000, driver % 1000 / 10);
        d->clock_hertz = 1e3 * kilohertz;
        d->memory_clock_hertz = 1e3 * memory_kilohertz;
        snprintf(cuda->name, sizeof cuda->name, "cuda device %d (%s)", cuda->gpu, d->name);
        cuda->work.processors = d->processors;
        cuda->work.capability = 10 * major + minor;
        return first;
}

static int open_attention(struct cuda_device *cuda, enum attention_source source, struct rv_error_info *err)
{
        struct rv_error_info why = {0};
        if (source == ATTENTION_OURS)
                return RV_OK;
        cuda->attention = cuda_attention_new(source, &why);
        if (why.code != RV_OK)
                return rv_fail(err, why.code, "%s", why.sentence);
        if (cuda->attention)
                cuda_attention_count(cuda->attention, &cuda->base.description);
        return RV_OK;
}

/* Streams, events, and the memory that products and kernels work in. */
static cudaError_t make_own(struct cuda_device *cuda)
{
        const size_t bytes = (size_t)CUDA_MATMUL_WORKSPACE_BYTES + CUDA_SCRATCH_BYTES +
                             (cuda->attention ? ATTENTION_WORKSPACE_BYTES : 0);
        cudaError_t first = cudaSuccess;
        for (int lane = 0; lane < DEVICE_LANES; lane++)
                keep(&first, cudaStreamCreateWithFlags(&cuda->lanes[lane].stream, cudaStreamNonBlocking));
        if (first == cudaSuccess)
                first = cuda_events_grow(&cuda->events, EVENTS);
        if (first == cudaSuccess)
                first = cuda_events_grow(&cuda->timed, EVENTS);
        if (first == cudaSuccess)
                first = cudaEventCreateWithFlags(&cuda->reference, cudaEventDefault);
        if (first == cudaSuccess)
                first = cudaMalloc(&cuda->own, bytes);
        if (first == cudaSuccess)
                cuda->work.scratch = (char *)cuda->own + CUDA_MATMUL_WORKSPACE_BYTES;
        if (first == cudaSuccess && cuda->attention)
                cuda_attention_work_in(cuda->attention, (char *)cuda->work.scratch + CUDA_SCRATCH_BYTES);
        return first;
}

/* What is free now is for the ranks that share the GPU. Who opens the device on all of them can ask again
 * (ops->memory) when all have taken what they need for themselves. */
static cudaError_t set_limits(struct cuda_device *cuda)
{
        struct device *device = &cuda->base;
        size_t free_now = 0, total = 0;
        const cudaError_t status = cudaMemGetInfo(&free_now, &total);
        const int64_t share = (int64_t)free_now / device->sharing - LATER_BYTES;
        device->later_bytes = LATER_BYTES;
        device->limit_bytes[MEMORY_DEVICE] = share > 0 ? share : 0;
        device->limit_bytes[MEMORY_HOST] = device_cpu_memory_bytes();
        device->overhead_bytes = (int64_t)(total - free_now) / device->sharing + LATER_BYTES;
        return status;
}

static int open_gpu(struct cuda_device *cuda, const struct device_request *request, struct rv_error_info *err)
{
        int gpus = 0;
        const int rc = count_gpus(&gpus, err);
        if (rc)
                return rc;
        cuda->gpu = cuda->base.gpu = request->local_rank % gpus;
        snprintf(cuda->name, sizeof cuda->name, "cuda device %d", cuda->gpu);
        for (int rank = cuda->gpu; rank == cuda->gpu || rank < request->local_ranks; rank += gpus)
                cuda->base.sharing++;
        cudaError_t status = describe(cuda);
        if (status == cudaSuccess && cuda->work.capability < CUDA_MIN_CAPABILITY)
                return rv_fail(err, RV_ENOTBUILT,
                               "--device cuda: %s has compute capability %d.%d, device_cuda.so was built for "
                               "%d.%d and newer%s",
                               cuda->name, cuda->work.capability / 10, cuda->work.capability % 10,
                               CUDA_MIN_CAPABILITY / 10, CUDA_MIN_CAPABILITY % 10,
                               cuda->work.capability >= 70
                                       ? "; 'make CUDA_ARCHS=...' builds it for older ones, with a toolkit "
                                         "that knows them (7.0: CUDA 12 or older)"
                                       : "");
        if (status == cudaSuccess)
                status = cudaSetDevice(cuda->gpu);
        if (status == cudaSuccess && open_attention(cuda, request->attention, err))
                return (int)err->code;
        if (status == cudaSuccess)
                status = make_own(cuda);
        if (status != cudaSuccess)
                return rv_fail(err, RV_ESYSTEM, "%s cannot be opened: %s", cuda->name,
                               cudaGetErrorString(status));
        const struct cuda_products products = {cuda->base.description.name, request->products,
                                               request->time_products};
        cuda->matmul = cuda_matmul_new(&cuda->work, cuda->own, &products, err);
        if (!cuda->matmul)
                return (int)err->code;
        if (!request->no_graphs)
                cuda->graphs =
                        cuda_graphs_new(cuda->lanes[DEVICE_COMPUTE].stream, CUDA_GRAPHS, run_kernel, cuda);
        if (!request->no_graphs && !cuda->graphs)
                return rv_fail(err, RV_ESYSTEM, "%s: no host memory for its graphs", cuda->name);
        status = set_limits(cuda);
        if (status != cudaSuccess)
                return rv_fail(err, RV_ESYSTEM, "%s does not say how much memory it has: %s", cuda->name,
                               cudaGetErrorString(status));
        return RV_OK;
}

struct device *device_cuda_open(const struct device_request *request, struct rv_error_info *err)
{
        static const struct device_ops ops = {
                .name = "cuda",
                .reserve = cuda_reserve,
                .alloc = cuda_alloc,
                .launch = cuda_launch,
                .begin_group = cuda_begin_group,
                .end_group = cuda_end_group,
                .copy = cuda_copy,
                .record = cuda_record,
                .pin = cuda_pin,
                .unpin = cuda_unpin,
                .poll = cuda_poll,
                .synchronize = cuda_synchronize,
                .memory = cuda_memory,
                .products = cuda_timed_products,
                .close = cuda_close,
        };
        struct cuda_device *cuda = calloc(1, sizeof *cuda);
        if (!cuda) {
                rv_fail(err, RV_ESYSTEM, "the cuda device: no host memory for its queues");
                return NULL;
        }
        cuda->base.ops = &ops;
        cuda->base.widest_head = CUDA_WIDEST_HEAD;
        cuda->events.flags = cudaEventDisableTiming;
        cuda->timed.flags = cudaEventDefault;
        if (open_gpu(cuda, request, err) == RV_OK)
                return &cuda->base;
        cuda_close(&cuda->base);
        return NULL;
}
