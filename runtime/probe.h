/* What the device does in a second, measured in a moment: for saying about what a change of the plan costs,
 * where nobody has calibrated. */
#ifndef RANVIER_RUNTIME_PROBE_H
#define RANVIER_RUNTIME_PROBE_H

#include "runtime/engine/estimate.h"

struct probe {
        double flops_per_second[HALF_FORMATS]; /* of a matrix product, by format */
        double bytes_per_second[HALF_FORMATS]; /* of a kernel that does little but read and write */
        double copied_per_second;              /* between host and device, one direction, in bytes */
};

/* Opens the device of that name once more and runs one matrix product, one addition of a bias and one copy, a
 * few times each: well under a second on a CPU of today. All is NAN, and every price with it, if there is no
 * such device or no memory to do it with. */
void probe_run(struct probe *, const char *device, double host_link_bytes_per_second);

/* Prices that read `probe`: a matrix product by its flops, other kernels by their bytes, messages and
 * all-reduces as copies (two times the bytes, less one part in `ranks`, as a ring moves them). */
struct estimate_prices probe_prices(struct probe *probe);

extern const char probe_basis[]; /* what the times rest on, in a few words */

#endif
