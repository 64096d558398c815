/* Checkpoints of a training while it goes on. A keeper is one rank's part of it. A folder, which all ranks
 * see, has the checkpoints, each a folder step-000000000100 of files by runtime/checkpoint/state.h: every
 * rank writes what no other writes, which is its share of what it has.
 *
 * A checkpoint is of the state behind a step. This rank's share is copied to memory of its own, and a thread
 * writes that, beside the next batches. When every rank has written, which they tell each other with the sums
 * of a batch, rank 0 writes the index and gives the folder its name: until then it is no checkpoint. If a
 * disk fails, one sentence says so, nothing of that checkpoint stays, and the training goes on.
 *
 * What is said to be collective must be called by every rank, in the same order. */
#ifndef RANVIER_RUNTIME_REAL_KEEP_H
#define RANVIER_RUNTIME_REAL_KEEP_H

#include "runtime/real/resume.h"

struct keeper;

/* Opens the keeper of trainer->settings->checkpoint, after trainer_open. Collective, and fails alike:
 * RV_EINPUT if some rank does not see the folder, RV_ESYSTEM if it cannot be made or there is no memory for
 * the copy. The caller ends it with keeper_close; the trainer must live as long. */
int keeper_open(struct keeper **keeper, struct trainer *trainer, struct rv_error_info *err);

/* What to tell the others in the batch of a step. To be called before it. */
void keeper_before_step(struct keeper *);

/* Behind a step (from 0), of which history has the losses: completes what all ranks have written, and gives
 * the snapshot that the core may have made of this step what its index says. Returns whether there is such a
 * one. Collective. */
bool keeper_after_step(struct keeper *, int64_t step, const struct trainer_result *result,
                       const struct history *history);

/* One of them, on this rank. */
struct keeper_one {
        int64_t step; /* so many steps are in it */
        /* In which training waited for it: for the copy to memory, or for the one before it on a slow disk;
         * and that the thread took, beside training. */
        double exposed_seconds, writing_seconds;
};

/* What was done so far, on this rank. */
struct keeper_done {
        int checkpoints; /* that are complete, of the last of which `step` steps are in */
        int64_t step;
        int failed;              /* on rank 0: that are not, for a disk */
        int64_t bytes;           /* of this rank's part of one */
        struct keeper_one *each; /* [begun]: all that were begun; the keeper's */
        int begun;
};

/* Waits until the last checkpoint is complete, and tells what was done. Collective. */
struct keeper_done keeper_finish(struct keeper *);
/* Frees it. NULL is fine. After a failure of the training it waits for this rank's threads alone: what other
 * ranks have not written stays under a name that is no checkpoint's, which the next run in the folder
 * removes.
 */
void keeper_close(struct keeper *);

#endif
