#include "runtime/device/kernels.h"

#include <assert.h>

void kernels_launch(struct device *device, struct kernel kernel, const struct kernel_args *args)
{
        if (kernel.batch == 0)
                kernel.batch = 1;
        kernel.dtype = (unsigned char)device->dtype;
        device->ops->launch(device, &kernel, args);
}

/* `given`, or `otherwise` where 0 stands for it. */
static int64_t given_or(int64_t given, int64_t otherwise)
{
        return given ? given : otherwise;
}

void kernels_matmul(struct device *device, const struct matmul *mm, const void *a, const void *b, void *c)
{
        const int64_t outer = given_or(mm->outer, 1), inner = given_or(mm->inner, 1);
        kernels_launch(device,
                       (struct kernel){.kind = KERNEL_MATMUL,
                                       .transpose_a = mm->transpose_a,
                                       .transpose_b = mm->transpose_b,
                                       .accumulate = mm->accumulate,
                                       .part = mm->part,
                                       .batch = outer * inner,
                                       .m = mm->m,
                                       .n = mm->n,
                                       .k = mm->k},
                       &(struct kernel_args){.p = {(void *)a, (void *)b, c},
                                             .ld = {given_or(mm->lda, mm->transpose_a ? mm->m : mm->k),
                                                    given_or(mm->ldb, mm->transpose_b ? mm->k : mm->n),
                                                    given_or(mm->ldc, mm->n)},
                                             .stride = {{mm->stride_a[0], mm->stride_a[1]},
                                                        {mm->stride_b[0], mm->stride_b[1]},
                                                        {mm->stride_c[0], mm->stride_c[1]}},
                                             .inner = inner});
}

void kernels_bias(struct device *device, void *y, const void *b, int64_t m, int64_t n)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_BIAS, .m = m, .n = n},
                       &(struct kernel_args){.p = {y, (void *)b}});
}

void kernels_bias_residual(struct device *device, void *y, const void *b, const void *x, int64_t m, int64_t n)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_BIAS_RESIDUAL, .m = m, .n = n},
                       &(struct kernel_args){.p = {y, (void *)b, (void *)x}});
}

void kernels_squared_norm(struct device *device, double *sum, const void *x, int64_t n, bool accumulate)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_SQUARED_NORM, .accumulate = accumulate, .m = n},
                       &(struct kernel_args){.p = {sum, (void *)x}});
}

void kernels_adamw(struct device *device, real *p, real *g, real *m, real *v, void *weights,
                   const struct adamw_range *ranges, const double *gradient_scale, int64_t offset, int64_t n,
                   const struct adamw *adamw)
{
        kernels_launch(
                device, (struct kernel){.kind = KERNEL_ADAMW, .wide = adamw->wide_gradients, .m = n},
                &(struct kernel_args){.p = {p, g, m, v, (void *)ranges, (void *)gradient_scale, weights},
                                      .ld = {offset},
                                      .scalar = {adamw->lr, adamw->beta1, adamw->beta2, adamw->epsilon,
                                                 adamw->weight_decay, (double)adamw->step}});
}

void kernels_overflow(struct device *device, double *found, const void *g, int64_t n, double limit)
{
        assert(device->dtype != DTYPE_FP32);
        kernels_launch(device, (struct kernel){.kind = KERNEL_OVERFLOW, .m = n},
                       &(struct kernel_args){.p = {found, (void *)g}, .scalar = {limit}});
}

void kernels_unscale(struct device *device, real *out, void *g, const double *scale, int64_t n)
{
        assert(device->dtype != DTYPE_FP32);
        kernels_launch(device, (struct kernel){.kind = KERNEL_UNSCALE, .m = n},
                       &(struct kernel_args){.p = {out, g, (void *)scale}});
}

void kernels_clear(struct device *device, void *g, int64_t n)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_CLEAR, .m = n},
                       &(struct kernel_args){.p = {g}});
}
