#include "runtime/engine/price.h"

#include "runtime/base/minmax.h"
#include "runtime/plan/framework.h"
#include "runtime/sched/regions.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RECENT = 256 /* a power of two */, MAX_CHUNKS = 8 };

/* What pricing needs beside the kernel. */
struct pricing {
        struct price_list *list;
        const struct options *options;
        const struct price_basis *basis;
        struct rv_error_info *err;
        struct plan plan;
        const struct workload *workload;
        struct kernel *kernels; /* of the passes of a chunk */
        int capacity;
        struct stage chunks[MAX_CHUNKS]; /* priced so far, different ones */
        int chunk_count;
        /* Of the stage being priced: what an update takes longer for the copies that products read. */
        double copies_seconds_per_parameter;
        int recent[RECENT]; /* by hash: 1 + the place in list->prices of the kernel looked up last; 0: none */
};

static unsigned hash(const struct kernel *k)
{
        uint64_t h = (uint64_t)k->kind * 8 + k->transpose_a * 4u + k->transpose_b * 2u + k->accumulate;
        const int64_t sizes[] = {k->batch, k->m, k->n, k->k, k->l};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                h = (h ^ (uint64_t)sizes[i]) * 0x9e3779b97f4a7c15u;
        return (unsigned)(h >> 40) & (RECENT - 1);
}

/* A plan has few different kernels, each of them many times. */
static const struct price *known_price(struct pricing *pricing, const struct kernel *kernel)
{
        const struct price_list *list = pricing->list;
        int *recent = &pricing->recent[hash(kernel)];
        if (*recent && kernel_same(&list->prices[*recent - 1].kernel, kernel))
                return &list->prices[*recent - 1];
        for (int i = 0; i < list->count; i++)
                if (kernel_same(&list->prices[i].kernel, kernel)) {
                        *recent = i + 1;
                        return &list->prices[i];
                }
        return NULL;
}

/* A kernel that does nothing but move so many bytes: it adds one tensor to another, and is as wide as the
 * kernel beside which it runs. */
static struct kernel moving(const struct kernel *beside, double bytes)
{
        enum { NARROW = 64, WIDE = 1024, OPERANDS = 3 };
        struct kernel moves = {.kind = KERNEL_RESIDUAL,
                               .batch = 1,
                               .n = beside->n >= NARROW ? beside->n : WIDE,
                               .dtype = beside->dtype};
        const double row = OPERANDS * (double)moves.n * dtype_bytes((enum dtype)beside->dtype);
        moves.m = (int64_t)fmax(1, round(bytes / row));
        return moves;
}

/* Adds the seconds of `launches` kernels that move so many bytes together; 0: of bytes that a kernel moves
 * beside its own, without the cost of a launch. */
static int add_moves(const struct pricing *pricing, double bytes, int launches, struct price *price)
{
        const struct price_basis *basis = pricing->basis;
        struct price each = {.kernel = moving(&price->kernel, bytes / max_int(launches, 1))}, none = each;
        none.kernel.m = 1;
        int rc = basis->kernel(basis->context, &each, pricing->err);
        if (rc == 0 && launches == 0)
                rc = basis->kernel(basis->context, &none, pricing->err);
        if (rc == 0)
                price->seconds += launches ? launches * each.seconds : fmax(0, each.seconds - none.seconds);
        return rc;
}

/* What the plan's framework does beside a kernel, or instead of it. */
static int price_as_framework(const struct pricing *pricing, struct price *price)
{
        const struct framework_cost cost = framework_cost(pricing->options->framework, &price->kernel);
        int rc = 0;
        price->launches = (cost.instead ? 0 : cost.own_launches) + cost.launches;
        if (cost.instead)
                price->seconds = 0;
        if (cost.within_bytes > 0)
                rc = add_moves(pricing, cost.within_bytes, 0, price);
        if (rc == 0 && cost.launches > 0)
                rc = add_moves(pricing, cost.bytes, cost.launches, price);
        return rc;
}

static int add_price(const struct pricing *pricing, const struct kernel *kernel)
{
        struct price_list *list = pricing->list;
        struct price price = {.kernel = *kernel};
        const struct price_basis *basis = pricing->basis;
        int rc = basis->kernel(basis->context, &price, pricing->err);
        if (rc == 0)
                rc = price_as_framework(pricing, &price);
        if (rc)
                return rc;
        struct price *grown = realloc(list->prices, (size_t)(list->count + 1) * sizeof *grown);
        if (!grown)
                return rv_fail(pricing->err, RV_ESYSTEM, "no memory for the prices of %d kernels",
                               list->count + 1);
        list->prices = grown;
        grown[list->count++] = price;
        list->from_points += price.measured;
        list->from_tables += price.tabled;
        list->worst_fit_error = fmax(list->worst_fit_error, price.fit_error);
        return 0;
}

/* Its seconds, and how many launches it is. */
static int price_kernel(struct pricing *pricing, const struct kernel *kernel, double *seconds, int *launches)
{
        const struct price *known = known_price(pricing, kernel);
        const int rc = known ? 0 : add_price(pricing, kernel);
        if (rc)
                return rc;
        known = known ? known : &pricing->list->prices[pricing->list->count - 1];
        *seconds = known->seconds;
        *launches = known->launches;
        return 0;
}

/* Seconds of one operation that runs these kernels, of which the host needs `host` seconds to launch each. */
static int price_kernels(struct pricing *pricing, const struct kernel *kernels, int count, double host,
                         double *seconds)
{
        double sum = 0, each;
        int launched = 0, launches;
        for (int i = 0; i < count; i++) {
                int rc = price_kernel(pricing, &kernels[i], &each, &launches);
                if (rc)
                        return rc;
                sum += each;
                launched += launches;
        }
        *seconds = pricing->basis->start_seconds + fmax(sum, launched * host);
        return 0;
}

/* A kernel that reads or clears gradients, of those that are in fp32. */
static struct kernel of_gradients(const struct pricing *pricing, struct kernel kernel)
{
        if (plan_keeps_fp32(&pricing->plan))
                kernel.dtype = DTYPE_FP32;
        return kernel;
}

/* The update of `parameters`. */
static int price_update(struct pricing *pricing, int64_t parameters, double *seconds)
{
        const struct price_basis *basis = pricing->basis;
        if (pricing->options->offload && basis->offloaded_update)
                return basis->offloaded_update(basis->context, parameters, seconds, pricing->err);
        struct kernel kernels[WORKLOAD_UPDATE_KERNELS];
        const int count = workload_update(parameters, pricing->options->dtype,
                                          plan_keeps_fp32(&pricing->plan), kernels);
        kernels[count - 1].wide = pricing->plan.wide_gradients; /* it leaves them zero */
        return price_kernels(pricing, kernels, count, basis->host_seconds, seconds);
}

static int add_update(struct pricing *pricing, int64_t parameters, struct stage_price *price)
{
        for (int i = 0; i < price->update_count; i++)
                if (price->updates[i].parameters == parameters)
                        return 0;
        assert(price->update_count < PRICE_UPDATES);
        struct update_price *added = &price->updates[price->update_count++];
        added->parameters = parameters;
        const int rc = price_update(pricing, parameters, &added->seconds);
        added->seconds += (double)parameters * pricing->copies_seconds_per_parameter;
        return rc;
}

/* The copies of weights that are made once a batch, when these are updated: each update takes its part. */
static int price_copies(struct pricing *pricing, const struct stage *stage, const struct regions *regions)
{
        const int count = workload_list_quantize(pricing->workload, stage, NULL);
        const int64_t updated = regions_elements(regions);
        double seconds = 0, each;
        int rc = 0, launches;
        pricing->copies_seconds_per_parameter = 0;
        if (count == 0 || updated == 0)
                return 0;
        struct kernel *kernels = malloc((size_t)count * sizeof *kernels);
        if (!kernels)
                return rv_fail(pricing->err, RV_ESYSTEM, "no memory for the copies of %d weights", count);
        workload_list_quantize(pricing->workload, stage, kernels);
        for (int i = 0; rc == 0 && i < count; i++) {
                rc = price_kernel(pricing, &kernels[i], &each, &launches);
                seconds += rc == 0 ? fmax(each, launches * pricing->basis->host_seconds) : 0;
        }
        free(kernels);
        pricing->copies_seconds_per_parameter = seconds / (double)updated;
        return rc;
}

/* Zero: the norm of all shares of the first replica, of which no other has more. */
static int price_shared_norm(struct pricing *pricing, const struct stage *stage,
                             const struct regions *regions, struct stage_price *price)
{
        const struct options *o = pricing->options;
        const struct kernel whole = workload_norm(&o->gpt, stage, o->dtype);
        const int chunks = regions_chunks(regions);
        struct kernel *kernels = malloc((size_t)chunks * sizeof *kernels);
        int count = 0;
        if (!kernels)
                return rv_fail(pricing->err, RV_ESYSTEM, "no memory for the norms of %d chunks", chunks);
        for (int i = 0; i < chunks; i++) {
                const struct region_range own = regions_own(regions, i);
                struct kernel part = whole;
                part.m = (own.offset + own.count < whole.m ? own.offset + own.count : whole.m) - own.offset;
                part.accumulate = count > 0;
                if (part.m > 0)
                        kernels[count++] = of_gradients(pricing, part);
        }
        int rc = price_kernels(pricing, kernels, count, pricing->basis->host_seconds, &price->norm);
        free(kernels);
        return rc;
}

/* What an OP_ADD_REPLICA consists of. */
static int price_logical(struct pricing *pricing, int64_t parameters, struct stage_price *price)
{
        const double host = pricing->basis->host_seconds, start = pricing->basis->start_seconds;
        const enum dtype dtype = plan_keeps_fp32(&pricing->plan) ? DTYPE_FP32 : pricing->options->dtype;
        const struct kernel add = workload_add_gradients(parameters, dtype);
        struct kernel keep[WORKLOAD_COPY_KERNELS + 1];
        int count = workload_copy_gradients(parameters, dtype, keep);
        keep[count++] = workload_clear(parameters, dtype);
        int rc = price_kernels(pricing, &add, 1, host, &price->add_sum);
        if (rc == 0)
                rc = price_kernels(pricing, keep, count, host, &price->keep_sum);
        price->add_sum -= start;
        price->keep_sum -= start;
        price->add_replica = options_mixed(pricing->options) && dtype != DTYPE_FP32 ? price->check : start;
        return rc;
}

static double add_replica_seconds(const struct price_list *list, const struct stage_price *price,
                                  const struct op *op)
{
        const bool last = op->bucket == list->logical - 1;
        return price->add_replica + core_logical_sums(op->bucket) * price->add_sum +
               (last ? 0 : price->keep_sum);
}

static int price_optimizer(struct pricing *pricing, const struct stage *stage, struct stage_price *price)
{
        const struct options *o = pricing->options;
        const double host = pricing->basis->host_seconds;
        const struct plan *plan = &pricing->plan;
        const struct core_stage part = options_core_stage(o, stage->index, 0);
        const struct regions regions = regions_of(plan, &part);
        const enum dtype dtype = o->dtype;
        struct kernel norm = workload_norm(&o->gpt, stage, dtype),
                      check = workload_overflow(part.parameters, dtype, plan_keeps_fp32(plan)),
                      clear = workload_clear(part.parameters, dtype);
        norm.m = norm.m < part.parameters ? norm.m : part.parameters;
        norm = of_gradients(pricing, norm);
        clear = of_gradients(pricing, clear);
        int64_t sizes[REGIONS_SIZES];
        const int updates = regions_update_sizes(&regions, sizes);
        int rc = 0;
        price->checked = part.parameters;
        if (o->clip > 0 && plan->zero == 1)
                rc = price_shared_norm(pricing, stage, &regions, price);
        else if (o->clip > 0)
                rc = price_kernels(pricing, &norm, 1, host, &price->norm);
        if (rc == 0 && options_mixed(o))
                rc = price_kernels(pricing, &check, 1, host, &price->check);
        if (rc == 0 && plan_logical(plan) > 1)
                rc = price_logical(pricing, part.parameters, price);
        if (rc == 0 && plan->zero == 1)
                rc = price_kernels(pricing, &clear, 1, host, &price->clear);
        if (rc == 0)
                rc = price_copies(pricing, stage, &regions);
        for (int i = 0; rc == 0 && i < updates; i++)
                rc = add_update(pricing, sizes[i], price);
        return rc;
}

static int collectives_in(const struct kernel *kernels, int count)
{
        int found = 0;
        for (int i = 0; i < count; i++)
                found += kernel_collective(kernels[i].kind);
        return found;
}

/* Fills in the parts of a pass. All of them take the sum of their kernels, or, if that is longer, what the
 * host needs to launch them all: it launches the next part's kernels as soon as the shards are done, which is
 * one more operation to start. If `launched_seconds` is not NULL it launches on, and parts take their
 * kernels' time. */
static int price_parts(struct pricing *pricing, const struct kernel *kernels, int count, double *part_seconds,
                       double *expert_seconds, double *launched_seconds, struct kernel *collectives,
                       struct price_pass *pass)
{
        const double start = pricing->basis->start_seconds, host = pricing->basis->pass_host_seconds;
        double sum = 0, each;
        int part = 0, launched = 0, launches;
        part_seconds[0] = expert_seconds[0] = 0;
        for (int i = 0; i < count; i++) {
                if (kernel_collective(kernels[i].kind)) {
                        collectives[part++] = kernels[i];
                        part_seconds[part] = expert_seconds[part] = 0;
                        continue;
                }
                int rc = price_kernel(pricing, &kernels[i], &each, &launches);
                if (rc)
                        return rc;
                part_seconds[part] += each;
                if (kernels[i].experts)
                        expert_seconds[part] += each;
                sum += each;
                launched += launches;
        }
        const bool by_host = !launched_seconds && launched * host > sum;
        *pass = (struct price_pass){.seconds = (part + 1) * start + (by_host ? launched * host : sum),
                                    .parts = part + 1,
                                    .part_seconds = part_seconds,
                                    .expert_seconds = expert_seconds,
                                    .launched_seconds = launched_seconds,
                                    .collectives = collectives};
        for (int i = 0, at = 0; i <= part; i++, at++) {
                launched = 0;
                for (; at < count && !kernel_collective(kernels[at].kind); at++) {
                        price_kernel(pricing, &kernels[at], &each, &launches); /* which is known */
                        launched += launches;
                }
                part_seconds[i] = start + (by_host ? launched * host : part_seconds[i]);
                if (launched_seconds) /* and the collective behind it */
                        launched_seconds[i] =
                                (i ? launched_seconds[i - 1] : 0) + (launched + (i < part)) * host;
        }
        return 0;
}

/* The kernels of a chunk's passes, one list behind the other. */
struct pass_lists {
        int forward, backward, weights; /* how many of each */
};

/* Appends the backward of a span's layers; `out` may be NULL to count. */
static int list_span(const struct workload *w, const struct stage *chunk, const struct partition_span *span,
                     struct kernel *out)
{
        struct stage layers = *chunk;
        layers.first = span->embedding;
        layers.last = span->head;
        layers.layers = span->blocks;
        layers.first_layer += span->top + 1 - span->blocks;
        return workload_list_backward(w, &layers, span->parts, out);
}

/* A backward, or of one in two parts the first or second. */
static int list_backward(const struct pricing *pricing, const struct stage *chunk, enum kernel_part parts,
                         struct kernel *out)
{
        const struct workload *w = pricing->workload;
        if (parts == PART_BOTH)
                return workload_list_backward(w, chunk, PART_BOTH, out);
        const int deferred = options_deferred_layers(pricing->options, chunk);
        const struct partition_parts spans = partition_parts(chunk, deferred, parts);
        const int whole = list_span(w, chunk, &spans.whole, out);
        return whole + list_span(w, chunk, &spans.part, out ? out + whole : NULL);
}

static int list_passes(struct pricing *pricing, const struct stage *chunk, struct pass_lists *lists)
{
        const struct workload *w = pricing->workload;
        const bool parted = options_parts_backward(pricing->options);
        const enum kernel_part parts = parted ? PART_INPUT : PART_BOTH;
        *lists = (struct pass_lists){workload_list_forward(w, chunk, NULL),
                                     list_backward(pricing, chunk, parts, NULL),
                                     parted ? list_backward(pricing, chunk, PART_WEIGHT, NULL) : 0};
        const int all = lists->forward + lists->backward + lists->weights;
        if (all > pricing->capacity) {
                struct kernel *grown = realloc(pricing->kernels, (size_t)all * sizeof *grown);
                if (!grown)
                        return rv_fail(pricing->err, RV_ESYSTEM, "no memory for the kernels of stage %d",
                                       chunk->index);
                pricing->kernels = grown;
                pricing->capacity = all;
        }
        struct kernel *at = pricing->kernels;
        workload_list_forward(w, chunk, at);
        list_backward(pricing, chunk, parts, at + lists->forward);
        if (parted)
                list_backward(pricing, chunk, PART_WEIGHT, at + lists->forward + lists->backward);
        return 0;
}

/* One of its passes: PASS_FORWARD, or a backward or a part of one. */
static int list_unit(const struct workload *w, const struct stage *unit, enum layer_pass pass,
                     struct kernel *out)
{
        return pass == PASS_FORWARD ? workload_list_forward(w, unit, out)
                                    : workload_list_backward(w, unit, (enum kernel_part)pass, out);
}

/* How many collectives a pass of some layers alone has; -1: there is no memory. */
static int count_collectives(const struct workload *w, const struct stage *layers, enum layer_pass pass)
{
        const int count = list_unit(w, layers, pass, NULL);
        struct kernel *kernels = malloc((size_t)(count + 1) * sizeof *kernels);
        if (!kernels)
                return -1;
        list_unit(w, layers, pass, kernels);
        const int found = collectives_in(kernels, count);
        free(kernels);
        return found;
}

/* A layer of a kind as a stage of its own. */
static struct stage alone(const struct pricing *pricing, const struct stage *whole, int unit)
{
        struct stage layer = *whole;
        layer.chunks = 1;
        layer.first = unit == PRICE_EMBEDDING;
        layer.last = unit == PRICE_HEAD;
        layer.layers = unit == PRICE_BLOCK || (unit == PRICE_DENSE && pricing->options->gpt.n_dense);
        layer.first_layer = unit == PRICE_BLOCK ? pricing->options->gpt.n_dense : 0;
        return layer;
}

/* Where the arrays of the next pass of a layer go. */
struct unit_arrays {
        struct kernel *collectives;
        double *seconds;
};

static int price_unit(struct pricing *pricing, const struct stage *unit, enum layer_pass pass,
                      struct unit_arrays *at, struct price_pass *price)
{
        const struct workload *w = pricing->workload;
        const int count = list_unit(w, unit, pass, NULL);
        if (count == 0)
                return 0;
        struct kernel *kernels = malloc((size_t)count * sizeof *kernels);
        if (!kernels)
                return rv_fail(pricing->err, RV_ESYSTEM, "no memory for the kernels of a layer");
        list_unit(w, unit, pass, kernels);
        const int parts = collectives_in(kernels, count) + 1;
        const int rc = price_parts(pricing, kernels, count, at->seconds, at->seconds + parts, NULL,
                                   at->collectives, price);
        at->seconds += 2 * (size_t)parts;
        at->collectives += parts - 1;
        free(kernels);
        return rc;
}

/* Each pass of a layer of each kind alone. */
static int price_units(struct pricing *pricing, const struct stage *whole, struct stage_price *price)
{
        const bool parted = options_parts_backward(pricing->options);
        int all = 0, rc = 0;
        for (int i = 0; i < PRICE_UNITS * LAYER_PASSES; i++) {
                const struct stage unit = alone(pricing, whole, i / LAYER_PASSES);
                const int found =
                        count_collectives(pricing->workload, &unit, (enum layer_pass)(i % LAYER_PASSES));
                all = found < 0 || all < 0 ? -1 : all + found;
        }
        struct unit_arrays at = {0};
        const size_t seconds = 2 * ((size_t)all + PRICE_UNITS * LAYER_PASSES);
        if (all >= 0)
                at.collectives = malloc((size_t)all * sizeof *at.collectives + seconds * sizeof *at.seconds);
        if (!at.collectives)
                return rv_fail(pricing->err, RV_ESYSTEM, "no memory for the prices of layers");
        price->unit_memory = at.collectives;
        at.seconds = (double *)(at.collectives + all);
        for (int i = 0; rc == 0 && i < PRICE_UNITS * LAYER_PASSES; i++) {
                const struct stage unit = alone(pricing, whole, i / LAYER_PASSES);
                const enum layer_pass pass = (enum layer_pass)(i % LAYER_PASSES);
                if (parted || (pass != PASS_INPUT && pass != PASS_WEIGHT))
                        rc = price_unit(pricing, &unit, pass, &at, &price->units[i / LAYER_PASSES][pass]);
        }
        return rc;
}

/* Clearing the gradients of a unit, or widening them, and adding a replica's share of them. */
static int price_gradients(struct pricing *pricing, const struct core_units *units, int unit, double *clear,
                           double *load)
{
        const double host = pricing->basis->pass_host_seconds, start = pricing->basis->start_seconds;
        const enum dtype dtype = pricing->options->dtype;
        const int64_t parameters = core_unit_parameters(&pricing->plan, units, unit);
        struct kernel widen[WORKLOAD_UPDATE_KERNELS];
        workload_update(parameters, dtype, false, widen); /* unscales first */
        struct core_unit_part parts[CORE_UNIT_PARTS];
        const int count = core_unit_parts(&pricing->plan, units, unit, parts);
        struct kernel first = pricing->plan.reduce_fp32 ? widen[0] : workload_clear(parameters, dtype),
                      loads[CORE_UNIT_PARTS];
        for (int i = 0; i < count; i++) {
                const int64_t share = plan_own(&pricing->plan, parts[i].group, 0, parts[i].count).count;
                loads[i] = of_gradients(pricing, workload_add_gradients(share, dtype));
        }
        int rc = price_kernels(pricing, &first, 1, host, clear);
        if (rc == 0)
                rc = price_kernels(pricing, loads, count, host, load);
        *clear -= start;
        *load -= start;
        return rc;
}

/* Zero 2 and 3: the layers of units, and what these do with their gradients first. */
static int price_gathered(struct pricing *pricing, const struct stage *chunk, struct stage_price *price)
{
        const struct core_stage stage = options_core_stage(pricing->options, chunk->index, 0);
        const int count = core_units_of(&pricing->plan, &stage.units).parts;
        double *clear = price->gradients_memory = malloc(2 * (size_t)count * sizeof *clear);
        if (!clear)
                return rv_fail(pricing->err, RV_ESYSTEM, "no memory for the prices of %d layers",
                               chunk->layers);
        double *load = clear + count;
        int rc = price_units(pricing, chunk, price);
        price->unit_layers = max_int(pricing->plan.unit_layers, 1);
        price->unit_count = count;
        price->clear_unit = clear;
        price->load_unit = load;
        for (int nth = 0; rc == 0 && nth < count; nth++) {
                const int back = count - 1 - nth;
                rc = price_gradients(pricing, &stage.units, core_unit_nth(&pricing->plan, &stage.units, nth),
                                     &clear[back], &load[back]);
        }
        return rc;
}

/* Which parts of a pass are of which block. */
static int find_blocks(struct pricing *pricing, const struct stage *chunk, struct stage_price *price)
{
        struct stage block = *chunk, before = *chunk;
        const int dense = partition_dense(&pricing->options->gpt, chunk);
        block.first = block.last = false;
        block.first_layer += dense;
        block.layers = chunk->layers > dense;
        for (int backward = 0; backward < 2; backward++) {
                struct price_pass *pass = backward ? &price->backward : &price->forward;
                const enum layer_pass kind = backward ? PASS_BACKWARD : PASS_FORWARD;
                before.first = chunk->first && !backward;
                before.last = chunk->last && backward;
                before.layers = backward ? 0 : dense;
                pass->backward = backward;
                pass->first_block = count_collectives(pricing->workload, &before, kind);
                pass->block_parts = count_collectives(pricing->workload, &block, kind);
                if (pass->first_block < 0 || pass->block_parts < 0)
                        return rv_fail(pricing->err, RV_ESYSTEM, "no memory for the prices of stage %d",
                                       chunk->index);
        }
        return 0;
}

/* Forward and backward of one chunk, or the two parts of a backward. */
static int price_passes(struct pricing *pricing, const struct stage *chunk, struct stage_price *price)
{
        enum { PASSES = 3 };
        struct price_pass *const passes[PASSES] = {&price->forward, &price->backward, &price->weights};
        struct pass_lists lists;
        int rc = list_passes(pricing, chunk, &lists);
        if (rc)
                return rc;
        const int counts[PASSES] = {lists.forward, lists.backward, lists.weights};
        const size_t all =
                (size_t)collectives_in(pricing->kernels, lists.forward + lists.backward + lists.weights);
        struct kernel *collectives = price->memory =
                malloc(all * sizeof *collectives + 3 * (all + PASSES) * sizeof(double));
        if (!collectives)
                return rv_fail(pricing->err, RV_ESYSTEM, "no memory for the prices of stage %d",
                               chunk->index);
        const struct kernel *kernels = pricing->kernels;
        double *seconds = (double *)(collectives + all), *experts = seconds + all + PASSES,
               *launched = experts + all + PASSES;
        for (int pass = 0; rc == 0 && pass < PASSES && counts[pass] > 0; pass++) {
                const int found = collectives_in(kernels, counts[pass]);
                rc = price_parts(pricing, kernels, counts[pass], seconds, experts,
                                 pricing->basis->host_ahead ? launched : NULL, collectives, passes[pass]);
                kernels += counts[pass];
                collectives += found;
                seconds += found + 1;
                experts += found + 1;
                launched += found + 1;
        }
        return rc == 0 && pricing->plan.ep > 1 ? find_blocks(pricing, chunk, price) : rc;
}

/* Chunks that have as many layers of each kind, and the same ends of the model, do the same. */
static bool same_chunk(const struct gpt *gpt, const struct stage *a, const struct stage *b)
{
        return a->first == b->first && a->last == b->last && a->layers == b->layers &&
               partition_dense(gpt, a) == partition_dense(gpt, b);
}

static int price_chunk(struct pricing *pricing, const struct stage *chunk)
{
        struct stage_price *price = &pricing->list->stages[chunk->index];
        for (int i = 0; i < pricing->chunk_count; i++)
                if (same_chunk(&pricing->options->gpt, chunk, &pricing->chunks[i])) {
                        const struct stage_price *same = &pricing->list->stages[pricing->chunks[i].index];
                        price->forward = same->forward;
                        price->backward = same->backward;
                        price->weights = same->weights;
                        memcpy(price->units, same->units, sizeof price->units);
                        price->unit_layers = same->unit_layers;
                        price->unit_count = same->unit_count;
                        price->clear_unit = same->clear_unit;
                        price->load_unit = same->load_unit;
                        return 0;
                }
        if (pricing->chunk_count < MAX_CHUNKS)
                pricing->chunks[pricing->chunk_count++] = *chunk;
        const int rc = price_passes(pricing, chunk, price);
        const bool units = pricing->plan.zero >= 2 && !pricing->basis->passes_only;
        return rc == 0 && units ? price_gathered(pricing, chunk, price) : rc;
}

static int price_stage(struct pricing *pricing, int index)
{
        const struct options *o = pricing->options;
        const struct stage stage = options_stage(o, index);
        int rc = 0;
        pricing->list->stages[index].start = pricing->basis->start_seconds;
        for (int i = 0; rc == 0 && i < stage.chunks; i++) {
                const struct stage chunk = partition_chunk(&stage, i);
                rc = price_chunk(pricing, &chunk);
        }
        const struct plan *plan = &pricing->plan;
        pricing->list->stages[index].stage = stage;
        pricing->list->stages[index].deferred = options_deferred_layers(o, &stage);
        if (rc || pricing->basis->passes_only)
                return rc;
        if (plan->overlap_allreduce)
                rc = price_units(pricing, &stage, &pricing->list->stages[index]);
        return rc ? rc : price_optimizer(pricing, &stage, &pricing->list->stages[index]);
}

static int price_all(struct pricing *pricing)
{
        int rc = 0;
        for (int i = 0; rc == 0 && i < pricing->options->pp; i++)
                rc = price_stage(pricing, i);
        free(pricing->kernels);
        return rc;
}

static bool open_loads(struct price_list *list, const struct options *options)
{
        const int layers = list->gpt.n_layer, ep = options->ep;
        if (ep <= 1)
                return true;
        list->loads = malloc((size_t)layers * (size_t)ep * sizeof *list->loads);
        for (int layer = 0; list->loads && layer < layers; layer++)
                routing_loads(&options->routing, &list->gpt, layer, ep, &list->loads[layer * ep]);
        return list->loads;
}

int price_stages(struct price_list *list, const struct options *options, const struct price_basis *basis,
                 struct rv_error_info *err)
{
        struct workloads own = {0}, *workloads = basis->workloads ? basis->workloads : &own;
        const struct work work = options_work(options);
        struct pricing pricing = {list, options, basis, err, .plan = options_plan(options, false)};
        const int stages = options->pp * options->virtual_stages;
        *list = (struct price_list){.pp = options->pp,
                                    .ep = options->ep,
                                    .logical = plan_logical(&pricing.plan),
                                    .gpt = options->gpt,
                                    .stages = calloc((size_t)stages, sizeof *list->stages)};
        pricing.workload = workloads_get(workloads, &options->gpt, &work, options->tp);
        int rc;
        if (list->stages && pricing.workload && open_loads(list, options)) {
                list->stage_count = stages;
                rc = price_all(&pricing);
        } else {
                rc = rv_fail(err, RV_ESYSTEM, "no memory for the prices of %d stages", stages);
        }
        workloads_free(&own);
        return rc;
}

/* Those of a chunk's passes. */
static int price_each_of(struct pricing *pricing, const struct stage *chunk,
                         void (*each)(void *context, enum op_kind of, const struct price *price),
                         void *context)
{
        struct pass_lists lists;
        const int rc = list_passes(pricing, chunk, &lists);
        const int all = rc ? 0 : lists.forward + lists.backward + lists.weights;
        for (int i = 0; i < all; i++) {
                const struct price *price = known_price(pricing, &pricing->kernels[i]);
                if (price) /* no collective */
                        each(context, i < lists.forward ? OP_FORWARD : OP_BACKWARD, price);
        }
        return rc;
}

int price_each(const struct price_list *list, const struct options *options, int stage,
               void (*each)(void *context, enum op_kind of, const struct price *price), void *context,
               struct rv_error_info *err)
{
        struct price_list known = *list;
        struct workloads own = {0};
        const struct work work = options_work(options);
        struct pricing pricing = {
                .list = &known, .options = options, .err = err, .plan = options_plan(options, false)};
        const struct stage whole = options_stage(options, stage);
        pricing.workload = workloads_get(&own, &options->gpt, &work, options->tp);
        int rc = pricing.workload ? 0 : rv_fail(err, RV_ESYSTEM, "no memory for the kernels of a stage");
        for (int i = 0; rc == 0 && i < whole.chunks; i++) {
                const struct stage chunk = partition_chunk(&whole, i);
                rc = price_each_of(&pricing, &chunk, each, context);
        }
        free(pricing.kernels);
        workloads_free(&own);
        return rc;
}

void price_free(struct price_list *list)
{
        for (int i = 0; i < list->stage_count; i++) {
                free(list->stages[i].memory);
                free(list->stages[i].unit_memory);
                free(list->stages[i].gradients_memory);
        }
        free(list->stages);
        free(list->loads);
        free(list->prices);
        *list = (struct price_list){0};
}

/* The layers that a range of a last backward works on. */
static struct partition_span span_of(const struct price_list *list, int stage, const struct op *op)
{
        const struct stage_price *price = &list->stages[stage];
        return partition_span(&list->gpt, &price->stage, op->chunk, price->deferred,
                              (enum kernel_part)op->parts, op->offset + op->count, op->offset);
}

void price_widen(const struct price_list *list, int stage, struct op *op)
{
        if (op->kind != OP_BACKWARD || op->count == 0)
                return;
        const int64_t end = op->offset + op->count;
        const struct partition_span span = span_of(list, stage, op);
        op->offset = span.offset;
        op->count = end - span.offset;
        op->further = span.more;
}

bool price_has_range(const struct price_list *list, int stage, const struct op *op)
{
        return op->count > 0 || list->stages[stage].unit_layers > 0;
}

/* The layers of a unit. */
static struct partition_span unit_of(const struct stage_price *price, const struct op *op)
{
        const int nth = op->of == OP_FORWARD ? op->range : price->unit_count - 1 - op->range;
        return partition_unit(&price->stage, price->unit_layers, nth + !price->stage.first);
}

int price_range(const struct price_list *list, int stage, const struct op *op,
                struct price_layers layers[PRICE_UNITS])
{
        const struct stage_price *price = &list->stages[stage];
        const bool forward = op->of == OP_FORWARD;
        const struct partition_span span =
                price->unit_layers > 0 ? unit_of(price, op) : span_of(list, stage, op);
        const enum layer_pass pass = forward ? PASS_FORWARD : (enum layer_pass)span.parts;
        const int above = span.top + 1 - partition_dense(&list->gpt, &price->stage), /* may be below 0 */
                blocks = min_int(span.blocks, max_int(above, 0));
        const struct {
                enum price_unit unit;
                int times;
        } in_order[PRICE_UNITS] = {{PRICE_HEAD, span.head},
                                   {PRICE_BLOCK, blocks},
                                   {PRICE_DENSE, span.blocks - blocks},
                                   {PRICE_EMBEDDING, span.embedding}};
        int count = 0;
        for (int i = 0; i < PRICE_UNITS; i++) {
                const int at = forward ? PRICE_UNITS - 1 - i : i;
                const struct price_pass *layer = &price->units[in_order[at].unit][pass];
                if (in_order[at].times > 0 && layer->parts > 0)
                        layers[count++] = (struct price_layers){layer, in_order[at].times};
        }
        return count;
}

/* A part of a range or unit: what of it is of each layer. */
static double part_seconds(const struct price_list *list, int stage, const struct op *op)
{
        const double start = list->stages[stage].start;
        struct price_layers layers[PRICE_UNITS];
        const int count = price_range(list, stage, op, layers);
        double seconds = start;
        for (int i = 0, part = op->segment; i < count; i++)
                for (int layer = 0; layer < layers[i].times && part >= 0; layer++) {
                        if (part < layers[i].pass->parts)
                                seconds += layers[i].pass->part_seconds[part] - start;
                        part -= layers[i].pass->parts - 1;
                }
        return seconds;
}

/* A look at some of a stage's gradients takes as much of a look at all: it reads memory. */
static double check_seconds(const struct stage_price *price, int64_t count)
{
        if (count == price->checked)
                return price->check;
        return price->start + (price->check - price->start) * (double)count / (double)price->checked;
}

const struct price_pass *price_pass_of(const struct price_list *list, int stage, const struct op *op)
{
        const struct stage_price *price = &list->stages[op->chunk * list->pp + stage];
        if (op->of == OP_FORWARD)
                return &price->forward;
        return op->parts == OP_WEIGHT_GRADIENT ? &price->weights : &price->backward;
}

/* The loads of the layer that a part of a unit is of; NULL: of none. */
static const double *loads_in_unit(const struct price_list *list, int stage, const struct op *op)
{
        const struct stage_price *price = &list->stages[stage];
        const struct partition_span span = unit_of(price, op);
        const struct price_behind at = price_behind(list, stage, op);
        const int dense = partition_dense(&list->gpt, &price->stage);
        const bool forward = op->of == OP_FORWARD;
        if (!at.pass || at.pass != &price->units[PRICE_BLOCK][forward ? PASS_FORWARD : PASS_BACKWARD])
                return NULL;
        const int first = max_int(span.top + 1 - span.blocks, dense),
                  block = forward ? first + at.nth : span.top - at.nth;
        return &list->loads[(int64_t)partition_layer(&price->stage, block) * list->ep];
}

/* The loads of the layer that a part is of; NULL: of none, or no experts are spread. */
static const double *loads_of(const struct price_list *list, int stage, const struct op *op)
{
        if (list->loads && price_has_range(list, stage, op))
                return loads_in_unit(list, stage, op);
        const struct price_pass *pass = price_pass_of(list, stage, op);
        const int at = op->segment - pass->first_block;
        if (!list->loads || at < 0 || pass->block_parts == 0)
                return NULL;
        const struct stage chunk = partition_chunk(&list->stages[stage].stage, op->chunk);
        const int block = at / pass->block_parts, dense = partition_dense(&list->gpt, &chunk);
        if (block >= chunk.layers - dense)
                return NULL;
        const int layer = chunk.first_layer + (pass->backward ? chunk.layers - 1 - block : dense + block);
        return &list->loads[(int64_t)layer * list->ep];
}

double price_load(const struct price_list *list, int stage, const struct op *op, int member)
{
        const double *loads = loads_of(list, stage, op);
        return loads ? loads[member] : 1;
}

double price_slowest(const struct price_list *list, int stage, const struct op *op)
{
        double slowest = 1;
        const double *loads = loads_of(list, stage, op);
        for (int member = 0; loads && member < list->ep; member++)
                slowest = fmax(slowest, loads[member]);
        return slowest;
}

double price_imbalance(const struct price_list *list, int stage, const struct op *op, double load)
{
        if (price_has_range(list, stage, op)) { /* experts' products are between collectives of their layer */
                const struct price_behind at = price_behind(list, stage, op);
                return at.pass ? at.pass->expert_seconds[at.part] * (load - 1) : 0;
        }
        const struct price_pass *pass = price_pass_of(list, stage, op);
        return pass->expert_seconds ? pass->expert_seconds[op->segment] * (load - 1) : 0;
}

/* A collective is over when it has had the links for so long. */
static double end_of(struct price_progress *p, double from, double seconds, bool far)
{
        return p->links_free[far] = fmax(from, p->links_free[far]) + seconds;
}

/* Until when the next part waits for those along z, of which one may begin now. */
static double along_z(struct price_progress *p, const struct kernel *k, double seconds, bool far)
{
        if (k->beside) {
                const double before = p->along_z ? p->ends[(p->along_z - 1) % PRICE_ALONG_Z] : 0;
                p->ends[p->along_z++ % PRICE_ALONG_Z] = end_of(p, fmax(p->now, before), seconds, far);
        }
        const int awaited = p->along_z - k->left;
        return awaited > 0 ? p->ends[(awaited - 1) % PRICE_ALONG_Z] : 0;
}

static double in_turn(struct price_progress *p, const struct kernel *k, double seconds, bool far)
{
        const double from = fmax(p->now, p->beside);
        if (kernel_joins(k->kind))
                return from;
        const double end = end_of(p, from, seconds, far);
        p->beside = k->beside ? end : 0;
        return k->beside ? from : end;
}

void price_go_on(struct price_progress *p, const struct price_pass *pass, int part, double seconds, bool far)
{
        const struct kernel *k = &pass->collectives[part];
        const bool ahead = kernel_of_shards_z(k->kind) && (k->beside || kernel_joins(k->kind));
        p->now += pass->part_seconds[part];
        if (pass->launched_seconds) {
                p->waited += fmax(0, pass->launched_seconds[part] - p->now);
                p->now = fmax(p->now, pass->launched_seconds[part]);
        }
        const double until = (ahead ? along_z : in_turn)(p, k, seconds, far);
        p->waited += fmax(0, until - p->now);
        p->now = fmax(p->now, until);
}

struct price_behind price_behind(const struct price_list *list, int stage, const struct op *op)
{
        struct price_layers layers[PRICE_UNITS] = {{price_pass_of(list, stage, op), 1}};
        const int count = price_has_range(list, stage, op) ? price_range(list, stage, op, layers) : 1;
        int part = op->segment;
        for (int i = 0; i < count; i++) {
                const int each = layers[i].pass->parts - 1;
                if (part < layers[i].times * each)
                        return (struct price_behind){layers[i].pass, part % each, part / each};
                part -= layers[i].times * each;
        }
        return (struct price_behind){0};
}

double price_unit_gradients(const struct price_list *list, int stage, const struct op *op)
{
        const struct stage_price *price = &list->stages[stage];
        const bool clears = op->begins != GRADIENTS_ADD, loads = op->begins == GRADIENTS_LOAD || op->loads;
        return (clears || op->widens ? price->clear_unit[op->range] : 0) +
               (loads ? price->load_unit[op->range] : 0);
}

/* Of a part of a unit. */
static double gradient_seconds(const struct price_list *list, int stage, const struct op *op)
{
        const bool here = op->widens ? !price_behind(list, stage, op).pass : op->segment == 0;
        return here ? price_unit_gradients(list, stage, op) : 0;
}

double price_pass_seconds(const struct price_pass *pass, double between)
{
        const double launched = pass->launched_seconds ? pass->launched_seconds[pass->parts - 1] : 0;
        return fmax(pass->seconds + between, launched);
}

double price_launched(const struct price_list *list, int stage, const struct op *op)
{
        if ((op->kind != OP_FORWARD && op->kind != OP_BACKWARD) || price_has_range(list, stage, op))
                return 0;
        const struct price_pass *pass = price_pass_of(list, stage, op);
        return pass->launched_seconds ? pass->launched_seconds[op->segment] : 0;
}

double price_operation(const struct price_list *list, int stage, const struct op *op)
{
        const struct stage_price *price = &list->stages[op->chunk * list->pp + stage];
        switch (op->kind) {
        case OP_FORWARD:
        case OP_BACKWARD:
                if (!price_has_range(list, stage, op))
                        return price_pass_of(list, stage, op)->part_seconds[op->segment];
                return part_seconds(list, stage, op) + gradient_seconds(list, stage, op);
        case OP_NORM:
                return price->norm;
        case OP_CHECK_OVERFLOW:
                return check_seconds(&list->stages[stage], op->count); /* of a chunk's gradients, too */
        case OP_ADD_REPLICA:
                return add_replica_seconds(list, price, op);
        case OP_CLEAR: /* after all updates: nothing overflows here */
                return price->clear;
        default:
                assert(op->kind == OP_UPDATE);
                for (int i = 0; i < price->update_count; i++)
                        if (price->updates[i].parameters == op->count)
                                return price->updates[i].seconds;
                assert(!"an update of that size is priced");
                return 0;
        }
}
