/* How messages and all-reduces get to the network from this run's devices. */
#ifndef RANVIER_RUNTIME_REAL_ROUTES_H
#define RANVIER_RUNTIME_REAL_ROUTES_H

#include "runtime/device/device.h"
#include "runtime/plan/options.h"
#include "runtime/net/net.h"

/* Settles what the options leave open (options_choose_routes), alike on every rank. A CPU's memory is the
 * host's, which the network reaches. A GPU's is reached by messages if MPI is CUDA-aware, and by all-reduces
 * if NCCL takes them over, which it is let here, unless they are to be staged, and whose failures
 * end as the device's. Collective; after net_mpi_groups and device_open, before anything is allocated. */
int routes_choose(struct options *options, const struct device *device, struct net *net,
                  struct rv_error_info *err);

#endif
