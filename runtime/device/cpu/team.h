/* The threads that kernels of the CPU device run on: the compute lane's own, and helpers that wait, first
 * awake, then asleep, for a kernel that is split into parts. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_TEAM_H
#define RANVIER_RUNTIME_DEVICE_CPU_TEAM_H

#include "runtime/device/real.h"

struct cpu_team;

/* One part of a kernel. `scratch`: the calling thread's, of CPU_SCRATCH elements. */
typedef void cpu_part_fn(void *context, int part, real *scratch);

/* A team of `threads` (>= 1), one of which is whoever calls cpu_team_run. NULL, and errno, without memory or
 * threads for it. cpu_team_close ends and frees it. */
struct cpu_team *cpu_team_open(int threads);
void cpu_team_close(struct cpu_team *);

int cpu_team_threads(const struct cpu_team *);

/* Runs run(context, 0 .. parts - 1), each once, in any order and side by side; returns when all are done.
 * Only one thread calls it. */
void cpu_team_run(struct cpu_team *, int parts, cpu_part_fn *run, void *context);

/* Subnormal numbers take many times longer on some processors, and a kernel's time would depend on its data:
 * from here on the calling thread takes them for zero. */
void cpu_flush_subnormals(void);

#endif
