/* The tensor cores' instructions and asynchronous copies, each as a function: the only inline assembly of
 * the device, and the only place that asks which architecture is compiled for. Where the instructions do
 * not exist (before sm_80) shuffles, plain copies and FMA do the same, slowly. tests/emulated has its own
 * copy of this interface for the CPU.
 *
 * All 32 lanes of a warp call together. `element` is fp16 or bf16, two of them in each uint32_t, the one
 * with the lower index in the lower half. A lane is 4 g + q, with g in 0..7 and q in 0..3.
 *
 * Fused attention in 16 bits (attention.cuh, attention.cu, attention_backward.cu) is built of these
 * functions. They are defined twice below, with one meaning, which is said at the first definition. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_PTX_CUH
#define RANVIER_RUNTIME_DEVICE_CUDA_PTX_CUH

#include "runtime/device/cuda/launch.cuh"

#include <stdint.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

/* Returns the address in shared memory that the instructions take, from a pointer into it. */
static __device__ __forceinline__ uint32_t ptx_shared_address(const void *shared)
{
        return (uint32_t)__cvta_generic_to_shared(shared);
}

/* Loads four 8x8 matrices of elements from shared memory. Lane 8 i + j gives the address of row j of matrix
 * i: 16 bytes, aligned to 16. r[i] receives elements 2q and 2q + 1 of row g of matrix i. */
static __device__ __forceinline__ void ldmatrix_x4(uint32_t r[4], const void *row)
{
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(ptx_shared_address(row))
                     : "memory");
}

/* Does the same with each matrix's transpose: r[i] receives rows 2q and 2q + 1 of column g of matrix i. */
static __device__ __forceinline__ void ldmatrix_x4_transposed(uint32_t r[4], const void *row)
{
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(ptx_shared_address(row))
                     : "memory");
}

/* Add a product of matrices that the lanes of a warp hold together: d (16,8) += a (16,16) b (16,8), in fp32,
 * of fp16 or bf16. The lane's parts of a: row g, columns 2q, 2q + 1; row g + 8, the same; both again with
 * columns + 8 b: rows 2q, 2q + 1 of column g; rows + 8 d: row g, columns 2q, 2q + 1; row g + 8, the same */
static __device__ __forceinline__ void mma_fp16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
        asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                "{%8, %9}, {%0, %1, %2, %3};"
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Starts a copy of 16 bytes from global to shared memory, both aligned to 16; writes zeros if not `valid`,
 * and then reads nothing. It has arrived, for the lane that asked, after copy_async_commit and
 * copy_async_wait; for others after a barrier too. */
static __device__ __forceinline__ void copy_async_16(void *shared, const void *global, bool valid)
{
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(ptx_shared_address(shared)), "l"(global), "r"(valid ? 16 : 0)
                     : "memory");
}

/* Closes a group of the copies started since the last one; a group may be empty. */
static __device__ __forceinline__ void copy_async_commit(void)
{
        asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Waits until all but the last `pending` groups that this lane committed have arrived. */
template <int pending> static __device__ __forceinline__ void copy_async_wait(void)
{
        asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory");
}

#else

/* The same functions for processors without the instructions. What is called often is not inlined here:
 * there are hundreds of calls in a kernel. A copy has arrived when the function returns, so commit and wait
 * do nothing. */

/* Returns the row address that `lane` gave. */
static __device__ __forceinline__ const char *ptx_row_of(const void *row, int lane)
{
        return (const char *)__shfl_sync(0xffffffffu, (unsigned long long)row, lane);
}

/* Returns the four words of ldmatrix_x4, or of its transposed form, made of loads at the addresses of other
 * lanes. */
template <bool transposed> static __device__ __noinline__ uint4 ptx_ldmatrix(const void *row)
{
        int lane = (int)(threadIdx.x % 32), g = lane / 4, q = lane % 4;
        uint32_t r[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
                if (transposed) {
                        uint32_t low = *(const uint16_t *)(ptx_row_of(row, 8 * i + 2 * q) + 2 * g);
                        uint32_t high = *(const uint16_t *)(ptx_row_of(row, 8 * i + 2 * q + 1) + 2 * g);
                        r[i] = high << 16 | low;
                } else {
                        r[i] = *(const uint32_t *)(ptx_row_of(row, 8 * i + g) + 4 * q);
                }
        }
        return make_uint4(r[0], r[1], r[2], r[3]);
}

static __device__ __forceinline__ void ldmatrix_x4(uint32_t r[4], const void *row)
{
        uint4 loaded = ptx_ldmatrix<false>(row);
        r[0] = loaded.x, r[1] = loaded.y, r[2] = loaded.z, r[3] = loaded.w;
}

static __device__ __forceinline__ void ldmatrix_x4_transposed(uint32_t r[4], const void *row)
{
        uint4 loaded = ptx_ldmatrix<true>(row);
        r[0] = loaded.x, r[1] = loaded.y, r[2] = loaded.z, r[3] = loaded.w;
}

/* Returns an element, the lower half of `bits`, as a float. */
template <bool bf16> static __device__ __forceinline__ float ptx_float(uint32_t bits)
{
        return bf16 ? __uint_as_float(bits << 16) : __half2float(__ushort_as_half((unsigned short)bits));
}

/* Adds to *d0 and *d2 the products of two columns of `a` and two rows of `b`: `above` and `below` are of
 * rows g and g + 8 of `a`, `right` of the column that d[0] and d[2] are in. */
template <bool bf16>
static __device__ __forceinline__ void ptx_outer(float *d0, float *d2, uint32_t above, uint32_t below,
                                                 uint32_t right)
{
#pragma unroll
        for (int shift = 0; shift < 32; shift += 16) {
                float factor = ptx_float<bf16>(right >> shift & 0xffff);
                *d0 = fmaf(ptx_float<bf16>(above >> shift & 0xffff), factor, *d0);
                *d2 = fmaf(ptx_float<bf16>(below >> shift & 0xffff), factor, *d2);
        }
}

/* Returns d + a b, of the lane's parts as mma_fp16 has them. Columns 2i, 2i + 1 and + 8 of `a` come from lane
 * i of the four that hold a row of it or a column of `b`. */
template <bool bf16> static __device__ __noinline__ float4 ptx_mma(float4 d, uint4 a, uint2 b)
{
        int lane = (int)(threadIdx.x % 32), row = lane / 4 * 4, column = lane % 4 * 8;
#pragma unroll
        for (int i = 0; i < 4; i++) {
                uint32_t above = __shfl_sync(0xffffffffu, a.x, row + i);
                uint32_t below = __shfl_sync(0xffffffffu, a.y, row + i);
                ptx_outer<bf16>(&d.x, &d.z, above, below, __shfl_sync(0xffffffffu, b.x, column + i));
                ptx_outer<bf16>(&d.y, &d.w, above, below, __shfl_sync(0xffffffffu, b.x, column + 4 + i));
                above = __shfl_sync(0xffffffffu, a.z, row + i);
                below = __shfl_sync(0xffffffffu, a.w, row + i);
                ptx_outer<bf16>(&d.x, &d.z, above, below, __shfl_sync(0xffffffffu, b.y, column + i));
                ptx_outer<bf16>(&d.y, &d.w, above, below, __shfl_sync(0xffffffffu, b.y, column + 4 + i));
        }
        return d;
}

/* Calls ptx_mma, which takes its operands by value, with arrays, and leaves the sums in d. */
template <bool bf16>
static __device__ __forceinline__ void ptx_mma_arrays(float d[4], const uint32_t a[4], const uint32_t b[2])
{
        float4 sum = ptx_mma<bf16>(make_float4(d[0], d[1], d[2], d[3]), make_uint4(a[0], a[1], a[2], a[3]),
                                   make_uint2(b[0], b[1]));
        d[0] = sum.x, d[1] = sum.y, d[2] = sum.z, d[3] = sum.w;
}

static __device__ __forceinline__ void mma_fp16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
        ptx_mma_arrays<false>(d, a, b);
}

static __device__ __forceinline__ void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
        ptx_mma_arrays<true>(d, a, b);
}

static __device__ __forceinline__ void copy_async_16(void *shared, const void *global, bool valid)
{
        *(uint4 *)shared = valid ? *(const uint4 *)global : make_uint4(0, 0, 0, 0);
}

static __device__ __forceinline__ void copy_async_commit(void)
{
}

template <int pending> static __device__ __forceinline__ void copy_async_wait(void)
{
}

#endif

/* Returns 2^x to 2 units in the last place; 0 where that is below 2^-126. One instruction, where exp2f,
 * which keeps the smallest numbers, is four. */
static __device__ __forceinline__ float exp2_fast(float x)
{
#ifdef __CUDA_ARCH__
        float y;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
        return y;
#else
        return exp2f(x);
#endif
}

#endif
