/* Where the time of a batch went: combines the moments that each rank's engine noted into the phases of the
 * whole run, as reports of real runs and of predictions show them. */
#ifndef RANVIER_RUNTIME_ENGINE_PHASES_H
#define RANVIER_RUNTIME_ENGINE_PHASES_H

/* One batch on one rank, in seconds of a clock that all ranks share. */
struct batch_times {
        /* `started`, `pipeline_end`: when it began, and when its last micro-batch was computed.
         * `allreduce_end`: when its last gradient all-reduce ended (or the batch began, if there was none).
         * `ended`: when its last operation did, and `saved`, when that of a checkpoint behind it did for
         * which the next batch waits (or `ended`, if there was none). The others are durations: how long its
         * compute lane worked on forward and backward, and how long, in the midst of them, it waited for
         * collectives of shards, and for weights and gradients of layers (zero 3). */
        double started, pipeline_end, allreduce_end, ended, saved, busy_seconds, tensor_seconds,
                gathered_seconds;
};

/* One batch over all ranks, in seconds: from the first rank that began it to the last one that ended each
 * phase. The phases follow each other without a gap, so their sum is the batch; where work overlaps, the
 * time counts for the earlier phase. Without clipping, updates (offloaded: fetches and write backs too)
 * begin while later chunks are still all-reduced: the all-reduce is then what passes until the last gradient
 * has been summed, and the optimizer only what remains to be done after it. How long either would take alone
 * is in the trace, not here. */
struct phases {
        double batch_seconds, pipeline_seconds, allreduce_seconds, optimizer_seconds;
        /* What the rank that did most spent in forward and backward, its waits in the midst of them
         * included. */
        double busiest_seconds;
        /* Of the pipeline phase, on the average rank: collectives of shards, and waits for weights and
         * gradients of layers. */
        double tensor_seconds;
        double gathered_seconds;
        /* The share of the pipeline phase in which a rank, on average, was not in a forward or backward. */
        double bubble_fraction;
};
/* Returns the phases of one batch; times[ranks]. */
struct phases phases_of(const struct batch_times *times, int ranks);

/* Writes the seconds of every batch to batch_seconds[batches], and returns the phases of the batch that is
 * nearest to their median. times[batch * ranks + rank]; batches >= 1. */
struct phases phases_median(const struct batch_times *times, int batches, int ranks, double *batch_seconds);

#endif
