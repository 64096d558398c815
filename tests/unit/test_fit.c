/* Fits recover what made the data, through noise and outliers, and never turn negative. */
#include "calibrate/fit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void check_close(double found, double expected, double relative, const char *file, int line)
{
        if (fabs(found - expected) <= relative * fabs(expected))
                return;
        print_error("found %.17g, expected %.17g within %g\n", found, expected, relative);
        _fail(file, line);
}
#define assert_close(found, expected, relative) check_close(found, expected, relative, __FILE__, __LINE__)

/* Uniform in [-1, 1), the same on every run. */
static double noise(uint64_t *state)
{
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        return (double)(*state >> 11) / 4503599627370496.0 - 1;
}

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
        struct kernel_model fit = fit_kernels(points, SHAPES, KERNEL_MATMUL, false);
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
        struct kernel_model fit = fit_kernels(points, SHAPES, KERNEL_MATMUL, false);
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
        struct kernel_model fit = fit_kernels(points, SHAPES, KERNEL_MATMUL, false);
        assert_int_equal(fit.quality.points, SHAPES / 2);
        assert_close(1 / fit.flops_per_second, PER_FLOP, 1e-6);
        assert_false(fit_kernels(points, SHAPES, KERNEL_ADAMW, false).present);
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
                kernel->half = 1;
                points[i].seconds = 3 * OVERHEAD + PER_FLOP / 8 * kernel_flops(kernel) +
                                    PER_BYTE * 2 *
                                            (double)(kernel->m * kernel->k + kernel->k * kernel->n +
                                                     kernel->m * kernel->n);
        }
        struct kernel_model full = fit_kernels(points, SHAPES, KERNEL_MATMUL, false);
        struct kernel_model half = fit_kernels(points, SHAPES, KERNEL_MATMUL, true);
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
        struct kernel_model three = fit_kernels(kernels, SHAPES, KERNEL_MATMUL, false);
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

static void few_points_determine_few_coefficients(void **state)
{
        (void)state;
        struct kernel_point points[SHAPES];
        make_products(points);
        struct kernel_model one = fit_kernels(&points[17], 1, KERNEL_MATMUL, false);
        assert_true(one.present && one.overhead_seconds == 0 && one.bytes_per_second == 0);
        assert_close(kernel_flops(&points[17].kernel) / one.flops_per_second, points[17].seconds, 1e-9);
        assert_true(one.quality.worst_error < 1e-9);

        struct kernel_point two[2] = {points[0], points[SHAPES - 1]};
        struct kernel_model pair = fit_kernels(two, 2, KERNEL_MATMUL, false);
        assert_true(pair.bytes_per_second == 0 && pair.overhead_seconds > 0 && pair.flops_per_second > 0);
        assert_true(pair.quality.worst_error < 1e-9);

        struct line_point point = {1000, 1e-3};
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
        struct kernel_model fit = fit_kernels(points, 6, KERNEL_ADAMW, false);
        assert_true(fit.bytes_per_second == 0);
        assert_close(fit.overhead_seconds, 3e-6, 1e-6);
        assert_true(fit.quality.worst_error < 1e-6);
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
                cmocka_unit_test(few_points_determine_few_coefficients),
                cmocka_unit_test(terms_that_repeat_each_other_are_not_both_fitted),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
