#define _GNU_SOURCE /* MAP_ANONYMOUS, madvise */
#include "runtime/device/cpu/arena.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

int cpu_arena_open(struct cpu_arena *arena, int64_t bytes)
{
        void *base = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED)
                return errno;
#ifdef MADV_HUGEPAGE
        madvise(base, (size_t)bytes, MADV_HUGEPAGE); /* a wish: without them it is slower */
#endif
        *arena = (struct cpu_arena){.base = base, .bytes = bytes};
        return 0;
}

void cpu_arena_close(struct cpu_arena *arena)
{
        if (arena->base)
                munmap(arena->base, (size_t)arena->bytes);
        *arena = (struct cpu_arena){0};
}

void *cpu_arena_take(struct cpu_arena *arena, int64_t bytes)
{
        if (bytes > arena->bytes - arena->used)
                return NULL;
        void *taken = arena->base + arena->used;
        arena->used += bytes;
        return taken;
}
