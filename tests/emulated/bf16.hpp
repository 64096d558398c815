/* __nv_bfloat16 and __nv_bfloat162, stored as CUDA stores them; computed in fp32 and rounded once. */
#ifndef RANVIER_TESTS_EMULATED_BF16_HPP
#define RANVIER_TESTS_EMULATED_BF16_HPP

#include "tests/emulated/kernel.hpp"

namespace emulated
{
/* The upper half of an fp32 number, rounded to the nearest, ties to even. */
static inline unsigned short to_bf16(float x)
{
        const uint32_t bits = emulated_bits<uint32_t>(x);
        if ((bits & 0x7fffffffU) > 0x7f800000U)
                return 0x7fff;
        return (unsigned short)((bits + 0x7fffU + (bits >> 16 & 1)) >> 16);
}
} // namespace emulated

struct __nv_bfloat16_raw {
        unsigned short x;
};

struct alignas(2) __nv_bfloat16 {
        unsigned short __x;
        __nv_bfloat16() = default;
        __nv_bfloat16(float from) : __x(emulated::to_bf16(from))
        {
        }
        __nv_bfloat16(__nv_bfloat16_raw from) : __x(from.x)
        {
        }
        operator float() const
        {
                return emulated_bits<float>((uint32_t)__x << 16);
        }
};

struct alignas(4) __nv_bfloat162 {
        __nv_bfloat16 x, y;
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline float __bfloat162float(__nv_bfloat16 x)
{
        return (float)x;
}
static inline __nv_bfloat16 __float2bfloat16(float x)
{
        return __nv_bfloat16(x);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
        return __nv_bfloat16(x);
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
        return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
static inline __nv_bfloat162 __float22bfloat162_rn(float2 x)
{
        return {__nv_bfloat16(x.x), __nv_bfloat16(x.y)};
}
static inline float2 __bfloat1622float2(__nv_bfloat162 x)
{
        return {(float)x.x, (float)x.y};
}
static inline float __low2float(__nv_bfloat162 x)
{
        return (float)x.x;
}
static inline float __high2float(__nv_bfloat162 x)
{
        return (float)x.y;
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
        return x.__x;
}
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x)
{
        return __nv_bfloat16(__nv_bfloat16_raw{x});
}

#endif
