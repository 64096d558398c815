/* What a stage computes: THE one description of work. runtime/nn launches exactly these kernels in exactly
 * this order (a test holds it), calibrate times them, the simulation prices them. */
#ifndef RANVIER_MODELS_WORKLOAD_H
#define RANVIER_MODELS_WORKLOAD_H

#include "models/partition.h"
#include "models/program.h"
#include "models/work.h"

/* The programs of a model's layers, as one of `shards` shards has them. */
struct workload {
        struct work work;
        int64_t loss_rows; /* workload_loss_rows */
        struct program program[LAYERS];
};
void workload_init(struct workload *, const struct gpt *gpt, const struct work *work, int shards);

/* ---- the passes of a layer ---- */

/* What a layer's pass is: its forward, or its backward or a part of it. */
enum layer_pass {
        PASS_FORWARD,
        PASS_INPUT = PART_INPUT,
        PASS_WEIGHT = PART_WEIGHT,
        PASS_BACKWARD = PART_BOTH,
        LAYER_PASSES
};

/* The steps of a pass, with what it runs again. Where the loss is made in chunks, the steps that are run for
 * some rows after others follow each other, and are part of the backward (of its first part), but in a
 * validation. */
void workload_steps(const struct workload *, enum layer layer, enum layer_pass pass, struct steps *steps);

/* Which values of a layer are in a micro-batch's slot, and the bytes of them all; where each begins is
 * written to `offset` unless it is NULL. A validation's slot is a training's. */
int64_t workload_slot(const struct workload *, enum layer layer, bool kept[PROGRAM_VALUES],
                      int64_t offset[PROGRAM_VALUES]);

/* What of a block's slot is free when the first part of its backward is done, as neither the second part
 * reads it nor the layer behind: from where in the slot on (what is read lies before), and how many bytes.
 * None with several shards, whose backward is in one part. */
int64_t workload_freed(const struct workload *, int64_t *bytes);

/* Where the gradients lie that the first part of a block's backward leaves for the second. As many as fit are
 * `lent` a place in what is then free of the blocks above: the gradient of the block's output, which is made
 * by the block above, two blocks above, any other one block above. The rest are in a buffer of their own. */
struct deferral {
        bool left[PROGRAM_VALUES]; /* those that there are */
        bool lent[PROGRAM_VALUES];
        int64_t offset[PROGRAM_VALUES]; /* in what is lent, or in the buffer */
        int64_t bytes, lent_bytes;      /* of the buffer, and of what is lent, for one block */
};
void workload_deferral(const struct workload *, struct deferral *);

/* Where what a pass writes lies in the workspace, but what a slot, a message's or a deferred buffer holds. */
void workload_place(const struct workload *, enum layer layer, enum layer_pass pass,
                    const struct steps *steps, struct placement *place);

/* Bytes that depend on nothing else of a plan. */
struct workload_bytes {
        int64_t slot[LAYERS]; /* of one layer in one slot */
        /* Of one block what a backward's first part leaves for the second: in a buffer, and lent a place in
         * slots; and whether that is where the gradient of the block's output lies. */
        int64_t deferred, lent;
        bool output_lent;
        int64_t workspace[LAYERS][2]; /* that a layer's passes work in; [1]: its backward in two parts too */
};
/* Derived once for each thread, and then remembered. */
struct workload_bytes workload_bytes(const struct gpt *gpt, const struct work *work, int shards);

/* ---- many plans' ---- */

/* Workloads of one model that were derived before, for who asks for many plans'. Zeros: none yet. */
struct workloads {
        struct workload **at;
        int count;
};
/* That of `work` and `shards`, which stays the table's; NULL: no memory. */
const struct workload *workloads_get(struct workloads *, const struct gpt *gpt, const struct work *work,
                                     int shards);
void workloads_free(struct workloads *); /* leaves an empty one */

/* Rows whose logits are made at once, at least WORKLOAD_LOSS_ROWS of them. With fused kernels the last
 * stage's forward ends with the final LayerNorm: logits, loss and their gradients come at the beginning of
 * backward, from a chunk of so many rows (the last one may have fewer) after another, so nothing keeps the
 * logits of all rows. 0: all at once, at the end of forward, as without fused kernels and where several
 * shards have parts of the vocabulary. */
enum { WORKLOAD_LOGITS_BYTES = 128 << 20, WORKLOAD_LOSS_ROWS = 16 /* a chunk has a multiple of these */ };
int64_t workload_loss_rows(const struct gpt *gpt, const struct stage *stage, const struct work *work);

/* ---- lists of kernels ---- */

/* The kernels of one micro-batch on a stage, which has as many shards as the workload. Each returns how many,
 * and writes them to `out` unless it is NULL.
 *
 * The backward is done in one, or in two parts: the gradient of the input, and later that of the weights. A
 * recomputed block runs its forward again in each, up to what backward reads: that is before its last
 * product, which layer runs all the same. Where the loss is made in chunks, all of that is in the first part,
 * as a chunk's logits are gone when the next one's are made.
 *
 * Of a shard (Shoeybi et al. 2019) products are narrower; the collectives of shards are entries too. */
int workload_list_forward(const struct workload *, const struct stage *stage, struct kernel *out);
int workload_list_backward(const struct workload *, const struct stage *stage, enum kernel_part parts,
                           struct kernel *out);

/* The same of a workload of their own. `loss_only`: a validation pass, which ends in
 * KERNEL_CROSS_ENTROPY_LOSS. */
int workload_forward(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                     bool loss_only, struct kernel *out);
int workload_backward(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                      struct kernel *out);
int workload_backward_part(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                           enum kernel_part parts, struct kernel *out);
/* Kernels of the longest backward. */
int workload_backward_max(const struct gpt *gpt, const struct stage *stage, const struct work *work);

/* Layers of the last of several stages for which the longest stage has the fewest floating-point operations;
 * of those, the most. (partition_split) */
int workload_balanced(const struct gpt *gpt, const struct work *work, int stages);

/* The squared norm of a stage's gradients: of the first m of its parameters. They are all that it has, but
 * for a tied head that is the last stage's own copy: the first stage counts that; and but for what all shards
 * have: the first shard counts that. */
struct kernel workload_norm(const struct gpt *gpt, const struct stage *stage, enum dtype dtype);

/* The update of `parameters`: AdamW, or in mixed precision unscale and AdamW. Returns how many kernels. */
enum { WORKLOAD_UPDATE_KERNELS = 2 };
int workload_update(int64_t parameters, enum dtype dtype, struct kernel out[WORKLOAD_UPDATE_KERNELS]);

/* Half precision: the look for an overflow. What follows instead of updates where there is one, and with zero
 * after all updates: gradients become zero. */
struct kernel workload_overflow(int64_t parameters, enum dtype dtype);
struct kernel workload_clear(int64_t parameters, enum dtype dtype);

#endif
