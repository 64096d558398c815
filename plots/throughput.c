#include "plots/figure.h"
#include "plots/figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int gpus(const struct run *run)
{
        return (int)grid_ranks(run->sizes) * run->context_ranks;
}

/* By number of GPUs, the fastest first. */
static int by_gpus(const void *a, const void *b)
{
        const struct run *x = *(const struct run *const *)a, *y = *(const struct run *const *)b;
        if (gpus(x) != gpus(y))
                return gpus(x) < gpus(y) ? -1 : 1;
        return (x->figures.tokens_per_second < y->figures.tokens_per_second) -
               (x->figures.tokens_per_second > y->figures.tokens_per_second);
}

static bool same_series(const struct run *a, const struct run *b)
{
        return strcmp(a->gpt.name, b->gpt.name) == 0 && a->simulated == b->simulated &&
               strcmp(a->how, b->how) == 0;
}

static void write_point(struct figure *figure, const struct run *run, double unit, double perfect)
{
        fprintf(figure->data, "%d %.9g %.9g %.9g\n", gpus(run), run->figures.tokens_per_second / unit,
                perfect / unit, run->figures.percent_of_peak > 0 ? run->figures.percent_of_peak : NAN);
}

/* Two blocks: every report as a point, then for each number of GPUs the fastest, which the line goes through.
 * Returns whether there are several numbers. */
static bool write_series(struct figure *figure, const struct run *runs, int count, const struct run *first,
                         double unit, const struct run **sorted)
{
        int points = 0;
        for (int i = 0; i < count; i++)
                if (same_series(&runs[i], first))
                        sorted[points++] = &runs[i];
        qsort(sorted, (size_t)points, sizeof(*sorted), by_gpus);
        for (int i = 0; i < points; i++)
                write_point(figure, sorted[i], unit, NAN);
        fprintf(figure->data, "\n\n");
        double each = sorted[0]->figures.tokens_per_second / gpus(sorted[0]);
        for (int i = 0; i < points; i++)
                if (i == 0 || gpus(sorted[i]) != gpus(sorted[i - 1]))
                        write_point(figure, sorted[i], unit, each * gpus(sorted[i]));
        fprintf(figure->data, "\n\n");
        return gpus(sorted[0]) != gpus(sorted[points - 1]);
}

static int write_all(struct figure *figure, const struct run *runs, int count, struct rv_error_info *err)
{
        const struct run **sorted = malloc((size_t)count * sizeof(*sorted));
        if (!sorted)
                return rv_fail(err, RV_ESYSTEM, "out of memory for %d reports", count);
        int series = 0, fewest = gpus(&runs[0]), max = fewest;
        bool peak_known = false;
        double max_tokens = 0;
        for (int i = 0; i < count; i++)
                max_tokens = fmax(max_tokens, runs[i].figures.tokens_per_second);
        double unit = figure_tokens_unit(figure, max_tokens);
        for (int i = 0; i < count; i++) {
                bool seen = false;
                for (int j = 0; j < i; j++)
                        seen |= same_series(&runs[j], &runs[i]);
                fewest = gpus(&runs[i]) < fewest ? gpus(&runs[i]) : fewest;
                max = gpus(&runs[i]) > max ? gpus(&runs[i]) : max;
                peak_known |= runs[i].figures.percent_of_peak > 0;
                if (seen)
                        continue;
                char variable[32], value[320];
                snprintf(variable, sizeof variable, "series_%d", ++series);
                snprintf(value, sizeof value, "%s, %s, %s", runs[i].gpt.name, runs[i].how,
                         runs[i].simulated ? "simulated" : "measured");
                figure_text(figure, variable, value);
                snprintf(variable, sizeof variable, "line_%d", series);
                figure_number(figure, variable, write_series(figure, runs, count, &runs[i], unit, sorted));
        }
        free(sorted);
        figure_number(figure, "series", series);
        figure_number(figure, "peak_known", peak_known);
        figure_number(figure, "fewest", fewest);
        figure_number(figure, "most", max);
        return 0;
}

int figures_throughput(const char *out, const struct run *runs, int count, struct rv_error_info *err)
{
        struct figure figure;
        int rc = figure_open(&figure, "throughput", out, err);
        if (rc)
                return rc;
        rc = write_all(&figure, runs, count, err);
        if (rc) {
                figure_abandon(&figure);
                return rc;
        }
        return figure_draw(&figure, err);
}
