/* A stage of a GPT on a device: forward and backward of one micro-batch, whose layers' programs exec.h
 * runs. Enqueues only: nothing here waits. Launches exactly what models/workload.h lists, in that order. */
#ifndef RANVIER_RUNTIME_NN_NN_H
#define RANVIER_RUNTIME_NN_NN_H

#include "runtime/device/kernels.h"

/* A collective of shards: `all` of a matrix, of which a shard has, or gets, `own` rows. */
struct nn_collective {
        enum kernel_kind
                kind;     /* kernel_collective: all-reduce `all`; gather it from `own`; scatter it to `own` */
        void *all, *own;  /* NULL: where they lie in `all` */
        int64_t elements; /* of all */
        enum dtype dtype;
};

struct nn_exec;
/* Zero: this replica updates parameters [offset, offset + count), and the optimizer's arrays have them at
 * `place`. The table is the caller's, and must be there before parameters are written or read. */
struct nn_own {
        int64_t offset, count, place;
};

struct nn_bucket;
struct nn_stage {
        struct device *device;
        struct gpt gpt;
        struct stage stage;
        struct memory_plan plan;
        struct memory_layout layout;
        struct tensor *tensors; /* of this stage, in memory order */
        int tensor_count;
        int64_t parameters;        /* elements */
        void *weights, *gradients; /* flat, in the order of partition_tensors; gradients begin zero */
        /* fp32, flat; NULL if opened without optimizer. In fp32 there are the moments alone: the weights are
         * the master parameters. Zero: of this replica's shares, at their places. Offloaded, master and
         * moments lie in host memory and master_gradients are NULL: updates work in `buckets`. */
        real *master, *master_gradients, *adam_m, *adam_v;
        const struct nn_own *own; /* [own_count]: zero; else NULL */
        int own_count;
        struct nn_bucket *buckets;  /* [plan.update_buffers] */
        struct adamw_range *ranges; /* which parameters are decayed, for kernels_adamw */
        void **slots;               /* [plan.slots] stored activations, of the chunks one after another */
        void **host_slots;          /* [plan.host_slots] offloaded ones, layout.slot bytes each */
        void **inputs;              /* [plan.input_buffers] (B,T,C) */
        void **gradient_buffers;    /* [plan.gradient_buffers] (B,T,C) */
        void **deferred, **deferred_tops; /* [plan.deferred]: what the first part
                                               of a backward leaves; the last block's output's gradient */
        /* Staged: on the host, one beside each slot's output, input and gradient buffer, else NULL. */
        void **host_outputs, **host_inputs, **host_gradient_buffers;
        void *host_gradients; /* staged: see nn_host_gradients */
        /* Of the whole batch, (micro_batches, B, T): inputs on the first stage, targets on the last, else
         * NULL. The caller fills host_tokens and host_targets; nn_load copies them to the device. */
        int32_t *tokens, *targets, *host_tokens, *host_targets;
        double *scalars;      /* enum nn_scalar; in host memory, which kernels read and write too */
        struct nn_exec *exec; /* what its passes launch: exec.h */
        double loss_scale; /* that gradients of logits are multiplied with, set by the caller; 1 at first */
        /* Shards: which segment of a pass nn_forward and nn_backward run, set by the caller; and what follows
         * it.
         */
        int segment;
        struct nn_collective *collective;
};

enum nn_scalar {
        NN_LOSS,           /* summed over tokens */
        NN_SQUARED_NORM,   /* of the gradients as they are stored: scaled, in mixed precision */
        NN_GRADIENT_SCALE, /* that updates multiply gradients with: clipping factor / loss scale */
        NN_OVERFLOW,       /* mixed: 1 if a gradient is too large to be summed, else 0 */
        NN_SCALARS
};

/* Offloaded: device buffers of one update, plan.update_parameters each. */
struct nn_bucket {
        real *master, *gradients, *adam_m, *adam_v;
};

/* Allocates every buffer (counted by category, exactly as models/memory.c predicts), after a device_reserve
 * of their sum. `optimizer`: moments too. NULL with a sentence if the device has not enough memory. */
struct nn_stage *nn_open(struct device *device, const struct gpt *gpt, const struct stage *stage,
                         const struct memory_plan *plan, bool optimizer, struct rv_error_info *err);
void nn_close(struct nn_stage *); /* frees the host side; device memory goes with the device */

/* Element `offset` of a flat buffer of tensors. */
void *nn_at(const struct nn_stage *, void *flat, int64_t offset);

/* Enqueues the copy of the batch's tokens and targets, on the lane from host to device. */
void nn_load(struct nn_stage *);

/* Enqueues a copy of `bytes` to the host, or to the device, of memory that the stage allocated. */
void nn_copy_out(struct nn_stage *, void *host, const void *device, int64_t bytes);
void nn_copy_in(struct nn_stage *, void *device, const void *host, int64_t bytes);

/* Staged: where the gradients from parameter `offset` on are summed on the host. Of all parameters, or of the
 * shared embedding alone, which is the first tensor of the first stage and the last of the last. */
void *nn_host_gradients(const struct nn_stage *, int64_t offset);

/* Offloaded: enqueues, on the copy lanes, the fetch of master parameters and moments [place, place + count)
 * into buckets[buffer], and their way back. */
void nn_fetch(struct nn_stage *, int buffer, int64_t place, int64_t count);
void nn_write_back(struct nn_stage *, int buffer, int64_t place, int64_t count);

/* Offloaded activations: enqueues the copy of what `chunk` stores in a slot to the host, and back. */
void nn_store_activations(struct nn_stage *, int chunk, int slot, int host_slot);
void nn_fetch_activations(struct nn_stage *, int chunk, int host_slot, int slot);

/* Parameters that cross between host and device at once: 1 MiB of fp32, as each crossing is waited for. */
enum { NN_CHUNK = 1 << 18 };

/* The fp32 parameters [offset, offset + count) into `out`: master parameters in mixed precision, which must
 * then have been opened with an optimizer. Zero: 0 where they are another replica's. Blocks. */
void nn_read_parameters(struct nn_stage *, int64_t offset, int64_t count, float *out);
/* Sets weights, and master parameters where there are any. Blocks. */
void nn_write_parameters(struct nn_stage *, int64_t offset, int64_t count, const float *values);

/* Initial weights from `seed`: each element depends on (seed, tensor id, index) only, so every layout begins
 * with the same model. Normal(0, 0.02), residual projections 0.02 / sqrt(2 n_layer), GPT-2's. Drawn by at
 * most `threads` threads, the caller's among them. Synchronises. */
void nn_initialize(struct nn_stage *, uint64_t seed, int threads);

/* With several shards (tensor parallelism) both passes are cut at each collective: a call runs the kernels of
 * segment nn->segment, those between two collectives. It returns true if a collective follows, which
 * nn->collective then describes; the next segment may be run when that is done. With one shard a pass is one
 * segment, 0, and the result is false.
 *
 * Forward of micro-batch `micro_batch` through `chunk` of the stage (0 unless interleaved): input buffer
 * `input` (-1 for the model's first chunk) into `slot`. Of the model's last chunk also the loss: adds the
 * summed negative log likelihood to scalars[NN_LOSS] and leaves the gradient of the logits, times loss_scale,
 * in the slot (unless loss_only); but where the loss is made in chunks (workload_loss_rows) all that, unless
 * loss_only, is left to backward. */
bool nn_forward(struct nn_stage *, int chunk, int micro_batch, int input, int slot, bool loss_only);

/* Backward: adds into gradients; transforms gradient buffer `gradient` in place from dL/d(output) to
 * dL/d(input) (of the model's last chunk it is written from the loss, of its first it is scratch). */
bool nn_backward(struct nn_stage *, int chunk, int micro_batch, int input, int slot, int gradient);

/* The same in two parts, PART_INPUT and later PART_WEIGHT, of one shard and one chunk. The first leaves to
 * the second what partition_parts says; of these layers it adds into gradients of LayerNorms alone (and of
 * the head where the loss is made in chunks), and leaves in buffer `deferred` what the second needs, which
 * takes no `gradient`. */
void nn_backward_part(struct nn_stage *, int micro_batch, int input, int slot, int gradient, int deferred,
                      enum kernel_part parts);

/* A span (partition_span) of a backward or of a part of one; `deferred` is -1 if it is in one part. The spans
 * of a backward follow each other; the micro-batch's `gradient` is between them what the last one left. */
void nn_backward_span(struct nn_stage *, int micro_batch, int input, int slot, int gradient, int deferred,
                      const struct partition_span *span);

void *nn_output(struct nn_stage *, int slot); /* (B,T,C): the activations that go to the next stage */
/* (B T, V): last stage, after a loss_only forward: raw logits. Not where they are made in chunks. */
void *nn_logits(struct nn_stage *, int slot);

#endif
