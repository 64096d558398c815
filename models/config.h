/* Reading a config.json of Hugging Face's: what the families' readers have in common. Sentences name the
 * file, the line and the key. */
#ifndef RANVIER_MODELS_CONFIG_H
#define RANVIER_MODELS_CONFIG_H

#include "models/gpt.h"

#include <stddef.h>

/* "path:line: key is VALUE, SENTENCE"; returns RV_EINPUT. */
int config_wrong(const char *path, const char *key, const json_t *value, struct rv_error_info *err,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

/* A count of struct gpt. */
struct config_count {
        const char *key;
        size_t offset; /* of an int */
        int most;
        bool optional; /* where it is missing or null, the int stays as it is */
};
int config_read_counts(struct gpt *, const char *path, const json_t *object,
                       const struct config_count *counts, int count, struct rv_error_info *err);

/* A key that changes the computation, and the values, as JSON, with which it is what is computed here.
 * Missing is right. */
struct config_only {
        const char *key, *right[3];
};
int config_check_only(const char *path, const json_t *object, const struct config_only *keys, int count,
                      struct rv_error_info *err);

/* tie_word_embeddings; `absent`: what holds where the file does not say. */
int config_read_tied(struct gpt *, const char *path, const json_t *object, bool absent,
                     struct rv_error_info *err);

#endif
