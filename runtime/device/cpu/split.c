#include "runtime/device/cpu/split.h"
#include "runtime/base/minmax.h"
#include "runtime/device/cpu/mixed/mixed.h"
#include "runtime/device/kernels.h"

#include <assert.h>
#include <string.h>

enum {
        SUMMED_PARTS = 16,    /* of what is summed over parts, whatever the team */
        PARTS_A_THREAD = 4,   /* of other rows, so that a thread that is held up does less */
        MIN_ROWS = 8,         /* of a part */
        MIN_ELEMENTS = 4096,  /* of a part that is not made of rows */
        ALIGNED_ELEMENTS = 16 /* parts begin at multiples of these: whole vectors, whole cache lines */
};
/* Below so many operations or bytes a kernel is done sooner than a second thread has begun. */
static const double min_flops = 2e5, min_bytes = 3e4;

/* A kernel and how it is split. */
struct job {
        const struct cpu_split *split;
        const struct kernel *kernel;
        const struct kernel_args *args;
        const struct kernel_descriptor *kind;
        int64_t count, unit; /* what is split: rows, heads, ... in multiples of `unit` */
        int parts;
        int columns;               /* a product's: of its parts, how many lie side by side */
        double sums[SUMMED_PARTS]; /* numbers: of each part */
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

static int64_t operand_bytes(const struct kernel_operand *operand, const struct kernel *kernel)
{
        const bool stored = operand->type == OPERAND_STORED && !operand_is_wide(operand, kernel);
        return operand->type == OPERAND_INDEX
                       ? (int64_t)sizeof(int32_t)
                       : element_bytes(stored ? (enum dtype)kernel->dtype : DTYPE_FP32);
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
        const int64_t n = w->kernel->n;
        struct kernel kernel = *w->kernel;
        struct kernel_args args = *w->args;
        kernel.batch = 1;
        kernel.m = rows.end - rows.begin;
        args.ld[1] += rows.begin;
        int sums = 0;
        for (int i = 0; i < KERNEL_OPERANDS && w->kind->operands[i].name; i++) {
                const struct kernel_operand *operand = &w->kind->operands[i];
                const int64_t row_elements = kernels_row_elements(operand, &kernel, w->args);
                if (row_elements > 0)
                        args.p[i] = advance(args.p[i],
                                            rows.begin * row_elements * operand_bytes(operand, &kernel));
                else if (operand->type == OPERAND_TOKENS)
                        args.p[i] = advance(args.p[i], rows.begin * (int64_t)sizeof(int32_t));
                else if (operand->type == OPERAND_NUMBER && args.p[i])
                        args.p[i] = &w->sums[part];
                else if (operand_is_summed(operand))
                        args.p[i] = memset(partial_sum(w, part, sums++), 0, (size_t)n * sizeof(real));
        }
        w->split->run(&kernel, &args, scratch);
}

static void add_partial_sums(const struct job *w, real *restrict sum, int64_t elements, int index)
{
        for (int part = 0; part < w->parts; part++) {
                const real *restrict partial = partial_sum(w, part, index);
                for (int64_t j = 0; j < elements; j++)
                        sum[j] += partial[j];
        }
}

static void add_sums(const struct job *w)
{
        int sums = 0;
        for (int i = 0; i < KERNEL_OPERANDS && w->kind->operands[i].name; i++) {
                const struct kernel_operand *operand = &w->kind->operands[i];
                const bool number = operand->type == OPERAND_NUMBER && w->args->p[i];
                if (operand_is_summed(operand))
                        add_partial_sums(w, w->args->p[i], operand_vector_elements(operand, w->kernel),
                                         sums++);
                for (int part = 0; number && part < w->parts; part++)
                        *(double *)w->args->p[i] += w->sums[part];
        }
}

/* False: not split. Sums in 16 bits are rounded once, so one thread makes them. */
static bool split_rows(struct job *w)
{
        int sums = 0, numbers = 0;
        for (int i = 0; i < KERNEL_OPERANDS && w->kind->operands[i].name; i++) {
                sums += operand_is_summed(&w->kind->operands[i]);
                numbers += w->kind->operands[i].type == OPERAND_NUMBER;
        }
        w->count = w->kernel->batch * w->kernel->m;
        w->unit = 1;
        w->parts = sums + numbers > 0 ? SUMMED_PARTS : PARTS_A_THREAD * cpu_team_threads(w->split->team);
        w->parts = (int)min_int64(w->parts, w->count / MIN_ROWS);
        const bool rounded = w->kernel->dtype != DTYPE_FP32 && !w->kernel->wide;
        if (w->parts < 2 || (sums > 0 && rounded) || w->parts * sums * w->kernel->n > CPU_SCRATCH)
                return false;
        run(w, rows_part);
        add_sums(w);
        return true;
}

/* ---- heads of attention, which stay with those that they share keys with ---- */

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
        w->unit = kernel_group(w->kernel);
        w->parts = (int)min_int64(w->count / w->unit, SUMMED_PARTS * cpu_team_threads(w->split->team));
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
                const int64_t left = inner - at % inner;
                struct kernel_args args = *w->args;
                kernel.batch = args.inner = min_int64(left, range.end - at);
                for (int i = 0; i < 3; i++)
                        args.p[i] = advance(
                                args.p[i], (at / inner * args.stride[i][0] + at % inner * args.stride[i][1]) *
                                                   operand_bytes(&w->kind->operands[i], w->kernel));
                w->split->run(&kernel, &args, scratch);
        }
}

static bool split_batch(struct job *w)
{
        w->count = w->kernel->batch;
        w->unit = 1;
        w->parts = (int)min_int64(w->count, SUMMED_PARTS * cpu_team_threads(w->split->team));
        run(w, batch_part);
        return true;
}

/* Elements from the beginning of an operand to a block's at row m and column n of the product. */
static int64_t block_offset(const struct kernel *whole, const struct kernel_args *args,
                            enum operand_extent extent, int64_t m, int64_t n)
{
        switch (extent) {
        case EXTENT_MK:
                return m * (whole->transpose_a ? 1 : args->ld[0]);
        case EXTENT_KN:
                return n * (whole->transpose_b ? args->ld[1] : 1);
        case EXTENT_MN:
                return m * args->ld[2] + n;
        case EXTENT_2M:
                return m;
        default:
                assert(extent == EXTENT_N);
                return n;
        }
}

/* One block of c: some rows of op(a), some columns of op(b). */
static void block_part(void *context, int part, real *scratch)
{
        const struct job *w = context;
        const struct kernel *whole = w->kernel;
        const struct range m = range_of(whole->m, ALIGNED_ELEMENTS, part / w->columns, w->parts / w->columns);
        const struct range n = range_of(whole->n, ALIGNED_ELEMENTS, part % w->columns, w->columns);
        struct kernel kernel = *whole;
        struct kernel_args args = *w->args;
        kernel.m = m.end - m.begin;
        kernel.n = n.end - n.begin;
        if (kernel.m == 0 || kernel.n == 0)
                return;
        for (int i = 0; i < KERNEL_OPERANDS && w->kind->operands[i].name; i++) {
                const struct kernel_operand *operand = &w->kind->operands[i];
                const int64_t bytes = operand_bytes(operand, whole);
                args.p[i] = advance(args.p[i],
                                    bytes * block_offset(whole, w->args, operand->extent, m.begin, n.begin));
        }
        w->split->run(&kernel, &args, scratch);
}

/* Every block copies its rows of op(a) and its columns of op(b) into BLAS's own layout: of all ways to have
 * as many blocks as threads, at most so many of them side by side, the one that copies least. */
static bool split_blocks(struct job *w, int max_columns)
{
        const int threads = cpu_team_threads(w->split->team);
        const double m = (double)w->kernel->m, n = (double)w->kernel->n;
        w->parts = threads;
        w->columns = 1;
        double fewest = m + n * threads;
        for (int columns = 2; columns <= max_columns; columns++) {
                const double copied = m * columns + n * (threads / columns);
                if (threads % columns != 0 || copied >= fewest)
                        continue;
                fewest = copied;
                w->columns = columns;
        }
        run(w, block_part);
        return true;
}

/* ---- products of experts, one after the other, each like any product ---- */

/* The rows of tokens that an expert has: from, to. */
static struct range expert_rows(const int32_t *ends, int expert)
{
        return (struct range){expert > 0 ? ends[expert - 1] : 0, ends[expert]};
}

static void split_experts(const struct job *w)
{
        enum { A, B, C, ENDS };
        const bool backward = w->kernel->kind == KERNEL_GROUPED_MATMUL_BACKWARD;
        const int32_t *ends = w->args->p[ENDS];
        struct kernel product = *w->kernel;
        product.kind = KERNEL_MATMUL;
        product.experts = 0;
        product.accumulate = backward;
        for (int expert = 0; expert < w->kernel->experts; expert++) {
                const struct range rows = expert_rows(ends, expert);
                struct kernel_args args = *w->args;
                *(backward ? &product.k : &product.m) = rows.end - rows.begin;
                if (rows.end == rows.begin)
                        continue;
                for (int i = A; i <= C; i++) {
                        const int64_t at = i == (backward ? C : B) ? expert * args.stride[i][0]
                                                                   : rows.begin * args.ld[i];
                        args.p[i] = advance(args.p[i], at * operand_bytes(&w->kind->operands[i], w->kernel));
                }
                cpu_split_run(w->split, &product, &args);
        }
}

/* ---- elements of flat arrays ---- */

static void flat_part(void *context, int part, real *scratch)
{
        struct job *w = context;
        const struct range range = own_range(w, part);
        struct kernel kernel = *w->kernel;
        struct kernel_args args = *w->args;
        kernel.m = range.end - range.begin;
        args.ld[0] += range.begin;
        for (int i = 0; i < KERNEL_OPERANDS && w->kind->operands[i].name; i++) {
                const struct kernel_operand *operand = &w->kind->operands[i];
                if (operand->extent == EXTENT_M)
                        args.p[i] = advance(args.p[i], range.begin * operand_bytes(operand, w->kernel));
        }
        if (w->kind->result != RESULT_NONE) {
                kernel.accumulate = 0;
                args.p[0] = &w->sums[part];
        }
        w->split->run(&kernel, &args, scratch);
}

/* A norm is the sum of the parts' norms; an overflow anywhere is one. */
static void join_flat(const struct job *w)
{
        double *result = w->args->p[0], sum = 0;
        for (int part = 0; part < w->parts; part++)
                sum += w->sums[part];
        if (w->kind->result == RESULT_SUM)
                *result = w->kernel->accumulate ? *result + sum : sum;
        else if (w->kind->result == RESULT_ANY)
                *result = sum > 0;
}

static bool split_flat(struct job *w)
{
        w->count = w->kernel->m;
        w->unit = ALIGNED_ELEMENTS;
        w->parts = (int)min_int64(SUMMED_PARTS, w->count / MIN_ELEMENTS);
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
        switch (w->kind->split) {
        case SPLIT_ROWS:
                return split_rows(w);
        case SPLIT_BLOCKS:
                return w->kernel->batch > 1 ? split_batch(w) : split_blocks(w, threads);
        case SPLIT_WHOLE_ROWS:
                return split_blocks(w, 1);
        case SPLIT_HEADS:
                return split_heads(w);
        case SPLIT_ELEMENTS:
                return split_flat(w);
        default:
                return false;
        }
}

static bool is_small(const struct kernel *kernel)
{
        return kernel_flops(kernel) < min_flops && kernel_bytes(kernel) < min_bytes;
}

static void whole_part(void *context, int part, real *scratch)
{
        const struct job *w = context;
        (void)part;
        w->split->run(w->kernel, w->args, scratch);
}

/* Of a kernel on the rows of experts: the kernel on as many as there are. */
static struct kernel of_rows(const struct kernel *kernel, const struct kernel_args *args)
{
        const struct kernel_operand *operands = kernel_descriptor(kernel->kind)->operands;
        struct kernel actual = *kernel;
        for (int i = 0; i < KERNEL_OPERANDS && operands[i].name; i++)
                if (operands[i].type == OPERAND_INDEX)
                        actual.m = ((const int32_t *)args->p[i])[kernel->experts - 1];
        return actual;
}

void cpu_split_run(const struct cpu_split *s, const struct kernel *planned, const struct kernel_args *args)
{
        const bool counted = planned->experts && kernel_descriptor(planned->kind)->split == SPLIT_ROWS;
        const struct kernel actual = counted ? of_rows(planned, args) : *planned, *kernel = &actual;
        if (kernel->m == 0)
                return;
        struct job w = {.split = s,
                        .kernel = kernel,
                        .args = args,
                        .kind = kernel_descriptor(kernel->kind),
                        .parts = 1};
        if (w.kind->split == SPLIT_EXPERTS) {
                split_experts(&w);
        } else if (is_small(kernel) || !split(&w)) {
                w.parts = 1;
                run(&w, whole_part);
        }
}
