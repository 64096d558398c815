/* Copies between host and device as a profile has measured them, for SimGrid's world and the one on paper. */
#ifndef RANVIER_SIM_WORLD_COPIES_H
#define RANVIER_SIM_WORLD_COPIES_H

#include "runtime/plan/options.h"
#include "runtime/sched/op.h"
#include "sim/platform/platform.h"

/* Checks, where copies are taken as measured (platform->copies), that the profile has the lines for all
 * copies of a plan with these options and, in a 16-bit precision, for its all-reduces. RV_EINPUT names the
 * line that is missing. */
int copies_check_lines(const struct platform *platform, const struct options *options,
                       const struct profile *profile, struct rv_error_info *err);

/* What it takes to write a rank's file, of `bytes`, while all ranks of a plan that are on its node and write
 * anything write as many: until all of it is on the disk; and, where that was measured, what the rank's
 * processors have to do for it (else 0). The platform has either a rate or measured lines of files. */
struct file_seconds {
        double all, work;
};
struct file_seconds copies_file_seconds(const struct platform *platform, const struct plan *plan, int rank,
                                        int64_t bytes, bool fits_only);

/* Returns the seconds of a copy between host and device as it was measured; platform->copies must not be
 * NULL. With `both`, the other direction copies all the while. `fits_only` takes the fitted line even where a
 * size was measured. */
double copies_seconds(const struct platform *platform, const struct op *op, bool fits_only, bool both);

#endif
