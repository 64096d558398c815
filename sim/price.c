#include "sim/price.h"

#include "runtime/sched/shares.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* What pricing needs beside the kernel. */
struct pricing {
        struct price_list *list;
        const struct options *options;
        const struct price_basis *basis;
        struct rv_error_info *err;
};

/* A plan has few different kernels, so a list that is searched from its start is enough. */
static const struct price *known_price(const struct price_list *list, const struct kernel *kernel)
{
        for (int i = 0; i < list->count; i++)
                if (kernel_same(&list->prices[i].kernel, kernel))
                        return &list->prices[i];
        return NULL;
}

static int add_price(const struct pricing *pricing, const struct kernel *kernel)
{
        struct price_list *list = pricing->list;
        struct price price = {.kernel = *kernel};
        const struct price_basis *basis = pricing->basis;
        int rc = profile_kernel_seconds(basis->profile, basis->load, kernel, basis->fits_only, &price.seconds,
                                        &price.source, pricing->err);
        if (rc)
                return rc;
        struct price *grown = realloc(list->prices, (size_t)(list->count + 1) * sizeof *grown);
        if (!grown)
                return rv_fail(pricing->err, RV_ESYSTEM, "no memory for the prices of %d kernels",
                               list->count + 1);
        list->prices = grown;
        grown[list->count++] = price;
        list->from_points += price.source == PROFILE_POINT;
        list->worst_fit_error =
                fmax(list->worst_fit_error, profile_fit_error(basis->load, kernel, basis->fits_only));
        return 0;
}

/* Seconds of one operation that runs these kernels, launched as `launch` says. */
static int price_kernels(const struct pricing *pricing, const struct kernel *kernels, int count,
                         const struct profile_launch *launch, double *seconds)
{
        double sum = 0;
        for (int i = 0; i < count; i++) {
                int rc = known_price(pricing->list, &kernels[i]) ? 0 : add_price(pricing, &kernels[i]);
                if (rc)
                        return rc;
                sum += known_price(pricing->list, &kernels[i])->seconds;
        }
        *seconds = pricing->basis->load->op_overhead_seconds + fmax(sum, count * launch->host_seconds);
        return 0;
}

/* The update of `parameters`. */
static int price_update(const struct pricing *pricing, int64_t parameters, double *seconds)
{
        const struct price_basis *basis = pricing->basis;
        if (pricing->options->offload && basis->offloaded_by_line) {
                *seconds = profile_line_seconds(basis->load, LINE_OFFLOADED_UPDATE,
                                                plan_offloaded_bytes(parameters), basis->fits_only);
                return isnan(*seconds) ? profile_no_line(basis->profile, basis->load, LINE_OFFLOADED_UPDATE,
                                                         pricing->err)
                                       : 0;
        }
        struct kernel kernels[WORKLOAD_UPDATE_KERNELS];
        int count = workload_update(parameters, options_format(pricing->options), kernels);
        return price_kernels(pricing, kernels, count, &basis->load->launch, seconds);
}

static int add_update(const struct pricing *pricing, int64_t parameters, struct stage_price *price)
{
        for (int i = 0; i < price->update_count; i++)
                if (price->updates[i].parameters == parameters)
                        return 0;
        assert(price->update_count < PRICE_UPDATES);
        struct update_price *added = &price->updates[price->update_count++];
        added->parameters = parameters;
        return price_update(pricing, parameters, &added->seconds);
}

/* The updates of `parameters`, `update` at a time. */
static int add_updates(const struct pricing *pricing, int64_t parameters, int64_t update,
                       struct stage_price *price)
{
        if (parameters == 0)
                return 0;
        int rc = parameters >= update ? add_update(pricing, update, price) : 0;
        return rc ? rc : add_update(pricing, (parameters - 1) % update + 1, price);
}

/* Zero: the norm of all shares of the first replica, of which no other has more. */
static int price_shared_norm(const struct pricing *pricing, const struct stage *stage,
                             const struct shares *shares, struct stage_price *price)
{
        const struct options *o = pricing->options;
        const struct kernel whole = workload_norm(&o->gpt, stage, options_format(o));
        const int chunks = shares_chunks(shares);
        struct kernel *kernels = malloc((size_t)chunks * sizeof *kernels);
        int count = 0;
        if (!kernels)
                return rv_fail(pricing->err, RV_ESYSTEM, "no memory for the norms of %d shares", chunks);
        for (int i = 0; i < chunks; i++) {
                const struct share own = shares_own(shares, i);
                struct kernel part = whole;
                part.m = (own.offset + own.count < whole.m ? own.offset + own.count : whole.m) - own.offset;
                part.accumulate = count > 0;
                if (part.m > 0)
                        kernels[count++] = part;
        }
        int rc = price_kernels(pricing, kernels, count, &pricing->basis->load->launch, &price->norm);
        free(kernels);
        return rc;
}

/* Zero: replicas have an equal share of a chunk, but for one that may have less and those behind it, which
 * have nothing. All chunks but the last of a region are equal. */
static int price_shares(const struct pricing *pricing, const struct stage *stage, const struct plan *plan,
                        struct stage_price *price)
{
        const struct options *o = pricing->options;
        const struct profile_launch *launch = &pricing->basis->load->launch;
        const enum half half = options_format(o);
        struct core_stage part = {.stage = stage->index, .parameters = partition_parameters(&o->gpt, stage)};
        const struct shares shares = shares_of(plan, &part);
        const int chunks = shares_chunks(&shares), rest = chunks - shares_exchanges(&shares);
        const int kinds[] = {0, rest - 1, rest, chunks - 1};
        struct kernel check = workload_overflow(part.parameters, half),
                      clear = workload_clear(part.parameters, half);
        int rc = o->clip > 0 ? price_shared_norm(pricing, stage, &shares, price) : 0;
        if (rc == 0 && o->mixed)
                rc = price_kernels(pricing, &check, 1, launch, &price->check);
        if (rc == 0)
                rc = price_kernels(pricing, &clear, 1, launch, &price->clear);
        for (int i = 0; rc == 0 && i < 4; i++) {
                if (kinds[i] < 0 || kinds[i] >= chunks)
                        continue;
                const int64_t count = shares_chunk(&shares, kinds[i]).count, each = plan_share(plan, count);
                rc = add_updates(pricing, each, shares.update, price);
                if (rc == 0)
                        rc = add_updates(pricing, count % each, shares.update, price);
        }
        return rc;
}

static int price_optimizer(const struct pricing *pricing, const struct stage *stage,
                           struct stage_price *price)
{
        const struct options *o = pricing->options;
        const struct profile_launch *launch = &pricing->basis->load->launch;
        struct plan plan = options_plan(o, false);
        int64_t parameters = partition_parameters(&o->gpt, stage);
        if (plan.zero == 3)
                parameters = plan_share(&plan, parameters);
        const enum half half = options_format(o);
        struct kernel norm = workload_norm(&o->gpt, stage, half), check = workload_overflow(parameters, half);
        int rc = 0;
        price->checked = parameters;
        norm.m = norm.m < parameters ? norm.m : parameters;
        if (plan.zero == 1)
                return price_shares(pricing, stage, &plan, price);
        if (o->clip > 0)
                rc = price_kernels(pricing, &norm, 1, launch, &price->norm);
        if (rc == 0 && o->mixed)
                rc = price_kernels(pricing, &check, 1, launch, &price->check);
        return rc ? rc : add_updates(pricing, parameters, core_update_parameters(&plan, parameters), price);
}

/* What shards do together in a list, equal ones as one; takes them out of it. Returns how many are left. */
static int take_collectives(struct kernel *kernels, int count, struct price_collective *found, int *finds)
{
        int left = 0;
        *finds = 0;
        for (int i = 0; i < count; i++) {
                if (!kernel_collective(kernels[i].kind)) {
                        kernels[left++] = kernels[i];
                        continue;
                }
                int same = 0;
                while (same < *finds && !kernel_same(&found[same].kernel, &kernels[i]))
                        same++;
                assert(same < PRICE_COLLECTIVES);
                if (same == *finds)
                        found[(*finds)++] = (struct price_collective){kernels[i], 0};
                found[same].count++;
        }
        return left;
}

/* One part of a chunk's backward, or both; `kernels` has room for them. Also what shards do together in it.
 */
static int price_backward(const struct pricing *pricing, const struct stage *chunk, enum kernel_part parts,
                          const struct profile_launch *launch, struct kernel *kernels, double *seconds,
                          struct price_collective *found, int *finds)
{
        const struct work work = options_work(pricing->options);
        const int all = workload_backward_part(&pricing->options->gpt, chunk, &work, parts, kernels);
        return price_kernels(pricing, kernels, take_collectives(kernels, all, found, finds), launch, seconds);
}

/* The second part of a backward, where there is one: shards do nothing together in it (those that would are
 * refused by runtime/engine/options.c). */
static int price_weights(const struct pricing *pricing, const struct stage *chunk,
                         const struct profile_launch *launch, struct kernel *kernels, double *seconds)
{
        struct price_collective found[PRICE_COLLECTIVES];
        int finds = 0;
        if (!options_parts_backward(pricing->options))
                return 0;
        int rc = price_backward(pricing, chunk, PART_WEIGHT, launch, kernels, seconds, found, &finds);
        assert(finds == 0);
        return rc;
}

/* A pass goes on when the host has seen that the shards are done: what beginning an operation costs, each
 * time. */
static double resuming(const struct pricing *pricing, const struct price_collective *each, int count)
{
        int times = 0;
        for (int i = 0; i < count; i++)
                times += each[i].count;
        return times * pricing->basis->load->op_overhead_seconds;
}

/* Forward and backward of one chunk. */
static int price_passes(const struct pricing *pricing, const struct stage *chunk, struct stage_price *price)
{
        const struct options *o = pricing->options;
        const struct profile_load *load = pricing->basis->load;
        const struct profile_launch *launch = pricing->basis->graphs ? &load->graph : &load->launch;
        struct work work = options_work(o);
        int forward = workload_forward(&o->gpt, chunk, &work, false, NULL);
        int backward = workload_backward_most(&o->gpt, chunk, &work);
        struct kernel *kernels = malloc((size_t)(forward > backward ? forward : backward) * sizeof *kernels);
        const enum kernel_part parts = options_parts_backward(o) ? PART_INPUT : PART_BOTH;
        if (!kernels)
                return rv_fail(pricing->err, RV_ESYSTEM, "no memory for the kernels of stage %d",
                               chunk->index);
        workload_forward(&o->gpt, chunk, &work, false, kernels);
        forward = take_collectives(kernels, forward, price->tensor.forward, &price->tensor.forwards);
        int rc = price_kernels(pricing, kernels, forward, launch, &price->forward);
        if (rc == 0)
                rc = price_backward(pricing, chunk, parts, launch, kernels, &price->backward,
                                    price->tensor.backward, &price->tensor.backwards);
        if (rc == 0)
                rc = price_weights(pricing, chunk, launch, kernels, &price->weights);
        price->forward += resuming(pricing, price->tensor.forward, price->tensor.forwards);
        price->backward += resuming(pricing, price->tensor.backward, price->tensor.backwards);
        free(kernels);
        return rc;
}

/* The work of one unit of a stage alone. */
static int price_unit(const struct pricing *pricing, const struct stage *unit,
                      const struct profile_launch *launch, double *forward_seconds, double *backward_seconds)
{
        const struct options *o = pricing->options;
        const double start = pricing->basis->load->op_overhead_seconds;
        struct work work = options_work(o);
        const int forward = workload_forward(&o->gpt, unit, &work, false, NULL);
        const int backward = workload_backward(&o->gpt, unit, &work, NULL);
        struct kernel *kernels = malloc((size_t)(forward + backward) * sizeof *kernels);
        if (!kernels)
                return rv_fail(pricing->err, RV_ESYSTEM, "no memory for the kernels of a layer");
        workload_forward(&o->gpt, unit, &work, false, kernels);
        workload_backward(&o->gpt, unit, &work, kernels + forward);
        int rc = price_kernels(pricing, kernels, forward, launch, forward_seconds);
        if (rc == 0)
                rc = price_kernels(pricing, kernels + forward, backward, launch, backward_seconds);
        *forward_seconds -= start;
        *backward_seconds -= start;
        free(kernels);
        return rc;
}

static int price_units(const struct pricing *pricing, const struct stage *whole, struct stage_price *price)
{
        const struct profile_load *load = pricing->basis->load;
        const struct profile_launch *launch = pricing->basis->graphs ? &load->graph : &load->launch;
        int rc = 0;
        for (int unit = 0; rc == 0 && unit < PRICE_UNITS; unit++) {
                struct stage alone = *whole;
                alone.first = unit == PRICE_EMBEDDING;
                alone.last = unit == PRICE_HEAD;
                alone.layers = unit == PRICE_BLOCK;
                rc = price_unit(pricing, &alone, launch, &price->units[unit].forward,
                                &price->units[unit].backward);
        }
        return rc;
}

static int price_stage(const struct pricing *pricing, int index)
{
        const struct options *o = pricing->options;
        const struct stage stage = options_stage(o, index);
        int rc = 0;
        for (int i = 0; rc == 0 && i < stage.chunks; i++) {
                const struct stage chunk = partition_chunk(&stage, i);
                rc = price_passes(pricing, &chunk, &pricing->list->stages[chunk.index]);
        }
        const struct plan plan = options_plan(o, false);
        pricing->list->stages[index].stage = stage;
        pricing->list->stages[index].start = pricing->basis->load->op_overhead_seconds;
        if (rc == 0 && (plan.zero == 3 || plan.overlap_allreduce))
                rc = price_units(pricing, &stage, &pricing->list->stages[index]);
        return rc ? rc : price_optimizer(pricing, &stage, &pricing->list->stages[index]);
}

int price_stages(struct price_list *list, const struct options *options, const struct price_basis *basis,
                 struct rv_error_info *err)
{
        struct pricing pricing = {list, options, basis, err};
        const int stages = options->pp * options->virtual_stages;
        *list = (struct price_list){.pp = options->pp,
                                    .gpt = options->gpt,
                                    .stages = calloc((size_t)stages, sizeof *list->stages)};
        if (!list->stages)
                return rv_fail(err, RV_ESYSTEM, "no memory for the prices of %d stages", stages);
        for (int i = 0; i < options->pp; i++) {
                int rc = price_stage(&pricing, i);
                if (rc)
                        return rc;
        }
        return 0;
}

void price_free(struct price_list *list)
{
        free(list->stages);
        free(list->prices);
        *list = (struct price_list){0};
}

struct partition_span price_span(const struct price_list *list, int stage, const struct op *op)
{
        return partition_span(&list->gpt, &list->stages[stage].stage, op->offset + op->count, op->offset);
}

static double span_seconds(const struct price_list *list, int stage, const struct op *op)
{
        const struct stage_price *price = &list->stages[stage];
        const struct partition_span span = price_span(list, stage, op);
        return price->start + span.head * price->units[PRICE_HEAD].backward +
               span.blocks * price->units[PRICE_BLOCK].backward +
               span.embedding * price->units[PRICE_EMBEDDING].backward;
}

/* A look at some of a stage's gradients takes as much of a look at all: it reads memory. */
static double check_seconds(const struct stage_price *price, int64_t count)
{
        if (count == price->checked)
                return price->check;
        return price->start + (price->check - price->start) * (double)count / (double)price->checked;
}

double price_operation(const struct price_list *list, int stage, const struct op *op)
{
        const struct stage_price *price = &list->stages[op->chunk * list->pp + stage];
        switch (op->kind) {
        case OP_FORWARD:
                return price->forward;
        case OP_BACKWARD:
                if (op->count > 0)
                        return span_seconds(list, stage, op);
                return op->parts == OP_WEIGHT_GRADIENT ? price->weights : price->backward;
        case OP_NORM:
                return price->norm;
        case OP_CHECK_OVERFLOW:
                return check_seconds(price, op->count);
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
