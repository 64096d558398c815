#include "plots/bars.h"

#include <stdio.h>

void bars_name(struct figure *figure, const struct run *run, int bar)
{
        char variable[32], value[224], shards[24] = "";
        if (run->tp > 1)
                snprintf(shards, sizeof shards, " × tp %d", run->tp);
        snprintf(variable, sizeof variable, "bar_%d", bar);
        snprintf(value, sizeof value, "%s, pp %d × dp %d%s|%s, micro-batch %d, %s%s", run->gpt.name, run->pp,
                 run->dp, shards, run->how, run->micro_batch_size, run->offload ? "offload, " : "",
                 run->simulated ? "simulated" : "measured");
        figure_text(figure, variable, value);
}
