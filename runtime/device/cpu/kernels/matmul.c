/* Matrix products by BLAS, alone or with what follows them. */
#include "runtime/device/cpu/kernels/kernels.h"
#include "runtime/device/kernels.h"

#include <assert.h>

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

struct fused_product cpu_fused_product(const struct kernel *kernel, const struct kernel_args *args)
{
        void *const *p = args->p;
        switch (kernel->kind) {
        case KERNEL_MATMUL_BIAS:
                return (struct fused_product){.sums = p[0], .a = p[1], .b = p[2], .bias = p[3]};
        case KERNEL_MATMUL_BIAS_GELU:
                return (struct fused_product){.more = p[0], .sums = p[1], .a = p[2], .b = p[3], .bias = p[4]};
        case KERNEL_MATMUL_BIAS_RESIDUAL:
                return (struct fused_product){.sums = p[0], .a = p[1], .b = p[2], .bias = p[3], .more = p[4]};
        default:
                assert(kernel->kind == KERNEL_MATMUL_GELU_BACKWARD);
                return (struct fused_product){.sums = p[0], .a = p[1], .b = p[2], .more = p[3]};
        }
}

/* What follows, of rows that lie densely in memory. */
static void end_rows(const struct kernel *kernel, real *sums, const real *bias, real *more)
{
        void *const b = (void *)bias;
        switch (kernel->kind) {
        case KERNEL_MATMUL_BIAS:
                cpu_bias(kernel, &(struct kernel_args){.p = {sums, b}});
                return;
        case KERNEL_MATMUL_BIAS_GELU:
                cpu_bias_gelu(kernel, &(struct kernel_args){.p = {more, sums, b}});
                return;
        case KERNEL_MATMUL_BIAS_RESIDUAL:
                cpu_bias_residual(kernel, &(struct kernel_args){.p = {sums, b, more}});
                return;
        default:
                assert(kernel->kind == KERNEL_MATMUL_GELU_BACKWARD);
                cpu_gelu_backward(kernel, &(struct kernel_args){.p = {sums, more}});
        }
}

void cpu_fused_ending(const struct kernel *kernel, real *sums, const real *bias, real *more, int64_t ld)
{
        struct kernel rows = *kernel;
        rows.m = ld == kernel->n ? kernel->m : 1;
        for (int64_t row = 0; row < kernel->m; row += rows.m)
                end_rows(&rows, sums + row * ld, bias, more ? more + row * ld : NULL);
}

void cpu_matmul_fused(const struct kernel *kernel, const struct kernel_args *args)
{
        const struct fused_product f = cpu_fused_product(kernel, args);
        cpu_gemm(kernel, f.a, args->ld[0], f.b, args->ld[1], f.sums, args->ld[2]);
        cpu_fused_ending(kernel, f.sums, f.bias, f.more, args->ld[2]);
}

/* What follows the product goes over its rows once: a row's LayerNorm reads what was just written. */
void cpu_matmul_layernorm(const struct kernel *kernel, const struct kernel_args *args)
{
        struct kernel parts[KERNEL_PARTS], *product = &parts[0], *layernorm = &parts[1];
        struct kernel_args after = kernels_layernorm_args(args);
        kernel_parts(kernel, parts);
        const struct fused_product f = cpu_fused_product(product, args);
        real *y = f.sums, *r = f.more, *ln = after.p[0], *stats = after.p[1];
        cpu_gemm(kernel, f.a, args->ld[0], f.b, args->ld[1], y, args->ld[2]);
        product->m = layernorm->m = 1; /* from here on: a row */
        for (int64_t i = 0; i < kernel->m; i++) {
                const int64_t at = i * kernel->n;
                cpu_fused_ending(product, y + at, f.bias, r + at, kernel->n);
                after.p[0] = ln + at;
                after.p[1] = stats + i;
                after.p[2] = y + at;
                cpu_layernorm(layernorm, &after);
        }
}
