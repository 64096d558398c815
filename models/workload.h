/* What a stage computes: THE one description of work. From a model, a stage and a struct work it derives the
 * programs of the layers, the list of kernels of each pass, and the bytes of slots and workspaces.
 * runtime/nn launches exactly these kernels in exactly this order (a test compares the two), calibrate times
 * them, and runtime/engine/price.h prices them for predictions.
 *
 * Terms: a slot is the memory that keeps the activations of one micro-batch from its forward to its
 * backward; a deferred buffer keeps what the first part of a backward in two leaves for the second; a
 * workspace is memory that one pass after another works in. */
#ifndef RANVIER_MODELS_WORKLOAD_H
#define RANVIER_MODELS_WORKLOAD_H

#include "models/partition.h"
#include "models/program.h"
#include "models/work.h"

/* The programs of a model's layers, as one of several shards has them. It is plain data of about 800 KiB,
 * and owns nothing. */
struct workload {
        struct work work;
        int shards;
        int dense; /* so many of the model's first blocks are LAYER_DENSE */
        /* Rows of tokens whose logits are made at once; 0: all. See workload_loss_rows. */
        int64_t loss_rows;
        struct program program[LAYERS];
        /* Of a table's (workloads_get): the passes whose kernels were listed. Else NULL. */
        struct listed_pass *listed;
};
/* Derives the programs, for a stage that has `shards` shards. */
void workload_init(struct workload *, const struct gpt *gpt, const struct work *work, int shards);

/* ---- the passes of a layer ---- */

/* What a pass of a layer is: its forward, one of the two parts of its backward, or all of its backward. The
 * values of backwards are those of enum kernel_part. */
enum layer_pass {
        PASS_FORWARD,
        PASS_INPUT = PART_INPUT,
        PASS_WEIGHT = PART_WEIGHT,
        PASS_BACKWARD = PART_BOTH,
        LAYER_PASSES
};

/* Writes the steps of a pass to `steps`, those that it runs again among them. Where the loss is made in
 * chunks of rows, the steps that are run chunk by chunk follow each other; they come first in the backward,
 * or in its first part, and only in a validation at the end of the forward. */
void workload_steps(const struct workload *, enum layer layer, enum layer_pass pass, struct steps *steps);

/* Marks in `kept` the values of a layer that are in a micro-batch's slot, and returns their bytes. Where
 * each of them begins is written to `offset`, unless that is NULL. A validation has the same slot as
 * training. */
int64_t workload_slot(const struct workload *, enum layer layer, bool kept[PROGRAM_VALUES],
                      int64_t offset[PROGRAM_VALUES]);

/* Says which bytes of a block's slot are free once the first part of its backward is done, because neither
 * the second part nor the layer behind reads them. They begin at the offset that is returned and go to the
 * end of what the block has in the slot; `bytes` says how many they are. There are none with several shards,
 * whose backward is in one part. `layer` is a block of either kind. */
int64_t workload_freed(const struct workload *, enum layer layer, int64_t *bytes);

/* Where the gradients lie that the first part of a block's backward leaves for the second. As many as fit
 * are `lent` a place in the memory that is then free in the slots of the blocks above: the gradient of the
 * block's output, which the block above makes, two blocks above, the others one block above. The rest are in
 * a deferred buffer. Of a model whose blocks are of two kinds, each lends as much as the one that can lend
 * less, and both or neither lend for the gradients of outputs. */
struct deferral {
        bool left[PROGRAM_VALUES];      /* the gradients that are left */
        bool lent[PROGRAM_VALUES];      /* those of them that lie in a slot */
        int64_t offset[PROGRAM_VALUES]; /* bytes from the beginning of what is lent, or of the buffer */
        int64_t bytes, lent_bytes;      /* the size of the buffer, and of what is lent, for one block */
};
void workload_deferral(const struct workload *, enum layer layer, struct deferral *);

/* Places in the workspace the values that a pass writes, but not those that lie in a slot, a message's
 * buffer or a deferred buffer. `steps` are those that workload_steps gave. */
void workload_place(const struct workload *, enum layer layer, enum layer_pass pass,
                    const struct steps *steps, struct placement *place);

/* Where collectives along z of a grid run beside products: the bytes of a buffer of gathered weights, and of
 * one of gradients that are reduced, of both of which there are WORKLOAD_AHEAD. */
struct workload_ahead {
        int64_t gathered, reduced;
};
enum { WORKLOAD_AHEAD = 2 };

/* The sizes in bytes that follow from the model, the work and the number of shards alone. */
struct workload_bytes {
        /* What one layer of each kind has in one slot. */
        int64_t slot[LAYERS];
        /* What a backward's first part leaves of one block for the second: in a deferred buffer, and lent a
         * place in slots; and whether the gradient of the block's output is lent one. */
        int64_t deferred, lent;
        bool output_lent;
        /* The workspace of a layer's passes; [1]: if its backward is also run in two parts. */
        int64_t workspace[LAYERS][2];
        /* What they have beside it. */
        struct workload_ahead ahead[LAYERS];
        /* The copies of a layer's parameters that are made once a batch (workload_list_quantize). */
        int64_t copies[LAYERS];
};
/* Returns these sizes. Each thread remembers those that it derived lately. */
struct workload_bytes workload_bytes(const struct gpt *gpt, const struct work *work, int shards);

/* ---- the workloads of many plans ---- */

/* A table of the workloads of one model that were asked for lately, for callers that price many plans of it.
 * Zeros are an empty table. One thread at a time may use it. A workload is large, so the table keeps few. */
enum { WORKLOADS = 128 };
struct workloads {
        struct workload *at[WORKLOADS]; /* [count] */
        int count, next;                /* the one that is replaced next */
};
/* Returns the workload of `work` and `shards`, deriving it if the table has it not. It stays the table's,
 * which may replace it at the next call. NULL: there is no memory. All calls with one table must be of the
 * same model. */
const struct workload *workloads_get(struct workloads *, const struct gpt *gpt, const struct work *work,
                                     int shards);
/* Frees all workloads, and leaves an empty table. */
void workloads_free(struct workloads *);

/* Returns how many rows of tokens have their logits made at once. With fused kernels and one shard the last
 * stage's forward ends with the final LayerNorm. Logits, loss and their gradients then come at the beginning
 * of backward, for one chunk of so many rows after another, so that the logits of all rows are never stored.
 * A chunk's logits take no more than work->logits_bytes if WORKLOAD_LOSS_ROWS rows fit into these; the last
 * chunk may have fewer rows. 0: all logits are made at once, at the end of forward, as without fused kernels
 * and with several shards, each of which has a part of the vocabulary. */
enum { WORKLOAD_LOGITS_BYTES = 128 << 20, WORKLOAD_LOSS_ROWS = 16 /* a chunk has a multiple of these */ };
int64_t workload_loss_rows(const struct gpt *gpt, const struct stage *stage, const struct work *work);

/* ---- lists of kernels ---- */

/* The kernels of one micro-batch on a stage, in the order in which they are launched. The stage must have as
 * many shards as the workload was derived for. Each function returns how many they are, and writes them to
 * `out` unless that is NULL: a caller counts first, and then allocates.
 *
 * The backward is done in one, or in two parts: the gradient of the input, and later that of the weights. A
 * recomputed block runs its forward again in each, up to what backward reads, which is before its last
 * product (RECOMPUTE_LAYER runs that too). Where the loss is made in chunks, all of that is in the first
 * part, because a chunk's logits are gone when the next one's are made.
 *
 * On one of several shards (Shoeybi et al. 2019) the products are narrower, and the collectives of shards
 * are entries of the list. */
int workload_list_forward(const struct workload *, const struct stage *stage, struct kernel *out);
int workload_list_backward(const struct workload *, const struct stage *stage, enum kernel_part parts,
                           struct kernel *out);

/* The kernels that make, once a batch, the copies of parameters that products of a format of their own read
 * (program_quantize), as they are and transposed. There are none if every pass makes its own. */
int workload_list_quantize(const struct workload *, const struct stage *stage, struct kernel *out);

/* The same lists, by a workload that is derived for the call. `loss_only` asks for a validation pass, which
 * ends in KERNEL_CROSS_ENTROPY_LOSS. */
int workload_forward(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                     bool loss_only, struct kernel *out);
int workload_backward(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                      struct kernel *out);
int workload_backward_part(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                           enum kernel_part parts, struct kernel *out);
/* Returns the number of kernels of the longest list: all of a backward, its first part, or its second. */
int workload_backward_max(const struct gpt *gpt, const struct stage *stage, const struct work *work);

/* Returns how many blocks, at least `least` (0 or 1), the last stage should have (partition_split) so that
 * the stage with the most floating-point operations has as few as possible; where several numbers do that,
 * the largest. 2 <= stages <= n_layer. */
int workload_balanced(const struct gpt *gpt, const struct work *work, int stages, int least);

/* Returns the kernel that sums the squares of a stage's gradients, those of the first m of its parameters.
 * These are all that it has, with three exceptions that another rank counts: a last stage's own copy of a
 * tied embedding, which the first stage counts; on later shards the tensors that all shards have, which the
 * first one counts; and where experts are spread, on all ranks but the first of them, all else. */
struct kernel workload_norm(const struct gpt *gpt, const struct stage *stage, enum dtype dtype);

/* Writes the kernels that update `parameters` parameters: AdamW, before which gradients that are kept in 16
 * bits, not in fp32 (`fp32`), are unscaled. Returns how many they are. */
enum { WORKLOAD_UPDATE_KERNELS = 2 };
int workload_update(int64_t parameters, enum dtype dtype, bool fp32,
                    struct kernel out[WORKLOAD_UPDATE_KERNELS]);

/* Return the kernel of mixed precision that looks for an overflow among so many gradients, which of those
 * that are kept in fp32 is their squared norm, and the one that makes gradients of a type zero: after an
 * overflow, instead of the updates, and with --zero 1 after all updates. */
struct kernel workload_overflow(int64_t parameters, enum dtype dtype, bool fp32);
struct kernel workload_clear(int64_t parameters, enum dtype dtype);

/* Returns the kernel that adds so many gradients to others: what a replica keeps of them (ZeRO-3), or sums of
 * logical replicas. */
struct kernel workload_add_gradients(int64_t parameters, enum dtype dtype);

/* Writes the kernels that copy so many gradients, in their order, and returns how many they are. */
enum { WORKLOAD_COPY_KERNELS = 2 };
int workload_copy_gradients(int64_t parameters, enum dtype dtype, struct kernel out[WORKLOAD_COPY_KERNELS]);

#endif
