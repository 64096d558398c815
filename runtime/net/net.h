/* The network between ranks: messages between pipeline neighbours, and all-reduces. */
#ifndef RANVIER_RUNTIME_NET_NET_H
#define RANVIER_RUNTIME_NET_NET_H

#include "runtime/base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* Channel of a message, beside its number: of its micro-batch, or, interleaved, of the piece that it is for.
 */
enum { NET_TAG_ACTIVATION = 0, NET_TAG_GRADIENT = 1 };
enum net_group { NET_EMBEDDING, NET_DATA, NET_TENSOR, NET_WORLD, NET_GROUPS };
enum net_type {
        NET_FLOAT,
        NET_DOUBLE,
        NET_FP16, /* IEEE binary16; each sum of two is made in fp32 and rounded */
        NET_BF16  /* bfloat16, likewise */
};

/* A request that completed. */
struct net_done {
        int token;       /* as given when it was posted */
        int micro_batch; /* receives: the sender's; else -1 */
};

struct net;
struct net_ops {
        const char *name;
        /* Never block; buffers stay the caller's and must not be touched until `token` is
         * returned. All-reduces of one group run one after another, in the order in which they are posted,
         * which is to be the same on all of its ranks. */
        void (*isend)(struct net *, const void *buffer, int64_t bytes, int peer, int channel, int micro_batch,
                      int token);
        void (*ireceive)(struct net *, void *buffer, int64_t bytes, int peer, int channel, int token);
        void (*iallreduce)(struct net *, void *buffer, int64_t elements, enum net_type type,
                           enum net_group group, int token);
        /* As iallreduce, in the same order with it. Of the group's p members the i-th has the i-th part of
         * `elements`, ceil(elements / p) of them (the last may have less, or none): a reduce-scatter leaves
         * the sums of its own part there, and anything in the others; an all-gather takes its own part from
         * there, and brings the others. Own parts may also lie elsewhere: in `own` (NULL: in the buffer). */
        void (*ireduce_scatter)(struct net *, void *buffer, void *own, int64_t elements, enum net_type type,
                                enum net_group group, int token);
        void (*iall_gather)(struct net *, void *buffer, const void *own, int64_t elements, enum net_type type,
                            enum net_group group, int token);
        /* Makes progress; true and fills `done` if a request completed. */
        int (*test)(struct net *, struct net_done *done);
        /* Whether something was posted that test has not returned. */
        bool (*pending)(struct net *);
        /* Blocking, outside the batch. */
        void (*barrier)(struct net *);
        void (*broadcast)(struct net *, void *buffer, int64_t bytes, int root);
        void (*gather)(struct net *, const void *mine, int64_t bytes,
                       void *all); /* to rank 0; all may be NULL elsewhere */
        void (*close)(struct net *);
};

struct net {
        const struct net_ops *ops;
        int rank, ranks;
        int local_rank; /* among those that share this node's memory, of which there are */
        int local_ranks;
        int max_micro_batch;      /* the largest number that a message can carry */
        int colours[NET_WORLD];   /* this rank's groups, as net_mpi_groups was given */
        bool sends_device_memory; /* messages may lie in a GPU's memory, */
        bool sums_device_memory;  /* and so may what is summed over NET_EMBEDDING and NET_DATA */
};

/* Whether any rank has failed: then every rank gets the error of the first that did (its code is returned,
 * and `err` filled), so that all stop alike and one can print. `rc`: this rank's, 0 or negative, and `err`
 * then says why. Collective. */
int net_agree(struct net *, int rc, struct rv_error_info *err);

/* Open MPI. Initialises MPI (call once, and only from the thread that calls). The groups NET_EMBEDDING,
 * NET_DATA and NET_TENSOR exist after net_mpi_groups: ranks with the same colour form one, a negative colour
 * is in none. */
struct net *net_mpi_open(int *argc, char ***argv, struct rv_error_info *err);
void net_mpi_groups(struct net *, const int colours[NET_WORLD]);
/* Ends the whole job at once with `status`. */
void net_mpi_abort(struct net *, int status) __attribute__((noreturn));

#endif
