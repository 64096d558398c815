#include "plots/figure.h"
#include "plots/figures.h"

#include "runtime/base/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOGARITHMIC_FROM = 5 }; /* ratio of the longest to the shortest time */

static int same_layout(const struct run *a, const struct run *b)
{
        return memcmp(a->sizes, b->sizes, sizeof a->sizes) == 0;
}

static int same_model(const struct run *a, const struct run *b)
{
        return strcmp(a->gpt.name, b->gpt.name) == 0;
}

/* Which of the different ones (from 1) `runs[i]` is, counted over the measured runs up to it. */
static int number_of(const struct run *runs, int i, int (*same)(const struct run *, const struct run *))
{
        int number = 0;
        for (int j = 1; j <= i; j += 2) {
                bool seen = false;
                for (int k = 1; k < j; k += 2)
                        seen |= same(&runs[k], &runs[j]) != 0;
                number += !seen;
                if (same(&runs[j], &runs[i]))
                        return number;
        }
        return number;
}

static void name_series(struct figure *figure, const struct run *runs, int count)
{
        int models = 0, layouts = 0;
        char variable[32], value[GRID_TEXT];
        for (int i = 1; i < count; i += 2) {
                if (number_of(runs, i, same_model) > models) {
                        snprintf(variable, sizeof variable, "model_%d", ++models);
                        figure_text(figure, variable, runs[i].gpt.name);
                }
                if (number_of(runs, i, same_layout) > layouts) {
                        snprintf(variable, sizeof variable, "layout_%d", ++layouts);
                        figure_text(figure, variable, grid_text(value, runs[i].sizes, "", " × "));
                }
        }
        figure_number(figure, "models", models);
        figure_number(figure, "layouts", layouts);
}

/* Of nine batches in ten. */
static bool has_interval(const struct run *run)
{
        return run->simulated && run->figures.high > 0;
}

static void summarize(struct figure *figure, const struct run *runs, int count)
{
        double *errors = malloc((size_t)count * sizeof *errors);
        if (!errors) {
                figure_text(figure, "summary", "");
                figure_number(figure, "error_range", 100);
                return;
        }
        for (int i = 0; i < count / 2; i++)
                errors[i] =
                        fabs(runs_error_percent(runs[2 * i].figures.median, runs[2 * i + 1].figures.median));
        double median = quantile(errors, count / 2, 0.5), worst = errors[count / 2 - 1];
        free(errors);
        char text[128];
        snprintf(text, sizeof text, "%d configuration%s, median error %.1f %%, worst %.1f %%", count / 2,
                 count == 2 ? "" : "s", median, worst);
        figure_text(figure, "summary", text);
        double farthest = worst;
        for (int i = 0; i < count; i += 2)
                if (has_interval(&runs[i])) {
                        const double measured = runs[i + 1].figures.median;
                        farthest = fmax(farthest, fabs(runs_error_percent(runs[i].figures.low, measured)));
                        farthest = fmax(farthest, fabs(runs_error_percent(runs[i].figures.high, measured)));
                }
        figure_number(figure, "error_range", fmax(7.5, 1.2 * farthest));
}

int figures_predicted_measured(const char *out, const struct run *runs, int count, struct rv_error_info *err)
{
        struct figure figure;
        int rc = figure_open(&figure, "predicted-measured", out, err);
        if (rc)
                return rc;
        double low = INFINITY, high = 0;
        bool intervals = false;
        for (int i = 0; i < count; i++) {
                if (has_interval(&runs[i])) {
                        intervals = true;
                        low = fmin(low, runs[i].figures.low);
                        high = fmax(high, runs[i].figures.high);
                }
                low = fmin(low, fmin(runs[i].figures.median, runs[i].figures.p10));
                high = fmax(high, fmax(runs[i].figures.median, runs[i].figures.p90));
        }
        bool log_scale = high > LOGARITHMIC_FROM * low, milliseconds = high < 1;
        double scale = milliseconds ? 1e3 : 1, margin = fmax(0.08 * (high - low), 0.08 * high);
        for (int i = 0; i < count; i += 2)
                fprintf(figure.data, "%.9g %.9g %.9g %.9g %d %d %.9g %.9g\n",
                        runs[i + 1].figures.median * scale, runs[i].figures.median * scale,
                        runs[i + 1].figures.p10 * scale, runs[i + 1].figures.p90 * scale,
                        number_of(runs, i + 1, same_model), number_of(runs, i + 1, same_layout),
                        has_interval(&runs[i]) ? runs[i].figures.low * scale : NAN,
                        has_interval(&runs[i]) ? runs[i].figures.high * scale : NAN);
        name_series(&figure, runs, count);
        summarize(&figure, runs, count);
        figure_number(&figure, "intervals", intervals);
        figure_text(&figure, "unit", milliseconds ? "ms" : "s");
        figure_number(&figure, "log_scale", log_scale);
        figure_number(&figure, "low", (log_scale ? low / 1.3 : fmax(0, low - margin)) * scale);
        figure_number(&figure, "high", (log_scale ? high * 1.3 : high + margin) * scale);
        return figure_draw(&figure, err);
}
