#include "sim/search/answer.h"

#include "runtime/base/child.h"
#include "sim/search/search.h"
#include "sim/world/paper_batch.h"
#include "sim/world/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *answer_part_name(enum answer_part part)
{
        static const char *const names[ANSWER_PARTS] = {"kernels",  "shards", "replicas",
                                                        "messages", "copies", "launches"};
        return names[part];
}

const char *answer_change_name(enum answer_what what)
{
        static const char *const names[ANSWER_CHANGES] = {"device_memory", "network", "node_links",
                                                          "host_links",    "batch",   "fp8"};
        return names[what];
}

/* ---- which links are whose ---- */

/* Whether some group of a kind has members on several nodes. */
static bool group_leaves(const struct machine *m, const struct plan *plan, enum op_group kind)
{
        for (int rank = 0; rank < plan_ranks(plan); rank++) {
                const struct plan_group group = plan_group(plan, rank, kind);
                if (group.size > 1 && tensor_leaves_node(&m->platform, group))
                        return true;
        }
        return false;
}

static bool messages_leave(const struct machine *m, const struct plan *plan)
{
        for (int rank = 0; plan->pp > 1 && rank < plan_ranks(plan); rank++)
                if (platform_place(&m->platform, rank).node !=
                    platform_place(&m->platform, plan_next_rank(plan, rank)).node)
                        return true;
        return false;
}

static void find_links(const struct machine *m, const struct options *o, bool far[ANSWER_PARTS])
{
        static const enum op_group shards[] = {GROUP_TENSOR, GROUP_TENSOR_X, GROUP_TENSOR_Z, GROUP_EXPERTS,
                                               GROUP_CONTEXT};
        const struct plan plan = options_plan(o, false);
        memset(far, 0, ANSWER_PARTS * sizeof *far);
        for (size_t i = 0; i < sizeof shards / sizeof *shards; i++)
                far[ANSWER_SHARDS] = far[ANSWER_SHARDS] || group_leaves(m, &plan, shards[i]);
        far[ANSWER_REPLICAS] = group_leaves(m, &plan, GROUP_DATA);
        far[ANSWER_MESSAGES] = messages_leave(m, &plan);
}

/* ---- what the time depends on ---- */

static enum answer_part part_of(enum price_of price)
{
        static const enum answer_part parts[] = {
                [PRICE_KERNEL] = ANSWER_KERNELS,     [PRICE_MESSAGE] = ANSWER_MESSAGES,
                [PRICE_ALLREDUCE] = ANSWER_REPLICAS, [PRICE_TENSOR] = ANSWER_SHARDS,
                [PRICE_COPY] = ANSWER_COPIES,        [PRICE_HOST] = ANSWER_LAUNCHES};
        return parts[price];
}

/* Prices by part are multiplied by these. */
static double factor(void *factors, enum price_of price, const struct kernel *kernel, int64_t bytes)
{
        (void)kernel;
        (void)bytes;
        return ((const double *)factors)[part_of(price)];
}

static double seconds_with(const struct machine *m, const struct options *o, double factors[ANSWER_PARTS],
                           struct paper_memo *memo)
{
        const struct price_nudge nudge = {factor, factors};
        return paper_batch_nudged(m, o, &nudge, memo);
}

static void find_shares(const struct machine *m, const struct options *o, struct paper_memo *memo,
                        struct answer_shares *shares)
{
        const double less = 0.1, seconds = paper_batch_seconds(m, o);
        find_links(m, o, shares->far);
        for (int part = 0; part < ANSWER_PARTS; part++) {
                double factors[ANSWER_PARTS] = {1, 1, 1, 1, 1, 1};
                factors[part] = 1 - less;
                const double share = (1 - seconds_with(m, o, factors, memo) / seconds) / less;
                shares->share[part] = share > 0 ? share : 0; /* NAN too */
        }
}

/* What links that are `times` as fast multiply prices by. */
static void faster_links(enum answer_what what, double times, const bool far[ANSWER_PARTS],
                         double factors[ANSWER_PARTS])
{
        for (int part = 0; part < ANSWER_PARTS; part++) {
                const bool linked =
                        part == ANSWER_SHARDS || part == ANSWER_REPLICAS || part == ANSWER_MESSAGES;
                const bool faster = (what == ANSWER_NETWORK && linked && far[part]) ||
                                    (what == ANSWER_NODE_LINKS && linked && !far[part]) ||
                                    (what == ANSWER_HOST_LINKS && part == ANSWER_COPIES);
                factors[part] = faster ? 1 / times : 1;
        }
}

/* Seconds for a sequence under a change; NAN: the plan is none then, does not fit, or has no price. */
static double seconds_changed(const struct candidate *c, enum answer_what what, double times,
                              struct paper_memo *memo)
{
        struct options o = c->options;
        struct capacity capacity;
        struct capacity_need need;
        struct rv_error_info why;
        double factors[ANSWER_PARTS];
        bool far[ANSWER_PARTS];
        find_links(c->machine, &o, far);
        faster_links(what, times, far, factors);
        if (what == ANSWER_BATCH) {
                const double batch = times * (double)o.batch_size;
                if (batch < 1 || batch != floor(batch))
                        return NAN;
                o.batch_size = (int64_t)batch;
        }
        if (what == ANSWER_FP8)
                o.format = FORMAT_FP8;
        if (o.batch_size != c->options.batch_size || o.format != c->options.format) {
                if (options_check(&o, c->machine->gpus, &why))
                        return NAN;
                capacity = machine_capacity(c->machine, &o);
                if (capacity_check(&o, &capacity, &need, &why))
                        return NAN;
        }
        return seconds_with(c->machine, &o, factors, memo) / (double)o.batch_size;
}

/* ---- other plans ---- */

bool answer_is_other(const struct options *a, const struct options *b)
{
        return a->pp != b->pp || a->dp != b->dp || a->tp != b->tp || a->ep != b->ep ||
               options_context_ranks(a) != options_context_ranks(b) || a->zero != b->zero;
}

const struct candidate *answer_next(const struct space_groups *groups, const struct candidate *best)
{
        const struct candidate *next = NULL;
        for (int i = 0; i < groups->count; i++)
                for (int c = 0; c < groups->groups[i].count; c++) {
                        const struct candidate *own = &groups->groups[i].candidates[c];
                        if (!answer_is_other(&own->options, &best->options))
                                continue;
                        if (!next || own->paper_seconds < next->paper_seconds)
                                next = own;
                        break; /* the others of the group are slower */
                }
        return next;
}

/* ---- changes ---- */

enum { TRIED = 48 };

/* The plans that changes are tried on, best on paper first. */
struct tried {
        const struct candidate *list[TRIED];
        int count;
};

static int by_paper(const void *left, const void *right)
{
        const struct candidate *a = *(const struct candidate *const *)left,
                               *b = *(const struct candidate *const *)right;
        return (a->paper_seconds > b->paper_seconds) - (a->paper_seconds < b->paper_seconds);
}

static struct tried choose_tried(const struct space_groups *groups)
{
        struct tried tried = {.count = 0};
        for (int i = 0; i < groups->count; i++) {
                const struct space_group *group = &groups->groups[i];
                for (int c = 0; c < group->count && c < TRIED / 2; c++)
                        tried.list[tried.count++] = &group->candidates[c];
        }
        if (tried.count)
                qsort(tried.list, (size_t)tried.count, sizeof *tried.list, by_paper);
        return tried;
}

/* One change, tried by a process of its own. */
struct trial {
        enum answer_what what;
        const struct tried *tried;
        unsigned recompute; /* by bits, what plans may have */
        struct child child;
        bool started;
};
struct trial_answer {
        double seconds; /* for a sequence, of the best; INFINITY: none */
        int which;      /* of the plans tried */
        enum recompute recompute;
};

static enum recompute deepest_of(unsigned recompute)
{
        return recompute & 1u << RECOMPUTE_FULL    ? RECOMPUTE_FULL
               : recompute & 1u << RECOMPUTE_LAYER ? RECOMPUTE_LAYER
                                                   : RECOMPUTE_NONE;
}

static int try_and_tell(void *context, int to)
{
        const struct trial *trial = context;
        struct trial_answer answer = {INFINITY, 0, RECOMPUTE_NONE};
        struct paper_memo memo = {0};
        for (int i = 0; i < trial->tried->count; i++) {
                struct candidate plan = *trial->tried->list[i];
                double seconds = seconds_changed(&plan, trial->what, 2, &memo);
                const enum recompute deepest = deepest_of(trial->recompute);
                if (isnan(seconds) && trial->what == ANSWER_FP8 && plan.options.recompute != deepest) {
                        /* Copies in fp8 take memory, which more recomputation makes room for. */
                        plan.options.recompute = deepest;
                        seconds = seconds_changed(&plan, trial->what, 2, &memo);
                }
                if (seconds < answer.seconds)
                        answer = (struct trial_answer){seconds, i, plan.options.recompute};
        }
        return child_tell(to, &answer, sizeof answer);
}

static void keep_change(struct answer *answer, enum answer_what what, double seconds,
                        const struct options *plan)
{
        const struct candidate *best = answer->best->candidate;
        const double gain = best->paper_seconds / (double)best->options.batch_size / seconds - 1;
        if (gain > 0)
                answer->changes[answer->change_count++] = (struct answer_change){what, gain, *plan};
}

static void take_trial(struct answer *answer, struct trial *trial)
{
        struct trial_answer told;
        int status;
        if (child_answer(&trial->child, &told, sizeof told, &status) != sizeof told || isinf(told.seconds))
                return;
        struct options plan = trial->tried->list[told.which]->options;
        plan.recompute = told.recompute;
        keep_change(answer, trial->what, told.seconds, &plan);
}

/* What makes no difference to a plan of the kind is not tried. */
static bool makes_sense(enum answer_what what, const struct options *best)
{
        return what != ANSWER_MEMORY &&
               (what != ANSWER_FP8 || (best->dtype == DTYPE_BF16 && best->format == FORMAT_STORED));
}

static const struct candidate *best_larger(const struct space_groups *groups)
{
        const struct candidate *best = NULL;
        for (int i = 0; i < groups->count; i++) {
                const struct candidate *own = &groups->groups[i].larger;
                if (own->machine && (!best || own->paper_seconds < best->paper_seconds))
                        best = own;
        }
        return best;
}

static int by_gain(const void *left, const void *right)
{
        const struct answer_change *a = left, *b = right;
        return (a->gain < b->gain) - (a->gain > b->gain);
}

static int find_changes(struct answer *answer, const struct space_groups *groups, unsigned recompute,
                        int processes, struct rv_error_info *err)
{
        const struct tried tried = choose_tried(groups);
        struct trial trials[ANSWER_CHANGES];
        int begun = 0, taken = 0, rc = 0;
        for (int what = 0; rc == 0 && what < ANSWER_CHANGES; what++) {
                if (!makes_sense((enum answer_what)what, &answer->best->candidate->options))
                        continue;
                if (begun - taken == processes)
                        take_trial(answer, &trials[taken++]);
                trials[begun] = (struct trial){
                        .what = (enum answer_what)what, .tried = &tried, .recompute = recompute};
                rc = child_start(&trials[begun].child, try_and_tell, &trials[begun], "for a change", err);
                begun += rc == 0;
        }
        while (taken < begun)
                take_trial(answer, &trials[taken++]);
        const struct candidate *larger = best_larger(groups);
        if (larger)
                keep_change(answer, ANSWER_MEMORY, larger->paper_seconds / (double)larger->options.batch_size,
                            &larger->options);
        if (answer->change_count)
                qsort(answer->changes, (size_t)answer->change_count, sizeof *answer->changes, by_gain);
        return rc;
}

/* ---- where the second wins ---- */

/* The nearest power of two (of links: of the square root of two) at which it does, up to 16 and down to 1/16.
 */
static void find_win(struct answer *answer, enum answer_what what, struct paper_memo *memo)
{
        const double step = what == ANSWER_BATCH ? 2 : sqrt(2);
        for (double times = step; times < 16.1; times *= step)
                for (int less = 0; less <= 1; less++) {
                        const double changed = less ? 1 / times : times;
                        const double best = seconds_changed(answer->best->candidate, what, changed, memo),
                                     second = seconds_changed(answer->second->candidate, what, changed, memo);
                        if (second < best || (isnan(best) && !isnan(second))) {
                                answer->wins[answer->win_count++] = (struct answer_win){what, changed};
                                return;
                        }
                }
}

/* ---- all ---- */

static const struct job *best_of(const struct jobs *jobs, const struct options *not_like)
{
        const struct job *best = NULL;
        for (int i = 0; i < jobs->count; i++) {
                const struct job *job = &jobs->list[i];
                if (job->outcome.state != OUTCOME_DONE || job->apart ||
                    (not_like && !answer_is_other(&job->candidate->options, not_like)))
                        continue;
                if (!best || search_order(job, best) < 0)
                        best = job;
        }
        return best;
}

int answer_find(struct answer *answer, const struct space_groups *groups, const struct jobs *jobs,
                unsigned recompute, int processes, struct rv_error_info *err)
{
        *answer = (struct answer){.best = best_of(jobs, NULL)};
        if (!answer->best)
                return 0;
        const struct candidate *best = answer->best->candidate;
        answer->second = best_of(jobs, &best->options);
        struct paper_memo memo = {0};
        find_shares(best->machine, &best->options, &memo, &answer->shares);
        const int rc = find_changes(answer, groups, recompute, processes, err);
        if (rc == 0 && answer->second) {
                find_win(answer, ANSWER_NETWORK, &memo);
                find_win(answer, ANSWER_NODE_LINKS, &memo);
                find_win(answer, ANSWER_BATCH, &memo);
        }
        paper_memo_free(&memo);
        return rc;
}
