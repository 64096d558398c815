#include "sim/world/tensor.h"

#include "sim/world/costs.h"

#include <math.h>

/* On the local platform only all-reduces were measured: to scatter or to gather is half of one. */
double tensor_collective_seconds(const struct platform *p, const struct collective_group *shards,
                                 enum kernel_kind collective, int64_t bytes, enum dtype dtype)
{
        const bool sums = collective == KERNEL_TENSOR_ALLREDUCE;
        if (p->allreduces[dtype])
                return (sums ? 1 : 0.5) * collective_seconds(p, shards, COLLECTIVE_ALLREDUCE, bytes, dtype);
        return collective_seconds(p, shards,
                                  sums                                     ? COLLECTIVE_ALLREDUCE
                                  : collective == KERNEL_TENSOR_ALL_GATHER ? COLLECTIVE_ALL_GATHER
                                                                           : COLLECTIVE_REDUCE_SCATTER,
                                  bytes, dtype);
}

double tensor_part_seconds(const struct platform *platform, struct plan_group shards,
                           const struct price_pass *pass, int part)
{
        const struct kernel *k = &pass->collectives[part];
        const struct collective_group gpus = {shards.first, shards.stride, shards.size, 1};
        return tensor_collective_seconds(platform, &gpus, k->kind, kernel_collective_bytes(k, sizeof(float)),
                                         (enum dtype)k->dtype);
}

/* A pass has few different collectives, so the last ones' seconds are kept. */
double tensor_seconds(const struct platform *platform, struct plan_group shards,
                      const struct price_pass *pass)
{
        enum { KEPT = 4 };
        double kept[KEPT], seconds = 0;
        int which[KEPT], count = 0;
        for (int part = 0; part + 1 < pass->parts; part++) {
                int same = 0;
                while (same < count &&
                       !kernel_same(&pass->collectives[which[same]], &pass->collectives[part]))
                        same++;
                if (same == count) {
                        same = count < KEPT ? count++ : 0;
                        which[same] = part;
                        kept[same] = tensor_part_seconds(platform, shards, pass, part);
                }
                seconds += kept[same];
        }
        return seconds;
}

double tensor_unit_seconds(const struct platform *platform, struct plan_group replicas,
                           const struct profile_load *load, const struct op *op, enum dtype dtype)
{
        const struct collective_group gpus = {replicas.first, replicas.stride, replicas.size, 1};
        const double known = profile_line_seconds(load, LINE_LAYER_GATHER, op->bytes, false);
        if (!isnan(known))
                return known;
        return collective_seconds(platform, &gpus, costs_collective(op), op->bytes, dtype);
}
