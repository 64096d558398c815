/* The table of a batch's kernels, from notes whose sums are known. */
#include "runtime/real/kernel_times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { VOCABULARY = 1000 };
static const struct machine_rates rates = {.flops_per_second = 1e9, .bytes_per_second = 1e8};

static struct kernel product(int64_t m, int64_t n, int64_t k, int part)
{
        return (struct kernel){
                .kind = KERNEL_MATMUL, .part = (unsigned char)part, .batch = 1, .m = m, .n = n, .k = k};
}

static struct kernel_times *times_of(int vocabulary)
{
        const struct gpt gpt = {
                .n_layer = 1, .n_embd = 16, .n_head = 1, .vocab_size = vocabulary, .n_positions = 64};
        struct kernel_times *times = malloc(sizeof *times);
        assert_non_null(times);
        kernel_times_init(times, &gpt, 1);
        times->rates = rates;
        return times;
}

static struct kernel_times *times_new(void)
{
        return times_of(VOCABULARY);
}

static const struct kernel_row *row_of(const struct kernel_summary *summary, int kind, int role)
{
        for (int i = 0; i < summary->rows; i++)
                if (summary->row[i].kind == kind && summary->row[i].role == role)
                        return &summary->row[i];
        return NULL;
}

static void products_are_told_apart_by_what_they_are_for(void **state)
{
        (void)state;
        struct device device = {0};
        struct kernel_times *times = times_new();
        struct kernel scores = product(64, 64, 16, PART_INPUT),
                      attention = {.kind = KERNEL_ATTENTION, .k = 16};
        scores.batch = 8;
        const struct kernel kernels[] = {product(64, 48, 16, 0),
                                         product(64, 16, 48, PART_INPUT),
                                         product(48, 16, 64, PART_WEIGHT),
                                         scores,
                                         product(64, VOCABULARY, 16, 0),
                                         product(64, 16, VOCABULARY, PART_INPUT),
                                         product(VOCABULARY, 16, 64, PART_WEIGHT),
                                         attention};
        kernel_times_begin(times, &device);
        for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
                device.recorder(device.recorder_context, &kernels[i], 1, 0);
        kernel_times_end(times, &device, 10);
        assert_true(device.recorder == NULL);
        struct kernel_summary *summary = malloc(sizeof *summary);
        assert_non_null(summary);
        kernel_times_summary(times, summary);
        for (int role = ROLE_FORWARD; role < KERNEL_ROLES; role++) {
                const struct kernel_row *row = row_of(summary, KERNEL_MATMUL, role);
                assert_non_null(row);
                assert_int_equal(row->calls, role == ROLE_OUTPUT ? 3 : 1);
        }
        assert_non_null(row_of(summary, KERNEL_ATTENTION, ROLE_NONE));
        assert_int_equal(summary->rows, KERNEL_ROLES);
        assert_int_equal(summary->row[0].role, ROLE_OUTPUT); /* the longest */
        free(summary);
        free(times);
}

/* As many rows as tokens in the vocabulary mislead nobody; a vocabulary of 3 C leaves the row away. */
static void the_output_projection_is_known_by_its_shape_or_not_at_all(void **state)
{
        (void)state;
        struct kernel_summary *summary = malloc(sizeof *summary);
        assert_non_null(summary);
        for (int wide = 0; wide < 2; wide++) {
                const int V = wide ? 48 : 80;
                struct device device = {0};
                struct kernel_times *times = times_of(V);
                const struct kernel of_layer = product(V, 16, 16, 0), logits = product(V, V, 16, 0);
                kernel_times_begin(times, &device);
                kernel_times_note(times, &of_layer, 1, 0);
                kernel_times_note(times, &logits, 1, 0);
                kernel_times_end(times, &device, 2);
                kernel_times_summary(times, summary);
                assert_true((row_of(summary, KERNEL_MATMUL, ROLE_OUTPUT) == NULL) == (wide == 1));
                assert_int_equal(row_of(summary, KERNEL_MATMUL, ROLE_FORWARD)->calls, 1 + wide);
                free(times);
        }
        free(summary);
}

/* A product that flops limit and one that bytes limit: the roofline is the sum of both calls' limits. */
static void the_roofline_is_summed_call_by_call_and_seconds_are_medians(void **state)
{
        (void)state;
        struct device device = {0};
        struct kernel_times *times = times_new();
        const struct kernel square = product(200, 200, 200, 0), flat = product(200, 200, 1, 0);
        const double limit =
                kernel_flops(&square) / rates.flops_per_second + kernel_bytes(&flat) / rates.bytes_per_second;
        assert_true(kernel_bytes(&square) / rates.bytes_per_second <
                    kernel_flops(&square) / rates.flops_per_second);
        assert_true(kernel_flops(&flat) / rates.flops_per_second <
                    kernel_bytes(&flat) / rates.bytes_per_second);
        const double seconds[] = {0.5, 9, 0.25};
        for (int batch = 0; batch < 3; batch++) {
                kernel_times_begin(times, &device);
                kernel_times_note(times, &square, seconds[batch] / 2, 0);
                kernel_times_note(times, &flat, seconds[batch] / 2, 0);
                kernel_times_end(times, &device, 2 * seconds[batch]);
        }
        struct kernel_summary *summary = malloc(sizeof *summary);
        assert_non_null(summary);
        kernel_times_summary(times, summary);
        assert_int_equal(summary->batches, 3);
        assert_int_equal(summary->rows, 1);
        assert_int_equal(summary->row[0].calls, 2);
        assert_true(summary->row[0].seconds == 0.5 && summary->batch_seconds == 1);
        json_t *json = kernel_summary_json(summary, 1);
        const json_t *row = json_array_get(json_object_get(json_array_get(json, 0), "kernels"), 0);
        const double percent = json_real_value(json_object_get(row, "percent_of_roofline"));
        assert_true(percent > 100 * limit / 0.5 * (1 - 1e-12) && percent < 100 * limit / 0.5 * (1 + 1e-12));
        assert_true(json_real_value(json_object_get(row, "percent_of_batch")) == 50);
        assert_string_equal(json_string_value(json_object_get(row, "role")), "forward");
        json_decref(json);
        free(summary);
        free(times);
}

static void more_batches_than_are_kept_leave_the_last_ones(void **state)
{
        (void)state;
        struct device device = {0};
        struct kernel_times *times = times_new();
        const struct kernel kernel = product(2, 2, 2, 0);
        for (int batch = 0; batch < 2 * KERNEL_BATCHES; batch++) {
                kernel_times_begin(times, &device);
                kernel_times_note(times, &kernel, batch < KERNEL_BATCHES ? 1 : 2, 0);
                kernel_times_end(times, &device, 3);
        }
        struct kernel_summary *summary = malloc(sizeof *summary);
        assert_non_null(summary);
        kernel_times_summary(times, summary);
        assert_int_equal(summary->batches, KERNEL_BATCHES);
        assert_true(summary->row[0].seconds == 2);
        free(summary);
        free(times);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(products_are_told_apart_by_what_they_are_for),
                cmocka_unit_test(the_output_projection_is_known_by_its_shape_or_not_at_all),
                cmocka_unit_test(the_roofline_is_summed_call_by_call_and_seconds_are_medians),
                cmocka_unit_test(more_batches_than_are_kept_leave_the_last_ones),
        };
        return cmocka_run_group_tests_name("kernel_times", tests, NULL, NULL);
}
