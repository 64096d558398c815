/* The forward pass: embeddings, pre-LayerNorm blocks, final LayerNorm, output projection, loss. */
#include "runtime/nn/nn.h"
#include "runtime/nn/slot.h"

/* y (m,n) = x (m,k) w^T, with w (n,k) as all weights are stored: (out, in). */
static void project(struct device *device, void *y, const void *x, const void *w, int64_t m, int64_t n,
                    int64_t k)
{
        kernels_matmul(device, &(struct matmul){.m = m, .n = n, .k = k, .transpose_b = true}, x, w, y);
}

/* Q, K and V are columns of qkv (B,T,3C), a head's are hs wide; strides pick them out. */
void attention_scores(const struct nn_stage *nn, const struct block_slot *b, const struct nn_shape *s)
{
        const int64_t T = s->T, C = s->C, H = s->H, hs = s->hs;
        const void *q = b->qkv, *k = nn_at(nn, b->qkv, C);
        kernels_matmul(nn->device,
                       &(struct matmul){.m = T,
                                        .n = T,
                                        .k = hs,
                                        .transpose_b = true,
                                        .lda = 3 * C,
                                        .ldb = 3 * C,
                                        .outer = s->B,
                                        .inner = H,
                                        .stride_a = {3 * C * T, hs},
                                        .stride_b = {3 * C * T, hs},
                                        .stride_c = {H * T * T, T * T}},
                       q, k, b->attention);
        kernels_softmax(nn->device, b->attention, s->B * H, T, s->scale);
}

/* atty = scores V for every sequence and head, whose results are put among the columns of atty (B,T,C). */
static void attend(const struct nn_stage *nn, const struct block_slot *b, const struct nn_shape *s)
{
        const int64_t T = s->T, C = s->C, H = s->H, hs = s->hs;
        const void *v = nn_at(nn, b->qkv, 2 * C);
        attention_scores(nn, b, s);
        kernels_matmul(nn->device,
                       &(struct matmul){.m = T,
                                        .n = hs,
                                        .k = T,
                                        .ldb = 3 * C,
                                        .ldc = C,
                                        .outer = s->B,
                                        .inner = H,
                                        .stride_a = {H * T * T, T * T},
                                        .stride_b = {3 * C * T, hs},
                                        .stride_c = {C * T, hs}},
                       b->attention, v, b->atty);
}

/* A block's operands. */
struct operands {
        const void *w[BLOCK_TENSORS];
        const void *x; /* its input */
};

static struct operands operands_of(const struct nn_stage *nn, int block, const void *x)
{
        struct operands o = {.x = x};
        for (int role = 0; role < BLOCK_TENSORS; role++)
                o.w[role] = slot_block_tensor(nn, nn->weights, block, (enum tensor_role)role);
        return o;
}

static void plain_block(const struct nn_stage *nn, const struct operands *o, const struct block_slot *b,
                        const struct nn_shape *s, bool output)
{
        struct device *device = nn->device;
        const void *const *w = o->w;
        const int64_t N = s->N, C = s->C;
        kernels_layernorm(device, b->ln1, b->stats1, o->x, w[BLOCK_LN1_W], w[BLOCK_LN1_B], N, C);
        project(device, b->qkv, b->ln1, w[BLOCK_QKV_W], N, 3 * C, C);
        kernels_bias(device, b->qkv, w[BLOCK_QKV_B], N, 3 * C);
        attend(nn, b, s);
        project(device, b->residual1, b->atty, w[BLOCK_PROJ_W], N, C, C);
        kernels_bias_residual(device, b->residual1, w[BLOCK_PROJ_B], o->x, N, C);

        kernels_layernorm(device, b->ln2, b->stats2, b->residual1, w[BLOCK_LN2_W], w[BLOCK_LN2_B], N, C);
        project(device, b->fc, b->ln2, w[BLOCK_FC_W], N, 4 * C, C);
        kernels_bias_gelu(device, b->gelu, b->fc, w[BLOCK_FC_B], N, 4 * C);
        if (!output)
                return;
        project(device, b->residual2, b->gelu, w[BLOCK_FCPROJ_W], N, C, 4 * C);
        kernels_bias_residual(device, b->residual2, w[BLOCK_FCPROJ_B], b->residual1, N, C);
}

static void fused_block(const struct nn_stage *nn, const struct operands *o, const struct block_slot *b,
                        const struct nn_shape *s, bool output)
{
        struct device *device = nn->device;
        const void *const *w = o->w;
        const int64_t N = s->N, C = s->C;
        kernels_layernorm(device, b->ln1, b->stats1, o->x, w[BLOCK_LN1_W], w[BLOCK_LN1_B], N, C);
        kernels_matmul_bias(device, b->qkv, b->ln1, w[BLOCK_QKV_W], w[BLOCK_QKV_B], N, 3 * C, C);
        kernels_attention(device, b->atty, b->attention, b->qkv, s->B, s->T, s->H, s->hs, s->scale);
        kernels_matmul_bias_residual(device, b->residual1, b->atty, w[BLOCK_PROJ_W], w[BLOCK_PROJ_B], o->x, N,
                                     C, C);

        kernels_layernorm(device, b->ln2, b->stats2, b->residual1, w[BLOCK_LN2_W], w[BLOCK_LN2_B], N, C);
        kernels_matmul_bias_gelu(device, b->gelu, b->fc, b->ln2, w[BLOCK_FC_W], w[BLOCK_FC_B], N, 4 * C, C);
        if (!output)
                return;
        kernels_matmul_bias_residual(device, b->residual2, b->gelu, w[BLOCK_FCPROJ_W], w[BLOCK_FCPROJ_B],
                                     b->residual1, N, C, 4 * C);
}

void block_forward(const struct nn_stage *nn, int block, const void *x, const struct block_slot *b,
                   const struct nn_shape *s, bool output)
{
        const struct operands o = operands_of(nn, block, x);
        (nn->plan.work.fused ? fused_block : plain_block)(nn, &o, b, s, output);
}

static void loss_forward(const struct nn_stage *nn, int micro_batch, int slot, const struct nn_shape *s,
                         double loss_scale, bool loss_only)
{
        const struct final_slot f = slot_final(nn, slot);
        const int lnf = partition_lnf_weight(&nn->stage), head = partition_head(&nn->gpt, &nn->stage);
        kernels_layernorm(nn->device, f.ln, f.stats, slot_block(nn, slot, nn->stage.layers - 1).residual2,
                          slot_tensor(nn, nn->weights, lnf), slot_tensor(nn, nn->weights, lnf + 1), s->N,
                          s->C);
        project(nn->device, f.logits, f.ln, slot_tensor(nn, nn->weights, head), s->N, s->V, s->C);
        kernels_cross_entropy(nn->device, &nn->scalars[NN_LOSS], f.logits, nn->targets + micro_batch * s->N,
                              s->N, s->V, loss_scale, loss_only);
}

void nn_forward(struct nn_stage *nn, int micro_batch, int input, int slot, double loss_scale, bool loss_only)
{
        const struct nn_shape s = slot_shape(nn);
        group_begin(nn->device);
        if (nn->stage.first)
                kernels_embedding(nn->device, slot_embedded(nn, slot), nn->tokens + micro_batch * s.N,
                                  slot_tensor(nn, nn->weights, partition_wte(&nn->stage)),
                                  slot_tensor(nn, nn->weights, partition_wpe(&nn->stage)), s.B, s.T, s.C);
        for (int block = 0; block < nn->stage.layers; block++) {
                const struct block_slot b = slot_block(nn, slot, block);
                block_forward(nn, block, slot_block_input(nn, slot, block, input), &b, &s, true);
        }
        if (nn->stage.last)
                loss_forward(nn, micro_batch, slot, &s, loss_scale, loss_only);
        group_end(nn->device);
}
