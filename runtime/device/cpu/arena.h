/* One piece of zeroed memory that allocations are carved from. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_ARENA_H
#define RANVIER_RUNTIME_DEVICE_CPU_ARENA_H

#include <stdint.h>

struct cpu_arena {
        char *base; /* NULL: not open */
        int64_t bytes, used;
};

/* Maps `bytes` (> 0), in huge pages where the system has them: a matrix product walks over more memory than
 * the processor can hold addresses of small pages for. 0, or an errno. cpu_arena_close gives them back. */
int cpu_arena_open(struct cpu_arena *, int64_t bytes);
void cpu_arena_close(struct cpu_arena *);

/* `bytes`, a multiple of MEMORY_ALIGNMENT, that lie so aligned; NULL: there are not so many left. */
void *cpu_arena_take(struct cpu_arena *, int64_t bytes);

#endif
