/* The model of a Megatron-LM script: from its flags a config.json of a family here, and back. */
#include "runtime/launch/table.h"

#include "runtime/base/file.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What tells families apart, in Megatron-LM's words. */
struct traits {
        const char *family;
        const char *activation, *norm, *positions;
        bool head_norms, qkv_bias, latent, experts, sigmoid;
        /* What its blocks have of biases: only with, only without, or both can be. */
        enum { BIASES_NEVER, BIASES_ALWAYS, BIASES_OPTIONAL } biases;
        const char *expert_key; /* of config.json: how many a layer has */
};
static const struct traits families[] = {
        {"gpt2", "gelu", "LayerNorm", "learned_absolute", .biases = BIASES_ALWAYS},
        {"llama", "swiglu", "RMSNorm", "rope", .biases = BIASES_OPTIONAL},
        {"qwen2", "swiglu", "RMSNorm", "rope", .qkv_bias = true},
        {"qwen3", "swiglu", "RMSNorm", "rope", .head_norms = true},
        {"mixtral", "swiglu", "RMSNorm", "rope", .experts = true, .expert_key = "num_local_experts"},
        {"qwen3_moe", "swiglu", "RMSNorm", "rope", .head_norms = true, .experts = true,
         .expert_key = "num_experts"},
        {"deepseek_v2", "swiglu", "RMSNorm", "rope", .head_norms = true, .latent = true, .experts = true,
         .expert_key = "n_routed_experts"},
        {"deepseek_v3", "swiglu", "RMSNorm", "rope", .head_norms = true, .latent = true, .experts = true,
         .sigmoid = true, .expert_key = "n_routed_experts"},
        {"nemotron", "squared-relu", "LayerNorm", "rope", .biases = BIASES_OPTIONAL},
};
enum { TRAITS = sizeof families / sizeof *families };

/* GPT-2's files have names of their own. */
static const char *const gpt2_names[][2] = {{"num_hidden_layers", "n_layer"},
                                            {"hidden_size", "n_embd"},
                                            {"num_attention_heads", "n_head"},
                                            {"max_position_embeddings", "n_positions"},
                                            {"vocab_size", "vocab_size"}};
enum { GPT2_NAMES = sizeof gpt2_names / sizeof *gpt2_names };

/* The key of a config.json as a family calls it; NULL: it has no such key. */
static const char *key_of(const struct traits *t, const char *key)
{
        static const char only_latent[] =
                "q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim n_group "
                "topk_group routed_scaling_factor";
        static const char only_experts[] = "num_experts_per_tok moe_intermediate_size";
        for (int i = 0; strcmp(t->family, "gpt2") == 0 && i < GPT2_NAMES; i++)
                if (strcmp(key, gpt2_names[i][0]) == 0)
                        return gpt2_names[i][1];
        const bool rotated = strcmp(key, "partial_rotary_factor") != 0 || strcmp(t->family, "nemotron") == 0;
        const bool root = strcmp(key, "rms_norm_eps") != 0 || strcmp(t->norm, "RMSNorm") == 0;
        if (strcmp(t->family, "gpt2") == 0 || !rotated || !root ||
            (!t->latent && launch_lists(only_latent, key)) ||
            (t->latent && launch_lists("head_dim num_key_value_heads", key)) ||
            (!t->experts && launch_lists(only_experts, key)))
                return NULL;
        return key;
}

/* ---- reading ---- */

static int64_t number_of(const struct launch *l, const char *key, int64_t otherwise)
{
        struct rv_error_info why;
        return launch_number(l, key, &otherwise, &why) ? 0 : otherwise;
}

static const struct traits *find_family(const struct launch *l, struct traits *has)
{
        const char *norm = launch_value(l, "--normalization"),
                   *positions = launch_value(l, "--position-embedding-type"),
                   *scores = launch_value(l, "--moe-router-score-function");
        *has = (struct traits){
                .activation = launch_is_on(l, "--swiglu")         ? "swiglu"
                              : launch_is_on(l, "--squared-relu") ? "squared-relu"
                                                                  : "gelu",
                .norm = norm ? norm : "LayerNorm",
                .positions = launch_is_on(l, "--use-rotary-position-embeddings") ? "rope"
                             : positions                                         ? positions
                                                                                 : "learned_absolute",
                .head_norms = launch_is_on(l, "--qk-layernorm"),
                .qkv_bias = launch_is_on(l, "--add-qkv-bias"),
                .latent = launch_is_on(l, "--multi-latent-attention"),
                .experts = number_of(l, "--num-experts", 0) > 0,
                .sigmoid = scores && strcmp(scores, "sigmoid") == 0,
                .biases = launch_is_on(l, "--disable-bias-linear") ? BIASES_NEVER : BIASES_ALWAYS,
        };
        for (int i = 0; i < TRAITS; i++) {
                const struct traits *t = &families[i];
                if (strcmp(t->activation, has->activation) == 0 && strcasecmp(t->norm, has->norm) == 0 &&
                    strcmp(t->positions, has->positions) == 0 &&
                    (t->latent || t->head_norms == has->head_norms) && t->qkv_bias == has->qkv_bias &&
                    t->latent == has->latent && t->experts == has->experts && t->sigmoid == has->sigmoid &&
                    (t->biases == BIASES_OPTIONAL || t->biases == has->biases))
                        return t;
        }
        return NULL;
}

/* The rows of numbers. */
static bool add_numbers(const struct launch *l, const struct traits *t, json_t *config)
{
        bool right = true;
        for (const struct launch_row *row = l->tool->rows; row->theirs; row++) {
                const char *key = row->how == ROW_MODEL ? key_of(t, row->ours) : NULL;
                const char *value = key ? launch_value(l, row->theirs) : NULL;
                json_t *number = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
                right &= !value || json_is_number(number);
                if (number)
                        json_object_set_new(config, key, number);
        }
        return right;
}

/* "([0]*3+[1]*58)": so many first blocks without experts; -1: another pattern. */
static int dense_blocks(const struct launch *l)
{
        const char *pattern = launch_value(l, "--moe-layer-freq");
        int dense = 0, others = 0, end = 0;
        if (!pattern || strcmp(pattern, "1") == 0)
                return 0;
        if (sscanf(pattern, "([0]*%d+[1]*%d)%n", &dense, &others, &end) == 2 && end && !pattern[end])
                return dense;
        return -1;
}

static void add_experts(const struct launch *l, const struct traits *t, int dense, json_t *config)
{
        const int64_t width = number_of(l, "--ffn-hidden-size", 0),
                      inner = number_of(l, "--moe-ffn-hidden-size", width);
        const int64_t shared = number_of(l, "--moe-shared-expert-intermediate-size", 0);
        json_object_set_new(config, t->expert_key, json_integer(number_of(l, "--num-experts", 0)));
        json_object_set_new(config, "num_experts_per_tok",
                            json_integer(number_of(l, "--moe-router-topk", 2)));
        json_object_set_new(config,
                            t->latent || t->head_norms ? "moe_intermediate_size" : "intermediate_size",
                            json_integer(inner));
        if (t->latent) {
                json_object_set_new(config, "first_k_dense_replace", json_integer(dense));
                json_object_set_new(config, "n_shared_experts",
                                    shared && inner ? json_integer(shared / inner) : json_null());
                if (!launch_item(l, "--moe-router-num-groups")) {
                        json_object_set_new(config, "n_group", json_integer(1));
                        json_object_set_new(config, "topk_group", json_integer(1));
                } else if (!t->sigmoid)
                        json_object_set_new(config, "topk_method", json_string("group_limited_greedy"));
        } else if (t->head_norms) {
                json_t *layers = json_array();
                for (int i = 0; i < dense; i++)
                        json_array_append_new(layers, json_integer(i));
                json_object_set_new(config, "mlp_only_layers", layers);
                json_object_set_new(config, "norm_topk_prob", json_true());
        }
}

static json_t *describe(const struct launch *l, const struct traits *t, const struct traits *has, int dense)
{
        const char *slash = strrchr(l->path, '/');
        const int64_t heads = number_of(l, "--num-attention-heads", 0),
                      width = number_of(l, "--hidden-size", 0);
        const int64_t groups =
                number_of(l, "--num-key-value-heads", number_of(l, "--num-query-groups", heads));
        const bool swiglu = strcmp(t->activation, "swiglu") == 0;
        json_t *config =
                json_pack("{s:s, s:s, s:b}", "name", slash ? slash + 1 : l->path, "model_type", t->family,
                          "tie_word_embeddings", !launch_is_on(l, "--untie-embeddings-and-output-weights"));
        if (!add_numbers(l, t, config)) {
                json_decref(config);
                return NULL;
        }
        if (strcmp(t->family, "gpt2") == 0) {
                const int64_t inner = number_of(l, "--ffn-hidden-size", 0);
                json_object_set_new(config, "n_inner", inner ? json_integer(inner) : json_null());
                return config;
        }
        if (!json_object_get(config, "intermediate_size"))
                json_object_set_new(config, "intermediate_size",
                                    json_integer(swiglu ? 4 * width * 2 / 3 / 64 * 64 : 4 * width));
        if (!json_object_get(config, "rms_norm_eps")) /* Megatron-LM's default */
                json_object_set_new(config, "rms_norm_eps", json_real(1e-5));
        if (!t->latent)
                json_object_set_new(config, "num_key_value_heads",
                                    json_integer(launch_is_on(l, "--group-query-attention") ||
                                                                 launch_item(l, "--num-key-value-heads")
                                                         ? groups
                                                         : heads));
        if (t->biases == BIASES_OPTIONAL) {
                json_object_set_new(config, "attention_bias", json_boolean(has->biases == BIASES_ALWAYS));
                json_object_set_new(config, "mlp_bias", json_boolean(has->biases == BIASES_ALWAYS));
        }
        if (t->experts)
                add_experts(l, t, dense, config);
        return config;
}

/* Whether two models take the same time and memory: what changes only numbers is not compared. */
static bool same_shapes(const struct gpt *preset, const struct gpt *gpt, bool any_vocabulary)
{
        struct gpt like = *preset;
        like.family = preset->family == FAMILY_MISTRAL ? FAMILY_LLAMA : preset->family;
        like.rope_theta = gpt->rope_theta;
        like.rope_scaling = gpt->rope_scaling;
        like.rope_interleaved = gpt->rope_interleaved;
        like.norm_epsilon = gpt->norm_epsilon;
        like.balance_loss = gpt->balance_loss;
        like.normalised_experts = gpt->normalised_experts;
        like.routed_scale = gpt->routed_scale;
        like.window = gpt->window;
        like.dropout = gpt->dropout;
        if (!gpt->n_dense) /* files of mixtures have the width of blocks that they have not */
                like.dense_inner = gpt->dense_inner;
        if (gpt->family != FAMILY_GPT2)
                like.n_positions = gpt->n_positions;
        if (any_vocabulary)
                like.vocab_size = gpt->vocab_size;
        return gpt_same(&like, gpt);
}

/* The preset that the model is: of several the one with as long sequences, or else at least so long ones. */
static bool find_preset(const struct gpt *gpt, bool any_vocabulary, int64_t length, char *name, size_t size)
{
        char presets[4096], one[64];
        name[0] = 0;
        file_list(presets, sizeof presets, "models/presets", ".json");
        const char *at = presets;
        for (int step; sscanf(at, " %63s%n", one, &step) == 1; at += step) {
                struct gpt preset;
                struct rv_error_info why;
                if (gpt_load(&preset, one, &why) || !same_shapes(&preset, gpt, any_vocabulary))
                        continue;
                if (preset.n_positions == gpt->n_positions || (!name[0] && preset.n_positions >= length))
                        snprintf(name, size, "%s", one);
                if (preset.n_positions == gpt->n_positions)
                        break;
        }
        return name[0];
}

/* The vocabulary of tokenizers that have one size. */
static int64_t known_vocabulary(const struct launch *l)
{
        const char *type = launch_value(l, "--tokenizer-type");
        const bool pairs = !type && launch_item(l, "--merge-file"); /* GPT-2's byte pairs */
        return pairs || (type && strcmp(type, "GPT2BPETokenizer") == 0) ? 50257
               : type && strcmp(type, "Llama2Tokenizer") == 0           ? 32000
                                                                        : 0;
}

/* What is wrong is kept: a MODEL on the command line takes the place of all of this. */
static int settle_model(struct launch *l, json_t *config, struct rv_error_info *err)
{
        struct gpt gpt;
        struct rv_error_info why;
        const int64_t known = known_vocabulary(l);
        const bool given = json_object_get(config, "vocab_size") || known;
        (void)err;
        if (!json_object_get(config, "vocab_size"))
                json_object_set_new(config, "vocab_size", json_integer(known ? known : 1));
        if (gpt_from_json(&gpt, l->path, config, &why)) {
                const size_t place = strlen(l->path) + 4; /* "PATH:1: ": the line is of no config.json */
                snprintf(l->no_model, sizeof l->no_model, "%.200s: its model, as a config.json: %.250s",
                         l->path, strlen(why.sentence) > place ? why.sentence + place : why.sentence);
        } else if (find_preset(&gpt, !given, number_of(l, "--seq-length", 1), l->model, sizeof l->model))
                return 0;
        else if (!given)
                snprintf(l->no_model, sizeof l->no_model,
                         "%.200s: says nothing of the model's vocabulary: --vocab-size there, or MODEL on "
                         "the command "
                         "line, would",
                         l->path);
        else
                l->described = json_incref(config);
        return 0;
}

int launch_read_model(struct launch *l, struct rv_error_info *err)
{
        struct traits has;
        const struct traits *family = find_family(l, &has);
        const int dense = dense_blocks(l);
        if (!launch_item(l, "--num-layers"))
                snprintf(l->no_model, sizeof l->no_model,
                         "%.200s: says nothing of a model (--num-layers): name MODEL on the command line",
                         l->path);
        else if (!family)
                snprintf(l->no_model, sizeof l->no_model,
                         "%.200s: %s with %s, %s positions%s%s%s%s is of no family here; the nearest one can "
                         "be named "
                         "as MODEL on the command line",
                         l->path, has.activation, has.norm, has.positions,
                         has.head_norms ? ", norms of heads" : "", has.latent ? ", latent attention" : "",
                         has.experts ? ", experts" : "", has.biases == BIASES_ALWAYS ? ", biases" : "");
        else if (dense < 0)
                return launch_wrong(l, "--moe-layer-freq", RV_ENOTBUILT, err,
                                    "1, or a pattern such as ([0]*3+[1]*58), is built");
        else {
                json_t *config = describe(l, family, &has, dense);
                if (!config)
                        snprintf(l->no_model, sizeof l->no_model,
                                 "%.200s: a flag of the model is not a number, as was expected", l->path);
                else
                        settle_model(l, config, err);
                json_decref(config);
        }
        return 0;
}

/* ---- writing ---- */

/* A Mistral is a Llama of another name, as long as no sequence is longer than its window. */
static const struct traits *family_of(const json_t *config)
{
        const char *type = json_string_value(json_object_get(config, "model_type"));
        for (int i = 0; type && i < TRAITS; i++)
                if (strcmp(families[i].family, strcmp(type, "mistral") == 0 ? "llama" : type) == 0)
                        return &families[i];
        return NULL;
}

static int put_traits(struct launch_output *out, const struct traits *t, struct rv_error_info *err)
{
        const struct gpt *gpt = &out->options->gpt;
        const struct {
                bool has;
                const char *flag, *value;
        } flags[] = {{strcmp(t->activation, "swiglu") == 0, "--swiglu", ""},
                     {strcmp(t->activation, "squared-relu") == 0, "--squared-relu", ""},
                     {true, "--normalization", t->norm},
                     {gpt->family == FAMILY_NEMOTRON, "--apply-layernorm-1p", ""},
                     {true, "--position-embedding-type", t->positions},
                     {!gpt->tied, "--untie-embeddings-and-output-weights", ""},
                     {t->biases != BIASES_ALWAYS && !gpt->mlp_bias, "--disable-bias-linear", ""},
                     {t->qkv_bias, "--add-qkv-bias", ""},
                     {t->head_norms, "--qk-layernorm", ""},
                     {t->latent, "--multi-latent-attention", ""},
                     {gpt->logistic_router, "--moe-router-score-function", "sigmoid"}};
        int rc = 0;
        for (size_t i = 0; rc == 0 && i < sizeof flags / sizeof *flags; i++)
                if (flags[i].has)
                        rc = launch_put(out, flags[i].flag, err, "%s", flags[i].value);
        if (rc == 0 && !t->latent && gpt_kv_heads(gpt) != gpt->n_head)
                rc = launch_put(out, "--group-query-attention", err, "%s", "");
        if (rc || !gpt->n_expert)
                return rc;
        rc = launch_put(out, "--num-experts", err, "%d", gpt->n_expert);
        if (rc == 0)
                rc = launch_put(out, "--moe-grouped-gemm", err, "%s", "");
        if (rc == 0 && gpt->n_shared)
                rc = launch_put(out, "--moe-shared-expert-intermediate-size", err, "%d",
                                gpt->n_shared * gpt_inner(gpt));
        if (rc == 0 && gpt->n_dense)
                rc = launch_put(out, "--moe-layer-freq", err, "([0]*%d+[1]*%d)", gpt->n_dense,
                                gpt->n_layer - gpt->n_dense);
        return rc;
}

int launch_write_model(struct launch_output *out, struct rv_error_info *err)
{
        const struct gpt *gpt = &out->options->gpt;
        json_t *config = gpt_to_json(gpt);
        const struct traits *t = family_of(config);
        int rc = config && t ? 0 : rv_fail(err, RV_ESYSTEM, "no memory for the model %s", gpt->name);
        for (const struct launch_row *row = launch_megatron.rows; rc == 0 && row->theirs; row++) {
                const char *key = row->how == ROW_MODEL ? key_of(t, row->ours) : NULL;
                const json_t *value = key ? json_object_get(config, key) : NULL;
                const bool same =
                        strcmp(row->theirs, "--num-query-groups") == 0 && gpt_kv_heads(gpt) == gpt->n_head;
                if (json_is_integer(value) && !same)
                        rc = launch_put(out, row->theirs, err, "%lld", (long long)json_integer_value(value));
                else if (json_is_real(value))
                        rc = launch_put(out, row->theirs, err, "%.15g", json_real_value(value));
        }
        json_decref(config);
        return rc ? rc : put_traits(out, t, err);
}
