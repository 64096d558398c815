/* What a file is, by what it has in it and not by its name, and its keys and values. */
#include "runtime/launch/table.h"

#include "runtime/base/file.h"
#include "runtime/base/toml.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_FILE = 1 << 20 };

/* The line of a key with points in it: each part is looked for behind the one before. */
static int json_line(const char *text, const char *key)
{
        char part[128];
        const char *at = text;
        for (; *key; key += strcspn(key, "."), key += *key == '.') {
                snprintf(part, sizeof part, "\"%.*s\"", (int)strcspn(key, "."), key);
                const char *found = strstr(at, part);
                at = found ? found + 1 : at;
        }
        int line = 1;
        for (const char *c = text; c < at; c++)
                line += *c == '\n';
        return line;
}

static int flatten(struct launch *l, const char *text, const char *prefix, const json_t *object,
                   struct rv_error_info *err)
{
        const char *name;
        json_t *value;
        int rc = 0;
        json_object_foreach((json_t *)object, name, value)
        {
                char key[256], number[40];
                snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "." : "", name);
                if (json_is_object(value)) {
                        rc = flatten(l, text, key, value, err);
                } else if (json_is_string(value) && strcmp(json_string_value(value), "auto") == 0) {
                        const size_t used = strlen(l->automatic);
                        snprintf(l->automatic + used, sizeof l->automatic - used, " %s", key);
                } else {
                        char *written = json_is_string(value) ? strdup(json_string_value(value))
                                                              : json_dumps(value, JSON_ENCODE_ANY);
                        if (json_is_real(value) && written)
                                snprintf(number, sizeof number, "%.15g", json_real_value(value));
                        rc = written ? launch_add_item(l, key, json_is_real(value) ? number : written,
                                                       json_line(text, key), err)
                                     : rv_fail(err, RV_ESYSTEM, "no memory for what %s says", l->path);
                        free(written);
                }
                if (rc)
                        return rc;
        }
        return rc;
}

/* A model as Hugging Face has it, or a configuration of DeepSpeed. */
static int read_json(struct launch *l, const char *text, struct rv_error_info *err)
{
        static const char *const deepspeed[] = {"zero_optimization",
                                                "train_batch_size",
                                                "train_micro_batch_size_per_gpu",
                                                "gradient_accumulation_steps",
                                                "fp16",
                                                "bf16"};
        json_t *object = file_read_json(l->path, err);
        int rc = object ? 0 : RV_EINPUT;
        if (object && (json_object_get(object, "model_type") || json_object_get(object, "n_layer"))) {
                l->tool = &launch_ranvier;
                snprintf(l->model, sizeof l->model, "%s", l->path);
                json_decref(object);
                return 0;
        }
        for (size_t i = 0; object && i < sizeof deepspeed / sizeof *deepspeed; i++)
                if (json_object_get(object, deepspeed[i]))
                        l->tool = &launch_deepspeed;
        if (object && !l->tool)
                rc = rv_fail(err, RV_EINPUT,
                             "%s: a JSON, but neither a configuration of DeepSpeed (with train_batch_size or "
                             "zero_optimization) nor a model's config.json (with model_type)",
                             l->path);
        if (rc == 0)
                rc = flatten(l, text, "", object, err);
        json_decref(object);
        return rc;
}

static int take_toml(void *launch, const char *key, const char *value, int line, struct rv_error_info *err)
{
        struct launch *l = launch;
        const struct launch_item *other = launch_item(l, key);
        if (other)
                return rv_fail(err, RV_EINPUT, "%s:%d: %s is there a second time, first in line %d", l->path,
                               line, key, other->line);
        return launch_add_item(l, key, value, line, err);
}

/* The first line that is neither empty nor a comment. */
static const char *first_line(const char *text)
{
        for (;;) {
                text += strspn(text, " \t\r\n");
                if (*text != '#')
                        return text;
                text += strcspn(text, "\n");
        }
}

static bool begins_toml(const char *line)
{
        const size_t name = line[0] == '['
                                    ? strspn(line + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                                       "0123456789_-.\"[")
                                    : 0;
        return name > 0 && line[1 + name] == ']';
}

static bool begins_yaml(const char *line)
{
        size_t name = 0;
        while (isalnum((unsigned char)line[name]) || line[name] == '_' || line[name] == '-')
                name++;
        return strncmp(line, "---", 3) == 0 ||
               (name > 0 && line[name] == ':' && strchr(" \r\n", line[name + 1]));
}

/* A key that every file of the kind has. */
static int need_key(struct launch *l, const struct launch_tool *tool, const char *key, const char *format,
                    struct rv_error_info *err)
{
        l->tool = tool;
        if (launch_item(l, key))
                return 0;
        return rv_fail(err, RV_EINPUT, "%s: a %s, but not %s's: it has no %s", l->path, format, tool->title,
                       key);
}

static int read_text(struct launch *l, const char *text, struct rv_error_info *err)
{
        const char *line = first_line(text);
        int rc;
        if (!*line)
                return rv_fail(err, RV_EINPUT, "%s: the file is empty", l->path);
        if (*line == '{')
                return read_json(l, text, err);
        if (begins_toml(line)) {
                rc = toml_read(l->path, text, take_toml, l, err);
                return rc ? rc : need_key(l, &launch_torchtitan, "model.flavor", "TOML", err);
        }
        if (begins_yaml(line)) {
                rc = launch_read_yaml(l, text, err);
                return rc ? rc : need_key(l, &launch_accelerate, "distributed_type", "YAML", err);
        }
        rc = launch_read_shell(l, text, err);
        for (int i = 0; rc == 0 && i < l->item_count; i++)
                if (launch_row(l->tool, l->items[i].key) &&
                    launch_row(l->tool, l->items[i].key)->how != ROW_GPUS)
                        return 0;
        return rc ? rc
                  : rv_fail(err, RV_EINPUT,
                            "%s: no launch of a training was found in it: a script or arguments of "
                            "Megatron-LM, a "
                            "configuration of DeepSpeed (JSON), torchtitan (TOML) or accelerate (YAML), a "
                            "config.json, or a line of ranvier was expected",
                            l->path);
}

static char *load(const char *path, struct rv_error_info *err)
{
        FILE *file = fopen(path, "rb");
        char *text = file ? malloc(LONGEST_FILE + 1) : NULL;
        const size_t length = text ? fread(text, 1, LONGEST_FILE, file) : 0;
        const bool failed = !text || ferror(file), longer = length == LONGEST_FILE;
        if (failed)
                rv_fail(err, file && !text ? RV_ESYSTEM : RV_EINPUT, "%s: cannot be read: %s", path,
                        strerror(errno));
        else if (longer || memchr(text, 0, length))
                rv_fail(err, RV_EINPUT, "%s: is no text of less than 1 MiB, as launch scripts are", path);
        if (file)
                fclose(file);
        if (failed || longer || memchr(text, 0, length)) {
                free(text);
                return NULL;
        }
        text[length] = 0;
        return text;
}

int launch_read_file(struct launch *l, struct rv_error_info *err)
{
        char *text = load(l->path, err);
        const int rc = text ? read_text(l, text, err) : (int)err->code;
        free(text);
        return rc;
}
