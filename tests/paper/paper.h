/* The third world: a cluster on paper. A virtual clock, a binary heap of completions, durations from a
 * function that the test gives; no library. It drives the same engine as the real and the simulated world. */
#ifndef RANVIER_TESTS_PAPER_H
#define RANVIER_TESTS_PAPER_H

#include "runtime/engine/engine.h"

/* Seconds that `op` takes on `rank`; for messages the transit time (asked of the sender). */
typedef double paper_seconds_fn(void *context, int rank, const struct op *op);
/* Sees every operation when it is issued. */
typedef void paper_watch_fn(void *context, int rank, const struct op *op);

struct paper;

/* Of one micro-batch's activations in a chunk; and what the model's first and last chunk store more. */
enum { PAPER_SLOT_BYTES = 7, PAPER_EMBEDDED_BYTES = 2, PAPER_HEAD_BYTES = 5 };

/* Parameters that a last backward makes final together. */
enum { PAPER_LAYER = 7 };

/* pp x dp ranks of one plan; `parameters` of every stage. `eager`: a send completes without waiting for its
 * receive, and the all-reduces of a rank run at the same time (as MPI's may) instead of one after another. */
struct paper *paper_new(const struct plan *plan, int64_t parameters, bool eager, paper_seconds_fn *seconds,
                        paper_watch_fn *issued, paper_watch_fn *completed, void *context);
void paper_delete(struct paper *paper);

/* In the next batch a gradient of `rank` overflows. */
void paper_overflow(struct paper *paper, int rank);

/* Runs one batch; returns its makespan, or a negative number if the world came to rest before every rank was
 * done. */
double paper_run(struct paper *paper);

struct engine *paper_engine(struct paper *paper, int rank);

#endif
