/* Kernels over fp16 and bf16 tensors against the same kernels over fp32 ones (a product of which is one
 * cblas_sgemm), run in turn; fused attention against the kernels that it stands for; and the bytes a second
 * of those that only pass over memory, against memcpy's. Prints medians and, in brackets, the tenth and
 * ninetieth percentile. */
#include "tests/unit/launches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 21, FLAT = 16 << 20, SIDES = 3 };

/* A device whose kernels are timed on their lane, and its operands. */
struct side {
        struct device *device;
        double seconds;
        void *x[3];
        real *fp32[4];
};

typedef void work_fn(struct side *, const struct kernel *);

static void add_seconds(void *context, const struct kernel *kernel, double seconds, double end)
{
        (void)end;
        (void)kernel;
        struct side *side = context;
        side->seconds += seconds;
}

static void product(struct side *side, const struct kernel *k)
{
        const struct matmul mm = {.m = k->m,
                                  .n = k->n,
                                  .k = k->k,
                                  .transpose_a = k->transpose_a,
                                  .transpose_b = k->transpose_b,
                                  .accumulate = k->accumulate,
                                  .inner = k->batch,
                                  .stride_a = {0, k->m * k->k},
                                  .stride_b = {0, k->n * k->k},
                                  .stride_c = {0, k->m * k->n}};
        kernels_matmul(side->device, &mm, side->x[0], side->x[1], side->x[2]);
}

static void layernorm_backward(struct side *side, const struct kernel *k)
{
        kernels_layernorm_backward(side->device, side->x[0], side->x[2], side->x[2], side->x[1], side->x[1],
                                   side->fp32[0], side->x[1], 0, k->m, k->n, true);
}

static void bias_gelu(struct side *side, const struct kernel *k)
{
        kernels_bias_gelu(side->device, side->x[0], side->x[1], side->x[2], k->m, k->n);
}

static void softmax(struct side *side, const struct kernel *k)
{
        kernels_softmax(side->device, side->x[0], k->batch, k->n, 0.125);
}

static void squared_norm(struct side *side, const struct kernel *k)
{
        double sum;
        kernels_squared_norm(side->device, &sum, side->x[0], k->m, false);
        side->device->ops->synchronize(side->device);
}

static void overflow(struct side *side, const struct kernel *k)
{
        double found;
        kernels_overflow(side->device, &found, side->x[0], k->m, 65504);
        side->device->ops->synchronize(side->device);
}

static void unscale(struct side *side, const struct kernel *k)
{
        double scale = 0.5;
        kernels_unscale(side->device, side->fp32[0], side->x[0], &scale, k->m);
        side->device->ops->synchronize(side->device);
}

static void adamw(struct side *side, const struct kernel *k)
{
        const struct adamw a = {
                .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .step = 2};
        const struct adamw_range range = {k->m, 1};
        const double one = 1;
        kernels_adamw(side->device, side->fp32[0], side->fp32[1], side->fp32[2], side->fp32[3],
                      side->device->dtype != DTYPE_FP32 ? side->x[0] : NULL, &range,
                      side->device->dtype != DTYPE_FP32 ? NULL : &one, 0, k->m, &a);
        side->device->ops->synchronize(side->device);
}

/* Attention of one sequence with heads as GPT-2's: where its tensors are in x[0]. */
enum { HEADS = 12, HEAD = 64, WIDTH = HEADS * HEAD };
struct attention {
        char *qkv, *y, *dy, *dqkv;
        int64_t element_bytes;
};

static struct attention attention_of(const struct side *side, int64_t T)
{
        struct attention a = {.qkv = side->x[0], .element_bytes = side->device->dtype ? 2 : sizeof(real)};
        const int64_t bytes = T * WIDTH * a.element_bytes;
        a.y = a.qkv + 3 * bytes;
        a.dy = a.y + bytes;
        a.dqkv = a.dy + bytes;
        return a;
}

static void attention(struct side *side, const struct kernel *k)
{
        const struct attention a = attention_of(side, k->m);
        kernels_attention(side->device, a.y, side->fp32[0], a.qkv, 1, k->m, HEADS, HEADS, HEAD, 0.125);
}

static void attention_backward(struct side *side, const struct kernel *k)
{
        const struct attention a = attention_of(side, k->m);
        kernels_attention_backward(side->device, a.dqkv, side->fp32[1], a.dy, a.y, side->fp32[0], a.qkv, 1,
                                   k->m, HEADS, HEADS, HEAD, 0.125);
}

/* s (heads,T,T) = a b^T, both with `lda` and `ldb` elements a row. */
static void scores(struct side *side, int64_t T, const void *a, int64_t lda, const void *b, int64_t ldb,
                   void *s)
{
        kernels_matmul(side->device,
                       &(struct matmul){.m = T,
                                        .n = T,
                                        .k = HEAD,
                                        .transpose_b = true,
                                        .lda = lda,
                                        .ldb = ldb,
                                        .inner = HEADS,
                                        .stride_a = {0, HEAD},
                                        .stride_b = {0, HEAD},
                                        .stride_c = {0, T * T}},
                       a, b, s);
}

/* x (T, a head of each) = s v, or s^T v. */
static void weighted(struct side *side, int64_t T, const void *s, bool transpose, const void *v, int64_t ldv,
                     void *x, int64_t ldx)
{
        kernels_matmul(side->device,
                       &(struct matmul){.m = T,
                                        .n = HEAD,
                                        .k = T,
                                        .transpose_a = transpose,
                                        .ldb = ldv,
                                        .ldc = ldx,
                                        .inner = HEADS,
                                        .stride_a = {0, T * T},
                                        .stride_b = {0, HEAD},
                                        .stride_c = {0, HEAD}},
                       s, v, x);
}

static void attention_unfused(struct side *side, const struct kernel *k)
{
        const struct attention a = attention_of(side, k->m);
        const int64_t T = k->m, ld = 3 * WIDTH, part = WIDTH * a.element_bytes;
        void *p = side->x[1];
        scores(side, T, a.qkv, ld, a.qkv + part, ld, p);
        kernels_softmax(side->device, p, HEADS, T, 0.125);
        weighted(side, T, p, false, a.qkv + 2 * part, ld, a.y, WIDTH);
}

static void attention_backward_unfused(struct side *side, const struct kernel *k)
{
        const struct attention a = attention_of(side, k->m);
        const int64_t T = k->m, ld = 3 * WIDTH, part = WIDTH * a.element_bytes;
        void *p = side->x[1], *ds = side->x[2];
        scores(side, T, a.dy, WIDTH, a.qkv + 2 * part, ld, ds);
        weighted(side, T, p, true, a.dy, WIDTH, a.dqkv + 2 * part, ld);
        kernels_softmax_backward(side->device, ds, p, HEADS, T, 0.125);
        weighted(side, T, ds, false, a.qkv + part, ld, a.dqkv, ld);
        weighted(side, T, ds, true, a.qkv, ld, a.dqkv + part, ld);
}

static void *allocate(struct device *device, int64_t element_bytes)
{
        void *memory = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WORKSPACE, FLAT * element_bytes);
        if (!memory)
                fprintf(stderr, "mixed: no memory for %lld bytes\n", (long long)(FLAT * element_bytes));
        return memory;
}

static int open_side(struct side *side, enum dtype dtype)
{
        struct rv_error_info err = {0};
        side->device = device_cpu_open(1, &err);
        if (!side->device) {
                fprintf(stderr, "mixed: %s\n", err.sentence);
                return -1;
        }
        side->device->dtype = dtype;
        side->device->recorder = add_seconds;
        side->device->recorder_context = side;
        for (int i = 0; i < 3; i++)
                side->x[i] = allocate(side->device, dtype != DTYPE_FP32 ? 2 : 4);
        for (int i = 0; i < 4; i++)
                side->fp32[i] = allocate(side->device, 4);
        return side->x[2] && side->fp32[3] ? 0 : -1; /* memory that ended before has ended for these too */
}

static double seconds_of(struct side *side, work_fn *work, const struct kernel *kernel)
{
        side->seconds = 0;
        work(side, kernel);
        side->device->ops->synchronize(side->device);
        return side->seconds;
}

static double memcpy_seconds(struct side *side)
{
        const double start = device_seconds();
        memcpy(side->fp32[2], side->fp32[3], (size_t)FLAT * 4);
        return device_seconds() - start;
}

static int ascending(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

static void print_ratios(double ratios[PAIRS])
{
        qsort(ratios, PAIRS, sizeof *ratios, ascending);
        printf("%6.2f (%.2f .. %.2f)\n", ratios[PAIRS / 2], ratios[PAIRS / 10],
               ratios[PAIRS - 1 - PAIRS / 10]);
}

static void print_kernel(const struct kernel *kernel, enum dtype format)
{
        static const char *const formats[] = {"fp32", "fp16", "bf16"};
        char what[64], shape[64];
        snprintf(what, sizeof what, "%s%s%s%s", kernel_name(kernel->kind), kernel->transpose_a ? " a^T" : "",
                 kernel->transpose_b ? " b^T" : "", kernel->accumulate ? " +=" : "");
        snprintf(shape, sizeof shape, "%lld x %lld x %lld x %lld", (long long)kernel->batch,
                 (long long)kernel->m, (long long)kernel->n, (long long)kernel->k);
        printf("%-20s %s %-26s", what, formats[format], shape);
}

/* Times of `work` on one side over those of `than` on another (or the same), pair by pair. */
static void compare(struct side *side, work_fn *work, struct side *with, work_fn *than,
                    const struct kernel *kernel)
{
        double ratios[PAIRS];
        seconds_of(side, work, kernel); /* warms up */
        seconds_of(with, than, kernel);
        for (int i = 0; i < PAIRS; i++) {
                const double seconds = seconds_of(side, work, kernel);
                ratios[i] = seconds / seconds_of(with, than, kernel);
        }
        print_kernel(kernel, with->device->dtype);
        print_ratios(ratios);
}

/* Speed over tensors of 16 bits. */
static void compare_formats(struct side sides[SIDES], work_fn *work, struct kernel kernel)
{
        for (int i = 1; i < SIDES; i++)
                compare(&sides[0], work, &sides[i], work, &kernel);
}

/* Speed of the fused kernel. */
static void compare_fused(struct side sides[SIDES], work_fn *unfused, work_fn *fused, struct kernel kernel)
{
        for (int i = 0; i < SIDES; i++)
                compare(&sides[i], unfused, &sides[i], fused, &kernel);
}

/* Bytes a second over memcpy's, which reads and writes each byte. */
static void compare_bytes(struct side *dtype, work_fn *work, enum kernel_kind kind)
{
        const struct kernel kernel = {.kind = kind, .dtype = DTYPE_FP16, .batch = 1, .m = FLAT};
        double ratios[PAIRS];
        memcpy_seconds(dtype); /* warms up */
        seconds_of(dtype, work, &kernel);
        for (int i = 0; i < PAIRS; i++) {
                const double copying = 2.0 * FLAT * 4 / memcpy_seconds(dtype);
                ratios[i] = kernel_bytes(&kernel) / seconds_of(dtype, work, &kernel) / copying;
        }
        printf("%-20s fp16 %-26d", kernel_name(kind), FLAT);
        print_ratios(ratios);
}

static void fill(struct side *side)
{
        const int min = side->device->dtype == DTYPE_BF16 ? 0x3e00 : 0x3000; /* 0.125, up to 0.5 */
        const int range = side->device->dtype == DTYPE_BF16 ? 0x100 : 0x800;
        for (int i = 0; i < FLAT; i++) {
                for (int j = 0; j < 4; j++)
                        side->fp32[j][i] = (real)((i * 31 + j) % 64) / 64;
                for (int j = 0; j < 3; j++)
                        if (side->device->dtype != DTYPE_FP32)
                                ((uint16_t *)side->x[j])[i] = (uint16_t)(min + i % range);
                        else
                                ((real *)side->x[j])[i] = (real)(128 + i % 384) / 1024;
        }
}

int main(void)
{
        static const enum dtype formats[SIDES] = {DTYPE_FP32, DTYPE_FP16, DTYPE_BF16};
        struct side sides[SIDES] = {0};
        for (int i = 0; i < SIDES; i++) {
                if (open_side(&sides[i], formats[i]))
                        return 1;
                fill(&sides[i]);
        }
        const struct kernel products[] = {
                {.transpose_b = 1, .batch = 1, .m = 512, .n = 512, .k = 512},
                {.transpose_b = 1, .batch = 1, .m = 1024, .n = 1024, .k = 1024},
                {.transpose_b = 1, .batch = 1, .m = 2048, .n = 2048, .k = 2048},
                {.transpose_b = 1, .batch = 1, .m = 128, .n = 3072, .k = 768},
                {.transpose_b = 1, .batch = 1, .m = 256, .n = 768, .k = 3072},
                {.batch = 1, .m = 256, .n = 768, .k = 3072},
                {.transpose_a = 1, .accumulate = 1, .batch = 1, .m = 3072, .n = 768, .k = 256},
                {.transpose_a = 1, .accumulate = 1, .batch = 1, .m = 768, .n = 3072, .k = 128},
                {.transpose_b = 1, .batch = 12, .m = 256, .n = 256, .k = 64},
                {.batch = 12, .m = 256, .n = 64, .k = 256},
        };
        printf("speed over tensors of 16 bits, that of fp32 being 1\n");
        for (size_t i = 0; i < sizeof products / sizeof *products; i++)
                compare_formats(sides, product, products[i]);
        compare_formats(sides, bias_gelu,
                        (struct kernel){.kind = KERNEL_BIAS_GELU, .batch = 1, .m = 512, .n = 3072});
        compare_formats(sides, softmax,
                        (struct kernel){.kind = KERNEL_SOFTMAX, .batch = 12, .m = 512, .n = 512});
        compare_formats(sides, layernorm_backward,
                        (struct kernel){.kind = KERNEL_LAYERNORM_BACKWARD, .batch = 1, .m = 512, .n = 768});
        compare_formats(sides, squared_norm,
                        (struct kernel){.kind = KERNEL_SQUARED_NORM, .batch = 1, .m = FLAT});
        compare_formats(sides, adamw, (struct kernel){.kind = KERNEL_ADAMW, .batch = 1, .m = FLAT});
        printf("speed of fused attention, that of the kernels that it stands for being 1\n");
        for (int64_t T = 256; T <= 1024; T *= 4) {
                compare_fused(
                        sides, attention_unfused, attention,
                        (struct kernel){.kind = KERNEL_ATTENTION, .batch = HEADS, .m = T, .n = T, .k = HEAD});
                compare_fused(sides, attention_backward_unfused, attention_backward,
                              (struct kernel){.kind = KERNEL_ATTENTION_BACKWARD,
                                              .batch = HEADS,
                                              .m = T,
                                              .n = T,
                                              .k = HEAD});
        }
        printf("bytes a second, those of memcpy being 1\n");
        compare_bytes(&sides[1], overflow, KERNEL_OVERFLOW);
        compare_bytes(&sides[1], squared_norm, KERNEL_SQUARED_NORM);
        compare_bytes(&sides[1], unscale, KERNEL_UNSCALE);
        compare_bytes(&sides[1], adamw, KERNEL_ADAMW);
        for (int i = 0; i < SIDES; i++)
                sides[i].device->ops->close(sides[i].device);
        return 0;
}
