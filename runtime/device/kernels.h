/* Typed launches, one a kernel of models/kernels/kernel.h, for who launches single ones; runtime/nn/exec.c
 * packs the operands of a stage's in the same way. Each packs its operands for device->ops->launch. All
 * matrices are row-major, all sums are added in a fixed order (the same input gives the same bits). N rows, C
 * columns unless said otherwise.
 *
 * How operands are packed in struct kernel_args, for who writes a device: `p` holds the pointers in the order
 * of the function's parameters, shapes are in struct kernel. Besides: all products have ld of a, b, c (never
 * 0), matmul also stride and inner; the embedding kernels have T in ld[0], LayerNorm the elements from a
 * row's mean to its rstd, RMSNorm its epsilon in scalar[0]; RoPE has T in ld[0], its first row in
 * ld[1] (0), the columns of a row that it rotates in `inner`, theta in scalar[0] and 1, or -1 to rotate back,
 * in scalar[1]; softmax has its first row in ld[1] (0), of a (T,T) matrix; softmax and
 * cross-entropy have their scale in scalar[0]; AdamW has its offset in ld[0] and lr, beta1, beta2, epsilon,
 * weight_decay, step in scalar[0..5], and in `p` after p, g, m, v the ranges, gradient_scale and weights;
 * overflow has its limit in scalar[0]. Of a shard's part of the vocabulary (the cpu alone has these): the
 * embedding kernels have its first token in ld[1] and its rows in ld[2] (0: all of the vocabulary);
 * cross-entropy has the numbers in p[3] (NULL: all of the vocabulary), its first token in ld[0], the first
 * row in ld[1] (0), of all rows ld[2], its tokens in stride[0][0] and shards in `inner`.
 *
 * A tensor is a `void *`: elements are fp16 or bf16 if the device says so (device->half), else `real`. Sums
 * are made in fp32 (double for the norm and the loss) in either case.
 *
 * The fused kernels: products' operands are dense, and what else is (m,n) lies as c does;
 * matmul_bias_residual_layernorm has its product's five operands first, then LayerNorm's other four, and the
 * elements from a row's mean to its rstd in stride[0][0]; attention has T in m and n, the size of a head in
 * k, sequences x heads of queries in batch, heads of queries in `inner`, how many of those share one of keys
 * and values in `group` (0 or 1: none), its scale in scalar[0] and the first of the batch in ld[1] (0: the
 * pointers are those of head 0 all the same). */
#ifndef RANVIER_RUNTIME_DEVICE_KERNELS_H
#define RANVIER_RUNTIME_DEVICE_KERNELS_H

#include "runtime/device/device.h"

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

/* x (B T, C) = wte (V, C)[tokens (B,T)] + wpe (positions, C)[t]. */
void kernels_embedding(struct device *, void *x, const int32_t *tokens, const void *wte, const void *wpe,
                       int64_t B, int64_t T, int64_t C);
void kernels_embedding_backward(struct device *, void *dwte, void *dwpe, const void *dx,
                                const int32_t *tokens, int64_t B, int64_t T, int64_t C);

/* Of tokens [first, first + rows) alone, which are the rows of wte: others have none. wpe and dwpe may be
 * NULL: nothing is added. The sum of all parts' x, one of which has wpe, is the above. */
void kernels_embedding_part(struct device *, void *x, const int32_t *tokens, const void *wte, const void *wpe,
                            int64_t B, int64_t T, int64_t C, int64_t first, int64_t rows);
void kernels_embedding_part_backward(struct device *, void *dwte, void *dwpe, const void *dx,
                                     const int32_t *tokens, int64_t B, int64_t T, int64_t C, int64_t first,
                                     int64_t rows);

/* y = (x - mean) rstd w + b; stats (2, N) holds mean then rstd, never in half. epsilon 1e-5, as GPT-2. */
void kernels_layernorm(struct device *, void *y, real *stats, const void *x, const void *w, const void *b,
                       int64_t N, int64_t C);
/* dx += ... if accumulate, else dx = ...; adds into dw, db. x is the LayerNorm's input. */
void kernels_layernorm_backward(struct device *, void *dx, void *dw, void *db, const void *dy, const void *x,
                                const real *stats, const void *w, int64_t N, int64_t C, bool accumulate);

void kernels_bias(struct device *, void *y, const void *b, int64_t m, int64_t n);
void kernels_bias_backward(struct device *, void *db, const void *dy, int64_t m, int64_t n);
void kernels_bias_gelu(struct device *, void *g, void *h, const void *b, int64_t m, int64_t n);
void kernels_gelu_backward(struct device *, void *dh, const void *h, int64_t m, int64_t n); /* dh holds dg */
void kernels_bias_residual(struct device *, void *y, const void *b, const void *x, int64_t m, int64_t n);

void kernels_residual(struct device *, void *y, const void *x, int64_t m, int64_t n);

/* RMSNorm (Zhang & Sennrich 2019): y = x rstd w with rstd (N), never in half, 1 / sqrt(mean(x^2) + epsilon).
 */
void kernels_rmsnorm(struct device *, void *y, real *rstd, const void *x, const void *w, int64_t N, int64_t C,
                     double epsilon);
/* dx += ... if accumulate, else dx = ...; adds into dw. x is the RMSNorm's input. */
void kernels_rmsnorm_backward(struct device *, void *dx, void *dw, const void *dy, const void *x,
                              const real *rstd, const void *w, int64_t N, int64_t C, bool accumulate);

/* Rotary position embedding (Su et al. 2021) of x (B T, columns), in place: of each head's columns, i is
 * rotated with i + head_size / 2 by the angle t theta^(-2 i / head_size), t being the row's position of T; or
 * back, which is its gradient. */
struct rope {
        int64_t columns, rotated; /* of a row; the first ones that are rotated, whole heads */
        int64_t head_size;        /* even */
        double theta;
        bool inverse;
};
void kernels_rope(struct device *, const struct rope *, void *x, int64_t B, int64_t T);

/* SwiGLU (Shazeer 2020): y (m,n) = silu(g) u with gu (m, 2 n): a row has its n gates g, then its n u. silu(g)
 * = g / (1 + e^-g). Backward writes all of dgu (m, 2 n). */
void kernels_swiglu(struct device *, void *y, const void *gu, int64_t m, int64_t n);
void kernels_swiglu_backward(struct device *, void *dgu, const void *dy, const void *gu, int64_t m,
                             int64_t n);

/* s (batch, T, T): row t becomes softmax of scale s[t, 0..t], zeros after. */
void kernels_softmax(struct device *, void *s, int64_t batch, int64_t T, double scale);
/* dp (batch, T, T) becomes ds = scale p (dp - sum(dp p)), zeros after the diagonal. */
void kernels_softmax_backward(struct device *, void *dp, const void *p, int64_t batch, int64_t T,
                              double scale);

/* y (m,n) = x (m,k) w^T + b, with w (n,k) as weights are stored. _gelu: h is that, and g = gelu_tanh(h).
 * _residual: y = x w^T + b + r. _gelu_backward: dh (m,n) = (dy w) gelu'(h), with dy (m,k), w (k,n). What a
 * device makes of one sum may be rounded once, at its end. */
void kernels_matmul_bias(struct device *, void *y, const void *x, const void *w, const void *b, int64_t m,
                         int64_t n, int64_t k);
void kernels_matmul_bias_gelu(struct device *, void *g, void *h, const void *x, const void *w, const void *b,
                              int64_t m, int64_t n, int64_t k);
void kernels_matmul_bias_residual(struct device *, void *y, const void *x, const void *w, const void *b,
                                  const void *r, int64_t m, int64_t n, int64_t k);
/* And ln (m,n), stats (2,m) = kernels_layernorm of y as it is stored, by ln_w and ln_b (n). */
void kernels_matmul_bias_residual_layernorm(struct device *, void *y, void *ln, real *stats, const void *x,
                                            const void *w, const void *b, const void *r, const void *ln_w,
                                            const void *ln_b, int64_t m, int64_t n, int64_t k);
void kernels_matmul_gelu_backward(struct device *, void *dh, const void *dy, const void *w, const void *h,
                                  int64_t m, int64_t n, int64_t k);

/* Of its packed operands those of its LayerNorm, as kernels_layernorm packs them. */
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

/* Causal attention, every sequence and head: y (B,T,H hs) = softmax(scale q k^T) v. The columns of qkv
 * (B,T, (H + 2 KV) hs) are H heads of q, KV of k and KV of v, each hs wide; H is a multiple of KV, and head h
 * of q has head h / (H / KV) of k and v. lse (B,H,T), never in half: the natural logarithm of each row's sum
 * of exp(scale q k^T). Backward writes all of dqkv, from y and lse as forward left them, dk and dv being sums
 * over the heads of q that have them; rows (B,H,T), never in half, is its scratch: each row's sum of dy y. */
void kernels_attention(struct device *, void *y, real *lse, const void *qkv, int64_t B, int64_t T, int64_t H,
                       int64_t KV, int64_t hs, double scale);
void kernels_attention_backward(struct device *, void *dqkv, real *rows, const void *dy, const void *y,
                                const real *lse, const void *qkv, int64_t B, int64_t T, int64_t H, int64_t KV,
                                int64_t hs, double scale);

/* Adds the summed negative log likelihood of targets (N) to *loss (double) and, unless loss_only, leaves
 * scale (softmax - onehot) in logits (N, V). */
void kernels_cross_entropy(struct device *, double *loss, void *logits, const int32_t *targets, int64_t N,
                           int64_t V, double scale, bool loss_only);

/* Over a part of the vocabulary in two halves. Logits (N, V) are of tokens [first, first + valid); columns
 * from `valid` on are padding. First numbers (N, 3), never in half: of each row the largest logit, the sum of
 * exponentials of the others' distance to it, and the target's logit, or 0 where another part has it. Then,
 * from the numbers (shards, N, 3) of all parts, what kernels_cross_entropy does to logits and loss; or the
 * loss alone. */
struct vocabulary_part {
        int64_t first, valid;
};
void kernels_cross_entropy_numbers(struct device *, real *numbers, const void *logits, const int32_t *targets,
                                   int64_t N, int64_t V, struct vocabulary_part part);
void kernels_cross_entropy_part(struct device *, double *loss, void *logits, const int32_t *targets,
                                const real *numbers, int shards, int64_t N, int64_t V,
                                struct vocabulary_part part, double scale);
void kernels_cross_entropy_of_numbers(struct device *, double *loss, const real *numbers, int shards,
                                      int64_t N);

/* *sum (double) = sum of squares of x (n), or adds to it if accumulate. Summed in double. */
void kernels_squared_norm(struct device *, double *sum, const void *x, int64_t n, bool accumulate);

/* AdamW (Loshchilov & Hutter 2019), bias-corrected: over n parameters p with moments m, v and gradients g
 * scaled by *gradient_scale (double, read when the kernel runs: the clipping factor); leaves g zero. g, and p
 * where it is not a buffer of its own, point to element `offset` of the stage's flat buffers; `ranges`
 * (sorted by end, the last ends at or after offset + n) say which elements of those flat buffers are decayed.
 *
 * If the device's tensors are half: p, g, m, v are fp32 all the same, g has been unscaled and is left as it
 * is (gradient_scale is NULL), and the new parameters are written to `weights` (n, half) too; else `weights`
 * is NULL. `ranges` are in the host's own memory; all the other operands a device reaches. */
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
