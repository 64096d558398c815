/* Splits a model into pipeline stages, and a stage into shards, and lists the parameter tensors of each in
 * the order in which they lie in memory. Pure arithmetic: a struct stage is plain data that says which part
 * of the model a rank has.
 *
 * runtime/nn lays out its flat buffers by partition_tensors, checkpoints and initial values find elements by
 * partition_whole_index, and memory.h, workload.h and runtime/engine/price.h count by the same stages.
 * Functions that take impossible numbers assert; runtime/plan/options.c has checked a plan before. */
#ifndef RANVIER_MODELS_PARTITION_H
#define RANVIER_MODELS_PARTITION_H

#include "models/program.h"

/* The part of a model that one rank has. */
struct stage {
        int index, stages;
        /* 1; or, with interleaved chunks, how many parts of the model the rank has. */
        int chunks;
        /* Its transformer blocks: with one chunk [first_layer, first_layer + layers). With several, `layers`
         * is the number in all chunks, and partition_layer says which they are; it follows from the number
         * of the model's, `model_layers`, which is 0 with one chunk. */
        int first_layer, layers, model_layers;
        /* It has the embeddings; it has the final norm, the output projection and the loss. */
        bool first, last;
        /* It is number `shard` of `shards` parts of the stage's tensors; 0 of 1: all of them. */
        int shards, shard;
        /* Where the shards are a grid: how many lie along x and z, and the rest along y; 0 stands for 1. */
        int shards_x, shards_z;
        /* It has the experts of rank `expert_rank` of `expert_ranks`, over which those of each layer are
         * spread; 0 of 0 or 1: all of them. */
        int expert_ranks, expert_rank;
        bool whole_experts; /* which shards do not split: then these ranks are those of all shards */
        /* Which of the ranks it is that have parts of the same sequences: of cp it has pieces `context_rank`
         * and 2 cp - 1 - context_rank of 2 cp. */
        int context_rank;
};

/* Returns stage `index` of a contiguous split: `last` blocks for the last stage, which carries the output
 * projection too, the others as evenly as can be, the remainder one each to the earliest. Needs 0 <= last <=
 * n_layer - (stages - 1); of one stage `last` is n_layer. */
struct stage partition_split(const struct gpt *gpt, int stages, int last, int index);

/* The same with n_layer / stages blocks on the last stage. Needs 1 <= stages <= n_layer. */
struct stage partition_stage(const struct gpt *gpt, int stages, int index);

/* Returns one shard of a stage, split as Megatron-LM does (Shoeybi et al. 2019, section 3): of the products
 * that enter attention and the MLP the outputs (rows of weights and biases: a shard has n_head / shards
 * heads), of those that leave them the inputs (columns of weights), of embedding and output projection the
 * vocabulary, padded up to a multiple of `shards`. Norms, the biases behind a sum over shards, and positions
 * are replicated. All shards of a stage are of equal sizes. gpt_check_shards says which numbers of shards a
 * model can have. */
struct stage partition_shard(const struct stage *stage, int shards, int shard);

/* Returns one shard of a stage whose shards are a grid of x times y times z (Singh et al. 2024); `shard` is
 * its x + X (y + Y z). Those along y split the stage as above, those along x the width of the residual
 * stream, of every tensor that has it, and each of those along z has an even part of every matrix. Norms and
 * biases they have alike, and sum their gradients. */
struct stage partition_grid(const struct stage *stage, int x, int y, int z, int shard);

/* Returns a stage with one of `ranks` parts of each layer's experts, which ranks must divide
 * (gpt_check_experts), and all else. `whole`: shards do not split experts; then the ranks are those of all
 * shards, rank `shard` + shards x `replica`, and must be a multiple of the shards. */
struct stage partition_experts(const struct stage *stage, int ranks, int rank, bool whole);

/* Returns which of the replicas that have a layer's experts together the stage is of. */
int partition_expert_replica(const struct stage *stage);

/* Returns how many elements of the flat buffer are experts' that are spread over ranks: its first ones. A
 * stage whose experts are not spread has them among the tensors of their layers, and this is 0. */
int64_t partition_expert_parameters(const struct gpt *gpt, const struct stage *stage);

/* Returns how many elements of the token embedding a shard has. */
int64_t partition_embedding(const struct gpt *gpt, const struct stage *stage);

/* Return how many rows of the token embedding a shard has, padding included, and which token is the first of
 * them. */
int partition_vocabulary(const struct gpt *gpt, const struct stage *stage);
int partition_first_token(const struct gpt *gpt, const struct stage *stage);

/* Returns stage `index` of an interleaved split (Narayanan et al. 2021): the model in stages x chunks virtual
 * stages, of which a rank has every stages-th, its chunks. Their numbers of layers differ by one at most; the
 * last virtual stage, which has the loss, is the first to have one less, then the first, which has the
 * embedding, then the others from behind. So where n_layer + 2 is a multiple of stages x chunks, embedding
 * and loss take the place of a layer each, as with Megatron-LM's account_for_embedding_in_pipeline_split and
 * account_for_loss_in_pipeline_split. Needs stages x chunks <= n_layer; with one chunk it is partition_stage.
 */
struct stage partition_interleaved(const struct gpt *gpt, int stages, int chunks, int index);

/* Returns one chunk of an interleaved stage, as the stage that it is among stages x chunks. */
struct stage partition_chunk(const struct stage *stage, int chunk);

/* Return which of the stage's blocks, from 0, is the first of a chunk (of chunk `chunks`: how many there
 * are), how many blocks a chunk has, and which chunk a block is of. */
int partition_chunk_begin(const struct stage *stage, int chunk);
int partition_chunk_layers(const struct stage *stage, int chunk);
int partition_chunk_of(const struct stage *stage, int block);

/* Returns how many blocks the longest chunk has, and stores which chunks, [first, end), have as many: one
 * range, and the others have one block less. */
int partition_longest_chunk(const struct stage *stage, int *first, int *end);

/* Returns which of the model's layers is the stage's `block`-th, 0 <= block < layers. */
int partition_layer(const struct stage *stage, int block);

/* One parameter tensor of a stage. */
struct tensor {
        /* As the family's files name it: transformer.h.3.attn.c_attn.weight ... lm_head.weight. */
        char name[64];
        /* A matrix is (out, in), a vector is (1, n). Of a shard, its part. */
        int rows, cols;
        /* The first element in the stage's flat parameter buffer, and rows x cols. */
        int64_t offset;
        int64_t elements;
        /* The tensor of which a shard has this part; of a stage that is not split, the tensor itself. */
        struct {
                int rows, cols;
                /* Of what was split, rows or columns: the first that this shard has in each of `parts` equal
                 * parts (queries, keys and values: 3). */
                int first;
                int parts;
        } whole;
        /* Every shard has all of it; false if there is one shard. */
        bool replicated;
        /* So it has, but works with it on heads that no other has: its gradient is the sum of all shards'. */
        bool summed;
        /* It is of an expert, and other ranks have the other experts. */
        bool expert;
        /* AdamW's weight decay applies: to matrices, not to biases and norms. */
        bool decay;
        /* The family's files have the matrix as (in, out). */
        bool transposed;
        enum tensor_init init;
        /* A number that is the same on every layout: it seeds the initial values. */
        uint32_t id;
};

/* Writes the tensors of a stage to `out` and returns how many they are; `out` may be NULL to count. Of each
 * layer they come in the order in which its family makes them: [the embedding's if first], blocks, [the
 * head's if last]. With a tied embedding and more than one stage, the last stage's output projection is its
 * own copy of the token embedding (same name and id, kept equal by summing the two gradients); with one
 * stage there is only one.
 *
 * They lie in memory in this order too. Experts that are spread over ranks come first in memory; of a shard
 * then comes what is split, then what is replicated (what is summed before the rest), then the last stage's
 * own copy of a tied embedding: so what other replicas do not have is one range, and what all shards have is
 * another. */
int partition_tensors(const struct gpt *gpt, const struct stage *stage, struct tensor *out);

/* Returns whether a tensor of a file is of a layer that predicts further tokens (n_further in models/gpt.h),
 * so that no stage has it. */
bool partition_is_further(const struct gpt *gpt, const char *name);

/* Returns where element `index` of a shard's tensor is in the whole one; -1: nowhere, because it pads the
 * vocabulary. */
int64_t partition_whole_index(const struct tensor *tensor, int64_t index);

/* The same, and in `run` how many elements from this one on, of the same row, follow each other in the whole
 * tensor too (or are nowhere, as this one). */
int64_t partition_whole_run(const struct tensor *tensor, int64_t index, int64_t *run);

/* Returns how many elements of the flat buffer all shards have alike. They are one range, which begins
 * behind what is split; `offset` (may be NULL) becomes its first element. */
int64_t partition_replicated(const struct gpt *gpt, const struct stage *stage, int64_t *offset);

/* Returns how many elements of these have gradients that are the sum of all shards', because each shard works
 * on other rows (sequence parallel) or other heads: the first ones, from `offset` on. Of a grid along z: the
 * vectors, whose gradients are the sum of those of the shards along it. */
int64_t partition_summed(const struct gpt *gpt, const struct stage *stage, bool sequence_parallel,
                         int64_t *offset);

/* Returns how many of the stage's blocks, its first ones, are LAYER_DENSE. */
int partition_dense(const struct gpt *gpt, const struct stage *stage);

/* ZeRO-2 and 3: how many elements a stage, or a shard of it, has of each kind of layer. The head's are its
 * own: not the output projection where that is the token embedding. `embedding` and `head` are 0 where it has
 * none, `dense` (of LAYER_DENSE) where there are none. Where first and last stage share an embedding, its
 * elements end the unit of either, behind as many of others on both, so that a replica's share has the same
 * of it at both ends: what is missing there is padding. */
struct partition_units {
        int64_t embedding, dense, block, head;
        /* Of those of a block, its first ones: of experts that are spread over ranks. */
        int64_t experts;
};
struct partition_units partition_stage_units(const struct gpt *gpt, const struct stage *stage);

/* Stores likewise what comes before those of each whose gradients are the sum of all shards'
 * (partition_summed), and how many of these there are. */
void partition_unit_sums(const struct gpt *gpt, const struct stage *stage, bool sequence_parallel,
                         struct partition_units *before, struct partition_units *summed);

/* Returns how many elements a stage's first blocks have. */
int64_t partition_blocks(const struct gpt *gpt, const struct stage *stage, int blocks);

/* Returns where a stage's block, from 0, begins in the flat buffer, without what all shards have alike; of as
 * many as it has, where they end. For stages whose experts are not spread. */
int64_t partition_block_offset(const struct gpt *gpt, const struct stage *stage, int block);

/* A range of layers that a backward goes through, from the last to the first: the loss and head, then
 * `blocks` of the stage's blocks from `top` down, then the embedding. */
struct partition_span {
        /* Which part of these layers' backwards is done. */
        enum kernel_part parts;
        bool head, embedding;
        int top, blocks;
        /* When the span is done, the gradients from this element of the flat buffer on are final, but for
         * what all shards have alike, of which none are before the last span is done. */
        int64_t offset;
        /* Another span of the same backward follows. */
        bool more;
};

/* Says what one part of a backward in two works on. `parts` is PART_INPUT, or later PART_WEIGHT. Such a
 * backward leaves the weights' gradients of a stage's first `deferred` blocks, and of the embedding, to the
 * second part; the layers behind them go backward whole in the first part (if there are none, the head too
 * is in two parts). First comes the span `whole`, which has no layers in the second part, then the span
 * `part`. 1 <= deferred <= stage->layers. */
struct partition_parts {
        struct partition_span whole, part;
};
struct partition_parts partition_parts(const struct stage *stage, int deferred, enum kernel_part parts);

/* Returns the next span of the backward of a stage's chunk, or of a part of one, when the gradients from
 * `end` on are final (at first `end` is the number of the stage's parameters, and none are; of shards whose
 * memory ends with what they have alike, where that begins): as many whole layers of the chunk as it takes
 * until those from `offset` on are, 0 <= offset < end, or all that are left. [offset, end) has nothing that
 * shards have alike. Memory is in the order of layers; a tied embedding on a stage that has the head too lies
 * at the beginning, and is final at the very end. The last span of a PART_INPUT makes nothing final, and
 * keeps the offset that it was asked for. `deferred` is as above; PART_BOTH does not look at it. */
struct partition_span partition_span(const struct gpt *gpt, const struct stage *stage, int chunk,
                                     int deferred, enum kernel_part parts, int64_t end, int64_t offset);

/* Elements [offset, offset + count) of a stage's flat buffer that follow each other in a unit, from element
 * `place` on. */
struct partition_piece {
        int64_t offset, count, place;
};
/* Returns the layers of a part of a forward: number 0 is the embedding, then come `each` blocks at once, then
 * the head. partition_pieces stores the pieces of the unit that these are in, in the order of places, and
 * returns how many there are; embedding and tied head of one stage are one unit. In a unit lie first experts
 * that are spread over ranks, of all its layers, then what is split over shards, then what all shards have.
 */
struct partition_span partition_unit(const struct stage *stage, int each, int nth);
enum { PARTITION_PIECES = 7 };
int partition_pieces(const struct gpt *gpt, const struct stage *stage, const struct partition_span *unit,
                     struct partition_piece pieces[PARTITION_PIECES]);

/* Returns the elements of the stage's flat parameter buffer. */
int64_t partition_parameters(const struct gpt *gpt, const struct stage *stage);

/* Returns the index, in the list of partition_tensors, of the `ordinal`-th row of a layer's tensors in its
 * program, or of the first expert's where they are copies.
 * `block` is the stage's block, from 0, if the layer is one. A tied output projection of a model in one stage
 * is the token embedding, 0. */
int partition_tensor(const struct gpt *gpt, const struct stage *stage, enum layer layer, int block,
                     int ordinal);

/* Whether a model's blocks have what a set of recomputation names: false only for sets with SwiGLU, of a
 * model that has none. */
bool partition_recomputes(const struct gpt *gpt, enum recompute recompute);

/* Elements of all matrices that the products of all blocks read for one token, whose experts are some of all,
 * and of those whose results no backward reads, a block's last ones, without shards. */
struct partition_products {
        int64_t all, unread;
};
struct partition_products partition_products(const struct gpt *gpt);

#endif
