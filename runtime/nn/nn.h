/* A stage of a model on a device: its parameters and buffers, and the forward and backward of one
 * micro-batch. The stage is opened once with all memory that a plan needs, exactly as models/memory.c
 * predicts. Then the driver (runtime/real/driver_real.h) calls its passes and copies in the order that the
 * scheduling core decides; the optimizer (runtime/optim) works on its arrays. Other ranks are not known here:
 * messages and collectives are the driver's matter.
 *
 * Passes and copies are enqueued on the device's lanes and not waited for, unless a function says so. The
 * kernels are exactly those that models/workload.h lists, in that order; exec.h launches them.
 *
 * In shapes B is the sequences of a micro-batch, T the tokens of a sequence, C the width of the model
 * (n_embd), and V the vocabulary. "Offloaded", "staged" and "with ZeRO" are as in struct plan
 * (runtime/sched/plan.h). */
#ifndef RANVIER_RUNTIME_NN_NN_H
#define RANVIER_RUNTIME_NN_NN_H

#include "runtime/device/kernels.h"

/* A collective over the shards of a stage, or the ranks that share its experts, which a pass needs at its
 * end: an all-reduce of the matrix `all`, an all-gather that makes it from each shard's rows `own`, or a
 * reduce-scatter that leaves in `own` the sums of a shard's rows. */
struct nn_collective {
        enum kernel_kind kind; /* one for which kernel_collective is true */
        void *all, *own;       /* own NULL: the shard's rows are at their place in `all` */
        int64_t elements;      /* of all */
        enum dtype dtype;
        /* Of experts: an all-gather of the ends of each rank's rows; else rows of `width` elements go from
         * `own` to `all`, as the ends of all ranks (ranks, experts) say. */
        const int32_t *all_ends;
        int64_t width;
        int64_t capacity; /* rows for which there is memory where experts are */
        bool beside;      /* it runs beside the next segment */
        /* Rows of `width` elements are in so many pieces, of each of which every shard has an even part
         * (rows_before_piece). */
        int pieces;
        /* Of a shift of two matrices, which have `elements` together: the second one. */
        void *all_too, *own_too;
};

struct nn_exec;
/* With ZeRO: this replica updates the parameters [offset, offset + count), and the arrays of its
 * optimizer have them from `place` on; with ZeRO-2 its gradients too, with ZeRO-3 its weights as well. In the
 * order of places. */
struct nn_own {
        int64_t offset, count, place;
};

struct nn_bucket;
/* A stage. Buffers are on the device unless said otherwise, and belong to the device. */
struct nn_stage {
        struct device *device;
        struct gpt gpt;
        struct stage stage;
        struct memory_plan plan;
        struct memory_layout layout;
        struct tensor *tensors; /* [tensor_count], as partition_tensors lists them */
        int tensor_count;
        int64_t parameters; /* elements of all tensors */
        /* Elements of gradients, and of weights: that many, but with ZeRO-2 and 3 those of this replica's
         * shares. */
        int64_t kept;
        /* One flat buffer each, in which a tensor begins at its offset; with ZeRO-2 and 3 the shares are at
         * their places. Gradients begin as zeros. But with ZeRO-2 `weights` are those in `gathered`, all of
         * them (nn_weight_place). */
        void *weights, *gradients;
        /* [plan.gradient_sums], each as long as `gradients`: where sums of logical replicas wait. */
        void **gradient_sums;
        /* ZeRO-2 and 3: the buffers of whole units' weights and gradients (nn_unit_weights,
         * nn_unit_gradients). */
        char *gathered, *reduced;
        /* With plan.reduce_fp32: beside each of the latter, in fp32 (nn_widened_gradients). */
        char *widened;
        /* What passes read, and add to: the flat buffers, or those of the unit that is computed; and where
         * each tensor begins there, in elements [tensor_count]. */
        void *pass_weights, *pass_gradients;
        int64_t *pass_offsets;
        /* The optimizer's flat arrays, in fp32; NULL if the stage was opened without optimizer. Only the
         * moments exist in fp32 training, where the weights are the master parameters. With ZeRO they hold
         * this replica's shares, at their places. Offloaded, master and moments are in host memory and
         * master_gradients is NULL: updates work in `buckets`. */
        real *master, *master_gradients, *adam_m, *adam_v;
        const struct nn_own *own; /* [own_count], with ZeRO: see nn_set_own; else NULL */
        int own_count;
        struct nn_bucket *buckets;  /* [plan.update_buffers] */
        struct adamw_range *ranges; /* which parameters are decayed, for kernels_adamw */
        void **slots;      /* [plan.slots]: each for a micro-batch's stored activations in one chunk */
        void **host_slots; /* [plan.host_slots]: in host memory, offloaded ones, layout.slot bytes each */
        void **inputs;     /* [plan.input_buffers]: activations that were received, (B, T, C) */
        void **gradient_buffers; /* [plan.gradient_buffers]: gradients of activations, (B, T, C) */
        /* [plan.deferred]: what the first part of a backward leaves for the second; and of that the gradient
         * of the output of the last block that is in two parts. */
        void **deferred, **deferred_tops;
        /* Buffers in host memory, one beside each slot's output, each input and each gradient buffer, for
         * messages that are staged. If they are not, the entries are NULL. */
        void **host_outputs, **host_inputs, **host_gradient_buffers;
        void *host_gradients; /* in host memory, for staged all-reduces: see nn_host_gradients */
        int32_t *host_ends;   /* likewise, of spread experts: room for nn_collective's all_ends; or NULL */
        void *host_shards;    /* in host memory, for staged collectives of shards; NULL: they are not */
        /* The inputs, on the first stage, and the targets, on the last, of all micro-batches of this
         * replica's batch: (micro_batches, B, T), on the device and on the host. NULL on other stages. The
         * caller fills host_tokens and host_targets, and nn_load copies them to the device. */
        int32_t *tokens, *targets, *host_tokens, *host_targets;
        double *scalars;      /* enum nn_scalar; in host memory, which kernels read and write too */
        struct nn_exec *exec; /* the lists of kernels of its passes, see exec.h */
        double loss_scale;    /* what gradients of logits are multiplied with: 1, or what the caller sets */
        /* With several shards: which segment of a pass the next nn_forward or nn_backward runs, set by the
         * caller; and the collective that follows it. */
        int segment;
        struct nn_collective *collective;
};

enum nn_scalar {
        /* The first NN_SUMMED are summed over all ranks at the end of a batch. */
        NN_LOSS,         /* summed over tokens */
        NN_SQUARED_NORM, /* of the gradients as they are stored: scaled, in mixed precision */
        NN_STOPS,        /* how many ranks were asked to stop, */
        NN_SAVES,        /* want a checkpoint behind this batch, */
        NN_WRITTEN,      /* and have written their part of the last one */
        NN_SUMMED,
        NN_GRADIENT_SCALE =
                NN_SUMMED, /* what updates multiply gradients with: clipping factor / loss scale */
        NN_OVERFLOW,       /* mixed precision: 1 if a gradient is too large to be summed, else 0; of gradients
                            * in fp32 their squared norm, which is not finite if one of them is not */
        NN_ONE,            /* 1 */
        NN_SCALARS
};

/* The device buffers in which an offloaded update works: plan.update_parameters elements each. */
struct nn_bucket {
        void *weights; /* as stored, where these are offloaded; else NULL */
        real *master, *gradients, *adam_m, *adam_v;
};

/* Opens a stage: allocates every buffer, after a device_reserve of their sum, and counts them by category.
 * Without `optimizer` there are no master parameters, moments and buckets. Weights begin as zeros: call
 * nn_initialize or nn_write_parameters. The caller ends it with nn_close. Returns NULL with a sentence if the
 * device, within its limits, has not enough memory. */
struct nn_stage *nn_open(struct device *device, const struct gpt *gpt, const struct stage *stage,
                         const struct memory_plan *plan, bool optimizer, struct rv_error_info *err);

/* With ZeRO: says which parameters this replica has; to be called before parameters are written or read. The
 * table stays the caller's, who keeps it until nn_close. Returns false if there is no memory. */
bool nn_set_own(struct nn_stage *, const struct nn_own *own, int count);

/* Frees what the stage has beside the device's memory, which goes when the device is closed. NULL is fine. */
void nn_close(struct nn_stage *);

/* Returns the address of element `offset` in a flat buffer such as weights or gradients. */
void *nn_at(const struct nn_stage *, void *flat, int64_t offset);

/* Returns the address of element `offset` of the gradients, which are kept in fp32 unless updates work on
 * copies of them (memory_copies_gradients); nn_sum_at of the sum of them that waits at a level. */
void *nn_gradients_at(const struct nn_stage *, int64_t offset);
void *nn_sum_at(const struct nn_stage *, int level, int64_t offset);

/* Enqueues the copy of the batch's tokens and targets to the device, on the lane from host to device. */
void nn_load(struct nn_stage *);

/* Enqueue a copy of `bytes` bytes from device to host, or back, of memory that the stage allocated. */
void nn_copy_out(struct nn_stage *, void *host, const void *device, int64_t bytes);
void nn_copy_in(struct nn_stage *, void *device, const void *host, int64_t bytes);

/* Returns where the gradients from parameter `offset` on are summed on the host, if all-reduces are staged.
 * That memory is for all parameters, or for the shared embedding alone, which is the first tensor of the
 * first stage and the last of the last. */
void *nn_host_gradients(const struct nn_stage *, int64_t offset);

/* Offloaded: enqueue, on the copy lanes, the fetch of master parameters and moments [place, place + count)
 * into buckets[buffer], and the way back. */
void nn_fetch(struct nn_stage *, int buffer, int64_t place, int64_t count);
void nn_write_back(struct nn_stage *, int buffer, int64_t place, int64_t count);

/* Offloaded parameters: enqueue the fetch of the share [begin, begin + count) of a unit, which is kept from
 * `place` on, to its place in buffer `gathered`; of the weights of an update into buckets[buffer]; and their
 * way back. */
void nn_fetch_share(struct nn_stage *, int gathered, int64_t begin, int64_t place, int64_t count);
void nn_fetch_weights(struct nn_stage *, int buffer, int64_t place, int64_t count);
void nn_store_weights(struct nn_stage *, int buffer, int64_t place, int64_t count);

/* Offloaded activations: enqueue the copy of what `chunk` stores in a slot to a host slot, and back. */
void nn_store_activations(struct nn_stage *, int chunk, int slot, int host_slot);
void nn_fetch_activations(struct nn_stage *, int chunk, int host_slot, int slot);

/* How many parameters the next three functions move between host and device at once: 1 MiB of fp32. */
enum { NN_CHUNK = 1 << 18 };

/* Copies the parameters [offset, offset + count) to `out`, in fp32. In mixed precision these are the master
 * parameters, so the stage must have been opened with an optimizer; with ZeRO, those that another replica
 * updates are then 0, and with ZeRO-3 in fp32 too. Waits for the device. */
void nn_read_parameters(struct nn_stage *, int64_t offset, int64_t count, float *out);

/* Sets the weights of parameters [offset, offset + count), rounded as they are stored, and the master
 * parameters if there are any. Waits for the device. */
void nn_write_parameters(struct nn_stage *, int64_t offset, int64_t count, const float *values);

/* The optimizer's state of parameters: themselves, in fp32, and AdamW's moments of first and second order. */
enum nn_state { NN_PARAMETERS, NN_MOMENTS, NN_SQUARES, NN_STATES };

/* Enqueues a copy of the state of parameters [offset, offset + count) to `out`, which must stay until the
 * device was waited for; with ZeRO they must be this replica's own. */
void nn_read_state(struct nn_stage *, enum nn_state what, int64_t offset, int64_t count, real *out);

/* Sets the moments of those of parameters [offset, offset + count) that this replica updates. `what` is
 * NN_MOMENTS or NN_SQUARES. Waits for the device. */
void nn_write_moments(struct nn_stage *, enum nn_state what, int64_t offset, int64_t count,
                      const real *values);

/* Whether this replica has the weights of all parameters: without ZeRO-3 it has. */
bool nn_has_weights(const struct nn_stage *);

/* Sets the initial weights. Each element depends on `seed`, its tensor's id and its index in the whole tensor
 * only, so every layout begins with the same model. The distribution is GPT-2's: normal(0, 0.02), and
 * normal(0, 0.02 / sqrt(2 n_layer)) for projections into the residual stream. Uses at most `threads` threads,
 * the caller's among them. Waits for the device. */
void nn_initialize(struct nn_stage *, uint64_t seed, int threads);

/* ---- passes ----
 *
 * A pass works on one micro-batch in one chunk of the stage; `chunk` is 0 unless the schedule is interleaved.
 * Its buffers are named by their indices: `input` (-1 for the model's first chunk, whose input are tokens),
 * `slot`, `gradient`, `deferred`.
 *
 * With several shards (tensor parallelism) the passes nn_forward, nn_backward and nn_backward_part are cut at
 * each collective: a call runs the kernels of segment nn->segment, which are those between two collectives.
 * It returns true if a collective follows, which *nn->collective then describes; the caller runs it, and then
 * the next segment. With one shard a pass is one segment, 0, and the result is false. */

/* Enqueues the forward: from the input buffer into `slot`. In the model's last chunk also the loss, which is
 * added to scalars[NN_LOSS] as the negative log likelihood summed over tokens, and, unless `loss_only`, the
 * gradient of the logits, times loss_scale, which stays in the slot. But if the loss is made in chunks of
 * rows (workload_loss_rows), both are left to the backward, unless `loss_only`. */
bool nn_forward(struct nn_stage *, int chunk, int micro_batch, int input, int slot, bool loss_only);
/* Returns whether training leaves the loss to the backward, on the last stage. */
bool nn_loss_in_backward(const struct nn_stage *);

/* Enqueues the backward of what a forward with the same chunk, input and slot has stored. Adds to the
 * gradients of the parameters, and transforms the gradient buffer in place from the gradient of the chunk's
 * output to that of its input. In the model's last chunk the buffer is written from the loss; in its first
 * one it is scratch in the end. */
bool nn_backward(struct nn_stage *, int chunk, int micro_batch, int input, int slot, int gradient);

/* Enqueues one of two parts of a backward: PART_INPUT, which makes the gradient of the input, and later
 * PART_WEIGHT; for one chunk. Of several shards it is cut as nn_backward is. partition_parts says which
 * layers are left to the second part. Of these the first part adds to the gradients of LayerNorms alone (and
 * of the head if the loss is made in chunks), and it leaves in buffer `deferred` what the second part needs,
 * which takes no `gradient` (-1). */
bool nn_backward_part(struct nn_stage *, int micro_batch, int input, int slot, int gradient, int deferred,
                      enum kernel_part parts);

/* Enqueues a span of layers (partition_span) of a backward, or of a part of one; `deferred` is -1 if the
 * backward is in one part. The spans of a backward must follow each other, and between them the buffer
 * `gradient` must stay as it is. Of several shards each span is cut as nn_backward is, into segments that are
 * counted from 0. */
bool nn_backward_span(struct nn_stage *, int micro_batch, int input, int slot, int gradient, int deferred,
                      const struct partition_span *span);

/* ZeRO-2 and 3: the unit of a pass that a call computes, and its buffers (core_gathers): `nth` counts the
 * units in the order of a forward, the embedding first, then `layers` blocks at once, then the head. */
struct nn_unit {
        int nth, weights, gradients;
        /* Of a backward: what is done with the buffer of gradients first: nothing, it is cleared, or what
         * this replica keeps is added besides: its shares of the unit, each elements [begin, begin + count)
         * of it, which are kept from `place` on. */
        enum nn_begin { NN_ADD, NN_CLEAR, NN_LOAD } begins;
        /* Of a backward with plan.reduce_fp32: what is done when the gradients have been made: they are
         * widened, which leaves their buffer cleared, and what is kept is added to them then. */
        bool widens, loads;
        int shares;
        struct nn_share {
                int64_t begin, count, place;
        } share[2];
};
/* Returns how many elements the nth unit has; those of a tied head and the embedding are the same. */
int64_t nn_unit_elements(const struct nn_stage *, int nth);
/* Return the address of one of those buffers. */
void *nn_unit_weights(const struct nn_stage *, int buffer);
void *nn_unit_gradients(const struct nn_stage *, int buffer);
void *nn_widened_gradients(const struct nn_stage *, int buffer);
/* ZeRO-2: return at which element of nn->weights such a buffer begins, and where parameter `offset` is; of
 * the `count` parameters from there on that many are one behind the other, which then is their count. */
int64_t nn_unit_begin(const struct nn_stage *, int buffer);
int64_t nn_weight_place(const struct nn_stage *, int64_t offset, int64_t *count);
/* These enqueue a forward or backward as nn_forward and nn_backward do, of one unit. The units of a pass must
 * follow each other. Of several shards each unit is cut as those are, into segments that are counted from
 * 0. */
bool nn_forward_unit(struct nn_stage *, const struct nn_unit *unit, int micro_batch, int input, int slot,
                     bool loss_only);
bool nn_backward_unit(struct nn_stage *, const struct nn_unit *unit, int micro_batch, int input, int slot,
                      int gradient);

/* Returns the output of one of the stage's chunks in a slot, (B, T, C): the activations that go to the next
 * stage. */
void *nn_output(struct nn_stage *, int chunk, int slot);

/* Returns the raw logits in a slot, (B x T, V), and stores how many elements their rows are apart: on the
 * last stage, after a forward with `loss_only`. Not for a stage whose loss is made in chunks. */
void *nn_logits(struct nn_stage *, int slot, int64_t *apart);

#endif
