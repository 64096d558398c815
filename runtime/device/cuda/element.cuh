/* How tensors are stored (fp32, fp16 or bf16), and how kernels read and write them: as floats, 16 bytes at a
 * time (`per_vector` elements) where shapes and addresses allow it, else one element. Kernels that can do
 * either have a template parameter W, the elements of an access: per_vector<T> or 1. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_ELEMENT_CUH
#define RANVIER_RUNTIME_DEVICE_CUDA_ELEMENT_CUH

#include "runtime/device/cuda/launch.cuh"

#include "runtime/base/minmax.h"

#include <stdint.h>
#include <string.h>
#include <type_traits>

template <typename T> constexpr int per_vector = (int)(16 / sizeof(T));

/* launch<T>(...) with T what the kernel's tensors are stored as. */
#define CUDA_FOR_TYPE(dtype, launch, ...)                                                                    \
        ((dtype) == DTYPE_FP16   ? launch<__half>(__VA_ARGS__)                                               \
         : (dtype) == DTYPE_BF16 ? launch<__nv_bfloat16>(__VA_ARGS__)                                        \
                                 : launch<float>(__VA_ARGS__))

/* The same for what is stored in 16 bits only. */
#define CUDA_FOR_16BIT_TYPE(dtype, launch, ...)                                                              \
        ((dtype) == DTYPE_FP16   ? launch<__half>(__VA_ARGS__)                                               \
         : (dtype) == DTYPE_BF16 ? launch<__nv_bfloat16>(__VA_ARGS__)                                        \
                                 : cudaErrorInvalidValue)

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

/* Rounded to the nearest, ties to even, as all that is stored. */
template <typename T> static __device__ __forceinline__ T from_float(float x)
{
        if constexpr (sizeof(T) == sizeof(float))
                return x;
        else if constexpr (std::is_same<T, __half>::value)
                return __float2half_rn(x);
        else
                return __float2bfloat16_rn(x);
}

/* e^x, as exact as what T keeps of it is worth. */
template <typename T> static __device__ __forceinline__ float exponential(float x)
{
        return sizeof(T) == sizeof(float) ? expf(x) : __expf(x);
}

/* a / b for 0 < b < 2^126, in the same sense. */
template <typename T> static __device__ __forceinline__ float quotient(float a, float b)
{
        return sizeof(T) == sizeof(float) ? a / b : __fdividef(a, b);
}

/* W elements as they are stored. */
template <typename T, int W> struct pack {
        static_assert(W % per_vector<T> == 0, "whole vectors");
        uint4 vector[W / per_vector<T>];
};
template <typename T> struct pack<T, 1> {
        T element;
};

/* `from` is aligned to 16 bytes, or to an element if W is 1. */
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

/* The intrinsic, the default kind of store, keeps the 16 bytes together, which an assignment does not always.
 */
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

/* The per_vector<T> elements of one vector. */
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
        T *x;
        int64_t head, vectors, edge; /* elements before the vectors, vectors, elements beside them */

        __device__ T *vector(int64_t i) const
        {
                return x + head + i * per_vector<T>;
        }
        /* Where edge element i is, of the array. */
        __device__ int64_t edge_index(int64_t i) const
        {
                return i < head ? i : i + vectors * per_vector<T>;
        }
};

template <typename T> static __device__ __forceinline__ span<T> span_of(T *x, int64_t n)
{
        const int64_t past = (int64_t)((uintptr_t)x % 16 / sizeof(T));
        const int64_t to_boundary = past ? per_vector<T> - past : 0;
        const int64_t head = to_boundary < n ? to_boundary : n;
        const int64_t vectors = (n - head) / per_vector<T>;
        return {x, head, vectors, n - vectors * per_vector<T>};
}

/* Whether rows of `columns` elements of T at these addresses (NULL: there is none) are whole vectors. */
template <typename T> static inline bool whole_vectors(int64_t columns)
{
        return columns % per_vector<T> == 0;
}

template <typename T, typename... Pointers>
static inline bool whole_vectors(int64_t columns, const void *pointer, Pointers... others)
{
        return (uintptr_t)pointer % 16 == 0 && whole_vectors<T>(columns, others...);
}

static inline int64_t ceil_div(int64_t a, int64_t b)
{
        return (a + b - 1) / b;
}

/* `threads` rounded up to whole warps, at most `limit` (whole warps too). */
static inline unsigned whole_warps(int64_t threads, int64_t limit)
{
        return (unsigned)min_int64(ceil_div(threads, 32) * 32, limit);
}

#endif
