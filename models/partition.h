/* Layers -> pipeline stages, and the parameter tensors of a stage in the order they lie in memory. */
#ifndef RANVIER_MODELS_PARTITION_H
#define RANVIER_MODELS_PARTITION_H

#include "models/program.h"

struct stage {
        int index, stages;
        int chunks;              /* 1, or interleaved: of as many parts of the model a rank has one each */
        int first_layer, layers; /* transformer blocks [first_layer, first_layer + layers), of one chunk */
        bool first, last;        /* first: embeddings; last: final LayerNorm, output projection, loss */
        int shards, shard;       /* of its tensors this is one of so many parts; shard 0 of 1: all of them */
};

/* The contiguous split: `last` blocks to the last stage, which carries the output projection too, the others
 * as evenly as can be, the remainder one each to the earliest. Needs 1 <= last <= n_layer - (stages - 1); of
 * one stage `last` is all. */
struct stage partition_split(const struct gpt *gpt, int stages, int last, int index);

/* The same with n_layer / stages blocks on the last. Needs 1 <= stages <= n_layer. */
struct stage partition_stage(const struct gpt *gpt, int stages, int index);

/* A shard of a stage, split as Megatron-LM does (Shoeybi et al. 2019, section 3): of the products that enter
 * attention and the MLP the outputs (rows of weights and biases: a shard has n_head / shards heads), of those
 * that leave them the inputs (columns of weights), of embedding and output projection the vocabulary, padded
 * up to a multiple of `shards`. LayerNorm, the biases behind a sum over shards and positions are replicated.
 * All shards of a stage are of equal sizes. `shards` must divide n_head. */
struct stage partition_shard(const struct stage *stage, int shards, int shard);

/* Rows of the token embedding that a shard has, padding included, and which of them comes first. */
int partition_vocabulary(const struct gpt *gpt, const struct stage *stage);
int partition_first_token(const struct gpt *gpt, const struct stage *stage);

/* Interleaved (Narayanan et al. 2021): the model in stages x chunks equal parts, of which a rank has every
 * stages-th, so its `layers` do not follow each other: see partition_layer. Needs n_layer divisible by stages
 * x chunks; one chunk is partition_stage. */
struct stage partition_interleaved(const struct gpt *gpt, int stages, int chunks, int index);

/* One of its chunks, as the stage of stages x chunks that it is. */
struct stage partition_chunk(const struct stage *stage, int chunk);

/* Which of the model's layers a stage's `block` is, of `layers`. */
int partition_layer(const struct stage *stage, int block);

struct tensor {
        char name[64];    /* its family's: transformer.h.3.attn.c_attn.weight ... lm_head.weight */
        int rows, cols;   /* a matrix is (out, in); a vector is (1, n) */
        int64_t offset;   /* first element in the stage's flat parameter buffer */
        int64_t elements; /* rows x cols */
        struct {          /* the tensor that this is a shard's part of; of a stage that is whole, itself */
                int rows, cols;
                int first; /* of what was split, rows or columns: where this shard's begin, */
                int parts; /* in each of so many equal parts (queries, keys and values: 3) */
        } whole;
        bool replicated; /* every shard has all of it (of a stage that is whole: false) */
        bool decay;      /* AdamW weight decay: matrices yes, biases and LayerNorm no */
        enum tensor_init init;
        uint32_t id; /* the same on every layout: seeds the initial values */
};

/* The tensors of a stage, of each layer in the order in which its family makes them: [the embedding's if
 * first], blocks, [the head's if last]. With a tied embedding and more than one stage the last stage's output
 * projection is its own copy of the token embedding (same name and id, kept equal by summing the two
 * gradients); with one stage there is only one. Returns how many; `out` may be NULL to count.
 *
 * They lie in memory in this order too. Of a shard, what is split comes first, then what is replicated, then
 * the last stage's own copy of a tied head: what all shards have is then one range. */
int partition_tensors(const struct gpt *gpt, const struct stage *stage, struct tensor *out);

/* Where element `index` of a shard's tensor is in the whole one; -1: nowhere, it pads the vocabulary. */
int64_t partition_whole_index(const struct tensor *tensor, int64_t index);

/* Elements that every shard has alike: a range of the flat buffer, which begins behind what is split. */
int64_t partition_replicated(const struct gpt *gpt, const struct stage *stage, int64_t *offset);

/* ZeRO-3: elements of what is gathered whole before it is worked on. The head is gathered too where it is the
 * token embedding; of its gradients only the final LayerNorm's are complete then when its backward is done.
 */
struct partition_units {
        int64_t embedding, block, head, head_gradient;
};
struct partition_units partition_units(const struct gpt *gpt);

/* A range of layers that a backward goes through, from the last to the first, on a stage of one shard and one
 * chunk: the loss and head, then `blocks` blocks from `top` down, then the embedding. */
struct partition_span {
        enum kernel_part parts; /* of these layers' backwards */
        bool head, embedding;
        int top, blocks;
        int64_t offset; /* when it is done, gradients from here on are final */
        bool more;      /* another span of the same backward follows */
};

/* A backward in two parts leaves the weights' gradients of a stage's first `deferred` blocks, and of the
 * embedding, to the second part; the layers behind them go backward whole in the first part (if there are
 * none, the head too is in two parts). What the part `parts`, PART_INPUT or later PART_WEIGHT, works on:
 * first `whole`, which has no layers in the second part, then `part`. 1 <= deferred <= stage->layers. */
struct partition_parts {
        struct partition_span whole, part;
};
struct partition_parts partition_parts(const struct stage *stage, int deferred, enum kernel_part parts);

/* What follows of a backward, or of a part of one, when gradients from `end` on are final (at first, all
 * parameters of the stage: none are): as many whole layers as it takes until those from `offset` on are, 0 <=
 * offset < end. Memory is in the order of layers; a tied embedding on a stage that has the head too lies at
 * the beginning, and is final at the very end. The last span of a PART_INPUT makes nothing final, and keeps
 * the offset that it was asked for. `deferred` is as above; PART_BOTH does not look at it. */
struct partition_span partition_span(const struct gpt *gpt, const struct stage *stage, int deferred,
                                     enum kernel_part parts, int64_t end, int64_t offset);

/* Elements of the stage's flat parameter buffer. */
int64_t partition_parameters(const struct gpt *gpt, const struct stage *stage);

/* Index in the stage's list of the tensor that is the `ordinal`-th of a layer's program; of LAYER_BLOCK the
 * stage's `block`, from 0. A tied output projection of one stage is the token embedding. */
int partition_tensor(const struct gpt *gpt, const struct stage *stage, enum layer layer, int block,
                     int ordinal);

/* Whether a block has what a set of recomputation names; of others true. */
bool partition_recomputes(const struct gpt *gpt, enum recompute recompute);

/* Elements of the matrices that a block's products read, and of the last of them. */
struct partition_products {
        int64_t block, last;
};
struct partition_products partition_products(const struct gpt *gpt);

#endif
