/* What follows the pipeline on each rank: gradients are all-reduced over the replicas in chunks (all issued
 * first, as AxoNN does); then first and last stage sum their gradient of a shared embedding (after, because a
 * sum of two is the same bits on both sides, so that their copies of it stay equal); the scalars (squared
 * norm and loss) are reduced over all ranks; AdamW works through the buckets. With clipping every update
 * waits for the norm; without, a bucket waits only for its own gradients. */
#include "runtime/sched/state.h"

#include <assert.h>
#include <string.h>

int optimizer_buckets(const struct plan *plan, int64_t parameters)
{
        return (int)((parameters + plan->bucket_parameters - 1) / plan->bucket_parameters);
}

int optimizer_chunks(const struct plan *plan, int64_t parameters)
{
        int buckets = optimizer_buckets(plan, parameters);
        return (buckets + plan->allreduce_buckets - 1) / plan->allreduce_buckets;
}

void optimizer_start(struct core *core)
{
        struct optimizer_state *o = &core->optimizer;
        const struct plan *plan = &core->plan;
        memset(o, 0, sizeof *o);
        if (!plan->forward_only) {
                o->buckets = optimizer_buckets(plan, core->parameters);
                o->chunks = plan->dp > 1 ? optimizer_chunks(plan, core->parameters) : 0;
        }
        bool shares = plan->tied && plan->pp > 1 && (core->first || core->last) && !plan->forward_only;
        o->embedding_issued = o->embedding_done = !shares;
        o->norm_issued = o->norm_done = !plan->clip || plan->forward_only;
}

static struct op collective(enum op_kind kind, enum op_group group)
{
        struct op op;
        memset(&op, 0, sizeof op);
        op.kind = kind;
        op.lane = LANE_COLLECTIVE;
        op.micro_batch = op.input = op.slot = op.host_slot = op.gradient = op.bucket = op.buffer = -1;
        op.group = group;
        return op;
}

/* The shared embedding is the first tensor of the first stage and the last of the last. */
static struct op embedding_exchange(const struct core *core)
{
        struct op op = collective(OP_ALLREDUCE, GROUP_EMBEDDING);
        op.count = core->plan.embedding_parameters;
        op.offset = core->first ? 0 : core->parameters - op.count;
        op.bytes = op.count * core->plan.element_bytes;
        return op;
}

static struct op chunk_allreduce(const struct core *core, int chunk)
{
        struct op op = collective(OP_ALLREDUCE, GROUP_DATA);
        int64_t size = core->plan.bucket_parameters * core->plan.allreduce_buckets;
        op.bucket = chunk * core->plan.allreduce_buckets;
        op.offset = chunk * size;
        op.count = core->parameters - op.offset < size ? core->parameters - op.offset : size;
        op.bytes = op.count * core->plan.element_bytes;
        return op;
}

static struct op compute(enum op_kind kind, int bucket, int64_t offset, int64_t count)
{
        struct op op;
        memset(&op, 0, sizeof op);
        op.kind = kind;
        op.lane = LANE_COMPUTE;
        op.micro_batch = op.input = op.slot = op.host_slot = op.gradient = op.buffer = -1;
        op.bucket = bucket;
        op.offset = offset;
        op.count = count;
        return op;
}

static bool next_collective(struct core *core, struct op *op)
{
        struct optimizer_state *o = &core->optimizer;
        if (o->chunks_issued < o->chunks) {
                *op = chunk_allreduce(core, o->chunks_issued++);
                return true;
        }
        if (!o->embedding_issued && o->chunks_done == o->chunks) {
                *op = embedding_exchange(core);
                o->embedding_issued = true;
                return true;
        }
        if (o->norm_done && o->embedding_issued && !o->scalars_issued) {
                *op = collective(OP_REDUCE_SCALARS, GROUP_WORLD);
                op->bytes = 2 * (int64_t)sizeof(double);
                o->scalars_issued = true;
                return true;
        }
        return false;
}

static bool touches_embedding(const struct core *core, int bucket)
{
        struct op exchange = embedding_exchange(core);
        int64_t begin = bucket * core->plan.bucket_parameters, end = begin + core->plan.bucket_parameters;
        return begin < exchange.offset + exchange.count && end > exchange.offset;
}

/* The gradients of `bucket` are final, and so is the factor that they are clipped with. */
static bool may_update(struct core *core, int bucket)
{
        struct optimizer_state *o = &core->optimizer;
        if (core->plan.clip)
                return o->scalars_done;
        if (!o->embedding_done && touches_embedding(core, bucket))
                return false;
        return o->chunks == 0 || core_tables(core).chunk_done[bucket / core->plan.allreduce_buckets];
}

static bool next_compute(struct core *core, struct op *op)
{
        struct optimizer_state *o = &core->optimizer;
        if (core->computing)
                return false;
        if (!o->norm_issued && o->embedding_done && o->chunks_done == o->chunks) {
                *op = compute(OP_NORM, -1, 0, core->parameters);
                o->norm_issued = true;
        } else if (o->updates_issued < o->buckets && may_update(core, o->updates_issued)) {
                int64_t size = core->plan.bucket_parameters, offset = o->updates_issued * size;
                int64_t left = core->parameters - offset;
                *op = compute(OP_UPDATE, o->updates_issued++, offset, left < size ? left : size);
        } else {
                return false;
        }
        core->computing = true;
        return true;
}

bool optimizer_next(struct core *core, struct op *op)
{
        if (!core_pipeline_done(core))
                return false;
        return next_collective(core, op) || next_compute(core, op);
}

void optimizer_complete(struct core *core, const struct op *op)
{
        struct optimizer_state *o = &core->optimizer;
        switch (op->kind) {
        case OP_ALLREDUCE:
                if (op->group == GROUP_EMBEDDING) {
                        o->embedding_done = true;
                } else {
                        core_tables(core).chunk_done[op->bucket / core->plan.allreduce_buckets] = 1;
                        o->chunks_done++;
                }
                break;
        case OP_NORM:
                core->computing = false;
                o->norm_done = true;
                break;
        case OP_REDUCE_SCALARS:
                o->scalars_done = true;
                break;
        case OP_UPDATE:
                core->computing = false;
                o->updates_done++;
                break;
        default:
                assert(!"an operation of the optimizer phase");
        }
}

bool optimizer_done(const struct core *core)
{
        return core->optimizer.scalars_done && core->optimizer.updates_done == core->optimizer.buckets;
}
