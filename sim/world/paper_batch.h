/* The time of a batch on paper: a plan's operations priced as for SimGrid, messages and collectives by closed
 * form, run by the real core on a heap (runtime/engine/paper_plan.h). It ranks plans, prices advice and
 * carries the errors of prices; SimGrid, some hundred times slower, decides. */
#ifndef RANVIER_SIM_WORLD_PAPER_BATCH_H
#define RANVIER_SIM_WORLD_PAPER_BATCH_H

#include "runtime/base/memo.h"
#include "sim/world/costs.h"

/* Seconds of a batch; NAN where a price is not known or there is no memory.
 *
 * paper_plan.h says what is run. Replicas are folded where all nodes are of one kind.
 *
 * What ranks in the same position do is taken to happen at once: their messages share rails, their copies the
 * memory of their sockets, their collectives both (collective_model.h). What different positions of a
 * pipeline send at the same time is not taken to meet, nor messages and collectives; a SimGrid file's links
 * are not known here, so that messages over them take no time. */
double paper_batch_seconds(const struct machine *machine, const struct options *options);

/* What plans of one model on one machine have in common: pipelines, see paper_plan.h, seconds of collectives,
 * and workloads. Zeros: nothing is known yet. */
struct paper_memo {
        struct memo pipelines, collectives;
        struct workloads workloads;
};
void paper_memo_free(struct paper_memo *memo);

/* The same; NAN with a sentence that says why. `memo` may be NULL. */
double paper_batch_priced(const struct machine *machine, const struct options *options,
                          struct paper_memo *memo, struct rv_error_info *err);

/* The same with prices multiplied by what `nudge` says. */
double paper_batch_nudged(const struct machine *machine, const struct options *options,
                          const struct price_nudge *nudge);

/* For capacity_changes: `machine` is a struct machine. */
double paper_batch_of(void *machine, const struct options *options);

/* All of a batch's micro-batches, one after another, instead of a steady state; for tests. */
double paper_batch_whole(const struct machine *machine, const struct options *options);

#endif
