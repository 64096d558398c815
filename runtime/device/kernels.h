/* What the kernels of models/kernels/kernel.h compute, how their operands are packed in struct kernel_args,
 * and typed launches of those that are launched one by one (a stage's lists are packed by runtime/nn/exec.c).
 *
 * All matrices are row-major, all sums are added in a fixed order (the same input gives the same bits). A
 * tensor is a `void *`: elements are fp16 or bf16 if the device says so (device->dtype), else `real`. Sums
 * are made in fp32 (double for the norm and the loss) in either case. `p` holds the pointers in the order of
 * a kind's descriptor, shapes are in struct kernel: (m,n) where nothing else is said, which are N rows of
 * tokens and C columns in a model. What is said to be `real` is never stored in 16 bits.
 *
 * matmul: c (m,n) = a b, or c += a b, with a (m,k) or, transposed, stored (k,m); b (k,n) or, transposed,
 * stored (n,k). ld: elements between stored rows of a, b, c (never 0). batch = outer x `inner`; stride:
 * elements from one outer (0), inner (1) matrix to the next. embedding: x (B T, C) = wte (V, C)[tokens (B,T)]
 * + wpe (positions, C)[t]; backward adds to dwte and dwpe. ld[0]: T. Of a part of the vocabulary (the cpu
 * alone has these) ld[1]: its first token, ld[2]: its tokens, which are the rows of wte (0: all); others have
 * none, and wpe and dwpe may be NULL: nothing is added. The sum of all parts' x, one of which has wpe, is the
 * whole's. p[3] and p[1] NULL: positions are not embedded. layernorm: y = (x - mean) rstd w + b, epsilon 1e-5
 * as GPT-2; stats (2,m), `real`, has mean, then rstd. Backward: dx = ..., or dx += ... if it accumulates;
 * adds into dw and db. ld[0]: elements from a row's mean to its rstd. bias: y += b. bias_backward: db += the
 * sum of dy's rows. residual: y += x. bias_residual: y += b + x. bias_gelu: h += b, g = gelu_tanh(h).
 * gelu_backward: dh, which holds dg, times gelu'(h). rmsnorm (Zhang & Sennrich 2019): y = x rstd w with rstd
 * (m), `real`, 1 / sqrt(mean(x^2) + epsilon). Backward as LayerNorm's. scalar[0]: epsilon. rope (Su et al.
 * 2021), in place: of each head of k columns, i is rotated with i + k / 2 by the angle t theta^(-2 i / k), t
 * being the row's position of T. ld[0]: T, ld[1]: the first row (0), `inner`: columns of a row that are
 * rotated, the first ones, whole heads; scalar[0]: theta, scalar[1]: 1, or -1 to rotate back, which is its
 * gradient. swiglu (Shazeer 2020): y (m,n) = silu(g) u with gu (m, 2 n): a row has its n gates g, then its n
 * u; silu(g) = g / (1 + e^-g). Backward writes all of dgu (m, 2 n). softmax: of s (batch, T, T) row t becomes
 * softmax of scale s[t, 0..t], zeros after. Backward: dp becomes scale p (dp - sum(dp p)), zeros after the
 * diagonal. scalar[0]: scale, ld[1]: the first row (0), of a (T,T). cross_entropy: adds the summed negative
 * log likelihood of targets (m) to *loss (double) and leaves scale (softmax - onehot) in logits (m,n);
 * cross_entropy_loss leaves them as they are. scalar[0]: scale. Over a part of the vocabulary (the cpu alone
 * has these) in two halves. Logits are of tokens [first, first + valid); columns from `valid` on are padding.
 * First cross_entropy_loss without p[0] leaves numbers p[3] (m,3), `real`: of each row the largest logit, the
 * sum of exponentials of the others' distance to it, and the target's logit, or 0 where another part has it.
 * Then, from the numbers (shards, m, 3) of all parts, cross_entropy does the above; or cross_entropy_loss,
 * without logits and targets, n being 3 shards, makes the loss alone. p[3] NULL: all of the vocabulary;
 * ld[0]: first, ld[1]: the first row (0), of all rows ld[2]; stride[0][0]: valid; `inner`: shards. Fused
 * products, whose operands are dense; what else is (m,n) lies as c does, and what a device makes of one sum
 *     may be rounded once, at its end. matmul_bias: y (m,n) = x (m,k) w^T + b, with w (n,k) as weights are
 * stored. _gelu: h is that, and g = gelu_tanh(h). _residual: y = x w^T + b + r; _layernorm: and ln, stats the
 * LayerNorm of y as it is stored, by ln_w and ln_b (n); stride[0][0]: elements from a row's mean to its rstd.
 *     matmul_gelu_backward: dh (m,n) = (dy w) gelu'(h), with dy (m,k), w (k,n).
 * attention, causal, of every sequence and head: y (B,T,H hs) = softmax(scale q k^T) v. The columns of qkv
 *     (B,T, (H + 2 KV) hs) are H heads of q, KV of k and KV of v, each hs wide; H is a multiple of KV, and
 * head h of q has head h / (H / KV) of k and v. lse (B,H,T), `real`: the natural logarithm of each row's sum
 * of exp(scale q k^T). Backward writes all of dqkv, from y and lse as forward left them, dk and dv being sums
 * over the heads of q that have them; rows (B,H,T), `real`, is its scratch: each row's sum of dy y. m and n:
 * T, k: hs, batch: B H, `inner`: H, group: H / KV (0 or 1: as many), scalar[0]: scale, ld[1]: the first of
 * the batch (0: the pointers are those of head 0 all the same). AdamW, overflow, unscale, clear,
 * squared_norm: below. AdamW has its offset in ld[0] and lr, beta1, beta2, epsilon, weight_decay, step in
 * scalar[0..5]; overflow has its limit in scalar[0]. */
#ifndef RANVIER_RUNTIME_DEVICE_KERNELS_H
#define RANVIER_RUNTIME_DEVICE_KERNELS_H

#include "runtime/device/device.h"

/* A kernel in the format of the device's tensors; batch 0 stands for 1. */
void kernels_launch(struct device *, struct kernel kernel, const struct kernel_args *args);

/* c (m,n) = a b + beta c with a (m,k) or, transposed, stored (k,m); b (k,n) or, transposed, stored (n,k). */
struct matmul {
        int64_t m, n, k;
        bool transpose_a, transpose_b, accumulate;
        int64_t lda, ldb, ldc; /* elements between stored rows; 0: dense */
        int64_t outer, inner;  /* batch = outer x inner; 0 means 1 */
        int64_t stride_a[2], stride_b[2],
                stride_c[2]; /* elements from one outer (0), inner (1) matrix to the next */
        unsigned char part;
};
void kernels_matmul(struct device *, const struct matmul *, const void *a, const void *b, void *c);

void kernels_bias(struct device *, void *y, const void *b, int64_t m, int64_t n);
void kernels_bias_residual(struct device *, void *y, const void *b, const void *x, int64_t m, int64_t n);

/* Of its packed operands those of its LayerNorm, packed as a LayerNorm of its own has them. */
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

/* *sum (double) = sum of squares of x (n), or adds to it if accumulate. Summed in double. */
void kernels_squared_norm(struct device *, double *sum, const void *x, int64_t n, bool accumulate);

/* AdamW (Loshchilov & Hutter 2019), bias-corrected: over n parameters p with moments m, v and gradients g
 * scaled by *gradient_scale (double, read when the kernel runs: the clipping factor); leaves g zero. g, and p
 * where it is not a buffer of its own, point to element `offset` of the stage's flat buffers; `ranges`
 * (sorted by end, the last ends at or after offset + n) say which elements of those flat buffers are decayed.
 *
 * If the device's tensors are stored in 16 bits: p, g, m, v are fp32 all the same, g has been unscaled and is
 * left as it is (gradient_scale is NULL), and the new parameters are written to `weights` (n, 16 bits) too;
 * else `weights` is NULL. `ranges` are in the host's own memory; all the other operands a device reaches. */
struct adamw_range {
        int64_t end; /* elements from the previous range's end up to here ... */
        int decay;   /* ... are decayed or not */
};
struct adamw {
        double lr, beta1, beta2, epsilon, weight_decay;
        int64_t step; /* from 1 */
};
void kernels_adamw(struct device *, real *p, real *g, real *m, real *v, void *weights,
                   const struct adamw_range *ranges, const double *gradient_scale, int64_t offset, int64_t n,
                   const struct adamw *);

/* Half only. *found (double) becomes 1 if one of the n gradients g is beyond +-limit, infinite or not a
 * number, else 0. */
void kernels_overflow(struct device *, double *found, const void *g, int64_t n, double limit);
/* Half only. out (n, fp32) = *scale (double, read when the kernel runs) x g (n); leaves g zero. */
void kernels_unscale(struct device *, real *out, void *g, const double *scale, int64_t n);
/* g (n) becomes zero. */
void kernels_clear(struct device *, void *g, int64_t n);

#endif
