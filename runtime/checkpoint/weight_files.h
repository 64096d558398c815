/* The weights of a model in safetensors files: one file, or a folder or an index with several, as
 * transformers saves them and as `ranvier train --checkpoint` does. Tensors are found by the names that the
 * model's family has for them (models/partition.h), with or without the first word and point of it
 * ("transformer.", "model."), which files of a bare model have not. Nothing else of a family is known here.
 *
 * Opening reads the headers alone, and the files are mapped: a rank reads from the disk what it asks
 * weight_files_read for, which is the part of a tensor that it has, and no more. */
#ifndef RANVIER_RUNTIME_CHECKPOINT_WEIGHT_FILES_H
#define RANVIER_RUNTIME_CHECKPOINT_WEIGHT_FILES_H

#include "models/gpt.h"
#include "models/partition.h"

struct weight_files;

/* Opens `path`: a folder, with model.safetensors or else model.safetensors.index.json; such an index; or a
 * safetensors file. An index names files of its own folder alone. Returns NULL with a sentence, RV_EINPUT
 * where a file is missing or wrong. The caller ends it with weight_files_close. */
struct weight_files *weight_files_open(const char *path, struct rv_error_info *err);
void weight_files_close(struct weight_files *); /* NULL is fine */

/* Reads the model that the files say they are of: by the config in a file that ranvier wrote, or else by the
 * config.json beside them. RV_EINPUT if there is neither, or it is wrong. */
int weight_files_model(const struct weight_files *, struct gpt *gpt, struct rv_error_info *err);

/* Returns the number `key` of what ranvier wrote down of the training, such as "step"; `otherwise` if the
 * files do not say, or not a number in [min, max]. */
int64_t weight_files_number(const struct weight_files *, const char *key, int64_t min, int64_t max,
                            int64_t otherwise);

/* Checks that the files are of this model: every tensor is there, once, in the right shape and in fp32, fp16
 * or bf16, and there is no other but a few buffers that are no weights; and if the files say of which model
 * they are, it is this one but for its name and its number of positions. The output projection of a tied
 * model may be there: weight_files_read then checks that it is the embedding. RV_EINPUT comes with a
 * sentence. Must be called before weight_files_read. */
int weight_files_check(struct weight_files *, const struct gpt *gpt, struct rv_error_info *err);

/* Reads elements [first, first + count) of a shard's tensor in fp32; those that pad the vocabulary are 0.
 * Weights that are not finite are RV_EINPUT with a sentence. */
int weight_files_read(const struct weight_files *, const struct tensor *tensor, int64_t first, int64_t count,
                      float *out, struct rv_error_info *err);

#endif
