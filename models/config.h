/* Reads and writes a Hugging Face style config.json by a table of its keys. Each family (models/families)
 * has such a table, and calls config_read; gpt_to_json calls config_write. Files are not opened here: the
 * callers pass parsed JSON, and the path only for the sentences of errors, which name the file, the line and
 * the key. */
#ifndef RANVIER_MODELS_CONFIG_H
#define RANVIER_MODELS_CONFIG_H

#include "models/gpt.h"

#include <stddef.h>

/* One key of a family's files. */
struct config_key {
        const char *key;
        enum {
                /* The key is known, and the family's own code looks at it. */
                CONFIG_OTHER,
                /* A needed whole number from 1 to `max`, for an int of struct gpt. */
                CONFIG_COUNT,
                /* The same, but where it is missing or null the int stays as it is. */
                CONFIG_OPTIONAL,
                /* A number from `min` to `max`, for a double of struct gpt; `absent` where it is missing, or,
                 * if that is 0, null. */
                CONFIG_REAL,
                /* The same, but it is needed. */
                CONFIG_NEEDED_REAL,
                /* true or false, for a bool of struct gpt; where it is missing, `absent` (0 or 1) says which.
                 */
                CONFIG_BOOL,
                /* A dropout rate. Dropout is not modelled: a rate above 0 gives the model a warning. */
                CONFIG_DROPOUT,
                /* A whole number from 0 to `max` of things that are not modelled, for an int of struct gpt,
                 * which stays as it is where the key is missing or null. It is not written. */
                CONFIG_UNMODELLED,
                /* The key changes the computation, and only what is computed here is accepted: one of
                 * `right`, or no such key. */
                CONFIG_ONLY,
                /* An array, a layer after the other, of which each element must be the first of `right`; what
                 * is no array is left alone. */
                CONFIG_ONLY_EACH,
        } kind;
        /* Where the number is in struct gpt; CONFIG_AT sets it. */
        size_t offset;
        double min, max, absent;
        /* The accepted values, as JSON; config_write writes the first one, if `written` is set. */
        const char *right[4];
        bool written;
};

/* Initialises `offset` in a row of a table. */
#define CONFIG_AT(member) .offset = offsetof(struct gpt, member)

/* Reads what the table says from `object` into a model whose other members are zero. Returns RV_EINPUT with
 * a sentence where a key is missing, where one is spelt nearly as one of the table's, and where a value is
 * out of range or asks for what is not built. Keys that resemble none of the table's are ignored. A table
 * has at most 62 rows. */
int config_read(struct gpt *, const char *path, const json_t *object, const struct config_key *keys,
                int count, struct rv_error_info *err);

/* Returns a new JSON object with "name", "model_type", the model's numbers, and the keys of the table that
 * are `written`. The caller owns it. */
json_t *config_write(const struct gpt *, const char *model_type, const struct config_key *keys, int count);

/* Adds to `object` what the table says of the model: its numbers, and the keys that are `written`. */
void config_add(const struct gpt *, json_t *object, const struct config_key *keys, int count);

/* Fills `err` with "path:line: key is VALUE, SENTENCE", where the printf-style format makes the SENTENCE,
 * and returns RV_EINPUT. */
int config_wrong(const char *path, const char *key, const json_t *value, struct rv_error_info *err,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
