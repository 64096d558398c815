#include "plots/bars.h"

#include <stdio.h>
#include <string.h>

void bars_name(struct figure *figure, const struct run *run, int bar)
{
        const json_t *plan = json_object_get(run->document, "plan");
        const char *p2p = json_string_value(json_object_get(plan, "p2p"));
        const int zero = (int)json_integer_value(json_object_get(plan, "zero")); /* 0 in older reports */
        char variable[32], value[224], shards[24] = "", shared[24] = "";
        if (zero > 0)
                snprintf(shared, sizeof shared, "ZeRO-%d, ", zero);
        if (run->tp > 1)
                snprintf(shards, sizeof shards, " × tp %d", run->tp);
        snprintf(variable, sizeof variable, "bar_%d", bar);
        snprintf(value, sizeof value, "%s, pp %d × dp %d%s|%s, %s%smicro-batch %d, %s%s", run->gpt.name,
                 run->pp, run->dp, shards, run->schedule,
                 p2p && strcmp(p2p, "blocking") == 0 ? "blocking, " : "", shared, run->micro_batch_size,
                 run->offload ? "offload, " : "", run->simulated ? "simulated" : "measured");
        figure_text(figure, variable, value);
}
