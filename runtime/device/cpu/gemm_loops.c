/* The matrix product of the reference (variants.mk): each element a sum from the first product to the last,
 * in double, rounded once. */
#include "runtime/device/cpu/kernels/kernels.h"

void cpu_gemm(const struct kernel *of, const real *a, int64_t lda, const real *b, int64_t ldb, real *c,
              int64_t ldc)
{
        const int64_t a_row = of->transpose_a ? 1 : lda, a_step = of->transpose_a ? lda : 1;
        const int64_t b_column = of->transpose_b ? ldb : 1, b_step = of->transpose_b ? 1 : ldb;
        for (int64_t i = 0; i < of->m; i++) {
                for (int64_t j = 0; j < of->n; j++) {
                        double sum = of->accumulate ? (double)c[i * ldc + j] : 0;
                        for (int64_t p = 0; p < of->k; p++)
                                sum += (double)a[i * a_row + p * a_step] *
                                       (double)b[j * b_column + p * b_step];
                        c[i * ldc + j] = (real)sum;
                }
        }
}
