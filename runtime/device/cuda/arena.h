/* Memory of the CUDA device: one piece of the GPU's and one of pinned host memory, carved from the front in
 * the order of the requests. cuda.c's reserve and alloc call it, after they have looked at limits;
 * accounting by category is theirs too. What was carved is freed with the whole arena, not before. An arena
 * from which nothing was reserved takes each allocation from CUDA by itself. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_ARENA_H
#define RANVIER_RUNTIME_DEVICE_CUDA_ARENA_H

#include "models/memory.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

/* To be zero-initialised. */
struct cuda_arena {
        bool reserved; /* cuda_arena_reserve was called, and succeeded */
        /* The reserved piece of each space, of which the first `used` bytes are given away. */
        struct cuda_piece {
                char *base; /* NULL: nothing was reserved in this space */
                int64_t bytes, used;
        } pieces[MEMORY_SPACES];
        /* All that CUDA gave, pieces and single allocations, to free: [capacity], of which `count` are
         * used. */
        struct cuda_block {
                void *memory;
                enum memory_space space;
        } * blocks;
        size_t count, capacity;
};

/* Takes bytes[space] of each space from CUDA, zeroed (0: none). May be called once, before the first
 * allocation; from then on cuda_arena_alloc carves. Waits for `stream`, on which device memory is zeroed.
 * Returns cudaSuccess or CUDA's error; what was taken until then is freed by cuda_arena_free. */
cudaError_t cuda_arena_reserve(struct cuda_arena *, const int64_t bytes[MEMORY_SPACES], cudaStream_t stream);

/* Stores in `memory` the address of `bytes` of zeroed memory; `bytes` is above 0 and a multiple of
 * MEMORY_ALIGNMENT. It is carved, or taken from CUDA where nothing was reserved. Returns cudaSuccess;
 * cudaErrorMemoryAllocation if it does not fit; or another error of CUDA's. */
cudaError_t cuda_arena_alloc(struct cuda_arena *, enum memory_space space, int64_t bytes, cudaStream_t stream,
                             void **memory);

/* Gives everything back to CUDA and leaves the arena as it began. Nothing on the device may use it any
 * more. */
void cuda_arena_free(struct cuda_arena *);

#endif
