#include "models/config.h"

#include "runtime/base/file.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

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

static bool is_value(const json_t *value, const char *text)
{
        json_t *right = json_loads(text, JSON_DECODE_ANY, NULL);
        const bool same = json_equal(value, right) || (json_is_number(value) && json_is_number(right) &&
                                                       json_number_value(value) == json_number_value(right));
        json_decref(right);
        return same;
}

static int check_only(const struct config_key *key, const char *path, const json_t *value,
                      struct rv_error_info *err)
{
        enum { RIGHT = sizeof key->right / sizeof *key->right };
        char known[128] = "";
        for (int i = 0; i < RIGHT && key->right[i]; i++) {
                if (!value || is_value(value, key->right[i]))
                        return RV_OK;
                const size_t end = strlen(known);
                snprintf(known + end, sizeof known - end, "%s%s", i ? " or " : "", key->right[i]);
        }
        return config_wrong(path, key->key, value, err, "only %s is built", known);
}

static int check_each(const struct config_key *key, const char *path, const json_t *value,
                      struct rv_error_info *err)
{
        for (size_t i = 0; i < json_array_size(value); i++)
                if (!is_value(json_array_get(value, i), key->right[0]))
                        return config_wrong(path, key->key, value, err, "only %s of every layer is built",
                                            key->right[0]);
        return RV_OK;
}

static int read_number(struct gpt *gpt, const struct config_key *key, const char *path, const json_t *object,
                       struct rv_error_info *err)
{
        const json_t *value = json_object_get(object, key->key);
        void *member = (char *)gpt + key->offset;
        int64_t number = 0;
        if (key->kind == CONFIG_REAL && (!value || (json_is_null(value) && key->absent == 0))) {
                *(double *)member = key->absent;
                return RV_OK;
        }
        if (key->kind == CONFIG_REAL || key->kind == CONFIG_NEEDED_REAL)
                return file_need_real(path, object, key->key, key->min, key->max, member, err);
        if (key->kind != CONFIG_COUNT && (!value || json_is_null(value)))
                return RV_OK;
        const int least = key->kind == CONFIG_UNMODELLED ? 0 : 1;
        if (file_need_int(path, object, key->key, least, (int64_t)key->max, &number, err) != RV_OK)
                return RV_EINPUT;
        *(int *)member = (int)number;
        return RV_OK;
}

static int read_key(struct gpt *gpt, const struct config_key *key, const char *path, const json_t *object,
                    struct rv_error_info *err)
{
        const json_t *value = json_object_get(object, key->key);
        switch (key->kind) {
        case CONFIG_COUNT:
        case CONFIG_OPTIONAL:
        case CONFIG_UNMODELLED:
        case CONFIG_REAL:
        case CONFIG_NEEDED_REAL:
                return read_number(gpt, key, path, object, err);
        case CONFIG_BOOL:
                if (value && !json_is_boolean(value))
                        return config_wrong(path, key->key, value, err, "true or false was expected");
                *(bool *)((char *)gpt + key->offset) = value ? json_is_true(value) : key->absent != 0;
                return RV_OK;
        case CONFIG_DROPOUT:
                if (json_number_value(value) > 0)
                        gpt->dropout = true;
                return RV_OK;
        case CONFIG_ONLY:
                return check_only(key, path, value, err);
        case CONFIG_ONLY_EACH:
                return check_each(key, path, value, err);
        default:
                return RV_OK;
        }
}

int config_read(struct gpt *gpt, const char *path, const json_t *object, const struct config_key *keys,
                int count, struct rv_error_info *err)
{
        enum { MAX_KEYS = 64 };
        const char *known[MAX_KEYS] = {"name", "model_type"};
        assert(count + 2 <= MAX_KEYS);
        for (int i = 0; i < count; i++)
                known[2 + i] = keys[i].key;
        int rc = file_check_keys(path, "a model", object, known, (size_t)count + 2, err);
        for (int i = 0; rc == RV_OK && i < count; i++)
                rc = read_key(gpt, &keys[i], path, object, err);
        return rc;
}

/* An optional number that the model has not is written as null. */
static json_t *written_value(const struct gpt *gpt, const struct config_key *key)
{
        const void *member = (const char *)gpt + key->offset;
        switch (key->kind) {
        case CONFIG_COUNT:
                return json_integer(*(const int *)member);
        case CONFIG_OPTIONAL:
                return *(const int *)member ? json_integer(*(const int *)member) : json_null();
        case CONFIG_REAL:
        case CONFIG_NEEDED_REAL:
                return json_real(*(const double *)member);
        case CONFIG_BOOL:
                return json_boolean(*(const bool *)member);
        default:
                return key->written ? json_loads(key->right[0], JSON_DECODE_ANY, NULL) : NULL;
        }
}

void config_add(const struct gpt *gpt, json_t *object, const struct config_key *keys, int count)
{
        for (int i = 0; i < count; i++) {
                json_t *value = written_value(gpt, &keys[i]);
                if (value)
                        json_object_set_new(object, keys[i].key, value);
        }
}

json_t *config_write(const struct gpt *gpt, const char *model_type, const struct config_key *keys, int count)
{
        json_t *object = json_pack("{s:s, s:s}", "name", gpt->name, "model_type", model_type);
        config_add(gpt, object, keys, count);
        return object;
}
