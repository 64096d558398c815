#include "runtime/device/cpu_split.h"
#include "runtime/device/cpu_half.h"
#include "runtime/device/cpu_rows.h"

#include <string.h>

enum {
        SUMMED_PARTS = 16,     /* of what is summed over parts, whatever the team */
        PARTS_A_THREAD = 4,    /* of other rows, so that a thread that is held up does less */
        LEAST_ROWS = 8,        /* of a part */
        LEAST_ELEMENTS = 4096, /* of a part that is not made of rows */
        ALIGNED_ELEMENTS = 16  /* parts begin at multiples of these: whole vectors, whole cache lines */
};
/* Below so many operations or bytes a kernel is done sooner than a second thread has begun. */
static const double least_flops = 2e5, least_bytes = 3e4;

/* A kernel and how it is split. */
struct job {
        const struct cpu_split *split;
        const struct kernel *kernel;
        const struct kernel_args *args;
        const enum cpu_operand *operands; /* of rows */
        int64_t count, unit;              /* what is split: rows, heads, ... in multiples of `unit` */
        int parts;
        int columns;               /* a product's: of its parts, how many lie side by side */
        double sums[SUMMED_PARTS]; /* loss, norm: of each part */
};

struct range {
        int64_t begin, end;
};

/* The part-th of `parts` nearly equal ranges of `count`, which begin at multiples of `unit`. */
static struct range range_of(int64_t count, int64_t unit, int part, int parts)
{
        const int64_t units = (count + unit - 1) / unit;
        const int64_t begin = units * part / parts * unit, end = units * (part + 1) / parts * unit;
        return (struct range){begin < count ? begin : count, end < count ? end : count};
}

static struct range own_range(const struct job *w, int part)
{
        return range_of(w->count, w->unit, part, w->parts);
}

static void *advance(const void *p, int64_t bytes)
{
        return p ? (char *)p + bytes : NULL;
}

static void run(const struct job *w, cpu_part_fn *part)
{
        cpu_team_run(w->split->team, w->parts, part, (void *)w);
}

/* ---- rows ---- */

/* Where a part leaves the index-th of its sums over rows. */
static real *partial_sum(const struct job *w, int part, int index)
{
        return w->split->sums + ((int64_t)index * w->parts + part) * w->kernel->n;
}

static void rows_part(void *context, int part, real *scratch)
{
        struct job *w = context;
        const struct range rows = own_range(w, part);
        const int64_t n = w->kernel->n, row_bytes = n * element_bytes((enum half)w->kernel->half);
        struct kernel kernel = *w->kernel;
        struct kernel_args args = *w->args;
        kernel.batch = 1;
        kernel.m = rows.end - rows.begin;
        args.ld[1] += rows.begin;
        int sums = 0;
        for (int i = 0; i < CPU_OPERANDS; i++) {
                const enum cpu_operand operand = w->operands[i];
                if (operand_has_rows(operand))
                        args.p[i] = advance(args.p[i], rows.begin * row_bytes);
                else if (operand == OPERAND_TARGETS)
                        args.p[i] = advance(args.p[i], rows.begin * (int64_t)sizeof(int32_t));
                else if (operand == OPERAND_STATISTICS)
                        args.p[i] = (real *)args.p[i] + rows.begin;
                else if (operand == OPERAND_LOSS && args.p[i])
                        args.p[i] = &w->sums[part];
                else if (operand == OPERAND_SUM)
                        args.p[i] = memset(partial_sum(w, part, sums++), 0, (size_t)n * sizeof(real));
        }
        w->split->run(&kernel, &args, scratch);
}

static void add_partial_sums(const struct job *w, real *restrict sum, int index)
{
        for (int part = 0; part < w->parts; part++) {
                const real *restrict partial = partial_sum(w, part, index);
                for (int64_t j = 0; j < w->kernel->n; j++)
                        sum[j] += partial[j];
        }
}

static void add_sums(const struct job *w)
{
        int sums = 0;
        for (int i = 0; i < CPU_OPERANDS; i++) {
                if (w->operands[i] == OPERAND_SUM)
                        add_partial_sums(w, w->args->p[i], sums++);
                for (int part = 0; w->operands[i] == OPERAND_LOSS && w->args->p[i] && part < w->parts; part++)
                        *(double *)w->args->p[i] += w->sums[part];
        }
}

static int count_operands(const enum cpu_operand *operands, enum cpu_operand wanted)
{
        int count = 0;
        for (int i = 0; i < CPU_OPERANDS; i++)
                count += operands[i] == wanted;
        return count;
}

/* False: not split. Sums of 16-bit tensors are rounded once, so one thread makes them. */
static bool split_rows(struct job *w)
{
        w->operands = cpu_row_operands(w->kernel->kind);
        const int sums = count_operands(w->operands, OPERAND_SUM);
        w->count = w->kernel->batch * w->kernel->m;
        w->unit = 1;
        w->parts = sums + count_operands(w->operands, OPERAND_LOSS) > 0
                           ? SUMMED_PARTS
                           : PARTS_A_THREAD * cpu_team_threads(w->split->team);
        w->parts = (int)least(w->parts, w->count / LEAST_ROWS);
        if (w->parts < 2 || (sums > 0 && w->kernel->half) || w->parts * sums * w->kernel->n > CPU_SCRATCH)
                return false;
        run(w, rows_part);
        add_sums(w);
        return true;
}

/* ---- heads of attention ---- */

static void heads_part(void *context, int part, real *scratch)
{
        const struct job *w = context;
        const struct range heads = own_range(w, part);
        struct kernel kernel = *w->kernel;
        struct kernel_args args = *w->args;
        kernel.batch = heads.end - heads.begin;
        args.ld[1] = heads.begin;
        w->split->run(&kernel, &args, scratch);
}

static bool split_heads(struct job *w)
{
        w->count = w->kernel->batch;
        w->unit = 1;
        w->parts = (int)least(w->count, SUMMED_PARTS * cpu_team_threads(w->split->team));
        run(w, heads_part);
        return true;
}

/* ---- products ---- */

/* Some matrices of the batch, those of one outer index at a time. */
static void batch_part(void *context, int part, real *scratch)
{
        const struct job *w = context;
        const struct range range = own_range(w, part);
        const int64_t inner = w->args->inner;
        struct kernel kernel = *w->kernel;
        for (int64_t at = range.begin; at < range.end; at += kernel.batch) {
                const int64_t left = inner - at % inner, bytes = element_bytes((enum half)w->kernel->half);
                struct kernel_args args = *w->args;
                kernel.batch = args.inner = least(left, range.end - at);
                for (int i = 0; i < 3; i++)
                        args.p[i] = advance(
                                args.p[i],
                                (at / inner * args.stride[i][0] + at % inner * args.stride[i][1]) * bytes);
                w->split->run(&kernel, &args, scratch);
        }
}

static bool split_batch(struct job *w)
{
        w->count = w->kernel->batch;
        w->unit = 1;
        w->parts = (int)least(w->count, SUMMED_PARTS * cpu_team_threads(w->split->team));
        run(w, batch_part);
        return true;
}

/* Where the operands of a product of any kind are in args->p; -1: it has none such. `more` lies as c does. */
struct product_places {
        int a, b, c, bias, more;
};

static struct product_places places_of(enum kernel_kind kind)
{
        switch (kind) {
        case KERNEL_MATMUL_BIAS:
                return (struct product_places){.c = 0, .a = 1, .b = 2, .bias = 3, .more = -1};
        case KERNEL_MATMUL_BIAS_GELU:
                return (struct product_places){.more = 0, .c = 1, .a = 2, .b = 3, .bias = 4};
        case KERNEL_MATMUL_BIAS_RESIDUAL:
        case KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM:
                return (struct product_places){.c = 0, .a = 1, .b = 2, .bias = 3, .more = 4};
        case KERNEL_MATMUL_GELU_BACKWARD:
                return (struct product_places){.c = 0, .a = 1, .b = 2, .bias = -1, .more = 3};
        default:
                return (struct product_places){.a = 0, .b = 1, .c = 2, .bias = -1, .more = -1};
        }
}

/* Beside them, of one with a LayerNorm. */
enum { LAYERNORM_OUT = 5, LAYERNORM_STATS = 6 };

static void advance_at(struct kernel_args *args, int place, int64_t elements, const struct kernel *kernel)
{
        if (place >= 0)
                args->p[place] = advance(args->p[place], elements * element_bytes((enum half)kernel->half));
}

/* One block of c: some rows of op(a), some columns of op(b). */
static void block_part(void *context, int part, real *scratch)
{
        const struct job *w = context;
        const struct kernel *whole = w->kernel;
        const struct range m = range_of(whole->m, ALIGNED_ELEMENTS, part / w->columns, w->parts / w->columns);
        const struct range n = range_of(whole->n, ALIGNED_ELEMENTS, part % w->columns, w->columns);
        const struct product_places at = places_of(whole->kind);
        struct kernel kernel = *whole;
        struct kernel_args args = *w->args;
        kernel.m = m.end - m.begin;
        kernel.n = n.end - n.begin;
        if (kernel.m == 0 || kernel.n == 0)
                return;
        const int64_t c = m.begin * args.ld[2] + n.begin;
        advance_at(&args, at.a, m.begin * (whole->transpose_a ? 1 : args.ld[0]), whole);
        advance_at(&args, at.b, n.begin * (whole->transpose_b ? args.ld[1] : 1), whole);
        advance_at(&args, at.c, c, whole);
        advance_at(&args, at.more, c, whole);
        advance_at(&args, at.bias, n.begin, whole);
        if (whole->kind == KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM) {
                advance_at(&args, LAYERNORM_OUT, c, whole);
                args.p[LAYERNORM_STATS] = (real *)args.p[LAYERNORM_STATS] + m.begin;
        }
        w->split->run(&kernel, &args, scratch);
}

/* Every block copies its rows of op(a) and its columns of op(b) into BLAS's own layout: of all ways to have
 * as many blocks as threads, at most so many of them side by side, the one that copies least. */
static bool split_blocks(struct job *w, int most_columns)
{
        const int threads = cpu_team_threads(w->split->team);
        const double m = (double)w->kernel->m, n = (double)w->kernel->n;
        w->parts = threads;
        w->columns = 1;
        double fewest = m + n * threads;
        for (int columns = 2; columns <= most_columns; columns++) {
                const double copied = m * columns + n * (threads / columns);
                if (threads % columns != 0 || copied >= fewest)
                        continue;
                fewest = copied;
                w->columns = columns;
        }
        run(w, block_part);
        return true;
}

/* ---- elements of flat arrays ---- */

static void flat_part(void *context, int part, real *scratch)
{
        struct job *w = context;
        const struct range range = own_range(w, part);
        const int64_t stored = range.begin * element_bytes((enum half)w->kernel->half);
        const int64_t reals = range.begin * (int64_t)sizeof(real);
        struct kernel kernel = *w->kernel;
        struct kernel_args args = *w->args;
        kernel.m = range.end - range.begin;
        switch (kernel.kind) {
        case KERNEL_SQUARED_NORM:
        case KERNEL_OVERFLOW:
                kernel.accumulate = 0;
                args.p[0] = &w->sums[part];
                args.p[1] = advance(args.p[1], stored);
                break;
        case KERNEL_UNSCALE:
                args.p[0] = advance(args.p[0], reals);
                args.p[1] = advance(args.p[1], stored);
                break;
        case KERNEL_ADAMW:
                for (int i = 0; i < 4; i++)
                        args.p[i] = advance(args.p[i], reals);
                args.p[6] = advance(args.p[6], stored);
                args.ld[0] += range.begin;
                break;
        default: /* KERNEL_CLEAR */
                args.p[0] = advance(args.p[0], stored);
        }
        w->split->run(&kernel, &args, scratch);
}

/* A norm is the sum of the parts' norms; an overflow anywhere is one. */
static void join_flat(const struct job *w)
{
        double *result = w->args->p[0], sum = 0;
        for (int part = 0; part < w->parts; part++)
                sum += w->sums[part];
        if (w->kernel->kind == KERNEL_SQUARED_NORM)
                *result = w->kernel->accumulate ? *result + sum : sum;
        else if (w->kernel->kind == KERNEL_OVERFLOW)
                *result = sum > 0;
}

static bool split_flat(struct job *w)
{
        w->count = w->kernel->m;
        w->unit = ALIGNED_ELEMENTS;
        w->parts = (int)least(SUMMED_PARTS, w->count / LEAST_ELEMENTS);
        if (w->parts < 2)
                return false;
        run(w, flat_part);
        join_flat(w);
        return true;
}

/* ---- */

static bool split(struct job *w)
{
        const int threads = cpu_team_threads(w->split->team);
        switch (w->kernel->kind) {
        case KERNEL_MATMUL:
                return w->kernel->batch > 1 ? split_batch(w) : split_blocks(w, threads);
        case KERNEL_MATMUL_BIAS:
        case KERNEL_MATMUL_BIAS_GELU:
        case KERNEL_MATMUL_BIAS_RESIDUAL:
        case KERNEL_MATMUL_GELU_BACKWARD:
                return split_blocks(w, threads);
        case KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM: /* needs whole rows */
                return split_blocks(w, 1);
        case KERNEL_ATTENTION:
        case KERNEL_ATTENTION_BACKWARD:
                return split_heads(w);
        case KERNEL_SQUARED_NORM:
        case KERNEL_ADAMW:
        case KERNEL_OVERFLOW:
        case KERNEL_UNSCALE:
        case KERNEL_CLEAR:
                return split_flat(w);
        case KERNEL_EMBEDDING: /* a thousandth of a batch */
        case KERNEL_EMBEDDING_BACKWARD:
                return false;
        default:
                return split_rows(w);
        }
}

static bool is_small(const struct kernel *kernel)
{
        return kernel_flops(kernel) < least_flops && kernel_bytes(kernel) < least_bytes;
}

static void whole_part(void *context, int part, real *scratch)
{
        const struct job *w = context;
        (void)part;
        w->split->run(w->kernel, w->args, scratch);
}

void cpu_split_run(const struct cpu_split *s, const struct kernel *kernel, const struct kernel_args *args)
{
        struct job w = {.split = s, .kernel = kernel, .args = args, .parts = 1};
        if (is_small(kernel) || !split(&w)) {
                w.parts = 1;
                run(&w, whole_part);
        }
}
