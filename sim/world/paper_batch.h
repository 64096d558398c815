/* The time of a batch on paper: a plan's operations priced as for SimGrid, messages and collectives by closed
 * form, run by the real core on a heap (runtime/engine/paper_plan.h). It ranks plans in a sweep, prices
 * advice on memory and carries the errors of prices to the batch; SimGrid, some hundred times slower,
 * decides.
 *
 * Ranks in the same position are taken to do the same at once: their messages share rails, their copies the
 * memory of their sockets, their collectives both (collective_model.h). What different positions of a
 * pipeline send at the same time is not taken to meet, nor messages and collectives. A SimGrid file's links
 * are not known here, so that messages over them take no time. Replicas are folded where all nodes are of one
 * kind. */
#ifndef RANVIER_SIM_WORLD_PAPER_BATCH_H
#define RANVIER_SIM_WORLD_PAPER_BATCH_H

#include "runtime/base/memo.h"
#include "runtime/engine/paper_plan.h"
#include "sim/world/costs.h"

/* Returns the seconds of a batch of a resolved plan; NAN where a price is not known or there is no memory.
 * paper_plan.h says which micro-batches and ranks are run. */
double paper_batch_seconds(const struct machine *machine, const struct options *options);

/* What plans of one model on one machine have in common: the times of pipelines (paper_plan.h), the seconds
 * of collectives (those of gradients and weights, and those of shards), and workloads. All zero means that
 * nothing is known yet. Do not use one for several machines or models. */
struct paper_memo {
        struct memo pipelines, collectives, tensors;
        struct workloads workloads;
};
void paper_memo_free(struct paper_memo *memo);

/* Returns the same and, together with NAN, a sentence that says why. `bound` (see paper_plan_seconds) and
 * `memo` may be NULL. */
double paper_batch_priced(const struct machine *machine, const struct options *options,
                          struct paper_bound *bound, struct paper_memo *memo, struct rv_error_info *err);

/* Returns the same with every price multiplied by what `nudge` (may be NULL) says. `memo` may be NULL, and of
 * several nudges. */
double paper_batch_nudged(const struct machine *machine, const struct options *options,
                          const struct price_nudge *nudge, struct paper_memo *memo);

/* paper_batch_seconds in the form that capacity_changes takes; `machine` is a struct machine. */
double paper_batch_of(void *machine, const struct options *options);

/* Runs all of a batch's micro-batches instead of a few that show the steady state. For tests. */
double paper_batch_whole(const struct machine *machine, const struct options *options);

#endif
