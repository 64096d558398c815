/* `ranvier sweep`: the command line, and what follows from it. */
#include "sim/search/sweep.h"

#include "runtime/base/command_line.h"
#include "runtime/base/csv.h"
#include "runtime/base/file.h"
#include "runtime/base/parse.h"
#include "runtime/base/progress.h"
#include "runtime/base/setting.h"
#include "sim/search/ask.h"
#include "sim/search/parts.h"
#include "sim/search/results.h"
#include "sim/search/search.h"
#include "runtime/report/html.h"
#include "runtime/report/report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the command line ---- */

static const char documentation[] =
        "Finds the best plan for each number of devices, with and without offloading: weighs all, runs those "
        "that fit "
        "on paper, and simulates the best.\v"
        "GPT 12B on Summit, without having it:\n"
        "  ranvier sweep gpt-12b --gpus 48,96 --offload both --batch-size 1536 \\\n"
        "      --recompute full --profile v100-datasheet --platform summit \\\n"
        "      --csv sweep.csv --plot sweep\n"
        "Under mpirun the ranks share the simulations through files beside the CSV, which all of them must "
        "see:\n"
        "  mpirun -n 8 ranvier sweep ... --csv sweep.csv\n";

struct settings {
        struct ask ask;
        const char *csv, *plot, *html, *command;
        bool json;
        int patience;
};

static int parse_simulate(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        int *simulate = at;
        (void)option;
        if (strcmp(text, "auto") == 0)
                *simulate = SPACE_AUTO;
        else if (strcmp(text, "all") == 0)
                *simulate = SPACE_ALL;
        else
                return parse_count("--simulate (auto, all or a number)", text, 1, 1000000, simulate, err);
        return 0;
}

static int parse_fold(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        return fold_parse(option, text, at, err);
}

static const char *const ways_to_simulate[] = {"auto", "all", NULL};

#define AT(member) .offset = offsetof(struct settings, member)
#define WORDS(choices)                                                                                       \
        .words = &(const struct option_words)                                                                \
        {                                                                                                    \
                .names = choices                                                                             \
        }

/* clang-format off */
static const struct setting option_rows[] = {
        {SETTING_HEADING, .help = "The work:"},
        {SETTING_OWN, "simulate", .argument = "HOW", AT(ask.space.simulate), .parse = parse_simulate, WORDS(ways_to_simulate),
         .help = "Which plans are simulated, for each number of devices with and without offloading: auto, the "
                 "default: the best on paper, and on until none that is left can beat the best one found; all; or the "
                 "K best on paper"},
        {SETTING_OWN, "fold", .argument = "WHEN", AT(ask.space.fold), .parse = parse_fold, .words = &fold_words,
         .help = "Simulate one replica for all: auto, the default, where the platform makes them equal; on, off"},
        {SETTING_SET, "json", AT(json), .help = "Print every simulated plan as JSON"},
        {SETTING_PATH, "csv", .argument = "FILE", AT(csv), .help = "Write every simulated plan, a line each"},
        {SETTING_PATH, "html", .argument = "FILE.html", AT(html),
         .help = "Write one page of HTML, too: the simulated plans to sort and filter, and figures (ranvier report)"},
        {SETTING_PATH, "plot", .argument = "PREFIX", AT(plot),
         .help = "Draw PREFIX-throughput.png and PREFIX-memory.png"},
        {SETTING_INT, "patience", .argument = "SECONDS", AT(patience), .min = 1, .max = 86400,
         .help = "Under mpirun: how long to wait for a sign of life of another rank (default 120)"},
        {.help = NULL},
};
/* clang-format on */

static error_t parse_option(int key, char *text, struct argp_state *state)
{
        struct settings *s = state->input;
        if (key == ARGP_KEY_INIT) {
                state->child_inputs[0] = &s->ask;
                return 0;
        }
        return settings_take(option_rows, s, key, text, command_line_error(state));
}

static int check_settings(const struct settings *s, const struct parts *parts, struct rv_error_info *err)
{
        char figures[2][1100];
        if (parts->size > 1 && !s->csv)
                return rv_fail(
                        err, RV_EINPUT,
                        "under mpirun --csv FILE is needed: the ranks share the work through files beside "
                        "it");
        if (s->plot && strlen(s->plot) > 1000)
                return rv_fail(err, RV_EINPUT, "--plot: a name of more than 1000 characters");
        if (s->csv && strlen(s->csv) > 800)
                return rv_fail(err, RV_EINPUT, "--csv: a name of more than 800 characters");
        snprintf(figures[0], sizeof figures[0], "%s-throughput.png", s->plot ? s->plot : "");
        snprintf(figures[1], sizeof figures[1], "%s-memory.png", s->plot ? s->plot : "");
        const struct file_use uses[] = {{"MODEL", s->ask.model, false},
                                        {"--profile", s->ask.profile, false},
                                        {"--platform", s->ask.platform, false},
                                        {"--csv", s->csv, true},
                                        {"--html", s->html, true},
                                        {"--plot", s->plot ? figures[0] : NULL, true},
                                        {"--plot", s->plot ? figures[1] : NULL, true}};
        const int rc = html_check(s->html, err);
        return rc ? rc : file_check_uses(uses, sizeof uses / sizeof *uses, err);
}

/* ---- the work ---- */

struct sweep {
        const struct settings *settings;
        struct parts parts;
        struct space_groups groups;
        struct jobs jobs;
        struct progress progress;
        int begin;       /* where the jobs begin that are shared among the ranks, or those that came last */
        int done, share; /* jobs of this rank from there on: ended, and in all */
        struct rv_error_info *err;
        int rc; /* of telling the first rank */
};

static void print_progress(struct sweep *s)
{
        char text[64];
        double done = 0, all = 0;
        snprintf(text, sizeof text, "%d of %d plans simulated", s->begin + s->done, s->begin + s->share);
        for (int i = s->begin + s->parts.rank; i < s->jobs.count; i += s->parts.size) {
                all += s->jobs.list[i].cost;
                done += s->jobs.list[i].outcome.state == OUTCOME_PENDING ? 0 : s->jobs.list[i].cost;
        }
        if (s->done == s->share)
                progress_end(&s->progress, text);
        else
                progress_show(&s->progress, done / all, text);
}

/* Of the plans of one number of devices. */
static bool show_weighing(void *context, double share)
{
        progress_show(context, share, "weighing plans");
        return true;
}

static bool tick(void *context)
{
        struct sweep *s = context;
        int done = 0;
        for (int i = s->begin + s->parts.rank; i < s->jobs.count; i += s->parts.size)
                done += s->jobs.list[i].outcome.state != OUTCOME_PENDING;
        bool news = done != s->done;
        s->done = done;
        if (s->parts.rank > 0 && s->rc == 0)
                s->rc = parts_tell(&s->parts, &s->jobs, false, s->err);
        else if (s->parts.rank == 0 && (news || s->done < s->share))
                print_progress(s);
        return true;
}

/* What this rank has to do of the jobs from `begin` on. Unbound ranks of a host share its cores. */
static int run_share(struct sweep *s, struct rv_error_info *err)
{
        progress_begin(&s->progress);
        s->share = (s->jobs.count - s->begin - s->parts.rank + s->parts.size - 1) / s->parts.size;
        s->done = 0;
        s->err = err;
        const int rc = jobs_run(&s->jobs, s->begin + s->parts.rank, s->parts.size,
                                ask_processes(&s->settings->ask, s->parts.local_size), tick, s, err);
        return rc ? rc : s->rc;
}

/* Lists what is to be simulated next, of all groups. Returns how many plans, or an error. */
static int list_next(struct sweep *s, struct rv_error_info *err)
{
        enum { FIRST = 8 }; /* more than are shown */
        int listed = 0;
        s->begin = s->jobs.count;
        for (int i = 0; i < s->groups.count; i++) {
                const int found = search_next(&s->settings->ask.space, &s->groups.groups[i], &s->jobs,
                                              FIRST * s->parts.size, err);
                if (found < 0)
                        return found;
                listed += found;
        }
        return listed;
}

/* The best on paper, shared among the ranks; then, on the first, what could still beat the best of them. */
static int search(struct sweep *s, struct rv_error_info *err)
{
        int rc = list_next(s, err);
        if (rc > 0)
                rc = run_share(s, err);
        if (rc == 0 && s->parts.rank > 0)
                return parts_tell(&s->parts, &s->jobs, true, err);
        if (rc == 0 && s->parts.size > 1)
                rc = parts_gather(&s->parts, &s->jobs, err);
        s->parts.size = 1;
        for (int next = 1; rc == 0 && next > 0;) {
                next = list_next(s, err);
                rc = next > 0 ? run_share(s, err) : next;
        }
        return rc;
}

/* The CSV for figures only, if no other was asked for. */
static int plot(const struct results *results, const struct settings *s, struct rv_error_info *err)
{
        if (s->csv)
                return results_plot(s->csv, s->plot, err);
        char path[1024];
        FILE *stream = file_open_temporary(path, sizeof path, err);
        if (!stream)
                return RV_ESYSTEM;
        fclose(stream);
        int rc = results_write_csv(results, path, err);
        if (rc == 0)
                rc = results_plot(path, s->plot, err);
        unlink(path);
        return rc;
}

static int write_csv(const void *context, const char *path, struct rv_error_info *err)
{
        return results_write_csv(context, path, err);
}

/* A failed simulation does not keep what the others found from being shown; but the command has failed. */
static int show(const struct sweep *s, struct rv_error_info *err)
{
        const struct settings *given = s->settings;
        const struct results results = {.ask = &given->ask, .groups = &s->groups, .jobs = &s->jobs};
        int failures = results_say_failures(&results, stderr);
        bool any = failures < s->jobs.count;
        int rc = 0;
        if (!given->json)
                results_print(&results, stdout);
        else if (any)
                rc = csv_print_json(write_csv, &results, err);
        if (rc == 0 && given->csv)
                rc = results_write_csv(&results, given->csv, err);
        if (rc == 0 && given->plot && any)
                rc = plot(&results, given, err);
        if (rc == 0 && any)
                rc = html_table(given->html, given->command, "plans.csv", write_csv, &results, err);
        if (rc == 0 && failures)
                rc = rv_fail(err, RV_ESYSTEM, "%d of %d simulations failed", failures, s->jobs.count);
        return rc;
}

static int sweep(const struct settings *settings, const struct parts *parts, struct rv_error_info *err)
{
        struct sweep s = {.settings = settings, .parts = *parts};
        if (parts->size > 1)
                parts_share(&s.parts, settings->csv, settings->patience);
        const struct ask *ask = &settings->ask;
        struct space space = ask->space;
        space.workers = parts->size > 1 ? 1 : ask_processes(ask, 1);
        space.tick = parts->rank == 0 ? show_weighing : NULL;
        space.context = &s.progress;
        space.allows = ask_allows;
        space.allowing = (void *)ask;
        progress_begin(&s.progress);
        int rc = space_explore(&s.groups, &space, ask->profile, ask->platform, ask->fits_only, err);
        progress_end(&s.progress, NULL);
        s.jobs.tokens = report_tokens(ask->tokens);
        s.jobs.checkpoints = ask->checkpoints;
        if (rc == 0)
                rc = search_check(&s.groups, err);
        if (rc == 0)
                rc = search(&s, err);
        if (rc == 0 && parts->rank == 0)
                rc = show(&s, err);
        free(s.jobs.list);
        space_free(&s.groups);
        return rc;
}

int sweep_main(int argc, char **argv)
{
        struct argp_option options[SETTINGS + 1];
        settings_options(option_rows, options, ASK_GROUPS + 1);
        const struct argp_child children[] = {{ask_argp(), 0, NULL, 0}, {0}};
        const struct argp argp = {options, parse_option, "MODEL", documentation, children, NULL, NULL};
        char *command = command_line_text(argv[0], argc, argv);
        struct settings s = {.patience = 120, .command = command};
        ask_init(&s.ask);
        struct rv_error_info err = {.code = RV_OK};
        struct parts parts = parts_find();
        int rc = command_line_parse(&argp, argc, argv, &s, parts.rank > 0, &err);
        if (rc == COMMAND_LINE_DONE)
                return 0;
        if (rc == 0)
                rc = ask_machine(&s.ask, &err);
        if (rc == 0)
                rc = check_settings(&s, &parts, &err);
        if (rc == 0)
                rc = ask_resolve(&s.ask, &err);
        const struct gpt *gpt = &s.ask.space.base.gpt;
        const char *warning = rc == 0 && parts.rank == 0 ? gpt_warning(gpt) : NULL;
        if (warning)
                fprintf(stderr, "ranvier sweep: warning: %s: %s\n", gpt->name, warning);
        bool sound = rc == 0; /* what is wrong with the input, every rank finds; what breaks later, one */
        if (rc == 0)
                rc = sweep(&s, &parts, &err);
        if (rc == 0 && parts.rank == 0)
                rc = file_check_printed(&err);
        if (rc && (parts.rank == 0 || (sound && err.code == RV_ESYSTEM)))
                fprintf(stderr, "ranvier sweep: %s\n", err.sentence);
        ask_free(&s.ask);
        free(command);
        return rc ? rv_exit_status(&err) : 0;
}
