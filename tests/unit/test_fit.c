/* Fits recover what made the data, through noise and outliers, and never turn negative. */
#include "calibrate/profile/fit.h"
#include "tests/unit/noise.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SHAPES = 48 };
static const double OVERHEAD = 2e-6, PER_FLOP = 2.5e-11, PER_BYTE = 4e-10;

/* Matrix products of many shapes whose seconds follow the three coefficients above. */
static void make_products(struct kernel_point points[SHAPES])
{
        for (int i = 0; i < SHAPES; i++) {
                int64_t m = 16 << (i % 6), n = 8 << (i / 6 % 4), k = 4 << (i / 24 * 5 + i % 3);
                struct kernel kernel = {.kind = KERNEL_MATMUL, .batch = 1, .m = m, .n = n, .k = k};
                double seconds =
                        OVERHEAD + PER_FLOP * kernel_flops(&kernel) + PER_BYTE * kernel_bytes(&kernel);
                points[i] = (struct kernel_point){.kernel = kernel, .seconds = seconds, .samples = 1};
        }
}

static void exact_data_give_exact_coefficients(void **state)
{
        (void)state;
        struct kernel_point points[SHAPES];
        make_products(points);
        struct kernel_model fit = fit_kernels(points, SHAPES, KERNEL_MATMUL, false, 0);
        assert_true(fit.present);
        assert_int_equal(fit.quality.points, SHAPES);
        assert_close(fit.overhead_seconds, OVERHEAD, 1e-9);
        assert_close(1 / fit.flops_per_second, PER_FLOP, 1e-9);
        assert_close(1 / fit.bytes_per_second, PER_BYTE, 1e-9);
        assert_true(fit.quality.worst_error < 1e-9);
}

static void
noise_of_three_percent_and_outliers_of_a_factor_four_leave_coefficients_within_a_tenth(void **state)
{
        (void)state;
        struct kernel_point points[SHAPES];
        uint64_t seed = 20260726;
        make_products(points);
        for (int i = 0; i < SHAPES; i++)
                points[i].seconds *= i % 12 == 5 ? 4 : 1 + 0.03 * noise(&seed);
        struct kernel_model fit = fit_kernels(points, SHAPES, KERNEL_MATMUL, false, 0);
        assert_close(fit.overhead_seconds, OVERHEAD, 0.1);
        assert_close(1 / fit.flops_per_second, PER_FLOP, 0.1);
        assert_close(1 / fit.bytes_per_second, PER_BYTE, 0.1);
        assert_true(fit.quality.median_error < 0.03);
        assert_true(fit.quality.worst_error > 0.7); /* the outliers are reported, not hidden */
}

static void other_kinds_do_not_enter_a_fit(void **state)
{
        (void)state;
        struct kernel_point points[SHAPES];
        make_products(points);
        for (int i = 0; i < SHAPES; i += 2) {
                points[i].kernel.kind = KERNEL_BIAS;
                points[i].seconds *= 1000;
        }
        struct kernel_model fit = fit_kernels(points, SHAPES, KERNEL_MATMUL, false, 0);
        assert_int_equal(fit.quality.points, SHAPES / 2);
        assert_close(1 / fit.flops_per_second, PER_FLOP, 1e-6);
        assert_false(fit_kernels(points, SHAPES, KERNEL_ADAMW, false, 0).present);
}

/* Half precision moves half of the bytes: the same coefficients come out of either, from points in one list.
 */
static void the_two_precisions_are_fitted_apart(void **state)
{
        (void)state;
        struct kernel_point points[SHAPES];
        make_products(points);
        for (int i = 0; i < SHAPES; i += 2) {
                struct kernel *kernel = &points[i].kernel;
                kernel->dtype = 1;
                points[i].seconds = 3 * OVERHEAD + PER_FLOP / 8 * kernel_flops(kernel) +
                                    PER_BYTE * 2 *
                                            (double)(kernel->m * kernel->k + kernel->k * kernel->n +
                                                     kernel->m * kernel->n);
        }
        struct kernel_model full = fit_kernels(points, SHAPES, KERNEL_MATMUL, false, 0);
        struct kernel_model half = fit_kernels(points, SHAPES, KERNEL_MATMUL, true, 0);
        assert_int_equal(full.quality.points, SHAPES / 2);
        assert_int_equal(half.quality.points, SHAPES / 2);
        assert_close(full.overhead_seconds, OVERHEAD, 1e-6);
        assert_close(1 / full.flops_per_second, PER_FLOP, 1e-6);
        assert_close(1 / full.bytes_per_second, PER_BYTE, 1e-6);
        assert_close(half.overhead_seconds, 3 * OVERHEAD, 1e-6);
        assert_close(1 / half.flops_per_second, PER_FLOP / 8, 1e-6);
        assert_close(1 / half.bytes_per_second, PER_BYTE, 1e-6);
}

/* seconds = bytes x slope - offset would want a negative latency. */
static void a_coefficient_that_wants_to_be_negative_is_dropped(void **state)
{
        (void)state;
        struct line_point points[8];
        for (int i = 0; i < 8; i++) {
                points[i].bytes = (int64_t)4096 << i;
                points[i].seconds = 1e-9 * (double)points[i].bytes - 1e-6;
        }
        struct line_fit fit = fit_line(points, 8);
        assert_true(fit.latency_seconds == 0);
        assert_close(fit.seconds_per_byte, 1e-9, 0.1);

        struct kernel_point kernels[SHAPES];
        make_products(kernels);
        for (int i = 0; i < SHAPES; i++)
                kernels[i].seconds = 1e-6 + PER_FLOP * kernel_flops(&kernels[i].kernel) -
                                     2e-12 * kernel_bytes(&kernels[i].kernel);
        struct kernel_model three = fit_kernels(kernels, SHAPES, KERNEL_MATMUL, false, 0);
        assert_true(three.bytes_per_second == 0);
        assert_true(three.overhead_seconds >= 0 && three.flops_per_second > 0);
        assert_true(three.quality.median_error < 0.2);
}

static void a_line_through_noise_and_an_outlier_is_found(void **state)
{
        (void)state;
        struct line_point points[16];
        uint64_t seed = 7;
        for (int i = 0; i < 16; i++) {
                points[i].bytes = (int64_t)1024 << i;
                points[i].seconds = (5e-6 + 2e-10 * (double)points[i].bytes) * (1 + 0.02 * noise(&seed));
        }
        points[9].seconds *= 10;
        struct line_fit fit = fit_line(points, 16);
        assert_close(fit.latency_seconds, 5e-6, 0.05);
        assert_close(fit.seconds_per_byte, 2e-10, 0.05);
        assert_int_equal(fit.quality.points, 16);
}

static void what_does_not_grow_with_its_bytes_is_a_latency_alone(void **state)
{
        (void)state;
        struct line_point points[8];
        for (int i = 0; i < 8; i++)
                points[i] = (struct line_point){1024 << i, 1e-3 * (1 - 0.01 * i), 0};
        const struct line_fit fit = fit_line(points, 8);
        assert_true(fit.seconds_per_byte == 0);
        assert_close(fit.latency_seconds, 1e-3, 0.1);
}

static void few_points_determine_few_coefficients(void **state)
{
        (void)state;
        struct kernel_point points[SHAPES];
        make_products(points);
        struct kernel_model one = fit_kernels(&points[17], 1, KERNEL_MATMUL, false, 0);
        assert_true(one.present && one.overhead_seconds == 0 && one.bytes_per_second == 0);
        assert_close(kernel_flops(&points[17].kernel) / one.flops_per_second, points[17].seconds, 1e-9);
        assert_true(one.quality.worst_error < 1e-9);

        struct kernel_point two[2] = {points[0], points[SHAPES - 1]};
        struct kernel_model pair = fit_kernels(two, 2, KERNEL_MATMUL, false, 0);
        assert_int_equal(
                (pair.overhead_seconds > 0) + (pair.flops_per_second > 0) + (pair.bytes_per_second > 0), 2);
        assert_true(pair.quality.worst_error < 1e-9);

        struct line_point point = {1000, 1e-3, 0};
        struct line_fit line = fit_line(&point, 1);
        assert_true(line.latency_seconds == 0);
        assert_close(line.seconds_per_byte, 1e-6, 1e-9);
        assert_false(fit_line(NULL, 0).present);
}

/* Elementwise kernels: flops and bytes are the same up to a factor, and cannot be told apart. */
static void terms_that_repeat_each_other_are_not_both_fitted(void **state)
{
        (void)state;
        struct kernel_point points[6];
        for (int i = 0; i < 6; i++) {
                struct kernel kernel = {.kind = KERNEL_ADAMW, .batch = 1, .m = 1000 << i};
                points[i] =
                        (struct kernel_point){.kernel = kernel, .seconds = 3e-6 + 1e-9 * (double)kernel.m};
        }
        struct kernel_model fit = fit_kernels(points, 6, KERNEL_ADAMW, false, 0);
        assert_true(fit.flops_per_second == 0 && fit.bytes_per_second > 0);
        assert_close(fit.overhead_seconds, 3e-6, 1e-6);
        assert_true(fit.quality.worst_error < 1e-6);
}

/* Products of many shapes on what this model says, with noise of `part` and every twelfth four times as slow.
 */
static void make_points(struct kernel_point points[SHAPES], const struct kernel_model *truth, double part,
                        uint64_t seed)
{
        for (int i = 0; i < SHAPES; i++) {
                const struct kernel kernel = {.kind = KERNEL_MATMUL,
                                              .batch = 1,
                                              .m = 32 << (i % 7),
                                              .n = 48 << (i * 5 % 7),
                                              .k = 16 << (i * 3 % 8)};
                const double wrong = part > 0 && i % 12 == 5 ? 4 : 1 + part * noise(&seed);
                points[i] = (struct kernel_point){
                        .kernel = kernel, .seconds = model_seconds(truth, &kernel) * wrong, .samples = 1};
        }
}

static void check_every_parameter(const struct kernel_model *found, const struct kernel_model *truth,
                                  double relative)
{
        struct kernel_model copies[2] = {*found, *truth};
        for (int i = 0; i < MODEL_PARAMETERS; i++) {
                const double is = *model_at(&copies[0], &model_parameters[i]),
                             should = *model_at(&copies[1], &model_parameters[i]);
                if (strcmp(model_parameters[i].name, "error") != 0 && fabs(is - should) > relative * should)
                        fail_msg("%s is %g, should be %g", model_parameters[i].name, is, should);
        }
}

/* What is not in the points (an overhead, memory, a dimension's half size) is not found in them either. */
static void effects_that_made_the_points_are_found_and_no_others(void **state)
{
        (void)state;
        static const struct kernel_model truths[] = {
                {.flops_per_second = 5e10, .half_m = 40, .half_k = 25},
                {.flops_per_second = 5e10, .half_n = 60, .overhead_seconds = 3e-6},
                {.flops_per_second = 5e10, .bytes_per_second = 2e9},
                {.flops_per_second = 5e10, .bytes_per_second = 2e9, .exposed = 1},
                {.flops_per_second = 5e10, .bytes_per_second = 2e9, .half_k = 30, .overhead_seconds = 2e-5},
        };
        struct kernel_point points[SHAPES];
        for (size_t i = 0; i < sizeof truths / sizeof *truths; i++) {
                make_points(points, &truths[i], 0, 0);
                struct kernel_model found = fit_kernels(points, SHAPES, KERNEL_MATMUL, false, 0);
                check_every_parameter(&found, &truths[i], 1e-5);
                assert_true(found.quality.worst_error < 1e-6 && found.quality.left_out_worst_error < 1e-5);
                make_points(points, &truths[i], 0.03, 20261121 + i);
                found = fit_kernels(points, SHAPES, KERNEL_MATMUL, false, 0);
                check_every_parameter(&found, &truths[i], 0.15);
                assert_true(found.quality.left_out_median_error < 0.03);
                assert_true(found.quality.worst_error > 0.7); /* the outliers */
        }
}

/* Sizes between those where a wave is full tell the tiles, where there are processors to fill. */
static void tiles_and_waves_are_found_on_a_device_of_many_processors(void **state)
{
        (void)state;
        const struct kernel_model truth = {
                .flops_per_second = 3e14, .half_k = 200, .tile_m = 256, .tile_n = 128, .processors = 132};
        struct kernel_point points[SHAPES];
        uint64_t seed = 11;
        for (int i = 0; i < SHAPES; i++) {
                points[i].kernel = (struct kernel){.kind = KERNEL_MATMUL,
                                                   .dtype = DTYPE_BF16,
                                                   .batch = 1,
                                                   .m = 700 * (1 + i % 8),
                                                   .n = 1100 * (1 + i * 5 % 7),
                                                   .k = 512 << (i % 5)};
                points[i].seconds = model_seconds(&truth, &points[i].kernel) * (1 + 0.01 * noise(&seed));
        }
        struct kernel_model found = fit_kernels(points, SHAPES, KERNEL_MATMUL, DTYPE_BF16, 132);
        check_every_parameter(&found, &truth, 0.03);
        found = fit_kernels(points, SHAPES, KERNEL_MATMUL, DTYPE_BF16, 0);
        assert_true(found.processors == 0 && found.quality.left_out_median_error > 0.02);
}

static void a_cache_is_found_where_small_kernels_are_faster(void **state)
{
        (void)state;
        const struct kernel_model truth = {
                .bytes_per_second = 1e10, .cache_bytes = 4e6, .cache_bytes_per_second = 3e10};
        struct kernel_point points[12];
        for (int i = 0; i < 12; i++) {
                points[i].kernel = (struct kernel){.kind = KERNEL_SQUARED_NORM, .batch = 1, .m = 40000 << i};
                points[i].seconds = model_seconds(&truth, &points[i].kernel);
        }
        struct kernel_model found = fit_kernels(points, 12, KERNEL_SQUARED_NORM, false, 0);
        check_every_parameter(&found, &truth, 1e-5);
}

static int by_size(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

static void leave_one_out_errors_are_those_of_fits_without_each_point(void **state)
{
        (void)state;
        const struct kernel_model truth = {.flops_per_second = 5e10, .half_m = 40, .overhead_seconds = 1e-6};
        struct kernel_point points[SHAPES], others[SHAPES];
        double error[SHAPES];
        enum { COUNT = 15 };
        make_points(points, &truth, 0.05, 5);
        for (int i = 0; i < COUNT; i++) {
                int count = 0;
                for (int j = 0; j < COUNT; j++)
                        if (j != i)
                                others[count++] = points[j];
                const struct kernel_model left = fit_kernels(others, count, KERNEL_MATMUL, false, 0);
                error[i] = fabs(model_seconds(&left, &points[i].kernel) / points[i].seconds - 1);
        }
        const struct kernel_model found = fit_kernels(points, COUNT, KERNEL_MATMUL, false, 0);
        qsort(error, COUNT, sizeof *error, by_size);
        assert_close(found.quality.left_out_median_error, error[COUNT / 2], 1e-12);
        assert_close(found.quality.left_out_worst_error, error[COUNT - 1], 1e-12);

        struct line_point line[8];
        uint64_t seed = 3;
        for (int i = 0; i < 8; i++)
                line[i] = (struct line_point){.bytes = 1024 << i,
                                              .seconds =
                                                      (1e-6 + 1e-9 * (1024 << i)) * (1 + 0.1 * noise(&seed))};
        const struct line_fit whole = fit_line(line, 8), without_last = fit_line(line, 7);
        const double last =
                fabs((without_last.latency_seconds + without_last.seconds_per_byte * (double)line[7].bytes) /
                             line[7].seconds -
                     1);
        assert_true(whole.quality.left_out_worst_error >= last && whole.error > 0);
}

/* Prices of shapes that a fit did not see lie within 1.645 of its errors nine times in ten. Noise is normal:
 * the sum of twelve uniform numbers. */
static void nine_in_ten_unseen_prices_lie_within_the_interval(void **state)
{
        (void)state;
        const struct kernel_model truth = {.flops_per_second = 5e10, .half_m = 40, .overhead_seconds = 1e-6};
        uint64_t seed = 20261121;
        int inside = 0, all = 0;
        for (int trial = 0; trial < 24; trial++) {
                struct kernel_point points[SHAPES];
                enum { SEEN = 20 };
                make_points(points, &truth, 0, 0);
                for (int i = 0; i < SHAPES; i++) {
                        double sum = 0;
                        for (int j = 0; j < 12; j++)
                                sum += noise(&seed) / 2;
                        points[i].seconds *= 1 + 0.05 * sum;
                        const struct kernel_point kept = points[i];
                        const int other = (int)((noise(&seed) + 1) / 2 * (i + 1)); /* in random order */
                        points[i] = points[other];
                        points[other] = kept;
                }
                const struct kernel_model found = fit_kernels(points, SEEN, KERNEL_MATMUL, false, 0);
                for (int i = SEEN; i < SHAPES; i++, all++)
                        inside += fabs(points[i].seconds / model_seconds(&found, &points[i].kernel) - 1) <=
                                  1.645 * found.error;
        }
        const double part = (double)inside / all;
        if (part < 0.86 || part > 0.96)
                fail_msg("%d of %d prices lie within the interval", inside, all);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(exact_data_give_exact_coefficients),
                cmocka_unit_test(
                        noise_of_three_percent_and_outliers_of_a_factor_four_leave_coefficients_within_a_tenth),
                cmocka_unit_test(other_kinds_do_not_enter_a_fit),
                cmocka_unit_test(the_two_precisions_are_fitted_apart),
                cmocka_unit_test(a_coefficient_that_wants_to_be_negative_is_dropped),
                cmocka_unit_test(a_line_through_noise_and_an_outlier_is_found),
                cmocka_unit_test(what_does_not_grow_with_its_bytes_is_a_latency_alone),
                cmocka_unit_test(few_points_determine_few_coefficients),
                cmocka_unit_test(terms_that_repeat_each_other_are_not_both_fitted),
                cmocka_unit_test(effects_that_made_the_points_are_found_and_no_others),
                cmocka_unit_test(tiles_and_waves_are_found_on_a_device_of_many_processors),
                cmocka_unit_test(a_cache_is_found_where_small_kernels_are_faster),
                cmocka_unit_test(leave_one_out_errors_are_those_of_fits_without_each_point),
                cmocka_unit_test(nine_in_ten_unseen_prices_lie_within_the_interval),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
