/* Going on from a checkpoint that a keeper (keep.h) wrote, with any plan. Each rank reads what it has of the
 * model from the files that have it. */
#ifndef RANVIER_RUNTIME_REAL_RESUME_H
#define RANVIER_RUNTIME_REAL_RESUME_H

#include "runtime/real/trainer.h"

/* What a checkpoint has of the steps so far, beside the state of the trainer. */
struct history {
        double *losses;          /* [steps so far]; NAN: lost */
        double first_validation; /* before the first step; NAN: there was none */
};

/* Sets the state of a trainer that was opened, but has no weights, from the newest whole checkpoint of
 * settings->resume; those that are damaged are named on standard error and passed over. Stores how many steps
 * it has, its history: the losses are in `losses`, room for settings->optim.steps; and, on rank 0, the bytes
 * of weights and moments that all ranks have read. Collective, and fails alike: RV_EINPUT if there is none,
 * or it is of another model, data or training. */
int resume(struct trainer *trainer, int64_t *step, struct history *history, int64_t *bytes,
           struct rv_error_info *err);

/* Returns what a checkpoint says of a trainer's data, which must not change. The caller owns it. */
json_t *resume_data_json(const struct trainer *);

#endif
