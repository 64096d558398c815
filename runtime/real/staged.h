/* Collectives of shards through host memory, where the network does not reach the device's: a piece at a time
 * is copied to a buffer of the host, worked on by the network there, and copied back. For driver_real.c.
 *
 * They are done one after another, in the order in which they were begun, which is the same on all shards. */
#ifndef RANVIER_RUNTIME_REAL_STAGED_H
#define RANVIER_RUNTIME_REAL_STAGED_H

#include "runtime/device/device.h"
#include "runtime/net/net.h"

/* A matrix in device memory. */
struct staged_request {
        /* KERNEL_TENSOR_ALLREDUCE: the sum of `rows` rows. KERNEL_TENSOR_ALL_GATHER: from each shard's rows
         * to all of them. KERNEL_TENSOR_REDUCE_SCATTER: a shard's rows of the sum. */
        enum kernel_kind kind;
        char *all; /* rows, or of the latter two the rows of each shard, one shard behind the other */
        char *own; /* of the latter two this shard's rows; NULL: they are at their place in `all` */
        int64_t rows, width; /* of one shard */
        enum net_type type;
        int element_bytes;
        int token; /* of the device's events and the network's requests, and by which the caller knows it */
};

struct staged;

/* Begins with none. `host` is a buffer of the device's host memory of `bytes` bytes, enough for a row of each
 * shard (else the first collective ends the job by device->fail); it, device and net stay the caller's.
 * staged_delete ends; NULL: there is no memory. */
struct staged *staged_new(struct device *device, struct net *net, void *host, int64_t bytes, int shards,
                          int index);
/* NULL is allowed. Nothing may be under way. */
void staged_delete(struct staged *);

/* Begins a collective, or lets it wait for those before it. */
void staged_begin(struct staged *, const struct staged_request *request);

/* To be called with every token that the device or the network returns. Returns whether it is of a collective
 * that goes on: the token will come again. */
bool staged_goes_on(struct staged *, int token);

#endif
