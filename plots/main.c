/* `ranvier compare`, `ranvier plot` and `ranvier report`. */
#include "plots/compare.h"
#include "runtime/base/command_line.h"
#include "runtime/base/csv.h"
#include "runtime/base/setting.h"
#include "plots/figure.h"
#include "plots/figures.h"
#include "plots/html/report.h"
#include "plots/profiled.h"

#include "runtime/base/file.h"
#include "runtime/kineto/kineto.h"
#include "runtime/plan/options.h"
#include "runtime/report/html.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { STATUS_FAILED = 1, STATUS_USAGE = 2 };

static int complain(const char *command, const struct rv_error_info *err)
{
        fflush(stdout);
        fprintf(stderr, "ranvier %s: %s\n", command, err->sentence);
        return rv_exit_status(err);
}

/* The words of a command line that are not options; they stay in argv. */
struct words {
        char **list;
        int count, capacity;
};

static error_t add_word(struct words *words, char *word)
{
        if (words->count == words->capacity)
                return ARGP_ERR_UNKNOWN;
        words->list[words->count++] = word;
        return 0;
}

/* Whether the outputs can be written, and replace neither each other nor one of the words from `first` on,
 * which are read. */
static int check_outputs(const struct file_use *outputs, int count, const struct words *words, int first,
                         struct rv_error_info *err)
{
        int rc = file_check_uses(outputs, count, err);
        for (int i = 0; i < count && rc == 0; i++)
                for (int j = first; j < words->count && rc == 0; j++) {
                        const struct file_use both[] = {outputs[i], {"an input", words->list[j], false}};
                        rc = file_check_uses(both, 2, err);
                }
        return rc;
}

struct compare_options {
        struct words reports;
        const char *plot, *csv, *html, *merge, *command;
        bool json;
        int64_t rank;                                 /* -1: not given */
        double max_median_percent, max_worst_percent; /* negative: not asked for */
};

static int parse_percent(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        double *value = at;
        char *end;
        *value = strtod(text, &end);
        if (end == text || *end || !isfinite(*value) || *value < 0)
                return rv_fail(err, RV_EINPUT, "%s: '%s' is not a number of percent from 0 up", option, text);
        return 0;
}

#define AT(type, member) .offset = offsetof(struct type, member)

/* clang-format off */
static const struct setting compare_rows[] = {
        {SETTING_PATH, "plot", .argument = "FILE", AT(compare_options, plot),
         .help = "Draw predicted against measured time per batch, as .png or .svg"},
        {SETTING_SET, "json", AT(compare_options, json), .help = "Print every figure of every pair as JSON"},
        {SETTING_PATH, "csv", .argument = "FILE", AT(compare_options, csv),
         .help = "Write every figure of every pair, for programs"},
        {SETTING_PATH, "html", .argument = "FILE.html", AT(compare_options, html),
         .help = "Write one page of HTML, too (ranvier report)"},
        {SETTING_WHOLE, "rank", .argument = "R", AT(compare_options, rank), .min = 0, .max = 1 << 20,
         .help = "With a profiler's trace: which rank's GPU it is of (default: 0)"},
        {SETTING_PATH, "merge", .argument = "FILE", AT(compare_options, merge),
         .help = "With a profiler's trace: write it and the timeline as one trace, for Perfetto"},
        {SETTING_OWN, "max-median-error", .argument = "X", AT(compare_options, max_median_percent),
         .parse = parse_percent,
         .help = "End with status 1 if the median absolute error of the time per batch is above X percent"},
        {SETTING_OWN, "max-worst-error", .argument = "X", AT(compare_options, max_worst_percent),
         .parse = parse_percent, .help = "End with status 1 if the worst one is above X percent"},
        {.help = NULL},
};
/* clang-format on */

static error_t compare_parser(int key, char *text, struct argp_state *state)
{
        struct compare_options *o = state->input;
        if (key == ARGP_KEY_ARG)
                return add_word(&o->reports, text);
        return settings_take(compare_rows, o, key, text, command_line_error(state));
}

static struct argp_option compare_options_list[SETTINGS + 1];
static const struct argp compare_argp = {
        .options = compare_options_list,
        .parser = compare_parser,
        .args_doc = "PREDICTED MEASURED [PREDICTED MEASURED...]",
        .doc = "Sets predictions (ranvier simulate --report) beside measurements (ranvier train --report) of "
               "the "
               "same model and plan. One pair is shown quantity by quantity, several as one row each with "
               "the "
               "median and the worst error.\n\n"
               "A timeline (ranvier simulate --trace) is set beside a trace of PyTorch's profiler: where the "
               "time "
               "of a step goes, by phase and by kind of work.\vExamples:\n"
               "  ranvier compare predicted.json measured.json\n"
               "  ranvier compare p1.json m1.json p2.json m2.json --plot errors.png\n"
               "  ranvier compare timeline.json trace.json.gz --merge both.json\n"};

static int check_limit(const char *which, double percent, double max)
{
        if (max < 0 || percent <= max)
                return 0;
        fflush(stdout);
        fprintf(stderr,
                "ranvier compare: the %s absolute error of the time per batch is %.2f %%, more than %g %%\n",
                which, percent, max);
        return STATUS_FAILED;
}

struct pairs {
        const struct run *runs;
        int count;
};

static int write_pairs(const void *context, const char *path, struct rv_error_info *err)
{
        const struct pairs *pairs = context;
        return compare_write_csv(pairs->runs, pairs->count, path, err);
}

static int compare_runs(const struct compare_options *o, const struct run *runs, struct rv_error_info *err)
{
        int count = o->reports.count;
        struct compare_summary summary;
        for (int i = 0; i < count; i += 2)
                if (runs_check_pair(&runs[i], &runs[i + 1], err))
                        return complain("compare", err);
        if (compare_summarize(runs, count, &summary, err))
                return complain("compare", err);
        const struct pairs pairs = {runs, count};
        if (o->json && csv_print_json(write_pairs, &pairs, err))
                return complain("compare", err);
        if (count == 2 && !o->json)
                compare_print_pair(&runs[0], &runs[1], stdout);
        else if (!o->json)
                compare_print_all(runs, count, &summary, stdout);
        if ((o->csv && compare_write_csv(runs, count, o->csv, err)) ||
            (o->plot && figures_predicted_measured(o->plot, runs, count, err)) ||
            (o->html && html_report(o->html, NULL, o->reports.list, count, o->command, err)))
                return complain("compare", err);
        if (file_check_printed(err))
                return complain("compare", err);
        return check_limit("median", summary.median_percent, o->max_median_percent) |
               check_limit("worst", summary.worst_percent, o->max_worst_percent);
}

static int write_profiled(const void *context, const char *path, struct rv_error_info *err)
{
        return profiled_write_csv(context, path, err);
}

/* What is for reports only, and was given; NULL: nothing. */
static const char *only_for_reports(const struct compare_options *o)
{
        return o->plot                      ? "--plot"
               : o->html                    ? "--html"
               : o->max_median_percent >= 0 ? "--max-median-error"
               : o->max_worst_percent >= 0  ? "--max-worst-error"
                                            : NULL;
}

/* A prediction beside a trace of PyTorch's profiler. */
static int compare_profiled(const struct compare_options *o, const char *traced, struct rv_error_info *err)
{
        const char *timeline = o->reports.list[0], *unfit = only_for_reports(o);
        struct profiled profiled;
        if (unfit)
                return rv_fail(err, RV_EINPUT, "%s is for reports, and %s is a trace of a profiler", unfit,
                               traced);
        if (o->reports.count > 2)
                return rv_fail(
                        err, RV_EINPUT,
                        "%s is a trace of a profiler: one pair was expected, TIMELINE TRACE; there are %d",
                        traced, o->reports.count / 2);
        int rc = profiled_read(&profiled, timeline, traced, o->rank < 0 ? 0 : (int)o->rank, err);
        if (rc == 0 && o->json)
                rc = csv_print_json(write_profiled, &profiled, err);
        else if (rc == 0)
                profiled_print(&profiled, stdout);
        if (rc == 0 && o->csv)
                rc = profiled_write_csv(&profiled, o->csv, err);
        if (rc == 0 && o->merge)
                rc = profiled_merge(&profiled, timeline, traced, o->merge, err);
        return rc ? rc : file_check_printed(err);
}

/* The first of the predictions (0), or of the measurements (1), that is a trace of PyTorch's profiler; NULL:
 * none is. */
static const char *find_profiled(const struct words *words, int first)
{
        for (int i = first; i < words->count; i += 2)
                if (kineto_is(words->list[i]))
                        return words->list[i];
        return NULL;
}

static int compare(int argc, char **argv, const char *command)
{
        struct rv_error_info err = {0};
        struct compare_options o = {
                .max_median_percent = -1, .max_worst_percent = -1, .rank = -1, .command = command};
        char *list[4096];
        o.reports = (struct words){.list = list, .capacity = sizeof list / sizeof *list};
        settings_options(compare_rows, compare_options_list, 0);
        int rc = command_line_parse(&compare_argp, argc, argv, &o, false, &err);
        if (rc)
                return rc == COMMAND_LINE_DONE ? 0 : complain("compare", &err);
        if (o.reports.count == 0 || o.reports.count % 2) {
                rv_fail(&err, RV_EINPUT, "pairs of reports were expected, PREDICTED MEASURED; there %s %d",
                        o.reports.count == 1 ? "is" : "are", o.reports.count);
                return complain("compare", &err);
        }
        const struct file_use outputs[] = {{"--csv", o.csv, true},
                                           {"--plot", o.plot, true},
                                           {"--html", o.html, true},
                                           {"--merge", o.merge, true}};
        if ((o.plot && figure_check(o.plot, &err)) || html_check(o.html, &err) ||
            check_outputs(outputs, sizeof outputs / sizeof *outputs, &o.reports, 0, &err))
                return complain("compare", &err);
        const char *traced = find_profiled(&o.reports, 0);
        if (traced) {
                rv_fail(&err, RV_EINPUT,
                        "%s is a trace of PyTorch's profiler, which comes second: TIMELINE TRACE was "
                        "expected",
                        traced);
                return complain("compare", &err);
        }
        traced = find_profiled(&o.reports, 1);
        if (traced)
                return compare_profiled(&o, traced, &err) ? complain("compare", &err) : 0;
        if (o.merge || o.rank >= 0) {
                rv_fail(&err, RV_EINPUT, "%s is for a trace of PyTorch's profiler, and %s is none",
                        o.merge ? "--merge" : "--rank", o.reports.list[1]);
                return complain("compare", &err);
        }
        struct run *runs = runs_read(o.reports.list, o.reports.count, &err);
        if (!runs)
                return complain("compare", &err);
        int status = compare_runs(&o, runs, &err);
        runs_free(runs, o.reports.count);
        return status;
}

static int command_compare(int argc, char **argv)
{
        char *command = command_line_text(argv[0], argc, argv);
        const int status = compare(argc, argv, command);
        free(command);
        return status;
}

struct plot_options {
        struct words words;  /* FIGURE OUT INPUT... */
        int64_t batch, rank; /* -1: not given */
        double from, to;     /* seconds; negative: not given */
        struct int_list ranks;
};

/* A time since the batch began, with its unit. */
static int parse_moment(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        static const struct {
                const char *name;
                double seconds;
        } units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}};
        char *end;
        const double number = strtod(text, &end);
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
                if (end != text && strcmp(end, units[i].name) == 0 && isfinite(number) && number >= 0) {
                        *(double *)at = number * units[i].seconds;
                        return 0;
                }
        return rv_fail(err, RV_EINPUT,
                       "%s: '%s' is not a time from 0 up with its unit, such as 250ms, 1.5s or 80us", option,
                       text);
}

/* clang-format off */
static const struct setting plot_rows[] = {
        {SETTING_WHOLE, "batch", .argument = "K", AT(plot_options, batch), .min = 0, .max = 1 << 30,
         .help = "timeline, optimizer: which batch (default: the one in the middle)"},
        {SETTING_WHOLE, "rank", .argument = "R", AT(plot_options, rank), .min = 0, .max = 1 << 30,
         .help = "optimizer: which rank (default: where the optimizer phase is longest)"},
        {SETTING_OWN, "from", .argument = "T", AT(plot_options, from), .parse = parse_moment,
         .help = "timeline: from when on, in time of the batch, such as 250ms or 1.5s (default: its begin)"},
        {SETTING_OWN, "to", .argument = "T", AT(plot_options, to), .parse = parse_moment,
         .help = "timeline: until when (default: the end of the batch)"},
        {SETTING_LIST, "ranks", .argument = "R,R,...", AT(plot_options, ranks), .min = 0, .max = 1 << 30,
         .help = "timeline: of which ranks (default: all, or evenly chosen ones of the first pipeline)"},
        {.help = NULL},
};
/* clang-format on */

static error_t plot_parser(int key, char *text, struct argp_state *state)
{
        struct plot_options *o = state->input;
        if (key == ARGP_KEY_ARG)
                return add_word(&o->words, text);
        return settings_take(plot_rows, o, key, text, command_line_error(state));
}

static struct argp_option plot_options_list[SETTINGS + 1];
static struct option_words figure_words; /* of `kinds`, which command_plot makes */
static const struct argp_option figure_options[] = {OPTION_WORDS("FIGURE", &figure_words), {0}};
static const struct argp figure_argp = {.options = figure_options};
static const struct argp_child plot_children[] = {{&figure_argp, 0, NULL, 0}, {0}};
static const struct argp plot_argp = {
        .options = plot_options_list,
        .parser = plot_parser,
        .args_doc = "FIGURE OUT.png|OUT.svg INPUT...",
        .children = plot_children,
        .doc = "Draws a figure with gnuplot.\vFigures, and what each takes:\n"
               "  predicted-measured  pairs of reports, PREDICTED MEASURED...: time per\n"
               "                      batch with the diagonal and a band of 5 %\n"
               "  throughput          reports: tokens a second and percent of peak by\n"
               "                      number of GPUs, a line a model and world\n"
               "  memory              reports: device and host memory by category, a bar\n"
               "                      each\n"
               "  phases              reports: the time of a batch by phase, a bar each\n"
               "  timeline            one trace (--trace of train or simulate): who did\n"
               "                      what when in one batch\n"
               "  optimizer           one trace: the end of one batch on one rank, with\n"
               "                      all-reduce, fetch, update and write back\n"
               "  loss                CSV files of train: train and validation loss; the\n"
               "                      report behind one adds the validation before training\n"
               "  sweep-throughput    the CSV of sweep: tokens a second and percent of\n"
               "                      peak of the best plans, with and without offloading\n"
               "  sweep-memory        the CSV of sweep: device memory of the best plans\n"
               "  validation          the CSV of validate: seconds a batch, predicted over\n"
               "                      measured, of every run\n"
               "\nExamples:\n"
               "  ranvier plot predicted-measured errors.png p1.json m1.json p2.json m2.json\n"
               "  ranvier plot throughput throughput.png 48.json 96.json 192.json\n"
               "  ranvier plot memory memory.png predicted.json measured.json\n"
               "  ranvier plot phases phases.png without.json with.json\n"
               "  ranvier plot timeline batch.svg trace.json --batch 3\n"
               "  ranvier plot timeline begin.png trace.json --to 250ms --ranks 0\n"
               "  ranvier plot optimizer optimizer.png trace.json --batch 3 --rank 0\n"
               "  ranvier plot loss loss.svg loss.csv measured.json\n"
               "  ranvier plot sweep-throughput sweep.png sweep.csv\n"
               "  ranvier plot sweep-memory sweep-memory.svg sweep.csv\n"};

/* What a figure is drawn from. */
struct inputs {
        char *const *paths;
        int count;
        int batch, rank; /* -1: not given */
        double from, to; /* negative: not given */
        const struct int_list *ranks;
};

static int draw_reports(const char *out, const struct inputs *in,
                        int (*draw)(const char *out, const struct run *runs, int count,
                                    struct rv_error_info *err),
                        struct rv_error_info *err)
{
        struct run *runs = runs_read(in->paths, in->count, err);
        if (!runs)
                return err->code;
        int rc = draw(out, runs, in->count, err);
        runs_free(runs, in->count);
        return rc;
}

static int draw_pairs(const char *out, const struct run *runs, int count, struct rv_error_info *err)
{
        for (int i = 0; i < count; i += 2)
                if (runs_check_pair(&runs[i], &runs[i + 1], err))
                        return err->code;
        return figures_predicted_measured(out, runs, count, err);
}

static int plot_predicted_measured(const char *out, const struct inputs *in, struct rv_error_info *err)
{
        if (in->count % 2)
                return rv_fail(err, RV_EINPUT,
                               "predicted-measured takes pairs of reports, PREDICTED MEASURED; there %s %d",
                               in->count == 1 ? "is" : "are", in->count);
        return draw_reports(out, in, draw_pairs, err);
}

static int plot_throughput(const char *out, const struct inputs *in, struct rv_error_info *err)
{
        return draw_reports(out, in, figures_throughput, err);
}

static int plot_memory(const char *out, const struct inputs *in, struct rv_error_info *err)
{
        return draw_reports(out, in, figures_memory, err);
}

static int plot_phases(const char *out, const struct inputs *in, struct rv_error_info *err)
{
        return draw_reports(out, in, figures_phases, err);
}

static int plot_timeline(const char *out, const struct inputs *in, struct rv_error_info *err)
{
        const struct timeline_cut cut = {.batch = in->batch,
                                         .from = in->from < 0 ? 0 : in->from,
                                         .to = in->to < 0 ? INFINITY : in->to,
                                         .ranks = *in->ranks};
        if (cut.from >= cut.to)
                return rv_fail(err, RV_EINPUT,
                               "--from is %g s and --to %g s: the first must come before the second",
                               cut.from, cut.to);
        return figures_timeline(out, in->paths[0], &cut, err);
}

static int plot_optimizer(const char *out, const struct inputs *in, struct rv_error_info *err)
{
        return figures_optimizer(out, in->paths[0], in->batch, in->rank, err);
}

static int plot_loss(const char *out, const struct inputs *in, struct rv_error_info *err)
{
        return figures_loss(out, in->paths, in->count, err);
}

static int plot_sweep_throughput(const char *out, const struct inputs *in, struct rv_error_info *err)
{
        return figures_sweep_throughput(out, in->paths[0], err);
}

static int plot_sweep_memory(const char *out, const struct inputs *in, struct rv_error_info *err)
{
        return figures_sweep_memory(out, in->paths[0], err);
}

static int plot_validation(const char *out, const struct inputs *in, struct rv_error_info *err)
{
        return figures_validation(out, in->paths[0], err);
}

static const struct kind {
        const char *name;
        const char *only; /* what its one input is; NULL: it takes several */
        bool has_batches, has_ranks;
        int (*draw)(const char *out, const struct inputs *in, struct rv_error_info *err);
} kinds[] = {
        {"predicted-measured", NULL, false, false, plot_predicted_measured},
        {"throughput", NULL, false, false, plot_throughput},
        {"memory", NULL, false, false, plot_memory},
        {"phases", NULL, false, false, plot_phases},
        {"timeline", "trace", true, false, plot_timeline},
        {"optimizer", "trace", true, true, plot_optimizer},
        {"loss", NULL, false, false, plot_loss},
        {"sweep-throughput", "CSV file of ranvier sweep", false, false, plot_sweep_throughput},
        {"sweep-memory", "CSV file of ranvier sweep", false, false, plot_sweep_memory},
        {"validation", "CSV file of ranvier validate", false, false, plot_validation},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* NULL with a sentence that names all figures. */
static const struct kind *find_kind(const char *name, struct rv_error_info *err)
{
        char names[256] = "";
        for (int i = 0; i < KINDS; i++) {
                if (name && strcmp(name, kinds[i].name) == 0)
                        return &kinds[i];
                snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "",
                         kinds[i].name);
        }
        if (name)
                rv_fail(err, RV_EINPUT, "figure '%s' is not known; there are %s", name, names);
        else
                rv_fail(err, RV_EINPUT, "FIGURE is missing; there are %s", names);
        return NULL;
}

static int plot(const struct plot_options *o, struct rv_error_info *err)
{
        const struct kind *kind = find_kind(o->words.count ? o->words.list[0] : NULL, err);
        if (!kind)
                return err->code;
        if (o->words.count < 3)
                return rv_fail(err, RV_EINPUT,
                               "%s needs a file to write and at least one to read: ranvier plot %s OUT "
                               "INPUT...",
                               kind->name, kind->name);
        const char *out = o->words.list[1];
        const struct inputs in = {.paths = o->words.list + 2,
                                  .count = o->words.count - 2,
                                  .batch = (int)o->batch,
                                  .rank = (int)o->rank,
                                  .from = o->from,
                                  .to = o->to,
                                  .ranks = &o->ranks};
        const bool cut = in.from >= 0 || in.to >= 0 || in.ranks->count > 0;
        if (in.batch >= 0 && !kind->has_batches)
                return rv_fail(err, RV_EINPUT, "--batch is for timeline and optimizer; %s has no batches",
                               kind->name);
        if (in.rank >= 0 && !kind->has_ranks)
                return rv_fail(err, RV_EINPUT, "--rank is for optimizer; %s does not show one rank",
                               kind->name);
        if (cut && kind->draw != plot_timeline)
                return rv_fail(err, RV_EINPUT, "--from, --to and --ranks are for timeline; %s is not cut",
                               kind->name);
        if (kind->only && in.count > 1)
                return rv_fail(err, RV_EINPUT, "%s takes one %s; there are %d", kind->name, kind->only,
                               in.count);
        const struct file_use output = {"OUT", out, true};
        if (figure_check(out, err) || check_outputs(&output, 1, &o->words, 2, err))
                return err->code;
        return kind->draw(out, &in, err);
}

static int command_plot(int argc, char **argv)
{
        static const char *names[KINDS + 1];
        for (int i = 0; i < KINDS; i++)
                names[i] = kinds[i].name;
        figure_words.names = names;
        struct rv_error_info err = {0};
        struct plot_options o = {.batch = -1, .rank = -1, .from = -1, .to = -1};
        char *list[4096];
        o.words = (struct words){.list = list, .capacity = sizeof list / sizeof *list};
        settings_options(plot_rows, plot_options_list, 0);
        int rc = command_line_parse(&plot_argp, argc, argv, &o, false, &err);
        if (rc == COMMAND_LINE_DONE)
                return 0;
        if (rc == 0)
                rc = plot(&o, &err);
        return rc ? complain("plot", &err) : 0;
}

struct report_options {
        struct words words;  /* OUT FILE... */
        const char *command; /* NULL: this one */
        const char *title;   /* NULL: what the files are of */
};

/* clang-format off */
static const struct setting report_rows[] = {
        {SETTING_TEXT, "command", .argument = "TEXT", AT(report_options, command),
         .help = "The command that the page says it was made with (default: this one)"},
        {SETTING_TEXT, "title", .argument = "TEXT", AT(report_options, title),
         .help = "What stands above the page (default: the model and what was asked)"},
        {.help = NULL},
};
/* clang-format on */

static error_t report_parser(int key, char *text, struct argp_state *state)
{
        struct report_options *o = state->input;
        if (key == ARGP_KEY_ARG)
                return add_word(&o->words, text);
        return settings_take(report_rows, o, key, text, command_line_error(state));
}

static struct argp_option report_options_list[SETTINGS + 1];
static const struct argp report_argp = {
        .options = report_options_list,
        .parser = report_parser,
        .args_doc = "OUT FILE...",
        .doc = "Makes one page of HTML, which needs no network and no other file, of reports (--report of "
               "plan, "
               "simulate and train), tables (--csv of sweep, compare, validate and price) and traces "
               "(--trace): "
               "the question, the answer, figures, tables to sort and filter, timelines to zoom, "
               "assumptions, "
               "sources and commands. A prediction and a training of the same model and plan are set beside "
               "each "
               "other. OUT is the page, whose name ends in .html, or a folder, which is made if it is "
               "missing: its page is report.html.\vExamples:\n"
               "  ranvier report report.html plan.json\n"
               "  ranvier report two.html ours.json better.json --title 'Two plans for 64 H100'\n"
               "  ranvier report out/ predicted-*.json measured-*.json sweep.csv trace.json\n"};

/* The name of the page: of a folder report.html in it. */
static int name_page(const char *out, char *path, size_t size, struct rv_error_info *err)
{
        const bool page = html_check(out, NULL) == 0;
        struct stat info;
        const int length = snprintf(path, size, page ? "%s" : "%s/report.html", out);
        if (length < 0 || (size_t)length >= size)
                return rv_fail(err, RV_EINPUT, "%.200s...: the path is longer than %zu bytes", out, size - 1);
        if (page || (stat(out, &info) == 0 && S_ISDIR(info.st_mode)))
                return 0;
        return mkdir(out, 0777) == 0
                       ? 0
                       : rv_fail(err, RV_EINPUT,
                                 "%s: cannot be made a folder for the report: %s; or a name that "
                                 "ends in .html was expected",
                                 out, strerror(errno));
}

static int report(const struct report_options *o, const char *command, struct rv_error_info *err)
{
        char path[1024];
        if (o->words.count < 2)
                return rv_fail(err, RV_EINPUT,
                               "a page to write and at least one file to read were expected: ranvier report "
                               "OUT.html FILE...");
        int rc = name_page(o->words.list[0], path, sizeof path, err);
        const struct file_use output = {"OUT", path, true};
        if (rc == 0)
                rc = check_outputs(&output, 1, &o->words, 1, err);
        if (rc == 0)
                rc = html_report(path, o->title, o->words.list + 1, o->words.count - 1,
                                 o->command ? o->command : command, err);
        return rc;
}

static int command_report(int argc, char **argv)
{
        struct rv_error_info err = {0};
        struct report_options o = {.command = NULL};
        char *list[4096], *command = command_line_text(argv[0], argc, argv);
        o.words = (struct words){.list = list, .capacity = sizeof list / sizeof *list};
        settings_options(report_rows, report_options_list, 0);
        int rc = command_line_parse(&report_argp, argc, argv, &o, false, &err);
        if (rc == 0)
                rc = report(&o, command, &err);
        free(command);
        return rc && rc != COMMAND_LINE_DONE ? complain("report", &err) : 0;
}

int main(int argc, char **argv)
{
        const char *command = argc > 1 ? argv[1] : "";
        char name[] = "ranvier compare";
        if (strcmp(command, "compare") == 0) {
                argv[1] = name;
                return command_compare(argc - 1, argv + 1);
        }
        if (strcmp(command, "plot") == 0) {
                argv[1] = strcpy(name, "ranvier plot");
                return command_plot(argc - 1, argv + 1);
        }
        if (strcmp(command, "report") == 0) {
                argv[1] = strcpy(name, "ranvier report");
                return command_report(argc - 1, argv + 1);
        }
        fprintf(stderr,
                "ranvier-plot: 'compare', 'plot' or 'report' was expected as the first word, not '%s'\n",
                command);
        return STATUS_USAGE;
}
