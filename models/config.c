#include "models/config.h"

#include "runtime/base/file.h"

#include <stdarg.h>
#include <stdlib.h>

int config_wrong(const char *path, const char *key, const json_t *value, struct rv_error_info *err,
                 const char *format, ...)
{
        char right[320];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(right, sizeof right, format, arguments);
        va_end(arguments);
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
        int status = rv_fail(err, RV_EINPUT, "%s:%d: %s is %.60s, %s", path, file_line_of(path, key), key,
                             text ? text : "?", right);
        free(text);
        return status;
}

int config_read_counts(struct gpt *gpt, const char *path, const json_t *object,
                       const struct config_count *counts, int count, struct rv_error_info *err)
{
        for (int i = 0; i < count; i++) {
                const json_t *value = json_object_get(object, counts[i].key);
                int64_t number = 0;
                if (counts[i].optional && (!value || json_is_null(value)))
                        continue;
                if (file_need_int(path, object, counts[i].key, 1, counts[i].most, &number, err) != RV_OK)
                        return RV_EINPUT;
                *(int *)((char *)gpt + counts[i].offset) = (int)number;
        }
        return RV_OK;
}

static bool is_value(const json_t *value, const char *text)
{
        json_t *right = json_loads(text, JSON_DECODE_ANY, NULL);
        const bool same = json_equal(value, right) || (json_is_number(value) && json_is_number(right) &&
                                                       json_number_value(value) == json_number_value(right));
        json_decref(right);
        return same;
}

int config_check_only(const char *path, const json_t *object, const struct config_only *keys, int count,
                      struct rv_error_info *err)
{
        enum { RIGHT = sizeof keys->right / sizeof *keys->right };
        for (int i = 0; i < count; i++) {
                const json_t *value = json_object_get(object, keys[i].key);
                bool right = !value;
                for (int j = 0; j < RIGHT && keys[i].right[j]; j++)
                        right = right || is_value(value, keys[i].right[j]);
                if (!right)
                        return config_wrong(path, keys[i].key, value, err, "only %s%s%s is built",
                                            keys[i].right[0], keys[i].right[1] ? " or " : "",
                                            keys[i].right[1] ? keys[i].right[1] : "");
        }
        return RV_OK;
}

int config_read_tied(struct gpt *gpt, const char *path, const json_t *object, bool absent,
                     struct rv_error_info *err)
{
        const json_t *tied = json_object_get(object, "tie_word_embeddings");
        if (tied && !json_is_boolean(tied))
                return config_wrong(path, "tie_word_embeddings", tied, err, "true or false was expected");
        gpt->tied = tied ? json_is_true(tied) : absent;
        return RV_OK;
}
