#include "runtime/engine/estimate.h"

#include "runtime/sched/policy.h"

#include <math.h>
#include <stdlib.h>

/* The pipeline's times on one stage, and what follows there: seconds since the batch began. */
struct stage_estimate {
        int64_t parameters;
        double forward, backward;             /* of a micro-batch through all chunks of the rank */
        double first_forward, first_backward; /* and through the first one */
        double weights;      /* of a backward in two parts the second, `backward` being the first; else 0 */
        double copy;         /* a micro-batch's activations one way; 0: not offloaded here */
        double round_trip;   /* from the begin of a forward here to the end of its backward here */
        double pipeline_end; /* nothing is left to compute for a micro-batch */
        int chunks;          /* all-reduces of gradients */
        double chunk;        /* seconds of each but the one with what is left, */
        double short_chunk;  /* and of that */
        double chunks_begin, chunks_end, gradients_end; /* the last: also of a shared embedding */
        double norm_end;
};

struct estimation {
        const struct options *options;
        const struct estimate_prices *prices;
        struct plan plan;
        double message, message_part; /* staged, with its copies, and the longest of the three */
        double message_held;          /* blocking: what a message keeps a stage at each end from computing */
        struct stage_estimate *stages;
};

/* The larger; not known if either is not (fmax would forget it). */
static double later(double a, double b)
{
        return isnan(a) || a > b ? a : b;
}

static double price_tensor(const struct estimation *e, const struct kernel *k)
{
        const struct estimate_prices *p = e->prices;
        const int64_t bytes = kernel_collective_bytes(k, sizeof(float));
        if (p->tensor)
                return p->tensor(p->context, k->kind, bytes, e->plan.tp);
        const double rounds = k->kind == KERNEL_TENSOR_ALLREDUCE ? 1 : 0.5;
        return rounds * p->allreduce(p->context, bytes, e->plan.tp);
}

static double price_kernels(const struct estimation *e, const struct kernel *kernels, int count)
{
        double seconds = 0;
        for (int i = 0; i < count; i++)
                seconds += kernel_collective(kernels[i].kind)
                                   ? price_tensor(e, &kernels[i])
                                   : e->prices->kernel(e->prices->context, &kernels[i]);
        return seconds;
}

static double price_allreduce(const struct estimation *e, int64_t bytes, int ranks)
{
        return ranks > 1 ? e->prices->allreduce(e->prices->context, bytes, ranks) : 0;
}

static double price_copy(const struct estimation *e, int64_t bytes)
{
        return e->prices->copy(e->prices->context, bytes);
}

/* From the end of one stage's work to the begin of the next one's; and its longest part, which paces those
 * that follow each other. */
static void price_message(struct estimation *e)
{
        const int64_t bytes = e->plan.message_bytes;
        const double copy = e->plan.stage_messages ? price_copy(e, bytes) : 0;
        const double message = e->prices->message(e->prices->context, bytes);
        e->message = message + 2 * copy;
        e->message_part = later(message, copy);
        e->message_held = e->plan.blocking ? message + copy : 0;
}

/* Of gradients: `count` parameters, after others of the same size or alone. Staged, a chunk's copies run
 * beside its neighbours' sums; the first copy out and the last copy in have none beside them. */
static double price_sum(const struct estimation *e, int64_t count, int ranks, bool alone)
{
        const int64_t bytes = count * e->plan.element_bytes;
        const double part = e->plan.zero == 1 && ranks == e->plan.dp ? 0.5 : 1; /* a reduce-scatter */
        const double sum = part * price_allreduce(e, bytes, ranks);
        if (!e->plan.stage_allreduce)
                return sum;
        const double copy = price_copy(e, bytes);
        return alone ? sum + 2 * copy : later(sum, copy);
}

/* Forward and backward, or the first part of one in two, of a micro-batch through `part`; the second part is
 * `weights`. Returns whether there was memory. */
static bool price_passes(const struct estimation *e, const struct stage *part, double *forward_seconds,
                         double *backward_seconds, double *weights)
{
        const struct gpt *gpt = &e->options->gpt;
        struct work work = options_work(e->options);
        int forward = workload_forward(gpt, part, &work, false, NULL);
        int most = workload_backward_most(gpt, part, &work);
        const bool parted = options_parts_backward(e->options);
        const enum kernel_part parts = parted ? PART_INPUT : PART_BOTH;
        struct kernel *kernels = malloc((size_t)(forward > most ? forward : most) * sizeof *kernels);
        if (!kernels)
                return false;
        workload_forward(gpt, part, &work, false, kernels);
        *forward_seconds = price_kernels(e, kernels, forward);
        *backward_seconds =
                price_kernels(e, kernels, workload_backward_part(gpt, part, &work, parts, kernels));
        if (parted)
                *weights = price_kernels(e, kernels,
                                         workload_backward_part(gpt, part, &work, PART_WEIGHT, kernels));
        free(kernels);
        return true;
}

static bool price_micro_batch(const struct estimation *e, const struct stage *part, struct stage_estimate *s)
{
        const struct stage first = partition_chunk(part, 0);
        if (!price_passes(e, part, &s->forward, &s->backward, &s->weights))
                return false;
        s->first_forward = s->forward;
        s->first_backward = s->backward;
        return part->chunks == 1 || price_passes(e, &first, &s->first_forward, &s->first_backward, NULL);
}

/* Stages in the middle that have as many layers do the same. */
static bool same_stage(const struct stage *a, const struct stage *b)
{
        return !a->first && !a->last && !b->first && !b->last && a->layers == b->layers;
}

static bool price_stage(const struct estimation *e, int index)
{
        const struct gpt *gpt = &e->options->gpt;
        struct stage part = options_stage(e->options, index);
        struct stage_estimate *s = &e->stages[index];
        *s = (struct stage_estimate){.parameters = partition_parameters(gpt, &part)};
        if (e->plan.zero == 3)
                s->parameters = plan_share(&e->plan, s->parameters);
        if (core_limits(&e->plan, index).host_slots > 0) {
                struct memory_plan memory = options_memory(e->options, index);
                s->copy = price_copy(e, memory_layout(gpt, &part, &memory).slot);
        }
        struct stage before = options_stage(e->options, index > 0 ? index - 1 : 0);
        if (!same_stage(&part, &before))
                return price_micro_batch(e, &part, s);
        s->forward = s[-1].forward;
        s->backward = s[-1].backward;
        s->first_forward = s[-1].first_forward;
        s->first_backward = s[-1].first_backward;
        s->weights = s[-1].weights;
        return true;
}

/* Round trips from the last stage to the first. */
static void add_round_trips(const struct estimation *e)
{
        double beyond = 0;
        for (int i = e->plan.pp - 1; i >= 0; i--) {
                struct stage_estimate *s = &e->stages[i];
                s->round_trip = s->forward + s->backward + beyond;
                beyond = s->round_trip + 2 * e->message;
        }
}

/* Micro-batches that a stage may have between forward and the end of backward. */
static int window(const struct plan *plan, int stage)
{
        int most = plan->policy == POLICY_1F1B ? plan->pp - stage : core_pipeline_limit(plan);
        return most < plan->micro_batches ? most : plan->micro_batches;
}

/* The part of `trip` in which a stage has nothing to do but `works` pieces of `work`. */
static double idle(double trip, int works, double work)
{
        return later(0, trip - works * work);
}

/* Blocking: what a micro-batch's messages take of a stage, on their way there and back together. Those of
 * 1F1B go in pairs, one each way. */
static double held(const struct estimation *e, int index)
{
        int neighbours = (index > 0) + (index < e->plan.pp - 1);
        return neighbours * e->message_held * (e->plan.policy == POLICY_GPIPE ? 2 : 1);
}

/* And all of them, but for those of the first micro-batch on the stages before. The second one meets the
 * first one's gradient once only. */
static double messages_held(const struct estimation *e, int index)
{
        int m = e->plan.micro_batches, last = e->plan.pp - 1;
        double first = index < last ? 2 * e->message_held : 0;
        return first + (m - 1) * held(e, index) - (last > 1 && m > 1 ? e->message_held : 0);
}

/* What the batch takes at least for the sake of one stage; `before`: of a micro-batch on the stages before
 * it; `longest`: of one piece of work on it or a stage or hop after it. */
static double stage_bound(const struct estimation *e, int index, double before, double longest)
{
        const struct stage_estimate *s = &e->stages[index];
        int m = e->plan.micro_batches, w = window(&e->plan, index);
        double work = s->forward + s->backward, beyond = s->round_trip - work;
        double busy = m * work + messages_held(e, index);
        if (e->plan.blocking)
                beyond -= 2 * (e->plan.pp - 1 - index) * e->message;
        if (m > w)
                busy += idle(beyond, w - 1, s->forward) + idle(beyond, w - 1, s->backward);
        double rounds = (1 + (m - 1) / w) * s->round_trip + (m - 1) % w * longest;
        return before + later(later(busy, rounds), work + (m + 1) * s->copy);
}

static double windowed_pipeline(const struct estimation *e)
{
        double bound = 0, longest = 0, before = 0;
        for (int i = 0; i < e->plan.pp; i++)
                before += e->stages[i].forward + e->stages[i].backward + 2 * e->message;
        for (int i = e->plan.pp - 1; i >= 0; i--) {
                const struct stage_estimate *s = &e->stages[i];
                before -= s->forward + s->backward + 2 * e->message;
                longest = later(longest, later(s->forward, s->backward));
                bound = later(bound, stage_bound(e, i, before, longest));
                longest = later(longest, e->message_part);
        }
        return bound;
}

/* Interleaved, a micro-batch goes around all ranks once a chunk. On each rank: all its work, or one round
 * trip for every w micro-batches that its first chunk may store, and one piece of work for each that remains;
 * before and after it, the first chunks of the ranks before. */
static double interleaved_pipeline(const struct estimation *e)
{
        const struct plan *plan = &e->plan;
        const struct policy *policy = policy_get(plan->policy);
        const int m = plan->micro_batches;
        double bound = 0, before = 0, trip = 2 * (plan_pieces(plan) / m * plan->pp - 1) * e->message;
        for (int i = 0; i < plan->pp; i++)
                trip += e->stages[i].forward + e->stages[i].backward;
        for (int i = 0; i < plan->pp; i++) {
                const struct stage_estimate *s = &e->stages[i];
                const int w = policy->stored(plan, i, 0, core_pipeline_limit(plan));
                const double longest = later(s->first_forward, s->first_backward);
                const double rounds = (1 + (m - 1) / w) * (trip - before) + (m - 1) % w * longest;
                /* Blocking: every forward, or on the last rank backward, is followed by its message. */
                const double busy =
                        m * (s->forward + s->backward) + (plan_pieces(plan) - 1) * e->message_held;
                bound = later(bound, before + later(busy, rounds));
                before += s->first_forward + s->first_backward + 2 * e->message;
        }
        return bound;
}

/* What all micro-batches but the first add where each takes `work`, beside `messages` that hold it up, and
 * cannot be worked on before the last but one before it was copied. */
static double following(const struct estimation *e, double work, double messages, double copy)
{
        int m = e->plan.micro_batches;
        return m < 2 ? 0 : later((m - 1) * (work + messages), work + (m - 2) * copy);
}

/* Every forward, then every backward: two flow shops of equal jobs. */
static double gpipe_pipeline(const struct estimation *e)
{
        double hop = e->plan.pp > 1 ? following(e, e->message_part, 0, 0) : 0, forward = hop, backward = hop;
        double sum = 2 * (e->plan.pp - 1) * e->message;
        for (int i = 0; i < e->plan.pp; i++) {
                const struct stage_estimate *s = &e->stages[i];
                sum += s->forward + s->backward;
                double messages = held(e, i) / 2;
                forward = later(forward, following(e, s->forward, messages, s->copy));
                backward = later(backward, following(e, s->backward, messages, s->copy));
        }
        return sum + forward + backward;
}

/* Zero-bubble: a stage begins when the first micro-batch comes, waits for its gradient with nothing to do but
 * the warm-up's forwards, and has the gradients of weights that it kept back to do after the last one. Fills
 * in when each stage is done. */
static double zero_bubble_pipeline(struct estimation *e)
{
        const int m = e->plan.micro_batches, pp = e->plan.pp;
        double begin = 0, last = 0, end = 0;
        for (int i = 0; i < pp; i++)
                begin += e->stages[i].forward + e->message;
        for (int i = pp - 1; i >= 0; i--) {
                struct stage_estimate *s = &e->stages[i];
                const int ahead = pp - 1 - i < m ? pp - 1 - i : m - 1, kept = i + 1 < m ? i + 1 : m;
                const double beyond = s->round_trip - s->forward - s->backward;
                begin -= s->forward + e->message;
                double own = begin + m * (s->forward + s->backward) + (m - kept) * s->weights +
                             idle(beyond, ahead, s->forward);
                last = i < pp - 1 ? later(own, last + e->message + s->backward) : own;
                s->pipeline_end = last + kept * s->weights;
                end = later(end, s->pipeline_end);
        }
        return end;
}

/* Fills in when each stage's last backward ends: the first stage's is the pipeline's. */
static double estimate_pipeline(struct estimation *e)
{
        add_round_trips(e);
        const enum policy_id policy = e->plan.policy;
        if (policy == POLICY_ZERO_BUBBLE)
                return zero_bubble_pipeline(e);
        double end = policy == POLICY_GPIPE         ? gpipe_pipeline(e)
                     : policy == POLICY_INTERLEAVED ? interleaved_pipeline(e)
                                                    : windowed_pipeline(e),
               after = end;
        for (int i = 0; i < e->plan.pp; i++) {
                e->stages[i].pipeline_end = after;
                after -= e->stages[i].first_backward + e->message;
        }
        return end;
}

/* Overlapped: when the nth chunk in order, from the end of memory, has been summed, if a backward makes
 * parameters final at an even pace (later than it is where the embedding, which takes no time, has many, and
 * earlier than in whole layers). The first sum is the short one. Chunks become final as evenly as they are
 * summed, so the lane is busy from the first of them on, or waits for the nth. */
static double overlapped_end(const struct estimation *e, const struct stage_estimate *s, int64_t nth)
{
        const int64_t size = core_chunk_parameters(&e->plan);
        const double share = s->first_backward * (double)size / (double)s->parameters;
        const double first = s->pipeline_end - share * (double)(s->chunks - 1);
        const double own = nth == s->chunks - 1 ? s->chunks_begin : first + share * (double)nth;
        const double last = nth == 0 ? s->short_chunk : s->chunk;
        return later(first + s->short_chunk + (double)nth * s->chunk, own + last);
}

/* All-reduces of each stage's gradients, one after another, then of the embedding that first and last share.
 */
static void add_allreduces(struct estimation *e)
{
        const struct plan *plan = &e->plan;
        int64_t size = plan->bucket_parameters * plan->allreduce_buckets;
        for (int i = 0; i < plan->pp; i++) {
                struct stage_estimate *s = &e->stages[i];
                struct kernel check = workload_overflow(s->parameters, options_format(e->options));
                s->chunks_begin = s->pipeline_end + (plan->mixed ? price_kernels(e, &check, 1) : 0);
                if (e->plan.sequence_parallel) {
                        const struct core_stage part = options_core_stage(e->options, i, 0);
                        const struct kernel sum = {.kind = KERNEL_TENSOR_ALLREDUCE,
                                                   .half = (unsigned char)options_format(e->options),
                                                   .m = 1,
                                                   .n = part.replicated_count};
                        s->chunks_begin += price_tensor(e, &sum);
                }
                s->chunks_end = s->gradients_end = s->chunks_begin;
                if (plan->dp == 1 || plan->zero == 3)
                        continue;
                s->chunks = (int)((s->parameters + size - 1) / size);
                int64_t last = s->parameters - (s->chunks - 1) * size;
                s->chunk = s->chunks > 1 ? price_sum(e, size, plan->dp, false) : 0;
                s->short_chunk = price_sum(e, last, plan->dp, false);
                s->chunks_end += (s->chunks - 1) * s->chunk + price_sum(e, last, plan->dp, true);
                if (plan->overlap_allreduce && s->chunks > 1)
                        s->chunks_end = overlapped_end(e, s, s->chunks - 1);
                s->gradients_end = s->chunks_end;
        }
        if (plan->tied) {
                struct stage_estimate *first = &e->stages[0], *last = &e->stages[plan->pp - 1];
                first->gradients_end = last->gradients_end =
                        later(first->gradients_end, last->gradients_end) +
                        price_sum(e, plan->embedding_parameters, 2, true);
        }
}

/* When all ranks know that none overflowed; 0: nobody looks. */
static double overflow_known(const struct estimation *e)
{
        double known = 0;
        if (!e->plan.mixed)
                return 0;
        for (int i = 0; i < e->plan.pp; i++)
                known = later(known, e->stages[i].chunks_begin);
        return known + price_allreduce(e, (int64_t)sizeof(double), plan_ranks(&e->plan));
}

/* Norms of all stages, and when all ranks know their sum and the loss. */
static double scalars_known(struct estimation *e, double no_overflow)
{
        double known = 0;
        for (int i = 0; i < e->plan.pp; i++) {
                struct stage_estimate *s = &e->stages[i];
                struct stage part = options_stage(e->options, i);
                struct kernel norm = workload_norm(&e->options->gpt, &part, options_format(e->options));
                s->norm_end = e->plan.clip ? later(s->gradients_end, no_overflow) + price_kernels(e, &norm, 1)
                                           : s->chunks_begin;
                known = later(known, s->norm_end);
        }
        return later(known, no_overflow) +
               price_allreduce(e, 2 * (int64_t)sizeof(double), plan_ranks(&e->plan));
}

/* The updates of a stage, in memory and in the core's order. */
struct update_order {
        const struct stage_estimate *stage;
        const struct estimation *e;
        int index;
        int64_t size, updates, first; /* parameters of each but the one with what is left; which is first */
        int64_t chunk_size, first_chunk;    /* chunks are in order, from the first and around the end */
        int64_t shared_begin, shared_count; /* the shared embedding */
};

static struct update_order order_updates(const struct estimation *e, int index)
{
        const struct stage_estimate *s = &e->stages[index];
        const struct plan *plan = &e->plan;
        const bool shares = plan->tied && (index == 0 || index == plan->pp - 1);
        struct update_order order = {.stage = s,
                                     .e = e,
                                     .index = index,
                                     .size = core_update_parameters(plan, s->parameters),
                                     .first = core_nth_update(plan, index, s->parameters, 0),
                                     .chunk_size = plan->bucket_parameters * plan->allreduce_buckets,
                                     .shared_count = shares ? plan->embedding_parameters : 0};
        order.updates = (s->parameters + order.size - 1) / order.size;
        order.first_chunk = order.first * order.size / order.chunk_size;
        order.shared_begin = index == 0 ? 0 : s->parameters - order.shared_count;
        return order;
}

/* When the chunk that a parameter is in has been summed. */
static double chunk_ready(const struct update_order *order, int64_t parameter)
{
        const struct stage_estimate *s = order->stage;
        if (s->chunks < 2)
                return s->chunks_end;
        if (order->e->plan.overlap_allreduce)
                return overlapped_end(order->e, s, s->chunks - 1 - parameter / order->chunk_size);
        int64_t nth = (parameter / order->chunk_size - order->first_chunk + s->chunks) % s->chunks;
        bool short_one = nth >= s->chunks - 1 - order->first_chunk;
        if (nth == s->chunks - 1)
                return s->chunks_end;
        return s->chunks_begin + (double)(nth + !short_one) * s->chunk + (short_one ? s->short_chunk : 0);
}

/* When the gradients of the nth update in order are final: of a shared embedding after its exchange. */
static double gradients_ready(const struct update_order *order, int64_t nth)
{
        const struct stage_estimate *s = order->stage;
        int64_t begin = core_nth_update(&order->e->plan, order->index, s->parameters, (int)nth) * order->size;
        int64_t end = begin + order->size;
        if (end > s->parameters)
                end = s->parameters;
        if (begin < order->shared_begin + order->shared_count && end > order->shared_begin)
                return order->stage->gradients_end;
        return later(chunk_ready(order, begin), chunk_ready(order, end - 1));
}

/* One update of `count` parameters, and a copy of what it works on. */
struct update_prices {
        double update, copy;
};

static struct update_prices price_update(const struct estimation *e, int64_t count)
{
        struct kernel kernels[WORKLOAD_UPDATE_KERNELS];
        return (struct update_prices){
                price_kernels(e, kernels, workload_update(count, options_format(e->options), kernels)),
                e->plan.offload ? price_copy(e, plan_offloaded_bytes(count)) : 0};
}

/* Zero: the replica's share, when all is summed; each chunk's weights are gathered behind its updates. */
static double shared_updates_end(const struct estimation *e, const struct stage_estimate *s, double permitted)
{
        const struct plan *plan = &e->plan;
        const int64_t own = plan->zero == 1 ? plan_share(plan, s->parameters) : s->parameters;
        const int64_t size = core_update_parameters(plan, s->parameters);
        const struct update_prices each = price_update(e, size);
        const double updates = (double)own / (double)size;
        const double slowest = later(each.update, each.copy);
        const double begin = later(later(permitted, s->gradients_end), s->norm_end);
        const double work = plan->offload ? (updates + 2) * slowest : updates * each.update;
        if (plan->zero != 1)
                return begin + work;
        const double gathers = s->chunks_end - s->chunks_begin, chunk = gathers / s->chunks;
        return begin + later(work + chunk, work / s->chunks + gathers);
}

/* The updates of a stage that may begin when `permitted`, and, offloaded, the copies beside them: a fetch
 * needs a buffer that has been written back. Returns when the last one ends. More than MOST_STEPS updates are
 * worked out in as many steps, each as if its updates were one. */
static double updates_end(const struct estimation *e, int index, double permitted)
{
        enum { MOST_STEPS = 4096 };
        const struct stage_estimate *s = &e->stages[index];
        const struct plan *plan = &e->plan;
        if (plan->zero)
                return shared_updates_end(e, s, permitted);
        const struct update_order order = order_updates(e, index);
        const int64_t step = (order.updates + MOST_STEPS - 1) / MOST_STEPS;
        const int64_t behind = order.updates - 1 - order.first; /* the one with what is left, in order */
        const int64_t short_one = plan->overlap_allreduce && behind ? order.updates - behind : behind;
        const struct update_prices each = price_update(e, order.size),
                                   left = price_update(e, s->parameters - (order.updates - 1) * order.size);
        double computed = s->norm_end, fetched = s->pipeline_end;
        double written[PLAN_UPDATE_BUFFERS] = {0}, last_written = 0;
        for (int64_t i = 0; i * step < order.updates; i++) {
                int64_t begin = i * step, end = begin + step < order.updates ? begin + step : order.updates;
                bool has_short = begin <= short_one && short_one < end;
                double whole = (double)(end - begin - has_short);
                double update = whole * each.update + (has_short ? left.update : 0);
                double copy = whole * each.copy + (has_short ? left.copy : 0);
                double ready = plan->clip ? permitted : later(permitted, gradients_ready(&order, end - 1));
                if (plan->offload) {
                        fetched = later(fetched, written[i % PLAN_UPDATE_BUFFERS]) + copy;
                        ready = later(ready, fetched);
                }
                computed = later(computed, ready) + update;
                last_written = written[i % PLAN_UPDATE_BUFFERS] = later(last_written, computed) + copy;
        }
        return plan->offload ? last_written : computed;
}

static void estimate_update(struct estimation *e, double pipeline_end, struct estimate *estimate)
{
        add_allreduces(e);
        double no_overflow = overflow_known(e), scalars = scalars_known(e, no_overflow);
        double allreduced = pipeline_end, ended = scalars;
        for (int i = 0; i < e->plan.pp; i++) {
                bool shares = e->plan.tied && (i == 0 || i == e->plan.pp - 1);
                if (e->stages[i].chunks || shares)
                        allreduced = later(allreduced, e->stages[i].gradients_end);
                ended = later(ended, updates_end(e, i, e->plan.clip ? scalars : no_overflow));
        }
        estimate->pipeline_seconds = pipeline_end;
        estimate->allreduce_seconds = allreduced - pipeline_end;
        estimate->optimizer_seconds = ended - allreduced;
        estimate->batch_seconds = ended;
}

struct estimate estimate_batch(const struct options *options, const struct estimate_prices *prices)
{
        struct estimate estimate = {NAN, NAN, NAN, NAN};
        struct estimation e = {.options = options, .prices = prices, .plan = options_plan(options, false)};
        e.stages = malloc((size_t)options->pp * sizeof *e.stages);
        bool priced = e.stages;
        for (int i = 0; priced && i < options->pp; i++)
                priced = price_stage(&e, i);
        if (priced) {
                if (options->pp > 1)
                        price_message(&e);
                estimate_update(&e, estimate_pipeline(&e), &estimate);
        }
        free(e.stages);
        return estimate;
}
