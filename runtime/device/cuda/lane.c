#include "runtime/device/cuda/lane.h"

#include <assert.h>
#include <stdlib.h>

cudaError_t cuda_events_grow(struct cuda_events *events, size_t more)
{
        const size_t larger = events->capacity + more;
        cudaEvent_t *free_events = realloc(events->free, larger * sizeof *free_events);
        if (!free_events)
                return cudaErrorMemoryAllocation;
        events->free = free_events;
        for (; events->capacity < larger; events->capacity++) {
                const cudaError_t status =
                        cudaEventCreateWithFlags(&events->free[events->count], events->flags);
                if (status != cudaSuccess)
                        return status;
                events->count++;
        }
        return cudaSuccess;
}

cudaError_t cuda_events_take(struct cuda_events *events, cudaEvent_t *event)
{
        if (events->count == 0) {
                const cudaError_t status = cuda_events_grow(events, events->capacity ? events->capacity : 64);
                if (status != cudaSuccess)
                        return status;
        }
        *event = events->free[--events->count];
        return cudaSuccess;
}

void cuda_events_give(struct cuda_events *events, cudaEvent_t event)
{
        assert(events->count < events->capacity);
        events->free[events->count++] = event;
}

void cuda_events_free(struct cuda_events *events)
{
        for (size_t i = 0; i < events->count; i++)
                cudaEventDestroy(events->free[i]);
        free(events->free);
        *events = (struct cuda_events){.flags = events->flags};
}

/* ops->record has no way to fail, so without memory for a few kilobytes the program ends here. */
static void grow(struct cuda_queue *queue)
{
        const size_t larger = queue->capacity ? 2 * queue->capacity : 64;
        struct cuda_pending *ring = malloc(larger * sizeof *ring);
        if (!ring)
                abort();
        for (size_t i = 0; i < queue->count; i++)
                ring[i] = queue->ring[(queue->head + i) % queue->capacity];
        free(queue->ring);
        queue->ring = ring;
        queue->capacity = larger;
        queue->head = 0;
}

void cuda_queue_push(struct cuda_queue *queue, const struct cuda_pending *pending)
{
        if (queue->count == queue->capacity)
                grow(queue);
        queue->ring[(queue->head + queue->count) % queue->capacity] = *pending;
        queue->count++;
}

const struct cuda_pending *cuda_queue_oldest(const struct cuda_queue *queue)
{
        return queue->count ? &queue->ring[queue->head] : NULL;
}

void cuda_queue_pop(struct cuda_queue *queue)
{
        assert(queue->count > 0);
        queue->head = (queue->head + 1) % queue->capacity;
        queue->count--;
}

void cuda_queue_free(struct cuda_queue *queue)
{
        free(queue->ring);
        *queue = (struct cuda_queue){0};
}
