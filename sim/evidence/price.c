#include "sim/evidence/price.h"

#include "calibrate/profile/profile.h"
#include "models/shape_table.h"
#include "runtime/base/command_line.h"
#include "runtime/base/csv.h"
#include "runtime/base/file.h"
#include "runtime/base/number.h"
#include "runtime/base/parse.h"
#include "runtime/base/setting.h"
#include "sim/collective/collective_model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TABLES = 16 };

struct settings {
        const char *profile, *platform, *csv;
        bool json;
        const char *paths[TABLES];
        int count;
        bool training, fits_only;
};

/* ---- the command line ---- */

static int add_table(void *settings, const char *option, const char *text, struct rv_error_info *err)
{
        struct settings *s = settings;
        if (s->count == TABLES)
                return rv_fail(err, RV_EINPUT, "%s: more than %d tables", option, TABLES);
        return parse_path(option, text, &s->paths[s->count++], err);
}

#define AT(member) .offset = offsetof(struct settings, member)

/* clang-format off */
static const struct setting option_rows[] = {
        {SETTING_OWN, "table", .argument = "FILE", .parse = add_table, .words = &(const struct option_words){.files = true},
         .help = "Kernels or collectives to price (required); several times for several tables"},
        {SETTING_PATH, "profile", .argument = "PROFILE", AT(profile), .words = &profile_words,
         .help = "What kernels take (required): a preset, or a file of ranvier calibrate"},
        {SETTING_PATH, "platform", .argument = "PLATFORM", AT(platform), .words = &platform_words,
         .help = "What collectives take: needed for a table of these"},
        {SETTING_SET, "training", AT(training),
         .help = "Price kernels as in a training run, whose clock is lower than that of a short loop; tables of the form "
                 "training are always priced so"},
        {SETTING_SET, "fits-only", AT(fits_only), .help = "By models even where exactly the shape was measured"},
        {SETTING_SET, "json", AT(json), .help = "Print the table with a column predicted_seconds as JSON (of one table)"},
        {SETTING_PATH, "csv", .argument = "FILE", AT(csv),
         .help = "Write the table to FILE with a column predicted_seconds (of one table)"},
        {.help = NULL},
};
/* clang-format on */

static error_t parse_option(int key, char *text, struct argp_state *state)
{
        struct rv_error_info *err = command_line_error(state);
        if (key != ARGP_KEY_ARG)
                return settings_take(option_rows, state->input, key, text, err);
        rv_fail(err, RV_EINPUT, "'%.80s' is one word too many: a table is named by --table FILE", text);
        return EINVAL;
}

static int check_settings(const struct settings *s, struct rv_error_info *err)
{
        struct file_use uses[TABLES + 3];
        int count = 0;
        if (s->count == 0)
                return rv_fail(err, RV_EINPUT, "--table is missing: the kernels to price");
        if (!s->profile)
                return rv_fail(err, RV_EINPUT, "--profile is missing: what kernels take, such as h100");
        if ((s->csv || s->json) && s->count > 1)
                return rv_fail(err, RV_EINPUT, "--%s is of one table, but %d were given",
                               s->csv ? "csv" : "json", s->count);
        for (int i = 0; i < s->count; i++)
                uses[count++] = (struct file_use){"--table", s->paths[i], false};
        uses[count++] = (struct file_use){"--profile", s->profile, false};
        uses[count++] = (struct file_use){"--platform", s->platform, false};
        uses[count++] = (struct file_use){"--csv", s->csv, true};
        return file_check_uses(uses, count, err);
}

/* ---- prices ---- */

/* What is known of a row. */
struct priced_row {
        double seconds, error; /* NAN: it has no price; 0: its error is not known */
        char kind[PROFILE_NAME];
};

struct pricing {
        const struct settings *settings;
        struct profile profile;
        struct platform platform;
        bool has_platform;
        struct shape_table table;
        struct priced_row *prices; /* [table.count] */
        int others;                /* rows of other GPUs */
        int unknown;               /* rows of kernels that the profile does not know; the first of them: */
        struct rv_error_info why;
};

static int price_collective(struct pricing *pricing, const struct shape_row *row, struct priced_row *price,
                            struct rv_error_info *err)
{
        static const enum collective_kind kinds[] = {[SHAPE_ALL_REDUCE] = COLLECTIVE_ALLREDUCE,
                                                     [SHAPE_ALL_GATHER] = COLLECTIVE_ALL_GATHER,
                                                     [SHAPE_REDUCE_SCATTER] = COLLECTIVE_REDUCE_SCATTER};
        const struct collective_group group = {0, 1, row->gpus, 1};
        if (!pricing->has_platform)
                return rv_fail(err, RV_EINPUT,
                               "--platform is missing: %.160s is of collectives, which a platform prices",
                               pricing->table.path);
        if (row->gpus > pricing->platform.gpus_per_node * pricing->platform.nodes)
                return rv_fail(err, RV_EINPUT, "%.160s:%d: %d GPUs, but platform %s has %d",
                               pricing->table.path, row->line, row->gpus, pricing->platform.name,
                               pricing->platform.gpus_per_node * pricing->platform.nodes);
        if (row->collective == SHAPE_ALLTOALL) {
                const struct collective_shape shape = collective_shape(&pricing->platform, &group);
                const struct collective_exchange exchange =
                        collective_exchange(&pricing->platform, &shape, row->bytes, DTYPE_FP16);
                price->seconds = collective_exchange_seconds(&shape, &exchange, row->bytes);
        } else
                price->seconds = collective_seconds(&pricing->platform, &group, kinds[row->collective],
                                                    row->bytes, DTYPE_FP16);
        return RV_OK;
}

static void price_kernels(struct pricing *pricing, const struct shape_row *row, struct priced_row *price)
{
        const struct profile *profile = &pricing->profile;
        const struct profile_load *load = &profile->loads[0];
        double error_seconds = 0;
        for (int i = 0; i < row->kernel_count; i++) {
                double seconds;
                struct rv_error_info why;
                if (profile_kernel_seconds(profile, load, &row->kernels[i], pricing->settings->fits_only,
                                           &seconds, NULL, &why)) {
                        if (pricing->unknown++ == 0)
                                pricing->why = why;
                        price->seconds = NAN;
                        return;
                }
                price->seconds += seconds;
                error_seconds +=
                        seconds * profile_kernel_error(load, &row->kernels[i], pricing->settings->fits_only);
        }
        price->error = error_seconds / price->seconds;
}

/* What distinguishes kinds of rows: the first kernel and its format, or the collective. */
static void kind_of(const struct pricing *pricing, const struct shape_row *row, char name[PROFILE_NAME])
{
        const struct kernel *kernel = &row->kernels[0];
        if (pricing->table.form == SHAPES_COLLECTIVES)
                snprintf(name, PROFILE_NAME, "%s of %d", shape_collective_name(row->collective), row->gpus);
        else if (pricing->table.form == SHAPES_EXPERTS)
                snprintf(name, PROFILE_NAME, "experts%s, ep %d", row->uneven ? " uneven" : "", row->ranks);
        else
                profile_kernel_name(
                        name, kernel->kind,
                        profile_format((enum dtype)kernel->dtype, (enum product_format)kernel->format));
}

static int price_row(struct pricing *pricing, int i, struct rv_error_info *err)
{
        const struct shape_row *row = &pricing->table.rows[i];
        struct priced_row *price = &pricing->prices[i];
        *price = (struct priced_row){0};
        kind_of(pricing, row, price->kind);
        if (row->gpu[0] && strcmp(row->gpu, pricing->profile.device.name) != 0) {
                price->seconds = NAN;
                pricing->others++;
                return RV_OK;
        }
        if (pricing->table.form == SHAPES_COLLECTIVES)
                return price_collective(pricing, row, price, err);
        price_kernels(pricing, row, price);
        return RV_OK;
}

static int price_table(struct pricing *pricing, const char *path, struct rv_error_info *err)
{
        int rc = shape_table_read(&pricing->table, path, err);
        if (rc != RV_OK)
                return rc;
        pricing->others = pricing->unknown = 0;
        pricing->prices = calloc((size_t)pricing->table.count, sizeof *pricing->prices);
        if (!pricing->prices)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d prices", pricing->table.count);
        for (int i = 0; i < pricing->profile.load_count; i++)
                pricing->profile.loads[i].tables.short_loops =
                        !pricing->settings->training && pricing->table.form != SHAPES_TRAINING;
        for (int i = 0; i < pricing->table.count && rc == RV_OK; i++)
                rc = price_row(pricing, i, err);
        if (rc == RV_OK && pricing->others == pricing->table.count)
                rc = rv_fail(err, RV_EINPUT, "%.160s: all %d rows are of other GPUs (%s, ...), none of %s",
                             path, pricing->table.count, pricing->table.rows[0].gpu,
                             pricing->profile.device.name);
        if (rc == RV_OK && pricing->unknown == pricing->table.count - pricing->others)
                rc = rv_fail(err, RV_EINPUT, "%s", pricing->why.sentence);
        return rc;
}

/* ---- errors ---- */

/* Rows of one kind, and of one size of it. */
struct group {
        const char *name;
        double from, below; /* Gflop, or bytes of a collective */
};
static const struct group kernel_sizes[] = {{"all", 0, INFINITY},
                                            {"below 1 Gflop", 0, 1e9},
                                            {"1 to 50 Gflop", 1e9, 50e9},
                                            {"from 50 Gflop", 50e9, INFINITY}};
static const struct group byte_sizes[] = {{"all", 0, INFINITY},
                                          {"below 64 KiB", 0, 65536},
                                          {"64 KiB to 16 MiB", 65536, 16777216},
                                          {"from 16 MiB", 16777216, INFINITY}};
enum { SIZES = 4, KINDS = 32 };

static bool has_error(const struct pricing *pricing, int i)
{
        return isfinite(pricing->table.rows[i].seconds) && isfinite(pricing->prices[i].seconds);
}

static void print_group(const struct pricing *pricing, const char *kind, const struct group *size,
                        double *errors)
{
        static const double NINE_IN_TEN = 1.6448536;
        const bool bytes = pricing->table.form == SHAPES_COLLECTIVES;
        int count = 0, inside = 0, known = 0, worst = 0;
        double largest = -1;
        for (int i = 0; i < pricing->table.count; i++) {
                const struct shape_row *row = &pricing->table.rows[i];
                const struct priced_row *price = &pricing->prices[i];
                const double of = bytes ? (double)row->bytes : shape_row_flops(row);
                if (!has_error(pricing, i) || (kind && strcmp(kind, price->kind) != 0) || of < size->from ||
                    of >= size->below)
                        continue;
                const double ratio = price->seconds / row->seconds;
                errors[count] = fabs(ratio - 1);
                if (errors[count] > largest) {
                        largest = errors[count];
                        worst = row->line;
                }
                known += price->error > 0;
                inside += price->error > 0 && fabs(log(ratio)) <= NINE_IN_TEN * price->error;
                count++;
        }
        if (count == 0)
                return;
        printf("  %-26s %-17s %7d %7.1f%% %7.1f%% %8.1f%%  line %-6d", kind ? kind : "all", size->name, count,
               100 * quantile(errors, count, 0.5), 100 * quantile(errors, count, 0.9), 100 * largest, worst);
        if (known)
                printf(" %6.1f%%", 100.0 * inside / known);
        putchar('\n');
}

static int find_kinds(const struct pricing *pricing, char kinds[KINDS][PROFILE_NAME])
{
        int count = 0;
        for (int i = 0; i < pricing->table.count; i++) {
                const char *name = pricing->prices[i].kind;
                int at = 0;
                while (at < count && strcmp(kinds[at], name) != 0)
                        at++;
                if (at == count && count < KINDS && has_error(pricing, i))
                        memcpy(kinds[count++], name, PROFILE_NAME);
        }
        return count;
}

static int print_errors(const struct pricing *pricing, struct rv_error_info *err)
{
        char kinds[KINDS][PROFILE_NAME];
        const struct group *sizes = pricing->table.form == SHAPES_COLLECTIVES ? byte_sizes : kernel_sizes;
        double *errors = malloc((size_t)pricing->table.count * sizeof *errors);
        if (!errors)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d errors", pricing->table.count);
        const int count = find_kinds(pricing, kinds);
        printf("  %-26s %-17s %7s %8s %8s %9s  %-11s %7s\n", "predicted against seconds", "", "rows",
               "median", "1 in 10", "worst", "", "inside");
        for (int i = 0; i < SIZES; i++)
                print_group(pricing, NULL, &sizes[i], errors);
        for (int i = 0; i < count && count > 1; i++)
                for (int j = 0; j < SIZES; j++)
                        print_group(pricing, kinds[i], &sizes[j], errors);
        free(errors);
        return RV_OK;
}

/* ---- what is printed and written ---- */

static int show(const struct pricing *pricing, struct rv_error_info *err)
{
        const struct shape_table *table = &pricing->table;
        int timed = 0, priced = 0;
        double sum = 0;
        char seconds[NUMBER_TEXT];
        for (int i = 0; i < table->count; i++) {
                timed += has_error(pricing, i);
                if (isfinite(pricing->prices[i].seconds)) {
                        priced++;
                        sum += pricing->prices[i].seconds;
                }
        }
        printf("%s: %d rows of the form %s, %d priced by %s%s, %s together\n", table->path, table->count,
               shape_form_name(table->form), priced,
               table->form == SHAPES_COLLECTIVES ? pricing->settings->platform : pricing->profile.path,
               pricing->profile.loads[0].tables.short_loops ? "" : " as in a training run",
               number_seconds(seconds, sum));
        if (pricing->others)
                printf("  %d rows of other GPUs than %s have no price\n", pricing->others,
                       pricing->profile.device.name);
        if (pricing->unknown)
                printf("  %d rows have no price; the first: %s\n", pricing->unknown, pricing->why.sentence);
        return timed ? print_errors(pricing, err) : RV_OK;
}

/* Each line as it was, and the price behind it. */
static int write_csv(const void *context, const char *path, struct rv_error_info *err)
{
        const struct pricing *pricing = context;
        const struct shape_table *table = &pricing->table;
        struct file_lines lines = {.path = table->path, .stream = fopen(table->path, "r")};
        struct file_writer writer;
        int rc = file_writer_open(&writer, path, err), row = 0;
        bool header = true;
        if (rc == RV_OK && !lines.stream)
                rc = rv_fail(err, RV_EINPUT, "%.160s: %s", table->path, strerror(errno));
        while (rc == RV_OK && (rc = file_next_line(&lines, err)) > 0) {
                rc = RV_OK;
                if (header && *lines.line && *lines.line != '#') {
                        fprintf(writer.stream, "%s,predicted_seconds\n", lines.line);
                        header = false;
                        continue;
                }
                if (row >= table->count || table->rows[row].line != (int)lines.number) {
                        fprintf(writer.stream, "%s\n", lines.line);
                        continue;
                }
                const double seconds = pricing->prices[row++].seconds;
                fprintf(writer.stream, "%s,", lines.line);
                if (isfinite(seconds))
                        fprintf(writer.stream, "%.6g", seconds);
                fputc('\n', writer.stream);
        }
        free(lines.line);
        if (lines.stream)
                fclose(lines.stream);
        if (rc == RV_OK)
                return file_writer_commit(&writer, err);
        file_writer_abandon(&writer);
        return rc;
}

static int price(const struct settings *s, struct rv_error_info *err)
{
        struct pricing pricing = {.settings = s};
        int rc = profile_load(&pricing.profile, s->profile, err);
        if (rc != RV_OK)
                return rc;
        if (s->platform) {
                rc = platform_load(&pricing.platform, s->platform, &pricing.profile, 1, err);
                pricing.has_platform = rc == RV_OK;
        }
        for (int i = 0; i < s->count && rc == RV_OK; i++) {
                rc = price_table(&pricing, s->paths[i], err);
                if (rc == RV_OK)
                        rc = s->json ? csv_print_json(write_csv, &pricing, err) : show(&pricing, err);
                if (rc == RV_OK && s->csv)
                        rc = write_csv(&pricing, s->csv, err);
                free(pricing.prices);
                pricing.prices = NULL;
                shape_table_free(&pricing.table);
        }
        if (pricing.has_platform)
                platform_free(&pricing.platform);
        profile_free(&pricing.profile);
        return rc;
}

static const char before_options[] = "Says what kernels and collectives of a table take by a profile, and, "
                                     "where the table has the measured "
                                     "seconds, by how much that is wrong: the median, what one in ten "
                                     "exceeds, the worst, and how many lie "
                                     "in their interval of nine in ten.\v";

static int parse_and_price(int argc, char **argv, struct rv_error_info *err)
{
        char documentation[4096];
        struct argp_option options[SETTINGS + 1];
        settings_options(option_rows, options, 1);
        const struct argp argp = {options, parse_option, "", documentation, NULL, NULL, NULL};
        struct settings settings = {0};
        snprintf(documentation, sizeof documentation,
                 "%s%s\n\nA profile checked against kernels that it did not see:\n"
                 "  ranvier price --profile h100 --table shapes.csv --csv priced.csv\n",
                 before_options, shape_table_help);
        int rc = command_line_parse(&argp, argc, argv, &settings, false, err);
        if (rc == 0)
                rc = check_settings(&settings, err);
        return rc ? rc : price(&settings, err);
}

int price_main(int argc, char **argv)
{
        struct rv_error_info err = {.code = RV_OK};
        const int rc = parse_and_price(argc, argv, &err);
        return command_line_end("price", rc, &err);
}
