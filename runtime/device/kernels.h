/* Typed launches, one a kernel of models/workload.h: the vocabulary in which runtime/nn and runtime/optim are
 * written. Each packs its operands for device->ops->launch. All matrices are row-major, all sums are added in
 * a fixed order (the same input gives the same bits). N rows, C columns unless said otherwise.
 *
 * How operands are packed in struct kernel_args, for who writes a device: `p` holds the pointers in the order
 * of the function's parameters, shapes are in struct kernel. Besides: matmul has ld and stride of a, b, c (ld
 * never 0) and inner; the embedding kernels have T in ld[0]; softmax and cross-entropy have their scale in
 * scalar[0]; AdamW has its offset in ld[0] and lr, beta1, beta2, epsilon, weight_decay, step in scalar[0..5],
 * and in `p` after p, g, m, v the ranges and gradient_scale. */
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
void kernels_matmul(struct device *, const struct matmul *, const real *a, const real *b, real *c);

/* x (B T, C) = wte (V, C)[tokens (B,T)] + wpe (positions, C)[t]. */
void kernels_embedding(struct device *, real *x, const int32_t *tokens, const real *wte, const real *wpe,
                       int64_t B, int64_t T, int64_t C);
void kernels_embedding_backward(struct device *, real *dwte, real *dwpe, const real *dx,
                                const int32_t *tokens, int64_t B, int64_t T, int64_t C);

/* y = (x - mean) rstd w + b; stats (2, N) holds mean then rstd. epsilon 1e-5, as GPT-2. */
void kernels_layernorm(struct device *, real *y, real *stats, const real *x, const real *w, const real *b,
                       int64_t N, int64_t C);
/* dx += ... if accumulate, else dx = ...; adds into dw, db. x is the LayerNorm's input. */
void kernels_layernorm_backward(struct device *, real *dx, real *dw, real *db, const real *dy, const real *x,
                                const real *stats, const real *w, int64_t N, int64_t C, bool accumulate);

void kernels_bias(struct device *, real *y, const real *b, int64_t m, int64_t n);
void kernels_bias_backward(struct device *, real *db, const real *dy, int64_t m, int64_t n);
void kernels_bias_gelu(struct device *, real *g, real *h, const real *b, int64_t m, int64_t n);
void kernels_gelu_backward(struct device *, real *dh, const real *h, int64_t m, int64_t n); /* dh holds dg */
void kernels_bias_residual(struct device *, real *y, const real *b, const real *x, int64_t m, int64_t n);

/* s (batch, T, T): row t becomes softmax of scale s[t, 0..t], zeros after. */
void kernels_softmax(struct device *, real *s, int64_t batch, int64_t T, double scale);
/* dp (batch, T, T) becomes ds = scale p (dp - sum(dp p)), zeros after the diagonal. */
void kernels_softmax_backward(struct device *, real *dp, const real *p, int64_t batch, int64_t T,
                              double scale);

/* Adds the summed negative log likelihood of targets (N) to *loss (double) and, unless loss_only, leaves
 * scale (softmax - onehot) in logits (N, V). */
void kernels_cross_entropy(struct device *, double *loss, real *logits, const int32_t *targets, int64_t N,
                           int64_t V, double scale, bool loss_only);

/* *sum (double) = sum of squares of x (n), or adds to it if accumulate. Summed in double. */
void kernels_squared_norm(struct device *, double *sum, const real *x, int64_t n, bool accumulate);

/* AdamW (Loshchilov & Hutter 2019), bias-corrected: over n parameters p with moments m, v and gradients g
 * scaled by *gradient_scale (double, read when the kernel runs: the clipping factor); leaves g zero. p, g, m,
 * v point to element `offset` of the stage's flat buffers; `ranges` (sorted by end, the last ends at or after
 * offset + n) say which elements of those flat buffers are decayed. */
struct adamw_range {
        int64_t end; /* elements from the previous range's end up to here ... */
        int decay;   /* ... are decayed or not */
};
struct adamw {
        double lr, beta1, beta2, epsilon, weight_decay;
        int64_t step; /* from 1 */
};
void kernels_adamw(struct device *, real *p, real *g, real *m, real *v, const struct adamw_range *ranges,
                   const double *gradient_scale, int64_t offset, int64_t n, const struct adamw *);

#endif
