/* Where the time of a batch went: from each rank's moments to the whole run's phases. */
#ifndef RANVIER_RUNTIME_ENGINE_PHASES_H
#define RANVIER_RUNTIME_ENGINE_PHASES_H

/* One batch on one rank, in seconds of a clock that all ranks share: when it began, when its last micro-batch
 * was computed, when its last gradient all-reduce ended (or the batch began, if there was none), when it
 * ended; how long its compute lane worked on forward and backward, and how long, in the midst of them, it
 * waited for collectives of shards, and for weights and gradients of layers (zero 3). */
struct batch_times {
        double started, pipeline_end, allreduce_end, ended, busy_seconds, tensor_seconds, gathered_seconds;
};

/* One batch over all ranks: from the first that began it to the last that ended each phase. The phases follow
 * each other without a gap, so their sum is the batch; where work overlaps, the time counts for the
 * earlier phase. Without clipping, updates (offloaded: fetches and write backs too) begin while later chunks
 * are still all-reduced: the all-reduce is then what passes until the last gradient has been summed, and the
 * optimizer only what remains to be done after it. How long either would take alone is in the trace, not
 * here. */
struct phases {
        double batch_seconds, pipeline_seconds, allreduce_seconds, optimizer_seconds;
        double busiest_seconds;  /* that the rank which did most spent in forward and backward, what it waited
                                    for in the midst of them included */
        double tensor_seconds;   /* of the pipeline phase: collectives of shards, on the average rank, */
        double gathered_seconds; /* and what it waited for weights and gradients of layers */
        double bubble_fraction;  /* of the pipeline phase: share in which a rank, on average, was not in a
                                    forward or backward */
};
struct phases phases_of(const struct batch_times *times, int ranks);

/* Writes the seconds of every batch to batch_seconds[batches], and returns the phases of the one nearest to
 * their median. times[batch * ranks + rank]. batches >= 1. */
struct phases phases_median(const struct batch_times *times, int batches, int ranks, double *batch_seconds);

#endif
