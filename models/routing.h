/* How the tokens of a prediction spread over the experts of a layer: evenly, or by a power law, in which the
 * i-th most popular expert gets rows in proportion to i^-exponent (and no more than one row a token). Which
 * experts are popular differs from layer to layer, by a seed. A real run's routing is the router's. */
#ifndef RANVIER_MODELS_ROUTING_H
#define RANVIER_MODELS_ROUTING_H

#include "models/gpt.h"

struct routing {
        double exponent; /* 0: evenly */
        int seed;
};

/* Writes to `load` what each of `ranks` ranks, over which the experts of the model's `layer` are spread, has
 * of their rows, as a multiple of an even share: 1 is even, and their mean is 1. */
void routing_loads(const struct routing *, const struct gpt *, int layer, int ranks, double load[]);

/* Returns the largest of the ranks' loads, on average over the layers: all ranks wait for it. */
double routing_slowest(const struct routing *, const struct gpt *, int ranks);

/* Returns the exponent with which routing_slowest is `slowest`, so that a prediction may have the loads of a
 * run; between 0 and 10. */
double routing_exponent(const struct gpt *, int ranks, double slowest);

#endif
