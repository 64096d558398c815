/* Layers -> pipeline stages, and the parameter tensors of a stage in the order they lie in memory. */
#ifndef RANVIER_MODELS_PARTITION_H
#define RANVIER_MODELS_PARTITION_H

#include "models/gpt.h"

struct stage {
        int index, stages;
        int first_layer, layers; /* transformer blocks [first_layer, first_layer + layers) */
        bool first, last;        /* first: embeddings; last: final LayerNorm, output projection, loss */
};

/* The contiguous split: n_layer / stages blocks each, the remainder one each to the earliest stages (the last
 * stage already carries the output projection). Needs 1 <= stages <= n_layer. */
struct stage partition_stage(const struct gpt *gpt, int stages, int index);

enum tensor_init { INIT_NORMAL, INIT_NORMAL_RESIDUAL, INIT_ZERO, INIT_ONE };

struct tensor {
        char name[64];    /* nanoGPT's: transformer.h.3.attn.c_attn.weight ... lm_head.weight */
        int rows, cols;   /* a matrix is (out, in); a vector is (1, n) */
        int64_t offset;   /* first element in the stage's flat parameter buffer */
        int64_t elements; /* rows x cols */
        bool decay;       /* AdamW weight decay: matrices yes, biases and LayerNorm no */
        enum tensor_init init;
        uint32_t id; /* the same on every layout: seeds the initial values */
};

enum tensor_role { /* a block's tensors follow each other in this order */
                   BLOCK_LN1_W,
                   BLOCK_LN1_B,
                   BLOCK_QKV_W,
                   BLOCK_QKV_B,
                   BLOCK_PROJ_W,
                   BLOCK_PROJ_B,
                   BLOCK_LN2_W,
                   BLOCK_LN2_B,
                   BLOCK_FC_W,
                   BLOCK_FC_B,
                   BLOCK_FCPROJ_W,
                   BLOCK_FCPROJ_B,
                   BLOCK_TENSORS
};

/* The tensors of a stage: [wte, wpe if first], blocks, [ln_f w, ln_f b, head if last]. With a tied embedding
 * and more than one stage the last stage's head is its own copy of wte (same name and id, kept equal by
 * summing the two gradients); with one stage there is only one. Returns how many; `out` may be NULL to count.
 */
int partition_tensors(const struct gpt *gpt, const struct stage *stage, struct tensor *out);

/* Elements of the stage's flat parameter buffer. */
int64_t partition_parameters(const struct gpt *gpt, const struct stage *stage);

/* Index of a tensor in that list; -1 where the stage has none. */
int partition_block_tensor(const struct stage *stage, int block,
                           enum tensor_role role); /* block from 0 here */
int partition_wte(const struct stage *stage);
int partition_wpe(const struct stage *stage);
int partition_lnf_weight(const struct stage *stage);                  /* its bias is the next */
int partition_head(const struct gpt *gpt, const struct stage *stage); /* == wte if tied and one stage */

#endif
