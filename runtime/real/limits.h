/* How much memory each rank of a training may use, and whether the plan fits it. The check comes before
 * anything is allocated, so that a plan that is too large is refused with a sentence and proposals, not by a
 * failed allocation. */
#ifndef RANVIER_RUNTIME_REAL_LIMITS_H
#define RANVIER_RUNTIME_REAL_LIMITS_H

#include "runtime/device/device.h"
#include "runtime/plan/options.h"
#include "runtime/net/net.h"

/* Sets the device's limit for each memory space, and its overhead: what the user gave (--device-memory,
 * --host-memory), else this rank's share.
 *
 * If device and host memory are the same (the CPU device), the share is an equal part of it for each rank on
 * this machine, which both spaces together never pass. Of a GPU's memory the share is an equal part of what
 * is free for each rank that uses the GPU, and a limit that the user gave can only lower it. The host's
 * memory is always shared by all ranks of the machine.
 *
 * Collective; every rank must have opened its device, and none allocated anything yet. */
void limits_apply(struct device *, const struct options *, struct net *);

/* Settles --logits auto, which the devices' limits decide on a GPU: all at once where it fits every rank.
 * Collective; after limits_apply. */
void limits_choose_logits(struct options *, const struct device *, struct net *);

/* Checks that what every rank needs, as predicted, fits the limits of every rank's device, which
 * limits_apply has set. If it does not, rank 0 prints to stderr what is needed and which changes of the
 * plan would fit, with a price for each by a short probe of the device (probe.h), which is opened once
 * more by the same request. Returns 0, or RV_EPLAN with the same sentence on every rank. Collective;
 * before anything is allocated. */
int limits_check(const struct options *, const struct device *, const struct device_request *, struct net *,
                 struct rv_error_info *err);

#endif
