#include "sim/search/walk.h"

#include "runtime/plan/framework.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Combinations of a piece, and the most plans that come of one. */
enum { PIECE = 64, PLANS_OF_ONE = 1024 };
_Static_assert(2 * INT_LIST * RECOMPUTES <= PLANS_OF_ONE, "every plan has a number of its own");

/* The walk, and all fitting candidates of its group, while they are collected. */
struct collection {
        const struct space *space;
        const struct machine *machine;
        struct space_group *group;
        struct paper_memo *memo;
        struct walk_share *share;
        bool (*tick)(void *context);
        void *context;
        bool bears[AXES];       /* see bears_on_work */
        int64_t before;         /* combinations with fewer stages */
        int64_t visited, piece; /* what is in the way and was met, and the piece that it works on; -1: none */
        int64_t number;         /* of the plan in hand */
        int kept_done;          /* fitting and slow plans, when the last one had been weighed as it is */
        struct candidate *list;
        int count, capacity;
};

static void exclude(struct collection *c, const struct rv_error_info *why)
{
        space_exclude(c->group->excluded, &c->group->exclusions, 1, c->number, why);
}

/* Beyond it a plan is no candidate. */
static double limit_of(const struct collection *c)
{
        return c->space->reach > 0 ? c->space->reach * atomic_load(&c->share->best) : INFINITY;
}

static void note_best(_Atomic double *best, double seconds)
{
        double known = atomic_load(best);
        while (seconds < known && !atomic_compare_exchange_weak(best, &known, seconds))
                ;
}

/* ---- bounds ---- */

/* Axes that change what is done beside and after the forwards and backwards, but not these: the least time
 * of a batch is the same for all their values, but for what the other entries of a key tell. */
static bool bears_on_work(const struct flag *flag)
{
        static const char *const others[] = {"schedule",    "zero",           "overlap-allreduce",
                                             "unit-layers", "prefetch",       "reshard-after-forward",
                                             "gather-each", "shard-replicas", "offload-parameters"};
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
                if (strcmp(flag->name, others[i]) == 0)
                        return false;
        return true;
}

static void write_key(const struct collection *c, const struct options *o, double key[BOUND_KEYS])
{
        memset(key, 0, BOUND_KEYS * sizeof *key);
        key[BOUND_STAGES] = o->pp;
        key[BOUND_SIZE] = o->micro_batch_size;
        key[BOUND_RECOMPUTE] = o->recompute;
        key[BOUND_PARTED] = options_parts_backward(o);
        key[BOUND_UNITS] = o->zero > 1 ? o->zero : 0;
        key[BOUND_WIDE] = options_wide_gradients(o);
        key[BOUND_SPLIT] = o->split;
        key[BOUND_LOGITS] = (double)o->logits_bytes;
        key[BOUND_OFFLOADED] = o->offload_activations ? 1 + (int)o->policy : 0;
        for (int i = 0; i < c->space->axes.count; i++)
                if (c->bears[i])
                        key[BOUND_AXES + i] = flag_value(c->space->axes.axis[i].flag, o);
}

/* Seconds that a batch of the plan takes at least; 0 if that cannot be told, or nobody asks. */
static double bound_of(struct collection *c, const struct options *options)
{
        double key[BOUND_KEYS];
        struct rv_error_info why;
        struct paper_bound bound = {0, 0};
        if (c->space->reach == 0)
                return 0;
        write_key(c, options, key);
        if (bounds_find(&c->share->bounds, key, &bound.least))
                return bound.least;
        if (isnan(paper_batch_priced(c->machine, options, &bound, c->memo, &why)))
                bound.least = 0;
        bounds_keep(&c->share->bounds, key, bound.least);
        return bound.least;
}

/* ---- one plan ---- */

/* Seconds on paper; INFINITY if they are beyond the limit, if there is no price, or if the plan may not be.
 */
static double price(struct collection *c, const struct options *options, double limit)
{
        struct rv_error_info why;
        struct paper_bound bound = {limit, 0};
        if (c->space->allows && c->space->allows(c->space->allowing, options, &why)) {
                if (c->group->forbidden++ == 0)
                        c->group->why_forbidden = why;
                return INFINITY;
        }
        const double seconds = paper_batch_priced(c->machine, options, &bound, c->memo, &why);
        if (isnan(seconds)) {
                exclude(c, &why);
                if (c->group->unpriced++ == 0) {
                        c->group->no_price = why;
                        c->group->no_price_number = c->number;
                }
                return INFINITY;
        }
        return seconds > limit ? INFINITY : seconds;
}

static int add(struct collection *c, const struct options *options, struct rv_error_info *err)
{
        if (c->count == c->capacity) {
                int capacity = c->capacity ? 2 * c->capacity : 32;
                struct candidate *grown = realloc(c->list, (size_t)capacity * sizeof *grown);
                if (!grown)
                        return rv_fail(err, RV_ESYSTEM, "no memory for %d plans", capacity);
                c->list = grown;
                c->capacity = capacity;
        }
        const double seconds = price(c, options, limit_of(c));
        if (isinf(seconds))
                return 0;
        note_best(&c->share->best, seconds);
        c->list[c->count++] = (struct candidate){*options, c->machine, c->number, seconds};
        return 0;
}

/* The sentence is made for the nearest alone. */
static void note_nearest(struct collection *c, const struct options *options, const struct capacity *capacity,
                         const struct capacity_need *need)
{
        const double excess = (double)capacity_needs(need) / (double)capacity_has(capacity, need);
        struct capacity_need same;
        if (c->group->nearest_excess > 0 && excess >= c->group->nearest_excess)
                return;
        c->group->nearest_excess = excess;
        c->group->nearest_number = c->number;
        capacity_check(options, capacity, &same, &c->group->nearest);
}

static void enlarge(struct capacity *capacity, double times)
{
        capacity->bytes[MEMORY_DEVICE] = (int64_t)(times * (double)capacity->bytes[MEMORY_DEVICE]);
}

/* A plan that does not fit, but would on larger devices, and be faster than all that fit. Of several that are
 * as fast each process keeps its first, so that the one with the least number is found, whoever meets it. */
static void consider_larger(struct collection *c, const struct options *options,
                            const struct capacity *capacity)
{
        struct candidate *larger = &c->group->larger;
        struct capacity more = *capacity;
        struct capacity_need need;
        const double best = atomic_load(&c->share->best), limit = fmin(best, atomic_load(&c->share->larger));
        if (c->space->larger == 0 || isinf(best) || bound_of(c, options) > limit)
                return;
        enlarge(&more, c->space->larger);
        if (capacity_check(options, &more, &need, NULL))
                return;
        const double seconds = price(c, options, limit);
        if (isinf(seconds) || (larger->machine && seconds >= larger->paper_seconds))
                return;
        note_best(&c->share->larger, seconds);
        *larger = (struct candidate){*options, c->machine, c->number, seconds};
}

/* Counts the plan, and keeps it if it fits. */
static int weigh(struct collection *c, const struct options *options, struct rv_error_info *err)
{
        struct options settled = *options;
        machine_choose_logits(c->machine, &settled);
        struct capacity capacity = machine_capacity(c->machine, &settled);
        struct capacity_need need;
        c->group->considered++;
        c->number++;
        if (bound_of(c, &settled) > limit_of(c)) {
                c->group->slow++;
                return 0;
        }
        if (capacity_check(&settled, &capacity, &need, NULL)) {
                note_nearest(c, &settled, &capacity, &need);
                consider_larger(c, &settled, &capacity);
                return 0;
        }
        c->group->fitting++;
        return add(c, &settled, err);
}

/* Whether a stage would offload activations: one that stores few does not. */
static bool stores_many(const struct options *options)
{
        struct plan plan = options_plan(options, false);
        plan.offload_activations = true;
        for (int stage = 0; stage < plan.pp; stage++)
                if (core_limits(&plan, stage).host_slots > 0)
                        return true;
        return false;
}

/* Whether simulate would take the plan; if not, it is counted with the reason. With a reach only the first
 * reason is told: sentences take longer than plans. */
static bool is_sound(struct collection *c, struct options *options)
{
        struct rv_error_info why;
        const bool told = c->space->reach == 0 || c->group->exclusions == 0;
        const bool sound = options_resolve_gpt(options, c->group->gpus, told ? &why : NULL) == 0;
        if (!sound && told)
                exclude(c, &why);
        options->fused = c->group->fused; /* which the profile says */
        return sound;
}

/* Of the last two plans, of which the second offloads activations and the first does not, keeps the first
 * alone if it is as fast on paper: to offload them is more work, for memory that is not needed. */
static void keep_faster(struct collection *c)
{
        const double slower = 1.001;
        const struct candidate *kept = &c->list[c->count - 2], *offloaded = &c->list[c->count - 1];
        if (offloaded->paper_seconds * slower < kept->paper_seconds)
                return;
        c->count--;
        c->group->needless++;
}

/* The plan as it is and with offloaded activations, as far as asked for. */
static int consider(struct collection *c, struct options *options, struct rv_error_info *err)
{
        const enum space_choice choice = c->space->offload_activations;
        const int before = c->count, done = c->group->fitting + c->group->slow;
        int rc = 0;
        options->offload_activations = false;
        if (choice & SPACE_NO)
                rc = weigh(c, options, err);
        c->kept_done = c->group->fitting + c->group->slow;
        if (rc || !(choice & SPACE_YES) || (choice == SPACE_BOTH && !stores_many(options)))
                return rc;
        options->offload_activations = true;
        if (!is_sound(c, options))
                return 0;
        if (c->space->reach > 0 && c->kept_done > done)
                return 0; /* it fits as it is, or is too slow for its work */
        rc = weigh(c, options, err);
        if (rc == 0 && c->count == before + 2)
                keep_faster(c);
        return rc;
}

/* Whether the recomputation is, and is no other's double. */
static bool is_asked_for(const struct space *space, const struct options *options)
{
        const struct work work = options_work(options);
        const enum recompute in_effect = work_recomputation(&work);
        return space->recompute & 1u << options->recompute &&
               (in_effect == options->recompute || !(space->recompute & 1u << in_effect));
}

/* How many of the recomputations are tried. */
static int recomputations(const struct space *space)
{
        int count = 0;
        for (int recompute = 0; recompute < RECOMPUTES; recompute++)
                count += (int)(space->recompute >> recompute & 1u);
        return count;
}

enum fit { FIT_TOO_LARGE, FIT_MAYBE, FIT_UNSOUND };

/* Whether a plan fits, the devices or the larger ones that are asked about; else what it needs too much of.
 */
static enum fit fit_of(struct collection *c, const struct options *plan, struct capacity_need *need)
{
        struct options own = *plan;
        if (options_resolve_gpt(&own, c->group->gpus, NULL))
                return FIT_UNSOUND;
        own.fused = c->group->fused;
        machine_choose_logits(c->machine, &own);
        struct capacity capacity = machine_capacity(c->machine, &own);
        if (capacity_check(&own, &capacity, need, NULL) == 0)
                return FIT_MAYBE;
        note_nearest(c, &own, &capacity, need);
        if (c->space->larger == 0)
                return FIT_TOO_LARGE;
        enlarge(&capacity, c->space->larger);
        return capacity_check(&own, &capacity, need, NULL) ? FIT_TOO_LARGE : FIT_MAYBE;
}

/* With or without offloaded activations, as far as asked for. Without them it needs no less of a device's own
 * memory, but less of what the host has. */
static enum fit fit_of_either(struct collection *c, const struct options *plan)
{
        enum fit either = FIT_UNSOUND;
        for (int kept = 0; kept <= 1; kept++) {
                struct options own = *plan;
                struct capacity_need need;
                own.offload_activations = !kept;
                if (!(c->space->offload_activations & (kept ? SPACE_NO : SPACE_YES)))
                        continue;
                const enum fit fit = fit_of(c, &own, &need);
                if (fit == FIT_MAYBE)
                        return fit;
                either = fit == FIT_TOO_LARGE ? fit : either;
                if (fit == FIT_TOO_LARGE && need.space == MEMORY_DEVICE && !need.shared)
                        break;
        }
        return either;
}

/* Whether some recomputation of a size of a plan may fit; nothing takes less than where all is recomputed. If
 * a plan is none, that is said where it is considered. */
static bool may_fit(struct collection *c, const struct options *plan)
{
        const unsigned asked = c->space->recompute, all = 1u << RECOMPUTE_FULL,
                       layers = 1u << RECOMPUTE_LAYER;
        const unsigned tried = asked & all ? all : asked & layers ? layers : asked;
        for (int recompute = 0; recompute < RECOMPUTES; recompute++) {
                struct options own = *plan;
                own.recompute = (enum recompute)recompute;
                if (tried >> recompute & 1u && fit_of_either(c, &own) != FIT_TOO_LARGE)
                        return true;
        }
        return false;
}

/* One size of a plan with every recomputation. With a reach those are passed over that have more work than
 * one that fits, or that is beyond the reach. */
static int consider_size(struct collection *c, const struct options *plan, struct rv_error_info *err)
{
        const struct space *space = c->space;
        int rc = 0;
        for (int recompute = 0; rc == 0 && recompute < RECOMPUTES; recompute++) {
                struct options options = *plan;
                options.recompute = (enum recompute)recompute;
                if (!is_asked_for(space, &options) || !is_sound(c, &options))
                        continue;
                const int done = c->group->fitting + c->group->slow;
                rc = consider(c, &options, err);
                if (space->reach > 0 && recompute == RECOMPUTE_NONE && c->kept_done > done)
                        break; /* what it stores is kept on the device */
        }
        return rc;
}

/* Every micro-batch size and recomputation of one plan. With a reach sizes are passed over of which nothing
 * can fit. */
static int consider_sizes(struct collection *c, const struct options *plan, struct rv_error_info *err)
{
        const struct int_list *sizes = &c->space->micro_batch_sizes;
        int too_large = INT_MAX, rc = 0;
        for (int i = 0; rc == 0 && i < sizes->count; i++) {
                struct options options = *plan;
                options.micro_batch_size = sizes->values[i];
                const bool smaller = options.micro_batch_size < too_large;
                if (c->space->reach == 0 || (smaller && may_fit(c, &options))) {
                        rc = consider_size(c, &options, err);
                        continue;
                }
                too_large = smaller ? options.micro_batch_size : too_large;
                c->group->considered += recomputations(c->space);
        }
        return rc;
}

/* Whether what is next in the way is of a piece that came to this process. */
static bool is_mine(struct collection *c)
{
        const int64_t piece = c->visited++ / PIECE;
        while (c->piece < piece)
                c->piece = atomic_fetch_add(&c->share->next[c->group->offload], 1);
        return c->piece == piece;
}

struct options walk_complete(const struct space_group *group, struct options plan)
{
        plan.dp = 1;
        plan.dp = group->gpus / (int)options_ranks(&plan);
        plan.offload = group->offload;
        plan.fused = group->fused;
        framework_flags(&plan);
        return plan;
}

/* One combination of the axes, with so many stages. `at` becomes the axis at which to move on. */
static int consider_combination(struct collection *c, int pp, const int place[AXES], int *at,
                                struct rv_error_info *err)
{
        const struct axes *axes = &c->space->axes;
        struct options options = c->space->base;
        axes_set(&options, axes, place);
        options.pp = pp;
        options = walk_complete(c->group, options);
        *at = options_ranks(&options) != c->group->gpus ? axes_of_grid(axes)
                                                        : axes_needless(axes, place, &options);
        if (*at != AXES_WORTH)
                return 0;
        *at = axes->count - 1;
        c->number = (c->before + axes_index(axes, place)) * PLANS_OF_ONE;
        return is_mine(c) ? consider_sizes(c, &options, err) : 0;
}

/* Tells how far it is, to whoever asks. */
static void tell_place(struct collection *c, const int place[AXES])
{
        const int64_t here = c->before + axes_index(&c->space->axes, place);
        _Atomic int64_t *reached = &c->share->reached[c->group->offload];
        if (atomic_load(reached) < here)
                atomic_store(reached, here);
        if (c->tick && !c->tick(c->context))
                atomic_store(&c->share->stop, true);
}

/* Everything with so many stages. */
static int consider_grid(struct collection *c, int pp, struct rv_error_info *err)
{
        int place[AXES] = {0}, at = 0, rc = 0;
        do {
                if (c->visited % PIECE == 0)
                        tell_place(c, place);
                rc = consider_combination(c, pp, place, &at, err);
        } while (rc == 0 && axes_next(&c->space->axes, place, at) && !atomic_load(&c->share->stop));
        c->before += axes_combinations(&c->space->axes);
        return rc;
}

bool walk_has_stages(const struct space *space, int gpus, int pp)
{
        bool listed = space->stages.count == 0;
        for (int i = 0; i < space->stages.count; i++)
                listed = listed || space->stages.values[i] == pp;
        return listed && gpus % pp == 0 && pp <= space->base.gpt.n_layer;
}

void walk_begin(struct walk_share *share)
{
        atomic_init(&share->next[0], 0);
        atomic_init(&share->next[1], 0);
        atomic_init(&share->reached[0], 0);
        atomic_init(&share->reached[1], 0);
        atomic_init(&share->best, INFINITY);
        atomic_init(&share->larger, INFINITY);
        atomic_init(&share->stop, false);
}

int64_t walk_length(const struct space *space, int gpus)
{
        int64_t length = 0;
        for (int pp = 1; pp <= gpus; pp++)
                length += walk_has_stages(space, gpus, pp) ? axes_combinations(&space->axes) : 0;
        return length;
}

int walk_group(struct space_group *group, const struct space *space, const struct machine *machine,
               struct paper_memo *memo, struct walk_share *share, bool (*tick)(void *context), void *context,
               struct rv_error_info *err)
{
        struct collection c = {.space = space,
                               .machine = machine,
                               .group = group,
                               .memo = memo,
                               .share = share,
                               .tick = tick,
                               .context = context,
                               .piece = -1};
        int rc = 0;
        for (int i = 0; i < space->axes.count; i++)
                c.bears[i] = bears_on_work(space->axes.axis[i].flag);
        for (int pp = 1; rc == 0 && pp <= group->gpus; pp++)
                if (walk_has_stages(space, group->gpus, pp))
                        rc = consider_grid(&c, pp, err);
        group->candidates = c.list;
        group->count = c.count;
        return rc;
}

double walk_seconds(const struct space_group *group, const struct space *space, const struct machine *machine,
                    double times, struct paper_memo *memo, struct options *plan, double limit, double *excess)
{
        struct space_group own = *group;
        struct collection c = {.space = space, .machine = machine, .group = &own, .memo = memo};
        struct capacity_need need;
        *excess = 0;
        if (options_ranks(plan) != group->gpus || !is_sound(&c, plan))
                return INFINITY;
        machine_choose_logits(machine, plan);
        struct capacity capacity = machine_capacity(machine, plan);
        enlarge(&capacity, times);
        if (capacity_check(plan, &capacity, &need, NULL)) {
                *excess = (double)capacity_needs(&need) / (double)capacity_has(&capacity, &need);
                return INFINITY;
        }
        return price(&c, plan, limit);
}
