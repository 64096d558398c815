/* The interpreter of layer programs, private to runtime/nn. models/ describes each layer as a program:
 * values, and steps that are kernels or collectives of shards. This module derives from it, once for a stage,
 * the list of steps of each pass (a forward, a backward, or a part of a backward) and where the values are
 * that they read and write, and then launches a list on the device, for one layer and micro-batch after
 * another (pass.c says which). Nothing here waits for the device. */
#ifndef RANVIER_RUNTIME_NN_EXEC_H
#define RANVIER_RUNTIME_NN_EXEC_H

#include "runtime/nn/nn.h"

/* The steps of one pass of one layer. */
struct exec_list {
        const struct program *program;
        struct steps steps;
        struct kernel kernel[PROGRAM_STEPS]; /* of each step, for all rows of a micro-batch */
        struct placement place;              /* of the values that the steps write */
        int collectives;                     /* how many of the steps are */
};

/* The lists of a stage, and where values that are not in the workspace begin; all offsets are in bytes. */
struct nn_exec {
        struct workload workload;
        struct exec_list list[LAYER_PASSES][LAYERS];
        /* For a parameter or its gradient: which of the layer's tensors it is. */
        int ordinal[LAYERS][PROGRAM_VALUES];
        /* Where a value begins in the layer's part of a slot; -1: it is not in the slot. */
        int64_t kept[LAYERS][PROGRAM_VALUES];
        /* Of blocks: where the gradients are that the first part of a backward leaves for the second, and
         * where, in a block's part of a slot, the memory begins that is free then and lent for them. */
        struct deferral deferral[LAYERS];
        int64_t freed[LAYERS];
        char *workspace; /* on the device; set by nn_open */
};

/* Makes the lists of a stage, from its gpt, stage and plan. Returns NULL if there is no memory. The caller
 * frees it with free(), and sets the workspace. */
struct nn_exec *exec_new(const struct nn_stage *nn);

/* One layer in one pass of a micro-batch: the memory of the values that its list does not write itself. What
 * a pass does not need may be NULL. */
struct exec_frame {
        enum layer layer;
        const struct exec_list *list;
        int block;     /* which of the stage's blocks, from 0; of other layers 0 */
        char *slot;    /* the layer's part of the micro-batch's slot */
        const void *x; /* the layer's input */
        void *output_gradient, *input_gradient;
        /* For a backward in two parts: the block's part of a deferred buffer, and the memory that the block
         * above lends. */
        char *deferred, *lent;
        int micro_batch; /* for its tokens and targets */
};

/* Returns where a frame's layer leaves its output, which is in its slot. */
void *exec_output(const struct nn_exec *, const struct exec_frame *);

/* The progress of one run through the layers of a pass, of which collectives of shards make segments. Begins
 * as all zeros. A run launches the kernels of one segment, nn->segment, and passes over the others. */
struct exec_pass {
        int at;       /* the segment that has been reached: collectives so far */
        bool stopped; /* the segment has ended at a collective: nothing more is launched */
};

/* Launches those steps of a layer that are in segment nn->segment. If a collective ends the segment,
 * describes it in *nn->collective and sets pass->stopped. Called for the layers of a pass in their order,
 * with the same `pass`. */
void exec_run(struct nn_stage *nn, struct exec_pass *pass, const struct exec_frame *frame);

/* Fills in nn->pass_offsets (defined in pass.c). */
void pass_offsets(struct nn_stage *nn);

/* Returns where a deferred buffer holds the gradient of the output of the last block whose backward is in two
 * parts (defined in pass.c; nn_open fills deferred_tops with it). */
void *pass_deferred_top(const struct nn_stage *nn, int deferred);

#endif
