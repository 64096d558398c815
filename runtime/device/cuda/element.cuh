/* How tensors are stored (fp32, fp16 or bf16), and how kernels read and write them: as floats, 16 bytes at
 * a time (`per_vector` elements) where shapes and addresses allow it, else one element. Kernels that can do
 * either have a template parameter W, the elements of an access: per_vector<T> or 1.
 *
 * A launch picks T by kernel->dtype (CUDA_FOR_TYPE), W by whole_vectors, and hands both to the kernel as
 * template arguments; the kernel loads packs, unpacks them to floats, computes, and packs and stores again.
 * Arrays that may begin anywhere are taken as spans. For kernels that move memory: products and attention
 * have their own. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_ELEMENT_CUH
#define RANVIER_RUNTIME_DEVICE_CUDA_ELEMENT_CUH

#include "runtime/device/cuda/launch.cuh"

#include "runtime/base/minmax.h"

#include <stdint.h>
#include <string.h>
#include <type_traits>

/* Elements of T in 16 bytes: 4 of fp32, 8 of the others. */
template <typename T> constexpr int per_vector = (int)(16 / sizeof(T));

/* Calls launch<T>(...) with T what the kernel's tensors are stored as, and is its result, a cudaError_t. */
#define CUDA_FOR_TYPE(dtype, launch, ...)                                                                    \
        ((dtype) == DTYPE_FP16   ? launch<__half>(__VA_ARGS__)                                               \
         : (dtype) == DTYPE_BF16 ? launch<__nv_bfloat16>(__VA_ARGS__)                                        \
                                 : launch<float>(__VA_ARGS__))

/* The same for what is stored in 16 bits only; with fp32 it is cudaErrorInvalidValue. */
#define CUDA_FOR_16BIT_TYPE(dtype, launch, ...)                                                              \
        ((dtype) == DTYPE_FP16   ? launch<__half>(__VA_ARGS__)                                               \
         : (dtype) == DTYPE_BF16 ? launch<__nv_bfloat16>(__VA_ARGS__)                                        \
                                 : cudaErrorInvalidValue)

/* Returns an element as a float, which is exact. */
static __device__ __forceinline__ float to_float(float x)
{
        return x;
}

static __device__ __forceinline__ float to_float(__half x)
{
        return __half2float(x);
}

static __device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
        return __bfloat162float(x);
}

/* Returns x as an element of T, rounded to the nearest, ties to even, as all that is stored. */
template <typename T> static __device__ __forceinline__ T from_float(float x)
{
        if constexpr (sizeof(T) == sizeof(float))
                return x;
        else if constexpr (std::is_same<T, __half>::value)
                return __float2half_rn(x);
        else
                return __float2bfloat16_rn(x);
}

/* Returns e^x: by expf for fp32; by the faster intrinsic where the result is rounded to 16 bits. */
template <typename T> static __device__ __forceinline__ float exponential(float x)
{
        return sizeof(T) == sizeof(float) ? expf(x) : __expf(x);
}

/* Returns a / b for 0 < b < 2^126: by division for fp32, by the faster intrinsic for 16 bits. */
template <typename T> static __device__ __forceinline__ float quotient(float a, float b)
{
        return sizeof(T) == sizeof(float) ? a / b : __fdividef(a, b);
}

/* W elements as they are stored: whole vectors, or one element. */
template <typename T, int W> struct pack {
        static_assert(W % per_vector<T> == 0, "whole vectors");
        uint4 vector[W / per_vector<T>];
};
template <typename T> struct pack<T, 1> {
        T element;
};

/* Returns the W elements from `from` on, which is aligned to 16 bytes, or to an element if W is 1. */
template <int W, typename T> static __device__ __forceinline__ pack<T, W> load(const T *from)
{
        pack<T, W> p;
        if constexpr (W == 1) {
                p.element = *from;
        } else {
#pragma unroll
                for (int i = 0; i < W / per_vector<T>; i++)
                        p.vector[i] = ((const uint4 *)from)[i];
        }
        return p;
}

/* Writes the pack to `to`, aligned likewise. The intrinsic, the default kind of store, keeps the 16 bytes
 * together, which an assignment does not always. */
template <int W, typename T> static __device__ __forceinline__ void store(T *to, const pack<T, W> &p)
{
        if constexpr (W == 1) {
                *to = p.element;
        } else {
#pragma unroll
                for (int i = 0; i < W / per_vector<T>; i++)
                        __stwb((uint4 *)to + i, p.vector[i]);
        }
}

/* Returns a pack of zeros. */
template <typename T, int W> static __device__ __forceinline__ pack<T, W> zeros(void)
{
        pack<T, W> p;
        if constexpr (W == 1) {
                p.element = from_float<T>(0);
        } else {
#pragma unroll
                for (int i = 0; i < W / per_vector<T>; i++)
                        p.vector[i] = make_uint4(0, 0, 0, 0);
        }
        return p;
}

/* These convert a word of two 16-bit elements, the first in its lower half, to floats and back. The unnamed
 * parameter of floats_of says which format it is; its value is not used. */
static __device__ __forceinline__ float2 floats_of(__half, uint32_t word)
{
        __half2 two;
        memcpy(&two, &word, sizeof two);
        return __half22float2(two);
}

static __device__ __forceinline__ float2 floats_of(__nv_bfloat16, uint32_t word)
{
        __nv_bfloat162 two;
        memcpy(&two, &word, sizeof two);
        return __bfloat1622float2(two);
}

template <typename T> static __device__ __forceinline__ uint32_t word_of(float low, float high)
{
        uint32_t word;
        if constexpr (std::is_same<T, __half>::value) {
                const __half2 two = __floats2half2_rn(low, high);
                memcpy(&word, &two, sizeof word);
        } else {
                const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
                memcpy(&word, &two, sizeof word);
        }
        return word;
}

/* These convert the per_vector<T> elements of one vector to floats x[], and back. */
template <typename T> static __device__ __forceinline__ void unpack_vector(float x[], const uint4 &v)
{
        if constexpr (sizeof(T) == sizeof(float)) {
                x[0] = __uint_as_float(v.x);
                x[1] = __uint_as_float(v.y);
                x[2] = __uint_as_float(v.z);
                x[3] = __uint_as_float(v.w);
        } else {
                const float2 a = floats_of(T(), v.x), b = floats_of(T(), v.y), c = floats_of(T(), v.z),
                             d = floats_of(T(), v.w);
                x[0] = a.x, x[1] = a.y, x[2] = b.x, x[3] = b.y;
                x[4] = c.x, x[5] = c.y, x[6] = d.x, x[7] = d.y;
        }
}

template <typename T> static __device__ __forceinline__ uint4 packed_vector(const float x[])
{
        if constexpr (sizeof(T) == sizeof(float))
                return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                                  __float_as_uint(x[3]));
        else
                return make_uint4(word_of<T>(x[0], x[1]), word_of<T>(x[2], x[3]), word_of<T>(x[4], x[5]),
                                  word_of<T>(x[6], x[7]));
}

/* These convert a pack to W floats, and W floats to a pack, rounding them. */
template <typename T, int W> static __device__ __forceinline__ void unpack(float x[W], const pack<T, W> &p)
{
        if constexpr (W == 1) {
                x[0] = to_float(p.element);
        } else {
#pragma unroll
                for (int i = 0; i < W / per_vector<T>; i++)
                        unpack_vector<T>(x + i * per_vector<T>, p.vector[i]);
        }
}

template <typename T, int W> static __device__ __forceinline__ pack<T, W> packed(const float x[W])
{
        pack<T, W> p;
        if constexpr (W == 1) {
                p.element = from_float<T>(x[0]);
        } else {
#pragma unroll
                for (int i = 0; i < W / per_vector<T>; i++)
                        p.vector[i] = packed_vector<T>(x + i * per_vector<T>);
        }
        return p;
}

/* These read W elements as floats, and write floats as W elements: what most kernels need. A kernel that is
 * to have several loads under way before it uses the first one loads packs. */
template <int W, typename T> static __device__ __forceinline__ void load_floats(float x[W], const T *from)
{
        unpack<T, W>(x, load<W>(from));
}

template <int W, typename T> static __device__ __forceinline__ void store_floats(T *to, const float x[W])
{
        store<W>(to, packed<T, W>(x));
}

/* An array of any address and length, as whole vectors and, before and after them, less than two vectors of
 * single elements: the edge. */
template <typename T> struct span {
        T *x;                        /* the array */
        int64_t head, vectors, edge; /* elements before the vectors, vectors, elements beside them */

        /* Returns where vector i is, aligned to 16 bytes. */
        __device__ T *vector(int64_t i) const
        {
                return x + head + i * per_vector<T>;
        }
        /* Returns the index in the array of edge element i. */
        __device__ int64_t edge_index(int64_t i) const
        {
                return i < head ? i : i + vectors * per_vector<T>;
        }
};

/* Returns the n elements from x on as a span. x is aligned to an element. */
template <typename T> static __device__ __forceinline__ span<T> span_of(T *x, int64_t n)
{
        const int64_t past = (int64_t)((uintptr_t)x % 16 / sizeof(T));
        const int64_t to_boundary = past ? per_vector<T> - past : 0;
        const int64_t head = to_boundary < n ? to_boundary : n;
        const int64_t vectors = (n - head) / per_vector<T>;
        return {x, head, vectors, n - vectors * per_vector<T>};
}

/* Returns whether rows of `columns` elements of T at these addresses (NULL: there is none) are whole
 * vectors: each address, and the length of a row, are multiples of 16 bytes. */
template <typename T> static inline bool whole_vectors(int64_t columns)
{
        return columns % per_vector<T> == 0;
}

template <typename T, typename... Pointers>
static inline bool whole_vectors(int64_t columns, const void *pointer, Pointers... others)
{
        return (uintptr_t)pointer % 16 == 0 && whole_vectors<T>(columns, others...);
}

/* Returns a / b, rounded up, for a >= 0 and b > 0. */
static inline int64_t ceil_div(int64_t a, int64_t b)
{
        return (a + b - 1) / b;
}

/* Returns `threads` rounded up to whole warps, at most `limit` (whole warps too): a size for a block. */
static inline unsigned whole_warps(int64_t threads, int64_t limit)
{
        return (unsigned)min_int64(ceil_div(threads, 32) * 32, limit);
}

#endif
