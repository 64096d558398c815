#include "sim/tensor.h"

#include <math.h>

/* A ring: to scatter the sums, shards - 1 steps of a shard's part, and as many to gather them. */
double tensor_collective_seconds(const struct platform *p, enum kernel_kind collective, int64_t bytes,
                                 int shards, enum half half)
{
        const double rounds = collective == KERNEL_TENSOR_ALLREDUCE ? 2 : 1;
        if (p->allreduces[half])
                return rounds / 2 *
                       profile_line_seconds(p->allreduces[half], profile_allreduce_line(half), bytes, false);
        if (p->gpu_link_bytes_per_second == 0) /* a SimGrid file: its links are not ours to read */
                return 0;
        const double block = (double)bytes / shards;
        double step = p->collective_latency_seconds;
        if (shards <= p->gpus_per_node)
                step += 2 * p->gpu_link_seconds + block / p->gpu_link_bytes_per_second;
        else
                step += 2 * p->nic_seconds + block * p->gpus_per_node / p->nic_bytes_per_second;
        const double sums = collective == KERNEL_TENSOR_ALL_GATHER ? 0 : p->reduce_seconds_per_byte * block;
        return (shards - 1) * (rounds * step + sums);
}

double tensor_seconds(const struct platform *platform, const struct sim_group *group,
                      const struct price_list *prices, int stage, bool forward)
{
        const struct stage_price *price = &prices->stages[stage];
        const struct price_collective *each = forward ? price->tensor.forward : price->tensor.backward;
        const int count = forward ? price->tensor.forwards : price->tensor.backwards;
        double seconds = 0;
        for (int i = 0; i < count; i++) {
                const struct kernel *k = &each[i].kernel;
                seconds +=
                        each[i].count * tensor_collective_seconds(platform, k->kind,
                                                                  kernel_collective_bytes(k, sizeof(float)),
                                                                  group->size, (enum half)k->half);
        }
        return seconds;
}
