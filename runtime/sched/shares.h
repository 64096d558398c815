/* ZeRO-1 (Rajbhandari et al. 2020): a stage's replicas share the optimizer's work and state. A chunk of
 * gradients is reduce-scattered, each replica updates its share of it, and the weights are all-gathered.
 *
 * Chunks do not reach over the edge of an embedding that two stages share: on both stages it is cut alike, so
 * that a replica has the same rows of it on both. They are taken in one order, the embedding's last, and so
 * are the updates in them. */
#ifndef RANVIER_RUNTIME_SCHED_SHARES_H
#define RANVIER_RUNTIME_SCHED_SHARES_H

#include "runtime/sched/core.h"

/* Parameters [offset, offset + count) of the stage. Of a share: `place` is where the replica's own arrays
 * (master parameters, moments) have them. */
struct share {
        int64_t offset, count, place;
};

struct shares {
        int replicas, replica;
        int64_t chunk, update; /* parameters of a chunk, and of an update, at most */
        struct share_region {
                int64_t offset, count;
        } rest, embedding; /* the shared embedding; count 0: there is none */
};
struct shares shares_of(const struct plan *plan, const struct core_stage *stage);

/* Elements of each of the replica's own arrays: as many on every replica. */
int64_t shares_elements(const struct shares *);

/* Chunks, in order; the nth of them whole, and this replica's share of it, which may be empty. */
int shares_chunks(const struct shares *);
struct share shares_chunk(const struct shares *, int nth);
struct share shares_own(const struct shares *, int nth);

/* Of the chunks, the last so many are of the shared embedding. */
int shares_exchanges(const struct shares *);

/* Updates of this replica, in order; `chunk`: the one that the nth is in. Those of chunks [0, chunks). */
int shares_updates(const struct shares *);
struct share shares_update(const struct shares *, int nth, int *chunk);
int shares_updates_before(const struct shares *, int chunks);

#endif
