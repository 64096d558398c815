/* The plan: everything that a schedule depends on. That is the grid of ranks, the policy, the options that
 * change which operations there are, and the sizes of what is moved; no layers, no prices, no devices. The
 * options of the command line become a plan in runtime/plan (options_plan); the scheduling core, both worlds
 * and the memory accounting read it, and nobody changes it while a batch runs.
 *
 * A plan is plain data without pointers, so it can be copied, compared and hashed. The functions below turn
 * the number of a rank into its place in the grid and back, and say which ranks form the group of a
 * collective. */
#ifndef RANVIER_RUNTIME_SCHED_PLAN_H
#define RANVIER_RUNTIME_SCHED_PLAN_H

#include "runtime/sched/policies/policies.h"

#include <stdbool.h>
#include <stdint.h>

/* POLICY_AXONN, POLICY_1F1B and so on, as policies/policies.h lists them. policy_get (policy.h) returns the
 * policy of an id. */
#define POLICY_ID(id, object) POLICY_##id,
enum policy_id { POLICY_LIST(POLICY_ID) POLICIES };
#undef POLICY_ID

/* The axes of the grid of ranks: a pipeline has stages, there are replicas of the pipeline (data
 * parallelism), and each stage has shards (tensor parallelism). Whoever lists, prints, reads or strides over
 * axes iterates over this enumeration; the names of the axes are in runtime/plan/grid.h. */
enum grid_axis { GRID_STAGES, GRID_REPLICAS, GRID_SHARDS, GRID_AXES };

/* The members of a struct that has a grid: how many ranks lie along each axis, at least 1 each. `pp` is the
 * number of stages, `dp` of replicas and `tp` of shards (AxoNN calls them G_inter, G_data and G_intra). The
 * same numbers are in `sizes`, indexed by enum grid_axis. */
#define GRID_SIZES                                                                                           \
        union {                                                                                              \
                struct {                                                                                     \
                        int pp, dp, tp;                                                                      \
                };                                                                                           \
                int sizes[GRID_AXES];                                                                        \
        }

/* Returns how many ranks a grid of these sizes has: their product. */
static inline int64_t grid_ranks(const int sizes[GRID_AXES])
{
        int64_t ranks = 1;
        for (int axis = 0; axis < GRID_AXES; axis++)
                ranks *= sizes[axis];
        return ranks;
}

/* How ranks are numbered, which decides which of them share a node. The shards of a stage always have
 * consecutive numbers. With ORDER_STAGES the stages of one pipeline come next and replicas last; with
 * ORDER_REPLICAS the replicas of one stage come next and stages last. */
enum plan_order { ORDER_STAGES, ORDER_REPLICAS, PLAN_ORDERS };

/* ZeRO-3: until when a unit's weights stay gathered: the end of the forward (or backward) that they were
 * gathered for, of the backward of that micro-batch, or of the batch. */
enum plan_gathered { GATHERED_FOR_PASS, GATHERED_FOR_MICRO_BATCH, GATHERED_FOR_BATCH };

/* One plan, the same on all ranks. What core_init requires of it is said there. */
struct plan {
        GRID_SIZES;
        enum plan_order order;
        /* Of the tp shards of a stage, where they are a grid of X x Y x Z: X and Z. Shard number
         * x + X (y + Y z) has place x, y, z, so those along x are neighbours, as AxoNN has them. 0, or 1 and
         * 1: they lie in a row, along y. */
        int tp_x, tp_z;
        /* Over how many replicas the experts of a layer are spread, those of neighbouring numbers; it divides
         * dp. 1, or 0: each replica has them all. `whole_experts`: shards do not split experts, which are
         * spread over the tp shards of ep / tp replicas; tp divides ep, and ep / tp divides dp. Then the
         * ranks of a stage follow each other, or ep is tp. */
        int ep;
        bool whole_experts;
        /* How many replicas have parts of the same sequences, those of neighbouring numbers; it divides dp,
         * and so dp / cp of them have sequences of their own. 1, or 0: each has. */
        int cp;
        /* Chunks of the model that each rank works on: 1, or more with the interleaved policy. */
        int virtual_stages;
        /* Shards split along the sequence what tensor parallelism leaves whole. */
        bool sequence_parallel;
        /* A message holds up the compute lane, as a blocking send or receive does; see blocking.c. */
        bool blocking;
        /* Gradients are summed over the replicas while the last backward goes on; see overlap.c. */
        bool overlap_allreduce;
        /* What the replicas share: 0 nothing; 1 the optimizer's work and state (regions.h); 2 gradients too,
         * 3 weights as well (gather.c). */
        int zero;
        /* For ZeRO-2 and 3 (gather.c): how many blocks are reduced, or gathered, at once, as one unit (0: 1);
         * ZeRO-3: how many units are gathered ahead of the one that is computed; and until when weights stay,
         * which with ZeRO-2 they always do. GATHERED_FOR_BATCH: gradients are whole, too, until the last
         * backward of the batch reduces them; else after each. */
        int unit_layers, prefetch;
        enum plan_gathered gathered;
        /* ZeRO in groups: how many neighbouring replicas share; it divides dp. 0: all. With ZeRO-2 and 3
         * these are hybrid shards. */
        int sharers;
        /* ZeRO-2 and 3, of gradients that are made in 16 bits: a unit's are widened when its backward is
         * over, and reduced, and kept from micro-batch to micro-batch, in fp32. */
        bool reduce_fp32;
        /* Gradients are made and kept in fp32 whatever is stored, and summed in it; without ZeRO-2 and 3. */
        bool wide_gradients;
        int micro_batches; /* in a batch, for each pipeline */
        /* How many logical replicas each replica stands for, a power of two that divides micro_batches; 1, or
         * 0: itself alone. The first micro_batches / logical of its micro-batches are those of the first one,
         * and so on; see logical.c. */
        int logical;
        enum policy_id policy;
        /* For the axonn policy: the most micro-batches under way in a pipeline at once. 0 means pp. */
        int pipeline_limit;
        /* The batch is for validation: there is no backward and no update. */
        bool forward_only;
        /* The first and the last stage share an embedding and sum its gradients. */
        bool tied;
        /* Updates wait for the global norm of the gradients, by which these are clipped. */
        bool clip;
        /* Gradients are stored in 16 bits: each rank checks its own for overflow, and all ranks agree on the
         * result before any update. */
        bool mixed;
        /* Master parameters and moments are in host memory: each update fetches its part, and writes it back.
         * Needs `mixed`. */
        bool offload;
        /* ZeRO-3: this replica's shares of weights are in host memory. Each is fetched before its unit is
         * gathered (gather.c), and is stored again when it has been updated, in fp32 fetched before that too.
         */
        bool offload_parameters;
        /* Stored activations wait in host memory for their backward; see activations.c. */
        bool offload_activations;
        /* Messages go through host memory, and so do collectives of gradients and weights, those between the
         * shards of a stage excepted; see staging.c. */
        bool stage_messages;
        bool stage_allreduce;
        bool stage_shards;     /* and those between the shards of a stage, which the driver copies itself */
        int64_t message_bytes; /* one message: the activations of a micro-batch between two stages */
        /* The tokens of a batch on the first stage, or the targets on the last, in bytes. A rank that is both
         * loads twice as much. */
        int64_t load_bytes;
        int64_t embedding_parameters; /* of the shared embedding if `tied` and pp > 1; else 0 */
        int64_t bucket_parameters;    /* parameters of a bucket, see plan_update_parameters */
        int allreduce_buckets;        /* buckets that one all-reduce sums (AxoNN's coalescing factor) */
        int element_bytes;            /* bytes of one gradient, or weight, as stored; see also reduce_fp32 */
};

/* Whether updates work in buffers, from which what they have made goes to the host; and whether something is
 * fetched into these before. */
static inline bool plan_buffers_updates(const struct plan *plan)
{
        return plan->offload || plan->offload_parameters;
}
static inline bool plan_fetches_updates(const struct plan *plan)
{
        return plan->offload || (plan->offload_parameters && !plan->mixed);
}

/* An offloaded optimizer works through a bucket in thirds. Each third has buffers of its own, so one can be
 * fetched, one updated and one written back at the same time, in the memory that one bucket takes (four fp32
 * arrays). */
enum { PLAN_UPDATE_BUFFERS = 3 };

/* Returns how many parameters one optimizer update works on: a bucket, or a third of it, rounded up, if the
 * optimizer is offloaded. core_update_parameters (core.h) bounds it by the size of a stage. */
static inline int64_t plan_update_parameters(const struct plan *plan)
{
        if (!plan_buffers_updates(plan))
                return plan->bucket_parameters;
        return (plan->bucket_parameters + PLAN_UPDATE_BUFFERS - 1) / PLAN_UPDATE_BUFFERS;
}

/* Returns the bytes that a fetch or a write back of an offloaded optimizer's `parameters` parameters moves:
 * for each an fp32 master parameter and two fp32 moments. */
static inline int64_t plan_offloaded_bytes(int64_t parameters)
{
        return 12 * parameters;
}

/* Returns the bytes that an update of `parameters` parameters fetches, and those that go back to the host. */
static inline int64_t plan_fetched_bytes(const struct plan *plan, int64_t parameters)
{
        return plan->offload ? plan_offloaded_bytes(parameters) : parameters * plan->element_bytes;
}
static inline int64_t plan_written_bytes(const struct plan *plan, int64_t parameters)
{
        return (plan->offload ? plan_offloaded_bytes(parameters) : 0) +
               (plan->offload_parameters ? parameters * plan->element_bytes : 0);
}

/* ZeRO: returns how many replicas, of neighbouring numbers, have all shares together: all or, in groups,
 * plan.sharers of them; then other replicas have the same shares. */
static inline int plan_share_ranks(const struct plan *plan)
{
        return plan->sharers > 0 ? plan->sharers : plan->dp;
}
static inline bool plan_hybrid(const struct plan *plan)
{
        return plan_share_ranks(plan) < plan->dp;
}
/* Whether a replica writes a part of a checkpoint: of hybrid shards the first group has all that there is. */
static inline bool plan_writes(const struct plan *plan, int replica)
{
        return !plan_hybrid(plan) || replica < plan_share_ranks(plan);
}
/* Whether replicas of different groups sum their shares, of what each group has reduced (ZeRO-2 and 3; with
 * ZeRO-1 all replicas sum all). */
static inline bool plan_sums_shares(const struct plan *plan)
{
        return plan->zero >= 2 && plan_hybrid(plan);
}

/* Whether gradients of 16-bit tensors are kept, and summed over replicas, in fp32. */
static inline bool plan_keeps_fp32(const struct plan *plan)
{
        return plan->reduce_fp32 || plan->wide_gradients;
}

/* Returns the bytes of one gradient in a collective of replicas. */
static inline int plan_gradient_bytes(const struct plan *plan)
{
        return plan_keeps_fp32(plan) ? 4 : plan->element_bytes;
}

/* Returns the size of a replica's share of `count` parameters: ZeRO splits them evenly and rounds the shares
 * up, so the last replicas' shares may be smaller than this, or empty. */
static inline int64_t plan_share(const struct plan *plan, int64_t count)
{
        const int ranks = plan_share_ranks(plan);
        return (count + ranks - 1) / ranks;
}

/* The parameters [begin, begin + count); none if `count` is 0. */
struct plan_range {
        int64_t begin, count;
};
/* Returns over how many ranks experts are spread, at least 1; and of how many replicas these are. */
static inline int plan_expert_ranks(const struct plan *plan)
{
        return plan->ep > 1 ? plan->ep : 1;
}
static inline int plan_expert_replicas(const struct plan *plan)
{
        return plan->whole_experts ? plan->ep / plan->tp : plan_expert_ranks(plan);
}

/* Returns how many logical replicas each replica stands for, at least 1; and the micro-batches of each. */
static inline int plan_logical(const struct plan *plan)
{
        return plan->logical > 1 ? plan->logical : 1;
}
static inline int plan_logical_micro_batches(const struct plan *plan)
{
        return plan->micro_batches / plan_logical(plan);
}

/* Returns how many replicas have parts of the same sequences, at least 1. */
static inline int plan_context_ranks(const struct plan *plan)
{
        return plan->cp > 1 ? plan->cp : 1;
}
/* Whether passes have collectives in them: of the shards of a stage, of the replicas over which its experts
 * are spread, or of those that have parts of the same sequences. */
static inline bool plan_parts_passes(const struct plan *plan)
{
        return plan->tp > 1 || plan->ep > 1 || plan->cp > 1;
}

/* Returns how many ranks the plan has in all. */
static inline int plan_ranks(const struct plan *plan)
{
        return (int)grid_ranks(plan->sizes);
}

/* Returns the difference between the numbers of two ranks that are neighbours along an axis: the product of
 * the sizes of the axes within it. plan->order says which axes these are. */
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

/* Returns the position of a rank along an axis, from 0. */
static inline int plan_place(const struct plan *plan, int rank, enum grid_axis axis)
{
        return rank / plan_stride(plan, axis) % plan->sizes[axis];
}

/* Returns the number of the rank at a place of the grid; each coordinate counts from 0. The three functions
 * after it are its inverse: each returns one coordinate of a rank. */
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

/* These return the rank to which `rank` sends activations, and the one from which it receives them. Gradients
 * go the other way. The ranks of a pipeline form a ring for an interleaved model: chunk c of the rank at
 * position i is the model's stage c pp + i, so the last rank sends to the first, for its next chunk. Without
 * interleaving no operation asks for the neighbour across the ends. */
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

/* The kinds of groups that have collectives. Members have the same shard index, but for those of shards, of
 * whole experts and of all ranks. */
enum op_group {
        GROUP_EMBEDDING,   /* first and last stage of one pipeline */
        GROUP_DATA,        /* the same stage of all pipelines */
        GROUP_TENSOR,      /* the shards of one stage of one pipeline; of a grid those along y */
        GROUP_TENSOR_X,    /* of a grid those along x, */
        GROUP_TENSOR_Z,    /* and those along z */
        GROUP_EXPERTS,     /* the ranks of a stage that have all of its experts together */
        GROUP_EXPERT_DATA, /* the replicas of a stage that have the same experts */
        GROUP_CONTEXT,     /* the replicas of a stage that have parts of the same sequences */
        GROUP_SHARERS,     /* hybrid shards: the replicas of a stage that have all shares together */
        GROUP_SHARE_DATA,  /* and those that have the same share */
        GROUP_WORLD        /* all ranks */
};

/* A group of ranks: member i (0 .. size - 1) is rank first + i stride, and the rank that was asked for is
 * member `index`. */
struct plan_group {
        int first, stride, size, index;
};
/* Returns the group that `rank` is in along an axis: the ranks that differ from it in that coordinate
 * alone. */
static inline struct plan_group plan_group_along(const struct plan *plan, int rank, enum grid_axis axis)
{
        const int stride = plan_stride(plan, axis), place = plan_place(plan, rank, axis);
        return (struct plan_group){rank - place * stride, stride, plan->sizes[axis], place};
}
/* Returns the `size` neighbours among the members of a group that its member `index` is one of. */
static inline struct plan_group plan_neighbours(struct plan_group all, int size)
{
        const int within = all.index % size;
        return (struct plan_group){all.first + (all.index - within) * all.stride, all.stride, size, within};
}
/* Return how many shards of a stage lie along x and z. */
static inline int plan_shards_x(const struct plan *plan)
{
        return plan->tp_x > 1 ? plan->tp_x : 1;
}
static inline int plan_shards_z(const struct plan *plan)
{
        return plan->tp_z > 1 ? plan->tp_z : 1;
}
/* Returns the shards along an axis of their grid, of all shards of a stage. */
static inline struct plan_group plan_shards_along(const struct plan *plan, struct plan_group all,
                                                  enum op_group kind)
{
        const int x = plan_shards_x(plan), z = plan_shards_z(plan), y = all.size / (x * z);
        const int stride = kind == GROUP_TENSOR_X ? 1 : kind == GROUP_TENSOR ? x : x * y;
        const int size = kind == GROUP_TENSOR_X ? x : kind == GROUP_TENSOR ? y : z;
        const int index = all.index / stride % size;
        return (struct plan_group){all.first + (all.index - index * stride) * all.stride, stride * all.stride,
                                   size, index};
}
/* Returns the ranks that have a stage's experts together, of the replicas `along` which they are spread. */
static inline struct plan_group plan_experts_of(const struct plan *plan, int rank, struct plan_group along)
{
        const struct plan_group replicas = plan_neighbours(along, plan_expert_replicas(plan));
        const int shard = plan_shard(plan, rank);
        if (!plan->whole_experts)
                return replicas;
        return (struct plan_group){replicas.first - shard, 1, plan->ep, replicas.index * plan->tp + shard};
}
static inline bool plan_group_of_shards(enum op_group kind)
{
        return kind >= GROUP_TENSOR && kind <= GROUP_TENSOR_Z;
}
/* Returns the group of a kind that `rank` is in. GROUP_EMBEDDING may be asked for on a first or a last stage
 * only, and where pp > 1: no other rank is a member. */
static inline struct plan_group plan_group(const struct plan *plan, int rank, enum op_group kind)
{
        if (kind == GROUP_WORLD)
                return (struct plan_group){0, 1, plan_ranks(plan), rank};
        const struct plan_group along = plan_group_along(plan, rank,
                                                         plan_group_of_shards(kind) ? GRID_SHARDS
                                                         : kind == GROUP_EMBEDDING  ? GRID_STAGES
                                                                                    : GRID_REPLICAS);
        const int stride = along.stride;
        if (plan_group_of_shards(kind))
                return plan_shards_along(plan, along, kind);
        if (kind == GROUP_EXPERTS)
                return plan_experts_of(plan, rank, along);
        if (kind == GROUP_CONTEXT)
                return plan_neighbours(along, plan_context_ranks(plan));
        if (kind == GROUP_SHARERS)
                return plan_neighbours(along, plan_share_ranks(plan));
        const int apart = kind == GROUP_SHARE_DATA ? plan_share_ranks(plan) : plan_expert_replicas(plan);
        const int within = along.index % apart;
        if (kind == GROUP_EXPERT_DATA || kind == GROUP_SHARE_DATA)
                return (struct plan_group){along.first + within * stride, apart * stride, along.size / apart,
                                           along.index / apart};
        if (kind != GROUP_EMBEDDING)
                return along;
        return (struct plan_group){along.first, (along.size - 1) * along.stride, 2, along.index != 0};
}

/* Of the replicas that sum gradients over `group`, GROUP_DATA, GROUP_EXPERT_DATA or GROUP_SHARERS: how many
 * they are, and which of them `replica` is. */
static inline int plan_sharers(const struct plan *plan, enum op_group group)
{
        return group == GROUP_EXPERT_DATA ? plan->dp / plan_expert_replicas(plan)
               : group == GROUP_SHARERS   ? plan_share_ranks(plan)
                                          : plan->dp;
}
static inline int plan_sharer(const struct plan *plan, enum op_group group, int replica)
{
        return group == GROUP_EXPERT_DATA ? replica / plan_expert_replicas(plan)
               : group == GROUP_SHARERS   ? replica % plan_share_ranks(plan)
                                          : replica;
}
/* Returns the range of [0, count) that is the share of `replica` (0 .. dp - 1) in such a group. */
static inline struct plan_range plan_own(const struct plan *plan, enum op_group group, int replica,
                                         int64_t count)
{
        const int sharers = plan_sharers(plan, group), sharer = plan_sharer(plan, group, replica);
        const int64_t each = (count + sharers - 1) / sharers;
        const int64_t begin = sharer * each < count ? sharer * each : count;
        return (struct plan_range){begin, each < count - begin ? each : count - begin};
}

/* ZeRO-2 and 3: returns the group in which units are gathered and reduced. */
static inline enum op_group plan_unit_group(const struct plan *plan)
{
        return plan_hybrid(plan) ? GROUP_SHARERS : GROUP_DATA;
}

/* Returns how many virtual micro-batches (vmb) a rank works on in a batch. One is a micro-batch in one of the
 * rank's chunks of the model; its number is chunk x micro_batches + micro-batch. With one chunk the virtual
 * micro-batches are the micro-batches. */
static inline int plan_vmbs(const struct plan *plan)
{
        return plan->virtual_stages * plan->micro_batches;
}

#endif
