/* The kernels of a model's training step, cut at its linear products: a trace has the same products, and what
 * stands between two of them there does the work of the kernels that stand between them here, whatever its
 * operators are called.
 *
 * Places of a forward alternate: place 2 i is what comes before the i-th product, place 2 i + 1 is this
 * product, and the last place is what follows the last one. A backward goes through the same places from the
 * end; there a product is two, of the input's and the weight's gradients. */
#ifndef RANVIER_CALIBRATE_TRACE_LAYERS_H
#define RANVIER_CALIBRATE_TRACE_LAYERS_H

#include "models/workload.h"

/* Kernels [first, first + count) of layers.kernels. */
struct layers_range {
        int first, count;
};
struct layers_place {
        struct layers_range forward, backward;
};

/* It owns its arrays; layers_free frees them. */
struct layers {
        struct kernel *kernels; /* of the forward, the loss in it, and then of the backward */
        int count;
        int forward; /* of them, the first ones: those that a forward launches; the others a backward does */
        struct layers_place *places; /* [2 products + 1] */
        int products;
        int64_t B, S;
        /* The squared norm of all gradients, and the update of all parameters. Gradients that are kept in
         * fp32 have `norms` 2: a prediction looks for an overflow by another norm. */
        struct kernel norm, update;
        int norms;
};

/* Lists the kernels of a whole model, fused, on one rank. RV_ENOTBUILT: the model has experts or attention of
 * few columns, whose products a trace has in other shapes. */
int layers_init(struct layers *layers, const struct gpt *gpt, int micro_batch_size, int seq_len,
                enum dtype dtype, struct rv_error_info *err);
void layers_free(struct layers *layers);

/* Whether a kernel is one of the linear products, of a forward or backward, plain or with what follows it. */
bool layers_product(const struct kernel *kernel);

#endif
