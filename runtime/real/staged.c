#include "runtime/real/staged.h"

#include <assert.h>
#include <stdlib.h>

/* What a piece waits for. */
enum phase { COPIED_OUT, WORKED_ON, COPIED_IN };

struct staged {
        struct device *device;
        struct net *net;
        char *host;
        int64_t bytes;
        int shards, index;
        /* Those that were begun, the oldest first, which is under way: so many of its rows are done, and so
         * many are in this piece. */
        struct staged_request *requests;
        int count, capacity;
        int64_t done, now;
        enum phase phase;
};

struct staged *staged_new(struct device *device, struct net *net, void *host, int64_t bytes, int shards,
                          int index)
{
        struct staged *staged = malloc(sizeof *staged);
        if (staged)
                *staged = (struct staged){.device = device,
                                          .net = net,
                                          .host = host,
                                          .bytes = bytes,
                                          .shards = shards,
                                          .index = index};
        return staged;
}

void staged_delete(struct staged *staged)
{
        if (!staged)
                return;
        assert(staged->count == 0);
        free(staged->requests);
        free(staged);
}

/* ---- a piece ---- */

static int64_t row_bytes(const struct staged_request *r)
{
        return r->width * r->element_bytes;
}

/* Rows of `shard`, of which the piece has the next ones. */
static char *rows_in_all(const struct staged *staged, const struct staged_request *r, int shard)
{
        return r->all + (shard * r->rows + staged->done) * row_bytes(r);
}

static char *own_rows(const struct staged *staged, const struct staged_request *r)
{
        return r->own ? r->own + staged->done * row_bytes(r) : rows_in_all(staged, r, staged->index);
}

static char *rows_on_host(const struct staged *staged, const struct staged_request *r, int shard)
{
        return staged->host + shard * staged->now * row_bytes(r);
}

static void copy(const struct staged *staged, enum device_lane lane, char *device, char *host)
{
        const int64_t bytes = staged->now * row_bytes(&staged->requests[0]);
        const bool out = lane == DEVICE_DEVICE_TO_HOST;
        staged->device->ops->copy(staged->device, lane, out ? host : device, out ? device : host, bytes);
}

static void copy_out(struct staged *staged)
{
        const struct staged_request *r = &staged->requests[0];
        const bool sums = r->kind == KERNEL_TENSOR_ALLREDUCE;
        const int parts = sums ? 1 : staged->shards;
        const int64_t left = r->rows - staged->done, most = staged->bytes / (parts * row_bytes(r));
        staged->now = left < most ? left : most;
        staged->phase = COPIED_OUT;
        if (staged->now <= 0) {
                staged->device->fail(
                        staged->device->fail_context,
                        "a row of what shards gather does not fit the buffer of --allreduce staged");
                abort();
        }
        if (r->kind == KERNEL_TENSOR_ALL_GATHER)
                copy(staged, DEVICE_DEVICE_TO_HOST, own_rows(staged, r),
                     rows_on_host(staged, r, staged->index));
        for (int shard = 0; r->kind != KERNEL_TENSOR_ALL_GATHER && shard < parts; shard++)
                copy(staged, DEVICE_DEVICE_TO_HOST, rows_in_all(staged, r, shard),
                     rows_on_host(staged, r, shard));
        staged->device->ops->record(staged->device, DEVICE_DEVICE_TO_HOST, r->token);
}

static void work(struct staged *staged)
{
        const struct staged_request *r = &staged->requests[0];
        const struct net_ops *net = staged->net->ops;
        const int64_t elements = staged->now * r->width;
        staged->phase = WORKED_ON;
        if (r->kind == KERNEL_TENSOR_ALLREDUCE)
                net->iallreduce(staged->net, staged->host, elements, r->type, NET_TENSOR, r->token);
        else if (r->kind == KERNEL_TENSOR_ALL_GATHER)
                net->iall_gather(staged->net, staged->host, NULL, staged->shards * elements, r->type,
                                 NET_TENSOR, r->token);
        else
                net->ireduce_scatter(staged->net, staged->host, NULL, staged->shards * elements, r->type,
                                     NET_TENSOR, r->token);
}

static void copy_in(struct staged *staged)
{
        const struct staged_request *r = &staged->requests[0];
        staged->phase = COPIED_IN;
        if (r->kind == KERNEL_TENSOR_REDUCE_SCATTER)
                copy(staged, DEVICE_HOST_TO_DEVICE, own_rows(staged, r),
                     rows_on_host(staged, r, staged->index));
        else if (r->kind == KERNEL_TENSOR_ALLREDUCE)
                copy(staged, DEVICE_HOST_TO_DEVICE, rows_in_all(staged, r, 0), staged->host);
        for (int shard = 0; r->kind == KERNEL_TENSOR_ALL_GATHER && shard < staged->shards; shard++)
                if (shard != staged->index || r->own)
                        copy(staged, DEVICE_HOST_TO_DEVICE, rows_in_all(staged, r, shard),
                             rows_on_host(staged, r, shard));
        staged->device->ops->record(staged->device, DEVICE_HOST_TO_DEVICE, r->token);
}

/* ---- collectives ---- */

void staged_begin(struct staged *staged, const struct staged_request *request)
{
        assert(request->rows > 0);
        if (staged->count == staged->capacity) {
                staged->capacity = 2 * staged->capacity + 4;
                staged->requests =
                        realloc(staged->requests, (size_t)staged->capacity * sizeof *staged->requests);
                if (!staged->requests)
                        abort();
        }
        staged->requests[staged->count++] = *request;
        if (staged->count == 1)
                copy_out(staged);
}

static void end_oldest(struct staged *staged)
{
        staged->done = 0;
        staged->count--;
        for (int i = 0; i < staged->count; i++)
                staged->requests[i] = staged->requests[i + 1];
        if (staged->count > 0)
                copy_out(staged);
}

bool staged_goes_on(struct staged *staged, int token)
{
        if (staged->count == 0 || staged->requests[0].token != token)
                return false;
        if (staged->phase == COPIED_OUT)
                work(staged);
        else if (staged->phase == WORKED_ON)
                copy_in(staged);
        else {
                staged->done += staged->now;
                if (staged->done == staged->requests[0].rows) {
                        end_oldest(staged);
                        return false;
                }
                copy_out(staged);
        }
        return true;
}
