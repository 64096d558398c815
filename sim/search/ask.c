#define _DEFAULT_SOURCE /* strsep */
#include "sim/search/ask.h"

#include "runtime/base/command_line.h"
#include "runtime/base/setting.h"
#include "runtime/launch/launch.h"
#include "sim/search/jobs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the options ---- */

/* Keys of the flags of one plan, by row. */
enum { KEY_FLAGS = 0x600, LARGEST_GRID = 1048576 };

/* Of SPACE_NO, SPACE_YES and SPACE_BOTH. */
static const char *const offloads[] = {"no", "yes", "both", NULL};
static const char *const activation_offloads[] = {"no", "yes", "auto", NULL};
static const char *const ways_to_vary[] = {"default", "megatron", "torchtitan", "deepspeed", "all", NULL};

static int parse_choice(const char *option, const char *text, const char *const *names,
                        enum space_choice *choice, struct rv_error_info *err)
{
        int which = 0;
        const int rc = parse_name(option, text, names, &which, err);
        if (rc == 0)
                *choice = (enum space_choice)(SPACE_NO + which);
        return rc;
}

enum {
        BOTH_RECOMPUTATIONS = 1 << RECOMPUTE_NONE | 1 << RECOMPUTE_FULL,
        /* What Megatron-LM, torchtitan and DeepSpeed have: they wrap a layer whole, or choose within it. */
        TOOLS_RECOMPUTATIONS = 1 << RECOMPUTE_NONE | 1 << RECOMPUTE_SELECTIVE | 1 << RECOMPUTE_LAYER |
                               1 << RECOMPUTE_NORMS_SWIGLU
};

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

static int parse_recompute(void *ask, const char *option, const char *text, struct rv_error_info *err)
{
        struct ask *s = ask;
        (void)option;
        s->recompute_given = true;
        return parse_recomputations(text, &s->space.recompute, err);
}

static int parse_tokens_of_all(void *ask, const char *option, const char *text, struct rv_error_info *err)
{
        struct ask *s = ask;
        s->tokens_text = text;
        return parse_tokens(option, text, &s->tokens, err);
}

#define AT(member) .offset = offsetof(struct ask, member)
#define WORDS(choices)                                                                                       \
        .words = &(const struct option_words)                                                                \
        {                                                                                                    \
                .names = choices                                                                             \
        }

/* clang-format off */
static const struct setting option_rows[] = {
        {SETTING_HEADING, .help = "What is asked: MODEL is a preset's name or a Hugging Face style config.json"},
        {SETTING_LIST, "gpus", .argument = "N,N,...", AT(space.gpus), .min = 1, .max = LARGEST_GRID,
         .help = "How many devices, such as 64; a sweep takes several numbers, such as 48,96,192 (required where no --from says it)"},
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
         .help = "Sizes of micro-batches (default 1,2,4,8; of ranvier plan up to 64)"},
        {SETTING_LIST, "pp", .argument = "P,P,...", AT(space.stages), .min = 1, .max = LARGEST_GRID,
         .help = "Pipeline stages (default: all that divide N, up to the layers)"},
        {SETTING_OWN, "recompute", .argument = "WHICH", .parse = parse_recompute, .words = &recompute_words,
         .help = "Recomputations, such as none,selective,full,layer,norms+swiglu, or both: none,full, the default"},
        {SETTING_OWN, "offload-activations", .argument = "WHICH", AT(space.offload_activations),
         .parse = parse_offload_activations, WORDS(activation_offloads),
         .help = "Stored activations in host memory: yes, no, or auto, the default: where a stage stores more than four "
                 "micro-batches, and it wins"},
        {SETTING_WORD, "plans", .argument = "WHICH", AT(plans), WORDS(ways_to_vary),
         .help = "What the options below vary where they are not given: default; megatron, torchtitan, deepspeed: what the tool "
                 "has, of the last two as far as --launch can write it; all: what could be the best (neither blocking messages nor "
                 "--recompute layer). Of ranvier plan all is the default, and of another tool's file that tool's"},
        {SETTING_HEADING, .help = "The same for all plans:"},
        {SETTING_OWN, "tokens", .argument = "T", .parse = parse_tokens_of_all,
         .help = "Tokens of the whole training, for its days (default 300B)"},
        {SETTING_OWN, "checkpoint-every", .argument = "N|TIME", AT(checkpoints), .parse = checkpoints_parse_every,
         .help = "All times are of a training that keeps a checkpoint every N batches, or so often (10min)"},
        {SETTING_RATE, "file-rate", .argument = "RATE", AT(checkpoints.file_rate),
         .help = "With --checkpoint-every: as of ranvier simulate"},
        {SETTING_SET, "fits-only", AT(fits_only), .help = "Price by the profile's fits even what was measured"},
        {SETTING_INT, "jobs", .argument = "N", AT(jobs), .min = 1, .max = 4096,
         .help = "Processes at a time (default: the processor's cores)"},
        {.help = NULL},
};
/* clang-format on */
enum { GROUP_ASKED = 1, GROUP_PLANS, GROUP_FIXED }; /* of these headings */
_Static_assert((int)GROUP_FIXED == (int)ASK_GROUPS, "a command's own headings come behind");

/* The flags of one plan: of those that a sweep varies a list, of others a value for all. */
static error_t parse_flag(int key, char *text, struct argp_state *state)
{
        struct ask *s = state->input;
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
static struct argp_option *add_flags(struct argp_option *rows, struct option_words words[ASK_FLAGS])
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
        return rows;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
        struct ask *s = state->input;
        if (key >= KEY_FLAGS && key < KEY_FLAGS + ASK_FLAGS)
                return parse_flag(key, text, state);
        if (key != ARGP_KEY_ARG)
                return settings_take(option_rows, s, key, text, command_line_error(state));
        if (s->model)
                return ARGP_ERR_UNKNOWN;
        s->model = text;
        return 0;
}

const struct argp *ask_argp(void)
{
        static struct argp_option options[1 + 2 * ASK_FLAGS + SETTINGS + 1] = {
                OPTION_WORDS("MODEL", &gpt_words)};
        static struct option_words words[ASK_FLAGS];
        static const struct argp argp = {options, parse_option, NULL, NULL, NULL, NULL, NULL};
        settings_options(option_rows, add_flags(options + 1, words), GROUP_ASKED);
        return &argp;
}

void ask_init(struct ask *s)
{
        *s = (struct ask){.space = {
                                  .offload = SPACE_BOTH,
                                  .recompute = BOTH_RECOMPUTATIONS,
                                  .offload_activations = SPACE_BOTH,
                                  .simulate = SPACE_AUTO,
                                  .margin = 0.05,
                          }};
        options_init(&s->space.base);
        axes_init(&s->space.axes);
}

void ask_free(struct ask *s)
{
        framework_free(&s->framework);
}

int ask_processes(const struct ask *s, int local)
{
        const int cores = jobs_cores();
        const bool bound = cores < sysconf(_SC_NPROCESSORS_ONLN);
        const int at_once = s->jobs ? s->jobs : bound ? cores : cores / local;
        return at_once > 0 ? at_once : 1;
}

/* ---- what follows from them ---- */

/* What --plans says of choices that are not given. */
static void take_preset(struct ask *s)
{
        const bool all = s->plans && strcmp(s->plans, "all") == 0,
                   megatron = s->plans && strcmp(s->plans, "megatron") == 0;
        if (!s->plans || strcmp(s->plans, "default") == 0)
                return;
        axes_preset(&s->space.axes, megatron ? s->plans : "all");
        if (!s->recompute_given)
                s->space.recompute = all        ? BOTH_RECOMPUTATIONS | 1 << RECOMPUTE_SELECTIVE
                                     : megatron ? TOOLS_RECOMPUTATIONS & ~(1u << RECOMPUTE_NORMS_SWIGLU)
                                                : TOOLS_RECOMPUTATIONS;
        if (!all && !megatron)
                snprintf(s->tool, sizeof s->tool, "%s=plan", s->plans);
}

int ask_allows(void *ask, const struct options *plan, struct rv_error_info *why)
{
        const struct ask *s = ask;
        return s->tool[0] ? launch_can_write(plan, (int)options_ranks(plan), 0, s->tool, why) : 0;
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

/* Marks a flag whose values the search chooses, so that a framework's is not taken for it. */
static void mark_given(struct options *base, const char *flag)
{
        int count;
        base->given |= UINT64_C(1) << (flag_named(flag) - flags_all(&count));
}

/* The framework's flags are for whatever the search does not vary, where they go together with it: each
 * candidate gets its own (walk.c), and the plan that all begin from its precision alone. */
static int take_framework(struct ask *s, struct rv_error_info *err)
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

int ask_resolve(struct ask *s, struct rv_error_info *err)
{
        struct options *base = &s->space.base;
        base->model = s->model;
        if (s->space.micro_batch_sizes.count == 0)
                s->space.micro_batch_sizes = (struct int_list){{1, 2, 4, 8}, 4};
        take_preset(s);
        int rc = take_framework(s, err);
        base->offload = s->space.offload == SPACE_YES; /* for its check against the precision */
        if (rc == 0)
                rc = machine_choose_precision(s->profile, base, err);
        base->micro_batch_size = 1; /* which any batch can be divided into */
        take_single(&s->space.axes, base);
        if (rc == 0)
                rc = options_resolve(base, 1, err);
        if (rc == 0 && s->tool[0])
                rc = launch_check_model(s->tool, &base->gpt, err);
        return rc ? rc : axes_check_built(&s->space.axes, base, err);
}

/* A file's name as a shell takes it. */
static void print_word(const char *word, FILE *out)
{
        const bool plain =
                word[0] && word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                             "./_-+,=@%:")] == 0;
        if (plain) {
                fputs(word, out);
                return;
        }
        putc('\'', out);
        for (; *word; word++)
                if (*word == '\'')
                        fputs("'\\''", out);
                else
                        putc(*word, out);
        putc('\'', out);
}

int ask_fix(struct ask *s, const char *name, const char *value, struct rv_error_info *err)
{
        int count;
        const struct flag *flag = flag_named(name);
        s->fixed[flag - flags_all(&count)] = value;
        return flag_parse(flag, &s->space.base, value, err);
}

/* What holds for all plans. */
static void print_fixed(const struct ask *s, FILE *out)
{
        int count;
        const struct flag *flags = flags_all(&count);
        for (int i = 0; i < count; i++)
                if (s->fixed[i]) {
                        fprintf(out, " --%s ", flags[i].name);
                        print_word(s->fixed[i], out);
                }
        if (s->fits_only)
                fputs(" --fits-only", out);
        if (s->tokens_text)
                fprintf(out, " --tokens %s", s->tokens_text);
}

/* The machine by its name, as far as it was asked for by it. */
static void print_machine(const struct ask *s, FILE *out)
{
        const bool profile = s->profile != s->named.profile, platform = s->platform != s->named.platform;
        if (s->machine && (!profile || !platform)) {
                fputs(" --machine ", out);
                print_word(s->machine, out);
        }
        if (profile) {
                fputs(" --profile ", out);
                print_word(s->profile, out);
        }
        if (platform) {
                fputs(" --platform ", out);
                print_word(s->platform, out);
        }
}

void ask_print_plan(const struct options *o, FILE *out)
{
        fprintf(out, " --pp %d --dp %d --micro-batch-size %d", o->pp, o->dp, o->micro_batch_size);
        axes_write(o, out);
        if (o->recompute)
                fprintf(out, " --recompute %s", recompute_name(o->recompute));
        fprintf(out, "%s%s", o->offload ? " --offload" : "",
                o->offload_activations ? " --offload-activations" : "");
}

void ask_print_command(const struct ask *s, const struct options *o, FILE *out)
{
        fputs("ranvier simulate ", out);
        print_word(o->model, out);
        print_machine(s, out);
        fprintf(out, " --gpus %d", (int)options_ranks(o));
        print_fixed(s, out);
        ask_print_plan(o, out);
        if (s->checkpoints.text)
                fprintf(out, " --checkpoint-every %s", s->checkpoints.text);
        if (s->checkpoints.file_rate > 0)
                fprintf(out, " --file-rate %.15gB/s", s->checkpoints.file_rate);
        putc('\n', out);
}

/* ---- the machine ---- */

static int check_machine(const struct ask *s, struct rv_error_info *err)
{
        if (!s->space.gpus.count)
                return rv_fail(err, RV_EINPUT, "--gpus is missing: how many devices, such as 64");
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
        return 0;
}

int ask_machine(struct ask *s, struct rv_error_info *err)
{
        int rc = named_machine_take(&s->named, s->machine, &s->profile, &s->platform, err);
        if (rc == 0 && !s->space.gpus.count && s->named.gpus)
                s->space.gpus = (struct int_list){{s->named.gpus}, 1};
        if (rc == 0)
                rc = checkpoints_check(&s->checkpoints, err);
        if (rc == 0 && s->checkpoints.text && s->platform && strcmp(s->platform, "local") != 0 &&
            !(s->checkpoints.file_rate > 0))
                rc = predict_no_file_rate(s->platform, err);
        return rc ? rc : check_machine(s, err);
}
