/* Surfaces: what points around a shape say of it, what the model says where there are none, what a training
 * run makes of that, and the file. Measured seconds are made up from the model and a smooth factor. */
#include "calibrate/profile/surface_file.h"
#include "calibrate/profile/surface_fit.h"
#include "calibrate/profile/tables.h"
#include "tests/unit/numbers.h"

#include <string.h>

static const struct surface_model gpu = {.processors = 132,
                                         .flops_per_second = 1e15,
                                         .bytes_per_second = 3e12,
                                         .input_bytes = 2,
                                         .output_bytes = 2,
                                         .efficiency = 0.7,
                                         .memory_efficiency = 0.8,
                                         .overhead_seconds = 3e-6,
                                         .half_tile = 30,
                                         .fill = 100};

/* A GPU as good as the model, but for a factor that grows with k and changes with n. */
static double truth(const struct surface *surface, const struct surface_shape *s)
{
        return surface_model_seconds(surface, s) * (1 + 0.02 * log2(s->k)) * (1 + 0.1 * sin(log2(s->n) / 2));
}

static void fill(struct surface *surface, double without_n)
{
        static const double sizes[] = {256, 512, 1024, 2048, 4096, 8192, 16384};
        enum { SIZES = sizeof sizes / sizeof *sizes };
        *surface = (struct surface){.form = SURFACE_PRODUCT, .model = gpu};
        surface->points = calloc(SIZES * SIZES * SIZES, sizeof *surface->points);
        assert_non_null(surface->points);
        for (int i = 0; i < SIZES; i++)
                for (int j = 0; j < SIZES; j++)
                        for (int k = 0; k < SIZES; k++) {
                                struct surface_point *point = &surface->points[surface->count];
                                point->shape = (struct surface_shape){1, sizes[i], sizes[j], sizes[k], 1};
                                point->seconds = truth(surface, &point->shape);
                                surface->count += sizes[j] != without_n;
                        }
}

static double error_at(const struct surface *surface, double m, double n, double k)
{
        const struct surface_shape shape = {1, m, n, k, 1};
        struct surface unfitted = *surface;
        unfitted.model = gpu;
        return fabs(surface_seconds(surface, &shape, SURFACE_FORWARD, false, 1, NULL) /
                            truth(&unfitted, &shape) -
                    1);
}

static void points_around_a_shape_say_what_it_takes(void **state)
{
        (void)state;
        struct surface surface;
        fill(&surface, 2048);
        assert_true(surface_fit(&surface));
        assert_true(error_at(&surface, 1024, 2048, 4096) < 0.05); /* whose n no point has */
        assert_true(error_at(&surface, 3072, 4096, 6144) < 0.05); /* between points */
        assert_true(error_at(&surface, 4096, 4096, 4096) < 0.02); /* a point */
        assert_true(surface.quality.left_out_median < 0.03);
        assert_true(surface.quality.region[0]);
        surface_free(&surface);
}

static void an_estimate_far_from_all_points_is_less_certain(void **state)
{
        (void)state;
        struct surface surface;
        const struct surface_shape near = {1, 4096, 4096, 4096, 1}, far = {1, 4096, 1 << 20, 4096, 1};
        double near_error, far_error;
        fill(&surface, 0);
        assert_true(surface_fit(&surface));
        surface_seconds(&surface, &near, SURFACE_FORWARD, false, 1, &near_error);
        const double seconds = surface_seconds(&surface, &far, SURFACE_FORWARD, false, 1, &far_error);
        assert_true(near_error > 0 && far_error > near_error);
        assert_true(fabs(seconds / truth(&surface, &far) - 1) < 0.3);
        surface_free(&surface);
}

static void a_training_run_reaches_what_power_allows_at_most(void **state)
{
        (void)state;
        struct surface surface;
        const struct surface_shape large = {1, 16384, 16384, 16384, 1}, thin = {1, 16, 16384, 16384, 1};
        fill(&surface, 0);
        assert_true(surface_fit(&surface));
        const double flops = surface_flops(&surface, &large, SURFACE_FORWARD);
        assert_true(flops == 2.0 * 16384 * 16384 * 16384);
        const double burst = surface_seconds(&surface, &large, SURFACE_FORWARD, false, 0.3, NULL);
        const double run = surface_seconds(&surface, &large, SURFACE_FORWARD, true, 0.3, NULL);
        assert_true(burst < run && fabs(run / (flops / 0.3 / gpu.flops_per_second) - 1) < 1e-9);
        for (int training = 0; training < 2; training++) /* memory bounds it */
                assert_true(surface_seconds(&surface, &thin, SURFACE_FORWARD, training, 0.3, NULL) ==
                            surface_seconds(&surface, &thin, SURFACE_FORWARD, false, 1, NULL));
        surface_free(&surface);
}

/* Long loops take 1.4 times as long, gradients of weights 1.5 times; there are no gradients of inputs. */
static void a_training_run_takes_what_long_loops_took(void **state)
{
        (void)state;
        struct surface surface;
        fill(&surface, 0);
        surface.ratio[SURFACE_INPUT_GRADIENT] = 1.1;
        struct surface_training *training = &surface.training;
        training->points = calloc((size_t)surface.count, sizeof *training->points);
        assert_non_null(training->points);
        for (int i = 0; i < surface.count; i += 3) {
                struct surface_point *point = &training->points[training->count++];
                *point = surface.points[i];
                point->pass = i % 2 ? SURFACE_FORWARD : SURFACE_WEIGHT_GRADIENT;
                point->seconds *= i % 2 ? 1.4 : 1.5;
        }
        assert_true(surface_fit(&surface));
        const struct surface_shape shape = {1, 3072, 4096, 4096, 1};
        const double factors[SURFACE_PASSES] = {1.4, 1.1, 1.5};
        const double burst = surface_seconds(&surface, &shape, SURFACE_FORWARD, false, 1, NULL);
        for (int pass = 0; pass < SURFACE_PASSES; pass++) {
                const double run = surface_seconds(&surface, &shape, (enum surface_pass)pass, true, 1, NULL);
                assert_true(fabs(run / burst / factors[pass] - 1) < 0.02);
        }
        surface_free(&surface);
}

static void a_file_brings_back_the_same_seconds(void **state)
{
        (void)state;
        struct surface surface, read;
        struct rv_error_info err;
        fill(&surface, 0);
        surface.ratio[SURFACE_INPUT_GRADIENT] = 1.1;
        assert_true(surface_fit(&surface));
        json_t *object = surface_json(&surface);
        assert_int_equal(surface_read(&read, object, SURFACE_PRODUCT, "file", "tables.matmul", &err), RV_OK);
        json_decref(object);
        assert_int_equal(read.count, surface.count);
        const struct surface_shape shape = {1, 3072, 5000, 6144, 1};
        for (int pass = 0; pass < SURFACE_PASSES; pass++) {
                double error, again;
                const double seconds =
                        surface_seconds(&surface, &shape, (enum surface_pass)pass, true, 0.9, &error);
                assert_true(fabs(surface_seconds(&read, &shape, (enum surface_pass)pass, true, 0.9, &again) /
                                         seconds -
                                 1) < 1e-3); /* four digits */
                assert_true(fabs(again / error - 1) < 1e-3);
        }
        surface_free(&surface);
        surface_free(&read);
}

static void what_a_file_lacks_is_named(void **state)
{
        (void)state;
        static const char *const wrong[][2] = {{"forward 1 4096: 1024 12", "shapes[0]"},
                                               {"sideways 1 4096 4096: 1024 12", "shapes[0]"},
                                               {"forward 1 4096 4096: 1024 0", "shapes[0]"},
                                               {"forward 1 4096 4096: 1024 12;", "shapes[0]"},
                                               {"forward 1 4096 4096: -1024 12", "shapes[0]"},
                                               {"forward 1 4096 4096:", "shapes[0]"}};
        struct surface surface;
        struct rv_error_info err;
        fill(&surface, 0);
        assert_true(surface_fit(&surface));
        json_t *object = surface_json(&surface);
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
                struct surface read;
                json_object_set_new(object, "shapes", json_pack("[s]", wrong[i][0]));
                assert_int_equal(surface_read(&read, object, SURFACE_PRODUCT, "file", "tables.matmul", &err),
                                 RV_EINPUT);
                assert_non_null(strstr(err.sentence, wrong[i][1]));
        }
        json_decref(object);
        surface_free(&surface);
}

static void kernels_of_a_layer_are_shapes_of_tables(void **state)
{
        (void)state;
        enum surface_form form;
        enum surface_pass pass;
        struct surface_shape shape;
        struct kernel kernel = {
                .kind = KERNEL_MATMUL, .batch = 1, .m = 10, .n = 20, .k = 30, .transpose_a = 1};
        assert_true(surface_shape_of(&kernel, &form, &shape, &pass));
        assert_true(form == SURFACE_PRODUCT && pass == SURFACE_WEIGHT_GRADIENT && shape.m == 10 &&
                    shape.k == 30);
        kernel = (struct kernel){.kind = KERNEL_GROUPED_MATMUL,
                                 .batch = 1,
                                 .m = 80,
                                 .n = 20,
                                 .k = 30,
                                 .experts = 8,
                                 .transpose_b = 1};
        assert_true(surface_shape_of(&kernel, &form, &shape, &pass));
        assert_true(pass == SURFACE_FORWARD && shape.batch == 8 && shape.m == 10);
        kernel = (struct kernel){
                .kind = KERNEL_ATTENTION_BACKWARD, .batch = 64, .m = 2048, .n = 2048, .k = 128, .group = 4};
        assert_true(surface_shape_of(&kernel, &form, &shape, &pass));
        assert_true(form == SURFACE_ATTENTION && pass == SURFACE_INPUT_GRADIENT && shape.group == 4);
        kernel.kind = KERNEL_LAYERNORM;
        assert_false(surface_shape_of(&kernel, &form, &shape, &pass));
}

static void a_product_with_more_behind_it_takes_longer_by_its_bytes(void **state)
{
        (void)state;
        struct profile_tables tables = {.short_loops = true};
        struct profile_table table = {.kind = KERNEL_MATMUL, .dtype = DTYPE_BF16};
        fill(&table.surface, 0);
        assert_true(surface_fit(&table.surface));
        assert_true(tables_add(&tables, &table));
        struct kernel kernel = {.kind = KERNEL_MATMUL,
                                .dtype = DTYPE_BF16,
                                .batch = 1,
                                .m = 4096,
                                .n = 4096,
                                .k = 4096,
                                .transpose_b = 1};
        double plain, fused, half, error;
        assert_true(tables_price(&tables, &kernel, &plain, &error));
        kernel.kind = KERNEL_MATMUL_BIAS_RESIDUAL;
        assert_true(tables_price(&tables, &kernel, &fused, &error));
        const double rate = table.surface.model.bytes_per_second * table.surface.model.memory_efficiency;
        assert_true(fabs((fused - plain) * rate / (4096.0 * 4096 * 2 + 4096 * 2) - 1) < 1e-6);
        kernel.dtype = DTYPE_FP16;
        assert_true(tables_price(&tables, &kernel, &half, &error));
        assert_true(half == fused);
        kernel.dtype = DTYPE_FP32;
        assert_false(tables_price(&tables, &kernel, &half, &error));
        tables_free(&tables);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(points_around_a_shape_say_what_it_takes),
                cmocka_unit_test(an_estimate_far_from_all_points_is_less_certain),
                cmocka_unit_test(a_training_run_reaches_what_power_allows_at_most),
                cmocka_unit_test(a_training_run_takes_what_long_loops_took),
                cmocka_unit_test(a_file_brings_back_the_same_seconds),
                cmocka_unit_test(what_a_file_lacks_is_named),
                cmocka_unit_test(kernels_of_a_layer_are_shapes_of_tables),
                cmocka_unit_test(a_product_with_more_behind_it_takes_longer_by_its_bytes),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
