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

static void product(const struct kernel *kernel, const struct kernel_args *args, const real *a, const real *b,
                    real *c)
{
        const CBLAS_TRANSPOSE ta = kernel->transpose_a ? CblasTrans : CblasNoTrans;
        const CBLAS_TRANSPOSE tb = kernel->transpose_b ? CblasTrans : CblasNoTrans;
        const blasint m = blas_int(kernel->m), n = blas_int(kernel->n), k = blas_int(kernel->k);
        const blasint lda = blas_int(args->ld[0]), ldb = blas_int(args->ld[1]), ldc = blas_int(args->ld[2]);
        const real beta = kernel->accumulate ? 1 : 0;
#ifdef RANVIER_DOUBLE
        cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
#else
        cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
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
                        product(kernel, args, a + i * args->stride[0][0] + j * args->stride[0][1],
                                b + i * args->stride[1][0] + j * args->stride[1][1],
                                c + i * args->stride[2][0] + j * args->stride[2][1]);
                }
        }
}
