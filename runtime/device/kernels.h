/* What the kernels of models/kernels/kernel.h compute, how their operands are packed in struct kernel_args,
 * and typed launches of those that are launched one by one (runtime/optim, calibration, probes, tests). The
 * kernels of a stage are packed by runtime/nn/exec.c from its program. Every device implements what is
 * written here: the CPU device in cpu/kernels and cpu/mixed, the CUDA device in cuda. Floating-point
 * operations, bytes and splits of a kind are not here but in its descriptor (models/kernels/kinds.c).
 *
 * All matrices are row-major, and all sums are added in a fixed order, so the same input gives the same
 * bits. A tensor is a `void *`: its elements are fp16 or bf16 if the device says so (device->dtype), else
 * `real`. Sums are made in fp32 (double for the norm and the loss) in either case. What is said to be
 * `real` is never stored in 16 bits.
 *
 * Shapes are in struct kernel: (m,n) where nothing else is said, which are N rows of tokens and C columns
 * in a model. The pointers p[0], p[1], ... are given below as `p: ...`, in the order of the kind's
 * descriptor. Members of struct kernel_args that are not named for a kind are left 0.
 *
 * Products and embeddings:
 *
 * matmul, p: a, b, c. c (m,n) = a b, or c += a b if it accumulates, with a (m,k) or, transposed, stored
 *   (k,m); b (k,n) or, transposed, stored (n,k). ld[0..2]: elements between stored rows of a, b, c (never
 *   0). batch is outer x `inner`; stride[i]: elements of operand i from one outer [0], inner [1] matrix to
 *   the next.
 * embedding, p: x, tokens, wte, wpe. x (B T, C) = wte (V, C)[tokens (B,T)] + wpe (positions, C)[t]. ld[0]:
 *   T. Of a rank that has two pieces of every sequence, of T / 2 tokens each, t counts in what it has, and
 *   stride[0][0] is added to it in the first, stride[0][1] in the second, to make the position in the
 *   sequence. wpe NULL: positions are not embedded. Of a part of the
 * vocabulary ld[1] is its first token and ld[2] the number of its tokens, which are
 * the rows of wte (0: all); other tokens have no row, and nothing is added for them. The sum of all parts' x,
 * one of which has wpe, is the whole's. embedding_backward, p: dwte, dwpe, dx, tokens. Adds dx to the rows of
 * dwte and dwpe; ld as forward, and dwpe may be NULL.
 *
 * Normalisations:
 *
 * layernorm, p: y, stats, x, w, b. y = (x - mean) rstd (w + scalar[0]) + b, epsilon 1e-5 as GPT-2. stats
 *   (2,m), `real`, receives the means, then the reciprocal standard deviations; ld[0]: elements from a row's
 *   mean to its rstd; scalar[0]: 0, or 1 where weights are stored as what they are more than 1.
 * layernorm_backward, p: dx, dw, db, dy, x, stats, w. dx = ..., or dx += ... if it accumulates; adds into
 *   dw and db. ld[0] and scalar[0] as forward.
 * rmsnorm (Zhang & Sennrich 2019), p: y, rstd, x, w. y = x rstd w with rstd (m), `real`, 1 / sqrt(mean(x^2)
 *   + epsilon). scalar[0]: epsilon.
 * rmsnorm_backward, p: dx, dw, dy, x, rstd, w. As LayerNorm's.
 * head_rmsnorm, p: y, rstd, x, w. RMSNorm of each head of k columns by itself: those in the first ld[0]
 *   columns (queries) by the first k elements of w (2,k), those behind them, up to column `inner` (keys), by
 * the others. Columns from `inner` on (values) are copied. rstd (m, n / k), `real`: of values nothing is
 * written. scalar[0]: epsilon. head_rmsnorm_backward, p: dx, dw, x, rstd, w. dx, which holds dy, becomes the
 * gradient of x; adds into dw (2,k). ld[0] and `inner` as forward.
 *
 * Elementwise:
 *
 * bias, p: y, b. y += b, for every row.
 * bias_backward, p: db, dy. db += the sum of dy's rows.
 * residual, p: y, x. y += x.
 * bias_residual, p: y, b, x. y += b + x.
 * bias_gelu, p: g, h, b. h += b, then g = gelu_tanh(h).
 * gelu_backward, p: dh, h. dh, which holds dg, is multiplied by gelu'(h).
 * swiglu (Shazeer 2020), p: y, gu. y (m,n) = silu(g) u with gu (m, 2 n): a row has its n gates g, then its
 *   n u; silu(g) = g / (1 + e^-g).
 * swiglu_backward, p: dgu, dy, gu. Writes all of dgu (m, 2 n).
 * squared_relu (So et al. 2021), p: y, h. y = max(h, 0)^2.
 * squared_relu_backward, p: dh, h. dh, which holds dy, is multiplied by 2 max(h, 0).
 * rope (Su et al. 2021), p: x, in place. In each head of k columns, of which the first r = scalar[6] turn (0:
 *   all k), column i is rotated with column i + r / 2 by the angle t f, t being the row's position in its
 *   sequence of T, and f = theta^(-2 i / r), or less of it as rope.h says. ld[0]: T, and stride[0] as
 * embedding's; ld[1]: the number of the first row (0); `inner`: columns of a row that are rotated, the first
 * ones, whole heads; scalar[0]: theta; scalar[1]: 1, or -1 to rotate back, which is its gradient;
 * scalar[2..5]: taken, by_frequency, by_column and constant of a scaling, 0 without one.
 *
 * Columns of rows, copied:
 *
 * split_columns, p: a, b, x. a (m,n) and b (m,k) are the first n and the last k columns of x (m, n + k).
 * join_columns, p: x, a, b. x (m, n + k) has a (m,n) and, behind it, b (m,k).
 * narrow, p: y, x. y (m,n) is the first n columns of x (m,k).
 * last_columns, p: y, x. y (m,n) is the last n columns of x (m,k). set_last_columns, p: x, y: the last n
 * columns of x (m,k) become y (m,n), and the others stay. widen, p: x, y. The first n columns of x (m,k) are
 * y (m,n), the others zeros.
 *
 * Multi-head latent attention (DeepSeek-AI 2024), whose keys are made of little: with `inner` heads of hs = n
 * / inner columns, of which the last k turn, and values of l / inner - (hs - k) columns, at most hs.
 *
 * latent_qkv, p: qkv, q, kv, shared. Writes rows of all heads' queries, then keys, then values, each hs wide:
 *   qkv (m, 3 n). Queries are those of q (m,n), their last k columns turned; keys the first hs - k columns of
 *   their heads in kv (m,l) and behind them `shared` (m,k), turned; values the last columns of their heads in
 *   kv, and zeros. Turned columns are rotated as rope does in heads of k columns, where scalar[6] is 0; else
 *   columns 2 i and 2 i + 1 are rotated with each other and written to i and i + k / 2. Either way they are
 *   multiplied by scalar[1]. ld[0], stride[0], ld[1] and the other scalars are as rope's.
 * latent_qkv_backward, p: dq, dkv, dshared, dqkv. Writes all of the three gradients; dshared is a sum over
 *   heads.
 *
 * Mixture of experts. N tokens have K experts each of E, and N K rows, sorted by expert; among those of one
 * expert the order is that of tokens. source[r] = token K + which of its experts (0 to K - 1) the row r is
 * for; place[token K + which] = r, its inverse; ends[e] = the row behind the last of expert e. All three are
 * int32.
 *
 * route, p: weights, place, source, ends, logits, correction. Of each row of logits (N,E) the k = K largest
 *   are chosen, the first of equal ones; writes the order, and weights (N K), `real`, in the order of the
 *   rows. scalar[0]: scores are softmax over the logits (0) or their logistic function (1); scalar[1]: the
 *   weights are the scores (0), or those divided by 1e-20 and the sum of the token's chosen ones (1); times
 *   scalar[2]. With a correction (E), or groups, experts are chosen by their scores and the correction
 *   (NULL: 0), which weights have nothing of. scalar[4], if it is above 1: the experts are so many equal
 *   groups of neighbours, of two at least. Of the groups the scalar[5] are chosen whose two largest such
 *   numbers have the largest sums, or, scalar[6] being 1, whose largest such number is largest, and in all
 *   others the numbers count as 0.
 * route_backward, p: dlogits, dweights, weights, place, ends, logits. Writes all of dlogits (N,E) from
 *   dweights (N K), `real`, in the order of the rows. scalar[0..2] as forward; scalar[3]: a balancing loss
 *   scalar[3] E sum_e f_e P_e, with f_e = rows of expert e / N and P_e the sum of its scores over all tokens,
 *   adds its gradient; of softmax scores alone.
 * permute, p: y, x, source. Row r of y (m = N K, n) is row source[r] / k of x (N, n).
 * unpermute, p: y, x, place. Row t of y (m = N, n) is, or, accumulating, has added, the sum of the k rows
 *   place[t k ...] of x (N k, n), added in this order.
 * grouped_matmul, p: a, b, c, ends. c (m,n) = a (m,k) b_e for the rows of each expert e, b_e (k,n) or,
 *   transposed, stored (n,k); stride[1][0]: elements from one expert's b to the next's; ld as matmul's.
 * grouped_matmul_backward, p: a, b, c, ends. c_e (m,n) += a^T b with the rows of a (k,m) and b (k,n) that
 *   expert e has; stride[2][0]: elements from one expert's c to the next's.
 * weighted_swiglu, p: y, gu, w, ends. SwiGLU, each row times w, `real`, of the rows before the last of
 *   `experts` ends, which may be more or fewer than m; experts 0: of m rows.
 * weighted_swiglu_backward, p: dgu, dw, dy, gu, w, ends. Writes all of dgu, and of dw, `real`, of those rows.
 *
 * Where experts are spread over k ranks, each rank's rows go to those of their experts, and all_ends (k, E)
 * has the ends of every rank's. An expert's rows then are those of the first rank's tokens, of the second's.
 *
 * expert_ends, p: ends, all_ends. ends[i] = the row behind the last of expert ld[0] + i of E = ld[1], for m
 *   experts, in the memory of their rank.
 *
 * Attention by parts, and the loss:
 *
 * softmax, p: s (batch, T, T), in place. Row t becomes softmax of scale s[t, 0..t], zeros after. scalar[0]:
 *   scale; ld[1]: the number of the first row (0), in matrices of (T,T) one behind the other.
 * softmax_backward, p: dp, p. dp becomes scale p (dp - sum(dp p)), zeros after the diagonal. scalar and ld
 *   as forward.
 * cross_entropy, p: loss, logits, targets, numbers. Adds the summed negative log likelihood of targets (m)
 *   to *loss (double) and leaves scale (softmax - onehot) in logits (m,n), whose rows are stride[0][1]
 *   elements apart. scalar[0]: scale. numbers NULL: the logits are of the whole vocabulary.
 * cross_entropy_loss, p: the same. Adds to *loss alone and leaves the logits as they are.
 *
 * Over a part of the vocabulary these two work in two halves, which meet in the
 * numbers p[3]. Logits are of the tokens [ld[0], ld[0] + valid), valid being stride[0][0]; columns from
 * `valid` on are padding. ld[1]: the number of the first row (0), of all rows ld[2]; `inner`: shards. First
 * cross_entropy_loss with loss NULL writes the numbers (m,3), `real`: of each row the largest logit, the
 * sum of exponentials of the others' distance to it, and the target's logit, or 0 where another part has
 * it. Then, from the numbers (shards, m, 3) of all parts, cross_entropy does what is said above; or
 * cross_entropy_loss, with logits and targets NULL and n being 3 shards, adds to the loss alone.
 *
 * Fused products, whose operands are dense; ld[0..2] are as matmul's. What else is (m,n) lies as the
 * product does. What a device makes of one sum may be rounded once, at its end.
 *
 * matmul_bias, p: y, x, w, b. y (m,n) = x (m,k) w^T + b, with w (n,k) as weights are stored.
 * matmul_bias_gelu, p: g, h, x, w, b. h is that, and g = gelu_tanh(h).
 * matmul_bias_residual, p: y, x, w, b, r. y = x w^T + b + r.
 * matmul_bias_residual_layernorm, p: y, x, w, b, r, ln, stats, ln_w, ln_b. That, and ln and stats are the
 *   LayerNorm of y as it is stored, by ln_w and ln_b (n). stride[0][0]: elements from a row's mean to its
 *   rstd; scalar[0] as layernorm's.
 * matmul_gelu_backward, p: dh, dy, w, h. dh (m,n) = (dy w) gelu'(h), with dy (m,k), w (k,n).
 *
 * Fused attention, causal, of every sequence and head. m and n: T; k: hs, the width of a head; batch: B H;
 * `inner`: H; group: H / KV (0 or 1: as many heads of keys as of queries); scalar[0]: scale; ld[1]: the
 * number of the first head of the batch (0), where the pointers are those of head 0 all the same.
 *
 * attention, p: y, lse, qkv. y (B,T,H hs) = softmax(scale q k^T) v. The columns of qkv (B,T, (H + 2 KV) hs)
 *   are H heads of q, KV of k and KV of v, each hs wide; H is a multiple of KV, and head h of q has head h
 *   / (H / KV) of k and v. lse (B,H,T), `real`: the natural logarithm of each row's sum of exp(scale q
 *   k^T).
 * attention_backward, p: dqkv, rows, dy, y, lse, qkv. Writes all of dqkv, from y and lse as forward left
 *   them; dk and dv are sums over the heads of q that have them. rows (B,H,T), `real`, is its scratch: each
 *   row's sum of dy y.
 *
 * Where each of several ranks has two pieces of every sequence, of T / 2 tokens, its queries go on with
 * another rank's keys: those of both its pieces see the first half of them (ld[2]: 0), or those of its second
 * piece see all (ld[2]: 1). kv and dkv (B,T, 2 KV hs) are the last columns of rows of qkv.
 *
 * context_attention, p: y, lse, qkv, kv. y and lse, which are over the keys so far, become those over these
 * too. context_attention_backward, p: dqkv, dkv, rows, dy, lse, qkv, kv. Adds to the queries' gradients in
 * dqkv and writes all of dkv, from lse over all keys, and rows as attention_backward leaves them.
 *
 * Flat arrays of m elements, described with the launches below:
 *
 * adamw, p: p, g, m, v, ranges, gradient_scale, weights. ld[0]: its offset; scalar[0..5]: lr, beta1, beta2,
 *   epsilon, weight_decay, step.
 * overflow, p: found, g. scalar[0]: its limit.
 * unscale, p: out, g, scale.
 * clear, p: g.
 * squared_norm, p: sum, x. */
#ifndef RANVIER_RUNTIME_DEVICE_KERNELS_H
#define RANVIER_RUNTIME_DEVICE_KERNELS_H

#include "runtime/device/device.h"

/* Queues a kernel: sets its dtype to that of the device's tensors, takes batch 0 for 1, and passes it to
 * ops->launch. The launches below all go through it; like it they do not wait, and the memory that they are
 * given must stay valid until the kernel has run. */
void kernels_launch(struct device *, struct kernel kernel, const struct kernel_args *args);

/* A matrix product: c (m,n) = a b, or c += a b if `accumulate`, with a (m,k) or, transposed, stored (k,m); b
 * (k,n) or, transposed, stored (n,k). */
struct matmul {
        int64_t m, n, k;
        bool transpose_a, transpose_b, accumulate;
        int64_t lda, ldb, ldc; /* elements between stored rows; 0: dense */
        int64_t outer, inner;  /* the batch has outer x inner products; 0 means 1 */
        /* Elements from one outer [0], inner [1] matrix to the next. */
        int64_t stride_a[2], stride_b[2], stride_c[2];
        unsigned char part; /* enum kernel_part of a backward's product; else 0 */
};
void kernels_matmul(struct device *, const struct matmul *, const void *a, const void *b, void *c);

/* y (m,n) += b (n); and y += b + x (m,n). */
void kernels_bias(struct device *, void *y, const void *b, int64_t m, int64_t n);
void kernels_bias_residual(struct device *, void *y, const void *b, const void *x, int64_t m, int64_t n);

/* Returns the operands of the LayerNorm in a matmul_bias_residual_layernorm, packed as a LayerNorm of its own
 * has them, from the packed operands `args` of the fused kernel: for devices that run the two one after the
 * other. */
static inline struct kernel_args kernels_layernorm_args(const struct kernel_args *args)
{
        void *const *p = args->p;
        struct kernel_args layernorm = *args; /* what LayerNorm has no use for stays: C++ includes this too */
        layernorm.p[0] = p[5];
        layernorm.p[1] = p[6];
        layernorm.p[2] = p[0];
        layernorm.p[3] = p[7];
        layernorm.p[4] = p[8];
        layernorm.ld[0] = args->stride[0][0];
        layernorm.ld[1] = 0;
        return layernorm;
}

/* Sets *sum to the sum of squares of x (n), or adds that to it if `accumulate`. It is summed in double. `sum`
 * is in memory that host and device both reach (MEMORY_HOST), as are the other numbers below. */
void kernels_squared_norm(struct device *, double *sum, const void *x, int64_t n, bool accumulate);

/* Which parameters AdamW decays: the elements from the end of the range before (or 0) up to `end`, in
 * elements of the stage's flat buffers, are decayed unless `decay` is 0. */
struct adamw_range {
        int64_t end;
        int decay;
};
/* The numbers of one step of AdamW. `step` counts from 1, for the correction of the moments' bias. */
struct adamw {
        double lr, beta1, beta2, epsilon, weight_decay;
        int64_t step;
        bool wide_gradients; /* of 16-bit tensors: g are no copies, but the gradients themselves */
};
/* Queues AdamW (Loshchilov & Hutter 2019), bias-corrected, over n parameters p with moments m, v and
 * gradients g, which are scaled by *gradient_scale (read when the kernel runs: the clipping factor) and left
 * zero. g, and p where it is not a buffer of its own, point to element `offset` of the stage's flat buffers.
 * `ranges`, sorted by end, of which the last ends at or after offset + n, say which elements of those flat
 * buffers are decayed.
 *
 * If the device's tensors are stored in 16 bits: p, g, m, v are fp32 all the same, and the new parameters are
 * written to `weights` (n, 16 bits) too; else `weights` is NULL. g has then been unscaled and is left as it
 * is (gradient_scale is NULL), unless the step has wide_gradients. `ranges` are in the host's own memory, and
 * must stay valid until the kernel has run; all other operands are in memory that the device reaches. */
void kernels_adamw(struct device *, real *p, real *g, real *m, real *v, void *weights,
                   const struct adamw_range *ranges, const double *gradient_scale, int64_t offset, int64_t n,
                   const struct adamw *);

/* Sets *found to 1 if one of the n gradients g is beyond +-limit, infinite or not a number, else to 0. Only
 * for tensors in 16 bits (device->dtype). */
void kernels_overflow(struct device *, double *found, const void *g, int64_t n, double limit);
/* Sets out (n, fp32) to *scale (read when the kernel runs) x g (n), and leaves g zero. Only for tensors in 16
 * bits. */
void kernels_unscale(struct device *, real *out, void *g, const double *scale, int64_t n);
/* Sets the n gradients g to zero. */
void kernels_clear(struct device *, void *g, int64_t n);

/* Returns the elements from a row of an operand to the next, 0 for one without rows. All rows are dense, but
 * for those of logits (cross_entropy). */
static inline int64_t kernels_row_elements(const struct kernel_operand *operand, const struct kernel *kernel,
                                           const struct kernel_args *args)
{
        const bool loss = kernel->kind == KERNEL_CROSS_ENTROPY || kernel->kind == KERNEL_CROSS_ENTROPY_LOSS;
        return loss && operand->extent == EXTENT_MN ? args->stride[0][1]
                                                    : operand_row_elements(operand, kernel);
}

#endif
