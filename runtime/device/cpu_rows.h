/* What the operands of kernels that work on rows are: so that rows of them can be converted, or given to
 * several threads, without knowing more of the kernel. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_ROWS_H
#define RANVIER_RUNTIME_DEVICE_CPU_ROWS_H

#include "models/workload.h"

#include <stdbool.h>

enum cpu_operand {
        OPERAND_NONE,
        OPERAND_LOSS,       /* double, added to by every row; may be NULL */
        OPERAND_TARGETS,    /* int32, one a row; may be NULL */
        OPERAND_STATISTICS, /* fp32, one a row (and one more, args->ld[0] behind it) */
        OPERAND_READ,       /* a tensor of rows; may be NULL */
        OPERAND_WRITE,
        OPERAND_UPDATE, /* read and written */
        OPERAND_ADD,    /* read too if the kernel accumulates */
        OPERAND_VECTOR, /* as long as a row, read for each */
        OPERAND_SUM     /* as long as a row, added to by each */
};
enum { CPU_OPERANDS = 7 };

/* Those of a kernel of batch x m rows of n, in the order of args->p; NULL: it is none that works on rows. Its
 * first row is args->ld[1]. */
const enum cpu_operand *cpu_row_operands(enum kernel_kind kind);

static inline bool operand_has_rows(enum cpu_operand operand)
{
        return operand >= OPERAND_READ && operand <= OPERAND_ADD;
}

#endif
