/* Collectives of gradients, weights, shards and spread experts in GPU memory by NCCL, which a net of MPI
 * hands over to it. Without this, sums are staged through host memory, or the plan is refused
 * (real/routes.h). NCCL's half is a plugin, net_nccl.so (runtime/net/nccl), so that the program also runs
 * where NCCL is not installed. */
#ifndef RANVIER_RUNTIME_NET_NCCL_H
#define RANVIER_RUNTIME_NET_NCCL_H

#include "runtime/net/net.h"

/* What this rank brings. */
struct net_nccl_request {
        int gpu; /* the GPU of this rank, as this process counts them */
        /* Ends the whole job with a sentence and does not return: an all-reduce that has begun cannot be
         * taken back. */
        void (*fail)(void *context, const char *sentence);
        void *fail_context;
};

/* Tries to let NCCL make the all-reduces, reduce-scatters, all-gathers and exchanges that are posted on all
 * groups but NET_WORLD. It can if the plugin is built and loads on every rank, and each rank has a GPU of
 * its own. Then net->sums_device_memory becomes true, net->ops are replaced, and the buffers of those
 * collectives must be in device memory from then on; a failure of NCCL's ends the job by request->fail. Else
 * nothing changes, and `why` (not NULL) says what is missing. The outcome is the same on every rank.
 * Collective; after net_mpi_groups and device_open, before the net's first all-reduce. */
void net_nccl_attach(struct net *, const struct net_nccl_request *request, struct rv_error_info *why);

/* The function that the plugin exports under this name. It does the same, once the plugin is loaded on
 * every rank. */
typedef void net_nccl_plugin_fn(struct net *, const struct net_nccl_request *request,
                                struct rv_error_info *why);
#define NET_NCCL_SYMBOL "net_nccl_take_over"

#endif
