#include "calibrate/family.h"

#include "runtime/base/number.h"
#include "runtime/sched/core.h"

#include <stdlib.h>
#include <string.h>

/* A model is not cut to fewer blocks than two: the second block finds the caches as a run's blocks do. */
enum { MIN_LAYERS = 2, ALLREDUCE_BUCKETS = 4 };

/* Whether the room has `bytes`; else how many of which memory are missing is said by the two out arguments:
 * what is needed, and what there is. */
static bool fits(const struct family_room *room, const struct memory_bytes *bytes, int64_t *needs,
                 int64_t *has)
{
        const int64_t device = memory_total(bytes, MEMORY_DEVICE), host = memory_total(bytes, MEMORY_HOST);
        const int64_t needed[] = {device, host, device + host};
        const int64_t there[] = {room->bytes[MEMORY_DEVICE], room->bytes[MEMORY_HOST],
                                 room->all_bytes ? room->all_bytes : INT64_MAX};
        int i = 0;
        while (i < 2 && needed[i] <= there[i])
                i++;
        *needs = needed[i];
        *has = there[i];
        return *needs <= *has;
}

static void *grown(void *array, int count, size_t element_bytes)
{
        void *larger = realloc(array, (size_t)(count + 1) * element_bytes);
        if (!larger)
                abort();
        return larger;
}

/* Adds a kernel that the list has not; returns whether it was new. */
static bool add_kernel(struct family *family, const struct kernel *kernel)
{
        for (int i = 0; i < family->kernel_count; i++)
                if (kernel_same(&family->kernels[i], kernel))
                        return false;
        family->kernels = grown(family->kernels, family->kernel_count, sizeof *family->kernels);
        family->kernels[family->kernel_count++] = *kernel;
        return true;
}

static void add_reduction(struct family *family, int64_t bytes, enum dtype dtype)
{
        for (int i = 0; i < family->reduction_count; i++)
                if (family->reductions[i].bytes == bytes && family->reductions[i].dtype == dtype)
                        return;
        family->reductions = grown(family->reductions, family->reduction_count, sizeof *family->reductions);
        family->reductions[family->reduction_count++] = (struct family_reduction){bytes, dtype};
}

/* What the optimizer of a stage of one replica works through. */
static struct regions regions_of_stage(const struct gpt *gpt, const struct stage *stage, int64_t bucket,
                                       bool offload)
{
        const struct plan plan = {
                .pp = stage->stages,
                .dp = 1,
                .tp = 1,
                .tied = gpt->tied && stage->stages > 1,
                .offload = offload,
                .embedding_parameters = (int64_t)partition_vocabulary(gpt, stage) * gpt->n_embd,
                .bucket_parameters = bucket,
                .allreduce_buckets = ALLREDUCE_BUCKETS,
        };
        const struct core_stage part = {.stage = stage->index,
                                        .parameters = partition_parameters(gpt, stage),
                                        .expert_parameters = partition_expert_parameters(gpt, stage)};
        return regions_of(&plan, &part);
}

/* The all-reduces of a stage: its gradients in chunks, those of a shared embedding among them. */
static void add_stage_reductions(struct family *family, const struct gpt *gpt, const struct stage *stage,
                                 int64_t bucket, enum dtype dtype)
{
        const struct regions regions = regions_of_stage(gpt, stage, bucket, false);
        for (int i = 0; i < regions_chunks(&regions); i++)
                add_reduction(family, regions_chunk(&regions, i).count * dtype_bytes(dtype), dtype);
}

/* Sizes below the largest, so that a line has points to go through. */
static void add_sizes_between(struct family *family, enum dtype dtype)
{
        int64_t largest = 0;
        for (int i = 0; i < family->reduction_count; i++)
                if (family->reductions[i].dtype == dtype && family->reductions[i].bytes > largest)
                        largest = family->reductions[i].bytes;
        add_reduction(family, 64, dtype);
        for (int64_t bytes = 65536; bytes < largest; bytes *= 8)
                add_reduction(family, bytes, dtype);
}

static bool is_among(const struct kernel *kernels, int count, const struct kernel *kernel)
{
        for (int i = 0; i < count; i++)
                if (kernel_same(&kernels[i], kernel))
                        return true;
        return false;
}

struct kernel *family_pass(const struct family_run *run, int *count)
{
        const struct work *work = &run->plan.work;
        const int forward = workload_forward(&run->gpt, &run->stage, work, false, NULL);
        *count = forward + workload_backward(&run->gpt, &run->stage, work, NULL);
        struct kernel *kernels = malloc((size_t)*count * sizeof *kernels);
        if (!kernels)
                abort();
        workload_forward(&run->gpt, &run->stage, work, false, kernels);
        workload_backward(&run->gpt, &run->stage, work, kernels + forward);
        return kernels;
}

struct kernel *family_parted(const struct family_run *whole, int *count)
{
        struct family_run run = *whole;
        const struct work *work = &run.plan.work;
        *count = 0;
        if (run.expert_ranks > 1) /* such plans are refused (runtime/plan/options.c) */
                return NULL;
        run.stage.layers = run.gpt.n_dense + 1; /* all blocks of a kind launch the same */
        const int first = workload_backward_part(&run.gpt, &run.stage, work, PART_INPUT, NULL);
        const int both = first + workload_backward_part(&run.gpt, &run.stage, work, PART_WEIGHT, NULL);
        int passes;
        struct kernel *pass = family_pass(&run, &passes), *kernels = malloc((size_t)both * sizeof *kernels);
        if (!kernels)
                abort();
        workload_backward_part(&run.gpt, &run.stage, work, PART_INPUT, kernels);
        workload_backward_part(&run.gpt, &run.stage, work, PART_WEIGHT, kernels + first);
        for (int i = 0; i < both; i++)
                if (!is_among(pass, passes, &kernels[i]) && !is_among(kernels, *count, &kernels[i]))
                        kernels[(*count)++] = kernels[i];
        free(pass);
        return kernels;
}

/* Of the others messages are among those of any size. */
static bool sums_of_shards(enum kernel_kind collective)
{
        return !kernel_of_experts(collective) && !kernel_of_context(collective) && collective != KERNEL_JOIN;
}

/* Those of a pass, and of a backward in two parts. Returns whether one of them was new. */
static bool add_pass_kernels(struct family *family, const struct family_run *run)
{
        int count, parted;
        struct kernel *kernels = family_pass(run, &count), *more = family_parted(run, &parted);
        bool new = false;
        for (int i = 0; i < count; i++)
                if (!kernel_collective(kernels[i].kind))
                        new |= add_kernel(family, &kernels[i]);
                else if (sums_of_shards(kernels[i].kind))
                        add_reduction(family, kernel_collective_bytes(&kernels[i], sizeof(float)),
                                      (enum dtype)kernels[i].dtype);
        for (int i = 0; i < parted; i++)
                new |= add_kernel(family, &more[i]);
        free(kernels);
        free(more);
        return new;
}

static struct family_optimizer optimizer_of(const struct gpt *gpt, const struct stage *stage, int64_t bucket,
                                            enum dtype dtype, bool wide)
{
        int64_t parameters = partition_parameters(gpt, stage);
        struct family_optimizer optimizer = {.parameters = parameters,
                                             .dtype = dtype,
                                             .wide = wide,
                                             .norm = workload_norm(gpt, stage, wide ? DTYPE_FP32 : dtype)};
        const struct regions regions = regions_of_stage(gpt, stage, bucket, false);
        optimizer.update_count = regions_update_sizes(&regions, optimizer.updates);
        return optimizer;
}

/* Returns whether one of them was new. */
static bool add_optimizer_kernels(struct family *family, const struct family_optimizer *optimizer)
{
        const enum dtype dtype = optimizer->dtype;
        bool new = add_kernel(family, &optimizer->norm);
        for (int i = 0; i < optimizer->update_count; i++) {
                struct kernel update[WORKLOAD_UPDATE_KERNELS];
                int count = workload_update(optimizer->updates[i], dtype, optimizer->wide, update);
                update[count - 1].wide = optimizer->wide;
                for (int j = 0; j < count; j++)
                        new |= add_kernel(family, &update[j]);
        }
        const struct kernel overflow = workload_overflow(optimizer->parameters, dtype, optimizer->wide),
                            clear = workload_clear(optimizer->parameters, (enum dtype)optimizer->norm.dtype),
                            load = workload_add_gradients(optimizer->parameters, dtype);
        new |= add_kernel(family, &load);
        if (dtype != DTYPE_FP32)
                new |= add_kernel(family, &overflow);
        return add_kernel(family, &clear) || new;
}

/* The numbers of stages that a model is split into. */
static struct int_list splits_of(const struct request *request, const struct gpt *gpt)
{
        const struct int_list usual = {{1, 2}, gpt->n_layer > 1 ? 2 : 1};
        return request->stages.count ? request->stages : usual;
}

/* The ways to split a stage: numbers of shards, and of ranks for its experts. */
struct way {
        int shards, expert_ranks;
};

static int count_ways(const struct request *request, const struct gpt *gpt)
{
        return request->shards.count * (gpt->n_expert > 0 ? request->expert_ranks.count : 1);
}

static struct way way_of(const struct request *request, const struct gpt *gpt, int i)
{
        const int shards = request->shards.count;
        return (struct way){request->shards.values[i % shards],
                            gpt->n_expert > 0 ? request->expert_ranks.values[i / shards] : 1};
}

static struct stage split_stage(const struct stage *whole, struct way way)
{
        const struct stage experts = partition_experts(whole, way.expert_ranks, 0, false);
        return partition_shard(&experts, way.shards, 0);
}

/* The optimizers of all stages that a model is split into, each once. Returns how many. */
static int find_optimizers(struct family *family, const struct request *request, int model, enum dtype dtype)
{
        const struct gpt *gpt = &request->gpts[model];
        const struct int_list splits = splits_of(request, gpt);
        struct family_optimizer **optimizers = &family->optimizers[model][dtype];
        const int ways = count_ways(request, gpt);
        int count = 0;
        for (int i = 0; i < splits.count * ways; i++) {
                const int stages = splits.values[i / ways];
                for (int index = 0; index < stages; index++) {
                        struct stage whole = partition_stage(gpt, stages, index);
                        struct stage stage = split_stage(&whole, way_of(request, gpt, i % ways));
                        struct family_optimizer found = optimizer_of(gpt, &stage, request->bucket_parameters,
                                                                     dtype, work_wide_by_default(dtype));
                        add_stage_reductions(family, gpt, &stage, request->bucket_parameters, dtype);
                        if (!add_optimizer_kernels(family, &found))
                                continue;
                        *optimizers = grown(*optimizers, count, sizeof **optimizers);
                        (*optimizers)[count++] = found;
                }
        }
        return count;
}

/* Flops of a forward and backward pass. */
static double pass_flops(const struct family_run *run)
{
        const struct work *work = &run->plan.work;
        const int ranks = work_context_ranks(work);
        return gpt_batch_flops(&run->gpt, work->micro_batch_size, ranks * work->seq_len, RECOMPUTE_NONE) /
               ranks;
}

/* All of the model, or its first shard. */
static struct stage stage_of(const struct family_run *run)
{
        const struct stage whole = partition_stage(&run->gpt, 1, 0);
        return split_stage(&whole, (struct way){run->shards, run->expert_ranks});
}

/* Takes a block away, and leaves one of each kind as long as there are two. */
static void shorten(struct gpt *gpt)
{
        gpt->n_layer--;
        if (gpt->n_dense > 1 || gpt->n_dense == gpt->n_layer)
                gpt->n_dense--;
}

/* Takes blocks away until the stage fits into memory and time. */
static int cut(struct family_run *run, const struct family_room *room, struct rv_error_info *err)
{
        for (;; shorten(&run->gpt)) {
                struct memory_bytes bytes;
                char needs[NUMBER_TEXT], has[NUMBER_TEXT];
                run->stage = stage_of(run);
                memory_stage(&run->gpt, &run->stage, &run->plan, &bytes);
                int64_t needed, there;
                bool min = run->gpt.n_layer <= MIN_LAYERS, fitting = fits(room, &bytes, &needed, &there);
                if (fitting && (min || pass_flops(run) <= room->flops))
                        return RV_OK;
                if (min)
                        return rv_fail(err, RV_EPLAN,
                                       "%s with micro-batch size %d and %d tokens needs %s to be "
                                       "measured with %d "
                                       "blocks, and a rank may use %s here; ask for smaller ones",
                                       run->gpt.name, run->plan.work.micro_batch_size, run->plan.work.seq_len,
                                       number_bytes(needs, (double)needed), run->gpt.n_layer,
                                       number_bytes(has, (double)there));
        }
}

/* Room for gradients that a backward in two parts defers, if it is run at all. */
static void defer(struct family_run *run)
{
        int parted;
        run->stage = stage_of(run);
        free(family_parted(run, &parted));
        run->plan.deferred = parted > 0;
}

/* As ranvier train has them on a GPU: a micro-batch's logits at once, unless not even the fewest blocks leave
 * room for them. */
static void choose_logits(struct family_run *run, const struct family_room *room)
{
        struct family_run least = *run;
        struct memory_bytes bytes;
        int64_t needed, there;
        while (least.gpt.n_layer > MIN_LAYERS)
                shorten(&least.gpt);
        least.stage = stage_of(&least);
        least.plan.work.logits_bytes = room->whole_logits ? INT64_MAX : 0;
        memory_stage(&least.gpt, &least.stage, &least.plan, &bytes);
        run->plan.work.logits_bytes = fits(room, &bytes, &needed, &there) ? least.plan.work.logits_bytes : 0;
}

static int add_run(struct family *family, struct family_run *run, const struct family_room *room,
                   struct rv_error_info *err)
{
        defer(run);
        choose_logits(run, room);
        bool new = add_pass_kernels(family, run);
        if (!new && !run->every_optimizer)
                return RV_OK;
        int rc = cut(run, room, err);
        if (rc != RV_OK)
                return rc;
        family->runs = grown(family->runs, family->run_count, sizeof *family->runs);
        family->runs[family->run_count++] = *run;
        return RV_OK;
}

/* Ranks that have parts of sequences have all experts (runtime/plan/rows.c). */
static int add_runs(struct family *family, const struct request *request, const struct family_room *room,
                    struct family_run run, int context_ranks, struct rv_error_info *err)
{
        if (context_ranks > 1 && run.expert_ranks > 1)
                return RV_OK;
        run.plan.work.cp = context_ranks;
        run.plan.work.seq_len /= context_ranks;
        const int ways = request->sequence_parallel && run.shards > 1 ? 2 : 1,
                  sizes = request->micro_batch_sizes.count;
        for (int i = 0; i < sizes * ways; i++) {
                struct family_run sized = run;
                sized.plan.work.micro_batch_size = request->micro_batch_sizes.values[i % sizes];
                sized.plan.work.sequence_parallel = i >= sizes;
                sized.every_optimizer = run.every_optimizer && i == 0;
                const int rc = add_run(family, &sized, room, err);
                if (rc != RV_OK)
                        return rc;
        }
        return RV_OK;
}

static int add_model(struct family *family, const struct request *request, int model, enum dtype dtype,
                     const struct family_room *room, struct rv_error_info *err)
{
        const struct gpt *gpt = &request->gpts[model];
        int optimizer_count = find_optimizers(family, request, model, dtype);
        int seq_lens = request->seq_lens.count ? request->seq_lens.count : 1;
        const int ways = count_ways(request, gpt);
        for (int i = 0; i < seq_lens * ways; i++) {
                const struct way way = way_of(request, gpt, i % ways);
                const int seq_len =
                        request->seq_lens.count ? request->seq_lens.values[i / ways] : gpt_longest(gpt);
                struct family_run run = {
                        .gpt = *gpt,
                        .shards = way.shards,
                        .expert_ranks = way.expert_ranks,
                        .plan = {.work = {.seq_len = seq_len,
                                          .ep = way.expert_ranks,
                                          .dtype = dtype,
                                          .wide_gradients = work_wide_by_default(dtype),
                                          .fused = request->fused},
                                 .micro_batches = 1,
                                 .slots = 1,
                                 .gradient_buffers = 1},
                        .optimizers = family->optimizers[model][dtype],
                        .optimizer_count = optimizer_count,
                        .every_optimizer = i == 0 && optimizer_count > 0,
                };
                for (int j = 0; j < request->context_ranks.count; j++, run.every_optimizer = false) {
                        const int rc =
                                add_runs(family, request, room, run, request->context_ranks.values[j], err);
                        if (rc != RV_OK)
                                return rc;
                }
        }
        return RV_OK;
}

/* ---- shapes between ---- */

/* How a model beside the family's differs from one of the family. */
struct beside {
        int width[2], heads[2], tokens[2], vocabulary; /* times the first over the second */
        bool largest;                                  /* of the micro-batch sizes; else the smallest */
};
static const struct beside besides[FAMILY_BESIDES] = {
        {{1, 2}, {1, 2}, {1, 2}, 1, true},
        {{3, 2}, {3, 2}, {1, 1}, 2, true},
        {{2, 1}, {2, 1}, {2, 1}, 4, false},
        {{1, 1}, {1, 2}, {4, 1}, 1, false},
};

static int times(int size, const int factor[2])
{
        const int64_t product = (int64_t)size * factor[0] / factor[1];
        return product > 1 ? (int)product : size > 0;
}

/* Heads change in whole groups of those that share keys, and keep their width where the model changes its
 * own; else theirs makes up for their number. */
static struct gpt model_beside(const struct gpt *gpt, const struct beside *beside)
{
        struct gpt other = *gpt;
        const int kv_heads = times(gpt_kv_heads(gpt), beside->heads);
        const bool same = beside->width[0] * beside->heads[1] == beside->width[1] * beside->heads[0];
        other.n_layer = MIN_LAYERS;
        other.n_dense = gpt->n_dense > 0;
        other.n_head = gpt->n_head / gpt_kv_heads(gpt) * kv_heads;
        other.n_kv_head = gpt->n_kv_head ? kv_heads : 0;
        other.n_embd = gpt->head_size ? times(gpt->n_embd, beside->width)
                       : same         ? gpt_head_size(gpt) * other.n_head
                                      : gpt->n_embd;
        other.head_size = gpt->head_size && !same && !gpt->kv_rank
                                  ? gpt->head_size * (gpt->n_head / other.n_head)
                                  : gpt->head_size;
        other.n_inner = times(gpt->n_inner, beside->width);
        other.dense_inner = times(gpt->dense_inner, beside->width);
        other.q_rank = times(gpt->q_rank, beside->width);
        other.kv_rank = times(gpt->kv_rank, beside->width);
        other.vocab_size *= beside->vocabulary;
        return other;
}

/* Whether a run that nobody asked for can be had: within the limits of models and of the device's kernels,
 * the memory, and a quarter of the time of a pass. */
static bool affordable(struct family_run *run, const struct family_room *room)
{
        struct rv_error_info ignored;
        struct memory_bytes bytes;
        int64_t needed, there;
        if (gpt_check(&run->gpt, &ignored) != RV_OK ||
            gpt_check_length(&run->gpt, run->plan.work.seq_len, &ignored) != RV_OK ||
            (room->widest_head > 0 && gpt_head_size(&run->gpt) > room->widest_head))
                return false;
        defer(run);
        choose_logits(run, room);
        memory_stage(&run->gpt, &run->stage, &run->plan, &bytes);
        return fits(room, &bytes, &needed, &there) && pass_flops(run) <= room->flops / 4;
}

static void add_besides(struct family *family, const struct request *request, int model, enum dtype dtype,
                        const struct family_room *room)
{
        const struct gpt *gpt = &request->gpts[model];
        const struct int_list *sizes = &request->micro_batch_sizes;
        struct family_optimizer *optimizers = calloc(FAMILY_BESIDES, sizeof *optimizers);
        if (!optimizers)
                abort();
        family->optimizers_beside[model][dtype] = optimizers;
        for (int i = 0; i < FAMILY_BESIDES; i++) {
                const struct beside *beside = &besides[i];
                const int tokens = request->seq_lens.count ? request->seq_lens.values[0] : gpt_longest(gpt);
                struct family_run run = {.gpt = model_beside(gpt, beside),
                                         .shards = 1,
                                         .expert_ranks = 1,
                                         .plan = {.work = {.micro_batch_size = sizes->values[0],
                                                           .seq_len = times(tokens, beside->tokens),
                                                           .ep = 1,
                                                           .cp = 1,
                                                           .dtype = dtype,
                                                           .fused = request->fused},
                                                  .micro_batches = 1,
                                                  .slots = 1,
                                                  .gradient_buffers = 1},
                                         .optimizers = &optimizers[i],
                                         .optimizer_count = 1};
                for (int j = 0; j < sizes->count; j++)
                        if ((sizes->values[j] > run.plan.work.micro_batch_size) == beside->largest)
                                run.plan.work.micro_batch_size = sizes->values[j];
                run.gpt.n_positions = run.plan.work.seq_len;
                if (!affordable(&run, room))
                        continue;
                optimizers[i] = optimizer_of(&run.gpt, &run.stage, request->bucket_parameters, dtype, false);
                family->runs = grown(family->runs, family->run_count, sizeof *family->runs);
                family->runs[family->run_count++] = run;
        }
}

/* ---- the offloaded optimizer ---- */

/* A remainder that lacks a hundredth of a full update at most lies between points that are measured. */
static void add_update(struct family_phase *phase, int64_t parameters)
{
        for (int i = 0; i < phase->update_count; i++)
                if (parameters <= phase->updates[i] &&
                    parameters > phase->updates[i] - phase->updates[i] / 100)
                        return;
        phase->updates = grown(phase->updates, phase->update_count, sizeof *phase->updates);
        phase->updates[phase->update_count++] = parameters;
}

/* The updates of all stages that the model is split into, and two smaller ones. Returns the largest. */
static int64_t find_updates(struct family_phase *phase, const struct request *request)
{
        const struct gpt *gpt = &phase->gpt;
        const struct int_list splits = splits_of(request, gpt);
        const int ways = count_ways(request, gpt);
        int64_t largest = 0;
        for (int i = 0; i < splits.count * ways; i++) {
                const int stages = splits.values[i / ways];
                for (int index = 0; index < stages; index++) {
                        struct stage whole = partition_stage(gpt, stages, index);
                        struct stage stage = split_stage(&whole, way_of(request, gpt, i % ways));
                        const struct regions regions =
                                regions_of_stage(gpt, &stage, request->bucket_parameters, true);
                        int64_t sizes[REGIONS_SIZES];
                        const int count = regions_update_sizes(&regions, sizes);
                        for (int size = 0; size < count; size++)
                                add_update(phase, sizes[size]);
                        largest = regions.update > largest ? regions.update : largest;
                }
        }
        for (int64_t part = 4; part <= 16; part *= 4)
                if (largest >= part)
                        add_update(phase, largest / part);
        return largest;
}

/* Of a model like this one with so many blocks. */
static int64_t stage_parameters(const struct gpt *gpt, int blocks)
{
        struct gpt cut = *gpt;
        cut.n_layer = blocks;
        cut.n_dense = 0;
        struct stage stage = partition_stage(&cut, 1, 0);
        return partition_parameters(&cut, &stage);
}

/* Gives the phase's stage the fewest blocks that have so many parameters; `bytes`: what it takes. */
static void size_phase(struct family_phase *phase, int64_t parameters, struct memory_bytes *bytes)
{
        const int64_t one = stage_parameters(&phase->gpt, 1), block = stage_parameters(&phase->gpt, 2) - one;
        int64_t more = parameters > one ? (parameters - one + block - 1) / block : 0;
        phase->gpt.n_layer = (int)(1 + more);
        phase->gpt.n_dense = 0;
        phase->stage = partition_stage(&phase->gpt, 1, 0);
        memory_stage(&phase->gpt, &phase->stage, &phase->plan, bytes);
}

static int add_phase(struct family *family, const struct request *request, int model,
                     const struct family_room *room, struct rv_error_info *err)
{
        const int64_t cold = 8000000; /* 128 MB, which is more than most caches hold */
        const enum dtype dtype =
                request->precisions[DTYPE_FP16] ? DTYPE_FP16 : DTYPE_BF16; /* the copies are the same */
        struct family_phase *phase = &family->phases[family->phase_count++];
        struct memory_bytes bytes;
        int64_t needed, there;
        char needs[NUMBER_TEXT], has[NUMBER_TEXT];
        phase->gpt = request->gpts[model];
        phase->plan = (struct memory_plan){.work = {.micro_batch_size = 1,
                                                    .seq_len = 1,
                                                    .dtype = dtype,
                                                    .wide_gradients = work_wide_by_default(dtype),
                                                    .fused = request->fused},
                                           .micro_batches = 1,
                                           .offload = true,
                                           .update_parameters = find_updates(phase, request),
                                           .update_buffers = PLAN_UPDATE_BUFFERS};
        const int64_t min = PLAN_UPDATE_BUFFERS * phase->plan.update_parameters;
        size_phase(phase, 2 * min > cold ? 2 * min : cold, &bytes);
        if (!fits(room, &bytes, &needed,
                  &there)) /* a buffer's next update is not one that is still on its way back */
                size_phase(phase, min, &bytes);
        if (fits(room, &bytes, &needed, &there))
                return RV_OK;
        return rv_fail(err, RV_EPLAN,
                       "the offloaded optimizer of %s needs %s to be measured, and a rank may use %s here; a "
                       "smaller --bucket-params needs less",
                       phase->gpt.name, number_bytes(needs, (double)needed),
                       number_bytes(has, (double)there));
}

static int add_all(struct family *family, const struct request *request, const struct family_room *room,
                   struct rv_error_info *err)
{
        int rc = RV_OK;
        for (enum dtype dtype = DTYPE_FP32; dtype < DTYPES; dtype++) {
                for (int model = 0; model < request->gpt_count && rc == RV_OK; model++)
                        if (request->precisions[dtype])
                                rc = add_model(family, request, model, dtype, room, err);
                if (request->precisions[dtype])
                        add_sizes_between(family, dtype);
        }
        for (enum dtype dtype = DTYPE_FP32; dtype < DTYPES; dtype++)
                for (int model = 0; model < request->gpt_count && rc == RV_OK; model++)
                        if (request->precisions[dtype])
                                add_besides(family, request, model, dtype, room);
        add_reduction(family, 8, DTYPE_FP32); /* scalars, in either precision */
        add_reduction(family, 64, DTYPE_FP32);
        for (int model = 0; model < request->gpt_count && rc == RV_OK; model++)
                if (request->offload)
                        rc = add_phase(family, request, model, room, err);
        return rc;
}

int family_init(struct family *family, const struct request *request, const struct family_room *room,
                struct rv_error_info *err)
{
        memset(family, 0, sizeof *family);
        int rc = add_all(family, request, room, err);
        if (rc != RV_OK)
                family_free(family);
        return rc;
}

void family_free(struct family *family)
{
        for (int model = 0; model < REQUEST_MODELS; model++)
                for (enum dtype dtype = DTYPE_FP32; dtype < DTYPES; dtype++) {
                        free(family->optimizers[model][dtype]);
                        free(family->optimizers_beside[model][dtype]);
                }
        for (int i = 0; i < family->phase_count; i++)
                free(family->phases[i].updates);
        free(family->kernels);
        free(family->reductions);
        free(family->runs);
        memset(family, 0, sizeof *family);
}
