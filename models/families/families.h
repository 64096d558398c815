/* Families of models: for each the forward of every kind of layer, and the keys of its config.json. A
 * family's file (gpt2.c, llama.c) is the only place that knows its architecture. The passes of program.h
 * derive backward, shards, fused kernels and memory from the forward. gpt.c, workload.c and partition.c are
 * the callers; models/README.md says how a family is added. */
#ifndef RANVIER_MODELS_FAMILIES_FAMILIES_H
#define RANVIER_MODELS_FAMILIES_FAMILIES_H

#include "models/config.h"
#include "models/program.h"
#include "models/work.h"

/* One row of the table in families.c. The builders append to a program that program_begin has emptied;
 * they build a layer for micro-batches of work->micro_batch_size sequences of work->seq_len tokens. */
struct family {
        /* The value of "model_type" in config.json. */
        const char *model_type;
        enum gpt_family id;
        /* The class of transformers that such a model is ("architectures" in config.json). */
        const char *architecture;
        /* The prefix of the names of a block's tensors; the block's number and a point follow it. */
        const char *layers;
        /* Its files have the matrices of a block as (in, out): transformers' GPT-2, whose products are called
         * convolutions. */
        bool transposed;
        void (*embedding)(struct program *, const struct gpt *, const struct work *);
        void (*block)(struct program *, const struct gpt *, const struct work *);
        /* Builds a block of LAYER_DENSE, of which the model has gpt->n_dense. May be NULL: it never has. */
        void (*dense)(struct program *, const struct gpt *, const struct work *);
        /* Builds the head. `loss_only` asks for that of a validation pass, which makes the loss alone. The
         * head's last tensor is the output projection; a model with tied embeddings has no tensor of its own
         * for it. */
        void (*head)(struct program *, const struct gpt *, const struct work *, bool loss_only);
        /* The table of the keys of its config.json, by which a model is written and read. */
        const struct config_key *keys;
        int key_count;
        /* Reads a model of this family, first by config_read and then what is not in the table. The caller
         * has zeroed the model and set its name and family. RV_EINPUT comes with a sentence that names the
         * file, the line and the key. */
        int (*read)(struct gpt *, const char *path, const json_t *object, struct rv_error_info *err);
        /* Adds to a config.json what is not in the table. May be NULL. */
        void (*write)(const struct gpt *, json_t *object);
};
/* Returns the row of a family; `id` must be one of enum gpt_family. */
const struct family *family_at(enum gpt_family id);

/* Builds the forward of a layer of the model; of LAYER_DENSE nothing where the model has no such blocks. The
 * program has been emptied. */
void family_build(struct program *, enum layer layer, const struct gpt *, const struct work *);

extern const struct family family_gpt2, family_llama, family_mistral, family_qwen2, family_qwen3,
        family_mixtral, family_qwen3_moe, family_deepseek_v3, family_nemotron, family_deepseek_v2;

#endif
