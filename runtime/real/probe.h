/* A probe: the rates of a device, measured in a moment. If a plan does not fit its memory, limits.h proposes
 * changes of it, and says with a probe about how much slower or faster each would be where nobody has
 * calibrated the machine. The prices are rough: one rank alone is measured, with three kernels. Predictions
 * (sim/) use profiles instead. */
#ifndef RANVIER_RUNTIME_REAL_PROBE_H
#define RANVIER_RUNTIME_REAL_PROBE_H

#include "runtime/device/device.h"
#include "runtime/plan/options.h"

struct probe {
        double flops_per_second[DTYPES]; /* of a matrix product, by storage format */
        double bytes_per_second[DTYPES]; /* of a kernel that does little but read and write, likewise */
        double copied_per_second;        /* bytes from host to device */
};

/* Opens the device of that name once more, as the run has it (its threads and kernels), runs one matrix
 * product, one addition of a bias and one copy, a few times each, and closes it: well under a second on a CPU
 * of today. If there is no such device or not enough memory, all rates become NAN. */
void probe_run(struct probe *, const char *device, const struct device_request *request);

/* Returns the seconds of one batch of a plan, on paper (runtime/engine/paper_plan.h): a matrix product or
 * attention takes its flops, another kernel its bytes, and a copy between host and device its bytes, by the
 * probe's rates. Messages and collectives are copies in fp32's memory rate; a collective moves what a ring of
 * p ranks does, (p - 1) / p of the bytes, and an all-reduce twice that. `probe` is a struct probe; the type
 * suits capacity_changes (runtime/engine/capacity.h). Returns NAN if the probe knows nothing. */
double probe_batch_seconds(void *probe, const struct options *options);

/* Writes what such times rest on, in a few words for the user. Returns `text`. */
enum { PROBE_BASIS = 96 };
const char *probe_basis(const char *device, const struct device_request *request, char text[PROBE_BASIS]);

#endif
