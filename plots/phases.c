#include "plots/bars.h"
#include "plots/figures.h"

#include <math.h>
#include <string.h>

enum { PARTS = 5 };

/* Seconds of each part, in the order of the script's names. */
static void find_parts(const struct run *run, double parts[PARTS])
{
        const double bubble = run->figures.bubble_fraction * run->figures.pipeline_seconds;
        const double worked = run->figures.pipeline_seconds - bubble;
        const double seconds[PARTS] = {worked - run->figures.tensor_seconds, run->figures.tensor_seconds,
                                       bubble, run->figures.allreduce_seconds,
                                       run->figures.optimizer_seconds};
        for (int part = 0; part < PARTS; part++)
                parts[part] = fmax(seconds[part], 0);
}

/* A row a report: each part in `unit`, whose name is `name`, their sum, its text. */
static void write_bar(const struct run *run, double unit, const char *name, FILE *data)
{
        double parts[PARTS], sum = 0;
        find_parts(run, parts);
        for (int part = 0; part < PARTS; part++) {
                fprintf(data, "%.9g ", parts[part] / unit);
                sum += parts[part] / unit;
        }
        fprintf(data, "%.9g \"%.3f %s", sum, run->figures.median / unit, name);
        if (run->figures.percent_of_peak > 0)
                fprintf(data, ", %.1f %% of peak", run->figures.percent_of_peak);
        fprintf(data, "\"\n");
}

int figures_phases(const char *out, const struct run *runs, int count, struct rv_error_info *err)
{
        struct figure figure;
        int rc = figure_open(&figure, "phases", out, err);
        if (rc)
                return rc;
        double max = 0, most[PARTS] = {0}, parts[PARTS];
        for (int i = 0; i < count; i++) {
                max = fmax(max, runs[i].figures.median);
                bars_name(&figure, &runs[i], i + 1);
                find_parts(&runs[i], parts);
                for (int part = 0; part < PARTS; part++)
                        most[part] = fmax(most[part], parts[part]);
        }
        const double unit = figure_seconds_unit(&figure, max);
        for (int i = 0; i < count; i++)
                write_bar(&runs[i], unit, figure_seconds_name(unit), figure.data);
        char used[4 * PARTS] = "";
        for (int part = 0; part < PARTS; part++)
                if (most[part] > 0.001 * max) /* what could not be seen is not named */
                        sprintf(used + strlen(used), "%d ", part + 1);
        figure_text(&figure, "used", used);
        figure_number(&figure, "parts", PARTS);
        figure_number(&figure, "bars", count);
        figure_number(&figure, "most", max / unit);
        return figure_draw(&figure, err);
}
