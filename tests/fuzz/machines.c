/* Profiles, platforms and tables of what was measured. */
#include "tests/fuzz/fuzz.h"

#include "calibrate/import.h"
#include "calibrate/profile/profile.h"
#include "models/shape_table.h"
#include "runtime/device/cuda/choices.h"
#include "sim/evidence/measured.h"
#include "sim/platform/collective_table.h"
#include "sim/platform/platform.h"

#include <stdlib.h>

/* Prices of every kernel that is asked for, and of bytes that are moved. */
static void ask_profile(const struct profile *profile)
{
        struct rv_error_info err = {0};
        const struct profile_load *load = profile_load_for(profile, 8);
        enum profile_source source = 0;
        double seconds;
        for (int kind = 0; kind < KERNEL_KINDS; kind++) {
                const struct kernel kernel = {.kind = (enum kernel_kind)kind,
                                              .dtype = (unsigned char)(kind % DTYPES),
                                              .group = 2,
                                              .experts = 4,
                                              .batch = 2,
                                              .m = 64,
                                              .n = 96,
                                              .k = 32,
                                              .l = 4};
                profile_kernel_seconds(profile, load, &kernel, false, &seconds, &source, &err);
                profile_kernel_error(load, &kernel, false);
        }
        for (int line = 0; line < PROFILE_LINES; line++)
                for (int64_t size = 1; size < INT64_C(1) << 40; size <<= 13) {
                        profile_line_seconds(load, (enum profile_line)line, size, false);
                        profile_line_error(load, (enum profile_line)line, size, false);
                }
        profile_caution(profile);
}

void fuzz_profile(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        struct profile profile;
        const int rc = profile_load(&profile, fuzz_file("profile.json", bytes), &err);
        fuzz_check(rc, &err);
        if (rc == RV_OK) {
                ask_profile(&profile);
                profile_free(&profile);
        }
}

void fuzz_platform(struct fuzz_bytes bytes)
{
        enum { GPUS = 16 };
        struct rv_error_info err = {0};
        struct platform platform;
        int rc = platform_load(&platform, fuzz_file("platform.json", bytes), NULL, GPUS, &err);
        fuzz_check(rc, &err);
        if (rc != RV_OK)
                return;
        for (int rank = 0; rank < GPUS; rank++) {
                const struct platform_place place = platform_place(&platform, rank);
                platform_socket(place.figures, place.gpu);
                platform_rail(place.figures, place.gpu);
        }
        platform_host_share(&platform, GPUS);
        rc = platform_write_xml(&platform, GPUS, fuzz_nowhere(), &err);
        fuzz_check(rc, &err);
        platform_free(&platform);
}

void fuzz_collectives(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        struct collective_table table = {0};
        const int rc = collective_table_read(&table, fuzz_file("collectives.csv", bytes), &err);
        fuzz_check(rc, &err);
        for (int i = 0; rc == RV_OK && i < table.count; i++) {
                double at;
                collective_series_seconds(&table.series[i], 1 << 20, &at);
                collective_table_next(&table, &table.series[i]);
        }
        collective_table_free(&table);
}

void fuzz_shapes(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        struct shape_table table;
        const int rc = shape_table_read(&table, fuzz_file("shapes.csv", bytes), &err);
        fuzz_check(rc, &err);
        if (rc != RV_OK)
                return;
        for (int i = 0; i < table.count; i++)
                shape_row_flops(&table.rows[i]);
        shape_table_free(&table);
}

/* Two parts: what describes a GPU, and a table. */
void fuzz_import(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        const struct fuzz_bytes sheet = fuzz_part(&bytes);
        const struct import_request request = {.device = fuzz_file("device.json", sheet),
                                               .tables = {fuzz_file("table.csv", bytes)},
                                               .table_count = 1,
                                               .out = fuzz_path("out.json")};
        fuzz_check(import_run(&request, &err), &err);
}

void fuzz_choices(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        struct cuda_choice choice;
        char *text = fuzz_text(bytes);
        struct cuda_choices *choices = cuda_choices_new(text, "NVIDIA H200", 130101, &err);
        if (choices) {
                cuda_choices_find(choices, "a", &choice);
                free(cuda_choices_text(choices));
        } else
                fuzz_check((int)err.code, &err);
        cuda_choices_delete(choices);
        free(text);
}

/* ---- runs that were measured ---- */

void fuzz_table(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        struct table table;
        const int rc = table_read(&table, fuzz_file("table.csv", bytes), &err);
        fuzz_check(rc, &err);
        if (rc == RV_OK)
                table_free(&table);
}

/* What is made of the rows: plans, machines and what they need. */
void fuzz_runs(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        struct table table;
        struct measured measured = {0};
        struct measured_defaults defaults = {.profile = "v100-published", .platform = "generic"};
        options_init(&defaults.plan);
        int rc = table_read(&table, fuzz_file("table.csv", bytes), &err);
        fuzz_check(rc, &err);
        if (rc != RV_OK)
                return;
        rc = measured_open(&measured, &table, 1, &defaults, &err);
        fuzz_check(rc, &err);
        measured_close(&measured);
        table_free(&table);
}
