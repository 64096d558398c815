/* OpenBLAS chooses its kernels when it is loaded, by the processor's model number. Of a model that is newer
 * than itself it knows nothing, and takes those of Prescott, of 2004, with the tenth part of the arithmetic
 * that such a processor does: training a small GPT-2 then takes 3.7 times as long. Only the environment
 * variable OPENBLAS_CORETYPE makes it choose otherwise, so a program that finds Prescott's kernels on a
 * processor with AVX2 or AVX-512 sets that, and starts itself again. Who sets the variable decides. */
#include "runtime/device/cpu/blas.h"

#include <cblas.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CORETYPE "OPENBLAS_CORETYPE"

void cpu_blas_open(void)
{
        openblas_set_num_threads(1);
}

#ifdef __x86_64__
/* OpenBLAS's name of kernels that use what this processor has; NULL: Prescott's are right. */
static const char *kernels_that_fit(void)
{
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512cd"))
                return "SkylakeX";
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? "Haswell" : NULL;
}

/* Before main(), and so before MPI has been told of this process. */
__attribute__((constructor)) static void take_kernels_that_fit(int argc, char **argv)
{
        const char *kernels = kernels_that_fit();
        (void)argc;
        if (!kernels || getenv(CORETYPE) || strcmp(openblas_get_corename(), "Prescott") != 0)
                return;
        if (setenv(CORETYPE, kernels, 0) == 0)
                execv("/proc/self/exe", argv); /* returns if it cannot: then it is slow, and right */
}
#endif
