/* Whether a plan fits the memory that there is, and which changes would make it fit. */
#ifndef RANVIER_RUNTIME_ENGINE_CAPACITY_H
#define RANVIER_RUNTIME_ENGINE_CAPACITY_H

#include "runtime/plan/options.h"

#include <stdio.h>

/* Beside the two memories: both together, where they are one. */
enum { CAPACITY_SHARED = MEMORY_SPACES, CAPACITY_LIMITS };

/* What one rank has; 0: not known, and any amount fits. */
struct capacity {
        int64_t bytes[CAPACITY_LIMITS]; /* by enum memory_space, and CAPACITY_SHARED */
};

/* What the rank needs that is furthest beyond its capacity, or, if all fit, the one that needs most. */
struct capacity_need {
        int rank, stage;         /* the first rank of a stage, and the stage */
        enum memory_space space; /* where it needs too much, or most; */
        bool shared;             /* or that both together are too much for the memory that they share */
        struct memory_bytes bytes;
};

/* Bytes that the rank needs, and has, of the memory that `need` is about: one, or both where they are shared.
 */
int64_t capacity_needs(const struct capacity_need *need);
int64_t capacity_has(const struct capacity *capacity, const struct capacity_need *need);

/* 0, or RV_EPLAN with one sentence: which rank needs how much of what it has, and that capacity_print, which
 * the command calls first, says for what, and whether changes would make it fit. `options` are resolved.
 * `need` is filled in both cases. */
int capacity_check(const struct options *options, const struct capacity *capacity, struct capacity_need *need,
                   struct rv_error_info *err);

enum { CAPACITY_FLAGS = 224 };

/* A change of the plan that makes it fit. */
struct capacity_change {
        char flags[CAPACITY_FLAGS]; /* as a user would write them: "--offload --micro-batch-size 1"; what is
                                     * switched off comes last: "without --offload" */
        struct options options;     /* with the change */
        struct memory_bytes bytes;  /* of the rank that needs most on its device */
        double batch_seconds;       /* as `seconds` said; NAN: not known */
};

/* The cheapest changes by seconds(context, options) of a batch, at most CAPACITY_CHANGES, cheapest first
 * (what is not known last); of changes at equal cost the smaller. A change is left out if a lesser one (fewer
 * flags, or a larger micro-batch or bucket, or fewer stages) fits at no higher cost. Tried are offloading
 * (with mixed precision) and leaving it off, the optimizer's state shared by the replicas (--zero 1),
 * recomputation (selective, full), activations offloaded and not, smaller micro-batches, and more stages on
 * the same ranks, up to three of these together, and more where three are not enough. Where the optimizer is
 * then offloaded and the plan does not fit, its bucket is halved until it does (down to 1000 parameters, or a
 * 1024th of a stage's where that is more). Returns how many; 0: none of them makes it fit.
 *
 * `seconds` is called for every combination that fits, some hundreds of times for a large cluster: it should
 * run the plan on paper (paper.h), which takes a millisecond or less. */
enum { CAPACITY_CHANGES = 3 };
int capacity_changes(const struct options *options, const struct capacity *capacity,
                     double (*seconds)(void *context, const struct options *options), void *context,
                     struct capacity_change changes[CAPACITY_CHANGES]);

/* What a user needs to see: bytes by category of that rank, on the device and on the host, what there is, and
 * the changes with their time a batch, relative to `batch_seconds` of the plan as it is (NAN: not known).
 * `basis`: what the times rest on, in a few words. With no change, what one layer a stage would need with all
 * that saves memory. */
void capacity_print(FILE *stream, const struct options *options, const struct capacity *capacity,
                    const struct capacity_need *need, const struct capacity_change *changes, int count,
                    double batch_seconds, const char *basis);

#endif
