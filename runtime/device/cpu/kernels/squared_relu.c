/* The square of what is above zero (So et al. 2021). What is not a number stays so. */
#include "runtime/device/cpu/kernels/kernels.h"

void cpu_squared_relu(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict y = args->p[0];
        const real *restrict h = args->p[1];
        const int64_t count = kernel->m * kernel->n;
        for (int64_t i = 0; i < count; i++)
                y[i] = h[i] < 0 ? 0 : h[i] * h[i];
}

void cpu_squared_relu_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict dh = args->p[0];
        const real *restrict h = args->p[1];
        const int64_t count = kernel->m * kernel->n;
        for (int64_t i = 0; i < count; i++)
                dh[i] *= h[i] < 0 ? 0 : 2 * h[i];
}
