/* The third world: a cluster on paper. It consists of a virtual clock and a heap of completions; its caller
 * says what operations take, and no library is involved. It drives the same core and engine as the real
 * world and SimGrid's, some five to eight million operations a second, so it ranks plans by the thousand,
 * carries the errors of prices to the batch, and runs property tests.
 *
 * What it knows of a cluster: operations of a lane follow each other; a message passes when both ends have
 * come to it; a collective ends everywhere some time after the last member of its group has come to it; two
 * copies between host and device may slow each other down. What it does not know: that messages and
 * collectives share links. Its caller may price them as if all ranks in the same position of a node sent at
 * once, which is when they do. paper_plan.h is that caller for the prices of a plan. */
#ifndef RANVIER_RUNTIME_ENGINE_PAPER_H
#define RANVIER_RUNTIME_ENGINE_PAPER_H

#include "runtime/engine/engine.h"

/* What operations take, and what a world decides about them. `rank` is the plan's rank; of a message the
 * sender. All functions get `context`. */
struct paper_physics {
        /* Returns the seconds of `op`: of a message its transit from when both ends are ready, of a
         * collective from when the last member has come. Asked once an operation (of a collective: once a
         * meeting, of the last to come). */
        double (*seconds)(void *context, int rank, const struct op *op);
        /* Fills in what the driver says of an operation on the compute lane: `more`, and the range of a
         * backward that makes gradients final. Called before `seconds`. NULL: operations are whole. */
        void (*fill)(void *context, int rank, struct op *op);
        /* Returns the seconds of a copy between host and device of which all happens while the other
         * direction copies too; at least `seconds`. NULL: directions do not slow each other down. */
        double (*both_ways)(void *context, int rank, const struct op *op);
        void *context;
};

/* Sees an operation when it is issued, or before the engine hears that it has completed. */
typedef void paper_watch_fn(void *context, int rank, const struct op *op);

/* What a world is made from. */
struct paper_setting {
        const struct plan *plan;
        /* [pp]; the world fills in each one's `stage` and `replica` itself. */
        const struct core_stage *stages;
        /* The first replica stands for all: its collectives over replicas wait for nobody else. */
        bool folded;
        /* A send completes without waiting for its receive, and the all-reduces of a rank run at the same
         * time (as MPI's may) instead of one after another. */
        bool eager;
        struct paper_physics physics;
        paper_watch_fn *issued, *completed; /* may be NULL; called with the physics' context */
};

struct paper;

/* Makes a world in which the first shard of every stage stands for its shards. What it needs of `setting` is
 * copied, plan and stages with it; the context of the physics must outlive it. NULL: no memory. paper_delete
 * frees it, and takes NULL too. */
struct paper *paper_new(const struct paper_setting *setting);
void paper_delete(struct paper *paper);

/* Says that a gradient of `rank` overflows in the next batch. */
void paper_overflow(struct paper *paper, int rank);

/* Runs one batch, and may be called again for the next one. Returns the batch's seconds, or a negative
 * number if the world came to rest before every rank was done. */
double paper_run(struct paper *paper);

/* Run a batch in two worlds, which lets a caller keep the first half for plans that differ in the second.
 * That is possible if nothing of what follows the pipeline on a rank begins before the pipeline's end there,
 * and nothing of the pipeline but its last message lasts longer: not with overlapping all-reduces, staged
 * messages or zero 3.
 *
 * paper_run_pipeline runs the first world no further than to where each rank has worked on all of its
 * micro-batches, after which it can do nothing but be deleted. It writes the seconds at which that was to
 * `through` [ranks that are run, replica x pp + stage]. False: the world came to rest before.
 * paper_run_after runs the second world, which is new, and of the same plan with no micro-batches: each rank
 * begins at its time with what follows. It returns the time at which that is over, or a negative number as
 * above. */
bool paper_run_pipeline(struct paper *paper, double *through);
double paper_run_after(struct paper *paper, const double *through);

/* Returns the virtual clock's seconds, which go on from batch to batch. */
double paper_now(const struct paper *paper);

/* Returns the engine of a rank, which stays the world's; NULL: the rank was not run, because another stands
 * for it. */
struct engine *paper_engine(struct paper *paper, int rank);

#endif
