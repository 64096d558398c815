/* How much memory each rank has, and whether the plan fits it. */
#ifndef RANVIER_RUNTIME_LIMITS_H
#define RANVIER_RUNTIME_LIMITS_H

#include "runtime/device/device.h"
#include "runtime/engine/options.h"
#include "runtime/net/net.h"

/* Sets the device's limits: what the user gave (--device-memory, --host-memory), else an equal share for each
 * rank on this machine; both together are never more than that share where they are the same memory. */
void limits_apply(struct device *, const struct options *, const struct net *);

/* Whether every rank's needs, as predicted, fit these limits. If not, rank 0 prints what is needed and which
 * changes of the plan would fit, priced by a short probe of the device (runtime/probe.h), and every rank gets
 * RV_EPLAN with the same sentence. Collective; before anything is allocated. */
int limits_check(const struct options *, double host_link_bytes_per_second, struct net *,
                 struct rv_error_info *err);

#endif
