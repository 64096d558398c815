#include "plots/bars.h"
#include "plots/figures.h"

#include "runtime/base/number.h"

#include <math.h>
#include <string.h>

/* What is far beyond the bars would leave no room for them. */
static bool limit_shown(const struct run *run, int64_t longest)
{
        return run->device_capacity_bytes > 0 && run->device_capacity_bytes <= 3 * longest;
}

/* Bars of a figure, of which the longest, or a limit, has `most` bytes. */
struct scale {
        int64_t longest, most;
        double unit; /* bytes */
};

/* Where the text behind a bar of `sum` bytes begins: behind the limit's line, where that would cross it. */
static int64_t text_begin(const struct run *run, int64_t sum, const struct scale *scale)
{
        static const double TEXT = 0.22; /* of the longest bar: what a text takes */
        const int64_t limit = run->device_capacity_bytes;
        const bool crosses = limit_shown(run, scale->longest) && sum <= limit &&
                             (double)limit < (double)sum + TEXT * (double)scale->most;
        return crosses ? limit : sum;
}

/* A row a report: the bytes of every category in `unit`, their sum, its text (none if there are none), and
 * where that begins. */
static void write_bars(const struct run *runs, int count, enum memory_space space, bool name_space,
                       const struct scale *scale, FILE *data)
{
        const double unit = scale->unit;
        for (int i = 0; i < count; i++) {
                char text[NUMBER_TEXT];
                int64_t sum = space == MEMORY_DEVICE ? runs[i].figures.device_peak_bytes
                                                     : memory_total(&runs[i].bytes, space);
                for (int c = 0; c < MEMORY_CATEGORIES; c++)
                        fprintf(data, "%.9g ", (double)runs[i].bytes.in[space][c] / unit);
                fprintf(data, "%.9g \"%s%s%s\" %.9g\n", (double)sum / unit,
                        sum ? number_bytes(text, (double)sum) : "", sum && name_space ? " " : "",
                        sum && name_space ? memory_space_name(space) : "",
                        (double)text_begin(&runs[i], sum, scale) / unit);
        }
        fprintf(data, "\n\n");
}

/* A row a report: what a device has. */
static void write_limits(const struct run *runs, int count, const struct scale *scale, FILE *data)
{
        for (int i = 0; i < count; i++)
                fprintf(data, "%.9g\n",
                        limit_shown(&runs[i], scale->longest)
                                ? (double)runs[i].device_capacity_bytes / scale->unit
                                : NAN);
        fprintf(data, "\n\n");
}

/* The variables categories (how many columns), used (the numbers, from 1, of those that any report has bytes
 * in) and category_1 ... (names). */
static void name_categories(struct figure *figure, const struct run *runs, int count)
{
        char used[4 * MEMORY_CATEGORIES] = "", variable[32];
        for (int c = 0; c < MEMORY_CATEGORIES; c++) {
                int64_t bytes = 0;
                for (int i = 0; i < count; i++)
                        bytes |= runs[i].bytes.in[MEMORY_DEVICE][c] | runs[i].bytes.in[MEMORY_HOST][c];
                if (bytes)
                        sprintf(used + strlen(used), "%d ", c + 1);
                snprintf(variable, sizeof variable, "category_%d", c + 1);
                figure_text(figure, variable, memory_category_name((enum memory_category)c));
        }
        figure_text(figure, "used", used);
        figure_number(figure, "categories", MEMORY_CATEGORIES);
}

int figures_memory(const char *out, const struct run *runs, int count, struct rv_error_info *err)
{
        struct figure figure;
        int rc = figure_open(&figure, "memory", out, err);
        if (rc)
                return rc;
        int64_t max = 1, max_host = 0;
        for (int i = 0; i < count; i++) {
                int64_t host = memory_host_shown(&runs[i].bytes);
                max = runs[i].figures.device_peak_bytes > max ? runs[i].figures.device_peak_bytes : max;
                max_host = host > max_host ? host : max_host;
                bars_name(&figure, &runs[i], i + 1);
        }
        max = max_host > max ? max_host : max;
        int64_t most = max;
        bool limits = false;
        for (int i = 0; i < count; i++)
                if (limit_shown(&runs[i], max)) {
                        limits = true;
                        most = runs[i].device_capacity_bytes > most ? runs[i].device_capacity_bytes : most;
                }
        const struct scale scale = {max, most, figure_bytes_unit(&figure, max)};
        write_bars(runs, count, MEMORY_DEVICE, max_host > 0, &scale, figure.data);
        write_bars(runs, count, MEMORY_HOST, true, &scale, figure.data);
        write_limits(runs, count, &scale, figure.data);
        name_categories(&figure, runs, count);
        figure_number(&figure, "limits", limits);
        figure_number(&figure, "bars", count);
        figure_number(&figure, "host", max_host > 0);
        figure_number(&figure, "most", (double)most / scale.unit);
        return figure_draw(&figure, err);
}
