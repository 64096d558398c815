/* The machine that a profile was measured on, in words. */
#ifndef RANVIER_CALIBRATE_MACHINE_H
#define RANVIER_CALIBRATE_MACHINE_H

#include <jansson.h>
#include <stdint.h>

/* Processor, cores, memory, kernel, compiler, BLAS and the date (UTC); nothing that names the machine or its
 * owner. The caller owns the result. */
json_t *machine_describe(int threads);

/* Bytes of physical memory. */
int64_t machine_memory_bytes(void);

#endif
