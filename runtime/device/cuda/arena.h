/* Memory of the CUDA device: one piece of the GPU's and one of pinned host memory, carved from the front. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_ARENA_H
#define RANVIER_RUNTIME_DEVICE_CUDA_ARENA_H

#include "models/memory.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

/* Zero-initialise. */
struct cuda_arena {
        bool reserved;
        struct cuda_piece {
                char *base; /* NULL: nothing was reserved in this space */
                int64_t bytes, used;
        } pieces[MEMORY_SPACES];
        struct cuda_block {
                void *memory;
                enum memory_space space;
        } * blocks; /* what CUDA gave, to free */
        size_t count, capacity;
};

/* Takes `bytes` of each space from CUDA, zeroed; once. From then on cuda_arena_alloc carves. */
cudaError_t cuda_arena_reserve(struct cuda_arena *, const int64_t bytes[MEMORY_SPACES], cudaStream_t stream);

/* `bytes` of zeroed memory, a multiple of MEMORY_ALIGNMENT: carved, or taken from CUDA where nothing was
 * reserved. cudaErrorMemoryAllocation: it does not fit. */
cudaError_t cuda_arena_alloc(struct cuda_arena *, enum memory_space space, int64_t bytes, cudaStream_t stream,
                             void **memory);

void cuda_arena_free(struct cuda_arena *);

#endif
