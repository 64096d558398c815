/* The parameters of a stage as the optimizer works through them, in regions: ranges whose gradients are
 * summed over the same group. This is arithmetic on counts and offsets alone: nothing here allocates, keeps
 * state or touches gradients. The core's optimizer phase (optimizer.c) asks it which chunk or update comes
 * next, and whoever sizes or fills the optimizer's arrays (runtime/plan, runtime/real, prices, calibration)
 * asks it for the same numbers.
 *
 * A region is cut into chunks, each summed by one collective, and into updates, each one operation of the
 * optimizer; neither crosses the edge of a region. Experts that are spread over replicas are a region of
 * their own, summed over the replicas that have the same ones. So is the embedding that the first and last
 * stage share, so that both stages cut it in the same places. With overlapped sums so is what shards have
 * alike of all layers, whose gradients are not final before the last layer's. Regions are worked through in
 * order. The shared embedding comes last, because its gradients are complete last.
 *
 * With ZeRO-1 (Rajbhandari et al. 2020) the replicas share the optimizer's work and state: the gradients of a
 * chunk are reduce-scattered, each replica updates its part of the chunk, and the weights are all-gathered.
 * Without it a chunk has one part, which every replica updates. In groups (plan.sharers) the gradients are
 * all-reduced over all replicas, and each group shares the update and gathers the weights.
 *
 * With ZeRO-2 a chunk is a unit of gather.c, and so are offsets: units lie one behind the other here. With
 * hybrid shards of ZeRO-3 a chunk is the replica's share of a unit. */
#ifndef RANVIER_RUNTIME_SCHED_REGIONS_H
#define RANVIER_RUNTIME_SCHED_REGIONS_H

#include "runtime/sched/core.h"

/* One region: the parameters [offset, offset + count) of the stage, and the most of a chunk. */
struct region {
        int64_t offset, count, chunk;
        enum op_group group; /* the ranks over which its gradients are summed */
        /* With ZeRO-1 and 2 those that share it: the same ones, or with ZeRO-1 in groups some of them. */
        enum op_group sharers;
        bool exchanged; /* afterwards they are summed over the first and the last stage too, with ZeRO-2
                         * the last plan.embedding_parameters of them */
        /* Into how many parts a chunk is split, one for each rank of the sharers with ZeRO-1 and 2 and
         * otherwise 1, and which of them is this replica's. */
        int parts, part;
};
/* Which region is what. ZeRO-2 and hybrid shards: of units, each region has those that follow each other and
 * are of one size: the embedding, dense blocks, one with both kinds, blocks, the last ones if they are fewer,
 * the head. */
enum { REGION_OWN, REGION_EXPERTS, REGION_COMMON, REGIONS = 6, REGION_EMBEDDING = REGIONS - 1 };

/* How one rank's parameters are cut. Made by regions_of; the functions below only read it. */
struct regions {
        /* In the order in which they are worked through: the stage's own parameters, spread experts, what
         * shards have alike, then, the last one, the embedding that two stages share. A region that a stage
         * does not have is empty. */
        struct region region[REGIONS];
        int64_t update; /* the most parameters of an update */
        bool shared;    /* ZeRO-1 or 2, even where a region has one rank alone: see region_range.place */
        bool common;    /* what shards have alike is a region */
        bool units;     /* chunks are units of gather.c, or shares of them */
};
/* Cuts the parameters of `stage` as `plan` says. */
struct regions regions_of(const struct plan *plan, const struct core_stage *stage);

/* Parameters [offset, offset + count) of the stage. `place` says where the optimizer's own arrays (master
 * parameters and moments, with ZeRO-2 gradients too) have them, in elements. Without ZeRO-1 or 2 that is
 * `offset`; with them the arrays have this replica's parts alone, one behind the other. */
struct region_range {
        int64_t offset, count, place;
};

/* Returns how many elements each of the optimizer's own arrays has; the same on every replica. */
int64_t regions_elements(const struct regions *);

/* Returns how many chunks there are, of all regions. Chunks are numbered from 0 in the order of the
 * regions. */
int regions_chunks(const struct regions *);
/* Returns the region that a chunk is of: a pointer into `regions`. */
const struct region *regions_region(const struct regions *, int chunk);
/* Returns the nth chunk whole. With ZeRO-1 and 2 its `place` is where this replica's part of it begins. */
struct region_range regions_chunk(const struct regions *, int nth);
/* Returns this replica's part of the nth chunk, which may be empty; the whole chunk without ZeRO-1 or 2. */
struct region_range regions_own(const struct regions *, int nth);

/* Returns how many chunks, the last ones (with ZeRO-2 one, on the first stage the first), the first and the
 * last stage exchange; 0 on other stages. */
int regions_exchanges(const struct regions *);

/* Returns how many updates this replica has, of all chunks. */
int regions_updates(const struct regions *);
/* Returns the nth of them, and stores in `chunk` the number of the chunk that it is of. */
struct region_range regions_update(const struct regions *, int nth, int *chunk);
/* Returns how many updates belong to the first `chunks` chunks. */
int regions_updates_before(const struct regions *, int chunks);

/* Stores in `sizes` the distinct sizes of updates, in parameters, on all replicas, and returns how many there
 * are: what a profile must have prices of. */
enum { REGIONS_SIZES = 8 * REGIONS };
int regions_update_sizes(const struct regions *, int64_t sizes[REGIONS_SIZES]);

/* These return the number of the nth chunk, and of the nth update, in the order in which a backward completes
 * gradients: from the end of memory to its beginning, but for what shards have alike, which comes behind the
 * other parameters of the stage. Updates of the shared embedding wait for its exchange and come last
 * nevertheless. */
int regions_chunk_from_behind(const struct regions *, int nth);
int regions_update_from_behind(const struct regions *, int nth);
/* Of chunks in the order of these updates: returns the number of the nth, and how many updates belong to the
 * first `chunks`. */
int regions_updated_from_behind(const struct regions *, int nth);
int regions_updates_behind(const struct regions *, int chunks);

/* Returns the offset at which the chunk begins that contains parameter `end` - 1; 1 <= `end` <= the stage's
 * parameters. */
int64_t regions_chunk_begin(const struct regions *, int64_t end);
/* Returns where those before `end` end that layers make final one after the other: `end` itself, or, if what
 * shards have alike ends there, where that begins. */
int64_t regions_layers_end(const struct regions *, int64_t end);

#endif
