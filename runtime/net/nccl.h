/* All-reduces of gradients in device memory by NCCL, which a net of MPI hands over to it. NCCL's half of this
 * is a plugin, net_nccl.so (runtime/net/nccl), so that a program runs where NCCL is not. */
#ifndef RANVIER_RUNTIME_NET_NCCL_H
#define RANVIER_RUNTIME_NET_NCCL_H

#include "runtime/net/net.h"

/* What this rank brings. */
struct net_nccl_request {
        int gpu; /* its GPU, as this process counts them */
        /* Ends the whole job with a sentence: an all-reduce that has begun cannot be taken back. Does not
         * return. */
        void (*fail)(void *context, const char *sentence);
        void *fail_context;
};

/* Lets NCCL sum what is posted on NET_EMBEDDING and NET_DATA, which from then on is in device memory: then
 * net->sums_device_memory is true, and net->ops are others. It can if it is built and loads on every rank,
 * and if each rank has a GPU of its own; else nothing changes, and `why` says what is missing. Either way the
 * same on every rank. A failure of NCCL's ends the job. Collective; after net_mpi_groups and device_open,
 * before the net's first all-reduce. */
void net_nccl_attach(struct net *, const struct net_nccl_request *request, struct rv_error_info *why);

/* What the plugin exports, under this name: the same, once it is loaded everywhere. */
typedef void net_nccl_plugin_fn(struct net *, const struct net_nccl_request *request,
                                struct rv_error_info *why);
#define NET_NCCL_SYMBOL "net_nccl_take_over"

#endif
