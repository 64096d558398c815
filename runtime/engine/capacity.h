/* Whether a plan fits the memory that there is, and which changes would make it fit. `ranvier train` and
 * `simulate` refuse a plan that does not fit with the advice that is found here; sweeps and validation ask
 * only whether it fits.
 *
 * The order of calls: capacity_check; if it fails, capacity_changes, and capacity_print before the sentence
 * of the error is shown. Bytes are those of memory_stage. */
#ifndef RANVIER_RUNTIME_ENGINE_CAPACITY_H
#define RANVIER_RUNTIME_ENGINE_CAPACITY_H

#include "runtime/plan/options.h"

#include <stdio.h>

/* The limits: one for each memory space, and one for both together where they are the same memory. */
enum { CAPACITY_SHARED = MEMORY_SPACES, CAPACITY_LIMITS };

/* The bytes that one rank has, by enum memory_space and CAPACITY_SHARED; 0: not known, and any amount
 * fits. */
struct capacity {
        int64_t bytes[CAPACITY_LIMITS];
};

/* What the rank needs that is furthest beyond its capacity, or, if all ranks fit, the one that needs most on
 * its device. */
struct capacity_need {
        int rank, stage; /* the stage, and the first of its ranks; all of them need the same */
        /* Where it needs too much, or most; or, if `shared`, both spaces together are too much for the
         * memory that they share. */
        enum memory_space space;
        bool shared;
        struct memory_bytes bytes; /* all that it needs */
};

/* Return the bytes that the rank needs, and has (0: not known), of the memory that `need` is about: one
 * space, or both where they are shared. */
int64_t capacity_needs(const struct capacity_need *need);
int64_t capacity_has(const struct capacity *capacity, const struct capacity_need *need);

/* Returns 0 if all ranks fit; else RV_EPLAN with one sentence: which rank needs how much of what it has. The
 * sentence refers to "the table above", which the caller prints before it (capacity_print). `options` are
 * resolved. `need` is filled in both cases. */
int capacity_check(const struct options *options, const struct capacity *capacity, struct capacity_need *need,
                   struct rv_error_info *err);

/* Settles --logits auto of resolved options for a device that is faster at few large products, a GPU: the
 * logits of a micro-batch at once (logits_bytes becomes INT64_MAX) if all ranks fit so; else in parts of
 * WORKLOAD_LOGITS_BYTES. Plans whose logits are never in parts stay as they are. */
void capacity_choose_logits(struct options *options, const struct capacity *capacity);

enum { CAPACITY_FLAGS = 224 };

/* A change of the plan that makes it fit. */
struct capacity_change {
        /* As a user would write it: "--offload --micro-batch-size 1"; what is switched off comes last:
         * "without --offload". */
        char flags[CAPACITY_FLAGS];
        struct options options;    /* with the change */
        struct memory_bytes bytes; /* of the rank that needs most on its device */
        double batch_seconds;      /* what `seconds` returned; NAN: not known */
};

/* Writes the cheapest changes by seconds(context, options) of a batch, at most CAPACITY_CHANGES, cheapest
 * first (what is not known last); of changes at equal cost the one with fewer flags, then with less memory.
 * Returns how many; 0: none that was tried makes it fit. A change is left out if a lesser one (fewer flags,
 * or a larger micro-batch or bucket, or fewer stages) fits at no higher cost.
 *
 * Tried are offloading (with mixed precision) and leaving it off, the optimizer's state shared by the
 * replicas (--zero 1), recomputation (selective, full), activations offloaded and not, smaller
 * micro-batches, more stages, and more ranks of a long sequence (--cp) on the same ranks, up to three of
 * these together, and more where three are not enough. Where the optimizer is then offloaded and the plan
 * does not fit, its bucket is halved until it does (down to 1000 parameters, or a 1024th of a stage's where
 * that is more).
 *
 * `seconds` is called for every combination that fits, some hundreds of times for a large cluster: it should
 * run the plan on paper (paper.h), which takes a millisecond or less. It returns NAN where it does not
 * know. */
enum { CAPACITY_CHANGES = 3 };
int capacity_changes(const struct options *options, const struct capacity *capacity,
                     double (*seconds)(void *context, const struct options *options), void *context,
                     struct capacity_change changes[CAPACITY_CHANGES]);

/* Prints what a user needs to see of a plan that does not fit: bytes by category of the rank in `need`, on
 * the device and on the host, what there is, and the `count` changes with their time a batch, relative to
 * `batch_seconds` of the plan as it is (NAN: not known). `basis` says in a few words what the times rest on.
 * Without a change it prints what one layer a stage would need with all that saves memory. */
void capacity_print(FILE *stream, const struct options *options, const struct capacity *capacity,
                    const struct capacity_need *need, const struct capacity_change *changes, int count,
                    double batch_seconds, const char *basis);

#endif
