/* Biases: added to rows, alone or with the residual; and their gradient. The residual alone. */
#include "runtime/device/cpu/kernels/kernels.h"

void cpu_bias(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict y = args->p[0];
        const real *restrict b = args->p[1];
        const int64_t m = kernel->m, n = kernel->n;
        for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++)
                        y[i * n + j] += b[j];
}

void cpu_bias_residual(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict y = args->p[0];
        const real *restrict b = args->p[1], *restrict x = args->p[2];
        const int64_t m = kernel->m, n = kernel->n;
        for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++)
                        y[i * n + j] += b[j] + x[i * n + j];
}

void cpu_residual(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict y = args->p[0];
        const real *restrict x = args->p[1];
        const int64_t count = kernel->m * kernel->n;
        for (int64_t i = 0; i < count; i++)
                y[i] += x[i];
}

/* db (n) += column sums of dy (m,n); four rows at a time, to read and write db less often. */
void cpu_bias_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict db = args->p[0];
        const real *restrict dy = args->p[1];
        const int64_t m = kernel->m, n = kernel->n;
        int64_t i = 0;
        for (; i + 4 <= m; i += 4) {
                const real *row = dy + i * n;
                for (int64_t j = 0; j < n; j++)
                        db[j] += row[j] + row[n + j] + (row[2 * n + j] + row[3 * n + j]);
        }
        for (; i < m; i++)
                for (int64_t j = 0; j < n; j++)
                        db[j] += dy[i * n + j];
}
