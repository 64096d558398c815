/* What a stage computes: THE one description of work. runtime/nn launches exactly these kernels in exactly
 * this order (a test holds it), calibrate times them, the simulation prices them. */
#ifndef RANVIER_MODELS_WORKLOAD_H
#define RANVIER_MODELS_WORKLOAD_H

#include "models/kernels/kernel.h"
#include "models/partition.h"

/* What the work on one micro-batch depends on, beside the model and the stage. */
struct work {
        int micro_batch_size, seq_len; /* B, T */
        int element_bytes;             /* of stored tensors: 2 (mixed precision), 4; 8 in the double build */
        enum recompute recompute;
        bool bf16;  /* of two 16-bit formats, this one; needs element_bytes 2 */
        bool fused; /* the fused kernels: no (T,T) matrix is stored, biases, GELU and residuals go with
                       products */
        int tp;     /* shards that each layer's matrices are split into; at least 1 */
        bool sequence_parallel; /* what is not split by tp is split along the sequence */
        int64_t logits_bytes;   /* that logits made at once take at most; 0: WORKLOAD_LOGITS_BYTES. See
                                   workload_loss_rows */
};
/* What is recomputed in effect. Fused attention stores no scores, and its backward computes them anyway:
 * there selective is none. */
static inline enum recompute work_recomputation(const struct work *work)
{
        return work->recompute == RECOMPUTE_SELECTIVE && work->fused ? RECOMPUTE_NONE : work->recompute;
}
/* Softmax of the scores is not stored, and backward first computes it again. */
static inline bool work_recomputes_scores(const struct work *work)
{
        return work_recomputation(work) == RECOMPUTE_SELECTIVE;
}
/* Only the input of a block is stored, and backward first runs its forward again. */
static inline bool work_recomputes_blocks(const struct work *work)
{
        return work->recompute == RECOMPUTE_FULL || work->recompute == RECOMPUTE_LAYER;
}
static inline bool work_half(const struct work *work)
{
        return work->element_bytes == 2;
}
static inline enum half work_format(const struct work *work)
{
        return work->element_bytes != 2 ? HALF_NONE : work->bf16 ? HALF_BF16 : HALF_FP16;
}

/* Rows whose logits are made at once, at least WORKLOAD_LOSS_ROWS of them. With fused kernels the last
 * stage's forward ends with the final LayerNorm: logits, loss and their gradients come at the beginning of
 * backward, from a chunk of so many rows (the last one may have fewer) after another, so nothing keeps the
 * logits of all rows. 0: all at once, at the end of forward, as without fused kernels and where several
 * shards have parts of the vocabulary. */
enum { WORKLOAD_LOGITS_BYTES = 128 << 20, WORKLOAD_LOSS_ROWS = 16 /* a chunk has a multiple of these */ };
int64_t workload_loss_rows(const struct gpt *gpt, const struct stage *stage, const struct work *work);

/* The kernels of one micro-batch on a stage. Each returns how many, and writes them to `out` unless it is
 * NULL. `loss_only`: a validation pass, which ends in KERNEL_CROSS_ENTROPY_LOSS. A block that is recomputed
 * stops before its last product, whose result nobody reads again; layer runs it all the same.
 *
 * Of a shard (Shoeybi et al. 2019): products are narrower, and each shard's result of the product that leaves
 * attention or the MLP is a part of a sum, as is, backward, the gradient of what enters them: an all-reduce
 * each. Biases behind a sum are added after it, also where products fuse them else. With
 * work.sequence_parallel (Korthikanti et al. 2022) LayerNorms, those biases and residuals see a shard's rows
 * only, N / shards; rows are gathered before what is split by columns, backward those of the output's
 * gradient and, for the weights' gradient, once more the input's, and sums are scattered. The loss of a
 * shard's part of the vocabulary is made in two halves: KERNEL_CROSS_ENTROPY_LOSS over its logits writes
 * three numbers a row (maximum, sum of exponentials, the target's logit), which are gathered; then
 * KERNEL_CROSS_ENTROPY, or, loss_only, the loss of these numbers alone (n = 3 x shards), goes on. */
int workload_forward(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                     bool loss_only, struct kernel *out);
int workload_backward(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                      struct kernel *out);

/* Layers of the last of several stages for which the longest stage has the fewest floating-point operations;
 * of those, the most. (partition_split) */
int workload_balanced(const struct gpt *gpt, const struct work *work, int stages);

/* A backward in two parts: the gradient of the input, and later that of the weights. PART_BOTH: in one. A
 * recomputed block runs its forward again in each; where the loss is made in chunks, all of that is in the
 * first, as a chunk's logits are gone when the next one's are made. */
int workload_backward_part(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                           enum kernel_part parts, struct kernel *out);
/* Kernels of the longest of these lists. */
int workload_backward_most(const struct gpt *gpt, const struct stage *stage, const struct work *work);

/* The squared norm of a stage's gradients: of the first m of its parameters. They are all that it has, but
 * for a tied head that is the last stage's own copy: the first stage counts that; and but for what all shards
 * have: the first shard counts that. */
struct kernel workload_norm(const struct gpt *gpt, const struct stage *stage, enum half half);

/* The update of `parameters`: AdamW, or in half precision unscale and AdamW. Returns how many kernels. */
enum { WORKLOAD_UPDATE_KERNELS = 2 };
int workload_update(int64_t parameters, enum half half, struct kernel out[WORKLOAD_UPDATE_KERNELS]);

/* Half precision: the look for an overflow. What follows instead of updates where there is one, and with zero
 * after all updates: gradients become zero. */
struct kernel workload_overflow(int64_t parameters, enum half half);
struct kernel workload_clear(int64_t parameters, enum half half);

#endif
