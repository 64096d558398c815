#include "tests/unit/launches.h"

#include <assert.h>
#include <limits.h>

void kernels_embedding_part(struct device *device, void *x, const int32_t *tokens, const void *wte,
                            const void *wpe, int64_t B, int64_t T, int64_t C, const struct table_part *part)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_EMBEDDING, .m = B * T, .n = C},
                       &(struct kernel_args){.p = {x, (void *)tokens, (void *)wte, (void *)wpe},
                                             .stride = {{part->moved[0], part->moved[1]}},
                                             .ld = {T, part->first, part->rows}});
}

void kernels_embedding(struct device *device, void *x, const int32_t *tokens, const void *wte,
                       const void *wpe, int64_t B, int64_t T, int64_t C)
{
        kernels_embedding_part(device, x, tokens, wte, wpe, B, T, C, &(struct table_part){0});
}

void kernels_embedding_part_backward(struct device *device, void *dwte, void *dwpe, const void *dx,
                                     const int32_t *tokens, int64_t B, int64_t T, int64_t C,
                                     const struct table_part *part)
{
        kernels_launch(device,
                       (struct kernel){.kind = KERNEL_EMBEDDING_BACKWARD,
                                       .accumulate = 1,
                                       .part = PART_WEIGHT,
                                       .m = B * T,
                                       .n = C},
                       &(struct kernel_args){.p = {dwte, dwpe, (void *)dx, (void *)tokens},
                                             .stride = {{part->moved[0], part->moved[1]}},
                                             .ld = {T, part->first, part->rows}});
}

void kernels_embedding_backward(struct device *device, void *dwte, void *dwpe, const void *dx,
                                const int32_t *tokens, int64_t B, int64_t T, int64_t C)
{
        kernels_embedding_part_backward(device, dwte, dwpe, dx, tokens, B, T, C, &(struct table_part){0});
}

void kernels_layernorm(struct device *device, void *y, real *stats, const void *x, const void *w,
                       const void *b, double more, int64_t N, int64_t C)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_LAYERNORM, .m = N, .n = C},
                       &(struct kernel_args){.p = {y, stats, (void *)x, (void *)w, (void *)b},
                                             .ld = {N},
                                             .scalar = {more}});
}

void kernels_layernorm_backward(struct device *device, void *dx, void *dw, void *db, const void *dy,
                                const void *x, const real *stats, const void *w, double more, int64_t N,
                                int64_t C, bool accumulate)
{
        kernels_launch(
                device,
                (struct kernel){.kind = KERNEL_LAYERNORM_BACKWARD,
                                .accumulate = accumulate,
                                .part = PART_BOTH,
                                .m = N,
                                .n = C},
                &(struct kernel_args){.p = {dx, dw, db, (void *)dy, (void *)x, (void *)stats, (void *)w},
                                      .ld = {N},
                                      .scalar = {more}});
}

void kernels_bias_backward(struct device *device, void *db, const void *dy, int64_t m, int64_t n)
{
        kernels_launch(
                device,
                (struct kernel){
                        .kind = KERNEL_BIAS_BACKWARD, .accumulate = 1, .part = PART_WEIGHT, .m = m, .n = n},
                &(struct kernel_args){.p = {db, (void *)dy}});
}

void kernels_bias_gelu(struct device *device, void *g, void *h, const void *b, int64_t m, int64_t n)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_BIAS_GELU, .m = m, .n = n},
                       &(struct kernel_args){.p = {g, h, (void *)b}});
}

void kernels_gelu_backward(struct device *device, void *dh, const void *h, int64_t m, int64_t n)
{
        kernels_launch(device,
                       (struct kernel){.kind = KERNEL_GELU_BACKWARD, .part = PART_INPUT, .m = m, .n = n},
                       &(struct kernel_args){.p = {dh, (void *)h}});
}

void kernels_residual(struct device *device, void *y, const void *x, int64_t m, int64_t n)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_RESIDUAL, .m = m, .n = n},
                       &(struct kernel_args){.p = {y, (void *)x}});
}

void kernels_rmsnorm(struct device *device, void *y, real *rstd, const void *x, const void *w, int64_t N,
                     int64_t C, double epsilon)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_RMSNORM, .m = N, .n = C},
                       &(struct kernel_args){.p = {y, rstd, (void *)x, (void *)w}, .scalar = {epsilon}});
}

void kernels_rmsnorm_backward(struct device *device, void *dx, void *dw, const void *dy, const void *x,
                              const real *rstd, const void *w, int64_t N, int64_t C, bool accumulate)
{
        kernels_launch(device,
                       (struct kernel){.kind = KERNEL_RMSNORM_BACKWARD,
                                       .accumulate = accumulate,
                                       .part = PART_BOTH,
                                       .m = N,
                                       .n = C},
                       &(struct kernel_args){.p = {dx, dw, (void *)dy, (void *)x, (void *)rstd, (void *)w}});
}

void kernels_head_rmsnorm(struct device *device, void *y, real *rstd, const void *x, const void *w, int64_t N,
                          int64_t H, int64_t KV, int64_t hs, double epsilon)
{
        kernels_launch(device,
                       (struct kernel){.kind = KERNEL_HEAD_RMSNORM, .m = N, .n = (H + 2 * KV) * hs, .k = hs},
                       &(struct kernel_args){.p = {y, rstd, (void *)x, (void *)w},
                                             .ld = {H * hs},
                                             .inner = (H + KV) * hs,
                                             .scalar = {epsilon}});
}

void kernels_head_rmsnorm_backward(struct device *device, void *dx, void *dw, const void *x, const real *rstd,
                                   const void *w, int64_t N, int64_t H, int64_t KV, int64_t hs)
{
        kernels_launch(device,
                       (struct kernel){.kind = KERNEL_HEAD_RMSNORM_BACKWARD,
                                       .part = PART_BOTH,
                                       .m = N,
                                       .n = (H + 2 * KV) * hs,
                                       .k = hs},
                       &(struct kernel_args){.p = {dx, dw, (void *)x, (void *)rstd, (void *)w},
                                             .ld = {H * hs},
                                             .inner = (H + KV) * hs});
}

void kernels_rope(struct device *device, const struct rope *rope, void *x, int64_t B, int64_t T)
{
        kernels_launch(device,
                       (struct kernel){.kind = KERNEL_ROPE,
                                       .part = rope->inverse ? PART_INPUT : 0,
                                       .m = B * T,
                                       .n = rope->columns,
                                       .k = rope->head_size},
                       &(struct kernel_args){.p = {x},
                                             .stride = {{rope->moved[0], rope->moved[1]}},
                                             .ld = {T},
                                             .inner = rope->rotated,
                                             .scalar = {rope->theta, rope->inverse ? -1 : 1, rope->scaling[0],
                                                        rope->scaling[1], rope->scaling[2], rope->scaling[3],
                                                        (double)rope->turned}});
}

void kernels_split_columns(struct device *device, void *a, void *b, const void *x, int64_t m, int64_t n,
                           int64_t k)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_SPLIT_COLUMNS, .m = m, .n = n, .k = k},
                       &(struct kernel_args){.p = {a, b, (void *)x}});
}

void kernels_join_columns(struct device *device, void *x, const void *a, const void *b, int64_t m, int64_t n,
                          int64_t k)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_JOIN_COLUMNS, .m = m, .n = n, .k = k},
                       &(struct kernel_args){.p = {x, (void *)a, (void *)b}});
}

void kernels_narrow(struct device *device, void *y, const void *wide, int64_t m, int64_t n, int64_t k)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_NARROW, .m = m, .n = n, .k = k},
                       &(struct kernel_args){.p = {y, (void *)wide}});
}

void kernels_widen(struct device *device, void *wide, const void *y, int64_t m, int64_t n, int64_t k)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_WIDEN, .m = m, .n = n, .k = k},
                       &(struct kernel_args){.p = {wide, (void *)y}});
}

static void launch_latent(struct device *device, const struct latent *of, enum kernel_kind kind,
                          void *const p[4], int64_t B, int64_t T)
{
        kernels_launch(device,
                       (struct kernel){.kind = kind,
                                       .part = kind == KERNEL_LATENT_QKV_BACKWARD ? PART_INPUT : 0,
                                       .m = B * T,
                                       .n = of->heads * (of->copied + of->rotated),
                                       .k = of->rotated,
                                       .l = of->heads * (of->copied + of->values)},
                       &(struct kernel_args){.p = {p[0], p[1], p[2], p[3]},
                                             .stride = {{of->moved[0], of->moved[1]}},
                                             .ld = {T},
                                             .inner = of->heads,
                                             .scalar = {of->theta, of->length, of->scaling[0], of->scaling[1],
                                                        of->scaling[2], of->scaling[3], of->interleaved}});
}

void kernels_latent_qkv(struct device *device, const struct latent *of, void *qkv, const void *q,
                        const void *kv, const void *shared, int64_t B, int64_t T)
{
        void *const p[] = {qkv, (void *)q, (void *)kv, (void *)shared};
        launch_latent(device, of, KERNEL_LATENT_QKV, p, B, T);
}

void kernels_latent_qkv_backward(struct device *device, const struct latent *of, void *dq, void *dkv,
                                 void *dshared, const void *dqkv, int64_t B, int64_t T)
{
        void *const p[] = {dq, dkv, dshared, (void *)dqkv};
        launch_latent(device, of, KERNEL_LATENT_QKV_BACKWARD, p, B, T);
}

void kernels_swiglu(struct device *device, void *y, const void *gu, int64_t m, int64_t n)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_SWIGLU, .m = m, .n = n},
                       &(struct kernel_args){.p = {y, (void *)gu}});
}

void kernels_swiglu_backward(struct device *device, void *dgu, const void *dy, const void *gu, int64_t m,
                             int64_t n)
{
        kernels_launch(device,
                       (struct kernel){.kind = KERNEL_SWIGLU_BACKWARD, .part = PART_INPUT, .m = m, .n = n},
                       &(struct kernel_args){.p = {dgu, (void *)dy, (void *)gu}});
}

void kernels_squared_relu(struct device *device, void *y, const void *h, int64_t m, int64_t n)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_SQUARED_RELU, .m = m, .n = n},
                       &(struct kernel_args){.p = {y, (void *)h}});
}

void kernels_squared_relu_backward(struct device *device, void *dh, const void *h, int64_t m, int64_t n)
{
        kernels_launch(
                device,
                (struct kernel){.kind = KERNEL_SQUARED_RELU_BACKWARD, .part = PART_INPUT, .m = m, .n = n},
                &(struct kernel_args){.p = {dh, (void *)h}});
}

void kernels_route(struct device *device, const struct routing *r, real *weights, int32_t *place,
                   int32_t *source, int32_t *ends, const void *logits, const void *correction)
{
        kernels_launch(
                device, (struct kernel){.kind = KERNEL_ROUTE, .m = r->N, .n = r->E, .k = r->K},
                &(struct kernel_args){.p = {weights, place, source, ends, (void *)logits, (void *)correction},
                                      .scalar = {r->logistic, r->normalised, r->factor, 0, (double)r->groups,
                                                 (double)r->chosen_groups, r->best_of_group}});
}

void kernels_route_backward(struct device *device, const struct routing *r, void *dlogits,
                            const real *dweights, const real *weights, const int32_t *place,
                            const int32_t *ends, const void *logits)
{
        kernels_launch(
                device,
                (struct kernel){
                        .kind = KERNEL_ROUTE_BACKWARD, .part = PART_INPUT, .m = r->N, .n = r->E, .k = r->K},
                &(struct kernel_args){.p = {dlogits, (void *)dweights, (void *)weights, (void *)place,
                                            (void *)ends, (void *)logits},
                                      .scalar = {r->logistic, r->normalised, r->factor, r->balance}});
}

void kernels_permute(struct device *device, void *y, const void *x, const int32_t *source, int64_t N,
                     int64_t K, int64_t n)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_PERMUTE, .m = N * K, .n = n, .k = K},
                       &(struct kernel_args){.p = {y, (void *)x, (void *)source}});
}

void kernels_unpermute(struct device *device, void *y, const void *x, const int32_t *place, int64_t N,
                       int64_t K, int64_t n, bool accumulate)
{
        kernels_launch(
                device,
                (struct kernel){.kind = KERNEL_UNPERMUTE, .accumulate = accumulate, .m = N, .n = n, .k = K},
                &(struct kernel_args){.p = {y, (void *)x, (void *)place}});
}

void kernels_grouped_matmul(struct device *device, const struct grouped *g, const void *a, const void *b,
                            void *c, const int32_t *ends)
{
        kernels_launch(device,
                       (struct kernel){.kind = KERNEL_GROUPED_MATMUL,
                                       .transpose_b = g->transpose_b,
                                       .experts = (short)g->experts,
                                       .m = g->m,
                                       .n = g->n,
                                       .k = g->k},
                       &(struct kernel_args){.p = {(void *)a, (void *)b, c, (void *)ends},
                                             .ld = {g->lda, g->ldb, g->ldc},
                                             .stride = {{0}, {g->each}},
                                             .inner = 1});
}

void kernels_grouped_matmul_backward(struct device *device, const struct grouped *g, const void *a,
                                     const void *b, void *c, const int32_t *ends)
{
        kernels_launch(device,
                       (struct kernel){.kind = KERNEL_GROUPED_MATMUL_BACKWARD,
                                       .transpose_a = 1,
                                       .accumulate = 1,
                                       .part = PART_WEIGHT,
                                       .experts = (short)g->experts,
                                       .m = g->m,
                                       .n = g->n,
                                       .k = g->k},
                       &(struct kernel_args){.p = {(void *)a, (void *)b, c, (void *)ends},
                                             .ld = {g->lda, g->ldb, g->ldc},
                                             .stride = {{0}, {0}, {g->each}},
                                             .inner = 1});
}

void kernels_weighted_swiglu_of(struct device *device, void *y, const void *gu, const real *w,
                                const int32_t *ends, int experts, int64_t m, int64_t n)
{
        kernels_launch(
                device,
                (struct kernel){.kind = KERNEL_WEIGHTED_SWIGLU, .experts = (short)experts, .m = m, .n = n},
                &(struct kernel_args){.p = {y, (void *)gu, (void *)w, (void *)ends}});
}

void kernels_weighted_swiglu(struct device *device, void *y, const void *gu, const real *w, int64_t m,
                             int64_t n)
{
        kernels_weighted_swiglu_of(device, y, gu, w, NULL, 0, m, n);
}

void kernels_expert_ends(struct device *device, int32_t *ends, const int32_t *all_ends, int own, int ranks,
                         int first, int experts)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_EXPERT_ENDS, .m = own, .k = ranks},
                       &(struct kernel_args){.p = {ends, (void *)all_ends}, .ld = {first, experts}});
}

void kernels_weighted_swiglu_backward_of(struct device *device, void *dgu, real *dw, const void *dy,
                                         const void *gu, const real *w, const int32_t *ends, int experts,
                                         int64_t m, int64_t n)
{
        kernels_launch(
                device,
                (struct kernel){.kind = KERNEL_WEIGHTED_SWIGLU_BACKWARD,
                                .part = PART_INPUT,
                                .experts = (short)experts,
                                .m = m,
                                .n = n},
                &(struct kernel_args){.p = {dgu, dw, (void *)dy, (void *)gu, (void *)w, (void *)ends}});
}

void kernels_weighted_swiglu_backward(struct device *device, void *dgu, real *dw, const void *dy,
                                      const void *gu, const real *w, int64_t m, int64_t n)
{
        kernels_weighted_swiglu_backward_of(device, dgu, dw, dy, gu, w, NULL, 0, m, n);
}

void kernels_softmax(struct device *device, void *s, int64_t batch, int64_t T, double scale)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_SOFTMAX, .batch = batch, .m = T, .n = T},
                       &(struct kernel_args){.p = {s}, .scalar = {scale}});
}

void kernels_softmax_backward(struct device *device, void *dp, const void *p, int64_t batch, int64_t T,
                              double scale)
{
        kernels_launch(
                device,
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
        kernels_launch(device, kernel, &args);
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
        kernels_launch(device,
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
        kernels_launch(
                device,
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

static void launch_context(struct device *device, enum kernel_kind kind, const struct context_place *place,
                           struct kernel_args args, int64_t B, int64_t T, int64_t H, int64_t KV, int64_t hs)
{
        args.inner = H;
        args.ld[2] = place->rank < place->distance; /* the other comes after it */
        kernels_launch(
                device,
                (struct kernel){
                        .kind = kind, .group = group_of(H, KV), .batch = B * H, .m = T, .n = T, .k = hs},
                &args);
}

void kernels_context_attention(struct device *device, const struct context_place *place, void *y, real *lse,
                               const void *qkv, const void *kv, int64_t B, int64_t T, int64_t H, int64_t KV,
                               int64_t hs, double scale)
{
        launch_context(device, KERNEL_CONTEXT_ATTENTION, place,
                       (struct kernel_args){.p = {y, lse, (void *)qkv, (void *)kv},
                                            .scalar = {scale, place->distance}},
                       B, T, H, KV, hs);
}

void kernels_context_attention_backward(struct device *device, const struct context_place *place, void *dqkv,
                                        void *dkv, const real *rows, const void *dy, const real *lse,
                                        const void *qkv, const void *kv, int64_t B, int64_t T, int64_t H,
                                        int64_t KV, int64_t hs, double scale)
{
        launch_context(device, KERNEL_CONTEXT_ATTENTION_BACKWARD, place,
                       (struct kernel_args){.p = {dqkv, dkv, (void *)rows, (void *)dy, (void *)lse,
                                                  (void *)qkv, (void *)kv},
                                            .scalar = {scale, place->distance}},
                       B, T, H, KV, hs);
}

void kernels_last_columns(struct device *device, void *y, const void *x, int64_t m, int64_t n, int64_t k)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_LAST_COLUMNS, .m = m, .n = n, .k = k},
                       &(struct kernel_args){.p = {y, (void *)x}});
}

void kernels_set_last_columns(struct device *device, void *x, const void *y, int64_t m, int64_t n, int64_t k)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_SET_LAST_COLUMNS, .m = m, .n = n, .k = k},
                       &(struct kernel_args){.p = {x, (void *)y}});
}

void kernels_cross_entropy(struct device *device, double *loss, void *logits, const int32_t *targets,
                           int64_t N, int64_t V, int64_t apart, double scale, bool loss_only)
{
        kernels_launch(
                device,
                (struct kernel){
                        .kind = loss_only ? KERNEL_CROSS_ENTROPY_LOSS : KERNEL_CROSS_ENTROPY, .m = N, .n = V},
                &(struct kernel_args){
                        .p = {loss, logits, (void *)targets}, .stride = {{0, apart}}, .scalar = {scale}});
}

void kernels_cross_entropy_numbers(struct device *device, real *numbers, const void *logits,
                                   const int32_t *targets, int64_t N, int64_t V, struct vocabulary_part part)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_CROSS_ENTROPY_LOSS, .m = N, .n = V},
                       &(struct kernel_args){.p = {NULL, (void *)logits, (void *)targets, numbers},
                                             .ld = {part.first, 0, N},
                                             .stride = {{part.valid, V}},
                                             .inner = 1});
}

void kernels_cross_entropy_part(struct device *device, double *loss, void *logits, const int32_t *targets,
                                const real *numbers, int shards, int64_t N, int64_t V,
                                struct vocabulary_part part, double scale)
{
        kernels_launch(device, (struct kernel){.kind = KERNEL_CROSS_ENTROPY, .m = N, .n = V},
                       &(struct kernel_args){.p = {loss, logits, (void *)targets, (void *)numbers},
                                             .ld = {part.first, 0, N},
                                             .stride = {{part.valid, V}},
                                             .inner = shards,
                                             .scalar = {scale}});
}

void kernels_cross_entropy_of_numbers(struct device *device, double *loss, const real *numbers, int shards,
                                      int64_t N)
{
        const struct kernel kernel = {.kind = KERNEL_CROSS_ENTROPY_LOSS, .batch = 1, .m = N, .n = 3 * shards};
        const struct kernel_args args = {
                .p = {loss, NULL, NULL, (void *)numbers}, .ld = {0, 0, N}, .inner = shards};
        device->ops->launch(device, &kernel, &args); /* numbers are never in 16 bits */
}
