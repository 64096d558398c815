#include "plots/html/report.h"

#include "plots/figures.h"
#include "plots/html/inputs.h"
#include "plots/html/page.h"
#include "plots/validation.h"
#include "runtime/base/csv.h"
#include "runtime/base/number.h"
#include "runtime/base/version.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS = 128, LONGEST_TABLE = 5000 };

/* Shares and gains below this are not shown. */
#define LEAST 0.0005

static const char *text_of(const json_t *object, const char *key)
{
        const char *text = json_string_value(json_object_get(object, key));
        return text ? text : "";
}

static double number_of(const json_t *object, const char *key)
{
        return json_number_value(json_object_get(object, key));
}

static const char *base_name(const char *path)
{
        const char *slash = strrchr(path, '/');
        return slash ? slash + 1 : path;
}

/* ---- figures ---- */

/* What a figure is drawn from. */
struct drawing {
        const struct run *runs;
        int count;
        const char *path;
        int (*of_runs)(const char *out, const struct run *runs, int count, struct rv_error_info *err);
        int (*of_file)(const char *out, const char *path, struct rv_error_info *err);
};

static int draw(const char *out, const void *context, struct rv_error_info *err)
{
        const struct drawing *d = context;
        return d->of_runs ? d->of_runs(out, d->runs, d->count, err) : d->of_file(out, d->path, err);
}

/* ---- a plan: the question, the answer, and what else there is ---- */

static void put_card(struct page *p, const char *label, const char *value, const char *format, double number)
{
        char note[96] = "";
        if (format)
                snprintf(note, sizeof note, format, number);
        page_card(p, label, value, note);
}

static void put_time(struct page *p, const char *label, double median, double low, double high)
{
        char value[NUMBER_TEXT], least[NUMBER_TEXT], most[NUMBER_TEXT], note[96] = "";
        if (high > 0)
                snprintf(note, sizeof note, "nine times in ten %s to %s", number_seconds(least, low),
                         number_seconds(most, high));
        page_card(p, label, number_seconds(value, median), note);
}

static void put_cost(struct page *p, const json_t *plan, double cost)
{
        const double price = number_of(json_object_get(plan, "question"), "price_per_gpu_hour");
        char count[NUMBER_TEXT], note[64] = "";
        if (price > 0)
                snprintf(note, sizeof note, "at %g for a GPU hour", price);
        if (cost > 0)
                page_card(p, "Cost", number_count(count, cost), note);
}

static void put_training(struct page *p, const json_t *plan, const json_t *best)
{
        char text[64], tokens[NUMBER_TEXT], count[NUMBER_TEXT], hours[64];
        const double days = number_of(best, "training_days"), wanted = number_of(plan, "days_wanted"),
                     cost = number_of(best, "cost"), energy = number_of(best, "kilowatt_hours_at_most");
        snprintf(text, sizeof text, "%.1f days", days);
        snprintf(hours, sizeof hours, "%s tokens%s",
                 number_tokens(tokens, number_of(best, "training_tokens")),
                 wanted <= 0      ? ""
                 : days <= wanted ? ", within the days wanted"
                                  : ", longer than wanted");
        page_card(p, "Training", text, hours);
        page_card(p, "GPU hours", number_count(count, number_of(best, "gpu_hours")), "");
        put_cost(p, plan, cost);
        if (energy > 0) {
                snprintf(text, sizeof text, "%s kWh", number_count(count, energy));
                page_card(p, "Energy, at most", text, text_of(json_object_get(plan, "sources"), "power"));
        }
}

static void put_answer(struct page *p, const json_t *plan)
{
        const json_t *best = json_object_get(plan, "best"), *time = json_object_get(best, "batch_seconds");
        const double bytes = number_of(json_object_get(best, "memory"), "device_peak_bytes"),
                     capacity = number_of(best, "device_memory_bytes"), host = number_of(best, "host_bytes");
        char text[96], value[NUMBER_TEXT];
        page_command(p, text_of(best, "flags"));
        page_cards(p);
        put_time(p, "A batch", number_of(time, "median"), number_of(time, "low"), number_of(time, "high"));
        snprintf(text, sizeof text, "%s tokens/s", number_count(value, number_of(best, "tokens_per_second")));
        put_card(p, "Throughput", text, number_of(best, "percent_of_peak") > 0 ? "%.1f %% of peak" : NULL,
                 number_of(best, "percent_of_peak"));
        snprintf(text, sizeof text, "of %s", number_bytes(value, capacity));
        page_card(p, "Memory of the fullest GPU", number_bytes(value, bytes), capacity > 0 ? text : "");
        if (host > 0)
                page_card(p, "Host memory", number_bytes(value, host), "");
        put_training(p, plan, best);
        page_cards_end(p);
}

static void put_bounds(struct page *p, const json_t *plan)
{
        static const char *const columns[] = {"What the time goes to", "Share of a batch", NULL};
        const json_t *part;
        size_t i;
        page_heading(p, "What bounds it");
        page_table(p, columns, NULL);
        json_array_foreach(json_object_get(plan, "bound_by"), i, part)
        {
                char text[32];
                const double share = number_of(part, "share");
                if (share < LEAST)
                        continue;
                snprintf(text, sizeof text, "%.1f %%", 100 * share);
                page_row(p);
                page_cell(p, text_of(part, "what"));
                page_number(p, share, text);
        }
        page_table_end(p);
}

static void put_changes(struct page *p, const json_t *plan)
{
        static const char *const columns[] = {"Change", "Gain", "The best plan then", NULL};
        const json_t *changes = json_object_get(plan, "changes"), *change;
        size_t i;
        if (json_array_size(changes) == 0)
                return;
        page_heading(p, "What would help most");
        page_table(p, columns, NULL);
        json_array_foreach(changes, i, change)
        {
                char text[32];
                if (number_of(change, "gain") < LEAST)
                        continue;
                snprintf(text, sizeof text, "%+.1f %%", 100 * number_of(change, "gain"));
                page_row(p);
                page_cell(p, text_of(change, "what"));
                page_number(p, number_of(change, "gain"), text);
                page_cell(p, text_of(change, "flags"));
        }
        page_table_end(p);
}

/* The plan of the file that the question is from, beside the best. */
static void put_own(struct page *p, const json_t *plan)
{
        const json_t *own = json_object_get(plan, "own");
        const char *path = base_name(text_of(json_object_get(plan, "from"), "path"));
        char heading[160], text[NUMBER_TEXT];
        if (!own)
                return;
        snprintf(heading, sizeof heading, "The plan of %.120s", path);
        page_heading(p, heading);
        if (!json_is_object(own)) {
                page_paragraph(p, "It was not simulated: %s.",
                               json_string_value(own) ? json_string_value(own) : "");
                return;
        }
        const double best = number_of(json_object_get(json_object_get(plan, "best"), "batch_seconds"),
                                      "median"),
                     seconds = number_of(json_object_get(own, "batch_seconds"), "median");
        page_command(p, text_of(own, "flags"));
        page_paragraph(p, "A batch takes %s: the best plan has %.1f %% more throughput.",
                       number_seconds(text, seconds), 100 * (seconds / best - 1));
}

static void put_second(struct page *p, const json_t *plan)
{
        const json_t *second = json_object_get(plan, "second"), *win,
                     *enough = json_object_get(plan, "enough");
        const double best = number_of(json_object_get(json_object_get(plan, "best"), "batch_seconds"),
                                      "median"),
                     seconds = number_of(json_object_get(second, "batch_seconds"), "median");
        char text[NUMBER_TEXT];
        size_t i;
        if (json_is_object(enough)) {
                page_heading(p, "In the days that it may take");
                page_paragraph(p, "%.0f GPUs would do, on paper in %.1f days, with",
                               number_of(enough, "gpus"), number_of(enough, "days"));
                page_command(p, text_of(enough, "flags"));
        }
        if (!json_is_object(second))
                return;
        page_heading(p, "The next, which divides the work in another way");
        page_command(p, text_of(second, "flags"));
        fputs("<p>", p->out);
        page_format(p, "A batch takes %s, %.1f %% more.", number_seconds(text, seconds),
                    100 * (seconds / best - 1));
        json_array_foreach(json_object_get(plan, "second_wins"), i, win)
        {
                page_format(p, " It wins where %s.", text_of(win, "what"));
        }
        fputs("</p>\n", p->out);
}

/* The best plan with fewer or more replicas. */
static int put_replicas(struct page *p, const json_t *plan, struct rv_error_info *err)
{
        static const char *const columns[] = {"GPUs", "Time per batch", "Tokens/s", NULL};
        const json_t *scales = json_object_get(plan, "replicas"), *scale;
        const int count = (int)json_array_size(scales);
        const char *model = text_of(json_object_get(plan, "question"), "model");
        struct run *runs = count > 1 ? calloc((size_t)count, sizeof *runs) : NULL;
        size_t i;
        if (count < 2)
                return 0;
        if (!runs)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d numbers of GPUs", count);
        page_heading(p, "The same plan with fewer or more replicas");
        page_paragraph(
                p, "The batch is the same. Numbers of GPUs with which the plan does not fit are left out.");
        page_table(p, columns, NULL);
        json_array_foreach(scales, i, scale)
        {
                const double gpus = number_of(scale, "gpus"), seconds = number_of(scale, "batch_seconds"),
                             tokens = number_of(scale, "tokens_per_second");
                char text[NUMBER_TEXT];
                page_row(p);
                page_number(p, gpus, number_count(text, gpus));
                page_number(p, seconds, number_seconds(text, seconds));
                page_number(p, tokens, number_count(text, tokens));
                snprintf(runs[i].gpt.name, sizeof runs[i].gpt.name, "%s", model);
                snprintf(runs[i].how, sizeof runs[i].how, "the best plan");
                runs[i].simulated = true;
                runs[i].pp = runs[i].tp = runs[i].context_ranks = 1;
                runs[i].dp = (int)gpus;
                runs[i].figures.tokens_per_second = tokens;
        }
        page_table_end(p);
        const struct drawing drawing = {.runs = runs, .count = count, .of_runs = figures_throughput};
        const int rc = page_figure(p, "Throughput by number of GPUs: more replicas share the same batch.",
                                   false, draw, &drawing, err);
        free(runs);
        return rc;
}

static int put_plan(struct page *p, const json_t *plan, struct rv_error_info *err)
{
        const json_t *question = json_object_get(plan, "question"), *assumed,
                     *search = json_object_get(plan, "search");
        char a[NUMBER_TEXT], b[NUMBER_TEXT], c[NUMBER_TEXT];
        size_t i;
        page_section(p, "The question", NULL);
        fputs("<p>", p->out);
        page_format(p,
                    "How should %s be trained on %.0f GPUs (%s, %s), in batches of %.0f sequences of %.0f "
                    "tokens, in "
                    "%s%s%s, and what does that take?",
                    text_of(question, "model"), number_of(question, "gpus"), text_of(question, "gpu"),
                    text_of(question, "platform"), number_of(question, "batch_size"),
                    number_of(question, "seq_len"), text_of(question, "precision"),
                    *text_of(question, "like") ? ", as it runs in " : "", text_of(question, "like"));
        json_array_foreach(json_object_get(question, "assumed"), i, assumed)
        {
                page_format(p, " Assumed: %s.", json_string_value(assumed));
        }
        fputs("</p>\n", p->out);
        page_section(p, "The answer", NULL);
        put_answer(p, plan);
        put_own(p, plan);
        put_bounds(p, plan);
        put_second(p, plan);
        put_changes(p, plan);
        const int rc = put_replicas(p, plan, err);
        page_heading(p, "How it was found");
        page_paragraph(p, "%s plans were weighed in %s, %s of them fit, and the best %.0f were simulated%s.",
                       number_count(a, number_of(search, "weighed")),
                       number_seconds(b, number_of(search, "seconds")),
                       number_count(c, number_of(search, "fit")), number_of(search, "simulated"),
                       json_is_true(json_object_get(search, "stopped"))
                               ? "; the search was stopped before its end"
                               : "");
        return rc;
}

/* ---- runs ---- */

static int draw_timeline(const char *out, const char *path, struct rv_error_info *err)
{
        const struct timeline_cut whole = {.batch = -1, .to = INFINITY};
        return figures_timeline(out, path, &whole, err);
}

static void put_bytes(struct page *p, double bytes)
{
        char text[NUMBER_TEXT];
        page_number(p, bytes, number_bytes(text, bytes));
}

static int ranks_of(const struct run *run)
{
        return run->pp * run->dp * run->tp * run->context_ranks;
}

/* Of the whole training, whose tokens the report says. */
static void put_days(struct page *p, const struct run *run)
{
        const double days = number_of(run->document, "training_days"), hours = 24 * days * ranks_of(run);
        char text[96], tokens[NUMBER_TEXT], count[NUMBER_TEXT];
        snprintf(text, sizeof text, days > 0 ? "%.1f for %s tokens" : "", days,
                 number_tokens(tokens, number_of(run->document, "training_tokens")));
        page_number(p, days, text);
        page_number(p, hours, days > 0 ? number_count(count, hours) : "");
}

static void put_run(struct page *p, const struct run *run)
{
        const struct figures *f = &run->figures;
        char text[96], low[NUMBER_TEXT], high[NUMBER_TEXT], grid[96];
        snprintf(grid, sizeof grid, "pp %d, dp %d, tp %d%s", run->pp, run->dp, run->tp,
                 run->context_ranks > 1 ? ", cp" : "");
        if (run->context_ranks > 1)
                snprintf(grid + strlen(grid), sizeof grid - strlen(grid), " %d", run->context_ranks);
        page_row(p);
        page_cell(p, base_name(run->path));
        page_cell(p, run->simulated ? "predicted" : "measured");
        page_cell(p, run->gpt.name);
        page_number(p, ranks_of(run), number_count(text, ranks_of(run)));
        page_cell(p, grid);
        page_cell(p, run->how);
        page_number(p, run->micro_batch_size, number_count(text, run->micro_batch_size));
        page_number(p, (double)run->batch_size, number_count(text, (double)run->batch_size));
        page_number(p, f->median, number_seconds(text, f->median));
        if (f->high > 0)
                snprintf(text, sizeof text, "%s to %s", number_seconds(low, f->low),
                         number_seconds(high, f->high));
        page_cell(p, f->high > 0 ? text : "");
        page_number(p, f->tokens_per_second, number_count(text, f->tokens_per_second));
        snprintf(text, sizeof text, f->percent_of_peak > 0 ? "%.1f %%" : "", f->percent_of_peak);
        page_number(p, f->percent_of_peak, text);
        snprintf(text, sizeof text, "%.1f %%", 100 * f->bubble_fraction);
        page_number(p, f->bubble_fraction, text);
        put_bytes(p, (double)f->device_peak_bytes);
        put_bytes(p, (double)f->host_offloaded_bytes);
        put_days(p, run);
}

static void put_pairs(struct page *p, const struct inputs *in, int count)
{
        static const char *const columns[] = {"Predicted",         "Measured", "Time per batch, predicted",
                                              "Measured",          "Error",    "Within the interval",
                                              "Memory, predicted", "Measured", NULL};
        page_section(
                p, "Predicted against measured",
                "An error is predicted / measured - 1. What the prediction was fitted on stands below, under "
                "assumptions.");
        page_table(p, columns, NULL);
        for (int i = 0; i < in->runs && count > 0; i++) {
                const struct run *a = &in->run[i], *b = a->simulated ? inputs_partner(in, a) : NULL;
                char text[NUMBER_TEXT];
                if (!b)
                        continue;
                const double error = runs_error_percent(a->figures.median, b->figures.median);
                page_row(p);
                page_cell(p, base_name(a->path));
                page_cell(p, base_name(b->path));
                page_number(p, a->figures.median, number_seconds(text, a->figures.median));
                page_number(p, b->figures.median, number_seconds(text, b->figures.median));
                snprintf(text, sizeof text, "%+.2f %%", error);
                page_number(p, fabs(error), text);
                page_cell(p, a->figures.high <= 0 ? "no interval"
                             : b->figures.median >= a->figures.low && b->figures.median <= a->figures.high
                                     ? "yes"
                                     : "no");
                put_bytes(p, (double)a->figures.device_peak_bytes);
                put_bytes(p, (double)b->figures.device_peak_bytes);
        }
        page_table_end(p);
}

static int put_pair_figure(struct page *p, const struct inputs *in, struct rv_error_info *err)
{
        struct run *pairs = calloc(2 * (size_t)in->runs + 1, sizeof *pairs);
        int count = 0, rc = 0;
        if (!pairs)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d reports", in->runs);
        for (int i = 0; i < in->runs; i++) {
                const struct run *b = in->run[i].simulated ? inputs_partner(in, &in->run[i]) : NULL;
                if (!b)
                        continue;
                pairs[count++] = in->run[i];
                pairs[count++] = *b;
        }
        if (count > 0) {
                const struct drawing d = {
                        .runs = pairs, .count = count, .of_runs = figures_predicted_measured};
                put_pairs(p, in, count);
                rc = page_figure(
                        p, "Time per batch, predicted over measured, with the diagonal and a band of 5 %.",
                        false, draw, &d, err);
        }
        free(pairs);
        return rc;
}

/* The figures of one model's runs; of several models one would not be seen beside the other. */
static int put_figures(struct page *p, const struct run *runs, int count, struct rv_error_info *err)
{
        struct drawing d = {.runs = runs, .count = count, .of_runs = figures_phases};
        bool several_sizes = false;
        for (int i = 1; i < count; i++)
                several_sizes |= ranks_of(&runs[i]) != ranks_of(&runs[0]);
        page_heading(p, runs->gpt.name);
        int rc = page_figure(p, "The time of a batch by phase.", false, draw, &d, err);
        d.of_runs = figures_memory;
        if (rc == 0)
                rc = page_figure(p, "The memory of the rank with most of it, by category.", false, draw, &d,
                                 err);
        d.of_runs = figures_throughput;
        if (rc == 0 && several_sizes)
                rc = page_figure(p, "Tokens a second and percent of peak by number of GPUs.", false, draw, &d,
                                 err);
        return rc;
}

static int put_models(struct page *p, const struct inputs *in, struct rv_error_info *err)
{
        struct run *own = calloc((size_t)in->runs, sizeof *own);
        int rc = own ? 0 : rv_fail(err, RV_ESYSTEM, "no memory for %d reports", in->runs);
        for (int i = 0; rc == 0 && i < in->runs; i++) {
                int count = 0;
                bool seen = false;
                for (int j = 0; j < in->runs; j++)
                        if (strcmp(in->run[j].gpt.name, in->run[i].gpt.name) == 0) {
                                seen |= j < i;
                                own[count++] = in->run[j];
                        }
                if (!seen)
                        rc = put_figures(p, own, count, err);
        }
        free(own);
        return rc;
}

/* Whether two predictions are of the same training on as many devices. */
static bool same_question(const struct run *a, const struct run *b)
{
        const char *precisions[] = {text_of(json_object_get(a->document, "plan"), "precision"),
                                    text_of(json_object_get(b->document, "plan"), "precision")};
        return a->simulated && b->simulated && gpt_same(&a->gpt, &b->gpt) &&
               strcmp(precisions[0], precisions[1]) == 0 && a->batch_size == b->batch_size &&
               a->seq_len == b->seq_len && ranks_of(a) == ranks_of(b);
}

/* Of several predictions of one training: which is the fastest, and by how much. */
static void put_fastest(struct page *p, const struct inputs *in)
{
        const struct run *best = &in->run[0];
        char text[NUMBER_TEXT];
        for (int i = 1; i < in->runs; i++) {
                if (!same_question(best, &in->run[i]))
                        return;
                best = in->run[i].figures.median < best->figures.median ? &in->run[i] : best;
        }
        if (in->runs < 2)
                return;
        fputs("<p>", p->out);
        page_format(p, "%s is the fastest, with %s a batch", base_name(best->path),
                    number_seconds(text, best->figures.median));
        for (int i = 0, told = 0; i < in->runs; i++)
                if (&in->run[i] != best)
                        page_format(p, "%s %.1f %% more throughput than %s", told++ ? ", and" : ":",
                                    100 * (in->run[i].figures.median / best->figures.median - 1),
                                    base_name(in->run[i].path));
        page_text(p, ".");
        fputs("</p>\n", p->out);
}

static int put_runs(struct page *p, const struct inputs *in, struct rv_error_info *err)
{
        static const char *const columns[] = {"Report",         "World",
                                              "Model",          "GPUs or ranks",
                                              "Grid",           "Schedule and more",
                                              "Micro-batch",    "Batch",
                                              "Time per batch", "Nine times in ten",
                                              "Tokens/s",       "Of peak",
                                              "Bubble",         "Device memory",
                                              "Host memory",    "Days",
                                              "GPU hours",      NULL};
        if (in->runs == 0)
                return 0;
        page_section(p, "Plans and what they take",
                     "A click on a column's name sorts by it. Memory is that of the rank with most of it.");
        put_fastest(p, in);
        page_table(p, columns, in->runs > 1 ? "Show only rows with" : NULL);
        for (int i = 0; i < in->runs; i++)
                put_run(p, &in->run[i]);
        page_table_end(p);
        const int rc = put_models(p, in, err);
        return rc ? rc : put_pair_figure(p, in, err);
}

/* ---- traces and tables ---- */

static int put_traces(struct page *p, const struct inputs *in, struct rv_error_info *err)
{
        int rc = 0;
        if (in->traces > 0)
                page_section(p, "Timelines", "Who did what when, in a batch in the middle of the run.");
        for (int i = 0; rc == 0 && i < in->traces; i++) {
                const struct drawing d = {.path = in->trace_paths[i], .of_file = draw_timeline};
                page_heading(p, base_name(in->trace_paths[i]));
                rc = page_figure(p, "The lanes of the ranks over time.", true, draw, &d, err);
        }
        return rc;
}

/* Numbers with a point are shown to six digits. */
static void put_csv_cell(struct page *p, const char *text)
{
        char *end, digits[32];
        const double value = strtod(text, &end);
        snprintf(digits, sizeof digits, "%.6g", value);
        if (*text && !*end && isfinite(value))
                page_number(p, value, strpbrk(text, ".e") ? digits : text);
        else
                page_cell(p, text);
}

/* The first line of a table names its columns; lines that begin with # are remarks. */
static int put_rows(struct page *p, struct file_lines *lines, struct rv_error_info *err)
{
        char *cells[CELLS + 1];
        int width = 0, rows = 0, rc;
        while ((rc = file_next_line(lines, err)) > 0) {
                if (*lines->line == '#' || !*lines->line)
                        continue;
                const int count = csv_split(lines->line, cells, CELLS);
                if (!width && count < 2)
                        return rv_fail(
                                err, RV_EINPUT,
                                "%s:%lld: a report, a trace, or a table whose first line names its columns "
                                "was expected",
                                lines->path, (long long)lines->number);
                if (width && count != width)
                        return rv_fail(err, RV_EINPUT,
                                       "%s:%lld: %d cells were expected, as in the first line", lines->path,
                                       (long long)lines->number, width);
                if (!width) {
                        width = count;
                        cells[width] = NULL;
                        page_table(p, (const char *const *)cells, "Show only rows with");
                } else if (rows++ < LONGEST_TABLE) {
                        page_row(p);
                        for (int i = 0; i < width; i++)
                                put_csv_cell(p, cells[i]);
                }
        }
        if (rc)
                return rc;
        page_table_end(p);
        if (rows > LONGEST_TABLE)
                page_paragraph(p, "Only the first %d of %d rows are shown.", LONGEST_TABLE, rows);
        return 0;
}

/* Whether a table has the columns of another command's. */
static bool is_of(const char *path, const char *const *columns)
{
        struct file_lines lines = {.path = path, .stream = fopen(path, "rb")};
        struct rv_error_info why;
        char *cells[CELLS];
        bool all = false;
        if (lines.stream && file_next_line(&lines, &why) > 0) {
                const int count = csv_split(lines.line, cells, CELLS);
                all = true;
                for (; *columns; columns++)
                        all &= csv_find(cells, count, *columns) >= 0;
        }
        if (lines.stream)
                fclose(lines.stream);
        free(lines.line);
        return all;
}

static int put_sweep(struct page *p, const char *path, struct rv_error_info *err)
{
        struct drawing d = {.path = path, .of_file = figures_sweep_throughput};
        int rc = page_figure(p, "The best plans by number of GPUs: tokens a second and percent of peak.",
                             false, draw, &d, err);
        d.of_file = figures_sweep_memory;
        return rc ? rc : page_figure(p, "The device memory of the best plans.", false, draw, &d, err);
}

static int put_validation(struct page *p, const char *path, struct rv_error_info *err)
{
        const struct drawing d = {.path = path, .of_file = figures_validation};
        char text[VALIDATION_TEXT];
        int count;
        struct validation_run *runs = validation_read(path, &count, err);
        if (!runs)
                return (int)err->code;
        page_paragraph(p, "%s. An error is predicted / measured - 1.", validation_summary(runs, count, text));
        free(runs);
        return page_figure(p, "Seconds a batch, predicted over measured, with a band of 10 %.", false, draw,
                           &d, err);
}

static int put_table(struct page *p, const char *path, struct rv_error_info *err)
{
        static const char *const sweep[] = {"offload", "batch_seconds", "best", NULL},
                                 *const validation[] = {"fitted", "predicted", "error", "batch_seconds",
                                                        NULL};
        struct file_lines lines = {.path = path};
        const bool plans = is_of(path, sweep), runs = !plans && is_of(path, validation);
        page_section(p,
                     plans  ? "Plans that were simulated"
                     : runs ? "Predictions against measured runs"
                            : base_name(path),
                     NULL);
        int rc = plans ? put_sweep(p, path, err) : runs ? put_validation(p, path, err) : 0;
        if (rc)
                return rc;
        lines.stream = fopen(path, "rb");
        if (!lines.stream)
                return rv_fail(err, RV_EINPUT, "%s: cannot be read: %s", path, strerror(errno));
        rc = put_rows(p, &lines, err);
        fclose(lines.stream);
        free(lines.line);
        return rc;
}

static int put_tables(struct page *p, const struct inputs *in, struct rv_error_info *err)
{
        int rc = 0;
        for (int i = 0; rc == 0 && i < in->tables; i++)
                rc = put_table(p, in->table_paths[i], err);
        return rc;
}

/* ---- how far to trust it, and what made it ---- */

static void put_source(struct page *p, const char *what, const char *name, const char *source)
{
        if (*name || *source)
                page_format(p, "%s %s%s%s. ", what, name, *name && *source ? ": " : "", source);
}

/* The command that made a file, up to the file's own name if its outputs stand last. */
static void put_command(struct page *p, const char *path, const char *command)
{
        static const char option[] = " --report ";
        char text[4096];
        snprintf(text, sizeof text, "%s", command);
        char *last = NULL;
        for (char *at = text; (at = strstr(at, option)); at++)
                last = at;
        char *own = last ? last + strlen(option) : NULL;
        const size_t length = strlen(path);
        if (own && strncmp(own, path, length) == 0 &&
            (!own[length] || strncmp(own + length, " --trace ", strlen(" --trace ")) == 0))
                *last = 0;
        if (*text)
                page_command(p, text);
}

/* A file, what it rests on, and the command that made it. */
static void put_basis(struct page *p, const char *path, const json_t *document)
{
        const json_t *profile = json_object_get(document, "profile"),
                     *platform = json_object_get(document, "platform"),
                     *sources = json_object_get(document, "sources"), *note;
        size_t i;
        page_heading(p, base_name(path));
        fputs("<p>", p->out);
        if (json_is_object(profile)) {
                put_source(p, "Profile", base_name(text_of(profile, "path")), text_of(profile, "source"));
                page_format(p,
                            "Of its kernels' prices %.0f are measured points, %.0f come from tables of "
                            "measured ones, and %.0f from fits. ",
                            number_of(profile, "kernels_from_points"),
                            number_of(profile, "kernels_from_tables"),
                            number_of(profile, "kernels_from_fits"));
                if (json_is_false(json_object_get(profile, "measured")))
                        page_text(p, "What the fits go by was not measured on this machine. ");
        }
        if (json_is_object(platform))
                put_source(p, "Platform", text_of(platform, "name"), text_of(platform, "source"));
        put_source(p, "Profile", "", text_of(sources, "profile"));
        put_source(p, "Platform", "", text_of(sources, "platform"));
        put_source(p, "Power", "", text_of(sources, "power"));
        json_array_foreach(json_object_get(document, "notes"), i, note)
        {
                put_source(p, "Note:", json_string_value(note) ? json_string_value(note) : "", "");
        }
        fputs("</p>\n", p->out);
        put_command(p, path, text_of(document, "command"));
        if (*text_of(document, "again"))
                page_command(p, text_of(document, "again"));
}

static void put_trust(struct page *p, const struct inputs *in, const char *command)
{
        page_section(p, "Assumptions, sources, and how far to trust it",
                     "An interval holds nine times in ten: it comes from the errors of the kernel times, and "
                     "is left "
                     "out where these are not known. What was not measured is said to be so.");
        for (int i = 0; i < in->plans; i++)
                put_basis(p, in->plan_paths[i], in->plan[i]);
        for (int i = 0; i < in->runs; i++)
                put_basis(p, in->run[i].path, in->run[i].document);
        page_heading(p, "This page");
        page_paragraph(p, "Made by ranvier %s%s", RANVIER_VERSION, command ? " with" : ".");
        if (command)
                page_command(p, command);
}

static void choose_title(const struct inputs *in, const char *command, char *title, size_t size)
{
        if (in->plans > 0) {
                const json_t *question = json_object_get(in->plan[0], "question");
                snprintf(title, size, "%s on %.0f × %s", text_of(question, "model"),
                         number_of(question, "gpus"), text_of(question, "gpu"));
        } else if (in->runs > 0)
                snprintf(title, size, "%s: %s", in->run[0].gpt.name,
                         in->runs == 1 ? (in->run[0].simulated ? "a prediction" : "a training")
                                       : "predictions and trainings");
        else if (command && strncmp(command, "ranvier report", strlen("ranvier report")) != 0)
                snprintf(title, size, "%.100s", command);
        else
                snprintf(title, size, "%s",
                         in->tables ? base_name(in->table_paths[0]) : base_name(in->trace_paths[0]));
}

int html_report(const char *path, const char *given_title, char *const *files, int count, const char *command,
                struct rv_error_info *err)
{
        struct inputs in;
        struct page p;
        char title[256], subtitle[128];
        int rc = inputs_open(&in, files, count, err);
        if (rc == 0) {
                if (given_title)
                        snprintf(title, sizeof title, "%s", given_title);
                else
                        choose_title(&in, command, title, sizeof title);
                snprintf(subtitle, sizeof subtitle, "A report of ranvier, of %d file%s", count,
                         rv_plural(count));
                rc = page_begin(&p, path, title, subtitle, err);
        }
        if (rc) {
                inputs_close(&in);
                return rc;
        }
        for (int i = 0; rc == 0 && i < in.plans; i++)
                rc = put_plan(&p, in.plan[i], err);
        if (rc == 0)
                rc = put_runs(&p, &in, err);
        if (rc == 0)
                rc = put_tables(&p, &in, err);
        if (rc == 0)
                rc = put_traces(&p, &in, err);
        put_trust(&p, &in, command);
        inputs_close(&in);
        if (rc == 0)
                return page_end(&p, err);
        page_abandon(&p);
        return rc;
}
