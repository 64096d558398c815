/* Where things lie: a slot's stored activations, and the parameters and gradients of a block. Private to nn.
 */
#ifndef RANVIER_RUNTIME_NN_SLOT_H
#define RANVIER_RUNTIME_NN_SLOT_H

#include "runtime/nn/nn.h"

/* Stored activations of one block. N = B T rows. */
struct block_slot {
        real *stats1, *ln1; /* (2,N), (N,C) */
        real *qkv;          /* (N,3C), with bias */
        real *attention;    /* (B,H,T,T): softmax */
        real *atty;         /* (N,C): values weighted by attention */
        real *residual1;    /* (N,C) */
        real *stats2, *ln2; /* (2,N), (N,C) */
        real *fc, *gelu;    /* (N,4C) with bias, and its GELU */
        real *residual2;    /* (N,C): the block's output */
};
struct block_slot slot_block(const struct nn_stage *nn, int slot, int block);

real *slot_embedded(const struct nn_stage *nn, int slot); /* first stage: (N,C) */

/* Input of `block`: the output of the one before it, the embedding, or the received input buffer `input`. */
const real *slot_block_input(const struct nn_stage *nn, int slot, int block, int input);

/* Stored by the last stage. */
struct final_slot {
        real *stats, *ln; /* (2,N), (N,C) */
        real *logits;     /* (N,V) */
};
struct final_slot slot_final(const struct nn_stage *nn, int slot);

/* A tensor's elements in the flat buffer `flat` (weights or gradients). */
real *slot_tensor(const struct nn_stage *nn, real *flat, int tensor);
real *slot_block_tensor(const struct nn_stage *nn, real *flat, int block, enum tensor_role role);

/* Sizes that every kernel is launched with. */
struct nn_shape {
        int64_t B, T, N, C, V, H, hs;
        double scale; /* of attention scores: 1 / sqrt(hs) */
};
struct nn_shape slot_shape(const struct nn_stage *nn);

#endif
