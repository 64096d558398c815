/* The search for plans: several processes find what one finds, and a search that leaves out what is beyond
 * the reach of the best finds all that is within it. */
#include "sim/search/space.h"
#include "tests/unit/sanitized.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A model, a number of devices, and axes beside the defaults of --plans all. */
struct question {
        const char *model, *machine, *platform;
        int gpus, batch_size, seq_len;
        const char *tp, *cp, *ep;
};
static const struct question questions[] = {
        {"llama3-8b", "h100", "dgx-h100", 8, 32, 8192, "1,2", "1,2", "1"},
        {"gpt-12b", "v100-datasheet", "summit", 6, 12, 512, "1,3", "1,2", "1"}, /* without kernels for cp 2 */
        {"mixtral-tiny", "a100", "dgx-a100", 8, 32, 64, "1,2", "1", "1,2,4"},
};
enum { QUESTIONS = sizeof questions / sizeof *questions };

/* The first that is asked: the last is the smallest. */
static int first_question(void)
{
        return is_every_case_taken() ? 0 : SANITIZED ? 2 : 1;
}

static struct space ask(const struct question *q)
{
        struct space space = {.gpus = {{q->gpus}, 1},
                              .micro_batch_sizes = {{1}, 1},
                              .offload = SPACE_BOTH,
                              .offload_activations = SPACE_BOTH,
                              .recompute = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_FULL};
        struct rv_error_info err;
        axes_init(&space.axes);
        options_init(&space.base);
        space.base.model = q->model;
        space.base.batch_size = q->batch_size;
        space.base.seq_len = q->seq_len;
        space.base.micro_batch_size = 1;
        if (axis_parse(axes_named(&space.axes, "tp"), q->tp, &err) ||
            axis_parse(axes_named(&space.axes, "cp"), q->cp, &err) ||
            axis_parse(axes_named(&space.axes, "ep"), q->ep, &err) ||
            axis_parse(axes_named(&space.axes, "schedule"), "axonn,1f1b,interleaved,zero-bubble", &err) ||
            !axes_preset(&space.axes, "all") || machine_choose_precision(q->machine, &space.base, &err) ||
            options_resolve(&space.base, 1, &err))
                fail_msg("%s: %s", q->model, err.sentence);
        return space;
}

static struct space_groups explore(const struct space *space, const struct question *q)
{
        struct space_groups groups;
        struct rv_error_info err;
        if (space_explore(&groups, space, q->machine, q->platform, false, &err))
                fail_msg("%s: %s", q->model, err.sentence);
        return groups;
}

static const char *describe(const struct candidate *c)
{
        static char text[300];
        struct axes axes;
        axes_init(&axes);
        axes_preset(&axes, "all");
        const struct options *o = &c->options;
        const int length =
                snprintf(text, sizeof text, "pp %d, dp %d, micro-batch %d, recompute %s%s%s, ", o->pp, o->dp,
                         o->micro_batch_size, recompute_name(o->recompute), o->offload ? ", offload" : "",
                         o->offload_activations ? ", activations" : "");
        axes_describe(&axes, o, text + length, sizeof text - (size_t)length);
        return text;
}

static void expect_candidate(const struct candidate *found, const struct candidate *expected,
                             const char *model)
{
        if (found->number != expected->number || found->paper_seconds != expected->paper_seconds ||
            memcmp(&found->options.policy, &expected->options.policy, sizeof found->options.policy) != 0)
                fail_msg("%s: plan %lld of %.9g s, expected plan %lld of %.9g s: %s", model,
                         (long long)found->number, found->paper_seconds, (long long)expected->number,
                         expected->paper_seconds, describe(expected));
}

static void expect_group(const struct space_group *found, const struct space_group *expected,
                         const char *model)
{
        assert_int_equal(found->considered, expected->considered);
        assert_int_equal(found->slow, 0);
        assert_int_equal(found->fitting, expected->fitting);
        assert_int_equal(found->unpriced, expected->unpriced);
        assert_int_equal(found->needless, expected->needless);
        assert_int_equal(found->exclusions, expected->exclusions);
        assert_true(found->nearest_excess == expected->nearest_excess);
        if (expected->nearest_excess > 0)
                assert_string_equal(found->nearest.sentence, expected->nearest.sentence);
        for (int i = 0; i < expected->exclusions; i++) {
                assert_int_equal(found->excluded[i].count, expected->excluded[i].count);
                assert_string_equal(found->excluded[i].first.sentence, expected->excluded[i].first.sentence);
        }
        assert_int_equal(found->count, expected->count);
        for (int i = 0; i < expected->count; i++)
                expect_candidate(&found->candidates[i], &expected->candidates[i], model);
}

/* Every plan that was found is one of all plans; and of these none is missing that is within the reach and
 * keeps what it computes: what recomputes or offloads activations may be passed over for one that does not.
 */
static int expect_within(const struct space_groups *found, const struct space_groups *all, double reach,
                         const char *model)
{
        double best = INFINITY;
        int within = 0;
        for (int g = 0; g < all->count; g++)
                if (all->groups[g].count > 0)
                        best = fmin(best, all->groups[g].candidates[0].paper_seconds);
        for (int g = 0; g < all->count; g++) {
                const struct space_group *expected = &all->groups[g], *own = &found->groups[g];
                int at = 0;
                assert_true(own->fitting <= expected->fitting);
                for (int i = 0; i < expected->count; i++) {
                        const struct candidate *c = &expected->candidates[i];
                        if (c->paper_seconds > reach * best)
                                break;
                        if (at < own->count && own->candidates[at].number == c->number) {
                                expect_candidate(&own->candidates[at++], c, model);
                                within++;
                        } else {
                                assert_true(c->options.recompute || c->options.offload_activations);
                        }
                }
                assert_int_equal(at, own->count);
        }
        return within;
}

static void expect_the_same(const struct space_groups *found, const struct space_groups *expected,
                            const char *model)
{
        assert_int_equal(found->count, expected->count);
        for (int i = 0; i < expected->count; i++)
                expect_group(&found->groups[i], &expected->groups[i], model);
}

static void searches_find_the_same(void **state)
{
        (void)state;
        const double reaches[] = {1, 1.05, 1.3};
        for (int i = first_question(); i < QUESTIONS; i++) {
                struct space space = ask(&questions[i]);
                struct space_groups all = explore(&space, &questions[i]);
                int within = 0;
                space.workers = 3;
                struct space_groups together = explore(&space, &questions[i]);
                expect_the_same(&together, &all, questions[i].model);
                space_free(&together);
                for (int r = 0; r < 3; r++) {
                        space.reach = reaches[r];
                        space.workers = r; /* 0 is the caller's own process */
                        struct space_groups found = explore(&space, &questions[i]);
                        const int more = expect_within(&found, &all, reaches[r], questions[i].model);
                        assert_true(more > 0 &&
                                    more >= within); /* so the best is among them, or one as fast */
                        within = more;
                        space_free(&found);
                }
                assert_true(within > 4);
                space_free(&all);
        }
}

static double best_of(const struct space_groups *groups, bool larger)
{
        double best = INFINITY;
        for (int i = 0; i < groups->count; i++) {
                const struct space_group *group = &groups->groups[i];
                if (larger && group->larger.machine)
                        best = fmin(best, group->larger.paper_seconds);
                if (!larger && group->count > 0)
                        best = fmin(best, group->candidates[0].paper_seconds);
        }
        return best;
}

/* The best plan that would fit with twice the memory is the best of devices that have it. Their loss may be
 * made in fewer parts, which is hardly faster. */
static void what_needs_larger_devices_is_found(void **state)
{
        (void)state;
        for (int i = first_question(); i < QUESTIONS; i++) {
                struct space space = ask(&questions[i]);
                space.reach = 1.02;
                space.larger = 2;
                struct space_groups found = explore(&space, &questions[i]);
                const double best = best_of(&found, false), larger = best_of(&found, true);
                const struct capacity capacity = machine_capacity(&found.machines[0], &space.base);
                space.larger = 0;
                space.base.memory[MEMORY_DEVICE] = 2 * capacity.bytes[MEMORY_DEVICE];
                struct space_groups twice = explore(&space, &questions[i]);
                const double expected = best_of(&twice, false);
                if (!(expected < best ? larger >= expected * (1 - 1e-9) && larger <= 1.01 * expected
                                      : isinf(larger)))
                        fail_msg("%s: %.9g s, with twice the memory %.9g s, but %.9g s are found",
                                 questions[i].model, best, expected, larger);
                space_free(&found);
                space_free(&twice);
        }
}

/* ---- what is passed over ---- */

/* How many combinations are worth a look, with so many stages, and the sum of their numbers. */
static int64_t worth(const struct space *space, int gpus, int pp, bool pass_over, int64_t *numbers)
{
        int place[AXES] = {0}, last = space->axes.count - 1, at;
        int64_t count = 0;
        *numbers = 0;
        do {
                struct options o = space->base;
                axes_set(&o, &space->axes, place);
                o.pp = pp;
                o.dp = 1;
                o.dp = gpus / (int)options_ranks(&o);
                at = options_ranks(&o) != gpus ? axes_of_grid(&space->axes)
                                               : axes_needless(&space->axes, place, &o);
                if (at == AXES_WORTH) {
                        count++;
                        *numbers += axes_index(&space->axes, place);
                }
        } while (axes_next(&space->axes, place, pass_over && at != AXES_WORTH ? at : last));
        return count;
}

static void nothing_worth_a_look_is_passed_over(void **state)
{
        (void)state;
        for (int i = first_question(); i < QUESTIONS; i++)
                for (int pp = 1; pp <= 4; pp *= 2) {
                        struct space space = ask(&questions[i]);
                        int64_t numbers, all;
                        if (axis_parse(axes_named(&space.axes, "gather-each"), "micro-batch,batch", NULL) ||
                            axis_parse(axes_named(&space.axes, "reshard-after-forward"), "on,off", NULL) ||
                            axis_parse(axes_named(&space.axes, "offload-parameters"), "no,yes", NULL))
                                fail();
                        const int64_t visited = worth(&space, 12, pp, true, &numbers);
                        assert_int_equal(visited, worth(&space, 12, pp, false, &all));
                        assert_int_equal(numbers, all);
                        assert_true(visited > 10 && visited < axes_combinations(&space.axes) / 4);
                }
}

/* ---- a search that is stopped ---- */

static bool stop_at_half(void *context, double share)
{
        double *last = context;
        assert_true(share >= *last && share <= 1);
        *last = share;
        return share < 0.5;
}

static void a_stopped_search_has_what_it_found(void **state)
{
        (void)state;
        double last = 0;
        struct space space = ask(&questions[first_question()]);
        struct space_groups all = explore(&space, &questions[first_question()]);
        space.tick = stop_at_half;
        space.context = &last;
        struct space_groups some = explore(&space, &questions[first_question()]);
        assert_true(some.stopped && !all.stopped);
        assert_true(some.groups[0].considered > 0 && some.groups[0].considered <= all.groups[0].considered);
        assert_true(some.groups[0].considered + some.groups[1].considered <
                    all.groups[0].considered + all.groups[1].considered);
        space_free(&some);
        space_free(&all);
}

/* Where activations are to be kept, or to be offloaded, the search's first good plan is such a one too. */
static void the_best_of_one_kind_of_plans_is_found(void **state)
{
        (void)state;
        for (int i = first_question(); i < QUESTIONS; i++)
                for (int offloaded = 0; offloaded <= 1; offloaded++) {
                        struct space space = ask(&questions[i]);
                        space.offload_activations = offloaded ? SPACE_YES : SPACE_NO;
                        struct space_groups all = explore(&space, &questions[i]);
                        space.reach = 1;
                        struct space_groups found = explore(&space, &questions[i]);
                        assert_true(isfinite(best_of(&found, false)));
                        assert_true(best_of(&found, false) == best_of(&all, false));
                        space_free(&found);
                        space_free(&all);
                }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(searches_find_the_same),
                cmocka_unit_test(the_best_of_one_kind_of_plans_is_found),
                cmocka_unit_test(what_needs_larger_devices_is_found),
                cmocka_unit_test(nothing_worth_a_look_is_passed_over),
                cmocka_unit_test(a_stopped_search_has_what_it_found),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
