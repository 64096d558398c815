/* How many plans a second one core ranks on paper: all that fit of 48-GPU grids of GPT 12B with 1,536
 * micro-batches a batch, by schedules; each is weighed, priced and run. */
#include "sim/world/paper_batch.h"
#include "sim/search/space.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double processor_seconds(void)
{
        struct timespec t;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void rank(const char *what, const char *schedules, const char *virtual_stages, const char *shards)
{
        struct space space = {.gpus = {{48}, 1},
                              .micro_batch_sizes = {{1}, 1},
                              .offload = SPACE_BOTH,
                              .offload_activations = SPACE_NO,
                              .recompute = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_SELECTIVE |
                                           1u << RECOMPUTE_FULL};
        struct space_groups groups;
        struct rv_error_info err;
        axes_init(&space.axes);
        options_init(&space.base);
        space.base.model = "gpt-12b";
        space.base.batch_size = 1536;
        space.base.micro_batch_size = 1;
        space.base.dtype = DTYPE_FP16;
        space.base.memory[MEMORY_DEVICE] = (int64_t)1 << 50; /* so that all fit */
        space.base.memory[MEMORY_HOST] = (int64_t)1 << 50;
        if (axis_parse(axes_named(&space.axes, "schedule"), schedules, &err) ||
            axis_parse(axes_named(&space.axes, "virtual-stages"), virtual_stages, &err) ||
            axis_parse(axes_named(&space.axes, "tp"), shards, &err) ||
            axis_parse(axes_named(&space.axes, "zero"), "0,1", &err) ||
            options_resolve(&space.base, 1, &err)) {
                fprintf(stderr, "ranking: %s\n", err.sentence);
                exit(1);
        }
        const double start = processor_seconds();
        if (space_explore(&groups, &space, "v100-datasheet", "summit", false, &err)) {
                fprintf(stderr, "ranking: %s\n", err.sentence);
                exit(1);
        }
        const double seconds = processor_seconds() - start;
        int fitting = 0;
        for (int i = 0; i < groups.count; i++)
                fitting += groups.groups[i].fitting;
        printf("%-44s %6d plans  %7.3f s  %7.0f plans a second\n", what, fitting, seconds, fitting / seconds);
        space_free(&groups);
}

int main(void)
{
        rank("1F1B", "1f1b", "1", "1");
        rank("AxoNN", "axonn", "1", "1");
        rank("GPipe", "gpipe", "1", "1");
        rank("zero-bubble", "zero-bubble", "1", "1");
        rank("interleaved, 2 and 4 virtual stages", "interleaved", "2,4", "1");
        rank("1F1B, 1 to 6 shards", "1f1b", "1", "1,2,3,6");
        rank("all of them, 1 to 6 shards", "axonn,1f1b,gpipe,zero-bubble,interleaved", "1,2,4", "1,2,3,6");
        return 0;
}
