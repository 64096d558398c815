/* IEEE 754 binary16 (fp16) in 16 bits, to and from fp32: round to nearest even, overflow to infinity,
 * subnormal numbers kept, NaN stays NaN. With the processor's instructions where it has them. */
#ifndef RANVIER_MODELS_HALF_H
#define RANVIER_MODELS_HALF_H

#include <stdint.h>

uint16_t half_from_float(float value);
float half_to_float(uint16_t half);

/* The same for `count` elements; `to` and `from` do not overlap. */
void half_from_floats(uint16_t *to, const float *from, int64_t count);
void half_to_floats(float *to, const uint16_t *from, int64_t count);

/* sum[i] += with[i], each sum made in fp32 and rounded once. */
void half_add(uint16_t *sum, const uint16_t *with, int64_t count);

#endif
