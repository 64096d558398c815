/* Describes the machine that a profile is measured on, for the member "machine" of the profile. */
#ifndef RANVIER_CALIBRATE_MACHINE_H
#define RANVIER_CALIBRATE_MACHINE_H

#include <jansson.h>

/* Returns a JSON object with the processor, cores, bytes of memory, release of the operating system's
 * kernel, compiler, BLAS, threads a rank, the variant of the CPU device's kernels (`cpu_kernels`; NULL: the
 * CPU is not what computes) and the date (UTC). Nothing in it names the machine or its owner. The caller
 * owns the result. */
json_t *machine_describe(int threads, const char *cpu_kernels);

#endif
