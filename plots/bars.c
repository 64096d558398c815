#include "plots/bars.h"

#include <stdio.h>

void bars_name(struct figure *figure, const struct run *run, int bar)
{
        char variable[32], value[512], grid[GRID_TEXT];
        snprintf(variable, sizeof variable, "bar_%d", bar);
        snprintf(value, sizeof value, "%s, %s", run->gpt.name, grid_text(grid, run->sizes, "", " × "));
        figure_text(figure, variable, value);
        snprintf(variable, sizeof variable, "how_%d", bar);
        snprintf(value, sizeof value, "%s, micro-batch %d", run->how, run->micro_batch_size);
        figure_text(figure, variable, value);
        snprintf(variable, sizeof variable, "saving_%d", bar);
        snprintf(value, sizeof value, "%s%s%s", run->saving, *run->saving ? ", " : "",
                 run->simulated ? "simulated" : "measured");
        figure_text(figure, variable, value);
}
