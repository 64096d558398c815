/* The machine that a profile was measured on, in words. */
#ifndef RANVIER_CALIBRATE_MACHINE_H
#define RANVIER_CALIBRATE_MACHINE_H

#include <jansson.h>

/* Processor, cores, memory, kernel, compiler, BLAS, the variant of the CPU device's kernels (NULL: it is not
 * what computes) and the date (UTC); nothing that names the machine or its owner. The caller owns the result.
 */
json_t *machine_describe(int threads, const char *cpu_kernels);

#endif
