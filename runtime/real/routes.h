/* The routes of a training: whether messages and all-reduces go to the network directly from device memory,
 * or staged through host memory. They depend on the device and on what this MPI and NCCL can do. */
#ifndef RANVIER_RUNTIME_REAL_ROUTES_H
#define RANVIER_RUNTIME_REAL_ROUTES_H

#include "runtime/device/device.h"
#include "runtime/plan/options.h"
#include "runtime/net/net.h"

/* Settles --messages and --allreduce where the options leave them open (options_choose_routes), alike on
 * every rank. The memory of the CPU device is the host's, which the network reaches. A GPU's memory is
 * reached by messages if MPI is CUDA-aware, and by collectives if NCCL takes them over; this function
 * attaches NCCL (net_nccl_attach), unless they are to be staged. If NCCL fails later, it ends the job by the
 * device's `fail`.
 *
 * Returns 0, or a negative rv_error with a sentence if direct was asked for, or is the only way that is built
 * (ZeRO-2 and 3, spread experts), and cannot be. Collective; after
 * net_mpi_groups and device_open, before anything is allocated. */
int routes_choose(struct options *options, const struct device *device, struct net *net,
                  struct rv_error_info *err);

#endif
