/* `ranvier simulate`: a training run, predicted. */
#include "sim/world/simulate.h"

#include "runtime/base/command_line.h"

#include "runtime/base/parse.h"
#include "runtime/base/setting.h"

#include "runtime/base/file.h"
#include "runtime/base/number.h"
#include "runtime/launch/launch.h"
#include "runtime/report/html.h"
#include "runtime/plan/framework.h"
#include "runtime/plan/grid.h"
#include "sim/world/checkpoints.h"
#include "sim/world/interval.h"
#include "sim/world/kinds.h"
#include "sim/world/named_machine.h"
#include "sim/world/paper_batch.h"
#include "sim/world/predict.h"
#include "sim/world/replay.h"
#include "sim/world/tensor.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The command line. */
struct settings {
        struct options plan;
        const char *machine, *profile, *platform, *platform_xml, *replay;
        struct named_machine named; /* of --machine; profile and platform may point into it */
        int gpus, batches, replay_batch;
        double tokens;                    /* of the whole training; 0: not given */
        double net_link_bytes_per_second; /* 0: not given */
        bool fits_only, ignore_memory, no_graphs;
        struct checkpoints_asked checkpoints;
        enum fold fold;
        struct framework framework; /* of plan.like */
        struct launch from;         /* what the file of --from says */
        const char *launch, *html;
        bool json;
        struct html page;
};

/* What the command works with; each part is freed by forget(). */
struct simulation {
        struct settings *settings;
        struct machine machine;
        struct replay replay;
        struct prediction prediction;
        struct capacity capacity;
        struct capacity_need need; /* of the rank that is furthest beyond it, or needs most */
        bool fits;
        int64_t decisions, identical; /* of a replay */
        struct interval interval;     /* of a prediction */
        struct checkpoints kept;      /* likewise, if it was asked for */
        json_t *remarks;              /* likewise; NULL: none */
        char caveat[MACHINE_CAVEAT];  /* likewise; "": none */
};

/* ---- the command line ---- */

static int parse_fold(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        return fold_parse(option, text, at, err);
}

#define AT(member) .offset = offsetof(struct settings, member)

/* clang-format off */
static const struct setting option_rows[] = {
        {SETTING_HEADING, .help = "The machine:"},
        {SETTING_TEXT, "machine", .argument = "NAME", AT(machine), .help = NAMED_MACHINE_HELP, .words = &named_machine_words},
        {SETTING_PATH, "profile", .argument = "PROFILE", AT(profile), .words = &profile_words,
         .help = "What kernels take: a file of ranvier calibrate, or a preset such as a100-datasheet; several between "
                 "commas where a platform has several kinds of GPUs (required, or --machine)"},
        {SETTING_PATH, "platform", .argument = "PLATFORM", AT(platform), .words = &platform_words,
         .help = "The cluster: local (where the profile was measured), a preset such as summit, a platform JSON or a "
                 "SimGrid XML file (required, or --machine)"},
        {SETTING_INT, "gpus", .argument = "N", AT(gpus), .min = 1, .max = 1048576,
         .help = "How many devices: P x D x T of the plan (required; with --machine NxNAME N if not given)"},
        {SETTING_RATE, "net-link", .argument = "RATE", AT(net_link_bytes_per_second),
         .help = "With --platform local: every rank has a link of this rate, such as 1GB/s, without latency, as in "
                 "ranvier train --net-link"},
        {SETTING_HEADING, .help = "The prediction:"},
        {SETTING_INT, "batches", .argument = "K", AT(batches), .min = 1, .max = 1000000,
         .help = "Batches to simulate (default 1)"},
        {SETTING_TOKENS, "tokens", .argument = "T", AT(tokens),
         .help = "Tokens of the whole training, such as 300B, for its days (default: 300B, and below a billion "
                 "parameters no days)"},
        {SETTING_REAL, "routing-exponent", .argument = "S", AT(plan.routing.exponent), .low = 0, .high = 10,
         .help = "Of a mixture of experts: the i-th most popular expert of a layer gets tokens in proportion to i^-S "
                 "(default 0: all alike), which ones being drawn layer by layer; ranks wait for the one that has most"},
        {SETTING_INT, "routing-seed", .argument = "N", AT(plan.routing.seed), .min = 0, .max = INT_MAX,
         .help = "Draw other experts to be popular (default 0)"},
        {SETTING_OWN, "checkpoint-every", .argument = "N|TIME", AT(checkpoints), .parse = checkpoints_parse_every,
         .help = "Say what checkpoints cost that ranvier train --checkpoint-every keeps every N batches, or so often (10min). A trace has one batch more then, beside which it is written"},
        {SETTING_RATE, "file-rate", .argument = "RATE", AT(checkpoints.file_rate),
         .help = "With --checkpoint-every: what each node writes to files, such as 2GB/s (default on the local platform: "
                 "as ranvier calibrate measured beside the profile)"},
        {SETTING_OWN, "mtbf", .argument = "TIME", AT(checkpoints), .parse = checkpoints_parse_mtbf,
         .help = "With --checkpoint-every: the mean time between failures of the whole training, such as 3h: say what "
                 "failures undo, and how often checkpoints had better be kept (Young, Daly)"},
        {SETTING_SET, "fits-only", AT(fits_only),
         .help = "Price kernels, and messages on the local platform, by the profile's fits even where they were "
                 "measured"},
        {SETTING_SET, "ignore-memory", AT(ignore_memory),
         .help = "Predict a plan that does not fit the devices' memory too"},
        {SETTING_CLEAR, "cuda-graphs", .argument = "WHEN", AT(no_graphs),
         .help = "Whether a stage's forward and backward are handed to a GPU as graphs: on, the default, or off. Where "
                 "the profile has measured launches, no operation takes less than those of its kernels"},
        {SETTING_OWN, "fold", .argument = "WHEN", AT(fold), .parse = parse_fold, .words = &fold_words,
         .help = "Simulate one replica for all: auto, the default, where the platform makes them equal and no trace "
                 "is asked for; on, or an error says why not; off"},
        {SETTING_PATH, "platform-xml", .argument = "FILE", AT(platform_xml),
         .help = "Write the platform as SimGrid XML"},
        {SETTING_SET, "json", AT(json), .help = "Print the report as JSON"},
        {SETTING_PATH, "html", .argument = "FILE.html", AT(html),
         .help = "Write one page of HTML, too: figures, tables, sources (ranvier report); with a timeline, if there are 16 GPUs at most or --trace is given"},
        {SETTING_PATH, "launch", .argument = "TOOL=FILE,...", AT(launch),
         .help = "Write the plan as another tool takes it: megatron (a script of bash), torchtitan (TOML), deepspeed (JSON), "
                 "ranvier (a line of mpirun), and with one of these slurm, a job that starts it (docs/launch.md)"},
        {SETTING_PATH, "replay", .argument = "TRACE", AT(replay),
         .help = "Take every duration from the trace of a real run instead of --profile and --platform, and check that "
                 "the same decisions follow. The plan is to be the run's: --device and --fusion too, which memory is "
                 "counted by; --messages and --allreduce are what the trace has"},
        {SETTING_INT, "replay-batch", .argument = "K", AT(replay_batch), .min = 0, .max = INT32_MAX,
         .help = "Which batch of the trace (default: its last)"},
        {.help = NULL},
};
/* clang-format on */

static error_t parse_option(int key, char *text, struct argp_state *state)
{
        struct settings *s = state->input;
        if (key == ARGP_KEY_INIT) {
                state->child_inputs[0] = &s->plan;
                return 0;
        }
        return settings_take(option_rows, s, key, text, command_line_error(state));
}

static const char documentation[] =
        "Predicts a training run: the same scheduler as ranvier train, driven by SimGrid instead of "
        "devices.\v"
        "Llama 3 8B on one node of H100, and 70B on 64 of them:\n"
        "  ranvier simulate llama3-8b --machine 8xh100 --tp 2 --dp 4 \\\n"
        "      --zero 1 --micro-batch-size 1 --batch-size 64\n"
        "  ranvier simulate llama3-70b --machine h100 --gpus 512 --tp 8 --pp 4 --dp 16 \\\n"
        "      --zero 1 --micro-batch-size 1 --batch-size 256\n"
        "GPT 12B on 48 GPUs, without having one:\n"
        "  ranvier simulate gpt-12b --profile a100-datasheet \\\n"
        "      --platform generic --gpus 48 --pp 12 --dp 4 \\\n"
        "      --micro-batch-size 1 --batch-size 256\n";

static int check_files(const struct settings *s, struct rv_error_info *err)
{
        const struct file_use uses[] = {{"MODEL", s->plan.model, false},
                                        {"--profile", s->profile, false},
                                        {"--platform", s->platform, false},
                                        {"--replay", s->replay, false},
                                        {"--report", s->plan.report, true},
                                        {"--trace", s->plan.trace, true},
                                        {"--platform-xml", s->platform_xml, true},
                                        {"--html", s->html, true},
                                        {"--from", s->from.path[0] ? s->from.path : NULL, false}};
        const int count = sizeof uses / sizeof *uses;
        int rc = html_check(s->html, err);
        if (rc == 0)
                rc = file_check_uses(uses, count, err);
        return rc ? rc : launch_check(s->launch, uses, count, err);
}

/* A trace has its own durations: what would say others is refused rather than passed over. */
static int check_replay(const struct settings *s, struct rv_error_info *err)
{
        const struct {
                const char *name;
                bool given;
        } others[] = {{"--machine", s->machine},
                      {"--profile", s->profile},
                      {"--platform", s->platform},
                      {"--platform-xml", s->platform_xml},
                      {"--net-link", s->net_link_bytes_per_second > 0},
                      {"--checkpoint-every", s->checkpoints.text},
                      {"--fits-only", s->fits_only},
                      {"--ignore-memory", s->ignore_memory},
                      {"--cuda-graphs off", s->no_graphs},
                      {"--like", s->plan.like},
                      {"--fold", s->fold == FOLD_ON},
                      {"--device-memory", s->plan.memory[MEMORY_DEVICE]},
                      {"--host-memory", s->plan.memory[MEMORY_HOST]}};
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
                if (others[i].given)
                        return rv_fail(err, RV_EINPUT,
                                       "--replay takes every duration from its trace; %s has no use with it",
                                       others[i].name);
        if (s->batches != 1)
                return rv_fail(err, RV_EINPUT, "--replay replays one batch; --batches %d has no use with it",
                               s->batches);
        return 0;
}

/* What --machine says of profile, platform and --gpus. With a replay it is refused before it is looked at. */
static int take_machine(struct settings *s, struct rv_error_info *err)
{
        if (s->replay)
                return 0;
        int rc = named_machine_take(&s->named, s->machine, &s->profile, &s->platform, err);
        if (rc == 0 && !s->gpus)
                s->gpus = s->named.gpus;
        return rc;
}

/* What needs no file, in the order in which a user would mend it. */
static int check_settings(struct settings *s, struct rv_error_info *err)
{
        char text[GRID_TEXT];
        struct options *o = &s->plan;
        options_fill_ranks(o, s->gpus);
        const int64_t grid = options_ranks(o);
        if (!s->gpus)
                return rv_fail(err, RV_EINPUT, "--gpus is missing: how many devices, P x D x T of the plan");
        if (!s->profile && !s->replay)
                return rv_fail(
                        err, RV_EINPUT,
                        "--profile is missing: a file that ranvier calibrate wrote, or a preset such as "
                        "a100-datasheet; or name it and the platform by --machine");
        if (!s->platform && !s->replay)
                return rv_fail(
                        err, RV_EINPUT,
                        "--platform is missing: local, a preset such as generic, or a file; or name it "
                        "and the profile by --machine");
        if (s->replay && check_replay(s, err))
                return err->code;
        if (checkpoints_check(&s->checkpoints, err))
                return err->code;
        if (named_machine_check(&s->named, s->gpus, err))
                return err->code;
        if (s->net_link_bytes_per_second > 0 && s->platform && strcmp(s->platform, "local") != 0)
                return rv_fail(
                        err, RV_EINPUT,
                        "--net-link is the network of a run on one machine: --platform local, not %.160s, "
                        "whose links its file has",
                        s->platform);
        if (s->replay_batch >= 0 && !s->replay)
                return rv_fail(err, RV_EINPUT,
                               "--replay-batch chooses a batch of a trace: --replay TRACE is missing");
        if (grid != s->gpus && o->model && o->batch_size &&
            o->micro_batch_size) /* what is missing comes first */
                return rv_fail(err, RV_EPLAN, "%s needs %lld device%s, but --gpus is %d",
                               options_grid(text, o, "--", " x "), (long long)grid, rv_plural(grid), s->gpus);
        return check_files(s, err);
}

/* ---- the inputs ---- */

/* Says what does not fit, and which changes would, with what they cost by estimate. */
static void explain_need(struct simulation *s)
{
        const struct options *o = &s->settings->plan;
        struct capacity_change changes[CAPACITY_CHANGES];
        char basis[192];
        snprintf(basis, sizeof basis, "estimated from %.80s on %.64s, not simulated", s->settings->profile,
                 s->machine.platform.name);
        int count = capacity_changes(o, &s->capacity, paper_batch_of, &s->machine, changes);
        capacity_print(stderr, o, &s->capacity, &s->need, changes, count, paper_batch_seconds(&s->machine, o),
                       basis);
        fprintf(stderr, "--ignore-memory predicts the plan all the same\n");
}

static int check_capacity(struct simulation *s, struct rv_error_info *err)
{
        const struct options *o = &s->settings->plan;
        s->capacity = machine_capacity(&s->machine, o);
        int rc = capacity_check(o, &s->capacity, &s->need, err);
        s->fits = rc == 0;
        if (s->fits || s->settings->ignore_memory)
                return 0;
        explain_need(s);
        return rc;
}

/* `plan` is that of the settings, which the machine, or the trace, has a say in. */
static int load_inputs(struct simulation *s, struct options *plan, struct rv_error_info *err)
{
        const struct settings *given = s->settings;
        if (given->replay) {
                s->fits = true;
                int rc = replay_open(&s->replay, given->replay, given->replay_batch, given->gpus, err);
                if (rc == 0)
                        rc = replay_settle(&s->replay, given->replay, plan, err);
                return rc ? rc : predict_open(&s->prediction, plan, NULL, err);
        }
        int rc = machine_open(&s->machine, given->profile, given->platform, given->gpus, given->fits_only,
                              err);
        s->machine.no_graphs = given->no_graphs;
        s->machine.fold = given->fold;
        if (rc == 0 && given->net_link_bytes_per_second > 0)
                platform_pace(&s->machine.platform, given->net_link_bytes_per_second);
        if (rc == 0)
                rc = machine_settle(&s->machine, plan, err);
        if (rc == 0)
                machine_choose_logits(&s->machine, plan);
        if (rc == 0)
                rc = predict_open(&s->prediction, plan, &s->machine, err);
        if (rc == 0 && given->checkpoints.text)
                rc = predict_save(&s->prediction, given->checkpoints.file_rate, err);
        return rc ? rc : check_capacity(s, err);
}

static int write_platform(const struct simulation *s, struct rv_error_info *err)
{
        const struct platform *platform = &s->prediction.costs.platform;
        struct file_writer writer;
        if (!s->settings->platform_xml)
                return 0;
        if (platform->xml[0])
                return rv_fail(err, RV_EINPUT, "--platform-xml: %s is SimGrid XML already", platform->path);
        int rc = file_writer_open(&writer, s->settings->platform_xml, err);
        if (rc)
                return rc;
        rc = platform_write_xml(platform, s->settings->gpus, writer.stream, err);
        if (rc) {
                file_writer_abandon(&writer);
                return rc;
        }
        return file_writer_commit(&writer, err);
}

/* ---- the run ---- */

static int run_replay(struct simulation *s, struct rv_error_info *err)
{
        struct sim_physics physics = replay_physics(&s->replay, &s->settings->plan);
        double *starts = calloc((size_t)s->settings->gpus, sizeof *starts);
        if (!starts)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d ranks", s->settings->gpus);
        for (int i = 0; i < s->settings->gpus; i++)
                starts[i] = replay_start(&s->replay, i);
        int rc = predict_run(&s->prediction, &physics, starts, 1, true, err);
        free(starts);
        return rc;
}

static int run(struct simulation *s, struct rv_error_info *err)
{
        if (s->settings->replay)
                return run_replay(s, err);
        s->prediction.shows = true;
        const int rc =
                predict_run(&s->prediction, NULL, NULL, s->settings->batches, s->settings->plan.trace, err);
        if (rc == 0 && s->settings->checkpoints.text)
                s->kept = checkpoints_of(&s->prediction, &s->settings->checkpoints);
        return rc;
}

/* ---- the results ---- */

static void print_kernels(const struct simulation *s)
{
        const struct price_list *prices = &s->prediction.costs.prices;
        const struct machine *m = &s->machine;
        const int fitted = prices->count - prices->from_points - prices->from_tables;
        if (m->fits_only)
                printf("kernels    all %d shapes fitted, as --fits-only asks", prices->count);
        else if (m->profile.measured)
                printf("kernels    %d of %d shapes measured while %d rank%s of a node worked",
                       prices->from_points, prices->count, m->load->ranks, rv_plural(m->load->ranks));
        else
                printf("kernels    %d of %d shapes by tables of measured ones", prices->from_tables,
                       prices->count);
        if (fitted && !m->fits_only)
                printf("; the others %s", m->profile.measured ? "fitted" : "from datasheet constants");
        if (fitted && m->profile.measured)
                printf(" (median error up to %.1f %%)", 100 * prices->worst_fit_error);
        printf("\n");
}

static void print_gathered(const struct simulation *s)
{
        const struct phases *p = &s->prediction.phases;
        const double passes = p->pipeline_seconds * (1 - p->bubble_fraction);
        const struct plan plan = options_plan(&s->settings->plan, false);
        const bool line = !isnan(tensor_line_seconds(
                &s->machine.platform, plan_group(&plan, 0, plan_unit_group(&plan)), s->machine.load, 0));
        if (plan.zero == 2)
                printf("zero 2     layers are reduced %s; %.1f %% of the time of a micro-batch waits for "
                       "that\n",
                       line ? "by the profile's line layer_gather" : "as flows",
                       passes > 0 ? 100 * p->gathered_seconds / passes : 0);
        if (plan.zero == 3)
                printf("zero 3     layers are gathered and reduced %s, %d ahead; %.1f %% of the time of a "
                       "micro-batch waits for that\n",
                       line ? "by the profile's line layer_gather" : "as flows", plan.prefetch,
                       passes > 0 ? 100 * p->gathered_seconds / passes : 0);
}

/* The all-reduces of gradients that were measured; NULL: none. */
static const struct profile_load *measured_allreduces(const struct simulation *s)
{
        return s->machine.platform.allreduces[s->settings->plan.dtype];
}

static void print_messages(const struct simulation *s)
{
        const struct line_fit *line = &s->machine.platform.messages->lines[LINE_MESSAGE].fit;
        const struct profile_load *allreduces = measured_allreduces(s);
        if (s->machine.fits_only)
                printf("messages   by the line over %d measured sizes (%.1f %% in the median)",
                       line->quality.points, 100 * line->quality.median_error);
        else
                printf("messages   %d sizes measured (a line over them errs by %.1f %% in the median)",
                       line->quality.points, 100 * line->quality.median_error);
        if (allreduces) {
                static const char *const formats[DTYPES] = {"", " of fp16", " of bf16"};
                const enum dtype dtype = s->settings->plan.dtype;
                line = &allreduces->lines[profile_allreduce_line(dtype)].fit;
                printf("; all-reduces%s %d sizes between %d ranks (%.1f %%)", formats[dtype],
                       line->quality.points, allreduces->ranks, 100 * line->quality.median_error);
        }
        printf("\n");
}

static void print_copies(const struct simulation *s)
{
        const struct options *o = &s->settings->plan;
        const struct plan plan = options_plan(o, false);
        const bool staged = plan.stage_messages || plan.stage_allreduce || plan.stage_shards;
        if (s->machine.platform.xml[0] || !(plan_buffers_updates(&plan) || o->offload_activations || staged))
                return;
        if (!s->machine.local)
                printf("copies     flows over the host links and each socket's memory\n");
        else if (!s->machine.profile.measured)
                printf("copies     from datasheet constants\n");
        else
                printf("copies     %s%s\n",
                       o->offload ? "fetch, update and write back measured while all three ran"
                       : s->machine.load->lines[LINE_COPY_BOTH].fit.present
                               ? "measured in each direction alone and in both at once"
                               : "measured alone",
                       s->settings->fits_only ? "; by the lines through what was measured" : "");
}

/* The device that was measured, if the profile knows more of it than its name. */
static void print_device(const struct profile *profile)
{
        const struct profile_device *device = &profile->device;
        const struct profile_load *load = &profile->loads[0];
        char date[16], launch[NUMBER_TEXT], graph[NUMBER_TEXT];
        if (!device->driver[0])
                return;
        printf("device     kernel times of %s, driver %s, measured %s\n", device->name, device->driver,
               profile_date(profile, date)[0] ? date : "on a day that is not known");
        if (load->launch.host_seconds > 0)
                printf("launches   %s a kernel on the host, in a graph %s\n",
                       number_seconds(launch, load->launch.host_seconds),
                       number_seconds(graph, load->graph.host_seconds));
        const char *attention = json_string_value(json_object_get(profile->machine, "attention"));
        if (attention)
                printf("attention  by %s, where it does the shape: train with --attention auto\n", attention);
        if (profile->products)
                printf("products   by algorithms that were timed: train with --products %s\n", profile->path);
}

/* How far to trust it: the standard error of the batch, and what it comes from. */
static void print_interval(const struct interval *interval)
{
        if (!interval->known) {
                printf("error      not known, so no interval: %s\n", interval->unknown);
                return;
        }
        printf("error      %.2f %% standard:", 100 * interval->all);
        for (int part = 0; part < INTERVAL_PARTS; part++)
                printf("%s %s %.2f %%", part ? "," : "", interval_part_name((enum interval_part)part),
                       100 * interval->relative[part]);
        printf("%s\n", interval->links_exact ? "; links are taken as the platform states them" : "");
}

/* What one stands for, and why others are all simulated. */
static void print_folds(const struct prediction *p)
{
        const struct options *o = p->options;
        if (p->folds.replicas)
                printf("folded     %d replicas%s as 1\n", options_replicas(o),
                       o->cp > 1 ? ", parts of sequences counted," : "");
        else if (p->not_folded)
                printf("folded     no: %s\n", p->not_folded);
        if (p->folds.shards)
                printf("folded     %d shards as 1\n", o->tp);
        else if (p->shards_not_folded)
                printf("folded     not the shards: %s\n", p->shards_not_folded);
}

/* What the plan has from the framework that it is like. */
static void print_framework(const struct simulation *s)
{
        const struct framework *f = s->settings->plan.framework;
        char taken[FRAMEWORK_TEXT], left[FRAMEWORK_TEXT];
        if (!f)
                return;
        framework_write_flags(&s->settings->plan, false, taken, sizeof taken);
        framework_write_flags(&s->settings->plan, true, left, sizeof left);
        printf("like       %s: %s\n", f->name, json_string_value(json_object_get(f->document, "title")));
        if (taken[0])
                printf("           its flags %s\n", taken);
        if (left[0])
                printf("           not its flags %s, which were given otherwise or do not go with the plan\n",
                       left);
        framework_write_terms(f, true, taken, sizeof taken);
        framework_write_terms(f, false, left, sizeof left);
        if (taken[0])
                printf("           its terms %s%s%s\n", taken, left[0] ? "; left out " : "", left);
}

/* What the prediction rests on, for those who want to know how far to trust it. */
static void print_basis(const struct simulation *s)
{
        const struct machine *m = &s->machine;
        printf("profile    %s: %s%s\n", m->profile.path, profile_caution(&m->profile), m->profile.source);
        print_device(&m->profile);
        print_framework(s);
        print_kernels(s);
        for (int kind = 1; kind < m->kinds; kind++)
                printf("           %s for the %s: %s\n", machine_profile(m, kind)->path,
                       m->platform.groups[kind].gpu, machine_profile(m, kind)->source);
        print_gathered(s);
        printf("platform   %s: %s\n", m->platform.name, m->platform.source);
        if (m->platform.measured_collectives.count)
                printf("           collectives as measured: %s\n", m->platform.measured_collectives.source);
        if (m->platform.messages)
                print_messages(s);
        print_copies(s);
        print_folds(&s->prediction);
        print_interval(&s->interval);
}

/* All-reduces of a group that is not as large as the one that was measured. */
static void allreduce_note(const struct simulation *s, char *text, size_t text_size)
{
        const struct profile_load *measured = measured_allreduces(s);
        int dp = options_replicas(&s->settings->plan);
        text[0] = 0;
        if (dp > 1 && measured && dp != measured->ranks)
                snprintf(text, text_size,
                         "no all-reduce between %d ranks was measured: they are predicted from those between "
                         "%d",
                         dp, measured->ranks);
}

/* Of a plan that is predicted although it does not fit. */
static void print_shortage(const struct simulation *s)
{
        const struct capacity_need *need = &s->need;
        char needs[NUMBER_TEXT], has[NUMBER_TEXT];
        printf("WARNING    rank %d needs %s of %s memory and has %s: does not fit\n", need->rank,
               number_bytes(needs, (double)capacity_needs(need)),
               need->shared ? "device and host" : memory_space_name(need->space),
               number_bytes(has, (double)capacity_has(&s->capacity, need)));
}

static void print_notes(const struct simulation *s)
{
        const char *platform_note = s->machine.platform.note;
        char note[160];
        allreduce_note(s, note, sizeof note);
        if (platform_note[0])
                printf("note       %s\n", platform_note);
        if (note[0])
                printf("note       %s\n", note);
        if (!s->fits)
                print_shortage(s);
}

/* What a simulated report has beside a real one's members. */
static json_t *extra_json(const struct simulation *s)
{
        const struct price_list *prices = &s->prediction.costs.prices;
        const struct machine *m = &s->machine;
        const struct platform *platform = &s->prediction.costs.platform;
        json_t *notes = json_array(), *extra = json_object();
        char note[160];
        json_array_extend(notes, s->remarks);
        if (s->caveat[0])
                json_array_append_new(notes, json_string(s->caveat));
        allreduce_note(s, note, sizeof note);
        if (platform->note[0])
                json_array_append_new(notes, json_string(platform->note));
        if (note[0])
                json_array_append_new(notes, json_string(note));
        if (m->fits_only)
                json_array_append_new(
                        notes, json_string("--fits-only: kernels, and messages on the local platform, are "
                                           "priced by fits even where they were measured"));
        json_object_set_new(extra, "simulation",
                            json_pack("{s:I, s:i, s:i, s:s?}", "operations",
                                      (json_int_t)s->prediction.world.operations, "folded_replicas",
                                      s->prediction.folds.replicas ? options_replicas(&s->settings->plan) : 1,
                                      "folded_shards", s->prediction.folds.shards ? s->settings->plan.tp : 1,
                                      "not_folded", s->prediction.not_folded));
        if (s->settings->replay)
                json_object_set_new(extra, "replay",
                                    json_pack("{s:s, s:i, s:I, s:I}", "trace", s->settings->replay, "batch",
                                              s->replay.batch, "decisions", (json_int_t)s->decisions,
                                              "identical", (json_int_t)s->identical));
        else
                json_object_set_new(
                        extra, "profile",
                        json_pack("{s:s, s:s, s:b, s:i, s:i, s:i, s:i, s:b, s:O?}", "path", m->profile.path,
                                  "source", m->profile.source, "measured", m->profile.measured, "load_ranks",
                                  m->load->ranks, "kernels_from_points", prices->from_points,
                                  "kernels_from_tables", prices->from_tables, "kernels_from_fits",
                                  prices->count - prices->from_points - prices->from_tables, "fits_only",
                                  m->fits_only, "threads", json_object_get(m->profile.machine, "threads")));
        json_object_set_new(extra, "platform",
                            json_pack("{s:s, s:s, s:s}", "name", platform->name, "path", platform->path,
                                      "source", platform->source));
        if (s->capacity.bytes[MEMORY_DEVICE])
                json_object_set_new(
                        extra, "capacity",
                        json_pack("{s:I}", "device_bytes", (json_int_t)s->capacity.bytes[MEMORY_DEVICE]));
        json_object_set_new(extra, "notes", notes);
        if (s->settings->checkpoints.text)
                json_object_set_new(extra, "checkpoints", checkpoints_json(&s->kept));
        if (s->settings->from.tool)
                json_object_set_new(extra, "from", launch_json(&s->settings->from));
        if (s->settings->plan.framework)
                json_object_set_new(extra, "framework", framework_json(&s->settings->plan));
        return extra;
}

static void find_interval(struct simulation *s, struct report *report)
{
        double *batches = s->prediction.batch_seconds;
        s->interval =
                interval_of(&s->machine, &s->settings->plan, quantile(batches, s->prediction.batches, 0.5));
        if (!s->interval.known)
                return;
        report->low_seconds = s->interval.low_seconds;
        report->high_seconds = s->interval.high_seconds;
}

static void print_report(struct simulation *s, const struct report *report)
{
        report_print(report, stdout);
        if (s->settings->checkpoints.text)
                checkpoints_print(&s->kept);
        if (!s->settings->replay)
                print_basis(s);
        print_notes(s);
}

static int write_trace(const struct simulation *s, struct rv_error_info *err)
{
        const struct options *o = &s->settings->plan;
        const struct plan layout = options_plan(o, false);
        const bool priced = !s->settings->replay;
        json_t *kernels = priced ? kinds_json(&s->prediction.costs, err) : NULL;
        if (priced && !kernels)
                return err->code;
        json_t *plan = report_plan_json(o);
        int rc = trace_write(&s->prediction.trace, o->trace,
                             &(struct trace_origin){.world = "simulated",
                                                    .layout = &layout,
                                                    .model = o->gpt.name,
                                                    .machine = priced ? s->machine.platform.name : NULL,
                                                    .plan = plan,
                                                    .kernels = kernels},
                             err);
        json_decref(plan);
        json_decref(kernels);
        return rc;
}

static int show(struct simulation *s, const char *command, struct rv_error_info *err)
{
        const struct options *o = &s->settings->plan;
        const struct trace *trace = &s->prediction.trace;
        int rc = o->trace ? write_trace(s, err) : 0;
        if (rc) /* a replay that went another way has its trace written: it shows where */
                return rc;
        if (s->settings->replay) {
                rc = replay_compare(&s->replay, trace, &s->decisions, &s->identical, err);
                if (!s->settings->json && (rc == 0 || err->code == RV_ESYSTEM))
                        printf("decisions: %lld of %lld identical on %d rank%s\n", (long long)s->identical,
                               (long long)s->decisions, s->settings->gpus, rv_plural(s->settings->gpus));
                if (rc)
                        return rc;
        }
        if (!s->settings->replay) {
                s->remarks = machine_remarks(&s->machine, o);
                const struct price_list *prices = &s->prediction.costs.prices;
                machine_caveat(&s->machine, prices->from_points + prices->from_tables, prices->count,
                               s->caveat);
        }
        json_t *extra = extra_json(s);
        struct report report =
                predict_report(&s->prediction, command, report_tokens(s->settings->tokens), extra);
        report.caveat = s->caveat;
        report.remarks = s->remarks;
        report.days_wanted = report_days_wanted(&s->settings->plan.gpt, s->settings->tokens);
        if (!s->settings->replay)
                find_interval(s, &report);
        launch_print(&s->settings->from, "simulate", o, stderr);
        if (s->settings->json)
                rc = report_print_json(&report, err);
        else
                print_report(s, &report);
        if (rc == 0 && s->settings->launch)
                rc = launch_write(o, s->settings->gpus, s->machine.platform.gpus_per_node,
                                  s->settings->launch, s->settings->json ? NULL : stdout, err);
        if (rc == 0 && o->report)
                rc = report_write(&report, o->report, err);
        const char *part = html_file(&s->settings->page, "prediction.json");
        if (rc == 0 && part)
                rc = report_write(&report, part, err);
        json_decref(extra);
        return rc;
}

static void forget(struct simulation *s)
{
        json_decref(s->remarks);
        predict_close(&s->prediction);
        replay_close(&s->replay);
        machine_close(&s->machine);
}

/* To the page: the trace that the user wants, or, of few GPUs, one that is made for it. */
static void add_timeline(struct settings *s)
{
        if (s->plan.trace)
                html_add(&s->page, s->plan.trace);
        else if (!s->replay && s->gpus <= HTML_RANKS)
                s->plan.trace = html_file(&s->page, "timeline.json");
}

static int simulate(struct settings *settings, const char *command, struct rv_error_info *err)
{
        struct simulation s = {.settings = settings};
        int rc = html_begin(&settings->page, settings->html, err);
        if (rc == 0)
                add_timeline(settings);
        if (rc == 0)
                rc = load_inputs(&s, &settings->plan, err);
        if (rc == 0)
                rc = write_platform(&s, err);
        if (rc == 0)
                rc = run(&s, err);
        if (rc == 0)
                rc = show(&s, command, err);
        forget(&s);
        return html_end(&settings->page, command, rc, err);
}

/* Whether a trace has the durations, which no framework changes. */
static bool replays(int argc, char *const *argv)
{
        for (int i = 1; i < argc; i++)
                if (strncmp(argv[i], "--replay", strlen("--replay")) == 0)
                        return true;
        return false;
}

static int parse_and_simulate(int argc, char **argv, const char *command, struct rv_error_info *err)
{
        const struct argp_child children[] = {{options_argp(), 0, NULL, 0}, {0}};
        struct argp_option options[SETTINGS + 1];
        settings_options(option_rows, options, 2);
        const struct argp argp = {options, parse_option, "[MODEL]", documentation, children, NULL, NULL};
        struct settings settings = {.batches = 1, .replay_batch = -1};
        options_init(&settings.plan);
        int rc = launch_open(&settings.from, argc, argv, !replays(argc, argv), &settings.plan, err);
        settings.gpus = settings.from.gpus;
        if (rc == 0)
                rc = command_line_parse(&argp, argc, argv, &settings, false, err);
        if (rc == 0)
                rc = take_machine(&settings, err);
        if (rc == 0)
                rc = launch_settle(&settings.from, &settings.plan, settings.gpus, err);
        if (rc == 0)
                rc = launch_check_automatic(&settings.from, &settings.plan, err);
        if (rc == 0)
                rc = check_settings(&settings, err);
        if (rc == 0)
                rc = framework_take(&settings.framework, &settings.plan, err);
        if (rc == 0 && settings.profile)
                rc = machine_choose_precision(settings.profile, &settings.plan, err);
        if (rc == 0)
                rc = options_resolve(&settings.plan, settings.gpus, err);
        const char *warning = rc == 0 ? gpt_warning(&settings.plan.gpt) : NULL;
        if (warning)
                fprintf(stderr, "ranvier simulate: warning: %s: %s\n", settings.plan.gpt.name, warning);
        if (rc == 0)
                rc = simulate(&settings, command, err);
        framework_free(&settings.framework);
        launch_close(&settings.from);
        return rc;
}

int simulate_main(int argc, char **argv)
{
        struct rv_error_info err = {.code = RV_OK};
        char *command = command_line_text(argv[0], argc, argv);
        int rc = command ? parse_and_simulate(argc, argv, command, &err)
                         : rv_fail(&err, RV_ESYSTEM, "no memory for the command line");
        free(command);
        return command_line_end("simulate", rc, &err);
}
