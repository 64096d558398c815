/* The time of a batch in the world on paper (paper.h): a plan's operations at the prices of its kernels
 * (price.h) and what the caller says of links, run by the real core. Sweeps rank plans by it
 * (sim/world/paper_batch.c), and the advice on plans that do not fit is priced by it, in simulations and in
 * real runs (runtime/real/probe.c). */
#ifndef RANVIER_RUNTIME_ENGINE_PAPER_PLAN_H
#define RANVIER_RUNTIME_ENGINE_PAPER_PLAN_H

#include "runtime/base/memo.h"
#include "runtime/engine/price.h"

/* What links take, in seconds, and who has which prices. Ranks are the plan's; all functions get
 * `context`. */
struct paper_links {
        /* A message of the plan's message_bytes between two ranks of neighbouring stages. */
        double (*message)(void *context, int from, int to);
        /* A collective between all ranks of the rank's group, or what tells the shards of a stage of a
         * decision (OP_DECISION). */
        double (*collective)(void *context, int rank, const struct op *op);
        /* All collectives of shards in a pass; asked only of plans with several shards. */
        double (*tensor)(void *context, int rank, const struct price_pass *pass);
        /* A copy between host and device; `both`: while the other direction copies too. */
        double (*copy)(void *context, const struct op *op, bool both);
        /* The prices of the whole plan, as the rank's device has them. They stay the caller's. */
        const struct price_list *(*prices)(void *context, int rank);
        void *context;
        /* Replicas do the same work, and only their links differ: the one whose links cost most stands for
         * all. */
        bool folded;
        int places; /* if folded: after how many replicas their places in nodes repeat */
};

/* Seconds: a batch that takes longer is of no interest, and how long it takes at least. */
struct paper_bound {
        double limit, least;
};

/* Returns the seconds of a batch; NAN where the plan cannot be run to its end or there is no memory. The
 * options are resolved.
 *
 * Shards are one: a pass is an operation with all collectives in it. Of many micro-batches a few give the
 * steady state, as long as they show that the schedule has settled; else, or if `whole`, all are run. Unless
 * `whole`, a large model's updates go several at a time where that changes the batch by less than a
 * thousandth.
 *
 * `bound` (NULL: none; not with `whole`) is for a search: bound->least becomes what the work of a batch takes
 * at least, in any order of it, and if that is beyond bound->limit the batch is not run and this is returned.
 * With a limit of 0 nothing else is done.
 *
 * `memo` (may be NULL) keeps pipelines, and must only be used with the same links: of plans that differ only
 * in what follows the pipeline, as with zero 1 or offload, the pipeline is run once. */
double paper_plan_seconds(const struct options *options, const struct paper_links *links, bool whole,
                          struct paper_bound *bound, struct memo *memo);

#endif
