#include "runtime/checkpoint/weight_files.h"

#include "runtime/base/file.h"
#include "runtime/checkpoint/safetensors.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char one_file[] = "model.safetensors", index_file[] = "model.safetensors.index.json";

struct weight_files {
        char path[PATH_MAX];   /* as the user named it */
        char folder[PATH_MAX]; /* of the files, "" or with a slash at its end */
        struct safetensors **files;
        int count;
        /* Of a checked model. */
        char prefix[64];              /* "transformer.": names in files may lack it */
        char embedding[64], head[64]; /* tied, and the files have both; else empty */
};

/* A tensor in a file. */
struct found {
        const struct safetensors *file;
        const json_t *tensor;
        const char *name; /* as the file has it */
};

/* ---- opening ---- */

static bool ends_in(const char *text, const char *end)
{
        const size_t length = strlen(text), tail = strlen(end);
        return length >= tail && strcmp(text + length - tail, end) == 0;
}

static bool is_there(const char *path)
{
        struct stat info;
        return stat(path, &info) == 0;
}

static bool is_folder(const char *path)
{
        struct stat info;
        return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool find_by_name(const struct weight_files *w, const char *name, struct found *found)
{
        for (int i = 0; i < w->count; i++) {
                const json_t *tensor = json_object_get(w->files[i]->tensors, name);
                if (tensor) {
                        *found = (struct found){w->files[i], tensor, name};
                        return true;
                }
        }
        return false;
}

/* Opens one more file of the folder, all of whose tensors must be new. */
static int add_file(struct weight_files *w, const char *name, struct rv_error_info *err)
{
        char path[2 * PATH_MAX];
        snprintf(path, sizeof path, "%s%s", w->folder, name);
        struct safetensors **files = realloc(w->files, (size_t)(w->count + 1) * sizeof *files);
        if (!files)
                return rv_fail(err, RV_ESYSTEM, "%s: no memory for the list of files", path);
        w->files = files;
        struct safetensors *file = safetensors_open(path, err);
        if (!file)
                return err->code;
        const char *tensor;
        json_t *value;
        struct found other;
        int rc = RV_OK;
        json_object_foreach(file->tensors, tensor, value)
        {
                if (rc == RV_OK && find_by_name(w, tensor, &other))
                        rc = rv_fail(err, RV_EINPUT, "%s: tensor %.100s is in %s too", path, tensor,
                                     other.file->path);
        }
        w->files[w->count++] = file;
        return rc;
}

static bool has_file(const struct weight_files *w, const char *name)
{
        for (int i = 0; i < w->count; i++)
                if (strcmp(w->files[i]->path + strlen(w->folder), name) == 0)
                        return true;
        return false;
}

/* One line of an index: a tensor, and the file that it is in. */
static int add_indexed(struct weight_files *w, const char *index, const char *tensor, const json_t *value,
                       struct rv_error_info *err)
{
        const char *name = json_string_value(value);
        struct found found;
        if (!name || !*name || strchr(name, '/') || strcmp(name, "..") == 0 || strcmp(name, ".") == 0)
                return rv_fail(err, RV_EINPUT,
                               "%s: tensor %.100s is said to be in %.100s: the name of a file in the same "
                               "folder was expected",
                               index, tensor, name ? name : "what is no text");
        if (!has_file(w, name)) {
                char path[2 * PATH_MAX];
                snprintf(path, sizeof path, "%s%s", w->folder, name);
                if (!is_there(path))
                        return rv_fail(err, RV_EINPUT,
                                       "%s: tensor %.100s is said to be in %.100s, which is missing", index,
                                       tensor, name);
                if (add_file(w, name, err) != RV_OK)
                        return err->code;
        }
        if (!find_by_name(w, tensor, &found) || strcmp(found.file->path + strlen(w->folder), name) != 0)
                return rv_fail(err, RV_EINPUT,
                               "%s: tensor %.100s is said to be in %.100s, which does not have it", index,
                               tensor, name);
        return RV_OK;
}

static int open_index(struct weight_files *w, const char *name, struct rv_error_info *err)
{
        char path[2 * PATH_MAX];
        struct stat info;
        snprintf(path, sizeof path, "%s%s", w->folder, name);
        if (stat(path, &info) == 0 && info.st_size > SAFETENSORS_MAX_HEADER)
                return rv_fail(err, RV_EINPUT, "%s: has %lld bytes, an index of at most %d was expected",
                               path, (long long)info.st_size, SAFETENSORS_MAX_HEADER);
        json_t *index = file_read_json(path, err), *value;
        if (!index)
                return RV_EINPUT;
        const char *tensor;
        json_t *map = json_object_get(index, "weight_map");
        int rc = json_object_size(map) > 0
                         ? RV_OK
                         : rv_fail(err, RV_EINPUT, "%s: its weight_map, of tensors and their files, is %s",
                                   path, map ? "empty" : "missing");
        json_object_foreach(map, tensor, value)
        {
                if (rc == RV_OK)
                        rc = add_indexed(w, path, tensor, value, err);
        }
        json_decref(index);
        return rc;
}

/* A folder: whichever of the two it has. */
static int open_folder(struct weight_files *w, struct rv_error_info *err)
{
        char path[2 * PATH_MAX];
        snprintf(path, sizeof path, "%s%s", w->folder, one_file);
        if (is_there(path))
                return add_file(w, one_file, err);
        snprintf(path, sizeof path, "%s%s", w->folder, index_file);
        if (is_there(path))
                return open_index(w, index_file, err);
        snprintf(path, sizeof path, "%spytorch_model.bin", w->folder);
        return rv_fail(err, RV_EINPUT, "%s: has neither %s nor %s%s", w->path, one_file, index_file,
                       is_there(path) ? "; its pytorch_model.bin is not read (transformers saves safetensors "
                                        "with safe_serialization=True)"
                                      : "");
}

struct weight_files *weight_files_open(const char *path, struct rv_error_info *err)
{
        struct weight_files *w = calloc(1, sizeof *w);
        if (!w || strlen(path) >= PATH_MAX - 1) {
                rv_fail(err, w ? RV_EINPUT : RV_ESYSTEM, "%.200s: %s", path,
                        w ? "the path is too long" : "no memory to read it");
                free(w);
                return NULL;
        }
        const bool folder = is_folder(path);
        const char *slash = strrchr(path, '/');
        const char *name = slash ? slash + 1 : path;
        snprintf(w->path, sizeof w->path, "%s", path);
        if (folder)
                snprintf(w->folder, sizeof w->folder, "%s%s", path, *name ? "/" : "");
        else
                snprintf(w->folder, sizeof w->folder, "%.*s", (int)(name - path), path);
        const int rc = folder                   ? open_folder(w, err)
                       : ends_in(path, ".json") ? open_index(w, name, err)
                                                : add_file(w, name, err);
        if (rc == RV_OK)
                return w;
        weight_files_close(w);
        return NULL;
}

void weight_files_close(struct weight_files *w)
{
        if (!w)
                return;
        for (int i = 0; i < w->count; i++)
                safetensors_close(w->files[i]);
        free(w->files);
        free(w);
}

/* ---- of which model they are ---- */

static const char *metadata(const struct weight_files *w, const char *key)
{
        return json_string_value(json_object_get(w->files[0]->metadata, key));
}

/* Where the config.json of the files is, for sentences, and what it says (a new reference): NULL without a
 * sentence if they have none, or with one. */
static json_t *read_config(const struct weight_files *w, char where[2 * PATH_MAX], struct rv_error_info *err)
{
        const char *text = metadata(w, "config");
        err->code = RV_OK;
        if (text) {
                snprintf(where, 2 * PATH_MAX, "%s: its config", w->files[0]->path);
                json_t *config = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
                if (!json_is_object(config))
                        rv_fail(err, RV_EINPUT, "%s is not a JSON object", where);
                return config;
        }
        snprintf(where, 2 * PATH_MAX, "%sconfig.json", w->folder);
        return is_there(where) ? file_read_json(where, err) : NULL;
}

int weight_files_model(const struct weight_files *w, struct gpt *gpt, struct rv_error_info *err)
{
        char where[2 * PATH_MAX];
        struct rv_error_info why = {0};
        json_t *config = read_config(w, where, &why);
        if (!config && why.code == RV_OK)
                return rv_fail(err, RV_EINPUT, "%s: nothing says of which model it is: %s is missing",
                               w->path, where);
        const int rc = config && why.code == RV_OK ? gpt_from_json(gpt, where, config, err)
                                                   : rv_fail(err, why.code, "%s", why.sentence);
        json_decref(config);
        return rc;
}

int64_t weight_files_number(const struct weight_files *w, const char *key, int64_t min, int64_t max,
                            int64_t otherwise)
{
        const char *text = metadata(w, key);
        char *end = NULL;
        const long long number = text ? strtoll(text, &end, 10) : 0;
        return text && end != text && *end == '\0' && number >= min && number <= max ? number : otherwise;
}

/* Files that ranvier wrote before they had transformers' layout: every matrix is (out, in). */
static bool is_old(const struct weight_files *w)
{
        return metadata(w, "config") && !metadata(w, "layout");
}

static int check_model(const struct weight_files *w, const struct gpt *gpt, struct rv_error_info *err)
{
        char where[2 * PATH_MAX];
        struct rv_error_info why = {0};
        struct gpt theirs;
        json_t *config = read_config(w, where, &why);
        const bool none = !config && why.code == RV_OK;
        json_decref(config);
        if (none)
                return RV_OK;
        if (weight_files_model(w, &theirs, err) != RV_OK)
                return err->code;
        theirs.n_positions = gpt->n_positions;
        json_t *ours = gpt_to_json(gpt), *value;
        const char *key;
        int rc = RV_OK;
        config = gpt_to_json(&theirs);
        json_object_del(ours, "name");
        json_object_foreach(ours, key, value)
        {
                const json_t *other = json_object_get(config, key);
                if (rc != RV_OK || json_equal(value, other))
                        continue;
                char *texts[] = {json_dumps(other, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)),
                                 json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6))};
                rc = rv_fail(err, RV_EINPUT, "%s: %s is %s, of the model %s it is %s", where, key,
                             texts[0] ? texts[0] : "missing", gpt->name, texts[1] ? texts[1] : "?");
                free(texts[0]);
                free(texts[1]);
        }
        json_decref(ours);
        json_decref(config);
        return rc;
}

/* ---- its tensors ---- */

static bool find(const struct weight_files *w, const char *name, struct found *found)
{
        const size_t prefix = strlen(w->prefix);
        return find_by_name(w, name, found) ||
               (prefix && strncmp(name, w->prefix, prefix) == 0 && find_by_name(w, name + prefix, found));
}

/* The shape that the files have a tensor in. */
static json_t *file_shape(const struct weight_files *w, const struct tensor *tensor)
{
        const int rows = tensor->whole.rows, cols = tensor->whole.cols;
        if (!tensor->decay)
                return json_pack("[i]", cols);
        return tensor->transposed && !is_old(w) ? json_pack("[ii]", cols, rows)
                                                : json_pack("[ii]", rows, cols);
}

static int check_shape(const struct weight_files *w, const struct tensor *tensor, const struct found *found,
                       struct rv_error_info *err)
{
        json_t *right = file_shape(w, tensor), *shape = json_object_get(found->tensor, "shape");
        int rc = RV_OK;
        if (!json_equal(right, shape)) {
                char *texts[] = {json_dumps(shape, JSON_COMPACT), json_dumps(right, JSON_COMPACT)};
                rc = rv_fail(err, RV_EINPUT, "%s: tensor %s has shape %.60s, %s was expected",
                             found->file->path, found->name, texts[0] ? texts[0] : "?",
                             texts[1] ? texts[1] : "?");
                free(texts[0]);
                free(texts[1]);
        }
        json_decref(right);
        return rc;
}

/* Takes note in `wanted` of the name under which the files have the tensor; `name`: the model's. */
static int check_tensor(const struct weight_files *w, const struct tensor *tensor, const char *name,
                        json_t *wanted, struct rv_error_info *err)
{
        struct found found;
        if (!find(w, tensor->name, &found))
                return rv_fail(err, RV_EINPUT, "%s: tensor %s of the model %s is missing", w->path,
                               tensor->name, name);
        if (safetensors_dtype(found.tensor) == SAFETENSORS_OTHER)
                return rv_fail(err, RV_EINPUT, "%s: tensor %s has dtype %s, F32, F16 or BF16 was expected",
                               found.file->path, found.name,
                               json_string_value(json_object_get(found.tensor, "dtype")));
        json_object_set_new(wanted, found.name, json_true());
        return check_shape(w, tensor, &found, err);
}

/* What frameworks save with a model though it is computed, not trained. */
static bool is_buffer(const char *name)
{
        return ends_in(name, ".attn.bias") || ends_in(name, ".attn.masked_bias") ||
               ends_in(name, ".rotary_emb.inv_freq");
}

static int check_others(const struct weight_files *w, const struct gpt *gpt, const json_t *wanted,
                        struct rv_error_info *err)
{
        for (int i = 0; i < w->count; i++) {
                const char *name;
                json_t *tensor;
                json_object_foreach(w->files[i]->tensors, name, tensor)
                {
                        if (!json_object_get(wanted, name) && !is_buffer(name) &&
                            !partition_is_further(gpt, name))
                                return rv_fail(err, RV_EINPUT, "%s: the model %s has no tensor %.100s",
                                               w->files[i]->path, gpt->name, name);
                }
        }
        return RV_OK;
}

/* The output projection of a tied model is not among its tensors. */
static int check_tied(struct weight_files *w, const struct tensor *embedding, const struct tensor *head,
                      const char *name, json_t *wanted, struct rv_error_info *err)
{
        struct found found;
        w->head[0] = '\0';
        if (!find(w, head->name, &found))
                return RV_OK;
        snprintf(w->embedding, sizeof w->embedding, "%s", embedding->name);
        snprintf(w->head, sizeof w->head, "%s", head->name);
        return check_tensor(w, head, name, wanted, err);
}

/* `tensors`: with room for those of the model as if it were not tied. */
static int check_tensors(struct weight_files *w, const struct gpt *gpt, struct tensor *tensors,
                         json_t *wanted, struct rv_error_info *err)
{
        struct gpt untied = *gpt;
        untied.tied = false;
        const struct stage whole = partition_stage(&untied, 1, 0);
        const int count = partition_tensors(&untied, &whole, tensors);
        const struct tensor *head = &tensors[count - 1];
        snprintf(w->prefix, sizeof w->prefix, "%.*s", (int)strcspn(tensors[0].name, ".") + 1,
                 tensors[0].name);
        for (int i = 0; i < count - gpt->tied; i++)
                if (check_tensor(w, &tensors[i], gpt->name, wanted, err) != RV_OK)
                        return RV_EINPUT;
        if (gpt->tied && check_tied(w, &tensors[0], head, gpt->name, wanted, err) != RV_OK)
                return RV_EINPUT;
        return check_others(w, gpt, wanted, err);
}

/* A config of a few bytes can be of a model of millions of tensors: before there is memory for the list of
 * them. */
static int check_count(const struct weight_files *w, const struct gpt *gpt, int count,
                       struct rv_error_info *err)
{
        enum { FEW = 1 << 16 }; /* of which the first that is missing is named */
        size_t there = 0;
        for (int i = 0; i < w->count; i++)
                there += json_object_size(w->files[i]->tensors);
        if ((size_t)count <= there + FEW)
                return RV_OK;
        return rv_fail(err, RV_EINPUT, "%s: has %zu tensors, the model %s has %d", w->path, there, gpt->name,
                       count);
}

int weight_files_check(struct weight_files *w, const struct gpt *gpt, struct rv_error_info *err)
{
        struct gpt untied = *gpt;
        untied.tied = false;
        const struct stage whole = partition_stage(&untied, 1, 0);
        const int count = partition_tensors(&untied, &whole, NULL);
        if (check_count(w, gpt, count, err) != RV_OK)
                return RV_EINPUT;
        struct tensor *tensors = calloc((size_t)count, sizeof *tensors);
        json_t *wanted = json_object();
        int rc = tensors && wanted
                         ? check_model(w, gpt, err)
                         : rv_fail(err, RV_ESYSTEM, "%s: no memory for the list of its tensors", w->path);
        if (rc == RV_OK)
                rc = check_tensors(w, gpt, tensors, wanted, err);
        json_decref(wanted);
        free(tensors);
        return rc;
}

/* ---- reading ---- */

/* A training that diverged, or a damaged file: whatever is computed from it would look like a result.
 * `first` of the whole tensor, as the file has it, `stride` apart. */
static int check_finite(const struct found *found, int64_t first, int64_t stride, int64_t count,
                        const float *elements, struct rv_error_info *err)
{
        for (int64_t i = 0; i < count; i++)
                if (!isfinite(elements[i]))
                        return rv_fail(err, RV_EINPUT,
                                       "%s: element %lld of tensor %s is %s: finite weights were expected",
                                       found->file->path, (long long)(first + i * stride), found->name,
                                       isnan(elements[i]) ? "not a number" : "infinite");
        return RV_OK;
}

static int read_found(const struct weight_files *w, const struct found *found, const struct tensor *tensor,
                      int64_t first, int64_t count, float *out, struct rv_error_info *err)
{
        const bool transposed = tensor->transposed && !is_old(w);
        const int64_t rows = tensor->whole.rows, cols = tensor->whole.cols, stride = transposed ? rows : 1;
        for (int64_t at = 0, run; at < count; at += run) {
                const int64_t whole = partition_whole_run(tensor, first + at, &run);
                run = run < count - at ? run : count - at;
                if (whole < 0) {
                        memset(out + at, 0, (size_t)run * sizeof *out);
                        continue;
                }
                const int64_t begin = transposed ? whole % cols * rows + whole / cols : whole;
                safetensors_read(found->file, found->tensor, begin, stride, run, out + at);
                if (check_finite(found, begin, stride, run, out + at, err) != RV_OK)
                        return RV_EINPUT;
        }
        return RV_OK;
}

/* The files of a tied model have an output projection too: it must be the embedding, of which `expected` are
 * elements. */
static int check_same(const struct weight_files *w, const struct tensor *tensor, int64_t first, int64_t count,
                      const float *expected, struct rv_error_info *err)
{
        enum { PIECE = 4096 };
        struct found found;
        find(w, w->head, &found);
        for (int64_t at = 0; at < count; at += PIECE) {
                float piece[PIECE];
                const int64_t n = count - at < PIECE ? count - at : PIECE;
                if (read_found(w, &found, tensor, first + at, n, piece, err) != RV_OK)
                        return RV_EINPUT;
                for (int64_t i = 0; i < n; i++)
                        if (piece[i] != expected[at + i])
                                return rv_fail(err, RV_EINPUT,
                                               "%s: tensor %s differs from %s, which the model has in its "
                                               "place (tie_word_embeddings is true)",
                                               found.file->path, found.name, w->embedding);
        }
        return RV_OK;
}

int weight_files_read(const struct weight_files *w, const struct tensor *tensor, int64_t first, int64_t count,
                      float *out, struct rv_error_info *err)
{
        struct found found;
        find(w, tensor->name, &found);
        if (read_found(w, &found, tensor, first, count, out, err) != RV_OK)
                return RV_EINPUT;
        return w->head[0] && strcmp(tensor->name, w->embedding) == 0
                       ? check_same(w, tensor, first, count, out, err)
                       : RV_OK;
}
