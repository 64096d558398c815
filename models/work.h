/* How a micro-batch is worked on. */
#ifndef RANVIER_MODELS_WORK_H
#define RANVIER_MODELS_WORK_H

#include "models/gpt.h"
#include "models/kernels/kernel.h"

/* What the work on one micro-batch depends on, beside the model and the stage. */
struct work {
        int micro_batch_size, seq_len; /* B, T */
        enum dtype dtype;              /* of stored tensors */
        int real_bytes; /* of an element that is not stored in 16 bits; 0: 4. 8 in the double build */
        enum recompute recompute;
        bool fused; /* the fused kernels: no (T,T) matrix is stored, biases, GELU and residuals go with
                       products */
        int tp;     /* shards that each layer's matrices are split into; at least 1 */
        bool sequence_parallel; /* what is not split by tp is split along the sequence */
        int64_t logits_bytes;   /* that logits made at once take at most; 0: WORKLOAD_LOGITS_BYTES. See
                                   workload_loss_rows */
};
/* What is recomputed in effect. Fused attention stores no scores, and its backward computes them anyway:
 * there selective is none. */
static inline enum recompute work_recomputation(const struct work *work)
{
        return work->recompute == RECOMPUTE_SELECTIVE && work->fused ? RECOMPUTE_NONE : work->recompute;
}
/* Mixed precision: tensors of 16 bits, master parameters in fp32. */
static inline bool work_mixed(const struct work *work)
{
        return work->dtype != DTYPE_FP32;
}
/* Bytes of an element of a stored tensor. */
static inline int work_element_bytes(const struct work *work)
{
        return work_mixed(work) ? 2 : work->real_bytes ? work->real_bytes : 4;
}

#endif
