#include "plots/figure.h"
#include "plots/figures.h"

static void name_bar(struct figure *figure, const struct run *run, int bar)
{
        char variable[32], value[160];
        snprintf(variable, sizeof variable, "bar_%d", bar);
        snprintf(value, sizeof value, "%s, pp %d × dp %d|%s, micro-batch %d, %s", run->gpt.name, run->pp,
                 run->dp, run->schedule, run->micro_batch_size, run->simulated ? "simulated" : "measured");
        figure_text(figure, variable, value);
}

int figures_memory(const char *out, const struct run *runs, int count, struct rv_error_info *err)
{
        struct figure figure;
        int rc = figure_open(&figure, "memory", out, err);
        if (rc)
                return rc;
        int64_t most = 1, used[MEMORY_CATEGORIES] = {0};
        for (int i = 0; i < count; i++)
                most = runs[i].device_peak_bytes > most ? runs[i].device_peak_bytes : most;
        bool gibibytes = most >= INT64_C(1) << 30;
        double unit = gibibytes ? 1073741824.0 : 1048576.0;
        for (int i = 0; i < count; i++) {
                name_bar(&figure, &runs[i], i + 1);
                for (int c = 0; c < MEMORY_CATEGORIES; c++) {
                        used[c] += runs[i].by_category[c];
                        fprintf(figure.data, "%.9g ", (double)runs[i].by_category[c] / unit);
                }
                fprintf(figure.data, "%.9g\n", (double)runs[i].device_peak_bytes / unit);
        }
        for (int c = 0; c < MEMORY_CATEGORIES; c++) {
                char variable[32];
                snprintf(variable, sizeof variable, "category_%d", c + 1);
                figure_text(&figure, variable, used[c] ? memory_category_name((enum memory_category)c) : "");
        }
        figure_number(&figure, "categories", MEMORY_CATEGORIES);
        figure_number(&figure, "bars", count);
        figure_number(&figure, "most", (double)most / unit);
        figure_text(&figure, "unit", gibibytes ? "GiB" : "MiB");
        return figure_draw(&figure, err);
}
