/* A decoder-only transformer as its hyperparameters, in the words of a Hugging Face config.json of GPT-2. */
#ifndef RANVIER_MODELS_GPT_H
#define RANVIER_MODELS_GPT_H

#include "runtime/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum gpt_family { FAMILY_GPT2, FAMILY_LLAMA, FAMILIES }; /* a row each in models/families */

/* Far above any model that exists, and low enough that no product of a model's sizes overflows. */
enum {
        GPT_MAX_LAYERS = 10000,
        GPT_MAX_WIDTH = 131072,
        GPT_MAX_INNER = 4 * GPT_MAX_WIDTH,
        GPT_MAX_HEADS = 1024,
        GPT_MAX_VOCABULARY = 2097152,
        GPT_MAX_POSITIONS = 131072
};

struct gpt {
        char name[64];
        enum gpt_family family;
        int n_layer, n_embd, n_head, vocab_size;
        int n_positions;                 /* the longest sequence */
        int n_kv_head;                   /* heads of keys and values; 0: as many as n_head */
        int n_inner;                     /* width inside the MLP; 0: 4 n_embd */
        double rope_theta, norm_epsilon; /* of families that have them */
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

static inline int gpt_kv_heads(const struct gpt *gpt)
{
        return gpt->n_kv_head ? gpt->n_kv_head : gpt->n_head;
}
static inline int gpt_inner(const struct gpt *gpt)
{
        return gpt->n_inner ? gpt->n_inner : 4 * gpt->n_embd;
}

/* Whether two are the same but for their names. */
bool gpt_same(const struct gpt *a, const struct gpt *b);

/* RV_EPLAN with a sentence where `shards` cannot share its heads evenly: they must divide those of queries
 * and those of keys and values. */
int gpt_check_shards(const struct gpt *gpt, int shards, struct rv_error_info *err);

/* Parameters of the whole model; a tied embedding counts once. */
int64_t gpt_parameters(const struct gpt *gpt);

/* What is computed again before a block's backward, so that it need not be stored. */
enum recompute {
        RECOMPUTE_NONE,
        RECOMPUTE_FULL,      /* a block from its stored input on, but its last product, which nobody reads */
        RECOMPUTE_SELECTIVE, /* scores and softmax of attention, (T,T) a head (Korthikanti et al. 2022) */
        RECOMPUTE_LAYER,     /* as full, and the last product too, as frameworks do that wrap a layer whole */
        /* Sets of results that cost little to make again: of norms, of SwiGLU. */
        RECOMPUTE_NORMS,
        RECOMPUTE_SWIGLU,
        RECOMPUTE_NORMS_SWIGLU,
        RECOMPUTES
};
const char *recompute_name(enum recompute recompute); /* "none", "full", ..., "norms+swiglu" */
/* -1 if there is none of that name. A set may be written with commas too, and in any order. */
int recompute_of_name(const char *name);
static inline bool recompute_has_norms(enum recompute recompute)
{
        return recompute == RECOMPUTE_NORMS || recompute == RECOMPUTE_NORMS_SWIGLU;
}
static inline bool recompute_has_swiglu(enum recompute recompute)
{
        return recompute == RECOMPUTE_SWIGLU || recompute == RECOMPUTE_NORMS_SWIGLU;
}
/* Orders them by what is computed again: none first, then sets, selective, full, layer. */
int recompute_depth(enum recompute recompute);

/* Floating-point operations of one batch of `batch` sequences, forward and backward, of products alone and
 * attention as if it were not causal: for GPT-2 what Narayanan et al. 2021 count (eq. 3, whose 96 = 3 x 24 +
 * 24 B s l h^2 includes one recomputation of the layers; without it the factor is 72). Our recomputation
 * (full) stops before a block's last product, so with it GPT-2's factor is 88; layer has 96. Selective: Q K^T
 * again. What P V gave is stored, as backward needs it beside P (frameworks that wrap all of attention run
 * that product too, 2 B s^2 l h more). */
double gpt_batch_flops(const struct gpt *gpt, int64_t batch, int seq_len, enum recompute recompute);

#endif
