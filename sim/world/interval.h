/* How far a prediction can be trusted: the standard errors of the profile's prices, carried through to the
 * time of a batch.
 *
 * simulate, sweep and validate call interval_of after a simulation. It covers what is known of errors of
 * prices; it does not cover what the model of the machine leaves out. */
#ifndef RANVIER_SIM_WORLD_INTERVAL_H
#define RANVIER_SIM_WORLD_INTERVAL_H

#include "sim/world/machine.h"

/* Where errors of a batch come from. */
enum interval_part {
        /* The error that all kernels of the load share, such as the drift of the machine's speed. */
        INTERVAL_COMMON,
        /* The errors of single kernels, or of kinds of kernels. */
        INTERVAL_KERNELS,
        INTERVAL_MESSAGES,
        /* All-reduces, collectives of shards included. */
        INTERVAL_SUMS,
        INTERVAL_COPIES,
        /* What a launch costs the host of the plan's framework, and what runs of one plan differ by. */
        INTERVAL_LAUNCHES,
        INTERVAL_RUNS,
        INTERVAL_PARTS
};
/* Returns what is printed for a part: "drift", "kernels", "messages", "all-reduces", "copies", "launches" or
 * "runs". */
const char *interval_part_name(enum interval_part part);

struct interval {
        /* Whether there is an interval. If not, `unknown` says why, and the numbers mean nothing. */
        bool known;
        /* Nine batches in ten take between these. */
        double low_seconds, high_seconds;
        /* Standard errors of the batch's time, relative to it: from each part, and from all parts
         * together. */
        double relative[INTERVAL_PARTS], all;
        /* The batch depends on links whose figures the platform states without an error. */
        bool links_exact;
        char unknown[256];
};

/* Returns the 90 % interval around `batch_seconds`, which a simulation of the resolved `options` found.
 *
 * An error of a price is the same in every repetition of what it prices. So the batch is run on
 * paper (sim/world/paper_batch.h) with that price a standard error higher and lower; half the difference is
 * what it does to the batch. Errors that have nothing to do with each other add up in squares: of measured
 * shapes (each point was measured by itself), of kinds of kernels where a fitted model prices them (all
 * shapes of a kind by the same figures), of messages, all-reduces, copies and a framework's launches, what
 * all kernels of the load share, and what a framework says that runs of one plan differ by. Errors that a
 * datasheet profile states add up as they are, because the same clock and the same memory are behind all of
 * them. The batch is taken to be lognormal: batch x exp(-+1.645 sigma).
 *
 * The interval is not known where the profile does not say the error of a price that matters, where the GPUs
 * are of several kinds, where the world on paper cannot price the plan, and where the error is larger than
 * the batch. */
struct interval interval_of(const struct machine *machine, const struct options *options,
                            double batch_seconds);

#endif
