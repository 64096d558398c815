/* What the polling main thread costs the lane that computes on the same core: the same matrix products, once
 * while the main thread sleeps until they are done, once while it looks at device and network as a run does,
 * in turn. Under mpirun. */
#include "runtime/device/kernels.h"
#include "runtime/net/net.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 384, PRODUCTS = 40, PAIRS = 40 };

static void launch(struct device *device, real *const m[3])
{
        struct matmul product = {.m = SIDE, .n = SIDE, .k = SIDE};
        for (int i = 0; i < PRODUCTS; i++)
                kernels_matmul(device, &product, m[0], m[1], m[2]);
        device->ops->record(device, DEVICE_COMPUTE, 0);
}

static double asleep(struct device *device, real *const m[3])
{
        double start = device_seconds();
        launch(device, m);
        device->ops->synchronize(device);
        double seconds = device_seconds() - start;
        while (device->ops->poll(device) < 0)
                sched_yield();
        return seconds;
}

static double polling(struct device *device, struct net *net, real *const m[3])
{
        struct net_done message;
        double start = device_seconds();
        launch(device, m);
        while (device->ops->poll(device) < 0)
                if (!net->ops->test(net, &message))
                        device_rest(device, net->ops->pending(net));
        return device_seconds() - start;
}

static int ascending(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
        struct rv_error_info err = {0};
        struct net *net = net_mpi_open(&argc, &argv, &err);
        struct device *device = net ? device_cpu_open(1, &err) : NULL;
        if (!device) {
                fprintf(stderr, "polling: %s\n", err.sentence);
                return 1;
        }
        real *m[3];
        for (int i = 0; i < 3; i++)
                m[i] = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WORKSPACE,
                                          SIDE * SIDE * (int64_t)sizeof(real));
        /* A receive stays posted meanwhile, as in a run; its message comes at the end. */
        char byte = 0, received;
        int peer = net->rank ^ 1;
        if (net->ranks == 2)
                net->ops->ireceive(net, &received, 1, peer, NET_TAG_ACTIVATION, 1);
        double ratio[PAIRS];
        asleep(device, m);
        for (int i = 0; i < PAIRS; i++) {
                net->ops->barrier(net);
                double without = asleep(device, m);
                net->ops->barrier(net);
                ratio[i] = polling(device, net, m) / without - 1;
        }
        net->ops->barrier(net); /* nobody polls for products any more when the message comes */
        qsort(ratio, PAIRS, sizeof *ratio, ascending);
        struct net_done done;
        if (net->ranks == 2) {
                net->ops->isend(net, &byte, 1, peer, NET_TAG_ACTIVATION, 0, 0);
                for (int left = 2; left > 0;)
                        left -= net->ops->test(net, &done);
        }
        if (net->rank == 0)
                printf("looking after messages costs the computing lane %+.2f %% (median of %d pairs; p10 "
                       "%+.2f %%, p90 "
                       "%+.2f %%; "
                       "%d rank%s)\n",
                       100 * ratio[PAIRS / 2], PAIRS, 100 * ratio[PAIRS / 10], 100 * ratio[PAIRS * 9 / 10],
                       net->ranks, net->ranks > 1 ? "s" : "");
        device->ops->close(device);
        net->ops->close(net);
        return 0;
}
