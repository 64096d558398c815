/* The matrix product that others are made of: BLAS's. */
#include "runtime/device/cpu/kernels/kernels.h"

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
