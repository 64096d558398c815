/* Checkpoints: one safetensors file, tensor names and (out, in) layout as nanoGPT's state_dict, fp32; the
 * model's config.json keys are its metadata. */
#ifndef RANVIER_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define RANVIER_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "models/gpt.h"
#include "models/partition.h"

/* How the model was trained. */
struct checkpoint_training {
        int64_t step; /* batches so far */
        int seq_len;  /* tokens of a sequence: positions from here on are untrained */
};

/* Writes the model's tensors in the order of a one-stage partition, one after another, atomically: begin
 * writes the header, then each tensor's elements are appended in that order, then commit. */
struct checkpoint_writer;
struct checkpoint_writer *checkpoint_begin(const char *path, const struct gpt *gpt,
                                           const struct checkpoint_training *training,
                                           struct rv_error_info *err);
int checkpoint_append(struct checkpoint_writer *, const float *elements, int64_t count,
                      struct rv_error_info *err);
int checkpoint_commit(struct checkpoint_writer *,
                      struct rv_error_info *err); /* frees the writer in any case */

/* Reads the model, (if `training` is not NULL) how it was trained
 * (as far as the file says; seq_len is n_positions otherwise), and (if `weights` is not NULL) all tensors
 * into a malloc'ed flat buffer in the one-stage order: finite numbers, others are refused. */
int checkpoint_read(const char *path, struct gpt *gpt, struct checkpoint_training *training, float **weights,
                    struct rv_error_info *err);

#endif
