/* The model of a kernel's seconds does what its formula says, each effect by itself and all of them. */
#include "calibrate/profile/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void check_close(double found, double expected, const char *file, int line)
{
        if (fabs(found - expected) <= 1e-12 * fabs(expected))
                return;
        print_error("found %.17g, expected %.17g\n", found, expected);
        _fail(file, line);
}
#define assert_close(found, expected) check_close(found, expected, __FILE__, __LINE__)

static struct kernel product(int64_t batch, int64_t m, int64_t n, int64_t k)
{
        return (struct kernel){.kind = KERNEL_MATMUL, .batch = batch, .m = m, .n = n, .k = k};
}

static double seconds_of(const struct kernel_model *model, struct kernel kernel)
{
        return model_seconds(model, &kernel);
}

static void a_model_without_parameters_takes_no_time(void **state)
{
        (void)state;
        const struct kernel_model nothing = {.present = true};
        assert_true(seconds_of(&nothing, product(3, 7, 9, 11)) == 0);
}

static void the_longer_of_computing_and_memory_hides_the_other_as_far_as_it_is_not_exposed(void **state)
{
        (void)state;
        struct kernel_model model = {
                .flops_per_second = 1e9, .bytes_per_second = 1e8, .overhead_seconds = 1e-6};
        const struct kernel thin = product(1, 1000, 1, 1000), cube = product(1, 1000, 1000, 1000);
        const double thin_flops = 2e6 / 1e9, thin_bytes = 4.0 * (1e6 + 2e3) / 1e8, cube_flops = 2e9 / 1e9,
                     cube_bytes = 12e6 / 1e8;
        assert_close(seconds_of(&model, thin), 1e-6 + thin_bytes);
        assert_close(seconds_of(&model, cube), 1e-6 + cube_flops);
        model.exposed = 0.25;
        assert_close(seconds_of(&model, thin), 1e-6 + thin_bytes + 0.25 * thin_flops);
        assert_close(seconds_of(&model, cube), 1e-6 + cube_flops + 0.25 * cube_bytes);
        model.efficiency = 0.5; /* of the rates, not of the overhead */
        assert_close(seconds_of(&model, cube), 1e-6 + 2 * (cube_flops + 0.25 * cube_bytes));
}

static void a_dimension_of_half_size_halves_the_rate(void **state)
{
        (void)state;
        const struct kernel kernel = product(1, 100, 200, 400);
        const double plain = 2 * 100.0 * 200 * 400 / 1e9;
        struct kernel_model model = {.flops_per_second = 1e9, .half_m = 100};
        assert_close(seconds_of(&model, kernel), 2 * plain);
        model.half_n = 200;
        assert_close(seconds_of(&model, kernel), 4 * plain);
        model.half_k = 4;
        assert_close(seconds_of(&model, kernel), 4 * plain * 1.01);
}

/* Products grow by one row at a time: seconds stand still inside a tile and go up by one tile's worth. */
static void seconds_step_from_tile_to_tile(void **state)
{
        (void)state;
        const struct kernel_model model = {.flops_per_second = 1e9, .tile_m = 64, .tile_n = 32, .tile_k = 16};
        const double tile = 2.0 * 64 * 32 * 16 / 1e9;
        for (int m = 1; m <= 200; m++)
                assert_close(seconds_of(&model, product(1, m, 32, 16)), (m + 63) / 64 * tile);
        for (int n = 1; n <= 100; n++)
                assert_close(seconds_of(&model, product(1, 64, n, 16)), (n + 31) / 32 * tile);
        for (int k = 1; k <= 50; k++)
                assert_close(seconds_of(&model, product(5, 64, 32, k)), 5 * ((k + 15) / 16) * tile);
}

/* 108 processors: 108 tiles take as long as one, 109 twice as long, whether they come from m, n or batch. */
static void seconds_step_from_wave_to_wave(void **state)
{
        (void)state;
        const struct kernel_model model = {
                .flops_per_second = 108e9, .tile_m = 128, .tile_n = 128, .processors = 108};
        const double wave = 2.0 * 128 * 128 * 64 / 1e9;
        for (int tiles = 1; tiles <= 400; tiles++) {
                const int waves = (tiles + 107) / 108;
                assert_close(seconds_of(&model, product(1, 128 * tiles, 128, 64)), waves * wave);
                assert_close(seconds_of(&model, product(1, 128 * tiles - 127, 1, 64)), waves * wave);
                assert_close(seconds_of(&model, product(tiles, 128, 128, 64)), waves * wave);
                assert_close(seconds_of(&model, product(1, 128, 128 * tiles, 64)), waves * wave);
        }
        assert_close(seconds_of(&model, product(4, 256, 1024, 64)), wave);     /* 4 x 2 x 8 = 64 tiles */
        assert_close(seconds_of(&model, product(7, 256, 1024, 64)), 2 * wave); /* 112 */
}

/* Without tiles of a dimension a piece of work is all of it: fused attention is split by sequence, head and
 * rows. */
static void a_dimension_without_tiles_is_not_split(void **state)
{
        (void)state;
        const struct kernel_model model = {.flops_per_second = 1e9, .tile_m = 128, .processors = 100};
        const struct kernel attention = {
                .kind = KERNEL_ATTENTION, .batch = 16, .m = 1024, .n = 1024, .k = 64};
        assert_close(model_seconds(&model, &attention), kernel_flops(&attention) / 1e9 * 200 / 128);
}

/* AdamW has one dimension: what the others would do does not concern it. */
static void dimensions_that_a_kernel_does_not_have_do_not_count(void **state)
{
        (void)state;
        const struct kernel_model model = {.bytes_per_second = 1e9,
                                           .flops_per_second = 1e12,
                                           .half_n = 7,
                                           .half_k = 9,
                                           .tile_n = 3,
                                           .tile_k = 5};
        const struct kernel update = {.kind = KERNEL_ADAMW, .batch = 1, .m = 12345};
        assert_close(model_seconds(&model, &update), kernel_bytes(&update) / 1e9);
        const struct kernel_model computing = {.flops_per_second = 1e3, .half_n = 7, .tile_n = 3};
        assert_close(model_seconds(&computing, &update), kernel_flops(&update) / 1e3);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_model_without_parameters_takes_no_time),
                cmocka_unit_test(
                        the_longer_of_computing_and_memory_hides_the_other_as_far_as_it_is_not_exposed),
                cmocka_unit_test(a_dimension_of_half_size_halves_the_rate),
                cmocka_unit_test(seconds_step_from_tile_to_tile),
                cmocka_unit_test(seconds_step_from_wave_to_wave),
                cmocka_unit_test(a_dimension_without_tiles_is_not_split),
                cmocka_unit_test(dimensions_that_a_kernel_does_not_have_do_not_count),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
