#include "models/gpt.h"

#include "models/config.h"
#include "models/families/families.h"
#include "runtime/base/file.h"
#include "models/partition.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Far above any model that exists, and low enough that no product of them overflows. */
static const struct {
        const char *name; /* in a sentence on a model that no file names */
        size_t offset;    /* of an int of struct gpt */
        int min, max;
} limits[] = {
        {"n_layer", offsetof(struct gpt, n_layer), 1, GPT_MAX_LAYERS},
        {"n_embd", offsetof(struct gpt, n_embd), 1, GPT_MAX_WIDTH},
        {"n_head", offsetof(struct gpt, n_head), 1, GPT_MAX_HEADS},
        {"vocab_size", offsetof(struct gpt, vocab_size), 1, GPT_MAX_VOCABULARY},
        {"n_positions", offsetof(struct gpt, n_positions), 1, GPT_MAX_POSITIONS},
        {"n_kv_head", offsetof(struct gpt, n_kv_head), 0, GPT_MAX_HEADS},
        {"n_inner", offsetof(struct gpt, n_inner), 0, GPT_MAX_INNER},
        {"n_expert", offsetof(struct gpt, n_expert), 0, GPT_MAX_EXPERTS},
        {"n_shared", offsetof(struct gpt, n_shared), 0, GPT_MAX_EXPERTS},
        {"n_dense", offsetof(struct gpt, n_dense), 0, GPT_MAX_LAYERS - 1},
        {"dense_inner", offsetof(struct gpt, dense_inner), 0, GPT_MAX_INNER},
        {"head_size", offsetof(struct gpt, head_size), 0, GPT_MAX_WIDTH},
        {"q_rank", offsetof(struct gpt, q_rank), 0, GPT_MAX_WIDTH},
        {"kv_rank", offsetof(struct gpt, kv_rank), 0, GPT_MAX_WIDTH},
        {"rope_size", offsetof(struct gpt, rope_size), 0, GPT_MAX_WIDTH},
        {"value_size", offsetof(struct gpt, value_size), 0, GPT_MAX_WIDTH},
};

int gpt_check(const struct gpt *gpt, struct rv_error_info *err)
{
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
                const int count = *(const int *)((const char *)gpt + limits[i].offset);
                if (count < limits[i].min || count > limits[i].max)
                        return rv_fail(err, RV_EINPUT, "%s is %d, a whole number from %d to %d was expected",
                                       limits[i].name, count, limits[i].min, limits[i].max);
        }
        if (!gpt->head_size && gpt->n_embd % gpt->n_head != 0)
                return rv_fail(err, RV_EINPUT, "n_head %d does not divide n_embd %d", gpt->n_head,
                               gpt->n_embd);
        return RV_OK;
}

static bool same_scaling(const struct rope_scaling *a, const struct rope_scaling *b)
{
        return a->type == b->type && a->factor == b->factor && a->low == b->low && a->high == b->high &&
               a->positions == b->positions && a->length == b->length && a->mscale == b->mscale &&
               a->mscale_all == b->mscale_all;
}

static bool same_latent(const struct gpt *a, const struct gpt *b)
{
        return a->q_rank == b->q_rank && a->kv_rank == b->kv_rank && a->rope_size == b->rope_size &&
               a->value_size == b->value_size && a->rope_interleaved == b->rope_interleaved;
}

bool gpt_same(const struct gpt *a, const struct gpt *b)
{
        return a->family == b->family && a->n_layer == b->n_layer && a->n_embd == b->n_embd &&
               a->n_head == b->n_head && a->vocab_size == b->vocab_size && a->n_positions == b->n_positions &&
               a->n_kv_head == b->n_kv_head && a->n_inner == b->n_inner && a->head_size == b->head_size &&
               same_latent(a, b) && a->window == b->window && a->rope_theta == b->rope_theta &&
               same_scaling(&a->rope_scaling, &b->rope_scaling) && a->norm_epsilon == b->norm_epsilon &&
               a->n_expert == b->n_expert && a->n_expert_chosen == b->n_expert_chosen &&
               a->balance_loss == b->balance_loss && a->normalised_experts == b->normalised_experts &&
               a->n_shared == b->n_shared && a->n_group == b->n_group &&
               a->n_group_chosen == b->n_group_chosen && a->best_of_group == b->best_of_group &&
               a->routed_scale == b->routed_scale && a->logistic_router == b->logistic_router &&
               a->n_dense == b->n_dense && a->dense_inner == b->dense_inner &&
               a->attention_bias == b->attention_bias && a->mlp_bias == b->mlp_bias && a->tied == b->tied &&
               a->dropout == b->dropout;
}

int gpt_check_shards(const struct gpt *gpt, int shards, struct rv_error_info *err)
{
        if (gpt->n_head % shards)
                return rv_fail(err, RV_EPLAN, "--tp %d does not divide the %d heads (n_head) of %s", shards,
                               gpt->n_head, gpt->name);
        if (gpt_kv_heads(gpt) % shards)
                return rv_fail(err, RV_EPLAN,
                               "--tp %d does not divide the %d heads of keys and values "
                               "(num_key_value_heads) of %s",
                               shards, gpt_kv_heads(gpt), gpt->name);
        if (gpt_inner(gpt) % shards)
                return rv_fail(err, RV_EPLAN, "--tp %d does not divide the width %d inside the MLP of %s",
                               shards, gpt_inner(gpt), gpt->name);
        if (gpt->n_dense > 0 && gpt->dense_inner % shards)
                return rv_fail(err, RV_EPLAN,
                               "--tp %d does not divide the width %d inside the MLP of %s's first blocks",
                               shards, gpt->dense_inner, gpt->name);
        return RV_OK;
}

int gpt_check_experts(const struct gpt *gpt, int ranks, struct rv_error_info *err)
{
        if (ranks > 1 && gpt->n_expert == 0)
                return rv_fail(err, RV_EPLAN, "--ep %d: %s has no experts", ranks, gpt->name);
        if (ranks > 1 && gpt->n_expert % ranks)
                return rv_fail(err, RV_EPLAN, "--ep %d does not divide the %d experts of a layer of %s",
                               ranks, gpt->n_expert, gpt->name);
        return RV_OK;
}

int gpt_check_length(const struct gpt *gpt, int seq_len, struct rv_error_info *err)
{
        if (seq_len > gpt->n_positions)
                return rv_fail(err, RV_EPLAN, "--seq-len %d is longer than the n_positions %d of %s", seq_len,
                               gpt->n_positions, gpt->name);
        if (seq_len > gpt_longest(gpt))
                return rv_fail(
                        err, RV_EPLAN,
                        "--seq-len %d is longer than the sliding_window %d of %s; attention that leaves "
                        "out what is further back is not built",
                        seq_len, gpt->window, gpt->name);
        return RV_OK;
}

const char *gpt_warning(const struct gpt *gpt)
{
#define DROPOUT "its dropout is not modelled: nothing is dropped out, neither in training nor in predictions"
#define FURTHER                                                                                              \
        "its layers that predict further tokens (num_nextn_predict_layers) are not modelled: "               \
        "they are neither trained nor in predictions"
        static const char *const warnings[2][2] = {{NULL, FURTHER}, {DROPOUT, DROPOUT "; and " FURTHER}};
        return warnings[gpt->dropout][gpt->n_further > 0];
#undef DROPOUT
#undef FURTHER
}

/* What is before `end` in a path, without folders; false if the path does not end so, or that is no name. */
static bool name_by_end(struct gpt *gpt, const char *path, size_t length, const char *end)
{
        const size_t tail = strlen(end);
        if (length <= tail || strcmp(path + length - tail, end) != 0)
                return false;
        size_t begin = length -= tail;
        while (begin > 0 && path[begin - 1] != '/')
                begin--;
        snprintf(gpt->name, sizeof gpt->name, "%.*s", (int)(length - begin), path + begin);
        return strspn(gpt->name, ".") < strlen(gpt->name);
}

/* The file's "name", or else its own name without folder and suffix; that of its folder if it is called
 * config.json, as all are. */
static void name_model(struct gpt *gpt, const char *path, const json_t *object)
{
        const char *name = json_string_value(json_object_get(object, "name"));
        const size_t length = strlen(path);
        if (name)
                snprintf(gpt->name, sizeof gpt->name, "%s", name);
        else if (!name_by_end(gpt, path, length, "/config.json") && !name_by_end(gpt, path, length, ".json"))
                name_by_end(gpt, path, length, "");
}

/* The family that a file is of: what its model_type says, or, where that is missing, GPT-2. */
static const struct family *find_family(const char *path, const json_t *object, struct rv_error_info *err)
{
        const json_t *value = json_object_get(object, "model_type");
        const char *type = value ? json_string_value(value) : family_at(FAMILY_GPT2)->model_type;
        char known[192] = "";
        for (int i = 0; i < FAMILIES; i++) {
                const struct family *family = family_at((enum gpt_family)i);
                if (type && strcmp(type, family->model_type) == 0)
                        return family;
                const size_t end = strlen(known);
                snprintf(known + end, sizeof known - end, "%s\"%s\"",
                         i == 0             ? ""
                         : i < FAMILIES - 1 ? ", "
                                            : " and ",
                         family->model_type);
        }
        config_wrong(path, "model_type", value, err, "only %s are built", known);
        return NULL;
}

int gpt_from_json(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        memset(gpt, 0, sizeof *gpt);
        const struct family *family = find_family(path, object, err);
        if (!family)
                return RV_EINPUT;
        gpt->family = family->id;
        name_model(gpt, path, object);
        return family->read(gpt, path, object, err);
}

/* A word without slash and suffix names a preset; anything else, and a word that is a file, is a path. */
const struct option_words gpt_words = {.folder = GPT_PRESETS, .files = true};

static int resolve_path(char *path, size_t path_size, const char *name_or_path, struct rv_error_info *err)
{
        struct stat info;
        if (!*name_or_path)
                return rv_fail(err, RV_EINPUT,
                               "the name of the model is empty: a preset (such as tiny) or a config.json was "
                               "expected");
        bool word = !strchr(name_or_path, '/') && !strstr(name_or_path, ".json");
        if (word && file_find(path, path_size, GPT_PRESETS, name_or_path, ".json") == RV_OK)
                return RV_OK;
        if (word && stat(name_or_path, &info) != 0) {
                char presets[896], near[FILE_NEAREST];
                file_list(presets, sizeof presets, GPT_PRESETS, ".json");
                return rv_fail(
                        err, RV_EINPUT,
                        "%.100s: no such model%s; a config.json or one of these presets was expected: %s",
                        name_or_path, file_nearest(near, GPT_PRESETS, name_or_path, ".json"), presets);
        }
        if (stat(name_or_path, &info) != 0 && !strstr(name_or_path, ".json") && *name_or_path != '/' &&
            *name_or_path != '.') {
                char near[FILE_NEAREST];
                return rv_fail(err, RV_EINPUT,
                               "%.100s: no such file, and models of a hub are not fetched: save its "
                               "config.json, or name a "
                               "preset%s",
                               name_or_path,
                               file_nearest(near, GPT_PRESETS, strrchr(name_or_path, '/') + 1, ".json"));
        }
        const bool folder = stat(name_or_path, &info) == 0 && S_ISDIR(info.st_mode);
        const size_t length = strlen(name_or_path);
        const char *slash = name_or_path[length - 1] == '/' ? "" : "/";
        if (snprintf(path, path_size, "%s%s%s", name_or_path, folder ? slash : "",
                     folder ? "config.json" : "") >= (int)path_size)
                return rv_fail(err, RV_EINPUT, "%.100s...: the path of the model is too long", name_or_path);
        return RV_OK;
}

/* Whether it begins as a script does. */
static bool is_script(const char *path)
{
        char first[2] = {0};
        FILE *file = fopen(path, "rb");
        const bool script =
                file && fread(first, 1, sizeof first, file) == sizeof first && memcmp(first, "#!", 2) == 0;
        if (file)
                fclose(file);
        return script;
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
                               "preset was expected (--init of ranvier train takes weights)",
                               path);
        if (is_script(path))
                return rv_fail(
                        err, RV_EINPUT,
                        "%.200s: is a script; as a model, a config.json or the name of a preset was expected "
                        "(--from takes launch scripts)",
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
        const struct family *family = family_at(gpt->family);
        json_t *object = config_write(gpt, family->model_type, family->keys, family->key_count);
        if (family->write)
                family->write(gpt, object);
        return object;
}

void gpt_add_architecture(const struct gpt *gpt, json_t *config)
{
        const char *architecture = family_at(gpt->family)->architecture;
        if (architecture)
                json_object_set_new(config, "architectures", json_pack("[s]", architecture));
        json_object_set_new(config, "torch_dtype", json_string("float32"));
}

static const char *const recomputes[RECOMPUTES + 1] = {[RECOMPUTE_NONE] = "none",
                                                       [RECOMPUTE_SELECTIVE] = "selective",
                                                       [RECOMPUTE_FULL] = "full",
                                                       [RECOMPUTE_LAYER] = "layer",
                                                       [RECOMPUTE_NORMS] = "norms",
                                                       [RECOMPUTE_SWIGLU] = "swiglu",
                                                       [RECOMPUTE_NORMS_SWIGLU] = "norms+swiglu"};
const struct option_words recompute_words = {.names = recomputes, .list = true};

const char *recompute_name(enum recompute recompute)
{
        return recomputes[recompute];
}

int recompute_of_name(const char *name)
{
        for (int recompute = 0; recompute < RECOMPUTES; recompute++)
                if (strcmp(recomputes[recompute], name) == 0)
                        return recompute;
        static const char *const same[] = {"norms,swiglu", "swiglu,norms", "swiglu+norms"};
        for (size_t i = 0; i < sizeof same / sizeof *same; i++)
                if (strcmp(same[i], name) == 0)
                        return RECOMPUTE_NORMS_SWIGLU;
        return -1;
}

int recompute_depth(enum recompute recompute)
{
        static const int depths[RECOMPUTES] = {
                [RECOMPUTE_NONE] = 0,         [RECOMPUTE_NORMS] = 1,     [RECOMPUTE_SWIGLU] = 1,
                [RECOMPUTE_NORMS_SWIGLU] = 2, [RECOMPUTE_SELECTIVE] = 3, [RECOMPUTE_FULL] = 4,
                [RECOMPUTE_LAYER] = 5};
        return depths[recompute];
}

int64_t gpt_parameters(const struct gpt *gpt)
{
        const struct stage whole = partition_stage(gpt, 1, 0);
        return partition_parameters(gpt, &whole);
}

double gpt_batch_flops(const struct gpt *gpt, int64_t batch, int seq_len, enum recompute recompute)
{
        const struct partition_products products = partition_products(gpt);
        double l = gpt->n_layer, h = gpt->n_embd, V = gpt->vocab_size, s = seq_len,
               tokens = (double)batch * s, keys = (double)gpt->n_head * gpt_head_size(gpt),
               values = (double)gpt->n_head * gpt_value_size(gpt);
        double forward = tokens * (2 * (double)products.all + 2 * s * l * (keys + values)),
               head = 2 * tokens * h * V;
        double again[RECOMPUTES] = {[RECOMPUTE_FULL] = forward - 2 * tokens * (double)products.unread,
                                    [RECOMPUTE_SELECTIVE] = 2 * tokens * s * l * keys, /* Q K^T */
                                    [RECOMPUTE_LAYER] = forward};
        return 3 * (forward + head) + again[recompute];
}
