/* The conformance of a device: every kernel on random data against the CPU device, whose kernels test_kernels
 * compares with double arithmetic, and what device.h promises of memory, lanes, tokens and groups. The device
 * is "cuda", or what RANVIER_TEST_DEVICE names; its plugin the emulated one beside this program, unless
 * RANVIER_DEVICE_CUDA names another. RANVIER_TEST_ATTENTION: as --attention; attention that is not fp32 then
 * fails if no kernel was the library's.
 *
 * Bounds count roundings as test_kernels does: u is one of fp32, h one of what tensors are stored as. Both
 * devices may be off by a bound, so twice that is allowed. Each kernel runs again, as a group, twice on a
 * GPU: the same bits each time, and not a byte changed beside the outputs, which begin as NaN. */
#include "runtime/base/fp16.h"
#include "tests/unit/launches.h"
#include "tests/unit/numbers.h"

#include <libgen.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum { ARENA_BYTES = 32 << 20, GUARD_BYTES = 256, MAX_OPERANDS = 9 };
static bool emulated;
/* How often every shape is taken, and how often a kernel runs once more, as a group: the second time aligned,
 * or asked for, in other ways. */
#define AGAIN (emulated ? 1 : 2)
static const double u = FLT_EPSILON / 2.0;
static uint64_t seed = 20241121;
#define NOT_COMPARED (-1.0)
#define FLUSHED      exp(-87)

struct side {
        struct device *device;
        unsigned char *arena, *image; /* device memory; what was copied from it last */
};

/* The device under test and the CPU. */
struct pair {
        struct side tested, cpu;
        unsigned char *image; /* what both arenas begin with */
        enum dtype dtype;
        double h, tiny; /* relative and absolute error of one stored element */
        uint64_t random;
};

enum type { TENSOR, REAL, DOUBLE, TOKENS };

struct operand {
        enum type type;
        int64_t count, at; /* elements; byte of the arena */
        double *values;    /* at first */
        double *bound;     /* NULL: must not be written. Else what may lie between an element and the exact
                              result, before it is stored */
};

struct test_case {
        char name[128];
        struct operand operands[MAX_OPERANDS];
        int count;
        void (*launch)(struct device *, void *p[MAX_OPERANDS], const struct test_case *);
        int64_t n[6]; /* shapes, as each test has them */
        bool flag;
        double scalar;
        const void *context;
};

/* ---- opening ---- */

static struct device *open_tested(struct rv_error_info *err)
{
        const char *name = getenv("RANVIER_TEST_DEVICE"), *attention = getenv("RANVIER_TEST_ATTENTION");
        struct device_request request = {.threads = 1, .local_ranks = 1};
        if (attention && device_parse_attention(&request.attention, "RANVIER_TEST_ATTENTION", attention, err))
                return NULL;
        return device_open(name ? name : "cuda", &request, err);
}

static int open_side(struct side *side, struct device *device, enum dtype dtype)
{
        side->device = device;
        device->dtype = dtype;
        const int64_t bytes[MEMORY_SPACES] = {
                [MEMORY_DEVICE] = ARENA_BYTES, [MEMORY_HOST] = MEMORY_ALIGNMENT};
        struct rv_error_info err = {0};
        if (device->ops->reserve && device->ops->reserve(device, bytes, &err)) {
                print_error("%s\n", err.sentence);
                return -1;
        }
        side->arena = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WEIGHTS, ARENA_BYTES);
        side->image = malloc(ARENA_BYTES);
        return side->arena && side->image ? 0 : -1;
}

static int open_pair(void **state, enum dtype dtype)
{
        static const char *const formats[] = {"fp32", "fp16", "bf16"};
        struct rv_error_info err = {0};
        struct pair *pair = calloc(1, sizeof *pair);
        struct device *tested = open_tested(&err), *cpu = device_cpu_open(1, &err);
        if (!pair || !tested || !cpu || open_side(&pair->tested, tested, dtype) ||
            open_side(&pair->cpu, cpu, dtype)) {
                print_error("%s\n", err.sentence);
                return -1;
        }
        print_message("%s, %s, seed %llu\n", tested->description.name, formats[dtype],
                      (unsigned long long)seed);
        pair->image = malloc(ARENA_BYTES);
        pair->dtype = dtype;
        pair->h = dtype == DTYPE_FP16 ? 0x1p-11 : dtype == DTYPE_BF16 ? 0x1p-8 : u;
        pair->tiny = dtype == DTYPE_FP16 ? 0x1p-25 : dtype == DTYPE_BF16 ? 0x1p-126 : 0x1p-126;
        pair->random = seed;
        *state = pair;
        return pair->image ? 0 : -1;
}

static int open_fp32(void **state)
{
        return open_pair(state, DTYPE_FP32);
}

static int open_fp16(void **state)
{
        return open_pair(state, DTYPE_FP16);
}

static int open_bf16(void **state)
{
        return open_pair(state, DTYPE_BF16);
}

static int close_pair(void **state)
{
        struct pair *pair = *state;
        pair->tested.device->ops->close(pair->tested.device);
        pair->cpu.device->ops->close(pair->cpu.device);
        free(pair->tested.image);
        free(pair->cpu.image);
        free(pair->image);
        free(pair);
        return 0;
}

/* ---- elements ---- */

static int64_t element_bytes(const struct pair *pair, enum type type)
{
        return type == DOUBLE ? 8 : type == TENSOR && pair->dtype != DTYPE_FP32 ? 2 : 4;
}

static void write_element(const struct pair *pair, enum type type, unsigned char *at, double value)
{
        const float real_value = (float)value;
        const int32_t token = type == TOKENS ? (int32_t)value : 0;
        const uint16_t bits =
                pair->dtype == DTYPE_BF16 ? bf16_from_float(real_value) : fp16_from_float(real_value);
        if (type == DOUBLE)
                memcpy(at, &value, sizeof value);
        else if (type == TOKENS)
                memcpy(at, &token, sizeof token);
        else if (type == TENSOR && pair->dtype != DTYPE_FP32)
                memcpy(at, &bits, sizeof bits);
        else
                memcpy(at, &real_value, sizeof real_value);
}

static double read_element(const struct pair *pair, enum type type, const unsigned char *at)
{
        double value;
        float real_value;
        int32_t token;
        uint16_t bits;
        switch (type) {
        case DOUBLE:
                memcpy(&value, at, sizeof value);
                return value;
        case TOKENS:
                memcpy(&token, at, sizeof token);
                return token;
        default:
                if (type == TENSOR && pair->dtype != DTYPE_FP32) {
                        memcpy(&bits, at, sizeof bits);
                        return (double)(pair->dtype == DTYPE_BF16 ? bf16_to_float(bits)
                                                                  : fp16_to_float(bits));
                }
                memcpy(&real_value, at, sizeof real_value);
                return (double)real_value;
        }
}

/* ---- operands ---- */

static double *new_doubles(int64_t count)
{
        double *x = calloc((size_t)(count > 0 ? count : 1), sizeof *x);
        assert_non_null(x);
        return x;
}

/* One more operand of `count` elements, each rounded to what it is stored as. */
static double *add(const struct pair *pair, struct test_case *c, enum type type, int64_t count,
                   double *values)
{
        assert_true(c->count < MAX_OPERANDS);
        for (int64_t i = 0; i < count; i++) {
                unsigned char element[8];
                write_element(pair, type, element, values[i]);
                values[i] = read_element(pair, type, element);
        }
        c->operands[c->count++] = (struct operand){.type = type, .count = count, .values = values};
        return values;
}

static double *add_random(struct pair *pair, struct test_case *c, enum type type, int64_t count, double size)
{
        double *values = new_doubles(count);
        for (int64_t i = 0; i < count; i++)
                values[i] = size * random_number(&pair->random);
        return add(pair, c, type, count, values);
}

static double *add_tokens(struct pair *pair, struct test_case *c, int64_t count, int64_t end)
{
        double *values = new_doubles(count);
        for (int64_t i = 0; i < count; i++)
                values[i] = (double)random_below(&pair->random, end);
        return add(pair, c, TOKENS, count, values);
}

/* Outputs begin as NaN; tokens cannot. Returns the bounds, to fill. */
static double *add_output(const struct pair *pair, struct test_case *c, enum type type, int64_t count)
{
        double *values = new_doubles(count);
        for (int64_t i = 0; i < count; i++)
                values[i] = NAN;
        add(pair, c, type, count, values);
        return c->operands[c->count - 1].bound = new_doubles(count);
}

/* The operand added last is written too. */
static double *written(struct test_case *c)
{
        struct operand *last = &c->operands[c->count - 1];
        return last->bound = new_doubles(last->count);
}

/* ---- running ---- */

/* Where operands lie: between guards, and some not at a multiple of anything but their elements, as
 * parameters in a flat buffer. */
static void place(struct pair *pair, struct test_case *c)
{
        int64_t at = GUARD_BYTES;
        memset(pair->image, 0xa5, GUARD_BYTES);
        for (int i = 0; i < c->count; i++) {
                struct operand *o = &c->operands[i];
                const int64_t element = element_bytes(pair, o->type), end = o->count * element;
                const int64_t aside =
                        random_below(&pair->random, 3) ? 0 : random_below(&pair->random, 16) * element;
                o->at = at + aside;
                const int64_t next = (o->at + end + 2 * GUARD_BYTES) / GUARD_BYTES * GUARD_BYTES;
                assert_true(next <= ARENA_BYTES);
                memset(pair->image + at, 0xa5, (size_t)(next - at));
                for (int64_t k = 0; k < o->count; k++)
                        write_element(pair, o->type, pair->image + o->at + k * element, o->values[k]);
                at = next;
        }
        c->n[5] = at; /* bytes of all */
}

static void run(const struct pair *pair, struct side *side, const struct test_case *c, bool group)
{
        struct device *device = side->device;
        void *p[MAX_OPERANDS];
        for (int i = 0; i < c->count; i++)
                p[i] = side->arena + c->operands[i].at;
        device->ops->copy(device, DEVICE_HOST_TO_DEVICE, side->arena, pair->image, c->n[5]);
        device->ops->synchronize(device);
        if (group && device->ops->begin_group)
                device->ops->begin_group(device);
        c->launch(device, p, c);
        if (group && device->ops->end_group)
                device->ops->end_group(device);
        device->ops->synchronize(device);
        device->ops->copy(device, DEVICE_DEVICE_TO_HOST, side->image, side->arena, c->n[5]);
        device->ops->synchronize(device);
}

static const struct operand *operand_at(const struct pair *pair, const struct test_case *c, int64_t byte)
{
        for (int i = 0; i < c->count; i++) {
                const struct operand *o = &c->operands[i];
                if (byte >= o->at && byte < o->at + o->count * element_bytes(pair, o->type))
                        return o;
        }
        return NULL;
}

static void check_nothing_else_is_written(const struct pair *pair, const struct test_case *c)
{
        for (int64_t byte = 0; byte < c->n[5]; byte++) {
                if (pair->tested.image[byte] == pair->image[byte])
                        continue;
                const struct operand *o = operand_at(pair, c, byte);
                if (o && o->bound)
                        continue;
                print_error("%s: byte %lld, %s, was written\n", c->name, (long long)byte,
                            o ? "of an input" : "between operands");
                fail();
        }
}

static void check_outputs(const struct pair *pair, const struct test_case *c)
{
        for (int i = 0; i < c->count; i++) {
                const struct operand *o = &c->operands[i];
                const int64_t element = element_bytes(pair, o->type);
                const double h = o->type == TENSOR ? pair->h : o->type == REAL ? u : DBL_EPSILON;
                const double tiny = o->type == TENSOR ? pair->tiny : 0x1p-126;
                for (int64_t k = 0; o->bound && k < o->count; k++) {
                        const double found =
                                read_element(pair, o->type, pair->tested.image + o->at + k * element);
                        const double expected =
                                read_element(pair, o->type, pair->cpu.image + o->at + k * element);
                        const double bound = 2 * (o->bound[k] + h * (fabs(expected) + o->bound[k]) + tiny);
                        if (o->bound[k] == NOT_COMPARED || fabs(found - expected) <= bound)
                                continue;
                        print_error("%s: operand %d, element %lld is %.9g, not %.9g: %.3g apart, at most "
                                    "%.3g allowed\n",
                                    c->name, i, (long long)k, found, expected, fabs(found - expected), bound);
                        fail();
                }
        }
}

/* Runs the case on both devices, compares, frees it. */
static void conforms(struct pair *pair, struct test_case *c)
{
        unsigned char *first = pair->cpu.image; /* until the CPU runs */
        place(pair, c);
        run(pair, &pair->tested, c, false);
        memcpy(first, pair->tested.image, (size_t)c->n[5]);
        for (int again = AGAIN; again > 0; again--) {
                run(pair, &pair->tested, c, true);
                if (memcmp(first, pair->tested.image, (size_t)c->n[5]) != 0) {
                        print_error("%s: other bits when it ran again, in a group\n", c->name);
                        fail();
                }
        }
        run(pair, &pair->cpu, c, false);
        check_nothing_else_is_written(pair, c);
        check_outputs(pair, c);
        for (int i = 0; i < c->count; i++) {
                free(c->operands[i].values);
                free(c->operands[i].bound);
        }
}

#define NAME(c, ...) snprintf((c)->name, sizeof(c)->name, __VA_ARGS__)
#define LL(x)        ((long long)(x))

struct shape {
        int64_t m, n;
};
static const struct shape shapes[] = {{1, 1},     {1, 7},   {7, 1},    {3, 17},   {5, 16},   {33, 8},
                                      {4, 33},    {8, 64},  {13, 97},  {31, 101}, {6, 256},  {2, 513},
                                      {131, 513}, {3, 768}, {257, 40}, {5, 1600}, {2, 4099}, {1, 16392}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* An emulated device takes long, and has so few processors that these rows are more than enough for all. */
static struct shape shape_of(int nth)
{
        enum { EMULATED_ROWS = 40 };
        struct shape shape = shapes[nth];
        if (emulated && shape.m > EMULATED_ROWS)
                shape.m = EMULATED_ROWS + shape.m % 4;
        return shape;
}

/* ---- products ---- */

static void launch_matmul(struct device *device, void *p[], const struct test_case *c)
{
        kernels_matmul(device, c->context, p[0], p[1], p[2]);
}

/* What is added to a product in 16 bits may be added to a partial sum that a device has rounded to 16 bits
 * already, as cuBLASLt's kernels do on an H200: to the product, or to the product and one of the two that
 * follow. Returns what that rounding may be off by. */
static double rounded_partial(const struct pair *pair, double product, double one, double other)
{
        const double partial = fmax(fabs(product), fmax(fabs(product + one), fabs(product + other)));
        return pair->dtype != DTYPE_FP32 ? pair->h * partial : 0;
}

/* One product of the batch: its elements' bounds. `halves`: what it is added to is stored in 16 bits. */
static void bound_product(const struct pair *halves, const struct matmul *mm, const double *a,
                          const double *b, const double *before, double *bound)
{
        for (int64_t i = 0; i < mm->m; i++)
                for (int64_t j = 0; j < mm->n; j++) {
                        double sum = 0, size = mm->accumulate ? fabs(before[i * mm->ldc + j]) : 0;
                        for (int64_t k = 0; k < mm->k; k++) {
                                const double term =
                                        (mm->transpose_a ? a[k * mm->lda + i] : a[i * mm->lda + k]) *
                                        (mm->transpose_b ? b[j * mm->ldb + k] : b[k * mm->ldb + j]);
                                sum += term;
                                size += fabs(term);
                        }
                        bound[i * mm->ldc + j] = (double)(mm->k + 4) * u * size;
                        if (mm->accumulate && halves)
                                bound[i * mm->ldc + j] += rounded_partial(halves, sum, 0, 0);
                }
}

static void check_matmul(struct pair *pair, int variant, const int64_t size[3], int64_t outer, int64_t inner)
{
        const int64_t gap = outer * inner > 1 ? 1 + variant % 3 : 0;
        struct matmul mm = {.m = size[0],
                            .n = size[1],
                            .k = size[2],
                            .transpose_a = variant & 1,
                            .transpose_b = variant & 2,
                            .accumulate = variant & 4,
                            .outer = outer,
                            .inner = inner};
        mm.lda = (mm.transpose_a ? mm.m : mm.k) + gap;
        mm.ldb = (mm.transpose_b ? mm.k : mm.n) + gap;
        mm.ldc = mm.n + gap;
        const int64_t a_each = (mm.transpose_a ? mm.k : mm.m) * mm.lda,
                      b_each = (mm.transpose_b ? mm.n : mm.k) * mm.ldb, c_each = mm.m * mm.ldc;
        for (int i = 0; i < 2; i++) {
                mm.stride_a[i] = i == 0 ? inner * a_each : a_each;
                mm.stride_b[i] = i == 0 ? b_each : outer * b_each; /* the outer one varies faster here */
                mm.stride_c[i] = i == 0 ? inner * c_each : c_each;
        }
        const int64_t batch = outer * inner;
        struct test_case c = {.launch = launch_matmul, .context = &mm};
        NAME(&c, "matmul m %lld n %lld k %lld, variant %d, batch %lld x %lld", LL(mm.m), LL(mm.n), LL(mm.k),
             variant, LL(outer), LL(inner));
        const double *a = add_random(pair, &c, TENSOR, batch * a_each, 1);
        const double *b = add_random(pair, &c, TENSOR, batch * b_each, 1);
        const double *before = add_random(pair, &c, TENSOR, batch * c_each, 1);
        double *bound = written(&c);
        for (int64_t i = 0; i < batch; i++)
                bound_product(pair, &mm, a + i * a_each, b + i / inner * b_each + i % inner * outer * b_each,
                              before + i * c_each, bound + i * c_each);
        if (!mm.accumulate)
                for (int64_t i = 0; i < batch * c_each; i++)
                        if (i % c_each % mm.ldc < mm.n)
                                c.operands[2].values[i] = NAN;
        conforms(pair, &c);
}

static void products_conform(void **state)
{
        static const int64_t sizes[][3] = {{1, 1, 1},    {1, 5, 3},    {7, 1, 2},    {3, 4, 1},
                                           {13, 11, 17}, {32, 8, 33},  {64, 96, 32}, {65, 24, 127},
                                           {2, 770, 3},  {1, 3, 1600}, {200, 64, 64}};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int variant = 0; variant < 8; variant++) {
                        check_matmul(*state, variant, sizes[s], 1, 1);
                        check_matmul(*state, variant, sizes[s], 2, 3);
                        check_matmul(*state, variant, sizes[s], 1, 4);
                }
}

static double gelu_argument(double x)
{
        return 2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
}

/* What GELU itself adds to the error of its argument: see test_kernels; exponentials of what is stored in
 * 16 bits may be approximate. */
static double gelu_bound(const struct pair *pair, double x)
{
        const double v = fabs(gelu_argument(x)), slow = x < 0 ? v : v * exp(-v);
        return (pair->dtype != DTYPE_FP32 ? 4 : 1) * (5 * slow + 8) * u * fabs(x) / (x < 0 ? 1 + exp(v) : 1) +
               1e-33;
}

static void launch_fused(struct device *device, void *p[], const struct test_case *c)
{
        const int64_t m = c->n[0], n = c->n[1], k = c->n[2];
        switch (c->n[3]) {
        case KERNEL_MATMUL_BIAS:
                kernels_matmul_bias(device, p[0], p[1], p[2], p[3], m, n, k);
                break;
        case KERNEL_MATMUL_BIAS_GELU:
                kernels_matmul_bias_gelu(device, p[0], p[4], p[1], p[2], p[3], m, n, k);
                break;
        case KERNEL_MATMUL_BIAS_RESIDUAL:
                kernels_matmul_bias_residual(device, p[0], p[1], p[2], p[3], p[4], m, n, k);
                break;
        default:
                kernels_matmul_gelu_backward(device, p[0], p[1], p[2], p[3], m, n, k);
        }
}

/* x w^T (w (n,k)) or x w (w (k,n)): the sum, and the sum of the sizes of its terms. */
static double product_sum(const double *x, const double *w, const struct test_case *c, int64_t i,
                          bool transposed, double *size)
{
        const int64_t n = c->n[1], k = c->n[2], row = i / n, column = i % n;
        double sum = 0;
        *size = 0;
        for (int64_t l = 0; l < k; l++) {
                const double term = x[row * k + l] * (transposed ? w[column * k + l] : w[l * n + column]);
                sum += term;
                *size += fabs(term);
        }
        return sum;
}

/* A derivative of GELU that a library fuses may be from tanh.approx, whose relative error is 2^-11, where its
 * output is stored in 16 bits; that error is multiplied by some 8 around |h| = 4. */
static double fused_tanh(const struct pair *pair)
{
        return pair->dtype != DTYPE_FP32 ? 8 * ldexp(1, -11) : 0;
}

static void check_fused(struct pair *pair, enum kernel_kind kind, int64_t m, int64_t n, int64_t k)
{
        struct test_case c = {.launch = launch_fused, .n = {m, n, k, kind}};
        NAME(&c, "%s m %lld n %lld k %lld", kernel_name(kind), LL(m), LL(n), LL(k));
        const bool backward = kind == KERNEL_MATMUL_GELU_BACKWARD;
        double *bound = add_output(pair, &c, TENSOR, m * n), *h_bound = NULL, size;
        const double *x = add_random(pair, &c, TENSOR, m * k, 1);
        const double *w = add_random(pair, &c, TENSOR, n * k, 1);
        const double *b = add_random(pair, &c, TENSOR, backward ? m * n : n, backward ? 4 : 1), *r = NULL;
        if (kind == KERNEL_MATMUL_BIAS_GELU)
                h_bound = add_output(pair, &c, TENSOR, m * n);
        if (kind == KERNEL_MATMUL_BIAS_RESIDUAL)
                r = add_random(pair, &c, TENSOR, m * n, 1);
        for (int64_t i = 0; i < m * n; i++) {
                const double sum = product_sum(x, w, &c, i, !backward, &size);
                if (backward) {
                        bound[i] = 1.2 * ((double)(k + 4) * u * size + rounded_partial(pair, sum, 0, 0)) +
                                   (60 * u + fused_tanh(pair)) * fabs(sum);
                        continue;
                }
                size += fabs(b[i % n]) + (r ? fabs(r[i]) : 0);
                bound[i] = (double)(k + 6) * u * size +
                           rounded_partial(pair, sum, r ? b[i % n] : 0, r ? r[i] : 0);
                if (h_bound) {
                        const double h = sum + b[i % n];
                        h_bound[i] = bound[i];
                        bound[i] = 1.2 * (bound[i] + pair->h * fabs(h)) + gelu_bound(pair, h);
                }
        }
        conforms(pair, &c);
}

static void fused_products_conform(void **state)
{
        static const int64_t sizes[][3] = {{1, 1, 1},    {1, 8, 3},   {7, 1, 2},     {3, 4, 1},
                                           {13, 11, 17}, {32, 8, 33}, {64, 96, 32},  {5, 64, 16},
                                           {2, 768, 3},  {9, 24, 65}, {100, 128, 96}};
        static const enum kernel_kind kinds[] = {KERNEL_MATMUL_BIAS, KERNEL_MATMUL_BIAS_GELU,
                                                 KERNEL_MATMUL_BIAS_RESIDUAL, KERNEL_MATMUL_GELU_BACKWARD};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int kind = 0; kind < 4; kind++)
                        for (int again = 0; again < AGAIN; again++) /* aligned in other ways */
                                check_fused(*state, kinds[kind], sizes[s][0], sizes[s][1], sizes[s][2]);
}

/* ---- embedding ---- */

static void launch_embedding(struct device *device, void *p[], const struct test_case *c)
{
        kernels_embedding_part(device, p[0], p[1], p[2], c->n[3] ? p[3] : NULL, c->n[0], c->n[1], c->n[2],
                               c->context);
}

static void launch_embedding_backward(struct device *device, void *p[], const struct test_case *c)
{
        kernels_embedding_part_backward(device, p[0], c->n[3] ? p[1] : NULL, p[2], p[3], c->n[0], c->n[1],
                                        c->n[2], c->context);
}

static void check_embedding(struct pair *pair, int64_t B, int64_t T, int64_t C, int64_t V, bool positions,
                            struct table_part part)
{
        const int64_t moved = part.moved[1];
        struct test_case c = {.launch = launch_embedding, .n = {B, T, C, positions}, .context = &part};
        NAME(&c, "embedding B %lld T %lld C %lld V %lld positions %d, rows %lld from %lld", LL(B), LL(T),
             LL(C), LL(V), positions, LL(part.rows), LL(part.first));
        add_output(pair, &c, TENSOR, B * T * C); /* one sum, rounded as it is stored */
        add_tokens(pair, &c, B * T, V);
        add_random(pair, &c, TENSOR, V * C, 1);
        add_random(pair, &c, TENSOR, (T + moved) * C, 1);
        conforms(pair, &c);

        struct test_case d = {
                .launch = launch_embedding_backward, .n = {B, T, C, positions}, .context = &part};
        NAME(&d, "embedding_backward B %lld T %lld C %lld V %lld positions %d, rows %lld from %lld", LL(B),
             LL(T), LL(C), LL(V), positions, LL(part.rows), LL(part.first));
        const double *dwte = add_random(pair, &d, TENSOR, V * C, 1);
        double *wte_size = written(&d), *wte_terms = new_doubles(V);
        const double *dwpe = add_random(pair, &d, TENSOR, (T + moved) * C, 1);
        double *wpe_size = written(&d);
        const double *dx = add_random(pair, &d, TENSOR, B * T * C, 1);
        const double *tokens = add_tokens(pair, &d, B * T, V);
        for (int64_t i = 0; i < V * C; i++)
                wte_size[i] = fabs(dwte[i]);
        for (int64_t i = 0; i < (T + moved) * C; i++)
                wpe_size[i] = fabs(dwpe[i]);
        for (int64_t i = 0; i < B * T * C; i++) {
                const int64_t row = (int64_t)tokens[i / C] - part.first;
                if (row >= 0 && row < (part.rows ? part.rows : V)) {
                        wte_terms[row] += i % C == 0;
                        wte_size[row * C + i % C] += fabs(dx[i]);
                }
                const int64_t t = i / C % T;
                wpe_size[(t + part.moved[t >= T / 2]) * C + i % C] += fabs(dx[i]);
        }
        for (int64_t i = 0; i < V * C; i++) /* each term may be stored */
                wte_size[i] *= wte_terms[i / C] * pair->h;
        for (int64_t i = 0; i < (T + moved) * C; i++)
                wpe_size[i] *= (double)B * pair->h;
        free(wte_terms);
        conforms(pair, &d);
}

static void embeddings_conform(void **state)
{
        static const int64_t sizes[][4] = {
                {1, 1, 1, 1},     {2, 5, 7, 6},    {3, 1, 16, 2},     {2, 9, 33, 3},  {1, 3, 513, 5},
                {2, 70, 64, 300}, {4, 200, 24, 1}, {1, 33, 1600, 40}, {3, 90, 40, 4}, {2, 130, 33, 3}};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int again = 0; again < 4; again++) {
                        const int64_t V = sizes[s][3];
                        const struct table_part part = {.first = again < 3 ? 0 : V / 3,
                                                        .rows = again < 3 ? 0 : (V + 1) / 2,
                                                        .moved = {again == 1 ? 2 : 0, again == 1 ? 5 : 0}};
                        check_embedding(*state, sizes[s][0], sizes[s][1], sizes[s][2], V, again % 3 != 2,
                                        part);
                }
}

/* ---- LayerNorm ---- */

struct row {
        double mean, rstd, max;
};
static struct row row_of(const double *x, int64_t C)
{
        double mean = 0, variance = 0, max = 0;
        for (int64_t c = 0; c < C; c++) {
                mean += x[c] / (double)C;
                max = fmax(max, fabs(x[c]));
        }
        for (int64_t c = 0; c < C; c++)
                variance += (x[c] - mean) * (x[c] - mean) / (double)C;
        return (struct row){mean, 1 / sqrt(variance + 1e-5), max};
}

static void launch_layernorm(struct device *device, void *p[], const struct test_case *c)
{
        kernels_layernorm(device, p[0], p[1], p[2], p[3], p[4], c->flag, c->n[0], c->n[1]);
}

/* Bounds of LayerNorm of row n, whose elements may be `off` by so much: by twice that from their mean, and
 * rstd by as much of itself. */
static void bound_normalised_row(const double *x, const double *w, const double *b, double added, int64_t n,
                                 int64_t N, int64_t C, double off, double *y, double *stats)
{
        const struct row r = row_of(x, C);
        const double terms = (double)(2 * C + 8) * u * (1 + r.rstd * r.max), moved = 2 * off * r.rstd,
                     more = 1 + 2 * moved;
        stats[n] = (double)(C + 1) * u * r.max + off;
        stats[N + n] = r.rstd * (terms + moved * more);
        for (int64_t i = 0; i < C; i++) {
                const double h = fabs(x[i] - r.mean) * r.rstd;
                y[i] = fabs(w[i] + added) * (h + 1) * (terms + moved * more) +
                       (double)(2 * C + 8) * u * fabs(b[i]);
        }
}

static void check_layernorm(struct pair *pair, int64_t N, int64_t C, bool added)
{
        struct test_case c = {.launch = launch_layernorm, .n = {N, C}, .flag = added};
        NAME(&c, "layernorm N %lld C %lld%s", LL(N), LL(C), added ? ", of weights and 1" : "");
        double *y = add_output(pair, &c, TENSOR, N * C), *stats = add_output(pair, &c, REAL, 2 * N);
        const double *x = add_random(pair, &c, TENSOR, N * C, 2), *w = add_random(pair, &c, TENSOR, C, 1),
                     *b = add_random(pair, &c, TENSOR, C, 1);
        for (int64_t n = 0; n < N; n++)
                bound_normalised_row(x + n * C, w, b, added, n, N, C, 0, y + n * C, stats);
        conforms(pair, &c);
}

static void launch_residual_layernorm(struct device *device, void *p[], const struct test_case *c)
{
        kernels_matmul_bias_residual_layernorm(device, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8],
                                               c->n[0], c->n[1], c->n[2]);
}

/* What is normalised is what was stored, which two devices may round to neighbours. */
static void check_residual_layernorm(struct pair *pair, int64_t m, int64_t n, int64_t k)
{
        struct test_case c = {.launch = launch_residual_layernorm, .n = {m, n, k}};
        NAME(&c, "matmul_bias_residual_layernorm m %lld n %lld k %lld", LL(m), LL(n), LL(k));
        double *bound = add_output(pair, &c, TENSOR, m * n), *ln = add_output(pair, &c, TENSOR, m * n),
               *stats = add_output(pair, &c, REAL, 2 * m), *y = new_doubles(m * n);
        const double *x = add_random(pair, &c, TENSOR, m * k, 1), *w = add_random(pair, &c, TENSOR, n * k, 1),
                     *b = add_random(pair, &c, TENSOR, n, 1), *r = add_random(pair, &c, TENSOR, m * n, 1);
        const double *ln_w = add_random(pair, &c, TENSOR, n, 1), *ln_b = add_random(pair, &c, TENSOR, n, 1);
        for (int64_t row = 0; row < m; row++) {
                double off = 0, size;
                for (int64_t i = row * n; i < (row + 1) * n; i++) {
                        const double sum = product_sum(x, w, &c, i, true, &size);
                        size += fabs(b[i % n]) + fabs(r[i]);
                        y[i] = sum + b[i % n] + r[i];
                        bound[i] = (double)(k + 6) * u * size + rounded_partial(pair, sum, b[i % n], r[i]);
                        off = fmax(off, bound[i] + pair->h * (fabs(y[i]) + bound[i]) + pair->tiny);
                }
                bound_normalised_row(y + row * n, ln_w, ln_b, 0, row, m, n, off, ln + row * n, stats);
        }
        free(y);
        conforms(pair, &c);
}

static void products_with_layernorm_conform(void **state)
{
        static const int64_t sizes[][3] = {{1, 1, 1},  {1, 8, 3},    {7, 1, 2},   {13, 11, 17}, {32, 8, 33},
                                           {5, 64, 5}, {64, 96, 32}, {2, 768, 3}, {9, 1600, 4}};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int again = 0; again < AGAIN; again++)
                        check_residual_layernorm(*state, sizes[s][0], sizes[s][1], sizes[s][2]);
}

static void launch_layernorm_backward(struct device *device, void *p[], const struct test_case *c)
{
        kernels_layernorm_backward(device, p[0], p[1], p[2], p[3], p[4], p[5], p[6], (double)c->n[2], c->n[0],
                                   c->n[1], c->flag);
}

/* Bounds of one row's dx, and what it adds to the sizes of dw and db. */
static void bound_layernorm_row(const double *dy, const double *x, const double *w, double added,
                                const double *before, int64_t C, double mean, double rstd, double *dx,
                                double *dw, double *db)
{
        double g_size = 0, gh_size = 0;
        for (int64_t i = 0; i < C; i++) {
                const double g = fabs(dy[i] * (w[i] + added)), h = fabs((x[i] - mean) * rstd);
                g_size += g / (double)C;
                gh_size += g * h / (double)C;
                dw[i] += fabs(dy[i]) * (h + fabs(mean) * rstd);
                db[i] += fabs(dy[i]);
        }
        for (int64_t i = 0; i < C; i++) {
                const double g = fabs(dy[i] * (w[i] + added)),
                             h = fabs((x[i] - mean) * rstd) + fabs(mean) * rstd;
                const double size = rstd * (g + g_size + (h + 1) * gh_size + h * g_size);
                dx[i] = (double)(C + 8) * u * (size + (before ? fabs(before[i]) : 0));
        }
}

static void check_layernorm_backward(struct pair *pair, int64_t N, int64_t C, bool accumulate, bool added)
{
        struct test_case c = {.launch = launch_layernorm_backward, .n = {N, C, added}, .flag = accumulate};
        NAME(&c, "layernorm_backward N %lld C %lld%s%s", LL(N), LL(C), accumulate ? ", added" : "",
             added ? ", of weights and 1" : "");
        double *before = NULL, *dx;
        if (accumulate) {
                before = add_random(pair, &c, TENSOR, N * C, 1);
                dx = written(&c);
        } else {
                dx = add_output(pair, &c, TENSOR, N * C);
        }
        const double *dw0 = add_random(pair, &c, TENSOR, C, 1);
        double *dw = written(&c);
        const double *db0 = add_random(pair, &c, TENSOR, C, 1);
        double *db = written(&c);
        const double *dy = add_random(pair, &c, TENSOR, N * C, 1),
                     *x = add_random(pair, &c, TENSOR, N * C, 2);
        double *stats = new_doubles(2 * N);
        for (int64_t n = 0; n < N; n++) {
                const struct row r = row_of(x + n * C, C);
                stats[n] = r.mean;
                stats[N + n] = r.rstd;
        }
        add(pair, &c, REAL, 2 * N, stats);
        const double *w = add_random(pair, &c, TENSOR, C, 1);
        for (int64_t i = 0; i < C; i++) {
                dw[i] = fabs(dw0[i]);
                db[i] = fabs(db0[i]);
        }
        for (int64_t n = 0; n < N; n++)
                bound_layernorm_row(dy + n * C, x + n * C, w, added, before ? before + n * C : NULL, C,
                                    stats[n], stats[N + n], dx + n * C, dw, db);
        for (int64_t i = 0; i < C; i++) {
                dw[i] *= (double)(N + 4) * u;
                db[i] *= (double)(N + 1) * u;
        }
        conforms(pair, &c);
}

static void layernorms_conform(void **state)
{
        for (int s = 0; s < SHAPES; s++)
                for (int more = 0; more < 2; more++) {
                        check_layernorm(*state, shape_of(s).m, shape_of(s).n, more);
                        for (int accumulates = 0; accumulates < 2; accumulates++)
                                if (AGAIN > 1 || accumulates == (s + more) % 2)
                                        check_layernorm_backward(*state, shape_of(s).m, shape_of(s).n,
                                                                 accumulates, more);
                }
}

/* ---- RMSNorm ---- */

static const double rms_epsilon = 1e-6;

static double rms_rstd(const double *x, int64_t C)
{
        double squares = 0;
        for (int64_t i = 0; i < C; i++)
                squares += x[i] * x[i];
        return 1 / sqrt(squares / (double)C + rms_epsilon);
}

static void launch_rmsnorm(struct device *device, void *p[], const struct test_case *c)
{
        kernels_rmsnorm(device, p[0], p[1], p[2], p[3], c->n[0], c->n[1], rms_epsilon);
}

static void launch_rmsnorm_backward(struct device *device, void *p[], const struct test_case *c)
{
        kernels_rmsnorm_backward(device, p[0], p[1], p[2], p[3], p[4], p[5], c->n[0], c->n[1], c->flag);
}

static void check_rmsnorm(struct pair *pair, int64_t N, int64_t C)
{
        struct test_case c = {.launch = launch_rmsnorm, .n = {N, C}};
        NAME(&c, "rmsnorm N %lld C %lld", LL(N), LL(C));
        double *y = add_output(pair, &c, TENSOR, N * C), *rstd = add_output(pair, &c, REAL, N);
        const double *x = add_random(pair, &c, TENSOR, N * C, 2), *w = add_random(pair, &c, TENSOR, C, 1);
        const double relative = (0.5 * (double)C + 6) * u;
        for (int64_t n = 0; n < N; n++) {
                const double scale = rms_rstd(x + n * C, C);
                rstd[n] = relative * scale;
                for (int64_t i = n * C; i < (n + 1) * C; i++)
                        y[i] = relative * fabs(x[i] * scale * w[i % C]);
        }
        conforms(pair, &c);
}

/* Bounds of one row's dx, and what it adds to the sizes of dw. */
static void bound_rmsnorm_row(const double *dy, const double *x, const double *w, const double *before,
                              int64_t C, double rstd, double *dx, double *dw)
{
        double gh_size = 0;
        for (int64_t i = 0; i < C; i++) {
                gh_size += fabs(dy[i] * w[i] * x[i] * rstd) / (double)C;
                dw[i] += fabs(dy[i] * x[i] * rstd);
        }
        for (int64_t i = 0; i < C; i++) {
                const double size = rstd * (fabs(dy[i] * w[i]) + fabs(x[i] * rstd) * gh_size);
                dx[i] = (double)(C + 8) * u * (size + (before ? fabs(before[i]) : 0));
        }
}

static void check_rmsnorm_backward(struct pair *pair, int64_t N, int64_t C, bool accumulate)
{
        struct test_case c = {.launch = launch_rmsnorm_backward, .n = {N, C}, .flag = accumulate};
        NAME(&c, "rmsnorm_backward N %lld C %lld%s", LL(N), LL(C), accumulate ? ", added" : "");
        const double *before = accumulate ? add_random(pair, &c, TENSOR, N * C, 1) : NULL;
        double *dx = accumulate ? written(&c) : add_output(pair, &c, TENSOR, N * C);
        const double *dw0 = add_random(pair, &c, TENSOR, C, 1);
        double *dw = written(&c);
        const double *dy = add_random(pair, &c, TENSOR, N * C, 1),
                     *x = add_random(pair, &c, TENSOR, N * C, 2);
        double *rstd = new_doubles(N);
        for (int64_t n = 0; n < N; n++)
                rstd[n] = rms_rstd(x + n * C, C);
        add(pair, &c, REAL, N, rstd);
        const double *w = add_random(pair, &c, TENSOR, C, 1);
        for (int64_t i = 0; i < C; i++)
                dw[i] = fabs(dw0[i]);
        for (int64_t n = 0; n < N; n++)
                bound_rmsnorm_row(dy + n * C, x + n * C, w, before ? before + n * C : NULL, C, rstd[n],
                                  dx + n * C, dw);
        for (int64_t i = 0; i < C; i++)
                dw[i] *= (double)(N + 4) * u;
        conforms(pair, &c);
}

static void rmsnorms_conform(void **state)
{
        for (int s = 0; s < SHAPES; s++)
                for (int again = 0; again < 2; again++) {
                        check_rmsnorm(*state, shape_of(s).m, shape_of(s).n);
                        check_rmsnorm_backward(*state, shape_of(s).m, shape_of(s).n, again);
                }
}

/* ---- norms of heads ---- */

static void launch_head_rmsnorm(struct device *device, void *p[], const struct test_case *c)
{
        kernels_head_rmsnorm(device, p[0], p[1], p[2], p[3], c->n[0], c->n[1], c->n[2], c->n[3], rms_epsilon);
}

static void launch_head_rmsnorm_backward(struct device *device, void *p[], const struct test_case *c)
{
        kernels_head_rmsnorm_backward(device, p[0], p[1], p[2], p[3], p[4], c->n[0], c->n[1], c->n[2],
                                      c->n[3]);
}

static void check_head_rmsnorm(struct pair *pair, int64_t N, int64_t H, int64_t KV, int64_t hs)
{
        struct test_case c = {.launch = launch_head_rmsnorm, .n = {N, H, KV, hs}};
        const int64_t heads = H + 2 * KV;
        NAME(&c, "head_rmsnorm N %lld H %lld KV %lld of %lld", LL(N), LL(H), LL(KV), LL(hs));
        double *y = add_output(pair, &c, TENSOR, N * heads * hs);
        add_random(pair, &c, REAL, N * heads, 1); /* those of values stay */
        double *rstd = written(&c);
        const double *x = add_random(pair, &c, TENSOR, N * heads * hs, 2);
        const double *w = add_random(pair, &c, TENSOR, 2 * hs, 1);
        const double relative = (0.5 * (double)hs + 6) * u;
        for (int64_t at = 0; at < N * heads; at++) {
                const bool values = at % heads >= H + KV;
                const double scale = rms_rstd(x + at * hs, hs);
                const double *of = w + (at % heads < H ? 0 : hs);
                rstd[at] = values ? 0 : relative * scale;
                for (int64_t i = 0; i < hs; i++)
                        y[at * hs + i] = values ? 0 : relative * fabs(x[at * hs + i] * scale * of[i]);
        }
        conforms(pair, &c);
}

static void check_head_rmsnorm_backward(struct pair *pair, int64_t N, int64_t H, int64_t KV, int64_t hs)
{
        struct test_case c = {.launch = launch_head_rmsnorm_backward, .n = {N, H, KV, hs}};
        const int64_t heads = H + 2 * KV;
        NAME(&c, "head_rmsnorm_backward N %lld H %lld KV %lld of %lld", LL(N), LL(H), LL(KV), LL(hs));
        const double *dy = add_random(pair, &c, TENSOR, N * heads * hs, 1);
        double *dx = written(&c);
        const double *dw0 = add_random(pair, &c, TENSOR, 2 * hs, 1);
        double *dw = written(&c);
        const double *x = add_random(pair, &c, TENSOR, N * heads * hs, 2);
        double *rstd = new_doubles(N * heads);
        for (int64_t at = 0; at < N * heads; at++)
                rstd[at] = rms_rstd(x + at * hs, hs);
        add(pair, &c, REAL, N * heads, rstd);
        const double *w = add_random(pair, &c, TENSOR, 2 * hs, 1);
        for (int64_t i = 0; i < 2 * hs; i++)
                dw[i] = fabs(dw0[i]);
        for (int64_t at = 0; at < N * heads; at++) {
                const int64_t of = at % heads < H ? 0 : hs;
                if (at % heads < H + KV)
                        bound_rmsnorm_row(dy + at * hs, x + at * hs, w + of, NULL, hs, rstd[at], dx + at * hs,
                                          dw + of);
        }
        for (int64_t i = 0; i < 2 * hs; i++)
                dw[i] *= (double)(N * H + 4) * u;
        conforms(pair, &c);
}

static void norms_of_heads_conform(void **state)
{
        static const int64_t cases[][4] = {{1, 1, 1, 2},  {5, 3, 1, 6},   {33, 4, 2, 64},   {130, 2, 1, 128},
                                           {9, 8, 8, 20}, {64, 5, 1, 96}, {2000, 4, 2, 16}, {3, 2, 2, 127}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                for (int again = 0; again < AGAIN; again++) { /* aligned in other ways */
                        const int64_t *n = cases[i];
                        check_head_rmsnorm(*state, n[0], n[1], n[2], n[3]);
                        check_head_rmsnorm_backward(*state, n[0], n[1], n[2], n[3]);
                }
}

/* ---- rotary positions ---- */

static void launch_rope(struct device *device, void *p[], const struct test_case *c)
{
        kernels_rope(device, c->context, p[0], c->n[0], c->n[1]);
}

/* A sine may be off by 1e-7 of angles within a turn, and by two roundings. */
static void check_rope(struct pair *pair, const struct rope *rope, int64_t B, int64_t T)
{
        struct test_case c = {.launch = launch_rope, .n = {B, T}, .context = rope};
        const int64_t turned = rope->turned ? rope->turned : rope->head_size, half = turned / 2;
        NAME(&c, "rope B %lld T %lld, %lld of %lld columns, %lld of heads of %lld", LL(B), LL(T),
             LL(rope->rotated), LL(rope->columns), LL(turned), LL(rope->head_size));
        const double *x = add_random(pair, &c, TENSOR, B * T * rope->columns, 1);
        double *bound = written(&c);
        for (int64_t i = 0; i < B * T * rope->columns; i++) {
                const int64_t column = i % rope->columns, of_head = column % rope->head_size;
                if (column < rope->rotated && of_head < turned)
                        bound[i] = 6 * u * (fabs(x[i]) + fabs(x[of_head < half ? i + half : i - half]));
        }
        conforms(pair, &c);
}

static void rotary_positions_conform(void **state)
{
        static const struct {
                int64_t B, T;
                struct rope rope;
        } cases[] = {
                {1, 1, {2, 2, 2, 10000, false, {0}, 0, {0}}},
                {3, 5, {12, 8, 4, 10000, false, {0}, 0, {0}}},
                {2, 33, {97, 72, 24, 500000, false, {0}, 0, {0}}},
                {2, 131, {192, 128, 64, 500000, true, {0}, 0, {0}}},
                {1, 70, {768, 640, 128, 1e4, false, {0}, 0, {0}}},
                {2, 3, {1040, 1036, 518, 10000, true, {0}, 0, {0}}},
                {1, 3, {1024, 1024, 1024, 1e4, true, {0}, 0, {0}}},
                {1, 32768, {8, 8, 8, 500000, false, {0}, 0, {0}}},
                {1, 70, {64, 48, 16, 500000, true, {0.875, -2.1, 0, 1.33}, 0, {0}}},
                {2, 50, {64, 64, 32, 10000, false, {0.75, 0, 0.25, -0.5}, 0, {0}}},
                {2, 50, {96, 64, 32, 10000, false, {0}, 16, {0}}},
                {1, 70, {44, 33, 11, 10000, true, {0.875, -2.1, 0, 1.33}, 6, {0}}},
                {2, 5, {1560, 1040, 520, 10000, false, {0}, 260, {0}}},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                for (int again = 0; again < AGAIN; again++) /* aligned in other ways */
                {
                        struct rope rope = cases[i].rope;
                        rope.moved[0] = i % 2 ? 5 : 0;
                        rope.moved[1] = i % 2 ? 13 : 0;
                        check_rope(*state, &rope, cases[i].B, cases[i].T);
                }
}

/* ---- columns, and latent attention's queries, keys and values ---- */

enum columns { SPLIT, JOIN, NARROW, WIDEN, LAST, SET_LAST };

static void launch_columns(struct device *device, void *p[], const struct test_case *c)
{
        const int64_t m = c->n[0], n = c->n[1], k = c->n[2];
        switch ((enum columns)c->n[3]) {
        case SPLIT:
                kernels_split_columns(device, p[1], p[2], p[0], m, n, k);
                break;
        case JOIN:
                kernels_join_columns(device, p[0], p[1], p[2], m, n, k);
                break;
        case NARROW:
                kernels_narrow(device, p[1], p[0], m, n, n + k);
                break;
        case WIDEN:
                kernels_widen(device, p[0], p[1], m, n, n + k);
                break;
        case LAST:
                kernels_last_columns(device, p[1], p[0], m, n, n + k);
                break;
        case SET_LAST:
                kernels_set_last_columns(device, p[0], p[1], m, n, n + k);
                break;
        }
}

/* Whole rows, and their left and right columns, which one or the other are copied to. */
static void check_columns(struct pair *pair, int64_t m, int64_t n, int64_t k, enum columns kind)
{
        struct test_case c = {.launch = launch_columns, .n = {m, n, k, kind}};
        const bool joins = kind == JOIN || kind == WIDEN || kind == SET_LAST;
        const int64_t sizes[] = {m * (n + k), m * n, m * k};
        NAME(&c, "columns %d m %lld n %lld k %lld", kind, LL(m), LL(n), LL(k));
        for (int i = 0; i < (kind == SPLIT || kind == JOIN ? 3 : 2); i++) {
                if (joins == (i == 0) && kind != SET_LAST)
                        add_output(pair, &c, TENSOR, sizes[i]);
                else
                        add_random(pair, &c, TENSOR, sizes[i], 1);
                if (i == 0 && kind == SET_LAST)
                        written(&c);
        }
        conforms(pair, &c);
}

static void columns_conform(void **state)
{
        static const int64_t sizes[][3] = {{1, 1, 1},    {3, 8, 8},   {7, 24, 40},   {130, 512, 64},
                                           {33, 97, 31}, {5, 513, 3}, {300, 128, 64}};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int kind = SPLIT; kind <= SET_LAST; kind++)
                        for (int again = 0; again < AGAIN; again++)
                                check_columns(*state, sizes[s][0], sizes[s][1], sizes[s][2],
                                              (enum columns)kind);
}

static void launch_latent(struct device *device, void *p[], const struct test_case *c)
{
        if (c->flag)
                kernels_latent_qkv_backward(device, c->context, p[1], p[2], p[3], p[0], c->n[0], c->n[1]);
        else
                kernels_latent_qkv(device, c->context, p[0], p[1], p[2], p[3], c->n[0], c->n[1]);
}

/* Of the pair of columns that turn with each other, of which `i` is one. */
static double pair_size(const struct latent *of, const double *x, int64_t i, bool interleaved)
{
        const int64_t half = of->rotated / 2, other = interleaved ? i ^ 1 : i < half ? i + half : i - half;
        return of->length * (fabs(x[i]) + fabs(x[other]));
}

/* Of a turned column i, the sizes of those that it is made of, before they were turned. */
static double turned_size(const struct latent *of, const double *x, int64_t i)
{
        const int64_t pair = i % (of->rotated / 2);
        return pair_size(of, x, of->interleaved ? 2 * pair : pair, of->interleaved);
}

/* And of a column that was turned, of its gradient. */
static double turned_back_size(const struct latent *of, const double *x, int64_t i)
{
        const int64_t half = of->rotated / 2;
        return pair_size(of, x, of->interleaved ? i / 2 : i % half, false);
}

/* Sines as in rope; what is copied is exact. */
static void check_latent(struct pair *pair, const struct latent *of, int64_t B, int64_t T)
{
        struct test_case c = {.launch = launch_latent, .n = {B, T}, .context = of};
        const int64_t N = B * T, H = of->heads, width = of->copied + of->rotated, n = H * width,
                      l = H * (of->copied + of->values);
        NAME(&c, "latent_qkv B %lld T %lld, %lld heads of %lld + %lld and %lld%s", LL(B), LL(T), LL(H),
             LL(of->copied), LL(of->rotated), LL(of->values), of->interleaved ? ", interleaved" : "");
        double *qkv = add_output(pair, &c, TENSOR, N * 3 * n);
        const double *q = add_random(pair, &c, TENSOR, N * n, 1);
        add_random(pair, &c, TENSOR, N * l, 1);
        const double *shared = add_random(pair, &c, TENSOR, N * of->rotated, 1);
        for (int64_t i = 0; i < N * n; i++) {
                const int64_t row = i / n, column = i % width - of->copied;
                double *query = qkv + row * 3 * n + i % n;
                if (column < 0)
                        continue;
                query[0] = 6 * u * turned_size(of, q + i - column, column);
                query[n] = 6 * u * turned_size(of, shared + row * of->rotated, column);
        }
        conforms(pair, &c);
}

static void check_latent_backward(struct pair *pair, const struct latent *of, int64_t B, int64_t T)
{
        struct test_case c = {.launch = launch_latent, .n = {B, T}, .flag = true, .context = of};
        const int64_t N = B * T, H = of->heads, width = of->copied + of->rotated, n = H * width,
                      l = H * (of->copied + of->values);
        NAME(&c, "latent_qkv_backward B %lld T %lld, %lld heads of %lld + %lld and %lld%s", LL(B), LL(T),
             LL(H), LL(of->copied), LL(of->rotated), LL(of->values), of->interleaved ? ", interleaved" : "");
        const double *dqkv = add_random(pair, &c, TENSOR, N * 3 * n, 1);
        double *dq = add_output(pair, &c, TENSOR, N * n);
        add_output(pair, &c, TENSOR, N * l);
        double *dshared = add_output(pair, &c, TENSOR, N * of->rotated);
        for (int64_t i = 0; i < N * n; i++) {
                const int64_t row = i / n, column = i % width - of->copied;
                const double *dquery = dqkv + row * 3 * n + i % n - column;
                if (column < 0)
                        continue;
                dq[i] = 6 * u * turned_back_size(of, dquery, column);
                dshared[row * of->rotated + column] +=
                        (double)(H + 6) * u * turned_back_size(of, dquery + n, column);
        }
        conforms(pair, &c);
}

static void latent_attention_conforms(void **state)
{
        static const struct {
                int64_t B, T;
                struct latent of;
        } cases[] = {
                {1, 1, {1, 1, 2, 1, false, 1, 10000, {0}, {0}}},
                {2, 5, {3, 6, 4, 10, true, 1, 10000, {0}, {0}}},
                {2, 33, {4, 16, 16, 16, true, 1.2, 500, {0.75, 0, 0.25, -0.5}, {0}}},
                {2, 33, {5, 32, 16, 24, false, 1.2, 500, {0.75, 0, 0.25, -0.5}, {0}}},
                {1, 70, {16, 128, 64, 128, true, 1, 1e4, {0.875, -2.1, 0, 1.33}, {0}}},
                {1, 7, {128, 128, 64, 128, false, 1, 1e4, {0}, {0}}},
                {1, 3, {2, 8, 518, 8, true, 1, 10000, {0}, {0}}},
                {1, 3, {2, 8, 512, 8, false, 1, 10000, {0}, {0}}},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                for (int again = 0; again < AGAIN; again++) { /* aligned in other ways */
                        struct latent of = cases[i].of;
                        of.moved[0] = i % 2 ? 5 : 0;
                        of.moved[1] = i % 2 ? 13 : 0;
                        check_latent(*state, &of, cases[i].B, cases[i].T);
                        check_latent_backward(*state, &of, cases[i].B, cases[i].T);
                }
}

/* ---- elementwise ---- */

enum elementwise {
        BIAS,
        BIAS_GELU,
        BIAS_RESIDUAL,
        BIAS_BACKWARD,
        GELU_BACKWARD,
        RESIDUAL,
        SWIGLU,
        SWIGLU_BACKWARD,
        SQUARED_RELU,
        SQUARED_RELU_BACKWARD
};

static void launch_elementwise(struct device *device, void *p[], const struct test_case *c)
{
        const int64_t m = c->n[0], n = c->n[1];
        switch ((enum elementwise)c->n[2]) {
        case BIAS:
                kernels_bias(device, p[0], p[1], m, n);
                break;
        case BIAS_GELU:
                kernels_bias_gelu(device, p[2], p[0], p[1], m, n);
                break;
        case BIAS_RESIDUAL:
                kernels_bias_residual(device, p[0], p[1], p[2], m, n);
                break;
        case BIAS_BACKWARD:
                kernels_bias_backward(device, p[1], p[0], m, n);
                break;
        case RESIDUAL:
                kernels_residual(device, p[0], p[1], m, n);
                break;
        case SWIGLU:
                kernels_swiglu(device, p[0], p[1], m, n);
                break;
        case SWIGLU_BACKWARD:
                kernels_swiglu_backward(device, p[0], p[1], p[2], m, n);
                break;
        case SQUARED_RELU:
                kernels_squared_relu(device, p[0], p[1], m, n);
                break;
        case SQUARED_RELU_BACKWARD:
                kernels_squared_relu_backward(device, p[0], p[1], m, n);
                break;
        default:
                kernels_gelu_backward(device, p[0], p[1], m, n);
        }
}

/* Small and large arguments of GELU, and ones far out where the logistic is 0 or 1. */
static double gelu_input(struct pair *pair, int64_t i)
{
        static const double special[] = {0, 30, -30, 1e4, -1e4, 1e-7, -5, 5};
        return i % 11 == 3 ? special[i / 11 % 8] : 4 * random_number(&pair->random);
}

static double *add_gelu_inputs(struct pair *pair, struct test_case *c, int64_t count)
{
        double *values = new_doubles(count);
        for (int64_t i = 0; i < count; i++)
                values[i] = gelu_input(pair, i);
        return add(pair, c, TENSOR, count, values);
}

static void check_biased(struct pair *pair, enum elementwise kind, int64_t m, int64_t n)
{
        struct test_case c = {.launch = launch_elementwise, .n = {m, n, kind}};
        NAME(&c, "%s m %lld n %lld",
             kind == BIAS        ? "bias"
             : kind == BIAS_GELU ? "bias_gelu"
                                 : "bias_residual",
             LL(m), LL(n));
        const double *y = add_gelu_inputs(pair, &c, m * n);
        double *bound = written(&c), *g = NULL;
        const double *b = add_random(pair, &c, TENSOR, n, 1), *x = NULL;
        if (kind == BIAS_GELU)
                g = add_output(pair, &c, TENSOR, m * n);
        if (kind == BIAS_RESIDUAL)
                x = add_random(pair, &c, TENSOR, m * n, 1);
        for (int64_t i = 0; i < m * n; i++) {
                const double h = y[i] + b[i % n];
                bound[i] = 3 * u * (fabs(y[i]) + fabs(b[i % n]) + (x ? fabs(x[i]) : 0));
                if (g)
                        g[i] = 1.2 * (u + (pair->dtype != DTYPE_FP32 ? pair->h : 0)) * fabs(h) +
                               gelu_bound(pair, h);
        }
        conforms(pair, &c);
}

static void bound_bias_backward(const double *before, const double *dy, int64_t m, int64_t n, double *bound)
{
        for (int64_t j = 0; j < n; j++) {
                double size = fabs(before[j]);
                for (int64_t i = 0; i < m; i++)
                        size += fabs(dy[i * n + j]);
                bound[j] = (double)(m + 1) * u * size;
        }
}

static void check_bias_backward(struct pair *pair, int64_t m, int64_t n)
{
        struct test_case c = {.launch = launch_elementwise, .n = {m, n, BIAS_BACKWARD}};
        NAME(&c, "bias_backward m %lld n %lld", LL(m), LL(n));
        const double *dy = add_random(pair, &c, TENSOR, m * n, 1),
                     *before = add_random(pair, &c, TENSOR, n, 1);
        bound_bias_backward(before, dy, m, n, written(&c));
        conforms(pair, &c);
}

static void check_gelu_backward(struct pair *pair, int64_t m, int64_t n)
{
        struct test_case c = {.launch = launch_elementwise, .n = {m, n, GELU_BACKWARD}};
        NAME(&c, "gelu_backward m %lld n %lld", LL(m), LL(n));
        const double *dg = add_random(pair, &c, TENSOR, m * n, 1);
        double *bound = written(&c);
        add_gelu_inputs(pair, &c, m * n);
        for (int64_t i = 0; i < m * n; i++)
                bound[i] = (pair->dtype != DTYPE_FP32 ? 160 : 40) * u * fabs(dg[i]);
        conforms(pair, &c);
}

static void check_residual(struct pair *pair, int64_t m, int64_t n)
{
        struct test_case c = {.launch = launch_elementwise, .n = {m, n, RESIDUAL}};
        NAME(&c, "residual m %lld n %lld", LL(m), LL(n));
        const double *y = add_random(pair, &c, TENSOR, m * n, 1);
        double *bound = written(&c);
        const double *x = add_random(pair, &c, TENSOR, m * n, 1);
        for (int64_t i = 0; i < m * n; i++)
                bound[i] = u * fabs(y[i] + x[i]);
        conforms(pair, &c);
}

/* Rows of n gates, as large as GELU's arguments, then n of what they are for. */
static double *add_gated(struct pair *pair, struct test_case *c, int64_t m, int64_t n)
{
        double *values = new_doubles(2 * m * n);
        for (int64_t i = 0; i < 2 * m * n; i++)
                values[i] = i / n % 2 == 0 ? gelu_input(pair, i) : random_number(&pair->random);
        return add(pair, c, TENSOR, 2 * m * n, values);
}

/* A gate of -1e4 may be closed to e^-80, exponentials of what is stored in 16 bits may be approximate. */
static void check_swiglu(struct pair *pair, int64_t m, int64_t n, bool backward)
{
        struct test_case c = {.launch = launch_elementwise, .n = {m, n, backward ? SWIGLU_BACKWARD : SWIGLU}};
        NAME(&c, "swiglu%s m %lld n %lld", backward ? "_backward" : "", LL(m), LL(n));
        double *bound = add_output(pair, &c, TENSOR, backward ? 2 * m * n : m * n);
        const double *dy = backward ? add_random(pair, &c, TENSOR, m * n, 1) : NULL;
        const double *gu = add_gated(pair, &c, m, n);
        const double each = (pair->dtype != DTYPE_FP32 ? 80 : 20) * u, closed = 1e4 * exp(-80);
        for (int64_t i = 0; i < m * n; i++) {
                const int64_t at = i / n * 2 * n + i % n;
                const double g = gu[at], up = fabs(gu[at + n]), s = 1 / (1 + exp(-g)), silu = fabs(g) * s;
                if (!backward) {
                        bound[i] = up * (each * silu + closed);
                        continue;
                }
                bound[at] = fabs(dy[i]) * up * (each * (s + silu / (1 + exp(g))) + closed);
                bound[at + n] = fabs(dy[i]) * (each * silu + closed);
        }
        conforms(pair, &c);
}

/* One product of two, or two of three. Squares of 1e4 are beyond fp16. */
static void check_squared_relu(struct pair *pair, int64_t m, int64_t n, bool backward)
{
        struct test_case c = {.launch = launch_elementwise,
                              .n = {m, n, backward ? SQUARED_RELU_BACKWARD : SQUARED_RELU}};
        NAME(&c, "squared_relu%s m %lld n %lld", backward ? "_backward" : "", LL(m), LL(n));
        const double *dy = backward ? add_random(pair, &c, TENSOR, m * n, 1) : NULL;
        double *bound = backward ? written(&c) : add_output(pair, &c, TENSOR, m * n);
        const double *h = add_random(pair, &c, TENSOR, m * n, 8);
        for (int64_t i = 0; i < m * n; i++)
                bound[i] = 2 * u * (backward ? fabs(2 * dy[i] * h[i]) : h[i] * h[i]);
        conforms(pair, &c);
}

static void elementwise_kernels_conform(void **state)
{
        for (int s = 0; s < SHAPES; s++)
                for (int again = 0; again < AGAIN; again++) {
                        check_biased(*state, BIAS, shape_of(s).m, shape_of(s).n);
                        check_biased(*state, BIAS_GELU, shape_of(s).m, shape_of(s).n);
                        check_biased(*state, BIAS_RESIDUAL, shape_of(s).m, shape_of(s).n);
                        check_bias_backward(*state, shape_of(s).m, shape_of(s).n);
                        check_gelu_backward(*state, shape_of(s).m, shape_of(s).n);
                        check_residual(*state, shape_of(s).m, shape_of(s).n);
                        check_swiglu(*state, shape_of(s).m, shape_of(s).n, false);
                        check_swiglu(*state, shape_of(s).m, shape_of(s).n, true);
                        check_squared_relu(*state, shape_of(s).m, shape_of(s).n, false);
                        check_squared_relu(*state, shape_of(s).m, shape_of(s).n, true);
                }
}

/* ---- mixture of experts ---- */

/* Integers that a kernel writes begin as -1, and must be exact. */
static void add_written_indices(const struct pair *pair, struct test_case *c, int64_t count)
{
        double *values = new_doubles(count);
        for (int64_t i = 0; i < count; i++)
                values[i] = -1;
        add(pair, c, TOKENS, count, values);
        written(c);
}

static void launch_route(struct device *device, void *p[], const struct test_case *c)
{
        kernels_route(device, c->context, p[0], p[1], p[2], p[3], p[4], c->flag ? p[5] : NULL);
}

static void launch_route_backward(struct device *device, void *p[], const struct test_case *c)
{
        kernels_route_backward(device, c->context, p[0], p[1], p[2], p[3], p[4], p[5]);
}

static void name_route(struct test_case *c, const char *what, const struct routing *r)
{
        NAME(c, "%s N %lld E %lld K %lld, %lld of %lld groups%s%s", what, LL(r->N), LL(r->E), LL(r->K),
             LL(r->chosen_groups), LL(r->groups), r->logistic ? ", logistic" : "",
             r->normalised ? ", normalised" : "");
        c->context = r;
}

/* Logits of which many are equal, or none. */
static double *add_logits(struct pair *pair, struct test_case *c, const struct routing *r, bool equal)
{
        double *values = new_doubles(r->N * r->E);
        for (int64_t i = 0; i < r->N * r->E; i++)
                values[i] = equal ? (double)random_below(&pair->random, 3) : 4 * random_number(&pair->random);
        return add(pair, c, TENSOR, r->N * r->E, values);
}

/* Of exponents below 9, and sums of E and K terms. */
static double score_error(const struct routing *r)
{
        return (double)(r->E + r->K + 64) * u;
}

static void add_route(struct pair *pair, struct test_case *c, const struct routing *r)
{
        double *bound = add_output(pair, c, REAL, r->N * r->K);
        for (int64_t i = 0; i < r->N * r->K; i++)
                bound[i] = score_error(r) * r->factor;
        add_written_indices(pair, c, r->N * r->K);
        add_written_indices(pair, c, r->N * r->K);
        add_written_indices(pair, c, r->E);
}

static void check_route(struct pair *pair, const struct routing *r, bool equal)
{
        struct test_case c = {.launch = launch_route};
        name_route(&c, "route", r);
        add_route(pair, &c, r);
        add_logits(pair, &c, r, equal);
        conforms(pair, &c);
}

/* Experts that are chosen by what is exact on every device: scores of 1/2 and 1, corrections of some 64ths,
 * below 0 too. Many are equal. */
static void check_corrected_route(struct pair *pair, const struct routing *r, bool corrected)
{
        struct test_case c = {.launch = launch_route, .flag = corrected};
        name_route(&c, corrected ? "corrected route" : "route", r);
        add_route(pair, &c, r);
        double *logits = new_doubles(r->N * r->E), *correction = new_doubles(r->E);
        for (int64_t i = 0; i < r->N * r->E; i++)
                logits[i] = (double)(40 * random_below(&pair->random, 2));
        for (int64_t e = 0; e < r->E; e++)
                correction[e] = (double)(random_below(&pair->random, 120) - 80) / 64;
        add(pair, &c, TENSOR, r->N * r->E, logits);
        add(pair, &c, TENSOR, r->E, correction);
        conforms(pair, &c);
}

static void corrected_and_grouped_routes_conform(void **state)
{
        /* N, E, K, groups, chosen groups */
        static const int64_t sizes[][5] = {{1, 2, 1, 1, 1},    {33, 8, 2, 0, 0},   {33, 8, 2, 2, 1},
                                           {64, 12, 3, 4, 2},  {131, 24, 6, 8, 5}, {17, 66, 8, 33, 7},
                                           {16, 40, 20, 4, 2}, {70, 256, 8, 8, 4}, {3, 1024, 9, 512, 80}};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int variant = 0; variant < 8; variant++) {
                        const struct routing r = {.N = sizes[s][0],
                                                  .E = sizes[s][1],
                                                  .K = sizes[s][2],
                                                  .logistic = true,
                                                  .normalised = variant & 1,
                                                  .factor = 2.5,
                                                  .groups = sizes[s][3],
                                                  .chosen_groups = sizes[s][4],
                                                  .best_of_group = variant & 4};
                        check_corrected_route(*state, &r, variant & 2);
                }
}

static double score_of(const struct routing *r, const double *logits, int64_t e)
{
        double sum = 0;
        if (r->logistic)
                return 1 / (1 + exp(-logits[e]));
        for (int64_t i = 0; i < r->E; i++)
                sum += exp(logits[i] - logits[e]);
        return 1 / sum;
}

/* An order of rows that is as good as any: token t has the experts t, t + 1, ... */
static int64_t some_expert(const struct routing *r, int64_t i)
{
        return (i / r->K + i % r->K) % r->E;
}

static void add_some_order(const struct pair *pair, struct test_case *c, const struct routing *r)
{
        double *place = new_doubles(r->N * r->K), *ends = new_doubles(r->E);
        int64_t row = 0;
        for (int64_t e = 0; e < r->E; e++) {
                for (int64_t i = 0; i < r->N * r->K; i++)
                        if (some_expert(r, i) == e)
                                place[i] = (double)row++;
                ends[e] = (double)row;
        }
        add(pair, c, TOKENS, r->N * r->K, place);
        add(pair, c, TOKENS, r->E, ends);
}

/* Bounds of token t's row: the error of what a score's gradient is made of, times the score. */
static void bound_route_row(const struct routing *r, int64_t t, const double *logits, const double *place,
                            const double *dweights, const double *weights, double *bound)
{
        double sum = 0, past = 0, most = 0;
        for (int64_t i = t * r->K; i < (t + 1) * r->K; i++) {
                const int64_t row = (int64_t)place[i];
                sum += score_of(r, logits, some_expert(r, i));
                past += fabs(dweights[row] * weights[row]);
                most = fmax(most, r->factor * fabs(dweights[row]));
        }
        const double slope =
                (r->normalised ? (most + past) / sum : most) + 2 * r->balance * (double)(r->E * r->K);
        for (int64_t e = 0; e < r->E; e++)
                bound[e] = score_error(r) * score_of(r, logits, e) * slope;
}

static void check_route_backward(struct pair *pair, const struct routing *r)
{
        struct test_case c = {.launch = launch_route_backward};
        const int64_t rows = r->N * r->K;
        name_route(&c, "route_backward", r);
        double *bound = add_output(pair, &c, TENSOR, r->N * r->E);
        const double *dweights = add_random(pair, &c, REAL, rows, 1),
                     *weights = add_random(pair, &c, REAL, rows, 1);
        add_some_order(pair, &c, r);
        const double *place = c.operands[3].values, *logits = add_logits(pair, &c, r, false);
        for (int64_t t = 0; t < r->N; t++)
                bound_route_row(r, t, logits + t * r->E, place, dweights, weights, bound + t * r->E);
        conforms(pair, &c);
}

static void routes_conform(void **state)
{
        static const int64_t sizes[][3] = {{1, 1, 1},  {1, 7, 2},   {5, 3, 1},  {7, 4, 4},
                                           {33, 8, 2}, {64, 5, 3},  {3, 61, 8}, {131, 16, 5},
                                           {70, 8, 1}, {9, 40, 40}, {4, 300, 6}};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int variant = 0; variant < 4; variant++) {
                        const struct routing r = {.N = sizes[s][0],
                                                  .E = sizes[s][1],
                                                  .K = sizes[s][2],
                                                  .logistic = variant & 1,
                                                  .normalised = variant & 2,
                                                  .factor = variant ? 1 : 2.5,
                                                  .balance = variant & 1 ? 0 : 0.01};
                        check_route(*state, &r, false);
                        check_route(*state, &r, true);
                        check_route_backward(*state, &r);
                }
}

static void launch_permutation(struct device *device, void *p[], const struct test_case *c)
{
        const int64_t n = c->n[0], N = c->n[1], K = c->n[2];
        if (c->n[3])
                kernels_permute(device, p[0], p[1], p[2], N, K, n);
        else
                kernels_unpermute(device, p[0], p[1], p[2], N, K, n, c->flag);
}

static void check_permute(struct pair *pair, int64_t n, int64_t N, int64_t K)
{
        struct test_case c = {.launch = launch_permutation, .n = {n, N, K, true}};
        NAME(&c, "permute n %lld N %lld K %lld", LL(n), LL(N), LL(K));
        double *bound = add_output(pair, &c, TENSOR, N * K * n);
        for (int64_t i = 0; i < N * K * n; i++)
                bound[i] = 0;
        add_random(pair, &c, TENSOR, N * n, 1);
        add_tokens(pair, &c, N * K, N * K);
        conforms(pair, &c);
}

static void check_unpermute(struct pair *pair, int64_t n, int64_t N, int64_t K, bool accumulate)
{
        struct test_case c = {.launch = launch_permutation, .n = {n, N, K, false}, .flag = accumulate};
        NAME(&c, "unpermute n %lld N %lld K %lld%s", LL(n), LL(N), LL(K), accumulate ? ", added" : "");
        double *bound;
        if (accumulate) {
                add_random(pair, &c, TENSOR, N * n, 1);
                bound = written(&c);
        } else {
                bound = add_output(pair, &c, TENSOR, N * n);
        }
        for (int64_t i = 0; i < N * n; i++)
                bound[i] = (double)((K + 1) * (K + 1)) * u;
        add_random(pair, &c, TENSOR, N * K * n, 1);
        add_tokens(pair, &c, N * K, N * K);
        conforms(pair, &c);
}

static void permutations_conform(void **state)
{
        static const int64_t sizes[][3] = {{1, 1, 1},   {7, 5, 2},    {16, 33, 1},  {33, 8, 3},
                                           {96, 40, 2}, {64, 131, 2}, {513, 13, 8}, {1600, 9, 5}};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int again = 0; again < 2; again++) { /* aligned in other ways */
                        check_permute(*state, sizes[s][0], sizes[s][1], sizes[s][2]);
                        check_unpermute(*state, sizes[s][0], sizes[s][1], sizes[s][2], again);
                }
}

static void launch_grouped(struct device *device, void *p[], const struct test_case *c)
{
        if (c->flag)
                kernels_grouped_matmul_backward(device, c->context, p[0], p[1], p[2], p[3]);
        else
                kernels_grouped_matmul(device, c->context, p[0], p[1], p[2], p[3]);
}

enum { EXPERTS = 4 };

static void add_ends(const struct pair *pair, struct test_case *c, const int32_t ends[EXPERTS])
{
        double *values = new_doubles(EXPERTS);
        for (int e = 0; e < EXPERTS; e++)
                values[e] = ends[e];
        add(pair, c, TOKENS, EXPERTS, values);
}

/* Elements are below 1, so that a sum of k products is below k. There are as many rows as ends say, whatever
 * m is. */
static void check_grouped(struct pair *pair, const int32_t ends[EXPERTS], int64_t m, int64_t n, int64_t k,
                          bool transpose, int64_t gap)
{
        const int64_t rows = ends[EXPERTS - 1];
        struct grouped g = {.m = m, .n = n, .k = k, .experts = EXPERTS, .transpose_b = transpose};
        g.lda = k + gap;
        g.ldb = (transpose ? k : n) + gap;
        g.ldc = n + gap;
        g.each = (transpose ? n : k) * g.ldb + gap;
        struct test_case c = {.launch = launch_grouped, .context = &g};
        NAME(&c, "grouped_matmul m %lld of %lld rows n %lld k %lld%s, gaps of %lld", LL(m), LL(rows), LL(n),
             LL(k), transpose ? ", transposed" : "", LL(gap));
        add_random(pair, &c, TENSOR, rows * g.lda, 1);
        add_random(pair, &c, TENSOR, EXPERTS * g.each, 1);
        double *before = add_random(pair, &c, TENSOR, rows * g.ldc, 1), *bound = written(&c);
        for (int64_t i = 0; i < rows * g.ldc; i++) {
                bound[i] = i % g.ldc < n ? (double)((k + 4) * k) * u : 0;
                if (i % g.ldc < n)
                        before[i] = NAN;
        }
        add_ends(pair, &c, ends);
        conforms(pair, &c);
}

static void check_grouped_backward(struct pair *pair, const int32_t ends[EXPERTS], int64_t m, int64_t n,
                                   int64_t gap)
{
        struct grouped g = {.m = m, .n = n, .k = ends[EXPERTS - 1], .experts = EXPERTS};
        g.lda = m + gap;
        g.ldb = n + gap;
        g.ldc = n + gap;
        g.each = m * g.ldc + gap;
        struct test_case c = {.launch = launch_grouped, .context = &g, .flag = true};
        NAME(&c, "grouped_matmul_backward m %lld n %lld k %lld, gaps of %lld", LL(m), LL(n), LL(g.k),
             LL(gap));
        add_random(pair, &c, TENSOR, g.k * g.lda, 1);
        add_random(pair, &c, TENSOR, g.k * g.ldb, 1);
        add_random(pair, &c, TENSOR, EXPERTS * g.each, 1);
        double *bound = written(&c);
        for (int64_t i = 0; i < EXPERTS * g.each; i++)
                bound[i] = (double)((g.k + 4) * (g.k + 1)) * u;
        add_ends(pair, &c, ends);
        conforms(pair, &c);
}

/* Experts without rows, one with all, and rows of several tiles. */
static void products_of_experts_conform(void **state)
{
        static const int32_t ends[][EXPERTS] = {
                {0, 1, 1, 1}, {5, 5, 5, 5}, {0, 0, 0, 33}, {3, 40, 40, 57}, {64, 65, 130, 201}};
        static const int64_t sizes[][2] = {{1, 1}, {5, 3}, {8, 24}, {33, 17}, {64, 40}, {70, 130}, {136, 64}};
        for (size_t e = 0; e < sizeof ends / sizeof *ends; e++)
                for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                        for (int again = 0; again < AGAIN; again++) { /* aligned in other ways */
                                const int64_t n = sizes[s][0], k = sizes[s][1], gap = again * 8,
                                              rows = ends[e][EXPERTS - 1];
                                check_grouped(*state, ends[e], rows, n, k, false, gap);
                                check_grouped(*state, ends[e], again ? 1 : rows + 70, n, k, true, gap);
                                check_grouped_backward(*state, ends[e], n, k, gap);
                        }
}

static void launch_weighted(struct device *device, void *p[], const struct test_case *c)
{
        const int experts = (int)c->n[2];
        if (c->flag)
                kernels_weighted_swiglu_backward_of(device, p[0], p[1], p[2], p[3], p[4],
                                                    experts ? p[5] : NULL, experts, c->n[0], c->n[1]);
        else
                kernels_weighted_swiglu_of(device, p[0], p[1], p[2], experts ? p[3] : NULL, experts, c->n[0],
                                           c->n[1]);
}

/* Bounds as check_swiglu's, of weights below 1. Of so many experts as ends say there are m rows, where
 * `expected` are. */
static void check_weighted_swiglu(struct pair *pair, int64_t m, int64_t expected, int experts, int64_t n,
                                  bool backward)
{
        const int32_t ends[EXPERTS] = {(int32_t)(m / 3), (int32_t)(m / 3), (int32_t)(m / 2), (int32_t)m};
        struct test_case c = {.launch = launch_weighted, .n = {expected, n, experts}, .flag = backward};
        NAME(&c, "weighted_swiglu%s m %lld of %lld rows n %lld", backward ? "_backward" : "", LL(expected),
             LL(m), LL(n));
        double *bound = add_output(pair, &c, TENSOR, backward ? 2 * m * n : m * n);
        double *dw = backward ? add_output(pair, &c, REAL, m) : NULL;
        const double *dy = backward ? add_random(pair, &c, TENSOR, m * n, 1) : NULL;
        const double *gu = add_gated(pair, &c, m, n), *w = add_random(pair, &c, REAL, m, 1);
        const double each = (pair->dtype != DTYPE_FP32 ? 84 : 24) * u, closed = 1e4 * exp(-80);
        for (int64_t i = 0; i < m * n; i++) {
                const int64_t at = i / n * 2 * n + i % n;
                const double g = gu[at], up = fabs(gu[at + n]), s = 1 / (1 + exp(-g)), silu = fabs(g) * s;
                const double weight = fabs(w[i / n]);
                if (!backward) {
                        bound[i] = up * weight * (each * silu + closed);
                        continue;
                }
                bound[at] = fabs(dy[i]) * up * weight * (each * (s + silu / (1 + exp(g))) + closed);
                bound[at + n] = fabs(dy[i]) * weight * (each * silu + closed);
                dw[i / n] += fabs(dy[i]) * up * ((each + (double)n * u) * silu + closed);
        }
        if (experts)
                add_ends(pair, &c, ends);
        conforms(pair, &c);
}

static void weighted_swiglus_conform(void **state)
{
        for (int s = 0; s < SHAPES; s++)
                for (int again = 0; again < AGAIN; again++)
                        for (int backward = 0; backward < 2; backward++) {
                                const int64_t m = shape_of(s).m, n = shape_of(s).n;
                                check_weighted_swiglu(*state, m, m, 0, n, backward);
                                check_weighted_swiglu(*state, m, again ? 1 : m + 9, EXPERTS, n, backward);
                        }
}

static void launch_ends(struct device *device, void *p[], const struct test_case *c)
{
        kernels_expert_ends(device, p[0], p[1], (int)c->n[0], (int)c->n[1], (int)c->n[2], (int)c->n[3]);
}

/* The experts of one rank of several, up to more than a block has threads. */
static void ends_of_spread_experts_conform(void **state)
{
        static const struct {
                int own, ranks, first, experts;
        } cases[] = {{1, 1, 0, 1}, {2, 2, 2, 4}, {3, 4, 0, 12}, {32, 8, 224, 256}, {600, 2, 600, 1200}};
        struct pair *pair = *state;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                const int experts = cases[i].experts, ranks = cases[i].ranks;
                struct test_case c = {.launch = launch_ends,
                                      .n = {cases[i].own, ranks, cases[i].first, experts}};
                NAME(&c, "expert_ends of %d from %d on of %d, %d ranks", cases[i].own, cases[i].first,
                     experts, ranks);
                add_output(pair, &c, TOKENS, cases[i].own);
                double *all = new_doubles((int64_t)ranks * experts);
                for (int at = 0, end = 0; at < ranks * experts; at++)
                        all[at] = end = (at % experts ? end : 0) + at * 7 % 5;
                add(pair, &c, TOKENS, (int64_t)ranks * experts, all);
                conforms(pair, &c);
        }
}

/* ---- softmax, cross-entropy ---- */

static void launch_softmax(struct device *device, void *p[], const struct test_case *c)
{
        kernels_softmax(device, p[0], c->n[0], c->n[1], c->scalar);
}

static void launch_softmax_backward(struct device *device, void *p[], const struct test_case *c)
{
        kernels_softmax_backward(device, p[0], p[1], c->n[0], c->n[1], c->scalar);
}

/* p of one row; returns the largest size of an exponent. */
static double softmax_row(const double *s, int64_t count, double scale, double *p)
{
        double max = -INFINITY, sum = 0, size = 0;
        for (int64_t j = 0; j < count; j++) {
                max = fmax(max, scale * s[j]);
                size = fmax(size, fabs(scale * s[j]));
        }
        for (int64_t j = 0; j < count; j++)
                sum += p[j] = exp(scale * s[j] - max);
        for (int64_t j = 0; j < count; j++)
                p[j] /= sum;
        return size;
}

static void check_softmax(struct pair *pair, int64_t batch, int64_t T, double size)
{
        struct test_case c = {.launch = launch_softmax, .n = {batch, T}, .scalar = 0.37};
        NAME(&c, "softmax batch %lld T %lld, scores to %g", LL(batch), LL(T), size);
        double *s = add_random(pair, &c, TENSOR, batch * T * T, size), *bound = written(&c);
        for (int64_t row = 0; row < batch * T; row++) {
                const int64_t t = row % T;
                double *p = bound + row * T;
                const double exponent = softmax_row(s + row * T, t + 1, c.scalar, p);
                for (int64_t j = 0; j < T; j++)
                        p[j] = j <= t ? (16 * exponent + (double)t + 16) * u * p[j] + FLUSHED : 0;
                for (int64_t j = t + 1; j < T; j++)
                        s[row * T + j] = NAN;
        }
        conforms(pair, &c);
}

static void check_softmax_backward(struct pair *pair, int64_t batch, int64_t T)
{
        struct test_case c = {.launch = launch_softmax_backward, .n = {batch, T}, .scalar = 0.37};
        NAME(&c, "softmax_backward batch %lld T %lld", LL(batch), LL(T));
        double *dp = add_random(pair, &c, TENSOR, batch * T * T, 1), *bound = written(&c);
        double *p = add_random(pair, &c, TENSOR, batch * T * T, 1);
        for (int64_t row = 0; row < batch * T; row++) {
                const int64_t t = row % T;
                double size = 0;
                for (int64_t j = row * T; j <= row * T + t; j++)
                        size += fabs(dp[j] * p[j]);
                for (int64_t j = row * T; j <= row * T + t; j++)
                        bound[j] = (double)(t + 6) * u * c.scalar * fabs(p[j]) * (fabs(dp[j]) + size);
                for (int64_t j = row * T + t + 1; j < (row + 1) * T; j++) {
                        p[j] = 0;
                        dp[j] = NAN;
                }
        }
        conforms(pair, &c);
}

static void softmaxes_conform(void **state)
{
        static const int64_t sizes[] = {1, 2, 7, 16, 17, 31, 64, 67, 200, 513, 1100};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                check_softmax(*state, 1, sizes[i], 1e4);
                check_softmax_backward(*state, 1, sizes[i]);
                if (sizes[i] > 500) /* a quadratic number of scores */
                        continue;
                check_softmax(*state, 3, sizes[i], 5);
                check_softmax_backward(*state, 3, sizes[i]);
        }
}

static void launch_cross_entropy(struct device *device, void *p[], const struct test_case *c)
{
        kernels_cross_entropy(device, p[0], p[1], p[2], c->n[0], c->n[1], c->n[2], c->scalar, c->flag);
}

/* Rows are `apart` elements apart; what lies between them stays. */
static void check_cross_entropy(struct pair *pair, int64_t N, int64_t V, int64_t apart, double size,
                                bool loss_only)
{
        struct test_case c = {
                .launch = launch_cross_entropy, .n = {N, V, apart}, .scalar = 0.125, .flag = loss_only};
        NAME(&c, "cross_entropy%s N %lld V %lld of %lld, logits to %g", loss_only ? "_loss" : "", LL(N),
             LL(V), LL(apart), size);
        const double relative = (4 * size + (double)V + 16) * u;
        add_random(pair, &c, DOUBLE, 1, 3);
        double *loss_bound = written(&c);
        *loss_bound = (double)N * relative * 2;
        const double *x = add_random(pair, &c, TENSOR, N * apart, size);
        double *bound = loss_only ? NULL : written(&c);
        add_tokens(pair, &c, N, V);
        for (int64_t n = 0; n < N && !loss_only; n++) {
                double *row = bound + n * apart;
                softmax_row(x + n * apart, V, 1, row);
                for (int64_t v = 0; v < V; v++)
                        row[v] = c.scalar * ((relative + u) * row[v] + u) + FLUSHED;
        }
        conforms(pair, &c);
}

/* A part of the vocabulary, of which so many logits count, and how many shards' numbers there are. */
struct part_of_rows {
        struct vocabulary_part part;
        int shards;
};

static void launch_numbers(struct device *device, void *p[], const struct test_case *c)
{
        const struct part_of_rows *of = c->context;
        kernels_cross_entropy_numbers(device, p[0], p[1], p[2], c->n[0], c->n[1], of->part);
}

static void launch_part(struct device *device, void *p[], const struct test_case *c)
{
        const struct part_of_rows *of = c->context;
        kernels_cross_entropy_part(device, p[0], p[1], p[2], p[3], of->shards, c->n[0], c->n[1], of->part,
                                   c->scalar);
}

static void launch_loss_of_numbers(struct device *device, void *p[], const struct test_case *c)
{
        const struct part_of_rows *of = c->context;
        kernels_cross_entropy_of_numbers(device, p[0], p[1], of->shards, c->n[0]);
}

/* Each shard's maximum is above all logits, so that probabilities are below 1, and its sum positive. */
static const double *add_numbers(struct pair *pair, struct test_case *c, int64_t rows, int shards,
                                 double size)
{
        double *numbers = new_doubles(3 * rows * shards);
        for (int64_t i = 0; i < rows * shards; i++) {
                numbers[3 * i] = size + 1 + random_number(&pair->random);
                numbers[3 * i + 1] = 2 + random_number(&pair->random);
                numbers[3 * i + 2] = size * random_number(&pair->random);
        }
        return add(pair, c, REAL, 3 * rows * shards, numbers);
}

/* Of N rows of a shard's V logits, those of the vocabulary from `first` on; `valid` of them count. */
static void check_cross_entropy_of_shards(struct pair *pair, int64_t N, int64_t V, int64_t first,
                                          int64_t valid, int shards)
{
        const double size = 5, relative = (4 * size + (double)V + 16) * u;
        const struct part_of_rows of = {{first, valid}, shards};
        struct test_case c = {.launch = launch_numbers, .n = {N, V}, .context = &of};
        NAME(&c, "cross_entropy_loss N %lld V %lld, %lld from %lld: numbers", LL(N), LL(V), LL(valid),
             LL(first));
        double *bound = add_output(pair, &c, REAL, 3 * N);
        for (int64_t i = 0; i < 3 * N; i++) /* the largest of no logits is -infinity */
                bound[i] = i % 3 == 1                 ? relative * (double)(valid > 0 ? valid : 0)
                           : i % 3 == 0 && valid <= 0 ? NOT_COMPARED
                                                      : 0;
        add_random(pair, &c, TENSOR, N * V, size);
        add_tokens(pair, &c, N, first + 2 * V);
        conforms(pair, &c);

        struct test_case d = {.launch = launch_part, .n = {N, V}, .context = &of, .scalar = 0.125};
        NAME(&d, "cross_entropy N %lld V %lld, %lld from %lld, %d shards", LL(N), LL(V), LL(valid), LL(first),
             shards);
        add_random(pair, &d, DOUBLE, 1, 3);
        *written(&d) = (double)N * relative * 4;
        add_random(pair, &d, TENSOR, N * V, size);
        bound = written(&d);
        for (int64_t i = 0; i < N * V; i++)
                bound[i] = i % V < valid ? d.scalar * (relative + 2 * u) + FLUSHED : 0;
        add_tokens(pair, &d, N, first + 2 * V);
        add_numbers(pair, &d, N, shards, size);
        conforms(pair, &d);

        struct test_case e = {.launch = launch_loss_of_numbers, .n = {N}, .context = &of};
        NAME(&e, "cross_entropy_loss of the numbers of %lld rows of %d shards", LL(N), shards);
        add_random(pair, &e, DOUBLE, 1, 3);
        *written(&e) = (double)N * relative * 4;
        add_numbers(pair, &e, N, shards, size);
        conforms(pair, &e);
}

static void cross_entropies_conform(void **state)
{
        for (int s = 0; s < SHAPES; s++)
                for (int loss_only = 0; loss_only < 2; loss_only++) {
                        const int64_t n = shape_of(s).n;
                        check_cross_entropy(*state, shape_of(s).m, n, n, 5, loss_only);
                        check_cross_entropy(*state, shape_of(s).m, n, n + 5, 5, loss_only);
                        check_cross_entropy(*state, shape_of(s).m, n, n, 1e4, loss_only);
                }
        check_cross_entropy(*state, 3, 50257, 50304, 5, false);
        check_cross_entropy(*state, 2, 50257, 50257, 5, false);
        check_cross_entropy(*state, 2, 50304, 50304, 5, true);
        for (int s = 0; s < SHAPES; s++) {
                const int64_t n = shape_of(s).n;
                check_cross_entropy_of_shards(*state, shape_of(s).m, n, 0, n, 2);
                check_cross_entropy_of_shards(*state, shape_of(s).m, n, n, n - n / 3, 3);
        }
        check_cross_entropy_of_shards(*state, 300, 24, 24, 24, 4);
        check_cross_entropy_of_shards(*state, 7, 24, 48, 0, 3); /* the last shards of a small vocabulary */
        check_cross_entropy_of_shards(*state, 7, 24, 72, -20, 4);
}

/* ---- attention ---- */

/* Of each query with the keys up to its own; or, `others`, with those of another rank, which is `later` in
 * the sequence than the first piece of the rank's own, or not. */
struct heads {
        int64_t B, T, H, KV, hs;
        double scale;
        bool others, later;
};

/* The number of keys that query t sees, the first ones. */
static int64_t keys_seen(const struct heads *a, int64_t t)
{
        if (!a->others)
                return t + 1;
        return !a->later ? a->T / 2 : t < a->T / 2 ? 0 : a->T;
}

static void launch_attention(struct device *device, void *p[], const struct test_case *c)
{
        kernels_attention(device, p[0], p[1], p[2], c->n[0], c->n[1], c->n[2], c->n[3], c->n[4], c->scalar);
}

static void launch_attention_backward(struct device *device, void *p[], const struct test_case *c)
{
        kernels_attention_backward(device, p[0], p[1], p[2], p[3], p[4], p[5], c->n[0], c->n[1], c->n[2],
                                   c->n[3], c->n[4], c->scalar);
}

/* Where row t of part (q, k, v) of a head is in qkv, and in y. */
static int64_t in_qkv(const struct heads *a, int64_t head, int64_t t, int part)
{
        const int64_t h = head % a->H, kv = h / (a->H / a->KV), heads[] = {h, a->H + kv, a->H + a->KV + kv};
        return ((head / a->H * a->T + t) * (a->H + 2 * a->KV) + heads[part]) * a->hs;
}
/* And of a part (k, v) where keys and values are: in qkv, or in kv. */
static int64_t in_kv(const struct heads *a, int64_t head, int64_t t, int part)
{
        if (!a->others)
                return in_qkv(a, head, t, part);
        return ((head / a->H * a->T + t) * 2 * a->KV + (part == 2 ? a->KV : 0) +
                head % a->H / (a->H / a->KV)) *
               a->hs;
}
static int64_t qkv_elements(const struct heads *a)
{
        return a->B * a->T * (a->H + 2 * a->KV) * a->hs;
}
static int64_t kv_elements(const struct heads *a)
{
        return a->B * a->T * 2 * a->KV * a->hs;
}
static int64_t in_y(const struct heads *a, int64_t head, int64_t t)
{
        return (head / a->H * a->T + t) * a->H * a->hs + head % a->H * a->hs;
}

static double dot(const double *x, const double *y, int64_t count, double *size)
{
        double sum = 0;
        *size = 0;
        for (int64_t i = 0; i < count; i++) {
                sum += x[i] * y[i];
                *size += fabs(x[i] * y[i]);
        }
        return sum;
}

/* Scores of row t, and their errors: hs products, the scale, the exponential's argument. Returns the
 * logarithm of the sum of the exponentials and of what was summed before, whose logarithm is `before`. */
static double attention_scores(const struct heads *a, const double *qkv, const double *kv, int64_t head,
                               int64_t t, double before, double *s, double *error)
{
        double max = before, sum = 0, size;
        for (int64_t j = 0; j < keys_seen(a, t); j++) {
                s[j] = a->scale * dot(qkv + in_qkv(a, head, t, 0), kv + in_kv(a, head, j, 1), a->hs, &size);
                error[j] = ((double)(a->hs + 8) * a->scale * size + 8) * u;
                max = fmax(max, s[j]);
        }
        for (int64_t j = 0; j < keys_seen(a, t); j++)
                sum += exp(s[j] - max);
        return max + log(fmax(sum + exp(before - max), 1)); /* the largest term is 1 */
}

/* The exact y and lse, of other ranks' keys from those that there are, and, unless NULL, the bounds of both:
 * the probabilities may be rounded before their product with v, small ones to what the format has near 0. */
static void attend(const struct pair *pair, const struct heads *a, const double *qkv, const double *kv,
                   double *y, double *lse, double *y_bound, double *lse_bound)
{
        double *s = new_doubles(a->T), *error = new_doubles(a->T);
        for (int64_t head = 0; head < a->B * a->H; head++)
                for (int64_t t = 0; t < a->T; t++) {
                        const int64_t at = in_y(a, head, t), seen = keys_seen(a, t);
                        if (seen == 0)
                                continue;
                        const double before = a->others ? lse[head * a->T + t] : -INFINITY;
                        const double log_sum = attention_scores(a, qkv, kv, head, t, before, s, error);
                        const double kept = exp(before - log_sum);
                        double worst = a->others ? 8 * u * (1 + fabs(before)) : 0;
                        for (int64_t j = 0; j < seen; j++)
                                worst = fmax(worst, error[j]);
                        const double relative = 2 * worst + (double)(2 * seen + 32) * u +
                                                (pair->dtype != DTYPE_FP32 ? pair->h : 0);
                        lse[head * a->T + t] = log_sum;
                        if (lse_bound)
                                lse_bound[head * a->T + t] =
                                        worst + (double)(seen + 16) * u + 4 * u * fabs(log_sum);
                        for (int64_t i = 0; i < a->hs; i++) {
                                double sum = a->others ? kept * y[at + i] : 0, size = fabs(sum), values = 0;
                                for (int64_t j = 0; j < seen; j++) {
                                        const double v = kv[in_kv(a, head, j, 2) + i];
                                        const double term = exp(s[j] - log_sum) * v;
                                        sum += term;
                                        size += fabs(term);
                                        values += fabs(v);
                                }
                                y[at + i] = sum;
                                if (y_bound)
                                        y_bound[at + i] =
                                                relative * size +
                                                (pair->dtype != DTYPE_FP32 ? pair->tiny * values : 0);
                        }
                }
        free(s);
        free(error);
}

static void name_attention(struct test_case *c, const char *what, const struct heads *a)
{
        NAME(c, "%s B %lld T %lld H %lld KV %lld hs %lld", what, LL(a->B), LL(a->T), LL(a->H), LL(a->KV),
             LL(a->hs));
        c->n[0] = a->B;
        c->n[1] = a->T;
        c->n[2] = a->H;
        c->n[3] = a->KV;
        c->n[4] = a->hs;
        c->scalar = a->scale;
}

static void check_attention(struct pair *pair, const struct heads *a, double size)
{
        const int64_t elements = a->B * a->T * a->H * a->hs, rows = a->B * a->H * a->T;
        struct test_case c = {.launch = launch_attention};
        name_attention(&c, "attention", a);
        double *y_bound = add_output(pair, &c, TENSOR, elements),
               *lse_bound = add_output(pair, &c, REAL, rows);
        const double *qkv = add_random(pair, &c, TENSOR, qkv_elements(a), size);
        double *y = new_doubles(elements), *lse = new_doubles(rows);
        attend(pair, a, qkv, qkv, y, lse, y_bound, lse_bound);
        free(y);
        free(lse);
        conforms(pair, &c);
}

/* What backward is given. */
struct attention_inputs {
        const double *qkv, *kv, *dy, *y, *lse;
};

/* Adds to the bounds of dqkv and dkv, which may be the same, what row t brings, whose sum of p dp is `row`,
 * made of terms that are `row_size` together. With ds = p (dp - rows): errors of p (its exponent's), of dp
 * and rows (sums over a head), and the rounding of p and ds before their products. */
static void bound_attention_row(const struct pair *pair, const struct heads *a, int64_t head, int64_t t,
                                const struct attention_inputs *in, double row, double row_size, double *s,
                                double *error, double *dqkv, double *dkv)
{
        const double *dy = in->dy + in_y(a, head, t);
        const double lse = in->lse[head * a->T + t], h = pair->dtype ? pair->h : 0,
                     terms = (double)(a->T * (a->H / a->KV) + 8) * u;
        double size;
        (void)attention_scores(a, in->qkv, in->kv, head, t, -INFINITY, s, error);
        for (int64_t j = 0; j < keys_seen(a, t); j++) {
                const double p = exp(s[j] - lse), relative = error[j] + 4 * u * fabs(lse) + 8 * u;
                const double *k = in->kv + in_kv(a, head, j, 1), *q = in->qkv + in_qkv(a, head, t, 0);
                const double dp = dot(dy, in->kv + in_kv(a, head, j, 2), a->hs, &size),
                             ds = p * fabs(dp - row);
                const double ds_error = (relative + h + terms) * ds +
                                        (1 + h) * p * ((double)(a->hs + 4) * u * (size + row_size)) +
                                        pair->tiny;
                double *const to[3] = {dqkv + in_qkv(a, head, t, 0), dkv + in_kv(a, head, j, 1),
                                       dkv + in_kv(a, head, j, 2)};
                for (int64_t i = 0; i < a->hs; i++) {
                        to[0][i] += a->scale * ds_error * fabs(k[i]);
                        to[1][i] += a->scale * ds_error * fabs(q[i]);
                        to[2][i] += ((relative + h + terms) * p + pair->tiny) * fabs(dy[i]);
                }
        }
}

/* As they are stored. */
static double *random_elements(struct pair *pair, int64_t count, double size)
{
        double *x = new_doubles(count);
        for (int64_t i = 0; i < count; i++) {
                unsigned char element[8];
                write_element(pair, TENSOR, element, size * random_number(&pair->random));
                x[i] = read_element(pair, TENSOR, element);
        }
        return x;
}

static void check_attention_backward(struct pair *pair, const struct heads *a, double size)
{
        const int64_t elements = a->B * a->T * a->H * a->hs, rows = a->B * a->H * a->T;
        struct test_case c = {.launch = launch_attention_backward};
        name_attention(&c, "attention_backward", a);
        double *bound = add_output(pair, &c, TENSOR, qkv_elements(a)),
               *rows_bound = add_output(pair, &c, REAL, rows);
        double *y = new_doubles(elements), *lse = new_doubles(rows),
               *qkv = random_elements(pair, qkv_elements(a), size);
        attend(pair, a, qkv, qkv, y, lse, NULL, NULL);
        const double *dy = add_random(pair, &c, TENSOR, elements, 1);
        add(pair, &c, TENSOR, elements, y);
        add(pair, &c, REAL, rows, lse);
        add(pair, &c, TENSOR, qkv_elements(a), qkv);
        for (int64_t i = 0; i < rows; i++)
                rows_bound[i] = NOT_COMPARED; /* a device's own */
        double *s = new_doubles(a->T), *error = new_doubles(a->T);
        for (int64_t head = 0; head < a->B * a->H; head++)
                for (int64_t t = 0; t < a->T; t++) {
                        double row_size;
                        const double row = dot(dy + in_y(a, head, t), y + in_y(a, head, t), a->hs, &row_size);
                        bound_attention_row(pair, a, head, t,
                                            &(struct attention_inputs){qkv, qkv, dy, y, lse}, row, row_size,
                                            s, error, bound, bound);
                }
        free(s);
        free(error);
        conforms(pair, &c);
}

static void launch_context(struct device *device, void *p[], const struct test_case *c)
{
        const struct heads *a = c->context;
        const struct context_place place = {.ranks = 2, .rank = !a->later, .distance = 1};
        if (c->flag)
                kernels_context_attention_backward(device, &place, p[0], p[1], p[2], p[3], p[4], p[5], p[6],
                                                   a->B, a->T, a->H, a->KV, a->hs, a->scale);
        else
                kernels_context_attention(device, &place, p[0], p[1], p[2], p[3], a->B, a->T, a->H, a->KV,
                                          a->hs, a->scale);
}

/* Logarithms of sums over keys that were there before. */
static double *sums_before(struct pair *pair, const struct heads *a)
{
        double *lse = new_doubles(a->B * a->H * a->T);
        for (int64_t i = 0; i < a->B * a->H * a->T; i++)
                lse[i] = 1 + 3 * random_number(&pair->random);
        return lse;
}

static void check_context(struct pair *pair, const struct heads *a, double size)
{
        const int64_t elements = a->B * a->T * a->H * a->hs, rows = a->B * a->H * a->T;
        struct test_case c = {.launch = launch_context, .context = a};
        name_attention(&c, a->later ? "context_attention, later," : "context_attention", a);
        const double *y = add_random(pair, &c, TENSOR, elements, 1);
        double *y_bound = written(&c);
        const double *lse = add(pair, &c, REAL, rows, sums_before(pair, a));
        double *lse_bound = written(&c);
        const double *qkv = add_random(pair, &c, TENSOR, qkv_elements(a), size);
        const double *kv = add_random(pair, &c, TENSOR, kv_elements(a), size);
        double *sums = new_doubles(elements), *logarithms = new_doubles(rows);
        memcpy(sums, y, (size_t)elements * sizeof *sums);
        memcpy(logarithms, lse, (size_t)rows * sizeof *logarithms);
        attend(pair, a, qkv, kv, sums, logarithms, y_bound, lse_bound);
        free(sums);
        free(logarithms);
        conforms(pair, &c);
}

static void check_context_backward(struct pair *pair, const struct heads *a, double size)
{
        const int64_t elements = a->B * a->T * a->H * a->hs, rows = a->B * a->H * a->T;
        struct test_case c = {.launch = launch_context, .context = a, .flag = true};
        name_attention(&c, a->later ? "context_attention_backward, later," : "context_attention_backward", a);
        double *qkv = random_elements(pair, qkv_elements(a), size);
        double *kv = random_elements(pair, kv_elements(a), size);
        double *s = new_doubles(a->T), *error = new_doubles(a->T);
        add_random(pair, &c, TENSOR, qkv_elements(a), 1);
        double *dqkv = written(&c);
        double *dkv = add_output(pair, &c, TENSOR, kv_elements(a));
        const double *sums = add_random(pair, &c, REAL, rows, 1);
        const double *dy = add_random(pair, &c, TENSOR, elements, 1);
        double *lse = sums_before(pair, a);
        for (int64_t i = 0; i < rows; i++) /* over all keys, these too */
                lse[i] = attention_scores(a, qkv, kv, i / a->T, i % a->T, lse[i], s, error);
        add(pair, &c, REAL, rows, lse);
        add(pair, &c, TENSOR, qkv_elements(a), qkv);
        add(pair, &c, TENSOR, kv_elements(a), kv);
        for (int64_t i = 0; i < rows; i++)
                bound_attention_row(pair, a, i / a->T, i % a->T,
                                    &(struct attention_inputs){qkv, kv, dy, NULL, lse}, sums[i],
                                    fabs(sums[i]), s, error, dqkv, dkv);
        free(s);
        free(error);
        conforms(pair, &c);
}

static const struct {
        int64_t B, T, H, KV, hs;
} attentions[] = {{1, 1, 1, 1, 1},    {1, 2, 1, 1, 8},     {2, 7, 3, 3, 16},   {1, 16, 2, 2, 64},
                  {1, 17, 1, 1, 3},   {2, 33, 2, 2, 20},   {1, 64, 2, 2, 64},  {1, 65, 3, 3, 32},
                  {2, 100, 1, 1, 40}, {1, 127, 1, 1, 128}, {1, 128, 1, 1, 64}, {1, 129, 2, 2, 65},
                  {1, 200, 2, 2, 64}, {1, 150, 1, 1, 80},  {1, 70, 1, 1, 96},  {1, 300, 1, 1, 64},
                  {2, 7, 2, 1, 5},    {2, 70, 4, 2, 64},   {1, 70, 6, 2, 128}, {2, 65, 6, 2, 20},
                  {1, 131, 4, 1, 64}, {1, 33, 4, 1, 96}};
enum { ATTENTIONS = sizeof attentions / sizeof *attentions };

/* Kernels of fp16 and of bf16 are one template: emulated, each takes half of the shapes. */
static bool is_of_the_other_half(const struct pair *pair, int nth)
{
        return emulated && pair->dtype != DTYPE_FP32 && nth % 2 != (pair->dtype == DTYPE_BF16);
}

/* Where a library was asked for: that it ran. */
static void a_library_ran(const struct pair *pair)
{
        if (!getenv("RANVIER_TEST_ATTENTION") || pair->dtype == DTYPE_FP32)
                return;
        print_message("%d of %d shapes by %s\n", pair->tested.device->description.library_attention_shapes,
                      pair->tested.device->description.attention_shapes,
                      pair->tested.device->description.attention);
        assert_true(pair->tested.device->description.library_attention_shapes > 0);
}

/* The heads of the numbered shape; of several ranks T is even. */
static struct heads heads_of(int i, bool others)
{
        return (struct heads){.B = attentions[i].B,
                              .T = attentions[i].T + (others ? attentions[i].T % 2 : 0),
                              .H = attentions[i].H,
                              .KV = attentions[i].KV,
                              .hs = attentions[i].hs,
                              .scale = 1 / sqrt((double)attentions[i].hs),
                              .others = others};
}

static void attention_conforms(void **state)
{
        for (int i = 0; i < ATTENTIONS; i++) {
                if (is_of_the_other_half(*state, i))
                        continue;
                const struct heads a = heads_of(i, false);
                for (int again = 0; again < AGAIN; again++) /* aligned in other ways; larger scores */
                        check_attention(*state, &a, (i / 2 + again) % 2 ? 5 : 1);
        }
        a_library_ran(*state);
}

static void attention_backward_conforms(void **state)
{
        for (int i = 0; i < ATTENTIONS; i++) {
                if (is_of_the_other_half(*state, i))
                        continue;
                const struct heads a = heads_of(i, false);
                for (int again = 0; again < AGAIN; again++)
                        check_attention_backward(*state, &a, (i / 2 + again) % 2 ? 3 : 1);
        }
        a_library_ran(*state);
}

static void attention_of_several_ranks_conforms(void **state)
{
        for (int i = 0; i < ATTENTIONS; i++) {
                if (is_of_the_other_half(*state, i))
                        continue;
                for (int later = 0; later < 2; later++) {
                        if (AGAIN == 1 && later != i / 2 % 2)
                                continue;
                        struct heads a = heads_of(i, true);
                        a.later = later;
                        const double size = (i + later) % 2 ? 3 : 1;
                        check_context(*state, &a, size);
                        check_context_backward(*state, &a, size);
                }
        }
}

/* ---- norm, optimizer ---- */

static void launch_squared_norm(struct device *device, void *p[], const struct test_case *c)
{
        kernels_squared_norm(device, p[0], p[1], c->n[0], c->flag);
}

static void squared_norms_conform(void **state)
{
        struct pair *pair = *state;
        for (int64_t n = 1; n < 300000; n = 3 * n + 2)
                for (int accumulate = 0; accumulate < 2; accumulate++) {
                        struct test_case c = {.launch = launch_squared_norm, .n = {n}, .flag = accumulate};
                        NAME(&c, "squared_norm n %lld%s", LL(n), accumulate ? ", added" : "");
                        double *bound;
                        if (accumulate) {
                                add_random(pair, &c, DOUBLE, 1, 5);
                                bound = written(&c);
                        } else {
                                bound = add_output(pair, &c, DOUBLE, 1);
                        }
                        const double *x = add_random(pair, &c, TENSOR, n, 1);
                        for (int64_t i = 0; i < n; i++)
                                *bound += (double)(n + 1) * DBL_EPSILON * (x[i] * x[i] + 5);
                        conforms(pair, &c);
                }
}

enum { FLAT = 70000 };
static const struct adamw_range ranges[] = {{37, 1}, {150, 0}, {20000, 1}, {20001, 0}, {FLAT, 1}};

static void launch_adamw(struct device *device, void *p[], const struct test_case *c)
{
        const struct adamw a = {.lr = 0.01,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .epsilon = 1e-8,
                                .weight_decay = 0.1,
                                .step = c->n[2]};
        kernels_adamw(device, p[0], p[1], p[2], p[3], device->dtype != DTYPE_FP32 ? p[4] : NULL, ranges,
                      device->dtype != DTYPE_FP32 ? NULL : p[4], c->n[0], c->n[1], &a);
}

static void check_adamw(struct pair *pair, int64_t offset, int64_t n, int64_t step)
{
        struct test_case c = {.launch = launch_adamw, .n = {offset, n, step}};
        NAME(&c, "adamw offset %lld n %lld step %lld", LL(offset), LL(n), LL(step));
        const double *p = add_random(pair, &c, REAL, n, 1);
        double *p_bound = written(&c);
        const double *g = add_random(pair, &c, REAL, n, 1);
        if (pair->dtype == DTYPE_FP32)
                written(&c); /* becomes zero */
        const double *m = add_random(pair, &c, REAL, n, 1);
        double *m_bound = written(&c), *v = add_random(pair, &c, REAL, n, 1), *v_bound = written(&c),
               *w_bound = NULL;
        if (pair->dtype != DTYPE_FP32)
                w_bound = add_output(pair, &c, TENSOR, n);
        else
                add_random(pair, &c, DOUBLE, 1, 1);
        const double factor = pair->dtype ? 1 : c.operands[4].values[0];
        const double m_rate = 1 - pow(0.9, (double)step), v_rate = 1 - pow(0.95, (double)step);
        for (int64_t i = 0; i < n; i++) {
                v[i] = fabs(v[i]);
                const double gradient = factor * g[i], first = fabs(m[i]) + fabs(gradient);
                const double second = 0.95 * v[i] + 0.05 * gradient * gradient;
                m_bound[i] = 4 * u * first;
                v_bound[i] = 5 * u * second;
                p_bound[i] =
                        3 * u * fabs(p[i]) + 16 * u * 0.01 / m_rate * first / (sqrt(second / v_rate) + 1e-8);
                if (w_bound)
                        w_bound[i] = p_bound[i];
        }
        conforms(pair, &c);
}

static void adamw_conforms(void **state)
{
        static const int64_t pieces[][2] = {{0, 1},    {0, 36},   {36, 2},    {5, 200},   {149, 1},
                                            {0, FLAT}, {151, 31}, {1, 65537}, {19990, 40}};
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
                for (int64_t step = 1; step < 2000; step = 30 * step)
                        check_adamw(*state, pieces[i][0], pieces[i][1], step);
}

static void launch_half(struct device *device, void *p[], const struct test_case *c)
{
        if (c->n[1] == KERNEL_OVERFLOW)
                kernels_overflow(device, p[0], p[1], c->n[0], c->scalar);
        else if (c->n[1] == KERNEL_UNSCALE)
                kernels_unscale(device, p[0], p[1], p[2], c->n[0]);
        else
                kernels_clear(device, p[0], c->n[0]);
}

static void check_overflow(struct pair *pair, int64_t n, double what)
{
        struct test_case c = {.launch = launch_half, .n = {n, KERNEL_OVERFLOW}, .scalar = 1000};
        NAME(&c, "overflow n %lld with %g", LL(n), what);
        add_output(pair, &c, DOUBLE, 1);
        double *g = add_random(pair, &c, TENSOR, n, 999);
        g[random_below(&pair->random, n)] = what;
        conforms(pair, &c);
}

/* A kernel that adds to gradients in fp32 while tensors have 16 bits. */
static void launch_wide(struct device *device, void *p[], const struct test_case *c)
{
        const enum kernel_kind kind = (enum kernel_kind)c->n[3];
        const int64_t m = c->n[0], n = c->n[1], k = c->n[2];
        const struct kernel kernel = {.kind = kind,
                                      .transpose_a = kind == KERNEL_MATMUL,
                                      .accumulate = 1,
                                      .wide = 1,
                                      .m = m,
                                      .n = n,
                                      .k = k};
        struct kernel_args args = {.ld = {m, n, n}, .inner = 1};
        if (kind == KERNEL_EMBEDDING_BACKWARD)
                args.ld[1] = args.ld[2] = 0; /* the table has all tokens, and m positions */
        memcpy(args.p, p, (size_t)c->count * sizeof *p);
        kernels_launch(device, kernel, &args);
}

static void check_wide_product(struct pair *pair, int64_t m, int64_t n, int64_t k)
{
        struct test_case c = {.launch = launch_wide, .n = {m, n, k, KERNEL_MATMUL}};
        const struct matmul mm = {.m = m,
                                  .n = n,
                                  .k = k,
                                  .transpose_a = true,
                                  .accumulate = true,
                                  .lda = m,
                                  .ldb = n,
                                  .ldc = n};
        NAME(&c, "matmul into fp32 m %lld n %lld k %lld", LL(m), LL(n), LL(k));
        const double *a = add_random(pair, &c, TENSOR, k * m, 1), *b = add_random(pair, &c, TENSOR, k * n, 1);
        const double *before = add_random(pair, &c, REAL, m * n, 1);
        bound_product(NULL, &mm, a, b, before, written(&c));
        conforms(pair, &c);
}

static void check_wide_bias(struct pair *pair, int64_t m, int64_t n)
{
        struct test_case c = {.launch = launch_wide, .n = {m, n, 0, KERNEL_BIAS_BACKWARD}};
        NAME(&c, "bias_backward into fp32 m %lld n %lld", LL(m), LL(n));
        const double *before = add_random(pair, &c, REAL, n, 1);
        double *bound = written(&c);
        const double *dy = add_random(pair, &c, TENSOR, m * n, 1);
        bound_bias_backward(before, dy, m, n, bound);
        conforms(pair, &c);
}

/* Tokens, each at a place of its own, of a vocabulary of five. */
static void check_wide_embedding(struct pair *pair, int64_t m, int64_t n)
{
        enum { VOCABULARY = 5 };
        struct test_case c = {.launch = launch_wide, .n = {m, n, 0, KERNEL_EMBEDDING_BACKWARD}};
        NAME(&c, "embedding_backward into fp32 N %lld C %lld", LL(m), LL(n));
        add_random(pair, &c, REAL, VOCABULARY * n, 1);
        double *dwte = written(&c);
        add_random(pair, &c, REAL, m * n, 1);
        double *dwpe = written(&c);
        add_random(pair, &c, TENSOR, m * n, 1);
        add_tokens(pair, &c, m, VOCABULARY);
        for (int64_t i = 0; i < VOCABULARY * n; i++)
                dwte[i] = (double)((m + 1) * (m + 1)) * u;
        for (int64_t i = 0; i < m * n; i++)
                dwpe[i] = 4 * u;
        conforms(pair, &c);
}

static void gradients_in_fp32_conform(void **state)
{
        static const int64_t sizes[][3] = {{1, 1, 1},    {7, 5, 3},    {16, 8, 40},
                                           {64, 96, 32}, {65, 33, 70}, {130, 24, 300}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                check_wide_product(*state, sizes[i][0], sizes[i][1], sizes[i][2]);
                check_wide_bias(*state, sizes[i][0], sizes[i][1]);
                check_wide_embedding(*state, sizes[i][0], sizes[i][1]);
        }
}

static void half_gradients_conform(void **state)
{
        struct pair *pair = *state;
        static const double found[] = {1, 1000, -1000, 1008, -1008, INFINITY, -INFINITY, NAN};
        for (int64_t n = 1; n < 200000; n = 3 * n + 2) {
                for (int i = 0; i < 8; i++)
                        check_overflow(pair, n, found[i]);
                struct test_case unscale = {.launch = launch_half, .n = {n, KERNEL_UNSCALE}};
                NAME(&unscale, "unscale n %lld", LL(n));
                add_output(pair, &unscale, REAL, n);
                add_random(pair, &unscale, TENSOR, n, 100);
                written(&unscale);
                add_random(pair, &unscale, DOUBLE, 1, 1);
                conforms(pair, &unscale);
                struct test_case clear = {.launch = launch_half, .n = {n, KERNEL_CLEAR}};
                NAME(&clear, "clear n %lld", LL(n));
                add_output(pair, &clear, TENSOR, n);
                conforms(pair, &clear);
        }
}

/* ---- what device.h promises ---- */

static struct device *open_alone(void)
{
        struct rv_error_info err = {0};
        struct device *device = open_tested(&err);
        if (!device)
                print_error("%s\n", err.sentence);
        assert_non_null(device);
        return device;
}

static int wait_for_token(struct device *device)
{
        int token;
        while ((token = device->ops->poll(device)) < 0)
                sched_yield();
        return token;
}

static void memory_is_zeroed_aligned_and_counted(void **state)
{
        (void)state;
        struct device *device = open_alone();
        struct memory_bytes expected = {0};
        unsigned char found[5000];
        uint64_t random = seed;
        const int64_t bytes[MEMORY_SPACES] = {2000000, 2000000};
        struct rv_error_info err = {0};
        if (device->ops->reserve)
                assert_int_equal(device->ops->reserve(device, bytes, &err), RV_OK);
        for (int i = 0; i < 300; i++) {
                const enum memory_space space = (enum memory_space)random_below(&random, MEMORY_SPACES);
                const enum memory_category category =
                        (enum memory_category)random_below(&random, MEMORY_CATEGORIES);
                const int64_t size = 1 + random_below(&random, 4999);
                unsigned char *memory = device->ops->alloc(device, space, category, size);
                assert_non_null(memory);
                assert_int_equal((uintptr_t)memory % MEMORY_ALIGNMENT, 0);
                if (space == MEMORY_HOST) {
                        memcpy(found, memory, (size_t)size);
                        memset(memory, 255, (size_t)size);
                } else {
                        device->ops->copy(device, DEVICE_DEVICE_TO_HOST, found, memory, size);
                        device->ops->synchronize(device);
                }
                for (int64_t byte = 0; byte < size; byte++)
                        assert_int_equal(found[byte], 0);
                expected.in[space][category] += memory_aligned(size);
        }
        assert_memory_equal(&device->bytes, &expected, sizeof expected);
        assert_null(device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WEIGHTS, (int64_t)1 << 50));
        assert_null(device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WEIGHTS, INT64_MAX));
        assert_memory_equal(&device->bytes, &expected, sizeof expected);
        device->ops->close(device);
}

static void what_was_reserved_is_there_and_no_more(void **state)
{
        (void)state;
        struct device *device = open_alone();
        struct rv_error_info err = {0};
        const int64_t bytes[MEMORY_SPACES] = {[MEMORY_DEVICE] = 64 * 100, [MEMORY_HOST] = 64 * 10};
        const int64_t too_much[MEMORY_SPACES] = {[MEMORY_DEVICE] = (int64_t)1 << 50};
        if (device->ops->reserve) {
                assert_int_not_equal(device->ops->reserve(device, too_much, &err), RV_OK);
                assert_true(strlen(err.sentence) > 20);
                assert_int_equal(device->ops->reserve(device, bytes, &err), RV_OK);
                for (int i = 0; i < 100; i++)
                        assert_non_null(
                                device->ops->alloc(device, MEMORY_DEVICE, MEMORY_GRADIENTS, 1 + i % 64));
                assert_null(device->ops->alloc(device, MEMORY_DEVICE, MEMORY_GRADIENTS, 1));
                assert_non_null(device->ops->alloc(device, MEMORY_HOST, MEMORY_GRADIENTS, 640));
                assert_null(device->ops->alloc(device, MEMORY_HOST, MEMORY_GRADIENTS, 1));
        }
        device->ops->close(device);
}

static void tokens_come_once_and_a_lane_s_in_order(void **state)
{
        (void)state;
        struct device *device = open_alone();
        enum { ROUNDS = 3, COUNT = 1500 };
        for (int round = 0; round < ROUNDS; round++) {
                int last[DEVICE_LANES] = {-1, -1, -1};
                bool seen[COUNT] = {false};
                for (int token = 0; token < COUNT; token++)
                        device->ops->record(device, (enum device_lane)(token % DEVICE_LANES), token);
                for (int i = 0; i < COUNT; i++) {
                        const int token = wait_for_token(device);
                        assert_in_range(token, 0, COUNT - 1);
                        assert_false(seen[token]);
                        seen[token] = true;
                        assert_true(token > last[token % DEVICE_LANES]);
                        last[token % DEVICE_LANES] = token;
                }
                assert_int_equal(device->ops->poll(device), -1);
        }
        device->ops->close(device);
}

/* Buffers go round: up to the device, through a kernel, down again, each step queued when the one before it
 * was reached, many at a time and in any order. */
static void lanes_work_side_by_side(void **state)
{
        (void)state;
        enum { BUFFERS = 12, ELEMENTS = 777, TURNS = 15 };
        struct device *device = open_alone();
        const int64_t each = memory_aligned(ELEMENTS * (int64_t)sizeof(float));
        const int64_t bytes[MEMORY_SPACES] = {BUFFERS * each + each, BUFFERS * each + each};
        struct rv_error_info err = {0};
        float *up[BUFFERS], *down[BUFFERS], *bias, *one;
        int turns[BUFFERS] = {0}, steps[BUFFERS] = {0}, left = BUFFERS;
        if (device->ops->reserve)
                assert_int_equal(device->ops->reserve(device, bytes, &err), RV_OK);
        bias = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WEIGHTS, each);
        one = device->ops->alloc(device, MEMORY_HOST, MEMORY_WEIGHTS, each);
        for (int i = 0; i < ELEMENTS; i++)
                one[i] = 1;
        device->ops->copy(device, DEVICE_HOST_TO_DEVICE, bias, one, each);
        device->ops->synchronize(device);
        for (int b = 0; b < BUFFERS; b++) {
                up[b] = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_ACTIVATIONS, each);
                down[b] = device->ops->alloc(device, MEMORY_HOST, MEMORY_ACTIVATIONS, each);
                for (int i = 0; i < ELEMENTS; i++)
                        down[b][i] = (float)(b * 1000 + i);
                device->ops->copy(device, DEVICE_HOST_TO_DEVICE, up[b], down[b], each);
                device->ops->record(device, DEVICE_HOST_TO_DEVICE, b);
        }
        while (left > 0) {
                const int b = wait_for_token(device);
                if (steps[b] == 0) {
                        kernels_bias(device, up[b], bias, 1, ELEMENTS);
                        device->ops->record(device, DEVICE_COMPUTE, b);
                } else if (steps[b] == 1) {
                        device->ops->copy(device, DEVICE_DEVICE_TO_HOST, down[b], up[b], each);
                        device->ops->record(device, DEVICE_DEVICE_TO_HOST, b);
                } else if (++turns[b] == TURNS) {
                        left--;
                } else {
                        for (int i = 0; i < ELEMENTS; i++)
                                down[b][i] += 10;
                        device->ops->copy(device, DEVICE_HOST_TO_DEVICE, up[b], down[b], each);
                        device->ops->record(device, DEVICE_HOST_TO_DEVICE, b);
                }
                steps[b] = (steps[b] + 1) % 3;
        }
        for (int b = 0; b < BUFFERS; b++)
                for (int i = 0; i < ELEMENTS; i++)
                        assert_true(down[b][i] == (float)(b * 1000 + i + TURNS + 10 * (TURNS - 1)));
        device->ops->close(device);
}

struct recorded {
        int count;
        int64_t m[100];
        double last_end;
};

static void note(void *context, const struct kernel *kernel, double seconds, double end)
{
        struct recorded *recorded = context;
        assert_true(seconds >= 0);
        assert_true(end >= recorded->last_end - 1e-3); /* events tell times to half a millisecond */
        recorded->last_end = end;
        if (recorded->count < 100)
                recorded->m[recorded->count] = kernel->m;
        recorded->count++;
}

static void the_recorder_is_told_of_every_kernel_in_order(void **state)
{
        (void)state;
        struct device *device = open_alone();
        struct recorded recorded = {0};
        struct rv_error_info err = {0};
        const int64_t bytes[MEMORY_SPACES] = {1 << 20, 64};
        if (device->ops->reserve)
                assert_int_equal(device->ops->reserve(device, bytes, &err), RV_OK);
        float *x = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WEIGHTS, 1 << 20);
        const double start = device_seconds();
        device->recorder = note;
        device->recorder_context = &recorded;
        for (int i = 0; i < 60; i++) {
                if (i == 20 && device->ops->begin_group)
                        device->ops->begin_group(device);
                if (i == 40 && device->ops->end_group)
                        device->ops->end_group(device);
                kernels_bias(device, x, x + 1000, 1 + i, 16);
        }
        device->ops->record(device, DEVICE_COMPUTE, 3);
        assert_int_equal(wait_for_token(device), 3);
        assert_int_equal(recorded.count, 60); /* before the token behind them */
        assert_true(recorded.last_end >= start - 1e-3 && recorded.last_end <= device_seconds() + 1e-3);
        for (int i = 0; i < 60; i++)
                assert_int_equal(recorded.m[i], 1 + i);
        device->ops->close(device);
}

/* Groups of other kernels and operands, more than a device may keep, over and over: as if launched alone. */
static void groups_do_what_their_kernels_do(void **state)
{
        (void)state;
        struct device *device = open_alone();
        struct rv_error_info err = {0};
        enum { N = 64, BUFFERS = 40 };
        const int64_t bytes[MEMORY_SPACES] = {(BUFFERS + 1) * N * (int64_t)sizeof(float), 64};
        if (device->ops->reserve)
                assert_int_equal(device->ops->reserve(device, bytes, &err), RV_OK);
        float *x = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WEIGHTS, bytes[0]),
              found[(BUFFERS + 1) * N];
        float expected[BUFFERS] = {0};
        uint64_t random = seed;
        for (int i = 0; i < (BUFFERS + 1) * N; i++)
                found[i] = i < BUFFERS * N ? 0 : 1;
        device->ops->copy(device, DEVICE_HOST_TO_DEVICE, x, found, bytes[0]);
        device->ops->synchronize(device);
        for (int turn = 0; turn < 300; turn++) {
                const int first = (int)random_below(&random, BUFFERS), count = 1 + first % 3;
                if (device->ops->begin_group)
                        device->ops->begin_group(device);
                for (int k = 0; k < count; k++) {
                        const int buffer = (first + 7 * k) % BUFFERS;
                        kernels_bias(device, x + buffer * N, x + BUFFERS * N, 1, N);
                        expected[buffer] += 1;
                }
                if (device->ops->end_group)
                        device->ops->end_group(device);
                if (turn % 5 == 0) {
                        device->ops->record(device, DEVICE_COMPUTE, turn);
                        assert_int_equal(wait_for_token(device), turn);
                }
        }
        device->ops->synchronize(device);
        device->ops->copy(device, DEVICE_DEVICE_TO_HOST, found, x, bytes[0]);
        device->ops->synchronize(device);
        for (int i = 0; i < BUFFERS * N; i++)
                assert_true(found[i] == expected[i / N]);
        device->ops->close(device);
}

/* The emulated plugin that was built with this program. */
static void use_emulated_plugin(void)
{
        char path[4096], plugin[4200];
        const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
        if (length < 0)
                return;
        path[length] = '\0';
        snprintf(plugin, sizeof plugin, "%s/../emulated/device_cuda.so", dirname(path));
        setenv("RANVIER_DEVICE_CUDA", plugin, 0);
}

#define KERNELS_OF_ANY                                                                                       \
        cmocka_unit_test(products_conform), cmocka_unit_test(fused_products_conform),                        \
                cmocka_unit_test(embeddings_conform), cmocka_unit_test(layernorms_conform),                  \
                cmocka_unit_test(products_with_layernorm_conform), cmocka_unit_test(rmsnorms_conform),       \
                cmocka_unit_test(norms_of_heads_conform), cmocka_unit_test(rotary_positions_conform),        \
                cmocka_unit_test(columns_conform), cmocka_unit_test(latent_attention_conforms),              \
                cmocka_unit_test(elementwise_kernels_conform), cmocka_unit_test(routes_conform),             \
                cmocka_unit_test(corrected_and_grouped_routes_conform),                                      \
                cmocka_unit_test(permutations_conform), cmocka_unit_test(products_of_experts_conform),       \
                cmocka_unit_test(weighted_swiglus_conform),                                                  \
                cmocka_unit_test(ends_of_spread_experts_conform), cmocka_unit_test(softmaxes_conform),       \
                cmocka_unit_test(cross_entropies_conform), cmocka_unit_test(attention_conforms),             \
                cmocka_unit_test(attention_backward_conforms),                                               \
                cmocka_unit_test(attention_of_several_ranks_conforms),                                       \
                cmocka_unit_test(squared_norms_conform), cmocka_unit_test(adamw_conforms)

/* An argument is a pattern of the names of tests to run: "attention*". */
int main(int argc, char **argv)
{
        const struct CMUnitTest of_fp32[] = {KERNELS_OF_ANY};
        const struct CMUnitTest of_halves[] = {KERNELS_OF_ANY, cmocka_unit_test(half_gradients_conform),
                                               cmocka_unit_test(gradients_in_fp32_conform)};
        /* Both halves are one template: what differs is conversions, tensor cores' shapes and rounding. */
        const struct CMUnitTest of_emulated_bf16[] = {cmocka_unit_test(products_conform),
                                                      cmocka_unit_test(fused_products_conform),
                                                      cmocka_unit_test(elementwise_kernels_conform),
                                                      cmocka_unit_test(attention_conforms),
                                                      cmocka_unit_test(attention_backward_conforms),
                                                      cmocka_unit_test(attention_of_several_ranks_conforms),
                                                      cmocka_unit_test(half_gradients_conform),
                                                      cmocka_unit_test(gradients_in_fp32_conform)};
        const struct CMUnitTest of_contract[] = {
                cmocka_unit_test(memory_is_zeroed_aligned_and_counted),
                cmocka_unit_test(what_was_reserved_is_there_and_no_more),
                cmocka_unit_test(tokens_come_once_and_a_lane_s_in_order),
                cmocka_unit_test(lanes_work_side_by_side),
                cmocka_unit_test(the_recorder_is_told_of_every_kernel_in_order),
                cmocka_unit_test(groups_do_what_their_kernels_do),
        };
        const char *given = getenv("RANVIER_TEST_SEED");
        if (given)
                seed = strtoull(given, NULL, 10);
        emulated = !getenv("RANVIER_DEVICE_CUDA");
        use_emulated_plugin();
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        int failed = cmocka_run_group_tests_name("contract", of_contract, NULL, NULL);
        failed += cmocka_run_group_tests_name("fp32", of_fp32, open_fp32, close_pair);
        failed += cmocka_run_group_tests_name("fp16", of_halves, open_fp16, close_pair);
        if (emulated)
                failed += cmocka_run_group_tests_name("bf16", of_emulated_bf16, open_bf16, close_pair);
        else
                failed += cmocka_run_group_tests_name("bf16", of_halves, open_bf16, close_pair);
        return failed;
}
