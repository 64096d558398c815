#include "calibrate/profile/tables.h"

#include <math.h>
#include <stdlib.h>

void tables_free(struct profile_tables *tables)
{
        for (int i = 0; i < tables->count; i++)
                surface_free(&tables->tables[i].surface);
        free(tables->tables);
        if (tables->asked)
                memo_free(tables->asked);
        free(tables->asked);
        *tables = (struct profile_tables){0};
}

bool tables_add(struct profile_tables *tables, const struct profile_table *table)
{
        struct profile_table *grown =
                realloc(tables->tables, (size_t)(tables->count + 1) * sizeof *tables->tables);
        if (!tables->asked)
                tables->asked = calloc(1, sizeof *tables->asked);
        if (grown)
                tables->tables = grown;
        if (!grown || !tables->asked)
                return false;
        grown[tables->count++] = *table;
        return true;
}

int tables_kind(enum kernel_kind kind)
{
        switch (kind) {
        case KERNEL_MATMUL:
        case KERNEL_MATMUL_BIAS:
        case KERNEL_MATMUL_BIAS_GELU:
        case KERNEL_MATMUL_BIAS_RESIDUAL:
        case KERNEL_MATMUL_GELU_BACKWARD:
                return KERNEL_MATMUL;
        case KERNEL_GROUPED_MATMUL:
        case KERNEL_GROUPED_MATMUL_BACKWARD:
                return KERNEL_GROUPED_MATMUL;
        case KERNEL_ATTENTION:
        case KERNEL_ATTENTION_BACKWARD:
        case KERNEL_CONTEXT_ATTENTION:
        case KERNEL_CONTEXT_ATTENTION_BACKWARD:
                return KERNEL_ATTENTION;
        default:
                return -1;
        }
}

enum surface_form tables_form(enum kernel_kind kind)
{
        return kind == KERNEL_ATTENTION ? SURFACE_ATTENTION : SURFACE_PRODUCT;
}

struct profile_table *tables_of(const struct profile_tables *tables, int kind, enum dtype dtype,
                                enum product_format format)
{
        for (int i = 0; i < tables->count; i++) {
                struct profile_table *table = &tables->tables[i];
                if ((int)table->kind == kind && table->dtype == dtype && table->format == format)
                        return table;
        }
        return NULL;
}

/* Experts' products of which there is no table are many small products. */
const struct profile_table *tables_find(const struct profile_tables *tables, const struct kernel *kernel)
{
        const int kind = tables_kind(kernel->kind);
        const enum dtype dtype = (enum dtype)kernel->dtype;
        const enum dtype other = dtype_twin(dtype);
        const enum product_format format =
                kind == KERNEL_ATTENTION ? FORMAT_STORED : (enum product_format)kernel->format;
        const struct profile_table *table = NULL;
        if (kind < 0 || tables->count == 0)
                return NULL;
        table = tables_of(tables, kind, dtype, format);
        table = table ? table : tables_of(tables, kind, other, format);
        if (table || kind != KERNEL_GROUPED_MATMUL)
                return table;
        table = tables_of(tables, KERNEL_MATMUL, dtype, format);
        return table ? table : tables_of(tables, KERNEL_MATMUL, other, format);
}

/* Bytes beyond those of the table's own kind. */
static double more_bytes(const struct kernel *kernel)
{
        struct kernel plain = *kernel;
        if (tables_kind(kernel->kind) != KERNEL_MATMUL || kernel->kind == KERNEL_MATMUL)
                return 0;
        plain.kind = KERNEL_MATMUL;
        return fmax(kernel_bytes(kernel) - kernel_bytes(&plain), 0);
}

/* Attention to other ranks' keys does not have the causal half of the work. */
static double more_flops(const struct kernel *kernel)
{
        struct kernel plain = *kernel;
        if (kernel->kind == KERNEL_CONTEXT_ATTENTION)
                plain.kind = KERNEL_ATTENTION;
        else if (kernel->kind == KERNEL_CONTEXT_ATTENTION_BACKWARD)
                plain.kind = KERNEL_ATTENTION_BACKWARD;
        else
                return 1;
        return kernel_flops(kernel) / kernel_flops(&plain);
}

static void ask(const struct profile_tables *tables, const struct surface *surface,
                const struct kernel *kernel, double answer[2])
{
        enum surface_form form;
        enum surface_pass pass;
        struct surface_shape shape;
        surface_shape_of(kernel, &form, &shape, &pass);
        const double sustained = tables->sustained > 0 ? tables->sustained : 1;
        answer[0] = surface_seconds(surface, &shape, pass, !tables->short_loops, sustained, &answer[1]) *
                            more_flops(kernel) +
                    more_bytes(kernel) / (surface->model.bytes_per_second * surface->model.memory_efficiency);
}

bool tables_price(const struct profile_tables *tables, const struct kernel *kernel, double *seconds,
                  double *error)
{
        const struct profile_table *table = tables_find(tables, kernel);
        if (!table)
                return false;
        const double key[] = {kernel->kind,         kernel->dtype,       kernel->format,
                              kernel->transpose_a,  kernel->transpose_b, kernel->accumulate,
                              kernel_group(kernel), kernel->experts,     (double)kernel->batch,
                              (double)kernel->m,    (double)kernel->n,   (double)kernel->k,
                              tables->short_loops,  tables->sustained};
        enum { KEYS = sizeof key / sizeof *key };
        const double *known = memo_find(tables->asked, key, KEYS);
        double answer[2];
        if (!known) {
                ask(tables, &table->surface, kernel, answer);
                memo_keep(tables->asked, key, KEYS, answer, 2);
                known = answer;
        }
        *seconds = known[0];
        *error = known[1];
        return true;
}
