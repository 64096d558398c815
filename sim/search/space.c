#include "sim/search/space.h"

#include "runtime/plan/framework.h"
#include "sim/world/paper_batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* All fitting candidates of one group, while they are collected. */
struct collection {
        const struct space *space;
        const struct machine *machine;
        struct space_group *group;
        struct paper_memo *memo;
        struct candidate *list;
        int count, capacity;
        double nearest; /* least factor by which a plan that does not fit is too large */
};

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
        struct rv_error_info why;
        const double seconds = paper_batch_priced(c->machine, options, INFINITY, c->memo, &why);
        if (isnan(seconds)) {
                space_exclude(c->group->excluded, &c->group->exclusions, 1, &why);
                if (c->group->unpriced++ == 0)
                        c->group->no_price = why;
                return 0;
        }
        c->list[c->count] = (struct candidate){*options, c->machine, c->group->considered, seconds};
        c->count++;
        return 0;
}

/* Counts the plan, and keeps it if it fits. */
static int weigh(struct collection *c, const struct options *options, struct rv_error_info *err)
{
        struct options settled = *options;
        machine_choose_logits(c->machine, &settled);
        struct capacity capacity = machine_capacity(c->machine, &settled);
        struct capacity_need need;
        struct rv_error_info why;
        c->group->considered++;
        if (capacity_check(&settled, &capacity, &need, &why)) {
                double excess = (double)capacity_needs(&need) / (double)capacity_has(&capacity, &need);
                if (excess < c->nearest) {
                        c->nearest = excess;
                        c->group->nearest = why;
                }
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

/* Whether two sentences say the same of different numbers. */
static bool same_reason(const char *a, const char *b)
{
        static const char digits[] = "0123456789";
        for (;;) {
                a += strspn(a, digits);
                b += strspn(b, digits);
                if (*a != *b)
                        return false;
                if (!*a)
                        return true;
                a++;
                b++;
        }
}

void space_exclude(struct space_exclusion list[SPACE_EXCLUSIONS], int *count, int combinations,
                   const struct rv_error_info *why)
{
        int i = 0;
        while (i < *count && !same_reason(list[i].first.sentence, why->sentence))
                i++;
        if (i == SPACE_EXCLUSIONS)
                i--;
        if (i == *count)
                list[(*count)++] = (struct space_exclusion){.first = *why};
        list[i].count += combinations;
}

/* Whether simulate would take the plan; if not, it is counted with the reason. */
static bool is_sound(struct collection *c, struct options *options)
{
        struct rv_error_info why;
        const bool sound = options_resolve_gpt(options, c->group->gpus, &why) == 0;
        if (!sound)
                space_exclude(c->group->excluded, &c->group->exclusions, 1, &why);
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
        const int before = c->count;
        int rc = 0;
        options->offload_activations = false;
        if (choice & SPACE_NO)
                rc = weigh(c, options, err);
        if (rc || !(choice & SPACE_YES) || (choice == SPACE_BOTH && !stores_many(options)))
                return rc;
        options->offload_activations = true;
        if (!is_sound(c, options))
                return 0;
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

/* Every micro-batch size and recomputation of one plan. Returns how many were sound, or an error. */
static int consider_sizes(struct collection *c, const struct options *plan, struct rv_error_info *err)
{
        const struct space *space = c->space;
        int sound = 0;
        for (int i = 0; i < space->micro_batch_sizes.count; i++)
                for (int recompute = 0; recompute < RECOMPUTES; recompute++) {
                        struct options options = *plan;
                        options.micro_batch_size = space->micro_batch_sizes.values[i];
                        options.recompute = (enum recompute)recompute;
                        if (!is_asked_for(space, &options) || !is_sound(c, &options))
                                continue;
                        sound++;
                        int rc = consider(c, &options, err);
                        if (rc)
                                return rc;
                }
        return sound;
}

/* Everything with so many stages. Returns how many plans were sound, or an error. */
static int consider_grid(struct collection *c, int pp, struct rv_error_info *err)
{
        const struct space *space = c->space;
        int place[AXES] = {0}, sound = 0;
        do {
                struct options options = space->base;
                axes_set(&options, &space->axes, place);
                options.pp = pp;
                options.dp = 1;
                options.dp = c->group->gpus / (int)options_ranks(&options);
                options.offload = c->group->offload;
                options.fused = c->group->fused;
                framework_flags(&options);
                if (options_ranks(&options) != c->group->gpus || !axes_differ(&space->axes, place, &options))
                        continue;
                int found = consider_sizes(c, &options, err);
                if (found < 0)
                        return found;
                sound += found;
        } while (axes_next(&space->axes, place));
        return sound;
}

static bool stages_asked_for(const struct space *space, int pp)
{
        for (int i = 0; i < space->stages.count; i++)
                if (space->stages.values[i] == pp)
                        return true;
        return space->stages.count == 0;
}

/* Smaller is better; at the same time on paper, the plan that does less. */
static int by_paper(const void *left, const void *right)
{
        const struct candidate *a = left, *b = right;
        const struct options *x = &a->options, *y = &b->options;
        if (a->paper_seconds != b->paper_seconds)
                return a->paper_seconds < b->paper_seconds ? -1 : 1;
        if (x->offload_activations != y->offload_activations)
                return x->offload_activations - y->offload_activations;
        if (x->recompute != y->recompute)
                return recompute_depth(x->recompute) - recompute_depth(y->recompute);
        if (x->pp != y->pp)
                return x->pp - y->pp;
        if (x->micro_batch_size != y->micro_batch_size)
                return x->micro_batch_size - y->micro_batch_size;
        return a->number - b->number;
}

static void format_list(const struct int_list *list, char *text, size_t text_size)
{
        text[0] = 0;
        for (int i = 0; i < list->count; i++)
                snprintf(text + strlen(text), text_size - strlen(text), "%s%d", i ? "," : "",
                         list->values[i]);
}

/* Whether some number of shards that is asked for divides the devices. */
static bool shards_divide(const struct space *space, int gpus)
{
        const struct flag_values *shards = axes_values(&space->axes, "tp");
        for (int i = 0; i < shards->count; i++) {
                struct options probe = space->base;
                flag_set(flag_named("tp"), &probe, shards->values[i]);
                if (gpus % probe.tp == 0)
                        return true;
        }
        return false;
}

static int no_grid(const struct space *space, const struct space_group *group, struct rv_error_info *err)
{
        char stages[64];
        if (group->exclusions > 0)
                return rv_fail(err, RV_EPLAN, "--gpus %d: none of what is asked for is a plan: %.400s%s",
                               group->gpus, group->excluded[0].first.sentence,
                               group->exclusions > 1 ? "; others for other reasons" : "");
        if (!shards_divide(space, group->gpus))
                return rv_fail(err, RV_EPLAN, "--gpus %d: no grid divides it: no --tp that is asked for does",
                               group->gpus);
        format_list(&space->stages, stages, sizeof stages);
        return rv_fail(err, RV_EPLAN,
                       "--gpus %d: no grid divides it: stages%s%s must divide %d, and be at most "
                       "the %d layers of %s",
                       group->gpus, space->stages.count ? " --pp " : "", stages, group->gpus,
                       space->base.gpt.n_layer, space->base.gpt.name);
}

static int explore_group(const struct space *space, const struct machine *machine, struct space_group *group,
                         struct paper_memo *memo, struct rv_error_info *err)
{
        struct options settled = space->base;
        framework_flags(&settled);
        settled.fused = settled.fusion != FUSION_OFF; /* as options_resolve has it */
        int rc = machine_settle(machine, &settled, err);
        if (rc)
                return rc;
        group->fused = settled.fused;
        struct collection c = {
                .space = space, .machine = machine, .group = group, .memo = memo, .nearest = INFINITY};
        for (int pp = 1; rc >= 0 && pp <= group->gpus && pp <= space->base.gpt.n_layer; pp++)
                if (group->gpus % pp == 0 && stages_asked_for(space, pp))
                        rc = consider_grid(&c, pp, err);
        group->candidates = c.list;
        if (rc < 0)
                return rc;
        if (c.count)
                qsort(c.list, (size_t)c.count, sizeof *c.list, by_paper);
        group->count = c.count;
        return 0;
}

/* The groups of one number of devices; an error if nothing in them is a plan. */
static int explore_machine(struct space_groups *groups, const struct space *space,
                           const struct machine *machine, struct rv_error_info *err)
{
        const int first = groups->count;
        struct paper_memo memo = {0};
        int considered = 0, rc = 0;
        for (int offload = 0; rc == 0 && offload <= 1; offload++) {
                if (!(space->offload & (offload ? SPACE_YES : SPACE_NO)))
                        continue;
                struct space_group *group = &groups->groups[groups->count++];
                *group = (struct space_group){.gpus = machine->gpus, .offload = offload};
                rc = explore_group(space, machine, group, &memo, err);
                considered += group->considered;
        }
        paper_memo_free(&memo);
        if (rc)
                return rc;
        return considered ? 0 : no_grid(space, &groups->groups[first], err);
}

int space_explore(struct space_groups *groups, const struct space *space, const char *profile,
                  const char *platform, bool fits_only, struct rv_error_info *err)
{
        size_t max = (size_t)space->gpus.count;
        *groups = (struct space_groups){.machines = calloc(max, sizeof *groups->machines),
                                        .groups = calloc(2 * max, sizeof *groups->groups)};
        if (!groups->machines || !groups->groups)
                return rv_fail(err, RV_ESYSTEM, "no memory for %zu machines", max);
        int rc = 0;
        for (int i = 0; rc == 0 && i < space->gpus.count; i++) { /* all, before any work */
                rc = machine_open(&groups->machines[i], profile, platform, space->gpus.values[i], fits_only,
                                  err);
                groups->machines[i].fold = space->fold;
                groups->machine_count += rc == 0;
        }
        for (int i = 0; rc == 0 && i < space->gpus.count; i++)
                rc = explore_machine(groups, space, &groups->machines[i], err);
        return rc;
}

void space_free(struct space_groups *groups)
{
        for (int i = 0; i < groups->count; i++)
                free(groups->groups[i].candidates);
        for (int i = 0; i < groups->machine_count; i++)
                machine_close(&groups->machines[i]);
        free(groups->machines);
        free(groups->groups);
        *groups = (struct space_groups){0};
}
