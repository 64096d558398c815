/* A GPT as its hyperparameters, in the words of a Hugging Face config.json. */
#ifndef RANVIER_MODELS_GPT_H
#define RANVIER_MODELS_GPT_H

#include "models/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct gpt {
        char name[64];
        int n_layer, n_embd, n_head, vocab_size;
        int n_positions; /* the longest sequence */
        bool tied;    /* the output projection is the token embedding (tie_word_embeddings, default true) */
        bool dropout; /* its file asks for dropout, which is not modelled */
};

/* One sentence on what the model's file asks for and is not modelled, to be shown to the user; or NULL. */
const char *gpt_warning(const struct gpt *gpt);

/* Reads a model: a preset's name (models/presets) or the path of a config.json. */
int gpt_load(struct gpt *gpt, const char *name_or_path, struct rv_error_info *err);

/* The same keys that gpt_load reads; the caller owns the result. */
json_t *gpt_to_json(const struct gpt *gpt);
int gpt_from_json(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err);

/* Whether a model that was not read from a file is within the limits that hold for those that are, in which
 * no product of its sizes overflows, and its heads divide its width. RV_EINPUT names the key and the limit.
 */
int gpt_check(const struct gpt *gpt, struct rv_error_info *err);

/* Parameters of the whole model; a tied embedding counts once. */
int64_t gpt_parameters(const struct gpt *gpt);

/* What is computed again before a block's backward, so that it need not be stored. */
enum recompute {
        RECOMPUTE_NONE,
        RECOMPUTE_FULL,      /* a block from its stored input on, but its last product, which nobody reads */
        RECOMPUTE_SELECTIVE, /* scores and softmax of attention, (T,T) a head (Korthikanti et al. 2022) */
        RECOMPUTE_LAYER,     /* as full, and the last product too, as frameworks do that wrap a layer whole */
        RECOMPUTES
};
const char *recompute_name(enum recompute recompute); /* "none", "full", "selective", "layer" */
int recompute_of_name(const char *name);              /* -1 if there is none of that name */
/* Orders them by what is computed again, and so by what is not stored: none 0, selective 1, full 2, layer 3.
 */
int recompute_depth(enum recompute recompute);

/* Floating-point operations of one batch of `batch` sequences, forward and backward (Narayanan et al. 2021,
 * eq. 3, whose 96 = 3 x 24 + 24 includes one recomputation of the layers; without it the factor is 72).
 * Our recomputation (full) stops before a block's last product, so with it the factor is 88; layer has 96.
 * Selective: Q K^T again. What P V gave is stored, as backward needs it beside P (frameworks that wrap all of
 * attention run that product too, 2 B s^2 l h more). */
double gpt_batch_flops(const struct gpt *gpt, int64_t batch, int seq_len, enum recompute recompute);

#endif
