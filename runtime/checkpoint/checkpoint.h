/* Checkpoints: trained models in files. A checkpoint is one safetensors file, in fp32, whose tensors have the
 * names of the model's family (models/partition.h) and, for GPT-2, nanoGPT's, with matrices as (out, in). Its
 * metadata has the keys of the model's config.json and how the model was trained. `ranvier train` writes one
 * at its end, and `ranvier sample` reads it. The optimizer's state is not in it, so a training cannot go on
 * from it. */
#ifndef RANVIER_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define RANVIER_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "models/gpt.h"
#include "models/partition.h"

/* How the model was trained. */
struct checkpoint_training {
        int64_t step; /* batches so far */
        int seq_len;  /* tokens of a sequence: embeddings of positions from here on are untrained */
};

/* Write a checkpoint to `path`, which appears under its name only when it is complete. checkpoint_begin
 * writes the header and returns a writer, or NULL with a sentence. checkpoint_append then takes the elements
 * of all tensors, in the order of a partition with one stage, in pieces of any size. checkpoint_commit ends
 * the file and frees the writer, in any case; it must also be called if an append has failed, and it fails if
 * not all elements came. The last two return 0 or RV_ESYSTEM. */
struct checkpoint_writer;
struct checkpoint_writer *checkpoint_begin(const char *path, const struct gpt *gpt,
                                           const struct checkpoint_training *training,
                                           struct rv_error_info *err);
int checkpoint_append(struct checkpoint_writer *, const float *elements, int64_t count,
                      struct rv_error_info *err);
int checkpoint_commit(struct checkpoint_writer *, struct rv_error_info *err);

/* Reads a checkpoint: the model; how it was trained, as far as the file says (else step is 0, and seq_len is
 * n_positions); and all tensors into one buffer in the order of a partition with one stage, which the caller
 * frees. `training` and `weights` may be NULL: then they are not read, but the tensors are checked all the
 * same. Weights that are not finite are refused. Returns 0, RV_EINPUT if the file is not such a checkpoint,
 * or RV_ESYSTEM; *weights is then unchanged or NULL. */
int checkpoint_read(const char *path, struct gpt *gpt, struct checkpoint_training *training, float **weights,
                    struct rv_error_info *err);

#endif
