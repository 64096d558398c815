/* The kernels that work on rows, with 16-bit tensors: as many rows at a time as stay in a cache are
 * converted, given to the fp32 kernel, and rounded back. What is summed over the rows stays in fp32 until
 * the last one. */
#include "runtime/device/cpu_half.h"

#include <assert.h>

enum operand {
        NONE,
        PLAIN,      /* not a tensor: passed on as it is */
        TARGETS,    /* int32, one a row */
        STATISTICS, /* fp32, one a row (and one more, args->ld[0] behind it) */
        READ,       /* a tensor of rows */
        WRITE,
        UPDATE, /* read and written */
        ADD,    /* read too if the kernel accumulates */
        VECTOR, /* as long as a row, read for each */
        SUM     /* as long as a row, added to by each */
};
enum { OPERANDS = 7 };

struct row_kernel {
        cpu_kernel_fn *run;
        enum operand operands[OPERANDS]; /* in the order of args->p */
};

static const struct row_kernel row_kernels[KERNEL_KINDS] = {
        [KERNEL_LAYERNORM] = {cpu_layernorm, {WRITE, STATISTICS, READ, VECTOR, VECTOR}},
        [KERNEL_LAYERNORM_BACKWARD] = {cpu_layernorm_backward,
                                       {ADD, SUM, SUM, READ, READ, STATISTICS, VECTOR}},
        [KERNEL_BIAS] = {cpu_bias, {UPDATE, VECTOR}},
        [KERNEL_BIAS_BACKWARD] = {cpu_bias_backward, {SUM, READ}},
        [KERNEL_BIAS_GELU] = {cpu_bias_gelu, {WRITE, UPDATE, VECTOR}},
        [KERNEL_GELU_BACKWARD] = {cpu_gelu_backward, {UPDATE, READ}},
        [KERNEL_BIAS_RESIDUAL] = {cpu_bias_residual, {UPDATE, VECTOR, READ}},
        [KERNEL_SOFTMAX] = {cpu_softmax, {UPDATE}},
        [KERNEL_SOFTMAX_BACKWARD] = {cpu_softmax_backward, {UPDATE, READ}},
        [KERNEL_CROSS_ENTROPY] = {cpu_cross_entropy, {PLAIN, UPDATE, TARGETS}},
        [KERNEL_CROSS_ENTROPY_LOSS] = {cpu_cross_entropy_loss, {PLAIN, READ, TARGETS}},
};

/* Elements of all tensors of rows together that are converted at a time, unless a single row is longer: 64
 * KiB of fp32, which are in the second-level cache still when they are rounded. */
enum { PIECE = 1 << 14 };

static bool has_rows(enum operand operand)
{
        return operand >= READ && operand <= ADD;
}

static bool is_vector(enum operand operand)
{
        return operand == VECTOR || operand == SUM;
}

static bool is_read(enum operand operand, const struct kernel *kernel)
{
        return operand == READ || operand == UPDATE || (operand == ADD && kernel->accumulate);
}

/* Gives each tensor its place in the scratch and converts the vectors; returns how many rows fit at once. */
static int64_t place(const enum operand *operands, const struct kernel *kernel,
                     const struct kernel_args *args, struct kernel_args *piece, real *scratch)
{
        const int64_t n = kernel->n;
        int vectors = 0, tensors = 0;
        for (int i = 0; i < OPERANDS; i++) {
                if (is_vector(operands[i])) {
                        real *vector = piece->p[i] = scratch + vectors++ * n;
                        reals_from(kernel->half, vector, args->p[i], n);
                }
                tensors += has_rows(operands[i]);
        }
        const int64_t rows = PIECE / (tensors * n) > 0 ? PIECE / (tensors * n) : 1;
        assert((vectors + tensors * rows) * n <= CPU_SCRATCH);
        real *at = scratch + vectors * n;
        for (int i = 0; i < OPERANDS; i++) {
                if (!has_rows(operands[i]))
                        continue;
                piece->p[i] = at;
                at += rows * n;
        }
        return rows;
}

/* Points `piece` to rows [row, row + kernel->m): those that are read are converted. */
static void take_rows(const enum operand *operands, const struct kernel *kernel,
                      const struct kernel_args *args, struct kernel_args *piece, int64_t row)
{
        const int64_t n = kernel->n;
        for (int i = 0; i < OPERANDS; i++) {
                if (operands[i] == TARGETS)
                        piece->p[i] = (int32_t *)args->p[i] + row;
                else if (operands[i] == STATISTICS)
                        piece->p[i] = (real *)args->p[i] + row;
                else if (is_read(operands[i], kernel))
                        reals_from(kernel->half, piece->p[i], (const uint16_t *)args->p[i] + row * n,
                                   kernel->m * n);
        }
}

static void return_rows(const enum operand *operands, const struct kernel *kernel,
                        const struct kernel_args *args, const struct kernel_args *piece, int64_t row)
{
        const int64_t n = kernel->n;
        for (int i = 0; i < OPERANDS; i++)
                if (has_rows(operands[i]) && operands[i] != READ)
                        reals_to(kernel->half, (uint16_t *)args->p[i] + row * n, piece->p[i], kernel->m * n);
}

void cpu_half_rows(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        const struct row_kernel *work = &row_kernels[kernel->kind];
        const int64_t rows = kernel->batch * kernel->m;
        struct kernel_args piece = *args;
        const int64_t at_once = place(work->operands, kernel, args, &piece, scratch);
        struct kernel fp32 = *kernel;
        fp32.batch = 1;
        for (int64_t row = 0; row < rows; row += at_once) {
                fp32.m = rows - row < at_once ? rows - row : at_once;
                piece.ld[1] = row;
                take_rows(work->operands, &fp32, args, &piece, row);
                work->run(&fp32, &piece);
                return_rows(work->operands, &fp32, args, &piece, row);
        }
        for (int i = 0; i < OPERANDS; i++)
                if (work->operands[i] == SUM)
                        reals_to(kernel->half, args->p[i], piece.p[i], kernel->n);
}
