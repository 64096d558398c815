/* What the last lane of a warp that comes to an operation computes for all lanes. Compiled without the checks
 * of kernels' accesses: operands lie where the emulation put them, and rows of shared memory are checked
 * here. */
#ifndef RANVIER_TESTS_EMULATED_WARP_HPP
#define RANVIER_TESTS_EMULATED_WARP_HPP

#include <cstddef>
#include <cstdint>

namespace emulated
{

/* Each of the functions below is an exchange_fn (execute.hpp), of these operands. */

struct shuffle {
        const void *value;
        void *result; /* the value of lane `source` */
        size_t bytes; /* of either */
        int source;
};
void exchange(void *const lanes[32], unsigned mask);

struct vote {
        int predicate;
        unsigned ballot;
};
void ballot(void *const lanes[32], unsigned mask);

/* ldmatrix.x4: `row` is 16 bytes of shared memory. */
struct matrix_load {
        uint32_t r[4];
        const void *row;
        bool transposed;
};
void load_matrices(void *const lanes[32], unsigned mask);

/* mma.m16n8k16: d += a b, of 16-bit elements packed in registers, the lower half first. */
struct matrix_product {
        float d[4];
        uint32_t a[4], b[2];
};
void multiply_fp16(void *const lanes[32], unsigned mask);
void multiply_bf16(void *const lanes[32], unsigned mask);

} // namespace emulated

#endif
