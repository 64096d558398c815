/* Shadows the product's header of this name. The instructions as the PTX ISA describes them (chapters on
 * ldmatrix, mma.m16n8k16 and cp.async), with each operand's layout over the lanes computed from the formulas
 * there, element by element. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_PTX_CUH
#define RANVIER_RUNTIME_DEVICE_CUDA_PTX_CUH

#include "runtime/device/cuda/launch.cuh"

#include "tests/emulated/bf16.hpp"
#include "tests/emulated/fp16.hpp"

#include <stdint.h>

namespace emulated
{

enum { ALL_LANES = -1 };

/* Element `i` of 16-bit elements packed in registers, the lower half first. */
static inline unsigned short packed(const uint32_t *registers, int i)
{
        return (unsigned short)(registers[i / 2] >> 16 * (i % 2));
}

struct matrix_load {
        uint32_t r[4];
        const void *row;
        bool transposed;
};

static inline void load_matrices(void *const lanes[32], unsigned)
{
        for (int lane = 0; lane < 32; lane++) {
                const void *row = static_cast<matrix_load *>(lanes[lane])->row;
                if ((uintptr_t)row % 16 != 0)
                        fail(cudaErrorMisalignedAddress, "ldmatrix: the row of lane %d is not aligned to 16",
                             lane);
                if (!is_shared(row, 16))
                        fail(cudaErrorLaunchFailure, "ldmatrix: the row of lane %d is not in shared memory",
                             lane);
        }
        for (int lane = 0; lane < 32; lane++) {
                matrix_load *mine = static_cast<matrix_load *>(lanes[lane]);
                for (int i = 0; i < 4; i++) {
                        unsigned short pair[2];
                        for (int e = 0; e < 2; e++) {
                                const int major = lane / 4, minor = lane % 4 * 2 + e;
                                const int row = mine->transposed ? minor : major;
                                const int column = mine->transposed ? major : minor;
                                const void *start = static_cast<matrix_load *>(lanes[8 * i + row])->row;
                                memcpy(&pair[e], static_cast<const unsigned char *>(start) + 2 * column, 2);
                        }
                        mine->r[i] = pair[0] | (uint32_t)pair[1] << 16;
                }
        }
}

static inline void load_matrix(uint32_t r[4], const void *row, bool transposed)
{
        matrix_load mine = {{0, 0, 0, 0}, row, transposed};
        warp(transposed ? "ldmatrix.trans" : "ldmatrix", load_matrices, (unsigned)ALL_LANES, &mine);
        memcpy(r, mine.r, sizeof mine.r);
}

struct matrix_product {
        float d[4];
        const uint32_t *a, *b;
};

/* Adds a b to `sum`. Arrays of the emulation itself: no access need be checked, and vectors are used. */
__attribute__((no_sanitize("kernel-address", "alignment"))) static inline void
add_product(const float a[16][16], const float b[16][8], float sum[16][8])
{
        for (int row = 0; row < 16; row++)
                for (int k = 0; k < 16; k++)
                        for (int column = 0; column < 8; column++)
                                sum[row][column] += a[row][k] * b[k][column];
}

/* With groupID = lane / 4 and threadID_in_group = lane % 4:
 *   a_i: row groupID if i is in 0, 1, 4, 5, else groupID + 8; column 2 threadID_in_group + i % 2, + 8 if i >=
 * 4 b_i: row 2 threadID_in_group + i % 2, + 8 if i >= 2; column groupID d_i: row groupID if i < 2, else
 * groupID + 8; column 2 threadID_in_group + i % 2 */
template <typename Element> void multiply(void *const lanes[32], unsigned)
{
        float a[16][16], b[16][8];
        for (int lane = 0; lane < 32; lane++) {
                const matrix_product *theirs = static_cast<matrix_product *>(lanes[lane]);
                const int group = lane / 4, thread = lane % 4;
                for (int i = 0; i < 8; i++) {
                        const int row = i % 4 < 2 ? group : group + 8;
                        const int column = 2 * thread + i % 2 + (i >= 4 ? 8 : 0);
                        a[row][column] = (float)emulated_bits<Element>(packed(theirs->a, i));
                }
                for (int i = 0; i < 4; i++)
                        b[2 * thread + i % 2 + (i >= 2 ? 8 : 0)][group] =
                                (float)emulated_bits<Element>(packed(theirs->b, i));
        }
        float sum[16][8] = {};
        add_product(a, b, sum);
        for (int lane = 0; lane < 32; lane++) {
                matrix_product *mine = static_cast<matrix_product *>(lanes[lane]);
                for (int i = 0; i < 4; i++)
                        mine->d[i] += sum[lane / 4 + (i < 2 ? 0 : 8)][2 * (lane % 4) + i % 2];
        }
}

template <typename Element>
void multiply_add(const char *name, float d[4], const uint32_t a[4], const uint32_t b[2])
{
        matrix_product mine = {{d[0], d[1], d[2], d[3]}, a, b};
        warp(name, multiply<Element>, (unsigned)ALL_LANES, &mine);
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
        emulated::multiply_add<__half>("mma_fp16", d, a, b);
}

static inline void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
        emulated::multiply_add<__nv_bfloat16>("mma_bf16", d, a, b);
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
