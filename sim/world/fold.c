#include "sim/world/fold.h"

#include "runtime/base/parse.h"

#include "runtime/base/minmax.h"
#include "sim/collective/collective_model.h"
#include "sim/platform/fabric.h"

#include <string.h>

static const char *const names[] = {[FOLD_AUTO] = "auto", [FOLD_ON] = "on", [FOLD_OFF] = "off", NULL};
const struct option_words fold_words = {.names = names};

int fold_parse(const char *option, const char *text, enum fold *fold, struct rv_error_info *err)
{
        int which = *fold;
        const int rc = parse_name(option, text, names, &which, err);
        *fold = (enum fold)which;
        return rc;
}

/* Whether one is made of whole ones of the other: blocks of `a` GPUs and parts of `b` then never straddle. */
static bool nest(int a, int b)
{
        return a % b == 0 || b % a == 0;
}

/* Whether what replicas of one node send each other crosses more for some than for others: with a part of a
 * socket or of a rail's GPUs each, their ring crosses between sockets, or leaves the node, in some places
 * only. Between nodes the rails are what it waits for, so that whole sockets are alike there. */
static bool splits_parts(const struct platform *p, int block, bool one_node)
{
        const bool sockets = p->socket_link_bytes_per_second > 0;
        return block < p->gpus_per_node &&
               (block % (p->gpus_per_node / p->rails) ||
                (sockets && (one_node || block % (p->gpus_per_node / p->sockets))));
}

/* What a replica has of each node that it lies in must be a part that all replicas have alike. */
static const char *obstacle_in_nodes(const struct platform *p, const struct plan *plan)
{
        const int node = p->gpus_per_node, all = plan_ranks(plan);
        const bool outermost = plan_stride(plan, GRID_REPLICAS) > plan_stride(plan, GRID_STAGES);
        const int block = outermost ? plan->pp * plan->tp : plan->tp;
        const int neighbours = outermost ? all : plan->tp * plan->dp; /* whose blocks follow each other */
        if (!nest(block, node))
                return "replicas begin at different places of a node";
        if (neighbours > node && neighbours % node && block < node)
                return "replicas do not fill the last node";
        if (neighbours < node && neighbours < all)
                return "replicas share a node with other stages";
        if (!nest(block, node / p->sockets) || !nest(block, node / p->rails) ||
            splits_parts(p, block, all <= node))
                return "replicas have different parts of a node's sockets or rails";
        return NULL;
}

/* Whether gradients of `bytes` are summed, or with ZeRO gathered and scattered, in steps that all members
 * do alike, as in rings. Members of a tree differ, which matters as long as there are few of them, and bytes
 * enough to matter. */
static bool members_are_alike(const struct platform *p, struct plan_group members, enum collective_kind kind,
                              int64_t bytes, enum dtype dtype)
{
        const int many = 64, node = p->gpus_per_node;
        const int64_t little = 1 << 20;
        const struct collective_group group = {members.first, members.stride, members.size,
                                               members.stride < node ? members.stride : node};
        const struct collective_shape shape = collective_shape(p, &group);
        const enum collective_algorithm algorithm =
                collective_choose(p, &shape, kind, bytes, dtype).algorithm;
        return algorithm == COLLECTIVE_RING || algorithm == COLLECTIVE_HIERARCHICAL || bytes < little ||
               members.size >= many;
}

/* Hybrid shards: of each unit a share is summed. */
static bool shares_are_alike(const struct platform *p, const struct plan *plan, const struct options *options)
{
        const struct core_stage part = options_core_stage(options, 0, 0);
        for (int unit = 0; unit < core_units_of(plan, &part.units).all; unit++) {
                const int64_t share = plan_share(plan, core_unit_parameters(plan, &part.units, unit));
                if (!members_are_alike(p, plan_group(plan, 0, GROUP_SHARE_DATA), COLLECTIVE_ALLREDUCE,
                                       share * plan_gradient_bytes(plan),
                                       plan->reduce_fp32 ? DTYPE_FP32 : options->dtype))
                        return false;
        }
        return true;
}

static const char *obstacle_in_sums(const struct platform *p, const struct plan *plan,
                                    const struct options *options)
{
        static const char *const along_trees = "gradients are summed along trees, in which replicas differ";
        const struct stage stage = options_stage(options, 0);
        const int64_t experts = plan->ep > 1 ? partition_expert_parameters(&options->gpt, &stage) : 0;
        const int64_t parameters = partition_parameters(&options->gpt, &stage) - experts;
        const int64_t chunk = plan->bucket_parameters * plan->allreduce_buckets;
        const bool groups = plan->zero == 1 && plan_hybrid(plan);
        const enum collective_kind sum =
                plan->zero == 1 && !groups ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALLREDUCE;
        const struct {
                enum op_group group;
                enum collective_kind kind;
                int64_t parameters;
        } sums[] = {{GROUP_DATA, sum, plan->zero >= 2 ? 0 : min_int64(parameters, chunk)},
                    {GROUP_DATA, sum, plan->zero >= 2 ? 0 : parameters % chunk},
                    {GROUP_EXPERT_DATA, sum, plan->zero >= 2 ? 0 : min_int64(experts, chunk)},
                    {GROUP_EXPERT_DATA, sum, plan->zero >= 2 ? 0 : experts % chunk},
                    {GROUP_EXPERT_DATA, COLLECTIVE_ALL_GATHER, plan->zero >= 2 ? experts : 0},
                    {GROUP_SHARERS, COLLECTIVE_ALL_GATHER, groups ? min_int64(parameters, chunk) : 0},
                    {plan_unit_group(plan), COLLECTIVE_ALL_GATHER, plan->zero >= 2 ? parameters : 0}};
        for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
                const bool wide = plan->wide_gradients && sums[i].kind != COLLECTIVE_ALL_GATHER;
                if (sums[i].parameters &&
                    !members_are_alike(p, plan_group(plan, 0, sums[i].group), sums[i].kind,
                                       sums[i].parameters * (wide ? 4 : plan->element_bytes),
                                       wide ? DTYPE_FP32 : options->dtype))
                        return along_trees;
        }
        return !plan_sums_shares(plan) || shares_are_alike(p, plan, options) ? NULL : along_trees;
}

/* Replicas that exchange rows of experts must send and receive alike: as many rows, to as many in their node.
 */
static const char *obstacle_in_experts(const struct platform *p, const struct plan *plan,
                                       const struct options *options)
{
        const struct plan_group experts = plan_group(plan, 0, GROUP_EXPERTS);
        const struct collective_group gpus = {experts.first, experts.stride, experts.size, 1};
        if (plan->ep <= 1)
                return NULL;
        if (options->routing.exponent > 0)
                return "replicas have experts of their own, which get uneven rows";
        const struct collective_shape shape = collective_shape(p, &gpus);
        if (shape.nodes > 1 && shape.per_node == 0)
                return "replicas that share experts lie differently in their nodes";
        if (p->socket_link_bytes_per_second > 0 && (shape.nodes == 1 || shape.per_node > 1))
                return "replicas that share experts are of different sockets";
        return NULL;
}

/* In a ring all that have parts of the same sequences must send inside their nodes, or all to others. */
static const char *obstacle_in_ring(const struct platform *p, const struct plan *plan,
                                    const struct options *options)
{
        const struct plan_group context = plan_group(plan, 0, GROUP_CONTEXT);
        const struct collective_group gpus = {context.first, context.stride, context.size, 1};
        if (plan->cp <= 1 || options->cp_exchange != CONTEXT_RING)
                return NULL;
        const struct collective_shape shape = collective_shape(p, &gpus);
        if (shape.nodes > 1 && shape.per_node != 1)
                return "a ring of ranks with parts of sequences leaves its nodes at one of their ranks";
        if (p->socket_link_bytes_per_second > 0 && shape.nodes == 1)
                return "ranks with parts of the same sequences are of different sockets";
        return NULL;
}

const char *fold_obstacle(const struct platform *p, const struct options *options)
{
        const struct plan plan = options_plan(options, false);
        if (plan.dp == 1)
                return "there is one replica";
        if (p->processors)
                return "replicas share processors";
        if (plan_hybrid(&plan) &&
            !nest(plan_share_ranks(&plan) * plan_stride(&plan, GRID_REPLICAS), p->gpus_per_node))
                return "replicas that share lie differently in their nodes";
        if (p->xml[0])
                return "a SimGrid file does not say which of its hosts are alike";
        if (p->groups)
                return "the platform has nodes of several kinds";
        if (!fabric_is_even(&p->fabric))
                return "replicas share links of the fabric";
        if (p->collectives.algorithm == COLLECTIVE_FLAT_RING)
                return "a flat ring passes the replicas of a node one after another";
        const char *obstacle = obstacle_in_nodes(p, &plan);
        if (!obstacle)
                obstacle = obstacle_in_experts(p, &plan, options);
        if (!obstacle)
                obstacle = obstacle_in_ring(p, &plan, options);
        return obstacle ? obstacle : obstacle_in_sums(p, &plan, options);
}

const char *fold_shards_obstacle(const struct platform *p, const struct options *options)
{
        const int shards = options->tp, node = p->gpus_per_node;
        const int blocks[] = {options_shards_x(options), shards / options_shards_z(options), shards};
        if (shards == 1)
                return "there is one shard";
        if (p->processors)
                return "shards share processors";
        if (p->xml[0])
                return "a SimGrid file does not say which of its hosts are alike";
        if (p->groups)
                return "the platform has nodes of several kinds";
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) /* shards along x, x and y, and all */
                if (!nest(blocks[i], node) || !nest(blocks[i], node / p->sockets) ||
                    !nest(blocks[i], node / p->rails))
                        return "shards have different parts of a node's sockets or rails";
        if (shards > node && !fabric_is_even(&p->fabric))
                return "shards in different nodes share links of the fabric";
        return NULL;
}
