/* The time of a batch from a few sums: rougher than a simulation, and a thousand times faster. For choosing
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
        /* What `shards` neighbours do together, a kernel_collective of `bytes` in all. NULL: an all-reduce as
         * above, or half of it. */
        double (*tensor)(void *context, enum kernel_kind collective, int64_t bytes, int shards);
};

struct estimate {
        double batch_seconds; /* the sum of the others; NAN if a price is not known, or no memory */
        double pipeline_seconds, allreduce_seconds, optimizer_seconds;
};

/* The pipeline is a lower bound, the largest of these over its stages. m micro-batches; on a stage tf + tb, a
 * message takes c, and R is its round trip: from the begin of a forward to the end of its backward, (tf + tb)
 * of it and all later stages and 2 c a hop. At most w micro-batches are between the two (axonn: the pipeline
 * limit; 1f1b: p - stage). Before all that come tf + tb + 2 c of each earlier stage, once.
 *
 * - m (tf + tb), and, if m > w, what the first and the last round trip leave idle: w - 1 other forwards, or
 *   backwards, are all there is to do in them. That makes (m + p - 1)(tf + tb) of equal stages without
 *   messages (Narayanan et al. 2021).
 * - One R for every w micro-batches, and one piece of work for each that remains.
 * - Offloaded, m + 1 copies of a micro-batch's activations between its first forward and last backward.
 *
 * gpipe is two flow shops of equal jobs, all forwards and all backwards: the sum over stages and hops, and
 * the slowest of each m - 1 times more. That is exact.
 *
 * interleaved: a micro-batch goes around all ranks once a chunk, and R is all of that. On each rank all its
 * work, or one R for every w micro-batches that its first chunk may store; before and after, the first chunks
 * of the ranks before it. That makes the paper's bubble of (p - 1) / (m V) of equal stages without messages.
 * Offloaded activations' copies are left out.
 *
 * Where forwards and backwards meet and wait for each other the schedule takes longer than any of these: in
 * random plans of up to 12 unequal stages axonn takes up to 1.31 times as long (1.03 on average; 1.1 and 1.01
 * with a limit of twice the stages), 1f1b up to 1.1 times, interleaved up to 1.52 times (1.03). With
 * offloaded activations whose copies take from a tenth of a micro-batch's work to twice as much, axonn takes
 * up to 1.45 times as long, 1f1b 1.6 times and gpipe, no longer exact, 1.1 times (1.06, 1.03 and 1.01 on
 * average). One stage is exact (tests/unit/test_estimate.c).
 *
 * What follows the pipeline is worked out update by update in the core's order: look for overflow,
 * sums of what sequence parallel shards have alike, all-reduces one after another, norm, updates, and fetches
 * and write backs beside them as buffers allow. The phases end as struct phases says. All-reduces that are
 * overlapped with the last backward begin as if it made parameters final at an even pace.
 *
 * More than 4096 updates of a stage are worked out in 4096 steps of several each, which makes what follows
 * the pipeline at most 0.2 % longer; so an estimate takes O(layers + stages), whatever the buckets. */
struct estimate estimate_batch(const struct options *options, const struct estimate_prices *prices);

#endif
