#include "sim/world/paper_batch.h"

#include "runtime/engine/paper_plan.h"
#include "sim/collective/collective_model.h"
#include "sim/world/copies.h"
#include "sim/world/tensor.h"

#include <math.h>

/* The links of a machine, under one plan. */
struct machine_links {
        const struct costs *costs;
        const struct price_nudge *nudge;
        struct memo *collectives, *tensors; /* may be NULL */
        struct plan plan;
};

static double nudged(const struct machine_links *l, enum price_of price, int64_t bytes, double seconds)
{
        return l->nudge ? seconds * l->nudge->factor(l->nudge->context, price, NULL, bytes) : seconds;
}

/* From one rank to another, while those beside it in its position do the same. */
static double message_seconds(const struct machine_links *l, int from, int to)
{
        const struct platform *p = &l->costs->platform;
        const int64_t bytes = l->plan.message_bytes;
        const bool fits_only = l->costs->machine->fits_only;
        if (p->messages)
                return profile_line_seconds(p->messages, LINE_MESSAGE, bytes, fits_only);
        if (p->xml[0])
                return 0;
        const int first = from < to ? from : to, second = from < to ? to : from;
        const int stride = plan_stride(&l->plan, GRID_STAGES);
        const struct collective_group pair = {first, second - first, 2,
                                              stride < p->gpus_per_node ? stride : p->gpus_per_node};
        const struct collective_shape shape = collective_shape(p, &pair);
        if (shape.nodes > 1)
                return shape.far_seconds + (double)bytes / shape.far_alone_bytes_per_second;
        if (!l->plan.stage_messages)
                return shape.near_seconds + (double)bytes / shape.near_bytes_per_second;
        const double rate = p->host_memory_bytes_per_second; /* staged: from host memory to host memory */
        return rate > 0 ? (double)bytes / rate : 0;
}

static double message(void *context, int from, int to)
{
        const struct machine_links *l = context;
        return nudged(l, PRICE_MESSAGE, l->plan.message_bytes, message_seconds(l, from, to));
}

static double tensor(void *context, int rank, const struct price_pass *pass)
{
        const struct machine_links *l = context;
        return nudged(l, PRICE_TENSOR, 0,
                      tensor_seconds(&l->costs->platform, &l->plan, rank, pass, l->tensors));
}

static double collective_of(const struct machine_links *l, int rank, const struct op *op)
{
        const struct plan_group group = plan_group(&l->plan, rank, op->group);
        const struct platform *p = &l->costs->platform;
        if (group.size < 2)
                return 0;
        if (op->kind == OP_DECISION)
                return tensor_decision_seconds(p, group, op->bytes);
        if (op_of_pass(op) && op->lane != LANE_TENSOR)
                return tensor_unit_seconds(p, group, l->plan.tp, l->costs->machine->load, op,
                                           l->costs->options->dtype);
        const struct collective_group gpus = costs_group(l->costs, group, op->group);
        const enum collective_kind kind = costs_collective(op);
        const enum dtype format = costs_format(l->costs, op);
        if (p->stages_shards && plan_group_of_shards(op->group))
                return tensor_sum_seconds(p, &gpus, op->bytes, format);
        const double key[] = {kind,
                              format,
                              (double)op->bytes,
                              gpus.first,
                              gpus.stride,
                              gpus.count,
                              gpus.beside,
                              p->gpu_link_seconds,
                              p->gpu_link_bytes_per_second};
        /* The rates of links that were measured are of the plan's messages, see costs_open. */
        enum { KEYS = sizeof key / sizeof *key };
        const double *known = l->collectives ? memo_find(l->collectives, key, KEYS) : NULL;
        if (known)
                return *known;
        const double seconds = collective_seconds(p, &gpus, kind, op->bytes, format);
        if (l->collectives)
                memo_keep(l->collectives, key, KEYS, &seconds, 1);
        return seconds;
}

static double collective(void *context, int rank, const struct op *op)
{
        const struct machine_links *l = context;
        const enum price_of price = op->kind == OP_DECISION ? PRICE_MESSAGE : PRICE_ALLREDUCE;
        return nudged(l, price, op->bytes, collective_of(l, rank, op));
}

/* GPUs of a socket copy at the same time, and share its memory: while all copy one way, or both. */
static double copy_rate(const struct platform *p, int gpus, int ways)
{
        const int here = p->gpus_per_node < gpus ? p->gpus_per_node : gpus;
        const int of_socket = (here + p->sockets - 1) / p->sockets;
        double rate = p->host_link_bytes_per_second;
        if (p->pcie_bytes_per_second > 0)
                rate = fmin(rate, p->pcie_bytes_per_second);
        if (p->host_memory_bytes_per_second > 0)
                rate = fmin(rate, p->host_memory_bytes_per_second / (ways * of_socket));
        return rate;
}

static double copy_seconds(const struct machine_links *l, const struct op *op, bool both)
{
        const struct platform *p = &l->costs->platform;
        const struct machine *m = l->costs->machine;
        if (p->copies)
                return copies_seconds(p, op, m->fits_only, both);
        if (p->host_link_bytes_per_second == 0)
                return 0;
        return p->host_link_seconds + (double)op->bytes / copy_rate(p, m->gpus, both ? 2 : 1);
}

static double copy(void *context, const struct op *op, bool both)
{
        const struct machine_links *l = context;
        return nudged(l, PRICE_COPY, op->bytes, copy_seconds(l, op, both));
}

static const struct price_list *prices(void *context, int rank)
{
        return costs_prices(((const struct machine_links *)context)->costs, rank);
}

static double priced_batch(const struct machine *machine, const struct options *options,
                           const struct price_nudge *nudge, bool whole, struct paper_bound *bound,
                           struct paper_memo *memo, struct rv_error_info *err)
{
        struct costs costs;
        const bool passes_only = bound && bound->limit <= 0; /* see paper_plan_seconds */
        const int rc =
                costs_open(&costs, options, machine, nudge, memo ? &memo->workloads : NULL, passes_only, err);
        struct machine_links context = {.costs = &costs,
                                        .nudge = nudge,
                                        .collectives = memo ? &memo->collectives : NULL,
                                        .tensors = memo ? &memo->tensors : NULL,
                                        .plan = options_plan(options, false)};
        const struct paper_links links = {.message = message,
                                          .collective = collective,
                                          .tensor = tensor,
                                          .copy = copy,
                                          .prices = prices,
                                          .context = &context,
                                          .folded = !costs.platform.groups,
                                          .places = costs.platform.gpus_per_node};
        const double step = rc ? 0 : machine_framework_step(machine, options);
        struct paper_bound own = {bound ? bound->limit - step : INFINITY, 0};
        const double found = rc ? NAN
                                : step + paper_plan_seconds(options, &links, whole, bound ? &own : NULL,
                                                            memo ? &memo->pipelines : NULL);
        if (bound)
                bound->least = step + own.least;
        if (rc == 0 && isnan(found))
                rv_fail(err, RV_ESYSTEM, "no memory to run %d ranks on paper", (int)options_ranks(options));
        costs_close(&costs);
        return found;
}

void paper_memo_free(struct paper_memo *memo)
{
        memo_free(&memo->pipelines);
        memo_free(&memo->collectives);
        memo_free(&memo->tensors);
        workloads_free(&memo->workloads);
}

double paper_batch_priced(const struct machine *machine, const struct options *options,
                          struct paper_bound *bound, struct paper_memo *memo, struct rv_error_info *err)
{
        return priced_batch(machine, options, NULL, false, bound, memo, err);
}

double paper_batch_nudged(const struct machine *machine, const struct options *options,
                          const struct price_nudge *nudge, struct paper_memo *memo)
{
        struct rv_error_info ignored;
        return priced_batch(machine, options, nudge, false, NULL, memo, &ignored);
}

double paper_batch_seconds(const struct machine *machine, const struct options *options)
{
        return paper_batch_nudged(machine, options, NULL, NULL);
}

double paper_batch_of(void *machine, const struct options *options)
{
        return paper_batch_seconds(machine, options);
}

double paper_batch_whole(const struct machine *machine, const struct options *options)
{
        struct rv_error_info ignored;
        return priced_batch(machine, options, NULL, true, NULL, NULL, &ignored);
}
