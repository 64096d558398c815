#include "sim/world/tensor.h"

#include "models/memory.h"
#include "runtime/base/minmax.h"
#include "sim/world/costs.h"

#include <math.h>

/* On the local platform only all-reduces were measured: to scatter or to gather is half of one. */
double tensor_collective_seconds(const struct platform *p, const struct collective_group *shards,
                                 enum kernel_kind collective, int64_t bytes, enum dtype dtype)
{
        const bool sums = kernel_sums(collective), gathers = kernel_gathers(collective);
        if (p->allreduces[dtype])
                return (sums ? 1 : 0.5) * collective_seconds(p, shards, COLLECTIVE_ALLREDUCE, bytes, dtype);
        return collective_seconds(p, shards,
                                  sums      ? COLLECTIVE_ALLREDUCE
                                  : gathers ? COLLECTIVE_ALL_GATHER
                                            : COLLECTIVE_REDUCE_SCATTER,
                                  bytes, dtype);
}

struct collective_exchange tensor_exchange(const struct platform *platform, struct plan_group members,
                                           const struct kernel *k)
{
        const struct collective_group gpus = {members.first, members.stride, members.size, 1};
        const struct collective_shape shape = collective_shape(platform, &gpus);
        const int64_t bytes = kernel_collective_bytes(k, sizeof(float));
        const enum dtype dtype = (enum dtype)k->dtype;
        struct collective_exchange exchange = {0, 1, 1};
        if (!platform->messages && !platform->xml[0])
                exchange = kernel_of_experts(k->kind)
                                   ? collective_exchange(platform, &shape, bytes, dtype)
                                   : collective_library_exchange(platform, &shape, bytes, dtype);
        if (k->k > 1)
                collective_exchange_once(&shape, k->k, &exchange);
        return exchange;
}

/* Every member sends an even part of its rows to every other: in its node, and to other nodes meanwhile. */
static double exchange_seconds(const struct platform *platform, const struct collective_group *gpus,
                               struct plan_group members, const struct kernel *k)
{
        const int64_t bytes = kernel_collective_bytes(k, sizeof(float));
        const struct collective_shape shape = collective_shape(platform, gpus);
        if (platform->messages)
                return (members.size - 1) *
                       profile_line_seconds(platform->messages, LINE_MESSAGE, bytes / members.size, false);
        if (platform->xml[0])
                return 0;
        const struct collective_exchange exchange = tensor_exchange(platform, members, k);
        return collective_exchange_seconds(&shape, &exchange, bytes);
}

/* Every member sends to the next, and waits for what comes: nodes' links are those of one member each way. */
static double shift_seconds(const struct platform *platform, const struct collective_group *gpus,
                            struct plan_group members, const struct kernel *k)
{
        const double bytes = (double)kernel_collective_bytes(k, sizeof(float));
        const struct collective_shape shape = collective_shape(platform, gpus);
        if (platform->messages)
                return profile_line_seconds(platform->messages, LINE_MESSAGE, (int64_t)bytes, false);
        if (platform->xml[0])
                return 0;
        const bool far = shape.nodes > 1;
        return tensor_exchange(platform, members, k).start_seconds +
               (far ? shape.far_seconds : shape.near_seconds) +
               bytes / (far ? shape.far_bytes_per_second : shape.near_bytes_per_second);
}

/* Bytes that go over the link between device and host, in so many pieces. */
static double copied_seconds(const struct platform *platform, enum profile_line line, int64_t bytes,
                             int64_t pieces)
{
        const double each = (double)bytes / (double)pieces;
        if (platform->copies)
                return (double)pieces * profile_line_seconds(platform->copies, line, (int64_t)each, false);
        if (platform->host_link_bytes_per_second == 0)
                return 0;
        return (double)pieces * (platform->host_link_seconds + each / platform->host_link_bytes_per_second);
}

/* A collective of shards that goes through host memory: copies of what it reads and of what it makes, and
 * between them the collective, whose messages cross the hosts' memory, which the members of a socket share,
 * and not the GPUs' own links. `bytes` are those of the whole buffer. */
static double staged_seconds(const struct platform *platform, const struct collective_group *gpus,
                             enum kernel_kind collective, int64_t bytes, enum dtype dtype)
{
        const bool sums = kernel_sums(collective), gathers = kernel_gathers(collective);
        const int64_t pieces = (bytes + MEMORY_STAGED_SHARDS - 1) / MEMORY_STAGED_SHARDS,
                      part = bytes / gpus->count;
        const double copies = copied_seconds(platform, LINE_COPY_BACK, gathers ? part : bytes, pieces) +
                              copied_seconds(platform, LINE_COPY, gathers || sums ? bytes : part, pieces);
        if (platform->allreduces[dtype] || platform->host_memory_bytes_per_second == 0)
                return copies + tensor_collective_seconds(platform, gpus, collective, bytes, dtype);
        struct platform host = *platform;
        const int sharing = (platform->gpus_per_node + platform->sockets - 1) / platform->sockets;
        host.measured_collectives = (struct collective_table){0}; /* between GPUs */
        host.gpu_link_is_pcie = false;
        host.gpu_link_bytes_per_second = platform->host_memory_bytes_per_second / sharing;
        return copies + tensor_collective_seconds(&host, gpus, collective, bytes, dtype);
}

double tensor_sum_seconds(const struct platform *platform, const struct collective_group *shards,
                          int64_t bytes, enum dtype dtype)
{
        return platform->stages_shards
                       ? staged_seconds(platform, shards, KERNEL_TENSOR_ALLREDUCE, bytes, dtype)
                       : collective_seconds(platform, shards, COLLECTIVE_ALLREDUCE, bytes, dtype);
}

double tensor_part_seconds(const struct platform *platform, struct plan_group group,
                           const struct price_pass *pass, int part)
{
        const struct kernel *k = &pass->collectives[part];
        const bool of_shards = plan_group_of_shards(price_group(k->kind));
        const int beside = of_shards ? min_int(group.stride, platform->gpus_per_node) : 1;
        const struct collective_group gpus = {group.first, group.stride, group.size, beside};
        if (kernel_joins(k->kind))
                return 0;
        if (k->kind == KERNEL_CONTEXT_SHIFT)
                return shift_seconds(platform, &gpus, group, k);
        if (kernel_of_experts(k->kind))
                return exchange_seconds(platform, &gpus, group, k);
        const int64_t bytes = kernel_collective_bytes(k, sizeof(float));
        return (of_shards && platform->stages_shards ? staged_seconds : tensor_collective_seconds)(
                platform, &gpus, k->kind, bytes, (enum dtype)k->dtype);
}

bool tensor_leaves_node(const struct platform *platform, struct plan_group group)
{
        const int last = group.first + (group.size - 1) * group.stride;
        return platform_place(platform, group.first).node != platform_place(platform, last).node;
}

/* The same, looked up in `memo` by all that it follows from. */
static double known_part_seconds(const struct platform *platform, struct plan_group group,
                                 const struct price_pass *pass, int part, struct memo *memo)
{
        const struct kernel *k = &pass->collectives[part];
        const double key[] = {k->kind,
                              k->dtype,
                              k->format,
                              kernel_group(k),
                              k->experts,
                              (double)k->batch,
                              (double)k->m,
                              (double)k->n,
                              (double)k->k,
                              (double)k->l,
                              group.first,
                              group.stride,
                              group.size,
                              platform->stages_shards,
                              platform->gpu_link_seconds,
                              platform->gpu_link_bytes_per_second};
        enum { KEYS = sizeof key / sizeof *key };
        const double *known = memo ? memo_find(memo, key, KEYS) : NULL;
        if (known)
                return *known;
        const double seconds = tensor_part_seconds(platform, group, pass, part);
        if (memo)
                memo_keep(memo, key, KEYS, &seconds, 1);
        return seconds;
}

/* A pass has few different collectives, so the last ones' seconds are kept. */
double tensor_seconds(const struct platform *platform, const struct plan *plan, int rank,
                      const struct price_pass *pass, struct memo *memo)
{
        enum { KEPT = 16 };
        double kept[KEPT];
        bool far[KEPT];
        int which[KEPT], count = 0;
        struct price_progress progress = {0};
        for (int part = 0; part + 1 < pass->parts; part++) {
                int same = 0;
                while (same < count &&
                       !kernel_same(&pass->collectives[which[same]], &pass->collectives[part]))
                        same++;
                if (same == count) {
                        same = count < KEPT ? count++ : 0;
                        which[same] = part;
                        const struct plan_group group =
                                plan_group(plan, rank, price_group(pass->collectives[part].kind));
                        kept[same] = known_part_seconds(platform, group, pass, part, memo);
                        far[same] = tensor_leaves_node(platform, group);
                }
                price_go_on(&progress, pass, part, kept[same], far[same]);
        }
        return progress.waited;
}

double tensor_decision_seconds(const struct platform *platform, struct plan_group shards, int64_t bytes)
{
        const struct collective_group gpus = {shards.first, shards.stride, shards.size, 1};
        const struct collective_shape shape = collective_shape(platform, &gpus);
        if (platform->messages)
                return profile_line_seconds(platform->messages, LINE_MESSAGE, bytes, false);
        if (platform->xml[0])
                return 0;
        return shape.nodes > 1 ? shape.far_seconds + (double)bytes / shape.far_bytes_per_second
                               : shape.near_seconds + (double)bytes / shape.near_bytes_per_second;
}

double tensor_line_seconds(const struct platform *platform, struct plan_group replicas,
                           const struct profile_load *load, int64_t bytes)
{
        if (!tensor_leaves_node(platform, replicas))
                return NAN;
        return profile_line_seconds(load, LINE_LAYER_GATHER, bytes, false);
}

double tensor_unit_seconds(const struct platform *platform, struct plan_group replicas, int shards,
                           const struct profile_load *load, const struct op *op, enum dtype dtype)
{
        const struct collective_group gpus = {replicas.first, replicas.stride, replicas.size,
                                              min_int(shards, platform->gpus_per_node)};
        const double known = tensor_line_seconds(platform, replicas, load, op->bytes);
        if (!isnan(known))
                return known;
        return collective_seconds(platform, &gpus, costs_collective(op), op->bytes, dtype);
}
