#include "models/kernels/kernel.h"

#include <math.h>
#include <string.h>

static bool happens(enum operand_when when, const struct kernel *kernel)
{
        switch (when) {
        case WHEN_ALWAYS:
                return true;
        case WHEN_ACCUMULATING:
                return kernel->accumulate;
        case WHEN_MIXED:
                return kernel->dtype != DTYPE_FP32;
        case WHEN_FP32:
                return kernel->dtype == DTYPE_FP32 || kernel->wide;
        case WHEN_TRANSPOSING:
                return kernel->transpose_b;
        default:
                return false;
        }
}

bool operand_read(const struct kernel_operand *operand, const struct kernel *kernel)
{
        return happens(operand->reads, kernel);
}

bool operand_written(const struct kernel_operand *operand, const struct kernel *kernel)
{
        return happens(operand->writes, kernel);
}

bool kernel_repeats(enum kernel_kind kind)
{
        const struct kernel_operand *operands = kernel_descriptor(kind)->operands;
        for (int i = 0; i < KERNEL_OPERANDS && operands[i].name; i++)
                if (operands[i].type == OPERAND_TOKENS || operands[i].type == OPERAND_HOST)
                        return false;
        return true;
}

int kernel_parts(const struct kernel *kernel, struct kernel parts[KERNEL_PARTS])
{
        const struct kernel_descriptor *descriptor = kernel_descriptor(kernel->kind);
        for (int i = 0; i < KERNEL_PARTS && i < descriptor->parts; i++) {
                const bool product = kernel_descriptor(descriptor->part[i])->products > 0;
                parts[i] = *kernel;
                parts[i].kind = descriptor->part[i];
                parts[i].transpose_a = product && kernel->transpose_a;
                parts[i].transpose_b = product && kernel->transpose_b;
                parts[i].k = product ? kernel->k : 0;
                parts[i].format = product ? kernel->format : FORMAT_STORED;
        }
        return descriptor->parts;
}

const char *kernel_name(enum kernel_kind kind)
{
        return kernel_descriptor(kind)->name;
}

int kernel_kind_of(const char *name)
{
        for (int kind = 0; kind < KERNEL_KINDS; kind++)
                if (strcmp(kernel_name((enum kernel_kind)kind), name) == 0)
                        return kind;
        return -1;
}

int64_t kernel_collective_bytes(const struct kernel *kernel, int real_bytes)
{
        if (kernel->format != FORMAT_STORED)
                return (int64_t)ceil(format_bytes((enum product_format)kernel->format,
                                                  (double)kernel->m * (double)kernel->n));
        return kernel->m * kernel->n * (kernel->dtype == DTYPE_FP32 ? real_bytes : 2);
}

bool kernel_same(const struct kernel *a, const struct kernel *b)
{
        return a->kind == b->kind && a->transpose_a == b->transpose_a && a->transpose_b == b->transpose_b &&
               a->accumulate == b->accumulate && a->dtype == b->dtype && a->format == b->format &&
               a->wide == b->wide && kernel_group(a) == kernel_group(b) && a->experts == b->experts &&
               a->batch == b->batch && a->m == b->m && a->n == b->n && a->k == b->k && a->l == b->l;
}

/* Elements on and below the diagonal of a causal kernel's (m,n) matrices. */
static double causal_elements(const struct kernel *kernel)
{
        return (double)kernel->batch * (double)kernel->m * (double)(kernel->n + 1) / 2;
}

double kernel_flops(const struct kernel *kernel)
{
        const struct kernel_descriptor *d = kernel_descriptor(kernel->kind);
        const double n = kernel->n > 0 ? (double)kernel->n : 1;
        const double all = (double)kernel->batch * (double)kernel->m * n;
        const double elements = d->causal ? causal_elements(kernel) : d->half ? all / 2 : all;
        return elements * (2 * d->products * (double)kernel->k + d->flops +
                           (kernel->accumulate ? d->accumulate_flops : 0));
}

static double extent_elements(enum operand_extent extent, const struct kernel *kernel)
{
        const double m = (double)kernel->m, n = (double)kernel->n, k = (double)kernel->k;
        const double elements[EXTENTS] = {
                [EXTENT_M] = m,
                [EXTENT_2M] = 2 * m,
                [EXTENT_N] = n,
                [EXTENT_MN] = m * n,
                [EXTENT_M2N] = 2 * m * n,
                [EXTENT_MK] = m * k,
                [EXTENT_KN] = k * n,
                [EXTENT_QKV] = m * k * (1 + 2.0 / kernel_group(kernel)),
                [EXTENT_QUERIES] = m * k,
                [EXTENT_KEYS] = m * k * 2.0 / kernel_group(kernel),
                [EXTENT_HEADS] = k > 0 ? m * n / k : 0,
                [EXTENT_2K] = 2 * k,
                [EXTENT_ROWS_K] = m * k,
                [EXTENT_ROWS_NK] = m * (n + k),
                [EXTENT_ROWS_3N] = 3 * m * n,
                [EXTENT_ROWS_L] = m * (double)kernel->l,
                [EXTENT_SHARED] = m * k,
                [EXTENT_TABLE] = m * n,
                [EXTENT_TABLE_K] = m * n * k,
                [EXTENT_EMN] = kernel->experts * m * n,
                [EXTENT_EKN] = kernel->experts * k * n,
        };
        return (double)kernel->batch * elements[extent];
}

/* Elements of an operand that are read and written, once each. */
static double touched(const struct kernel_operand *operand, const struct kernel *kernel)
{
        const double all = extent_elements(operand->extent, kernel);
        const bool half_read = kernel_descriptor(kernel->kind)->causal && operand->extent == EXTENT_MN;
        const double read = half_read ? causal_elements(kernel) : all;
        return (operand_read(operand, kernel) ? read : 0) + (operand_written(operand, kernel) ? all : 0);
}

/* Whether a product reads an operand in the kernel's format. */
static bool is_quantized(const struct kernel_operand *operand, const struct kernel *kernel)
{
        const enum operand_extent extent = operand->extent;
        const bool factor = extent == EXTENT_MK || extent == EXTENT_KN || extent == EXTENT_EKN;
        return operand->type == OPERAND_QUANTIZED ||
               (kernel->format != FORMAT_STORED && factor && kernel_descriptor(kernel->kind)->products == 1);
}

/* Whether an operand is the gradient of a parameter where a kernel adds to such ones: a product's result, a
 * table, a vector that rows are summed into. */
static bool is_gradient(const struct kernel_operand *operand, const struct kernel *kernel)
{
        const bool made = kernel_descriptor(kernel->kind)->products == 1 || operand->extent == EXTENT_TABLE ||
                          operand_is_summed(operand);
        return made && operand->writes != WHEN_NEVER;
}

bool operand_is_wide(const struct kernel_operand *operand, const struct kernel *kernel)
{
        return kernel->wide && operand->type == OPERAND_STORED && is_gradient(operand, kernel);
}

double kernel_bytes(const struct kernel *kernel)
{
        const struct kernel_operand *operands = kernel_descriptor(kernel->kind)->operands;
        double bytes = 0;
        for (int i = 0; i < KERNEL_OPERANDS && operands[i].name; i++) {
                const struct kernel_operand *operand = &operands[i];
                const double elements = touched(operand, kernel);
                const bool real = operand->type != OPERAND_STORED || operand_is_wide(operand, kernel);
                if (is_quantized(operand, kernel))
                        bytes += format_bytes((enum product_format)kernel->format, elements);
                else
                        bytes += (real ? 4 : dtype_bytes((enum dtype)kernel->dtype)) * elements;
        }
        return bytes;
}
