/* What runtime/device/cuda/ptx.cuh does where there are no tensor cores: as no architecture is compiled for,
 * g++ sees its equivalents, which run on the emulated CUDA's shuffles. Not by its own path: that is shadowed.
 */
#include "../../runtime/device/cuda/ptx.cuh"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern "C" {
#include <cmocka.h>
}

enum { SEED = 1, ROUNDS = 20, A = 16 * 16, B = 16 * 8 };

template <bool bf16> static uint16_t bits(float x)
{
        uint16_t result;
        if (bf16) {
                __nv_bfloat16 element = __float2bfloat16_rn(x);
                memcpy(&result, &element, sizeof result);
        } else {
                __half element = __float2half_rn(x);
                memcpy(&result, &element, sizeof result);
        }
        return result;
}

/* out (2,16,8) = a (16,16) b (16,8), twice: with b read by rows, and with its transpose read by columns. */
template <bool bf16> static __global__ void multiply(float *out, const uint16_t *a, const uint16_t *b)
{
        __shared__ __align__(16) uint16_t as[16][16], rows[16][16], columns[16][16];
        int lane = (int)threadIdx.x;
        for (int i = lane; i < A; i += 32) {
                int row = i / 16, column = i % 16;
                as[row][column] = a[i];
                rows[row][column] = column < 8 ? b[row * 8 + column] : 0;
                columns[row][column] = row < 8 ? b[column * 8 + row] : 0;
        }
        __syncwarp();
        uint32_t left[4], right[2][4];
        ldmatrix_x4(left, &as[lane % 16][lane / 16 * 8]);
        ldmatrix_x4_transposed(right[0], &rows[lane % 16][lane / 16 * 8]);
        ldmatrix_x4(right[1], &columns[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]);
        for (int i = 0; i < 2; i++) {
                float d[4] = {1, 2, 3, 4};
                if (bf16)
                        mma_bf16(d, left, right[i]);
                else
                        mma_fp16(d, left, right[i]);
                for (int e = 0; e < 4; e++)
                        out[i * B + (lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] =
                                d[e] - (float)(e + 1);
        }
}

/* Operands are small integers, so that every sum is exact. */
template <bool bf16> static void products_are_exact(void **)
{
        void *memory[3];
        const size_t bytes[3] = {2 * B * sizeof(float), A * sizeof(uint16_t), B * sizeof(uint16_t)};
        for (int i = 0; i < 3; i++)
                assert_int_equal(cudaHostAlloc(&memory[i], bytes[i], cudaHostAllocDefault), cudaSuccess);
        float *out = (float *)memory[0], a[16][16], b[16][8];
        srand(SEED);
        for (int round = 0; round < ROUNDS; round++) {
                for (int i = 0; i < A; i++)
                        ((uint16_t *)memory[1])[i] = bits<bf16>(a[i / 16][i % 16] = (float)(rand() % 17 - 8));
                for (int i = 0; i < B; i++)
                        ((uint16_t *)memory[2])[i] = bits<bf16>(b[i / 8][i % 8] = (float)(rand() % 17 - 8));
                CUDA_LAUNCH((multiply<bf16>), 1, 32, 0, NULL, out, (uint16_t *)memory[1],
                            (uint16_t *)memory[2]);
                assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
                for (int i = 0; i < 2 * B; i++) {
                        float sum = 0;
                        for (int k = 0; k < 16; k++)
                                sum += a[i % B / 8][k] * b[k][i % 8];
                        if (out[i] != sum)
                                fail_msg("seed %d, round %d, %s: element %d is %g, not %g", SEED, round,
                                         bf16 ? "bf16" : "fp16", i, (double)out[i], (double)sum);
                }
        }
        for (int i = 0; i < 3; i++)
                assert_int_equal(cudaFreeHost(memory[i]), cudaSuccess);
}

static __global__ void copy(uint4 *out, const uint4 *in)
{
        __shared__ uint4 arrived[32];
        bool valid = threadIdx.x % 3 != 0;
        copy_async_16(&arrived[threadIdx.x], valid ? in + threadIdx.x : NULL, valid);
        copy_async_commit();
        copy_async_wait<0>();
        out[threadIdx.x] = arrived[threadIdx.x];
}

static void copies_that_are_not_valid_read_nothing_and_are_zero(void **)
{
        void *memory[2];
        for (int i = 0; i < 2; i++)
                assert_int_equal(cudaHostAlloc(&memory[i], 32 * sizeof(uint4), cudaHostAllocDefault),
                                 cudaSuccess);
        uint32_t *out = (uint32_t *)memory[0], *in = (uint32_t *)memory[1];
        for (uint32_t i = 0; i < 32 * 4; i++)
                in[i] = i + 1;
        CUDA_LAUNCH(copy, 1, 32, 0, NULL, (uint4 *)memory[0], (uint4 *)memory[1]);
        assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
        for (uint32_t i = 0; i < 32 * 4; i++)
                assert_int_equal(out[i], i / 4 % 3 == 0 ? 0 : i + 1);
        for (int i = 0; i < 2; i++)
                assert_int_equal(cudaFreeHost(memory[i]), cudaSuccess);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(products_are_exact<false>),
                cmocka_unit_test(products_are_exact<true>),
                cmocka_unit_test(copies_that_are_not_valid_read_nothing_and_are_zero),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
