/* Errors of prices, carried through to the batch: closed forms, and nine runs in ten inside. */
#include "runtime/plan/framework.h"
#include "sim/world/interval.h"
#include "sim/world/paper_batch.h"
#include "tests/unit/noise.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A machine without links' errors: kernels only, on one GPU. */
struct bench {
        struct profile_load load;
        struct machine machine;
        struct options options;
};

static void price_kind(struct bench *bench, enum kernel_kind kind, double seconds, double error)
{
        bench->load.models[DTYPE_FP32][kind] =
                (struct kernel_model){.overhead_seconds = seconds, .error = error, .present = true};
}

/* Every kernel takes nothing and errs by nothing, until it is priced. */
static void open_bench(struct bench *bench, bool measured, int gpus)
{
        struct rv_error_info err;
        *bench = (struct bench){.load = {.ranks = 1}};
        for (int kind = 0; kind < KERNEL_KINDS; kind++)
                price_kind(bench, (enum kernel_kind)kind, 0, 0);
        bench->machine = (struct machine){.load = &bench->load, .kinds = 1, .gpus = gpus};
        bench->machine.profile = (struct profile){
                .path = "x.json", .measured = measured, .loads = &bench->load, .load_count = 1};
        if (platform_load(&bench->machine.platform, "generic", &bench->machine.profile, gpus, &err))
                fail_msg("%s", err.sentence);
        bench->machine.platform.host_link_bytes_per_second = 0; /* tokens come in no time */
        options_init(&bench->options);
        bench->options.model = "tiny";
        bench->options.micro_batch_size = 1;
        bench->options.batch_size = 8;
        bench->options.fusion = FUSION_OFF; /* kernels of few kinds, whose times add up by hand */
        if (options_resolve(&bench->options, gpus, &err))
                fail_msg("%s", err.sentence);
}

static void kinds_add_up_in_squares_by_what_they_are_of_the_batch(void **state)
{
        (void)state;
        struct bench bench;
        open_bench(&bench, true, 1);
        price_kind(&bench, KERNEL_SOFTMAX, 3e-3, 0.04); /* three quarters and a quarter of the batch */
        price_kind(&bench, KERNEL_SOFTMAX_BACKWARD, 1e-3, 0.08);
        struct interval interval = interval_of(&bench.machine, &bench.options, 10);
        assert_true(interval.known);
        const double expected = hypot(0.75 * 0.04, 0.25 * 0.08);
        assert_close(interval.all, expected, 1e-6);
        assert_close(interval.low_seconds, 10 * exp(-1.6448536 * expected), 1e-6);
        assert_close(interval.high_seconds, 10 * exp(1.6448536 * expected), 1e-6);

        bench.load.error = 0.1; /* of all kernels alike */
        interval = interval_of(&bench.machine, &bench.options, 10);
        assert_close(interval.relative[INTERVAL_COMMON], 0.1, 1e-6);
        assert_close(interval.all, hypot(0.1, expected), 1e-6);
}

/* Launches are the whole batch, since kernels take nothing; runs differ whatever it is made of. */
static void a_framework_has_errors_of_launches_and_of_runs(void **state)
{
        (void)state;
        struct bench bench;
        struct framework framework = {
                .term_count = 1, .figure_count = 1, .eager_term = 0, .broadcast_term = -1};
        open_bench(&bench, true, 1);
        framework.figures[0].values[FRAMEWORK_HOST_SECONDS_A_KERNEL] = 1e-3;
        framework.figures[0].values[FRAMEWORK_HOST_ERROR] = 0.2;
        framework.figures[0].values[FRAMEWORK_RUN_ERROR] = 0.03;
        bench.options.framework = &framework;
        const struct interval interval = interval_of(&bench.machine, &bench.options, 10);
        assert_true(interval.known);
        assert_close(interval.relative[INTERVAL_LAUNCHES], 0.2, 1e-6);
        assert_close(interval.relative[INTERVAL_RUNS], 0.03, 1e-6);
        assert_close(interval.all, hypot(0.2, 0.03), 1e-6);
}

static void what_a_datasheet_states_adds_up_as_it_is(void **state)
{
        (void)state;
        struct bench bench;
        open_bench(&bench, false, 1);
        price_kind(&bench, KERNEL_SOFTMAX, 3e-3, 0.04);
        price_kind(&bench, KERNEL_SOFTMAX_BACKWARD, 1e-3, 0.08);
        struct interval interval = interval_of(&bench.machine, &bench.options, 10);
        assert_close(interval.all, 0.75 * 0.04 + 0.25 * 0.08, 1e-6);
}

/* An error beyond what prices are changed by acts in proportion; one of all and more is none to print. */
static void large_errors_act_in_proportion(void **state)
{
        (void)state;
        struct bench bench;
        open_bench(&bench, true, 1);
        price_kind(&bench, KERNEL_SOFTMAX, 1e-3, 0.9);
        struct interval interval = interval_of(&bench.machine, &bench.options, 1);
        assert_close(interval.all, 0.9, 1e-6);
        price_kind(&bench, KERNEL_SOFTMAX, 1e-3, 7);
        interval = interval_of(&bench.machine, &bench.options, 1);
        assert_false(interval.known);
        assert_non_null(strstr(interval.unknown, "measure again on an idle machine"));
}

static void an_error_that_matters_and_is_not_known_is_named(void **state)
{
        (void)state;
        struct bench bench;
        open_bench(&bench, true, 1);
        price_kind(&bench, KERNEL_SOFTMAX, 1e-3, 0.01);
        assert_true(interval_of(&bench.machine, &bench.options, 1).known); /* the others take no time */
        price_kind(&bench, KERNEL_LAYERNORM, 1e-3, 0);
        struct interval interval = interval_of(&bench.machine, &bench.options, 1);
        assert_false(interval.known);
        assert_string_equal(interval.unknown, "profile x.json does not say the error of layernorm");
}

/* Shapes that were measured err each by itself, and shapes that a model prices all alike. */
static void measured_shapes_err_apart_and_modelled_ones_together(void **state)
{
        (void)state;
        struct bench bench;
        open_bench(&bench, true, 1);
        price_kind(&bench, KERNEL_MATMUL, 1e-3, 0.05);
        struct interval together = interval_of(&bench.machine, &bench.options, 1);
        assert_close(together.all, 0.05, 1e-6);

        struct stage stage = partition_stage(&bench.options.gpt, 1, 0);
        struct work work = options_work(&bench.options);
        struct kernel kernels[4096];
        struct kernel_point points[64];
        double counts[64] = {0}, sum = 0, squares = 0;
        int count = workload_forward(&bench.options.gpt, &stage, &work, false, kernels);
        count += workload_backward(&bench.options.gpt, &stage, &work, kernels + count);
        assert_true(count <= 4096);
        for (int i = 0; i < count; i++) {
                int j = 0;
                if (kernels[i].kind != KERNEL_MATMUL)
                        continue;
                while (j < bench.load.point_count && !kernel_same(&points[j].kernel, &kernels[i]))
                        j++;
                if (j == bench.load.point_count)
                        points[bench.load.point_count++] =
                                (struct kernel_point){kernels[i], 1e-3, 1e-3, 1e-3, 9, 0.05};
                counts[j]++;
        }
        bench.load.points = points;
        assert_true(bench.load.point_count > 5 && bench.load.point_count < 64);
        for (int j = 0; j < bench.load.point_count; j++) {
                sum += counts[j];
                squares += counts[j] * counts[j];
        }
        struct interval apart = interval_of(&bench.machine, &bench.options, 1);
        assert_close(apart.all, 0.05 * sqrt(squares) / sum, 1e-6);
}

/* Prices drawn at random with the errors that the profile states: the batch that they make lies in the
 * interval nine times in ten, of a plan with a pipeline, whose stages wait for each other. */
static void nine_batches_in_ten_lie_in_the_interval(void **state)
{
        (void)state;
        enum { TRIALS = 2000 };
        static const struct {
                enum kernel_kind kind;
                double seconds, error;
        } truths[] = {{KERNEL_MATMUL, 1e-3, 0.05},
                      {KERNEL_SOFTMAX, 2e-3, 0.1},
                      {KERNEL_LAYERNORM_BACKWARD, 1e-3, 0.03},
                      {KERNEL_CROSS_ENTROPY, 5e-3, 0.2}};
        struct bench bench;
        uint64_t seed = 20261121;
        int inside = 0;
        open_bench(&bench, true, 1);
        bench.options.pp = 2;
        bench.machine.gpus = 2;
        bench.load.error = 0.02;
        for (size_t i = 0; i < sizeof truths / sizeof *truths; i++)
                price_kind(&bench, truths[i].kind, truths[i].seconds, truths[i].error);
        const double predicted = paper_batch_seconds(&bench.machine, &bench.options);
        const struct interval interval = interval_of(&bench.machine, &bench.options, predicted);
        assert_true(interval.known);
        for (int trial = 0; trial < TRIALS; trial++) {
                const double common = exp(0.02 * normal(&seed));
                for (size_t i = 0; i < sizeof truths / sizeof *truths; i++)
                        price_kind(&bench, truths[i].kind,
                                   truths[i].seconds * common * exp(truths[i].error * normal(&seed)), 0);
                const double batch = paper_batch_seconds(&bench.machine, &bench.options);
                inside += interval.low_seconds <= batch && batch <= interval.high_seconds;
        }
        /* A binomial of 2000 at 0.9 has a standard deviation of 13. */
        if (inside < 1800 - 4 * 13 || inside > 1800 + 4 * 13)
                fail_msg("%d of %d batches lie in the interval (seed 20261121)", inside, TRIALS);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(kinds_add_up_in_squares_by_what_they_are_of_the_batch),
                cmocka_unit_test(a_framework_has_errors_of_launches_and_of_runs),
                cmocka_unit_test(what_a_datasheet_states_adds_up_as_it_is),
                cmocka_unit_test(large_errors_act_in_proportion),
                cmocka_unit_test(an_error_that_matters_and_is_not_known_is_named),
                cmocka_unit_test(measured_shapes_err_apart_and_modelled_ones_together),
                cmocka_unit_test(nine_batches_in_ten_lie_in_the_interval),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
