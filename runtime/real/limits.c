#include "runtime/real/limits.h"

#include "runtime/base/number.h"
#include "runtime/engine/capacity.h"
#include "runtime/real/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What this rank may have of its device's memory. Where ranks share a GPU, all must have opened it: what they
 * take for themselves is gone. */
static int64_t device_share(struct device *device, struct net *net)
{
        int64_t free_bytes, total_bytes;
        if (!device->ops->memory)
                return device->limit_bytes[MEMORY_DEVICE] / net->local_ranks;
        net->ops->barrier(net);
        device->ops->memory(device, &free_bytes, &total_bytes);
        net->ops->barrier(net); /* nobody takes of it before all have asked */
        device->overhead_bytes = (total_bytes - free_bytes) / device->sharing + device->later_bytes;
        const int64_t share = free_bytes / device->sharing - device->later_bytes;
        return share > 1 ? share : 1; /* 0 would be: not known */
}

void limits_apply(struct device *device, const struct options *o, struct net *net)
{
        const int64_t shares[] = {[MEMORY_DEVICE] = device_share(device, net),
                                  [MEMORY_HOST] = device->limit_bytes[MEMORY_HOST] / net->local_ranks};
        device->shared_limit_bytes /= net->local_ranks;
        for (int space = 0; space < MEMORY_SPACES; space++) {
                const int64_t given = o->memory[space];
                const bool beyond = given > shares[space] && !device->shared_limit_bytes;
                device->limit_bytes[space] = given && !beyond ? given : shares[space];
        }
}

/* What the rank that has least has of each. */
static struct capacity min_capacity(const struct device *device, struct net *net)
{
        struct capacity min = {.bytes = {[MEMORY_DEVICE] = device->limit_bytes[MEMORY_DEVICE],
                                         [MEMORY_HOST] = device->limit_bytes[MEMORY_HOST],
                                         [CAPACITY_SHARED] = device->shared_limit_bytes}};
        struct capacity *all = net->rank == 0 ? calloc((size_t)net->ranks, sizeof *all) : NULL;
        if (net->rank == 0 && !all)
                abort();
        net->ops->gather(net, &min, sizeof min, all);
        for (int i = 0; all && i < net->ranks; i++)
                for (int limit = 0; limit < CAPACITY_LIMITS; limit++)
                        if (all[i].bytes[limit] < min.bytes[limit])
                                min.bytes[limit] = all[i].bytes[limit];
        free(all);
        return min;
}

void limits_choose_logits(struct options *o, const struct device *device, struct net *net)
{
        if (strcmp(options_device(o), "cpu") == 0)
                return;
        const struct capacity capacity = min_capacity(device, net);
        if (net->rank == 0)
                capacity_choose_logits(o, &capacity);
        net->ops->broadcast(net, &o->logits_bytes, sizeof o->logits_bytes, 0);
}

/* On rank 0, for the eyes of who must change the plan. */
static void print_refusal(const struct options *o, const struct capacity *capacity,
                          const struct capacity_need *need, const struct device_request *request)
{
        char basis[PROBE_BASIS];
        struct probe probe;
        struct capacity_change changes[CAPACITY_CHANGES];
        probe_run(&probe, options_device(o), request);
        int count = capacity_changes(o, capacity, probe_batch_seconds, &probe, changes);
        capacity_print(stderr, o, capacity, need, changes, count, probe_batch_seconds(&probe, o),
                       probe_basis(options_device(o), request, basis));
}

/* What the GPU had given away when it was opened, if that is more than ranks' contexts take, is somebody
 * else's. */
static void tell_of_others(const struct device *device, struct rv_error_info *err)
{
        /* A context, libraries and workspace take half of it; a library's attention takes more. */
        const int64_t own = INT64_C(1) << (device->description.attention[0] ? 31 : 30);
        const int64_t taken = (device->overhead_bytes - device->later_bytes) * device->sharing;
        char text[NUMBER_TEXT];
        const size_t length = strlen(err->sentence);
        if (device->ops->memory && taken > own * device->sharing)
                snprintf(err->sentence + length, sizeof err->sentence - length,
                         "; %s of the GPU's memory were taken when it was opened, so other processes have "
                         "some "
                         "of it (nvidia-smi lists them)",
                         number_bytes(text, (double)taken));
}

int limits_check(const struct options *o, const struct device *device, const struct device_request *request,
                 struct net *net, struct rv_error_info *err)
{
        const struct capacity capacity = min_capacity(device, net);
        struct capacity_need need;
        int rc = 0;
        if (net->rank == 0) {
                rc = capacity_check(o, &capacity, &need, err);
                if (rc)
                        tell_of_others(device, err);
                if (rc)
                        print_refusal(o, &capacity, &need, request);
        }
        return net_agree(net, rc, err);
}
