#include "runtime/device/cpu/variant.h"
#include "runtime/device/device.h"

#include <cblas.h>
#include <stdio.h>

void device_cpu_about(struct device_cpu_about *about)
{
        enum { MOST = sizeof about->kernels / sizeof *about->kernels };
        snprintf(about->blas, sizeof about->blas, "%s", openblas_get_config());
        snprintf(about->blas_kernels, sizeof about->blas_kernels, "%s", openblas_get_corename());
        about->kernel_count = 0;
        for (int i = 0; i < cpu_variant_count && about->kernel_count < MOST; i++)
                if (cpu_variants[i].runs())
                        about->kernels[about->kernel_count++] = cpu_variants[i].name;
}
