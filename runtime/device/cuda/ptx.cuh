/* The tensor cores' instructions and asynchronous copies, each as a function: the only inline assembly of the
 * device, and the only place that asks which architecture is compiled for. Where the instructions do not
 * exist (before sm_80) shuffles, plain copies and FMA do the same, slowly. tests/emulated has its own copy of
 * this interface for the CPU.
 *
 * All 32 lanes of a warp call together. `element` is fp16 or bf16, two of them in each uint32_t, the one with
 * the lower index in the lower half. A lane is 4 g + q, with g in 0..7 and q in 0..3. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_PTX_CUH
#define RANVIER_RUNTIME_DEVICE_CUDA_PTX_CUH

#include "runtime/device/cuda/launch.cuh"

#include <stdint.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

static __device__ __forceinline__ uint32_t ptx_shared_address(const void *shared)
{
        return (uint32_t)__cvta_generic_to_shared(shared);
}

/* Four 8x8 matrices of elements from shared memory. Lane 8 i + j gives the address of row j of matrix i: 16
 * bytes, aligned to 16. r[i] receives elements 2q and 2q + 1 of row g of matrix i. */
static __device__ __forceinline__ void ldmatrix_x4(uint32_t r[4], const void *row)
{
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(ptx_shared_address(row))
                     : "memory");
}

/* The same, of each matrix's transpose: r[i] receives rows 2q and 2q + 1 of column g of matrix i. */
static __device__ __forceinline__ void ldmatrix_x4_transposed(uint32_t r[4], const void *row)
{
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(ptx_shared_address(row))
                     : "memory");
}

/* d (16,8) += a (16,16) b (16,8), accumulated in fp32. The lane's parts of
 *   a: row g, columns 2q, 2q + 1; row g + 8, the same; both again with columns + 8
 *   b: rows 2q, 2q + 1 of column g; rows + 8
 *   d: row g, columns 2q, 2q + 1; row g + 8, the same */
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

/* Returns once all but the last `pending` committed groups have arrived. */
template <int pending> static __device__ __forceinline__ void copy_async_wait(void)
{
        asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory");
}

#else

/* The row address that `lane` gave. */
static __device__ __forceinline__ const char *ptx_row_of(const void *row, int lane)
{
        return (const char *)__shfl_sync(0xffffffffu, (unsigned long long)row, lane);
}

static __device__ __forceinline__ void ldmatrix_x4(uint32_t r[4], const void *row)
{
        int lane = (int)(threadIdx.x % 32), g = lane / 4, q = lane % 4;
        for (int i = 0; i < 4; i++)
                r[i] = *(const uint32_t *)(ptx_row_of(row, 8 * i + g) + 4 * q);
}

static __device__ __forceinline__ void ldmatrix_x4_transposed(uint32_t r[4], const void *row)
{
        int lane = (int)(threadIdx.x % 32), g = lane / 4, q = lane % 4;
        for (int i = 0; i < 4; i++) {
                uint32_t low = *(const uint16_t *)(ptx_row_of(row, 8 * i + 2 * q) + 2 * g);
                uint32_t high = *(const uint16_t *)(ptx_row_of(row, 8 * i + 2 * q + 1) + 2 * g);
                r[i] = high << 16 | low;
        }
}

static __device__ __forceinline__ float ptx_fp16(uint32_t bits)
{
        return __half2float(__ushort_as_half((unsigned short)bits));
}

static __device__ __forceinline__ float ptx_bf16(uint32_t bits)
{
        return __uint_as_float(bits << 16);
}

/* Step q of k (columns 2q, 2q + 1 and + 8) comes from lane q of the four that hold a row of `a`, a column of
 * `b`. */
template <float to_float(uint32_t)>
static __device__ __forceinline__ void ptx_mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
        int lane = (int)(threadIdx.x % 32), row = lane / 4 * 4, column = lane % 4 * 8;
        for (int q = 0; q < 4; q++) {
                for (int half = 0; half < 2; half++) {
                        uint32_t above = __shfl_sync(0xffffffffu, a[2 * half], row + q);
                        uint32_t below = __shfl_sync(0xffffffffu, a[2 * half + 1], row + q);
                        for (int j = 0; j < 2; j++) {
                                uint32_t right = __shfl_sync(0xffffffffu, b[half], column + 4 * j + q);
                                for (int shift = 0; shift < 32; shift += 16) {
                                        float factor = to_float(right >> shift & 0xffff);
                                        d[j] = fmaf(to_float(above >> shift & 0xffff), factor, d[j]);
                                        d[2 + j] = fmaf(to_float(below >> shift & 0xffff), factor, d[2 + j]);
                                }
                        }
                }
        }
}

static __device__ __forceinline__ void mma_fp16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
        ptx_mma<ptx_fp16>(d, a, b);
}

static __device__ __forceinline__ void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
        ptx_mma<ptx_bf16>(d, a, b);
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

/* 2^x to 2 units in the last place; 0 where that is below 2^-126. One instruction, where exp2f, which keeps
 * the smallest numbers, is four. */
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
