/* The language of kernels: qualifiers, vector types, thread indices, barriers, warp operations, arithmetic.
 * Threads of a block are fibers that take turns (execute.hpp), so plain memory accesses are atomic. */
#ifndef RANVIER_TESTS_EMULATED_KERNEL_HPP
#define RANVIER_TESTS_EMULATED_KERNEL_HPP

#include "tests/emulated/execute.hpp"
#include "tests/emulated/warp.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__     static
#define __forceinline__  inline __attribute__((always_inline))
#define __noinline__     __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
/* A block runs on one thread of the host, and that thread's variables are found and poisoned (execute.cpp).
 */
#define __shared__ static thread_local

#define threadIdx (emulated::index().thread)
#define blockIdx  (emulated::index().block)
#define blockDim  (emulated::index().block_size)
#define gridDim   (emulated::index().grid_size)
static constexpr int warpSize = 32;

#define EMULATED_VECTORS(type, name, align2, align4)                                                         \
        struct name##1                                                                                       \
        {                                                                                                    \
                type x;                                                                                      \
        };                                                                                                   \
        struct alignas(align2) name##2                                                                       \
        {                                                                                                    \
                type x, y;                                                                                   \
        };                                                                                                   \
        struct name##3                                                                                       \
        {                                                                                                    \
                type x, y, z;                                                                                \
        };                                                                                                   \
        struct alignas(align4) name##4                                                                       \
        {                                                                                                    \
                type x, y, z, w;                                                                             \
        };                                                                                                   \
        static inline name##2 make_##name##2(type x, type y)                                                 \
        {                                                                                                    \
                return {x, y};                                                                               \
        }                                                                                                    \
        static inline name##3 make_##name##3(type x, type y, type z)                                         \
        {                                                                                                    \
                return {x, y, z};                                                                            \
        }                                                                                                    \
        static inline name##4 make_##name##4(type x, type y, type z, type w)                                 \
        {                                                                                                    \
                return {x, y, z, w};                                                                         \
        }
EMULATED_VECTORS(unsigned char, uchar, 2, 4)
EMULATED_VECTORS(short, short, 4, 8)
EMULATED_VECTORS(unsigned short, ushort, 4, 8)
EMULATED_VECTORS(int, int, 8, 16)
EMULATED_VECTORS(unsigned int, uint, 8, 16)
EMULATED_VECTORS(long long, longlong, 16, 16)
EMULATED_VECTORS(float, float, 8, 16)
EMULATED_VECTORS(double, double, 16, 16)
#undef EMULATED_VECTORS

/* Barriers. */
static inline void __syncthreads(void)
{
        emulated::barrier();
}
static inline int __syncthreads_count(int predicate)
{
        return emulated::barrier_count(predicate);
}
static inline int __syncthreads_or(int predicate)
{
        return emulated::barrier_count(predicate) > 0;
}
static inline int __syncthreads_and(int predicate)
{
        return emulated::barrier_count(!predicate) == 0;
}
static inline void __threadfence(void)
{
}
static inline void __threadfence_block(void)
{
}

/* Operations of a warp: every lane of the mask brings its operand, the last one to come computes for all. */
namespace emulated
{
template <typename T> T shuffle_from(const char *name, unsigned mask, T value, int source)
{
        T result;
        shuffle mine = {&value, &result, sizeof value, source};
        warp(name, exchange, mask, &mine);
        return result;
}

static inline void nothing(void *const[32], unsigned)
{
}
} // namespace emulated

template <typename T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
        const int lane = emulated::lane();
        return emulated::shuffle_from("__shfl_sync", mask, value,
                                      (lane & ~(width - 1)) | (source & (width - 1)));
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32)
{
        const int lane = emulated::lane(), source = lane ^ with;
        const bool beyond = source >= (lane & ~(width - 1)) + width;
        return emulated::shuffle_from("__shfl_xor_sync", mask, value, beyond ? lane : source);
}
template <typename T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32)
{
        const int lane = emulated::lane(), source = lane + (int)by;
        const bool beyond = source >= (lane & ~(width - 1)) + width;
        return emulated::shuffle_from("__shfl_down_sync", mask, value, beyond ? lane : source);
}
template <typename T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32)
{
        const int lane = emulated::lane(), source = lane - (int)by;
        const bool beyond = source < (lane & ~(width - 1));
        return emulated::shuffle_from("__shfl_up_sync", mask, value, beyond ? lane : source);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
        emulated::vote mine = {predicate, 0};
        emulated::warp("__ballot_sync", emulated::ballot, mask, &mine);
        return mine.ballot;
}
static inline int __any_sync(unsigned mask, int predicate)
{
        return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
        return __ballot_sync(mask, predicate) == mask;
}
static inline void __syncwarp(unsigned mask = 0xffffffffU)
{
        int none = 0;
        emulated::warp("__syncwarp", emulated::nothing, mask, &none);
}

/* Memory. */
template <typename T> static inline T __ldg(const T *pointer)
{
        return *pointer;
}
template <typename T> static inline T __ldcs(const T *pointer)
{
        return *pointer;
}
template <typename T> static inline void __stcs(T *pointer, T value)
{
        *pointer = value;
}
template <typename T> static inline void __stwb(T *pointer, T value)
{
        *pointer = value;
}
template <typename T> static inline T atomicAdd(T *pointer, T value)
{
        const T before = *pointer;
        *pointer = before + value;
        return before;
}
template <typename T> static inline T atomicMax(T *pointer, T value)
{
        const T before = *pointer;
        *pointer = before < value ? value : before;
        return before;
}
template <typename T> static inline T atomicExch(T *pointer, T value)
{
        const T before = *pointer;
        *pointer = value;
        return before;
}
template <typename T> static inline T atomicOr(T *pointer, T value)
{
        const T before = *pointer;
        *pointer = before | value;
        return before;
}
static inline unsigned atomicInc(unsigned *pointer, unsigned last)
{
        const unsigned before = *pointer;
        *pointer = before >= last ? 0 : before + 1;
        return before;
}

/* Arithmetic. The approximate functions are the exact ones: nobody may rely on their errors. */
static inline float rsqrtf(float x)
{
        return 1.0F / sqrtf(x);
}
#define __expf(x) expf(x) /* names that the C library has taken */
#define __logf(x) logf(x)
static inline float __fdividef(float x, float y)
{
        return x / y;
}
static inline void sincospif(float x, float *sine, float *cosine)
{
        *sine = (float)sin(M_PI * (double)x);
        *cosine = (float)cos(M_PI * (double)x);
}
static inline float __frcp_rn(float x)
{
        return 1.0F / x;
}
static inline float __fmul_rn(float x, float y)
{
        volatile float product = x * y; /* not to be fused with a sum */
        return product;
}
static inline float __fadd_rn(float x, float y)
{
        volatile float sum = x + y;
        return sum;
}
static inline int __popc(unsigned x)
{
        return __builtin_popcount(x);
}
static inline int __clz(int x)
{
        return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
static inline int __ffs(int x)
{
        return __builtin_ffs(x);
}
template <typename To, typename From> static inline To emulated_bits(From from)
{
        static_assert(sizeof(To) == sizeof(From), "the same bits");
        To to;
        memcpy(&to, &from, sizeof to);
        return to;
}
static inline unsigned __float_as_uint(float x)
{
        return emulated_bits<unsigned>(x);
}
static inline int __float_as_int(float x)
{
        return emulated_bits<int>(x);
}
static inline float __uint_as_float(unsigned x)
{
        return emulated_bits<float>(x);
}
static inline float __int_as_float(int x)
{
        return emulated_bits<float>(x);
}
using std::isfinite;
using std::isinf;
using std::isnan;
using std::max;
using std::min;

template <typename T>
static inline cudaError_t cudaFuncSetAttribute(T *function, cudaFuncAttribute attribute, int value)
{
        return cudaFuncSetAttribute(reinterpret_cast<const void *>(function), attribute, value);
}

#endif
