#include "runtime/engine/phases.h"

#include "runtime/base/number.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct phases phases_of(const struct batch_times *times, int ranks)
{
        struct batch_times all = {.started = INFINITY};
        double busiest = 0;
        for (int i = 0; i < ranks; i++) {
                all.started = fmin(all.started, times[i].started);
                all.pipeline_end = fmax(all.pipeline_end, times[i].pipeline_end);
                all.allreduce_end = fmax(all.allreduce_end, times[i].allreduce_end);
                all.ended = fmax(all.ended, times[i].ended);
                all.busy_seconds += times[i].busy_seconds;
                all.tensor_seconds += times[i].tensor_seconds;
                all.gathered_seconds += times[i].gathered_seconds;
                busiest = fmax(busiest,
                               times[i].busy_seconds + times[i].tensor_seconds + times[i].gathered_seconds);
        }
        all.allreduce_end = fmax(all.allreduce_end, all.pipeline_end);
        double pipeline = all.pipeline_end - all.started;
        const double passes = all.busy_seconds + all.tensor_seconds + all.gathered_seconds;
        return (struct phases){
                .batch_seconds = all.ended - all.started,
                .pipeline_seconds = pipeline,
                .allreduce_seconds = all.allreduce_end - all.pipeline_end,
                .optimizer_seconds = all.ended - all.allreduce_end,
                .busiest_seconds = busiest,
                .tensor_seconds = all.tensor_seconds / ranks,
                .gathered_seconds = all.gathered_seconds / ranks,
                .bubble_fraction = pipeline > 0 ? 1 - passes / ranks / pipeline : 0,
        };
}

struct phases phases_median(const struct batch_times *times, int batches, int ranks, double *batch_seconds)
{
        assert(batches >= 1 && ranks >= 1);
        for (int i = 0; i < batches; i++)
                batch_seconds[i] = phases_of(times + (int64_t)i * ranks, ranks).batch_seconds;
        double *sorted = malloc((size_t)batches * sizeof *sorted);
        if (!sorted)
                abort();
        memcpy(sorted, batch_seconds, (size_t)batches * sizeof *sorted);
        double median = quantile(sorted, batches, 0.5);
        free(sorted);
        int nearest = 0;
        for (int i = 1; i < batches; i++)
                if (fabs(batch_seconds[i] - median) < fabs(batch_seconds[nearest] - median))
                        nearest = i;
        return phases_of(times + (int64_t)nearest * ranks, ranks);
}
