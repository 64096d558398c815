/* Two formats of 16 bits, to and from fp32: round to nearest even, overflow to infinity, subnormal numbers
 * kept, NaN stays NaN (and becomes quiet). half_: IEEE 754 binary16 (fp16), with the processor's instructions
 * where it has them. bf16_: the first half of an fp32 number: its range, 8 bits of precision. */
#ifndef RANVIER_RUNTIME_BASE_HALF_H
#define RANVIER_RUNTIME_BASE_HALF_H

#include <stdint.h>

uint16_t half_from_float(float value);
float half_to_float(uint16_t half);

/* The same for `count` elements; `to` and `from` do not overlap. */
void half_from_floats(uint16_t *to, const float *from, int64_t count);
void half_to_floats(float *to, const uint16_t *from, int64_t count);

/* sum[i] += with[i], each sum made in fp32 and rounded once. */
void half_add(uint16_t *sum, const uint16_t *with, int64_t count);

uint16_t bf16_from_float(float value);
float bf16_to_float(uint16_t bf16);
void bf16_from_floats(uint16_t *to, const float *from, int64_t count);
void bf16_to_floats(float *to, const uint16_t *from, int64_t count);
/* Sums that are subnormal become 0 in a thread whose processor flushes subnormal floats. */
void bf16_add(uint16_t *sum, const uint16_t *with, int64_t count);

#endif
