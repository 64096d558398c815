/* What a machine can do, by kernels of the device itself: a product, and two passes over memory, of which the
 * faster counts. */
#include "runtime/base/fp16.h"
#include "runtime/device/kernels.h"
#include "runtime/base/number.h"
#include "runtime/real/kernel_times.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
        REPEATS = 7,
        CPU_SIDE = 1024, /* of the product of (side, k) with (n, k): 0.1 s of one core */
        GPU_SIDE = 8192,
        COLUMNS = 4096,      /* its n */
        ELEMENTS = 32 << 20, /* of an array that no processor's cache holds */
        GPU_TIMES = 8        /* so many times as long on a GPU, whose cache may hold 60 MB or more of them */
};

/* Seconds of the kernels that ran, as the device times them. */
struct probe {
        struct device *device;
        double seconds[REPEATS];
        int count;
};

static void note(void *context, const struct kernel *kernel, double seconds, double end)
{
        (void)kernel;
        (void)end;
        struct probe *probe = context;
        probe->seconds[probe->count++] = seconds;
}

static void begin(struct probe *probe)
{
        probe->count = 0;
        probe->device->recorder_context = probe;
        probe->device->recorder = note;
}

/* The least: what is looked for is a limit. */
static double end(struct probe *probe)
{
        probe->device->ops->synchronize(probe->device);
        probe->device->recorder = NULL;
        return quantile(probe->seconds, probe->count, 0);
}

/* `count` numbers from 0.5 to 1, as the device stores them: a product of zeros is a faster one on some
 * devices. */
static int fill(struct device *device, void *to, int64_t count, struct rv_error_info *err)
{
        const size_t size = device->dtype ? sizeof(uint16_t) : sizeof(real);
        void *from = malloc((size_t)count * size);
        if (!from)
                return rv_fail(err, RV_ESYSTEM,
                               "--kernels: no host memory to measure the machine's rates with");
        uint32_t state = 1;
        for (int64_t i = 0; i < count; i++) {
                state = state * 1664525U + 1013904223U;
                const float value = 0.5F + 0.5F * (float)(state >> 8) / (float)(1 << 24);
                if (device->dtype != DTYPE_FP32)
                        ((uint16_t *)from)[i] =
                                device->dtype == DTYPE_BF16 ? bf16_from_float(value) : fp16_from_float(value);
                else
                        ((real *)from)[i] = (real)value;
        }
        device->ops->copy(device, DEVICE_HOST_TO_DEVICE, to, from, count * (int64_t)size);
        device->ops->synchronize(device);
        free(from);
        return RV_OK;
}

static void *array(struct device *device, int64_t elements, struct rv_error_info *err)
{
        const int64_t size = device->dtype ? sizeof(uint16_t) : sizeof(real);
        void *memory = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WORKSPACE, elements * size);
        if (!memory || fill(device, memory, elements, err)) {
                rv_fail(err, RV_ESYSTEM, "--kernels: no memory to measure the machine's rates with");
                return NULL;
        }
        return memory;
}

static bool is_cpu(const struct device *device)
{
        return strcmp(device->ops->name, "cpu") == 0;
}

/* How long arrays are: on a GPU as far as all of them take an eighth of its memory at most. */
static int64_t array_elements(const struct device *device)
{
        const int64_t all = (int64_t)ELEMENTS * 2 * (int64_t)sizeof(real),
                      room = device->limit_bytes[MEMORY_DEVICE] / 8;
        const int64_t times = is_cpu(device) ? 1 : room / all;
        return ELEMENTS * (times < 1 ? 1 : times > GPU_TIMES ? GPU_TIMES : times);
}

static int measure_product(struct probe *probe, struct machine_rates *rates, struct rv_error_info *err)
{
        struct device *device = probe->device;
        const int64_t side = is_cpu(device) ? CPU_SIDE : GPU_SIDE;
        void *x = array(device, side * side, err), *w = array(device, COLUMNS * side, err);
        void *y = array(device, side * COLUMNS, err);
        if (!x || !w || !y)
                return RV_ESYSTEM;
        begin(probe);
        const struct matmul product = {.m = side, .n = COLUMNS, .k = side, .transpose_b = true};
        for (int i = 0; i < REPEATS; i++)
                kernels_matmul(device, &product, x, w, y);
        rates->flops_per_second = 2.0 * (double)side * (double)side * COLUMNS / end(probe);
        return RV_OK;
}

static int measure_memory(struct probe *probe, struct machine_rates *rates, struct rv_error_info *err)
{
        struct device *device = probe->device;
        const int64_t n = COLUMNS, m = array_elements(device) / n;
        void *y = array(device, m * n, err), *x = array(device, m * n, err), *b = array(device, n, err);
        if (!y || !x || !b)
                return RV_ESYSTEM;
        const struct kernel kernel = {.kind = KERNEL_BIAS_RESIDUAL,
                                      .dtype = (unsigned char)device->dtype,
                                      .batch = 1,
                                      .m = m,
                                      .n = n};
        begin(probe);
        for (int i = 0; i < REPEATS; i++)
                kernels_bias_residual(device, y, b, x, m, n);
        rates->bytes_per_second = kernel_bytes(&kernel) / end(probe);
        return RV_OK;
}

/* The optimizer's update, which moves four arrays at once: more of them under way may be faster than two. */
static int measure_update(struct probe *probe, struct machine_rates *rates, struct rv_error_info *err)
{
        struct device *device = probe->device;
        const int64_t n = array_elements(device) / 4;
        real *flat[4];
        for (int i = 0; i < 4; i++)
                flat[i] = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WORKSPACE,
                                             n * (int64_t)sizeof(real));
        void *weights = device->dtype ? array(device, n, err) : NULL;
        double *scale = device->ops->alloc(device, MEMORY_HOST, MEMORY_WORKSPACE, (int64_t)sizeof *scale);
        if (!flat[0] || !flat[1] || !flat[2] || !flat[3] || !scale ||
            (device->dtype != DTYPE_FP32 && !weights))
                return rv_fail(err, RV_ESYSTEM, "--kernels: no memory to measure the machine's rates with");
        const struct adamw_range all = {.end = n};
        const struct adamw update = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .step = 1};
        const struct kernel kernel = {
                .kind = KERNEL_ADAMW, .dtype = (unsigned char)device->dtype, .batch = 1, .m = n};
        *scale = 1;
        begin(probe);
        for (int i = 0; i < REPEATS; i++)
                kernels_adamw(device, flat[0], flat[1], flat[2], flat[3], weights, &all,
                              device->dtype != DTYPE_FP32 ? NULL : scale, 0, n, &update);
        rates->bytes_per_second = fmax(rates->bytes_per_second, kernel_bytes(&kernel) / end(probe));
        return RV_OK;
}

int machine_rates_measure(struct machine_rates *rates, const char *name, const struct device_request *request,
                          enum dtype dtype, struct rv_error_info *err)
{
        struct device *device = device_open(name, request, err);
        if (!device)
                return err->code;
        device->dtype = dtype;
        struct probe probe = {.device = device};
        int rc = measure_product(&probe, rates, err);
        if (rc == RV_OK)
                rc = measure_memory(&probe, rates, err);
        if (rc == RV_OK)
                rc = measure_update(&probe, rates, err);
        device->ops->close(device);
        return rc;
}
