/* The backward pass, in the reverse order of forward.c. `g` is the gradient buffer: dL/d(output) of what is
 * worked on, transformed in place. A residual connection passes g on unchanged, so a branch only adds to it.
 */
#include "runtime/nn/nn.h"
#include "runtime/nn/shards.h"
#include "runtime/nn/slot.h"

/* Of y (m,n) = x (m,k) w^T: dw += dy^T x. */
static void weight_backward(struct device *device, void *dw, const void *dy, const void *x, int64_t m,
                            int64_t n, int64_t k)
{
        kernels_matmul(
                device,
                &(struct matmul){
                        .m = n, .n = k, .k = m, .transpose_a = true, .accumulate = true, .part = PART_WEIGHT},
                dy, x, dw);
}

/* And dx = dy w before it. */
static void project_backward(struct device *device, void *dx, void *dw, const void *dy, const void *x,
                             const void *w, int64_t m, int64_t n, int64_t k)
{
        kernels_matmul(device, &(struct matmul){.m = m, .n = k, .k = n, .part = PART_INPUT}, dy, w, dx);
        weight_backward(device, dw, dy, x, m, n, k);
}

/* Pointers to a block's weights, gradients and stored activations. */
struct block {
        const void *x; /* its input */
        struct block_slot b;
        const void *w[BLOCK_TENSORS];
        void *d[BLOCK_TENSORS];
};

static struct block block_of(const struct nn_stage *nn, int slot, int block, int input)
{
        struct block k = {.x = slot_block_input(nn, slot, block, input), .b = slot_block(nn, slot, block)};
        for (int role = 0; role < BLOCK_TENSORS; role++) {
                k.w[role] = slot_block_tensor(nn, nn->weights, block, (enum tensor_role)role);
                k.d[role] = slot_block_tensor(nn, nn->gradients, block, (enum tensor_role)role);
        }
        return k;
}

/* The second product of the MLP and its GELU: work_4c = dL/d(fc). */
static void mlp_output_backward(const struct nn_stage *nn, const struct block *k, const struct nn_shape *s,
                                const void *g)
{
        struct device *device = nn->device;
        const int64_t N = s->N, C = s->C, F = s->F;
        const void *w = k->w[BLOCK_FCPROJ_W], *rows = shards_gather(nn, g);
        if (nn->plan.work.fused) {
                kernels_matmul_gelu_backward(device, nn->work_4c, rows, w, k->b.fc, N, F, C);
                weight_backward(device, k->d[BLOCK_FCPROJ_W], rows, k->b.gelu, N, C, F);
                kernels_bias_backward(device, k->d[BLOCK_FCPROJ_B], g, s->R, C);
                return;
        }
        project_backward(device, nn->work_4c, k->d[BLOCK_FCPROJ_W], rows, k->b.gelu, w, N, C, F);
        kernels_bias_backward(device, k->d[BLOCK_FCPROJ_B], g, s->R, C);
        kernels_gelu_backward(device, nn->work_4c, k->b.fc, N, F);
}

/* From dy (N,n) of a product that LayerNorm's output x (N,C) enters: the gradients of its weights `w` and the
 * bias behind them. Returns the gradient of x, where a shard, which has some of n, has a part of a sum. */
static const void *project_input_backward(const struct nn_stage *nn, const struct block *k,
                                          const struct nn_shape *s, enum tensor_role w, const void *dy,
                                          const void *x, int64_t n)
{
        const void *rows = shards_gather(nn, x);
        project_backward(nn->device, nn->work_c, k->d[w], dy, rows, k->w[w], s->N, n, s->C);
        kernels_bias_backward(nn->device, k->d[w + 1], dy, s->N, n);
        return shards_sum(nn, nn->work_c, nn->work_gather);
}

static void mlp_backward(const struct nn_stage *nn, const struct block *k, const struct nn_shape *s, void *g)
{
        mlp_output_backward(nn, k, s, g);
        const void *dln = project_input_backward(nn, k, s, BLOCK_FC_W, nn->work_4c, k->b.ln2, s->F);
        kernels_layernorm_backward(nn->device, g, k->d[BLOCK_LN2_W], k->d[BLOCK_LN2_B], dln, k->b.residual1,
                                   k->b.stats2, k->w[BLOCK_LN2_W], s->R, s->C, true);
}

/* From work_c = d atty to work_qkv = dqkv, which is written whole: dQ, dK and dV among its columns, as in
 * attend(). */
static void plain_attend_backward(const struct nn_stage *nn, const struct block_slot *b,
                                  const struct nn_shape *s)
{
        struct device *device = nn->device;
        const int64_t T = s->T, C = s->S, H = s->H, hs = s->hs, square = T * T;
        const void *q = b->qkv, *k = nn_at(nn, b->qkv, C), *v = nn_at(nn, b->qkv, 2 * C), *dy = nn->work_c;
        void *dq = nn->work_qkv, *dk = nn_at(nn, dq, C), *dv = nn_at(nn, dq, 2 * C), *ds = nn->work_attention;
        kernels_matmul(device, /* dP = dy V^T */
                       &(struct matmul){.m = T,
                                        .n = T,
                                        .k = hs,
                                        .transpose_b = true,
                                        .lda = C,
                                        .ldb = 3 * C,
                                        .outer = s->B,
                                        .inner = H,
                                        .stride_a = {C * T, hs},
                                        .stride_b = {3 * C * T, hs},
                                        .stride_c = {H * square, square},
                                        .part = PART_INPUT},
                       dy, v, ds);
        /* The other three have a (T,T) matrix on the left and a head's columns of qkv or dy on the right. */
        struct matmul mm = {.m = T,
                            .n = hs,
                            .k = T,
                            .transpose_a = true,
                            .ldb = C,
                            .ldc = 3 * C,
                            .outer = s->B,
                            .inner = H,
                            .stride_a = {H * square, square},
                            .stride_b = {C * T, hs},
                            .stride_c = {3 * C * T, hs},
                            .part = PART_INPUT};
        kernels_matmul(device, &mm, b->attention, dy, dv); /* dV = P^T dy */
        kernels_softmax_backward(device, ds, b->attention, s->B * H, T, s->scale);
        mm.ldb = 3 * C;
        mm.stride_b[0] = 3 * C * T;
        mm.transpose_a = false;
        kernels_matmul(device, &mm, ds, k, dq); /* dQ = dS K */
        mm.transpose_a = true;
        kernels_matmul(device, &mm, ds, q, dk); /* dK = dS^T Q */
}

static void attend_backward(const struct nn_stage *nn, const struct block_slot *b, const struct nn_shape *s)
{
        if (nn->plan.work.fused)
                kernels_attention_backward(nn->device, nn->work_qkv, nn->work_attention, nn->work_c, b->atty,
                                           b->attention, b->qkv, s->B, s->T, s->H, s->hs, s->scale);
        else
                plain_attend_backward(nn, b, s);
}

static void attention_backward(const struct nn_stage *nn, const struct block *k, const struct nn_shape *s,
                               void *g)
{
        struct device *device = nn->device;
        const void *rows = shards_gather(nn, g);
        project_backward(device, nn->work_c, k->d[BLOCK_PROJ_W], rows, k->b.atty, k->w[BLOCK_PROJ_W], s->N,
                         s->C, s->S);
        kernels_bias_backward(device, k->d[BLOCK_PROJ_B], g, s->R, s->C);
        if (work_recomputes_scores(&nn->plan.work))
                attention_scores(nn, &k->b, s);
        attend_backward(nn, &k->b, s);
        const void *dln = project_input_backward(nn, k, s, BLOCK_QKV_W, nn->work_qkv, k->b.ln1, 3 * s->S);
        kernels_layernorm_backward(device, g, k->d[BLOCK_LN1_W], k->d[BLOCK_LN1_B], dln, k->x, k->b.stats1,
                                   k->w[BLOCK_LN1_W], s->R, s->C, true);
}

/* From the gradient of the logits, which the forward pass left in their place; writes g. */
static void loss_backward(const struct nn_stage *nn, int slot, const struct nn_shape *s, void *g)
{
        const struct final_slot f = slot_final(nn, slot);
        const int lnf = partition_lnf_weight(&nn->stage), head = partition_head(&nn->gpt, &nn->stage);
        const void *rows = shards_gather(nn, f.ln);
        project_backward(nn->device, nn->work_c, slot_tensor(nn, nn->gradients, head), f.logits, rows,
                         slot_tensor(nn, nn->weights, head), s->N, s->V, s->C);
        const void *dln = shards_sum(nn, nn->work_c, nn->work_gather);
        kernels_layernorm_backward(nn->device, g, slot_tensor(nn, nn->gradients, lnf),
                                   slot_tensor(nn, nn->gradients, lnf + 1), dln,
                                   slot_block(nn, slot, nn->stage.layers - 1).residual2, f.stats,
                                   slot_tensor(nn, nn->weights, lnf), s->R, s->C, false);
}

/* A layer's output, which nobody reads again, goes to a workspace: the stored one may still be on its way to
 * the next stage. */
static void recompute_block(const struct nn_stage *nn, int block, const struct block *k,
                            const struct nn_shape *s)
{
        struct block_slot b = k->b;
        b.residual2 = shards_scattered(nn) ? nn->work_gather : nn->work_c;
        block_forward(nn, block, k->x, &b, s, nn->plan.work.recompute == RECOMPUTE_LAYER);
}

static void embedding_backward(const struct nn_stage *nn, int micro_batch, const struct nn_shape *s,
                               const void *g)
{
        void *dwte = slot_tensor(nn, nn->gradients, partition_wte(&nn->stage));
        void *dwpe = slot_tensor(nn, nn->gradients, partition_wpe(&nn->stage));
        if (shards_scattered(nn) && nn->stage.shard > 0) /* of what is replicated the shards' sum is taken: */
                dwpe = NULL;                             /* here one has it, of all rows */
        const int32_t *tokens = nn->tokens + micro_batch * s->N;
        const void *rows = shards_gather(nn, g);
        if (nn->stage.shards == 1)
                kernels_embedding_backward(nn->device, dwte, dwpe, rows, tokens, s->B, s->T, s->C);
        else
                kernels_embedding_part_backward(nn->device, dwte, dwpe, rows, tokens, s->B, s->T, s->C,
                                                partition_first_token(&nn->gpt, &nn->stage), s->V);
}

/* How many things the shards do together in a block's backward. */
static int backward_together(const struct nn_stage *nn)
{
        const struct work *work = &nn->plan.work;
        if (nn->stage.shards == 1)
                return 0;
        const int again =
                work_recomputes_blocks(work) ? block_together(nn, work->recompute == RECOMPUTE_LAYER) : 0;
        return again + (shards_scattered(nn) ? 6 : 2);
}

bool nn_backward(struct nn_stage *nn, int chunk, int micro_batch, int input, int slot, int gradient)
{
        const struct nn_shape s = slot_shape(nn);
        const struct stage part = partition_chunk(&nn->stage, chunk);
        const int begin = chunk * part.layers;
        void *g = nn->gradient_buffers[gradient];
        shards_begin(nn);
        group_begin(nn->device);
        if (part.last)
                loss_backward(nn, slot, &s, g);
        for (int block = begin + part.layers - 1; block >= begin; block--) {
                if (shards_skip(nn, backward_together(nn)))
                        continue;
                const struct block k = block_of(nn, slot, block, input);
                if (work_recomputes_blocks(&nn->plan.work))
                        recompute_block(nn, block, &k, &s);
                mlp_backward(nn, &k, &s, g);
                attention_backward(nn, &k, &s, g);
        }
        if (part.first)
                embedding_backward(nn, micro_batch, &s, g);
        group_end(nn->device);
        return shards_end(nn);
}
