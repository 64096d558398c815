/* Shares the time of a traced step among the kernels that a prediction prices (layers.h).
 *
 * A forward's operators are shared out by where they stand: the linear products of the trace are found one
 * after the other among the model's, and what stands between two of them is for the kernels between. A model
 * in which several products of one input are one matrix here (queries, keys and values; gates and ups) may
 * have them apart. A backward's operators go where autograd's sequence numbers say that their forward was.
 *
 * What an operator takes is told apart by what it grows with, which the shapes of its inputs show, because
 * that is what carries a kernel over to other sizes. */
#ifndef RANVIER_CALIBRATE_TRACE_SHARE_H
#define RANVIER_CALIBRATE_TRACE_SHARE_H

#include "calibrate/trace/layers.h"
#include "runtime/kineto/steps.h"

/* Seconds of a kernel. */
struct share {
        double product;   /* of linear products: they grow with the floating-point operations */
        double quadratic; /* of attention: they grow with the tokens of a sequence, times all tokens */
        double linear;    /* they grow with the tokens */
        double constant;  /* they do not: what the host spends between operators, and work on weights alone */
};
double share_seconds(const struct share *share);

struct shared_step {
        struct share *kernels; /* [layers.count], of all micro-batches of the step together */
        int micro_batches;
        /* Seconds of the optimizer, of the norm of gradients (0: none was taken), and of all else, such as
         * what loads the data. Of a GPU's trace these are the GPU's. */
        double optimizer, norm, other;
        double seconds; /* the whole step, by the host's clock */
        /* Of a GPU's trace: how long the host launches forwards and backwards, without its waits. */
        double host;
};

/* Shares out a step; `kernels` is the caller's, and is written. `path` names the trace for errors. Returns
 * RV_OK; or RV_EINPUT, if there are no shapes, or the products are not those of the model. */
int share_step(struct shared_step *shared, const struct layers *layers, const struct traced_steps *steps,
               const struct trace_step *step, const char *path, struct rv_error_info *err);

/* Returns the enum dtype in which a step has most of its products' work, of those that kernels have; -1:
 * there is none. (Angles of rotary positions may be made in fp32, by the first product of all.) */
int share_dtype(const struct traced_steps *steps, const struct trace_step *step);

#endif
