/* What a simulated world says about a plan: seconds of every batch, where they went, bytes of every rank. */
#ifndef RANVIER_SIM_OUTCOME_H
#define RANVIER_SIM_OUTCOME_H

#include "sim/driver_sim.h"

struct outcome {
        double *batch_seconds; /* [batches] */
        int batches;
        /* Of the median batch. */
        double pipeline_seconds, allreduce_seconds, optimizer_seconds, bubble_fraction;
        int64_t *rank_live_peak; /* [ranks] */
};

/* After the run. The caller frees with outcome_free, after an error too. */
int outcome_collect(struct outcome *outcome, const struct sim_world *world, struct rv_error_info *err);
void outcome_free(struct outcome *outcome);

#endif
