/* The forward pass: embeddings, pre-LayerNorm blocks, final LayerNorm, output projection, loss. */
#include "runtime/nn/nn.h"
#include "runtime/nn/shards.h"
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
        const int64_t T = s->T, C = s->S, H = s->H, hs = s->hs;
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
        const int64_t T = s->T, C = s->S, H = s->H, hs = s->hs;
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

static void attention_forward(const struct nn_stage *nn, const struct operands *o, const void *x,
                              const struct block_slot *b, const struct nn_shape *s)
{
        const void *w = o->w[BLOCK_QKV_W], *bias = o->w[BLOCK_QKV_B];
        if (nn->plan.work.fused) {
                kernels_matmul_bias(nn->device, b->qkv, x, w, bias, s->N, 3 * s->S, s->C);
                kernels_attention(nn->device, b->atty, b->attention, b->qkv, s->B, s->T, s->H, s->hs,
                                  s->scale);
                return;
        }
        project(nn->device, b->qkv, x, w, s->N, 3 * s->S, s->C);
        kernels_bias(nn->device, b->qkv, bias, s->N, 3 * s->S);
        attend(nn, b, s);
}

/* fc and gelu of x (N,C). */
static void mlp_forward(const struct nn_stage *nn, const struct operands *o, const void *x,
                        const struct block_slot *b, const struct nn_shape *s)
{
        const void *w = o->w[BLOCK_FC_W], *bias = o->w[BLOCK_FC_B];
        if (nn->plan.work.fused) {
                kernels_matmul_bias_gelu(nn->device, b->gelu, b->fc, x, w, bias, s->N, s->F, s->C);
                return;
        }
        project(nn->device, b->fc, x, w, s->N, s->F, s->C);
        kernels_bias_gelu(nn->device, b->gelu, b->fc, bias, s->N, s->F);
}

/* y (N,C) = x (N,k) w^T + b + r; of shards, a sum of what each makes of its k, before the bias. */
static void output_forward(const struct nn_stage *nn, void *y, const void *x, const void *w, const void *bias,
                           const void *r, const struct nn_shape *s, int64_t k)
{
        if (nn->plan.work.fused && nn->stage.shards == 1) {
                kernels_matmul_bias_residual(nn->device, y, x, w, bias, r, s->N, s->C, k);
                return;
        }
        void *product = shards_scattered(nn) ? nn->work_c : y;
        project(nn->device, product, x, w, s->N, s->C, k);
        shards_sum(nn, product, y);
        kernels_bias_residual(nn->device, y, bias, r, s->R, s->C);
}

/* residual1 = atty w^T + b + x, and its LayerNorm. */
static void attention_output_forward(const struct nn_stage *nn, const struct operands *o,
                                     const struct block_slot *b, const struct nn_shape *s)
{
        const void *const *w = o->w;
        if (nn->plan.work.fused && nn->stage.shards == 1) {
                kernels_matmul_bias_residual_layernorm(nn->device, b->residual1, b->ln2, b->stats2, b->atty,
                                                       w[BLOCK_PROJ_W], w[BLOCK_PROJ_B], o->x, w[BLOCK_LN2_W],
                                                       w[BLOCK_LN2_B], s->N, s->C, s->S);
                return;
        }
        output_forward(nn, b->residual1, b->atty, w[BLOCK_PROJ_W], w[BLOCK_PROJ_B], o->x, s, s->S);
        kernels_layernorm(nn->device, b->ln2, b->stats2, b->residual1, w[BLOCK_LN2_W], w[BLOCK_LN2_B], s->R,
                          s->C);
}

void block_forward(const struct nn_stage *nn, int block, const void *x, const struct block_slot *b,
                   const struct nn_shape *s, bool output)
{
        const struct operands o = operands_of(nn, block, x);
        const void *const *w = o.w;
        kernels_layernorm(nn->device, b->ln1, b->stats1, x, w[BLOCK_LN1_W], w[BLOCK_LN1_B], s->R, s->C);
        attention_forward(nn, &o, shards_gather(nn, b->ln1), b, s);
        attention_output_forward(nn, &o, b, s);
        mlp_forward(nn, &o, shards_gather(nn, b->ln2), b, s);
        if (output)
                output_forward(nn, b->residual2, b->gelu, w[BLOCK_FCPROJ_W], w[BLOCK_FCPROJ_B], b->residual1,
                               s, s->F);
}

int block_together(const struct nn_stage *nn, bool output)
{
        if (nn->stage.shards == 1)
                return 0;
        return (shards_scattered(nn) ? 3 : 1) + output;
}

static void embed(const struct nn_stage *nn, int micro_batch, int slot, const struct nn_shape *s)
{
        void *x = slot_embedded(nn, slot), *sum = shards_scattered(nn) ? nn->work_c : x;
        const int32_t *tokens = nn->tokens + micro_batch * s->N;
        const void *wte = slot_tensor(nn, nn->weights, partition_wte(&nn->stage));
        const void *wpe = slot_tensor(nn, nn->weights, partition_wpe(&nn->stage));
        if (nn->stage.shards == 1)
                kernels_embedding(nn->device, x, tokens, wte, wpe, s->B, s->T, s->C);
        else /* positions count once in the sum */
                kernels_embedding_part(nn->device, sum, tokens, wte, nn->stage.shard == 0 ? wpe : NULL, s->B,
                                       s->T, s->C, partition_first_token(&nn->gpt, &nn->stage), s->V);
        shards_sum(nn, sum, x);
}

/* Of a shard's part of the vocabulary, in two halves. */
static void part_loss(const struct nn_stage *nn, void *logits, const int32_t *targets,
                      const struct nn_shape *s, bool loss_only)
{
        const int64_t first = partition_first_token(&nn->gpt, &nn->stage), left = nn->gpt.vocab_size - first;
        const struct vocabulary_part part = {first, left < s->V ? left : s->V};
        const int shards = nn->stage.shards;
        double *loss = &nn->scalars[NN_LOSS];
        kernels_cross_entropy_numbers(nn->device, nn->work_losses + 3 * s->N * nn->stage.shard, logits,
                                      targets, s->N, s->V, part);
        shards_gather_losses(nn);
        if (loss_only)
                kernels_cross_entropy_of_numbers(nn->device, loss, nn->work_losses, shards, s->N);
        else
                kernels_cross_entropy_part(nn->device, loss, logits, targets, nn->work_losses, shards, s->N,
                                           s->V, part, nn->loss_scale);
}

void rows_loss(const struct nn_stage *nn, int micro_batch, const struct final_slot *f,
               const struct nn_shape *s, int64_t first, int64_t rows, bool loss_only)
{
        const int head = partition_head(&nn->gpt, &nn->stage);
        const int32_t *targets = nn->targets + micro_batch * s->N + first;
        project(nn->device, f->logits, nn_at(nn, f->ln, first * s->C), slot_tensor(nn, nn->weights, head),
                rows, s->V, s->C);
        kernels_cross_entropy(nn->device, &nn->scalars[NN_LOSS], f->logits, targets, rows, s->V,
                              nn->loss_scale, loss_only);
}

/* All rows' loss; in chunks a training pass leaves it to backward. */
static void loss_forward(const struct nn_stage *nn, int micro_batch, int slot, const struct nn_shape *s,
                         bool loss_only)
{
        const struct final_slot f = slot_final(nn, slot);
        const int lnf = partition_lnf_weight(&nn->stage), head = partition_head(&nn->gpt, &nn->stage);
        kernels_layernorm(nn->device, f.ln, f.stats, slot_block(nn, slot, nn->stage.layers - 1).residual2,
                          slot_tensor(nn, nn->weights, lnf), slot_tensor(nn, nn->weights, lnf + 1), s->R,
                          s->C);
        if (nn->stage.shards > 1) {
                project(nn->device, f.logits, shards_gather(nn, f.ln), slot_tensor(nn, nn->weights, head),
                        s->N, s->V, s->C);
                part_loss(nn, f.logits, nn->targets + micro_batch * s->N, s, loss_only);
                return;
        }
        for (int64_t first = 0; (loss_only || !nn->work_logits) && first < s->N; first += s->L)
                rows_loss(nn, micro_batch, &f, s, first, slot_chunk_rows(s, first), loss_only);
}

bool nn_forward(struct nn_stage *nn, int chunk, int micro_batch, int input, int slot, bool loss_only)
{
        const struct nn_shape s = slot_shape(nn);
        const struct stage part = partition_chunk(&nn->stage, chunk);
        const int begin = chunk * part.layers;
        shards_begin(nn);
        group_begin(nn->device);
        if (part.first)
                embed(nn, micro_batch, slot, &s);
        for (int block = begin; block < begin + part.layers; block++) {
                const struct block_slot b = slot_block(nn, slot, block);
                if (!shards_skip(nn, block_together(nn, true)))
                        block_forward(nn, block, slot_block_input(nn, slot, block, input), &b, &s, true);
        }
        if (part.last)
                loss_forward(nn, micro_batch, slot, &s, loss_only);
        group_end(nn->device);
        return shards_end(nn);
}
