#include "runtime/limits.h"

#include "runtime/engine/capacity.h"
#include "runtime/engine/estimate.h"
#include "runtime/probe.h"

#include <stdlib.h>

void limits_apply(struct device *device, const struct options *o, const struct net *net)
{
        device->shared_limit_bytes /= net->local_ranks;
        for (int space = 0; space < MEMORY_SPACES; space++)
                device->limit_bytes[space] =
                        o->memory[space] ? o->memory[space] : device->limit_bytes[space] / net->local_ranks;
}

/* A rank's share of its machine's memory, on the machine that has the least for each. */
static int64_t least_share(struct net *net)
{
        int64_t share = device_cpu_memory_bytes() / net->local_ranks;
        int64_t *all = net->rank == 0 ? calloc((size_t)net->ranks, sizeof *all) : NULL;
        if (net->rank == 0 && !all)
                abort();
        net->ops->gather(net, &share, sizeof share, all);
        for (int i = 0; all && i < net->ranks; i++)
                share = all[i] < share ? all[i] : share;
        free(all);
        net->ops->broadcast(net, &share, sizeof share, 0);
        return share;
}

static double seconds_of(void *prices, const struct options *o)
{
        return estimate_batch(o, prices).batch_seconds;
}

/* On rank 0, for the eyes of who must change the plan. */
static void print_refusal(const struct options *o, const struct capacity *capacity,
                          const struct capacity_need *need, double host_link_bytes_per_second)
{
        struct probe probe;
        struct estimate_prices prices = probe_prices(&probe);
        struct capacity_change changes[CAPACITY_CHANGES];
        probe_run(&probe, host_link_bytes_per_second);
        int count = capacity_changes(o, capacity, seconds_of, &prices, changes);
        capacity_print(stderr, o, capacity, need, changes, count, seconds_of(&prices, o), probe_basis);
}

int limits_check(const struct options *o, double host_link_bytes_per_second, struct net *net,
                 struct rv_error_info *err)
{
        /* The CPU device's memory is its host's. */
        int64_t share = least_share(net);
        struct capacity capacity = {.bytes = {[CAPACITY_SHARED] = share}};
        struct capacity_need need;
        for (int space = 0; space < MEMORY_SPACES; space++)
                capacity.bytes[space] = o->memory[space] ? o->memory[space] : share;
        int rc = 0;
        if (net->rank == 0) {
                rc = capacity_check(o, &capacity, &need, err);
                if (rc)
                        print_refusal(o, &capacity, &need, host_link_bytes_per_second);
        }
        return net_agree(net, rc, err);
}
