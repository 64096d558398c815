#include "plots/bars.h"
#include "plots/figures.h"

#include "runtime/engine/report.h"

#include <math.h>

/* A row a report: seconds of each part, their sum, its text. The parts are those of the script's names. */
static void write_bar(struct figure *figure, const struct run *run)
{
        const double bubble = run->bubble_fraction * run->pipeline_seconds;
        const double worked = run->pipeline_seconds - bubble;
        const double parts[] = {worked - run->tensor_seconds, run->tensor_seconds, bubble,
                                run->allreduce_seconds, run->optimizer_seconds};
        char text[REPORT_TEXT];
        double sum = 0;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
                fprintf(figure->data, "%.9g ", fmax(parts[i], 0));
                sum += fmax(parts[i], 0);
        }
        fprintf(figure->data, "%.9g \"%s", sum, report_seconds(text, run->median));
        if (!isnan(run->percent_of_peak))
                fprintf(figure->data, ", %.1f %% of peak", run->percent_of_peak);
        fprintf(figure->data, "\"\n");
}

int figures_phases(const char *out, const struct run *runs, int count, struct rv_error_info *err)
{
        struct figure figure;
        int rc = figure_open(&figure, "phases", out, err);
        if (rc)
                return rc;
        double most = 0;
        for (int i = 0; i < count; i++) {
                most = fmax(most, runs[i].median);
                bars_name(&figure, &runs[i], i + 1);
                write_bar(&figure, &runs[i]);
        }
        figure_number(&figure, "bars", count);
        figure_number(&figure, "most", most);
        return figure_draw(&figure, err);
}
