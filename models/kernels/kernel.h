/* Kernels: the units of work that a device launches, a profile prices and a recorder sees.
 *
 * What is known of a kind of kernel is one row of a table in kinds.c, its descriptor: its operands, its
 * floating-point operations, how it may be split. From that row follow the bytes that it moves, which
 * operands are converted from and to 16 bits, how it is split over threads, and whether a launch may be
 * captured. What a kind computes is said in runtime/device/kernels.h, and a device adds the implementation.
 * A struct kernel is one launch's kind and shape, without addresses: the unit that prices and lists of work
 * are made of. */
#ifndef RANVIER_MODELS_KERNELS_KERNEL_H
#define RANVIER_MODELS_KERNELS_KERNEL_H

#include "runtime/base/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* The kinds, each with what its dimensions m, n, k (and batch) mean. N is the number of rows, B x T tokens
 * of a micro-batch; C is the width of an activation. */
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
        KERNEL_HEAD_RMSNORM, /* y (m=N, n): x's first heads of k columns normalised, the others copied; rstd
                              */
        KERNEL_HEAD_RMSNORM_BACKWARD, /* dx (m=N, n) of dy, in place; adds into dw */
        KERNEL_SPLIT_COLUMNS, /* a (m,n) and b (m,k): the first and the last columns of x (m, n + k) */
        KERNEL_JOIN_COLUMNS,  /* x (m, n + k) = a (m,n) beside b (m,k) */
        KERNEL_LATENT_QKV, /* queries, keys, values (m=N, 3 n) of q (m,n), kv (m,l), a key's columns (m,k) */
        KERNEL_LATENT_QKV_BACKWARD,   /* the gradients of those three */
        KERNEL_NARROW,                /* y (m,n) = the first columns of x (m,k) */
        KERNEL_WIDEN,                 /* x (m,k) = y (m,n), and zeros behind its columns */
        KERNEL_SWIGLU,                /* y (m,n) = silu(gate) up, of rows of n gates, then n ups */
        KERNEL_SWIGLU_BACKWARD,       /* those rows' gradients, from dy (m,n) and them */
        KERNEL_SQUARED_RELU,          /* y (m,n) = max(h, 0)^2 */
        KERNEL_SQUARED_RELU_BACKWARD, /* dh (m,n) = dy 2 max(h, 0), in place */
        /* Mixture of experts, with K = k experts for each of N tokens. Rows are then of tokens once for each
         * of their experts, those of the first expert first: N K rows, sorted by expert. */
        KERNEL_ROUTE,                    /* from logits (m=N, n=experts): experts, their weights, the order */
        KERNEL_ROUTE_BACKWARD,           /* dlogits (m=N, n=experts) from the weights' gradients */
        KERNEL_PERMUTE,                  /* y (m = N K, n) = the tokens' rows x (N, n), sorted */
        KERNEL_UNPERMUTE,                /* y (m=N, n) = the sum of each token's k sorted rows, or y += it */
        KERNEL_GROUPED_MATMUL,           /* C (m,n) = A op(B), inner k; each expert's rows with its own B */
        KERNEL_GROUPED_MATMUL_BACKWARD,  /* each expert's dB (m,n) += A^T B over its own of k rows */
        KERNEL_EXPERT_ENDS,              /* where the rows of each of m own experts end, of k ranks' rows */
        KERNEL_WEIGHTED_SWIGLU,          /* SwiGLU, times a weight for each of m rows */
        KERNEL_WEIGHTED_SWIGLU_BACKWARD, /* the gradients of those rows (m, 2 n), and of the weights (m) */
        KERNEL_SOFTMAX,                  /* batch x (m=T, n=T) causal softmax of scale x scores, in place */
        KERNEL_SOFTMAX_BACKWARD,         /* dS from P and dP, in place, scale included */
        KERNEL_CROSS_ENTROPY,            /* logits (m=N, n=V): loss, and dlogits in their place */
        KERNEL_CROSS_ENTROPY_LOSS,       /* the loss alone (validation) */
        KERNEL_SQUARED_NORM,             /* sum of squares of m elements */
        /* AdamW over m parameters. It leaves their gradients zero. In mixed precision the gradients are fp32
         * copies that KERNEL_UNSCALE made; they are left alone, and the 16-bit weights are written. */
        KERNEL_ADAMW,
        /* Only 16 bits: whether one of m gradients is beyond a limit, infinite or not a number. */
        KERNEL_OVERFLOW,
        /* Only 16 bits: m gradients to fp32, times a scale; it leaves the 16-bit ones zero. */
        KERNEL_UNSCALE,
        /* m gradients become zero: after a step that is skipped because of an overflow, and with --zero 1
         * after every step. */
        KERNEL_CLEAR,
        /* Fused kernels: a product with the elementwise kernel behind it, and attention as one kernel
         * instead of three and a (T,T) matrix. */
        KERNEL_MATMUL_BIAS,                    /* y (m,n) = x w^T + b, inner k */
        KERNEL_MATMUL_BIAS_GELU,               /* h (m,n) = x w^T + b; g (m,n) = gelu_tanh(h) */
        KERNEL_MATMUL_BIAS_RESIDUAL,           /* y (m,n) = x w^T + b + r */
        KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM, /* that, and LayerNorm of y (m,n), with mean, rstd (m) */
        KERNEL_MATMUL_GELU_BACKWARD,           /* dh (m,n) = (dy w) gelu'(h) */
        KERNEL_ATTENTION, /* causal attention: batch (sequences x query heads) of m = n = T, k = head size */
        KERNEL_ATTENTION_BACKWARD,
        /* Where ranks have parts of every sequence (context parallelism): attention to the keys of another
         * rank, half of which half of the queries see, each in its order, and its backward. Shapes are
         * attention's. */
        KERNEL_CONTEXT_ATTENTION,
        KERNEL_CONTEXT_ATTENTION_BACKWARD,
        KERNEL_LAST_COLUMNS,     /* y (m,n): the last columns of rows of k */
        KERNEL_SET_LAST_COLUMNS, /* and back: those become y */
        /* Of products with a format of their own (struct kernel, `format`). No device has these yet. */
        KERNEL_QUANTIZE,            /* x (m,n) in the format, its transpose, or (transpose_b) both */
        KERNEL_MAXIMUM,             /* the largest magnitude of x (m,n), by which that is scaled */
        KERNEL_TRANSPOSE_QUANTIZED, /* the transpose of x (m,n), both in the format */
        KERNEL_KINDS,
        /* No kernels, but entries of a shard's list of work where they run: the collectives of a stage's
         * shards on an (m,n) matrix of tokens, m being the rows of all shards together. */
        KERNEL_TENSOR_ALLREDUCE = KERNEL_KINDS, /* the sum of all shards' matrices, to all */
        KERNEL_TENSOR_ALL_GATHER,               /* each shard has m / shards rows; all rows, to all */
        KERNEL_TENSOR_REDUCE_SCATTER,           /* of the sum, m / shards rows to each */
        /* Those of a grid of shards: of the shards along x, and along z on an (m,n) matrix of weights, of
         * which each has an even share. */
        KERNEL_TENSOR_X_ALLREDUCE,
        KERNEL_TENSOR_Z_ALL_GATHER,
        KERNEL_TENSOR_Z_REDUCE_SCATTER,
        /* No collective: what follows waits for those along z that run beside, see `left`. */
        KERNEL_TENSOR_Z_JOIN,
        /* Collectives of the ranks over which a layer's experts are spread. m rows are those of balanced
         * experts. */
        KERNEL_EXPERT_COUNTS,   /* where each of n experts' rows end, of m ranks' tokens, to all */
        KERNEL_EXPERT_DISPATCH, /* rows (m,n) of this rank's tokens to the ranks of their experts */
        KERNEL_EXPERT_COMBINE,  /* rows (m,n) of this rank's experts back to the ranks of their tokens */
        /* (of both: k = K rows a token has, if a token goes to each node and rank once; 0: each row goes) */
        /* No collective: what follows waits for one that runs beside the steps before. */
        KERNEL_JOIN,
        /* Collectives of the ranks that have parts of the same sequences. m rows to the next rank, from the
         * one before; of the others m are the rows of all ranks. */
        KERNEL_CONTEXT_SHIFT,
        KERNEL_CONTEXT_ALL_GATHER,     /* each rank has m / ranks rows; all rows, to all */
        KERNEL_CONTEXT_REDUCE_SCATTER, /* of the sum, m / ranks rows to each */
        KERNEL_ENTRIES
};

/* What a kernel of a backward pass makes: the gradient of the input (dx), those of weights and biases (dW,
 * db), or both. The values are bits. */
enum kernel_part { PART_INPUT = 1, PART_WEIGHT = 2, PART_BOTH = 3 };

/* One launch: a kind and its shape. */
struct kernel {
        enum kernel_kind kind;
        /* Of a product: whether op(A), op(B) is a transpose. */
        unsigned char transpose_a, transpose_b;
        /* It adds to its output instead of writing it. */
        unsigned char accumulate;
        /* Of a kernel of a backward: enum kernel_part; else 0. */
        unsigned char part;
        /* What tensors are stored as: enum dtype. */
        unsigned char dtype;
        /* enum product_format: of a product, what its two operands are read in; of what quantizes, what it
         * writes; of a collective, what moves. FORMAT_STORED: what tensors are stored as. */
        unsigned char format;
        /* Tensors have 16 bits, but the gradients of parameters that it adds to, or updates by, are fp32. */
        unsigned char wide;
        /* Of a collective: it runs beside the kernels up to the next entry that is one, or joins. One along z
         * is not awaited by the others: kernels behind it, or behind KERNEL_TENSOR_Z_JOIN, wait until no more
         * than `left` of those along z, this one with them, are under way. */
        unsigned char beside, left;
        /* Of attention: how many heads of queries share one of keys and values; 0 stands for 1. */
        unsigned char group;
        /* Of grouped products: the number of experts over which the rows are spread. */
        short experts;
        /* Dimensions that a kind does not use are 0, an unused batch is 1. */
        int64_t batch, m, n, k, l;
};

/* ---- what is known of a kind ---- */

enum operand_type {
        OPERAND_STORED,    /* a tensor: its elements are of the format that kernel.dtype says */
        OPERAND_REAL,      /* fp32 whatever the format of tensors is (double in the double build) */
        OPERAND_QUANTIZED, /* a tensor in kernel.format */
        OPERAND_TOKENS,    /* int32, of one micro-batch: the next launch has others */
        OPERAND_INDEX,     /* int32, which a kernel wrote: rows, or where those of an expert end */
        OPERAND_NUMBER,    /* a double, in memory that host and device both reach */
        OPERAND_HOST       /* an array that the host reads when it launches */
};

/* How many elements an operand has, for each matrix of a batch. */
enum operand_extent {
        EXTENT_ONE, /* a number, or an operand with a layout of its own: its bytes are not counted */
        EXTENT_M,   /* one element a row; for kernels on flat arrays, the array */
        EXTENT_2M,  /* two elements a row: means, and, ld[0] behind them, reciprocal standard deviations */
        EXTENT_N,   /* one row, which all rows of the others share */
        EXTENT_MN,  /* rows: the output of a product, and tensors that lie as it does */
        EXTENT_M2N, /* rows twice as wide: n gates, then the n values that they multiply */
        EXTENT_MK,  /* the left operand of a product */
        EXTENT_KN,  /* the right operand of a product */
        EXTENT_EMN, /* an (m,n) matrix for each expert */
        EXTENT_EKN, /* the right operand of a product for each expert */
        EXTENT_QKV, /* attention's queries, and the keys and values that a group of heads shares */
        EXTENT_QUERIES, /* of such rows the queries alone */
        EXTENT_KEYS,    /* keys and values alone, in rows of their own */
        EXTENT_HEADS,   /* n / k elements a row, one for each head */
        EXTENT_2K,      /* two heads' columns, which all rows and heads of the others share */
        EXTENT_ROWS_K,  /* rows of k elements */
        EXTENT_ROWS_NK, /* rows of n + k elements */
        EXTENT_ROWS_3N, /* rows of 3 n elements */
        EXTENT_ROWS_L,  /* rows of l elements */
        EXTENT_SHARED,  /* rows of k elements, which all heads of the others share */
        EXTENT_TABLE,   /* (m,n) elements, in rows of a table that tokens or an index choose */
        EXTENT_TABLE_K, /* (m k, n) elements of such a table: k rows for one of m */
        EXTENTS
};

/* Which launches read or write an operand: those whose kernel accumulates, whose tensors have 16 bits
 * (mixed), whose gradients are fp32, or which transpose b. */
enum operand_when { WHEN_NEVER, WHEN_ALWAYS, WHEN_ACCUMULATING, WHEN_MIXED, WHEN_FP32, WHEN_TRANSPOSING };

struct kernel_operand {
        const char *name; /* what runtime/device/kernels.h calls it; NULL: no operand */
        enum operand_type type;
        enum operand_extent extent;
        enum operand_when reads, writes;
};

/* Along what a kernel's work can be divided into parts that run independently, as over threads. */
enum kernel_split {
        SPLIT_NONE,
        SPLIT_ROWS,       /* rows of batch x m: what is written has rows, or is a sum over them */
        SPLIT_BLOCKS,     /* rows and columns of a product's output; of a batch of products, matrices */
        SPLIT_WHOLE_ROWS, /* rows of a product's output, but not its columns */
        SPLIT_EXPERTS,    /* each expert's product like SPLIT_BLOCKS */
        SPLIT_HEADS,      /* entries of the batch */
        SPLIT_ELEMENTS    /* ranges of flat arrays */
};

/* How the parts of a split kernel on flat arrays combine their results into its first operand, a number: by
 * their sum, or by whether any of them is set. */
enum kernel_result { RESULT_NONE, RESULT_SUM, RESULT_ANY };

/* The most operands of a kind, and the most kernels that a fused one consists of. */
enum { KERNEL_OPERANDS = 9, KERNEL_PARTS = 2 };

/* A row of the table of kinds. */
struct kernel_descriptor {
        /* "matmul", "layernorm_backward", ...: the name that profiles have it by. */
        const char *name;
        /* In the order of kernel_args.p; the first one whose name is NULL ends them. */
        struct kernel_operand operands[KERNEL_OPERANDS];
        /* Floating-point operations for an element of (m,n), or of m where n is 0: 2 k for each of
         * `products`, `flops` more, and `accumulate_flops` more where the kernel accumulates. */
        int products, flops, accumulate_flops;
        /* Only the elements on and below the diagonal of (m,n) are computed, and read. */
        bool causal;
        /* Half of the elements of (m,n) are computed. */
        bool half;
        /* Its rows are heads of k columns, one beside the other. */
        bool heads;
        enum kernel_split split;
        enum kernel_result result;
        /* It must know all tokens of a micro-batch, so that shards that have some of them gather them. */
        bool whole_tokens;
        /* A sum of several operands' results is the result of their sum: of parts of a sum it makes parts. */
        bool linear;
        /* It is one of the fused kernels, which plans with work.fused have; a Llama has fused attention in
         * its other plans too. */
        bool fused;
        /* It is launched on 16-bit tensors only. */
        bool only_mixed;
        /* It is predicted, but no device has it. */
        bool only_predicted;
        /* The `parts` kernels that do its work one after the other; 0: it does not consist of others. */
        int parts;
        enum kernel_kind part[KERNEL_PARTS];
};
/* Returns the row of a kind; collectives have one too, with a name and nothing else. */
const struct kernel_descriptor *kernel_descriptor(enum kernel_kind kind);

/* Whether a launch of `kernel` reads, or writes, an operand of its kind. */
bool operand_read(const struct kernel_operand *operand, const struct kernel *kernel);
bool operand_written(const struct kernel_operand *operand, const struct kernel *kernel);
/* Whether a launch has an operand in fp32 that its kind says is a tensor: a gradient, with `wide`. */
bool operand_is_wide(const struct kernel_operand *operand, const struct kernel *kernel);

/* Whether an operand is a tensor of rows, (m,n), (m,2n), or of other widths. */
static inline bool operand_has_rows(const struct kernel_operand *operand)
{
        return operand->type == OPERAND_STORED &&
               (operand->extent == EXTENT_MN || operand->extent == EXTENT_M2N ||
                (operand->extent >= EXTENT_ROWS_K && operand->extent <= EXTENT_SHARED));
}
/* Whether it is a vector, which every row reads or adds to. */
static inline bool operand_is_vector(const struct kernel_operand *operand)
{
        return operand->type == OPERAND_STORED &&
               (operand->extent == EXTENT_N || operand->extent == EXTENT_2K);
}
/* Returns its elements: n, or 2 k, which is no more. */
static inline int64_t operand_vector_elements(const struct kernel_operand *operand,
                                              const struct kernel *kernel)
{
        return operand->extent == EXTENT_2K ? 2 * kernel->k : kernel->n;
}
/* Whether it is such a vector that every row adds to, as the gradient of a bias. */
static inline bool operand_is_summed(const struct kernel_operand *operand)
{
        return operand_is_vector(operand) && operand->writes != WHEN_NEVER;
}

/* Returns the elements from one row of an operand to the next; 0: it has no rows. */
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
        case EXTENT_MK:
                return operand->type == OPERAND_INDEX ? kernel->k : 0;
        case EXTENT_HEADS:
                return kernel->n / kernel->k;
        case EXTENT_ROWS_K:
        case EXTENT_SHARED:
                return kernel->k;
        case EXTENT_ROWS_NK:
                return kernel->n + kernel->k;
        case EXTENT_ROWS_3N:
                return 3 * kernel->n;
        case EXTENT_ROWS_L:
                return kernel->l;
        default:
                return 0;
        }
}

/* Whether kernels of a kind are launched with the same operands batch after batch, and read nothing of the
 * host when they are launched. Such launches may be captured as a graph, which is run again. */
bool kernel_repeats(enum kernel_kind kind);

/* Writes to `parts` the kernels that do a fused one's work one after the other, and returns how many they
 * are; 0: it does not consist of others. A device that has no better way runs these, and a profile in which
 * the fused kernel is not measured prices these: KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM is the product with
 * bias and residual, then the LayerNorm. */
int kernel_parts(const struct kernel *kernel, struct kernel parts[KERNEL_PARTS]);

/* Whether an entry of a list of work is a collective of shards, which no device runs. */
static inline bool kernel_collective(enum kernel_kind kind)
{
        return kind >= KERNEL_KINDS;
}
/* Whether it is one of the shards along x, or along z, of their grid. */
static inline bool kernel_of_shards_x(enum kernel_kind kind)
{
        return kind == KERNEL_TENSOR_X_ALLREDUCE;
}
static inline bool kernel_of_shards_z(enum kernel_kind kind)
{
        return kind >= KERNEL_TENSOR_Z_ALL_GATHER && kind <= KERNEL_TENSOR_Z_JOIN;
}
/* Whether it is none, but a place where kernels wait for those that run beside others. */
static inline bool kernel_joins(enum kernel_kind kind)
{
        return kind == KERNEL_JOIN || kind == KERNEL_TENSOR_Z_JOIN;
}
/* Whether it adds up what all of its ranks have, for all, or brings them all that each has a part of. */
static inline bool kernel_sums(enum kernel_kind kind)
{
        return kind == KERNEL_TENSOR_ALLREDUCE || kind == KERNEL_TENSOR_X_ALLREDUCE;
}
static inline bool kernel_gathers(enum kernel_kind kind)
{
        return kind == KERNEL_TENSOR_ALL_GATHER || kind == KERNEL_TENSOR_Z_ALL_GATHER ||
               kind == KERNEL_CONTEXT_ALL_GATHER;
}
/* Whether it is one of the ranks over which experts are spread. */
static inline bool kernel_of_experts(enum kernel_kind kind)
{
        return kind >= KERNEL_EXPERT_COUNTS && kind <= KERNEL_EXPERT_COMBINE;
}
/* Whether it is a kernel of a mixture's layer, between the router's logits and what comes back. */
static inline bool kernel_of_mixture(enum kernel_kind kind)
{
        return kind >= KERNEL_ROUTE && kind <= KERNEL_WEIGHTED_SWIGLU_BACKWARD;
}
/* Whether it is one of the ranks that have parts of the same sequences. */
static inline bool kernel_of_context(enum kernel_kind kind)
{
        return kind >= KERNEL_CONTEXT_SHIFT;
}
/* Returns the bytes of the whole matrix that a collective of shards is about. `real_bytes` are those of an
 * element that is not stored in 16 bits: 4, or 8 in the double build. */
int64_t kernel_collective_bytes(const struct kernel *kernel, int real_bytes);

/* A kind's name in its descriptor, and the kind of a name: -1 if no kernel has it, and for collectives. */
const char *kernel_name(enum kernel_kind kind);
int kernel_kind_of(const char *name);
/* Whether two kernels do the same work, so that they have one price; `part` is not looked at. */
bool kernel_same(const struct kernel *a, const struct kernel *b);

/* Returns how many heads of queries share one of keys and values (Ainslie et al. 2023); 1: each has its
 * own. */
static inline int kernel_group(const struct kernel *kernel)
{
        return kernel->group > 1 ? kernel->group : 1;
}

/* Return the floating-point operations of a kernel and the bytes that it moves; both are 0 for a collective.
 * A tanh or exp counts as one operation. Bytes count each operand once for reading and once for writing, as
 * if no cache kept anything: dtype_bytes() an element, 4 for what is fp32 in any precision (LayerNorm's
 * statistics, master parameters, moments) and for gradients that are (`wide`), and format_bytes() of what is
 * in a format of its own. */
double kernel_flops(const struct kernel *kernel);
double kernel_bytes(const struct kernel *kernel);

#endif
