/* Columns of rows, copied: split and joined, narrowed and widened, the last ones taken and put back. */
#include "runtime/device/cpu/kernels/kernels.h"
#include "runtime/device/real.h"

#include <string.h>

/* `columns` of each of `rows`, which lie `to_width` and `from_width` elements apart. */
static void copy_columns(void *to, int64_t to_width, const void *from, int64_t from_width, int64_t rows,
                         int64_t columns)
{
        for (int64_t row = 0; row < rows; row++)
                memcpy((real *)to + row * to_width, (const real *)from + row * from_width,
                       (size_t)columns * sizeof(real));
}

void cpu_split_columns(const struct kernel *kernel, const struct kernel_args *args)
{
        const int64_t n = kernel->n, k = kernel->k;
        copy_columns(args->p[0], n, args->p[2], n + k, kernel->m, n);
        copy_columns(args->p[1], k, (const real *)args->p[2] + n, n + k, kernel->m, k);
}

void cpu_join_columns(const struct kernel *kernel, const struct kernel_args *args)
{
        const int64_t n = kernel->n, k = kernel->k;
        copy_columns(args->p[0], n + k, args->p[1], n, kernel->m, n);
        copy_columns((real *)args->p[0] + n, n + k, args->p[2], k, kernel->m, k);
}

void cpu_narrow(const struct kernel *kernel, const struct kernel_args *args)
{
        copy_columns(args->p[0], kernel->n, args->p[1], kernel->k, kernel->m, kernel->n);
}

void cpu_last_columns(const struct kernel *kernel, const struct kernel_args *args)
{
        const int64_t n = kernel->n, k = kernel->k;
        copy_columns(args->p[0], n, (const real *)args->p[1] + k - n, k, kernel->m, n);
}

void cpu_set_last_columns(const struct kernel *kernel, const struct kernel_args *args)
{
        const int64_t n = kernel->n, k = kernel->k;
        copy_columns((real *)args->p[0] + k - n, k, args->p[1], n, kernel->m, n);
}

void cpu_widen(const struct kernel *kernel, const struct kernel_args *args)
{
        memset(args->p[0], 0, (size_t)(kernel->m * kernel->k) * sizeof(real));
        copy_columns(args->p[0], kernel->k, args->p[1], kernel->n, kernel->m, kernel->n);
}
