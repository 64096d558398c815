#include "calibrate/links.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKEN_RECEIVE, TOKEN_SEND, TOKEN_REDUCE, TOKEN_COPY };

/* Waits for the next completion of the network, keeping `bench` (may be NULL) at work. */
static int next_token(struct net *net, struct bench *bench)
{
        struct net_done done;
        for (;;) {
                if (bench)
                        bench_feed(bench);
                if (net->ops->test(net, &done))
                        return done.token;
                sched_yield();
        }
}

int links_copies(struct net *net, int threads, int repetitions, struct samples *samples,
                 struct rv_error_info *err)
{
        const int64_t least = 4096, most = 16 << 20;
        struct device *device = device_cpu_open(threads, err);
        if (!device)
                return RV_ESYSTEM;
        char *host = malloc((size_t)most), *there = device->ops->alloc(device, MEMORY_WORKSPACE, most);
        int rc = RV_OK;
        if (!host || !there) {
                rc = rv_fail(err, RV_ESYSTEM, "no memory to copy %lld MiB", (long long)(most >> 20));
                goto out;
        }
        memset(host, 1, (size_t)most);
        for (int i = -1; i < repetitions; i++) { /* the first one warms up */
                for (int64_t bytes = least; bytes <= most; bytes *= 4) {
                        double start = samples_clock();
                        device->ops->copy(device, DEVICE_HOST_TO_DEVICE, there, host, bytes);
                        device->ops->record(device, DEVICE_HOST_TO_DEVICE, TOKEN_COPY);
                        bench_poll_until(device, net, TOKEN_COPY);
                        if (i >= 0)
                                samples_add_line(&samples->copies, bytes, samples_clock() - start);
                }
        }
out:
        device->ops->close(device);
        free(host);
        return rc;
}

enum { LEAST_MESSAGE = 1024, MOST_MESSAGE = 8 << 20 };

/* Rank 0 sends and times until the answer is back: twice one way. */
static void ask(struct net *net, struct bench *bench, char *buffers[2], int repetitions,
                struct samples *samples)
{
        for (int i = -1; i < repetitions; i++) { /* the first one warms up */
                for (int64_t bytes = LEAST_MESSAGE; bytes <= MOST_MESSAGE; bytes *= 2) {
                        double start = samples_clock(), end = start;
                        net->ops->ireceive(net, buffers[0], bytes, 1, NET_TAG_ACTIVATION, TOKEN_RECEIVE);
                        net->ops->isend(net, buffers[1], bytes, 1, NET_TAG_ACTIVATION, 0, TOKEN_SEND);
                        for (int pending = 2; pending > 0; pending--)
                                if (next_token(net, bench) == TOKEN_RECEIVE)
                                        end = samples_clock();
                        if (i >= 0)
                                samples_add_line(&samples->messages, bytes, (end - start) / 2);
                }
        }
}

/* Rank 1 sends each message back; the next receive is posted before, as a pipeline's ranks do. */
static void answer(struct net *net, struct bench *bench, char *buffers[2], int repetitions)
{
        int sending = 0;
        for (int i = -1; i < repetitions; i++) {
                for (int64_t bytes = LEAST_MESSAGE; bytes <= MOST_MESSAGE; bytes *= 2) {
                        bool last = i == repetitions - 1 && bytes == MOST_MESSAGE,
                             first = i < 0 && bytes == LEAST_MESSAGE;
                        int64_t next = bytes == MOST_MESSAGE ? LEAST_MESSAGE : 2 * bytes;
                        if (first)
                                net->ops->ireceive(net, buffers[0], bytes, 0, NET_TAG_ACTIVATION,
                                                   TOKEN_RECEIVE);
                        while (next_token(net, bench) != TOKEN_RECEIVE)
                                sending--;
                        if (!last)
                                net->ops->ireceive(net, buffers[0], next, 0, NET_TAG_ACTIVATION,
                                                   TOKEN_RECEIVE);
                        net->ops->isend(net, buffers[1], bytes, 0, NET_TAG_ACTIVATION, 0, TOKEN_SEND);
                        sending++;
                }
        }
        for (; sending > 0; sending--)
                next_token(net, bench);
}

int links_messages(struct net *net, struct bench *bench, int repetitions, struct samples *samples,
                   struct rv_error_info *err)
{
        char *buffers[2] = {calloc(1, MOST_MESSAGE), calloc(1, MOST_MESSAGE)}, byte = 0;
        int rc = RV_OK;
        if (!buffers[0] || !buffers[1]) {
                rc = rv_fail(err, RV_ESYSTEM, "no memory for messages of %d MiB", MOST_MESSAGE >> 20);
                goto out;
        }
        memset(buffers[1], 1, MOST_MESSAGE);
        net->ops->barrier(net);
        if (net->rank == 0) {
                ask(net, bench, buffers, repetitions, samples);
                for (int rank = 2; rank < net->ranks; rank++) {
                        net->ops->isend(net, &byte, 1, rank, NET_TAG_ACTIVATION, 0, TOKEN_SEND);
                        next_token(net, NULL);
                }
        } else if (net->rank == 1) {
                answer(net, bench, buffers, repetitions);
        } else { /* computes until rank 0 has measured */
                net->ops->ireceive(net, &byte, 1, 0, NET_TAG_ACTIVATION, TOKEN_RECEIVE);
                next_token(net, bench);
        }
        bench_drain(bench);
out:
        free(buffers[0]);
        free(buffers[1]);
        return rc;
}

static void allreduce(struct net *net, float *buffer, int64_t bytes, struct samples *samples)
{
        net->ops->barrier(net);
        double start = samples_clock();
        net->ops->iallreduce(net, buffer, bytes / (int64_t)sizeof *buffer, NET_FLOAT, NET_WORLD,
                             TOKEN_REDUCE);
        next_token(net, NULL);
        if (samples)
                samples_add_line(&samples->allreduces, bytes, samples_clock() - start);
}

int links_allreduces(struct net *net, int64_t largest_bytes, int repetitions, struct samples *samples,
                     struct rv_error_info *err)
{
        float *buffer = calloc(1, (size_t)largest_bytes);
        if (!buffer)
                return rv_fail(err, RV_ESYSTEM, "no memory for an all-reduce of %lld bytes",
                               (long long)largest_bytes);
        allreduce(net, buffer, largest_bytes, NULL); /* warms up */
        for (int i = 0; i < repetitions; i++) {
                for (int64_t bytes = 8; bytes < largest_bytes; bytes *= 4)
                        allreduce(net, buffer, bytes, samples);
                allreduce(net, buffer, largest_bytes, samples);
        }
        free(buffer);
        return RV_OK;
}

void links_sleep(struct net *net)
{
        struct net_done done;
        char byte;
        net->ops->ireceive(net, &byte, 1, 0, NET_TAG_ACTIVATION, TOKEN_RECEIVE);
        while (!net->ops->test(net, &done))
                nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

void links_wake(struct net *net)
{
        char byte = 0;
        for (int rank = 1; rank < net->ranks; rank++) {
                net->ops->isend(net, &byte, 1, rank, NET_TAG_ACTIVATION, 0, TOKEN_SEND);
                next_token(net, NULL);
        }
}

void links_post_receive(struct net *net, struct links_receive *receive)
{
        int next = (net->rank + 1) % net->ranks;
        net->ops->ireceive(net, &receive->received, 1, next, NET_TAG_GRADIENT, TOKEN_RECEIVE);
}

void links_take_receive(struct net *net, struct links_receive *receive)
{
        int previous = (net->rank + net->ranks - 1) % net->ranks;
        net->ops->barrier(net); /* before it, others may still poll and would drop what they find */
        net->ops->isend(net, &receive->sent, 1, previous, NET_TAG_GRADIENT, 0, TOKEN_SEND);
        for (int pending = 2; pending > 0; pending--)
                next_token(net, NULL);
}
