/* How far a prediction can be trusted: the errors of the profile's prices, carried through to the batch. */
#ifndef RANVIER_SIM_WORLD_INTERVAL_H
#define RANVIER_SIM_WORLD_INTERVAL_H

#include "sim/world/machine.h"

/* Where errors of a batch come from. */
enum interval_part {
        INTERVAL_COMMON,  /* what all kernels share */
        INTERVAL_KERNELS, /* each kernel by itself */
        INTERVAL_MESSAGES,
        INTERVAL_SUMS, /* all-reduces */
        INTERVAL_COPIES,
        INTERVAL_PARTS
};
const char *interval_part_name(enum interval_part part); /* "drift", "kernels", ... */

struct interval {
        bool known;
        double low_seconds, high_seconds;     /* nine batches in ten lie between them */
        double relative[INTERVAL_PARTS], all; /* standard errors of the batch, relative; `all` of all parts */
        bool links_exact;                     /* the platform's figures of links carry no errors */
        char unknown[256];                    /* not known: why */
};

/* The 90 % interval around `batch_seconds`, which a simulation of `options` found.
 *
 * An error of a price is the same in every repetition of what it prices. So the batch is run on
 * paper (sim/world/paper_batch.h) with that price a standard error higher and lower; half the difference is
 * what it does to the batch. Errors that have nothing to do with each other add up in squares: of measured
 * shapes (each point was measured by itself), of kinds of kernels where a fitted model prices them (all
 * shapes of a kind by the same figures), of messages, all-reduces and copies, and what all kernels of the
 * load share. Errors that a datasheet profile states add up as they are, because the same clock and the same
 * memory are behind all of them. The batch is taken to be lognormal: batch x exp(-+1.645 sigma).
 *
 * Not known where the profile does not say the error of a price that matters, and where GPUs are of several
 * kinds. */
struct interval interval_of(const struct machine *machine, const struct options *options,
                            double batch_seconds);

#endif
