/* The backward pass, in the reverse order of forward.c. `g` is the gradient buffer: dL/d(output) of what is
 * worked on, transformed in place. A residual connection passes g on unchanged, so a branch only adds to it.
 *
 * In two parts (PART_INPUT, PART_WEIGHT) nothing is transformed in place: each block's gradients of its
 * products' outputs are kept until their weights' turn, in a buffer of their own. */
#include "runtime/nn/nn.h"
#include "runtime/nn/shards.h"
#include "runtime/nn/slot.h"

#include <assert.h>

/* A micro-batch's place in each kind of buffer; and which parts of its backward it is about. */
struct pass {
        int micro_batch, input, slot, gradient, deferred;
        enum kernel_part parts;
};

/* Gradients on their way through a block: of its output, of fc, of residual1, of qkv, and of its input. */
struct flow {
        void *output, *fc, *residual, *qkv, *input;
};

/* Pointers to a block's weights, gradients and stored activations, and which parts of its backward it is. */
struct block {
        const void *x; /* its input */
        struct block_slot b;
        const void *w[BLOCK_TENSORS];
        void *d[BLOCK_TENSORS];
        struct flow g;
        enum kernel_part parts;
};

/* Of y (m,n) = x (m,k) w^T: dw += dy^T x. */
static void weight_backward(const struct nn_stage *nn, enum kernel_part parts, void *dw, const void *dy,
                            const void *x, int64_t m, int64_t n, int64_t k)
{
        if (parts & PART_WEIGHT)
                kernels_matmul(nn->device,
                               &(struct matmul){.m = n,
                                                .n = k,
                                                .k = m,
                                                .transpose_a = true,
                                                .accumulate = true,
                                                .part = PART_WEIGHT},
                               dy, x, dw);
}

/* And dx = dy w before it. */
static void project_backward(const struct nn_stage *nn, enum kernel_part parts, void *dx, void *dw,
                             const void *dy, const void *x, const void *w, int64_t m, int64_t n, int64_t k)
{
        if (parts & PART_INPUT)
                kernels_matmul(nn->device, &(struct matmul){.m = m, .n = k, .k = n, .part = PART_INPUT}, dy,
                               w, dx);
        weight_backward(nn, parts, dw, dy, x, m, n, k);
}

static void bias_backward(const struct nn_stage *nn, const struct block *k, enum tensor_role role,
                          const void *dy, int64_t m, int64_t n)
{
        if (k->parts & PART_WEIGHT)
                kernels_bias_backward(nn->device, k->d[role], dy, m, n);
}

/* Behind a residual connection, past which `past` came: dx is its sum with LayerNorm's, whose weight is `w`.
 */
static void layernorm_backward(const struct nn_stage *nn, const struct block *k, enum tensor_role w, void *dx,
                               const void *past, const void *dy, const void *x, const real *stats,
                               const struct nn_shape *s)
{
        if (!(k->parts & PART_INPUT))
                return;
        kernels_layernorm_backward(nn->device, dx, k->d[w], k->d[w + 1], dy, x, stats, k->w[w], s->R, s->C,
                                   dx == past);
        if (dx != past)
                kernels_bias_residual(nn->device, dx, nn->zeros, past, s->R, s->C);
}

static struct block block_of(const struct nn_stage *nn, int slot, int block, int input)
{
        struct block k = {.x = slot_block_input(nn, slot, block, input), .b = slot_block(nn, slot, block)};
        for (int role = 0; role < BLOCK_TENSORS; role++) {
                k.w[role] = slot_block_tensor(nn, nn->weights, block, (enum tensor_role)role);
                k.d[role] = slot_block_tensor(nn, nn->gradients, block, (enum tensor_role)role);
        }
        return k;
}

/* The second product of the MLP and its GELU: g.fc = dL/d(fc). */
static void mlp_output_backward(const struct nn_stage *nn, const struct block *k, const struct nn_shape *s)
{
        struct device *device = nn->device;
        const int64_t N = s->N, C = s->C, F = s->F;
        const void *w = k->w[BLOCK_FCPROJ_W], *rows = shards_gather(nn, k->g.output);
        const bool input = k->parts & PART_INPUT, fused = nn->plan.work.fused;
        if (fused && input)
                kernels_matmul_gelu_backward(device, k->g.fc, rows, w, k->b.fc, N, F, C);
        if (fused)
                weight_backward(nn, k->parts, k->d[BLOCK_FCPROJ_W], rows, k->b.gelu, N, C, F);
        else
                project_backward(nn, k->parts, k->g.fc, k->d[BLOCK_FCPROJ_W], rows, k->b.gelu, w, N, C, F);
        bias_backward(nn, k, BLOCK_FCPROJ_B, k->g.output, s->R, C);
        if (!fused && input)
                kernels_gelu_backward(device, k->g.fc, k->b.fc, N, F);
}

/* From dy (N,n) of a product that LayerNorm's output x (N,C) enters: the gradients of its weights `w` and the
 * bias behind them. Returns the gradient of x, where a shard, which has some of n, has a part of a sum. */
static const void *project_input_backward(const struct nn_stage *nn, const struct block *k,
                                          const struct nn_shape *s, enum tensor_role w, const void *dy,
                                          const void *x, int64_t n)
{
        const void *rows = shards_gather(nn, x);
        project_backward(nn, k->parts, nn->work_c, k->d[w], dy, rows, k->w[w], s->N, n, s->C);
        bias_backward(nn, k, w + 1, dy, s->N, n);
        return shards_sum(nn, nn->work_c, nn->work_gather);
}

static void mlp_backward(const struct nn_stage *nn, const struct block *k, const struct nn_shape *s)
{
        mlp_output_backward(nn, k, s);
        const void *dln = project_input_backward(nn, k, s, BLOCK_FC_W, k->g.fc, k->b.ln2, s->F);
        layernorm_backward(nn, k, BLOCK_LN2_W, k->g.residual, k->g.output, dln, k->b.residual1, k->b.stats2,
                           s);
}

/* From work_c = d atty to dq = dqkv, which is written whole: dQ, dK and dV among its columns, as in
 * attend(). */
static void plain_attend_backward(const struct nn_stage *nn, const struct block_slot *b, void *dq,
                                  const struct nn_shape *s)
{
        struct device *device = nn->device;
        const int64_t T = s->T, C = s->S, H = s->H, hs = s->hs, square = T * T;
        const void *q = b->qkv, *k = nn_at(nn, b->qkv, C), *v = nn_at(nn, b->qkv, 2 * C), *dy = nn->work_c;
        void *dk = nn_at(nn, dq, C), *dv = nn_at(nn, dq, 2 * C), *ds = nn->work_attention;
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

static void attend_backward(const struct nn_stage *nn, const struct block *k, const struct nn_shape *s)
{
        const struct block_slot *b = &k->b;
        if (!(k->parts & PART_INPUT))
                return;
        if (work_recomputes_scores(&nn->plan.work))
                attention_scores(nn, b, s);
        if (nn->plan.work.fused)
                kernels_attention_backward(nn->device, k->g.qkv, nn->work_attention, nn->work_c, b->atty,
                                           b->attention, b->qkv, s->B, s->T, s->H, s->hs, s->scale);
        else
                plain_attend_backward(nn, b, k->g.qkv, s);
}

static void attention_backward(const struct nn_stage *nn, const struct block *k, const struct nn_shape *s)
{
        const void *rows = shards_gather(nn, k->g.residual);
        project_backward(nn, k->parts, nn->work_c, k->d[BLOCK_PROJ_W], rows, k->b.atty, k->w[BLOCK_PROJ_W],
                         s->N, s->C, s->S);
        bias_backward(nn, k, BLOCK_PROJ_B, k->g.residual, s->R, s->C);
        attend_backward(nn, k, s);
        const void *dln = project_input_backward(nn, k, s, BLOCK_QKV_W, k->g.qkv, k->b.ln1, 3 * s->S);
        layernorm_backward(nn, k, BLOCK_LN1_W, k->g.input, k->g.residual, dln, k->x, k->b.stats1, s);
}

/* The gradients of the final LayerNorm's output, which is returned, and of the head: from that of the logits,
 * which the forward pass left in their place; or a chunk of rows after another, loss and all, in the first
 * part alone. */
static const void *head_backward(const struct nn_stage *nn, const struct pass *pass, const struct nn_shape *s,
                                 const struct final_slot *f)
{
        const int head = partition_head(&nn->gpt, &nn->stage);
        const void *w = slot_tensor(nn, nn->weights, head);
        void *dw = slot_tensor(nn, nn->gradients, head);
        if (!nn->work_logits) {
                const void *rows = shards_gather(nn, f->ln);
                project_backward(nn, pass->parts, nn->work_c, dw, f->logits, rows, w, s->N, s->V, s->C);
                return shards_sum(nn, nn->work_c, nn->work_gather);
        }
        for (int64_t first = 0; pass->parts & PART_INPUT && first < s->N; first += s->L) {
                const int64_t rows = slot_chunk_rows(s, first), at = first * s->C;
                rows_loss(nn, pass->micro_batch, f, s, first, rows, false);
                project_backward(nn, PART_BOTH, nn_at(nn, nn->work_c, at), dw, f->logits,
                                 nn_at(nn, f->ln, at), w, rows, s->V, s->C);
        }
        return nn->work_c;
}

/* Writes g. */
static void loss_backward(const struct nn_stage *nn, const struct pass *pass, const struct nn_shape *s,
                          void *g)
{
        const struct final_slot f = slot_final(nn, pass->slot);
        const int lnf = partition_lnf_weight(&nn->stage);
        const void *dln = head_backward(nn, pass, s, &f);
        if (pass->parts & PART_INPUT)
                kernels_layernorm_backward(nn->device, g, slot_tensor(nn, nn->gradients, lnf),
                                           slot_tensor(nn, nn->gradients, lnf + 1), dln,
                                           slot_block(nn, pass->slot, nn->stage.layers - 1).residual2,
                                           f.stats, slot_tensor(nn, nn->weights, lnf), s->R, s->C, false);
}

/* A layer's output, which nobody reads again, goes to a workspace: the stored one may still be on its way to
 * the next stage. */
static void recompute_block(const struct nn_stage *nn, int block, const struct block *k,
                            const struct nn_shape *s)
{
        struct block_slot b = k->b;
        b.residual2 = shards_scattered(nn) ? nn->work_gather : nn->work_c;
        block_forward(nn, block, k->x, &b, s,
                      nn->plan.work.recompute == RECOMPUTE_LAYER && k->parts & PART_INPUT);
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

/* All in the one gradient buffer, or, in parts, each kept. */
static struct flow flow_of(const struct nn_stage *nn, int block, int gradient, int deferred)
{
        if (deferred < 0) {
                void *g = nn->gradient_buffers[gradient];
                return (struct flow){g, nn->work_4c, g, nn->work_qkv, g};
        }
        const struct deferred_block d = slot_deferred(nn, deferred, block);
        struct flow flow = {d.output, d.fc, d.residual, d.qkv, NULL};
        if (block == nn->stage.layers - 1)
                flow.output = nn->deferred_tops[deferred];
        if (block > 0)
                flow.input = slot_deferred(nn, deferred, block - 1).output;
        else if (nn->stage.first)
                flow.input = slot_deferred_embedded(nn, deferred);
        else if (gradient >= 0)
                flow.input = nn->gradient_buffers[gradient];
        return flow;
}

/* What was received stays here; the gradient that is sent on is written where what was here before lay. */
static void keep_gradient(struct nn_stage *nn, int gradient, int deferred)
{
        void *received = nn->gradient_buffers[gradient];
        nn->gradient_buffers[gradient] = nn->deferred_tops[deferred];
        nn->deferred_tops[deferred] = received;
}

static bool pass_back(struct nn_stage *nn, const struct pass *pass, const struct partition_span *span)
{
        const struct nn_shape s = slot_shape(nn);
        struct flow flow = flow_of(nn, span->top > 0 ? span->top : 0, pass->gradient, pass->deferred);
        shards_begin(nn);
        group_begin(nn->device);
        if (span->head)
                loss_backward(nn, pass, &s, flow.output);
        for (int block = span->top; block > span->top - span->blocks; block--) {
                flow = flow_of(nn, block, pass->gradient, pass->deferred);
                if (shards_skip(nn, backward_together(nn)))
                        continue;
                struct block k = block_of(nn, pass->slot, block, pass->input);
                k.parts = pass->parts;
                k.g = flow;
                if (work_recomputes_blocks(&nn->plan.work))
                        recompute_block(nn, block, &k, &s);
                mlp_backward(nn, &k, &s);
                attention_backward(nn, &k, &s);
        }
        if (span->embedding && pass->parts & PART_WEIGHT)
                embedding_backward(nn, pass->micro_batch, &s, flow.input);
        group_end(nn->device);
        return shards_end(nn);
}

bool nn_backward_part(struct nn_stage *nn, int chunk, int micro_batch, int input, int slot, int gradient,
                      int deferred, enum kernel_part parts)
{
        const struct stage part = partition_chunk(&nn->stage, chunk);
        const struct partition_span all = {part.last, part.first, (chunk + 1) * part.layers - 1, part.layers,
                                           0};
        assert((deferred < 0) == (parts == PART_BOTH));
        assert(deferred < 0 || (nn->stage.shards == 1 && nn->stage.chunks == 1));
        if (parts == PART_INPUT && !part.last)
                keep_gradient(nn, gradient, deferred);
        return pass_back(nn, &(struct pass){micro_batch, input, slot, gradient, deferred, parts}, &all);
}

void nn_backward_span(struct nn_stage *nn, int micro_batch, int input, int slot, int gradient,
                      const struct partition_span *span)
{
        assert(nn->stage.shards == 1 && nn->stage.chunks == 1);
        nn->segment = 0;
        pass_back(nn, &(struct pass){micro_batch, input, slot, gradient, -1, PART_BOTH}, span);
}

bool nn_backward(struct nn_stage *nn, int chunk, int micro_batch, int input, int slot, int gradient)
{
        return nn_backward_part(nn, chunk, micro_batch, input, slot, gradient, -1, PART_BOTH);
}
