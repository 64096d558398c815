#include "sim/outcome.h"

#include "runtime/engine/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One batch over all ranks: from the first that began it to the last that ended. */
struct span {
        double begin, pipeline_end, allreduce_end, end, busy_seconds;
};

static struct span span_of(const struct sim_world *world, int batch)
{
        struct span span = {.begin = INFINITY};
        for (int i = 0; i < world->ranks; i++) {
                const struct sim_batch *b = &world->rank[i].batches[batch];
                span.begin = fmin(span.begin, b->started);
                span.pipeline_end = fmax(span.pipeline_end, b->pipeline_end);
                span.allreduce_end = fmax(span.allreduce_end, b->allreduce_end);
                span.end = fmax(span.end, b->ended);
                span.busy_seconds += b->busy_seconds;
        }
        span.allreduce_end = fmax(span.allreduce_end, span.pipeline_end);
        return span;
}

static void take_phases(struct outcome *outcome, const struct span *span, int ranks)
{
        outcome->pipeline_seconds = span->pipeline_end - span->begin;
        outcome->allreduce_seconds = span->allreduce_end - span->pipeline_end;
        outcome->optimizer_seconds = span->end - span->allreduce_end;
        outcome->bubble_fraction = outcome->pipeline_seconds > 0
                                           ? 1 - span->busy_seconds / ranks / outcome->pipeline_seconds
                                           : 0;
}

int outcome_collect(struct outcome *outcome, const struct sim_world *world, struct rv_error_info *err)
{
        size_t batches = (size_t)world->batches;
        *outcome = (struct outcome){.batches = world->batches};
        outcome->batch_seconds = malloc(batches * sizeof(double));
        outcome->rank_live_peak = malloc((size_t)world->ranks * sizeof *outcome->rank_live_peak);
        double *sorted = malloc(batches * sizeof *sorted);
        if (!outcome->batch_seconds || !outcome->rank_live_peak || !sorted) {
                free(sorted);
                return rv_fail(err, RV_ESYSTEM, "no memory for the results of %d batches", world->batches);
        }
        for (int i = 0; i < world->ranks; i++)
                outcome->rank_live_peak[i] = world->rank[i].ledger.total_peak;
        for (int i = 0; i < world->batches; i++) {
                struct span span = span_of(world, i);
                outcome->batch_seconds[i] = span.end - span.begin;
        }
        memcpy(sorted, outcome->batch_seconds, batches * sizeof *sorted);
        double median = report_quantile(sorted, world->batches, 0.5);
        free(sorted);
        int nearest = 0;
        for (int i = 1; i < world->batches; i++)
                if (fabs(outcome->batch_seconds[i] - median) < fabs(outcome->batch_seconds[nearest] - median))
                        nearest = i;
        struct span span = span_of(world, nearest);
        take_phases(outcome, &span, world->ranks);
        return 0;
}

void outcome_free(struct outcome *outcome)
{
        free(outcome->batch_seconds);
        free(outcome->rank_live_peak);
        *outcome = (struct outcome){0};
}
