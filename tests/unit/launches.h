/* Typed launches of single kernels, for tests and benches: what each computes is said in
 * runtime/device/kernels.h. Shapes as there: N rows, C columns, B sequences of T tokens, H heads of queries
 * and KV of keys and values, each hs wide. Operands are packed here by hand, not as exec.c does it. */
#ifndef RANVIER_TESTS_UNIT_LAUNCHES_H
#define RANVIER_TESTS_UNIT_LAUNCHES_H

#include "runtime/device/kernels.h"

void kernels_embedding(struct device *, void *x, const int32_t *tokens, const void *wte, const void *wpe,
                       int64_t B, int64_t T, int64_t C);
void kernels_embedding_backward(struct device *, void *dwte, void *dwpe, const void *dx,
                                const int32_t *tokens, int64_t B, int64_t T, int64_t C);
/* Of tokens [first, first + rows) alone, the rows of wte (rows 0: all); with the positions of each half of a
 * sequence `moved`. */
struct table_part {
        int64_t first, rows, moved[2];
};
void kernels_embedding_part(struct device *, void *x, const int32_t *tokens, const void *wte, const void *wpe,
                            int64_t B, int64_t T, int64_t C, const struct table_part *);
void kernels_embedding_part_backward(struct device *, void *dwte, void *dwpe, const void *dx,
                                     const int32_t *tokens, int64_t B, int64_t T, int64_t C,
                                     const struct table_part *);

void kernels_layernorm(struct device *, void *y, real *stats, const void *x, const void *w, const void *b,
                       double more, int64_t N, int64_t C);
void kernels_layernorm_backward(struct device *, void *dx, void *dw, void *db, const void *dy, const void *x,
                                const real *stats, const void *w, double more, int64_t N, int64_t C,
                                bool accumulate);
void kernels_bias_backward(struct device *, void *db, const void *dy, int64_t m, int64_t n);
void kernels_bias_gelu(struct device *, void *g, void *h, const void *b, int64_t m, int64_t n);
void kernels_gelu_backward(struct device *, void *dh, const void *h, int64_t m, int64_t n);
void kernels_residual(struct device *, void *y, const void *x, int64_t m, int64_t n);
void kernels_rmsnorm(struct device *, void *y, real *rstd, const void *x, const void *w, int64_t N, int64_t C,
                     double epsilon);
void kernels_rmsnorm_backward(struct device *, void *dx, void *dw, const void *dy, const void *x,
                              const real *rstd, const void *w, int64_t N, int64_t C, bool accumulate);

/* Of rows of H heads of queries and KV of keys and of values. */
void kernels_head_rmsnorm(struct device *, void *y, real *rstd, const void *x, const void *w, int64_t N,
                          int64_t H, int64_t KV, int64_t hs, double epsilon);
void kernels_head_rmsnorm_backward(struct device *, void *dx, void *dw, const void *x, const real *rstd,
                                   const void *w, int64_t N, int64_t H, int64_t KV, int64_t hs);

struct rope {
        int64_t columns, rotated; /* of a row; the first ones that are rotated, whole heads */
        int64_t head_size;        /* even */
        double theta;
        bool inverse;
        double scaling[4]; /* taken, by_frequency, by_column, constant */
        int64_t turned;    /* columns of a head, the first ones; 0: all */
        int64_t moved[2];  /* positions of each half of a sequence, from where they would be */
};
void kernels_rope(struct device *, const struct rope *, void *x, int64_t B, int64_t T);

/* Of rows: a (m,n), b (m,k), x (m, n + k); y (m,n), wide (m,k). */
void kernels_split_columns(struct device *, void *a, void *b, const void *x, int64_t m, int64_t n, int64_t k);
void kernels_join_columns(struct device *, void *x, const void *a, const void *b, int64_t m, int64_t n,
                          int64_t k);
void kernels_narrow(struct device *, void *y, const void *wide, int64_t m, int64_t n, int64_t k);
void kernels_widen(struct device *, void *wide, const void *y, int64_t m, int64_t n, int64_t k);

struct latent {
        int64_t heads, copied, rotated, values; /* columns of a head's key, and of its value */
        bool interleaved;
        double length, theta;
        double scaling[4]; /* as rope's */
        int64_t moved[2];
};
void kernels_latent_qkv(struct device *, const struct latent *, void *qkv, const void *q, const void *kv,
                        const void *shared, int64_t B, int64_t T);
void kernels_latent_qkv_backward(struct device *, const struct latent *, void *dq, void *dkv, void *dshared,
                                 const void *dqkv, int64_t B, int64_t T);

void kernels_swiglu(struct device *, void *y, const void *gu, int64_t m, int64_t n);
void kernels_swiglu_backward(struct device *, void *dgu, const void *dy, const void *gu, int64_t m,
                             int64_t n);

void kernels_squared_relu(struct device *, void *y, const void *h, int64_t m, int64_t n);
void kernels_squared_relu_backward(struct device *, void *dh, const void *h, int64_t m, int64_t n);

/* Mixture of experts: N tokens with K of E experts each, which have N K rows; `real` and int32 as there. */
struct routing {
        int64_t N, E, K;
        bool logistic, normalised;
        double factor, balance;
        int64_t groups, chosen_groups;
        bool best_of_group; /* groups are chosen by their largest number; else by their two largest */
};
void kernels_route(struct device *, const struct routing *, real *weights, int32_t *place, int32_t *source,
                   int32_t *ends, const void *logits, const void *correction);
void kernels_route_backward(struct device *, const struct routing *, void *dlogits, const real *dweights,
                            const real *weights, const int32_t *place, const int32_t *ends,
                            const void *logits);
void kernels_permute(struct device *, void *y, const void *x, const int32_t *source, int64_t N, int64_t K,
                     int64_t n);
void kernels_unpermute(struct device *, void *y, const void *x, const int32_t *place, int64_t N, int64_t K,
                       int64_t n, bool accumulate);
/* Each expert's product, as struct matmul; `each`: elements from one expert's matrix to the next's. */
struct grouped {
        int64_t m, n, k, lda, ldb, ldc, each;
        int experts;
        bool transpose_b;
};
void kernels_grouped_matmul(struct device *, const struct grouped *, const void *a, const void *b, void *c,
                            const int32_t *ends);
void kernels_grouped_matmul_backward(struct device *, const struct grouped *, const void *a, const void *b,
                                     void *c, const int32_t *ends);
void kernels_weighted_swiglu(struct device *, void *y, const void *gu, const real *w, int64_t m, int64_t n);
/* Of as many rows as the last of `experts` ends says, where a plan expects m. */
void kernels_weighted_swiglu_of(struct device *, void *y, const void *gu, const real *w, const int32_t *ends,
                                int experts, int64_t m, int64_t n);
/* The ends of `own` experts from `first` on, of the rows of `ranks` ranks, each of `experts` experts. */
void kernels_expert_ends(struct device *, int32_t *ends, const int32_t *all_ends, int own, int ranks,
                         int first, int experts);
void kernels_weighted_swiglu_backward(struct device *, void *dgu, real *dw, const void *dy, const void *gu,
                                      const real *w, int64_t m, int64_t n);
void kernels_weighted_swiglu_backward_of(struct device *, void *dgu, real *dw, const void *dy, const void *gu,
                                         const real *w, const int32_t *ends, int experts, int64_t m,
                                         int64_t n);

void kernels_softmax(struct device *, void *s, int64_t batch, int64_t T, double scale);
void kernels_softmax_backward(struct device *, void *dp, const void *p, int64_t batch, int64_t T,
                              double scale);

void kernels_matmul_bias(struct device *, void *y, const void *x, const void *w, const void *b, int64_t m,
                         int64_t n, int64_t k);
void kernels_matmul_bias_gelu(struct device *, void *g, void *h, const void *x, const void *w, const void *b,
                              int64_t m, int64_t n, int64_t k);
void kernels_matmul_bias_residual(struct device *, void *y, const void *x, const void *w, const void *b,
                                  const void *r, int64_t m, int64_t n, int64_t k);
void kernels_matmul_bias_residual_layernorm(struct device *, void *y, void *ln, real *stats, const void *x,
                                            const void *w, const void *b, const void *r, const void *ln_w,
                                            const void *ln_b, int64_t m, int64_t n, int64_t k);
void kernels_matmul_gelu_backward(struct device *, void *dh, const void *dy, const void *w, const void *h,
                                  int64_t m, int64_t n, int64_t k);

void kernels_attention(struct device *, void *y, real *lse, const void *qkv, int64_t B, int64_t T, int64_t H,
                       int64_t KV, int64_t hs, double scale);
void kernels_attention_backward(struct device *, void *dqkv, real *rows, const void *dy, const void *y,
                                const real *lse, const void *qkv, int64_t B, int64_t T, int64_t H, int64_t KV,
                                int64_t hs, double scale);

/* Of `rank` of `ranks` whose two pieces of every sequence have T rows together, with the keys of the rank
 * that is `distance` before it. */
struct context_place {
        int ranks, rank, distance;
};
void kernels_context_attention(struct device *, const struct context_place *, void *y, real *lse,
                               const void *qkv, const void *kv, int64_t B, int64_t T, int64_t H, int64_t KV,
                               int64_t hs, double scale);
void kernels_context_attention_backward(struct device *, const struct context_place *, void *dqkv, void *dkv,
                                        const real *rows, const void *dy, const real *lse, const void *qkv,
                                        const void *kv, int64_t B, int64_t T, int64_t H, int64_t KV,
                                        int64_t hs, double scale);
void kernels_last_columns(struct device *, void *y, const void *x, int64_t m, int64_t n, int64_t k);
void kernels_set_last_columns(struct device *, void *x, const void *y, int64_t m, int64_t n, int64_t k);

void kernels_cross_entropy(struct device *, double *loss, void *logits, const int32_t *targets, int64_t N,
                           int64_t V, int64_t apart, double scale, bool loss_only);

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

#endif
