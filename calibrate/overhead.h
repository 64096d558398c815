/* Measures what it costs to hand kernels to a GPU, for the members "launch" and "graph" of a profile's
 * loads. */
#ifndef RANVIER_CALIBRATE_OVERHEAD_H
#define RANVIER_CALIBRATE_OVERHEAD_H

#include "calibrate/bench.h"

/* Launches 256 kernels that have next to nothing to do, one by one and as a graph, `repetitions` times each
 * after a warm-up. Adds to `samples` the seconds a kernel that the host takes to launch them, and those
 * until the device is done; and of some more what a recorder says that each of them takes. It opens and
 * closes a device of its own. With --device cpu, whose kernels run on the processor that launches them, it
 * does nothing and returns RV_OK. Errors come with a sentence: there is no such device or no memory. */
int overhead_launches(struct net *net, const struct request *request, int repetitions,
                      struct samples *samples, struct rv_error_info *err);

#endif
