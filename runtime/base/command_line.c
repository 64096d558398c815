#include "runtime/base/command_line.h"

#include "runtime/base/describe.h"
#include "runtime/base/file.h"
#include "runtime/base/nearest.h"
#include "runtime/base/version.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_NAME = 64 };

/* Options of Megatron-LM, DeepSpeed and Hugging Face's Trainer, with "-" for "_", and what they are here. */
static const struct {
        const char *name;
        const char *here; /* an option of ours, without "--" */
        const char *how;  /* what else is to be said of it; "" if nothing is */
} foreign[] = {
        {"tensor-model-parallel-size", "tp", ""},
        {"tensor-parallel-size", "tp", ""},
        {"tensor-parallel", "tp", ""},
        {"expert-model-parallel-size", "ep", ""},
        {"expert-parallel", "ep", ""},
        {"pipeline-model-parallel-size", "pp", ""},
        {"pipeline-parallel-size", "pp", ""},
        {"pipeline-parallel", "pp", ""},
        {"pipeline", "pp", ""},
        {"pipeline-stages", "pp", ""},
        {"stages", "pp", ""},
        {"data-parallel-size", "dp", ""},
        {"context-parallel-size", "cp", ""},
        {"data-parallel", "dp", ""},
        {"replicas", "dp", ""},
        {"global-batch-size", "batch-size", ""},
        {"train-batch-size", "batch-size", ""},
        {"micro-batch", "micro-batch-size", ""},
        {"train-micro-batch-size-per-gpu", "micro-batch-size", ""},
        {"per-device-train-batch-size", "micro-batch-size", ""},
        {"gradient-accumulation-steps", "batch-size",
         ", which is --dp x --micro-batch-size x the steps of accumulation"},
        {"num-layers-per-virtual-pipeline-stage", "virtual-stages",
         " V with --schedule interleaved: V is the chunks of a rank, layers / (--pp x layers of a chunk)"},
        {"virtual-pipeline-model-parallel-size", "virtual-stages", " with --schedule interleaved"},
        {"zero-stage", "zero", ""},
        {"use-distributed-optimizer", "zero", " 1"},
        {"overlap-grad-reduce", "overlap-allreduce", ""},
        {"max-steps", "steps", ""},
        {"train-iters", "steps", ""},
        {"train-samples", "steps", ", in batches"},
        {"num-train-epochs", "steps", ", in batches"},
        {"seq-length", "seq-len", ""},
        {"sequence-length", "seq-len", ""},
        {"block-size", "seq-len", ""},
        {"world-size", "gpus", ""},
        {"num-gpus", "gpus", ""},
        {"fp16", "precision", " mixed"},
        {"bf16", "precision", " bf16"},
        {"dtype", "precision", ""},
        {"recompute-activations", "recompute", " selective"},
        {"recompute-granularity", "recompute", ""},
        {"gradient-checkpointing", "recompute", " full"},
        {"checkpoint-activations", "recompute", " full"},
        {"cpu-offload", "offload", ""},
        {"optimizer-cpu-offload", "offload", ""},
        {"use-flash-attn", "fusion", " on"},
        {"clip-grad", "clip", ""},
        {"max-grad-norm", "clip", ""},
        {"gradient-clipping", "clip", ""},
        {"learning-rate", "lr", ""},
        {"lr-warmup-iters", "warmup", ""},
        {"warmup-steps", "warmup", ""},
        {"adam-beta1", "beta1", ""},
        {"adam-beta2", "beta2", ""},
        {"adam-eps", "epsilon", ""},
        {"data-path", "data", ""},
        {"save", "checkpoint", ""},
        {"save-interval", "checkpoint-every", ""},
        {"save-steps", "checkpoint-every", ""},
        {"load", "resume", ""},
        {"resume-from-checkpoint", "resume", ""},
        {"init-from", "init", ""},
        {"model-name-or-path", "init", ""},
        {"pretrained-checkpoint", "init", ""},
        {"eval-interval", "validate-every", ""},
};

/* Options that are asked for, of what is not built. */
static const struct {
        const char *name, *what;
} unbuilt[] = {
        {"dropout", "nothing is dropped out, neither in training nor in predictions"},
        {"attention-dropout", "nothing is dropped out, neither in training nor in predictions"},
        {"hidden-dropout", "nothing is dropped out, neither in training nor in predictions"},
};

static bool ends_options(const struct argp_option *o)
{
        return !o->name && !o->key && !o->doc && !o->group;
}

/* The option of `argp` or its children that has the long name, or, without one, the key. */
static const struct argp_option *find_option(const struct argp *argp, const char *name, int key)
{
        const struct argp_option *found = NULL;
        for (const struct argp_option *o = argp->options; o && !ends_options(o); o++)
                if (!option_words(o) && (name ? o->name && strcmp(o->name, name) == 0 : o->key == key))
                        return o;
        for (const struct argp_child *child = argp->children; child && child->argp && !found; child++)
                found = find_option(child->argp, name, key);
        return found;
}

static void offer_options(const struct argp *argp, struct nearest *nearest)
{
        for (const struct argp_option *o = argp->options; o && !ends_options(o); o++)
                if (o->name && !(o->flags & OPTION_HIDDEN))
                        nearest_offer(nearest, o->name);
        for (const struct argp_child *child = argp->children; child && child->argp; child++)
                offer_options(child->argp, nearest);
}

/* `name` without "--", as it was written. */
static int fail_unknown(const struct argp *argp, const char *name, struct rv_error_info *err)
{
        char plain[LONGEST_NAME] = "";
        for (size_t i = 0; i < sizeof plain - 1 && name[i]; i++)
                plain[i] = name[i] == '_' ? '-' : name[i];
        for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
                if (strcmp(plain, foreign[i].name) == 0 && find_option(argp, foreign[i].here, 0))
                        return rv_fail(err, RV_EINPUT, "unknown option '--%.64s': here it is --%s%s", name,
                                       foreign[i].here, foreign[i].how);
        for (size_t i = 0; i < sizeof unbuilt / sizeof *unbuilt; i++)
                if (strcmp(plain, unbuilt[i].name) == 0)
                        return rv_fail(err, RV_ENOTBUILT, "--%s is not built yet: %s", name, unbuilt[i].what);
        struct nearest nearest = {.word = plain};
        offer_options(argp, &nearest);
        if (nearest.known)
                return rv_fail(err, RV_EINPUT,
                               "unknown option '--%.64s'; the nearest is --%s, --help lists all", name,
                               nearest.known);
        return rv_fail(err, RV_EINPUT, "unknown option '--%.64s'; --help lists what there is", name);
}

/* Whether an option takes the next word; a switch has "=no" at most. */
static bool takes_word(const struct argp_option *option)
{
        return option->arg && !(option->flags & OPTION_ARG_OPTIONAL);
}

/* How many words of `argv`, which begins with an option of one letter or several, belong to it. */
static int check_letters(const struct argp *argp, int argc, char *const *argv, struct rv_error_info *err)
{
        for (const char *letter = argv[0] + 1; *letter; letter++) {
                const struct argp_option *option = find_option(argp, NULL, (unsigned char)*letter);
                if (!option)
                        return rv_fail(err, RV_EINPUT, "unknown option '-%.64s'; --help lists what there is",
                                       letter);
                if (takes_word(option) && !letter[1] && argc < 2)
                        return rv_fail(err, RV_EINPUT, "option '-%c' needs an argument: -%c %s", *letter,
                                       *letter, option->arg);
                if (takes_word(option))
                        return letter[1] ? 1 : 2;
        }
        return 1;
}

/* The same of a word that begins with "--"; tells the option's key. */
static int check_word(const struct argp *argp, int argc, char *const *argv, int *key,
                      struct rv_error_info *err)
{
        const char *word = argv[0] + 2, *equals = strchr(word, '=');
        char *name = equals ? strndup(word, (size_t)(equals - word)) : strdup(word);
        if (!name)
                return rv_fail(err, RV_ESYSTEM, "no memory for option %.64s", word);
        const struct argp_option *option = find_option(argp, name, 0);
        int words = 1;
        if (!option)
                words = fail_unknown(argp, name, err);
        else if (equals && !option->arg)
                words = rv_fail(err, RV_EINPUT, "option '--%s' takes no argument", name);
        else if (!equals && takes_word(option) && argc < 2)
                words = rv_fail(err, RV_EINPUT, "option '--%s' needs an argument: --%s %s", name, name,
                                option->arg);
        else if (!equals && takes_word(option))
                words = 2;
        *key = option ? option->key : 0;
        free(name);
        return words;
}

static bool is_end(const int *ends, int key)
{
        while (*ends && *ends != key)
                ends++;
        return *ends != 0;
}

int command_line_check(const struct argp *argp, int argc, char *const *argv, const int *ends,
                       struct rv_error_info *err)
{
        for (int at = 1, words; at < argc; at += words) {
                int key = 0;
                words = 1;
                if (strcmp(argv[at], "--") == 0)
                        return 0;
                if (strncmp(argv[at], "--", 2) == 0)
                        words = check_word(argp, argc - at, argv + at, &key, err);
                else if (argv[at][0] == '-' && argv[at][1])
                        words = check_letters(argp, argc - at, argv + at, err);
                if (words < 0)
                        return words;
                if (is_end(ends, key))
                        return 0;
        }
        return 0;
}

/* Whether a word is the option of that name, with a value behind "=" or without. */
static bool is_option(const char *word, const char *name)
{
        const size_t length = strlen(name);
        return strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, length) == 0 &&
               (!word[2 + length] || word[2 + length] == '=');
}

int command_line_drop(const struct argp *argp, int argc, char **argv, const char *const *names)
{
        int kept = 1;
        for (int at = 1, words; at < argc; at += words) {
                int key;
                bool drops = false;
                words = 1;
                if (strcmp(argv[at], "--") == 0)
                        words = argc - at;
                else if (strncmp(argv[at], "--", 2) == 0)
                        words = check_word(argp, argc - at, argv + at, &key, NULL);
                else if (argv[at][0] == '-' && argv[at][1])
                        words = check_letters(argp, argc - at, argv + at, NULL);
                if (words < 1)
                        words = 1;
                for (const char *const *name = names; *name; name++)
                        drops |= is_option(argv[at], *name);
                for (int i = 0; i < words && !drops; i++)
                        argv[kept++] = argv[at + i];
        }
        argv[kept] = NULL;
        return kept;
}

/* ---- parsing ---- */

enum { KEY_HELP = 0x7f00, KEY_USAGE, KEY_VERSION, KEY_DESCRIBE };

/* What one call of command_line_parse carries through argp: the outermost argp comes first, because it is
 * what every parser's state leads to. */
struct parse_context {
        struct argp outer;
        void *input;
        struct rv_error_info *err;
        int asked; /* KEY_HELP, KEY_USAGE, KEY_VERSION or KEY_DESCRIBE */
};

static const struct argp_option help_options[] = {
        {"help", KEY_HELP, 0, 0, "Print this help", -1},
        {"usage", KEY_USAGE, 0, 0, "Print a short summary of the options", -1},
        {"version", KEY_VERSION, 0, 0, "Print the version", -1},
        {"describe", KEY_DESCRIBE, 0, OPTION_HIDDEN, "Print the options as JSON (describe.h)", -1},
        {0},
};

static error_t outer_parser(int key, char *text, struct argp_state *state)
{
        (void)text;
        struct parse_context *context = state->input;
        switch (key) {
        case ARGP_KEY_INIT:
                state->child_inputs[0] = context->input;
                return 0;
        case KEY_HELP:
        case KEY_USAGE:
        case KEY_VERSION:
        case KEY_DESCRIBE:
                context->asked = key;
                return ECANCELED;
        default:
                return ARGP_ERR_UNKNOWN;
        }
}

struct rv_error_info *command_line_error(const struct argp_state *state)
{
        if (state->root_argp->parser != outer_parser)
                return NULL;
        return ((const struct parse_context *)state->root_argp)->err;
}

/* The options of a command and, like those of all others, of help. */
static void print_description(const struct argp *command)
{
        const struct argp_child children[] = {{command, 0, NULL, 0}, {0}};
        const struct argp outer = {.options = help_options, .children = children};
        json_t *all = describe_options(&outer), *own = describe_options(command);
        json_object_set(own, "groups", json_object_get(all, "groups"));
        json_dumpf(own, stdout, JSON_INDENT(1));
        printf("\n");
        json_decref(all);
        json_decref(own);
}

static void print_help(const struct argp *argp, char *argv0, int asked)
{
        const char *slash = strrchr(argv0, '/');
        char name[64];
        snprintf(name, sizeof name, "%s", slash ? slash + 1 : argv0);
        if (strncmp(name, "ranvier-", 8) == 0)
                name[7] = ' ';
        if (asked == KEY_VERSION)
                printf("%s %s\n", name, RANVIER_VERSION);
        else
                argp_help(argp, stdout,
                          asked == KEY_USAGE ? ARGP_HELP_USAGE
                                             : ARGP_HELP_STD_HELP & ~(unsigned)ARGP_HELP_EXIT_OK,
                          name);
}

int command_line_parse(const struct argp *argp, int argc, char **argv, void *input, bool quiet,
                       struct rv_error_info *err)
{
        struct argp_child children[] = {{argp, 0, NULL, 0}, {0}};
        struct rv_error_info own = {0};
        struct parse_context context = {
                .outer = {.options = help_options, .parser = outer_parser, .children = children},
                .input = input,
                .err = err ? err : &own,
        };
        context.err->code = RV_OK;
        static const int helps[] = {KEY_HELP, KEY_USAGE, KEY_VERSION, KEY_DESCRIBE, 0};
        int next = argc;
        if (command_line_check(&context.outer, argc, argv, helps, context.err))
                return context.err->code;
        error_t rc = argp_parse(&context.outer, argc, argv, ARGP_NO_ERRS | ARGP_NO_EXIT | ARGP_NO_HELP, &next,
                                &context);
        if (context.asked) {
                if (!quiet && context.asked == KEY_DESCRIBE)
                        print_description(argp);
                else if (!quiet)
                        print_help(&context.outer, argv[0], context.asked);
                return file_check_printed(context.err) ? context.err->code : COMMAND_LINE_DONE;
        }
        if (context.err->code)
                return context.err->code;
        if (rc)
                return rv_fail(context.err, RV_ESYSTEM, "the command line cannot be read: %s", strerror(rc));
        if (next < argc)
                return rv_fail(context.err, RV_EINPUT, "unexpected argument '%s'; --help shows what is right",
                               argv[next]);
        return 0;
}

int command_line_end(const char *name, int rc, struct rv_error_info *err)
{
        if (rc == RV_OK)
                rc = file_check_printed(err);
        if (rc == RV_OK || rc == COMMAND_LINE_DONE)
                return 0;
        fprintf(stderr, "ranvier %s: %s\n", name, err->sentence);
        return rv_exit_status(err);
}

char *command_line_text(const char *name, int argc, char **argv)
{
        size_t size = strlen(name) + 1;
        for (int i = 1; i < argc; i++)
                size += strlen(argv[i]) + 1;
        char *line = malloc(size);
        if (!line)
                return NULL;
        strcpy(line, name);
        for (int i = 1; i < argc; i++)
                strcat(strcat(line, " "), argv[i]);
        return line;
}
