/* The world on paper for tests: stages that are alike, with sizes that a test can tell apart. */
#ifndef RANVIER_TESTS_EQUAL_STAGES_H
#define RANVIER_TESTS_EQUAL_STAGES_H

#include "runtime/engine/paper.h"

/* Of one micro-batch's activations in a chunk; and what the model's first and last chunk store more. */
enum { PAPER_SLOT_BYTES = 7, PAPER_EMBEDDED_BYTES = 2, PAPER_HEAD_BYTES = 5 };

/* Parameters that a last backward makes final together. */
enum { PAPER_LAYER = 7 };

/* Where the parameters of a rank's chunk of the model begin: so many a chunk before, the last has the rest.
 */
enum { PAPER_CHUNK = 10 };

/* Parameters whose gradients a backward in two parts leaves to the second: the first so many, which in small
 * stages are all. */
enum { PAPER_LEFT = 5 * PAPER_LAYER };

/* Zero 2 and 3: blocks, and parameters of what is gathered whole. */
enum {
        PAPER_BLOCKS = 4,
        PAPER_DENSE = 1,
        PAPER_DENSE_BLOCK = 3,
        PAPER_EMBEDDING = 11,
        PAPER_BLOCK = 5,
        PAPER_HEAD = 4
};

/* Experts spread over replicas: parts of every forward and backward, with an exchange between two. */
enum { PAPER_PARTS = 3 };

/* Returns how many of every stage's `parameters` are of such experts; they come first. */
int64_t paper_expert_parameters(const struct plan *plan, int64_t parameters);

/* Returns the units of a stage, with zero 2 and 3. */
struct core_units paper_units(const struct plan *plan, int stage);

/* Seconds that `op` takes on `rank`, as struct paper_physics has it. */
typedef double paper_seconds_fn(void *context, int rank, const struct op *op);

/* pp x dp ranks of one plan; `parameters` of every stage. */
struct paper *paper_of_equal_stages(const struct plan *plan, int64_t parameters, bool eager,
                                    paper_seconds_fn *seconds, paper_watch_fn *issued,
                                    paper_watch_fn *completed, void *context);

#endif
