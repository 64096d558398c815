#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "sim/search/space.h"

#include "runtime/base/child.h"
#include "runtime/plan/framework.h"
#include "sim/search/climb.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
                   int64_t number, const struct rv_error_info *why)
{
        int i = 0;
        while (i < *count && !same_reason(list[i].first.sentence, why->sentence))
                i++;
        if (i == SPACE_EXCLUSIONS)
                i--;
        if (i == *count)
                list[(*count)++] = (struct space_exclusion){.first = *why, .number = number};
        list[i].count += combinations;
        if (number < list[i].number) {
                list[i].first = *why;
                list[i].number = number;
        }
}

/* The first of each reason, over all processes, as if one had found them. */
static int by_number(const void *left, const void *right)
{
        const struct space_exclusion *a = left, *b = right;
        return (a->number > b->number) - (a->number < b->number);
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
        if (recompute_depth(x->recompute) != recompute_depth(y->recompute))
                return recompute_depth(x->recompute) - recompute_depth(y->recompute);
        if (x->pp != y->pp)
                return x->pp - y->pp;
        if (x->micro_batch_size != y->micro_batch_size)
                return x->micro_batch_size - y->micro_batch_size;
        return (a->number > b->number) - (a->number < b->number);
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
                return rv_fail(err, RV_EPLAN, "--gpus %d is no multiple of a --tp that is asked for",
                               group->gpus);
        format_list(&space->stages, stages, sizeof stages);
        return rv_fail(err, RV_EPLAN,
                       "--gpus %d: no grid divides it: stages%s%s must divide %d, and be at most "
                       "the %d layers of %s",
                       group->gpus, space->stages.count ? " --pp " : "", stages, group->gpus,
                       space->base.gpt.n_layer, space->base.gpt.name);
}

/* ---- one machine ---- */

/* The search for the plans of one machine, by one or several processes. */
struct search {
        const struct space *space;
        const struct machine *machine;
        struct space_group *groups; /* [count] */
        int count;
        struct walk_share *share;
        struct paper_memo *memo; /* processes go on with copies of it */
        int64_t length;          /* combinations of all groups */
};

/* What of a plan the machine settles, as options_resolve has it. */
static int settle_group(struct space_group *group, const struct space *space, const struct machine *machine,
                        struct rv_error_info *err)
{
        struct options settled = space->base;
        framework_flags(&settled);
        settled.fused = settled.fusion != FUSION_OFF;
        const int rc = machine_settle(machine, &settled, err);
        group->fused = settled.fused;
        return rc;
}

/* Whether to go on. */
static bool tell(void *search)
{
        const struct search *s = search;
        const int64_t reached = atomic_load(&s->share->reached[0]) + atomic_load(&s->share->reached[1]);
        const double share = (double)reached / (double)s->length;
        return !s->space->tick || s->space->tick(s->space->context, share);
}

/* The groups have plans in common, so one memo is for all. */
static int walk(const struct search *s, struct space_group *groups, bool (*tick)(void *context),
                struct rv_error_info *err)
{
        int rc = 0;
        for (int i = 0; rc == 0 && i < s->count; i++)
                rc = walk_group(&groups[i], s->space, s->machine, s->memo, s->share, tick, (void *)s, err);
        return rc;
}

/* ---- by several processes ---- */

/* What comes before a process's groups. */
struct answer {
        int rc;
        struct rv_error_info err;
};

static bool send_groups(int to, const struct space_group *groups, int count)
{
        bool sent = true;
        for (int i = 0; sent && i < count; i++)
                sent = child_tell(to, &groups[i], sizeof groups[i]) == 0 &&
                       child_tell(to, groups[i].candidates,
                                  (size_t)groups[i].count * sizeof *groups[i].candidates) == 0;
        return sent;
}

/* In the child: what it has not freed ends with it. An interrupt is the parent's business. */
static int walk_and_tell(void *search, int to)
{
        const struct search *s = search;
        struct space_group own[2];
        struct answer answer = {0};
        signal(SIGINT, SIG_IGN);
        memcpy(own, s->groups, (size_t)s->count * sizeof *own);
        answer.rc = walk(s, own, NULL, &answer.err);
        if (child_tell(to, &answer, sizeof answer) || (answer.rc == 0 && !send_groups(to, own, s->count)))
                return 1;
        return 0;
}

/* Adds what a process found to a group. */
static int merge(struct space_group *group, const struct space_group *found, struct child *child,
                 struct rv_error_info *err)
{
        const size_t size = (size_t)found->count * sizeof *group->candidates;
        struct candidate *grown =
                realloc(group->candidates, (size_t)(group->count + found->count + 1) * sizeof *grown);
        if (!grown)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d plans", group->count + found->count);
        group->candidates = grown;
        if (child_read(child, grown + group->count, size) != size)
                return rv_fail(err, RV_ESYSTEM, "a process that weighs plans ended before it had told all");
        group->count += found->count;
        group->considered += found->considered;
        group->slow += found->slow;
        group->fitting += found->fitting;
        group->needless += found->needless;
        if (found->unpriced > 0 &&
            (group->unpriced == 0 || found->no_price_number < group->no_price_number)) {
                group->no_price = found->no_price;
                group->no_price_number = found->no_price_number;
        }
        group->unpriced += found->unpriced;
        if (found->forbidden > 0 && group->forbidden == 0)
                group->why_forbidden = found->why_forbidden;
        group->forbidden += found->forbidden;
        const bool nearer = found->nearest_excess < group->nearest_excess ||
                            (found->nearest_excess == group->nearest_excess &&
                             found->nearest_number < group->nearest_number);
        if (found->nearest_excess > 0 && (group->nearest_excess == 0 || nearer)) {
                group->nearest_excess = found->nearest_excess;
                group->nearest_number = found->nearest_number;
                group->nearest = found->nearest;
        }
        if (found->larger.machine &&
            (!group->larger.machine || found->larger.paper_seconds < group->larger.paper_seconds ||
             (found->larger.paper_seconds == group->larger.paper_seconds &&
              found->larger.number < group->larger.number)))
                group->larger = found->larger;
        for (int i = 0; i < found->exclusions; i++)
                space_exclude(group->excluded, &group->exclusions, found->excluded[i].count,
                              found->excluded[i].number, &found->excluded[i].first);
        return 0;
}

static int take_answer(const struct search *s, struct child *child, struct rv_error_info *err)
{
        struct answer answer;
        if (child_read(child, &answer, sizeof answer) != sizeof answer)
                return rv_fail(err, RV_ESYSTEM, "a process that weighs plans ended before it had told all");
        if (answer.rc) {
                *err = answer.err;
                return answer.rc;
        }
        int rc = 0;
        for (int i = 0; rc == 0 && i < s->count; i++) {
                struct space_group found;
                if (child_read(child, &found, sizeof found) != sizeof found)
                        return rv_fail(err, RV_ESYSTEM,
                                       "a process that weighs plans ended before it had told all");
                rc = merge(&s->groups[i], &found, child, err);
        }
        return rc;
}

/* Until one of them has something to tell, or has ended. */
static int next_answer(const struct search *s, const struct child *children, const bool *told, int count)
{
        struct pollfd polled[SPACE_WORKERS];
        for (;;) {
                for (int i = 0; i < count; i++)
                        polled[i] = (struct pollfd){.fd = told[i] ? -1 : children[i].from, .events = POLLIN};
                poll(polled, (nfds_t)count, 200);
                for (int i = 0; i < count; i++)
                        if (!told[i] && polled[i].revents)
                                return i;
                if (!tell((void *)s))
                        atomic_store(&s->share->stop, true);
        }
}

static int walk_together(struct search *s, int workers, struct rv_error_info *err)
{
        struct child children[SPACE_WORKERS];
        bool told[SPACE_WORKERS] = {false};
        int started = 0, rc = 0;
        while (rc == 0 && started < workers) {
                rc = child_start(&children[started], walk_and_tell, s, "to weigh plans", err);
                started += rc == 0;
        }
        if (rc)
                atomic_store(&s->share->stop, true);
        for (int left = started; left > 0; left--) {
                const int i = next_answer(s, children, told, started);
                struct rv_error_info why;
                int status;
                const int found = take_answer(s, &children[i], &why);
                told[i] = true;
                child_answer(&children[i], NULL, 0, &status);
                if (found && rc == 0) {
                        rc = found;
                        *err = why;
                        atomic_store(&s->share->stop, true);
                }
        }
        return rc;
}

/* ---- all machines ---- */

/* The candidates in the order of their time on paper, without those that are beyond the reach of the best of
 * all groups: some were run on paper before that was known. */
static void finish_group(struct space_group *group, double limit, double best)
{
        int count = 0;
        for (int i = 0; i < group->count; i++)
                if (group->candidates[i].paper_seconds <= limit)
                        group->candidates[count++] = group->candidates[i];
        group->count = count;
        if (group->larger.machine && group->larger.paper_seconds >= best)
                group->larger.machine = NULL; /* what fits was found later to be faster */
        if (count)
                qsort(group->candidates, (size_t)count, sizeof *group->candidates, by_paper);
        if (group->exclusions)
                qsort(group->excluded, (size_t)group->exclusions, sizeof *group->excluded, by_number);
}

/* A plan that only fits larger devices is told if no other is faster: that one itself, too, however its
 * seconds are rounded. */
static void find_larger(const struct search *s)
{
        const double rounding = 1 + 1e-9;
        atomic_store(&s->share->larger,
                     rounding * climb(s->groups, s->count, s->space, s->machine, s->space->larger, s->memo));
}

/* In a child. */
static int find_larger_beside(void *search, int to)
{
        (void)to;
        signal(SIGINT, SIG_IGN);
        find_larger(search);
        return 0;
}

/* Most plans take longer than one that is found soon, and need not be run on paper. */
static int begin_well(struct search *s, int workers, struct rv_error_info *err)
{
        const bool larger = s->space->larger > 0, beside = larger && workers > 1;
        struct child child;
        int status, rc = beside ? child_start(&child, find_larger_beside, s, "to find a good plan", err) : 0;
        if (rc)
                return rc;
        if (s->space->reach > 0)
                atomic_store(&s->share->best, climb(s->groups, s->count, s->space, s->machine, 1, s->memo));
        if (beside)
                child_answer(&child, NULL, 0, &status);
        else if (larger)
                find_larger(s);
        return 0;
}

/* The groups of one number of devices; an error if nothing in them is a plan. */
static int explore_machine(struct space_groups *groups, const struct space *space,
                           const struct machine *machine, struct rv_error_info *err)
{
        struct paper_memo memo = {0};
        struct search s = {
                .space = space, .machine = machine, .groups = &groups->groups[groups->count], .memo = &memo};
        const int workers = space->workers < SPACE_WORKERS ? space->workers : SPACE_WORKERS;
        int considered = 0, rc = 0;
        for (int offload = 0; rc == 0 && offload <= 1; offload++) {
                if (!(space->offload & (offload ? SPACE_YES : SPACE_NO)))
                        continue;
                s.groups[s.count] = (struct space_group){.gpus = machine->gpus, .offload = offload};
                rc = settle_group(&s.groups[s.count++], space, machine, err);
        }
        groups->count += s.count;
        s.length = s.count * walk_length(space, machine->gpus);
        if (rc)
                return rc;
        s.share = mmap(NULL, sizeof *s.share, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (s.share == MAP_FAILED)
                return rv_fail(err, RV_ESYSTEM, "no memory that processes share: %s", strerror(errno));
        walk_begin(s.share);
        rc = begin_well(&s, workers, err);
        if (rc == 0)
                rc = workers > 1 ? walk_together(&s, workers, err) : walk(&s, s.groups, tell, err);
        const double limit = space->reach > 0 ? space->reach * atomic_load(&s.share->best) : INFINITY;
        for (int i = 0; i < s.count; i++) {
                finish_group(&s.groups[i], limit, atomic_load(&s.share->best));
                considered += s.groups[i].considered;
        }
        groups->stopped = groups->stopped || atomic_load(&s.share->stop);
        munmap(s.share, sizeof *s.share);
        paper_memo_free(&memo);
        return rc || considered || groups->stopped ? rc : no_grid(space, &s.groups[0], err);
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
        for (int i = 0; rc == 0 && i < space->gpus.count && !groups->stopped; i++)
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
