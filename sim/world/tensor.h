/* Seconds of the collectives that are priced by closed form: those of shards in the midst of a forward or
 * backward (tensor parallelism), of which there are thousands in a batch, and on paper those that gather or
 * reduce a layer's parameters with ZeRO-3. priced.c and paper_batch.c ask here. */
#ifndef RANVIER_SIM_WORLD_TENSOR_H
#define RANVIER_SIM_WORLD_TENSOR_H

#include "sim/collective/collective_model.h"
#include "runtime/base/memo.h"
#include "sim/platform/platform.h"
#include "runtime/engine/price.h"

/* Returns the seconds of one collective between the GPUs of shards. `collective` is one of the KERNEL_TENSOR_
 * kinds and `bytes` are those of the whole buffer. Where the platform has measured all-reduces of `dtype`
 * (the local one), a gather or a scatter is priced as half an all-reduce. */
double tensor_collective_seconds(const struct platform *platform, const struct collective_group *shards,
                                 enum kernel_kind collective, int64_t bytes, enum dtype dtype);

/* Returns the seconds in which shards add up gradients of a stage outside of its passes: staged, if the
 * platform says so. */
double tensor_sum_seconds(const struct platform *platform, const struct collective_group *shards,
                          int64_t bytes, enum dtype dtype);

/* Returns whether a group's ranks are on several nodes. */
bool tensor_leaves_node(const struct platform *platform, struct plan_group group);

/* Return the seconds of the collective that follows part `part` of a pass (0 to pass->parts - 2), of the
 * group that has it, and for how long the parts of a pass of `rank` wait for all of its collectives. Rows of
 * experts are taken to be even. `memo` (may be NULL) keeps the seconds of collectives, for plans on the same
 * machine. */
double tensor_part_seconds(const struct platform *platform, struct plan_group group,
                           const struct price_pass *pass, int part);
double tensor_seconds(const struct platform *platform, const struct plan *plan, int rank,
                      const struct price_pass *pass, struct memo *memo);

/* Returns what an exchange of rows of experts, or the passing on of keys in a ring, costs beside its
 * messages, and by how much these are longer, or shorter, than what is sent. */
struct collective_exchange tensor_exchange(const struct platform *platform, struct plan_group members,
                                           const struct kernel *collective);

/* Returns the seconds after which the other shards know what the first one has decided: those of a message of
 * `bytes`. */
double tensor_decision_seconds(const struct platform *platform, struct plan_group shards, int64_t bytes);

/* Returns what the line layer_gather of `load` says of the gather or the reduction of a unit of so many bytes
 * with ZeRO-3: it stands for a framework whose collectives between nodes are slower than its library's. NAN
 * if there is no such line, or the replicas are of one node. */
double tensor_line_seconds(const struct platform *platform, struct plan_group replicas,
                           const struct profile_load *load, int64_t bytes);

/* Returns the seconds in which the replicas gather the weights of a unit or reduce its gradients with ZeRO-3,
 * as those of the other shards do meanwhile; op->bytes are the unit's. By that line, or else by the closed
 * form. */
double tensor_unit_seconds(const struct platform *platform, struct plan_group replicas, int shards,
                           const struct profile_load *load, const struct op *op, enum dtype dtype);

#endif
