#include "sim/tensor.h"

/* On the local platform only all-reduces were measured: to scatter or to gather is half of one. */
double tensor_collective_seconds(const struct platform *p, const struct collective_group *shards,
                                 enum kernel_kind collective, int64_t bytes, enum half half)
{
        const bool sums = collective == KERNEL_TENSOR_ALLREDUCE;
        if (p->allreduces[half])
                return (sums ? 1 : 0.5) * collective_seconds(p, shards, COLLECTIVE_ALLREDUCE, bytes, half);
        return collective_seconds(p, shards,
                                  sums                                     ? COLLECTIVE_ALLREDUCE
                                  : collective == KERNEL_TENSOR_ALL_GATHER ? COLLECTIVE_ALL_GATHER
                                                                           : COLLECTIVE_REDUCE_SCATTER,
                                  bytes, half);
}

double tensor_seconds(const struct platform *platform, struct plan_group group,
                      const struct price_list *prices, int stage, bool forward)
{
        const struct stage_price *price = &prices->stages[stage];
        const struct price_collective *each = forward ? price->tensor.forward : price->tensor.backward;
        const int count = forward ? price->tensor.forwards : price->tensor.backwards;
        const struct collective_group shards = {group.first, group.stride, group.size, 1};
        double seconds = 0;
        for (int i = 0; i < count; i++) {
                const struct kernel *k = &each[i].kernel;
                seconds +=
                        each[i].count * tensor_collective_seconds(platform, &shards, k->kind,
                                                                  kernel_collective_bytes(k, sizeof(float)),
                                                                  (enum half)k->half);
        }
        return seconds;
}
