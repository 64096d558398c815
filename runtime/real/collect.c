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

void collect_sum(struct net *net, float *values, int64_t elements, enum net_group group)
{
        const int64_t max = PART_BYTES / (int64_t)sizeof *values;
        for (int64_t at = 0; at < elements; at += max) {
                const int64_t left = elements - at;
                net->ops->iallreduce(net, values + at, left < max ? left : max, NET_FLOAT, group, 0);
                wait(net);
        }
}

/* The tensor of an identity in a table; NULL: it is not there. */
static const struct tensor *find_tensor(const struct tensor *tensors, int count, uint32_t id)
{
        for (int i = 0; i < count; i++)
                if (tensors[i].id == id)
                        return &tensors[i];
        return NULL;
}

/* Each replica has a share of the master parameters, or with ZeRO-3 of all weights, and zeros elsewhere; the
 * sum is all of them. */
static bool is_shared(const struct nn_stage *nn)
{
        return nn->own && (nn->master || (nn->plan.gathered && !nn->plan.whole_weights));
}

/* Those that have all shares together. */
static enum net_group sharers_of(const struct plan *plan, const struct tensor *tensor)
{
        return tensor->expert ? NET_EXPERT_DATA : plan_hybrid(plan) ? NET_SHARERS : NET_DATA;
}

static void read_tensor(struct net *net, const struct plan *plan, struct nn_stage *nn,
                        const struct tensor *tensor, float *out)
{
        const struct tensor *here = find_tensor(nn->tensors, nn->tensor_count, tensor->id);
        nn_read_parameters(nn, here->offset, tensor->elements, out);
        if (is_shared(nn))
                collect_sum(net, out, tensor->elements, sharers_of(plan, tensor));
}

/* The part of a tensor that one shard has, in `parts`, room for all of a stage's; and the first replica that
 * has it, which of an expert need not be 0. NULL: an expert that shards do not split is another shard's. */
static const struct tensor *part_of(const struct plan *plan, const struct gpt *gpt, const struct stage *stage,
                                    int shard, uint32_t id, struct tensor *parts, int *replica)
{
        const struct stage split = partition_shard(stage, stage->shards, shard);
        for (*replica = 0; *replica < plan_expert_replicas(plan); ++*replica) {
                const int rank = plan->whole_experts ? *replica * stage->shards + shard : *replica;
                const struct stage part =
                        partition_experts(&split, plan_expert_ranks(plan), rank, plan->whole_experts);
                const struct tensor *found = find_tensor(parts, partition_tensors(gpt, &part, parts), id);
                if (found)
                        return found;
        }
        return NULL;
}

/* Whether this rank reads the part: the one rank that sends it does, and all that share it. */
static bool takes_part(const struct plan *plan, const struct nn_stage *nn, int rank, bool expert, int replica)
{
        const int mine = plan_replica(plan, rank);
        if (!is_shared(nn))
                return mine == replica;
        return !expert || mine % plan_expert_replicas(plan) == replica;
}

/* A tensor of which each shard has a part, put together on rank 0. `has`: this rank is one of those that have
 * the stage. */
static void gather_tensor(struct net *net, const struct plan *plan, const struct stage *stage, uint32_t id,
                          struct nn_stage *nn, bool has, float *whole)
{
        const int count = partition_tensors(&nn->gpt, stage, NULL);
        struct tensor *parts = calloc((size_t)count, sizeof *parts);
        for (int shard = 0; parts && shard < stage->shards; shard++) {
                int replica;
                const struct tensor *t = part_of(plan, &nn->gpt, stage, shard, id, parts, &replica);
                if (!t)
                        continue;
                const int from = plan_rank(plan, replica, stage->index % plan->pp, shard);
                const bool reads = has && plan_shard(plan, net->rank) == shard &&
                                   takes_part(plan, nn, net->rank, t->expert, replica);
                if (net->rank != 0 && !reads)
                        continue;
                float *values = malloc((size_t)t->elements * sizeof *values);
                if (!values)
                        abort();
                if (reads)
                        read_tensor(net, plan, nn, t, values);
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
        const struct stage all = partition_experts(stage, 1, 0, false), whole = partition_shard(&all, 1, 0);
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
                gather_tensor(net, plan, stage, tensors[i].id, nn, has, values);
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
        struct checkpoint_training training = {
                .step = step, .seq_len = nn->plan.work.seq_len * work_context_ranks(&nn->plan.work)};
        const struct plan grid = options_plan(options, false), *plan = &grid;
        const bool reads = is_shared(nn) || plan_replica(plan, net->rank) < plan_expert_replicas(plan);
        const int stage_of_mine = reads ? plan_stage(plan, net->rank) : -1;
        int rc = 0;
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
