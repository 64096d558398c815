/* Events of the CUDA device: a pool of them, and queues of those on a stream that nobody was told of yet. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_LANE_H
#define RANVIER_RUNTIME_DEVICE_CUDA_LANE_H

#include "models/workload.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

/* Events that are free to be recorded; grows when all are in use. Zero-initialise, but for flags. */
struct cuda_events {
        unsigned flags; /* of cudaEventCreateWithFlags */
        cudaEvent_t *free;
        size_t count, capacity; /* free ones; all of the pool's */
};
cudaError_t cuda_events_grow(struct cuda_events *, size_t more);
cudaError_t cuda_events_take(struct cuda_events *, cudaEvent_t *event);
void cuda_events_give(struct cuda_events *, cudaEvent_t event);
void cuda_events_free(struct cuda_events *); /* all have been given back */

/* An event on a stream: a token's, or the end of a kernel that is timed. */
struct cuda_pending {
        cudaEvent_t event;
        int token;
        cudaEvent_t start; /* of a timed kernel */
        struct kernel kernel;
};

/* Oldest first; grows as needed. Zero-initialise. */
struct cuda_queue {
        struct cuda_pending *ring;
        size_t capacity, head, count;
};
void cuda_queue_push(struct cuda_queue *, const struct cuda_pending *pending);
const struct cuda_pending *cuda_queue_oldest(const struct cuda_queue *); /* NULL: there is none */
void cuda_queue_pop(struct cuda_queue *);
void cuda_queue_free(struct cuda_queue *);

struct cuda_lane {
        cudaStream_t stream;
        struct cuda_queue tokens;
};

#endif
