/* SimGrid itself: its settings, the platform that it loads, and the hosts that ranks run on. predict.c calls
 * this once before it builds the simulated world (driver_sim.h); the flows between the hosts are started
 * there. */
#ifndef RANVIER_SIM_WORLD_NETWORK_H
#define RANVIER_SIM_WORLD_NETWORK_H

#include "sim/platform/platform.h"

#include <simgrid/forward.h>

/* The hosts of one rank. They belong to SimGrid.
 *
 * `device` is where the rank runs. `memory` is where its copies come from and go to; NULL means that copies
 * take no time. `staging` is where its staged messages come from and go to; it is `device` if the platform
 * has no other. `near` and `far` are the device's twins on a folded platform (PLATFORM_NEAR, PLATFORM_FAR),
 * else NULL. */
struct network_place {
        sg_host_t device, memory, staging, near, far;
};

/* Starts SimGrid on a platform, which is possible once in a process, and fills places[ranks]. `stages` is the
 * number of ranks of a pipeline. A SimGrid XML file of the user is tried in a child process first, because
 * SimGrid ends the process over a mistake in such a file; of many ranks, the routes are tried that a plan of
 * so many stages needs. Returns RV_EINPUT if the file or one of its links or routes is wrong, RV_EPLAN if
 * there are fewer hosts than ranks, and RV_ESYSTEM if there is no process or temporary file. */
int network_open(const struct platform *platform, int ranks, int stages, struct network_place *places,
                 struct rv_error_info *err);

#endif
