/* The threads that kernels of the CPU device run on: the compute lane's own, and helpers that wait, first
 * awake, then asleep, for a kernel that is split into parts. A device has one team; split.c gives it the
 * parts of a kernel, and each thread takes the next part that nobody has until there are none. What parts
 * there are, and what they do, the team does not know. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_TEAM_H
#define RANVIER_RUNTIME_DEVICE_CPU_TEAM_H

#include "runtime/device/real.h"

struct cpu_team;

/* Does the work of part number `part` of a kernel. `scratch`, of CPU_SCRATCH elements (kernels/kernels.h),
 * is the thread's own, and holds nothing that is needed from one part to the next. */
typedef void cpu_part_fn(void *context, int part, real *scratch);

/* Makes a team of `threads` (>= 1), one of which is whoever calls cpu_team_run, and starts the others.
 * NULL, and errno, without memory or threads for it. */
struct cpu_team *cpu_team_open(int threads);
/* Ends the helpers and frees the team. No kernel may be running. */
void cpu_team_close(struct cpu_team *);

/* Returns the `threads` that the team was opened with, the caller's included. */
int cpu_team_threads(const struct cpu_team *);

/* Runs run(context, 0 .. parts - 1), each once, in any order and side by side; returns when all are done.
 * Only one thread calls it. */
void cpu_team_run(struct cpu_team *, int parts, cpu_part_fn *run, void *context);

/* Makes the calling thread take subnormal numbers for zero from here on: they take many times longer on
 * some processors, and a kernel's time would depend on its data. Does nothing in the double build, or where
 * the processor has no SSE. */
void cpu_flush_subnormals(void);

#endif
