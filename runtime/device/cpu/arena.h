/* One piece of zeroed memory that allocations of the CPU device are carved from, in the order in which they
 * are made. cpu.c has one for device memory and one for host memory, which ops->reserve opens; what is
 * carved is given back with the whole piece, not before. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_ARENA_H
#define RANVIER_RUNTIME_DEVICE_CPU_ARENA_H

#include <stdint.h>

/* Zero-initialised, it is closed: nothing can be taken from it. */
struct cpu_arena {
        char *base;          /* NULL: not open */
        int64_t bytes, used; /* of the piece, and of these how many were taken */
};

/* Maps `bytes` (> 0), in huge pages where the system has them: a matrix product walks over more memory than
 * the processor can hold addresses of small pages for. Returns 0, or an errno. The system gives a page when
 * it is first touched, so this succeeds where there is less memory than `bytes`. */
int cpu_arena_open(struct cpu_arena *, int64_t bytes);
/* Gives the piece back to the system, if the arena is open. */
void cpu_arena_close(struct cpu_arena *);

/* Returns the next `bytes` of the piece, aligned to MEMORY_ALIGNMENT, of which `bytes` must be a multiple.
 * NULL: there are not so many left. */
void *cpu_arena_take(struct cpu_arena *, int64_t bytes);

#endif
