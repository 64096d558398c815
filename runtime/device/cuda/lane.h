/* Events of the CUDA device: a pool of them, and queues of those on a stream that nobody was told of yet.
 * cuda.c records an event for each token of ops->record, and two around each kernel that is timed; it takes
 * them from a pool, because making one takes time, and keeps them in a queue until poll has found them
 * reached. Nothing here waits for the device. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_LANE_H
#define RANVIER_RUNTIME_DEVICE_CUDA_LANE_H

#include "models/workload.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

/* A pool of events. To be zero-initialised, but for `flags`. */
struct cuda_events {
        unsigned flags;         /* of cudaEventCreateWithFlags, for all events of the pool */
        cudaEvent_t *free;      /* those that are free to be recorded */
        size_t count, capacity; /* how many are free, and how many the pool has in all */
};
/* Adds `more` events to the pool. Returns cudaSuccess, CUDA's error, or cudaErrorMemoryAllocation without
 * host memory. */
cudaError_t cuda_events_grow(struct cuda_events *, size_t more);
/* Takes a free event out of the pool into `event`. The pool is doubled first if it has none, with the same
 * errors. */
cudaError_t cuda_events_take(struct cuda_events *, cudaEvent_t *event);
/* Gives an event that was taken back to the pool. */
void cuda_events_give(struct cuda_events *, cudaEvent_t event);
/* Destroys all events. Those that were taken must have been given back: others are not known here. */
void cuda_events_free(struct cuda_events *);

/* An event on a stream: a token's, or the end of a kernel that is timed. */
struct cuda_pending {
        cudaEvent_t event;
        int token;            /* -1 for a timed kernel, which alone has the members below */
        cudaEvent_t start;    /* recorded before the kernel */
        struct kernel kernel; /* for the recorder */
};

/* A queue of pending events, in a ring that grows as needed: `count` entries from `head` on. To be
 * zero-initialised. */
struct cuda_queue {
        struct cuda_pending *ring;
        size_t capacity, head, count;
};
/* Appends a copy of `pending`. Without host memory the program ends, because a launch has no way to fail. */
void cuda_queue_push(struct cuda_queue *, const struct cuda_pending *pending);
/* Returns the oldest entry, valid until the queue changes; NULL: there is none. */
const struct cuda_pending *cuda_queue_oldest(const struct cuda_queue *);
/* Removes the oldest entry, of which there must be one. Its event is the caller's to give back. */
void cuda_queue_pop(struct cuda_queue *);
/* Frees the ring, not the events in it. */
void cuda_queue_free(struct cuda_queue *);

/* A lane of the device: a stream, and the tokens recorded on it that poll has not returned. */
struct cuda_lane {
        cudaStream_t stream;
        struct cuda_queue tokens;
};

#endif
