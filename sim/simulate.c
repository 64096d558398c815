/* `ranvier simulate`: a training run, predicted. */
#include "models/file.h"
#include "runtime/engine/report.h"
#include "sim/network.h"
#include "sim/priced.h"
#include "sim/replay.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The command line. */
struct settings {
        struct options plan;
        const char *profile, *platform, *platform_xml, *replay;
        int gpus, batches, replay_batch;
        double tokens;
        bool fits_only, ignore_memory;
};

/* One prediction, from its inputs to its results; each part is freed by forget(). */
struct prediction {
        const struct settings *settings;
        struct profile profile;
        const struct profile_load *load;
        struct platform platform;
        struct price_list prices;
        struct replay replay;
        struct trace trace;
        struct sim_world world;
        double *batch_seconds;   /* [batches] */
        struct phases phases;    /* of the median batch */
        int64_t *rank_live_peak; /* [gpus] */
        sg_host_t *hosts;
        int64_t (*rank_bytes)[MEMORY_CATEGORIES]; /* [gpus] */
        int fullest;                              /* the rank with the most bytes */
        int64_t fullest_bytes;
        int64_t decisions, identical; /* of a replay */
};

/* ---- the command line ---- */

enum key {
        KEY_PROFILE = 0x400,
        KEY_PLATFORM,
        KEY_GPUS,
        KEY_BATCHES,
        KEY_TOKENS,
        KEY_FITS_ONLY,
        KEY_PLATFORM_XML,
        KEY_REPLAY,
        KEY_REPLAY_BATCH,
        KEY_IGNORE_MEMORY
};

static const struct argp_option simulate_options[] = {
        {0, 0, 0, 0, "The machine:", 2},
        {"profile", KEY_PROFILE, "PROFILE", 0,
         "What kernels take: a file of ranvier calibrate, or a preset such as a100-datasheet (required)", 2},
        {"platform", KEY_PLATFORM, "PLATFORM", 0,
         "The cluster: local (where the profile was measured), a preset (generic), a platform JSON or a "
         "SimGrid XML file (required)",
         2},
        {"gpus", KEY_GPUS, "N", 0, "How many devices: P x D of the plan (required)", 2},
        {0, 0, 0, 0, "The prediction:", 3},
        {"batches", KEY_BATCHES, "K", 0, "Batches to simulate (default 1)", 3},
        {"tokens", KEY_TOKENS, "T", 0, "Tokens of the whole training, for its days (default 300e9)", 3},
        {"fits-only", KEY_FITS_ONLY, 0, 0,
         "Price kernels, and messages on the local platform, by the profile's fits even where they were "
         "measured",
         3},
        {"ignore-memory", KEY_IGNORE_MEMORY, 0, 0, "Predict a plan that does not fit the devices' memory too",
         3},
        {"platform-xml", KEY_PLATFORM_XML, "FILE", 0, "Write the platform as SimGrid XML", 3},
        {"replay", KEY_REPLAY, "TRACE", 0,
         "Take every duration from the trace of a real run of the same plan instead of --profile and "
         "--platform, and check that the same decisions follow",
         3},
        {"replay-batch", KEY_REPLAY_BATCH, "K", 0, "Which batch of the trace (default: its last)", 3},
        {0},
};

static int parse_tokens(const char *text, double *tokens, struct rv_error_info *err)
{
        char *end;
        double number = strtod(text, &end);
        if (end == text || *end || !(number >= 1 && number <= 9e18))
                return rv_fail(err, RV_EINPUT, "--tokens: '%s' is not a number of tokens such as 300e9",
                               text);
        *tokens = number;
        return 0;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
        struct settings *s = state->input;
        struct rv_error_info *err = options_error(state);
        int rc = 0;
        switch (key) {
        case ARGP_KEY_INIT:
                state->child_inputs[0] = &s->plan;
                break;
        case KEY_PROFILE:
                s->profile = text;
                break;
        case KEY_PLATFORM:
                s->platform = text;
                break;
        case KEY_GPUS:
                rc = options_parse_count("--gpus", text, 1, 1048576, &s->gpus, err);
                break;
        case KEY_BATCHES:
                rc = options_parse_count("--batches", text, 1, 1000000, &s->batches, err);
                break;
        case KEY_TOKENS:
                rc = parse_tokens(text, &s->tokens, err);
                break;
        case KEY_FITS_ONLY:
                s->fits_only = true;
                break;
        case KEY_IGNORE_MEMORY:
                s->ignore_memory = true;
                break;
        case KEY_PLATFORM_XML:
                s->platform_xml = text;
                break;
        case KEY_REPLAY:
                s->replay = text;
                break;
        case KEY_REPLAY_BATCH:
                rc = options_parse_count("--replay-batch", text, 0, INT32_MAX, &s->replay_batch, err);
                break;
        default:
                return ARGP_ERR_UNKNOWN;
        }
        return rc ? EINVAL : 0;
}

static const char documentation[] =
        "Predicts a training run: the same scheduler as ranvier train, driven by SimGrid instead of "
        "devices.\v"
        "GPT 12B on 48 GPUs, without having one:\n"
        "  ranvier simulate gpt-12b --profile a100-datasheet \\\n"
        "      --platform generic --gpus 48 --pp 12 --dp 4 \\\n"
        "      --micro-batch-size 1 --batch-size 256\n";

static int check_files(const struct settings *s, struct rv_error_info *err)
{
        const struct file_use uses[] = {
                {"MODEL", s->plan.model, false},          {"--profile", s->profile, false},
                {"--platform", s->platform, false},       {"--replay", s->replay, false},
                {"--report", s->plan.report, true},       {"--trace", s->plan.trace, true},
                {"--platform-xml", s->platform_xml, true}};
        return file_check_uses(uses, sizeof uses / sizeof *uses, err);
}

/* A trace has its own durations: what would say others is refused rather than passed over. */
static int check_replay(const struct settings *s, struct rv_error_info *err)
{
        const struct {
                const char *name;
                bool given;
        } others[] = {{"--profile", s->profile},
                      {"--platform", s->platform},
                      {"--platform-xml", s->platform_xml},
                      {"--fits-only", s->fits_only},
                      {"--ignore-memory", s->ignore_memory}};
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

/* What needs no file, in the order in which a user would mend it. */
static int check_settings(const struct settings *s, struct rv_error_info *err)
{
        const struct options *o = &s->plan;
        int64_t grid = (int64_t)o->pp * o->dp;
        if (!s->gpus)
                return rv_fail(err, RV_EINPUT, "--gpus is missing: how many devices, P x D of the plan");
        if (!s->profile && !s->replay)
                return rv_fail(
                        err, RV_EINPUT,
                        "--profile is missing: a file that ranvier calibrate wrote, or a preset such as "
                        "a100-datasheet");
        if (!s->platform && !s->replay)
                return rv_fail(err, RV_EINPUT,
                               "--platform is missing: local, a preset such as generic, or a file");
        if (s->replay && check_replay(s, err))
                return err->code;
        if (s->replay_batch >= 0 && !s->replay)
                return rv_fail(err, RV_EINPUT,
                               "--replay-batch chooses a batch of a trace: --replay TRACE is missing");
        if (grid != s->gpus && o->model && o->batch_size &&
            o->micro_batch_size) /* what is missing comes first */
                return rv_fail(err, RV_EPLAN, "--pp %d x --dp %d needs %lld device%s, but --gpus is %d",
                               o->pp, o->dp, (long long)grid, grid == 1 ? "" : "s", s->gpus);
        return check_files(s, err);
}

/* ---- the inputs ---- */

static bool is_local(const struct prediction *p)
{
        return p->settings->platform && strcmp(p->settings->platform, "local") == 0;
}

/* A profile may price single kernels at nothing, as one made for a closed form does, but not all of them. */
static int check_prices(const struct prediction *p, struct rv_error_info *err)
{
        for (int i = 0; i < p->settings->plan.pp; i++)
                if (p->prices.stages[i].forward + p->prices.stages[i].backward > 0)
                        return 0;
        return rv_fail(err, RV_EINPUT,
                       "profile %s prices every kernel of this plan at 0 s: a batch would take no time",
                       p->profile.path);
}

static int load_machine(struct prediction *p, struct rv_error_info *err)
{
        const struct settings *s = p->settings;
        if (s->replay) {
                p->platform = platform_without_network(s->gpus);
                return replay_open(&p->replay, s->replay, s->replay_batch, s->gpus, err);
        }
        int rc = profile_load(&p->profile, s->profile, err);
        if (rc == 0)
                rc = platform_load(&p->platform, s->platform, &p->profile, s->gpus, err);
        if (rc)
                return rc;
        int here = p->platform.gpus_per_node < s->gpus ? p->platform.gpus_per_node : s->gpus;
        int element_bytes = options_plan(&s->plan, false).element_bytes;
        if (p->profile.element_bytes != element_bytes)
                return rv_fail(err, RV_EPLAN,
                               "profile %s is of elements of %d bytes; this plan computes with %d",
                               p->profile.path, p->profile.element_bytes, element_bytes);
        p->load = profile_load_for(&p->profile, here);
        if (is_local(p) && s->gpus > 1 && !s->fits_only)
                platform_meet_messages(&p->platform, options_plan(&s->plan, false).message_bytes);
        rc = price_stages(&p->prices, &s->plan, &p->profile, p->load, s->fits_only, err);
        return rc ? rc : check_prices(p, err);
}

/* Bytes of every rank, and whether the fullest fits its device. */
static int weigh(struct prediction *p, struct rv_error_info *err)
{
        const struct options *o = &p->settings->plan;
        p->rank_bytes = calloc((size_t)p->settings->gpus, sizeof *p->rank_bytes);
        if (!p->rank_bytes)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d ranks", p->settings->gpus);
        for (int i = 0; i < p->settings->gpus; i++) {
                struct stage stage = partition_stage(&o->gpt, o->pp, i % o->pp);
                struct memory_plan memory = options_memory(o, stage.index);
                int64_t bytes = memory_stage(&o->gpt, &stage, &memory, p->rank_bytes[i]);
                if (bytes > p->fullest_bytes) {
                        p->fullest_bytes = bytes;
                        p->fullest = i;
                }
        }
        if (p->settings->ignore_memory || p->platform.gpu_memory_bytes == 0 ||
            p->fullest_bytes <= p->platform.gpu_memory_bytes)
                return 0;
        char needs[REPORT_TEXT], has[REPORT_TEXT];
        return rv_fail(
                err, RV_EPLAN,
                "rank %d needs %s of a device's %s: the plan does not fit; more stages (--pp), a smaller "
                "--micro-batch-size or --pipeline-limit need less, --ignore-memory predicts it all the same",
                p->fullest, report_bytes(needs, (double)p->fullest_bytes),
                report_bytes(has, (double)p->platform.gpu_memory_bytes));
}

static int write_platform(const struct prediction *p, struct rv_error_info *err)
{
        struct file_writer writer;
        if (!p->settings->platform_xml)
                return 0;
        if (p->platform.xml[0])
                return rv_fail(err, RV_EINPUT, "--platform-xml: %s is SimGrid XML already", p->platform.path);
        int rc = file_writer_open(&writer, p->settings->platform_xml, err);
        if (rc)
                return rc;
        rc = platform_write_xml(&p->platform, p->settings->gpus, writer.stream, err);
        if (rc) {
                file_writer_abandon(&writer);
                return rc;
        }
        return file_writer_commit(&writer, err);
}

/* ---- the run ---- */

static int collect(struct prediction *p, struct rv_error_info *err)
{
        const struct sim_world *world = &p->world;
        p->batch_seconds = malloc((size_t)world->batches * sizeof *p->batch_seconds);
        p->rank_live_peak = malloc((size_t)world->ranks * sizeof *p->rank_live_peak);
        if (!p->batch_seconds || !p->rank_live_peak)
                return rv_fail(err, RV_ESYSTEM, "no memory for the results of %d batches", world->batches);
        p->phases = phases_median(world->times, world->batches, world->ranks, p->batch_seconds);
        for (int i = 0; i < world->ranks; i++)
                p->rank_live_peak[i] = world->rank[i].ledger.total_peak;
        return 0;
}

static int run(struct prediction *p, struct rv_error_info *err)
{
        const struct settings *s = p->settings;
        struct priced priced = {&p->prices, &p->platform};
        struct sim_physics physics = s->replay ? replay_physics(&p->replay) : priced_physics(&priced);
        p->hosts = calloc((size_t)s->gpus, sizeof(sg_host_t));
        if (!p->hosts)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d hosts", s->gpus);
        int rc = network_open(&p->platform, s->gpus, s->plan.pp, p->hosts, err);
        if (rc)
                return rc;
        bool traced = s->plan.trace || s->replay;
        rc = sim_world_init(&p->world, &s->plan, &physics, traced ? &p->trace : NULL, s->batches, p->hosts,
                            err);
        if (rc)
                return rc;
        for (int i = 0; s->replay && i < s->gpus; i++)
                p->world.rank[i].start_seconds = replay_start(&p->replay, i);
        rc = sim_world_run(&p->world, err);
        return rc ? rc : collect(p, err);
}

/* ---- the results ---- */

static const char *plural(int count)
{
        return count == 1 ? "" : "s";
}

static void print_kernels(const struct prediction *p)
{
        const struct price_list *prices = &p->prices;
        int fitted = prices->count - prices->from_points;
        if (p->settings->fits_only)
                printf("kernels    all %d shapes fitted, as --fits-only asks", prices->count);
        else
                printf("kernels    %d of %d shapes measured while %d rank%s of a node worked%s",
                       prices->from_points, prices->count, p->load->ranks, plural(p->load->ranks),
                       fitted ? "; the others" : "");
        if (fitted && !p->settings->fits_only)
                printf(p->profile.measured ? " fitted" : " from datasheet constants");
        if (fitted && p->profile.measured)
                printf(" (median error up to %.1f %%)", 100 * prices->worst_fit_error);
        printf("\n");
}

static void print_messages(const struct prediction *p)
{
        const struct line_fit *line = &p->platform.messages->message;
        const struct profile_load *allreduces = p->platform.allreduces;
        if (p->settings->fits_only)
                printf("messages   by the line over %d measured sizes (%.1f %% in the median)", line->points,
                       100 * line->median_error);
        else
                printf("messages   %d sizes measured (a line over them errs by %.1f %% in the median)",
                       line->points, 100 * line->median_error);
        if (allreduces)
                printf("; all-reduces %d sizes between %d ranks (%.1f %%)", allreduces->allreduce.points,
                       allreduces->ranks, 100 * allreduces->allreduce.median_error);
        printf("\n");
}

/* What the prediction rests on, for those who want to know how far to trust it. */
static void print_basis(const struct prediction *p)
{
        printf("profile    %s: %s%s\n", p->profile.path, p->profile.measured ? "" : "NOT measured; ",
               p->profile.source);
        print_kernels(p);
        printf("platform   %s: %s\n", p->platform.name, p->platform.source);
        if (is_local(p) && p->settings->gpus > 1)
                print_messages(p);
}

/* All-reduces of a group that is not as large as the one that was measured. */
static void allreduce_note(const struct prediction *p, char *text, size_t text_size)
{
        int dp = p->settings->plan.dp, measured = p->platform.allreduces ? p->platform.allreduces->ranks : 0;
        text[0] = 0;
        if (is_local(p) && dp > 1 && measured && dp != measured)
                snprintf(text, text_size,
                         "no all-reduce between %d ranks was measured: they are predicted from those between "
                         "%d",
                         dp, measured);
}

static void print_notes(const struct prediction *p)
{
        char note[160];
        allreduce_note(p, note, sizeof note);
        if (p->platform.note[0])
                printf("note       %s\n", p->platform.note);
        if (note[0])
                printf("note       %s\n", note);
        if (p->platform.gpu_memory_bytes && p->fullest_bytes > p->platform.gpu_memory_bytes) {
                char needs[REPORT_TEXT], has[REPORT_TEXT];
                printf("WARNING    rank %d needs %s of %s: does not fit\n", p->fullest,
                       report_bytes(needs, (double)p->fullest_bytes),
                       report_bytes(has, (double)p->platform.gpu_memory_bytes));
        }
}

/* What a simulated report has beside a real one's members. */
static json_t *extra_json(const struct prediction *p)
{
        const struct settings *s = p->settings;
        json_t *notes = json_array(), *extra = json_object();
        char note[160];
        allreduce_note(p, note, sizeof note);
        if (p->platform.note[0])
                json_array_append_new(notes, json_string(p->platform.note));
        if (note[0])
                json_array_append_new(notes, json_string(note));
        if (s->fits_only)
                json_array_append_new(
                        notes, json_string("--fits-only: kernels, and messages on the local platform, are "
                                           "priced by fits even where they were measured"));
        json_object_set_new(extra, "simulation",
                            json_pack("{s:I}", "operations", (json_int_t)p->world.operations));
        if (s->replay)
                json_object_set_new(extra, "replay",
                                    json_pack("{s:s, s:i, s:I, s:I}", "trace", s->replay, "batch",
                                              p->replay.batch, "decisions", (json_int_t)p->decisions,
                                              "identical", (json_int_t)p->identical));
        else
                json_object_set_new(extra, "profile",
                                    json_pack("{s:s, s:s, s:b, s:i, s:i, s:i, s:b}", "path", p->profile.path,
                                              "source", p->profile.source, "measured", p->profile.measured,
                                              "load_ranks", p->load->ranks, "kernels_from_points",
                                              p->prices.from_points, "kernels_from_fits",
                                              p->prices.count - p->prices.from_points, "fits_only",
                                              s->fits_only));
        json_object_set_new(extra, "platform",
                            json_pack("{s:s, s:s, s:s}", "name", p->platform.name, "path", p->platform.path,
                                      "source", p->platform.source));
        json_object_set_new(extra, "notes", notes);
        return extra;
}

static struct report report_of(const struct prediction *p, const char *command, json_t *extra)
{
        const struct settings *s = p->settings;
        double platform_peak = p->platform.gpu_peak_flops_per_second;
        return (struct report){
                .world = "simulated",
                .command = command,
                .options = &s->plan,
                .batch_seconds = p->batch_seconds,
                .batches = p->world.batches,
                .pipeline_seconds = p->phases.pipeline_seconds,
                .allreduce_seconds = p->phases.allreduce_seconds,
                .optimizer_seconds = p->phases.optimizer_seconds,
                .bubble_fraction = p->phases.bubble_fraction,
                .peak_flops_per_gpu_per_second =
                        platform_peak > 0 ? platform_peak : p->profile.peak_flops_per_second,
                .tokens = (int64_t)s->tokens,
                .ranks = s->gpus,
                .rank_bytes = (const int64_t(*)[MEMORY_CATEGORIES])p->rank_bytes,
                .rank_live_peak = p->rank_live_peak,
                .extra = extra,
        };
}

static int write_report(const struct prediction *p, const struct report *report, struct rv_error_info *err)
{
        const struct options *o = &p->settings->plan;
        if (!o->report)
                return 0;
        json_t *document = report_json(report);
        int rc = document ? file_write_json(o->report, document, err)
                          : rv_fail(err, RV_ESYSTEM, "no memory for the report");
        json_decref(document);
        return rc;
}

static int show(struct prediction *p, const char *command, struct rv_error_info *err)
{
        const struct options *o = &p->settings->plan;
        int rc = o->trace ? trace_write(&p->trace, o->trace, "simulated", o->pp, err) : 0;
        if (rc) /* a replay that went another way has its trace written: it shows where */
                return rc;
        if (p->settings->replay) {
                rc = replay_compare(&p->replay, &p->trace, &p->decisions, &p->identical, err);
                if (rc == 0 || err->code == RV_ESYSTEM)
                        printf("decisions: %lld of %lld identical on %d rank%s\n", (long long)p->identical,
                               (long long)p->decisions, p->settings->gpus, plural(p->settings->gpus));
                if (rc)
                        return rc;
        }
        json_t *extra = extra_json(p);
        struct report report = report_of(p, command, extra);
        report_print(&report, stdout);
        if (!p->settings->replay)
                print_basis(p);
        print_notes(p);
        rc = write_report(p, &report, err);
        json_decref(extra);
        return rc;
}

static void forget(struct prediction *p)
{
        free(p->batch_seconds);
        free(p->rank_live_peak);
        sim_world_free(&p->world);
        trace_free(&p->trace);
        replay_close(&p->replay);
        price_free(&p->prices);
        profile_free(&p->profile);
        free(p->rank_bytes);
        free(p->hosts);
}

static int predict(const struct settings *settings, const char *command, struct rv_error_info *err)
{
        struct prediction p = {.settings = settings};
        trace_init(&p.trace);
        int rc = load_machine(&p, err);
        if (rc == 0)
                rc = weigh(&p, err);
        if (rc == 0)
                rc = write_platform(&p, err);
        if (rc == 0)
                rc = run(&p, err);
        if (rc == 0)
                rc = show(&p, command, err);
        forget(&p);
        return rc;
}

int main(int argc, char **argv)
{
        const struct argp_child children[] = {{&options_argp, 0, NULL, 0}, {0}};
        const struct argp argp = {simulate_options, parse_option, "MODEL", documentation,
                                  children,         NULL,         NULL};
        struct settings settings = {.batches = 1, .replay_batch = -1, .tokens = 300e9};
        struct rv_error_info err = {.code = RV_OK};
        static char name[] = "ranvier simulate";
        if (argc > 1 && strcmp(argv[1], "simulate") == 0) { /* the dispatcher names the verb */
                argv++;
                argc--;
        }
        argv[0] = name;
        options_init(&settings.plan);
        char *command = options_command_line(name, argc, argv);
        int rc = command ? options_parse(&argp, argc, argv, &settings, false, &err)
                         : rv_fail(&err, RV_ESYSTEM, "no memory for the command line");
        if (rc == 0)
                rc = check_settings(&settings, &err);
        if (rc == 0)
                rc = options_resolve(&settings.plan, settings.gpus, &err);
        if (rc == 0)
                rc = predict(&settings, command, &err);
        free(command);
        if (rc == OPTIONS_DONE)
                return 0;
        if (rc == 0)
                rc = file_check_printed(&err);
        if (rc == 0)
                return 0;
        fprintf(stderr, "ranvier simulate: %s\n", err.sentence);
        return rv_exit_status(&err);
}
