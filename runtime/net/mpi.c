/* The network over Open MPI. Only the thread that opened it calls MPI (MPI_THREAD_FUNNELED): progress is made
 * by polling test(), since Open MPI moves large messages only inside its own calls. */
#include "models/half.h"
#include "runtime/net/net.h"

#include <assert.h>
#include <limits.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct net_mpi {
        struct net net;
        MPI_Comm channels[2]; /* activations and gradients: so that a receive can take any micro-batch */
        MPI_Comm groups[NET_GROUPS]; /* MPI_COMM_NULL: this rank is not in it */
        MPI_Op add_half;
        MPI_Request *requests; /* active ones, with their tokens */
        int *tokens;
        int active, capacity;
};

static MPI_Request *new_request(struct net_mpi *mpi, int token)
{
        if (mpi->active == mpi->capacity) {
                mpi->capacity = mpi->capacity ? 2 * mpi->capacity : 16;
                mpi->requests = realloc(mpi->requests, (size_t)mpi->capacity * sizeof *mpi->requests);
                mpi->tokens = realloc(mpi->tokens, (size_t)mpi->capacity * sizeof *mpi->tokens);
                if (!mpi->requests || !mpi->tokens)
                        abort();
        }
        mpi->tokens[mpi->active] = token;
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
                  new_request(mpi, token));
}

static void mpi_ireceive(struct net *net, void *buffer, int64_t bytes, int peer, int channel, int token)
{
        struct net_mpi *mpi = (struct net_mpi *)net;
        MPI_Irecv(buffer, count_of(bytes), MPI_BYTE, peer, MPI_ANY_TAG, mpi->channels[channel],
                  new_request(mpi, token));
}

/* MPI knows no fp16: its elements travel as uint16_t. */
static void add_half(void *with, void *sum, int *count, MPI_Datatype *type)
{
        (void)type;
        half_add(sum, with, *count);
}

static void mpi_iallreduce(struct net *net, void *buffer, int64_t elements, enum net_type type,
                           enum net_group group, int token)
{
        struct net_mpi *mpi = (struct net_mpi *)net;
        const MPI_Datatype types[] = {
                [NET_FLOAT] = MPI_FLOAT, [NET_DOUBLE] = MPI_DOUBLE, [NET_HALF] = MPI_UINT16_T};
        assert(mpi->groups[group] != MPI_COMM_NULL);
        MPI_Iallreduce(MPI_IN_PLACE, buffer, count_of(elements), types[type],
                       type == NET_HALF ? mpi->add_half : MPI_SUM, mpi->groups[group],
                       new_request(mpi, token));
}

static int mpi_test(struct net *net, struct net_done *done)
{
        struct net_mpi *mpi = (struct net_mpi *)net;
        int index, flag;
        MPI_Status status;
        if (mpi->active == 0)
                return 0;
        MPI_Testany(mpi->active, mpi->requests, &index, &flag, &status);
        if (!flag || index == MPI_UNDEFINED)
                return 0;
        done->token = mpi->tokens[index];
        done->micro_batch = status.MPI_TAG;
        /* The rest keeps its order, so that of two that completed the one posted first is told first. */
        size_t behind = (size_t)(--mpi->active - index);
        memmove(&mpi->requests[index], &mpi->requests[index + 1], behind * sizeof *mpi->requests);
        memmove(&mpi->tokens[index], &mpi->tokens[index + 1], behind * sizeof *mpi->tokens);
        return 1;
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

static void mpi_close(struct net *net)
{
        struct net_mpi *mpi = (struct net_mpi *)net;
        assert(mpi->active == 0);
        for (int i = 0; i < 2; i++)
                free_communicator(&mpi->channels[i]);
        for (int i = 0; i < NET_GROUPS; i++)
                free_communicator(&mpi->groups[i]);
        MPI_Op_free(&mpi->add_half);
        free(mpi->requests);
        free(mpi->tokens);
        free(mpi);
        MPI_Finalize();
}

static const struct net_ops mpi_ops = {
        .name = "mpi",
        .isend = mpi_isend,
        .ireceive = mpi_ireceive,
        .iallreduce = mpi_iallreduce,
        .test = mpi_test,
        .barrier = mpi_barrier,
        .broadcast = mpi_broadcast,
        .gather = mpi_gather,
        .close = mpi_close,
};

static int count_local_ranks(void)
{
        MPI_Comm node;
        int count;
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
        MPI_Comm_size(node, &count);
        MPI_Comm_free(&node);
        return count;
}

/* A micro-batch travels as the tag of its message. */
static int largest_tag(void)
{
        int *tag, known;
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&tag, &known);
        return known ? *tag : 32767; /* which every MPI has at least */
}

struct net *net_mpi_open(int *argc, char ***argv, struct rv_error_info *err)
{
        int provided;
        MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
        struct net_mpi *mpi = calloc(1, sizeof *mpi);
        if (!mpi || provided < MPI_THREAD_FUNNELED) {
                rv_fail(err, RV_ESYSTEM,
                        "this MPI offers thread level %d; ranvier needs MPI_THREAD_FUNNELED (%d)", provided,
                        MPI_THREAD_FUNNELED);
                free(mpi);
                MPI_Finalize();
                return NULL;
        }
        mpi->net.ops = &mpi_ops;
        MPI_Comm_rank(MPI_COMM_WORLD, &mpi->net.rank);
        MPI_Comm_size(MPI_COMM_WORLD, &mpi->net.ranks);
        mpi->net.local_ranks = count_local_ranks();
        mpi->net.most_micro_batch = largest_tag();
        for (int i = 0; i < 2; i++)
                MPI_Comm_dup(MPI_COMM_WORLD, &mpi->channels[i]);
        mpi->groups[NET_EMBEDDING] = mpi->groups[NET_DATA] = MPI_COMM_NULL;
        MPI_Comm_dup(MPI_COMM_WORLD, &mpi->groups[NET_WORLD]);
        MPI_Op_create(add_half, true, &mpi->add_half);
        return &mpi->net;
}

static void split(struct net_mpi *mpi, enum net_group group, int colour)
{
        free_communicator(&mpi->groups[group]);
        MPI_Comm_split(MPI_COMM_WORLD, colour < 0 ? MPI_UNDEFINED : colour, mpi->net.rank,
                       &mpi->groups[group]);
}

void net_mpi_groups(struct net *net, int embedding_colour, int data_colour)
{
        struct net_mpi *mpi = (struct net_mpi *)net;
        split(mpi, NET_EMBEDDING, embedding_colour);
        split(mpi, NET_DATA, data_colour);
}

void net_mpi_abort(struct net *net, int status)
{
        (void)net;
        MPI_Abort(MPI_COMM_WORLD, status);
        _Exit(status);
}
