/* The network between the ranks of a run: messages between neighbours in a pipeline, collectives of groups of
 * ranks, and a few blocking functions for set-up. A struct net is an interface; the one that is built is that
 * of Open MPI (mpi.c), on GPUs NCCL may take over some of its all-reduces (nccl.h), and for experiments it
 * may be as slow as a link (paced.h). Everything is posted,
 * and completes in test(), which must be polled: there is no thread that makes progress otherwise. Failures
 * of MPI end the job. */
#ifndef RANVIER_RUNTIME_NET_NET_H
#define RANVIER_RUNTIME_NET_NET_H

#include "runtime/base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* The channel of a message. A receive takes the next message that a peer sends on it, whatever its number. */
enum { NET_TAG_ACTIVATION, NET_TAG_GRADIENT, NET_TAG_DECISION, NET_CHANNELS };

/* The group of a collective: the ranks that share an embedding, the replicas of a stage, the shards of a
 * stage, the replicas over which its experts are spread, those that have the same experts, or all. */
enum net_group {
        NET_EMBEDDING,
        NET_DATA,
        NET_TENSOR,
        NET_EXPERTS,
        NET_EXPERT_DATA,
        NET_CONTEXT,
        NET_SHARERS,
        NET_SHARE_DATA,
        NET_WORLD,
        NET_GROUPS
};

/* What elements of a collective are. */
enum net_type {
        NET_FLOAT,
        NET_DOUBLE,
        NET_FP16, /* IEEE binary16; over MPI each sum of two is made in fp32 and rounded */
        NET_BF16, /* bfloat16, likewise */
        NET_INT32 /* only gathered */
};

/* Rows that go from member to member of a group, each member's in blocks: block `b` for the member `m` are
 * the rows [at, at + rows) of element m x blocks + b. The blocks that one member sends to another have as
 * many rows as that one receives. */
struct net_rows {
        int64_t at, rows;
};
struct net_exchange {
        const void *from;
        void *to;
        int64_t row_bytes;
        int blocks;
        const struct net_rows *send, *receive; /* [members x blocks] each */
};

/* A request that has completed. */
struct net_done {
        int token; /* as it was given when the request was posted */
        /* Of a receive: the number that the sender gave its message. Of other requests it has no meaning. */
        int micro_batch;
};

struct net;
struct net_ops {
        const char *name;

        /* The first five post a request and never block. The buffers stay the caller's and must not be
         * touched until test() has returned `token`, by which the caller knows the request again.
         *
         * A message has `bytes` bytes and goes to, or comes from, the rank `peer`. It carries a number,
         * `micro_batch`: that of its micro-batch, or, with an interleaved schedule, of the piece of work that
         * it is for. A decision has no bytes, its number says all (core_decision_number). */
        void (*isend)(struct net *, const void *buffer, int64_t bytes, int peer, int channel, int micro_batch,
                      int token);
        void (*ireceive)(struct net *, void *buffer, int64_t bytes, int peer, int channel, int token);
        /* Sums `elements` elements over the group, in place. Collectives of one group run one after another,
         * in the order in which they are posted, which must be the same on all of its ranks. */
        void (*iallreduce)(struct net *, void *buffer, int64_t elements, enum net_type type,
                           enum net_group group, int token);
        /* The halves of an all-reduce, in the same order with it. Of the group's p members the i-th has the
         * i-th part of `elements`, ceil(elements / p) of them (the last ones may have less, or none). A
         * reduce-scatter leaves the sums of its own part there, and anything in the others. An all-gather
         * takes its own part from there and fills in the others. A member may have its own part elsewhere: a
         * reduce-scatter copies its sums to `own`, too, and an all-gather takes them from `own`. NULL: they
         * are in the buffer alone. */
        void (*ireduce_scatter)(struct net *, void *buffer, void *own, int64_t elements, enum net_type type,
                                enum net_group group, int token);
        void (*iall_gather)(struct net *, void *buffer, const void *own, int64_t elements, enum net_type type,
                            enum net_group group, int token);

        /* Sends and receives rows, in the same order with the collectives of the group. The arrays of
         * `exchange` need not outlive the call, the rows must. */
        void (*iexchange)(struct net *, const struct net_exchange *exchange, enum net_group group, int token);

        /* Makes progress without blocking. Returns true and fills `done` if a request has completed. */
        int (*test)(struct net *, struct net_done *done);
        /* Returns whether anything was posted that test has not returned yet. */
        bool (*pending)(struct net *);

        /* Blocking, over all ranks, for use outside of batches. gather brings `bytes` bytes of every rank to
         * rank 0, in the order of ranks; `all` may be NULL on other ranks. */
        void (*barrier)(struct net *);
        void (*broadcast)(struct net *, void *buffer, int64_t bytes, int root);
        void (*gather)(struct net *, const void *mine, int64_t bytes, void *all);
        /* Frees the net and ends MPI. Nothing may be pending. */
        void (*close)(struct net *);
};

struct net {
        const struct net_ops *ops;
        int rank, ranks;
        /* Which of the ranks that share this node's memory this one is, and how many they are. */
        int local_rank;
        int local_ranks;
        int max_micro_batch;    /* the largest number that a message can carry */
        int colours[NET_WORLD]; /* of this rank's groups, as net_mpi_groups was given them */
        /* Messages may be in a GPU's memory; so may what is summed, reduced, gathered or exchanged over all
         * groups but NET_WORLD. */
        bool sends_device_memory;
        bool sums_device_memory;
        /* Of a paced net (paced.h): the moment of CLOCK_MONOTONIC at which test() has something to tell, as
         * far as the last one knew; 0: not known. */
        double due_seconds;
};

/* Lets all ranks know whether any of them has failed, so that all stop alike and one can print. `rc` is this
 * rank's result, 0 or negative, and in the latter case `err` says why; `err` must not be NULL. If any rank
 * has failed, fills `err` on every rank with the error of the failed rank with the lowest number, and returns
 * its code; else returns 0. Collective. */
int net_agree(struct net *, int rc, struct rv_error_info *err);

/* Writes the name and version of the MPI library that is loaded, "Open MPI v4.1.4"; MPI need not be
 * initialised. */
enum { NET_LIBRARY = 96 };
void net_mpi_library(char text[NET_LIBRARY]);

/* Initialises MPI and returns its net, which the caller closes with ops->close. Called once; afterwards only
 * the thread that called it may use the net. Returns NULL with RV_ESYSTEM if this MPI cannot be used from a
 * program with threads. */
struct net *net_mpi_open(int *argc, char ***argv, struct rv_error_info *err);

/* Makes the groups but NET_WORLD, which do not exist before: in each, ranks with
 * the same colour form a group, in the order of their numbers, and a rank with a negative colour is in
 * none. Collective. */
void net_mpi_groups(struct net *, const int colours[NET_WORLD]);

/* Ends the whole job at once, all ranks, with the exit status `status`. */
void net_mpi_abort(struct net *, int status) __attribute__((noreturn));

#endif
