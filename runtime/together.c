#include "runtime/together.h"

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

void together_trace(struct net *net, struct trace *trace)
{
        bring(net, trace->records, trace->count, sizeof *trace->records, trace, add_record);
        bring(net, trace->memory, trace->memory_count, sizeof *trace->memory, trace, add_memory);
}

/* Where this rank has a tensor in its flat buffers. */
static int64_t offset_of(const struct nn_stage *nn, uint32_t id)
{
        int i = 0;
        while (nn->tensors[i].id != id)
                i++;
        return nn->tensors[i].offset;
}

/* Zero, half precision: each replica has a share of the master parameters, and zeros elsewhere; the sum is
 * all of them. */
static void read_tensor(struct net *net, struct nn_stage *nn, const struct tensor *tensor, float *out)
{
        nn_read_parameters(nn, offset_of(nn, tensor->id), tensor->elements, out);
        if (!nn->own || !nn->master)
                return;
        net->ops->iallreduce(net, out, tensor->elements, NET_FLOAT, NET_DATA, 0);
        wait(net);
}

/* The next tensors of the file: those of one of the model's stages, as rank 0 reads them from the rank that
 * has them. The copy of a tied head on the last of several stages is not written: the first stage's token
 * embedding is the same. */
static int append_stage(struct net *net, const struct plan *plan, const struct gpt *gpt,
                        const struct stage *stage, struct nn_stage *nn, struct checkpoint_writer *writer,
                        struct rv_error_info *err)
{
        const int from = plan_rank(plan, 0, stage->index % plan->pp, 0);
        int count = partition_tensors(gpt, stage, NULL), rc = 0;
        struct tensor *tensors = calloc((size_t)count, sizeof *tensors);
        if (!tensors)
                abort();
        partition_tensors(gpt, stage, tensors);
        if (gpt->tied && stage->last && !stage->first)
                count--;
        for (int i = 0; i < count; i++) {
                int64_t bytes = tensors[i].elements * (int64_t)sizeof(float);
                float *parameters = malloc((size_t)bytes);
                if (!parameters)
                        abort();
                if (nn)
                        read_tensor(net, nn, &tensors[i], parameters);
                if (from > 0 && (net->rank == from || net->rank == 0))
                        transfer(net, parameters, bytes, from, 0);
                if (net->rank == 0 && rc == 0 && writer)
                        rc = checkpoint_append(writer, parameters, tensors[i].elements, err);
                free(parameters);
        }
        free(tensors);
        return rc;
}

int together_checkpoint(struct net *net, const struct plan *plan, struct nn_stage *nn, const char *path,
                        int64_t step, struct rv_error_info *err)
{
        _Static_assert(sizeof(real) == sizeof(float), "checkpoints hold fp32");
        struct checkpoint_writer *writer = NULL;
        struct checkpoint_training training = {.step = step, .seq_len = nn->plan.work.seq_len};
        const bool shared = nn->own && nn->master; /* then every replica takes part */
        int rc = 0,
            stage_of_mine = shared || plan_replica(plan, net->rank) == 0 ? plan_stage(plan, net->rank) : -1;
        nn->device->ops->synchronize(nn->device);
        if (net->rank == 0) {
                writer = checkpoint_begin(path, &nn->gpt, &training, err);
                rc = writer ? 0 : err->code;
        }
        for (int i = 0; i < plan->pp * plan->virtual_stages; i++) {
                const struct stage stage = partition_stage(&nn->gpt, plan->pp * plan->virtual_stages, i);
                const bool holds = stage_of_mine == i % plan->pp;
                if (net->rank != 0 && !holds)
                        continue;
                int failed = append_stage(net, plan, &nn->gpt, &stage, holds ? nn : NULL, writer, err);
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
