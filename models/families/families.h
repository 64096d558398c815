/* Families of models: the forward of each kind of layer. Nothing else knows a family. */
#ifndef RANVIER_MODELS_FAMILIES_FAMILIES_H
#define RANVIER_MODELS_FAMILIES_FAMILIES_H

#include "models/program.h"
#include "models/work.h"

/* GPT-2's (Radford et al. 2019): pre-LayerNorm blocks, learned positions, tanh GELU. */
void gpt2_embedding(struct program *, const struct gpt *, const struct work *);
void gpt2_block(struct program *, const struct gpt *, const struct work *);
void gpt2_head(struct program *, const struct gpt *, const struct work *);
/* The head of a validation pass: the loss alone. */
void gpt2_validation(struct program *, const struct gpt *, const struct work *);

#endif
