/* Everything that a schedule depends on. Plain data, no pointers: a plan can be copied, compared and hashed.
 */
#ifndef RANVIER_RUNTIME_SCHED_PLAN_H
#define RANVIER_RUNTIME_SCHED_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum policy_id { POLICY_AXONN, POLICY_GPIPE, POLICY_1F1B, POLICIES };

struct plan {
        int pp, dp;        /* G_inter stages a pipeline, G_data replicas of it */
        int micro_batches; /* a batch brings to each pipeline */
        enum policy_id policy;
        int pipeline_limit; /* axonn: micro-batches under way at once; 0 means pp */
        bool forward_only;  /* validation: no backward, no optimizer */
        bool tied;          /* first and last stage sum their gradient of the shared embedding */
        bool clip;          /* updates wait for the global norm of the gradients */
        bool mixed;   /* gradients are checked for overflow; all ranks agree before anything is updated */
        bool offload; /* mixed only: master parameters and moments are fetched, updated and written back */
        bool offload_activations;             /* stored activations wait on the host for their backward */
        bool stage_messages, stage_allreduce; /* these go through host memory: see staging.c */
        int64_t message_bytes;                /* activations of one micro-batch between two stages */
        int64_t load_bytes;           /* tokens (first stage) or targets (last) of the whole batch, each */
        int64_t embedding_parameters; /* elements of the shared embedding, if tied and pp > 1 */
        int64_t bucket_parameters;    /* see plan_update_parameters */
        int allreduce_buckets;        /* buckets an all-reduce (AxoNN's coalescing factor) */
        int element_bytes;            /* of a gradient in an all-reduce */
};

/* With offloading, a bucket is worked through in thirds, each with buffers of its own: one is fetched, one
 * updated and one written back at the same time, in the memory of one bucket (four fp32 arrays of it). */
enum { PLAN_UPDATE_BUFFERS = 3 };

/* Parameters that one optimizer update works on: a bucket, or offloaded its third. */
static inline int64_t plan_update_parameters(const struct plan *plan)
{
        if (!plan->offload)
                return plan->bucket_parameters;
        return (plan->bucket_parameters + PLAN_UPDATE_BUFFERS - 1) / PLAN_UPDATE_BUFFERS;
}

/* Bytes that a fetch or write back of `parameters` moves: fp32 parameters and two moments. */
static inline int64_t plan_offloaded_bytes(int64_t parameters)
{
        return 12 * parameters;
}

/* The stage varies fastest: the stages of one pipeline are neighbours. */
static inline int plan_rank(const struct plan *plan, int replica, int stage)
{
        return replica * plan->pp + stage;
}
static inline int plan_stage(const struct plan *plan, int rank)
{
        return rank % plan->pp;
}
static inline int plan_replica(const struct plan *plan, int rank)
{
        return rank / plan->pp;
}

#endif
