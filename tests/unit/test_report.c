/* The report's figures against closed forms, its JSON, and the table as a user sees it
 * (tests/golden/report.txt, which `make golden` rewrites). */
#include "runtime/engine/phases.h"
#include "runtime/base/number.h"
#include "runtime/report/report.h"
#include "tests/unit/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void assert_close(double found, double expected, double tolerance)
{
        if (!(fabs(found - expected) <= tolerance * fabs(expected)))
                fail_msg("found %.17g, expected %.17g", found, expected);
}

/* The values 0 .. n-1 have the quantile q (n - 1), for any n and q and in whatever order they come. */
static void quantiles_interpolate_between_the_sorted_values(void **state)
{
        (void)state;
        double values[101];
        for (int n = 1; n <= 101; n++)
                for (double q = 0; q <= 1; q += 0.0625) {
                        for (int i = 0; i < n; i++)
                                values[i] = (i * 103 + 7) % n; /* 103 is prime: a permutation */
                        double found = quantile(values, n, q);
                        if (fabs(found - q * (n - 1)) > 1e-12 * n)
                                fail_msg("quantile %g of 0..%d is %.17g", q, n - 1, found);
                        for (int i = 0; i < n; i++)
                                assert_true(values[i] == i);
                }
}

static void a_median_is_the_middle_or_between_the_two_middle_values(void **state)
{
        (void)state;
        assert_close(quantile((double[]){5, 1, 3}, 3, 0.5), 3, 0);
        assert_close(quantile((double[]){5, 1, 3, 4}, 4, 0.5), 3.5, 0);
        assert_close(quantile((double[]){7}, 1, 0.9), 7, 0);
}

static void numbers_are_written_for_readers(void **state)
{
        (void)state;
        char text[NUMBER_TEXT];
        assert_string_equal(number_bytes(text, 0), "0 B");
        assert_string_equal(number_bytes(text, 1023), "1023 B");
        assert_string_equal(number_bytes(text, 1024), "1.00 KiB");
        assert_string_equal(number_bytes(text, 1024 * 1024 - 1), "1.00 MiB");
        assert_string_equal(number_bytes(text, 1.5 * 1073741824), "1.50 GiB");
        assert_string_equal(number_bytes(text, -2048), "-2.00 KiB");
        assert_string_equal(number_seconds(text, 1.5), "1.500 s");
        assert_string_equal(number_seconds(text, 0.0123456), "12.346 ms");
        assert_string_equal(number_seconds(text, 12.5e-6), "12.500 us");
        assert_string_equal(number_seconds(text, 0), "0.000 s");
        assert_string_equal(number_count(text, 0), "0");
        assert_string_equal(number_count(text, 999), "999");
        assert_string_equal(number_count(text, 1000), "1,000");
        assert_string_equal(number_count(text, 1234567.6), "1,234,568");
        assert_string_equal(number_count(text, -123456), "-123,456");
}

/* Two stages whose updates overlap their all-reduces: what lies before the last all-reduce's end is that
 * phase's, and the three phases make up the batch. */
static void phases_follow_each_other_even_where_their_work_overlaps(void **state)
{
        (void)state;
        struct batch_times times[] = {
                {.started = 10, .pipeline_end = 14, .allreduce_end = 16, .ended = 17, .busy_seconds = 3},
                {.started = 10.5, .pipeline_end = 12, .allreduce_end = 15, .ended = 16.5, .busy_seconds = 1},
                {.started = 30, .pipeline_end = 34, .allreduce_end = 30, .ended = 35, .busy_seconds = 4},
                {.started = 30, .pipeline_end = 32, .allreduce_end = 33, .ended = 34, .busy_seconds = 4},
                {.started = 50, .pipeline_end = 51, .allreduce_end = 52, .ended = 59, .busy_seconds = 1},
                {.started = 50, .pipeline_end = 51, .allreduce_end = 52, .ended = 59, .busy_seconds = 1},
        };
        struct phases phases = phases_of(times, 2);
        assert_close(phases.batch_seconds, 7, 1e-15);
        assert_close(phases.pipeline_seconds, 4, 1e-15);
        assert_close(phases.allreduce_seconds, 2, 1e-15);
        assert_close(phases.optimizer_seconds, 1, 1e-15);
        assert_close(phases.busiest_seconds, 3, 0);
        assert_close(phases.bubble_fraction, 0.5, 1e-15);
        /* An all-reduce that ends while another stage still computes takes no time of its own. */
        phases = phases_of(times + 2, 2);
        assert_close(phases.allreduce_seconds, 0, 0);
        assert_close(phases.optimizer_seconds, 1, 1e-15);
        assert_close(phases.bubble_fraction, 0, 0);
        double seconds[3];
        phases = phases_median(times, 3, 2, seconds);
        assert_close(phases.batch_seconds, 7, 1e-15);
        assert_close(seconds[0] + 10 * seconds[1] + 100 * seconds[2], 7 + 50 + 900, 1e-15);
}

/* A report of two ranks in a pipeline, with numbers that can be followed by hand. */
struct fixture {
        struct options options;
        struct report report;
        double seconds[5], loss[2];
        struct memory_bytes bytes[2];
        int64_t live[2];
};

static int set_up(void **state)
{
        struct fixture *f = calloc(1, sizeof *f);
        options_init(&f->options);
        f->options.model = "tiny";
        f->options.pp = 2;
        f->options.micro_batch_size = 2;
        f->options.batch_size = 16;
        f->options.seq_len = 32;
        struct rv_error_info err;
        if (options_resolve(&f->options, 2, &err))
                fail_msg("%s", err.sentence);
        memcpy(f->seconds, (double[]){0.5, 0.25, 0.125, 0.375, 0.625}, sizeof f->seconds);
        memcpy(f->loss, (double[]){5.5, 4.25}, sizeof f->loss);
        for (int c = 0; c < MEMORY_FRAMEWORK; c++) { /* which a run of our own has not */
                f->bytes[0].in[MEMORY_DEVICE][c] = 1000 * (c + 1);
                f->bytes[1].in[MEMORY_DEVICE][c] = 1048576 * (c + 1);
        }
        f->live[0] = 20000;
        f->live[1] = 10000;
        f->report = (struct report){.world = "real",
                                    .command = "ranvier train tiny",
                                    .options = &f->options,
                                    .batch_seconds = f->seconds,
                                    .batches = 5,
                                    .pipeline_seconds = 0.25,
                                    .allreduce_seconds = 0.05,
                                    .optimizer_seconds = 0.075,
                                    .busiest_seconds = 0.2125, /* of 0.25; 0.2 on average */
                                    .bubble_fraction = 0.2,
                                    .peak_flops_per_gpu_per_second = 1e9,
                                    .tokens = 300000000000,
                                    .days_wanted = true,
                                    .ranks = 2,
                                    .rank_bytes = f->bytes,
                                    .rank_live_peak = f->live,
                                    .host_peak_bytes = 3000000,
                                    .loss = f->loss,
                                    .losses = 2};
        *state = f;
        return 0;
}

static int tear_down(void **state)
{
        free(*state);
        return 0;
}

static double number(const json_t *json, const char *room, const char *key)
{
        const json_t *value = json_object_get(room ? json_object_get(json, room) : json, key);
        if (!json_is_number(value))
                fail_msg("%s.%s is no number", room ? room : "", key);
        return json_number_value(value);
}

static void the_json_holds_what_the_closed_forms_give(void **state)
{
        struct fixture *f = *state;
        json_t *json = report_json(&f->report);
        assert_non_null(json);
        double l = 4, h = 32, s = 32, V = 256,
               B = 16; /* tiny; Narayanan et al. 2021, eq. 3, no recomputation */
        double flops = 72 * B * s * l * h * h * (1 + s / (6 * h) + V / (12 * l * h));
        assert_close(number(json, "batch_seconds", "median"), 0.375, 0);
        assert_close(number(json, "batch_seconds", "p10"), 0.175, 1e-15);
        assert_close(number(json, "batch_seconds", "p90"), 0.575, 1e-15);
        assert_close(number(json, "batch_seconds", "batches"), 5, 0);
        assert_close(number(json, NULL, "tokens_per_second"), 16 * 32 / 0.375, 1e-15);
        assert_close(number(json, NULL, "flops_per_gpu_per_second"), flops / 0.375 / 2, 1e-14);
        assert_close(number(json, NULL, "percent_of_peak"), 100 * flops / 0.375 / 2 / 1e9, 1e-14);
        assert_close(number(json, NULL, "training_days"), 3e11 / (16 * 32 / 0.375) / 86400, 1e-14);
        assert_close(number(json, "phases", "bubble_fraction"), 0.2, 0);
        assert_close(number(json, "memory", "device_peak_bytes"), 45 * 1048576, 0);
        assert_close(number(json, "memory", "device_total_bytes"), 45 * 1048576 + 45000, 0);
        assert_close(number(json, "memory", "live_peak_bytes"), 20000, 0);
        assert_close(number(json_object_get(json, "memory"), "by_category", "gradients"), 2 * 1048576, 0);
        assert_close(number(json, "memory", "host_offloaded_bytes"), 0, 0);
        assert_close(number(json, "plan", "pp"), 2, 0);
        assert_close(number(json, "plan", "micro_batches"), 8, 0);
        assert_close(number(json, "plan", "pipeline_limit"), 2, 0);
        json_t *ranks = json_object_get(json, "ranks");
        assert_int_equal(json_array_size(ranks), 2);
        assert_close(number(json_array_get(ranks, 0), "bytes", "weights"), 1000, 0);
        assert_close(number(json_array_get(ranks, 1), NULL, "total_bytes"), 45 * 1048576, 0);
        assert_int_equal(json_array_size(json_object_get(json, "loss")), 2);
        assert_string_equal(json_string_value(json_object_get(json, "world")), "real");
        json_decref(json);
}

/* The same two ranks in mixed precision, offloaded: rank 0 has more on the host, rank 1 more on its device.
 */
static void offload(struct fixture *f)
{
        f->options.dtype = DTYPE_FP16;
        f->options.offload = f->options.offload_activations = true;
        f->options.recompute = RECOMPUTE_FULL;
        f->bytes[0].in[MEMORY_HOST][MEMORY_MASTER] = 1 << 30;
        f->bytes[1].in[MEMORY_HOST][MEMORY_MASTER] = 1 << 20;
        f->bytes[1].in[MEMORY_HOST][MEMORY_OPTIMIZER] = 2 << 20;
        f->bytes[1].in[MEMORY_HOST][MEMORY_ACTIVATIONS] = 5 << 20;
        f->bytes[1].in[MEMORY_DEVICE][MEMORY_OPTIMIZER] = 0;
}

static const char *word(const json_t *json, const char *room, const char *key)
{
        const char *text = json_string_value(json_object_get(json_object_get(json, room), key));
        return text ? text : "(none)";
}

static void the_json_names_precision_and_offloading_and_has_both_memories(void **state)
{
        struct fixture *f = *state;
        json_t *json = report_json(&f->report);
        assert_string_equal(word(json, "plan", "precision"), "fp32");
        assert_string_equal(word(json, "plan", "fusion"), "on");
        assert_string_equal(word(json, "plan", "recompute"), "none");
        json_t *plan = json_object_get(json, "plan");
        assert_true(json_is_false(json_object_get(plan, "offload")));
        assert_true(json_is_false(json_object_get(plan, "offload_activations")));
        double flops = number(json, NULL, "flops_per_gpu_per_second");
        json_decref(json);

        offload(f);
        json = report_json(&f->report);
        assert_string_equal(word(json, "plan", "precision"), "mixed");
        assert_string_equal(word(json, "plan", "recompute"), "full");
        plan = json_object_get(json, "plan");
        assert_true(json_is_true(json_object_get(plan, "offload")));
        assert_true(json_is_true(json_object_get(plan, "offload_activations")));
        assert_close(number(json, "plan", "bucket_params"), (double)f->options.bucket_parameters, 0);
        assert_close(number(json, "plan", "allreduce_buckets"), 4, 0);
        const json_t *memory = json_object_get(json, "memory");
        assert_close(number(json, "memory", "largest_rank"), 1, 0);
        assert_close(number(json, "memory", "host_offloaded_bytes"), 8 << 20, 0);
        assert_close(number(memory, "host_by_category", "activations"), 5 << 20, 0);
        assert_close(number(memory, "by_category", "activations"), 6 << 20, 0);
        const json_t *ranks = json_object_get(json, "ranks");
        assert_close(number(json_array_get(ranks, 0), "host_bytes", "master"), 1 << 30, 0);
        assert_close(number(json_array_get(ranks, 1), "host_bytes", "optimizer"), 2 << 20, 0);
        assert_close(number(json_array_get(ranks, 1), "bytes", "optimizer"), 0, 0);
        /* tiny: the blocks' forward again, without its last product of a third of the 24 l h^2 */
        double l = 4, h = 32, s = 32, V = 256, blocks = 24 * l * h * h * (1 + s / (6 * h));
        double again = (blocks - 8 * l * h * h) / (3 * (blocks + 2 * h * V));
        assert_close(number(json, NULL, "flops_per_gpu_per_second") / flops, 1 + again, 1e-14);
        json_decref(json);

        f->options.dtype = DTYPE_BF16;
        f->options.fused = false;
        json = report_json(&f->report);
        assert_string_equal(word(json, "plan", "precision"), "bf16");
        assert_string_equal(word(json, "plan", "fusion"), "off");
        json_decref(json);
}

static void what_is_not_known_is_null_and_extra_members_replace_nothing(void **state)
{
        struct fixture *f = *state;
        f->report.peak_flops_per_gpu_per_second = 0;
        f->report.host_peak_bytes = 0;
        f->report.rank_live_peak = NULL;
        f->report.loss = NULL;
        f->report.extra = json_pack("{s:s, s:s}", "world", "another", "profile", "local.json");
        json_t *json = report_json(&f->report);
        json_decref(f->report.extra);
        assert_true(json_is_null(json_object_get(json, "percent_of_peak")));
        assert_true(json_is_null(json_object_get(json_object_get(json, "memory"), "host_peak_bytes")));
        assert_true(json_is_null(json_object_get(json_object_get(json, "memory"), "live_peak_bytes")));
        assert_null(json_object_get(json, "loss"));
        assert_string_equal(json_string_value(json_object_get(json, "world")), "real");
        assert_string_equal(json_string_value(json_object_get(json, "profile")), "local.json");
        json_decref(json);
}

static void figures_are_read_as_they_were_written(void **state)
{
        struct fixture *f = *state;
        struct rv_error_info err;
        struct figures written, read;
        assert_int_equal(report_figures(&f->report, &written, &err), 0);
        f->report.low_seconds = 0.9 * written.median;
        f->report.high_seconds = 1.2 * written.median;
        for (int known = 1; known >= 0; known--) {
                assert_int_equal(report_figures(&f->report, &written, &err), 0);
                json_t *json = report_json(&f->report);
                assert_int_equal(figures_read(&read, "r.json", json, &err), 0);
                for (int i = 0; i < figure_count; i++)
                        if (figures_value(&figure_rows[i], &written) != figures_value(&figure_rows[i], &read))
                                fail_msg("%s was written and read otherwise", figure_rows[i].key);
                json_object_del(json_object_get(json, "phases"), "pipeline_seconds");
                assert_int_equal(figures_read(&read, "r.json", json, &err), RV_EINPUT);
                assert_non_null(strstr(err.sentence, "pipeline_seconds"));
                json_decref(json);
                f->report.low_seconds = f->report.high_seconds = 0;
                f->report.peak_flops_per_gpu_per_second = 0;
                f->report.rank_live_peak = NULL;
        }
}

/* Tables one after the other: a plan of defaults; one that offloads; and one that is asked to, but has no
 * activations to offload, with stages that work as long as each other. */
static void the_table_is_what_the_golden_file_shows(void **state)
{
        struct fixture *f = *state;
        static char found[8192];
        FILE *stream = fmemopen(found, sizeof found, "w");
        report_print(&f->report, stream);
        fputs("\n", stream);
        offload(f);
        report_print(&f->report, stream);
        fputs("\n", stream);
        f->bytes[1].in[MEMORY_HOST][MEMORY_ACTIVATIONS] = 0;
        f->report.busiest_seconds = 0.8 * f->report.pipeline_seconds;
        report_print(&f->report, stream);
        fclose(stream);
        assert_golden(found, "tests/golden/report.txt");
}

static void a_report_that_ends_in_md_is_markdown(void **state)
{
        struct fixture *f = *state;
        struct rv_error_info err;
        char path[64], found[8192];
        snprintf(path, sizeof path, "/tmp/ranvier-test-report-%d.md", (int)getpid());
        assert_int_equal(report_write(&f->report, path, &err), 0);
        FILE *stream = fopen(path, "r");
        assert_non_null(stream);
        found[fread(found, 1, sizeof found - 1, stream)] = 0;
        fclose(stream);
        unlink(path);
        assert_golden(found, "tests/golden/report.md");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(quantiles_interpolate_between_the_sorted_values),
                cmocka_unit_test(a_median_is_the_middle_or_between_the_two_middle_values),
                cmocka_unit_test(numbers_are_written_for_readers),
                cmocka_unit_test(phases_follow_each_other_even_where_their_work_overlaps),
                cmocka_unit_test_setup_teardown(the_json_holds_what_the_closed_forms_give, set_up, tear_down),
                cmocka_unit_test_setup_teardown(the_json_names_precision_and_offloading_and_has_both_memories,
                                                set_up, tear_down),
                cmocka_unit_test_setup_teardown(what_is_not_known_is_null_and_extra_members_replace_nothing,
                                                set_up, tear_down),
                cmocka_unit_test_setup_teardown(figures_are_read_as_they_were_written, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_report_that_ends_in_md_is_markdown, set_up, tear_down),
                cmocka_unit_test_setup_teardown(the_table_is_what_the_golden_file_shows, set_up, tear_down),
        };
        return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
