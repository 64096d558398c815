/* What was found in a trace: its operators by class, what of their time becomes kernels of ours, and what not
 * and why; printed, and as JSON. */
#ifndef RANVIER_RUNTIME_KINETO_FOUND_H
#define RANVIER_RUNTIME_KINETO_FOUND_H

#include "runtime/kineto/steps.h"

#include <stdio.h>

/* Returns
 *   { "steps", "device", "seconds" (of all operators of the steps: of the GPU, if the trace has one),
 *     "mapped" (the part of these seconds that operators take which kernels of ours do),
 *     "launched_outside": {"kernels", "seconds"},
 *     "classes": [{"class", "operators", "seconds", "mapped_seconds", "kernel"}],
 *     "products": [{"batch", "m", "n", "k", "count", "seconds"}], by their seconds, descending,
 *     "not_mapped": [{"operator", "count", "seconds", "why"}], likewise }
 * The caller owns it; where a model is known "kernels" is added, which learn_json makes. */
json_t *found_json(const struct traced_steps *steps);

/* Prints it. */
void found_print(const json_t *found, FILE *stream);

#endif
