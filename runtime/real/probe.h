/* What the device does in a second, measured in a moment: for saying about what a change of the plan costs,
 * where nobody has calibrated. */
#ifndef RANVIER_RUNTIME_REAL_PROBE_H
#define RANVIER_RUNTIME_REAL_PROBE_H

#include "runtime/device/device.h"
#include "runtime/plan/options.h"

struct probe {
        double flops_per_second[DTYPES]; /* of a matrix product, by format */
        double bytes_per_second[DTYPES]; /* of a kernel that does little but read and write */
        double copied_per_second;        /* between host and device, one direction, in bytes */
};

/* Opens the device of that name once more, as the run has it (its threads and kernels), and runs one matrix
 * product, one addition of a bias and one copy, a few times each: well under a second on a CPU of today. All
 * is NAN, and every price with it, if there is no such device or no memory to do it with. */
void probe_run(struct probe *, const char *device, const struct device_request *request);

/* Seconds of a batch on paper (runtime/engine/paper_plan.h), priced by `probe`, a struct probe: a matrix
 * product by its flops, other kernels by their bytes, messages and collectives as copies in memory, as a ring
 * moves them (of an all-reduce two times the bytes, less one part in its ranks). NAN: the probe knows
 * nothing. For capacity_changes. */
double probe_batch_seconds(void *probe, const struct options *options);

/* What the times rest on, in a few words; returns `text`. */
enum { PROBE_BASIS = 96 };
const char *probe_basis(const char *device, const struct device_request *request, char text[PROBE_BASIS]);

#endif
