/* How much memory each rank has, and whether the plan fits it. */
#ifndef RANVIER_RUNTIME_REAL_LIMITS_H
#define RANVIER_RUNTIME_REAL_LIMITS_H

#include "runtime/device/device.h"
#include "runtime/plan/options.h"
#include "runtime/net/net.h"

/* Sets the device's limits: what the user gave (--device-memory, --host-memory), else this rank's share. Of a
 * memory that is device's and host's at once, that is an equal part for each rank on this machine, which both
 * together never pass; of a GPU's, an equal part of what is free for each rank that uses it, and what the
 * user gave can only be less. Collective: when every rank has opened its device, and before anything is
 * allocated.
 */
void limits_apply(struct device *, const struct options *, struct net *);

/* Whether every rank's needs, as predicted, fit the limits of every rank's device. If not, rank 0 prints what
 * is needed and which changes of the plan would fit, priced by a short probe of the device, opened by the
 * same request (runtime/real/probe.h), and every rank gets RV_EPLAN with the same sentence. Collective;
 * before anything is allocated. */
int limits_check(const struct options *, const struct device *, const struct device_request *, struct net *,
                 struct rv_error_info *err);

#endif
