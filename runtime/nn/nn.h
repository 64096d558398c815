/* A stage of a GPT on a device: forward and backward of one micro-batch, written over kernels.h. Enqueues
 * only: nothing here waits. Launches exactly what models/workload.h lists, in that order. */
#ifndef RANVIER_RUNTIME_NN_NN_H
#define RANVIER_RUNTIME_NN_NN_H

#include "runtime/device/kernels.h"

struct nn_stage {
        struct device *device;
        struct gpt gpt;
        struct stage stage;
        struct memory_plan plan;
        struct memory_layout layout;
        struct tensor *tensors; /* of this stage, in memory order */
        int tensor_count;
        int64_t parameters;         /* elements */
        real *weights, *gradients;  /* flat, in the order of partition_tensors; gradients begin zero */
        real *adam_m, *adam_v;      /* flat; NULL if opened without optimizer */
        struct adamw_range *ranges; /* which parameters are decayed, for kernels_adamw */
        real **slots;               /* [plan.slots] stored activations */
        real **inputs;              /* [plan.input_buffers] (B,T,C) */
        real **gradient_buffers;    /* [plan.gradient_buffers] (B,T,C) */
        int32_t *tokens, *targets;  /* device copies for the whole batch: (micro_batches, B, T) */
        double *scalars;            /* device-visible: [0] loss sum, [1] squared norm, [2] gradient scale */
        real *work_c, *work_4c, *work_qkv, *work_attention;
};

/* Allocates every buffer (counted by category, exactly as models/memory.c predicts). `optimizer`: moments
 * too. NULL with a sentence if the device has not enough memory. */
struct nn_stage *nn_open(struct device *device, const struct gpt *gpt, const struct stage *stage,
                         const struct memory_plan *plan, bool optimizer, struct rv_error_info *err);
void nn_close(struct nn_stage *); /* frees the host side; device memory goes with the device */

/* Initial weights from `seed`: each element depends on (seed, tensor id, index) only, so every layout begins
 * with the same model. Normal(0, 0.02), residual projections 0.02 / sqrt(2 n_layer), GPT-2's. Synchronises.
 */
void nn_initialize(struct nn_stage *, uint64_t seed);

/* Forward of micro-batch `micro_batch`: input buffer `input` (-1 on the first stage) into `slot`. On the last
 * stage also the loss: adds the summed negative log likelihood to scalars[0] and leaves the gradient of the
 * logits, times loss_scale, in the slot (unless loss_only). */
void nn_forward(struct nn_stage *, int micro_batch, int input, int slot, double loss_scale, bool loss_only);

/* Backward: adds into gradients; transforms gradient buffer `gradient` in place from dL/d(output) to
 * dL/d(input) (on the last stage it is written from the loss; with one stage it is scratch). */
void nn_backward(struct nn_stage *, int micro_batch, int input, int slot, int gradient);

real *nn_output(struct nn_stage *, int slot); /* (B,T,C): the activations that go to the next stage */
real *nn_logits(struct nn_stage *,
                int slot); /* (B T, V): last stage, after a loss_only forward: raw logits */

#endif
