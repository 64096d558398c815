/* Where the time of a batch goes: what the kernels of each stage take, kind by kind, as a prediction's trace
 * tells its readers (`ranvier compare` with a trace of another program). */
#ifndef RANVIER_SIM_WORLD_KINDS_H
#define RANVIER_SIM_WORLD_KINDS_H

#include "sim/world/costs.h"

/* Returns, the caller's, what a stage's forwards and backwards of a batch are made of:
 *   [{"first", "last": the stages that do the same,
 *     "kernels": [{"kernel": its name, "batched": of a product whether it is one of many matrices,
 *                  "pass": "forward" or "backward", "number", "seconds",
 *                  "flops": floating-point operations}]}]
 * of all micro-batches of a replica together, on the first kind of GPU. NULL, with a sentence, without
 * memory. */
json_t *kinds_json(const struct costs *costs, struct rv_error_info *err);

#endif
