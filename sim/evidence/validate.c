#include "sim/evidence/validate.h"

#include "runtime/base/command_line.h"
#include "runtime/base/csv.h"

#include "runtime/base/parse.h"
#include "runtime/base/setting.h"

#include "runtime/base/file.h"
#include "runtime/base/progress.h"
#include "runtime/report/html.h"
#include "sim/evidence/verdict.h"
#include "sim/world/named_machine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TABLES = 16 };

struct settings {
        struct measured_defaults defaults;
        const char *paths[TABLES], *machine, *csv, *html, *command;
        bool json;
        struct named_machine named; /* of --machine; the defaults may point into it */
        int tables, jobs;
        bool summary;
};

/* ---- the command line ---- */

static int add_table(void *settings, const char *option, const char *text, struct rv_error_info *err)
{
        struct settings *s = settings;
        if (s->tables == TABLES)
                return rv_fail(err, RV_EINPUT, "%s: more than %d tables", option, TABLES);
        return parse_path(option, text, &s->paths[s->tables++], err);
}

#define AT(member) .offset = offsetof(struct settings, member)

/* clang-format off */
static const struct setting option_rows[] = {
        {SETTING_HEADING, .help = "The plans, where a table says nothing else:"},
        {SETTING_HEADING, .help = "The runs:"},
        {SETTING_OWN, "table", .argument = "FILE", .parse = add_table, .words = &(const struct option_words){.files = true},
         .help = "Measured runs, as comma separated values; several times for several tables. Without it those that come "
                 "with the program: published runs of GPTs, AxoNN's, sharded Llamas, and our own on a GPU"},
        {SETTING_TEXT, "machine", .argument = "NAME", AT(machine), .help = NAMED_MACHINE_HELP, .words = &named_machine_words},
        {SETTING_PATH, "profile", .argument = "PROFILE", AT(defaults.profile), .words = &profile_words,
         .help = "What kernels take (default: the table's profile, or by its gpu)"},
        {SETTING_PATH, "platform", .argument = "PLATFORM", AT(defaults.platform), .words = &platform_words,
         .help = "The cluster (default: the table's platform, or by its gpu)"},
        {SETTING_HEADING, .help = "Output and work:"},
        {SETTING_SET, "json", AT(json), .help = "Print every run as JSON"},
        {SETTING_PATH, "csv", .argument = "FILE", AT(csv), .help = "Write every run to FILE"},
        {SETTING_PATH, "html", .argument = "FILE.html", AT(html),
         .help = "Write one page of HTML, too: every run, to sort and filter (ranvier report)"},
        {SETTING_SET, "summary", AT(summary), .help = "Print errors and ranks, not every run"},
        {SETTING_INT, "jobs", .argument = "N", AT(jobs), .min = 1, .max = 4096,
         .help = "Simulations at a time (default: the cores)"},
        {.help = NULL},
};
/* clang-format on */

static error_t parse_option(int key, char *text, struct argp_state *state)
{
        struct settings *s = state->input;
        struct rv_error_info *err = command_line_error(state);
        if (key == ARGP_KEY_INIT) {
                state->child_inputs[0] = &s->defaults.plan;
                return 0;
        }
        if (key != ARGP_KEY_ARG)
                return settings_take(option_rows, s, key, text, err);
        rv_fail(err, RV_EINPUT, "'%.80s' is one word too many: models are in the tables (--table FILE)",
                text);
        return EINVAL;
}

static int check_settings(const struct settings *s, struct rv_error_info *err)
{
        struct file_use uses[TABLES + 5];
        int count = 0;
        for (int i = 0; i < s->tables; i++)
                uses[count++] = (struct file_use){"--table", s->paths[i], false};
        uses[count++] = (struct file_use){"--profile", s->defaults.profile, false};
        uses[count++] = (struct file_use){"--platform", s->defaults.platform, false};
        uses[count++] = (struct file_use){"--csv", s->csv, true};
        uses[count++] = (struct file_use){"--html", s->html, true};
        const int rc = html_check(s->html, err);
        return rc ? rc : file_check_uses(uses, count, err);
}

/* ---- the work ---- */

struct validation {
        const struct settings *settings;
        struct table tables[TABLES];
        int table_count;
        struct measured measured;
        struct progress progress;
};

/* The tables asked for, or those that come with the program. */
static int read_tables(struct validation *v, struct rv_error_info *err)
{
        static const char *const presets[] = {"published", "axonn", "sharded", "gpu"};
        const struct settings *s = v->settings;
        char path[1024];
        const int count = s->tables ? s->tables : (int)(sizeof presets / sizeof *presets);
        for (int i = 0; i < count; i++) {
                if (!s->tables && file_find(path, sizeof path, "sim/tables", presets[i], ".csv"))
                        return rv_fail(
                                err, RV_EINPUT,
                                "the table sim/tables/%s.csv is not there: was all of the program installed?",
                                presets[i]);
                int rc = table_read(&v->tables[i], s->tables ? s->paths[i] : path, err);
                if (rc)
                        return rc;
                v->table_count++;
        }
        return 0;
}

static bool tick(void *context)
{
        struct validation *v = context;
        const struct jobs *jobs = &v->measured.jobs;
        char text[64];
        int done = 0;
        for (int i = 0; i < jobs->count; i++)
                done += jobs->list[i].outcome.state != OUTCOME_PENDING;
        snprintf(text, sizeof text, "%d of %d runs predicted", done, jobs->count);
        if (done == jobs->count)
                progress_end(&v->progress, text);
        else
                progress_show(&v->progress, (double)done / jobs->count, text);
        return true;
}

/* A run that could not be predicted has kept nobody from seeing the others, but the work has failed. */
static int check_outcomes(const struct measured *m, struct rv_error_info *err)
{
        int failed = 0;
        if (m->count > 0 && m->jobs.count == 0)
                return rv_fail(err, RV_EINPUT,
                               "none of the %d runs can be predicted: the lines above say why", m->count);
        for (int i = 0; i < m->jobs.count; i++)
                failed += m->jobs.list[i].outcome.state != OUTCOME_DONE;
        return failed ? rv_fail(err, RV_ESYSTEM,
                                "%d of %d runs could not be predicted: the lines above say why", failed,
                                m->count)
                      : 0;
}

static int write_csv(const void *context, const char *path, struct rv_error_info *err)
{
        return verdict_write_csv(context, path, err);
}

static int show(const struct validation *v, struct rv_error_info *err)
{
        const struct settings *s = v->settings;
        int rc = 0;
        if (s->json)
                rc = csv_print_json(write_csv, &v->measured, err);
        else
                verdict_print(&v->measured, !s->summary, stdout);
        if (rc == 0 && s->csv)
                rc = verdict_write_csv(&v->measured, s->csv, err);
        if (rc == 0)
                rc = html_table(s->html, s->command, "runs.csv", write_csv, &v->measured, err);
        return rc ? rc : check_outcomes(&v->measured, err);
}

static int validate(const struct settings *s, struct rv_error_info *err)
{
        struct validation v = {.settings = s};
        progress_begin(&v.progress);
        int rc = read_tables(&v, err);
        if (rc == 0)
                rc = measured_open(&v.measured, v.tables, v.table_count, &s->defaults, err);
        if (rc == 0)
                rc = jobs_run(&v.measured.jobs, 0, 1, s->jobs ? s->jobs : jobs_cores(), tick, &v, err);
        if (rc == 0)
                rc = show(&v, err);
        measured_close(&v.measured);
        for (int i = 0; i < v.table_count; i++)
                table_free(&v.tables[i]);
        return rc;
}

static const char before_options[] =
        "Predicts runs that somebody measured, and shows the errors: of each run, their mean and worst, of "
        "those that "
        "something was fitted on and of the others, of each source; and whether the fastest plan is found.\v";
static const char after_options[] =
        "\n\nPlan flags hold for every run that its table says nothing else of; here they begin as "
        "--schedule 1f1b --p2p blocking --order replicas, which is what Megatron-LM does; without "
        "--precision "
        "each run takes its profile's (of several mixed, else bf16, else fp32). A run whose source's "
        "name says a framework is predicted --like it; --like ranvier takes none.\n\n"
        "Your own runs:\n"
        "  ranvier validate --table runs.csv --profile mine.json --platform local\n";

static int parse_and_validate(int argc, char **argv, const char *command, struct rv_error_info *err)
{
        char documentation[4096];
        const struct argp_child children[] = {{options_common_argp(), 0, NULL, 0}, {0}};
        struct argp_option options[SETTINGS + 1];
        settings_options(option_rows, options, 1);
        const struct argp argp = {options, parse_option, "", documentation, children, NULL, NULL};
        struct settings settings = {.command = command};
        struct options *plan = &settings.defaults.plan;
        snprintf(documentation, sizeof documentation,
                 "%s%s\n\nGPUs that have a profile and a platform: %s.%s", before_options, table_help,
                 measured_gpus, after_options);
        options_init(plan);
        plan->policy = POLICY_1F1B;
        plan->blocking = true;
        plan->order = ORDER_REPLICAS;
        int rc = command_line_parse(&argp, argc, argv, &settings, false, err);
        if (rc == 0)
                rc = named_machine_take(&settings.named, settings.machine, &settings.defaults.profile,
                                        &settings.defaults.platform, err);
        if (rc == 0)
                rc = check_settings(&settings, err);
        return rc ? rc : validate(&settings, err);
}

int validate_main(int argc, char **argv)
{
        struct rv_error_info err = {.code = RV_OK};
        char *command = command_line_text(argv[0], argc, argv);
        const int rc = parse_and_validate(argc, argv, command, &err);
        free(command);
        return command_line_end("validate", rc, &err);
}
