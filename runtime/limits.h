/* How much memory each rank has. */
#ifndef RANVIER_RUNTIME_LIMITS_H
#define RANVIER_RUNTIME_LIMITS_H

#include "runtime/device/device.h"
#include "runtime/engine/options.h"
#include "runtime/net/net.h"

/* Sets the device's limits: what the user gave (--device-memory, --host-memory), else an equal share for each
 * rank on this machine; both together are never more than that share where they are the same memory. */
void limits_apply(struct device *, const struct options *, const struct net *);

#endif
