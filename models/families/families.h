/* Families of models: the forward of each kind of layer, and what their config.json says. Nothing else knows
 * a family. */
#ifndef RANVIER_MODELS_FAMILIES_FAMILIES_H
#define RANVIER_MODELS_FAMILIES_FAMILIES_H

#include "models/config.h"
#include "models/program.h"
#include "models/work.h"

/* One row a family (families.c). A layer is built for micro-batches of work->micro_batch_size sequences of
 * work->seq_len tokens. */
struct family {
        const char *model_type; /* as config.json has it */
        enum gpt_family id;
        const char
                *layers; /* what the names of a block's tensors begin with, before its number and a point */
        void (*embedding)(struct program *, const struct gpt *, const struct work *);
        void (*block)(struct program *, const struct gpt *, const struct work *);
        /* `loss_only`: of a validation pass, which makes the loss alone. Its last tensor is the output
         * projection, of which a model with tied embeddings has none. */
        void (*head)(struct program *, const struct gpt *, const struct work *, bool loss_only);
        /* The keys of its config.json, by which it is written, and, in a model of zeros that has its name,
         * read: by config_read, and what is not in the table. RV_EINPUT names file, line and key. */
        const struct config_key *keys;
        int key_count;
        int (*read)(struct gpt *, const char *path, const json_t *object, struct rv_error_info *err);
};
const struct family *family_at(enum gpt_family id);

extern const struct family family_gpt2, family_llama;

#endif
