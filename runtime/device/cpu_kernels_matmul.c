/* Matrix products by BLAS. */
#include "runtime/device/cpu_kernels.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>

static blasint blas_int(int64_t value)
{
        assert(value >= 0 && value <= INT_MAX);
        return (blasint)value;
}

void cpu_gemm(const struct kernel *of, const real *a, int64_t lda, const real *b, int64_t ldb, real *c,
              int64_t ldc)
{
        const CBLAS_TRANSPOSE ta = of->transpose_a ? CblasTrans : CblasNoTrans;
        const CBLAS_TRANSPOSE tb = of->transpose_b ? CblasTrans : CblasNoTrans;
        const blasint m = blas_int(of->m), n = blas_int(of->n), k = blas_int(of->k);
        const real beta = of->accumulate ? 1 : 0;
#ifdef RANVIER_DOUBLE
        cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, blas_int(lda), b, blas_int(ldb), beta, c,
                    blas_int(ldc));
#else
        cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, blas_int(lda), b, blas_int(ldb), beta, c,
                    blas_int(ldc));
#endif
}

/* A batch is a loop: attention's matrices lie strided in larger buffers, which batched BLAS would not read.
 */
void cpu_matmul(const struct kernel *kernel, const struct kernel_args *args)
{
        const int64_t inner = args->inner, outer = kernel->batch / inner;
        for (int64_t i = 0; i < outer; i++) {
                for (int64_t j = 0; j < inner; j++) {
                        const real *a = args->p[0], *b = args->p[1];
                        real *c = args->p[2];
                        cpu_gemm(kernel, a + i * args->stride[0][0] + j * args->stride[0][1], args->ld[0],
                                 b + i * args->stride[1][0] + j * args->stride[1][1], args->ld[1],
                                 c + i * args->stride[2][0] + j * args->stride[2][1], args->ld[2]);
                }
        }
}
