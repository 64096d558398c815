/* Shadows the product's header of this name. The instructions as the PTX ISA describes them (chapters on
 * ldmatrix, mma.m16n8k16 and cp.async); what a warp computes together is in warp.cpp. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_PTX_CUH
#define RANVIER_RUNTIME_DEVICE_CUDA_PTX_CUH

#include "runtime/device/cuda/launch.cuh"

#include "tests/emulated/warp.hpp"

#include <stdint.h>

namespace emulated
{

enum { ALL_LANES = -1 };

static inline void load_matrix(uint32_t r[4], const void *row, bool transposed)
{
        matrix_load mine = {{0, 0, 0, 0}, row, transposed};
        warp(transposed ? "ldmatrix.trans" : "ldmatrix", load_matrices, (unsigned)ALL_LANES, &mine);
        memcpy(r, mine.r, sizeof mine.r);
}

static inline void multiply_add(const char *name, exchange_fn *multiply, float d[4], const uint32_t a[4],
                                const uint32_t b[2])
{
        matrix_product mine = {{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
        warp(name, multiply, (unsigned)ALL_LANES, &mine);
        memcpy(d, mine.d, sizeof mine.d);
}

} // namespace emulated

static inline void ldmatrix_x4(uint32_t r[4], const void *row)
{
        emulated::load_matrix(r, row, false);
}

static inline void ldmatrix_x4_transposed(uint32_t r[4], const void *row)
{
        emulated::load_matrix(r, row, true);
}

static inline void mma_fp16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
        emulated::multiply_add("mma_fp16", emulated::multiply_fp16, d, a, b);
}

static inline void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
        emulated::multiply_add("mma_bf16", emulated::multiply_bf16, d, a, b);
}

static inline void copy_async_16(void *shared, const void *global, bool valid)
{
        if ((uintptr_t)shared % 16 != 0 || (valid && (uintptr_t)global % 16 != 0))
                emulated::fail(cudaErrorMisalignedAddress, "cp.async: %p to %p are not both aligned to 16",
                               global, shared);
        if (!emulated::is_shared(shared, 16))
                emulated::fail(cudaErrorLaunchFailure, "cp.async: the destination is not in shared memory");
        emulated::copy_later(shared, valid ? global : nullptr);
}

static inline void copy_async_commit(void)
{
        emulated::copy_commit();
}

template <int pending> static inline void copy_async_wait(void)
{
        emulated::copy_wait(pending);
}

static inline float exp2_fast(float x)
{
        const float y = exp2f(x);
        return y < 0x1p-126F ? 0 : y;
}

#endif
