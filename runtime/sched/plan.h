/* Everything that a schedule depends on. Plain data, no pointers: a plan can be copied, compared and hashed.
 */
#ifndef RANVIER_RUNTIME_SCHED_PLAN_H
#define RANVIER_RUNTIME_SCHED_PLAN_H

#include "runtime/sched/policies/policies.h"

#include <stdbool.h>
#include <stdint.h>

#define POLICY_ID(id, object) POLICY_##id,
enum policy_id { POLICY_LIST(POLICY_ID) POLICIES };
#undef POLICY_ID

/* The axes of the grid of ranks: a pipeline has stages, there are replicas of the pipeline, and each stage
 * has shards. Whoever lists, prints, reads or strides over axes iterates over this enumeration; their names
 * are in runtime/plan/grid.h. */
enum grid_axis { GRID_STAGES, GRID_REPLICAS, GRID_SHARDS, GRID_AXES };

/* The members of a struct that has a grid: how many ranks lie along each axis. They can be had by name (AxoNN
 * calls them G_inter, G_data and G_intra) and, in `sizes`, by enum grid_axis. */
#define GRID_SIZES                                                                                           \
        union {                                                                                              \
                struct {                                                                                     \
                        int pp, dp, tp;                                                                      \
                };                                                                                           \
                int sizes[GRID_AXES];                                                                        \
        }

static inline int64_t grid_ranks(const int sizes[GRID_AXES])
{
        int64_t ranks = 1;
        for (int axis = 0; axis < GRID_AXES; axis++)
                ranks *= sizes[axis];
        return ranks;
}

/* How ranks are numbered, which decides what shares a node. The shards of a stage are always neighbours; next
 * come the stages of a pipeline, or the replicas of a stage. */
enum plan_order { ORDER_STAGES, ORDER_REPLICAS, PLAN_ORDERS };

struct plan {
        GRID_SIZES;
        enum plan_order order;
        int virtual_stages;     /* chunks of the model that a rank works on: 1, or more if interleaved */
        bool sequence_parallel; /* what tp does not split is split along the sequence */
        bool blocking;          /* a message holds up the compute lane, as a blocking send or receive does */
        bool overlap_allreduce; /* gradients are summed while the last backward goes on */
        int zero;          /* what the replicas share: 0 nothing; 1 the optimizer (regions.h); 3 weights and
                              gradients too (gather.c) */
        int micro_batches; /* of a batch, in each pipeline */
        enum policy_id policy;
        int pipeline_limit; /* axonn: the most micro-batches under way at once; 0 means pp */
        bool forward_only;  /* validation: no backward, no optimizer */
        bool tied;          /* first and last stage share an embedding and sum its gradients */
        bool clip;          /* updates wait for the global norm of the gradients */
        bool mixed;         /* gradients are checked for overflow; all ranks agree on it before any update */
        bool offload; /* master parameters and moments are fetched, updated and written back; needs mixed */
        bool offload_activations;     /* stored activations wait on the host for their backward */
        bool stage_messages;          /* messages, and */
        bool stage_allreduce;         /* all-reduces, go through host memory: see staging.c */
        int64_t message_bytes;        /* of the activations of a micro-batch between two stages */
        int64_t load_bytes;           /* of a batch's tokens on the first stage, or targets on the last */
        int64_t embedding_parameters; /* of the shared embedding, if tied and pp > 1; else 0 */
        int64_t bucket_parameters;    /* see plan_update_parameters */
        int allreduce_buckets;        /* buckets in one all-reduce (AxoNN's coalescing factor) */
        int element_bytes;            /* of a gradient in an all-reduce */
};

/* An offloaded optimizer works through a bucket in thirds. Each has buffers of its own, so that one is
 * fetched, one updated and one written back at the same time, in the memory of one bucket (four fp32 arrays).
 */
enum { PLAN_UPDATE_BUFFERS = 3 };

/* How many parameters one optimizer update works on: a bucket, or a third of it if offloaded. */
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

/* ZeRO splits `count` parameters evenly between the replicas: replica i has the i-th part, of this size; the
 * last parts may be smaller, or empty. plan_own says which range is a replica's. */
static inline int64_t plan_share(const struct plan *plan, int64_t count)
{
        return (count + plan->dp - 1) / plan->dp;
}

struct plan_range {
        int64_t begin, count;
};
static inline struct plan_range plan_own(const struct plan *plan, int replica, int64_t count)
{
        const int64_t each = plan_share(plan, count), begin = replica * each < count ? replica * each : count;
        return (struct plan_range){begin, each < count - begin ? each : count - begin};
}

static inline int plan_ranks(const struct plan *plan)
{
        return (int)grid_ranks(plan->sizes);
}

/* The difference between the numbers of two ranks that are neighbours along an axis: the product of the sizes
 * of the axes within it. */
static inline int plan_stride(const struct plan *plan, enum grid_axis axis)
{
        static const enum grid_axis innermost_first[PLAN_ORDERS][GRID_AXES] = {
                [ORDER_STAGES] = {GRID_SHARDS, GRID_STAGES, GRID_REPLICAS},
                [ORDER_REPLICAS] = {GRID_SHARDS, GRID_REPLICAS, GRID_STAGES},
        };
        int stride = 1;
        for (const enum grid_axis *within = innermost_first[plan->order]; *within != axis; within++)
                stride *= plan->sizes[*within];
        return stride;
}

/* The position of a rank along an axis, from 0. */
static inline int plan_place(const struct plan *plan, int rank, enum grid_axis axis)
{
        return rank / plan_stride(plan, axis) % plan->sizes[axis];
}

static inline int plan_rank(const struct plan *plan, int replica, int stage, int shard)
{
        return replica * plan_stride(plan, GRID_REPLICAS) + stage * plan_stride(plan, GRID_STAGES) +
               shard * plan_stride(plan, GRID_SHARDS);
}
static inline int plan_stage(const struct plan *plan, int rank)
{
        return plan_place(plan, rank, GRID_STAGES);
}
static inline int plan_replica(const struct plan *plan, int rank)
{
        return plan_place(plan, rank, GRID_REPLICAS);
}
static inline int plan_shard(const struct plan *plan, int rank)
{
        return plan_place(plan, rank, GRID_SHARDS);
}

/* The ranks to which activations go and from which they come. An interleaved model goes around the ranks of a
 * pipeline: chunk c of the rank at position i is the model's stage c pp + i, so the last rank sends to the
 * first, for its next chunk. */
static inline int plan_next_rank(const struct plan *plan, int rank)
{
        const int stage = plan_stage(plan, rank), next = stage + 1 < plan->pp ? stage + 1 : 0;
        return rank + (next - stage) * plan_stride(plan, GRID_STAGES);
}
static inline int plan_previous_rank(const struct plan *plan, int rank)
{
        const int stage = plan_stage(plan, rank), previous = stage > 0 ? stage - 1 : plan->pp - 1;
        return rank + (previous - stage) * plan_stride(plan, GRID_STAGES);
}

/* The kinds of groups that have collectives. */
enum op_group {
        GROUP_EMBEDDING, /* first and last stage of one pipeline */
        GROUP_DATA,      /* the same stage of all pipelines */
        GROUP_TENSOR,    /* the shards of one stage of one pipeline */
        GROUP_WORLD
};

/* A group of ranks: member i is rank first + i stride, and the rank that was asked for is member `index`. The
 * functions return the group along an axis, or of a kind, that `rank` is in. */
struct plan_group {
        int first, stride, size, index;
};
static inline struct plan_group plan_group_along(const struct plan *plan, int rank, enum grid_axis axis)
{
        const int stride = plan_stride(plan, axis), place = plan_place(plan, rank, axis);
        return (struct plan_group){rank - place * stride, stride, plan->sizes[axis], place};
}
static inline struct plan_group plan_group(const struct plan *plan, int rank, enum op_group kind)
{
        if (kind == GROUP_WORLD)
                return (struct plan_group){0, 1, plan_ranks(plan), rank};
        const struct plan_group along = plan_group_along(plan, rank,
                                                         kind == GROUP_DATA     ? GRID_REPLICAS
                                                         : kind == GROUP_TENSOR ? GRID_SHARDS
                                                                                : GRID_STAGES);
        if (kind != GROUP_EMBEDDING)
                return along;
        return (struct plan_group){along.first, (along.size - 1) * along.stride, 2, along.index != 0};
}

/* A rank works on virtual micro-batches (vmb): a micro-batch in one of its chunks, numbered chunk x
 * micro_batches + micro-batch. With one chunk they are the micro-batches. */
static inline int plan_vmbs(const struct plan *plan)
{
        return plan->virtual_stages * plan->micro_batches;
}

#endif
