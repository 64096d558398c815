#include "plots/bars.h"
#include "plots/figures.h"

#include "runtime/base/number.h"

#include <math.h>
#include <string.h>

/* A row a report: the bytes of every category in `unit`, their sum, its text (none if there are none). */
static void write_bars(const struct run *runs, int count, enum memory_space space, bool name_space,
                       double unit, FILE *data)
{
        for (int i = 0; i < count; i++) {
                char text[NUMBER_TEXT];
                int64_t sum = space == MEMORY_DEVICE ? runs[i].figures.device_peak_bytes
                                                     : memory_total(&runs[i].bytes, space);
                for (int c = 0; c < MEMORY_CATEGORIES; c++)
                        fprintf(data, "%.9g ", (double)runs[i].bytes.in[space][c] / unit);
                fprintf(data, "%.9g \"%s%s%s\"\n", (double)sum / unit,
                        sum ? number_bytes(text, (double)sum) : "", sum && name_space ? " " : "",
                        sum && name_space ? memory_space_name(space) : "");
        }
        fprintf(data, "\n\n");
}

/* What is far beyond the bars would leave no room for them. */
static bool limit_shown(const struct run *run, int64_t longest)
{
        return run->device_capacity_bytes > 0 && run->device_capacity_bytes <= 3 * longest;
}

/* A row a report: what a device has. */
static void write_limits(const struct run *runs, int count, int64_t longest, double unit, FILE *data)
{
        for (int i = 0; i < count; i++)
                fprintf(data, "%.9g\n",
                        limit_shown(&runs[i], longest) ? (double)runs[i].device_capacity_bytes / unit : NAN);
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
        double unit = figure_bytes_unit(&figure, max);
        write_bars(runs, count, MEMORY_DEVICE, max_host > 0, unit, figure.data);
        write_bars(runs, count, MEMORY_HOST, true, unit, figure.data);
        write_limits(runs, count, max, unit, figure.data);
        name_categories(&figure, runs, count);
        figure_number(&figure, "limits", limits);
        figure_number(&figure, "bars", count);
        figure_number(&figure, "host", max_host > 0);
        figure_number(&figure, "most", (double)most / unit);
        return figure_draw(&figure, err);
}
