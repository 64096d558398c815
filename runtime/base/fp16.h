/* Numbers of 16 bits, fp16 and bf16, to and from fp32. They are rounded to the nearest, ties to even;
 * overflow becomes infinity, subnormal numbers are kept, NaN stays NaN and becomes quiet. fp16 is IEEE 754
 * binary16 and is converted by the processor where it has instructions for it. bf16 is the upper half of an
 * fp32 number: the same range, 8 bits of precision. */
#ifndef RANVIER_RUNTIME_BASE_FP16_H
#define RANVIER_RUNTIME_BASE_FP16_H

#include <stdint.h>

uint16_t fp16_from_float(float value);
float fp16_to_float(uint16_t fp16);

/* The same for `count` elements; `to` and `from` do not overlap. */
void fp16_from_floats(uint16_t *to, const float *from, int64_t count);
void fp16_to_floats(float *to, const uint16_t *from, int64_t count);

/* sum[i] += with[i], each sum made in fp32 and rounded once. */
void fp16_add(uint16_t *sum, const uint16_t *with, int64_t count);

uint16_t bf16_from_float(float value);
float bf16_to_float(uint16_t bf16);
void bf16_from_floats(uint16_t *to, const float *from, int64_t count);
void bf16_to_floats(float *to, const uint16_t *from, int64_t count);
/* Sums that are subnormal become 0 in a thread whose processor flushes subnormal floats. */
void bf16_add(uint16_t *sum, const uint16_t *with, int64_t count);

#endif
