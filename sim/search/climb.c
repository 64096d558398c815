#include "sim/search/climb.h"

#include <math.h>
#include <string.h>

/* What can be chosen beside the axes. */
enum { CHOICE_GROUP, CHOICE_STAGES, CHOICE_SIZE, CHOICE_RECOMPUTE, CHOICE_ACTIVATIONS, CHOICE_AXES };
enum { CHOICES = CHOICE_AXES + AXES, MOST_STAGES = 64 };

struct climb {
        const struct space_group *groups;
        const struct space *space;
        const struct machine *machine;
        double times; /* the machine's memory */
        struct paper_memo *memo;
        int stages[MOST_STAGES]; /* that can be chosen */
        int values[CHOICES];     /* how many values each choice has */
        int chosen[CHOICES];     /* indices of values */
        double best;             /* seconds of the best plan that fits, of all climbs; INFINITY: none yet */
};

static struct options plan_at(const struct climb *c, const int chosen[CHOICES], const int place[AXES])
{
        const struct space_group *group = &c->groups[chosen[CHOICE_GROUP]];
        struct options o = c->space->base;
        axes_set(&o, &c->space->axes, place);
        o.pp = c->stages[chosen[CHOICE_STAGES]];
        o.micro_batch_size = c->space->micro_batch_sizes.values[chosen[CHOICE_SIZE]];
        o.recompute = (enum recompute)chosen[CHOICE_RECOMPUTE];
        o.offload_activations = chosen[CHOICE_ACTIVATIONS] || c->space->offload_activations == SPACE_YES;
        return walk_complete(group, o);
}

/* The plan of these choices. What makes no difference in it, or does not go with the rest, is the first value
 * of its axis, as in the walk; returns false if that does not go with the rest either. */
static bool plan_of(const struct climb *c, const int chosen[CHOICES], struct options *plan)
{
        int place[AXES], at;
        memcpy(place, &chosen[CHOICE_AXES], sizeof place);
        *plan = plan_at(c, chosen, place);
        while ((at = axes_needless(&c->space->axes, place, plan)) != AXES_WORTH && place[at]) {
                place[at] = 0;
                *plan = plan_at(c, chosen, place);
        }
        return at == AXES_WORTH;
}

/* Less is better: seconds, or, of a plan that does not fit, more than any seconds by how much it is too
 * large. */
static double badness(struct climb *c, const int chosen[CHOICES], double limit)
{
        const double beyond = 1e9;
        struct options o;
        double excess;
        if (!plan_of(c, chosen, &o) || !(c->space->recompute >> o.recompute & 1u))
                return INFINITY;
        const double seconds = walk_seconds(&c->groups[chosen[CHOICE_GROUP]], c->space, c->machine, c->times,
                                            c->memo, &o, limit, &excess);
        return isinf(seconds) && excess > 0 ? beyond * excess : seconds;
}

/* Changes each choice in turn to the value that is best. Returns whether any was changed. */
static bool improve(struct climb *c, double *now)
{
        bool changed = false;
        for (int choice = 0; choice < CHOICES; choice++) {
                int best = c->chosen[choice], tried[CHOICES];
                memcpy(tried, c->chosen, sizeof tried);
                for (int value = 0; value < c->values[choice]; value++) {
                        if (value == c->chosen[choice])
                                continue;
                        tried[choice] = value;
                        const double found = badness(c, tried, *now);
                        if (found < *now * (1 - 1e-9)) {
                                *now = found;
                                best = value;
                        }
                }
                changed = changed || best != c->chosen[choice];
                c->chosen[choice] = best;
        }
        return changed;
}

/* The index of the largest value of an axis. */
static int largest(const struct axes *axes, const char *flag)
{
        const struct flag_values *list = axes_values(axes, flag);
        int largest = 0;
        for (int i = 1; i < list->count; i++)
                if (list->values[i] > list->values[largest])
                        largest = i;
        return largest;
}

static int axis_index(const struct axes *axes, const char *flag)
{
        return CHOICE_AXES + (int)(axes_named((struct axes *)axes, flag) - axes->axis);
}

/* From all shared by replicas or by stages, with shards or without, and everything recomputed. */
static void start(struct climb *c, bool stages, bool shards)
{
        const struct axes *axes = &c->space->axes;
        memset(c->chosen, 0, sizeof c->chosen);
        c->chosen[CHOICE_STAGES] = stages ? c->values[CHOICE_STAGES] / 2 : 0;
        c->chosen[CHOICE_RECOMPUTE] = c->space->recompute & 1u << RECOMPUTE_FULL    ? RECOMPUTE_FULL
                                      : c->space->recompute & 1u << RECOMPUTE_LAYER ? RECOMPUTE_LAYER
                                                                                    : 0;
        c->chosen[axis_index(axes, "tp")] = shards ? largest(axes, "tp") : 0;
        c->chosen[axis_index(axes, "zero")] = stages ? 0 : largest(axes, "zero");
        if (stages && axes_values(axes, "schedule")->count > 1)
                c->chosen[axis_index(axes, "schedule")] = 1;
}

static void count_values(struct climb *c, int groups)
{
        const struct axes *axes = &c->space->axes;
        c->values[CHOICE_GROUP] = groups;
        c->values[CHOICE_SIZE] = c->space->micro_batch_sizes.count;
        c->values[CHOICE_RECOMPUTE] = RECOMPUTES;
        c->values[CHOICE_ACTIVATIONS] = c->space->offload_activations == SPACE_BOTH ? 2 : 1;
        for (int pp = 1; pp <= c->machine->gpus && c->values[CHOICE_STAGES] < MOST_STAGES; pp++)
                if (walk_has_stages(c->space, c->machine->gpus, pp))
                        c->stages[c->values[CHOICE_STAGES]++] = pp;
        for (int i = 0; i < axes->count; i++)
                c->values[CHOICE_AXES + i] = axes->axis[i].list.count;
}

double climb(const struct space_group *groups, int count, const struct space *space,
             const struct machine *machine, double times, struct paper_memo *memo)
{
        enum { ROUNDS = 6 };
        struct climb c = {.groups = groups,
                          .space = space,
                          .machine = machine,
                          .times = times,
                          .memo = memo,
                          .best = INFINITY};
        count_values(&c, count);
        for (int from = 0; c.values[CHOICE_STAGES] > 0 && from < 4; from++) {
                start(&c, from & 1, from & 2);
                double now = badness(&c, c.chosen, INFINITY);
                for (int round = 0; round < ROUNDS && improve(&c, &now); round++)
                        ;
                if (now < 1e9)
                        c.best = fmin(c.best, now);
        }
        return c.best;
}
