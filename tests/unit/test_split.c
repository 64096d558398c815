/* Kernels of the CPU device split over a team of threads: a kernel at shapes that are large enough for it, on
 * teams of 1, 2 and 3 threads and, for comparison, whole. How many threads there are changes no bit of
 * anything but a product; of a product, and between what is split and what is whole, only the rounding. Every
 * test runs with tensors of reals, of fp16 and of bf16. */
#include "runtime/base/fp16.h"
#include "runtime/device/cpu/split.h"
#include "runtime/device/cpu/variant.h"
#include "tests/unit/launches.h"
#include "tests/unit/numbers.h"

#include <cblas.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

static const uint64_t seed = 20261121;
static const char *const formats[] = {"reals", "fp16", "bf16"};
enum { MAX_TEAM = 3, MAX_BUFFERS = 10 };

enum content { TENSOR, REAL, DOUBLE, INTEGER };

struct buffer {
        void *memory;
        int64_t count;
        enum content content;
};

/* A device that runs a kernel as it is launched: by a team, or whole. What kernels work on is made in turn,
 * the same numbers each time. */
struct world {
        struct device device; /* first: launch finds the rest behind it */
        struct cpu_split split;
        real *scratch; /* whole: the only thread's; else NULL */
        struct buffer buffers[MAX_BUFFERS];
        int buffer_count;
        uint64_t random;
        double terms; /* in a sum that a result is, at most */
        bool kinds[KERNEL_KINDS];
};

static atomic_int parts; /* that the last kernel was run in */

static void run_part(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        struct rv_error_info err;
        atomic_fetch_add(&parts, 1);
        cpu_variant_choose(cpu_variants, cpu_variant_count, NULL, &err)->run(kernel, args, scratch);
}

static void launch(struct device *device, const struct kernel *kernel, const struct kernel_args *args)
{
        struct world *w = (struct world *)device;
        atomic_store(&parts, 0);
        w->kinds[kernel->kind] = true;
        if (w->scratch && kernel_descriptor(kernel->kind)->split != SPLIT_EXPERTS)
                run_part(kernel, args, w->scratch);
        else
                cpu_split_run(&w->split, kernel, args);
}

/* `threads` 0: whole, but for the products of experts, each of which is whole. */
static void open_world(struct world *w, int threads, enum dtype format)
{
        static const struct device_ops ops = {.name = "split", .launch = launch};
        real *memory = aligned_alloc(MEMORY_ALIGNMENT, CPU_SCRATCH * sizeof *memory);
        assert_non_null(memory);
        *w = (struct world){.device = {.ops = &ops, .dtype = format}, .random = seed, .split.run = run_part};
        *(threads == 0 ? &w->scratch : &w->split.sums) = memory;
        w->split.team = cpu_team_open(threads == 0 ? 1 : threads);
        assert_non_null(w->split.team);
        assert_int_equal(cpu_team_threads(w->split.team), threads == 0 ? 1 : threads);
}

static void free_buffers(struct world *w)
{
        while (w->buffer_count > 0)
                free(w->buffers[--w->buffer_count].memory);
}

static void close_world(struct world *w)
{
        free_buffers(w);
        free(w->scratch);
        free(w->split.sums);
        cpu_team_close(w->split.team);
}

/* ---- what kernels work on ---- */

static uint16_t half_of(const struct world *w, real x)
{
        return w->device.dtype == DTYPE_BF16 ? bf16_from_float(x) : fp16_from_float(x);
}

static double value_of(const struct world *w, const struct buffer *b, int64_t i)
{
        const uint16_t *stored = b->memory;
        switch (b->content) {
        case DOUBLE:
                return ((double *)b->memory)[i];
        case INTEGER:
                return ((int32_t *)b->memory)[i];
        default:
                if (b->content == REAL || w->device.dtype == DTYPE_FP32)
                        return (double)((real *)b->memory)[i];
                return (double)(w->device.dtype == DTYPE_BF16 ? bf16_to_float(stored[i])
                                                              : fp16_to_float(stored[i]));
        }
}

static size_t element_bytes(const struct world *w, enum content content)
{
        static const size_t bytes[] = {[REAL] = sizeof(real), [DOUBLE] = 8, [INTEGER] = 4};
        if (content == TENSOR)
                return w->device.dtype != DTYPE_FP32 ? 2 : sizeof(real);
        return bytes[content];
}

/* The next buffer. Numbers are in [-1, 1); integers in [0, end). */
static void *filled(struct world *w, enum content content, int64_t count, int64_t end)
{
        assert_true(w->buffer_count < MAX_BUFFERS);
        struct buffer *b = &w->buffers[w->buffer_count++];
        *b = (struct buffer){malloc((size_t)count * element_bytes(w, content)), count, content};
        assert_non_null(b->memory);
        for (int64_t i = 0; i < count; i++) {
                const double x = random_number(&w->random);
                if (content == DOUBLE)
                        ((double *)b->memory)[i] = x;
                else if (content == INTEGER)
                        ((int32_t *)b->memory)[i] = (int32_t)random_below(&w->random, end);
                else if (content == TENSOR && w->device.dtype != DTYPE_FP32)
                        ((uint16_t *)b->memory)[i] = half_of(w, (real)x);
                else
                        ((real *)b->memory)[i] = (real)x;
        }
        return b->memory;
}

static void *tensor(struct world *w, int64_t count)
{
        return filled(w, TENSOR, count, 0);
}

static real *reals(struct world *w, int64_t count)
{
        return filled(w, REAL, count, 0);
}

static double *number(struct world *w)
{
        return filled(w, DOUBLE, 1, 0);
}

static int32_t *tokens(struct world *w, int64_t count, int64_t end)
{
        return filled(w, INTEGER, count, end);
}

/* ---- the kernels ---- */

enum { M = 259, N = 97 }; /* rows that no number of threads divides, and columns of no whole vectors */

static void layernorm(struct world *w)
{
        void *y = tensor(w, M * N), *x = tensor(w, M * N), *weight = tensor(w, N), *b = tensor(w, N);
        kernels_layernorm(&w->device, y, reals(w, 2 * M), x, weight, b, 1, M, N);
}

static void layernorm_backward(struct world *w)
{
        void *dx = tensor(w, M * N), *dw = tensor(w, N), *db = tensor(w, N), *dy = tensor(w, M * N);
        void *x = tensor(w, M * N), *weight = tensor(w, N);
        w->terms = M;
        kernels_layernorm_backward(&w->device, dx, dw, db, dy, x, reals(w, 2 * M), weight, 1, M, N, true);
}

static void bias(struct world *w)
{
        void *y = tensor(w, M * N);
        kernels_bias(&w->device, y, tensor(w, N), M, N);
}

static void bias_backward(struct world *w)
{
        void *db = tensor(w, N);
        w->terms = M;
        kernels_bias_backward(&w->device, db, tensor(w, M * N), M, N);
}

static void bias_gelu(struct world *w)
{
        void *g = tensor(w, M * N), *h = tensor(w, M * N);
        kernels_bias_gelu(&w->device, g, h, tensor(w, N), M, N);
}

static void gelu_backward(struct world *w)
{
        void *dh = tensor(w, M * N);
        kernels_gelu_backward(&w->device, dh, tensor(w, M * N), M, N);
}

static void bias_residual(struct world *w)
{
        void *y = tensor(w, M * N), *b = tensor(w, N);
        kernels_bias_residual(&w->device, y, b, tensor(w, M * N), M, N);
}

static void residual(struct world *w)
{
        void *y = tensor(w, M * N);
        kernels_residual(&w->device, y, tensor(w, M * N), M, N);
}

static void rmsnorm(struct world *w)
{
        void *y = tensor(w, M * N), *x = tensor(w, M * N), *weight = tensor(w, N);
        kernels_rmsnorm(&w->device, y, reals(w, M), x, weight, M, N, 1e-5);
}

static void rmsnorm_backward(struct world *w)
{
        void *dx = tensor(w, M * N), *dw = tensor(w, N), *dy = tensor(w, M * N), *x = tensor(w, M * N);
        void *weight = tensor(w, N);
        w->terms = M;
        kernels_rmsnorm_backward(&w->device, dx, dw, dy, x, reals(w, M), weight, M, N, true);
}

enum { HEAD = N / 8 }; /* four of queries, two of keys, two of values */

static void head_rmsnorm(struct world *w)
{
        void *y = tensor(w, M * N), *x = tensor(w, M * N);
        kernels_head_rmsnorm(&w->device, y, reals(w, M * 8), x, tensor(w, 2 * HEAD), M, 4, 2, HEAD, 1e-5);
}

static void head_rmsnorm_backward(struct world *w)
{
        void *dx = tensor(w, M * N), *dw = tensor(w, 2 * HEAD), *x = tensor(w, M * N);
        void *weight = tensor(w, 2 * HEAD);
        w->terms = 4 * M;
        kernels_head_rmsnorm_backward(&w->device, dx, dw, x, reals(w, M * 8), weight, M, 4, 2, HEAD);
}

/* Parts begin in the middle of a sequence. */
static void rope(struct world *w)
{
        enum { SEQUENCES = 7, POSITIONS = M / SEQUENCES };
        const struct rope rope = {
                .columns = N, .rotated = 72, .head_size = 24, .theta = 500000, .turned = 14};
        kernels_rope(&w->device, &rope, tensor(w, M * N), SEQUENCES, POSITIONS);
}

static void split_columns(struct world *w)
{
        void *a = tensor(w, M * N), *b = tensor(w, M * 31);
        kernels_split_columns(&w->device, a, b, tensor(w, M * (N + 31)), M, N, 31);
}

static void join_columns(struct world *w)
{
        void *x = tensor(w, M * (N + 31)), *a = tensor(w, M * N);
        kernels_join_columns(&w->device, x, a, tensor(w, M * 31), M, N, 31);
}

static void narrow(struct world *w)
{
        void *y = tensor(w, M * N);
        kernels_narrow(&w->device, y, tensor(w, M * (N + 31)), M, N, N + 31);
}

static void widen(struct world *w)
{
        void *wide = tensor(w, M * (N + 31));
        kernels_widen(&w->device, wide, tensor(w, M * N), M, N, N + 31);
}

/* Parts begin in the middle of a sequence. */
enum { LATENT_SEQUENCES = 7, LATENT_HEADS = 5, LATENT_WIDTH = 22, LATENT_KV = 31 };
static const struct latent latent = {.heads = LATENT_HEADS,
                                     .copied = 14,
                                     .rotated = LATENT_WIDTH - 14,
                                     .values = LATENT_KV - 14,
                                     .interleaved = true,
                                     .length = 1.3,
                                     .theta = 500000};

static void latent_qkv(struct world *w)
{
        void *qkv = tensor(w, M * 3 * LATENT_HEADS * LATENT_WIDTH),
             *q = tensor(w, M * LATENT_HEADS * LATENT_WIDTH);
        void *kv = tensor(w, M * LATENT_HEADS * LATENT_KV);
        kernels_latent_qkv(&w->device, &latent, qkv, q, kv, tensor(w, M * latent.rotated), LATENT_SEQUENCES,
                           M / LATENT_SEQUENCES);
}

static void latent_qkv_backward(struct world *w)
{
        void *dq = tensor(w, M * LATENT_HEADS * LATENT_WIDTH), *dkv = tensor(w, M * LATENT_HEADS * LATENT_KV);
        void *dshared = tensor(w, M * latent.rotated);
        kernels_latent_qkv_backward(&w->device, &latent, dq, dkv, dshared,
                                    tensor(w, M * 3 * LATENT_HEADS * LATENT_WIDTH), LATENT_SEQUENCES,
                                    M / LATENT_SEQUENCES);
}

static void swiglu(struct world *w)
{
        void *y = tensor(w, M * N);
        kernels_swiglu(&w->device, y, tensor(w, M * 2 * N), M, N);
}

static void swiglu_backward(struct world *w)
{
        void *dgu = tensor(w, M * 2 * N), *dy = tensor(w, M * N);
        kernels_swiglu_backward(&w->device, dgu, dy, tensor(w, M * 2 * N), M, N);
}

static void squared_relu(struct world *w)
{
        void *y = tensor(w, M * N);
        kernels_squared_relu(&w->device, y, tensor(w, M * N), M, N);
}

static void squared_relu_backward(struct world *w)
{
        void *dh = tensor(w, M * N);
        kernels_squared_relu_backward(&w->device, dh, tensor(w, M * N), M, N);
}

static const struct routing routing = {
        .N = M, .E = N, .K = 5, .normalised = true, .factor = 1, .balance = 0.01};
enum { ROWS_OF_TOKENS = 5 * M };

struct order {
        real *weights;
        int32_t *place, *source, *ends;
        void *logits;
};

static struct order route_order(struct world *w)
{
        struct order o = {.weights = reals(w, ROWS_OF_TOKENS), .place = tokens(w, ROWS_OF_TOKENS, 1)};
        o.source = tokens(w, ROWS_OF_TOKENS, 1);
        o.ends = tokens(w, N, 1);
        o.logits = tensor(w, M * N);
        kernels_route(&w->device, &routing, o.weights, o.place, o.source, o.ends, o.logits, NULL);
        return o;
}

static void route(struct world *w)
{
        route_order(w);
}

static void route_backward(struct world *w)
{
        const struct order o = route_order(w);
        void *dlogits = tensor(w, M * N);
        kernels_route_backward(&w->device, &routing, dlogits, reals(w, ROWS_OF_TOKENS), o.weights, o.place,
                               o.ends, o.logits);
}

static void permute(struct world *w)
{
        const struct order o = route_order(w);
        void *y = tensor(w, ROWS_OF_TOKENS * N);
        kernels_permute(&w->device, y, tensor(w, M * N), o.source, M, routing.K, N);
}

static void unpermute(struct world *w)
{
        const struct order o = route_order(w);
        void *y = tensor(w, M * N);
        kernels_unpermute(&w->device, y, tensor(w, ROWS_OF_TOKENS * N), o.place, M, routing.K, N, true);
}

static void expert_ends(struct world *w)
{
        const struct order o = route_order(w);
        kernels_expert_ends(&w->device, tokens(w, N, 1), o.ends, N, 1, 0, N);
}

static void weighted_swiglu(struct world *w)
{
        void *y = tensor(w, M * N), *gu = tensor(w, M * 2 * N);
        kernels_weighted_swiglu(&w->device, y, gu, reals(w, M), M, N);
}

static void weighted_swiglu_backward(struct world *w)
{
        void *dgu = tensor(w, M * 2 * N), *dy = tensor(w, M * N), *gu = tensor(w, M * 2 * N);
        real *dw = reals(w, M);
        kernels_weighted_swiglu_backward(&w->device, dgu, dw, dy, gu, reals(w, M), M, N);
}

/* Parts begin in the middle of a matrix. */
static void softmax(struct world *w)
{
        enum { BATCH = 5, T = 67 };
        kernels_softmax(&w->device, tensor(w, BATCH * T * T), BATCH, T, 0.7);
}

static void softmax_backward(struct world *w)
{
        enum { BATCH = 5, T = 67 };
        void *dp = tensor(w, BATCH * T * T);
        kernels_softmax_backward(&w->device, dp, tensor(w, BATCH * T * T), BATCH, T, 0.7);
}

static void cross_entropy(struct world *w)
{
        double *loss = number(w);
        void *logits = tensor(w, M * N);
        w->terms = M;
        kernels_cross_entropy(&w->device, loss, logits, tokens(w, M, N), M, N, N, 0.01, false);
}

static void cross_entropy_loss(struct world *w)
{
        double *loss = number(w);
        void *logits = tensor(w, M * N);
        w->terms = M;
        kernels_cross_entropy(&w->device, loss, logits, tokens(w, M, N), M, N, N, 0.01, true);
}

enum { SHARDS = 2, VALID = N - 3 };
static const struct vocabulary_part second = {.first = N, .valid = VALID};

static void cross_entropy_numbers(struct world *w)
{
        real *numbers = reals(w, 3 * M);
        void *logits = tensor(w, M * N);
        kernels_cross_entropy_numbers(&w->device, numbers, logits, tokens(w, M, 2 * N), M, N, second);
}

/* Numbers whose sums are positive. */
static real *numbers_of_shards(struct world *w, int64_t rows)
{
        real *numbers = reals(w, 3 * SHARDS * rows);
        for (int64_t i = 1; i < 3 * SHARDS * rows; i += 3)
                numbers[i] += 2;
        return numbers;
}

static void cross_entropy_part(struct world *w)
{
        double *loss = number(w);
        void *logits = tensor(w, M * N);
        int32_t *targets = tokens(w, M, 2 * N);
        w->terms = M;
        kernels_cross_entropy_part(&w->device, loss, logits, targets, numbers_of_shards(w, M), SHARDS, M, N,
                                   second, 0.01);
}

static void cross_entropy_of_numbers(struct world *w)
{
        enum { ROWS = 5003 };
        double *loss = number(w);
        w->terms = ROWS;
        kernels_cross_entropy_of_numbers(&w->device, loss, numbers_of_shards(w, ROWS), SHARDS, ROWS);
}

static void embedding(struct world *w)
{
        void *x = tensor(w, M * N), *wte = tensor(w, 11 * N), *wpe = tensor(w, M * N);
        kernels_embedding(&w->device, x, tokens(w, M, 11), wte, wpe, 1, M, N);
}

static void embedding_backward(struct world *w)
{
        void *dwte = tensor(w, 11 * N), *dwpe = tensor(w, M * N), *dx = tensor(w, M * N);
        kernels_embedding_backward(&w->device, dwte, dwpe, dx, tokens(w, M, 11), 1, M, N);
}

enum { B = 2, T = 83, H = 5, HS = 24 };

static void attention(struct world *w)
{
        void *y = tensor(w, B * T * H * HS);
        real *lse = reals(w, B * H * T);
        kernels_attention(&w->device, y, lse, tensor(w, B * T * 3 * H * HS), B, T, H, H, HS, 0.2);
}

/* Two groups of three heads a sequence: three threads share four groups. */
enum { GROUPS = 2, GROUPED = 6 };

static void grouped_attention(struct world *w)
{
        void *y = tensor(w, B * T * GROUPED * HS), *qkv = tensor(w, B * T * (GROUPED + 2 * GROUPS) * HS);
        kernels_attention(&w->device, y, reals(w, B * GROUPED * T), qkv, B, T, GROUPED, GROUPS, HS, 0.2);
}

static void grouped_attention_backward(struct world *w)
{
        const int64_t elements = B * T * (GROUPED + 2 * GROUPS) * HS;
        void *dqkv = tensor(w, elements), *dy = tensor(w, B * T * GROUPED * HS);
        void *y = tensor(w, B * T * GROUPED * HS), *qkv = tensor(w, elements);
        real *rows = reals(w, B * GROUPED * T);
        kernels_attention_backward(&w->device, dqkv, rows, dy, y, reals(w, B * GROUPED * T), qkv, B, T,
                                   GROUPED, GROUPS, HS, 0.2);
}

static void attention_backward(struct world *w)
{
        void *dqkv = tensor(w, B * T * 3 * H * HS), *dy = tensor(w, B * T * H * HS);
        void *y = tensor(w, B * T * H * HS), *qkv = tensor(w, B * T * 3 * H * HS);
        real *rows = reals(w, B * H * T);
        kernels_attention_backward(&w->device, dqkv, rows, dy, y, reals(w, B * H * T), qkv, B, T, H, H, HS,
                                   0.2);
}

/* The second of three ranks, with keys that come before its own, and after. */
static void context_attention(struct world *w)
{
        enum { EVEN = T + 1 };
        void *y = tensor(w, B * EVEN * GROUPED * HS),
             *qkv = tensor(w, B * EVEN * (GROUPED + 2 * GROUPS) * HS);
        real *lse = reals(w, B * GROUPED * EVEN);
        for (int distance = 1; distance < 3; distance++)
                kernels_context_attention(&w->device, &(struct context_place){3, 1, distance}, y, lse, qkv,
                                          tensor(w, B * EVEN * 2 * GROUPS * HS), B, EVEN, GROUPED, GROUPS, HS,
                                          0.2);
}

static void context_attention_backward(struct world *w)
{
        enum { EVEN = T + 1, WIDTH = (GROUPED + 2 * GROUPS) * HS };
        void *dqkv = tensor(w, B * EVEN * WIDTH), *qkv = tensor(w, B * EVEN * WIDTH);
        void *dy = tensor(w, B * EVEN * GROUPED * HS);
        real *rows = reals(w, B * GROUPED * EVEN), *lse = reals(w, B * GROUPED * EVEN);
        for (int distance = 1; distance < 3; distance++)
                kernels_context_attention_backward(&w->device, &(struct context_place){3, 1, distance}, dqkv,
                                                   tensor(w, B * EVEN * 2 * GROUPS * HS), rows, dy, lse, qkv,
                                                   tensor(w, B * EVEN * 2 * GROUPS * HS), B, EVEN, GROUPED,
                                                   GROUPS, HS, 0.2);
}

static void last_columns(struct world *w)
{
        kernels_last_columns(&w->device, tensor(w, M * N), tensor(w, M * (N + 3)), M, N, N + 3);
}

static void set_last_columns(struct world *w)
{
        kernels_set_last_columns(&w->device, tensor(w, M * (N + 3)), tensor(w, M * N), M, N, N + 3);
}

enum { FLAT = 100003 };

static void squared_norm(struct world *w)
{
        double *sum = number(w);
        w->terms = FLAT;
        kernels_squared_norm(&w->device, sum, tensor(w, FLAT), FLAT, true);
}

/* The ranges of decay end in the middle of parts; in 16 bits the gradients have been unscaled. */
static void adamw(struct world *w)
{
        static const struct adamw_range ranges[] = {{5, 1}, {30011, 0}, {70000, 1}, {70001, 0}, {200000, 1}};
        static const struct adamw adamw = {
                .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .step = 3};
        const bool mixed = w->device.dtype != DTYPE_FP32;
        real *p = reals(w, FLAT), *g = reals(w, FLAT), *m = reals(w, FLAT), *v = reals(w, FLAT);
        for (int64_t i = 0; i < FLAT; i++)
                v[i] = v[i] * v[i];
        double *scale = number(w);
        kernels_adamw(&w->device, p, g, m, v, mixed ? tensor(w, FLAT) : NULL, ranges, mixed ? NULL : scale, 3,
                      FLAT, &adamw);
}

static void clear(struct world *w)
{
        kernels_clear(&w->device, tensor(w, FLAT), FLAT);
}

static void overflow(struct world *w)
{
        double *found = number(w);
        uint16_t *g = tensor(w, FLAT);
        g[FLAT - 1] = half_of(w, 100);
        kernels_overflow(&w->device, found, g, FLAT, 99);
        assert_true(*found == 1);
}

static void no_overflow(struct world *w)
{
        double *found = number(w);
        kernels_overflow(&w->device, found, tensor(w, FLAT), FLAT, 99);
        assert_true(*found == 0);
}

static void unscale(struct world *w)
{
        real *out = reals(w, FLAT);
        double *scale = number(w);
        kernels_unscale(&w->device, out, tensor(w, FLAT), scale, FLAT);
}

/* A batch whose matrices lie with gaps in larger buffers; its variant says what is transposed. */
static void batch(struct world *w, int64_t outer, int64_t inner, int variant)
{
        enum { ROWS = 41, COLUMNS = 17, INNER = 53 };
        struct matmul mm = {.m = ROWS,
                            .n = COLUMNS,
                            .k = INNER,
                            .transpose_a = variant & 1,
                            .transpose_b = variant & 2,
                            .accumulate = variant & 4,
                            .outer = outer,
                            .inner = inner};
        mm.lda = (mm.transpose_a ? ROWS : INNER) + 3;
        mm.ldb = (mm.transpose_b ? INNER : COLUMNS) + 1;
        mm.ldc = COLUMNS + 2;
        const int64_t a = (mm.transpose_a ? INNER : ROWS) * mm.lda,
                      b = (mm.transpose_b ? COLUMNS : INNER) * mm.ldb, c = ROWS * mm.ldc;
        mm.stride_a[0] = inner * a, mm.stride_a[1] = a;
        mm.stride_b[0] = b, mm.stride_b[1] = outer * b; /* the outer one varies faster here */
        mm.stride_c[0] = inner * c, mm.stride_c[1] = c;
        void *from = tensor(w, outer * inner * a), *by = tensor(w, outer * inner * b);
        w->terms = INNER;
        kernels_matmul(&w->device, &mm, from, by, tensor(w, outer * inner * c));
}

static void batch_of_both(struct world *w)
{
        batch(w, 2, 7, 0);
}

static void batch_of_outer(struct world *w)
{
        batch(w, 11, 1, 6);
}

static void batch_of_inner(struct world *w)
{
        batch(w, 1, 5, 5);
}

/* ---- products that are split into blocks ---- */

static void product(struct world *w, int64_t m, int64_t n, int64_t k, int variant)
{
        const struct matmul mm = {.m = m,
                                  .n = n,
                                  .k = k,
                                  .transpose_a = variant & 1,
                                  .transpose_b = variant & 2,
                                  .accumulate = variant & 4};
        void *a = tensor(w, m * k), *b = tensor(w, k * n);
        kernels_matmul(&w->device, &mm, a, b, tensor(w, m * n));
}

static void product_bias(struct world *w, int64_t m, int64_t n, int64_t k, int variant)
{
        (void)variant;
        void *y = tensor(w, m * n), *x = tensor(w, m * k), *weight = tensor(w, n * k);
        kernels_matmul_bias(&w->device, y, x, weight, tensor(w, n), m, n, k);
}

static void product_bias_gelu(struct world *w, int64_t m, int64_t n, int64_t k, int variant)
{
        (void)variant;
        void *g = tensor(w, m * n), *h = tensor(w, m * n), *x = tensor(w, m * k), *weight = tensor(w, n * k);
        kernels_matmul_bias_gelu(&w->device, g, h, x, weight, tensor(w, n), m, n, k);
}

static void product_bias_residual(struct world *w, int64_t m, int64_t n, int64_t k, int variant)
{
        (void)variant;
        void *y = tensor(w, m * n), *x = tensor(w, m * k), *weight = tensor(w, n * k), *b = tensor(w, n);
        kernels_matmul_bias_residual(&w->device, y, x, weight, b, tensor(w, m * n), m, n, k);
}

static void product_layernorm(struct world *w, int64_t m, int64_t n, int64_t k, int variant)
{
        (void)variant;
        void *y = tensor(w, m * n), *ln = tensor(w, m * n), *x = tensor(w, m * k), *weight = tensor(w, n * k);
        void *b = tensor(w, n), *r = tensor(w, m * n), *ln_w = tensor(w, n), *ln_b = tensor(w, n);
        kernels_matmul_bias_residual_layernorm(&w->device, y, ln, reals(w, 2 * m), x, weight, b, r, ln_w,
                                               ln_b, m, n, k);
}

static void product_gelu_backward(struct world *w, int64_t m, int64_t n, int64_t k, int variant)
{
        (void)variant;
        void *dh = tensor(w, m * n), *dy = tensor(w, m * k), *weight = tensor(w, k * n);
        kernels_matmul_gelu_backward(&w->device, dh, dy, weight, tensor(w, m * n), m, n, k);
}

/* Three experts, of which one has no rows. */
static int32_t *three_ends(struct world *w, int64_t rows)
{
        int32_t *ends = tokens(w, 3, 1);
        ends[0] = ends[1] = (int32_t)(rows / 3);
        ends[2] = (int32_t)rows;
        return ends;
}

static void grouped_product(struct world *w, int64_t m, int64_t n, int64_t k, int variant)
{
        const struct grouped g = {.m = m,
                                  .n = n,
                                  .k = k,
                                  .lda = k,
                                  .ldb = variant ? k : n,
                                  .ldc = n,
                                  .each = n * k,
                                  .experts = 3,
                                  .transpose_b = variant};
        void *a = tensor(w, m * k), *b = tensor(w, 3 * k * n), *c = tensor(w, m * n);
        kernels_grouped_matmul(&w->device, &g, a, b, c, three_ends(w, m));
}

static void grouped_product_backward(struct world *w, int64_t m, int64_t n, int64_t k, int variant)
{
        const struct grouped g = {
                .m = m, .n = n, .k = k, .lda = m, .ldb = n, .ldc = n, .each = m * n, .experts = 3};
        (void)variant;
        void *a = tensor(w, k * m), *b = tensor(w, k * n), *c = tensor(w, 3 * m * n);
        kernels_grouped_matmul_backward(&w->device, &g, a, b, c, three_ends(w, k));
}

/* ---- comparison ---- */

/* Partial sums of `terms` numbers of either sign, below 1, are near sqrt(terms), and each is rounded; a
 * tensor of 16 bits may then be rounded to a neighbour, and with LayerNorm, whose statistics are of such
 * tensors, by a few more. */
static double bound(const struct world *w, const struct buffer *b, double value)
{
        const double unit = w->device.dtype == DTYPE_BF16 ? 0x1p-8 : 0x1p-11, spread = sqrt(w->terms);
        if (b->content == DOUBLE)
                return w->terms * DBL_EPSILON * (fabs(value) + 1);
        const double sums = (w->terms * spread + 4 * fabs(value) + 4) * ROUNDOFF;
        const bool of_halves = w->device.dtype && (b->content == TENSOR || w->terms > 1);
        return of_halves ? sums + 4 * unit * (fabs(value) + spread) : sums;
}

static void compare(const struct world *found, const struct world *expected, bool same_bits, const char *what)
{
        assert_int_equal(found->buffer_count, expected->buffer_count);
        for (int i = 0; i < found->buffer_count; i++) {
                const struct buffer *f = &found->buffers[i], *e = &expected->buffers[i];
                assert_int_equal(f->count, e->count);
                if (same_bits &&
                    memcmp(f->memory, e->memory, (size_t)f->count * element_bytes(found, f->content)) != 0) {
                        print_error("%s: buffer %d has other bits\n", what, i);
                        fail();
                }
                for (int64_t j = 0; !same_bits && j < f->count; j++) {
                        const double value = value_of(expected, e, j);
                        assert_within(value_of(found, f, j), value, bound(expected, e, value), what, j);
                }
        }
}

/* [0]: whole; else of so many threads. */
static struct world worlds[MAX_TEAM + 1];

static int open_worlds(enum dtype format)
{
        print_message("seed %llu, tensors of %s\n", (unsigned long long)seed, formats[format]);
        cpu_flush_subnormals();
        openblas_set_num_threads(1); /* as when a device is opened */
        for (int threads = 0; threads <= MAX_TEAM; threads++)
                open_world(&worlds[threads], threads, format);
        return 0;
}

static int open_reals(void **state)
{
        (void)state;
        return open_worlds(DTYPE_FP32);
}

static int open_fp16(void **state)
{
        (void)state;
        return open_worlds(DTYPE_FP16);
}

static int open_bf16(void **state)
{
        (void)state;
        return open_worlds(DTYPE_BF16);
}

static int close_worlds(void **state)
{
        (void)state;
        for (int threads = 0; threads <= MAX_TEAM; threads++)
                close_world(&worlds[threads]);
        return 0;
}

static void begin(struct world *w)
{
        free_buffers(w);
        w->random = seed;
        w->terms = 1;
}

static void check_parts(bool is_split, const char *what)
{
        if (is_split ? atomic_load(&parts) < 2 : atomic_load(&parts) != 1) {
                print_error("%s was run in %d parts\n", what, atomic_load(&parts));
                fail();
        }
}

/* Sums over rows of 16-bit tensors are rounded once, by one thread. */
enum split { NEVER, ALWAYS, IN_REALS };
enum formats { ANY_FORMAT, HALVES };

static const struct {
        const char *name;
        void (*run)(struct world *);
        enum split split;
        enum formats formats;
} kinds[] = {
        {"layernorm", layernorm, ALWAYS, ANY_FORMAT},
        {"layernorm_backward", layernorm_backward, IN_REALS, ANY_FORMAT},
        {"bias", bias, ALWAYS, ANY_FORMAT},
        {"bias_backward", bias_backward, IN_REALS, ANY_FORMAT},
        {"bias_gelu", bias_gelu, ALWAYS, ANY_FORMAT},
        {"gelu_backward", gelu_backward, ALWAYS, ANY_FORMAT},
        {"bias_residual", bias_residual, ALWAYS, ANY_FORMAT},
        {"residual", residual, ALWAYS, ANY_FORMAT},
        {"rmsnorm", rmsnorm, ALWAYS, ANY_FORMAT},
        {"rmsnorm_backward", rmsnorm_backward, IN_REALS, ANY_FORMAT},
        {"head_rmsnorm", head_rmsnorm, ALWAYS, ANY_FORMAT},
        {"head_rmsnorm_backward", head_rmsnorm_backward, IN_REALS, ANY_FORMAT},
        {"rope", rope, ALWAYS, ANY_FORMAT},
        {"split_columns", split_columns, ALWAYS, ANY_FORMAT},
        {"join_columns", join_columns, ALWAYS, ANY_FORMAT},
        {"narrow", narrow, ALWAYS, ANY_FORMAT},
        {"widen", widen, ALWAYS, ANY_FORMAT},
        {"latent_qkv", latent_qkv, ALWAYS, ANY_FORMAT},
        {"latent_qkv_backward", latent_qkv_backward, ALWAYS, ANY_FORMAT},
        {"swiglu", swiglu, ALWAYS, ANY_FORMAT},
        {"swiglu_backward", swiglu_backward, ALWAYS, ANY_FORMAT},
        {"squared_relu", squared_relu, ALWAYS, ANY_FORMAT},
        {"squared_relu_backward", squared_relu_backward, ALWAYS, ANY_FORMAT},
        {"route", route, NEVER, ANY_FORMAT},
        {"route_backward", route_backward, ALWAYS, ANY_FORMAT},
        {"permute", permute, ALWAYS, ANY_FORMAT},
        {"unpermute", unpermute, ALWAYS, ANY_FORMAT},
        {"expert_ends", expert_ends, NEVER, ANY_FORMAT},
        {"weighted_swiglu", weighted_swiglu, ALWAYS, ANY_FORMAT},
        {"weighted_swiglu_backward", weighted_swiglu_backward, ALWAYS, ANY_FORMAT},
        {"softmax", softmax, ALWAYS, ANY_FORMAT},
        {"softmax_backward", softmax_backward, ALWAYS, ANY_FORMAT},
        {"cross_entropy", cross_entropy, ALWAYS, ANY_FORMAT},
        {"cross_entropy_loss", cross_entropy_loss, ALWAYS, ANY_FORMAT},
        {"cross_entropy_numbers", cross_entropy_numbers, ALWAYS, ANY_FORMAT},
        {"cross_entropy_part", cross_entropy_part, ALWAYS, ANY_FORMAT},
        {"cross_entropy_of_numbers", cross_entropy_of_numbers, ALWAYS, ANY_FORMAT},
        {"embedding", embedding, NEVER, ANY_FORMAT},
        {"embedding_backward", embedding_backward, NEVER, ANY_FORMAT},
        {"attention", attention, ALWAYS, ANY_FORMAT},
        {"attention_backward", attention_backward, ALWAYS, ANY_FORMAT},
        {"context_attention", context_attention, ALWAYS, ANY_FORMAT},
        {"context_attention_backward", context_attention_backward, ALWAYS, ANY_FORMAT},
        {"last_columns", last_columns, ALWAYS, ANY_FORMAT},
        {"set_last_columns", set_last_columns, ALWAYS, ANY_FORMAT},
        {"grouped attention", grouped_attention, ALWAYS, ANY_FORMAT},
        {"grouped attention_backward", grouped_attention_backward, ALWAYS, ANY_FORMAT},
        {"squared_norm", squared_norm, ALWAYS, ANY_FORMAT},
        {"adamw", adamw, ALWAYS, ANY_FORMAT},
        {"clear", clear, ALWAYS, ANY_FORMAT},
        {"overflow", overflow, ALWAYS, HALVES},
        {"no overflow", no_overflow, ALWAYS, HALVES},
        {"unscale", unscale, ALWAYS, HALVES},
        {"a batch of 2 x 7", batch_of_both, ALWAYS, ANY_FORMAT},
        {"a batch of 11 x 1", batch_of_outer, ALWAYS, ANY_FORMAT},
        {"a batch of 1 x 5", batch_of_inner, ALWAYS, ANY_FORMAT},
};

static void threads_change_no_bit(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
                const bool mixed = worlds[0].device.dtype != DTYPE_FP32;
                if (!mixed && kinds[i].formats == HALVES)
                        continue;
                for (int threads = 0; threads <= MAX_TEAM; threads++) {
                        begin(&worlds[threads]);
                        kinds[i].run(&worlds[threads]);
                        if (threads > 0)
                                compare(&worlds[threads], &worlds[threads > 1], threads > 1, kinds[i].name);
                }
                check_parts(kinds[i].split == ALWAYS || (kinds[i].split == IN_REALS && !mixed),
                            kinds[i].name);
        }
}

static const struct {
        const char *name;
        void (*run)(struct world *, int64_t m, int64_t n, int64_t k, int variant);
        int variants;
} products[] = {
        {"matmul", product, 8},
        {"matmul_bias", product_bias, 1},
        {"matmul_bias_gelu", product_bias_gelu, 1},
        {"matmul_bias_residual", product_bias_residual, 1},
        {"matmul_bias_residual_layernorm", product_layernorm, 1},
        {"matmul_gelu_backward", product_gelu_backward, 1},
        {"grouped_matmul", grouped_product, 2},
        {"grouped_matmul_backward", grouped_product_backward, 1},
};

/* m, n, k: a row, fewer rows than threads, few columns; blocks of all sizes; longer than a tile of halves. */
static const int64_t sizes[][3] = {{1, 333, 512},  {2, 17, 4001},  {259, 17, 65},
                                   {17, 259, 65},  {48, 48, 128},  {100, 97, 83},
                                   {1200, 33, 17}, {33, 2400, 17}, {40, 40, 800}};

static void products_differ_by_rounding_alone(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof products / sizeof *products; i++)
                for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                        for (int variant = 0; variant < products[i].variants; variant++) {
                                const int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
                                const bool whole_rows = products[i].run == product_layernorm;
                                for (int threads = 0; threads <= MAX_TEAM; threads++) {
                                        struct world *w = &worlds[threads];
                                        begin(w);
                                        w->terms = (double)k;
                                        products[i].run(w, m, n, k, variant);
                                        if (threads > 0)
                                                compare(w, &worlds[0], false, products[i].name);
                                }
                                check_parts(!whole_rows || m > 16, products[i].name);
                        }
}

/* After the two above. */
static void no_kind_is_left_out(void **state)
{
        (void)state;
        for (int kind = 0; kind < KERNEL_KINDS; kind++) {
                const bool of_halves = kind == KERNEL_OVERFLOW || kind == KERNEL_UNSCALE;
                const bool of_the_network = kind == KERNEL_TENSOR_ALLREDUCE ||
                                            kind == KERNEL_TENSOR_ALL_GATHER ||
                                            kind == KERNEL_TENSOR_REDUCE_SCATTER || kind == KERNEL_ENTRIES;
                const bool nowhere = kernel_descriptor((enum kernel_kind)kind)->only_predicted;
                if (!of_the_network && !nowhere && (!of_halves || worlds[0].device.dtype))
                        assert_true(worlds[MAX_TEAM].kinds[kind]);
        }
}

/* models/gpt.c allows no wider one. Of a single key all weights are 1. */
static void the_widest_head_fits_the_scratch(void **state)
{
        enum { WIDEST = 131072 };
        struct world *w = &worlds[0];
        (void)state;
        begin(w);
        char *y = tensor(w, WIDEST), *qkv = tensor(w, 3 * WIDEST);
        void *dqkv = tensor(w, 3 * WIDEST), *dy = tensor(w, WIDEST);
        const size_t head = WIDEST * element_bytes(w, TENSOR);
        real *lse = reals(w, 1);
        kernels_attention(&w->device, y, lse, qkv, 1, 1, 1, 1, WIDEST, 1e-3);
        assert_memory_equal(y, qkv + 2 * head, head);
        kernels_attention_backward(&w->device, dqkv, reals(w, 1), dy, y, lse, qkv, 1, 1, 1, 1, WIDEST, 1e-3);
        assert_memory_equal((char *)dqkv + 2 * head, dy, head);
}

static void the_widest_groups_fit_the_scratch(void **state)
{
        enum { WIDEST = 131072 };
        struct world *w = &worlds[0];
        (void)state;
        for (int64_t heads = 2; heads < 256; heads = heads == 128 ? 255 : 2 * heads) {
                const int64_t hs = WIDEST / heads;
                begin(w);
                char *y = tensor(w, heads * hs), *qkv = tensor(w, (heads + 2) * hs);
                void *dqkv = tensor(w, (heads + 2) * hs), *dy = tensor(w, heads * hs);
                const size_t head = (size_t)hs * element_bytes(w, TENSOR);
                real *lse = reals(w, heads);
                kernels_attention(&w->device, y, lse, qkv, 1, 1, heads, 1, hs, 1e-3);
                for (size_t h = 0; h < (size_t)heads; h++)
                        assert_memory_equal(y + h * head, qkv + (size_t)(heads + 1) * head, head);
                kernels_attention_backward(&w->device, dqkv, reals(w, heads), dy, y, lse, qkv, 1, 1, heads, 1,
                                           hs, 1e-3);
        }
}

static void small_kernels_stay_whole(void **state)
{
        (void)state;
        struct world *w = &worlds[MAX_TEAM];
        begin(w);
        void *y = tensor(w, 4 * 4);
        kernels_bias(&w->device, y, tensor(w, 4), 4, 4);
        check_parts(false, "a small bias");
        product(w, 16, 16, 16, 0);
        check_parts(false, "a small product");
}

/* ---- the team alone ---- */

struct meeting {
        atomic_int present, together;
        int expected;
};

static void meet(void *context, int part, real *scratch)
{
        struct meeting *meeting = context;
        const time_t end = time(NULL) + 60;
        (void)part;
        scratch[0] = 1; /* a thread's own */
        atomic_fetch_add(&meeting->present, 1);
        while (atomic_load(&meeting->present) < meeting->expected && time(NULL) < end)
                sched_yield();
        if (atomic_load(&meeting->present) == meeting->expected)
                atomic_fetch_add(&meeting->together, 1);
}

static void as_many_parts_as_threads_run_side_by_side(void **state)
{
        (void)state;
        for (int threads = 1; threads <= MAX_TEAM; threads++) {
                struct meeting meeting = {.expected = threads};
                struct cpu_team *team = cpu_team_open(threads);
                assert_non_null(team);
                cpu_team_run(team, threads, meet, &meeting);
                assert_int_equal(atomic_load(&meeting.together), threads);
                cpu_team_close(team);
        }
}

enum { MAX_PARTS = 40 };

/* Not atomic: what a part wrote is there when the team is done, and no part is run twice. */
static void count_part(void *context, int part, real *scratch)
{
        (void)scratch;
        ((int *)context)[part]++;
}

/* In between the helpers are awake, or have gone to sleep. */
static void every_part_is_run_once(void **state)
{
        (void)state;
        uint64_t random = seed;
        struct cpu_team *team = cpu_team_open(MAX_TEAM);
        assert_non_null(team);
        for (int round = 0; round < 3000; round++) {
                int counts[MAX_PARTS] = {0};
                const int count = (int)random_below(&random, MAX_PARTS + 1);
                cpu_team_run(team, count, count_part, counts);
                for (int part = 0; part < MAX_PARTS; part++)
                        assert_int_equal(counts[part], part < count);
                if (round % 50 == 0)
                        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        }
        cpu_team_close(team);
}

#define OF_EACH_KIND                                                                                         \
        cmocka_unit_test(threads_change_no_bit), cmocka_unit_test(products_differ_by_rounding_alone),        \
                cmocka_unit_test(no_kind_is_left_out), cmocka_unit_test(the_widest_head_fits_the_scratch),   \
                cmocka_unit_test(the_widest_groups_fit_the_scratch),                                         \
                cmocka_unit_test(small_kernels_stay_whole)

int main(void)
{
        const struct CMUnitTest of_kinds[] = {OF_EACH_KIND};
        const struct CMUnitTest of_teams[] = {
                cmocka_unit_test(as_many_parts_as_threads_run_side_by_side),
                cmocka_unit_test(every_part_is_run_once),
        };
        return cmocka_run_group_tests(of_teams, NULL, NULL) +
               cmocka_run_group_tests(of_kinds, open_reals, close_worlds) +
               cmocka_run_group_tests(of_kinds, open_fp16, close_worlds) +
               cmocka_run_group_tests(of_kinds, open_bf16, close_worlds);
}
