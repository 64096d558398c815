/* Checkpoints: trained models in files, in fp32, as transformers has them, so that its from_pretrained loads
 * them. A checkpoint is a folder, with config.json and model.safetensors, or that second file alone. Tensors
 * have the names of the model's family (models/partition.h) and transformers' layout: a GPT-2's matrices of
 * blocks are (in, out), all others (out, in). The safetensors' metadata has the config.json too, and how the
 * model was trained; "layout" says that matrices are so, which files from before it have as (out, in).
 * `ranvier train` writes one at its end, and by weight_files.h `ranvier sample` and --init read it. The
 * optimizer's state is not in it: a training goes on from checkpoints by state.h. */
#ifndef RANVIER_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define RANVIER_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "models/gpt.h"
#include "models/partition.h"

/* How the model was trained. */
struct checkpoint_training {
        int64_t step; /* batches so far */
        int seq_len;  /* tokens of a sequence: embeddings of positions from here on are untrained */
};

/* Returns whether a name ends as that of a safetensors file. */
bool checkpoint_names_file(const char *path);

/* Checks that a checkpoint could be written at `path` later: a file, as file_check_writable does, if the name
 * ends in .safetensors or is that of something that is no folder; else a folder, which may be there if it is
 * empty or a checkpoint that ranvier wrote, and has nothing else in it. Returns 0 or RV_EINPUT. */
int checkpoint_check_writable(const char *path, struct rv_error_info *err);

/* Write a checkpoint to `path`, which appears under its name only when it is complete. checkpoint_begin
 * writes the header and returns a writer, or NULL with a sentence. checkpoint_append then takes one tensor
 * after the other, whole, in the order of a partition with one stage. checkpoint_commit ends the checkpoint
 * and frees the writer, in any case; it must also be called if an append has failed, and it fails if not all
 * tensors came. The last two return 0 or RV_ESYSTEM. */
struct checkpoint_writer;
struct checkpoint_writer *checkpoint_begin(const char *path, const struct gpt *gpt,
                                           const struct checkpoint_training *training,
                                           struct rv_error_info *err);
int checkpoint_append(struct checkpoint_writer *, const float *elements, struct rv_error_info *err);
int checkpoint_commit(struct checkpoint_writer *, struct rv_error_info *err);

#endif
