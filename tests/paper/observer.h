/* Watches what the ranks of a plan do, operation by operation, and knows what must be true of it. It keeps
 * books of its own: which micro-batch's data lies in which buffer, and how far each parameter has come. */
#ifndef RANVIER_TESTS_OBSERVER_H
#define RANVIER_TESTS_OBSERVER_H

#include "runtime/sched/core.h"

struct observer;

/* One batch. `parameters` of every stage; `eager` as the paper world was made, in which all-reduces of a rank
 * may then end in any order. `overflow`: a gradient of some rank overflows. */
struct observer *observer_new(const struct plan *plan, int64_t parameters, bool eager, bool overflow);
void observer_delete(struct observer *observer);

/* Every operation, when it is issued and when it completes; `in_use`: what the core says when it has issued.
 */
void observer_issue(struct observer *observer, int rank, const struct op *op, struct core_limits in_use);
void observer_complete(struct observer *observer, int rank, const struct op *op);

/* The batch has ended. */
void observer_end(struct observer *observer);

/* The first property that did not hold, or NULL. */
const char *observer_broken(const struct observer *observer);

#endif
