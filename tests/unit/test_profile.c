/* A profile survives the file, refuses what is wrong with it in a sentence, and prices kernels. */
#include "calibrate/profile/profile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* One matmul shape and one copy, with everything a file may hold. */
static const char SOUND[] =
        "{\"ranvier\": \"0.1.0\", \"kind\": \"profile\", \"device\": \"cpu\", \"measured\": true,\n"
        " \"source\": \"by hand\", \"peak_flops_per_second\": 5e10,\n"
        " \"device_memory_bytes\": 1073741824, \"machine\": {\"cpu\": \"abacus\"}, \"loads\": [{\n"
        "  \"ranks\": 2, \"op_overhead_seconds\": 1e-5, \"kernels\": {\"matmul\": {\n"
        "   \"model\": {\"overhead_seconds\": 1e-6, \"flops_per_second\": 1e10, \"tile_m\": 8, \"error\": "
        "0.02,\n"
        "     \"points\": 1, \"median_error\": 0.1, \"worst_error\": 0.2},\n"
        "   \"points\": [{\"m\": 8, \"n\": 4, \"k\": 2, \"batch\": 1, \"transpose_a\": false, "
        "\"transpose_b\": true,\n"
        "     \"accumulate\": false, \"seconds\": 3e-6, \"p10\": 2e-6, \"p90\": 4e-6, \"samples\": 9}]}},\n"
        "  \"lines\": {\"copy\": {\"fit\": {\"latency_seconds\": 1e-6, \"seconds_per_byte\": 1e-10},\n"
        "   \"points\": [{\"bytes\": 4096, \"seconds\": 2e-6}]}}}]}\n";

static void write_text(const char *path, const char *text, size_t length)
{
        FILE *stream = fopen(path, "w");
        assert_non_null(stream);
        assert_int_equal(fwrite(text, 1, length, stream), length);
        assert_int_equal(fclose(stream), 0);
}

/* A path of this process's own; the caller unlinks it. */
static void temporary_path(char path[64])
{
        snprintf(path, 64, "/tmp/ranvier-profile-%ld.json", (long)getpid());
}

/* Loads `text` as a profile file. */
static int load_text(struct profile *profile, const char *text, size_t length, struct rv_error_info *err)
{
        char path[64];
        temporary_path(path);
        write_text(path, text, length);
        *err = (struct rv_error_info){0};
        int rc = profile_load(profile, path, err);
        unlink(path);
        return rc;
}

static void a_sound_file_is_read(void **state)
{
        (void)state;
        struct profile profile;
        struct rv_error_info err;
        int rc = load_text(&profile, SOUND, sizeof SOUND - 1, &err);
        if (rc != RV_OK)
                fail_msg("%s", err.sentence);
        assert_true(profile.measured);
        assert_string_equal(profile.device.name, "cpu");
        assert_string_equal(json_string_value(json_object_get(profile.machine, "cpu")), "abacus");
        assert_int_equal(profile.device_memory_bytes, 1073741824);
        assert_int_equal(profile.load_count, 1);
        const struct profile_load *load = &profile.loads[0];
        assert_int_equal(load->point_count, 1);
        assert_int_equal(load->points[0].samples, 9);
        assert_true(load->points[0].kernel.transpose_b && !load->points[0].kernel.transpose_a);
        for (int line = 0; line < PROFILE_LINES; line++)
                assert_int_equal(load->lines[line].fit.present, line == LINE_COPY);
        assert_int_equal(load->lines[LINE_COPY].points[0].bytes, 4096);
        profile_free(&profile);
}

static void a_file_with_nothing_but_fits_in_half_precision_is_read(void **state)
{
        (void)state;
        static const char text[] =
                "{\"ranvier\": \"0.1.0\", \"kind\": \"profile\", \"device\": \"V100\", \"measured\": false,\n"
                " \"source\": \"datasheet\", \"peak_flops_per_second\": 125e12, \"device_memory_bytes\": "
                "16,\n"
                " \"host_link_bytes_per_second\": 5e9, \"loads\": [{\"ranks\": 6, \"op_overhead_seconds\": "
                "0,\n"
                "  \"kernels\": {\"clear_half\": {\"model\": {\"overhead_seconds\": 4e-6,\n"
                "    \"bytes_per_second\": 1e12}}}}]}";
        struct profile profile;
        struct rv_error_info err;
        if (load_text(&profile, text, sizeof text - 1, &err) != RV_OK)
                fail_msg("%s", err.sentence);
        const struct profile_load *load = &profile.loads[0];
        assert_true(load->models[true][KERNEL_CLEAR].present && !load->models[false][KERNEL_CLEAR].present);
        assert_true(profile.host_link_bytes_per_second == 5e9);
        for (int line = 0; line < PROFILE_LINES; line++)
                assert_true(isnan(profile_line_seconds(load, (enum profile_line)line, 1000, false)));

        struct kernel kernel = {.kind = KERNEL_CLEAR, .dtype = 1, .batch = 1, .m = 1000};
        double seconds;
        assert_int_equal(profile_kernel_seconds(&profile, load, &kernel, false, &seconds, NULL, &err), RV_OK);
        assert_true(fabs(seconds - (4e-6 + 2e-9)) < 1e-15);
        profile_free(&profile);
}

static struct kernel product(int64_t m, int64_t n, int64_t k)
{
        return (struct kernel){.kind = KERNEL_MATMUL, .transpose_b = 1, .batch = 1, .m = m, .n = n, .k = k};
}

/* A model that has every one of its parameters, each another value. */
static struct kernel_model every_parameter(void)
{
        struct kernel_model model = {.quality = {7, 0.1, 0.2, 1.0 / 3, 0.4}, .present = true};
        for (int i = 0; i < MODEL_PARAMETERS; i++) {
                const struct model_parameter *parameter = &model_parameters[i];
                *model_at(&model, parameter) = parameter->whole ? i : 1.0 / (3 + i);
        }
        return model;
}

static void saving_and_loading_changes_nothing(void **state)
{
        (void)state;
        struct rv_error_info err = {0};
        enum { POINTS = 9 };
        struct kernel half = product(8, 4, 2);
        half.dtype = DTYPE_FP16;
        struct kernel bf16 = half;
        bf16.dtype = DTYPE_BF16;
        struct kernel fp8 = bf16;
        fp8.format = FORMAT_FP8;
        const struct kernel own = {KERNEL_ATTENTION, .batch = 12, .m = 16, .n = 16, .k = 8};
        struct kernel shared = own;
        shared.group = 4;
        struct kernel_point points[POINTS] = {
                {product(8, 4, 2), 1.0 / 3, 0.1, 0.7, 11, 0.01},
                {{.kind = KERNEL_ADAMW, .batch = 1, .m = INT64_C(50000000000)}, 12.5, 12, 13, 2, 0},
                {{.kind = KERNEL_LAYERNORM_BACKWARD, .accumulate = 1, .batch = 1, .m = 7, .n = 9},
                 1e-7,
                 1e-7,
                 2e-7,
                 3,
                 0.03 / 7},
                {half, 2.0 / 3, 0.2, 0.8, 12, 0.02},
                {bf16, 2.0 / 7, 0.2, 0.8, 12, 0.03},
                {{.kind = KERNEL_OVERFLOW, .dtype = 1, .batch = 1, .m = 77}, 1e-3, 1e-3, 1e-3, 4, 0.5},
                {own, 4.0 / 7, 0.2, 0.8, 5, 0},
                {shared, 3.0 / 7, 0.2, 0.8, 6, 0},
                {fp8, 1.0 / 7, 0.2, 0.8, 7, 0}};
        struct line_point lines[2] = {{1024, 1e-6, 0.1 / 3}, {1 << 20, 1.0 / 7, 0}};
        struct profile_load loads[2] = {
                {.ranks = 1, .op_overhead_seconds = 1e-6, .points = points, .point_count = 2},
                {.ranks = 4, .op_overhead_seconds = 2e-6, .points = points, .point_count = POINTS}};
        for (int line = 0; line < PROFILE_LINES; line++)
                loads[1].lines[line] = (struct profile_curve){
                        {1e-6 * (line + 1), 1e-10, line * 0.01, {2, 0.01, 0.02, 0.03, 0.04}, true},
                        lines,
                        line == LINE_COPY ? 0 : 2};
        loads[1].models[false][KERNEL_ADAMW] =
                (struct kernel_model){.bytes_per_second = 1.0 / 3, .present = true};
        loads[1].models[DTYPE_BF16][KERNEL_ATTENTION] =
                (struct kernel_model){.bytes_per_second = 1.0 / 9, .present = true};
        loads[1].models[profile_format(DTYPE_BF16, FORMAT_NVFP4)][KERNEL_GROUPED_MATMUL] =
                (struct kernel_model){.bytes_per_second = 1.0 / 11, .present = true};
        loads[1].models[true][KERNEL_ADAMW] = every_parameter();
        struct profile before = {.measured = true,
                                 .peak_flops_per_second = 1e11 / 3,
                                 .peaks = {1e11 / 3, 0, 2e11 / 3, 0, 8e11 / 3},
                                 .unfused = true,
                                 .device_memory_bytes = 5,
                                 .host_link_bytes_per_second = 1e9 / 3,
                                 .loads = loads,
                                 .load_count = 2};
        before.device = (struct profile_device){"A GPU", "580.1 (CUDA 13.0)", 132, 1.98e9, 2.6e9 / 3, 77};
        loads[1].error = 0.02 / 3;
        loads[1].launch = (struct profile_launch){2e-6 / 3, 1e-6};
        loads[1].graph = (struct profile_launch){1e-7, 1e-6 / 3};
        before.machine = json_pack("{s:s}", "date", "2026-11-21T13:00:00Z");
        snprintf(before.source, sizeof before.source, "a test");
        before.sources = json_pack("{s:s}", "peak", "a datasheet");
        before.warnings = json_pack("[s, s]", "it rained", "and snowed");
        before.whole_logits = true;

        char path[64];
        temporary_path(path);
        assert_int_equal(profile_save(&before, path, false, &err), RV_OK);
        struct profile after;
        if (profile_load(&after, path, &err) != RV_OK)
                fail_msg("%s", err.sentence);
        unlink(path);
        char date[16];
        assert_string_equal(after.path, path);
        assert_string_equal(after.device.name, before.device.name);
        assert_string_equal(after.device.driver, before.device.driver);
        assert_int_equal(after.device.processors, before.device.processors);
        assert_int_equal(after.device.overhead_bytes, before.device.overhead_bytes);
        assert_true(after.device.clock_hertz == before.device.clock_hertz);
        assert_true(after.device.memory_clock_hertz == before.device.memory_clock_hertz);
        assert_string_equal(profile_date(&after, date), "2026-11-21");
        assert_true(after.loads[0].launch.host_seconds == 0 && after.loads[0].graph.host_seconds == 0);
        assert_true(after.loads[1].launch.host_seconds == loads[1].launch.host_seconds);
        assert_true(after.loads[1].graph.host_seconds == loads[1].graph.host_seconds);
        assert_true(after.loads[1].graph.lane_seconds == loads[1].graph.lane_seconds);
        assert_string_equal(after.source, before.source);
        assert_true(json_equal(after.sources, before.sources));
        assert_true(json_equal(after.warnings, before.warnings));
        assert_true(after.whole_logits);
        assert_true(after.peak_flops_per_second == before.peak_flops_per_second);
        assert_memory_equal(after.peaks, before.peaks, sizeof before.peaks);
        assert_true(after.unfused);
        assert_int_equal(after.load_count, 2);
        assert_int_equal(after.loads[0].point_count, 2);
        assert_true(after.loads[0].error == 0 && after.loads[1].error == loads[1].error);
        assert_true(after.host_link_bytes_per_second == before.host_link_bytes_per_second);
        assert_int_equal(after.loads[1].point_count, POINTS);
        for (int i = 0; i < POINTS; i++) {
                const struct kernel_point *found = &after.loads[1].points[i];
                int j = 0;
                while (j < POINTS && !kernel_same(&points[j].kernel, &found->kernel))
                        j++;
                assert_true(j < POINTS);
                assert_true(found->seconds == points[j].seconds && found->p10 == points[j].p10 &&
                            found->p90 == points[j].p90 && found->samples == points[j].samples &&
                            found->error == points[j].error);
        }
        for (int format = 0; format < PROFILE_FORMATS; format++)
                for (int kind = 0; kind < KERNEL_KINDS; kind++) {
                        const struct kernel_model *model = &loads[1].models[format][kind],
                                                  *found = &after.loads[1].models[format][kind];
                        assert_int_equal(found->present, model->present);
                        assert_memory_equal(found, model, sizeof *model);
                }
        for (int line = 0; line < PROFILE_LINES; line++) {
                const struct profile_curve *curve = &loads[1].lines[line],
                                           *found = &after.loads[1].lines[line];
                assert_false(after.loads[0].lines[line].fit.present);
                assert_true(found->fit.present && found->count == curve->count);
                assert_true(found->fit.latency_seconds == curve->fit.latency_seconds);
                for (int i = 0; i < curve->count; i++)
                        assert_true(found->points[i].bytes == lines[i].bytes &&
                                    found->points[i].seconds == lines[i].seconds &&
                                    found->points[i].error == lines[i].error);
        }
        json_decref(before.sources);
        json_decref(before.warnings);
        json_decref(before.machine);
        profile_free(&after);
}

/* Sums of kernels on either side of the passes, and errors, near where they begin to be worth a warning. */
static void a_measurement_that_does_not_add_up_in_either_direction_is_warned_of(void **state)
{
        (void)state;
        static const struct {
                double min, max, error;
                const char *warning; /* NULL: none */
        } cases[] = {{0.951, 1.049, 0.149, NULL},
                     {0.96, 1.165, 0.02, "kernels add up to 96.0 to 116.5 % of the passes"},
                     {0.90, 1.00, 0.02, "kernels add up to 90.0 to 100.0 % of the passes"},
                     {1.00, 1.00, 0.761, "the standard error is 76.1 %: something else was running"},
                     {1.165, 1.165, 0.761, "in and the standard error is 76.1 %"}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct profile profile = {0};
                const struct profile_load load = {.ranks = 2, .error = cases[i].error};
                const bool warned = profile_warn(&profile, &load, cases[i].min, cases[i].max);
                const char *text = json_string_value(json_array_get(profile.warnings, 0));
                assert_int_equal(warned, cases[i].warning != NULL);
                assert_int_equal(json_array_size(profile.warnings), warned);
                if (warned && (!strstr(text, cases[i].warning) || !strstr(text, "with 2 ranks at work")))
                        fail_msg("case %zu: %s", i, text);
                json_decref(profile.warnings);
        }
}

/* What is replaced in SOUND, by what, and what the sentence must speak of. */
struct damage {
        const char *from, *to, *sentence;
};
static const struct damage DAMAGES[] = {
        {"\"ranvier\": \"0.1.0\", ", "", "is not a profile of ranvier calibrate"},
        {"\"kind\": \"profile\"", "\"sort\": \"profile\"", "is not a profile of ranvier calibrate"},
        {"\"kind\": \"profile\"", "\"kind\": \"report\"", "this one's kind is \"report\""},
        {"\"measured\": true", "\"measured\": 1", "\"measured\""},
        {"\"device\": \"cpu\"", "\"device\": \"\"", "\"device\""},
        {"\"device\": \"cpu\"", "\"device\": {\"driver\": \"1\"}", "needs \"name\""},
        {"\"device\": \"cpu\"", "\"device\": {\"name\": \"x\", \"clock_hertz\": -1}",
         "device: \"clock_hertz\" is -1"},
        {"\"device\": \"cpu\"", "\"device\": {\"name\": \"x\", \"overhead_bytes\": 1.5}",
         "\"overhead_bytes\""},
        {"\"op_overhead_seconds\"", "\"launch\": 3, \"op_overhead_seconds\"",
         "loads[0]: \"launch\" must be an object"},
        {"\"op_overhead_seconds\"", "\"graph\": {\"host_seconds\": 1}, \"op_overhead_seconds\"",
         "loads[0].graph: needs \"lane_seconds\""},
        {"\"source\": \"by hand\"", "\"source\": 3", "\"source\""},
        {"\"source\":", "\"element_bytes\": 4, \"source\":", "in the format of before mixed precision"},
        {"5e10", "-5e10", "\"peak_flops_per_second\" is -5e+10"},
        {"5e10", "{\"int8\": 1}",
         "peak_flops_per_second: \"int8\" is none of fp32, mixed, bf16, fp8 and nvfp4"},
        {"5e10", "{\"bf16\": 0}", "peak_flops_per_second: \"bf16\" is 0"},
        {"\"machine\":", "\"fusion\": \"on\", \"machine\":", "\"fusion\" must be \"off\" or left out"},
        {"\"machine\":", "\"logits\": \"64MiB\", \"machine\":", "\"logits\" must be \"all\" or left out"},
        {"\"machine\":", "\"warnings\": \"none\", \"machine\":", "\"warnings\" must be an array of texts"},
        {"\"machine\":", "\"warnings\": [1], \"machine\":", "\"warnings\" must be an array of texts"},
        {"1073741824", "1.5", "\"device_memory_bytes\""},
        {"{\"cpu\": \"abacus\"}", "\"abacus\"", "\"machine\""},
        {"\"loads\": [{", "\"loads\": [], \"other\": [{", "\"loads\""},
        {"\"ranks\": 2", "\"ranks\": 0", "loads[0]: \"ranks\" is 0"},
        {"\"op_overhead_seconds\"", "\"other\"", "loads[0]: needs \"op_overhead_seconds\""},
        {"\"op_overhead_seconds\"", "\"op_overhead\"",
         "loads[0] has no member \"op_overhead\"; the nearest is \"op_overhead_seconds\""},
        {"\"kernels\": {", "\"other\": {", "loads[0]: needs \"kernels\""},
        {"\"kernels\": {", "\"kernel\": {", "loads[0] has no member \"kernel\"; the nearest is \"kernels\""},
        {"\"measured\"", "\"mesured\"", "a profile has no member \"mesured\"; the nearest is \"measured\""},
        {"\"matmul\": {", "\"matmull\": {", "loads[0].kernels.matmull"},
        {"\"flops_per_second\": 1e10", "\"flops_per_second\": \"fast\"",
         "loads[0].kernels.matmul.model: needs \"flops_per_second\", a number"},
        {"\"flops_per_second\": 1e10", "\"flops_per_second\": 0", "\"flops_per_second\" is 0"},
        {"\"flops_per_second\": 1e10", "\"bytes_per_second\": -1", "\"bytes_per_second\" is -1"},
        {"\"flops_per_second\": 1e10", "\"flops_per_seconds\": 1",
         "model: \"flops_per_seconds\" is not one of a model's parameters; the nearest is "
         "\"flops_per_second\""},
        {"\"flops_per_second\": 1e10", "\"other\": 1",
         "model: \"other\" is not one of a model's parameters: flops_per_second, "},
        {"\"overhead_seconds\": 1e-6", "\"efficiency\": 1.2", "\"efficiency\" is 1.2, must be at most 1"},
        {"\"overhead_seconds\": 1e-6", "\"exposed\": 2", "\"exposed\" is 2, must be at most 1"},
        {"\"overhead_seconds\": 1e-6", "\"half_m\": -3", "\"half_m\" is -3"},
        {"\"tile_m\": 8", "\"tile_m\": 0", "\"tile_m\" is 0"},
        {"\"tile_m\": 8", "\"tile_n\": 12.5", "\"tile_n\" is 12.5, must be a whole number"},
        {"\"tile_m\": 8", "\"processors\": null", "needs \"processors\", a number"},
        {"\"error\": 0.02", "\"error\": -0.02", "\"error\" is -0.02"},
        {"\"worst_error\": 0.2", "\"left_out_median_error\": -1", "\"left_out_median_error\" is -1"},
        {"\"model\": {", "\"model\": 3, \"other\": {", "\"model\" must be an object"},
        {"\"model\": {", "\"fit\": {", "loads[0].kernels.matmul: has a \"fit\", in the format of before"},
        {"\"samples\": 9", "\"samples\": 9, \"error\": 0", "points[0]: \"error\" is 0, must be above 0"},
        {"\"bytes\": 4096", "\"bytes\": 4096, \"error\": -1",
         "loads[0].lines.copy.points[0]: \"error\" is -1"},
        {"\"op_overhead_seconds\"", "\"error\": \"small\", \"op_overhead_seconds\"",
         "loads[0]: needs \"error\", a number that is above 0"},
        {"\"latency_seconds\": 1e-6", "\"error\": \"x\", \"latency_seconds\": 1e-6",
         "loads[0].lines.copy.fit: needs \"error\""},
        {"\"points\": [{\"m\"", "\"points\": 5, \"other\": [{\"m\"", "\"points\" must be an array"},
        {"\"m\": 8", "\"m\": -8", "loads[0].kernels.matmul.points[0]: \"m\" is -8"},
        {"\"transpose_b\": true", "\"transpose_b\": 1", "\"transpose_b\""},
        {"\"batch\": 1", "\"batch\": 1, \"group\": 1.5", "needs \"group\", a whole number"},
        {"\"batch\": 1", "\"batch\": 4, \"group\": 2", "points[0]: \"group\" is 2, must be 1 to 1"},
        {"\"matmul\": {",
         "\"attention\": {\"points\": [{\"m\": 8, \"n\": 8, \"k\": 2, \"batch\": 3, \"group\": 2}]}, "
         "\"matmul\": {",
         "attention.points[0]: \"group\" is 2, which does not divide \"batch\""},
        {"\"seconds\": 3e-6, ", "", "points[0]: needs \"seconds\""},
        {"\"seconds\": 3e-6", "\"seconds\": 0", "points[0]: \"seconds\" is 0"},
        {"\"samples\": 9", "\"samples\": 0", "\"samples\" is 0"},
        {"\"latency_seconds\": 1e-6", "\"latency_seconds\": null", "loads[0].lines.copy.fit"},
        {"\"bytes\": 4096", "\"bytes\": 4096.5", "loads[0].lines.copy.points[0]"},
        {"\"copy\": {", "\"copy\": 3, \"message\": {", "loads[0].lines.copy"},
        {"\"copy\": {", "\"cope\": {", "loads[0].lines.cope: there is no line of that name"},
        {"{\"copy\": {", "3, \"other\": {\"copy\": {", "\"lines\" must be an object"},
        {"\"copy\": {\"fit\"", "\"copy\": {\"fits\"", "loads[0].lines.copy: needs \"fit\""},
        {"[{\"bytes\": 4096", "[{\"bytes\": 4096, \"seconds\": 1}, {\"bytes\": 4096",
         "two points are of 4096 bytes"},
        {"\"matmul\": {", "\"unscale\": {", "its name is \"unscale_half\""},
        {"\"matmul\": {", "\"matmul_halves\": {", "loads[0].kernels.matmul_halves: there is no kernel"},
        {"\"source\":", "\"host_link_bytes_per_second\": -1, \"source\":",
         "\"host_link_bytes_per_second\" is -1"},
};

/* SOUND with the first `from` replaced; the caller frees it. */
static char *damaged(const struct damage *damage)
{
        const char *at = strstr(SOUND, damage->from);
        assert_non_null(at);
        size_t length = sizeof SOUND + strlen(damage->to);
        char *text = malloc(length);
        assert_non_null(text);
        snprintf(text, length, "%.*s%s%s", (int)(at - SOUND), SOUND, damage->to, at + strlen(damage->from));
        return text;
}

static void each_wrong_value_is_refused_in_a_sentence_that_names_it(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof DAMAGES / sizeof *DAMAGES; i++) {
                struct profile profile;
                struct rv_error_info err;
                char path[64], *text = damaged(&DAMAGES[i]);
                temporary_path(path);
                if (load_text(&profile, text, strlen(text), &err) != RV_EINPUT)
                        fail_msg("accepted: \"%s\" -> \"%s\"", DAMAGES[i].from, DAMAGES[i].to);
                if (!strstr(err.sentence, path) || !strstr(err.sentence, DAMAGES[i].sentence))
                        fail_msg("\"%s\" -> \"%s\" gave \"%s\"", DAMAGES[i].from, DAMAGES[i].to,
                                 err.sentence);
                free(text);
        }
}

static void every_truncation_is_refused(void **state)
{
        (void)state;
        size_t whole = strlen(SOUND) - 1; /* without the final newline */
        for (size_t length = 0; length < whole; length += 7) {
                struct profile profile;
                struct rv_error_info err;
                assert_int_equal(load_text(&profile, SOUND, length, &err), RV_EINPUT);
                assert_true(strlen(err.sentence) > 0);
        }
}

static void two_loads_for_the_same_ranks_are_refused(void **state)
{
        (void)state;
        char text[4096];
        const char *load = strstr(SOUND, "[{\n  \"ranks\"") + 1;
        int load_length = (int)(strlen(load) - strlen("]}\n"));
        snprintf(text, sizeof text, "%.*s, %.*s]}", (int)strlen(SOUND) - 3, SOUND, load_length, load);
        struct profile profile;
        struct rv_error_info err;
        assert_int_equal(load_text(&profile, text, strlen(text), &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "both for 2 ranks"));
}

static void a_profile_that_is_nowhere_is_an_error_that_says_how_to_get_one(void **state)
{
        (void)state;
        struct profile profile;
        struct rv_error_info err;
        assert_int_equal(profile_load(&profile, "no-such-machine", &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "no-such-machine"));
        assert_non_null(strstr(err.sentence, "ranvier calibrate"));
}

static void the_nearest_load_is_chosen_and_the_busier_of_two(void **state)
{
        (void)state;
        struct profile_load loads[3] = {{.ranks = 4}, {.ranks = 1}, {.ranks = 8}};
        struct profile profile = {.loads = loads, .load_count = 3};
        const int wanted[] = {1, 2, 3, 4, 5, 6, 7, 100}, expected[] = {1, 1, 4, 4, 4, 8, 8, 8};
        for (int i = 0; i < 8; i++)
                assert_int_equal(profile_load_for(&profile, wanted[i])->ranks, expected[i]);
}

static void a_measured_shape_costs_its_point_and_others_the_fit(void **state)
{
        (void)state;
        struct profile profile;
        struct rv_error_info err;
        enum profile_source source;
        double seconds, expected = 1e-6 + 1e-10 * 2 * 8 * 4 * 3 /* all of a tile */;
        assert_int_equal(load_text(&profile, SOUND, sizeof SOUND - 1, &err), RV_OK);
        struct kernel exact = product(8, 4, 2), other = product(8, 4, 3);
        const struct profile_load *load = &profile.loads[0];

        assert_int_equal(profile_kernel_seconds(&profile, load, &exact, false, &seconds, &source, &err),
                         RV_OK);
        assert_true(seconds == 3e-6 && source == PROFILE_POINT);
        exact.part = PART_INPUT; /* what the product is for does not change its cost */
        assert_int_equal(profile_kernel_seconds(&profile, load, &exact, false, &seconds, &source, &err),
                         RV_OK);
        assert_true(source == PROFILE_POINT);

        assert_int_equal(profile_kernel_seconds(&profile, load, &other, false, &seconds, &source, &err),
                         RV_OK);
        assert_true(seconds > 0.999999 * expected && seconds < 1.000001 * expected &&
                    source == PROFILE_MODEL);
        assert_int_equal(profile_kernel_seconds(&profile, load, &exact, true, &seconds, &source, &err),
                         RV_OK);
        assert_true(source == PROFILE_MODEL && seconds != 3e-6);
        exact.transpose_b = 0; /* another kernel */
        assert_int_equal(profile_kernel_seconds(&profile, load, &exact, false, &seconds, &source, &err),
                         RV_OK);
        assert_true(source == PROFILE_MODEL);
        profile_free(&profile);
}

/* The same product of fp16 tensors is another kernel, with a point and a fit of its own. */
static void precisions_do_not_share_points_or_fits(void **state)
{
        (void)state;
        struct profile profile;
        struct rv_error_info err;
        double seconds;
        assert_int_equal(load_text(&profile, SOUND, sizeof SOUND - 1, &err), RV_OK);
        struct kernel kernel = product(8, 4, 2);
        kernel.dtype = 1;
        assert_int_equal(
                profile_kernel_seconds(&profile, &profile.loads[0], &kernel, false, &seconds, NULL, &err),
                RV_EINPUT);
        assert_non_null(strstr(err.sentence, "matmul_half"));
        assert_non_null(strstr(err.sentence, "--precision"));
        profile.loads[0].models[true][KERNEL_MATMUL] =
                (struct kernel_model){.bytes_per_second = 1e9, .present = true};
        assert_int_equal(
                profile_kernel_seconds(&profile, &profile.loads[0], &kernel, false, &seconds, NULL, &err),
                RV_OK);
        assert_true(fabs(seconds - 1e-9 * 2 * (8 * 2 + 2 * 4 + 8 * 4)) < 1e-20);
        kernel.dtype = DTYPE_BF16; /* as wide, and another one */
        assert_int_equal(
                profile_kernel_seconds(&profile, &profile.loads[0], &kernel, false, &seconds, NULL, &err),
                RV_EINPUT);
        assert_non_null(strstr(err.sentence, "matmul_bf16"));
        profile_free(&profile);
}

static void a_line_goes_through_its_points_and_beyond_them_as_fitted(void **state)
{
        (void)state;
        static const struct {
                int64_t bytes;
                double points, fit;
        } expected[] = {
                {999, 1e-4 + 999e-8, 1e-4 + 999e-8}, /* below the first point */
                {1000, 3e-4, 1.1e-4},
                {1500, 5e-4, 1.15e-4}, /* half of the way from 3e-4 to 7e-4 */
                {2000, 7e-4, 1.2e-4},
                {7000, 10e-4, 1.7e-4},
                {10000, 12e-4, 2e-4},
                {10001, 1e-4 + 10001e-8, 1e-4 + 10001e-8},
        };
        char text[sizeof SOUND + 256];
        const char *at = strstr(SOUND, "[{\"bytes\": 4096");
        snprintf(text, sizeof text, "%.*s%s", (int)(at - SOUND), SOUND,
                 "[{\"bytes\": 10000, \"seconds\": 12e-4}, {\"bytes\": 1000, \"seconds\": 3e-4},\n"
                 " {\"bytes\": 2000, \"seconds\": 7e-4}, {\"bytes\": 7000, \"seconds\": 10e-4}]}}}]}");
        char *fit = strstr(text, "\"latency_seconds\": 1e-6, \"seconds_per_byte\": 1e-10");
        assert_non_null(fit);
        memcpy(fit, "\"latency_seconds\": 1e-4, \"seconds_per_byte\": 1e-08",
               strlen("\"latency_seconds\": 1e-4, \"seconds_per_byte\": 1e-08"));
        struct profile profile;
        struct rv_error_info err;
        if (load_text(&profile, text, strlen(text), &err) != RV_OK)
                fail_msg("%s", err.sentence);
        for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
                double by_points =
                        profile_line_seconds(&profile.loads[0], LINE_COPY, expected[i].bytes, false);
                double by_fit = profile_line_seconds(&profile.loads[0], LINE_COPY, expected[i].bytes, true);
                if (fabs(by_points - expected[i].points) > 1e-12 || fabs(by_fit - expected[i].fit) > 1e-12)
                        fail_msg("%lld bytes: %g by points, %g by the fit", (long long)expected[i].bytes,
                                 by_points, by_fit);
        }
        profile_free(&profile);
}

static void a_line_that_is_missing_is_an_error_with_its_name_and_cure(void **state)
{
        (void)state;
        static const struct {
                enum profile_line line;
                const char *cure;
        } expected[] = {
                {LINE_COPY_BACK, "\"ranvier calibrate\" measures it"},
                {LINE_MESSAGE, "\"ranvier calibrate --ranks 2 (or more)\" measures it"},
                {LINE_ALLREDUCE_FP16, "--precision fp32,mixed\" measures it"},
                {LINE_ALLREDUCE_BF16, "--precision fp32,bf16\" measures it"},
                {LINE_FETCH, "--offload\" measures it"},
                {LINE_WRITE_BACK, "--offload\" measures it"},
        };
        struct profile profile;
        struct rv_error_info err;
        char path[64];
        temporary_path(path);
        assert_int_equal(load_text(&profile, SOUND, sizeof SOUND - 1, &err), RV_OK);
        for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
                const enum profile_line line = expected[i].line;
                assert_true(isnan(profile_line_seconds(&profile.loads[0], line, 4096, false)));
                assert_int_equal(profile_no_line(&profile, &profile.loads[0], line, &err), RV_EINPUT);
                assert_non_null(strstr(err.sentence, path));
                assert_non_null(strstr(err.sentence, profile_line_name(line)));
                assert_non_null(strstr(err.sentence, expected[i].cure));
        }
        profile.measured = false;
        assert_int_equal(profile_no_line(&profile, &profile.loads[0], LINE_FETCH, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "add \"fetch\" with a \"fit\" to the \"lines\""));
        profile_free(&profile);
}

/* Whether the preset prices a kernel, and so long that it is one; what it refuses it says in `err`. */
static bool is_priced(const struct profile *profile, const struct kernel *kernel, struct rv_error_info *err)
{
        double seconds = 0;
        return profile_kernel_seconds(profile, &profile->loads[0], kernel, false, &seconds, NULL, err) ==
                       RV_OK &&
               seconds > 0;
}

/* Every kernel that the sizes of a GPT need is priced by what is written for a GPU in a precision: with fused
 * kernels or without. */
static void the_presets_price_every_kernel_of_their_precisions(void **state)
{
        (void)state;
        static const struct {
                const char *name;
                enum dtype dtype;
                bool fused;
        } presets[] = {{"a100-datasheet", DTYPE_FP32, false}, {"a100-datasheet", DTYPE_FP16, true},
                       {"a100-datasheet", DTYPE_BF16, true},  {"a100-published", DTYPE_FP16, true},
                       {"a100-published", DTYPE_BF16, true},  {"h100-published", DTYPE_FP16, true},
                       {"h100-published", DTYPE_BF16, true},  {"v100-datasheet", DTYPE_FP16, false},
                       {"v100-published", DTYPE_FP16, false}};
        for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
                struct profile profile;
                struct rv_error_info err = {0};
                const enum dtype dtype = presets[i].dtype;
                if (profile_load(&profile, presets[i].name, &err) != RV_OK)
                        fail_msg("%s", err.sentence);
                assert_true(profile_has_precision(&profile, dtype));
                assert_int_equal(profile_has_fused(&profile.loads[0], dtype), presets[i].fused);
                for (int kind = 0; kind < KERNEL_KINDS; kind++) {
                        const struct kernel_descriptor *descriptor =
                                kernel_descriptor((enum kernel_kind)kind);
                        const struct kernel kernel = {.kind = (enum kernel_kind)kind,
                                                      .dtype = (unsigned char)dtype,
                                                      .batch = descriptor->fused ? 1 : 2,
                                                      .m = 512,
                                                      .n = 512,
                                                      .k = 512};
                        if ((descriptor->fused && !presets[i].fused) || descriptor->only_predicted ||
                            (dtype == DTYPE_FP32 && descriptor->only_mixed))
                                continue;
                        if (!is_priced(&profile, &kernel, &err))
                                fail_msg("%s: %s", presets[i].name, err.sentence);
                }
                profile_free(&profile);
        }
}

/* A profile of one load, of `kernels`, on a device, with what its sources say. */
static void load_kernels(struct profile *profile, const char *device, const char *sources,
                         const char *kernels)
{
        char path[64], text[2048];
        struct rv_error_info err = {0};
        temporary_path(path);
        snprintf(text, sizeof text,
                 "{\"ranvier\": \"0\", \"kind\": \"profile\", \"device\": \"%s\", \"source\": \"by hand\", "
                 "\"sources\": {%s}, \"measured\": false, \"peak_flops_per_second\": {\"bf16\": 4, \"fp8\": "
                 "8}, "
                 "\"device_memory_bytes\": 0, \"loads\": [{\"ranks\": 1, \"op_overhead_seconds\": 0, "
                 "\"kernels\": {%s}, \"lines\": {}}]}",
                 device, sources, kernels);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(text, file);
        fclose(file);
        if (profile_load(profile, path, &err))
                fail_msg("%s", err.sentence);
        unlink(path);
}

#define OF_BYTES(name, rate) "\"" name "\": {\"model\": {\"bytes_per_second\": " rate "}, \"points\": []}"

/* Tensor cores multiply fp16 and bf16 alike, so what is known of one holds for the other: on a GPU, and where
 * the profile does not say why it has no bf16. */
static void a_gpu_prices_bf16_as_fp16_and_the_other_way_around(void **state)
{
        (void)state;
        static const char half[] = OF_BYTES("layernorm_half", "1000"),
                          bf16[] = OF_BYTES("layernorm_bf16", "500");
        static const struct {
                const char *device, *sources, *kernels;
                enum dtype asked;
                bool priced;
        } cases[] = {{"A GPU", "", half, DTYPE_BF16, true},
                     {"A GPU", "", half, DTYPE_FP16, true},
                     {"A GPU", "", bf16, DTYPE_FP16, true},
                     {"A GPU", "", half, DTYPE_FP32, false},
                     {"A GPU", "\"bf16\": \"it has none\"", half, DTYPE_BF16, false},
                     {"cpu", "", half, DTYPE_BF16, false}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct kernel known = {KERNEL_LAYERNORM, .batch = 1, .m = 8, .n = 8}, asked = known;
                struct profile profile;
                struct rv_error_info err = {0};
                double seconds, same;
                load_kernels(&profile, cases[i].device, cases[i].sources, cases[i].kernels);
                known.dtype = cases[i].kernels == half ? DTYPE_FP16 : DTYPE_BF16;
                asked.dtype = (unsigned char)cases[i].asked;
                const int rc =
                        profile_kernel_seconds(&profile, profile.loads, &asked, false, &seconds, NULL, &err);
                assert_int_equal(rc, cases[i].priced ? RV_OK : RV_EINPUT);
                if (cases[i].priced) {
                        assert_int_equal(profile_kernel_seconds(&profile, profile.loads, &known, false, &same,
                                                                NULL, &err),
                                         RV_OK);
                        assert_true(seconds == same);
                }
                /* what is taken by default is what the profile has itself */
                assert_true(profile_has_precision(&profile, (enum dtype)known.dtype));
                assert_false(
                        profile_has_precision(&profile, known.dtype == DTYPE_FP16 ? DTYPE_BF16 : DTYPE_FP16));
                profile_free(&profile);
        }
}

/* A product has the price of its format, and of what follows it in its kernel too; what makes copies moves
 * bytes as SwiGLU does. A profile without the format says which kernel it lacks. */
static void products_are_priced_in_their_format(void **state)
{
        (void)state;
        static const char swiglu[] = OF_BYTES("swiglu_bf16", "10") ", " OF_BYTES("matmul_bf16", "10");
        static const char fp8[] = OF_BYTES("swiglu_bf16", "10") ", " OF_BYTES("matmul_fp8", "100");
        struct kernel product = {KERNEL_MATMUL, .dtype = DTYPE_BF16, .format = FORMAT_FP8, .batch = 1};
        product.m = product.n = product.k = 10;
        struct kernel biased = product, copy = product, grouped = product;
        biased.kind = KERNEL_MATMUL_BIAS;
        copy.kind = KERNEL_QUANTIZE;
        copy.k = 0;
        grouped.kind = KERNEL_GROUPED_MATMUL;
        struct profile profile;
        struct rv_error_info err = {0};
        double seconds;
        load_kernels(&profile, "A GPU", "", fp8);
        const struct profile_load *load = profile.loads;
        assert_int_equal(profile_kernel_seconds(&profile, load, &product, false, &seconds, NULL, &err),
                         RV_OK);
        assert_true(fabs(seconds - (100 + 100 + 2 * 100) / 100.0) < 1e-12);
        assert_int_equal(profile_kernel_seconds(&profile, load, &biased, false, &seconds, NULL, &err), RV_OK);
        assert_true(fabs(seconds - (100 + 100 + 2 * 100 + 2 * 10) / 100.0) < 1e-12);
        assert_int_equal(profile_kernel_seconds(&profile, load, &copy, false, &seconds, NULL, &err), RV_OK);
        assert_true(fabs(seconds - 300 / 10.0) < 1e-12);
        assert_int_equal(profile_kernel_seconds(&profile, load, &grouped, false, &seconds, NULL, &err),
                         RV_EINPUT);
        assert_non_null(strstr(err.sentence, "kernel grouped_matmul_fp8"));
        struct kernel_model *of_copies = &profile.loads[0].models[DTYPE_BF16][KERNEL_QUANTIZE];
        *of_copies = (struct kernel_model){.bytes_per_second = 20, .present = true};
        assert_int_equal(profile_kernel_seconds(&profile, load, &copy, false, &seconds, NULL, &err), RV_OK);
        assert_true(fabs(seconds - 300 / 20.0) < 1e-12);
        assert_true(profile.peaks[profile_format(DTYPE_BF16, FORMAT_FP8)] == 8);
        assert_true(profile_has_products(load, FORMAT_FP8));
        assert_false(profile_has_products(load, FORMAT_NVFP4));
        profile_free(&profile);
        load_kernels(&profile, "A GPU", "", swiglu);
        assert_int_equal(
                profile_kernel_seconds(&profile, profile.loads, &product, false, &seconds, NULL, &err),
                RV_EINPUT);
        assert_non_null(strstr(err.sentence, "kernel matmul_fp8 "));
        assert_non_null(strstr(err.sentence, "take --precision bf16, or a profile that knows matmul_fp8"));
        profile_free(&profile);
}

/* What the datasheet gives one rate for is priced alike; a V100 has no bf16, and says so. */
static void bf16_is_priced_as_fp16_where_the_gpu_has_it(void **state)
{
        (void)state;
        static const char *const presets[] = {"a100-datasheet", "a100-published", "h100-published"};
        struct profile profile;
        struct rv_error_info err = {0};
        for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
                assert_int_equal(profile_load(&profile, presets[i], &err), RV_OK);
                const struct profile_load *load = &profile.loads[0];
                assert_memory_equal(load->models[DTYPE_BF16], load->models[DTYPE_FP16],
                                    sizeof load->models[DTYPE_FP16]);
                profile_free(&profile);
        }
        assert_int_equal(profile_load(&profile, "v100-datasheet", &err), RV_OK);
        struct kernel kernel = {.kind = KERNEL_LAYERNORM, .dtype = DTYPE_BF16, .batch = 1, .m = 8, .n = 8};
        assert_false(is_priced(&profile, &kernel, &err));
        assert_non_null(
                strstr(err.sentence, "a V100's tensor cores multiply fp16 only: take --precision mixed"));
        kernel = (struct kernel){KERNEL_ATTENTION, .dtype = DTYPE_FP16, .batch = 1, .m = 8, .n = 8, .k = 8};
        assert_false(is_priced(&profile, &kernel, &err));
        assert_non_null(strstr(err.sentence, "FlashAttention, as published, is for GPUs after the V100"));
        profile_free(&profile);
}

/* Rows of what the preset's sources name: causal attention of a 4096-token sequence on an A100-PCIe
 * (SimuMax), forward on an H100 (aiconfigurator). Each within twice the standard error that the preset
 * states. */
static void fused_attention_takes_what_was_measured_elsewhere(void **state)
{
        (void)state;
        static const struct {
                const char *preset;
                enum kernel_kind kind;
                int heads, tokens, width;
                double seconds;
        } rows[] = {{"a100-datasheet", KERNEL_ATTENTION, 64, 4096, 128, 1.484e-3},
                    {"a100-datasheet", KERNEL_ATTENTION, 32, 4096, 128, 0.7783e-3},
                    {"a100-datasheet", KERNEL_ATTENTION_BACKWARD, 64, 4096, 128, 4.383e-3},
                    {"a100-datasheet", KERNEL_ATTENTION_BACKWARD, 32, 4096, 128, 2.256e-3},
                    {"h100-published", KERNEL_ATTENTION, 128, 2048, 128, 0.4461e-3},
                    {"h100-published", KERNEL_ATTENTION, 128, 1024, 64, 0.1248e-3}};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
                struct profile profile;
                struct rv_error_info err = {0};
                double seconds;
                assert_int_equal(profile_load(&profile, rows[i].preset, &err), RV_OK);
                const struct profile_load *load = &profile.loads[0];
                const struct kernel kernel = {rows[i].kind,           .dtype = DTYPE_BF16,
                                              .batch = rows[i].heads, .m = rows[i].tokens,
                                              .n = rows[i].tokens,    .k = rows[i].width};
                assert_int_equal(profile_kernel_seconds(&profile, load, &kernel, false, &seconds, NULL, &err),
                                 RV_OK);
                const double error = profile_kernel_error(load, &kernel, false);
                assert_true(error > 0.05 && error < 0.2);
                if (fabs(seconds / rows[i].seconds - 1) > 2 * error)
                        fail_msg("row %zu: %g s, measured %g s", i, seconds, rows[i].seconds);
                profile_free(&profile);
        }
}

/* A load of fp32 kernels in points or fits, then of others. */
static void what_a_plan_asks_for_in_vain_is_named_by_its_flags(void **state)
{
        (void)state;
        struct rv_error_info err = {0};
        double seconds;
        struct profile_load load = {.ranks = 1};
        const struct profile profile = {.path = "x.json", .measured = true, .loads = &load, .load_count = 1};
        const struct kernel attention = {
                KERNEL_ATTENTION, .dtype = DTYPE_BF16, .batch = 1, .m = 8, .n = 8, .k = 8};
        load.models[DTYPE_FP32][KERNEL_LAYERNORM].present = true;
        assert_true(profile_kernel_seconds(&profile, &load, &attention, false, &seconds, NULL, &err) < 0);
        assert_string_equal(
                err.sentence,
                "profile x.json has kernels of --precision fp32 only, this plan is of --precision "
                "bf16: take --precision fp32, or measure both with ranvier calibrate --precision fp32,bf16");
        load.models[DTYPE_FP16][KERNEL_LAYERNORM].present = true;
        assert_true(profile_kernel_seconds(&profile, &load, &attention, false, &seconds, NULL, &err) < 0);
        assert_string_equal(
                err.sentence,
                "profile x.json has kernels of --precision fp32 or mixed only, this plan is of "
                "--precision bf16: take --precision fp32 or mixed, or measure all with ranvier calibrate "
                "--precision fp32,mixed,bf16");
        load.models[DTYPE_BF16][KERNEL_LAYERNORM].present = true;
        assert_false(profile_has_fused(&load, DTYPE_BF16));
        assert_true(profile_kernel_seconds(&profile, &load, &attention, false, &seconds, NULL, &err) < 0);
        assert_string_equal(
                err.sentence,
                "profile x.json has no fused kernels (such as attention) in --precision bf16, which "
                "--fusion on needs, and a Llama in any plan: leave that out, or measure them with ranvier "
                "calibrate --fusion "
                "on");
        struct kernel grouped = attention;
        grouped.batch = grouped.group = 2;
        struct kernel_point point = {attention, 0.25, 0.25, 0.25, 1, 0};
        load.points = &point;
        load.point_count = 1;
        assert_true(profile_has_fused(&load, DTYPE_BF16) && !profile_has_fused(&load, DTYPE_FP16));
        assert_int_equal(profile_kernel_seconds(&profile, &load, &attention, false, &seconds, NULL, &err), 0);
        assert_true(seconds == 0.25);
        assert_true(profile_kernel_seconds(&profile, &load, &grouped, false, &seconds, NULL, &err) < 0);
        assert_non_null(strstr(err.sentence, "(batch 2, m 8, n 8, k 8, group 2)"));
}

/* A profile from before the kernel, of a device that runs it as its parts. */
static void a_kernel_that_was_not_measured_takes_what_its_parts_take(void **state)
{
        (void)state;
        struct rv_error_info err = {0};
        double seconds;
        enum profile_source source;
        const struct kernel both = {.kind = KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM,
                                    .transpose_b = 1,
                                    .dtype = DTYPE_BF16,
                                    .batch = 1,
                                    .m = 8,
                                    .n = 16,
                                    .k = 4};
        struct kernel product = both;
        product.kind = KERNEL_MATMUL_BIAS_RESIDUAL;
        const struct kernel layernorm = {
                .kind = KERNEL_LAYERNORM, .dtype = DTYPE_BF16, .batch = 1, .m = 8, .n = 16};
        struct kernel_point points[] = {{product, 0.75, 0.75, 0.75, 1, 0.02},
                                        {both, 0.5, 0.5, 0.5, 1, 0.04},
                                        {layernorm, 0.25, 0.25, 0.25, 1, 0.06}};
        struct profile_load load = {.ranks = 1, .points = points, .point_count = 3};
        const struct profile profile = {.path = "x.json", .measured = true, .loads = &load, .load_count = 1};
        assert_int_equal(profile_kernel_seconds(&profile, &load, &both, false, &seconds, &source, &err), 0);
        assert_true(seconds == 0.5 && profile_kernel_error(&load, &both, false) == 0.04);
        points[1].kernel.k = 5; /* another shape: parts again */
        assert_int_equal(profile_kernel_seconds(&profile, &load, &both, false, &seconds, &source, &err), 0);
        assert_true(seconds == 1 && source == PROFILE_POINT);
        assert_true(fabs(profile_kernel_error(&load, &both, false) - (0.75 * 0.02 + 0.25 * 0.06)) < 1e-12);
        points[2].error = 0;
        assert_true(profile_kernel_error(&load, &both, false) == 0);
        load.point_count = 2;
        load.models[DTYPE_BF16][KERNEL_LAYERNORM] =
                (struct kernel_model){.present = true, .overhead_seconds = 2};
        assert_int_equal(profile_kernel_seconds(&profile, &load, &both, false, &seconds, &source, &err), 0);
        assert_true(seconds == 2.75 && source == PROFILE_MODEL);
        load.models[DTYPE_BF16][KERNEL_LAYERNORM].quality.median_error = 0.125;
        assert_true(profile_fit_error(&load, &both, false) == 0.125);
        load.models[DTYPE_BF16][KERNEL_ATTENTION].present = true; /* other fused kernels are there */
        assert_true(profile_kernel_seconds(&profile, &load, &both, true, &seconds, &source, &err) < 0);
        assert_non_null(strstr(err.sentence, "matmul_bias_residual_layernorm_bf16"));
}

static void a_kernel_without_point_or_fit_is_an_error_with_kernel_profile_and_cure(void **state)
{
        (void)state;
        struct profile profile;
        struct rv_error_info err;
        double seconds;
        char path[64];
        temporary_path(path);
        assert_int_equal(load_text(&profile, SOUND, sizeof SOUND - 1, &err), RV_OK);
        struct kernel kernel = {.kind = KERNEL_SOFTMAX_BACKWARD, .batch = 2, .m = 16, .n = 16};
        assert_int_equal(
                profile_kernel_seconds(&profile, &profile.loads[0], &kernel, false, &seconds, NULL, &err),
                RV_EINPUT);
        assert_non_null(strstr(err.sentence, "softmax_backward"));
        assert_non_null(strstr(err.sentence, path));
        assert_non_null(strstr(err.sentence, "run ranvier calibrate again with this plan's --model"));
        assert_int_equal(
                profile_kernel_seconds(&profile, &profile.loads[0], &kernel, true, &seconds, NULL, &err),
                RV_EINPUT);
        assert_non_null(strstr(err.sentence, "leave out --fits-only"));
        profile.measured = false;
        assert_int_equal(
                profile_kernel_seconds(&profile, &profile.loads[0], &kernel, false, &seconds, NULL, &err),
                RV_EINPUT);
        assert_non_null(strstr(err.sentence, "add a \"model\" of \"softmax_backward\""));
        profile_free(&profile);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_sound_file_is_read),
                cmocka_unit_test(a_file_with_nothing_but_fits_in_half_precision_is_read),
                cmocka_unit_test(saving_and_loading_changes_nothing),
                cmocka_unit_test(a_measurement_that_does_not_add_up_in_either_direction_is_warned_of),
                cmocka_unit_test(each_wrong_value_is_refused_in_a_sentence_that_names_it),
                cmocka_unit_test(every_truncation_is_refused),
                cmocka_unit_test(two_loads_for_the_same_ranks_are_refused),
                cmocka_unit_test(a_profile_that_is_nowhere_is_an_error_that_says_how_to_get_one),
                cmocka_unit_test(the_nearest_load_is_chosen_and_the_busier_of_two),
                cmocka_unit_test(a_measured_shape_costs_its_point_and_others_the_fit),
                cmocka_unit_test(precisions_do_not_share_points_or_fits),
                cmocka_unit_test(what_a_plan_asks_for_in_vain_is_named_by_its_flags),
                cmocka_unit_test(a_line_goes_through_its_points_and_beyond_them_as_fitted),
                cmocka_unit_test(a_line_that_is_missing_is_an_error_with_its_name_and_cure),
                cmocka_unit_test(the_presets_price_every_kernel_of_their_precisions),
                cmocka_unit_test(a_gpu_prices_bf16_as_fp16_and_the_other_way_around),
                cmocka_unit_test(products_are_priced_in_their_format),
                cmocka_unit_test(bf16_is_priced_as_fp16_where_the_gpu_has_it),
                cmocka_unit_test(fused_attention_takes_what_was_measured_elsewhere),
                cmocka_unit_test(a_kernel_that_was_not_measured_takes_what_its_parts_take),
                cmocka_unit_test(a_kernel_without_point_or_fit_is_an_error_with_kernel_profile_and_cure),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
