/* What the optimizer works through: the parameters of a stage in regions, ranges whose gradients are summed
 * alike.
 *
 * A region is summed in chunks, one collective each, and updated an update at a time; neither reaches over
 * the edge of a region. The embedding that first and last stage share is a region of its own, so that both
 * cut it alike. Regions are worked through in order, the shared embedding, whose gradients are known last, at
 * the end.
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
        struct region region[REGIONS]; /* in order; those that a stage does not have are empty */
        int parts, part;               /* of a chunk, and which of them is this replica's */
        int64_t chunk, update;         /* parameters of a chunk, and of an update, at most */
};
struct regions regions_of(const struct plan *plan, const struct core_stage *stage);

/* Parameters [offset, offset + count) of the stage. `place` is where the optimizer's own arrays (master
 * parameters, moments) have them: at `offset` too, or, of a part, where the parts of the chunks before end.
 */
struct region_range {
        int64_t offset, count, place;
};

/* Elements of each of the optimizer's own arrays: as many on every replica. */
int64_t regions_elements(const struct regions *);

/* The chunks in order; the nth of them whole, and this replica's part of it, which may be empty. */
int regions_chunks(const struct regions *);
const struct region *regions_region(const struct regions *, int chunk);
struct region_range regions_chunk(const struct regions *, int nth);
struct region_range regions_own(const struct regions *, int nth);

/* Of the chunks, the last so many are exchanged. */
int regions_exchanges(const struct regions *);

/* The updates of this replica in order; `chunk`: the one that the nth is in. Those of chunks [0, chunks). */
int regions_updates(const struct regions *);
struct region_range regions_update(const struct regions *, int nth, int *chunk);
int regions_updates_before(const struct regions *, int chunks);

/* The sizes that updates have, on this replica or another: none twice. Returns how many. */
enum { REGIONS_SIZES = 8 * REGIONS };
int regions_update_sizes(const struct regions *, int64_t sizes[REGIONS_SIZES]);

/* The nth chunk, and the nth update, from the end of memory to its beginning, as a backward makes gradients
 * final; updates of the shared embedding, which wait for its exchange, come behind the others all the same.
 */
int regions_chunk_from_behind(const struct regions *, int nth);
int regions_update_from_behind(const struct regions *, int nth);

/* Where the chunk begins that has the parameter before `end`. */
int64_t regions_chunk_begin(const struct regions *, int64_t end);

#endif
