/* What rounds differ by becomes errors of points: what all kernels share, and what each has for itself. */
#include "calibrate/samples.h"
#include "tests/unit/noise.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

enum { KERNELS = 12, VISITS = 8, MAX_ROUNDS = 400 };

/* Each of another kind: models of single points take no time to fit. */
static struct kernel kernel_of(int i)
{
        return (struct kernel){
                .kind = (enum kernel_kind)(KERNEL_MATMUL + i), .batch = 1, .m = 99, .n = 64, .k = 8};
}

/* In a round the machine is slower by a factor, and each kernel by something of its own besides. */
static void measure_round(struct samples *samples, double slower, double drift, double own, uint64_t *seed)
{
        for (int i = 0; i < KERNELS; i++) {
                const struct kernel kernel = kernel_of(i);
                const double seconds = 1e-3 * (1 + i) * slower * (1 + own * normal(seed));
                for (int visit = 0; visit < VISITS; visit++)
                        samples_add_kernel(samples, &kernel, seconds, false);
        }
        samples_add_line(samples, LINE_COPY, 4096, 1e-5 * (1 + drift * normal(seed)));
        samples_end_round(samples);
}

static void free_load(struct profile_load *load)
{
        free(load->points);
        for (int line = 0; line < PROFILE_LINES; line++)
                free(load->lines[line].points);
}

/* Rounds of each rank one behind the other, as samples_gather leaves them. All ranks are slow in the same. */
static struct profile_load measure(int ranks, int rounds, double drift, double own, uint64_t *seed)
{
        struct samples samples;
        double slower[MAX_ROUNDS];
        samples_init(&samples, ranks, 0);
        for (int round = 0; round < rounds; round++)
                slower[round] = 1 + drift * normal(seed);
        for (int rank = 0; rank < ranks; rank++)
                for (int round = 0; round < rounds; round++)
                        measure_round(&samples, slower[round], drift, own, seed);
        struct profile_load load = samples_load(&samples, 0);
        samples_free(&samples);
        return load;
}

/* Many rounds tell both errors apart. */
static void drift_is_of_the_load_and_the_rest_of_the_points(void **state)
{
        (void)state;
        uint64_t seed = 20261121;
        struct profile_load load = measure(1, MAX_ROUNDS, 0.05, 0.02, &seed);
        double squares = 0;
        assert_int_equal(load.point_count, KERNELS);
        if (fabs(load.error / 0.05 - 1) > 0.15)
                fail_msg("the load's error is %g, should be 0.05", load.error);
        for (int i = 0; i < KERNELS; i++)
                squares += load.points[i].error * load.points[i].error / KERNELS;
        if (fabs(sqrt(squares) / 0.02 - 1) > 0.15)
                fail_msg("the points' errors are %g, should be 0.02", sqrt(squares));
        if (fabs(load.lines[LINE_COPY].points[0].error / 0.05 - 1) > 0.15)
                fail_msg("the copies' error is %g, should be 0.05", load.lines[LINE_COPY].points[0].error);
        free_load(&load);
}

/* Half of a kernel's samples were interrupted, and one round as a whole was slow. */
static void what_company_disturbed_is_left_out(void **state)
{
        (void)state;
        enum { ROUNDS = 6, SLOW = 4 };
        const struct kernel kernel = kernel_of(0), never_alone = kernel_of(1);
        struct samples samples;
        samples_init(&samples, 1, 0);
        for (int round = 0; round < ROUNDS; round++) {
                for (int visit = 0; visit < VISITS; visit++) {
                        const bool disturbed = visit % 2;
                        const double seconds = 1e-3 * (1 + 1e-3 * round) * (round == SLOW ? 1.5 : 1);
                        samples_add_kernel(&samples, &kernel, seconds + 3e-3 * disturbed, disturbed);
                        samples_add_kernel(&samples, &never_alone, 2e-3, true);
                }
                samples_end_round(&samples);
                assert_true(samples_settled(&samples) ==
                            (round > 0)); /* a median, which one round does not move */
        }
        assert_int_equal(samples_leave_out_rounds(&samples), 1);
        assert_float_equal(samples_disturbed(&samples), (0.5 + 0.5 / ROUNDS + 1) / 2, 1e-9);
        struct profile_load load = samples_load(&samples, 0);
        assert_float_equal(load.points[0].seconds, 1.0022e-3, 1e-6);
        assert_int_equal(load.points[0].samples, (ROUNDS - 1) * VISITS / 2);
        assert_float_equal(load.points[1].seconds, 2e-3, 1e-9); /* better than nothing */
        samples_free(&samples);
        free_load(&load);
}

static void one_round_tells_nothing_of_others(void **state)
{
        (void)state;
        uint64_t seed = 1;
        struct profile_load load = measure(1, 1, 0.05, 0.02, &seed);
        assert_true(load.error == 0 && load.points[0].error == 0 &&
                    load.lines[LINE_COPY].points[0].error == 0);
        free_load(&load);
}

/* What all kernels take together in another run, against its prediction from three rounds. */
static void expect_nine_in_ten(int ranks)
{
        enum { TRIALS = 1500 };
        uint64_t seed = 7;
        int inside = 0;
        for (int trial = 0; trial < TRIALS; trial++) {
                struct profile_load load = measure(ranks, 3, 0.05, 0.02, &seed);
                double predicted = 0, found = 0, squares = 0;
                const double slower = 1 + 0.05 * normal(&seed);
                for (int i = 0; i < KERNELS; i++) {
                        const double seconds = load.points[i].seconds, error = seconds * load.points[i].error;
                        predicted += seconds;
                        squares += error * error;
                        found += 1e-3 * (1 + i) * slower * (1 + 0.02 * normal(&seed));
                }
                const double error = hypot(load.error, sqrt(squares) / predicted);
                inside += fabs(found / predicted - 1) <= 1.645 * error;
                free_load(&load);
        }
        const double part = (double)inside / TRIALS;
        if (part < 0.87 || part > 0.95)
                fail_msg("%d ranks: %d of %d runs lie within the errors (seed 7)", ranks, inside, TRIALS);
}

static void nine_runs_in_ten_lie_within_the_errors_of_three_rounds(void **state)
{
        (void)state;
        expect_nine_in_ten(1);
}

/* They share the machine's moods: more of them do not know more of it. */
static void as_many_do_within_those_of_three_rounds_of_several_ranks(void **state)
{
        (void)state;
        expect_nine_in_ten(2);
        expect_nine_in_ten(4);
}

/* Launches that take 2 us in a graph, of which the recorder says 5; kernels of 10 us and of 4. */
static void add_timed(struct samples *samples, const struct kernel *kernels)
{
        for (int i = 0; i < 3; i++) {
                samples_add_kernel(samples, &kernels[0], 10e-6, false);
                samples_add_kernel(samples, &kernels[1], 4e-6, i == 1);
                samples_add_kernel(samples, &kernels[2], 10e-6, false);
        }
        series_add(&samples->launches[1][1], 2e-6);
        samples_end_round(samples);
}

static void what_timing_costs_is_taken_off(void **state)
{
        (void)state;
        const struct kernel kernels[] = {kernel_of(0), kernel_of(1), kernel_of(2)};
        struct samples samples;
        samples_init(&samples, 1, 0);
        add_timed(&samples, kernels);
        assert_true(samples_timing_cost(&samples) == 0); /* not known */
        samples_take_off_timing(&samples);
        assert_true(samples.kernels[0].seconds.values[0] == 10e-6);
        series_add(&samples.recorded, 5e-6);
        assert_true(fabs(samples_timing_cost(&samples) - 3e-6) < 1e-12);
        samples_take_off_timing(&samples);
        assert_true(fabs(samples.kernels[0].seconds.values[0] - 7e-6) < 1e-12);
        assert_true(fabs(samples.kernels[0].rounds.values[0] - 7e-6) < 1e-12);
        /* No kernel takes less than one that has nothing to do, and a disturbed one stays marked. */
        assert_true(fabs(samples.kernels[1].seconds.values[0] + 2e-6) < 1e-12); /* a round is sorted */
        assert_true(fabs(samples.kernels[1].seconds.values[1] - 2e-6) < 1e-12);
        samples_free(&samples);
}

static void passes_stretch_all_kernels_but_the_optimizers_and_one(void **state)
{
        (void)state;
        const struct kernel kernels[] = {
                kernel_of(0), {.kind = KERNEL_ADAMW, .batch = 1, .m = 8}, kernel_of(2)};
        struct samples samples;
        samples_init(&samples, 1, 0);
        add_timed(&samples, kernels);
        samples_stretch(&samples, 1.5, &kernels[2]);
        assert_true(fabs(samples.kernels[0].seconds.values[2] - 15e-6) < 1e-12);
        assert_true(fabs(samples.kernels[0].rounds.values[0] - 15e-6) < 1e-12);
        assert_true(samples.kernels[1].seconds.values[2] == 4e-6);
        assert_true(samples.kernels[2].seconds.values[2] == 10e-6);
        samples_free(&samples);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(drift_is_of_the_load_and_the_rest_of_the_points),
                cmocka_unit_test(what_company_disturbed_is_left_out),
                cmocka_unit_test(one_round_tells_nothing_of_others),
                cmocka_unit_test(nine_runs_in_ten_lie_within_the_errors_of_three_rounds),
                cmocka_unit_test(as_many_do_within_those_of_three_rounds_of_several_ranks),
                cmocka_unit_test(what_timing_costs_is_taken_off),
                cmocka_unit_test(passes_stretch_all_kernels_but_the_optimizers_and_one),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
