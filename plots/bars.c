#include "plots/bars.h"

#include <stdio.h>

void bars_name(struct figure *figure, const struct run *run, int bar)
{
        char variable[32], value[256], grid[GRID_TEXT];
        snprintf(variable, sizeof variable, "bar_%d", bar);
        snprintf(value, sizeof value, "%s, %s|%s, micro-batch %d, %s%s", run->gpt.name,
                 grid_text(grid, run->sizes, "", " × "), run->how, run->micro_batch_size,
                 run->offload ? "offload, " : "", run->simulated ? "simulated" : "measured");
        figure_text(figure, variable, value);
}
