/* What the work on one micro-batch depends on, beside the model and the stage: its shape, the format of its
 * tensors, what is recomputed, and how it is split into shards.
 *
 * runtime/plan/options.c makes a struct work of a plan's options, calibrate of its plan family. workload.h
 * derives kernels from it, memory.h bytes. */
#ifndef RANVIER_MODELS_WORK_H
#define RANVIER_MODELS_WORK_H

#include "models/gpt.h"
#include "models/kernels/kernel.h"

/* What tensors are scaled by before they are quantized to fp8: by a maximum of before, or by their own, which
 * is found first. */
enum scaling { SCALING_DELAYED, SCALING_CURRENT };

/* What of the collectives of a grid of shards runs beside products, each with those before it, as AxoNN names
 * them (Singh et al. 2024): the sums of the inputs' gradients; the reduce-scatters of weights' gradients
 * along z; the gathers of weights along z. */
enum grid_overlap { GRID_OVERLAP_NONE, GRID_OVERLAP_OAR, GRID_OVERLAP_ORS, GRID_OVERLAP_OAG };

struct work {
        /* B sequences of T tokens, or, with `cp`, of this rank's T of cp T. */
        int micro_batch_size, seq_len;
        /* The format of stored tensors: weights, gradients and activations. */
        enum dtype dtype;
        /* What the products of blocks' linear layers read, see program_quantize; needs bf16. And whether
         * copies of parameters are made in each pass that reads them, not once a batch. */
        enum product_format format;
        bool quantizes_each_pass;
        enum scaling scaling; /* of fp8; nvfp4 is scaled by its own maximum */
        /* Gradients of parameters are fp32, from the first micro-batch on, whatever tensors are stored as. */
        bool wide_gradients;
        /* Bytes of an element that is never stored in 16 bits; 0 stands for 4. The double build has 8. */
        int real_bytes;
        /* What was asked for; work_recomputation says what is in effect. */
        enum recompute recompute;
        /* Work is done by the fused kernels: attention stores no (T,T) matrix, and biases, GELU and
         * residuals are part of the products before them. */
        bool fused;
        /* The number of shards that each layer's matrices are split into; at least 1. */
        int tp;
        /* Where they are a grid: how many of them share the residual stream's columns (x), and how many have
         * micro_batch_size sequences each of a micro-batch and share matrices (z); 0 stands for 1. */
        int tp_x, tp_z;
        enum grid_overlap grid_overlap;
        /* The number of ranks over which the experts of a layer are spread; 0 stands for 1. */
        int ep;
        /* Then: experts are not split over shards, and these ranks are of all shards and replicas. Sequence
         * parallel shards send what rows they have. */
        bool whole_experts;
        /* Then: a token goes to a node, and to a rank, once, for all of its experts there (predictions). */
        bool tokens_once;
        /* Then: memory for the rows of a rank's experts, as a multiple of an even share of them; 0: for all
         * that may come. */
        double expert_capacity;
        /* The number of ranks that have parts of the same sequences; 0 stands for 1. Each has two pieces of
         * every sequence, so seq_len is that of both. */
        int cp;
        bool cp_gathers; /* keys are gathered; else they go in a ring */
        /* Collectives of shards run beside work that does not need them, and products whose results shards
         * add up are cut into so many pieces of rows, beside each of which the one before it is summed; 0:
         * neither. */
        int tp_overlap;
        /* With several shards, what tp does not split is split along the sequence. */
        bool sequence_parallel;
        /* The most bytes of logits that exist at once; 0 stands for WORKLOAD_LOGITS_BYTES. See
         * workload_loss_rows. */
        int64_t logits_bytes;
};
/* Whether a plan that does not say has wide_gradients: in bf16, in whose 8 bits a sum of many micro-batches
 * does not grow any more. */
static inline bool work_wide_by_default(enum dtype dtype)
{
        return dtype == DTYPE_BF16;
}
/* Returns what is recomputed in effect. Fused attention stores no scores, and its backward computes them
 * anyway: there selective recomputation is the same as none. */
static inline enum recompute work_recomputation(const struct work *work)
{
        return work->recompute == RECOMPUTE_SELECTIVE && work->fused ? RECOMPUTE_NONE : work->recompute;
}
/* Return the extents of the grid of shards: along x and z, and what is left of them, along y. */
static inline int work_shards_x(const struct work *work)
{
        return work->tp_x > 1 ? work->tp_x : 1;
}
static inline int work_shards_z(const struct work *work)
{
        return work->tp_z > 1 ? work->tp_z : 1;
}
/* Return whether collectives of a grid run beside products: the sums of the inputs' gradients; and along z
 * the reduce-scatters, and the gathers. */
static inline bool work_sums_beside(const struct work *work)
{
        return work_shards_x(work) * work_shards_z(work) > 1 && work->grid_overlap >= GRID_OVERLAP_OAR;
}
static inline bool work_scatters_beside(const struct work *work)
{
        return work_shards_z(work) > 1 && work->grid_overlap >= GRID_OVERLAP_ORS;
}
static inline bool work_gathers_ahead(const struct work *work)
{
        return work_shards_z(work) > 1 && work->grid_overlap >= GRID_OVERLAP_OAG;
}
/* Returns the number of ranks over which experts are spread. */
static inline int work_expert_ranks(const struct work *work)
{
        return work->ep > 1 ? work->ep : 1;
}
/* Returns the number of ranks that have parts of the same sequences. */
static inline int work_context_ranks(const struct work *work)
{
        return work->cp > 1 ? work->cp : 1;
}
/* Whether what is quantized is scaled by its own maximum. */
static inline bool work_finds_maxima(const struct work *work)
{
        return work->format == FORMAT_NVFP4 ||
               (work->format == FORMAT_FP8 && work->scaling == SCALING_CURRENT);
}
/* Whether training is in mixed precision: tensors of 16 bits, master parameters in fp32. */
static inline bool work_mixed(const struct work *work)
{
        return work->dtype != DTYPE_FP32;
}
/* Returns the bytes of an element of a stored tensor: 2, 4, or 8 in the double build. */
static inline int work_element_bytes(const struct work *work)
{
        return work_mixed(work) ? 2 : work->real_bytes ? work->real_bytes : 4;
}

#endif
