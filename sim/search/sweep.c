/* `ranvier sweep`: the command line, and what follows from it. */
#define _DEFAULT_SOURCE /* strsep */
#include "sim/search/sweep.h"

#include "runtime/base/command_line.h"
#include "runtime/base/file.h"
#include "runtime/base/parse.h"
#include "runtime/base/setting.h"
#include "runtime/plan/framework.h"
#include "sim/search/parts.h"
#include "sim/world/named_machine.h"
#include "sim/world/predict.h"
#include "sim/search/results.h"
#include "sim/search/search.h"
#include "sim/world/simulate.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the command line ---- */

/* Keys of the flags of one plan, by row. */
enum { KEY_FLAGS = 0x600, MAX_FLAGS = 64, LARGEST_GRID = 1048576 };

static const char documentation[] =
        "Finds the best plan for each number of devices, with and without offloading: weighs all, runs those "
        "that fit "
        "on paper, and simulates the best.\v"
        "GPT 12B on Summit, without having it:\n"
        "  ranvier sweep gpt-12b --profile v100-datasheet --platform summit \\\n"
        "      --gpus 48,96 --batch-size 2048 --csv sweep.csv --plot sweep\n"
        "Under mpirun the ranks share the simulations through files beside the CSV, which all of them must "
        "see:\n"
        "  mpirun -n 8 ranvier sweep ... --csv sweep.csv\n";

struct settings {
        const char *model, *machine, *profile, *platform, *csv, *plot;
        struct named_machine named; /* of --machine; profile and platform may point into it */
        struct space space;
        const char *plans;            /* NULL: not given */
        const char *fixed[MAX_FLAGS]; /* by row: as given for all plans, or NULL */
        bool recompute_given;
        double tokens;
        const char *tokens_text; /* as given; NULL: not */
        int jobs, patience;      /* jobs: 0: not given */
        bool fits_only;
        struct framework framework; /* of --like */
};

/* Of SPACE_NO, SPACE_YES and SPACE_BOTH. */
static const char *const offloads[] = {"no", "yes", "both", NULL};
static const char *const activation_offloads[] = {"no", "yes", "auto", NULL};
static const char *const ways_to_simulate[] = {"auto", "all", NULL};
static const char *const ways_to_vary[] = {"default", "megatron", "all", NULL};

static int parse_choice(const char *option, const char *text, const char *const *names,
                        enum space_choice *choice, struct rv_error_info *err)
{
        int which = 0;
        const int rc = parse_name(option, text, names, &which, err);
        if (rc == 0)
                *choice = (enum space_choice)(SPACE_NO + which);
        return rc;
}

enum { BOTH_RECOMPUTATIONS = 1 << RECOMPUTE_NONE | 1 << RECOMPUTE_FULL };

/* A list of recomputations, or both. */
static int parse_recomputations(const char *text, unsigned *recomputations, struct rv_error_info *err)
{
        *recomputations = BOTH_RECOMPUTATIONS;
        if (strcmp(text, "both") == 0)
                return 0;
        char *copy = strdup(text), *rest = copy;
        int rc = copy ? 0 : rv_fail(err, RV_ESYSTEM, "no memory for --recompute");
        *recomputations = 0;
        for (char *word; rc == 0 && (word = strsep(&rest, ","));) {
                int recompute = recompute_of_name(word);
                if (recompute < 0)
                        rc = parse_unknown("--recompute", word, recompute_words.names, err);
                else if (*recomputations & 1u << recompute)
                        rc = rv_fail(err, RV_EINPUT, "--recompute: %s is there twice", word);
                else
                        *recomputations |= 1u << recompute;
        }
        free(copy);
        return rc;
}

static int parse_offload(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        return parse_choice(option, text, offloads, at, err);
}

static int parse_offload_activations(void *at, const char *option, const char *text,
                                     struct rv_error_info *err)
{
        return parse_choice(option, text, activation_offloads, at, err);
}

static int parse_recompute(void *settings, const char *option, const char *text, struct rv_error_info *err)
{
        struct settings *s = settings;
        (void)option;
        s->recompute_given = true;
        return parse_recomputations(text, &s->space.recompute, err);
}

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

static int parse_tokens_of_all(void *settings, const char *option, const char *text,
                               struct rv_error_info *err)
{
        struct settings *s = settings;
        s->tokens_text = text;
        return parse_tokens(option, text, &s->tokens, err);
}

#define AT(member) .offset = offsetof(struct settings, member)
#define WORDS(choices)                                                                                       \
        .words = &(const struct option_words)                                                                \
        {                                                                                                    \
                .names = choices                                                                             \
        }

/* clang-format off */
static const struct setting option_rows[] = {
        {SETTING_HEADING, .help = "What is asked: MODEL is a preset's name or a Hugging Face style config.json"},
        {SETTING_LIST, "gpus", .argument = "N,N,...", AT(space.gpus), .min = 1, .max = LARGEST_GRID,
         .help = "Numbers of devices, such as 48,96,192 (required)"},
        {SETTING_OWN, "offload", .argument = "WHICH", AT(space.offload), .parse = parse_offload, WORDS(offloads),
         .help = "Master parameters and moments in host memory: yes, no, or both, the default, which compares"},
        {SETTING_TEXT, "machine", .argument = "NAME", AT(machine), .help = NAMED_MACHINE_HELP, .words = &named_machine_words},
        {SETTING_TEXT, "profile", .argument = "PROFILE", AT(profile), .words = &profile_words,
         .help = "What kernels take: a file of ranvier calibrate, or a preset such as v100-datasheet (required, or "
                 "--machine)"},
        {SETTING_TEXT, "platform", .argument = "PLATFORM", AT(platform), .words = &platform_words,
         .help = "The cluster: a preset (summit), a platform JSON, or local (where the profile was measured) (required, or "
                 "--machine)"},
        {SETTING_HEADING, .help = "Plans to consider:"},
        {SETTING_LIST, "micro-batch-size", .argument = "B,B,...", AT(space.micro_batch_sizes), .min = 1,
         .max = LARGEST_GRID,
         .help = "Sizes of micro-batches (default 1,2,4,8)"},
        {SETTING_LIST, "pp", .argument = "P,P,...", AT(space.stages), .min = 1, .max = LARGEST_GRID,
         .help = "Pipeline stages (default: all that divide N, up to the layers)"},
        {SETTING_OWN, "recompute", .argument = "WHICH", .parse = parse_recompute,
         .words = &recompute_words,
         .help = "Recomputations, such as none,selective,full,layer,norms+swiglu, or both: none,full, the default"},
        {SETTING_OWN, "offload-activations", .argument = "WHICH", AT(space.offload_activations),
         .parse = parse_offload_activations,
         WORDS(activation_offloads),
         .help = "Stored activations in host memory: yes, no, or auto, the default: where a stage stores more than four "
                 "micro-batches, and it wins"},
        {SETTING_WORD, "plans", .argument = "WHICH", AT(plans), WORDS(ways_to_vary),
         .help = "What the options below vary where they are not given: default; megatron: what Megatron-LM has; all: "
                 "what could be the best (neither blocking messages nor --recompute layer)"},
        {SETTING_HEADING, .help = "The same for all plans:"},
        {SETTING_OWN, "tokens", .argument = "T", .parse = parse_tokens_of_all,
         .help = "Tokens of the whole training, for its days (default 300B)"},
        {SETTING_SET, "fits-only", AT(fits_only), .help = "Price by the profile's fits even what was measured"},
        {SETTING_HEADING, .help = "The work:"},
        {SETTING_OWN, "simulate", .argument = "HOW", AT(space.simulate), .parse = parse_simulate, WORDS(ways_to_simulate),
         .help = "Which plans are simulated, for each number of devices with and without offloading: auto, the "
                 "default: the best on paper, and on until none that is left can beat the best one found; all; or the "
                 "K best on paper"},
        {SETTING_INT, "jobs", .argument = "N", AT(jobs), .min = 1, .max = 4096,
         .help = "Simulations at a time (default: the processor's cores)"},
        {SETTING_OWN, "fold", .argument = "WHEN", AT(space.fold), .parse = parse_fold, .words = &fold_words,
         .help = "Simulate one replica for all: auto, the default, where the platform makes them equal; on, off"},
        {SETTING_PATH, "csv", .argument = "FILE", AT(csv), .help = "Write every simulated plan, a line each"},
        {SETTING_PATH, "plot", .argument = "PREFIX", AT(plot),
         .help = "Draw PREFIX-throughput.png and PREFIX-memory.png"},
        {SETTING_INT, "patience", .argument = "SECONDS", AT(patience), .min = 1, .max = 86400,
         .help = "Under mpirun: how long to wait for a sign of life of another rank (default 120)"},
        {.help = NULL},
};
/* clang-format on */
enum { GROUP_ASKED = 1, GROUP_PLANS, GROUP_FIXED }; /* of these headings */

static error_t parse_option(int key, char *text, struct argp_state *state)
{
        struct settings *s = state->input;
        if (key == ARGP_KEY_INIT) {
                state->child_inputs[0] = s;
                return 0;
        }
        if (key != ARGP_KEY_ARG)
                return settings_take(option_rows, s, key, text, command_line_error(state));
        if (s->model)
                return ARGP_ERR_UNKNOWN;
        s->model = text;
        return 0;
}

/* What --plans says of choices that are not given. */
static void take_preset(struct settings *s)
{
        if (!s->plans || !axes_preset(&s->space.axes, s->plans)) /* or "default" */
                return;
        if (!s->recompute_given)
                s->space.recompute = BOTH_RECOMPUTATIONS | 1 << RECOMPUTE_SELECTIVE;
}

/* Schedule and messages, where there is one of each: so that what does not go together is said at once. */
static void take_single(const struct axes *axes, struct options *base)
{
        const struct flag_values *schedules = axes_values(axes, "schedule"), *p2p = axes_values(axes, "p2p");
        if (schedules->count > 1 || p2p->count > 1 || schedules->values[0] == POLICY_INTERLEAVED)
                return;
        base->policy = (enum policy_id)schedules->values[0];
        base->blocking = p2p->values[0];
}

/* Marks a flag whose values the sweep chooses, so that a framework's is not taken for it. */
static void mark_given(struct options *base, const char *flag)
{
        int count;
        base->given |= UINT64_C(1) << (flag_named(flag) - flags_all(&count));
}

/* The framework's flags are for whatever the sweep does not vary, where they go together with it: each
 * candidate gets its own (space.c), and the plan that all begin from its precision alone. */
static int take_framework(struct settings *s, struct rv_error_info *err)
{
        static const char *const varied[] = {"recompute", "offload", "offload-activations"};
        const struct flag *precision = flag_named("precision");
        char text[FLAG_TEXT];
        struct options like;
        for (size_t i = 0; i < sizeof varied / sizeof *varied; i++)
                mark_given(&s->space.base, varied[i]);
        for (int i = 0; i < s->space.axes.count; i++) {
                const struct axis *axis = &s->space.axes.axis[i];
                if (axis->given || axis->list.count > 1)
                        mark_given(&s->space.base, axis->flag->name);
        }
        like = s->space.base;
        const int rc = framework_take(&s->framework, &like, err);
        if (rc)
                return rc;
        s->space.base.framework = like.framework;
        return like.precision_given
                       ? flag_parse(precision, &s->space.base, flag_write(precision, &like, text), err)
                       : 0;
}

/* Completes the plan that all candidates begin from, and checks it as one plan's flags are. */
static int parse_base(struct settings *s, struct rv_error_info *err)
{
        struct options *base = &s->space.base;
        base->model = s->model;
        int rc = take_framework(s, err);
        base->offload = s->space.offload == SPACE_YES; /* for its check against the precision */
        if (rc == 0)
                rc = machine_choose_precision(s->profile, base, err);
        base->micro_batch_size = 1; /* which any batch can be divided into */
        take_single(&s->space.axes, base);
        if (rc == 0)
                rc = options_resolve(base, 1, err);
        return rc ? rc : axes_check_built(&s->space.axes, base, err);
}

/* What --machine says of profile, platform and --gpus. */
static int take_machine(struct settings *s, struct rv_error_info *err)
{
        int rc = named_machine_take(&s->named, s->machine, &s->profile, &s->platform, err);
        if (rc == 0 && !s->space.gpus.count && s->named.gpus)
                s->space.gpus = (struct int_list){{s->named.gpus}, 1};
        return rc;
}

static int check_settings(const struct settings *s, const struct parts *parts, struct rv_error_info *err)
{
        char figures[2][1100];
        if (!s->space.gpus.count)
                return rv_fail(err, RV_EINPUT, "--gpus is missing: numbers of devices, such as 48,96,192");
        if (!s->profile)
                return rv_fail(
                        err, RV_EINPUT,
                        "--profile is missing: a file that ranvier calibrate wrote, or a preset such as "
                        "v100-datasheet; or name it and the platform by --machine");
        if (!s->platform)
                return rv_fail(
                        err, RV_EINPUT,
                        "--platform is missing: local, a preset such as summit, or a file; or name it and "
                        "the profile by --machine");
        for (int i = 0; i < s->space.gpus.count; i++)
                if (named_machine_check(&s->named, s->space.gpus.values[i], err))
                        return err->code;
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
        const struct file_use uses[] = {{"MODEL", s->model, false},
                                        {"--profile", s->profile, false},
                                        {"--platform", s->platform, false},
                                        {"--csv", s->csv, true},
                                        {"--plot", s->plot ? figures[0] : NULL, true},
                                        {"--plot", s->plot ? figures[1] : NULL, true}};
        return file_check_uses(uses, sizeof uses / sizeof *uses, err);
}

/* ---- the work ---- */

struct sweep {
        const struct settings *settings;
        struct parts parts;
        struct space_groups groups;
        struct jobs jobs;
        double started, last_line;
        int begin;       /* where the jobs begin that are shared among the ranks, or those that came last */
        int done, share; /* jobs of this rank from there on: ended, and in all */
        struct rv_error_info *err;
        int rc; /* of telling the first rank */
};

/* Whether anything fits, and can be priced: said before the work. */
static int check_groups(const struct sweep *s, struct rv_error_info *err)
{
        const struct space_group *none = &s->groups.groups[0];
        bool fits = false;
        for (int i = 0; i < s->groups.count; i++) {
                const struct space_group *group = &s->groups.groups[i];
                struct prediction p;
                if (group->count == 0) {
                        none = none->considered > 0 && !group->unpriced ? none : group;
                        continue;
                }
                fits = true;
                int rc = predict_open(&p, &group->candidates[0].options, group->candidates[0].machine, err);
                predict_close(&p);
                if (rc)
                        return rc;
        }
        if (fits)
                return 0;
        if (none->unpriced)
                return rv_fail(err, none->no_price.code, "%s", none->no_price.sentence);
        return rv_fail(err, RV_EPLAN, "no plan fits; on %d GPU%s the nearest of %d: %.*s", none->gpus,
                       rv_plural(none->gpus), none->considered, (int)strcspn(none->nearest.sentence, ":"),
                       none->nearest.sentence);
}

/* A bar on a terminal, else a line every so often. */
static void print_progress(struct sweep *s)
{
        bool terminal = isatty(STDERR_FILENO), last = s->done == s->share;
        double now = parts_clock(), done = 0, all = 0;
        if (!last && now - s->last_line < (terminal ? 0.2 : 5))
                return;
        s->last_line = now;
        for (int i = s->begin + s->parts.rank; i < s->jobs.count; i += s->parts.size) {
                all += s->jobs.list[i].cost;
                done += s->jobs.list[i].outcome.state == OUTCOME_PENDING ? 0 : s->jobs.list[i].cost;
        }
        if (terminal) {
                char bar[25] = "........................";
                memset(bar, '#', (size_t)(24 * done / all));
                fprintf(stderr, "\r\033[K[%s] ", bar);
        }
        fprintf(stderr, "%d of %d plans simulated", s->begin + s->done, s->begin + s->share);
        if (!last && done > 0) {
                int left = (int)((now - s->started) * (all - done) / done);
                fprintf(stderr, "   %d:%02d left", left / 60, left % 60);
        }
        fputs(terminal && !last ? "" : "\n", stderr);
}

static void tick(void *context)
{
        struct sweep *s = context;
        int done = 0;
        for (int i = s->begin + s->parts.rank; i < s->jobs.count; i += s->parts.size)
                done += s->jobs.list[i].outcome.state != OUTCOME_PENDING;
        bool news = done != s->done;
        s->done = done;
        if (s->parts.rank > 0 && s->rc == 0)
                s->rc = parts_tell(&s->parts, &s->jobs, false, s->err);
        else if (s->parts.rank == 0 && (news || isatty(STDERR_FILENO)))
                print_progress(s);
}

/* What this rank has to do of the jobs from `begin` on. Unbound ranks of a host share its cores. */
static int run_share(struct sweep *s, struct rv_error_info *err)
{
        int cores = jobs_cores();
        bool bound = cores < sysconf(_SC_NPROCESSORS_ONLN);
        int at_once = s->settings->jobs ? s->settings->jobs : bound ? cores : cores / s->parts.local_size;
        s->started = parts_clock();
        s->share = (s->jobs.count - s->begin - s->parts.rank + s->parts.size - 1) / s->parts.size;
        s->done = 0;
        s->err = err;
        int rc = jobs_run(&s->jobs, s->begin + s->parts.rank, s->parts.size, at_once > 0 ? at_once : 1, tick,
                          s, err);
        return rc ? rc : s->rc;
}

/* Lists what is to be simulated next, of all groups. Returns how many plans, or an error. */
static int list_next(struct sweep *s, struct rv_error_info *err)
{
        enum { FIRST = 8 }; /* more than are shown */
        int listed = 0;
        s->begin = s->jobs.count;
        for (int i = 0; i < s->groups.count; i++) {
                const int found = search_next(&s->settings->space, &s->groups.groups[i], &s->jobs,
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
        s->last_line = parts_clock();
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

/* What holds for all plans, as `ranvier simulate` takes it. */
static void write_fixed(const struct settings *s, char *text, size_t text_size)
{
        int count;
        const struct flag *flags = flags_all(&count);
        text[0] = 0;
        for (int i = 0; i < count; i++)
                if (s->fixed[i])
                        snprintf(text + strlen(text), text_size - strlen(text), " --%s %s", flags[i].name,
                                 s->fixed[i]);
        if (s->fits_only)
                snprintf(text + strlen(text), text_size - strlen(text), " --fits-only");
        if (s->tokens_text)
                snprintf(text + strlen(text), text_size - strlen(text), " --tokens %s", s->tokens_text);
}

/* A failed simulation does not keep what the others found from being shown; but the command has failed. */
static int show(const struct sweep *s, struct rv_error_info *err)
{
        const struct settings *given = s->settings;
        char fixed[RESULTS_FIXED];
        write_fixed(given, fixed, sizeof fixed);
        const struct results results = {.space = &given->space,
                                        .groups = &s->groups,
                                        .jobs = &s->jobs,
                                        .profile = given->profile,
                                        .platform = given->platform,
                                        .preset = given->plans != NULL,
                                        .fixed = fixed};
        int failures = results_say_failures(&results, stderr);
        bool any = failures < s->jobs.count;
        results_print(&results, stdout);
        int rc = given->csv ? results_write_csv(&results, given->csv, err) : 0;
        if (rc == 0 && given->plot && any)
                rc = plot(&results, given, err);
        if (rc == 0 && failures)
                rc = rv_fail(err, RV_ESYSTEM, "%d of %d simulations failed", failures, s->jobs.count);
        return rc;
}

static int sweep(const struct settings *settings, const struct parts *parts, struct rv_error_info *err)
{
        struct sweep s = {.settings = settings, .parts = *parts};
        if (parts->size > 1)
                parts_share(&s.parts, settings->csv, settings->patience);
        int rc = space_explore(&s.groups, &settings->space, settings->profile, settings->platform,
                               settings->fits_only, err);
        s.jobs.tokens = report_tokens(settings->tokens);
        if (rc == 0)
                rc = check_groups(&s, err);
        if (rc == 0)
                rc = search(&s, err);
        if (rc == 0 && parts->rank == 0)
                rc = show(&s, err);
        free(s.jobs.list);
        space_free(&s.groups);
        return rc;
}

/* The flags of one plan: of those that a sweep varies a list, of others a value for all. */
static error_t parse_flag(int key, char *text, struct argp_state *state)
{
        struct settings *s = state->input;
        int count;
        const struct flag *flag = flags_all(&count) + (key - KEY_FLAGS);
        if (key < KEY_FLAGS || key >= KEY_FLAGS + count)
                return ARGP_ERR_UNKNOWN;
        struct rv_error_info *err = command_line_error(state);
        if (flag->sweep == SWEEP_LIST)
                return axis_parse(axes_named(&s->space.axes, flag->name), text, err) ? EINVAL : 0;
        s->fixed[key - KEY_FLAGS] = text;
        return flag_parse(flag, &s->space.base, text, err) ? EINVAL : 0;
}

/* Their rows, in the groups of what is varied and of what is the same for all. */
static void add_flags(struct argp_option *rows, struct option_words words[MAX_FLAGS])
{
        int count;
        const struct flag *flags = flags_all(&count);
        for (int i = 0; i < count; i++) {
                const struct flag *flag = &flags[i];
                if (flag->sweep == SWEEP_LIST)
                        *rows++ = (struct argp_option){flag->name, KEY_FLAGS + i,    flag->axis->argument,
                                                       0,          flag->axis->help, GROUP_PLANS};
                else if (flag->sweep == SWEEP_FIXED)
                        *rows++ = (struct argp_option){flag->name, KEY_FLAGS + i, flag->argument,
                                                       0,          flag->help,    GROUP_FIXED};
                if (flag->sweep != SWEEP_NOTHING && flag_words(flag, flag->sweep == SWEEP_LIST, &words[i]))
                        *rows++ = (struct argp_option)OPTION_WORDS(flag->name, &words[i]);
        }
}

int sweep_main(int argc, char **argv)
{
        struct argp_option flags[1 + 2 * MAX_FLAGS + 1] = {OPTION_WORDS("MODEL", &gpt_words)};
        struct argp_option options[SETTINGS + 1];
        struct option_words words[MAX_FLAGS];
        add_flags(flags + 1, words);
        settings_options(option_rows, options, GROUP_ASKED);
        const struct argp of_a_plan = {.options = flags, .parser = parse_flag};
        const struct argp_child children[] = {{&of_a_plan, 0, NULL, 0}, {0}};
        const struct argp argp = {options, parse_option, "MODEL", documentation, children, NULL, NULL};
        struct settings s = {.patience = 120,
                             .space = {.offload = SPACE_BOTH,

                                       .recompute = BOTH_RECOMPUTATIONS,
                                       .offload_activations = SPACE_BOTH,
                                       .simulate = SPACE_AUTO,
                                       .micro_batch_sizes = {{1, 2, 4, 8}, 4}}};
        options_init(&s.space.base);
        axes_init(&s.space.axes);
        struct rv_error_info err = {.code = RV_OK};
        struct parts parts = parts_find();
        int rc = command_line_parse(&argp, argc, argv, &s, parts.rank > 0, &err);
        if (rc == COMMAND_LINE_DONE)
                return 0;
        if (rc == 0)
                rc = take_machine(&s, &err);
        if (rc == 0)
                rc = check_settings(&s, &parts, &err);
        take_preset(&s);
        if (rc == 0)
                rc = parse_base(&s, &err);
        const char *warning = rc == 0 && parts.rank == 0 ? gpt_warning(&s.space.base.gpt) : NULL;
        if (warning)
                fprintf(stderr, "ranvier sweep: warning: %s: %s\n", s.space.base.gpt.name, warning);
        bool sound = rc == 0; /* what is wrong with the input, every rank finds; what breaks later, one */
        if (rc == 0)
                rc = sweep(&s, &parts, &err);
        if (rc == 0 && parts.rank == 0)
                rc = file_check_printed(&err);
        if (rc && (parts.rank == 0 || (sound && err.code == RV_ESYSTEM)))
                fprintf(stderr, "ranvier sweep: %s\n", err.sentence);
        framework_free(&s.framework);
        return rc ? rv_exit_status(&err) : 0;
}
