/* Where things lie: a slot's stored activations, and the parameters and gradients of a block. Private to nn.
 */
#ifndef RANVIER_RUNTIME_NN_SLOT_H
#define RANVIER_RUNTIME_NN_SLOT_H

#include "runtime/nn/nn.h"

/* Activations of one block. N = B T rows (of a shard see memory.h). All are the slot's own, or, recomputed,
 * only residual2 is (full, layer), or all but attention (selective): the others lie in the stage's work_block
 * until the next block runs. */
struct block_slot {
        real *stats1, *stats2; /* (2,N) */
        void *ln1;             /* (N,C) */
        void *qkv;             /* (N,3C), with bias */
        void *attention;       /* (B,H,T,T): softmax; fused: real (B,H,T), see kernels_attention */
        void *atty;            /* (N,C): values weighted by attention */
        void *residual1;       /* (N,C) */
        void *ln2;             /* (N,C) */
        void *fc, *gelu;       /* (N,4C) with bias, and its GELU */
        void *residual2;       /* (N,C): the block's output */
};
/* `block`: of the stage's, which a slot has those of one chunk of. */
struct block_slot slot_block(const struct nn_stage *nn, int slot, int block);

/* Blocks of a chunk: the stage's, if it has one. */
int slot_chunk_layers(const struct nn_stage *nn);

void *slot_embedded(const struct nn_stage *nn, int slot); /* first stage: (N,C) */

/* Input of `block`: the output of the one before it, the embedding, or the received input buffer `input`. */
void *slot_block_input(const struct nn_stage *nn, int slot, int block, int input);

/* Stored by the last stage. */
struct final_slot {
        real *stats;  /* (2,N) */
        void *ln;     /* (N,C) */
        void *logits; /* (N,V), or, not a slot's own but the stage's, of one chunk of rows (L,V) */
};
struct final_slot slot_final(const struct nn_stage *nn, int slot);

/* A tensor's elements in the flat buffer `flat` (weights or gradients). */
void *slot_tensor(const struct nn_stage *nn, void *flat, int tensor);
void *slot_block_tensor(const struct nn_stage *nn, void *flat, int block, enum tensor_role role);

/* What the first part of a backward leaves of a block: the gradients of its products' outputs. The last
 * block's `output` came as a message, so it is not copied but takes the place of a buffer of its size: where
 * it lies is nn->deferred_tops'. */
struct deferred_block {
        void *output;   /* (N,C): of the block, and so of the MLP's second product */
        void *fc;       /* (N,4C) */
        void *residual; /* (N,C): of residual1, and so of attention's projection */
        void *qkv;      /* (N,3C) */
};
struct deferred_block slot_deferred(const struct nn_stage *nn, int deferred, int block);
void *slot_deferred_embedded(const struct nn_stage *nn, int deferred); /* first stage: (N,C) */

/* Sizes that every kernel is launched with. */
struct nn_shape {
        int64_t B, T, N, C, V, H, hs; /* of a shard: its heads, and its part of the vocabulary, padded */
        int64_t L;                    /* rows of one chunk of the loss: workload_loss_rows, or N */
        int64_t R; /* rows that a shard has of what is not split: N, or, sequence parallel, a part of them */
        int64_t S, F; /* columns that it has of the C inside attention and of the 4 C inside the MLP */
        double scale; /* of attention scores: 1 / sqrt(hs) */
};
struct nn_shape slot_shape(const struct nn_stage *nn);

/* Rows of the chunk of the loss that begins at row `first`. */
static inline int64_t slot_chunk_rows(const struct nn_shape *s, int64_t first)
{
        return s->L < s->N - first ? s->L : s->N - first;
}

/* A block's forward from its input x (N,C) into `b`, to its output or, for a backward pass that has no use
 * for that, to what its last product works on (forward.c). */
void block_forward(const struct nn_stage *nn, int block, const void *x, const struct block_slot *b,
                   const struct nn_shape *s, bool output);

/* How many things the shards do together in it. */
int block_together(const struct nn_stage *nn, bool output);

/* Logits of `rows` rows from `first` on, and their loss (forward.c). */
void rows_loss(const struct nn_stage *nn, int micro_batch, const struct final_slot *f,
               const struct nn_shape *s, int64_t first, int64_t rows, bool loss_only);

/* b->attention (B,H,T,T) = softmax(Q K^T / sqrt(hs)) of b->qkv, which is a part of that. */
void attention_scores(const struct nn_stage *nn, const struct block_slot *b, const struct nn_shape *s);

/* What is launched between them may be handed to the device together. */
static inline void group_begin(struct device *device)
{
        if (device->ops->begin_group)
                device->ops->begin_group(device);
}
static inline void group_end(struct device *device)
{
        if (device->ops->end_group)
                device->ops->end_group(device);
}

#endif
