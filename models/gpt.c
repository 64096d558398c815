#include "models/gpt.h"

#include "models/file.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Far above any model that exists, and low enough that no product of them overflows. */
enum {
        MOST_LAYERS = 10000,
        MOST_WIDTH = 131072,
        MOST_HEADS = 1024,
        MOST_VOCABULARY = 2097152,
        MOST_POSITIONS = 131072
};

static const struct {
        const char *key, *others; /* what other families of models call it */
        size_t offset;            /* of an int of struct gpt */
        int most;
} counts[] = {
        {"n_layer", "num_hidden_layers", offsetof(struct gpt, n_layer), MOST_LAYERS},
        {"n_embd", "hidden_size", offsetof(struct gpt, n_embd), MOST_WIDTH},
        {"n_head", "num_attention_heads", offsetof(struct gpt, n_head), MOST_HEADS},
        {"vocab_size", "vocabulary_size", offsetof(struct gpt, vocab_size), MOST_VOCABULARY},
        {"n_positions", "max_position_embeddings", offsetof(struct gpt, n_positions), MOST_POSITIONS},
};
enum { COUNTS = sizeof counts / sizeof *counts };

int gpt_check(const struct gpt *gpt, struct rv_error_info *err)
{
        for (int i = 0; i < COUNTS; i++) {
                const int count = *(const int *)((const char *)gpt + counts[i].offset);
                if (count < 1 || count > counts[i].most)
                        return rv_fail(err, RV_EINPUT, "%s is %d, a whole number from 1 to %d was expected",
                                       counts[i].key, count, counts[i].most);
        }
        if (gpt->n_embd % gpt->n_head != 0)
                return rv_fail(err, RV_EINPUT, "n_head %d does not divide n_embd %d", gpt->n_head,
                               gpt->n_embd);
        return RV_OK;
}

static int read_counts(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        struct rv_error_info why;
        for (int i = 0; i < COUNTS; i++) {
                int64_t number = 0;
                if (!json_object_get(object, counts[i].key) && json_object_get(object, counts[i].others))
                        return rv_fail(err, RV_EINPUT,
                                       "%s:%d: n_layer n_embd n_head vocab_size n_positions of a GPT-2 were "
                                       "expected; %s is what other families call %s, and only GPT-2's "
                                       "architecture is built",
                                       path, file_line_of(path, counts[i].others), counts[i].others,
                                       counts[i].key);
                if (file_need_int(path, object, counts[i].key, 1, counts[i].most, &number, err) != RV_OK)
                        return RV_EINPUT;
                *(int *)((char *)gpt + counts[i].offset) = (int)number;
        }
        if (gpt_check(gpt, &why) == RV_OK)
                return RV_OK;
        return rv_fail(err, why.code, "%s:%d: %s", path, file_line_of(path, "n_head"), why.sentence);
}

/* `path`:line of `key`, `key` "text": what would be right. */
static int wrong_value(const char *path, const char *key, const json_t *value, const char *right,
                       struct rv_error_info *err)
{
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
        int status = rv_fail(err, RV_EINPUT, "%s:%d: %s is %.60s, %s", path, file_line_of(path, key), key,
                             text ? text : "?", right);
        free(text);
        return status;
}

/* Keys of Hugging Face's GPT-2 that change the computation, with the one value that is computed here. */
static int check_switches(const char *path, const json_t *object, struct rv_error_info *err)
{
        static const struct {
                const char *key;
                bool right;
        } switches[] = {
                {"scale_attn_weights", true},
                {"scale_attn_by_inverse_layer_idx", false},
                {"add_cross_attention", false},
        };
        for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++) {
                const json_t *value = json_object_get(object, switches[i].key);
                if (value && (!json_is_boolean(value) || json_is_true(value) != switches[i].right))
                        return wrong_value(
                                path, switches[i].key, value,
                                switches[i].right ? "only true is computed" : "only false is computed", err);
        }
        return RV_OK;
}

static bool is_nothing(const json_t *value)
{
        return !value || json_is_null(value) || json_is_false(value) ||
               (json_is_number(value) && json_number_value(value) == 0);
}

/* Other families of models: what says that a file is of one, and keys that GPT-2's files do not have because
 * its architecture has not what they say. */
static int check_family(const char *path, const json_t *object, struct rv_error_info *err)
{
        static const char *const others[] = {
                "multi_query",   "rope_theta",     "rope_scaling",          "rotary_dim", "rotary_pct",
                "rms_norm_eps",  "sliding_window", "num_experts",           "n_experts",  "num_local_experts",
                "parallel_attn", "alibi",          "use_parallel_residual",
        };
        static const char *const heads[] = {"num_key_value_heads", "n_kv_head", "num_kv_heads"};
        const json_t *value = json_object_get(object, "model_type");
        if (value && (!json_is_string(value) || strcmp(json_string_value(value), "gpt2") != 0))
                return wrong_value(path, "model_type", value,
                                   "only GPT-2's architecture (\"gpt2\") is built: LayerNorm, GELU, learned "
                                   "positions, as many heads of keys as of queries",
                                   err);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
                value = json_object_get(object, others[i]);
                if (!is_nothing(value))
                        return wrong_value(path, others[i], value,
                                           "only GPT-2's architecture is built, which has no such thing",
                                           err);
        }
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
                value = json_object_get(object, heads[i]);
                if (!is_nothing(value) && !json_equal(value, json_object_get(object, "n_head")))
                        return wrong_value(path, heads[i], value,
                                           "only GPT-2's architecture is built, in which they are as many as "
                                           "n_head",
                                           err);
        }
        return RV_OK;
}

/* Hugging Face's keys that are not read are many, and none is near to one that is. */
static int check_keys(const char *path, const json_t *object, struct rv_error_info *err)
{
        static const char *const known[] = {"n_layer",
                                            "n_embd",
                                            "n_head",
                                            "vocab_size",
                                            "n_positions",
                                            "name",
                                            "model_type",
                                            "tie_word_embeddings",
                                            "activation_function",
                                            "layer_norm_epsilon",
                                            "n_inner",
                                            "attn_pdrop",
                                            "embd_pdrop",
                                            "resid_pdrop",
                                            "add_cross_attention",
                                            "scale_attn_weights",
                                            "scale_attn_by_inverse_layer_idx"};
        return file_check_keys(path, "a model", object, known, sizeof known / sizeof *known, err);
}

static bool asks_for_dropout(const json_t *object)
{
        static const char *const keys[] = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};
        bool asked = false;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
                asked |= json_number_value(json_object_get(object, keys[i])) > 0;
        return asked;
}

const char *gpt_warning(const struct gpt *gpt)
{
        return gpt->dropout ? "its dropout (attn_pdrop, embd_pdrop, resid_pdrop) is not modelled: nothing is "
                              "dropped out, neither in training nor in predictions"
                            : NULL;
}

static int check_variant(const struct gpt *gpt, const char *path, const json_t *object,
                         struct rv_error_info *err)
{
        const json_t *value = json_object_get(object, "activation_function");
        const char *name = json_string_value(value);
        if (value && (!name || (strcmp(name, "gelu_new") != 0 && strcmp(name, "gelu_pytorch_tanh") != 0 &&
                                strcmp(name, "gelu_tanh") != 0)))
                return wrong_value(path, "activation_function", value,
                                   "only \"gelu_new\" (tanh GELU) is known", err);

        value = json_object_get(object, "layer_norm_epsilon");
        if (value && (!json_is_number(value) || fabs(json_number_value(value) - 1e-5) > 1e-12))
                return wrong_value(path, "layer_norm_epsilon", value, "only 1e-5 is known", err);

        value = json_object_get(object, "n_inner");
        if (value && !json_is_null(value) &&
            (!json_is_integer(value) || json_integer_value(value) != 4 * (json_int_t)gpt->n_embd))
                return wrong_value(path, "n_inner", value, "only null or 4 x n_embd is known", err);
        return check_switches(path, object, err);
}

/* The file's "name", or else its own name without folder and suffix. */
static void name_model(struct gpt *gpt, const char *path, const json_t *object)
{
        const char *name = json_string_value(json_object_get(object, "name"));
        if (!name) {
                const char *slash = strrchr(path, '/');
                name = slash ? slash + 1 : path;
        }
        snprintf(gpt->name, sizeof gpt->name, "%s", name);
        size_t length = strlen(gpt->name);
        if (length > 5 && strcmp(gpt->name + length - 5, ".json") == 0)
                gpt->name[length - 5] = '\0';
}

int gpt_from_json(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        memset(gpt, 0, sizeof *gpt);
        if (check_family(path, object, err) != RV_OK || check_keys(path, object, err) != RV_OK ||
            read_counts(gpt, path, object, err) != RV_OK)
                return RV_EINPUT;
        gpt->dropout = asks_for_dropout(object);
        const json_t *tied = json_object_get(object, "tie_word_embeddings");
        if (tied && !json_is_boolean(tied))
                return wrong_value(path, "tie_word_embeddings", tied, "true or false was expected", err);
        gpt->tied = !tied || json_is_true(tied);
        name_model(gpt, path, object);
        return check_variant(gpt, path, object, err);
}

/* A word without slash and suffix names a preset; anything else, and a word that is a file, is a path. */
static int resolve_path(char *path, size_t path_size, const char *name_or_path, struct rv_error_info *err)
{
        struct stat info;
        if (!*name_or_path)
                return rv_fail(err, RV_EINPUT,
                               "the name of the model is empty: a preset (such as tiny) or a config.json was "
                               "expected");
        bool word = !strchr(name_or_path, '/') && !strstr(name_or_path, ".json");
        if (word && file_find(path, path_size, "models/presets", name_or_path, ".json") == RV_OK)
                return RV_OK;
        if (word && stat(name_or_path, &info) != 0) {
                char presets[512];
                file_list(presets, sizeof presets, "models/presets", ".json");
                return rv_fail(
                        err, RV_EINPUT,
                        "%.100s: no such model; a config.json or one of these presets was expected: %s",
                        name_or_path, presets);
        }
        if (snprintf(path, path_size, "%s", name_or_path) >= (int)path_size)
                return rv_fail(err, RV_EINPUT, "%.100s...: the path of the model is too long", name_or_path);
        return RV_OK;
}

/* Whether a file begins as safetensors do, 8 bytes of length and then JSON, or as PyTorch's archives. */
static bool is_weights(const char *path)
{
        unsigned char first[9] = {0};
        FILE *file = fopen(path, "rb");
        if (!file)
                return false;
        const size_t read = fread(first, 1, sizeof first, file);
        fclose(file);
        const bool safetensors = first[8] == '{' && !first[5] && !first[6] && !first[7];
        return read == sizeof first && (safetensors || memcmp(first, "PK\3\4", 4) == 0);
}

int gpt_load(struct gpt *gpt, const char *name_or_path, struct rv_error_info *err)
{
        char path[4096];
        int status = resolve_path(path, sizeof path, name_or_path, err);
        if (status != RV_OK)
                return status;
        if (is_weights(path))
                return rv_fail(err, RV_EINPUT,
                               "%.200s: is a file of weights; as a model, a config.json or the name of a "
                               "preset was expected (initial weights from a file are not built yet)",
                               path);
        json_t *object = file_read_json(path, err);
        if (!object)
                return RV_EINPUT;
        status = gpt_from_json(gpt, path, object, err);
        json_decref(object);
        return status;
}

json_t *gpt_to_json(const struct gpt *gpt)
{
        return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:b, s:s, s:f}", "name", gpt->name,
                         "model_type", "gpt2", "n_layer", gpt->n_layer, "n_embd", gpt->n_embd, "n_head",
                         gpt->n_head, "vocab_size", gpt->vocab_size, "n_positions", gpt->n_positions,
                         "tie_word_embeddings", gpt->tied, "activation_function", "gelu_new",
                         "layer_norm_epsilon", 1e-5);
}

static const char *const recomputes[RECOMPUTES] = {[RECOMPUTE_NONE] = "none",
                                                   [RECOMPUTE_SELECTIVE] = "selective",
                                                   [RECOMPUTE_FULL] = "full",
                                                   [RECOMPUTE_LAYER] = "layer"};

const char *recompute_name(enum recompute recompute)
{
        return recomputes[recompute];
}

int recompute_of_name(const char *name)
{
        for (int recompute = 0; recompute < RECOMPUTES; recompute++)
                if (strcmp(recomputes[recompute], name) == 0)
                        return recompute;
        return -1;
}

int recompute_depth(enum recompute recompute)
{
        static const int depths[RECOMPUTES] = {
                [RECOMPUTE_NONE] = 0, [RECOMPUTE_SELECTIVE] = 1, [RECOMPUTE_FULL] = 2, [RECOMPUTE_LAYER] = 3};
        return depths[recompute];
}

int64_t gpt_parameters(const struct gpt *gpt)
{
        int64_t C = gpt->n_embd, V = gpt->vocab_size;
        int64_t block = 12 * C * C + 13 * C; /* 3C^2+3C, C^2+C, 4C^2+4C, 4C^2+C, and two LayerNorms of 2C */
        int64_t embeddings = V * C + gpt->n_positions * C;
        int64_t head = gpt->tied ? 0 : V * C;
        return embeddings + gpt->n_layer * block + 2 * C + head;
}

double gpt_batch_flops(const struct gpt *gpt, int64_t batch, int seq_len, enum recompute recompute)
{
        double l = gpt->n_layer, h = gpt->n_embd, V = gpt->vocab_size, s = seq_len, B = (double)batch;
        double forward = 24 * B * s * l * h * h * (1 + s / (6 * h)), head = 2 * B * s * h * V;
        double last_product = 8 * B * s * l * h * h; /* of a block's MLP, which is not recomputed */
        double again[RECOMPUTES] = {[RECOMPUTE_FULL] = forward - last_product,
                                    [RECOMPUTE_SELECTIVE] = 2 * B * s * s * l * h, /* Q K^T */
                                    [RECOMPUTE_LAYER] = forward};
        return 3 * (forward + head) + again[recompute];
}
