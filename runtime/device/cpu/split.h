/* How a kernel of the CPU device is split over the threads of its team: by rows, heads, matrices, blocks of
 * a product, or elements. Kernels themselves are serial functions of a part of the operands: a part is a
 * kernel of smaller shapes whose operands begin further on, and how a kind may be parted is said in its
 * descriptor (kernel_split in models/kernels/kernel.h). The compute lane of cpu.c runs every kernel through
 * here. Kernels that are small, or of which no split is known, run whole on the lane's own thread. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_SPLIT_H
#define RANVIER_RUNTIME_DEVICE_CPU_SPLIT_H

#include "runtime/device/cpu/kernels/kernels.h"
#include "runtime/device/cpu/team.h"

/* What a split works with. The team and the sums are the device's, which frees them. */
struct cpu_split {
        struct cpu_team *team;
        cpu_scratch_fn *run; /* runs a part of a kernel, in the variant that the device chose (variant.h) */
        real *sums;          /* CPU_SCRATCH elements: where parts leave what they sum over rows */
};

/* Runs a kernel, all of it, and returns when it is done. Sums over rows are made of the same parts whatever
 * the team: how many threads it has changes no bit of them. Only one thread may call it at a time. */
void cpu_split_run(const struct cpu_split *, const struct kernel *, const struct kernel_args *);

#endif
