/* The blocks of DeepSeek's models, which differ in how experts are chosen (struct gpt says how) and in the
 * keys of their files. */
#ifndef RANVIER_MODELS_FAMILIES_DEEPSEEK_H
#define RANVIER_MODELS_FAMILIES_DEEPSEEK_H

#include "models/families/experts.h"
#include "models/families/latent.h"

/* A block without experts, and one of the model's others. */
void deepseek_dense(struct program *, const struct gpt *, const struct work *);
void deepseek_block(struct program *, const struct gpt *, const struct work *);

/* Adds to a config.json what is in no table. */
void deepseek_write(const struct gpt *, json_t *object);

#endif
