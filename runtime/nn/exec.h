/* The interpreter: launches the steps of a layer's program on a device. Private to nn. */
#ifndef RANVIER_RUNTIME_NN_EXEC_H
#define RANVIER_RUNTIME_NN_EXEC_H

#include "runtime/nn/nn.h"

/* The steps of one layer's forward, or of a part of its backward, and where what they write lies. */
struct exec_list {
        const struct program *program;
        struct steps steps;
        struct kernel kernel[PROGRAM_STEPS]; /* of all rows */
        struct placement place;
        int collectives;
};

struct nn_exec {
        struct workload workload;
        struct exec_list list[LAYER_PASSES][LAYERS];
        int ordinal[LAYERS][PROGRAM_VALUES]; /* of a parameter, or its gradient: which of the layer's it is */
        int64_t kept[LAYERS][PROGRAM_VALUES]; /* where a value begins in the layer's part of a slot; or -1 */
        struct deferral deferral; /* and of a block what a backward's first part leaves for the second */
        int64_t freed;            /* where in a block's part of a slot begins what is lent for that */
        char *workspace;
};

/* Derives the lists of a stage. NULL: no memory. The caller frees it with free(). */
struct nn_exec *exec_new(const struct nn_stage *nn);

/* One layer of a pass: where what it does not write itself lies. */
struct exec_frame {
        enum layer layer;
        const struct exec_list *list;
        int block;  /* of the stage's */
        char *slot; /* the layer's part of the micro-batch's slot */
        const void *x;
        void *output_gradient, *input_gradient;
        char *deferred, *lent; /* the block's part of a deferred buffer, and what the block above lends */
        int micro_batch;
};

/* Where a frame's layer leaves its output. */
void *exec_output(const struct nn_exec *, const struct exec_frame *);

/* A pass, of which the shards' collectives make segments: one segment of it is run. */
struct exec_pass {
        int at; /* collectives so far */
        bool stopped;
};

/* Runs what of a layer lies in segment nn->segment; `pass` is stopped where a collective follows
 * behind it, which then stands in nn->collective. */
void exec_run(struct nn_stage *nn, struct exec_pass *pass, const struct exec_frame *frame);

/* Where the gradient of the last block's output lies that a backward's first part leaves (pass.c). */
void *pass_deferred_top(const struct nn_stage *nn, int deferred);

#endif
