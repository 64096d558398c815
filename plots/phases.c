#include "plots/bars.h"
#include "plots/figures.h"

#include "runtime/base/number.h"

#include <math.h>

/* A row a report: seconds of each part, their sum, its text. The parts are those of the script's names. */
static void write_bar(struct figure *figure, const struct run *run)
{
        const double bubble = run->figures.bubble_fraction * run->figures.pipeline_seconds;
        const double worked = run->figures.pipeline_seconds - bubble;
        const double parts[] = {worked - run->figures.tensor_seconds, run->figures.tensor_seconds, bubble,
                                run->figures.allreduce_seconds, run->figures.optimizer_seconds};
        char text[NUMBER_TEXT];
        double sum = 0;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
                fprintf(figure->data, "%.9g ", fmax(parts[i], 0));
                sum += fmax(parts[i], 0);
        }
        fprintf(figure->data, "%.9g \"%s", sum, number_seconds(text, run->figures.median));
        if (run->figures.percent_of_peak > 0)
                fprintf(figure->data, ", %.1f %% of peak", run->figures.percent_of_peak);
        fprintf(figure->data, "\"\n");
}

int figures_phases(const char *out, const struct run *runs, int count, struct rv_error_info *err)
{
        struct figure figure;
        int rc = figure_open(&figure, "phases", out, err);
        if (rc)
                return rc;
        double max = 0;
        for (int i = 0; i < count; i++) {
                max = fmax(max, runs[i].figures.median);
                bars_name(&figure, &runs[i], i + 1);
                write_bar(&figure, &runs[i]);
        }
        figure_number(&figure, "bars", count);
        figure_number(&figure, "most", max);
        return figure_draw(&figure, err);
}
