/* What it costs to hand kernels to a GPU. */
#ifndef RANVIER_CALIBRATE_OVERHEAD_H
#define RANVIER_CALIBRATE_OVERHEAD_H

#include "calibrate/bench.h"

/* Launches kernels that have next to nothing to do, one by one and as a graph, `repetitions` times, and adds
 * the seconds a kernel that the host and the lane take to `samples`. Nothing on a device whose kernels run on
 * the processor that launches them. */
int overhead_launches(struct net *net, const struct request *request, int repetitions,
                      struct samples *samples, struct rv_error_info *err);

#endif
