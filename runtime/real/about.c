#include "runtime/real/about.h"

#include "runtime/device/device.h"
#include "runtime/net/net.h"

#include <jansson.h>
#include <stdio.h>

int about_main(void)
{
        char mpi[NET_LIBRARY], processor[96];
        struct device_cpu_about cpu;
        json_t *kernels = json_array();
        net_mpi_library(mpi);
        device_cpu_name(processor, sizeof processor);
        device_cpu_about(&cpu);
        for (int i = 0; i < cpu.kernel_count; i++)
                json_array_append_new(kernels, json_string(cpu.kernels[i]));
        json_t *all = json_pack("{s:s, s:s, s:s, s:s, s:o}", "mpi", mpi, "blas", cpu.blas, "blas_kernels",
                                cpu.blas_kernels, "processor", processor, "cpu_kernels", kernels);
        const int rc = !all || json_dumpf(all, stdout, JSON_COMPACT) || puts("") < 0 || fflush(stdout);
        json_decref(all);
        return rc;
}
