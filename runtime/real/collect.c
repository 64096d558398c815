#include "runtime/real/collect.h"

#include "runtime/checkpoint/checkpoint.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>

/* Messages here are too few to overlap. */
static void wait(struct net *net)
{
        struct net_done done;
        while (!net->ops->test(net, &done))
                sched_yield();
}

enum { PART_BYTES = 1 << 28 }; /* MPI counts in int */

static void transfer(struct net *net, void *buffer, int64_t bytes, int from, int to)
{
        char *at = buffer;
        while (bytes > 0) {
                int64_t part = bytes < PART_BYTES ? bytes : PART_BYTES;
                if (net->rank == from)
                        net->ops->isend(net, at, part, to, NET_TAG_ACTIVATION, 0, 0);
                else
                        net->ops->ireceive(net, at, part, from, NET_TAG_ACTIVATION, 0);
                wait(net);
                at += part;
                bytes -= part;
        }
}

/* Brings every other rank's items to rank 0, in the order of ranks; `add` takes each there. */
static void bring(struct net *net, void *items, int64_t count, int64_t size, struct trace *trace,
                  void (*add)(struct trace *, const void *))
{
        int64_t *counts = calloc((size_t)net->ranks, sizeof *counts);
        if (!counts)
                abort();
        net->ops->gather(net, &count, sizeof count, counts);
        net->ops->broadcast(net, counts, net->ranks * (int64_t)sizeof *counts, 0);
        for (int rank = 1; rank < net->ranks; rank++) {
                int64_t bytes = counts[rank] * size;
                if (net->rank == rank)
                        transfer(net, items, bytes, rank, 0);
                if (net->rank != 0 || bytes == 0)
                        continue;
                char *theirs = malloc((size_t)bytes);
                if (!theirs)
                        abort();
                transfer(net, theirs, bytes, rank, 0);
                for (int64_t at = 0; at < bytes; at += size)
                        add(trace, theirs + at);
                free(theirs);
        }
        free(counts);
}

static void add_record(struct trace *trace, const void *record)
{
        trace_add(trace, record);
}

static void add_memory(struct trace *trace, const void *memory)
{
        trace_add_memory(trace, memory);
}

void collect_trace(struct net *net, struct trace *trace)
{
        bring(net, trace->records, trace->count, sizeof *trace->records, trace, add_record);
        bring(net, trace->memory, trace->memory_count, sizeof *trace->memory, trace, add_memory);
}

void collect_sum(struct net *net, float *values, int64_t elements)
{
        const int64_t max = PART_BYTES / (int64_t)sizeof *values;
        for (int64_t at = 0; at < elements; at += max) {
                const int64_t left = elements - at;
                net->ops->iallreduce(net, values + at, left < max ? left : max, NET_FLOAT, NET_DATA, 0);
                wait(net);
        }
}

/* Where this rank has a tensor in its flat buffers. */
static int64_t offset_of(const struct nn_stage *nn, uint32_t id)
{
        int i = 0;
        while (nn->tensors[i].id != id)
                i++;
        return nn->tensors[i].offset;
}

/* ZeRO-1, mixed precision: each replica has a share of the master parameters, and zeros elsewhere; the sum is
 * all of them. */
static void read_tensor(struct net *net, struct nn_stage *nn, const struct tensor *tensor, float *out)
{
        nn_read_parameters(nn, offset_of(nn, tensor->id), tensor->elements, out);
        if (!nn->own || !nn->master)
                return;
        collect_sum(net, out, tensor->elements);
}

/* A tensor of which each shard has a part, put together on rank 0. `has`: this rank is one of those that have
 * the stage. */
static void gather_tensor(struct net *net, const struct plan *plan, const struct stage *stage, int tensor,
                          struct nn_stage *nn, bool has, float *whole)
{
        const int count = partition_tensors(&nn->gpt, stage, NULL);
        struct tensor *parts = calloc((size_t)count, sizeof *parts);
        for (int shard = 0; parts && shard < stage->shards; shard++) {
                const struct stage part = partition_shard(stage, stage->shards, shard);
                const int from = plan_rank(plan, 0, stage->index % plan->pp, shard);
                const bool reads = has && plan_shard(plan, net->rank) == shard;
                partition_tensors(&nn->gpt, &part, parts);
                const struct tensor *t = &parts[tensor];
                if (net->rank != 0 && !reads)
                        continue;
                float *values = malloc((size_t)t->elements * sizeof *values);
                if (!values)
                        abort();
                if (reads)
                        read_tensor(net, nn, t, values);
                if (from != 0 && (net->rank == from || net->rank == 0))
                        transfer(net, values, t->elements * (int64_t)sizeof *values, from, 0);
                for (int64_t i = 0; whole && i < t->elements; i++) {
                        const int64_t at = partition_whole_index(t, i);
                        if (at >= 0)
                                whole[at] = values[i];
                }
                free(values);
        }
        if (!parts)
                abort();
        free(parts);
}

/* The next tensors of the file: those of `stage`, as rank 0 reads them from the ranks that have them. The
 * copy of a tied head on the last of several stages is not written: the first stage's token embedding is the
 * same.
 */
static int append_stage(struct net *net, const struct plan *plan, const struct stage *stage,
                        struct nn_stage *nn, bool has, struct checkpoint_writer *writer,
                        struct rv_error_info *err)
{
        const struct gpt *gpt = &nn->gpt;
        const struct stage whole = partition_shard(stage, 1, 0);
        int count = partition_tensors(gpt, &whole, NULL), rc = 0;
        struct tensor *tensors = calloc((size_t)count, sizeof *tensors);
        if (!tensors)
                abort();
        partition_tensors(gpt, &whole, tensors);
        if (gpt->tied && stage->last && !stage->first)
                count--;
        for (int i = 0; i < count; i++) {
                float *values = NULL;
                if (net->rank == 0 && !(values = malloc((size_t)tensors[i].elements * sizeof *values)))
                        abort();
                gather_tensor(net, plan, stage, i, nn, has, values);
                if (net->rank == 0 && rc == 0 && writer)
                        rc = checkpoint_append(writer, values, err);
                free(values);
        }
        free(tensors);
        return rc;
}

int collect_checkpoint(struct net *net, const struct options *options, struct nn_stage *nn, const char *path,
                       int64_t step, struct rv_error_info *err)
{
        _Static_assert(sizeof(real) == sizeof(float), "checkpoints hold fp32");
        struct checkpoint_writer *writer = NULL;
        struct checkpoint_training training = {.step = step, .seq_len = nn->plan.work.seq_len};
        const struct plan grid = options_plan(options, false), *plan = &grid;
        const bool shared = nn->own && nn->master; /* then every replica takes part */
        int rc = 0,
            stage_of_mine = shared || plan_replica(plan, net->rank) == 0 ? plan_stage(plan, net->rank) : -1;
        nn->device->ops->synchronize(nn->device);
        if (net->rank == 0) {
                writer = checkpoint_begin(path, &nn->gpt, &training, err);
                rc = writer ? 0 : err->code;
        }
        for (int i = 0; i < plan->pp * plan->virtual_stages; i++) {
                const struct stage rank = options_stage(options, i % plan->pp);
                const struct stage stage = partition_chunk(&rank, i / plan->pp);
                const bool has = stage_of_mine == i % plan->pp;
                if (net->rank != 0 && !has)
                        continue;
                int failed = append_stage(net, plan, &stage, nn, has, writer, err);
                rc = rc ? rc : failed;
        }
        if (writer) {
                struct rv_error_info late = {0};
                if (checkpoint_commit(writer, &late) && rc == 0) {
                        *err = late;
                        rc = late.code;
                }
        }
        return net_agree(net, rc, err);
}
