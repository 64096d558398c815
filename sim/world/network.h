/* SimGrid itself: its settings, the platform it loads, the hosts that ranks run on. */
#ifndef RANVIER_SIM_WORLD_NETWORK_H
#define RANVIER_SIM_WORLD_NETWORK_H

#include "sim/platform/platform.h"

#include <simgrid/forward.h>

/* Where a rank runs; the host that its copies come from and go to (NULL: copies take no time); the host that
 * its staged messages come from and go to (its device, if the platform has none); of a folded platform, its
 * twins (PLATFORM_NEAR, PLATFORM_FAR), else NULL. */
struct network_place {
        sg_host_t device, memory, staging, near, far;
};

/* Starts SimGrid on a platform: only once a process. places[ranks] receives where each rank runs. A SimGrid
 * XML file that a user gave is tried in a child first, because SimGrid ends the process over a mistake in
 * one, such as a missing route between two of the ranks, of which `stages` make a pipeline. */
int network_open(const struct platform *platform, int ranks, int stages, struct network_place *places,
                 struct rv_error_info *err);

#endif
