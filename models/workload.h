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
        struct program embedding, block, head;
};
void workload_init(struct workload *, const struct gpt *gpt, const struct work *work, int shards);

/* The head of a validation pass, which makes the loss alone. */
void workload_validation(struct program *, const struct gpt *gpt, const struct work *work, int shards);

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

/* The kernels of one micro-batch on a stage, which has as many shards as the workload. Each returns how many,
 * and writes them to `out` unless it is NULL.
 *
 * The backward is done in one, or in two parts: the gradient of the input, and later that of the weights. A
 * recomputed block runs its forward again in each, up to what backward reads: that is before its last
 * product, which layer runs all the same. Where the loss is made in chunks, all of that is in the first part,
 * as a chunk's logits are gone when the next one's are made.
 *
 * Of a shard (Shoeybi et al. 2019) products are narrower; what shards do together are entries too. */
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
int workload_backward_most(const struct gpt *gpt, const struct stage *stage, const struct work *work);

/* Layers of the last of several stages for which the longest stage has the fewest floating-point operations;
 * of those, the most. (partition_split) */
int workload_balanced(const struct gpt *gpt, const struct work *work, int stages);

/* The squared norm of a stage's gradients: of the first m of its parameters. They are all that it has, but
 * for a tied head that is the last stage's own copy: the first stage counts that; and but for what all shards
 * have: the first shard counts that. */
struct kernel workload_norm(const struct gpt *gpt, const struct stage *stage, enum half half);

/* The update of `parameters`: AdamW, or in half precision unscale and AdamW. Returns how many kernels. */
enum { WORKLOAD_UPDATE_KERNELS = 2 };
int workload_update(int64_t parameters, enum half half, struct kernel out[WORKLOAD_UPDATE_KERNELS]);

/* Half precision: the look for an overflow. What follows instead of updates where there is one, and with zero
 * after all updates: gradients become zero. */
struct kernel workload_overflow(int64_t parameters, enum half half);
struct kernel workload_clear(int64_t parameters, enum half half);

#endif
