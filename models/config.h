/* A config.json of Hugging Face's: each family has a table of the keys that its files have, by which they are
 * read, checked and written. Sentences name the file, the line and the key. */
#ifndef RANVIER_MODELS_CONFIG_H
#define RANVIER_MODELS_CONFIG_H

#include "models/gpt.h"

#include <stddef.h>

struct config_key {
        const char *key;
        enum {
                CONFIG_OTHER,    /* the family itself looks at it */
                CONFIG_COUNT,    /* an int of struct gpt, from 1 to `most` */
                CONFIG_OPTIONAL, /* the same; where it is missing or null the int stays as it is */
                CONFIG_REAL,     /* a double, from `least` to `most`, `absent` where it is missing */
                CONFIG_TIED,     /* tie_word_embeddings: `absent`, 0 or 1, where it is missing */
                CONFIG_DROPOUT,  /* a rate, which is not modelled: the model has a warning */
                CONFIG_ONLY, /* it changes the computation, and may only say one of `right`, or be missing */
        } kind;
        size_t offset; /* of a number in struct gpt */
        double min, max, absent;
        const char *right[4]; /* as JSON; the first is what config_write writes, if `written` */
        bool written;
};

/* A number's member of struct gpt. */
#define CONFIG_AT(member) .offset = offsetof(struct gpt, member)

/* Reads what the table says into a model of zeros. RV_EINPUT where a key is missing, nearly one of the
 * table's, or has a value that is not built; keys that are far from all of these are left alone. */
int config_read(struct gpt *, const char *path, const json_t *object, const struct config_key *keys,
                int count, struct rv_error_info *err);

/* Writes a model by the same table; the caller owns the result. */
json_t *config_write(const struct gpt *, const char *model_type, const struct config_key *keys, int count);

/* "path:line: key is VALUE, SENTENCE"; returns RV_EINPUT. */
int config_wrong(const char *path, const char *key, const json_t *value, struct rv_error_info *err,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
