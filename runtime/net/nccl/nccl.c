/* The plugin: a net whose collectives of all groups but the whole world are NCCL's: sums of gradients, with
 * ZeRO their halves, and what shards and the ranks of spread experts exchange in a pass. Everything else is
 * left to the net that it takes them from.
 *
 * Collectives of a group run on a stream of its own, in the order in which they are posted, which is the same
 * on all ranks of the group. The core posts one when its data are there and uses them when it is told of the
 * end, so the stream waits for no other and no other waits for it; its events are polled. */
#include "runtime/net/nccl.h"

#include "runtime/device/cuda/lane.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS = NET_WORLD }; /* all groups before it */

struct net_nccl {
        struct net_ops ops; /* first: a net's ops lead here */
        const struct net_ops *rest;
        void (*fail)(void *context, const char *sentence);
        void *fail_context;
        /* NULL: this rank is in no such group, or alone in it. Members and which of them this one is. */
        ncclComm_t comms[GROUPS];
        int sizes[GROUPS], indices[GROUPS];
        cudaStream_t streams[GROUPS];
        struct cuda_events events;
        struct cuda_queue pending[GROUPS]; /* collectives that nobody was told of yet */
};

/* What every rank knows of every other. */
struct seat {
        int usable; /* its GPU answers */
        char uuid[16];
        int colours[GROUPS];
};

static struct net_nccl *nccl_of(struct net *net)
{
        return (struct net_nccl *)net->ops;
}

/* ---- failures ---- */

static void check_cuda(const struct net_nccl *nccl, cudaError_t status, const char *what)
{
        struct rv_error_info failure;
        if (status == cudaSuccess)
                return;
        rv_fail(&failure, RV_ESYSTEM, "a collective by NCCL: %s failed, or work before it: %s", what,
                cudaGetErrorString(status));
        nccl->fail(nccl->fail_context, failure.sentence);
}

static void check_nccl(const struct net_nccl *nccl, ncclResult_t status, const char *what)
{
        struct rv_error_info failure;
        if (status == ncclSuccess)
                return;
        rv_fail(&failure, RV_ESYSTEM, "a collective by NCCL: %s failed: %s", what,
                ncclGetErrorString(status));
        nccl->fail(nccl->fail_context, failure.sentence);
}

/* ---- the net's functions ---- */

static ncclDataType_t nccl_type(enum net_type type)
{
        switch (type) {
        case NET_FP16:
                return ncclFloat16;
        case NET_BF16:
                return ncclBfloat16;
        case NET_DOUBLE:
                return ncclFloat64;
        case NET_INT32:
                return ncclInt32;
        default:
                assert(type == NET_FLOAT);
                return ncclFloat32;
        }
}

/* The token comes back when the group's stream has got here. */
static void await(struct net_nccl *nccl, enum net_group group, int token)
{
        struct cuda_pending pending = {.token = token};
        check_cuda(nccl, cuda_events_take(&nccl->events, &pending.event), "an event");
        check_cuda(nccl, cudaEventRecord(pending.event, nccl->streams[group]), "its event");
        cuda_queue_push(&nccl->pending[group], &pending);
}

/* Scalars, which are in host memory, are left to the rest. */
static bool is_ours(enum net_group group)
{
        return (int)group < GROUPS;
}

static void nccl_iallreduce(struct net *net, void *buffer, int64_t elements, enum net_type type,
                            enum net_group group, int token)
{
        struct net_nccl *nccl = nccl_of(net);
        if (!is_ours(group)) {
                nccl->rest->iallreduce(net, buffer, elements, type, group, token);
                return;
        }
        if (nccl->comms[group])
                check_nccl(nccl,
                           ncclAllReduce(buffer, buffer, (size_t)elements, nccl_type(type), ncclSum,
                                         nccl->comms[group], nccl->streams[group]),
                           "ncclAllReduce");
        await(nccl, group, token);
}

static size_t bytes_of(enum net_type type)
{
        return type == NET_DOUBLE ? 8 : type == NET_FLOAT || type == NET_INT32 ? 4 : 2;
}

/* A member's part of a buffer (net.h), which the last ones may have less of, or nothing. */
struct part {
        char *at;
        size_t elements;
};

static struct part part_of(void *buffer, int64_t elements, enum net_type type, int members, int index)
{
        const int64_t each = (elements + members - 1) / members, begin = each * index;
        const int64_t left = begin < elements ? elements - begin : 0;
        return (struct part){(char *)buffer + (size_t)(left ? begin : 0) * bytes_of(type),
                             (size_t)(left < each ? left : each)};
}

/* What this member has for itself: its part, to or from where it lies elsewhere (net.h), or its rows. */
static void copy_own(struct net_nccl *nccl, void *to, const void *from, size_t bytes, enum net_group group)
{
        check_cuda(nccl, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, nccl->streams[group]),
                   "a copy of its own part");
}

/* Every member's part goes to it, by one call that is for equal parts, or by one for each. */
static void scatter_sums(struct net_nccl *nccl, void *buffer, int64_t elements, enum net_type type,
                         enum net_group group)
{
        const int members = nccl->sizes[group];
        const struct part own = part_of(buffer, elements, type, members, nccl->indices[group]);
        if (elements % members == 0) {
                check_nccl(nccl,
                           ncclReduceScatter(buffer, own.at, own.elements, nccl_type(type), ncclSum,
                                             nccl->comms[group], nccl->streams[group]),
                           "ncclReduceScatter");
                return;
        }
        check_nccl(nccl, ncclGroupStart(), "ncclGroupStart");
        for (int i = 0; i < members; i++) {
                const struct part part = part_of(buffer, elements, type, members, i);
                if (part.elements)
                        check_nccl(nccl,
                                   ncclReduce(part.at, part.at, part.elements, nccl_type(type), ncclSum, i,
                                              nccl->comms[group], nccl->streams[group]),
                                   "ncclReduce");
        }
        check_nccl(nccl, ncclGroupEnd(), "ncclGroupEnd");
}

/* This member's part is at its place, or elsewhere, from where it goes to all. */
static void gather_parts(struct net_nccl *nccl, void *buffer, const void *elsewhere, int64_t elements,
                         enum net_type type, enum net_group group)
{
        const int members = nccl->sizes[group];
        const struct part own = part_of(buffer, elements, type, members, nccl->indices[group]);
        if (elements % members == 0) {
                check_nccl(nccl,
                           ncclAllGather(elsewhere ? elsewhere : own.at, buffer, own.elements,
                                         nccl_type(type), nccl->comms[group], nccl->streams[group]),
                           "ncclAllGather");
                return;
        }
        if (elsewhere)
                copy_own(nccl, own.at, elsewhere, own.elements * bytes_of(type), group);
        check_nccl(nccl, ncclGroupStart(), "ncclGroupStart");
        for (int i = 0; i < members; i++) {
                const struct part part = part_of(buffer, elements, type, members, i);
                if (part.elements)
                        check_nccl(nccl,
                                   ncclBroadcast(part.at, part.at, part.elements, nccl_type(type), i,
                                                 nccl->comms[group], nccl->streams[group]),
                                   "ncclBroadcast");
        }
        check_nccl(nccl, ncclGroupEnd(), "ncclGroupEnd");
}

static void nccl_ireduce_scatter(struct net *net, void *buffer, void *own, int64_t elements,
                                 enum net_type type, enum net_group group, int token)
{
        struct net_nccl *nccl = nccl_of(net);
        if (!is_ours(group)) {
                nccl->rest->ireduce_scatter(net, buffer, own, elements, type, group, token);
                return;
        }
        if (nccl->comms[group])
                scatter_sums(nccl, buffer, elements, type, group);
        if (nccl->comms[group] && own) {
                const struct part part =
                        part_of(buffer, elements, type, nccl->sizes[group], nccl->indices[group]);
                copy_own(nccl, own, part.at, part.elements * bytes_of(type), group);
        }
        await(nccl, group, token);
}

static void nccl_iall_gather(struct net *net, void *buffer, const void *own, int64_t elements,
                             enum net_type type, enum net_group group, int token)
{
        struct net_nccl *nccl = nccl_of(net);
        if (!is_ours(group)) {
                nccl->rest->iall_gather(net, buffer, own, elements, type, group, token);
                return;
        }
        if (nccl->comms[group])
                gather_parts(nccl, buffer, own, elements, type, group);
        await(nccl, group, token);
}

/* Block by block; what a member has for itself is a copy. */
static void exchange_blocks(struct net_nccl *nccl, const struct net_exchange *x, enum net_group group)
{
        const int members = nccl->sizes[group], own = nccl->indices[group];
        ncclComm_t comm = nccl->comms[group];
        cudaStream_t stream = nccl->streams[group];
        check_nccl(nccl, ncclGroupStart(), "ncclGroupStart");
        for (int i = 0; i < members * x->blocks; i++) {
                const struct net_rows send = x->send[i], receive = x->receive[i];
                const char *from = (const char *)x->from + send.at * x->row_bytes;
                char *to = (char *)x->to + receive.at * x->row_bytes;
                const int member = i / x->blocks;
                if (member == own)
                        continue;
                if (send.rows)
                        check_nccl(nccl,
                                   ncclSend(from, (size_t)(send.rows * x->row_bytes), ncclChar, member, comm,
                                            stream),
                                   "ncclSend");
                if (receive.rows)
                        check_nccl(nccl,
                                   ncclRecv(to, (size_t)(receive.rows * x->row_bytes), ncclChar, member, comm,
                                            stream),
                                   "ncclRecv");
        }
        check_nccl(nccl, ncclGroupEnd(), "ncclGroupEnd");
        for (int i = own * x->blocks; i < (own + 1) * x->blocks; i++)
                if (x->send[i].rows)
                        copy_own(nccl, (char *)x->to + x->receive[i].at * x->row_bytes,
                                 (const char *)x->from + x->send[i].at * x->row_bytes,
                                 (size_t)(x->send[i].rows * x->row_bytes), group);
}

static void nccl_iexchange(struct net *net, const struct net_exchange *exchange, enum net_group group,
                           int token)
{
        struct net_nccl *nccl = nccl_of(net);
        if (!is_ours(group)) {
                nccl->rest->iexchange(net, exchange, group, token);
                return;
        }
        if (nccl->comms[group])
                exchange_blocks(nccl, exchange, group);
        await(nccl, group, token);
}

/* An all-reduce whose other end has failed would never end: NCCL notes why. */
static void check_comms(const struct net_nccl *nccl)
{
        for (int i = 0; i < GROUPS; i++) {
                ncclResult_t status = ncclSuccess;
                if (!nccl->comms[i])
                        continue;
                check_nccl(nccl, ncclCommGetAsyncError(nccl->comms[i], &status), "ncclCommGetAsyncError");
                if (status != ncclInProgress)
                        check_nccl(nccl, status, "one under way");
        }
}

/* Whether the oldest collective of a group is over. */
static bool is_over(struct net_nccl *nccl, int group, struct net_done *done)
{
        const struct cuda_pending *oldest = cuda_queue_oldest(&nccl->pending[group]);
        if (!oldest)
                return false;
        const cudaError_t status = cudaEventQuery(oldest->event);
        if (status == cudaSuccess) {
                *done = (struct net_done){.token = oldest->token, .micro_batch = -1};
                cuda_events_give(&nccl->events, oldest->event);
                cuda_queue_pop(&nccl->pending[group]);
                return true;
        }
        if (status == cudaErrorNotReady)
                (void)cudaGetLastError(); /* else the next launch would be told */
        else
                check_cuda(nccl, status, "one under way");
        check_comms(nccl);
        return false;
}

static int nccl_test(struct net *net, struct net_done *done)
{
        struct net_nccl *nccl = nccl_of(net);
        for (int group = 0; group < GROUPS; group++)
                if (is_over(nccl, group, done))
                        return 1;
        return nccl->rest->test(net, done);
}

static bool nccl_pending(struct net *net)
{
        struct net_nccl *nccl = nccl_of(net);
        for (int group = 0; group < GROUPS; group++)
                if (cuda_queue_oldest(&nccl->pending[group]))
                        return true;
        return nccl->rest->pending(net);
}

static void nccl_close(struct net *net)
{
        struct net_nccl *nccl = nccl_of(net);
        for (int i = 0; i < GROUPS; i++)
                if (nccl->comms[i])
                        ncclCommDestroy(nccl->comms[i]);
        cuda_events_free(&nccl->events);
        for (int i = 0; i < GROUPS; i++) {
                assert(nccl->pending[i].count == 0);
                cuda_queue_free(&nccl->pending[i]);
                cudaStreamDestroy(nccl->streams[i]);
        }
        net->ops = nccl->rest;
        free(nccl);
        net->ops->close(net);
}

/* ---- taking over ---- */

/* What each rank has, on all of them. */
static void exchange(struct net *net, const void *mine, size_t bytes, void *all)
{
        net->ops->gather(net, mine, (int64_t)bytes, all);
        net->ops->broadcast(net, all, (int64_t)bytes * net->ranks, 0);
}

static struct seat own_seat(const struct net *net, const struct net_nccl_request *request)
{
        struct seat seat = {0};
        for (int group = 0; group < GROUPS; group++)
                seat.colours[group] = net->colours[group];
        struct cudaDeviceProp properties;
        seat.usable = cudaSetDevice(request->gpu) == cudaSuccess &&
                      cudaGetDeviceProperties(&properties, request->gpu) == cudaSuccess;
        if (seat.usable)
                memcpy(seat.uuid, properties.uuid.bytes, sizeof seat.uuid);
        return seat;
}

/* The same on every rank, since all look at the same seats. */
static int check_seats(const struct seat *seats, int ranks, struct rv_error_info *why)
{
        for (int i = 0; i < ranks; i++) {
                if (!seats[i].usable)
                        return rv_fail(why, RV_ENOTBUILT, "NCCL: the GPU of rank %d does not say which it is",
                                       i);
                for (int j = 0; j < i; j++)
                        if (memcmp(seats[i].uuid, seats[j].uuid, sizeof seats[i].uuid) == 0)
                                return rv_fail(why, RV_ENOTBUILT,
                                               "NCCL needs a GPU for each rank, ranks %d and %d share one", j,
                                               i);
        }
        return 0;
}

/* This rank's group of one sort: how many it has, which of them this one is, and the first. */
struct circle {
        int size, index, first;
};

static struct circle circle_of(const struct seat *seats, const struct net *net, int group)
{
        const int colour = seats[net->rank].colours[group];
        struct circle circle = {.first = -1};
        for (int i = 0; colour >= 0 && i < net->ranks; i++) {
                if (seats[i].colours[group] != colour)
                        continue;
                if (circle.first < 0)
                        circle.first = i;
                circle.index += i < net->rank;
                circle.size++;
        }
        return circle;
}

/* NCCL takes what memory it needs at the first collectives of a group. They are made here, of a few bytes and
 * of many, so that who asks for the free memory later does not give that away. */
static void warm_up(struct net_nccl *nccl, enum net_group group)
{
        static const size_t BYTES = (size_t)64 << 20;
        const size_t counts[] = {1, BYTES / sizeof(float)};
        void *buffer = NULL;
        check_cuda(nccl, cudaMalloc(&buffer, BYTES), "memory to warm up");
        check_cuda(nccl, cudaMemsetAsync(buffer, 0, BYTES, nccl->streams[group]), "clearing it");
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
                check_nccl(nccl,
                           ncclAllReduce(buffer, buffer, counts[i], ncclFloat32, ncclSum, nccl->comms[group],
                                         nccl->streams[group]),
                           "ncclAllReduce");
        check_cuda(nccl, cudaStreamSynchronize(nccl->streams[group]), "the first ones");
        check_cuda(nccl, cudaFree(buffer), "giving memory back");
}

/* The first rank of each group makes its group's id, and all ranks see all ids. Groups of one sort do not
 * meet, and every rank joins them in the same order, so that no two wait for each other. */
static void join(struct net *net, struct net_nccl *nccl, const struct seat *seats)
{
        typedef ncclUniqueId ids[GROUPS];
        ids mine = {0}, *all = calloc((size_t)net->ranks, sizeof *all);
        if (!all)
                nccl->fail(nccl->fail_context, "no host memory for the ids of NCCL's groups");
        for (int group = 0; group < GROUPS; group++) {
                const struct circle circle = circle_of(seats, net, group);
                if (circle.size > 1 && circle.index == 0)
                        check_nccl(nccl, ncclGetUniqueId(&mine[group]), "ncclGetUniqueId");
        }
        exchange(net, mine, sizeof mine, all);
        for (int group = GROUPS - 1; group >= 0; group--) {
                const struct circle circle = circle_of(seats, net, group);
                nccl->sizes[group] = circle.size;
                nccl->indices[group] = circle.index;
                if (circle.size > 1)
                        check_nccl(nccl,
                                   ncclCommInitRank(&nccl->comms[group], circle.size,
                                                    all[circle.first][group], circle.index),
                                   "ncclCommInitRank");
                if (circle.size > 1)
                        warm_up(nccl, (enum net_group)group);
        }
        free(all);
}

static void take_over(struct net *net, const struct net_nccl_request *request, const struct seat *seats)
{
        struct net_nccl *nccl = calloc(1, sizeof *nccl);
        if (!nccl) {
                request->fail(request->fail_context, "no host memory for NCCL");
                return;
        }
        nccl->fail = request->fail;
        nccl->fail_context = request->fail_context;
        nccl->rest = net->ops;
        nccl->ops = *net->ops;
        nccl->ops.iallreduce = nccl_iallreduce;
        nccl->ops.ireduce_scatter = nccl_ireduce_scatter;
        nccl->ops.iall_gather = nccl_iall_gather;
        nccl->ops.iexchange = nccl_iexchange;
        nccl->ops.test = nccl_test;
        nccl->ops.pending = nccl_pending;
        nccl->ops.close = nccl_close;
        nccl->events.flags = cudaEventDisableTiming;
        for (int i = 0; i < GROUPS; i++)
                check_cuda(nccl, cudaStreamCreateWithFlags(&nccl->streams[i], cudaStreamNonBlocking),
                           "its stream");
        join(net, nccl, seats);
        net->ops = &nccl->ops;
        net->sums_device_memory = true;
}

net_nccl_plugin_fn net_nccl_take_over;

void net_nccl_take_over(struct net *net, const struct net_nccl_request *request, struct rv_error_info *why)
{
        struct seat mine = own_seat(net, request), *seats = calloc((size_t)net->ranks, sizeof *seats);
        if (!seats) {
                request->fail(request->fail_context, "no host memory for the seats of NCCL");
                return;
        }
        exchange(net, &mine, sizeof mine, seats);
        if (check_seats(seats, net->ranks, why) == 0)
                take_over(net, request, seats);
        free(seats);
}
