/* `ranvier plan`: the command line, and what follows from it. */
#include "sim/search/plan.h"

#include "runtime/base/command_line.h"
#include "runtime/base/file.h"
#include "runtime/base/number.h"
#include "runtime/base/parse.h"
#include "runtime/base/progress.h"
#include "runtime/base/setting.h"
#include "runtime/report/html.h"
#include "runtime/report/report.h"
#include "sim/search/search.h"
#include "sim/world/interval.h"
#include "sim/world/paper_batch.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ---- the command line ---- */

static const char documentation[] =
        "Says how to train a model on a machine: searches all plans, simulates the best, and tells its time, "
        "memory, "
        "days and cost, what bounds it, what comes next, and what would help most.\v"
        "Llama 3 70B on 64 H100, and what a training of 2 trillion tokens costs:\n"
        "  ranvier plan llama3-70b --gpus 64 --machine h100\n"
        "  ranvier plan llama3-70b --gpus 64 --machine h100 \\\n"
        "      --tokens 2T --days 90 --price-per-gpu-hour 2.5\n"
        "Only plans that Megatron-LM has, run as it runs them:\n"
        "  ranvier plan llama3-8b --gpus 16 --machine h100 --plans megatron --like megatron\n"
        "An interrupt (control-C) ends the search; what was found is answered.\n";

struct settings {
        struct ask ask;
        /* Of --from: what the file says, the plan that it is, the framework of that, and why it is none, "".
         */
        const char *from, *launch;
        struct launch file;
        struct options own;
        struct framework own_framework;
        char own_failure[sizeof((struct rv_error_info *)0)->sentence];
        double batch_tokens, days, price; /* 0: not given */
        int64_t memory;                   /* likewise */
        int gpus_per_node;                /* of the machine */
        const char *report, *html;
        bool json;
        char batch_text[24], seq_text[24], memory_text[24];
};

static int parse_memory(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        if (parse_bytes(text, at) || *(int64_t *)at < 1)
                return rv_fail(err, RV_EINPUT, "%s: '%.32s' is not a size, such as 80GB or 64GiB", option,
                               text);
        return 0;
}

#define AT(member) .offset = offsetof(struct settings, member)

/* clang-format off */
static const struct setting option_rows[] = {
        {SETTING_HEADING, .help = "The question:"},
        {SETTING_PATH, "from", .argument = "FILE", AT(from),
         .help = "Take model, batch, GPUs and precision from what another tool is started with, as simulate does, and compare "
                 "the plan that it says with the best (docs/launch.md)"},
        {SETTING_TOKENS, "batch-tokens", .argument = "T", AT(batch_tokens),
         .help = "Tokens of one batch, such as 4M (default 4M; --batch-size says it in sequences)"},
        {SETTING_REAL, "days", .argument = "D", AT(days), .low = 1e-3, .high = 1e6,
         .help = "How long the training may take: says whether it does, and else how many GPUs would do"},
        {SETTING_OWN, "memory", .argument = "SIZE", AT(memory), .parse = parse_memory,
         .help = "Memory of a GPU that may be used, such as 72GiB (default: the machine's)"},
        {SETTING_REAL, "price-per-gpu-hour", .argument = "X", AT(price), .low = 1e-6, .high = 1e6,
         .help = "What a GPU costs an hour, in any money: says what the training costs"},
        {SETTING_HEADING, .help = "The answer:"},
        {SETTING_SET, "json", AT(json), .help = "Print the answer as JSON"},
        {SETTING_PATH, "report", .argument = "FILE", AT(report), .help = "Write the answer as JSON, too"},
        {SETTING_PATH, "html", .argument = "FILE.html", AT(html),
         .help = "Write the answer as one page of HTML, too, with figures of the best plan and the next (ranvier report)"},
        {SETTING_TEXT, "launch", .argument = "TOOL=FILE,...", AT(launch),
         .help = "Write the best plan as another tool takes it, as simulate does: megatron, torchtitan, deepspeed, ranvier, "
                 "and slurm (docs/launch.md)"},
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

/* ---- what the question leaves open ---- */

static void assume(json_t *assumed, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void assume(json_t *assumed, const char *format, ...)
{
        char sentence[256];
        va_list values;
        va_start(values, format);
        vsnprintf(sentence, sizeof sentence, format, values);
        va_end(values);
        json_array_append_new(assumed, json_string(sentence));
}

/* As many sequences as come nearest to so many tokens and can be shared evenly by many numbers of replicas: a
 * multiple of the devices, or, if there are more of these, a divisor of them. */
static int64_t sequences_of(double tokens, int seq_len, int gpus)
{
        const int64_t nearest = (int64_t)fmax(1, round(tokens / seq_len));
        if (nearest >= gpus)
                return (int64_t)fmax(1, round((double)nearest / gpus)) * gpus;
        int64_t fewer = nearest, more = nearest;
        while (gpus % fewer)
                fewer--;
        while (gpus % more)
                more++;
        return nearest - fewer <= more - nearest ? fewer : more;
}

/* The longest sequence that is taken without being asked for: what models are mostly trained on, however far
 * their positions reach. */
enum { USUAL_SEQUENCE = 8192, USUAL_BATCH_TOKENS = 1 << 22 };

static int settle_batch(struct settings *s, json_t *assumed, struct rv_error_info *err)
{
        struct options *base = &s->ask.space.base;
        const int gpus = s->ask.space.gpus.values[0];
        int rc = 0;
        if (base->batch_size && s->batch_tokens > 0)
                return rv_fail(err, RV_EINPUT,
                               "--batch-size and --batch-tokens say the same: give one of them");
        const int window = base->gpt.window,
                  most = window && window < USUAL_SEQUENCE ? window : USUAL_SEQUENCE;
        if (!base->seq_len && base->gpt.n_positions > most) {
                snprintf(s->seq_text, sizeof s->seq_text, "%d", most);
                assume(assumed, "sequences of %d tokens, of at most %d (--seq-len)", most,
                       base->gpt.n_positions);
                rc = ask_fix(&s->ask, "seq-len", s->seq_text, err);
        }
        if (rc || base->batch_size)
                return rc;
        const int seq_len = base->seq_len ? base->seq_len : base->gpt.n_positions;
        const double tokens = s->batch_tokens > 0 ? s->batch_tokens : USUAL_BATCH_TOKENS;
        const int64_t sequences = sequences_of(tokens, seq_len, gpus);
        char text[NUMBER_TEXT];
        snprintf(s->batch_text, sizeof s->batch_text, "%lld", (long long)sequences);
        if (s->batch_tokens == 0)
                assume(assumed, "batches of about %s tokens (--batch-tokens)", number_tokens(text, tokens));
        if (fabs((double)sequences * seq_len / tokens - 1) > 1e-9)
                assume(assumed, "%lld sequences a batch, which %d GPU%s can share evenly",
                       (long long)sequences, gpus, rv_plural(gpus));
        return ask_fix(&s->ask, "batch-size", s->batch_text, err);
}

/* A list of the values up to `max` that divide `whole`, where the user gave none. */
static void list_divisors(struct axes *axes, const char *flag, int whole, int max)
{
        struct axis *axis = axes_named(axes, flag);
        if (axis->given)
                return;
        axis->list.count = 0;
        for (int i = 1; i <= max && i <= whole && axis->list.count < FLAG_VALUES; i++)
                if (whole % i == 0)
                        axis->list.values[axis->list.count++] = i;
}

static void list_values(struct axes *axes, const char *flag, int first, int second)
{
        struct axis *axis = axes_named(axes, flag);
        if (!axis->given)
                axis->list = (struct flag_values){{first, second}, 2};
}

/* Beside what --plans all varies: shards up to a node, groups of replicas of a node, and what ZeRO-3 can do
 * once a batch. Grids of shards are for whoever asks for them. */
static void widen(struct ask *ask, const struct machine *machine)
{
        enum { MOST_SHARDS = 16, MOST_EXPERT_RANKS = 64 };
        struct axes *axes = &ask->space.axes;
        const int node = machine->platform.gpus_per_node, gpus = machine->gpus;
        struct axis *grid = axes_named(axes, "grid-overlap");
        if (!grid->given)
                grid->list.count = 1;
        list_divisors(axes, "tp", node < gpus ? node : gpus, MOST_SHARDS);
        if (ask->space.base.gpt.n_expert > 0)
                list_divisors(axes, "ep", ask->space.base.gpt.n_expert, MOST_EXPERT_RANKS);
        const bool all = strcmp(ask->plans, "all") == 0;
        if (!all && !ask->tool[0])
                return;
        list_values(axes, "reshard-after-forward", true, false);
        list_values(axes, "gather-each", GATHER_EACH_MICRO_BATCH, GATHER_EACH_BATCH);
        list_values(axes, "offload-parameters", false, true);
        if (gpus > node)
                list_values(axes, "shard-replicas", 0, node);
        if (all && !ask->recompute_given)
                ask->space.recompute = (1u << RECOMPUTES) - 1 - (1u << RECOMPUTE_LAYER);
}

static int check_settings(const struct settings *s, struct rv_error_info *err)
{
        const struct ask *ask = &s->ask;
        if (!ask->machine && !ask->profile && !ask->platform)
                return rv_fail(err, RV_EINPUT,
                               "--machine is missing: a name such as h100 (ranvier machines lists them); or "
                               "--profile and "
                               "--platform");
        if (ask->space.gpus.count > 1)
                return rv_fail(
                        err, RV_EINPUT,
                        "--gpus: plan answers for one number of devices; ranvier sweep compares several");
        if (s->memory && ask->space.base.memory[MEMORY_DEVICE])
                return rv_fail(err, RV_EINPUT, "--memory and --device-memory say the same: give one of them");
        const struct file_use uses[] = {
                {"MODEL", ask->model, false},         {"--profile", ask->profile, false},
                {"--platform", ask->platform, false}, {"--from", s->from, false},
                {"--report", s->report, true},        {"--html", s->html, true}};
        const int count = sizeof uses / sizeof *uses;
        int rc = html_check(s->html, err);
        if (rc == 0)
                rc = file_check_uses(uses, count, err);
        return rc ? rc : launch_check(s->launch, uses, count, err);
}

/* ---- a file of another tool ---- */

/* Whether the command line names another framework than the file is of. */
static bool is_for_another(const struct settings *s)
{
        const char *asked = s->ask.space.base.like;
        for (int i = 0; asked && i < s->file.word_count; i++)
                if (strcmp(s->file.words[i].flag->name, "like") == 0)
                        return strcmp(s->file.words[i].text, asked) != 0;
        return false;
}

/* What a file says of the training, and of how its work is divided. All else is how its framework runs that.
 */
static const char
        what_is_trained[] = "batch-size seq-len precision clip expert-capacity",
        how_it_is_divided[] =
                "pp dp tp cp ep etp micro-batch-size virtual-stages schedule sequence-parallel zero "
                "shard-replicas reshard-after-forward recompute offload offload-activations "
                "offload-parameters like";

/* What the file says of all plans: whatever a search does not choose, and the command line did not say. For
 * another framework, what is trained: how is the file's framework's. */
static int take_words(struct settings *s, struct rv_error_info *err)
{
        const bool another = is_for_another(s);
        int count, rc = 0;
        const struct flag *flags = flags_all(&count);
        for (int i = 0; rc == 0 && i < s->file.word_count; i++) {
                const struct launch_word *word = &s->file.words[i];
                const bool counts = !another || launch_lists(what_is_trained, word->flag->name);
                if (counts && word->flag->sweep == SWEEP_FIXED && !s->ask.fixed[word->flag - flags])
                        rc = ask_fix(&s->ask, word->flag->name, word->text, err);
        }
        return rc;
}

static void give(struct options *plan, const struct flag *flag, int value)
{
        flag_set(flag, plan, value);
        flag_give(flag, plan);
}

/* Of what the search was given only one value for, that one. */
static void take_single_values(struct settings *s)
{
        const struct space *space = &s->ask.space;
        struct options *own = &s->own;
        for (int i = 0; i < space->axes.count; i++) {
                const struct axis *axis = &space->axes.axis[i];
                if (axis->given && axis->list.count == 1)
                        give(own, axis->flag, axis->list.values[0]);
        }
        if (space->stages.count == 1)
                give(own, flag_named("pp"), space->stages.values[0]);
        if (space->micro_batch_sizes.count == 1)
                give(own, flag_named("micro-batch-size"), space->micro_batch_sizes.values[0]);
        if (space->offload != SPACE_BOTH)
                give(own, flag_named("offload"), space->offload == SPACE_YES);
        if (space->offload_activations != SPACE_BOTH)
                give(own, flag_named("offload-activations"), space->offload_activations == SPACE_YES);
        for (int r = 0; s->ask.recompute_given && r < RECOMPUTES; r++)
                if (space->recompute == 1u << r)
                        give(own, flag_named("recompute"), r);
}

/* In the file's plan, too, what the command line says takes the place of what the file says. */
static int take_given(struct settings *s, struct rv_error_info *err)
{
        int count, rc = 0;
        struct options defaults;
        options_init(&defaults);
        for (int i = 0; is_for_another(s) && i < s->file.word_count; i++) {
                const struct flag *flag = s->file.words[i].flag;
                const bool counts = launch_lists(what_is_trained, flag->name) ||
                                    launch_lists(how_it_is_divided, flag->name);
                if (counts || (flag->store != STORE_BOOL && flag->store != STORE_INT))
                        continue;
                flag_set(flag, &s->own, flag_value(flag, &defaults));
                flag_take_back(flag, &s->own);
        }
        const struct flag *flags = flags_all(&count);
        for (int i = 0; rc == 0 && i < count; i++)
                if (s->ask.fixed[i])
                        rc = flag_parse(&flags[i], &s->own, s->ask.fixed[i], err);
        if (rc == 0)
                take_single_values(s);
        return rc;
}

/* The file's plan; what keeps it from being predicted is no error of the question. */
static void resolve_own(struct settings *s)
{
        const int gpus = s->ask.space.gpus.values[0];
        const struct options *base = &s->ask.space.base;
        struct rv_error_info why;
        s->own.batch_size = s->own.batch_size ? s->own.batch_size : base->batch_size;
        s->own.seq_len = s->own.seq_len ? s->own.seq_len : base->seq_len;
        int rc = framework_take(&s->own_framework, &s->own, &why);
        if (rc == 0)
                rc = machine_choose_precision(s->ask.profile, &s->own, &why);
        if (rc == 0)
                rc = options_resolve(&s->own, gpus, &why);
        if (rc)
                snprintf(s->own_failure, sizeof s->own_failure, "%s", why.sentence);
}

/* Whose kernels are predicted, its plans are weighed, as far as the tool knows the model. */
static void assume_plans(struct settings *s, json_t *assumed)
{
        static const struct {
                const char *framework, *plans, *title;
        } tools[] = {{"megatron", "megatron", "Megatron-LM"},
                     {"torchtitan", "torchtitan", "torchtitan"},
                     {"torchtitan-compiled", "torchtitan", "torchtitan"},
                     {"deepspeed", "deepspeed", "DeepSpeed"}};
        const char *like = s->file.tool ? s->own.like : s->ask.space.base.like;
        char list[32];
        for (size_t i = 0; like && i < sizeof tools / sizeof *tools; i++) {
                if (s->ask.plans || strcmp(like, tools[i].framework) != 0)
                        continue;
                snprintf(list, sizeof list, "%s=plan", tools[i].plans);
                if (launch_check_model(list, &s->ask.space.base.gpt, NULL))
                        continue;
                s->ask.plans = tools[i].plans;
                assume(assumed, "plans that %s has (--plans)", tools[i].title);
        }
}

static int take_file(struct settings *s, struct rv_error_info *err)
{
        struct ask *ask = &s->ask;
        if (!s->file.tool)
                return 0;
        if (ask->model)
                s->own.model = ask->model;
        int rc = take_given(s, err);
        if (rc == 0)
                rc = launch_settle(&s->file, &s->own, ask->space.gpus.values[0], err);
        if (rc == 0)
                rc = take_words(s, err);
        if (rc == 0 && !ask->model) {
                ask->model = s->own.model;
                ask->space.base.described = s->own.described;
        }
        if (rc == 0 && !ask->space.base.batch_size && s->batch_tokens == 0 && s->own.batch_size) {
                snprintf(s->batch_text, sizeof s->batch_text, "%lld", (long long)s->own.batch_size);
                rc = ask_fix(ask, "batch-size", s->batch_text, err);
        }
        return rc;
}

static int load_model(struct ask *ask, struct rv_error_info *err)
{
        struct options *base = &ask->space.base;
        if (!ask->model)
                return rv_fail(err, RV_EINPUT,
                               "MODEL is missing: a preset's name, such as llama3-70b, or a config.json");
        return base->described ? gpt_from_json(&base->gpt, ask->model, base->described, err)
                               : gpt_load(&base->gpt, ask->model, err);
}

static int settle(struct settings *s, json_t *assumed, struct rv_error_info *err)
{
        struct ask *ask = &s->ask;
        struct machine machine;
        char text[NUMBER_TEXT];
        int rc = take_file(s, err);
        if (ask->space.micro_batch_sizes.count == 0)
                ask->space.micro_batch_sizes = (struct int_list){{1, 2, 4, 8, 16, 32, 64}, 7};
        if (rc == 0)
                rc = load_model(ask, err); /* which the batch follows from */
        if (rc == 0)
                assume_plans(s, assumed);
        if (!ask->plans)
                ask->plans = "all";
        if (rc == 0 && s->launch)
                rc = launch_check_model(s->launch, &ask->space.base.gpt, err);
        if (rc == 0)
                rc = settle_batch(s, assumed, err);
        if (rc == 0 && s->file.tool)
                resolve_own(s);
        snprintf(s->memory_text, sizeof s->memory_text, "%lldB", (long long)s->memory);
        if (rc == 0 && s->memory)
                rc = ask_fix(ask, "device-memory", s->memory_text, err);
        if (rc == 0)
                rc = ask_resolve(ask, err);
        if (rc == 0)
                rc = machine_open(&machine, ask->profile, ask->platform, ask->space.gpus.values[0],
                                  ask->fits_only, err);
        if (rc)
                return rc;
        widen(ask, &machine);
        s->gpus_per_node = machine.platform.gpus_per_node;
        machine_close(&machine);
        if (!ask->tokens_text)
                assume(assumed, "a training of %s tokens (--tokens)", number_tokens(text, report_tokens(0)));
        return 0;
}

/* ---- the work ---- */

/* The first interrupt ends the search, or the simulations if these have begun; the second one the program. */
static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
        (void)signal_number;
        interrupted = 1;
}

static void catch_interrupts(void)
{
        struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
        sigaction(SIGINT, &action, NULL);
}

struct search {
        const struct settings *settings;
        struct space space;
        struct space_groups groups;
        struct jobs jobs;
        struct progress progress;
        int begin;             /* of the jobs under way */
        bool stopped_weighing; /* by an interrupt: what was found is simulated nevertheless */
        int gpus_per_node;
        /* The plan of --from, and why it is not simulated, "". */
        struct candidate own;
        char own_failure[sizeof((struct rv_error_info *)0)->sentence];
};

static bool show_weighing(void *context, double share)
{
        struct search *s = context;
        progress_show(&s->progress, share, "weighing plans");
        return !interrupted;
}

/* Whether the user has said how gradients are added up. */
static bool sums_given(const struct ask *ask)
{
        return axes_named((struct axes *)&ask->space.axes, "gather-each")->given ||
               flag_is_given(flag_named("reduce-dtype"), &ask->space.base) ||
               flag_is_given(flag_named("gradients"), &ask->space.base);
}

/* Of plans that are to be written for another tool those that it has words for; and none whose gradients come
 * out wrong, unless that is asked for. */
static int may_be(void *context, const struct options *plan, struct rv_error_info *why)
{
        const struct search *s = context;
        const struct ask *ask = &s->settings->ask;
        if (options_sums_short(plan) && !sums_given(ask))
                return rv_fail(why, RV_EPLAN,
                               "gradients of many micro-batches would be added up in bf16 (--gather-each, "
                               "--reduce-dtype or "
                               "--gradients asks for that)");
        const int rc = ask_allows((struct ask *)ask, plan, why);
        if (rc || !s->settings->launch)
                return rc;
        return launch_can_write(plan, (int)options_ranks(plan), s->gpus_per_node, s->settings->launch, why);
}

static bool show_simulating(void *context)
{
        struct search *s = context;
        char text[64];
        int done = 0;
        for (int i = s->begin; i < s->jobs.count; i++)
                done += s->jobs.list[i].outcome.state != OUTCOME_PENDING;
        snprintf(text, sizeof text, "%d of %d plans simulated", s->begin + done, s->jobs.count);
        progress_show(&s->progress, (double)done / (s->jobs.count - s->begin), text);
        return !interrupted || s->stopped_weighing;
}

static int run_jobs(struct search *s, int processes, struct rv_error_info *err)
{
        progress_begin(&s->progress);
        const int rc = jobs_run(&s->jobs, s->begin, 1, processes, show_simulating, s, err);
        progress_end(&s->progress, NULL);
        s->begin = s->jobs.count;
        return rc;
}

static const struct job *best_job(const struct search *s)
{
        const struct job *best = NULL;
        for (int i = 0; i < s->groups.count; i++) {
                const struct job *own = search_look(&s->groups.groups[i], &s->jobs).best;
                if (own && (!best || search_order(own, best) < 0))
                        best = own;
        }
        return best;
}

static bool is_simulated(const struct jobs *jobs, const struct candidate *candidate)
{
        for (int i = 0; i < jobs->count; i++)
                if (jobs->list[i].candidate == candidate)
                        return true;
        return false;
}

static const struct candidate *best_on_paper_of(const struct space_groups *groups)
{
        const struct candidate *best = NULL;
        for (int i = 0; i < groups->count; i++) {
                const struct space_group *group = &groups->groups[i];
                if (group->count > 0 && (!best || group->candidates[0].paper_seconds < best->paper_seconds))
                        best = &group->candidates[0];
        }
        return best;
}

/* Lists the best that divides the work in another way than `best`, unless it is listed. */
static int add_next(struct search *s, const struct candidate *best, struct rv_error_info *err)
{
        const struct candidate *next = best ? answer_next(&s->groups, best) : NULL;
        return next && !is_simulated(&s->jobs, next) ? jobs_add(&s->jobs, &next, 1, err) : 0;
}

/* The best on paper of each group, on until none could beat the best, and the best that divides the work in
 * another way. */
static int simulate_best(struct search *s, int processes, struct rv_error_info *err)
{
        int found = 1, rc = 0;
        while (rc == 0 && found > 0 && (s->jobs.count == 0 || !interrupted)) {
                found = 0;
                for (int i = 0; rc >= 0 && i < s->groups.count; i++) {
                        rc = search_next(&s->space, &s->groups.groups[i], &s->jobs, 1, err);
                        found += rc;
                }
                rc = rc < 0 ? rc : 0;
                if (rc == 0 && s->begin == 0)
                        rc = add_next(s, best_on_paper_of(&s->groups), err);
                if (rc == 0 && found > 0)
                        rc = run_jobs(s, processes, err);
        }
        const struct job *best = best_job(s);
        if (rc || !best || interrupted)
                return rc;
        const int before = s->jobs.count;
        rc = add_next(s, best->candidate, err); /* if that is another one now */
        return rc || s->jobs.count == before ? rc : run_jobs(s, processes, err);
}

/* The plan of --from as it is. */
static int simulate_own(struct search *s, int processes, struct rv_error_info *err)
{
        const struct settings *given = s->settings;
        const struct machine *m = &s->groups.machines[0];
        const struct candidate *own = &s->own;
        struct options *o = &s->own.options;
        struct capacity_need need;
        struct rv_error_info why;
        if (!given->file.tool || interrupted)
                return 0;
        snprintf(s->own_failure, sizeof s->own_failure, "%s", given->own_failure);
        if (s->own_failure[0])
                return 0;
        s->own = (struct candidate){given->own, m, -1, NAN};
        int rc = machine_settle(m, o, &why);
        if (rc == 0) {
                machine_choose_logits(m, o);
                const struct capacity capacity = machine_capacity(m, o);
                rc = capacity_check(o, &capacity, &need, &why);
        }
        if (rc) {
                snprintf(s->own_failure, sizeof s->own_failure, "%.*s", (int)strcspn(why.sentence, ":"),
                         why.sentence);
                return 0;
        }
        s->own.paper_seconds = paper_batch_seconds(m, o);
        rc = jobs_add(&s->jobs, &own, 1, err);
        if (rc)
                return rc;
        s->jobs.list[s->jobs.count - 1].apart = may_be(s, o, &why) != 0;
        return run_jobs(s, processes, err);
}

/* Opens the groups for so many devices. */
static int weigh(struct search *s, int gpus, struct rv_error_info *err)
{
        const struct ask *ask = &s->settings->ask;
        s->space = ask->space;
        s->space.gpus = (struct int_list){{gpus}, 1};
        s->space.reach = 1.02;
        s->space.larger = 2;
        s->space.margin = 0;
        s->space.workers = ask_processes(ask, 1);
        s->space.tick = show_weighing;
        s->space.context = s;
        s->space.allows = may_be;
        s->space.allowing = s;
        progress_begin(&s->progress);
        const int rc = space_explore(&s->groups, &s->space, ask->profile, ask->platform, ask->fits_only, err);
        progress_end(&s->progress, NULL);
        return rc;
}

/* The best on paper for so many devices; its options are copied. INFINITY: there is none. */
static int best_on_paper(const struct settings *settings, int gpus, double *seconds, struct options *best,
                         struct rv_error_info *err)
{
        struct search s = {.settings = settings, .gpus_per_node = settings->gpus_per_node};
        const int rc = weigh(&s, gpus, err);
        *seconds = INFINITY;
        const struct candidate *plan = rc == 0 ? best_on_paper_of(&s.groups) : NULL;
        if (plan) {
                *seconds = plan->paper_seconds;
                *best = plan->options;
        }
        space_free(&s.groups);
        /* More devices than there are, or than share the batch evenly, are no error of the question. */
        return rc == RV_ESYSTEM ? rc : 0;
}

/* Days of the training with so many devices, on paper; INFINITY: no plan has them. Simulated times are taken
 * to differ from those on paper as the answer's does. */
static int days_with(const struct settings *settings, const struct plan_answer *answer, int gpus,
                     double *days, struct options *options, struct rv_error_info *err)
{
        const struct job *best = answer->answer.best;
        double seconds;
        const int rc = best_on_paper(settings, gpus, &seconds, options, err);
        *days = best->outcome.figures.training_days * seconds / best->candidate->paper_seconds;
        return rc;
}

/* How many devices would do. Whole multiples of those that were asked for come first, because what divides
 * those divides these; then fewer: as many as would if days fell as devices are added, and on by nodes. Those
 * between two multiples may go with hardly any plan (120 = 15 x 8), so that one of them that is slow says
 * nothing of the next. */
static int find_enough(const struct settings *settings, const struct plan_answer *answer,
                       struct plan_enough *enough, struct rv_error_info *err)
{
        enum { TIMES = 8 };
        const struct job *best = answer->answer.best;
        const double now = best->outcome.figures.training_days, wanted = settings->days;
        const int node = best->candidate->machine->platform.gpus_per_node;
        const int given = best->candidate->machine->gpus, times = (int)fmin(ceil(now / wanted), 1 << 20);
        struct options options;
        double days = INFINITY;
        int rc = 0;
        for (int k = times; rc == 0 && now > wanted && k < times + TIMES && k <= INT_MAX / given &&
                            !enough->gpus && !interrupted;
             k++) {
                rc = days_with(settings, answer, given * k, &days, &options, err);
                if (rc == 0 && days <= wanted)
                        *enough = (struct plan_enough){.gpus = given * k, .days = days, .options = options};
        }
        const double fewest = ceil(given * now / wanted / node) * node;
        const int end = enough->gpus ? enough->gpus : INT_MAX;
        for (int i = 0; rc == 0 && now > wanted && i < TIMES && fewest + i * node < end && !interrupted;
             i++) {
                const int gpus = (int)fewest + i * node;
                rc = days_with(settings, answer, gpus, &days, &options, err);
                if (rc == 0 && days <= wanted) {
                        *enough = (struct plan_enough){.gpus = gpus, .days = days, .options = options};
                        break;
                }
        }
        return rc;
}

/* Seconds of a batch of a plan with so many replicas on the same kind of machine, which becomes as large;
 * NAN: the plan is none, or does not fit. */
static double seconds_of_replicas(struct machine *machine, const char *platform, struct options o,
                                  int replicas)
{
        struct capacity_need need;
        struct rv_error_info why;
        o.dp = replicas;
        const int gpus = (int)options_ranks(&o);
        if (machine_resize(machine, platform, gpus, &why) || options_check(&o, gpus, &why))
                return NAN;
        const struct capacity capacity = machine_capacity(machine, &o);
        return capacity_check(&o, &capacity, &need, &why) ? NAN : paper_batch_seconds(machine, &o);
}

static void find_scales(const struct ask *ask, struct plan_answer *answer)
{
        static const int quarters[PLAN_SCALES] = {1, 2, 4, 8, 16};
        const struct job *best = answer->answer.best;
        const struct options *o = &best->candidate->options;
        struct machine machine;
        struct rv_error_info why;
        if (machine_open(&machine, ask->profile, ask->platform, best->candidate->machine->gpus,
                         ask->fits_only, &why))
                return;
        for (int i = 0; i < PLAN_SCALES && !interrupted; i++) {
                if (o->dp * quarters[i] % 4 || o->dp * (int64_t)quarters[i] / 4 > INT_MAX / 16)
                        continue;
                const int replicas = o->dp * quarters[i] / 4;
                const double paper = quarters[i] == 4
                                             ? best->candidate->paper_seconds
                                             : seconds_of_replicas(&machine, ask->platform, *o, replicas);
                if (paper > 0)
                        answer->scales[answer->scale_count++] = (struct plan_scale){
                                best->candidate->machine->gpus / o->dp * replicas,
                                best->outcome.figures.median * paper / best->candidate->paper_seconds};
        }
        machine_close(&machine);
}

/* The page has the answer, and what simulating its plans again tells. */
static int make_page(const struct settings *s, const json_t *answer, const char *command,
                     struct rv_error_info *err)
{
        static const char *const plans[] = {"best", "second", "own"};
        struct html page;
        int rc = html_begin(&page, s->html, err);
        const char *part = rc == 0 ? html_file(&page, "plan.json") : NULL;
        if (part)
                rc = file_write_json(part, answer, err);
        for (size_t i = 0; rc == 0 && part && i < sizeof plans / sizeof *plans; i++) {
                const json_t *again = json_object_get(json_object_get(answer, plans[i]), "again");
                char name[24];
                snprintf(name, sizeof name, "%s.json", plans[i]);
                if (again)
                        rc = html_simulate(&page, json_string_value(again), name,
                                           i == 0 && s->ask.space.gpus.values[0] <= HTML_RANKS, err);
        }
        return html_end(&page, command, rc, err);
}

static int show(const struct settings *s, const struct plan_answer *answer, struct rv_error_info *err)
{
        json_t *json = plan_json(answer);
        int rc = json ? 0 : rv_fail(err, RV_ESYSTEM, "no memory for the answer");
        if (rc == 0)
                launch_print(&s->file, "plan", &answer->answer.best->candidate->options, stderr);
        if (rc == 0 && s->json)
                json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        if (rc == 0 && s->json)
                putchar('\n');
        if (rc == 0 && !s->json)
                plan_print(answer, stdout);
        const struct candidate *best = answer->answer.best->candidate;
        if (rc == 0 && s->launch)
                rc = launch_write(&best->options, best->machine->gpus, best->machine->platform.gpus_per_node,
                                  s->launch, s->json ? NULL : stdout, err);
        if (rc == 0 && s->report)
                rc = file_write_json(s->report, json, err);
        if (rc == 0)
                rc = make_page(s, json, answer->command, err);
        json_decref(json);
        return rc;
}

/* Of the answer alone: an interval takes as long as a hundred plans on paper. */
static void find_interval(struct jobs *jobs, const struct job *best)
{
        struct job *job = &jobs->list[best - jobs->list];
        const struct interval interval =
                interval_of(job->candidate->machine, &job->candidate->options, job->outcome.figures.median);
        job->outcome.figures.low = interval.known ? interval.low_seconds : 0;
        job->outcome.figures.high = interval.known ? interval.high_seconds : 0;
}

/* What goes wrong in all simulations is an error; in some of them, the others answer. */
static int check_best(const struct plan_answer *answer, struct rv_error_info *err)
{
        if (answer->answer.best)
                return 0;
        for (int i = 0; i < answer->jobs->count; i++)
                if (answer->jobs->list[i].outcome.state == OUTCOME_FAILED)
                        return rv_fail(err, RV_ESYSTEM, "no simulation succeeded: %s",
                                       answer->jobs->list[i].outcome.failure);
        return rv_fail(err, RV_ESYSTEM, "interrupted before a plan was simulated");
}

static int plan(const struct settings *settings, const json_t *assumed, const char *command,
                struct rv_error_info *err)
{
        const struct ask *ask = &settings->ask;
        const int processes = ask_processes(ask, 1);
        struct search s = {.settings = settings, .gpus_per_node = settings->gpus_per_node};
        const double started = progress_clock();
        int rc = weigh(&s, ask->space.gpus.values[0], err);
        struct plan_answer answer = {.ask = ask,
                                     .command = command,
                                     .assumed = assumed,
                                     .days_wanted = settings->days,
                                     .price_per_gpu_hour = settings->price,
                                     .groups = &s.groups,
                                     .jobs = &s.jobs,
                                     .search = {progress_clock() - started,
                                                processes < SPACE_WORKERS ? processes : SPACE_WORKERS,
                                                false}};
        s.stopped_weighing = s.groups.stopped;
        s.jobs.tokens = report_tokens(ask->tokens);
        s.jobs.checkpoints = ask->checkpoints;
        if (rc == 0 && s.groups.stopped && !best_on_paper_of(&s.groups))
                rc = rv_fail(err, RV_ESYSTEM, "interrupted before a plan was found that fits");
        if (rc == 0)
                rc = search_check(&s.groups, err);
        if (rc == 0)
                rc = simulate_best(&s, processes, err);
        if (rc == 0)
                rc = simulate_own(&s, processes, err);
        if (settings->file.tool) {
                answer.file = &settings->file;
                answer.own_failure = s.own_failure;
                for (int i = 0; i < s.jobs.count; i++)
                        if (s.jobs.list[i].candidate == &s.own &&
                            s.jobs.list[i].outcome.state == OUTCOME_DONE)
                                answer.own = &s.jobs.list[i];
        }
        if (rc == 0)
                rc = answer_find(&answer.answer, &s.groups, &s.jobs, s.space.recompute, processes, err);
        if (rc == 0)
                rc = check_best(&answer, err);
        if (rc == 0)
                find_interval(&s.jobs, answer.answer.best);
        if (rc == 0 && settings->days > 0 &&
            answer.answer.best->outcome.figures.training_days > settings->days)
                rc = find_enough(settings, &answer, &answer.enough, err);
        if (rc == 0)
                find_scales(ask, &answer);
        answer.search.stopped = interrupted;
        if (rc == 0)
                rc = show(settings, &answer, err);
        free(s.jobs.list);
        space_free(&s.groups);
        return rc;
}

int plan_main(int argc, char **argv)
{
        struct argp_option options[SETTINGS + 1];
        settings_options(option_rows, options, ASK_GROUPS + 1);
        const struct argp_child children[] = {{ask_argp(), 0, NULL, 0}, {0}};
        const struct argp argp = {options, parse_option, "[MODEL]", documentation, children, NULL, NULL};
        struct settings s = {.days = 0};
        struct rv_error_info err = {.code = RV_OK};
        char *command = command_line_text(argv[0], argc, argv);
        json_t *assumed = json_array();
        ask_init(&s.ask);
        options_init(&s.own);
        int rc = command && assumed ? launch_open(&s.file, argc, argv, true, &s.own, &err)
                                    : rv_fail(&err, RV_ESYSTEM, "no memory for the command line");
        if (rc == 0)
                rc = command_line_parse(&argp, argc, argv, &s, false, &err);
        if (rc == 0 && !s.ask.space.gpus.count && s.file.gpus)
                s.ask.space.gpus = (struct int_list){{s.file.gpus}, 1};
        if (rc == 0)
                rc = check_settings(&s, &err);
        if (rc == 0)
                rc = ask_machine(&s.ask, &err);
        if (rc == 0)
                rc = settle(&s, assumed, &err);
        if (rc == 0) {
                catch_interrupts();
                rc = plan(&s, assumed, command, &err);
        }
        ask_free(&s.ask);
        framework_free(&s.own_framework);
        launch_close(&s.file);
        json_decref(assumed);
        free(command);
        return command_line_end("plan", rc, &err);
}
