/* Weights from files into a stage. Each rank loads for itself what it has of the model, a megabyte at a time,
 * so that no rank needs memory for more. `ranvier train --init` and `ranvier sample` use it. */
#ifndef RANVIER_RUNTIME_REAL_LOAD_H
#define RANVIER_RUNTIME_REAL_LOAD_H

#include "runtime/checkpoint/weight_files.h"
#include "runtime/nn/nn.h"

/* Sets all parameters of a stage, whose own shares must be known by then, from files that were checked for
 * its model. `checksums` become those of what was read, of experts that are spread over ranks the second, for
 * ranks that must have read the same to compare.
 * Returns 0, or a negative rv_error with a sentence: weights that are not finite are RV_EINPUT. Waits for the
 * device. */
enum { LOAD_CHECKSUMS = 2 };
int load_weights(struct nn_stage *, const struct weight_files *, uint64_t checksums[LOAD_CHECKSUMS],
                 struct rv_error_info *err);

#endif
