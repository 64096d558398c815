/* The kernels of a mixture of experts, run in turn with kernels that they should be as fast as: what moves
 * memory against SwiGLU and the residual in bytes a second, the products of experts against one product of
 * all their rows in floating-point operations a second. Prints medians and, in brackets, the tenth and
 * ninetieth percentile. An argument names the variant of the kernels. */
#include "tests/unit/launches.h"

#include <stdio.h>
#include <stdlib.h>

enum { PAIRS = 21, N = 1024, K = 2, ROWS = N * K, C = 1024, F = 2816, E = 8, FLAT = E * F * C };

/* A device whose kernels are timed on their lane, and its operands. */
struct side {
        struct device *device;
        double seconds, bytes, flops; /* of the kernel that ran last */
        void *x[4];
        real *weights, *dweights;
        int32_t *place, *source, *ends;
};

typedef void work_fn(struct side *);

static void note(void *context, const struct kernel *kernel, double seconds, double end)
{
        struct side *side = context;
        (void)end;
        side->seconds = seconds;
        side->bytes = kernel_bytes(kernel);
        side->flops = kernel_flops(kernel);
}

static void residual(struct side *s)
{
        kernels_residual(s->device, s->x[0], s->x[1], ROWS, C);
}

static void permute(struct side *s)
{
        kernels_permute(s->device, s->x[0], s->x[1], s->source, N, K, C);
}

static void unpermute(struct side *s)
{
        kernels_unpermute(s->device, s->x[0], s->x[1], s->place, N, K, C, false);
}

static void swiglu(struct side *s)
{
        kernels_swiglu(s->device, s->x[0], s->x[1], ROWS, F);
}

static void weighted_swiglu(struct side *s)
{
        kernels_weighted_swiglu(s->device, s->x[0], s->x[1], s->weights, ROWS, F);
}

static void swiglu_backward(struct side *s)
{
        kernels_swiglu_backward(s->device, s->x[0], s->x[1], s->x[2], ROWS, F);
}

static void weighted_swiglu_backward(struct side *s)
{
        kernels_weighted_swiglu_backward(s->device, s->x[0], s->dweights, s->x[1], s->x[2], s->weights, ROWS,
                                         F);
}

static const struct routing routing = {.N = N, .E = E, .K = K, .normalised = true, .factor = 1};

static void route(struct side *s)
{
        kernels_route(s->device, &routing, s->weights, s->place, s->source, s->ends, s->x[3], NULL);
}

static void route_backward(struct side *s)
{
        kernels_route_backward(s->device, &routing, s->x[0], s->dweights, s->weights, s->place, s->ends,
                               s->x[3]);
}

static void product(struct side *s)
{
        kernels_matmul(s->device, &(struct matmul){.m = ROWS, .n = F, .k = C, .transpose_b = true}, s->x[1],
                       s->x[2], s->x[0]);
}

static void grouped(struct side *s)
{
        kernels_grouped_matmul(s->device,
                               &(struct grouped){.m = ROWS,
                                                 .n = F,
                                                 .k = C,
                                                 .lda = C,
                                                 .ldb = C,
                                                 .ldc = F,
                                                 .each = F * C,
                                                 .experts = E,
                                                 .transpose_b = true},
                               s->x[1], s->x[2], s->x[0], s->ends);
}

static void product_backward(struct side *s)
{
        kernels_matmul(s->device,
                       &(struct matmul){.m = F, .n = C, .k = ROWS, .transpose_a = true, .accumulate = true},
                       s->x[1], s->x[2], s->x[0]);
}

static void grouped_backward(struct side *s)
{
        kernels_grouped_matmul_backward(
                s->device,
                &(struct grouped){
                        .m = F, .n = C, .k = ROWS, .lda = F, .ldb = C, .ldc = C, .each = F * C, .experts = E},
                s->x[1], s->x[2], s->x[0], s->ends);
}

static void run(struct side *side, work_fn *work)
{
        work(side);
        side->device->ops->synchronize(side->device);
}

static double bytes_a_second(const struct side *side)
{
        return side->bytes / side->seconds;
}

static double flops_a_second(const struct side *side)
{
        return side->flops / side->seconds;
}

static int ascending(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

/* The rate of one kernel over that of another, pair by pair. */
static void compare(struct side *side, const char *what, work_fn *work, work_fn *than,
                    double rate(const struct side *))
{
        static const char *const formats[] = {"fp32", "fp16", "bf16"};
        double ratios[PAIRS], rates[PAIRS];
        run(side, work); /* warms up */
        run(side, than);
        for (int i = 0; i < PAIRS; i++) {
                run(side, work);
                rates[i] = rate(side);
                run(side, than);
                ratios[i] = rates[i] / rate(side);
        }
        qsort(ratios, PAIRS, sizeof *ratios, ascending);
        qsort(rates, PAIRS, sizeof *rates, ascending);
        printf("%s %-45s %6.2f (%.2f .. %.2f), %.1f G/s\n", formats[side->device->dtype], what,
               ratios[PAIRS / 2], ratios[PAIRS / 10], ratios[PAIRS - 1 - PAIRS / 10],
               1e-9 * rates[PAIRS / 2]);
}

static void *allocate(struct device *device, int64_t bytes)
{
        void *memory = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WORKSPACE, bytes);
        if (!memory) {
                fprintf(stderr, "experts: no memory for %lld bytes\n", (long long)bytes);
                exit(1);
        }
        return memory;
}

static void fill(const struct side *side)
{
        const int min = side->device->dtype == DTYPE_BF16 ? 0x3e00 : 0x3000; /* 0.125, up to 0.5 */
        const int range = side->device->dtype == DTYPE_BF16 ? 0x100 : 0x800;
        for (int j = 0; j < 4; j++)
                for (unsigned i = 0, bits = 1; i < FLAT; i++) {
                        bits = bits * 1664525 + 1013904223;
                        const int random = (int)(bits >> 16);
                        if (side->device->dtype != DTYPE_FP32)
                                ((uint16_t *)side->x[j])[i] = (uint16_t)(min + random % range);
                        else
                                ((real *)side->x[j])[i] = (real)(128 + random % 384) / 1024;
                }
}

static void open_side(struct side *side, const char *variant, enum dtype dtype)
{
        struct rv_error_info err = {0};
        side->device = device_cpu_open_with(1, variant, &err);
        if (!side->device) {
                fprintf(stderr, "experts: %s\n", err.sentence);
                exit(1);
        }
        side->device->dtype = dtype;
        for (int i = 0; i < 4; i++)
                side->x[i] = allocate(side->device, FLAT * (dtype != DTYPE_FP32 ? 2 : (int64_t)sizeof(real)));
        side->weights = allocate(side->device, ROWS * (int64_t)sizeof(real));
        side->dweights = allocate(side->device, ROWS * (int64_t)sizeof(real));
        side->place = allocate(side->device, ROWS * (int64_t)sizeof(int32_t));
        side->source = allocate(side->device, ROWS * (int64_t)sizeof(int32_t));
        side->ends = allocate(side->device, E * (int64_t)sizeof(int32_t));
        side->device->recorder = note;
        side->device->recorder_context = side;
        fill(side);
}

int main(int argc, char **argv)
{
        for (int dtype = DTYPE_FP32; dtype <= DTYPE_BF16; dtype++) {
                struct side side = {0};
                open_side(&side, argc > 1 ? argv[1] : NULL, (enum dtype)dtype);
                compare(&side, "route over residual, bytes", route, residual, bytes_a_second);
                compare(&side, "route_backward over residual, bytes", route_backward, residual,
                        bytes_a_second);
                compare(&side, "permute over residual, bytes", permute, residual, bytes_a_second);
                compare(&side, "unpermute over residual, bytes", unpermute, residual, bytes_a_second);
                compare(&side, "weighted_swiglu over swiglu, bytes", weighted_swiglu, swiglu, bytes_a_second);
                compare(&side, "weighted_swiglu_backward over swiglu's, bytes", weighted_swiglu_backward,
                        swiglu_backward, bytes_a_second);
                compare(&side, "grouped_matmul over matmul, flops", grouped, product, flops_a_second);
                compare(&side, "grouped_matmul_backward over matmul, flops", grouped_backward,
                        product_backward, flops_a_second);
                side.device->ops->close(side.device);
        }
        return 0;
}
