#include "sim/search/search.h"

#include "sim/world/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Plans that are simulated before the search looks again. */
enum { STEP = 16 };

int search_check(const struct space_groups *groups, struct rv_error_info *err)
{
        const struct space_group *none = &groups->groups[0], *forbidden = NULL;
        bool fits = false;
        for (int i = 0; i < groups->count; i++) {
                const struct space_group *group = &groups->groups[i];
                struct prediction p;
                if (group->count == 0 && group->forbidden)
                        forbidden = group;
                if (group->count == 0) {
                        none = none->considered > 0 && !group->unpriced ? none : group;
                        continue;
                }
                fits = true;
                int rc = predict_open(&p, &group->candidates[0].options, group->candidates[0].machine, err);
                predict_close(&p);
                if (rc)
                        return rc;
        }
        if (fits)
                return 0;
        if (none->unpriced)
                return rv_fail(err, none->no_price.code, "%s", none->no_price.sentence);
        if (forbidden)
                return rv_fail(
                        err, RV_EPLAN, "plans fit on %d GPU%s, but all are left out, such as one because %s",
                        forbidden->gpus, rv_plural(forbidden->gpus), forbidden->why_forbidden.sentence);
        return rv_fail(err, RV_EPLAN, "no plan fits; on %d GPU%s the nearest of %d: %.*s", none->gpus,
                       rv_plural(none->gpus), none->considered, (int)strcspn(none->nearest.sentence, ":"),
                       none->nearest.sentence);
}

bool search_has(const struct space_group *group, const struct job *job)
{
        return job->candidate >= group->candidates && job->candidate < group->candidates + group->count;
}

int search_order(const struct job *a, const struct job *b)
{
        if (a->outcome.figures.median != b->outcome.figures.median)
                return a->outcome.figures.median < b->outcome.figures.median ? -1 : 1;
        return (a->candidate > b->candidate) - (a->candidate < b->candidate);
}

struct search_state search_look(const struct space_group *group, const struct jobs *jobs)
{
        struct search_state state = {.min = INFINITY, .next_seconds = NAN};
        for (int i = 0; i < jobs->count; i++) {
                const struct job *job = &jobs->list[i];
                if (job->outcome.state != OUTCOME_DONE || !search_has(group, job))
                        continue;
                const double ratio = job->outcome.figures.median / job->candidate->paper_seconds;
                state.min = fmin(state.min, ratio);
                state.max = fmax(state.max, ratio);
                if (!state.best || search_order(job, state.best) < 0)
                        state.best = job;
        }
        if (group->chosen < group->count)
                state.next_seconds = group->candidates[group->chosen].paper_seconds;
        return state;
}

static int add(struct space_group *group, struct jobs *jobs, int count, struct rv_error_info *err)
{
        const struct candidate **list = calloc((size_t)count + 1, sizeof(const struct candidate *));
        if (!list)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d plans", count);
        for (int i = 0; i < count; i++)
                list[i] = &group->candidates[group->chosen + i];
        const int rc = jobs_add(jobs, list, count, err);
        free(list);
        group->chosen += count;
        return rc ? rc : count;
}

/* How many of the next plans could beat the best. */
static int promising(const struct space *space, const struct space_group *group, const struct jobs *jobs)
{
        const struct search_state state = search_look(group, jobs);
        const double reach = fmin(state.min, 1) * (1 - space->margin);
        const int left = group->count - group->chosen;
        int count = 0;
        while (count < left && count < STEP &&
               (!state.best || group->candidates[group->chosen + count].paper_seconds * reach <
                                       state.best->outcome.figures.median))
                count++;
        return count;
}

int search_next(const struct space *space, struct space_group *group, struct jobs *jobs, int first,
                struct rv_error_info *err)
{
        int wanted;
        if (group->chosen > 0)
                wanted = space->simulate == SPACE_AUTO ? promising(space, group, jobs) : 0;
        else
                wanted = space->simulate == SPACE_AUTO  ? first
                         : space->simulate == SPACE_ALL ? group->count
                                                        : space->simulate;
        if (wanted > group->count - group->chosen)
                wanted = group->count - group->chosen;
        return wanted > 0 ? add(group, jobs, wanted, err) : 0;
}
