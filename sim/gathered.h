/* ZeRO-3, simulated: a pass over layers whose weights are gathered from all replicas a layer ahead, and whose
 * gradients are reduced behind them. One replica stands for all: they do the same at the same time. */
#ifndef RANVIER_SIM_GATHERED_H
#define RANVIER_SIM_GATHERED_H

#include "sim/platform.h"
#include "sim/price.h"

/* A layer, or the embedding or the head: seconds that its work takes, that its weights are gathered for
 * before it, and its gradients reduce-scattered after it. */
struct gathered_step {
        double compute, gather, scatter;
};

/* Seconds until all is computed and reduced. Work and collectives are each one at a time: the next step's
 * weights are gathered from the begin of this one's work on, a step's gradients reduced from its end on, in
 * that order. So two steps' weights are there at most. If `blocking`,
 * gradients are reduced before anything else goes on: the next weights are gathered after that. */
double gathered_seconds(const struct gathered_step *steps, int count, bool blocking);

/* Makes the forward and backward of the one stage what they take with --zero 3, from the prices of its
 * layers. The groups' collectives by the load's line layer_gather, if it has one, else by closed form. */
int gathered_price(struct price_list *list, const struct options *options, const struct platform *platform,
                   const struct profile_load *load, struct rv_error_info *err);

#endif
