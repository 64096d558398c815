/* The instructions of a warp, matrices' as the PTX ISA describes them (chapters on ldmatrix and
 * mma.m16n8k16), with each operand's layout over the lanes computed from the formulas there, element by
 * element. */
#include "tests/emulated/warp.hpp"

#include "tests/emulated/bf16.hpp"
#include "tests/emulated/fp16.hpp"

namespace emulated
{

void exchange(void *const lanes[32], unsigned mask)
{
        for (int lane = 0; lane < 32; lane++) {
                if (!(mask >> lane & 1))
                        continue;
                const shuffle *mine = static_cast<shuffle *>(lanes[lane]);
                if (!(mask >> mine->source & 1))
                        fail(cudaErrorLaunchFailure,
                             "lane %d shuffles from lane %d, which its mask 0x%08x leaves out", lane,
                             mine->source, mask);
                const void *value = static_cast<shuffle *>(lanes[mine->source])->value;
                if (mine->bytes == sizeof(uint32_t)) /* most of them, in one instruction */
                        memcpy(mine->result, value, sizeof(uint32_t));
                else
                        memcpy(mine->result, value, mine->bytes);
        }
}

void ballot(void *const lanes[32], unsigned mask)
{
        unsigned ballot = 0;
        for (int lane = 0; lane < 32; lane++)
                if (mask >> lane & 1 && static_cast<vote *>(lanes[lane])->predicate)
                        ballot |= 1U << lane;
        for (int lane = 0; lane < 32; lane++)
                if (mask >> lane & 1)
                        static_cast<vote *>(lanes[lane])->ballot = ballot;
}

void load_matrices(void *const lanes[32], unsigned)
{
        unsigned short rows[32][8]; /* of matrix row / 8 */
        for (int lane = 0; lane < 32; lane++) {
                const void *row = static_cast<matrix_load *>(lanes[lane])->row;
                if ((uintptr_t)row % 16 != 0)
                        fail(cudaErrorMisalignedAddress, "ldmatrix: the row of lane %d is not aligned to 16",
                             lane);
                if (!is_shared(row, 16))
                        fail(cudaErrorLaunchFailure, "ldmatrix: the row of lane %d is not in shared memory",
                             lane);
                memcpy(rows[lane], row, sizeof rows[lane]);
        }
        for (int lane = 0; lane < 32; lane++) {
                matrix_load *mine = static_cast<matrix_load *>(lanes[lane]);
                for (int i = 0; i < 4; i++) {
                        uint32_t pair[2];
                        for (int e = 0; e < 2; e++) {
                                const int major = lane / 4, minor = lane % 4 * 2 + e;
                                pair[e] = mine->transposed ? rows[8 * i + minor][major]
                                                           : rows[8 * i + major][minor];
                        }
                        mine->r[i] = pair[0] | pair[1] << 16;
                }
        }
}

/* Element `i` of 16-bit elements packed in registers, the lower half first. */
template <typename Element> static inline float packed(const uint32_t *registers, int i)
{
        return (float)emulated_bits<Element>((unsigned short)(registers[i / 2] >> 16 * (i % 2)));
}

/* Adds a b to `sum`. */
static void add_product(const float a[16][16], const float b[16][8], float sum[16][8])
{
        for (int row = 0; row < 16; row++)
                for (int k = 0; k < 16; k++)
                        for (int column = 0; column < 8; column++)
                                sum[row][column] += a[row][k] * b[k][column];
}

/* With groupID = lane / 4 and threadID_in_group = lane % 4:
 *
 * a_i: row groupID if i is in 0, 1, 4, 5, else groupID + 8; column 2 threadID_in_group + i % 2, + 8 if i >= 4
 *
 * b_i: row 2 threadID_in_group + i % 2, + 8 if i >= 2; column groupID
 *
 * d_i: row groupID if i < 2, else groupID + 8; column 2 threadID_in_group + i % 2 */
template <typename Element> static void multiply(void *const lanes[32])
{
        float a[16][16], b[16][8];
        for (int lane = 0; lane < 32; lane++) {
                const matrix_product *theirs = static_cast<matrix_product *>(lanes[lane]);
                const int group = lane / 4, thread = lane % 4;
                for (int i = 0; i < 8; i++) {
                        const int row = i % 4 < 2 ? group : group + 8;
                        const int column = 2 * thread + i % 2 + (i >= 4 ? 8 : 0);
                        a[row][column] = packed<Element>(theirs->a, i);
                }
                for (int i = 0; i < 4; i++)
                        b[2 * thread + i % 2 + (i >= 2 ? 8 : 0)][group] = packed<Element>(theirs->b, i);
        }
        float sum[16][8] = {};
        add_product(a, b, sum);
        for (int lane = 0; lane < 32; lane++) {
                matrix_product *mine = static_cast<matrix_product *>(lanes[lane]);
                for (int i = 0; i < 4; i++)
                        mine->d[i] += sum[lane / 4 + (i < 2 ? 0 : 8)][2 * (lane % 4) + i % 2];
        }
}

void multiply_fp16(void *const lanes[32], unsigned)
{
        multiply<__half>(lanes);
}

void multiply_bf16(void *const lanes[32], unsigned)
{
        multiply<__nv_bfloat16>(lanes);
}

} // namespace emulated
