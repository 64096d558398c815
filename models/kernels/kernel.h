/* A kernel: the unit of work that a device launches, a profile prices and a recorder sees. What is known of
 * each kind is one row of a table, its descriptor (kinds.c): its operands, its floating-point operations, how
 * it may be split. Bytes, conversions of 16-bit operands, splits over threads and whether a launch may be
 * captured follow from that row; what a device adds is the implementation. */
#ifndef RANVIER_MODELS_KERNELS_KERNEL_H
#define RANVIER_MODELS_KERNELS_KERNEL_H

#include "runtime/base/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* N = B T rows (tokens of a micro-batch). Dimensions m, n, k (and batch) are given for each. */
enum kernel_kind {
        KERNEL_MATMUL,    /* C (m,n) = op(A) op(B), inner k; batch of them (attention) if batch > 1 */
        KERNEL_EMBEDDING, /* x (m=N, n=C) = wte[token] + wpe[position] */
        KERNEL_EMBEDDING_BACKWARD, /* adds into dwte, dwpe from dx (m=N, n=C) */
        KERNEL_LAYERNORM,          /* y (m=N, n=C), and mean, rstd (N) */
        KERNEL_LAYERNORM_BACKWARD, /* dx (m=N, n=C) is added to (accumulate) or written; adds into dw, db */
        KERNEL_BIAS,               /* y (m,n) += b */
        KERNEL_BIAS_BACKWARD,      /* db (n) += column sums of dy (m,n) */
        KERNEL_BIAS_GELU,          /* h (m,n) += b in place; g (m,n) = gelu_tanh(h) */
        KERNEL_GELU_BACKWARD,      /* dh (m,n) = dg gelu'(h), in place */
        KERNEL_BIAS_RESIDUAL,      /* y (m,n) += b + x */
        KERNEL_RESIDUAL,           /* y (m,n) += x */
        KERNEL_RMSNORM,            /* y (m=N, n=C), and rstd (N) */
        KERNEL_RMSNORM_BACKWARD,   /* dx (m=N, n=C) is added to (accumulate) or written; adds into dw */
        KERNEL_ROPE,               /* rotary positions of x (m=N, n), heads of k columns, in place; or back */
        KERNEL_SWIGLU,             /* y (m,n) = silu(gate) up, of rows of n gates, then n ups */
        KERNEL_SWIGLU_BACKWARD,    /* those rows' gradients, from dy (m,n) and them */
        KERNEL_SOFTMAX,            /* batch x (m=T, n=T) causal softmax of scale x scores, in place */
        KERNEL_SOFTMAX_BACKWARD,   /* dS from P and dP, in place, scale included */
        KERNEL_CROSS_ENTROPY,      /* logits (m=N, n=V): loss, and dlogits in their place */
        KERNEL_CROSS_ENTROPY_LOSS, /* the loss alone (validation) */
        KERNEL_SQUARED_NORM,       /* sum of squares of m elements */
        KERNEL_ADAMW,    /* AdamW over m parameters. Leaves their gradients zero; in mixed precision these are
                            fp32 copies (KERNEL_UNSCALE) and are left alone, and the 16-bit weights are written
                          */
        KERNEL_OVERFLOW, /* 16 bits: whether one of m gradients is beyond a limit, infinite or not a number */
        KERNEL_UNSCALE,  /* 16 bits: m gradients to fp32, times a scale; leaves the 16-bit ones zero */
        KERNEL_CLEAR, /* m gradients become zero (16 bits: a step that is skipped; zero: after every step) */
        /* Fused: what an elementwise kernel, or three kernels and a (T,T) matrix, would do beside a product.
         */
        KERNEL_MATMUL_BIAS,                    /* y (m,n) = x w^T + b, inner k */
        KERNEL_MATMUL_BIAS_GELU,               /* h (m,n) = x w^T + b; g (m,n) = gelu_tanh(h) */
        KERNEL_MATMUL_BIAS_RESIDUAL,           /* y (m,n) = x w^T + b + r */
        KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM, /* that, and LayerNorm of y (m,n), with mean, rstd (m) */
        KERNEL_MATMUL_GELU_BACKWARD,           /* dh (m,n) = (dy w) gelu'(h) */
        KERNEL_ATTENTION, /* causal attention: batch (sequences x query heads) of m = n = T, k = head size */
        KERNEL_ATTENTION_BACKWARD,
        KERNEL_KINDS,
        /* No kernels, but entries of a shard's list all the same, where they run: the collectives of a
         * stage's shards on an (m,n) matrix of tokens, m of all shards together. */
        KERNEL_TENSOR_ALLREDUCE = KERNEL_KINDS, /* the sum of all shards' matrices, to all */
        KERNEL_TENSOR_ALL_GATHER,               /* each shard has m / shards rows; all rows, to all */
        KERNEL_TENSOR_REDUCE_SCATTER,           /* of the sum, m / shards rows to each */
        KERNEL_ENTRIES
};

enum kernel_part { PART_INPUT = 1, PART_WEIGHT = 2, PART_BOTH = 3 }; /* of a backward pass: dx or dW, db */

struct kernel {
        enum kernel_kind kind;
        unsigned char transpose_a, transpose_b; /* matmul: op() is a transpose */
        unsigned char accumulate;               /* adds to its output instead of writing it */
        unsigned char part;                     /* backward kernels: enum kernel_part; else 0 */
        unsigned char dtype;                    /* enum dtype: what tensors are stored as */
        unsigned char group;                    /* attention: heads of queries to one of keys; 0 is 1 */
        int64_t batch, m, n, k;                 /* unused ones: batch 1, others 0 */
};

/* ---- what is known of a kind ---- */

enum operand_type {
        OPERAND_STORED, /* a tensor: elements are what kernel.dtype says */
        OPERAND_REAL,   /* fp32 whatever the tensors are (the double build's double) */
        OPERAND_TOKENS, /* int32, of one micro-batch: another launch has others */
        OPERAND_NUMBER, /* a double, in memory that host and device both reach */
        OPERAND_HOST    /* read by the host when it launches */
};

/* Elements of an operand, of each of a batch. */
enum operand_extent {
        EXTENT_ONE,   /* a number, or an operand with a layout of its own: its bytes are not counted */
        EXTENT_M,     /* one a row; of kernels on flat arrays the array */
        EXTENT_2M,    /* two a row: means, and, ld[0] behind them, reciprocal standard deviations */
        EXTENT_N,     /* a row, the same for all rows */
        EXTENT_MN,    /* rows: the output of a product, and what lies as it does */
        EXTENT_M2N,   /* rows twice as wide: gates, then what they are for */
        EXTENT_MK,    /* the left operand of a product */
        EXTENT_KN,    /* the right one */
        EXTENT_QKV,   /* attention's queries, and keys and values that a group of heads shares */
        EXTENT_TABLE, /* (m,n) elements, in rows of a table that tokens choose */
        EXTENTS
};

enum operand_when { WHEN_NEVER, WHEN_ALWAYS, WHEN_ACCUMULATING, WHEN_MIXED, WHEN_FP32 };

struct kernel_operand {
        const char *name; /* as runtime/device/kernels.h calls it */
        enum operand_type type;
        enum operand_extent extent;
        enum operand_when reads, writes;
};

/* What parts a kernel can be run in, each by itself. */
enum kernel_split {
        SPLIT_NONE,
        SPLIT_ROWS,       /* of batch x m: what is written has rows, or is a sum over them */
        SPLIT_BLOCKS,     /* of a product's output: rows and columns; of a batch of them, matrices */
        SPLIT_WHOLE_ROWS, /* of a product's output: rows alone */
        SPLIT_HEADS,      /* of the batch */
        SPLIT_ELEMENTS    /* of flat arrays */
};

/* How the parts' results of a kernel on flat arrays, whose first operand is a number, become one. */
enum kernel_result { RESULT_NONE, RESULT_SUM, RESULT_ANY };

enum { KERNEL_OPERANDS = 9, KERNEL_PARTS = 2 };

struct kernel_descriptor {
        const char *name; /* "matmul", "layernorm_backward", ... */
        struct kernel_operand
                operands[KERNEL_OPERANDS]; /* in the order of kernel_args.p; name NULL: no more */
        /* Floating-point operations an element of (m,n), or of m where n is 0: 2 k a product, and these. */
        int products, flops, accumulate_flops;
        bool causal; /* only elements on and below the diagonal of (m,n) are computed, and read */
        enum kernel_split split;
        enum kernel_result result;
        bool fused; /* one of the fused vocabulary: what a plan has where work.fused, and no other plan */
        bool only_mixed; /* launched on 16-bit tensors alone */
        int parts;       /* kernels that do its work one after the other; 0: it is not made of others */
        enum kernel_kind part[KERNEL_PARTS];
};
const struct kernel_descriptor *kernel_descriptor(enum kernel_kind kind);

/* Whether a launch of `kernel` reads, or writes, an operand of its kind. */
bool operand_read(const struct kernel_operand *operand, const struct kernel *kernel);
bool operand_written(const struct kernel_operand *operand, const struct kernel *kernel);

/* A tensor of rows (m,n) or (m,2n); a vector that every row reads; one that every row adds to. */
static inline bool operand_has_rows(const struct kernel_operand *operand)
{
        return operand->type == OPERAND_STORED &&
               (operand->extent == EXTENT_MN || operand->extent == EXTENT_M2N);
}
static inline bool operand_is_vector(const struct kernel_operand *operand)
{
        return operand->extent == EXTENT_N;
}
static inline bool operand_is_summed(const struct kernel_operand *operand)
{
        return operand->extent == EXTENT_N && operand->writes != WHEN_NEVER;
}

/* Elements from a row of an operand to the next; 0: it has no rows. */
static inline int64_t operand_row_elements(const struct kernel_operand *operand, const struct kernel *kernel)
{
        switch (operand->extent) {
        case EXTENT_M:
        case EXTENT_2M:
                return 1;
        case EXTENT_MN:
                return kernel->n;
        case EXTENT_M2N:
                return 2 * kernel->n;
        default:
                return 0;
        }
}

/* Whether a kernel is launched with the same operands batch after batch, and reads nothing of the host when
 * it is launched: then a launch may be captured, and run again. */
bool kernel_repeats(enum kernel_kind kind);

/* The kernels that do a fused one's work one after the other, for a device that has no better way and a
 * profile that has not measured it: of KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM the product, with bias and
 * residual, and the LayerNorm. Returns how many; 0: it is not made of others. */
int kernel_parts(const struct kernel *kernel, struct kernel parts[KERNEL_PARTS]);

/* A collective of shards: nothing that a device runs. */
static inline bool kernel_collective(enum kernel_kind kind)
{
        return kind >= KERNEL_KINDS;
}
/* Bytes of the whole matrix that a collective is about. `real_bytes`: of an element that is never stored in
 * 16 bits, 4 (8 in the double build). */
int64_t kernel_collective_bytes(const struct kernel *kernel, int real_bytes);

const char *kernel_name(enum kernel_kind kind);
int kernel_kind_of(const char *name);                             /* -1 if there is none */
bool kernel_same(const struct kernel *a, const struct kernel *b); /* same work; `part` is ignored */

/* How many heads of queries share one of keys and values (Ainslie et al. 2023); 1: each has its own. */
static inline int kernel_group(const struct kernel *kernel)
{
        return kernel->group > 1 ? kernel->group : 1;
}

/* Floating-point operations, and bytes read and written once each: dtype_bytes() an element; what is fp32
 * in either (LayerNorm's statistics, master parameters, moments) counts as 4. */
double kernel_flops(const struct kernel *kernel);
double kernel_bytes(const struct kernel *kernel);

#endif
