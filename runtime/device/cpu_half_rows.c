/* The kernels that work on rows, with 16-bit tensors: as many rows at a time as stay in a cache are
 * converted, given to the fp32 kernel, and rounded back. What is summed over the rows stays in fp32 until
 * the last one. */
#include "runtime/device/cpu_half.h"
#include "runtime/device/cpu_rows.h"

#include <assert.h>

/* Elements of all tensors of rows together that are converted at a time, unless a single row is longer: 64
 * KiB of fp32, which are in the second-level cache still when they are rounded. */
enum { PIECE = 1 << 14 };

static bool is_vector(enum cpu_operand operand)
{
        return operand == OPERAND_VECTOR || operand == OPERAND_SUM;
}

static bool is_read(enum cpu_operand operand, const struct kernel *kernel)
{
        return operand == OPERAND_READ || operand == OPERAND_UPDATE ||
               (operand == OPERAND_ADD && kernel->accumulate);
}

/* Gives each tensor its place in the scratch and converts the vectors; returns how many rows fit at once. */
static int64_t place(const enum cpu_operand *operands, const struct kernel *kernel,
                     const struct kernel_args *args, struct kernel_args *piece, real *scratch)
{
        const int64_t n = kernel->n;
        int vectors = 0, tensors = 0;
        for (int i = 0; i < CPU_OPERANDS; i++) {
                if (is_vector(operands[i])) {
                        real *vector = piece->p[i] = scratch + vectors++ * n;
                        reals_from(kernel->half, vector, args->p[i], n);
                }
                tensors += operand_has_rows(operands[i]);
        }
        const int64_t rows = PIECE / (tensors * n) > 0 ? PIECE / (tensors * n) : 1;
        assert((vectors + tensors * rows) * n <= CPU_SCRATCH);
        real *at = scratch + vectors * n;
        for (int i = 0; i < CPU_OPERANDS; i++) {
                if (!operand_has_rows(operands[i]))
                        continue;
                piece->p[i] = at;
                at += rows * n;
        }
        return rows;
}

/* Points `piece` to rows [row, row + kernel->m): those that are read are converted. */
static void take_rows(const enum cpu_operand *operands, const struct kernel *kernel,
                      const struct kernel_args *args, struct kernel_args *piece, int64_t row)
{
        const int64_t n = kernel->n;
        for (int i = 0; i < CPU_OPERANDS; i++) {
                if (operands[i] == OPERAND_TARGETS)
                        piece->p[i] = (int32_t *)args->p[i] + row;
                else if (operands[i] == OPERAND_STATISTICS)
                        piece->p[i] = (real *)args->p[i] + row;
                else if (is_read(operands[i], kernel))
                        reals_from(kernel->half, piece->p[i], (const uint16_t *)args->p[i] + row * n,
                                   kernel->m * n);
        }
}

static void return_rows(const enum cpu_operand *operands, const struct kernel *kernel,
                        const struct kernel_args *args, const struct kernel_args *piece, int64_t row)
{
        const int64_t n = kernel->n;
        for (int i = 0; i < CPU_OPERANDS; i++)
                if (operand_has_rows(operands[i]) && operands[i] != OPERAND_READ)
                        reals_to(kernel->half, (uint16_t *)args->p[i] + row * n, piece->p[i], kernel->m * n);
}

static void run_reals(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        struct kernel of_reals = *kernel;
        of_reals.half = HALF_NONE;
        cpu_run(&of_reals, args, scratch);
}

void cpu_half_rows(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        const enum cpu_operand *operands = cpu_row_operands(kernel->kind);
        const int64_t rows = kernel->batch * kernel->m;
        struct kernel_args piece = *args;
        const int64_t at_once = place(operands, kernel, args, &piece, scratch);
        struct kernel fp32 = *kernel;
        fp32.batch = 1;
        for (int64_t row = 0; row < rows; row += at_once) {
                fp32.m = rows - row < at_once ? rows - row : at_once;
                piece.ld[1] = args->ld[1] + row;
                take_rows(operands, &fp32, args, &piece, row);
                run_reals(&fp32, &piece, scratch);
                return_rows(operands, &fp32, args, &piece, row);
        }
        for (int i = 0; i < CPU_OPERANDS; i++)
                if (operands[i] == OPERAND_SUM)
                        reals_to(kernel->half, args->p[i], piece.p[i], kernel->n);
}
