#include "calibrate/links.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKEN_RECEIVE, TOKEN_SEND, TOKEN_READY, TOKEN_REPORT, TOKEN_REDUCE, TOKEN_COPY, TOKEN_BESIDE };

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

/* Both ends of copies, and how far they were used: a copy goes on where the last one ended, because in a run
 * neither end is in a cache that holds the last one's. */
enum { COPY_MEMORY = 64 << 20 };
struct copy_ends {
        struct device *device;
        char *host, *there;
        int64_t used;
};

/* Queues one copy, and `token` behind it. */
static void queue_copy(struct copy_ends *ends, enum device_lane lane, int64_t bytes, int token)
{
        struct device *device = ends->device;
        int64_t at = ends->used + bytes <= COPY_MEMORY ? ends->used : 0;
        ends->used = at + bytes;
        if (lane == DEVICE_HOST_TO_DEVICE)
                device->ops->copy(device, lane, ends->there + at, ends->host + at, bytes);
        else
                device->ops->copy(device, lane, ends->host + at, ends->there + at, bytes);
        device->ops->record(device, lane, token);
}

static void copy_alone(struct copy_ends *ends, struct net *net, enum device_lane lane, int64_t bytes,
                       struct samples *samples)
{
        const enum profile_line line = lane == DEVICE_HOST_TO_DEVICE ? LINE_COPY : LINE_COPY_BACK;
        const double start = device_seconds();
        queue_copy(ends, lane, bytes, TOKEN_COPY);
        bench_poll_until(ends->device, net, TOKEN_COPY);
        if (samples)
                samples_add_line(samples, line, bytes, device_seconds() - start);
}

/* While the other direction copies from before until after: three times as much, and at least 3 MiB. */
static void copy_beside(struct copy_ends *ends, struct copy_ends *other, struct net *net,
                        enum device_lane lane, int64_t bytes, struct samples *samples)
{
        enum { BESIDE = 3, MIN_BESIDE = 1 << 20 };
        const bool down = lane == DEVICE_HOST_TO_DEVICE;
        const enum device_lane beside = down ? DEVICE_DEVICE_TO_HOST : DEVICE_HOST_TO_DEVICE;
        int pending = BESIDE + 1;
        for (int i = 0; i < BESIDE; i++)
                queue_copy(other, beside, bytes > MIN_BESIDE ? bytes : MIN_BESIDE, TOKEN_BESIDE);
        const double start = device_seconds();
        queue_copy(ends, lane, bytes, TOKEN_COPY);
        while (pending > 0) {
                const int token = bench_poll(ends->device, net);
                pending -= token >= 0;
                if (token == TOKEN_COPY && samples)
                        samples_add_line(samples, down ? LINE_COPY_BOTH : LINE_COPY_BACK_BOTH, bytes,
                                         device_seconds() - start);
        }
}

static int open_ends(struct copy_ends *ends, int count, struct device *device, struct rv_error_info *err)
{
        const int64_t bytes = count * (int64_t)COPY_MEMORY;
        const int64_t reserved[MEMORY_SPACES] = {[MEMORY_DEVICE] = bytes, [MEMORY_HOST] = bytes};
        int rc = device_reserve(device, reserved, err);
        for (int i = 0; i < count && rc == RV_OK; i++) {
                ends[i] = (struct copy_ends){
                        .device = device,
                        .host = device->ops->alloc(device, MEMORY_HOST, MEMORY_WORKSPACE, COPY_MEMORY),
                        .there = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WORKSPACE, COPY_MEMORY)};
                if (!ends[i].host || !ends[i].there)
                        rc = rv_fail(err, RV_ESYSTEM, "no memory to copy between two parts of %d MiB",
                                     COPY_MEMORY >> 20);
        }
        return rc;
}

int links_copies(struct net *net, const struct request *request, int repetitions, struct samples *samples,
                 struct rv_error_info *err)
{
        const int64_t min = 4096, max = 16 << 20;
        const bool both = request_gpu(request);
        struct device *device = bench_device(request, false, err);
        struct copy_ends ends[2] = {0};
        if (!device)
                return err->code;
        int rc = open_ends(ends, both ? 2 : 1, device, err);
        for (int i = -1; i < repetitions && rc == RV_OK; i++) { /* the first one warms up */
                struct samples *kept = i >= 0 ? samples : NULL;
                for (int64_t bytes = min; bytes <= max; bytes *= 4) {
                        copy_alone(&ends[0], net, DEVICE_HOST_TO_DEVICE, bytes, kept);
                        copy_alone(&ends[0], net, DEVICE_DEVICE_TO_HOST, bytes, kept);
                        if (!both)
                                continue;
                        copy_beside(&ends[0], &ends[1], net, DEVICE_HOST_TO_DEVICE, bytes, kept);
                        copy_beside(&ends[0], &ends[1], net, DEVICE_DEVICE_TO_HOST, bytes, kept);
                }
        }
        device->ops->close(device);
        return rc;
}

/* A byte to every rank from `first` on. */
static void wake_from(struct net *net, int first)
{
        char byte = 0;
        for (int rank = first; rank < net->ranks; rank++) {
                net->ops->isend(net, &byte, 1, rank, NET_TAG_ACTIVATION, 0, TOKEN_SEND);
                next_token(net, NULL);
        }
}

enum { MIN_MESSAGE = 4096, MAX_MESSAGE = 8 << 20 };

/* Sends when the receiver is ready, with the time of sending in the message; the receiver tells how long it
 * took. */
static double send_message(struct net *net, struct bench *bench, char *buffer, int64_t bytes)
{
        int peer = 1 - net->rank;
        double start, seconds = 0;
        char ready;
        net->ops->ireceive(net, &ready, 1, peer, NET_TAG_GRADIENT, TOKEN_READY);
        next_token(net, bench);
        net->ops->ireceive(net, &seconds, sizeof seconds, peer, NET_TAG_GRADIENT, TOKEN_REPORT);
        start = device_seconds();
        memcpy(buffer, &start, sizeof start);
        net->ops->isend(net, buffer, bytes, peer, NET_TAG_ACTIVATION, 0, TOKEN_SEND);
        for (int pending = 2; pending > 0; pending--)
                next_token(net, bench);
        return seconds;
}

static double receive_message(struct net *net, char *buffer, int64_t bytes)
{
        int peer = 1 - net->rank;
        double start, end = 0, seconds;
        char ready = 0;
        net->ops->ireceive(net, buffer, bytes, peer, NET_TAG_ACTIVATION, TOKEN_RECEIVE);
        net->ops->isend(net, &ready, 1, peer, NET_TAG_GRADIENT, 0, TOKEN_SEND);
        for (int pending = 2; pending > 0; pending--)
                if (next_token(net, NULL) == TOKEN_RECEIVE)
                        end = device_seconds();
        memcpy(&start, buffer, sizeof start);
        seconds = end - start;
        net->ops->isend(net, &seconds, sizeof seconds, peer, NET_TAG_GRADIENT, 0, TOKEN_SEND);
        next_token(net, NULL);
        return seconds;
}

static double exchange_message(struct net *net, struct bench *bench, char *buffer, int64_t bytes, bool sender)
{
        return sender ? send_message(net, bench, buffer, bytes) : receive_message(net, buffer, bytes);
}

static void exchange_messages(struct net *net, struct bench *bench, char *buffer, int repetitions,
                              struct samples *samples)
{
        for (int turn = -2; turn < 2 * repetitions; turn++) { /* each one's first turn warms up */
                bool sender = net->rank == (turn & 1);
                exchange_message(net, bench, buffer, MIN_MESSAGE, sender); /* the first one wakes both up */
                for (int64_t bytes = MIN_MESSAGE; bytes <= MAX_MESSAGE; bytes *= 2) {
                        double seconds = exchange_message(net, bench, buffer, bytes, sender);
                        if (turn >= 0)
                                samples_add_line(samples, LINE_MESSAGE, bytes, seconds);
                }
                if (sender)
                        bench_drain(bench);
        }
}

int links_messages(struct net *net, struct bench *bench, int repetitions, struct samples *samples,
                   struct rv_error_info *err)
{
        char *buffer = malloc(MAX_MESSAGE), byte = 0;
        if (!buffer)
                return rv_fail(err, RV_ESYSTEM, "no memory for messages of %d MiB", MAX_MESSAGE >> 20);
        memset(buffer, 1, MAX_MESSAGE);
        net->ops->barrier(net);
        if (net->rank < 2)
                exchange_messages(net, bench, buffer, repetitions, samples);
        if (net->rank == 0) {
                wake_from(net, 2);
        } else if (net->rank >= 2) { /* computes until they have measured */
                net->ops->ireceive(net, &byte, 1, 0, NET_TAG_ACTIVATION, TOKEN_RECEIVE);
                next_token(net, bench);
                bench_drain(bench);
        }
        free(buffer);
        return RV_OK;
}

static void allreduce(struct net *net, void *buffer, const struct family_reduction *reduction,
                      struct samples *samples)
{
        static const enum net_type types[DTYPES] = {
                [DTYPE_FP32] = NET_FLOAT, [DTYPE_FP16] = NET_FP16, [DTYPE_BF16] = NET_BF16};
        float small[2] = {0};
        /* Ends the wake of the one before, and brings the ranks closer together than a barrier does. */
        net->ops->iallreduce(net, small, 2, NET_FLOAT, NET_WORLD, TOKEN_REDUCE);
        next_token(net, NULL);
        double start = device_seconds();
        net->ops->iallreduce(net, buffer, reduction->bytes / dtype_bytes(reduction->dtype),
                             types[reduction->dtype], NET_WORLD, TOKEN_REDUCE);
        next_token(net, NULL);
        if (samples)
                samples_add_line(samples, profile_allreduce_line(reduction->dtype), reduction->bytes,
                                 device_seconds() - start);
}

int links_allreduces(struct net *net, const struct family_reduction *reductions, int count, int repetitions,
                     struct samples *samples, struct rv_error_info *err)
{
        int largest = 0;
        for (int i = 0; i < count; i++)
                if (reductions[i].bytes > reductions[largest].bytes)
                        largest = i;
        void *buffer = calloc(1, (size_t)reductions[largest].bytes);
        if (!buffer)
                return rv_fail(err, RV_ESYSTEM, "no memory for an all-reduce of %lld bytes",
                               (long long)reductions[largest].bytes);
        allreduce(net, buffer, &reductions[largest], NULL); /* warms up */
        for (int i = 0; i < repetitions; i++)
                for (int j = 0; j < count; j++)
                        allreduce(net, buffer, &reductions[j], samples);
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
        wake_from(net, 1);
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
