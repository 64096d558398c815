#include "runtime/real/probe.h"

#include "runtime/device/kernels.h"
#include "runtime/engine/paper_plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Matrices of SMALL x SMALL; of LARGE x LARGE on a device that is through with a small product so soon that
 * its launch is a good part of the time. */
enum { SMALL = 512, LARGE = 4096, REPEATS = 3 };
static const double soon_seconds = 1e-3;

const char *probe_basis(const char *device, const struct device_request *request, char text[PROBE_BASIS])
{
        int length = snprintf(text, PROBE_BASIS, "rough, from a short probe of this machine: one rank alone");
        if (strcmp(device, "cpu") == 0)
                snprintf(text + length, PROBE_BASIS - (size_t)length, ", %d thread%s", request->threads,
                         rv_plural(request->threads));
        return text;
}

/* Device memory for either kernel: three matrices, or one of four times their size and a row; and as much as
 * that one on the host. */
struct work_space {
        struct device *device;
        int64_t size;
        void *a, *b, *c;
        void *host;
};

static int64_t large_bytes(const struct work_space *w)
{
        return 4 * w->size * w->size * (int64_t)sizeof(float);
}

static void multiply(const struct work_space *w)
{
        kernels_matmul(w->device,
                       &(struct matmul){.m = w->size, .n = w->size, .k = w->size, .transpose_b = true}, w->a,
                       w->b, w->c);
}

static void add_bias(const struct work_space *w)
{
        kernels_bias(w->device, w->a, w->b, 2 * w->size, 2 * w->size);
}

static void copy(const struct work_space *w)
{
        w->device->ops->copy(w->device, DEVICE_HOST_TO_DEVICE, w->a, w->host, large_bytes(w));
}

/* The least seconds of a few, after one that is not counted. */
static double seconds_of(const struct work_space *w, void (*enqueue)(const struct work_space *))
{
        double min = INFINITY;
        for (int i = 0; i <= REPEATS; i++) {
                const double start = device_seconds();
                enqueue(w);
                w->device->ops->synchronize(w->device);
                if (i > 0)
                        min = fmin(min, device_seconds() - start);
        }
        return min;
}

static void measure(struct probe *probe, struct work_space *w)
{
        for (enum dtype dtype = DTYPE_FP32; dtype < DTYPES; dtype++) {
                const struct kernel product = {.kind = KERNEL_MATMUL,
                                               .dtype = (unsigned char)dtype,
                                               .batch = 1,
                                               .m = w->size,
                                               .n = w->size,
                                               .k = w->size};
                const struct kernel bias = {.kind = KERNEL_BIAS,
                                            .dtype = (unsigned char)dtype,
                                            .batch = 1,
                                            .m = 2 * w->size,
                                            .n = 2 * w->size};
                w->device->dtype = dtype;
                probe->flops_per_second[dtype] = kernel_flops(&product) / seconds_of(w, multiply);
                probe->bytes_per_second[dtype] = kernel_bytes(&bias) / seconds_of(w, add_bias);
        }
        probe->copied_per_second = (double)large_bytes(w) / seconds_of(w, copy);
}

static bool allocate(struct work_space *w, int64_t size)
{
        const struct device_ops *ops = w->device->ops;
        w->size = size;
        w->a = ops->alloc(w->device, MEMORY_DEVICE, MEMORY_WORKSPACE, large_bytes(w));
        w->b = ops->alloc(w->device, MEMORY_DEVICE, MEMORY_WORKSPACE, large_bytes(w) / 4);
        w->c = ops->alloc(w->device, MEMORY_DEVICE, MEMORY_WORKSPACE, large_bytes(w) / 4);
        w->host = ops->alloc(w->device, MEMORY_HOST, MEMORY_WORKSPACE, large_bytes(w));
        return w->a && w->b && w->c && w->host;
}

void probe_run(struct probe *probe, const char *device, const struct device_request *request)
{
        struct rv_error_info ignored;
        struct device_request plain = *request; /* attention is not probed */
        plain.attention = ATTENTION_OURS;
        struct work_space w = {.device = device_open(device, &plain, &ignored)};
        *probe = (struct probe){{NAN, NAN, NAN}, {NAN, NAN, NAN}, NAN};
        if (!w.device)
                return;
        if (allocate(&w, SMALL) && (seconds_of(&w, multiply) >= soon_seconds || allocate(&w, LARGE)))
                measure(probe, &w);
        w.device->ops->close(w.device);
}

/* ---- a batch of it ---- */

/* A probe, and the plan whose batch it prices. */
struct probed {
        const struct probe *probe;
        struct plan plan;
        struct price_list prices;
};

static int price_kernel(void *context, struct price *price, struct rv_error_info *err)
{
        const struct probe *probe = ((const struct probed *)context)->probe;
        const struct kernel *kernel = &price->kernel;
        (void)err;
        if (kernel_descriptor(kernel->kind)->products > 0) /* attention is two or five of them */
                price->seconds = kernel_flops(kernel) / probe->flops_per_second[kernel->dtype];
        else
                price->seconds = kernel_bytes(kernel) / probe->bytes_per_second[kernel->dtype];
        return 0;
}

static double price_copy(void *context, const struct op *op, bool both)
{
        (void)both;
        return (double)op->bytes / ((const struct probed *)context)->probe->copied_per_second;
}

/* Messages between ranks of one machine pass through its memory. */
static double price_bytes(const struct probed *probed, double bytes)
{
        return bytes / probed->probe->bytes_per_second[0];
}

static double price_message(void *context, int from, int to)
{
        const struct probed *probed = context;
        (void)from, (void)to;
        return price_bytes(probed, (double)probed->plan.message_bytes);
}

/* `rounds`: 2 of an all-reduce, 1 of half of one. */
static double price_ring(const struct probed *probed, int ranks, double rounds, int64_t bytes)
{
        return price_bytes(probed, rounds * (ranks - 1) / ranks * (double)bytes);
}

static double price_collective(void *context, int rank, const struct op *op)
{
        const struct probed *probed = context;
        const int ranks = plan_group(&probed->plan, rank, op->group).size;
        const bool one_way = op->kind == OP_REDUCE_SCATTER || op->kind == OP_ALL_GATHER;
        return price_ring(probed, ranks, one_way ? 1 : 2, op->bytes);
}

/* A shift is one step of a ring. */
static double collective_seconds(const struct probed *probed, const struct kernel *k)
{
        const int64_t bytes = kernel_collective_bytes(k, sizeof(float));
        const int cp = plan_context_ranks(&probed->plan);
        if (kernel_joins(k->kind))
                return 0;
        if (k->kind == KERNEL_CONTEXT_SHIFT)
                return price_bytes(probed, (double)bytes);
        if (kernel_of_context(k->kind))
                return price_ring(probed, cp, 1, bytes);
        if (kernel_of_experts(k->kind))
                return price_ring(probed, probed->plan.ep, 1, bytes);
        return price_ring(probed, probed->plan.tp, k->kind == KERNEL_TENSOR_ALLREDUCE ? 2 : 1, bytes);
}

static double price_tensor(void *context, int rank, const struct price_pass *pass)
{
        const struct probed *probed = context;
        struct price_progress progress = {0};
        (void)rank;
        for (int i = 0; i + 1 < pass->parts; i++)
                price_go_on(&progress, pass, i, collective_seconds(probed, &pass->collectives[i]), false);
        return progress.waited;
}

static const struct price_list *prices_of(void *context, int rank)
{
        (void)rank;
        return &((const struct probed *)context)->prices;
}

double probe_batch_seconds(void *probe, const struct options *options)
{
        struct probed probed = {.probe = probe, .plan = options_plan(options, false)};
        struct rv_error_info ignored;
        const struct price_basis basis = {.kernel = price_kernel, .context = &probed};
        const struct paper_links links = {.message = price_message,
                                          .collective = price_collective,
                                          .tensor = price_tensor,
                                          .copy = price_copy,
                                          .prices = prices_of,
                                          .context = &probed,
                                          .folded = true,
                                          .places = 1};
        double found = NAN;
        if (!isnan(probed.probe->copied_per_second) &&
            price_stages(&probed.prices, options, &basis, &ignored) == 0)
                found = paper_plan_seconds(options, &links, false, NULL, NULL);
        price_free(&probed.prices);
        return found;
}
