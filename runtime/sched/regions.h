/* The parameters of a stage as the optimizer works through them, in regions: ranges whose gradients are
 * summed over the same group.
 *
 * A region is cut into chunks, each summed by one collective, and into updates, each one operation of the
 * optimizer; neither crosses the edge of a region. The embedding that the first and last stage share is a
 * region of its own, so that both stages cut it in the same places. Regions are worked through in order. The
 * shared embedding comes last, because its gradients are complete last.
 *
 * With ZeRO-1 (Rajbhandari et al. 2020) the replicas share the optimizer's work and state: the gradients of a
 * chunk are reduce-scattered, each replica updates its part of the chunk, and the weights are all-gathered.
 * Without it a chunk has one part, which every replica updates. */
#ifndef RANVIER_RUNTIME_SCHED_REGIONS_H
#define RANVIER_RUNTIME_SCHED_REGIONS_H

#include "runtime/sched/core.h"

struct region {
        int64_t offset, count;
        enum op_group group; /* the ranks over which its gradients are summed */
        bool exchanged;      /* and then between first and last stage */
};
enum { REGIONS = 2 };

struct regions {
        struct region region[REGIONS]; /* in order; one that a stage does not have is empty */
        int parts, part;               /* of how many parts a chunk consists, and which is this replica's */
        int64_t chunk, update;         /* the most parameters of a chunk, and of an update */
};
struct regions regions_of(const struct plan *plan, const struct core_stage *stage);

/* Parameters [offset, offset + count) of the stage. `place` says where the optimizer's own arrays (master
 * parameters and moments) have them. Without ZeRO-1 that is `offset`; with it the arrays have this replica's
 * parts alone, one behind the other. */
struct region_range {
        int64_t offset, count, place;
};

/* How many elements each of the optimizer's own arrays has; the same on every replica. */
int64_t regions_elements(const struct regions *);

/* How many chunks there are; the region that a chunk is of; the nth chunk whole; and this replica's part of
 * it, which may be empty. */
int regions_chunks(const struct regions *);
const struct region *regions_region(const struct regions *, int chunk);
struct region_range regions_chunk(const struct regions *, int nth);
struct region_range regions_own(const struct regions *, int nth);

/* How many chunks, the last ones, the first and last stage exchange. */
int regions_exchanges(const struct regions *);

/* How many updates this replica has; the nth of them, and into `chunk` the chunk that it is of; and how many
 * belong to the first `chunks` chunks. */
int regions_updates(const struct regions *);
struct region_range regions_update(const struct regions *, int nth, int *chunk);
int regions_updates_before(const struct regions *, int chunks);

/* The distinct sizes of updates, on all replicas. Returns how many there are. */
enum { REGIONS_SIZES = 8 * REGIONS };
int regions_update_sizes(const struct regions *, int64_t sizes[REGIONS_SIZES]);

/* The nth chunk, and the nth update, in the order in which a backward completes gradients: from the end of
 * memory to its beginning. Updates of the shared embedding wait for its exchange and come last nevertheless.
 */
int regions_chunk_from_behind(const struct regions *, int nth);
int regions_update_from_behind(const struct regions *, int nth);

/* The offset at which the chunk begins that contains parameter `end` - 1. */
int64_t regions_chunk_begin(const struct regions *, int64_t end);

#endif
