/* Conversions between fp32 and the two 16-bit formats, fp16 and bf16, and sums in them. The kernels of the
 * CPU device, all-reduces over MPI and the writing of parameters use them. A 16-bit number is held as its
 * bits in a uint16_t.
 *
 * fp16 is IEEE 754 binary16; it is converted by the processor where that has instructions for it. bf16 is the
 * upper half of an fp32 number: the same range, 8 bits of precision. Rounding is to the nearest, ties to
 * even; overflow becomes infinity, subnormal numbers are kept, and NaN stays NaN and becomes quiet. The
 * conversion of a 16-bit number to fp32 is exact. */
#ifndef RANVIER_RUNTIME_BASE_FP16_H
#define RANVIER_RUNTIME_BASE_FP16_H

#include <stdint.h>

uint16_t fp16_from_float(float value);
float fp16_to_float(uint16_t fp16);

/* These convert `count` elements; `to` and `from` must not overlap. */
void fp16_from_floats(uint16_t *to, const float *from, int64_t count);
void fp16_to_floats(float *to, const uint16_t *from, int64_t count);

/* Adds with[i] to sum[i] for `count` elements; each sum is made in fp32 and rounded once. */
void fp16_add(uint16_t *sum, const uint16_t *with, int64_t count);

/* The same five functions for bf16. One differs: in a thread whose processor flushes subnormal floats, sums
 * by bf16_add that are subnormal become 0. */
uint16_t bf16_from_float(float value);
float bf16_to_float(uint16_t bf16);
void bf16_from_floats(uint16_t *to, const float *from, int64_t count);
void bf16_to_floats(float *to, const uint16_t *from, int64_t count);
void bf16_add(uint16_t *sum, const uint16_t *with, int64_t count);

#endif
