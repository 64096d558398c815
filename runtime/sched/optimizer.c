/* What follows the pipeline on each rank.
 *
 * Sequence parallel shards first sum the gradients of what all of them have: each has worked on its rows.
 * So what is looked through for overflow is what one shard alone would have.
 * Gradients are all-reduced over the replicas in chunks (all issued first, as AxoNN does); then first and
 * last stage sum their gradient of a shared embedding (after, because a sum of two is the same bits on both
 * sides, so that their copies of it stay equal). AdamW works through the parameters, an update at a time:
 * with clipping every update waits for the norm, which is reduced over all ranks with the loss; without, an
 * update waits only for its own gradients. Offloaded, an update is fetched before and written back after;
 * fetches run ahead as far as there are buffers.
 *
 * Mixed precision: each rank looks for overflow in its own gradients, before sums change them in place, and
 * all agree while the sums are under way. If there was one, the sums still run, because every rank takes part
 * in them, and then the gradients are cleared instead of used.
 *
 * Overlapped with the last backward, which makes gradients final from the end of memory to its beginning,
 * chunks are summed, and updates made and their weights gathered, in that order; see overlap.c. What shards
 * have alike is a region of its own then, looked through by itself and summed last.
 *
 * Zero: instead of all-reduced, chunks are reduce-scattered, and each replica updates its parts of them
 * (regions.h); with clipping the norm is that of the parts, summed over all ranks. The shared embedding is
 * exchanged in the parts that a replica has of it. A chunk's weights are all-gathered when its share has been
 * updated, but after all exchanges: so each rank's collectives have one order, whatever comes first. What was
 * summed elsewhere is left over in the gradients, so they are cleared when all updates are done.
 *
 * ZeRO-2: gradients were reduced in the pipeline, and a chunk is a unit (gather.c); its shares' updates and
 * its gather are as with ZeRO-1.
 *
 * Hybrid shards: the groups' shares of a unit are all-reduced as soon as they are reduced for the last time,
 * from behind, and updated in that order. What overflows in a sum is infinite there, so that the look for
 * overflow follows the sums. */
#include "runtime/sched/state.h"

#include "runtime/base/minmax.h"

#include <assert.h>
#include <string.h>

static int parts(int64_t whole, int64_t part)
{
        return (int)((whole + part - 1) / part);
}

int64_t core_chunk_parameters(const struct plan *plan)
{
        return plan->bucket_parameters * plan->allreduce_buckets;
}

int64_t core_update_parameters(const struct plan *plan, int64_t parameters)
{
        struct plan bounded = *plan;
        const int64_t own = plan->zero == 1 ? plan_share(plan, parameters) : parameters;
        bounded.bucket_parameters = min_int64(plan->bucket_parameters, own);
        const int64_t max = plan_update_parameters(&bounded);
        if (plan->zero != 1)
                return max;
        const int64_t share = plan_share(plan, min_int64(core_chunk_parameters(plan), parameters));
        return parts(share, parts(share, max));
}

/* Zero 2 and 3 sum gradients unit by unit, in the pipeline, which leaves the shares of several groups. */
static bool sums_chunks(const struct plan *plan)
{
        return plan->dp > 1 && (!gather_planned(plan) || plan_sums_shares(plan));
}

int optimizer_chunks(const struct plan *plan, const struct core_stage *part)
{
        const struct regions r = regions_of(plan, part);
        return sums_chunks(plan) ? regions_chunks(&r) : 0;
}

static void start_training(struct core *core)
{
        struct optimizer_state *o = &core->optimizer;
        const struct core_stage part = core_part(core);
        o->regions = regions_of(&core->plan, &part);
        o->updates = regions_updates(&o->regions);
        o->chunks = sums_chunks(&core->plan) ? regions_chunks(&o->regions) : 0;
        o->exchanges = regions_exchanges(&o->regions);
        o->gathers = o->regions.shared && core->plan.dp > 1 ? regions_chunks(&o->regions) : 0;
        o->final = regions_layers_end(&o->regions, core->parameters);
}

void optimizer_start(struct core *core)
{
        struct optimizer_state *o = &core->optimizer;
        const struct plan *plan = &core->plan;
        memset(o, 0, sizeof *o);
        bool train = !plan->forward_only;
        o->final = core->parameters;
        if (train)
                start_training(core);
        o->checks = !train || !plan->mixed ? 0 : 1 + o->regions.common;
        o->overflow_issued = o->overflow_known = o->checks == 0;
        o->replicated_issued = o->replicated_done = !train || core->replicated_count == 0;
        o->norm_issued = o->norm_done = !train || !plan->clip;
}

static struct op collective(enum op_kind kind, enum op_group group)
{
        struct op op = core_new_op(kind);
        op.group = group;
        return op;
}

static struct op sum(const struct core *core, enum op_kind kind, enum op_group group,
                     struct region_range range)
{
        struct op op = collective(kind, group);
        op.offset = range.offset;
        op.count = range.count;
        op.bytes = op.count *
                   (kind == OP_ALL_GATHER ? core->plan.element_bytes : plan_gradient_bytes(&core->plan));
        return op;
}

/* ZeRO-2: of its share of the unit that ends with the embedding, what a replica has of that. */
static struct region_range shared_of_unit(const struct core *core)
{
        const struct regions *r = &core->optimizer.regions;
        const int chunk = core->first ? 0 : regions_chunks(r) - 1;
        const struct region_range unit = regions_chunk(r, chunk), own = regions_own(r, chunk);
        const int64_t begin = unit.offset + unit.count - core->plan.embedding_parameters,
                      from = max_int64(own.offset, begin), end = own.offset + own.count;
        return (struct region_range){own.place + from - own.offset, max_int64(0, end - from), 0};
}

static struct op embedding_exchange(const struct core *core, int nth)
{
        const struct regions *r = &core->optimizer.regions;
        if (core->plan.zero == 2)
                return sum(core, OP_ALLREDUCE, GROUP_EMBEDDING, shared_of_unit(core));
        const int chunk = regions_chunks(r) - regions_exchanges(r) + nth;
        return sum(core, OP_ALLREDUCE, GROUP_EMBEDDING, regions_own(r, chunk));
}

static struct op replicated_sum(const struct core *core)
{
        return sum(core, OP_ALLREDUCE, plan_shards_z(&core->plan) > 1 ? GROUP_TENSOR_Z : GROUP_TENSOR,
                   (struct region_range){core->replicated_offset, core->replicated_count, 0});
}

/* A chunk over the ranks that sum it, or share it. */
static struct op whole_chunk(const struct core *core, enum op_kind kind, int chunk)
{
        const struct regions *r = &core->optimizer.regions;
        const struct region *region = regions_region(r, chunk);
        struct op op = sum(core, kind, kind == OP_ALL_GATHER ? region->sharers : region->group,
                           regions_chunk(r, chunk));
        op.bucket = chunk;
        return op;
}

/* Hybrid shards: what this replica has of a unit, which is in its place among what it keeps. */
static struct op share_sum(const struct core *core, int chunk)
{
        const struct region_range own = regions_own(&core->optimizer.regions, chunk);
        struct op op = sum(core, OP_ALLREDUCE, GROUP_SHARE_DATA,
                           (struct region_range){own.place, own.count, own.place});
        op.lane = LANE_SHARES;
        op.bucket = chunk;
        return op;
}

/* Whether chunks are summed, and updated, in the order in which the last backward makes gradients final. */
static bool from_behind(const struct plan *plan)
{
        return overlap_planned(plan) || plan_sums_shares(plan);
}

/* The nth in order. */
static struct op chunk_sum(const struct core *core, int nth)
{
        const struct plan *plan = &core->plan;
        const int chunk = from_behind(plan) ? regions_chunk_from_behind(&core->optimizer.regions, nth) : nth;
        if (plan_sums_shares(plan))
                return share_sum(core, chunk);
        return whole_chunk(core, plan->zero == 1 && !plan_hybrid(plan) ? OP_REDUCE_SCATTER : OP_ALLREDUCE,
                           chunk);
}

static struct op whole_stage(const struct core *core, enum op_kind kind)
{
        struct op op = core_new_op(kind);
        op.count = core->parameters;
        return op;
}

/* Of ZeRO-2 and hybrid shards: the unit that a chunk is; one without parameters is none. */
static int unit_of(const struct core *core, int chunk)
{
        return chunk + (core->units.embedding == 0);
}

/* ZeRO-2: weights of a chunk, which is a unit, are in its buffer, from the beginning. */
static void in_unit(const struct core *core, struct op *op, int chunk)
{
        op->offset -= regions_chunk(&core->optimizer.regions, chunk).offset;
        op->gathered = gather_buffer(core, unit_of(core, chunk));
}

/* The nth update in order, or the copy before or after it. */
static struct op nth_update(const struct core *core, int nth, enum op_kind kind)
{
        const struct regions *r = &core->optimizer.regions;
        struct op op = core_new_op(kind);
        int chunk;
        op.bucket = from_behind(&core->plan) ? regions_update_from_behind(r, nth) : nth;
        const struct region_range range = regions_update(r, op.bucket, &chunk);
        op.offset = range.offset;
        op.count = range.count;
        op.place = range.place;
        if (core->plan.zero == 2)
                in_unit(core, &op, chunk);
        if (plan_buffers_updates(&core->plan))
                op.buffer = nth % PLAN_UPDATE_BUFFERS;
        if (op.lane == LANE_HOST_TO_DEVICE)
                op.bytes = plan_fetched_bytes(&core->plan, op.count);
        else if (op.lane == LANE_DEVICE_TO_HOST)
                op.bytes = plan_written_bytes(&core->plan, op.count);
        return op;
}

/* Zero: after an overflow, of which all ranks know, nobody gathers. */
static bool next_gather(struct core *core, struct op *op)
{
        struct optimizer_state *o = &core->optimizer;
        if (o->gathers_issued == o->gathers || o->exchanges_issued < o->exchanges || !o->overflow_known ||
            o->overflow)
                return false;
        const bool behind = from_behind(&core->plan);
        const int nth = o->gathers_issued,
                  chunk = behind ? regions_updated_from_behind(&o->regions, nth) : nth;
        if ((o->chunks > 0 && !core_tables(core).chunk_done[chunk]) ||
            o->updates_done <
                    (behind ? regions_updates_behind : regions_updates_before)(&o->regions, nth + 1))
                return false;
        *op = whole_chunk(core, OP_ALL_GATHER, chunk);
        if (core->plan.zero == 2)
                in_unit(core, op, chunk);
        o->gathers_issued++;
        return true;
}

static void chunk_done(struct core *core, int chunk)
{
        core_tables(core).chunk_done[chunk] = 1;
        core->optimizer.chunks_done++;
}

/* Its gradients are those of all micro-batches. */
static bool is_final(struct core *core, const struct op *chunk)
{
        const struct regions *r = &core->optimizer.regions;
        if (core_pipeline_done(core))
                return true;
        if (plan_sums_shares(&core->plan))
                return gather_reduced(core, unit_of(core, chunk->bucket));
        const bool common = r->common && regions_region(r, chunk->bucket) == &r->region[REGION_COMMON];
        return !common && chunk->offset >= core->optimizer.final;
}

/* A replica without a share of a chunk is so in all groups, and at both ends. */
static bool next_sum(struct core *core, struct op *op)
{
        struct optimizer_state *o = &core->optimizer;
        while (o->chunks_issued < o->chunks) {
                *op = chunk_sum(core, o->chunks_issued);
                if (!is_final(core, op))
                        return false;
                o->chunks_issued++;
                if (op->count > 0)
                        return true;
                chunk_done(core, op->bucket);
        }
        return false;
}

/* Sums in place, so after the look for overflow, if that is of what is summed. */
static bool next_collective(struct core *core, struct op *op)
{
        struct optimizer_state *o = &core->optimizer;
        if (!o->replicated_issued) {
                *op = replicated_sum(core);
                o->replicated_issued = true;
                return true;
        }
        if (!o->replicated_done || (o->checks_done < o->checks && !plan_sums_shares(&core->plan)))
                return false;
        if (next_sum(core, op))
                return true;
        while (o->checks_done == o->checks && o->exchanges_issued < o->exchanges &&
               o->chunks_done == o->chunks) {
                *op = embedding_exchange(core, o->exchanges_issued++);
                if (op->count > 0)
                        return true;
                o->exchanges_done++;
        }
        return next_gather(core, op);
}

/* Both are over all ranks, so every rank issues them in this order. */
static bool next_scalars(struct core *core, struct op *op)
{
        struct optimizer_state *o = &core->optimizer;
        if (o->checks_done == o->checks && !o->overflow_issued) {
                *op = collective(OP_REDUCE_OVERFLOW, GROUP_WORLD);
                op->bytes = sizeof(double);
                o->overflow_issued = true;
                return true;
        }
        if (o->overflow_issued && !o->scalars_issued && (o->norm_done || o->overflow)) {
                *op = collective(OP_REDUCE_SCALARS, GROUP_WORLD);
                op->bytes = OP_SCALARS * (int64_t)sizeof(double);
                o->scalars_issued = true;
                return true;
        }
        return false;
}

/* The gradients of `update` are final. */
static bool is_summed(struct core *core, const struct op *update)
{
        const struct optimizer_state *o = &core->optimizer;
        int chunk;
        regions_update(&o->regions, update->bucket, &chunk);
        if (o->chunks > 0 && !core_tables(core).chunk_done[chunk])
                return false;
        return o->exchanges_done == o->exchanges || !regions_region(&o->regions, chunk)->exchanged;
}

/* How many have what they work on, and buffers. */
static int updates_possible(const struct core *core)
{
        const struct optimizer_state *o = &core->optimizer;
        if (plan_fetches_updates(&core->plan))
                return o->fetches_done;
        if (plan_buffers_updates(&core->plan))
                return min_int(o->updates, o->write_backs_done + PLAN_UPDATE_BUFFERS);
        return o->updates;
}

/* No rank overflowed, the gradients are final (clipped: all of them), and so is the factor that they are
 * clipped with. */
static bool next_update(struct core *core, struct op *op)
{
        struct optimizer_state *o = &core->optimizer;
        if (o->updates_issued == updates_possible(core))
                return false;
        if (!o->overflow_known || o->overflow || !o->replicated_done || (core->plan.clip && !o->scalars_done))
                return false;
        *op = nth_update(core, o->updates_issued, OP_UPDATE);
        if (!core->plan.clip && !is_summed(core, op))
                return false;
        o->updates_issued++;
        return true;
}

/* What follows what the first one looks at was looked through between ranges of a backward. */
static struct op nth_check(const struct core *core, int nth)
{
        const struct optimizer_state *o = &core->optimizer;
        const struct region *common = &o->regions.region[REGION_COMMON];
        struct op op = core_new_op(OP_CHECK_OVERFLOW);
        op.offset = nth ? common->offset : 0;
        op.count = nth ? common->count : o->final;
        return op;
}

/* ZeRO-1: what was summed elsewhere may be cleared. */
static bool clears(const struct core *core)
{
        return core->plan.zero == 1 && core->optimizer.gathers > 0;
}

static bool shares_updated(const struct core *core)
{
        return clears(core) && core->optimizer.updates_done == core->optimizer.updates;
}

static bool next_compute(struct core *core, struct op *op)
{
        struct optimizer_state *o = &core->optimizer;
        if (core->computing)
                return false;
        const bool summed = o->chunks_done == o->chunks, final = o->overflow_known && o->replicated_done &&
                                                                 summed && o->exchanges_done == o->exchanges;
        if (o->checks_issued < o->checks &&
            (!o->replicated_done || (plan_sums_shares(&core->plan) && !summed))) {
                return false;
        } else if (o->checks_issued < o->checks) {
                *op = nth_check(core, o->checks_issued++);
        } else if (final && !o->clear_issued && (o->overflow || shares_updated(core))) {
                *op = whole_stage(core, OP_CLEAR);
                o->clear_issued = true;
        } else if (final && !o->overflow && !o->norm_issued) {
                *op = whole_stage(core, OP_NORM);
                o->norm_issued = true;
        } else if (!next_update(core, op)) {
                return false;
        }
        core->computing = true;
        return true;
}

/* A buffer is free again when it has been written back, which happens in order. So after an overflow, which
 * is known before the first update, nothing more is fetched. */
static bool next_copy(struct core *core, struct op *op)
{
        struct optimizer_state *o = &core->optimizer;
        const bool all = core->plan.offload; /* of the optimizer, else weights alone */
        if (!plan_buffers_updates(&core->plan))
                return false;
        if (o->write_backs_issued < o->updates_done) {
                *op = nth_update(core, o->write_backs_issued++, all ? OP_WRITE_BACK : OP_STORE_WEIGHTS);
                return true;
        }
        if (plan_fetches_updates(&core->plan) && o->fetches_issued < o->updates &&
            o->fetches_issued < o->write_backs_done + PLAN_UPDATE_BUFFERS) {
                *op = nth_update(core, o->fetches_issued++, all ? OP_FETCH : OP_FETCH_WEIGHTS);
                return true;
        }
        return false;
}

/* Blocking, gradients hold up all else until they are reduced, and what groups sum follows the pipeline. */
static bool sums_early(const struct plan *plan)
{
        return overlap_planned(plan) || (plan_sums_shares(plan) && !plan->blocking && !plan->forward_only);
}

bool optimizer_next(struct core *core, struct op *op)
{
        if (sums_early(&core->plan) && !core_pipeline_done(core))
                return next_sum(core, op);
        if (!core_pipeline_done(core) || blocking_holds(core))
                return false;
        return next_scalars(core, op) || next_collective(core, op) || next_copy(core, op) ||
               next_compute(core, op);
}

static void compute_done(struct core *core, bool *done)
{
        core->computing = false;
        *done = true;
}

static void allreduce_done(struct core *core, const struct op *op)
{
        struct optimizer_state *o = &core->optimizer;
        if (op->group == GROUP_EMBEDDING) {
                o->exchanges_done++;
        } else if (plan_group_of_shards(op->group)) {
                o->replicated_done = true;
        } else {
                chunk_done(core, op->bucket);
        }
}

void optimizer_complete(struct core *core, const struct op *op)
{
        struct optimizer_state *o = &core->optimizer;
        switch (op->kind) {
        case OP_CHECK_OVERFLOW:
                core->computing = false;
                o->checks_done++;
                break;
        case OP_REDUCE_OVERFLOW:
                o->overflow_known = true;
                o->overflow = op->overflow;
                break;
        case OP_ALLREDUCE:
        case OP_REDUCE_SCATTER:
                allreduce_done(core, op);
                break;
        case OP_ALL_GATHER:
                o->gathers_done++;
                break;
        case OP_NORM:
                compute_done(core, &o->norm_done);
                break;
        case OP_REDUCE_SCALARS:
                o->scalars_done = true;
                if (op->more)
                        saving_want(core);
                break;
        case OP_FETCH:
        case OP_FETCH_WEIGHTS:
                o->fetches_done++;
                break;
        case OP_UPDATE:
                core->computing = false;
                o->updates_done++;
                break;
        case OP_WRITE_BACK:
        case OP_STORE_WEIGHTS:
                o->write_backs_done++;
                break;
        case OP_CLEAR:
                compute_done(core, &o->clear_done);
                break;
        default:
                assert(!"an operation of the optimizer phase");
        }
}

bool optimizer_done(const struct core *core)
{
        const struct optimizer_state *o = &core->optimizer;
        if (!o->scalars_done || !o->overflow_known)
                return false;
        if (o->overflow)
                return o->clear_done;
        if (o->gathers_done < o->gathers || (clears(core) && !o->clear_done))
                return false;
        return (plan_buffers_updates(&core->plan) ? o->write_backs_done : o->updates_done) == o->updates;
}
