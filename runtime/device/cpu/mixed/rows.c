/* The kernels that work on rows, with 16-bit tensors: as many rows at a time as stay in a cache are
 * converted, given to the fp32 kernel, and rounded back. What is summed over the rows stays in fp32 until
 * the last one; if it is a gradient that is kept in fp32, it is added to where it lies. */
#include "runtime/device/cpu/mixed/mixed.h"
#include "runtime/device/kernels.h"

#include <assert.h>

/* Elements of all tensors of rows together that are converted at a time, unless a single row is longer: 64
 * KiB of fp32, which are in the second-level cache still when they are rounded. */
enum { PIECE = 1 << 14 };

/* Gives each tensor its place in the scratch and converts the vectors; returns how many rows fit at once. */
static int64_t place(const struct kernel_operand *operands, const struct kernel *kernel,
                     const struct kernel_args *args, struct kernel_args *piece, real *scratch)
{
        const int64_t n = kernel->n;
        int64_t vectors = 0, row_elements = 0;
        for (int i = 0; i < KERNEL_OPERANDS && operands[i].name; i++) {
                if (operand_is_vector(&operands[i]) && !operand_is_wide(&operands[i], kernel)) {
                        real *vector = piece->p[i] = scratch + vectors++ * n;
                        reals_from(kernel->dtype, vector, args->p[i],
                                   operand_vector_elements(&operands[i], kernel));
                }
                if (operand_has_rows(&operands[i]))
                        row_elements += kernels_row_elements(&operands[i], kernel, args);
        }
        assert(row_elements > 0);
        const int64_t rows = PIECE > row_elements ? PIECE / row_elements : 1;
        assert(vectors * n + row_elements * rows <= CPU_SCRATCH);
        real *at = scratch + vectors * n;
        for (int i = 0; i < KERNEL_OPERANDS && operands[i].name; i++) {
                if (!operand_has_rows(&operands[i]))
                        continue;
                piece->p[i] = at;
                at += rows * kernels_row_elements(&operands[i], kernel, args);
        }
        return rows;
}

/* Points `piece` to rows [row, row + kernel->m): those that are read are converted. */
static void take_rows(const struct kernel_operand *operands, const struct kernel *kernel,
                      const struct kernel_args *args, struct kernel_args *piece, int64_t row)
{
        for (int i = 0; i < KERNEL_OPERANDS && operands[i].name; i++) {
                const int64_t each = kernels_row_elements(&operands[i], kernel, args);
                if (operands[i].type == OPERAND_TOKENS)
                        piece->p[i] = (int32_t *)args->p[i] + row;
                else if (operands[i].type == OPERAND_INDEX)
                        piece->p[i] = (int32_t *)args->p[i] + row * each;
                else if (operands[i].type == OPERAND_REAL && each > 0)
                        piece->p[i] = (real *)args->p[i] + row * each;
                else if (operand_has_rows(&operands[i]) && operand_read(&operands[i], kernel))
                        reals_from(kernel->dtype, piece->p[i], (const uint16_t *)args->p[i] + row * each,
                                   kernel->m * each);
        }
}

static void return_rows(const struct kernel_operand *operands, const struct kernel *kernel,
                        const struct kernel_args *args, const struct kernel_args *piece, int64_t row)
{
        for (int i = 0; i < KERNEL_OPERANDS && operands[i].name; i++) {
                const int64_t each = kernels_row_elements(&operands[i], kernel, args);
                if (operand_has_rows(&operands[i]) && operands[i].writes != WHEN_NEVER)
                        reals_to(kernel->dtype, (uint16_t *)args->p[i] + row * each, piece->p[i],
                                 kernel->m * each);
        }
}

static void run_reals(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        struct kernel of_reals = *kernel;
        of_reals.dtype = DTYPE_FP32;
        of_reals.wide = 0;
        cpu_run(&of_reals, args, scratch);
}

void cpu_mixed_rows(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        const struct kernel_operand *operands = kernel_descriptor(kernel->kind)->operands;
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
        for (int i = 0; i < KERNEL_OPERANDS && operands[i].name; i++)
                if (operand_is_summed(&operands[i]) && !operand_is_wide(&operands[i], kernel))
                        reals_to(kernel->dtype, args->p[i], piece.p[i],
                                 operand_vector_elements(&operands[i], kernel));
}
