#include "runtime/base/fp16.h"

#include <stdbool.h>
#include <string.h>

/* A function marked F16C has the processor's instructions, whatever the file is compiled for, and runs only
 * where has_f16c. With FP16_PORTABLE there are none. */
#if defined(__x86_64__) && !defined(FP16_PORTABLE)
#include <immintrin.h>
#define F16C __attribute__((target("avx,f16c")))
static inline bool has_f16c(void)
{
        return __builtin_cpu_supports("f16c");
}
#endif

static inline uint32_t bits_of(float value)
{
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        return bits;
}

static inline float float_of(uint32_t bits)
{
        float value;
        memcpy(&value, &bits, sizeof value);
        return value;
}

uint16_t fp16_from_float(float value)
{
        uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
        if (magnitude > 0x7f800000) /* NaN: quiet, with what fits of its payload */
                return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
        if (magnitude >= 0x477ff000) /* from 65520 on, the nearest is infinity */
                return (uint16_t)(sign | 0x7c00);
        if (magnitude <
            0x38800000) /* below 2^-14: adding 1/2 leaves the rounded multiple of 2^-24 at the end */
                return (uint16_t)(sign | (bits_of(float_of(magnitude) + 0.5F) - 0x3f000000));
        uint32_t odd = magnitude >> 13 & 1;
        return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
}

float fp16_to_float(uint16_t fp16)
{
        uint32_t sign = (uint32_t)(fp16 & 0x8000) << 16, magnitude = fp16 & 0x7fff;
        if (magnitude >= 0x7c00)
                return float_of(sign | 0x7f800000 | (magnitude & 0x3ff) << 13 |
                                (magnitude > 0x7c00 ? 0x400000 : 0));
        if (magnitude >= 0x400)
                return float_of(sign | ((magnitude << 13) + 0x38000000));
        return float_of(sign | bits_of((float)magnitude * 0x1p-24F));
}

#ifdef F16C
/* Of the first elements, as many as fill whole registers; returns how many. */
F16C static int64_t from_floats_f16c(uint16_t *to, const float *from, int64_t count)
{
        int64_t i = 0;
        for (; i + 8 <= count; i += 8)
                _mm_storeu_si128((__m128i *)(void *)(to + i),
                                 _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
        return i;
}

F16C static int64_t to_floats_f16c(float *to, const uint16_t *from, int64_t count)
{
        int64_t i = 0;
        for (; i + 8 <= count; i += 8)
                _mm256_storeu_ps(to + i,
                                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
        return i;
}

F16C static int64_t add_f16c(uint16_t *sum, const uint16_t *with, int64_t count)
{
        int64_t i = 0;
        for (; i + 8 <= count; i += 8) {
                __m256 a = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(sum + i)));
                __m256 b = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(with + i)));
                _mm_storeu_si128((__m128i *)(void *)(sum + i),
                                 _mm256_cvtps_ph(_mm256_add_ps(a, b), _MM_FROUND_TO_NEAREST_INT));
        }
        return i;
}
#define FIRST(of, to, from, count) (has_f16c() ? of##_f16c(to, from, count) : 0)
#else
#define FIRST(of, to, from, count) 0
#endif

void fp16_from_floats(uint16_t *to, const float *from, int64_t count)
{
        for (int64_t i = FIRST(from_floats, to, from, count); i < count; i++)
                to[i] = fp16_from_float(from[i]);
}

void fp16_to_floats(float *to, const uint16_t *from, int64_t count)
{
        for (int64_t i = FIRST(to_floats, to, from, count); i < count; i++)
                to[i] = fp16_to_float(from[i]);
}

void fp16_add(uint16_t *sum, const uint16_t *with, int64_t count)
{
        for (int64_t i = FIRST(add, sum, with, count); i < count; i++)
                sum[i] = fp16_from_float(fp16_to_float(sum[i]) + fp16_to_float(with[i]));
}

/* In integers alone: a processor that flushes subnormal floats leaves them, and loops over it vectorise. What
 * is added carries into the bits that stay where they round up, and from the largest number to infinity. */
static inline uint16_t rounded_to_bf16(float value)
{
        const uint32_t bits = bits_of(value), odd = bits >> 16 & 1;
        const bool nan = (bits & 0x7fffffff) > 0x7f800000;
        return (uint16_t)((nan ? bits | 0x400000 : bits + 0x7fff + odd) >> 16);
}

static inline float widened_from_bf16(uint16_t bf16)
{
        return float_of((uint32_t)bf16 << 16);
}

uint16_t bf16_from_float(float value)
{
        return rounded_to_bf16(value);
}

float bf16_to_float(uint16_t bf16)
{
        return widened_from_bf16(bf16);
}

void bf16_from_floats(uint16_t *restrict to, const float *restrict from, int64_t count)
{
        for (int64_t i = 0; i < count; i++)
                to[i] = rounded_to_bf16(from[i]);
}

void bf16_to_floats(float *restrict to, const uint16_t *restrict from, int64_t count)
{
        for (int64_t i = 0; i < count; i++)
                to[i] = widened_from_bf16(from[i]);
}

void bf16_add(uint16_t *sum, const uint16_t *with, int64_t count)
{
        for (int64_t i = 0; i < count; i++)
                sum[i] = rounded_to_bf16(widened_from_bf16(sum[i]) + widened_from_bf16(with[i]));
}
