/* The time of a batch in the world on paper (paper.h): a plan's operations at the prices of its kernels
 * (price.h) and what the caller says of links, run by the real core. Sweeps rank plans by it, and advice is
 * priced by it. */
#ifndef RANVIER_RUNTIME_ENGINE_PAPER_PLAN_H
#define RANVIER_RUNTIME_ENGINE_PAPER_PLAN_H

#include "runtime/base/memo.h"
#include "runtime/engine/price.h"

/* What links take, in seconds, and who has which prices. Ranks are the plan's. */
struct paper_links {
        double (*message)(void *context, int from,
                          int to); /* of the plan's message_bytes, between neighbouring stages */
        double (*collective)(void *context, int rank,
                             const struct op *op); /* between all of the rank's group */
        double (*tensor)(void *context, int rank,
                         const struct price_pass *pass); /* all collectives of shards in it */
        double (*copy)(void *context, const struct op *op,
                       bool both); /* `both`: while the other direction copies too */
        const struct price_list *(*prices)(void *context,
                                           int rank); /* of the whole plan, as the rank's device has them */
        void *context;
        bool folded; /* replicas do the same, but for links: the one whose links cost most stands for all */
        int places;  /* folded: replicas after which their places in nodes repeat */
};

/* Seconds of a batch; NAN where the plan cannot be run to its end or there is no memory.
 *
 * Shards are one: a pass is an operation with all collectives in it. Of many micro-batches a few
 * give the steady state, as long as they show that the schedule has settled; else, or if `whole`, all are
 * run. A large model's updates go several at a time where that changes the batch by less than a thousandth.
 *
 * `memo` (may be NULL) keeps pipelines, for the same links: of plans that differ only in what follows the
 * pipeline, as with zero 1 or offload, it is run once. */
double paper_plan_seconds(const struct options *options, const struct paper_links *links, bool whole,
                          struct memo *memo);

#endif
