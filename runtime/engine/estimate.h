/* The time of a batch in closed form: rougher than a simulation, and a thousand times faster. For choosing
 * what to simulate, and for saying about what a change of the plan costs. */
#ifndef RANVIER_RUNTIME_ENGINE_ESTIMATE_H
#define RANVIER_RUNTIME_ENGINE_ESTIMATE_H

#include "runtime/engine/options.h"

/* What things take, in seconds; NAN: not known. */
struct estimate_prices {
        double (*kernel)(void *context, const struct kernel *kernel);
        double (*message)(void *context, int64_t bytes); /* between neighbouring stages */
        double (*allreduce)(void *context, int64_t bytes, int ranks);
        double (*copy)(void *context, int64_t bytes); /* between host and device, one direction */
        void *context;
};

struct estimate {
        double batch_seconds; /* the sum of the others; NAN if a price is not known */
        double pipeline_seconds, allreduce_seconds, optimizer_seconds;
};

/* The pipeline takes the fill and drain, sum of (tf + tb) + 2 (p - 1) c, and for each further micro-batch
 * max(the slowest stage's tf + tb, round trip / limit); offloaded activations may be slower than either. Then
 * the slowest stage's all-reduce and updates, one after another or, offloaded without clipping, the longest
 * of all-reduce, copies and updates (facts of AxoNN's schedule; Narayanan et al. 2021 for the bubble). */
struct estimate estimate_batch(const struct options *options, const struct estimate_prices *prices);

#endif
