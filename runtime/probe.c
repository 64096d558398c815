#include "runtime/probe.h"

#include "runtime/device/kernels.h"

#include <math.h>

enum { SIZE = 512, ROWS = 1024, WIDTH = 1024, REPEATS = 3 };

const char probe_basis[] = "rough, from a short probe of this machine";

/* Device memory for either kernel: three matrices of SIZE x SIZE, or ROWS x WIDTH and a row. */
struct work_space {
        struct device *device;
        void *a, *b, *c;
        void *host;
};

static void multiply(const struct work_space *w)
{
        kernels_matmul(w->device, &(struct matmul){.m = SIZE, .n = SIZE, .k = SIZE, .transpose_b = true},
                       w->a, w->b, w->c);
}

static void add_bias(const struct work_space *w)
{
        kernels_bias(w->device, w->a, w->b, ROWS, WIDTH);
}

static void copy(const struct work_space *w)
{
        w->device->ops->copy(w->device, DEVICE_HOST_TO_DEVICE, w->a, w->host, ROWS * WIDTH * 4);
}

/* The least seconds of a few, after one that is not counted. */
static double seconds_of(const struct work_space *w, void (*enqueue)(const struct work_space *))
{
        double least = INFINITY;
        for (int i = 0; i <= REPEATS; i++) {
                const double start = device_seconds();
                enqueue(w);
                w->device->ops->synchronize(w->device);
                if (i > 0)
                        least = fmin(least, device_seconds() - start);
        }
        return least;
}

static void measure(struct probe *probe, struct work_space *w)
{
        for (enum half half = HALF_NONE; half < HALF_FORMATS; half++) {
                const struct kernel product = {.kind = KERNEL_MATMUL,
                                               .half = (unsigned char)half,
                                               .batch = 1,
                                               .m = SIZE,
                                               .n = SIZE,
                                               .k = SIZE};
                const struct kernel bias = {
                        .kind = KERNEL_BIAS, .half = (unsigned char)half, .batch = 1, .m = ROWS, .n = WIDTH};
                w->device->half = half;
                probe->flops_per_second[half] = kernel_flops(&product) / seconds_of(w, multiply);
                probe->bytes_per_second[half] = kernel_bytes(&bias) / seconds_of(w, add_bias);
        }
        probe->copied_per_second = ROWS * WIDTH * 4 / seconds_of(w, copy);
}

void probe_run(struct probe *probe, double host_link_bytes_per_second)
{
        struct rv_error_info ignored;
        struct work_space w = {.device = device_cpu_open(1, &ignored)};
        *probe = (struct probe){{NAN, NAN, NAN}, {NAN, NAN, NAN}, NAN};
        if (!w.device)
                return;
        const struct device_ops *ops = w.device->ops;
        w.device->host_link_bytes_per_second = host_link_bytes_per_second;
        w.a = ops->alloc(w.device, MEMORY_DEVICE, MEMORY_WORKSPACE, ROWS * WIDTH * 4);
        w.b = ops->alloc(w.device, MEMORY_DEVICE, MEMORY_WORKSPACE, SIZE * SIZE * 4);
        w.c = ops->alloc(w.device, MEMORY_DEVICE, MEMORY_WORKSPACE, SIZE * SIZE * 4);
        w.host = ops->alloc(w.device, MEMORY_HOST, MEMORY_WORKSPACE, ROWS * WIDTH * 4);
        if (w.a && w.b && w.c && w.host)
                measure(probe, &w);
        ops->close(w.device);
}

static double price_kernel(void *context, const struct kernel *kernel)
{
        const struct probe *probe = context;
        if (kernel->k > 0) /* of products, and attention is two or five of them */
                return kernel_flops(kernel) / probe->flops_per_second[kernel->half];
        return kernel_bytes(kernel) / probe->bytes_per_second[kernel->half];
}

static double price_copy(void *context, int64_t bytes)
{
        const struct probe *probe = context;
        return (double)bytes / probe->copied_per_second;
}

/* Messages between ranks of one machine pass through its memory. */
static double price_message(void *context, int64_t bytes)
{
        const struct probe *probe = context;
        return (double)bytes / probe->bytes_per_second[0];
}

static double price_allreduce(void *context, int64_t bytes, int ranks)
{
        return 2.0 * (ranks - 1) / ranks * price_message(context, bytes);
}

struct estimate_prices probe_prices(struct probe *probe)
{
        return (struct estimate_prices){.kernel = price_kernel,
                                        .message = price_message,
                                        .allreduce = price_allreduce,
                                        .copy = price_copy,
                                        .context = probe};
}
