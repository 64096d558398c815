#include "models/workload.h"

#include <assert.h>
#include <math.h>

/* The list under construction; `out` may be NULL. */
struct list {
        struct kernel *out;
        int count;
        enum half half;
        int parts; /* of a backward: enum kernel_part; 0: a forward */
};

/* A parted backward lists each kernel once: what both parts need goes with the input's, but for forwards that
 * run again. */
static bool of_other_part(const struct list *list, const struct kernel *kernel)
{
        return (list->parts == PART_INPUT && kernel->part == PART_WEIGHT) ||
               (list->parts == PART_WEIGHT && kernel->part & PART_INPUT);
}

static void add(struct list *list, struct kernel kernel)
{
        if (of_other_part(list, &kernel))
                return;
        kernel.half = (unsigned char)list->half;
        if (list->out)
                list->out[list->count] = kernel;
        list->count++;
}

enum { PLAIN, TRANSPOSE_A, TRANSPOSE_B };

static void add_matmul(struct list *list, int transpose, int part, int64_t batch, int64_t m, int64_t n,
                       int64_t k)
{
        add(list, (struct kernel){.kind = KERNEL_MATMUL,
                                  .transpose_a = transpose == TRANSPOSE_A,
                                  .transpose_b = transpose == TRANSPOSE_B,
                                  .accumulate = part == PART_WEIGHT,
                                  .part = (unsigned char)part,
                                  .batch = batch,
                                  .m = m,
                                  .n = n,
                                  .k = k});
}

/* A forward product with what follows it fused; weights are stored (n,k). */
static void add_fused(struct list *list, enum kernel_kind kind, int64_t m, int64_t n, int64_t k)
{
        add(list, (struct kernel){.kind = kind, .transpose_b = 1, .batch = 1, .m = m, .n = n, .k = k});
}

/* Anything but a matmul in a forward pass. */
static void add_forward(struct list *list, enum kernel_kind kind, int64_t batch, int64_t m, int64_t n)
{
        add(list, (struct kernel){.kind = kind, .batch = batch, .m = m, .n = n});
}

/* Anything but a matmul in a backward pass. Gradients of parameters are always added to. */
static void add_backward(struct list *list, enum kernel_kind kind, int part, bool accumulate, int64_t batch,
                         int64_t m, int64_t n)
{
        add(list, (struct kernel){.kind = kind,
                                  .accumulate = accumulate,
                                  .part = (unsigned char)part,
                                  .batch = batch,
                                  .m = m,
                                  .n = n});
}

/* Of a LayerNorm behind a residual connection, in N rows of C: dx is added to what comes past it, or, where
 * that is kept for the weights' part, written and what comes past it added. */
static void add_layernorm_backward(struct list *list, int64_t N, int64_t C)
{
        add_backward(list, KERNEL_LAYERNORM_BACKWARD, PART_BOTH, list->parts == PART_BOTH, 1, N, C);
        if (list->parts == PART_INPUT)
                add_forward(list, KERNEL_BIAS_RESIDUAL, 1, N, C);
}

int64_t workload_loss_rows(const struct gpt *gpt, const struct stage *stage, const struct work *work)
{
        if (!work->fused || stage->shards > 1)
                return 0;
        const int64_t N = (int64_t)work->micro_batch_size * work->seq_len;
        const int64_t most = work->logits_bytes ? work->logits_bytes : WORKLOAD_LOGITS_BYTES;
        const int64_t row = (int64_t)partition_vocabulary(gpt, stage) * work->element_bytes;
        const int64_t groups = (N + WORKLOAD_LOSS_ROWS - 1) / WORKLOAD_LOSS_ROWS;
        const int64_t fitting = most / (row * WORKLOAD_LOSS_ROWS), each = fitting ? fitting : 1;
        const int64_t chunks = (groups + each - 1) / each, balanced = (groups + chunks - 1) / chunks;
        return balanced * WORKLOAD_LOSS_ROWS < N ? balanced * WORKLOAD_LOSS_ROWS : N;
}

/* The sizes that a block's kernels depend on. Of a shard: R, the rows that it keeps of what is not split; S
 * and F, what it has of the C and 4 C columns inside attention and MLP; V, of the vocabulary. */
struct shape {
        int64_t N, R, T, C, S, F, V;
        int64_t batch;     /* attention: B x heads */
        int64_t hs;        /* width of a head */
        int64_t loss_rows; /* workload_loss_rows */
        int shards;
        bool scattered; /* R rows of what is not split, else all N */
        bool fused;     /* with products, what follows them */
        bool sums;      /* biases and residuals come after a sum over shards, so they are by themselves */
};

static struct shape shape_of(const struct gpt *gpt, const struct stage *stage, const struct work *work)
{
        const int64_t N = (int64_t)work->micro_batch_size * work->seq_len;
        const int shards = stage->shards;
        return (struct shape){
                .N = N,
                .R = work->sequence_parallel ? N / shards : N,
                .T = work->seq_len,
                .C = gpt->n_embd,
                .S = gpt->n_embd / shards,
                .F = 4 * gpt->n_embd / shards,
                .V = partition_vocabulary(gpt, stage),
                .batch = (int64_t)work->micro_batch_size * gpt->n_head / shards,
                .hs = gpt->n_embd / gpt->n_head,
                .loss_rows = workload_loss_rows(gpt, stage, work),
                .shards = shards,
                .scattered = work->sequence_parallel && shards > 1,
                .fused = work->fused,
                .sums = shards > 1,
        };
}

/* What shards do together to a matrix of all N rows. */
static void add_collective(struct list *list, const struct shape *s, enum kernel_kind kind, int part)
{
        if (s->shards > 1)
                add(list,
                    (struct kernel){
                            .kind = kind, .part = (unsigned char)part, .batch = 1, .m = s->N, .n = s->C});
}

/* Each shard has a part of a sum: the sum, or a shard's rows of it. */
static void add_sum(struct list *list, const struct shape *s, int part)
{
        add_collective(list, s, s->scattered ? KERNEL_TENSOR_REDUCE_SCATTER : KERNEL_TENSOR_ALLREDUCE, part);
}

/* All rows, of which a shard has its own. */
static void add_gather(struct list *list, const struct shape *s, int part)
{
        if (s->scattered)
                add_collective(list, s, KERNEL_TENSOR_ALL_GATHER, part);
}

/* y (N,C) = x (N,k) w^T, a sum over shards of what each has of k; then bias and residual. */
static void output_forward(struct list *list, const struct shape *s, int64_t k)
{
        if (s->fused && !s->sums) {
                add_fused(list, KERNEL_MATMUL_BIAS_RESIDUAL, s->N, s->C, k);
                return;
        }
        add_matmul(list, TRANSPOSE_B, 0, 1, s->N, s->C, k);
        add_sum(list, s, 0);
        add_forward(list, KERNEL_BIAS_RESIDUAL, 1, s->R, s->C);
}

/* Softmax of Q K^T, which selective recomputation runs again. */
static void scores_forward(struct list *list, const struct shape *s)
{
        add_matmul(list, TRANSPOSE_B, 0, s->batch, s->T, s->T, s->hs);
        add_forward(list, KERNEL_SOFTMAX, s->batch, s->T, s->T);
}

static void attention_forward(struct list *list, const struct shape *s)
{
        if (s->fused) {
                add_fused(list, KERNEL_MATMUL_BIAS, s->N, 3 * s->S, s->C); /* q, k, v */
                add(list,
                    (struct kernel){
                            .kind = KERNEL_ATTENTION, .batch = s->batch, .m = s->T, .n = s->T, .k = s->hs});
                return;
        }
        add_matmul(list, TRANSPOSE_B, 0, 1, s->N, 3 * s->S, s->C); /* q, k, v */
        add_forward(list, KERNEL_BIAS, 1, s->N, 3 * s->S);
        scores_forward(list, s);
        add_matmul(list, PLAIN, 0, s->batch, s->T, s->hs, s->T); /* P V */
}

/* What leaves attention, with the residual, and LayerNorm of that. */
static void attention_output_forward(struct list *list, const struct shape *s)
{
        if (s->fused && !s->sums) {
                add_fused(list, KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM, s->N, s->C, s->S);
                return;
        }
        output_forward(list, s, s->S);
        add_forward(list, KERNEL_LAYERNORM, 1, s->R, s->C);
}

/* `output`: to the end. Else for a backward pass, which has no use for the block's output. */
static void block_forward(struct list *list, const struct shape *s, bool output)
{
        add_forward(list, KERNEL_LAYERNORM, 1, s->R, s->C);
        add_gather(list, s, 0);
        attention_forward(list, s);
        attention_output_forward(list, s);
        add_gather(list, s, 0);
        if (s->fused) {
                add_fused(list, KERNEL_MATMUL_BIAS_GELU, s->N, s->F, s->C);
        } else {
                add_matmul(list, TRANSPOSE_B, 0, 1, s->N, s->F, s->C);
                add_forward(list, KERNEL_BIAS_GELU, 1, s->N, s->F);
        }
        if (output)
                output_forward(list, s, s->F);
}

/* Logits of `rows` rows, and their loss. */
static void rows_loss(struct list *list, const struct shape *s, int64_t rows, bool loss_only)
{
        add_matmul(list, TRANSPOSE_B, 0, 1, rows, s->V, s->C);
        add_forward(list, loss_only ? KERNEL_CROSS_ENTROPY_LOSS : KERNEL_CROSS_ENTROPY, 1, rows, s->V);
}

/* The loss of a chunk of rows after another, and unless loss_only the gradients of the final LayerNorm's
 * output and of the head's weights, both in one part. */
static void chunks_loss(struct list *list, const struct shape *s, bool loss_only)
{
        const int parts = list->parts;
        list->parts = PART_BOTH;
        for (int64_t first = 0; first < s->N; first += s->loss_rows) {
                const int64_t left = s->N - first, rows = left < s->loss_rows ? left : s->loss_rows;
                rows_loss(list, s, rows, loss_only);
                if (loss_only)
                        continue;
                add_matmul(list, PLAIN, PART_INPUT, 1, rows, s->C, s->V);
                add_matmul(list, TRANSPOSE_A, PART_WEIGHT, 1, s->V, s->C, rows);
        }
        list->parts = parts;
}

/* Over a shard's part of the vocabulary in two halves: what it has of each row's softmax and target, and,
 * when all shards' numbers are there, the loss. */
static void part_loss(struct list *list, const struct shape *s, bool loss_only)
{
        const enum half half = list->half;
        add_matmul(list, TRANSPOSE_B, 0, 1, s->N, s->V, s->C);
        add_forward(list, KERNEL_CROSS_ENTROPY_LOSS, 1, s->N, s->V);
        list->half = HALF_NONE; /* the numbers are never half */
        add(list,
            (struct kernel){.kind = KERNEL_TENSOR_ALL_GATHER, .batch = 1, .m = s->N * s->shards, .n = 3});
        if (loss_only)
                add_forward(list, KERNEL_CROSS_ENTROPY_LOSS, 1, s->N, 3 * s->shards);
        list->half = half;
        if (!loss_only)
                add_forward(list, KERNEL_CROSS_ENTROPY, 1, s->N, s->V);
}

/* In chunks a training pass leaves it to backward. */
static void loss_forward(struct list *list, const struct shape *s, bool loss_only)
{
        add_forward(list, KERNEL_LAYERNORM, 1, s->R, s->C);
        add_gather(list, s, 0);
        if (s->shards > 1)
                part_loss(list, s, loss_only);
        else if (!s->loss_rows)
                rows_loss(list, s, s->N, loss_only);
        else if (loss_only)
                chunks_loss(list, s, true);
}

int workload_forward(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                     bool loss_only, struct kernel *out)
{
        struct list list = {.out = out, .half = work_format(work)};
        struct shape s = shape_of(gpt, stage, work);
        if (stage->first) {
                add_forward(&list, KERNEL_EMBEDDING, 1, s.N, s.C);
                add_sum(&list, &s, 0);
        }
        for (int block = 0; block < stage->layers; block++)
                block_forward(&list, &s, true);
        if (stage->last)
                loss_forward(&list, &s, loss_only);
        return list.count;
}

/* Of y (N,n) = x (N,C) w^T with LayerNorm's output for x: the gradients of w, its bias and x, and
 * LayerNorm's. A shard has some of n, so its dx is a part of a sum. */
static void input_backward(struct list *list, const struct shape *s, int64_t n, bool bias, bool accumulate)
{
        add_gather(list, s, PART_WEIGHT); /* x */
        add_matmul(list, PLAIN, PART_INPUT, 1, s->N, s->C, n);
        add_matmul(list, TRANSPOSE_A, PART_WEIGHT, 1, n, s->C, s->N);
        if (bias)
                add_backward(list, KERNEL_BIAS_BACKWARD, PART_WEIGHT, true, 1, s->N, n);
        add_sum(list, s, PART_INPUT);
        if (accumulate)
                add_layernorm_backward(list, s->R, s->C);
        else
                add_backward(list, KERNEL_LAYERNORM_BACKWARD, PART_BOTH, false, 1, s->R, s->C);
}

static void loss_backward(struct list *list, const struct shape *s)
{
        if (!s->loss_rows) {
                input_backward(list, s, s->V, false, false);
                return;
        }
        if (list->parts & PART_INPUT)
                chunks_loss(list, s, false);
        add_backward(list, KERNEL_LAYERNORM_BACKWARD, PART_BOTH, false, 1, s->N, s->C);
}

static void mlp_backward(struct list *list, const struct shape *s)
{
        add_gather(list, s, PART_BOTH); /* g */
        if (s->fused)
                add(list, (struct kernel){.kind = KERNEL_MATMUL_GELU_BACKWARD,
                                          .part = PART_INPUT,
                                          .batch = 1,
                                          .m = s->N,
                                          .n = s->F,
                                          .k = s->C});
        else
                add_matmul(list, PLAIN, PART_INPUT, 1, s->N, s->F, s->C);
        add_matmul(list, TRANSPOSE_A, PART_WEIGHT, 1, s->C, s->F, s->N);
        add_backward(list, KERNEL_BIAS_BACKWARD, PART_WEIGHT, true, 1, s->R, s->C);
        if (!s->fused)
                add_backward(list, KERNEL_GELU_BACKWARD, PART_INPUT, false, 1, s->N, s->F);
        input_backward(list, s, s->F, true, true);
}

static void scores_backward(struct list *list, const struct shape *s)
{
        if (s->fused) {
                add(list, (struct kernel){.kind = KERNEL_ATTENTION_BACKWARD,
                                          .part = PART_INPUT,
                                          .batch = s->batch,
                                          .m = s->T,
                                          .n = s->T,
                                          .k = s->hs});
                return;
        }
        add_matmul(list, TRANSPOSE_B, PART_INPUT, s->batch, s->T, s->T, s->hs); /* dP = dy V^T */
        add_matmul(list, TRANSPOSE_A, PART_INPUT, s->batch, s->T, s->hs, s->T); /* dV = P^T dy */
        add_backward(list, KERNEL_SOFTMAX_BACKWARD, PART_INPUT, false, s->batch, s->T, s->T);
        add_matmul(list, PLAIN, PART_INPUT, s->batch, s->T, s->hs, s->T);       /* dQ = dS K */
        add_matmul(list, TRANSPOSE_A, PART_INPUT, s->batch, s->T, s->hs, s->T); /* dK = dS^T Q */
}

static void attention_backward(struct list *list, const struct shape *s, bool scores_again)
{
        add_gather(list, s, PART_BOTH); /* g */
        add_matmul(list, PLAIN, PART_INPUT, 1, s->N, s->S, s->C);
        add_matmul(list, TRANSPOSE_A, PART_WEIGHT, 1, s->C, s->S, s->N);
        add_backward(list, KERNEL_BIAS_BACKWARD, PART_WEIGHT, true, 1, s->R, s->C);
        if (scores_again && list->parts != PART_WEIGHT)
                scores_forward(list, s);
        scores_backward(list, s);
        input_backward(list, s, 3 * s->S, true, true);
}

int workload_backward(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                      struct kernel *out)
{
        return workload_backward_part(gpt, stage, work, PART_BOTH, out);
}

int workload_backward_part(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                           enum kernel_part parts, struct kernel *out)
{
        struct list list = {.out = out, .half = work_format(work), .parts = parts};
        struct shape s = shape_of(gpt, stage, work);
        if (stage->last)
                loss_backward(&list, &s);
        for (int block = 0; block < stage->layers; block++) {
                if (work_recomputes_blocks(work))
                        block_forward(&list, &s, work->recompute == RECOMPUTE_LAYER && parts & PART_INPUT);
                mlp_backward(&list, &s);
                attention_backward(&list, &s, work_recomputes_scores(work));
        }
        if (stage->first) {
                add_gather(&list, &s, PART_WEIGHT);
                add_backward(&list, KERNEL_EMBEDDING_BACKWARD, PART_WEIGHT, true, 1, s.N, s.C);
        }
        return list.count;
}

int workload_backward_most(const struct gpt *gpt, const struct stage *stage, const struct work *work)
{
        int most = 0;
        for (int parts = PART_INPUT; parts <= PART_BOTH; parts++) {
                int count = workload_backward_part(gpt, stage, work, (enum kernel_part)parts, NULL);
                most = count > most ? count : most;
        }
        return most;
}

/* What it counts is a prefix of the stage's parameters: a last stage's own copy of a tied head is its last
 * tensor, and before it lies what all shards have, which the first of them counts. */
struct kernel workload_norm(const struct gpt *gpt, const struct stage *stage, enum half half)
{
        int64_t counted = partition_parameters(gpt, stage);
        if (gpt->tied && stage->last && !stage->first)
                counted -= (int64_t)partition_vocabulary(gpt, stage) * gpt->n_embd;
        if (stage->shard > 0)
                counted -= partition_replicated(gpt, stage, NULL);
        return (struct kernel){
                .kind = KERNEL_SQUARED_NORM, .half = (unsigned char)half, .batch = 1, .m = counted};
}

int workload_update(int64_t parameters, enum half half, struct kernel out[WORKLOAD_UPDATE_KERNELS])
{
        struct list list = {.out = out, .half = half};
        if (half)
                add(&list, (struct kernel){.kind = KERNEL_UNSCALE, .batch = 1, .m = parameters});
        add(&list, (struct kernel){.kind = KERNEL_ADAMW, .batch = 1, .m = parameters});
        return list.count;
}

struct kernel workload_overflow(int64_t parameters, enum half half)
{
        return (struct kernel){
                .kind = KERNEL_OVERFLOW, .half = (unsigned char)half, .batch = 1, .m = parameters};
}

struct kernel workload_clear(int64_t parameters, enum half half)
{
        return (struct kernel){
                .kind = KERNEL_CLEAR, .half = (unsigned char)half, .batch = 1, .m = parameters};
}

/* Of a block on its own, forward and backward. */
static double block_flops(const struct gpt *gpt, const struct work *work)
{
        enum { MOST_KERNELS = 256 };
        struct kernel kernels[MOST_KERNELS];
        const struct stage block = {.index = 1, .stages = 3, .chunks = 1, .layers = 1, .shards = 1};
        double flops = 0;
        int count = workload_forward(gpt, &block, work, false, NULL);
        assert(count + workload_backward(gpt, &block, work, NULL) <= MOST_KERNELS);
        count = workload_forward(gpt, &block, work, false, kernels);
        count += workload_backward(gpt, &block, work, kernels + count);
        for (int i = 0; i < count; i++)
                flops += kernel_flops(&kernels[i]);
        return flops;
}

int workload_balanced(const struct gpt *gpt, const struct work *work, int stages)
{
        struct work whole = *work;
        whole.tp = 1;
        whole.sequence_parallel = false;
        const double tokens = (double)work->micro_batch_size * work->seq_len;
        const double head = 6 * tokens * gpt->n_embd * gpt->vocab_size, block = block_flops(gpt, &whole);
        const int most = gpt->n_layer - (stages - 1);
        int best = most;
        double least = INFINITY;
        assert(2 <= stages && stages <= gpt->n_layer);
        for (int last = most; last >= 1; last--) {
                const int other = (gpt->n_layer - last + stages - 2) / (stages - 1); /* the longest of them */
                const double longest = fmax(other * block, last * block + head);
                if (longest < least) {
                        least = longest;
                        best = last;
                }
        }
        return best;
}
