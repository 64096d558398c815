/* Seconds of the collectives of shards in the midst of a forward or backward, by closed form. */
#ifndef RANVIER_SIM_WORLD_TENSOR_H
#define RANVIER_SIM_WORLD_TENSOR_H

#include "sim/collective/collective_model.h"
#include "sim/platform/platform.h"
#include "runtime/engine/price.h"

/* One collective (kernel_collective) of `bytes` in all between the GPUs of shards, wherever they lie. */
double tensor_collective_seconds(const struct platform *platform, const struct collective_group *shards,
                                 enum kernel_kind collective, int64_t bytes, enum dtype dtype);

/* Seconds of the collective behind the part `part` of a pass, and of all in it. */
double tensor_part_seconds(const struct platform *platform, struct plan_group shards,
                           const struct price_pass *pass, int part);
double tensor_seconds(const struct platform *platform, struct plan_group shards,
                      const struct price_pass *pass);

/* Zero 3: the weights of a unit are gathered, or its gradients reduced, between the replicas: by the line
 * layer_gather of `load`, of a framework whose collectives are slower than its library's, if it has one. */
double tensor_unit_seconds(const struct platform *platform, struct plan_group replicas,
                           const struct profile_load *load, const struct op *op, enum dtype dtype);

#endif
