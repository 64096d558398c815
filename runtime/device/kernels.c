#include "runtime/device/kernels.h"

#include <assert.h>
#include <limits.h>

static void launch_as(struct device *device, struct kernel kernel, enum half half,
                      const struct kernel_args *args)
{
        if (kernel.batch == 0)
                kernel.batch = 1;
        kernel.half = (unsigned char)half;
        device->ops->launch(device, &kernel, args);
}

static void launch(struct device *device, struct kernel kernel, const struct kernel_args *args)
{
        launch_as(device, kernel, device->half, args);
}

/* `given`, or `otherwise` where 0 stands for it. */
static int64_t given_or(int64_t given, int64_t otherwise)
{
        return given ? given : otherwise;
}

void kernels_matmul(struct device *device, const struct matmul *mm, const void *a, const void *b, void *c)
{
        const int64_t outer = given_or(mm->outer, 1), inner = given_or(mm->inner, 1);
        launch(device,
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

void kernels_embedding_part(struct device *device, void *x, const int32_t *tokens, const void *wte,
                            const void *wpe, int64_t B, int64_t T, int64_t C, int64_t first, int64_t rows)
{
        launch(device, (struct kernel){.kind = KERNEL_EMBEDDING, .m = B * T, .n = C},
               &(struct kernel_args){.p = {x, (void *)tokens, (void *)wte, (void *)wpe},
                                     .ld = {T, first, rows}});
}

void kernels_embedding(struct device *device, void *x, const int32_t *tokens, const void *wte,
                       const void *wpe, int64_t B, int64_t T, int64_t C)
{
        kernels_embedding_part(device, x, tokens, wte, wpe, B, T, C, 0, 0);
}

void kernels_embedding_part_backward(struct device *device, void *dwte, void *dwpe, const void *dx,
                                     const int32_t *tokens, int64_t B, int64_t T, int64_t C, int64_t first,
                                     int64_t rows)
{
        launch(device,
               (struct kernel){.kind = KERNEL_EMBEDDING_BACKWARD,
                               .accumulate = 1,
                               .part = PART_WEIGHT,
                               .m = B * T,
                               .n = C},
               &(struct kernel_args){.p = {dwte, dwpe, (void *)dx, (void *)tokens}, .ld = {T, first, rows}});
}

void kernels_embedding_backward(struct device *device, void *dwte, void *dwpe, const void *dx,
                                const int32_t *tokens, int64_t B, int64_t T, int64_t C)
{
        kernels_embedding_part_backward(device, dwte, dwpe, dx, tokens, B, T, C, 0, 0);
}

void kernels_layernorm(struct device *device, void *y, real *stats, const void *x, const void *w,
                       const void *b, int64_t N, int64_t C)
{
        launch(device, (struct kernel){.kind = KERNEL_LAYERNORM, .m = N, .n = C},
               &(struct kernel_args){.p = {y, stats, (void *)x, (void *)w, (void *)b}, .ld = {N}});
}

void kernels_layernorm_backward(struct device *device, void *dx, void *dw, void *db, const void *dy,
                                const void *x, const real *stats, const void *w, int64_t N, int64_t C,
                                bool accumulate)
{
        launch(device,
               (struct kernel){.kind = KERNEL_LAYERNORM_BACKWARD,
                               .accumulate = accumulate,
                               .part = PART_BOTH,
                               .m = N,
                               .n = C},
               &(struct kernel_args){.p = {dx, dw, db, (void *)dy, (void *)x, (void *)stats, (void *)w},
                                     .ld = {N}});
}

void kernels_bias(struct device *device, void *y, const void *b, int64_t m, int64_t n)
{
        launch(device, (struct kernel){.kind = KERNEL_BIAS, .m = m, .n = n},
               &(struct kernel_args){.p = {y, (void *)b}});
}

void kernels_bias_backward(struct device *device, void *db, const void *dy, int64_t m, int64_t n)
{
        launch(device,
               (struct kernel){
                       .kind = KERNEL_BIAS_BACKWARD, .accumulate = 1, .part = PART_WEIGHT, .m = m, .n = n},
               &(struct kernel_args){.p = {db, (void *)dy}});
}

void kernels_bias_gelu(struct device *device, void *g, void *h, const void *b, int64_t m, int64_t n)
{
        launch(device, (struct kernel){.kind = KERNEL_BIAS_GELU, .m = m, .n = n},
               &(struct kernel_args){.p = {g, h, (void *)b}});
}

void kernels_gelu_backward(struct device *device, void *dh, const void *h, int64_t m, int64_t n)
{
        launch(device, (struct kernel){.kind = KERNEL_GELU_BACKWARD, .part = PART_INPUT, .m = m, .n = n},
               &(struct kernel_args){.p = {dh, (void *)h}});
}

void kernels_bias_residual(struct device *device, void *y, const void *b, const void *x, int64_t m, int64_t n)
{
        launch(device, (struct kernel){.kind = KERNEL_BIAS_RESIDUAL, .m = m, .n = n},
               &(struct kernel_args){.p = {y, (void *)b, (void *)x}});
}

void kernels_residual(struct device *device, void *y, const void *x, int64_t m, int64_t n)
{
        launch(device, (struct kernel){.kind = KERNEL_RESIDUAL, .m = m, .n = n},
               &(struct kernel_args){.p = {y, (void *)x}});
}

void kernels_rmsnorm(struct device *device, void *y, real *rstd, const void *x, const void *w, int64_t N,
                     int64_t C, double epsilon)
{
        launch(device, (struct kernel){.kind = KERNEL_RMSNORM, .m = N, .n = C},
               &(struct kernel_args){.p = {y, rstd, (void *)x, (void *)w}, .scalar = {epsilon}});
}

void kernels_rmsnorm_backward(struct device *device, void *dx, void *dw, const void *dy, const void *x,
                              const real *rstd, const void *w, int64_t N, int64_t C, bool accumulate)
{
        launch(device,
               (struct kernel){.kind = KERNEL_RMSNORM_BACKWARD,
                               .accumulate = accumulate,
                               .part = PART_BOTH,
                               .m = N,
                               .n = C},
               &(struct kernel_args){.p = {dx, dw, (void *)dy, (void *)x, (void *)rstd, (void *)w}});
}

void kernels_rope(struct device *device, const struct rope *rope, void *x, int64_t B, int64_t T)
{
        launch(device,
               (struct kernel){.kind = KERNEL_ROPE,
                               .part = rope->inverse ? PART_INPUT : 0,
                               .m = B * T,
                               .n = rope->columns,
                               .k = rope->head_size},
               &(struct kernel_args){.p = {x},
                                     .ld = {T},
                                     .inner = rope->rotated,
                                     .scalar = {rope->theta, rope->inverse ? -1 : 1}});
}

void kernels_swiglu(struct device *device, void *y, const void *gu, int64_t m, int64_t n)
{
        launch(device, (struct kernel){.kind = KERNEL_SWIGLU, .m = m, .n = n},
               &(struct kernel_args){.p = {y, (void *)gu}});
}

void kernels_swiglu_backward(struct device *device, void *dgu, const void *dy, const void *gu, int64_t m,
                             int64_t n)
{
        launch(device, (struct kernel){.kind = KERNEL_SWIGLU_BACKWARD, .part = PART_INPUT, .m = m, .n = n},
               &(struct kernel_args){.p = {dgu, (void *)dy, (void *)gu}});
}

void kernels_softmax(struct device *device, void *s, int64_t batch, int64_t T, double scale)
{
        launch(device, (struct kernel){.kind = KERNEL_SOFTMAX, .batch = batch, .m = T, .n = T},
               &(struct kernel_args){.p = {s}, .scalar = {scale}});
}

void kernels_softmax_backward(struct device *device, void *dp, const void *p, int64_t batch, int64_t T,
                              double scale)
{
        launch(device,
               (struct kernel){
                       .kind = KERNEL_SOFTMAX_BACKWARD, .part = PART_INPUT, .batch = batch, .m = T, .n = T},
               &(struct kernel_args){.p = {dp, (void *)p}, .scalar = {scale}});
}

/* A fused product, whose operands are dense. */
static void launch_product(struct device *device, struct kernel kernel, struct kernel_args args)
{
        args.ld[0] = kernel.k;
        args.ld[1] = kernel.transpose_b ? kernel.k : kernel.n;
        args.ld[2] = kernel.n;
        launch(device, kernel, &args);
}

void kernels_matmul_bias(struct device *device, void *y, const void *x, const void *w, const void *b,
                         int64_t m, int64_t n, int64_t k)
{
        launch_product(device,
                       (struct kernel){.kind = KERNEL_MATMUL_BIAS, .transpose_b = 1, .m = m, .n = n, .k = k},
                       (struct kernel_args){.p = {y, (void *)x, (void *)w, (void *)b}});
}

void kernels_matmul_bias_gelu(struct device *device, void *g, void *h, const void *x, const void *w,
                              const void *b, int64_t m, int64_t n, int64_t k)
{
        launch_product(
                device,
                (struct kernel){.kind = KERNEL_MATMUL_BIAS_GELU, .transpose_b = 1, .m = m, .n = n, .k = k},
                (struct kernel_args){.p = {g, h, (void *)x, (void *)w, (void *)b}});
}

void kernels_matmul_bias_residual(struct device *device, void *y, const void *x, const void *w, const void *b,
                                  const void *r, int64_t m, int64_t n, int64_t k)
{
        launch_product(device,
                       (struct kernel){
                               .kind = KERNEL_MATMUL_BIAS_RESIDUAL, .transpose_b = 1, .m = m, .n = n, .k = k},
                       (struct kernel_args){.p = {y, (void *)x, (void *)w, (void *)b, (void *)r}});
}

void kernels_matmul_bias_residual_layernorm(struct device *device, void *y, void *ln, real *stats,
                                            const void *x, const void *w, const void *b, const void *r,
                                            const void *ln_w, const void *ln_b, int64_t m, int64_t n,
                                            int64_t k)
{
        launch_product(device,
                       (struct kernel){.kind = KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM,
                                       .transpose_b = 1,
                                       .m = m,
                                       .n = n,
                                       .k = k},
                       (struct kernel_args){.p = {y, (void *)x, (void *)w, (void *)b, (void *)r, ln, stats,
                                                  (void *)ln_w, (void *)ln_b},
                                            .stride = {{m}}});
}

void kernels_matmul_gelu_backward(struct device *device, void *dh, const void *dy, const void *w,
                                  const void *h, int64_t m, int64_t n, int64_t k)
{
        launch_product(
                device,
                (struct kernel){
                        .kind = KERNEL_MATMUL_GELU_BACKWARD, .part = PART_INPUT, .m = m, .n = n, .k = k},
                (struct kernel_args){.p = {dh, (void *)dy, (void *)w, (void *)h}});
}

static unsigned char group_of(int64_t H, int64_t KV)
{
        assert(KV > 0 && H % KV == 0 && H / KV <= UCHAR_MAX);
        return (unsigned char)(H / KV);
}

void kernels_attention(struct device *device, void *y, real *lse, const void *qkv, int64_t B, int64_t T,
                       int64_t H, int64_t KV, int64_t hs, double scale)
{
        launch(device,
               (struct kernel){.kind = KERNEL_ATTENTION,
                               .group = group_of(H, KV),
                               .batch = B * H,
                               .m = T,
                               .n = T,
                               .k = hs},
               &(struct kernel_args){.p = {y, lse, (void *)qkv}, .inner = H, .scalar = {scale}});
}

void kernels_attention_backward(struct device *device, void *dqkv, real *rows, const void *dy, const void *y,
                                const real *lse, const void *qkv, int64_t B, int64_t T, int64_t H, int64_t KV,
                                int64_t hs, double scale)
{
        launch(device,
               (struct kernel){.kind = KERNEL_ATTENTION_BACKWARD,
                               .part = PART_INPUT,
                               .group = group_of(H, KV),
                               .batch = B * H,
                               .m = T,
                               .n = T,
                               .k = hs},
               &(struct kernel_args){.p = {dqkv, rows, (void *)dy, (void *)y, (void *)lse, (void *)qkv},
                                     .inner = H,
                                     .scalar = {scale}});
}

void kernels_cross_entropy(struct device *device, double *loss, void *logits, const int32_t *targets,
                           int64_t N, int64_t V, double scale, bool loss_only)
{
        launch(device,
               (struct kernel){
                       .kind = loss_only ? KERNEL_CROSS_ENTROPY_LOSS : KERNEL_CROSS_ENTROPY, .m = N, .n = V},
               &(struct kernel_args){.p = {loss, logits, (void *)targets}, .scalar = {scale}});
}

void kernels_cross_entropy_numbers(struct device *device, real *numbers, const void *logits,
                                   const int32_t *targets, int64_t N, int64_t V, struct vocabulary_part part)
{
        launch(device, (struct kernel){.kind = KERNEL_CROSS_ENTROPY_LOSS, .m = N, .n = V},
               &(struct kernel_args){.p = {NULL, (void *)logits, (void *)targets, numbers},
                                     .ld = {part.first, 0, N},
                                     .stride = {{part.valid}},
                                     .inner = 1});
}

void kernels_cross_entropy_part(struct device *device, double *loss, void *logits, const int32_t *targets,
                                const real *numbers, int shards, int64_t N, int64_t V,
                                struct vocabulary_part part, double scale)
{
        launch(device, (struct kernel){.kind = KERNEL_CROSS_ENTROPY, .m = N, .n = V},
               &(struct kernel_args){.p = {loss, logits, (void *)targets, (void *)numbers},
                                     .ld = {part.first, 0, N},
                                     .stride = {{part.valid}},
                                     .inner = shards,
                                     .scalar = {scale}});
}

void kernels_cross_entropy_of_numbers(struct device *device, double *loss, const real *numbers, int shards,
                                      int64_t N)
{
        launch_as(device, (struct kernel){.kind = KERNEL_CROSS_ENTROPY_LOSS, .m = N, .n = 3 * shards},
                  HALF_NONE,
                  &(struct kernel_args){
                          .p = {loss, NULL, NULL, (void *)numbers}, .ld = {0, 0, N}, .inner = shards});
}

void kernels_squared_norm(struct device *device, double *sum, const void *x, int64_t n, bool accumulate)
{
        launch(device, (struct kernel){.kind = KERNEL_SQUARED_NORM, .accumulate = accumulate, .m = n},
               &(struct kernel_args){.p = {sum, (void *)x}});
}

void kernels_adamw(struct device *device, real *p, real *g, real *m, real *v, void *weights,
                   const struct adamw_range *ranges, const double *gradient_scale, int64_t offset, int64_t n,
                   const struct adamw *adamw)
{
        launch(device, (struct kernel){.kind = KERNEL_ADAMW, .m = n},
               &(struct kernel_args){.p = {p, g, m, v, (void *)ranges, (void *)gradient_scale, weights},
                                     .ld = {offset},
                                     .scalar = {adamw->lr, adamw->beta1, adamw->beta2, adamw->epsilon,
                                                adamw->weight_decay, (double)adamw->step}});
}

void kernels_overflow(struct device *device, double *found, const void *g, int64_t n, double limit)
{
        assert(device->half);
        launch(device, (struct kernel){.kind = KERNEL_OVERFLOW, .m = n},
               &(struct kernel_args){.p = {found, (void *)g}, .scalar = {limit}});
}

void kernels_unscale(struct device *device, real *out, void *g, const double *scale, int64_t n)
{
        assert(device->half);
        launch(device, (struct kernel){.kind = KERNEL_UNSCALE, .m = n},
               &(struct kernel_args){.p = {out, g, (void *)scale}});
}

void kernels_clear(struct device *device, void *g, int64_t n)
{
        launch(device, (struct kernel){.kind = KERNEL_CLEAR, .m = n}, &(struct kernel_args){.p = {g}});
}
