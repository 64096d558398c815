/* The world on paper against SimGrid's: the same plans, prices and core, and closed forms in place of flows.
 */
#include "runtime/plan/framework.h"
#include "sim/search/jobs.h"
#include "sim/world/paper_batch.h"
#include "tests/paper/plans.h"
#include "tests/unit/sanitized.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { PLANS = SANITIZED ? 20 : 80, BOUNDS = SANITIZED ? 20 : 400 };
enum { SEED = 20261122 };

static bool nothing(void *context)
{
        (void)context;
        return true;
}

static int ascending(const void *left, const void *right)
{
        const double a = *(const double *)left, b = *(const double *)right;
        return (a > b) - (a < b);
}

/* Plans of all schedules on four machines. Where nothing is shared the two agree; where links or memory are,
 * in the median. */
static void paper_agrees_with_simgrid(void **state)
{
        (void)state;
        struct candidate candidates[PLANS];
        const struct candidate *list[PLANS];
        struct machine machines[PLANS];
        struct jobs jobs = {.tokens = 300e9};
        struct rv_error_info err;
        uint64_t seed = SEED;
        double shared[PLANS];
        int shares = 0;
        for (int i = 0; i < PLANS; i++) {
                const struct plan_machine *m = &plan_machines[i % plan_machine_count];
                candidates[i] = (struct candidate){
                        .options = plans_random(&seed, m), .machine = &machines[i], .number = i};
                list[i] = &candidates[i];
                if (machine_open(&machines[i], m->profile, m->platform,
                                 (int)options_ranks(&candidates[i].options), false, &err))
                        fail_msg("%s", err.sentence);
        }
        assert_int_equal(jobs_add(&jobs, list, PLANS, &err), 0);
        assert_int_equal(jobs_run(&jobs, 0, 1, 2, nothing, NULL, &err), 0);
        for (int i = 0; i < PLANS; i++) {
                const struct candidate *c = jobs.list[i].candidate;
                char text[512];
                plans_describe(&c->options, text, sizeof text);
                if (jobs.list[i].outcome.state != OUTCOME_DONE)
                        fail_msg("plan %d (seed %d) on %s: %s: %s", c->number, SEED,
                                 c->machine->platform.name, text, jobs.list[i].outcome.failure);
                const double error = fabs(paper_batch_seconds(c->machine, &c->options) /
                                                  jobs.list[i].outcome.figures.median -
                                          1);
                if (plans_contend(&c->options, &c->machine->platform))
                        shared[shares++] = error;
                else if (!(error <= 0.01))
                        fail_msg("plan %d (seed %d) on %s: %s: on paper %.2f %% off", c->number, SEED,
                                 c->machine->platform.name, text, 100 * error);
        }
        assert_in_range(shares, PLANS / 8, PLANS * 7 / 8); /* some of either kind */
        qsort(shared, (size_t)shares, sizeof *shared, ascending);
        if (!(shared[shares / 2] <= 0.05))
                fail_msg("plans that share links or memory are %.2f %% off in the median (seed %d)",
                         100 * shared[shares / 2], SEED);
        for (int i = 0; i < PLANS; i++)
                machine_close(&machines[i]);
        free(jobs.list);
}

/* Runs plans in SimGrid, and on paper, which must agree but for a part of `within`; seconds[number] are those
 * simulated. */
static void run_in_both(const struct candidate *candidates, int count, double within, double *seconds)
{
        enum { MORE_THAN_ANY = 64 };
        const struct candidate *list[MORE_THAN_ANY];
        struct jobs jobs = {.tokens = 300e9};
        struct rv_error_info err;
        assert_in_range(count, 1, MORE_THAN_ANY);
        for (int i = 0; i < count; i++)
                list[i] = &candidates[i];
        assert_int_equal(jobs_add(&jobs, list, count, &err), 0);
        assert_int_equal(jobs_run(&jobs, 0, 1, 2, nothing, NULL, &err), 0);
        for (int i = 0; i < count; i++) {
                const struct candidate *c = jobs.list[i].candidate;
                const double simulated = jobs.list[i].outcome.figures.median,
                             found = paper_batch_seconds(c->machine, &c->options);
                char text[512];
                seconds[c->number] = simulated;
                plans_describe(&c->options, text, sizeof text);
                if (jobs.list[i].outcome.state != OUTCOME_DONE || !(fabs(found / simulated - 1) < within))
                        fail_msg("run %d, %s: %.6g s simulated, %.6g s on paper", c->number, text, simulated,
                                 found);
        }
        free(jobs.list);
}

/* Collectives of a grid take turns on the links inside nodes, and on those between them. */
static void grids_agree_with_simgrid(void **state)
{
        (void)state;
        static const char *const grids[] = {"1x2x4", "2x1x8", "2x2x2", "8x1x2", "1x1x4"};
        enum {
                GRIDS = sizeof grids / sizeof *grids,
                OVERLAPS = GRID_OVERLAP_OAG + 1,
                RUNS = GRIDS * OVERLAPS
        };
        struct candidate candidates[RUNS];
        struct machine machines[RUNS];
        struct rv_error_info err;
        for (int i = 0; i < RUNS; i++) {
                struct options o;
                options_init(&o);
                o.model = "gpt2-350m";
                o.pp = 1 + i / OVERLAPS % 2;
                o.policy = POLICY_1F1B;
                o.micro_batch_size = 8;
                o.batch_size = 32;
                o.dtype = DTYPE_BF16;
                o.recompute = i / OVERLAPS % 3 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
                o.grid_overlap = (enum grid_overlap)(i % OVERLAPS);
                o.zero = i / OVERLAPS % 2;
                o.dp = 2;
                if (flag_parse(flag_named("tp"), &o, grids[i / OVERLAPS], &err) ||
                    machine_open(&machines[i], "a100-datasheet", "perlmutter", (int)options_ranks(&o), false,
                                 &err) ||
                    options_resolve(&o, (int)options_ranks(&o), &err))
                        fail_msg("%s", err.sentence);
                candidates[i] = (struct candidate){.options = o, .machine = &machines[i], .number = i};
        }
        double seconds[RUNS];
        run_in_both(candidates, RUNS, 1e-3, seconds);
        for (int i = 0; i < RUNS; i++) {
                assert_true(i % OVERLAPS == 0 || seconds[i] <= seconds[i - 1]);
                machine_close(&machines[i]);
        }
}

/* A host that launches kernel by kernel and goes on while shards gather and sum: what a kernel of its takes
 * decides from some length on, and then hides all else. */
static void hosts_that_are_behind_agree_with_simgrid(void **state)
{
        (void)state;
        static const double hosts[] = {1e-6, 6e-5, 1e-3};
        enum { HOSTS = sizeof hosts / sizeof *hosts, PLANS_OF_SHARDS = 4, RUNS = HOSTS * PLANS_OF_SHARDS };
        struct candidate candidates[RUNS];
        struct machine machines[RUNS];
        struct framework frameworks[RUNS];
        struct rv_error_info err;
        for (int i = 0; i < RUNS; i++) {
                const int plan = i / HOSTS;
                struct options o;
                options_init(&o);
                o.model = "gpt2-350m";
                o.tp = 2 << plan % 2;
                o.pp = 1 + plan / 2 % 2;
                o.dp = 2;
                o.policy = POLICY_1F1B;
                o.micro_batch_size = 2;
                o.batch_size = 32;
                o.dtype = DTYPE_BF16;
                o.sequence_parallel = plan % 3 > 0;
                o.tp_overlap = plan % 3;
                o.like = "megatron";
                o.without = "power-h100,host-h100";
                if (framework_take(&frameworks[i], &o, &err))
                        fail_msg("%s", err.sentence);
                for (int figure = 0; figure < frameworks[i].figure_count; figure++)
                        if (frameworks[i].figures[figure].values[FRAMEWORK_HOST_SECONDS_A_KERNEL] > 0)
                                frameworks[i].figures[figure].values[FRAMEWORK_HOST_SECONDS_A_KERNEL] =
                                        hosts[i % HOSTS];
                if (machine_open(&machines[i], "h100", "dgx-h100", (int)options_ranks(&o), false, &err) ||
                    options_resolve(&o, (int)options_ranks(&o), &err))
                        fail_msg("%s", err.sentence);
                candidates[i] = (struct candidate){.options = o, .machine = &machines[i], .number = i};
        }
        double seconds[RUNS];
        run_in_both(candidates, RUNS, 1e-3, seconds);
        for (int i = 0; i < RUNS; i++) {
                assert_true(i % HOSTS == 0 || seconds[i] >= seconds[i - 1]);
                if (i % HOSTS == HOSTS - 1 && !(seconds[i] > 5 * seconds[i - 1]))
                        fail_msg("plan %d: %g s, and %g with a launch that is many times as long", i / HOSTS,
                                 seconds[i - 1], seconds[i]);
                machine_close(&machines[i]);
                framework_free(&frameworks[i]);
        }
}

/* Of nodes with six GPUs, four shards lie in one or in two: where passes go in parts, beside sums or with
 * gathered weights, the replica whose shards are apart decides as it does elsewhere. */
static void shards_of_two_nodes_agree_with_simgrid(void **state)
{
        (void)state;
        enum { RUNS = 3 };
        struct candidate candidates[RUNS];
        struct machine machines[RUNS];
        struct rv_error_info err;
        for (int i = 0; i < RUNS; i++) {
                struct options o;
                options_init(&o);
                o.model = "gpt2-350m";
                o.tp = 4;
                o.dp = 3;
                o.policy = POLICY_1F1B;
                o.micro_batch_size = 4;
                o.batch_size = 96;
                o.dtype = DTYPE_FP16;
                o.fusion = FUSION_OFF;
                o.sequence_parallel = true;
                o.overlap_allreduce = i == 1;
                o.zero = i == 2 ? 3 : 0;
                if (machine_open(&machines[i], "v100-datasheet", "summit", (int)options_ranks(&o), false,
                                 &err) ||
                    options_resolve(&o, (int)options_ranks(&o), &err))
                        fail_msg("%s", err.sentence);
                candidates[i] = (struct candidate){.options = o, .machine = &machines[i], .number = i};
        }
        double seconds[RUNS];
        run_in_both(candidates, RUNS, 0.02, seconds);
        for (int i = 0; i < RUNS; i++)
                machine_close(&machines[i]);
}

/* Few micro-batches stand for many, over links of any speed: nearly always to all digits, and never 2 % off.
 */
static void a_steady_state_stands_for_all_micro_batches(void **state)
{
        (void)state;
        enum { MORE = 4 * PLANS };
        uint64_t seed = SEED;
        double errors[MORE];
        for (int i = 0; i < MORE; i++) {
                const struct plan_machine *m = &plan_machines[i % plan_machine_count];
                const double speed = pow(10, -1.5 + 2.0 * i / MORE);
                struct machine machine;
                struct rv_error_info err;
                struct options o;
                do { /* with many micro-batches */
                        o = plans_random(&seed, m);
                } while (o.batch_size / o.dp / o.micro_batch_size < 48);
                o.batch_size *= 1 + i % 3;
                if (machine_open(&machine, m->profile, m->platform, (int)options_ranks(&o), false, &err))
                        fail_msg("%s", err.sentence);
                machine.platform.nic_bytes_per_second *= speed;
                machine.platform.gpu_link_bytes_per_second *= 0.3 * speed;
                collective_table_free(&machine.platform.measured_collectives); /* at the links' own speed */
                const double found = paper_batch_seconds(&machine, &o),
                             whole = paper_batch_whole(&machine, &o);
                char text[512];
                plans_describe(&o, text, sizeof text);
                errors[i] = fabs(found / whole - 1);
                if (!(errors[i] <= 0.02))
                        fail_msg("plan %d (seed %d) on %s, links times %.3g: %s: %.3f %% off", i, SEED,
                                 m->platform, speed, text, 100 * errors[i]);
                machine_close(&machine);
        }
        qsort(errors, MORE, sizeof *errors, ascending);
        assert_true(errors[MORE / 2] <= 1e-9);
        assert_true(errors[MORE * 95 / 100] <= 0.003);
}

/* Where the first nodes are the faster ones, the batch goes on as slowly as the others. */
static void the_slowest_replica_decides(void **state)
{
        (void)state;
        struct machine machine;
        struct rv_error_info err;
        struct options o;
        options_init(&o);
        o.model = "gpt2-1.5b";
        o.pp = 4;
        o.dp = 2;
        o.micro_batch_size = 1;
        o.batch_size = 2 * 96;
        o.dtype = DTYPE_FP16;
        o.fusion = FUSION_OFF;
        if (machine_open(&machine, "a100-published,v100-published", "tests/fixtures/platform_two_kinds.json",
                         8, false, &err))
                fail_msg("%s", err.sentence);
        for (int policy = 0; policy < POLICIES; policy++) {
                o.policy = (enum policy_id)policy;
                o.virtual_stages = policy == POLICY_INTERLEAVED ? 2 : 1;
                if (options_resolve(&o, 8, &err))
                        fail_msg("%s", err.sentence);
                const double found = paper_batch_seconds(&machine, &o),
                             whole = paper_batch_whole(&machine, &o);
                if (!(fabs(found / whole - 1) < 1e-3))
                        fail_msg("policy %d: %.6g s, all micro-batches %.6g s", policy, found, whole);
        }
        machine_close(&machine);
}

/* Too few micro-batches for a steady state are all run; what follows the pipeline is run apart, where that is
 * the same. */
static void the_pipeline_and_what_follows_add_up(void **state)
{
        (void)state;
        uint64_t seed = SEED;
        for (int i = 0; i < 2 * PLANS; i++) {
                const struct plan_machine *m = &plan_machines[i % plan_machine_count];
                struct machine machine;
                struct rv_error_info err;
                struct options o;
                do {
                        o = plans_random(&seed, m);
                } while (o.batch_size / o.dp / o.micro_batch_size > o.pp);
                o.allreduce_buckets =
                        1; /* updates of several buckets are run as one, which is not quite the same */
                if (machine_open(&machine, m->profile, m->platform, (int)options_ranks(&o), false, &err))
                        fail_msg("%s", err.sentence);
                const double found = paper_batch_seconds(&machine, &o),
                             whole = paper_batch_whole(&machine, &o);
                char text[512];
                plans_describe(&o, text, sizeof text);
                if (!(fabs(found / whole - 1) < 1e-12))
                        fail_msg("plan %d (seed %d) on %s: %s: %.17g s in two runs, %.17g s in one", i, SEED,
                                 m->platform, text, found, whole);
                machine_close(&machine);
        }
}

/* Plans that differ in what follows the pipeline take as long with a memo as without. */
static void expect_shared(const struct machine *machine, struct options o, const char *what, int *priced,
                          int *kept)
{
        const int ranks = (int)options_ranks(&o);
        struct paper_memo memo = {0};
        struct rv_error_info err;
        for (int variant = 0; variant < 8; variant++) {
                o.zero = variant & 1;
                o.offload = options_mixed(&o) && variant & 2;
                o.micro_batch_size += variant == 4; /* another pipeline */
                if (options_resolve_gpt(&o, ranks, &err))
                        continue;
                const double known = paper_batch_priced(machine, &o, NULL, &memo, &err),
                             alone = paper_batch_seconds(machine, &o);
                ++*priced;
                if (!(known == alone))
                        fail_msg("%s, variant %d: %.17g s, %.17g s with a memo", what, variant, alone, known);
        }
        *kept += memo.pipelines.count;
        paper_memo_free(&memo);
}

/* A batch takes at least what is said, whether it is run or not; what is run is the same as without a bound.
 */
static void a_bound_is_no_more_than_the_batch(void **state)
{
        (void)state;
        uint64_t seed = SEED;
        int unrun = 0;
        static double closest[BOUNDS];
        for (int i = 0; i < BOUNDS; i++) {
                const struct plan_machine *m = &plan_machines[i % plan_machine_count];
                const struct options o = plans_random(&seed, m);
                struct machine machine;
                struct rv_error_info err;
                char text[512];
                plans_describe(&o, text, sizeof text);
                if (machine_open(&machine, m->profile, m->platform, (int)options_ranks(&o), false, &err))
                        fail_msg("%s", err.sentence);
                const double whole = paper_batch_seconds(&machine, &o);
                struct paper_bound none = {1e-9, 0}, own = {whole, 0};
                const double least = paper_batch_priced(&machine, &o, &none, NULL, &err);
                const double within = paper_batch_priced(&machine, &o, &own, NULL, &err);
                if (!(least <= whole * (1 + 1e-9)) || least != none.least || least != own.least ||
                    within != whole)
                        fail_msg("%s on %s: %.9g s, at least %.9g s, %.9g s within its own time", text,
                                 m->platform, whole, least, within);
                closest[i] = least / whole;
                unrun += least < whole;
                machine_close(&machine);
        }
        qsort(closest, BOUNDS, sizeof *closest, ascending);
        assert_true(unrun > BOUNDS / 2);
        assert_true(closest[BOUNDS / 2] > 0.5); /* a bound that says something */
}

static void pipelines_are_shared(void **state)
{
        (void)state;
        uint64_t seed = SEED;
        int priced = 0, kept = 0;
        struct line_point points[] = {{1 << 10, 1e-5, 0}, {1 << 20, 1e-4, 0}, {1 << 30, 1, 0}};
        const struct profile_load measured = {
                .lines[LINE_MESSAGE] = {.fit = {.present = true}, .points = points, .count = 3}};
        for (int i = 0; i < PLANS; i++) {
                const struct plan_machine *m = &plan_machines[i % plan_machine_count];
                const struct options o = plans_random(&seed, m);
                struct machine machine;
                struct rv_error_info err;
                char text[512];
                plans_describe(&o, text, sizeof text);
                if (machine_open(&machine, m->profile, m->platform, (int)options_ranks(&o), false, &err))
                        fail_msg("%s", err.sentence);
                if (i % 2) /* so that rates of links depend on the plan's messages */
                        machine.platform.messages = &measured;
                expect_shared(&machine, o, text, &priced, &kept);
                machine_close(&machine);
        }
        assert_true(priced > 3 * PLANS);
        assert_in_range(kept, priced / 8, priced / 2);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(paper_agrees_with_simgrid),
                cmocka_unit_test(grids_agree_with_simgrid),
                cmocka_unit_test(hosts_that_are_behind_agree_with_simgrid),
                cmocka_unit_test(shards_of_two_nodes_agree_with_simgrid),
                cmocka_unit_test(a_steady_state_stands_for_all_micro_batches),
                cmocka_unit_test(the_slowest_replica_decides),
                cmocka_unit_test(the_pipeline_and_what_follows_add_up),
                cmocka_unit_test(pipelines_are_shared),
                cmocka_unit_test(a_bound_is_no_more_than_the_batch),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
