/* The network over Open MPI. Only the thread that opened it calls MPI (MPI_THREAD_FUNNELED): progress is made
 * by polling test(), since Open MPI moves large messages only inside its own calls. */
#include "runtime/base/fp16.h"
#include "runtime/base/sums.h"
#include "runtime/net/net.h"
#include "runtime/net/shared_sum.h"

#include <assert.h>
#include <limits.h>
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum collective { ALLREDUCE, REDUCE_SCATTER, ALL_GATHER, EXCHANGE };

/* A collective that waits for those before it in its group. */
struct waiting {
        enum collective kind;
        void *buffer, *own; /* own: NULL, or where this member's part lies besides */
        int64_t elements;
        enum net_type type;
        int token;
        struct net_exchange exchange; /* whose arrays are this one's own, in one piece that `send` begins */
};

/* The collectives of a group, one at a time: MPI would share the network among all that have begun, and the
 * first would be complete hardly before the last. */
struct group {
        MPI_Comm comm; /* MPI_COMM_NULL: this rank is not in it */
        bool busy;
        struct waiting now;    /* the one under way, */
        struct shared_sum sum; /* and its sum, if that is shared */
        int *counts, *offsets; /* of an all-gather or exchange under way, by member */
        MPI_Datatype *types;   /* of an exchange: what is sent to each, then what is received from each */
        struct waiting *queue; /* [capacity], a ring */
        int capacity, head, count;
};

/* What an active request is. */
struct request {
        int token;
        struct group *group; /* of a collective; else NULL */
};

struct net_mpi {
        struct net net;
        MPI_Comm channels[NET_CHANNELS]; /* one each, so that a receive can take any micro-batch */
        struct group groups[NET_GROUPS];
        MPI_Op add_half, add_bf16;
        MPI_Request *requests; /* active ones, */
        struct request *facts; /* and what they are */
        int active, capacity;
};

static MPI_Request *new_request(struct net_mpi *mpi, int token, struct group *group)
{
        if (mpi->active == mpi->capacity) {
                mpi->capacity = mpi->capacity ? 2 * mpi->capacity : 16;
                mpi->requests = realloc(mpi->requests, (size_t)mpi->capacity * sizeof *mpi->requests);
                mpi->facts = realloc(mpi->facts, (size_t)mpi->capacity * sizeof *mpi->facts);
                if (!mpi->requests || !mpi->facts)
                        abort();
        }
        mpi->facts[mpi->active] = (struct request){token, group};
        return &mpi->requests[mpi->active++];
}

static int count_of(int64_t n)
{
        assert(n >= 0 && n <= INT_MAX);
        return (int)n;
}

static void mpi_isend(struct net *net, const void *buffer, int64_t bytes, int peer, int channel,
                      int micro_batch, int token)
{
        struct net_mpi *mpi = (struct net_mpi *)net;
        MPI_Isend(buffer, count_of(bytes), MPI_BYTE, peer, micro_batch, mpi->channels[channel],
                  new_request(mpi, token, NULL));
}

static void mpi_ireceive(struct net *net, void *buffer, int64_t bytes, int peer, int channel, int token)
{
        struct net_mpi *mpi = (struct net_mpi *)net;
        MPI_Irecv(buffer, count_of(bytes), MPI_BYTE, peer, MPI_ANY_TAG, mpi->channels[channel],
                  new_request(mpi, token, NULL));
}

/* MPI knows neither 16-bit format: their elements travel as uint16_t. */
static MPI_Datatype datatype(enum net_type type)
{
        return type == NET_FLOAT    ? MPI_FLOAT
               : type == NET_DOUBLE ? MPI_DOUBLE
               : type == NET_INT32  ? MPI_INT32_T
                                    : MPI_UINT16_T;
}

static int64_t bytes_of(enum net_type type)
{
        return type == NET_FLOAT || type == NET_INT32 ? 4 : type == NET_DOUBLE ? 8 : 2;
}

static void add_half(void *with, void *sum, int *count, MPI_Datatype *type)
{
        (void)type;
        fp16_add(sum, with, *count);
}

static void add_bf16(void *with, void *sum, int *count, MPI_Datatype *type)
{
        (void)type;
        bf16_add(sum, with, *count);
}

static MPI_Op sum_of(const struct net_mpi *mpi, enum net_type type)
{
        return type == NET_FP16 ? mpi->add_half : type == NET_BF16 ? mpi->add_bf16 : MPI_SUM;
}

/* ---- sums ---- */

static bool is_shared(const struct group *group, const struct waiting *w)
{
        int members;
        if (w->kind != ALLREDUCE)
                return w->kind == REDUCE_SCATTER;
        MPI_Comm_size(group->comm, &members);
        return sums_shared(w->elements * bytes_of(w->type), members);
}

static void float_add(void *sum, const void *with, int64_t elements)
{
        float *restrict x = sum;
        const float *restrict y = with;
        for (int64_t i = 0; i < elements; i++)
                x[i] += y[i];
}

static void double_add(void *sum, const void *with, int64_t elements)
{
        double *restrict x = sum;
        const double *restrict y = with;
        for (int64_t i = 0; i < elements; i++)
                x[i] += y[i];
}

static void fp16_sum(void *sum, const void *with, int64_t elements)
{
        fp16_add(sum, with, elements);
}

static void bf16_sum(void *sum, const void *with, int64_t elements)
{
        bf16_add(sum, with, elements);
}

static void begin_shared_sum(struct group *group, const struct waiting *w)
{
        static void (*const adds[])(void *, const void *, int64_t) = {[NET_FLOAT] = float_add,
                                                                      [NET_DOUBLE] = double_add,
                                                                      [NET_FP16] = fp16_sum,
                                                                      [NET_BF16] = bf16_sum,
                                                                      [NET_INT32] = NULL};
        shared_sum_begin(&group->sum, group->comm,
                         &(struct shared_sum_terms){
                                 .buffer = w->buffer,
                                 .own = w->kind == REDUCE_SCATTER ? w->own : NULL,
                                 .elements = w->elements,
                                 .element_bytes = (int)bytes_of(w->type),
                                 .add = adds[w->type],
                         });
}

/* ---- rows from member to member ---- */

/* The blocks of rows of one member, as a type. */
static MPI_Datatype rows_type(const struct net_exchange *x, const struct net_rows *rows)
{
        int *lengths = malloc(2 * (size_t)x->blocks * sizeof *lengths), *at;
        MPI_Datatype row, type;
        if (!lengths)
                abort();
        at = lengths + x->blocks;
        for (int b = 0; b < x->blocks; b++) {
                lengths[b] = count_of(rows[b].rows);
                at[b] = count_of(rows[b].at);
        }
        MPI_Type_contiguous(count_of(x->row_bytes), MPI_BYTE, &row);
        MPI_Type_indexed(x->blocks, lengths, at, row, &type);
        MPI_Type_commit(&type);
        MPI_Type_free(&row);
        free(lengths);
        return type;
}

static bool has_rows(const struct net_exchange *x, const struct net_rows *rows)
{
        int64_t all = 0;
        for (int b = 0; b < x->blocks; b++)
                all += rows[b].rows;
        return all > 0;
}

/* Tables of a group that MPI reads until a collective is complete: by member, twice. */
static void need_tables(struct group *group, int members)
{
        if (group->counts)
                return;
        group->counts = calloc(2 * (size_t)members, sizeof *group->counts);
        group->offsets = calloc(2 * (size_t)members, sizeof *group->offsets);
        group->types = malloc(2 * (size_t)members * sizeof *group->types);
        if (!group->counts || !group->offsets || !group->types)
                abort();
}

static void begin_exchange(struct net_mpi *mpi, struct group *group, const struct waiting *w)
{
        const struct net_exchange *x = &w->exchange;
        int members;
        MPI_Comm_size(group->comm, &members);
        need_tables(group, members);
        for (int i = 0; i < 2 * members; i++) {
                const struct net_rows *rows = (i < members ? x->send : x->receive) + i % members * x->blocks;
                group->counts[i] = has_rows(x, rows);
                group->offsets[i] = 0;
                group->types[i] = rows_type(x, rows);
        }
        MPI_Ialltoallw(x->from, group->counts, group->offsets, group->types, x->to, group->counts + members,
                       group->offsets + members, group->types + members, group->comm,
                       new_request(mpi, w->token, group));
        free((void *)x->send);
}

static void end_exchange(struct group *group)
{
        int members;
        MPI_Comm_size(group->comm, &members);
        for (int i = 0; i < 2 * members; i++)
                MPI_Type_free(&group->types[i]);
}

static void begin_all_gather(struct net_mpi *mpi, struct group *group, const struct waiting *w)
{
        int members, me;
        MPI_Comm_size(group->comm, &members);
        MPI_Comm_rank(group->comm, &me);
        need_tables(group, members);
        for (int member = 0; member < members; member++) {
                int64_t offset;
                group->counts[member] = count_of(shared_sum_part(w->elements, members, member, &offset));
                group->offsets[member] = count_of(offset);
        }
        MPI_Iallgatherv(w->own ? w->own : MPI_IN_PLACE, group->counts[me], datatype(w->type), w->buffer,
                        group->counts, group->offsets, datatype(w->type), group->comm,
                        new_request(mpi, w->token, group));
}

static void begin_collective(struct net_mpi *mpi, struct group *group, const struct waiting *w)
{
        group->busy = true;
        group->now = *w;
        if (is_shared(group, w))
                begin_shared_sum(group, w);
        else if (w->kind == ALL_GATHER)
                begin_all_gather(mpi, group, w);
        else if (w->kind == EXCHANGE)
                begin_exchange(mpi, group, w);
        else
                MPI_Iallreduce(MPI_IN_PLACE, w->buffer, count_of(w->elements), datatype(w->type),
                               sum_of(mpi, w->type), group->comm, new_request(mpi, w->token, group));
}

/* Of a group's queue, a ring. */
static void grow_queue(struct group *g)
{
        int capacity = 2 * g->capacity + 16;
        struct waiting *queue = malloc((size_t)capacity * sizeof *queue);
        if (!queue)
                abort();
        for (int i = 0; i < g->count; i++)
                queue[i] = g->queue[(g->head + i) % g->capacity];
        free(g->queue);
        g->queue = queue;
        g->capacity = capacity;
        g->head = 0;
}

static void begin_or_wait(struct net *net, const struct waiting *w, enum net_group group)
{
        struct net_mpi *mpi = (struct net_mpi *)net;
        struct group *g = &mpi->groups[group];
        assert(g->comm != MPI_COMM_NULL);
        if (!g->busy) {
                begin_collective(mpi, g, w);
                return;
        }
        if (g->count == g->capacity)
                grow_queue(g);
        g->queue[(g->head + g->count++) % g->capacity] = *w;
}

static void mpi_iallreduce(struct net *net, void *buffer, int64_t elements, enum net_type type,
                           enum net_group group, int token)
{
        begin_or_wait(net, &(struct waiting){ALLREDUCE, buffer, NULL, elements, type, token, {0}}, group);
}

static void mpi_ireduce_scatter(struct net *net, void *buffer, void *own, int64_t elements,
                                enum net_type type, enum net_group group, int token)
{
        begin_or_wait(net, &(struct waiting){REDUCE_SCATTER, buffer, own, elements, type, token, {0}}, group);
}

static void mpi_iall_gather(struct net *net, void *buffer, const void *own, int64_t elements,
                            enum net_type type, enum net_group group, int token)
{
        begin_or_wait(net, &(struct waiting){ALL_GATHER, buffer, (void *)own, elements, type, token, {0}},
                      group);
}

static void mpi_iexchange(struct net *net, const struct net_exchange *exchange, enum net_group group,
                          int token)
{
        struct waiting w = {.kind = EXCHANGE, .token = token, .exchange = *exchange};
        int members;
        MPI_Comm_size(((struct net_mpi *)net)->groups[group].comm, &members);
        const size_t each = (size_t)members * (size_t)exchange->blocks;
        struct net_rows *rows = malloc(2 * each * sizeof *rows);
        if (!rows)
                abort();
        memcpy(rows, exchange->send, each * sizeof *rows);
        memcpy(rows + each, exchange->receive, each * sizeof *rows);
        w.exchange.send = rows;
        w.exchange.receive = rows + each;
        begin_or_wait(net, &w, group);
}

static void begin_next(struct net_mpi *mpi, struct group *g)
{
        g->busy = false;
        if (g->count == 0)
                return;
        begin_collective(mpi, g, &g->queue[g->head]);
        g->head = (g->head + 1) % g->capacity;
        g->count--;
}

/* Whether a large sum has ended: where all are to have it, all parts are gathered first. */
static bool test_sums(struct net_mpi *mpi, struct net_done *done)
{
        for (int i = 0; i < NET_GROUPS; i++) {
                struct group *group = &mpi->groups[i];
                if (!shared_sum_test(&group->sum))
                        continue;
                if (group->now.kind == ALLREDUCE) {
                        begin_all_gather(mpi, group, &group->now);
                        continue;
                }
                *done = (struct net_done){.token = group->now.token, .micro_batch = -1};
                begin_next(mpi, group);
                return true;
        }
        return false;
}

static int mpi_test(struct net *net, struct net_done *done)
{
        struct net_mpi *mpi = (struct net_mpi *)net;
        int index, flag;
        MPI_Status status;
        if (test_sums(mpi, done))
                return 1;
        if (mpi->active == 0)
                return 0;
        MPI_Testany(mpi->active, mpi->requests, &index, &flag, &status);
        if (!flag || index == MPI_UNDEFINED)
                return 0;
        const struct request request = mpi->facts[index];
        done->token = request.token;
        done->micro_batch = status.MPI_TAG;
        /* The rest keeps its order, so that of two that completed the one posted first is told first. */
        size_t behind = (size_t)(--mpi->active - index);
        memmove(&mpi->requests[index], &mpi->requests[index + 1], behind * sizeof *mpi->requests);
        memmove(&mpi->facts[index], &mpi->facts[index + 1], behind * sizeof *mpi->facts);
        if (!request.group)
                return 1;
        if (request.group->now.kind == EXCHANGE)
                end_exchange(request.group);
        begin_next(mpi, request.group);
        return 1;
}

static bool mpi_pending(struct net *net)
{
        const struct net_mpi *mpi = (const struct net_mpi *)net;
        for (int i = 0; i < NET_GROUPS; i++)
                if (mpi->groups[i].busy)
                        return true;
        return mpi->active > 0;
}

static void mpi_barrier(struct net *net)
{
        (void)net;
        MPI_Barrier(MPI_COMM_WORLD);
}

static void mpi_broadcast(struct net *net, void *buffer, int64_t bytes, int root)
{
        (void)net;
        MPI_Bcast(buffer, count_of(bytes), MPI_BYTE, root, MPI_COMM_WORLD);
}

static void mpi_gather(struct net *net, const void *mine, int64_t bytes, void *all)
{
        (void)net;
        MPI_Gather(mine, count_of(bytes), MPI_BYTE, all, count_of(bytes), MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void free_communicator(MPI_Comm *comm)
{
        if (*comm != MPI_COMM_NULL && *comm != MPI_COMM_WORLD)
                MPI_Comm_free(comm);
}

static void free_group(struct group *group)
{
        free_communicator(&group->comm);
        free(group->queue);
        free(group->counts);
        free(group->offsets);
        free(group->types);
        shared_sum_free(&group->sum);
        *group = (struct group){.comm = MPI_COMM_NULL};
}

static void mpi_close(struct net *net)
{
        struct net_mpi *mpi = (struct net_mpi *)net;
        assert(mpi->active == 0);
        for (int i = 0; i < NET_CHANNELS; i++)
                free_communicator(&mpi->channels[i]);
        for (int i = 0; i < NET_GROUPS; i++)
                free_group(&mpi->groups[i]);
        MPI_Op_free(&mpi->add_half);
        MPI_Op_free(&mpi->add_bf16);
        free(mpi->requests);
        free(mpi->facts);
        free(mpi);
        MPI_Finalize();
}

static const struct net_ops mpi_ops = {
        .name = "mpi",
        .isend = mpi_isend,
        .ireceive = mpi_ireceive,
        .iallreduce = mpi_iallreduce,
        .ireduce_scatter = mpi_ireduce_scatter,
        .iall_gather = mpi_iall_gather,
        .iexchange = mpi_iexchange,
        .test = mpi_test,
        .pending = mpi_pending,
        .barrier = mpi_barrier,
        .broadcast = mpi_broadcast,
        .gather = mpi_gather,
        .close = mpi_close,
};

/* Ranks on this node, and which of them this one is. */
static void find_local_ranks(struct net *net)
{
        MPI_Comm node;
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
        MPI_Comm_rank(node, &net->local_rank);
        MPI_Comm_size(node, &net->local_ranks);
        MPI_Comm_free(&node);
}

/* A micro-batch travels as the tag of its message. */
static int largest_tag(void)
{
        int *tag, known;
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&tag, &known);
        return known ? *tag : 32767; /* which every MPI has at least */
}

/* Whether this MPI sends from and receives into a GPU's memory: Open MPI says so of itself. It says nothing
 * of sums, and cannot make those of add_half there. */
static bool is_cuda_aware(void)
{
#if defined(MPIX_CUDA_AWARE_SUPPORT)
        return MPIX_Query_cuda_support();
#else
        return false;
#endif
}

void net_mpi_library(char text[NET_LIBRARY])
{
        char whole[MPI_MAX_LIBRARY_VERSION_STRING];
        int length;
        MPI_Get_library_version(whole, &length);
        snprintf(text, NET_LIBRARY, "%.*s", (int)strcspn(whole, ",\n"), whole);
}

struct net *net_mpi_open(int *argc, char ***argv, struct rv_error_info *err)
{
        int provided;
        /* One rank that nobody started: Open MPI would start a daemon beside it, of which we have no need,
         * and which takes longer than all else that is done here. */
        setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
        MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
        struct net_mpi *mpi = calloc(1, sizeof *mpi);
        if (!mpi || provided < MPI_THREAD_FUNNELED) {
                if (mpi)
                        rv_fail(err, RV_ESYSTEM,
                                "this MPI offers thread level %d; ranvier needs MPI_THREAD_FUNNELED (%d)",
                                provided, MPI_THREAD_FUNNELED);
                else
                        rv_fail(err, RV_ESYSTEM, "no memory for the network of a rank");
                free(mpi);
                MPI_Finalize();
                return NULL;
        }
        mpi->net.ops = &mpi_ops;
        MPI_Comm_rank(MPI_COMM_WORLD, &mpi->net.rank);
        MPI_Comm_size(MPI_COMM_WORLD, &mpi->net.ranks);
        find_local_ranks(&mpi->net);
        mpi->net.max_micro_batch = largest_tag();
        for (int i = 0; i < NET_CHANNELS; i++)
                MPI_Comm_dup(MPI_COMM_WORLD, &mpi->channels[i]);
        for (int group = 0; group < NET_WORLD; group++)
                mpi->groups[group].comm = MPI_COMM_NULL;
        MPI_Comm_dup(MPI_COMM_WORLD, &mpi->groups[NET_WORLD].comm);
        MPI_Op_create(add_half, true, &mpi->add_half);
        MPI_Op_create(add_bf16, true, &mpi->add_bf16);
        mpi->net.sends_device_memory = is_cuda_aware();
        return &mpi->net;
}

static void split(struct net_mpi *mpi, enum net_group group, int colour)
{
        struct group *g = &mpi->groups[group];
        free_group(g);
        MPI_Comm_split(MPI_COMM_WORLD, colour < 0 ? MPI_UNDEFINED : colour, mpi->net.rank, &g->comm);
}

void net_mpi_groups(struct net *net, const int colours[NET_WORLD])
{
        for (int group = 0; group < NET_WORLD; group++) {
                net->colours[group] = colours[group];
                split((struct net_mpi *)net, (enum net_group)group, colours[group]);
        }
}

void net_mpi_abort(struct net *net, int status)
{
        (void)net;
        MPI_Abort(MPI_COMM_WORLD, status);
        _Exit(status);
}
