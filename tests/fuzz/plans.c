/* Models, frameworks, command lines and launch scripts. */
#include "tests/fuzz/fuzz.h"

#include "models/gpt.h"
#include "runtime/base/command_line.h"
#include "runtime/base/parse.h"
#include "runtime/base/toml.h"
#include "runtime/launch/launch.h"
#include "runtime/plan/framework.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, WORDS = 64 };

/* What every command asks of a model. */
static void ask_model(const struct gpt *gpt)
{
        struct rv_error_info err = {0};
        const int longest = gpt_longest(gpt);
        json_decref(gpt_to_json(gpt));
        gpt_warning(gpt);
        gpt_parameters(gpt);
        gpt_batch_flops(gpt, 1, longest, RECOMPUTE_FULL);
        fuzz_check(gpt_check_shards(gpt, 2, &err), &err);
        fuzz_check(gpt_check_experts(gpt, 2, &err), &err);
        fuzz_check(gpt_check_length(gpt, longest, &err), &err);
}

/* What follows from a plan that is resolved. */
static void ask_plan(struct options *options)
{
        const struct plan plan = options_plan(options, false);
        const struct stage stage = options_stage(options, 0);
        const struct core_stage core = options_core_stage(options, 0, 0);
        const struct memory_plan memory = options_memory(options, 0);
        (void)plan, (void)stage, (void)core, (void)memory;
        options_work(options);
        if (options->framework)
                json_decref(framework_json(options));
}

void fuzz_model(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        struct gpt gpt;
        const int rc = gpt_load(&gpt, fuzz_file("config.json", bytes), &err);
        fuzz_check(rc, &err);
        if (rc == RV_OK)
                ask_model(&gpt);
}

void fuzz_framework(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        struct framework framework;
        const int rc = framework_load(&framework, fuzz_file("framework.json", bytes), NULL, &err);
        fuzz_check(rc, &err);
        if (rc == RV_OK)
                framework_free(&framework);
}

/* ---- command lines ---- */

static error_t parser(int key, char *text, struct argp_state *state)
{
        (void)text;
        if (key != ARGP_KEY_INIT)
                return ARGP_ERR_UNKNOWN;
        state->child_inputs[0] = state->input;
        return 0;
}

/* The words of a line each. A file that one of them names is read, and /dev/stdin would be waited for. */
static int split(char *text, char **words)
{
        int count = 0;
        char *place = NULL;
        words[count++] = (char *)(uintptr_t) "ranvier";
        for (char *at = strtok_r(text, "\n", &place); at && count < WORDS; at = strtok_r(NULL, "\n", &place))
                if (!strchr(at, '/'))
                        words[count++] = at;
        words[count] = NULL;
        return count;
}

void fuzz_options(struct fuzz_bytes bytes)
{
        struct argp_child children[2] = {{.argp = options_argp()}};
        const struct argp argp = {.parser = parser, .args_doc = "MODEL", .children = children};
        struct rv_error_info err = {0};
        struct options options;
        struct framework framework = {0};
        char *text = fuzz_text(bytes), *words[WORDS + 1];
        const int count = split(text, words);
        options_init(&options);
        int rc = command_line_parse(&argp, count, words, &options, true, &err);
        if (rc == 0)
                rc = framework_take(&framework, &options, &err);
        if (rc == 0) {
                options_fill_ranks(&options, RANKS);
                rc = options_resolve(&options, RANKS, &err);
        }
        fuzz_check(rc, &err);
        if (rc == 0)
                ask_plan(&options);
        framework_free(&framework);
        free(text);
}

/* The value of an option, by each of what parses one. */
void fuzz_values(struct fuzz_bytes bytes)
{
        static const char *const names[] = {"one", "two", NULL};
        char *text = fuzz_text(bytes);
        struct rv_error_info err = {0};
        struct int_list list;
        int64_t whole;
        int count;
        double real;
        bool on = false;
        fuzz_check(parse_int("--x", text, INT64_MIN, INT64_MAX, &whole, &err), &err);
        fuzz_check(parse_count("--x", text, 1, 100, &count, &err), &err);
        fuzz_check(parse_list("--x", text, 1, INT32_MAX, &list, &err), &err);
        fuzz_check(parse_rate("--x", text, &real, &err), &err);
        fuzz_check(parse_tokens("--x", text, &real, &err), &err);
        fuzz_check(parse_name("--x", text, names, &count, &err), &err);
        fuzz_check(parse_switch("--x", text, &on, &err), &err);
        if (parse_bytes(text, &whole) == 0 && whole < 0)
                abort();
        free(text);
}

/* ---- launch scripts ---- */

static int settle(struct launch *launch, struct options *options, struct rv_error_info *err)
{
        int rc = launch_settle(launch, options, launch->gpus ? launch->gpus : RANKS, err);
        if (rc == 0)
                rc = launch_check_automatic(launch, options, err);
        launch_print(launch, "simulate", options, fuzz_nowhere());
        json_decref(launch_json(launch));
        return rc ? rc : options_resolve(options, launch->gpus ? launch->gpus : RANKS, err);
}

void fuzz_launch(struct fuzz_bytes bytes)
{
        static const char *const tools[] = {"megatron=x", "torchtitan=x", "deepspeed=x", "ranvier=x"};
        const char *path = fuzz_file("launch", bytes);
        char *words[] = {(char *)(uintptr_t) "ranvier", (char *)(uintptr_t) "--from", (char *)(uintptr_t)path,
                         NULL};
        struct rv_error_info err = {0};
        struct launch launch = {0};
        struct options options;
        options_init(&options);
        int rc = launch_open(&launch, 3, words, true, &options, &err);
        if (rc == 0)
                rc = settle(&launch, &options, &err);
        fuzz_check(rc, &err);
        if (rc == 0) {
                ask_plan(&options);
                for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
                        fuzz_check(launch_can_write(&options, RANKS, 0, tools[i], &err), &err);
        }
        launch_close(&launch);
}

static int take(void *context, const char *key, const char *value, int line, struct rv_error_info *err)
{
        (void)context, (void)err;
        return line < 1 || !key || !value ? rv_fail(err, RV_ESYSTEM, "nothing was taken\n") : 0;
}

void fuzz_toml(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        char *text = fuzz_text(bytes);
        fuzz_check(toml_read("job.toml", text, take, NULL, &err), &err);
        free(text);
}
