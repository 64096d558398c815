/* The host's half of all-reduces by NCCL, against functions of CUDA and NCCL that only take note: which
 * groups are made, what is summed in which, when tokens come back, when nothing is taken over. Ranks are
 * threads, and the net that is taken over is one of this file. No GPU is needed, and nothing is summed. */
#include "runtime/net/nccl.h"

#include <nccl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 6, PP = 3, DP = 2, MAX_CALLS = 128 };

/* ---- what ranks share ---- */

static pthread_barrier_t everyone;
static char table[RANKS * 1024];
static int next_id, next_comm;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

struct ncclComm {
        int number, size, index, id;
        int stream, posted;   /* of its rank's streams the one that it is on, once something was */
        ncclResult_t failure; /* that it will tell of */
};

/* A call that a rank made: of NCCL, or of the net that was taken over. */
struct call {
        const char *what;
        ncclComm_t comm;
        void *buffer;
        const void *from; /* of copies and gathers */
        size_t count;
        int type, token;
        int root; /* of what goes to one rank, or comes from one */
};

static struct rank {
        struct net net;
        char uuid; /* of its GPU */
        bool no_gpu;
        int events; /* that have been reached, of those recorded */
        int recorded;
        char streams[NET_WORLD]; /* whose addresses are its streams */
        int streams_made;
        int rest_done; /* a token that the rest of the net has to tell, or -1 */
        struct call calls[MAX_CALLS];
        int count;
        struct rv_error_info why;
        char failure[512];
        jmp_buf failed;
} ranks[RANKS];

static _Thread_local struct rank *self;

static void note(const struct call *call)
{
        assert_true(self->count < MAX_CALLS);
        self->calls[self->count++] = *call;
}

/* ---- CUDA ---- */

struct CUevent_st {
        int place; /* in the order of recording */
};

cudaError_t cudaSetDevice(int device)
{
        return device == self->net.rank && !self->no_gpu ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
        memset(properties, 0, sizeof *properties);
        properties->uuid.bytes[15] = self->uuid;
        return device == self->net.rank ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
        assert_int_equal(flags, cudaStreamNonBlocking);
        assert_true(self->streams_made < NET_WORLD);
        *stream = (cudaStream_t)(void *)&self->streams[self->streams_made++];
        return cudaSuccess;
}

/* Which of its streams it is: one for each group. */
static int stream_of(cudaStream_t stream)
{
        const long which = (char *)(void *)stream - self->streams;
        assert_true(which >= 0 && which < self->streams_made);
        return (int)which;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
        stream_of(stream);
        note(&(struct call){.what = "stream destroyed"});
        return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
        stream_of(stream);
        note(&(struct call){.what = "waited"});
        return cudaSuccess;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
        assert_int_equal(bytes, 64 << 20);
        *pointer = self->streams; /* nothing reads it */
        return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t stream)
{
        (void)bytes;
        stream_of(stream);
        assert_true(pointer == self->streams && value == 0);
        return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
        stream_of(stream);
        assert_int_equal(kind, cudaMemcpyDeviceToDevice);
        note(&(struct call){.what = "copy", .buffer = to, .from = from, .count = bytes});
        return cudaSuccess;
}

cudaError_t cudaFree(void *pointer)
{
        assert_ptr_equal(pointer, self->streams);
        note(&(struct call){.what = "memory given back"});
        return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
        assert_int_equal(flags, cudaEventDisableTiming);
        *event = calloc(1, sizeof **event);
        return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
        free(event);
        return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
        stream_of(stream);
        event->place = self->recorded++;
        return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
        return event->place < self->events ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaGetLastError(void)
{
        return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
        return error == cudaSuccess ? "no error" : "an error";
}

/* ---- NCCL ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
        pthread_mutex_lock(&counting);
        id->internal[0] = (char)++next_id;
        pthread_mutex_unlock(&counting);
        note(&(struct call){.what = "id"});
        return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int index)
{
        *comm = calloc(1, sizeof **comm);
        pthread_mutex_lock(&counting);
        **comm = (struct ncclComm){.number = next_comm++, .size = size, .index = index, .id = id.internal[0]};
        pthread_mutex_unlock(&counting);
        note(&(struct call){.what = "join", .comm = *comm});
        return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
        free(comm);
        note(&(struct call){.what = "leave"});
        return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *status)
{
        *status = comm->failure;
        return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
        assert_ptr_equal(from, to);
        assert_int_equal(op, ncclSum);
        assert_int_equal(comm->stream, comm->posted++ ? stream_of(stream) : comm->stream);
        comm->stream = stream_of(stream);
        note(&(struct call){.what = "sum", .comm = comm, .buffer = to, .count = count, .type = (int)type});
        return ncclSuccess;
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
        assert_int_equal(op, ncclSum);
        assert_int_equal(comm->stream, stream_of(stream));
        assert_ptr_equal((const char *)from + (size_t)comm->index * count * 2, to); /* of 16 bits, in place */
        note(&(struct call){
                .what = "scatter", .comm = comm, .buffer = to, .count = count, .type = (int)type});
        return ncclSuccess;
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
        assert_int_equal(comm->stream, stream_of(stream));
        note(&(struct call){.what = "gather",
                            .comm = comm,
                            .buffer = to,
                            .from = from,
                            .count = count,
                            .type = (int)type});
        return ncclSuccess;
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
        assert_int_equal(op, ncclSum);
        assert_ptr_equal(from, to);
        assert_int_equal(comm->stream, stream_of(stream));
        note(&(struct call){.what = "reduce",
                            .comm = comm,
                            .buffer = to,
                            .count = count,
                            .type = (int)type,
                            .root = root});
        return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
        assert_ptr_equal(from, to);
        assert_int_equal(comm->stream, stream_of(stream));
        note(&(struct call){.what = "broadcast",
                            .comm = comm,
                            .buffer = to,
                            .count = count,
                            .type = (int)type,
                            .root = root});
        return ncclSuccess;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
        assert_int_equal(comm->stream, stream_of(stream));
        note(&(struct call){
                .what = "send", .comm = comm, .from = from, .count = count, .type = (int)type, .root = peer});
        return ncclSuccess;
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
        assert_int_equal(comm->stream, stream_of(stream));
        note(&(struct call){.what = "receive",
                            .comm = comm,
                            .buffer = to,
                            .count = count,
                            .type = (int)type,
                            .root = peer});
        return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
        note(&(struct call){.what = "together"});
        return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
        note(&(struct call){.what = "together no more"});
        return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t status)
{
        return status == ncclSuccess ? "no error" : "unhandled cuda error";
}

/* ---- the net that is taken over ---- */

static void rest_iallreduce(struct net *net, void *buffer, int64_t elements, enum net_type type,
                            enum net_group group, int token)
{
        assert_ptr_equal(net, &self->net);
        assert_int_equal(group, NET_WORLD);
        note(&(struct call){.what = "rest",
                            .buffer = buffer,
                            .count = (size_t)elements,
                            .type = (int)type,
                            .token = token});
}

static int rest_test(struct net *net, struct net_done *done)
{
        assert_ptr_equal(net, &self->net);
        if (self->rest_done < 0)
                return 0;
        *done = (struct net_done){.token = self->rest_done, .micro_batch = 5};
        self->rest_done = -1;
        return 1;
}

static void rest_gather(struct net *net, const void *mine, int64_t bytes, void *all)
{
        assert_true(bytes * RANKS <= (int64_t)sizeof table);
        memcpy(table + net->rank * bytes, mine, (size_t)bytes);
        pthread_barrier_wait(&everyone);
        if (net->rank == 0)
                memcpy(all, table, (size_t)bytes * RANKS);
        pthread_barrier_wait(&everyone);
}

static void rest_broadcast(struct net *net, void *buffer, int64_t bytes, int root)
{
        if (net->rank == root)
                memcpy(table, buffer, (size_t)bytes);
        pthread_barrier_wait(&everyone);
        memcpy(buffer, table, (size_t)bytes);
        pthread_barrier_wait(&everyone);
}

static void rest_close(struct net *net)
{
        assert_ptr_equal(net, &self->net);
        note(&(struct call){.what = "rest closed"});
}

static const struct net_ops rest_ops = {.name = "rest",
                                        .iallreduce = rest_iallreduce,
                                        .test = rest_test,
                                        .gather = rest_gather,
                                        .broadcast = rest_broadcast,
                                        .close = rest_close};

static void end_job(void *net, const char *sentence)
{
        assert_ptr_equal(net, &self->net);
        snprintf(self->failure, sizeof self->failure, "%s", sentence);
        longjmp(self->failed, 1);
}

/* ---- ranks ---- */

net_nccl_plugin_fn net_nccl_take_over;

static void *attach(void *rank)
{
        self = rank;
        const struct net_nccl_request request = {
                .gpu = self->net.rank, .fail = end_job, .fail_context = &self->net};
        net_nccl_take_over(&self->net, &request, &self->why);
        return NULL;
}

/* Three stages of two replicas that share an embedding, each rank with a GPU of its own. */
static void set_ranks(void)
{
        memset(ranks, 0, sizeof ranks);
        next_id = next_comm = 0;
        for (int i = 0; i < RANKS; i++) {
                const int stage = i % PP, replica = i / PP;
                ranks[i].net = (struct net){.ops = &rest_ops, .rank = i, .ranks = RANKS};
                for (int group = 0; group < NET_WORLD; group++)
                        ranks[i].net.colours[group] = -1;
                ranks[i].net.colours[NET_EMBEDDING] = stage == 1 ? -1 : replica;
                ranks[i].net.colours[NET_DATA] = stage;
                ranks[i].uuid = (char)(i + 1);
                ranks[i].rest_done = -1;
        }
}

static void attach_all(void)
{
        pthread_t threads[RANKS];
        pthread_barrier_init(&everyone, NULL, RANKS);
        for (int i = 0; i < RANKS; i++)
                pthread_create(&threads[i], NULL, attach, &ranks[i]);
        for (int i = 0; i < RANKS; i++)
                pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&everyone);
}

static void close_all(void)
{
        for (int i = 0; i < RANKS; i++) {
                self = &ranks[i];
                self->net.ops->close(&self->net);
                assert_string_equal(self->calls[self->count - 1].what, "rest closed");
        }
}

/* The nth group that a rank joined, or NULL. */
static ncclComm_t joined(const struct rank *rank, int nth)
{
        for (int i = 0; i < rank->count; i++)
                if (strcmp(rank->calls[i].what, "join") == 0 && nth-- == 0)
                        return rank->calls[i].comm;
        return NULL;
}

static int count_of(const struct rank *rank, const char *what)
{
        int count = 0;
        for (int i = 0; i < rank->count; i++)
                count += strcmp(rank->calls[i].what, what) == 0;
        return count;
}

static void each_rank_joins_its_replicas_and_then_the_other_end(void **state)
{
        (void)state;
        set_ranks();
        attach_all();
        for (int i = 0; i < RANKS; i++) {
                const struct rank *rank = &ranks[i];
                const int stage = i % PP, replica = i / PP;
                const ncclComm_t data = joined(rank, 0), embedding = joined(rank, 1);
                assert_true(rank->net.sums_device_memory);
                assert_int_equal(rank->why.code, RV_OK);
                assert_int_equal(data->size, DP);
                assert_int_equal(data->index, replica);
                assert_int_equal(data->id, joined(&ranks[stage], 0)->id); /* one id a group */
                assert_int_equal(embedding != NULL, stage != 1);
                assert_null(joined(rank, 2));
                if (embedding) {
                        assert_int_equal(embedding->size, 2);
                        assert_int_equal(embedding->index, stage == PP - 1);
                        assert_int_equal(embedding->id, joined(&ranks[replica * PP], 1)->id);
                }
                /* the first of each group made its id */
                assert_int_equal(count_of(rank, "id"), (replica == 0) + (stage == 0));
        }
        for (int i = 0; i < RANKS; i++) { /* a sum of one number and one of many, on streams of their own */
                const int groups = i % PP == 1 ? 1 : 2;
                assert_int_equal(count_of(&ranks[i], "sum"), 2 * groups);
                assert_int_equal(count_of(&ranks[i], "waited"), groups);
                assert_int_equal(count_of(&ranks[i], "memory given back"), groups);
                assert_true(groups == 1 || joined(&ranks[i], 0)->stream != joined(&ranks[i], 1)->stream);
        }
        assert_int_equal(next_id, PP + DP);
        for (int stage = 0; stage < PP; stage++) /* other groups, other ids */
                for (int other = 0; other < stage; other++)
                        assert_int_not_equal(joined(&ranks[stage], 0)->id, joined(&ranks[other], 0)->id);
        close_all();
        for (int i = 0; i < RANKS; i++)
                assert_int_equal(count_of(&ranks[i], "leave"), i % PP == 1 ? 1 : 2);
}

static void sums_go_to_nccl_and_scalars_to_the_rest(void **state)
{
        (void)state;
        static const struct {
                enum net_type type;
                enum net_group group;
                ncclDataType_t nccl;
        } cases[] = {{NET_FP16, NET_DATA, ncclFloat16},
                     {NET_BF16, NET_DATA, ncclBfloat16},
                     {NET_FLOAT, NET_EMBEDDING, ncclFloat32},
                     {NET_DOUBLE, NET_DATA, ncclFloat64}};
        char buffer[4];
        set_ranks();
        attach_all();
        self = &ranks[0];
        struct net *net = &self->net;
        for (int i = 0; i < 4; i++) {
                net->ops->iallreduce(net, &buffer[i], 100 + i, cases[i].type, cases[i].group, 7 + i);
                const struct call *call = &self->calls[self->count - 1];
                assert_string_equal(call->what, "sum");
                assert_ptr_equal(call->buffer, &buffer[i]);
                assert_int_equal(call->count, 100 + i);
                assert_int_equal(call->type, cases[i].nccl);
                assert_ptr_equal(call->comm, joined(self, cases[i].group == NET_EMBEDDING));
        }
        net->ops->iallreduce(net, buffer, 2, NET_DOUBLE, NET_WORLD, 20);
        const struct call *call = &self->calls[self->count - 1];
        assert_string_equal(call->what, "rest");
        assert_int_equal(call->token, 20);
        assert_int_equal(call->type, NET_DOUBLE);
        self->events = self->recorded;
        for (struct net_done done; net->ops->test(net, &done);)
                ;
        close_all();
}

/* What ZeRO reduces and gathers: by one call where parts are equal, else by one for each part. */
static void parts_go_to_their_members(void **state)
{
        (void)state;
        char buffer[22];
        set_ranks();
        attach_all();
        for (int rank = 0; rank < RANKS; rank++) {
                self = &ranks[rank];
                struct net *net = &self->net;
                const int index = rank / PP;
                const struct call *call;
                net->ops->ireduce_scatter(net, buffer, NULL, 10, NET_FP16, NET_DATA, 1);
                call = &self->calls[self->count - 1];
                assert_string_equal(call->what, "scatter");
                assert_ptr_equal(call->buffer, buffer + (ptrdiff_t)index * 10);
                assert_int_equal(call->count, 5);
                net->ops->iall_gather(net, buffer, NULL, 10, NET_BF16, NET_DATA, 2);
                call = &self->calls[self->count - 1];
                assert_string_equal(call->what, "gather");
                assert_ptr_equal(call->from, buffer + (ptrdiff_t)index * 10);
                assert_int_equal(call->count, 5);
                assert_int_equal(call->type, ncclBfloat16);
                for (int way = 0; way < 2; way++) {
                        if (way == 0)
                                net->ops->ireduce_scatter(net, buffer, NULL, 11, NET_FP16, NET_DATA, 3);
                        else
                                net->ops->iall_gather(net, buffer, NULL, 11, NET_FP16, NET_DATA, 4);
                        call = &self->calls[self->count - 4];
                        assert_string_equal(call[0].what, "together");
                        for (int i = 0; i < DP; i++) {
                                assert_string_equal(call[1 + i].what, way == 0 ? "reduce" : "broadcast");
                                assert_int_equal(call[1 + i].root, i);
                                assert_int_equal(call[1 + i].count, i == 0 ? 6 : 5);
                                assert_ptr_equal(call[1 + i].buffer, buffer + (ptrdiff_t)i * 12);
                        }
                        assert_string_equal(call[3].what, "together no more");
                }
                self->events = self->recorded;
                for (struct net_done done; net->ops->test(net, &done);)
                        ;
        }
        close_all();
}

/* Pairs of shards, whose parts lie elsewhere: a part is copied there when it is summed, and from there before
 * it is gathered. */
static void shards_have_a_group_and_parts_of_their_own(void **state)
{
        (void)state;
        enum { SHARDS = 2 };
        char buffer[20], own[10];
        set_ranks();
        for (int i = 0; i < RANKS; i++) {
                ranks[i].net.colours[NET_EMBEDDING] = ranks[i].net.colours[NET_DATA] = -1;
                ranks[i].net.colours[NET_TENSOR] = i / SHARDS;
        }
        attach_all();
        for (int rank = 0; rank < RANKS; rank++) {
                self = &ranks[rank];
                struct net *net = &self->net;
                const int index = rank % SHARDS;
                char *part = buffer + (ptrdiff_t)index * 10;
                assert_int_equal(joined(self, 0)->size, SHARDS);
                assert_null(joined(self, 1));
                net->ops->iallreduce(net, buffer, 10, NET_FP16, NET_TENSOR, 1);
                assert_string_equal(self->calls[self->count - 1].what, "sum");
                net->ops->ireduce_scatter(net, buffer, own, 10, NET_FP16, NET_TENSOR, 2);
                const struct call *call = &self->calls[self->count - 2];
                assert_string_equal(call[0].what, "scatter");
                assert_ptr_equal(call[0].buffer, part);
                assert_string_equal(call[1].what, "copy");
                assert_ptr_equal(call[1].buffer, own);
                assert_ptr_equal(call[1].from, part);
                assert_int_equal(call[1].count, 10);
                net->ops->iall_gather(net, buffer, own, 10, NET_FP16, NET_TENSOR, 3);
                call = &self->calls[self->count - 1];
                assert_string_equal(call->what, "gather");
                assert_ptr_equal(call->from, own);
                self->events = self->recorded;
                for (struct net_done done; net->ops->test(net, &done);)
                        ;
        }
        close_all();
}

/* Rows of experts, of two blocks for each member: the own ones are copied, and no rows are no message. */
static void rows_go_to_their_members(void **state)
{
        (void)state;
        enum { ROW = 4, BLOCKS = 2 };
        char from[40], to[40];
        static const struct net_rows send[] = {{0, 1}, {1, 2}, {3, 0}, {3, 3}},
                                     receive[] = {{0, 1}, {1, 2}, {4, 1}, {3, 0}};
        set_ranks();
        for (int i = 0; i < RANKS; i++) {
                ranks[i].net.colours[NET_EMBEDDING] = ranks[i].net.colours[NET_DATA] = -1;
                ranks[i].net.colours[NET_EXPERTS] = i / 2;
        }
        attach_all();
        self = &ranks[0];
        struct net *net = &self->net;
        net->ops->iexchange(net,
                            &(struct net_exchange){.from = from,
                                                   .to = to,
                                                   .row_bytes = ROW,
                                                   .blocks = BLOCKS,
                                                   .send = send,
                                                   .receive = receive},
                            NET_EXPERTS, 9);
        const struct call *call = &self->calls[self->count - 6];
        assert_string_equal(call[0].what, "together");
        assert_string_equal(call[1].what, "receive");
        assert_ptr_equal(call[1].buffer, to + (ptrdiff_t)4 * ROW);
        assert_int_equal(call[1].count, 1 * ROW);
        assert_string_equal(call[2].what, "send");
        assert_ptr_equal(call[2].from, from + (ptrdiff_t)3 * ROW);
        assert_int_equal(call[2].count, 3 * ROW);
        assert_true(call[1].root == 1 && call[2].root == 1 && call[1].type == ncclChar);
        assert_string_equal(call[3].what, "together no more");
        for (int block = 0; block < BLOCKS; block++) {
                assert_string_equal(call[4 + block].what, "copy");
                assert_ptr_equal(call[4 + block].from, from + send[block].at * ROW);
                assert_ptr_equal(call[4 + block].buffer, to + receive[block].at * ROW);
                assert_int_equal(call[4 + block].count, send[block].rows * ROW);
        }
        self->events = self->recorded;
        struct net_done done;
        assert_int_equal(net->ops->test(net, &done), 1);
        assert_int_equal(done.token, 9);
        close_all();
}

/* In the order in which they were posted, each when its event is reached; the rest is asked meanwhile. */
static void tokens_come_back_when_their_events_are_reached(void **state)
{
        (void)state;
        char buffer;
        struct net_done done;
        set_ranks();
        attach_all();
        self = &ranks[3];
        struct net *net = &self->net;
        for (int token = 0; token < 100; token++) /* more than the first events */
                net->ops->iallreduce(net, &buffer, 1, NET_FP16, token == 99 ? NET_EMBEDDING : NET_DATA,
                                     token);
        assert_int_equal(self->recorded, 100);
        assert_int_equal(net->ops->test(net, &done), 0);
        self->rest_done = 1000;
        assert_int_equal(net->ops->test(net, &done), 1);
        assert_int_equal(done.token, 1000);
        assert_int_equal(done.micro_batch, 5);
        self->events = 100; /* the other group's is not kept by those before it */
        assert_int_equal(net->ops->test(net, &done), 1);
        assert_int_equal(done.token, 99);
        self->events = 0;
        for (int token = 0; token < 99; token++) {
                assert_int_equal(net->ops->test(net, &done), 0);
                self->events++;
                assert_int_equal(net->ops->test(net, &done), 1);
                assert_int_equal(done.token, token);
                assert_int_equal(done.micro_batch, -1);
        }
        assert_int_equal(net->ops->test(net, &done), 0);
        close_all();
}

/* Nothing changes, and every rank knows the same reason. */
static void check_left_alone(const char *reason)
{
        attach_all();
        for (int i = 0; i < RANKS; i++) {
                assert_ptr_equal(ranks[i].net.ops, &rest_ops);
                assert_false(ranks[i].net.sums_device_memory);
                assert_int_equal(ranks[i].count, 0);
                assert_int_equal(ranks[i].why.code, RV_ENOTBUILT);
                assert_string_equal(ranks[i].why.sentence, reason);
        }
}

static void ranks_that_share_a_gpu_are_left_to_the_rest(void **state)
{
        (void)state;
        set_ranks();
        ranks[4].uuid = ranks[2].uuid;
        check_left_alone("NCCL needs a GPU for each rank, ranks 2 and 4 share one");
        set_ranks();
        ranks[5].no_gpu = true;
        check_left_alone("NCCL: the GPU of rank 5 does not say which it is");
}

/* A rank on the other side has failed: it never comes, and NCCL says so. */
static void a_failure_under_way_ends_the_job_with_a_sentence(void **state)
{
        (void)state;
        char buffer;
        struct net_done done;
        set_ranks();
        attach_all();
        self = &ranks[0];
        self->net.ops->iallreduce(&self->net, &buffer, 1, NET_FP16, NET_DATA, 3);
        joined(self, 0)->failure = ncclInProgress; /* is none */
        assert_int_equal(self->net.ops->test(&self->net, &done), 0);
        joined(self, 0)->failure = ncclUnhandledCudaError;
        if (setjmp(self->failed) == 0) {
                self->net.ops->test(&self->net, &done);
                fail_msg("%s", "the failure was not told");
        }
        assert_string_equal(self->failure,
                            "a collective by NCCL: one under way failed: unhandled cuda error");
        self->events = 1;
        assert_int_equal(self->net.ops->test(&self->net, &done), 1);
        close_all();
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_rank_joins_its_replicas_and_then_the_other_end),
                cmocka_unit_test(parts_go_to_their_members),
                cmocka_unit_test(shards_have_a_group_and_parts_of_their_own),
                cmocka_unit_test(rows_go_to_their_members),
                cmocka_unit_test(sums_go_to_nccl_and_scalars_to_the_rest),
                cmocka_unit_test(tokens_come_back_when_their_events_are_reached),
                cmocka_unit_test(ranks_that_share_a_gpu_are_left_to_the_rest),
                cmocka_unit_test(a_failure_under_way_ends_the_job_with_a_sentence),
        };
        return cmocka_run_group_tests_name("nccl", tests, NULL, NULL);
}
