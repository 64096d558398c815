#include "runtime/device/cuda/arena.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A place for one block more. */
static struct cuda_block *new_block(struct cuda_arena *arena)
{
        if (arena->count == arena->capacity) {
                const size_t larger = arena->capacity ? 2 * arena->capacity : 16;
                struct cuda_block *blocks = realloc(arena->blocks, larger * sizeof *blocks);
                if (!blocks)
                        return NULL;
                arena->blocks = blocks;
                arena->capacity = larger;
        }
        return &arena->blocks[arena->count];
}

/* Pinned memory is the process's own: touching it all is what takes its pages. */
static cudaError_t take_host(int64_t bytes, void **memory)
{
        const cudaError_t status = cudaHostAlloc(memory, (size_t)bytes, cudaHostAllocPortable);
        if (status == cudaSuccess)
                memset(*memory, 0, (size_t)bytes);
        return status;
}

static cudaError_t take_device(int64_t bytes, cudaStream_t stream, void **memory)
{
        cudaError_t status = cudaMalloc(memory, (size_t)bytes);
        if (status != cudaSuccess)
                return status;
        status = cudaMemsetAsync(*memory, 0, (size_t)bytes, stream);
        if (status == cudaSuccess)
                status = cudaStreamSynchronize(stream);
        if (status != cudaSuccess)
                cudaFree(*memory);
        return status;
}

static cudaError_t take(struct cuda_arena *arena, enum memory_space space, int64_t bytes, cudaStream_t stream,
                        void **memory)
{
        struct cuda_block *block = new_block(arena);
        if (!block)
                return cudaErrorMemoryAllocation;
        const cudaError_t status =
                space == MEMORY_HOST ? take_host(bytes, memory) : take_device(bytes, stream, memory);
        if (status != cudaSuccess) {
                (void)cudaGetLastError(); /* it was this call's; the next need not report it */
                return status;
        }
        *block = (struct cuda_block){*memory, space};
        arena->count++;
        return cudaSuccess;
}

cudaError_t cuda_arena_reserve(struct cuda_arena *arena, const int64_t bytes[MEMORY_SPACES],
                               cudaStream_t stream)
{
        assert(!arena->reserved && arena->count == 0);
        for (int space = 0; space < MEMORY_SPACES; space++) {
                void *memory = NULL;
                const cudaError_t status =
                        bytes[space] ? take(arena, (enum memory_space)space, bytes[space], stream, &memory)
                                     : cudaSuccess;
                if (status != cudaSuccess)
                        return status;
                arena->pieces[space] = (struct cuda_piece){memory, bytes[space], 0};
        }
        arena->reserved = true;
        return cudaSuccess;
}

cudaError_t cuda_arena_alloc(struct cuda_arena *arena, enum memory_space space, int64_t bytes,
                             cudaStream_t stream, void **memory)
{
        assert(bytes > 0 && bytes % MEMORY_ALIGNMENT == 0);
        if (!arena->reserved)
                return take(arena, space, bytes, stream, memory);
        struct cuda_piece *piece = &arena->pieces[space];
        if (bytes > piece->bytes - piece->used)
                return cudaErrorMemoryAllocation;
        *memory = piece->base + piece->used;
        piece->used += bytes;
        return cudaSuccess;
}

void cuda_arena_free(struct cuda_arena *arena)
{
        for (size_t i = 0; i < arena->count; i++) {
                if (arena->blocks[i].space == MEMORY_HOST)
                        cudaFreeHost(arena->blocks[i].memory);
                else
                        cudaFree(arena->blocks[i].memory);
        }
        free(arena->blocks);
        *arena = (struct cuda_arena){0};
}
