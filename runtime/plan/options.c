#include "runtime/plan/options.h"

#include "runtime/sched/regions.h"

#include "runtime/base/file.h"
#include "runtime/base/version.h"
#include "runtime/base/command_line.h"
#include "runtime/plan/flags.h"
#include "runtime/plan/framework.h"
#include "runtime/plan/grid.h"
#include "runtime/sched/policy.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        LARGEST_GRID = 1048576,
        LARGEST_BATCH = 1073741824,
        MAX_UPDATES = 1 << 24,
        MAX_VMBS = 1 << 24,                  /* micro-batches x --virtual-stages */
        DEFAULT_BUCKET_PARAMETERS = 16000000 /* AxoNN's */
};

void options_init(struct options *options)
{
        *options = (struct options){
                .pp = 1,
                .dp = 1,
                .tp = 1,
                .tp_x = 1,
                .tp_z = 1,
                .grid_overlap = GRID_OVERLAP_OAG,
                .ep = 1,
                .cp = 1,
                .virtual_stages = 1,
                .policy = POLICY_AXONN,
                .split = SPLIT_EVEN,
                .clip = 1.0,
                .allreduce_buckets = 4,
                .unit_layers = 1,
                .prefetch = 1,
                .reshard = true,
        };
}

static int micro_batches(const struct options *o)
{
        return (int)(o->batch_size / ((int64_t)o->dp * o->micro_batch_size));
}

/* What is sound by itself, and too large to be counted or scheduled. */
static int check_sizes(const struct options *o, struct rv_error_info *err)
{
        if ((int64_t)micro_batches(o) * o->virtual_stages > MAX_VMBS)
                return rv_fail(err, RV_EPLAN,
                               "--batch-size %lld makes %d micro-batches a pipeline%s, at most %d are "
                               "scheduled: a larger --micro-batch-size makes fewer",
                               (long long)o->batch_size, micro_batches(o),
                               o->virtual_stages > 1 ? ", each in several chunks" : "",
                               MAX_VMBS / o->virtual_stages);
        struct memory_plan memory = options_memory(o, 0); /* the stage that stores the most */
        if (!memory_countable(&o->gpt, &memory))
                return rv_fail(err, RV_EPLAN,
                               "a rank of this plan needs more than an exbibyte (2^60 bytes): %s with "
                               "--seq-len %d, --micro-batch-size %d and %d of them stored is too large",
                               o->gpt.name, o->seq_len, o->micro_batch_size, memory.slots);
        struct plan plan = options_plan(o, false);
        int64_t updates = gpt_parameters(&o->gpt) / plan_update_parameters(&plan);
        if (updates > MAX_UPDATES)
                return rv_fail(err, RV_EPLAN,
                               "--bucket-params %lld makes %lld optimizer updates of %s, at most %d are "
                               "scheduled: larger buckets make fewer",
                               (long long)o->bucket_parameters, (long long)updates, o->gpt.name, MAX_UPDATES);
        return 0;
}

/* A bucket is a part of the parameters: one that is asked for may not be more than all of them. */
static int resolve_bucket(struct options *o, struct rv_error_info *err)
{
        int64_t all = gpt_parameters(&o->gpt);
        if (o->bucket_parameters > all)
                return rv_fail(err, RV_EPLAN,
                               "--bucket-params %lld is more than the %lld parameters of %s: a bucket is a "
                               "part of them",
                               (long long)o->bucket_parameters, (long long)all, o->gpt.name);
        if (!o->bucket_parameters)
                o->bucket_parameters = all < DEFAULT_BUCKET_PARAMETERS ? all : DEFAULT_BUCKET_PARAMETERS;
        return 0;
}

int64_t options_ranks(const struct options *o)
{
        return grid_ranks(o->sizes) * options_context_ranks(o);
}

char *options_grid(char *text, const struct options *o, const char *before, const char *times)
{
        size_t length = strlen(grid_text(text, o->sizes, before, times));
        if (options_shard_grid(o)) /* the last that it names */
                length += (size_t)snprintf(text + length, GRID_TEXT - length, " (%dx%dx%d)",
                                           options_shards_x(o), options_shards_y(o), options_shards_z(o));
        if (options_context_ranks(o) > 1)
                snprintf(text + length, GRID_TEXT - length, "%s%scp %d", times, before, o->cp);
        return text;
}

/* Interleaved: a layer at least for each part of the model. */
static int check_chunks(const struct options *o, struct rv_error_info *err)
{
        const int64_t stages = (int64_t)o->pp * o->virtual_stages;
        if (o->virtual_stages > 1 && stages > o->gpt.n_layer)
                return rv_fail(
                        err, RV_EPLAN,
                        "--pp %d x --virtual-stages %d are %lld virtual stages, each of a layer or more, "
                        "but %s has n_layer %d",
                        o->pp, o->virtual_stages, (long long)stages, o->gpt.name, o->gpt.n_layer);
        return 0;
}

/* Other stages than the last have a layer each at least. */
static int check_split(const struct options *o, struct rv_error_info *err)
{
        if (o->split > o->gpt.n_layer - (o->pp - 1))
                return rv_fail(
                        err, RV_EPLAN,
                        "--split %d: of the n_layer %d of %s the last of --pp %d stages can have %d at most",
                        o->split, o->gpt.n_layer, o->gpt.name, o->pp, o->gpt.n_layer - (o->pp - 1));
        return 0;
}

/* Parts of sequences: two pieces of equal lengths a rank. */
static int check_context(const struct options *o, struct rv_error_info *err)
{
        if (o->cp <= 1)
                return 0;
        if (o->seq_len % (2 * o->cp))
                return rv_fail(err, RV_EPLAN,
                               "--cp %d takes each sequence in %d pieces, which do not divide --seq-len %d",
                               o->cp, 2 * o->cp, o->seq_len);
        return 0;
}

/* A grid of shards: the residual stream's columns over x, heads and the MLP's columns over y, sequences of a
 * micro-batch over z. */
static int check_shard_grid(const struct options *o, struct rv_error_info *err)
{
        const int x = options_shards_x(o), y = options_shards_y(o), z = options_shards_z(o);
        const struct stage whole = partition_stage(&o->gpt, 1, 0), part = partition_shard(&whole, 2, 0);
        struct rv_error_info why;
        if (o->gpt.n_expert > 0 || o->gpt.kv_rank > 0)
                return rv_fail(err, RV_ENOTBUILT, "--tp %dx%dx%d of %s, whose %s, is not built yet", x, y, z,
                               o->gpt.name,
                               o->gpt.n_expert > 0 ? "blocks are mixtures of experts"
                                                   : "attention is latent");
        if (y > 1 && z > 1 && partition_summed(&o->gpt, &part, false, NULL) > 0)
                return rv_fail(
                        err, RV_ENOTBUILT,
                        "--tp %dx%dx%d of %s, whose norms of heads would be summed over Y and Z, is not "
                        "built yet: with one of the two 1 it is",
                        x, y, z, o->gpt.name);
        if (o->gpt.n_embd % x)
                return rv_fail(err, RV_EPLAN,
                               "--tp %dx%dx%d: X = %d does not divide the n_embd %d of %s, whose columns are "
                               "split over X",
                               x, y, z, x, o->gpt.n_embd, o->gpt.name);
        if (gpt_check_shards(&o->gpt, y, &why))
                return rv_fail(err, RV_EPLAN, "--tp %dx%dx%d splits heads over Y = %d, and %.300s", x, y, z,
                               y, why.sentence);
        if (o->micro_batch_size % z)
                return rv_fail(
                        err, RV_EPLAN,
                        "--tp %dx%dx%d: Z = %d does not divide --micro-batch-size %d, whose sequences are "
                        "split over Z",
                        x, y, z, z, o->micro_batch_size);
        return 0;
}

/* Experts that are split as all else is, spread over replicas. */
static int check_experts(const struct options *o, struct rv_error_info *err)
{
        if (o->etp > 1 && o->etp != o->tp)
                return rv_fail(
                        err, RV_EPLAN,
                        "--etp %d: 1 was expected (experts are whole), or %d, --tp (they are split as all "
                        "else is)",
                        o->etp, o->tp);
        if (o->etp == 1 && o->tp > 1)
                return rv_fail(err, RV_EPLAN,
                               "--etp 1 with --tp %d spreads whole experts over the shards: it needs --ep, a "
                               "multiple of %d",
                               o->tp, o->tp);
        if (options_replicas(o) % o->ep == 0)
                return 0;
        return rv_fail(err, RV_EPLAN,
                       o->cp > 1 ? "--ep %d does not divide --dp %d x --cp %d: experts are spread over "
                                   "replicas, which have tokens of their own"
                                 : "--ep %d does not divide --dp %d: experts are spread over replicas, "
                                   "which have tokens of their own",
                       o->ep, o->dp, o->cp);
}

/* --etp 1: experts are spread over the shards of E / T replicas, whose ranks must follow each other. */
static int check_whole_experts(const struct options *o, struct rv_error_info *err)
{
        const int replicas = options_replicas(o);
        if (o->ep % o->tp || replicas % (o->ep / o->tp))
                return rv_fail(
                        err, RV_EPLAN,
                        "--ep %d with --etp 1 spreads experts over the %d shards of --tp and over "
                        "replicas, of which there are %d: a multiple of %d that divides %lld was expected",
                        o->ep, o->tp, replicas, o->tp, (long long)o->tp * replicas);
        if (!o->sequence_parallel)
                return rv_fail(
                        err, RV_EPLAN,
                        "--etp 1 with --tp %d: shards send rows of their own to the experts, so it needs "
                        "--sequence-parallel",
                        o->tp);
        if (o->pp > 1 && o->ep > o->tp && o->order != ORDER_REPLICAS)
                return rv_fail(
                        err, RV_EPLAN,
                        "--etp 1 with --ep %d above --tp %d and with --pp %d: the ranks of an all-to-all "
                        "must follow each other, so it needs --order replicas",
                        o->ep, o->tp, o->pp);
        return 0;
}

static int check_logical(const struct options *o, struct rv_error_info *err)
{
        const int each = o->logical_dp / o->dp;
        const int64_t step = (int64_t)o->logical_dp * o->micro_batch_size;
        if (o->logical_dp == 0)
                return 0;
        if (o->logical_dp % o->dp || (each & (each - 1)))
                return rv_fail(
                        err, RV_EPLAN,
                        "--logical-dp %d is not --dp %d times a power of two: each replica adds up the "
                        "gradients of as many logical ones in pairs",
                        o->logical_dp, o->dp);
        if (o->batch_size % step)
                return rv_fail(err, RV_EPLAN,
                               "--batch-size %lld is not divisible by --logical-dp %d x --micro-batch-size "
                               "%d = %lld",
                               (long long)o->batch_size, o->logical_dp, o->micro_batch_size, (long long)step);
        return 0;
}

int options_check(struct options *o, int ranks, struct rv_error_info *err)
{
        char text[GRID_TEXT];
        int64_t grid = options_ranks(o), step = (int64_t)o->dp * o->micro_batch_size;
        if (grid != ranks)
                return rv_fail(err, RV_EPLAN, "%s needs %lld rank%s, but there %s %d",
                               options_grid(text, o, "--", " x "), (long long)grid, rv_plural(grid),
                               ranks == 1 ? "is" : "are", ranks);
        int rc = options_shard_grid(o) ? check_shard_grid(o, err) : gpt_check_shards(&o->gpt, o->tp, err);
        if (rc == 0)
                rc = gpt_check_experts(&o->gpt, o->ep, err);
        if (rc)
                return rc;
        rc = options_whole_experts(o) ? check_whole_experts(o, err) : check_experts(o, err);
        if (rc == 0)
                rc = check_context(o, err);
        if (rc)
                return rc;
        if (o->shard_replicas > 0 && o->dp % o->shard_replicas)
                return rv_fail(err, RV_EPLAN,
                               "--shard-replicas %d does not divide --dp %d: the replicas are groups of so "
                               "many, which "
                               "share parameters",
                               o->shard_replicas, o->dp);
        if (o->sequence_parallel && (int64_t)o->micro_batch_size * options_work(o).seq_len % o->tp)
                return rv_fail(
                        err, RV_EPLAN,
                        "--sequence-parallel: --tp %d does not divide the %lld tokens of a micro-batch "
                        "(--micro-batch-size %d x --seq-len %d%s)",
                        o->tp, (long long)o->micro_batch_size * options_work(o).seq_len, o->micro_batch_size,
                        o->seq_len, o->cp > 1 ? " / --cp" : "");
        if (!partition_recomputes(&o->gpt, o->recompute))
                return rv_fail(err, RV_EPLAN, "--recompute %s: %s has no SwiGLU",
                               recompute_name(o->recompute), o->gpt.name);
        if (o->pp > o->gpt.n_layer)
                return rv_fail(err, RV_EPLAN, "--pp %d needs at least as many layers, but %s has n_layer %d",
                               o->pp, o->gpt.name, o->gpt.n_layer);
        rc = check_chunks(o, err);
        if (rc == 0)
                rc = check_split(o, err);
        if (rc)
                return rc;
        rc = gpt_check_length(&o->gpt, o->seq_len, err);
        if (rc)
                return rc;
        if (o->batch_size % step)
                return rv_fail(err, RV_EPLAN,
                               "--batch-size %lld is not divisible by --dp %d x --micro-batch-size %d = %lld",
                               (long long)o->batch_size, o->dp, o->micro_batch_size, (long long)step);
        rc = check_logical(o, err);
        if (rc)
                return rc;
        if (o->policy == POLICY_INTERLEAVED && micro_batches(o) % o->pp)
                return rv_fail(
                        err, RV_EPLAN,
                        "--schedule interleaved takes micro-batches in groups of --pp %d, but --batch-size "
                        "%lld makes %d a pipeline",
                        o->pp, (long long)o->batch_size, micro_batches(o));
        rc = resolve_bucket(o, err);
        return rc ? rc : check_sizes(o, err);
}

void options_fill_ranks(struct options *o, int ranks)
{
        const int64_t grid = options_ranks(o);
        if (!flag_is_given(flag_named("dp"), o) && o->dp == 1 && ranks % grid == 0)
                o->dp = (int)(ranks / grid);
}

static int settle(struct options *o, int ranks, struct rv_error_info *err)
{
        if (!o->seq_len)
                o->seq_len = gpt_longest(&o->gpt);
        o->fused = o->fusion != FUSION_OFF;
        return options_check(o, ranks, err);
}

int options_resolve_gpt(struct options *o, int ranks, struct rv_error_info *err)
{
        int rc = flags_check(o, err);
        return rc ? rc : settle(o, ranks, err);
}

int options_resolve(struct options *o, int ranks, struct rv_error_info *err)
{
        if (!o->model)
                return rv_fail(
                        err, RV_EINPUT,
                        "MODEL is missing: the name of a preset (such as tiny) or the path of a config.json");
        int rc = flags_check(o, err);
        if (rc == 0)
                rc = o->described ? gpt_from_json(&o->gpt, o->model, o->described, err)
                                  : gpt_load(&o->gpt, o->model, err);
        return rc ? rc : settle(o, ranks, err);
}

const char *options_device(const struct options *o)
{
        return o->device ? o->device : "cpu";
}

static int choose_route(enum route *route, bool reaches, const char *option, const char *what,
                        struct rv_error_info *err)
{
        if (*route == ROUTE_AUTO)
                *route = reaches ? ROUTE_DIRECT : ROUTE_STAGED;
        if (*route == ROUTE_DIRECT && !reaches)
                return rv_fail(err, RV_EPLAN,
                               "%s direct: this network does not %s device memory; staged (or auto) goes "
                               "through host memory",
                               option, what);
        return 0;
}

int options_choose_routes(struct options *o, bool sends_device_memory, bool sums_device_memory,
                          struct rv_error_info *err)
{
        int rc = choose_route(&o->messages, sends_device_memory, "--messages", "send from or receive into",
                              err);
        return rc ? rc : choose_route(&o->allreduce, sums_device_memory, "--allreduce", "sum", err);
}

/* One replica shares with nobody. */
static int shared_state(const struct options *o)
{
        return options_replicas(o) > 1 ? o->zero : 0;
}

bool options_wide_gradients(const struct options *o)
{
        if (o->gradients != GRADIENTS_AUTO)
                return o->gradients == GRADIENTS_FP32;
        return work_wide_by_default(o->dtype) && shared_state(o) < 2;
}

bool options_sums_short(const struct options *o)
{
        enum { FEW = 16 };
        const struct plan plan = options_plan(o, false);
        return o->dtype == DTYPE_BF16 && !plan_keeps_fp32(&plan) && plan.micro_batches > FEW;
}

const char *options_exact_sums(const struct options *o)
{
        return o->zero < 2                           ? "--gradients fp32"
               : o->gather_each == GATHER_EACH_BATCH ? "--gather-each micro-batch --reduce-dtype fp32"
                                                     : "--reduce-dtype fp32";
}

bool options_reduces_fp32(const struct options *o)
{
        if (shared_state(o) < 2)
                return false;
        if (o->reduced != GRADIENTS_AUTO)
                return o->reduced == GRADIENTS_FP32;
        return work_wide_by_default(o->dtype) && o->gather_each != GATHER_EACH_BATCH; /* not built with it */
}

struct work options_work(const struct options *o)
{
        return (struct work){
                .micro_batch_size = o->micro_batch_size / options_shards_z(o),
                .seq_len = o->seq_len / options_context_ranks(o),
                .dtype = o->dtype,
                .format = o->format,
                .quantizes_each_pass = o->zero == 3 && options_replicas(o) > 1,
                .scaling = o->scaling,
                .wide_gradients = options_wide_gradients(o),
                .recompute = o->recompute == RECOMPUTE_SELECTIVE && !gpt_stores_scores(&o->gpt)
                                     ? RECOMPUTE_NONE
                                     : o->recompute,
                .fused = o->fused,
                .tp = o->tp,
                .tp_x = o->tp_x,
                .tp_z = o->tp_z,
                .ep = o->ep,
                .whole_experts = options_whole_experts(o),
                .tokens_once = o->dispatcher == DISPATCHER_DEEPEP && o->ep > 1,
                .cp = o->cp,
                .cp_gathers = o->cp_exchange == CONTEXT_ALL_GATHER,
                .expert_capacity = o->expert_capacity,
                .sequence_parallel = o->sequence_parallel,
                .tp_overlap = o->tp_overlap,
                .grid_overlap = o->grid_overlap,
                .logits_bytes = o->logits_bytes,
        };
}

bool options_parts_backward(const struct options *o)
{
        return policy_get(o->policy)->deferred != NULL;
}

int options_deferred_layers(const struct options *o, const struct stage *stage)
{
        const struct memory_plan plan = {.deferred = options_parts_backward(o),
                                         .deferred_layers = o->deferred_layers};
        return memory_deferred_layers(&plan, stage);
}

static struct stage shard_of(const struct options *o, const struct stage *whole, int shard)
{
        return partition_grid(whole, options_shards_x(o), options_shards_y(o), options_shards_z(o), shard);
}

struct stage options_stage(const struct options *o, int index)
{
        struct stage whole = partition_interleaved(&o->gpt, o->pp, o->virtual_stages, index);
        const struct work work = options_work(o);
        if (o->split != SPLIT_EVEN && o->pp > 1) {
                const int least = o->zero >= 2 || options_parts_backward(o); /* as --split has it, too */
                const int last = o->split >= 0 ? o->split : workload_balanced(&o->gpt, &work, o->pp, least);
                whole = partition_split(&o->gpt, o->pp, last, index);
        }
        whole = partition_experts(&whole, o->ep, 0, options_whole_experts(o));
        return shard_of(o, &whole, 0);
}

struct plan options_plan(const struct options *o, bool forward_only)
{
        const struct work work = options_work(o);
        const int element_bytes = work_element_bytes(&work);
        const int replicas = options_replicas(o);
        int64_t tokens = (int64_t)work.micro_batch_size * work.seq_len;
        struct stage first = options_stage(o, 0);
        bool tied = o->gpt.tied && o->pp > 1;
        struct plan plan = {
                .tp_x = o->tp_x,
                .tp_z = o->tp_z,
                .ep = o->ep,
                .whole_experts = options_whole_experts(o),
                .cp = o->cp,
                .order = o->order,
                .virtual_stages = o->virtual_stages,
                .sequence_parallel = o->sequence_parallel,
                .blocking = o->blocking,
                .overlap_allreduce = o->overlap_allreduce && replicas > 1,
                .zero = shared_state(o),
                .sharers = o->zero >= 1 && o->shard_replicas < replicas ? o->shard_replicas : 0,
                .reduce_fp32 = options_reduces_fp32(o),
                .wide_gradients = options_wide_gradients(o),
                .unit_layers = o->unit_layers,
                .prefetch = o->prefetch,
                .gathered = o->gather_each == GATHER_EACH_BATCH ? GATHERED_FOR_BATCH
                            : o->reshard                        ? GATHERED_FOR_PASS
                                                                : GATHERED_FOR_MICRO_BATCH,
                .micro_batches = micro_batches(o),
                .logical = o->logical_dp / o->dp,
                .policy = o->policy,
                .pipeline_limit = o->pipeline_limit,
                .forward_only = forward_only,
                .tied = tied,
                .clip = o->clip > 0,
                .mixed = options_mixed(o),
                .offload = o->offload,
                .offload_parameters = o->offload_parameters && replicas > 1,
                .offload_activations = o->offload_activations,
                .stage_messages = o->messages == ROUTE_STAGED && o->pp > 1,
                .stage_allreduce = o->allreduce == ROUTE_STAGED && (replicas > 1 || tied),
                .stage_shards = o->allreduce == ROUTE_STAGED && o->tp > 1,
                .message_bytes = tokens / (o->sequence_parallel ? o->tp : 1) *
                                 (o->gpt.n_embd / options_shards_x(o)) * element_bytes,
                .load_bytes = tokens * micro_batches(o) * (int64_t)sizeof(int32_t),
                .embedding_parameters = tied ? partition_embedding(&o->gpt, &first) : 0,
                .bucket_parameters = o->bucket_parameters,
                .allreduce_buckets = o->allreduce_buckets,
                .element_bytes = element_bytes,
        };
        memcpy(plan.sizes, o->sizes, sizeof plan.sizes);
        plan.dp = replicas;
        return plan;
}

/* Parameters whose gradients are summed on the host: all of a stage that has replicas, or of a pipeline
 * without any the embedding that its ends share. */
static int64_t staged_gradients(const struct plan *plan, const struct stage *stage, int64_t parameters)
{
        if (!plan->stage_allreduce)
                return 0;
        return plan->dp > 1 ? parameters : stage->first || stage->last ? plan->embedding_parameters : 0;
}

static struct plan_range unit_sum(int64_t before, int64_t summed)
{
        return (struct plan_range){before, summed};
}

static struct core_units units_of(const struct options *o, const struct stage *stage)
{
        const struct partition_units units = partition_stage_units(&o->gpt, stage);
        struct partition_units before, summed;
        partition_unit_sums(&o->gpt, stage, o->sequence_parallel, &before, &summed);
        return (struct core_units){.blocks = stage->layers,
                                   .dense = partition_dense(&o->gpt, stage),
                                   .tied = o->gpt.tied && stage->first && stage->last,
                                   .embedding = units.embedding,
                                   .dense_block = units.dense,
                                   .block = units.block,
                                   .head = units.head,
                                   .experts = units.experts,
                                   .sums = {.embedding = unit_sum(before.embedding, summed.embedding),
                                            .dense_block = unit_sum(before.dense, summed.dense),
                                            .block = unit_sum(before.block, summed.block),
                                            .head = unit_sum(before.head, summed.head)}};
}

/* Zero 2 and 3: a replica's shares of all units. */
static int64_t kept_parameters(const struct plan *plan, const struct core_units *units)
{
        return core_unit_place(plan, units, core_units_of(plan, units).all);
}

/* What one of the ranks that have the stage alike writes of it: parameters and both moments, in fp32. What
 * several shards or stages have alike one of them writes. */
static int64_t checkpoint_bytes(const struct plan *plan, const struct stage *stage, int shard,
                                int64_t parameters, int64_t experts, int64_t common)
{
        enum { BYTES = 3 * sizeof(float) };
        const int rank = plan_rank(plan, 0, stage->index, shard);
        if (shard > 0)
                parameters -= common;
        if (plan->tied && stage->last && !stage->first)
                parameters -= plan->embedding_parameters;
        const int alike = plan_hybrid(plan) ? plan_share_ranks(plan) : plan->dp,
                  with_experts = plan_group(plan, rank, GROUP_EXPERT_DATA).size;
        return BYTES *
               ((parameters - experts + alike - 1) / alike + (experts + with_experts - 1) / with_experts);
}

struct core_stage options_core_stage(const struct options *o, int index, int shard)
{
        const struct stage first = options_stage(o, index), stage = shard_of(o, &first, shard);
        const struct memory_plan memory = options_memory(o, index);
        struct core_stage part = {.stage = index,
                                  .shard = shard,
                                  .parameters = partition_parameters(&o->gpt, &stage),
                                  .expert_parameters = partition_expert_parameters(&o->gpt, &stage),
                                  .slot_bytes = memory_layout(&o->gpt, &stage, &memory).slot};
        const struct plan plan = options_plan(o, false);
        part.common_count = partition_replicated(&o->gpt, &stage, &part.common_offset);
        part.checkpoint_bytes = checkpoint_bytes(&plan, &stage, shard, part.parameters,
                                                 part.expert_parameters, part.common_count);
        if (plan.zero >= 2) {
                part.units = units_of(o, &stage);
                part.parameters = kept_parameters(&plan, &part.units);
                part.expert_parameters = 0; /* shares of units are all alike to the optimizer */
        } else
                part.replicated_count =
                        partition_summed(&o->gpt, &stage, o->sequence_parallel, &part.replicated_offset);
        if (stage.chunks > 1) {
                const struct memory_layout layout = memory_layout(&o->gpt, &stage, &memory);
                part.embedded_bytes = layout.embedded;
                part.head_bytes = layout.head;
                part.slot_bytes -= part.embedded_bytes + part.head_bytes;
                part.shorter_bytes = layout.block;
                partition_longest_chunk(&stage, &part.longer_first, &part.longer_end);
        }
        return part;
}

/* Zero: elements of the arrays of the optimizer. */
static int64_t shard_parameters(const struct plan *plan, const struct options *o, const struct stage *stage)
{
        struct core_stage part = {.stage = stage->index,
                                  .parameters = partition_parameters(&o->gpt, stage),
                                  .expert_parameters = partition_expert_parameters(&o->gpt, stage)};
        part.common_count = partition_replicated(&o->gpt, stage, &part.common_offset);
        const struct regions regions = regions_of(plan, &part);
        return regions_elements(&regions);
}

static struct memory_unit_buffers unit_buffers(const struct core_unit_buffers *buffers)
{
        return (struct memory_unit_buffers){buffers->ends, buffers->blocks, buffers->own};
}

/* Zero 2 and 3: what a replica keeps, and buffers of units. */
static void add_gathers(const struct plan *plan, const struct options *o, const struct stage *stage,
                        struct memory_plan *memory)
{
        const struct core_units units = units_of(o, stage);
        const struct core_gathers gathers = core_gathers(plan, &units);
        memory->gathered = true;
        memory->shard_parameters = kept_parameters(plan, &units);
        memory->unit_layers = o->unit_layers;
        memory->whole_weights = plan->zero == 2;
        memory->reduce_fp32 = plan->reduce_fp32;
        memory->unit_weights = unit_buffers(&gathers.weights);
        memory->unit_gradients = unit_buffers(&gathers.gradients);
}

/* Which slots can hold the model's first and its last chunk; and which have one block less, for the other
 * chunks than the longest. */
static void add_slots_of_chunks(const struct plan *plan, const struct stage *stage,
                                struct memory_plan *memory)
{
        const int last = stage->chunks - 1, head = core_head_slots(plan, stage->index);
        const int others = memory->slots - head;
        int first, end;
        partition_longest_chunk(stage, &first, &end);
        memory->embedded_slots = stage->first ? others : 0;
        memory->head_slots = head > 0 ? head : stage->last ? memory->slots : 0;
        if (head == 0)
                return;
        memory->short_first_slots = first == last ? others : 0;
        memory->short_last_slots = end == last ? head : 0;
}

struct memory_plan options_memory(const struct options *o, int stage)
{
        struct plan plan = options_plan(o, false);
        struct core_limits limits = core_limits(&plan, stage);
        struct stage part = options_stage(o, stage);
        int64_t parameters = partition_parameters(&o->gpt, &part);
        struct memory_plan memory = {
                .work = options_work(o),
                .micro_batches = plan.micro_batches,
                .slots = limits.slots,
                .host_slots = limits.host_slots,
                .input_buffers = limits.inputs,
                .gradient_buffers = limits.gradients,
                .deferred = limits.deferred,
                .deferred_layers = o->deferred_layers,
                .gradient_sums = core_logical_levels(&plan),
                .stage_messages = plan.stage_messages,
                .stage_shards = plan.stage_shards,
                .staged_gradients = staged_gradients(&plan, &part, parameters),
                .shard_parameters = plan.zero == 1 ? shard_parameters(&plan, o, &part) : 0,
                .offload = o->offload,
                .offload_parameters = plan.offload_parameters,
                .update_buffers = plan_buffers_updates(&plan) ? PLAN_UPDATE_BUFFERS : 0,
                .framework_bytes = framework_memory(o, &part, limits.slots),
        };
        add_slots_of_chunks(&plan, &part, &memory);
        if (plan.zero >= 2)
                add_gathers(&plan, o, &part, &memory);
        if (plan_buffers_updates(&plan))
                memory.update_parameters =
                        core_update_parameters(&plan, plan.zero >= 2 ? memory.shard_parameters : parameters);
        return memory;
}
