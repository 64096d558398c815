/* Bytes of device memory by category: what a stage needs under a plan. The real world measures the same
 * categories at the allocator, and they must agree to the byte. */
#ifndef RANVIER_MODELS_MEMORY_H
#define RANVIER_MODELS_MEMORY_H

#include "models/partition.h"

enum memory_category {
        MEMORY_WEIGHTS,
        MEMORY_GRADIENTS,
        MEMORY_OPTIMIZER,
        MEMORY_ACTIVATIONS,
        MEMORY_MESSAGES,
        MEMORY_WORKSPACE,
        MEMORY_TOKENS,
        MEMORY_CATEGORIES
};
const char *memory_category_name(enum memory_category category); /* "weights", ... */

enum { MEMORY_ALIGNMENT = 64 }; /* every allocation is rounded up to this many bytes */
int64_t memory_aligned(int64_t bytes);

/* The part of a plan that memory depends on. */
struct memory_plan {
        int micro_batch_size, seq_len;
        int micro_batches;    /* of one batch on one pipeline */
        int slots;            /* micro-batches whose activations are stored at once (core_limits) */
        int input_buffers;    /* activations received (0 on the first stage) */
        int gradient_buffers; /* gradients received, transformed in place and sent on */
        int element_bytes;    /* 4: fp32 */
};

/* Byte sizes of the individual buffers, for whoever allocates them: nn uses these, so there is one
 * arithmetic. */
struct memory_layout {
        int64_t block_ln1, block_qkv, block_attention, block_atty, block_residual1, block_ln2, block_fc,
                block_gelu, block_residual2,
                block_stats;                   /* of one block in one slot; stats: mean, rstd of both */
        int64_t embedded;                      /* first stage: x after the embedding, a slot */
        int64_t final_ln, final_stats, logits; /* last stage, a slot */
        int64_t slot;    /* one slot in total: sum of the above over the stage's blocks */
        int64_t message; /* one input or gradient buffer (B,T,C) */
        int64_t work_c, work_4c, work_qkv, work_attention,
                work_scalars; /* backward workspace, once a stage */
        int64_t tokens;       /* each of inputs (first stage) and targets (last): all micro-batches, int32 */
        int64_t parameters;   /* one flat buffer of the stage's parameters */
};
struct memory_layout memory_layout(const struct gpt *gpt, const struct stage *stage,
                                   const struct memory_plan *plan);

/* Whether every count of memory_layout and memory_stage fits 64 bits; for a plan that nobody has checked. */
bool memory_countable(const struct gpt *gpt, const struct memory_plan *plan);

/* Fills bytes[MEMORY_CATEGORIES] and returns their sum. */
int64_t memory_stage(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan,
                     int64_t bytes[MEMORY_CATEGORIES]);

#endif
