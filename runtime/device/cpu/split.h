/* How a kernel of the CPU device is split over the threads of its team: by rows, heads, matrices, blocks of a
 * product, or elements. Kernels themselves are serial functions of a part of the operands. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_SPLIT_H
#define RANVIER_RUNTIME_DEVICE_CPU_SPLIT_H

#include "runtime/device/cpu/kernels/kernels.h"
#include "runtime/device/cpu/team.h"

struct cpu_split {
        struct cpu_team *team;
        cpu_scratch_fn *run; /* a part of a kernel: a whole one of smaller m, n or batch */
        real *sums;          /* CPU_SCRATCH elements: where parts leave what they sum over rows */
};

/* Runs all of it. Sums over rows are made of the same parts whatever the team: how many threads it has
 * changes no bit of them. */
void cpu_split_run(const struct cpu_split *, const struct kernel *, const struct kernel_args *);

#endif
