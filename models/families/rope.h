/* Rotary positions as config.json says them: their base (rope_theta), and how positions beyond those of a
 * first training are squeezed together: the object `rope_scaling`, or `rope_parameters` of newer files, which
 * has the base too. For families whose blocks have rotary positions. */
#ifndef RANVIER_MODELS_FAMILIES_ROPE_H
#define RANVIER_MODELS_FAMILIES_ROPE_H

#include "models/gpt.h"
#include "models/program.h"

/* Reads either object into rope_scaling, and the base where it is there, into a model whose n_positions and
 * rope_theta have been read. RV_EINPUT with a sentence where a type is asked for that is not built. */
int rope_read(struct gpt *, const char *path, const json_t *object, struct rv_error_info *err);

/* Adds `rope_scaling` to a config.json, if the model has one. */
void rope_write(const struct gpt *, json_t *object);

/* The same of families of whose heads a part turns, its first columns: `partial_rotary_factor` of the file or
 * of its `rope_parameters`, by default a half, is how much. The size of heads has been read. */
int rope_read_part(struct gpt *, const char *path, const json_t *object, struct rv_error_info *err);
void rope_write_part(const struct gpt *, json_t *object);

/* Returns by how much each column turns from a position to the next, as the kernel takes it. */
struct rope_angles rope_angles_of(const struct gpt *);

/* Returns by what queries and keys that are rotated are longer than before: of yarn more than 1, or, of
 * latent attention with two lengths, their quotient. */
double rope_length(const struct gpt *);

/* Returns by what scores of latent attention are multiplied besides: of yarn with an mscale_all_dim more than
 * 1. */
double rope_scores(const struct gpt *);

#endif
