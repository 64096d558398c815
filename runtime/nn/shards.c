#include "runtime/nn/shards.h"

#include "runtime/nn/slot.h"

void shards_begin(struct nn_stage *nn)
{
        *nn->walk = (struct nn_walk){.segment = nn->segment};
        nn->device->passing = nn->segment > 0;
}

bool shards_end(struct nn_stage *nn)
{
        nn->device->passing = false;
        return nn->walk->at > nn->walk->segment;
}

bool shards_skip(const struct nn_stage *nn, int count)
{
        struct nn_walk *walk = nn->walk;
        if (walk->at <= walk->segment && walk->at + count >= walk->segment)
                return false;
        walk->at += count;
        nn->device->passing = walk->at != walk->segment;
        return true;
}

bool shards_scattered(const struct nn_stage *nn)
{
        return nn->plan.work.sequence_parallel && nn->stage.shards > 1;
}

static void together(const struct nn_stage *nn, const struct nn_together *what)
{
        struct nn_walk *walk = nn->walk;
        if (walk->at++ == walk->segment)
                *nn->together = *what;
        nn->device->passing = walk->at != walk->segment;
}

/* Of (N,C), as stored. */
static void together_rows(const struct nn_stage *nn, enum kernel_kind kind, void *all, void *own)
{
        const struct nn_shape s = slot_shape(nn);
        together(nn, &(struct nn_together){kind, all, own, s.N * s.C, work_format(&nn->plan.work)});
}

const void *shards_gather(const struct nn_stage *nn, const void *own)
{
        if (!shards_scattered(nn))
                return own;
        together_rows(nn, KERNEL_TENSOR_ALL_GATHER, nn->work_gather, (void *)own);
        return nn->work_gather;
}

void *shards_sum(const struct nn_stage *nn, void *partial, void *own)
{
        if (nn->stage.shards == 1)
                return partial;
        if (shards_scattered(nn)) {
                together_rows(nn, KERNEL_TENSOR_REDUCE_SCATTER, partial, own);
                return own;
        }
        together_rows(nn, KERNEL_TENSOR_ALLREDUCE, partial, NULL);
        return partial;
}

void shards_gather_losses(const struct nn_stage *nn)
{
        const struct nn_shape s = slot_shape(nn);
        together(nn, &(struct nn_together){KERNEL_TENSOR_ALL_GATHER, nn->work_losses, NULL,
                                           3 * s.N * nn->stage.shards, HALF_NONE});
}
