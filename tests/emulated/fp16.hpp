/* __half and __half2, stored as CUDA stores them; computed in fp32 and rounded once. */
#ifndef RANVIER_TESTS_EMULATED_FP16_HPP
#define RANVIER_TESTS_EMULATED_FP16_HPP

#include "tests/emulated/kernel.hpp"

struct __half_raw {
        unsigned short x;
};

struct alignas(2) __half {
        unsigned short __x;
        __half() = default;
        __half(float from) : __x(emulated_bits<unsigned short>((_Float16)from))
        {
        }
        __half(double from) : __x(emulated_bits<unsigned short>((_Float16)from))
        {
        }
        __half(__half_raw from) : __x(from.x)
        {
        }
        operator float() const
        {
                return (float)emulated_bits<_Float16>(__x);
        }
};

struct alignas(4) __half2 {
        __half x, y;
};

static inline float __half2float(__half x)
{
        return (float)x;
}
static inline __half __float2half(float x)
{
        return __half(x);
}
static inline __half __float2half_rn(float x)
{
        return __half(x);
}
static inline __half2 __floats2half2_rn(float x, float y)
{
        return {__half(x), __half(y)};
}
static inline __half2 __float22half2_rn(float2 x)
{
        return {__half(x.x), __half(x.y)};
}
static inline float2 __half22float2(__half2 x)
{
        return {(float)x.x, (float)x.y};
}
static inline float __low2float(__half2 x)
{
        return (float)x.x;
}
static inline float __high2float(__half2 x)
{
        return (float)x.y;
}
static inline unsigned short __half_as_ushort(__half x)
{
        return x.__x;
}
static inline __half __ushort_as_half(unsigned short x)
{
        return __half(__half_raw{x});
}

#endif
