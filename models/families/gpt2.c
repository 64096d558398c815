/* GPT-2 (Radford et al. 2019): pre-LayerNorm blocks, learned positions, tanh GELU, tied embeddings. */
#include "models/config.h"
#include "models/families/families.h"
#include "runtime/base/file.h"

static void embedding(struct program *p, const struct gpt *gpt, const struct work *work)
{
        const int tokens = program_tokens(p, "tokens", work->micro_batch_size, work->seq_len);
        program_output(p, program_embedding(p, "transformer.wte", "transformer.wpe", tokens, gpt->vocab_size,
                                            gpt->n_positions, gpt->n_embd));
}

static void block(struct program *p, const struct gpt *gpt, const struct work *work)
{
        const int64_t C = gpt->n_embd, H = gpt->n_head, hs = C / H;
        enum { HEADS = 1, INNER_HEADS = 1, INNER = 1, OUTER = 0 }; /* axes of weights, outputs first */
        const int x = program_input(p, work->micro_batch_size, work->seq_len, C);
        const int ln_1 = program_layernorm(p, "ln_1", x, 0);
        int qkv = program_linear(p, "attn.c_attn", ln_1, 3, (int64_t[]){3, H, hs}, HEADS);
        qkv = program_bias(p, "attn.c_attn", qkv);
        const int attention = program_attention(p, qkv);
        int middle = program_linear(p, "attn.c_proj", attention, 1, &C, INNER_HEADS);
        middle = program_bias_residual(p, "attn.c_proj", middle, x);
        const int ln_2 = program_layernorm(p, "ln_2", middle, 0);
        const int fc = program_linear(p, "mlp.c_fc", ln_2, 1, (int64_t[]){4 * C}, OUTER);
        const int gelu = program_bias_gelu(p, "mlp.c_fc", fc);
        const int y = program_linear(p, "mlp.c_proj", gelu, 1, &C, INNER);
        program_output(p, program_bias_residual(p, "mlp.c_proj", y, middle));
}

static void head(struct program *p, const struct gpt *gpt, const struct work *work, bool loss_only)
{
        const int targets = program_tokens(p, "targets", work->micro_batch_size, work->seq_len);
        const int x = program_input(p, work->micro_batch_size, work->seq_len, gpt->n_embd);
        program_loss(p, "lm_head", program_layernorm(p, "transformer.ln_f", x, 0), gpt->vocab_size, targets,
                     loss_only);
}

/* ---- config.json ---- */

static const struct config_key keys[] = {
        {"n_layer", CONFIG_COUNT, CONFIG_AT(n_layer), .max = GPT_MAX_LAYERS},
        {"n_embd", CONFIG_COUNT, CONFIG_AT(n_embd), .max = GPT_MAX_WIDTH},
        {"n_head", CONFIG_COUNT, CONFIG_AT(n_head), .max = GPT_MAX_HEADS},
        {"vocab_size", CONFIG_COUNT, CONFIG_AT(vocab_size), .max = GPT_MAX_VOCABULARY},
        {"n_positions", CONFIG_COUNT, CONFIG_AT(n_positions), .max = GPT_MAX_POSITIONS},
        {"tie_word_embeddings", CONFIG_BOOL, CONFIG_AT(tied), .absent = true},
        {"attn_pdrop", .kind = CONFIG_DROPOUT},
        {"embd_pdrop", .kind = CONFIG_DROPOUT},
        {"resid_pdrop", .kind = CONFIG_DROPOUT},
        {"activation_function", CONFIG_ONLY,
         .right = {"\"gelu_new\"", "\"gelu_pytorch_tanh\"", "\"gelu_tanh\""}, .written = true},
        {"layer_norm_epsilon", CONFIG_ONLY, .right = {"1e-5"}, .written = true},
        {"scale_attn_weights", CONFIG_ONLY, .right = {"true"}},
        {"scale_attn_by_inverse_layer_idx", CONFIG_ONLY, .right = {"false"}},
        {"add_cross_attention", CONFIG_ONLY, .right = {"false"}},
        {"n_inner", .kind = CONFIG_OTHER},
};
enum { KEYS = sizeof keys / sizeof *keys };

/* Whether a member is missing, null, false or 0: what it would ask for is not asked for. */
static bool is_nothing(const json_t *value)
{
        return !value || json_is_null(value) || json_is_false(value) ||
               (json_is_number(value) && json_number_value(value) == 0);
}

/* Keys that GPT-2's files do not have because its architecture has not what they say. */
static int check_architecture(const char *path, const json_t *object, struct rv_error_info *err)
{
        static const char *const others[] = {
                "multi_query",   "rope_theta",     "rope_scaling",          "rotary_dim", "rotary_pct",
                "rms_norm_eps",  "sliding_window", "num_experts",           "n_experts",  "num_local_experts",
                "parallel_attn", "alibi",          "use_parallel_residual",
        };
        static const char *const heads[] = {"num_key_value_heads", "n_kv_head", "num_kv_heads"};
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
                const json_t *value = json_object_get(object, others[i]);
                if (!is_nothing(value))
                        return config_wrong(path, others[i], value, err,
                                            "and a GPT-2 has no such thing (model_type says of which family "
                                            "a file is)");
        }
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
                const json_t *value = json_object_get(object, heads[i]);
                if (!is_nothing(value) && !json_equal(value, json_object_get(object, "n_head")))
                        return config_wrong(path, heads[i], value, err,
                                            "and of a GPT-2 they are as many as n_head (model_type says of "
                                            "which family a file is)");
        }
        return RV_OK;
}

/* Of other families' files that do not say so. */
static int check_names(const char *path, const json_t *object, struct rv_error_info *err)
{
        static const char *const others[][2] = {{"num_hidden_layers", "n_layer"},
                                                {"hidden_size", "n_embd"},
                                                {"num_attention_heads", "n_head"},
                                                {"vocabulary_size", "vocab_size"},
                                                {"max_position_embeddings", "n_positions"}};
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
                if (!json_object_get(object, others[i][1]) && json_object_get(object, others[i][0]))
                        return rv_fail(err, RV_EINPUT,
                                       "%s:%d: n_layer n_embd n_head vocab_size n_positions of a GPT-2 were "
                                       "expected; %s is what other families call %s, whose files say of "
                                       "which they are by model_type",
                                       path, file_line_of(path, others[i][0]), others[i][0], others[i][1]);
        return RV_OK;
}

static int check_inner(const struct gpt *gpt, const char *path, const json_t *object,
                       struct rv_error_info *err)
{
        const json_t *value = json_object_get(object, "n_inner");
        if (value && !json_is_null(value) &&
            (!json_is_integer(value) || json_integer_value(value) != 4 * (json_int_t)gpt->n_embd))
                return config_wrong(path, "n_inner", value, err, "only null or 4 x n_embd is built");
        return RV_OK;
}

static int read_config(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        struct rv_error_info why;
        if (check_architecture(path, object, err) != RV_OK || check_names(path, object, err) != RV_OK ||
            config_read(gpt, path, object, keys, KEYS, err) != RV_OK)
                return RV_EINPUT;
        if (gpt_check(gpt, &why) != RV_OK)
                return rv_fail(err, why.code, "%s:%d: %s", path, file_line_of(path, "n_head"), why.sentence);
        return check_inner(gpt, path, object, err);
}

const struct family family_gpt2 = {
        .model_type = "gpt2",
        .id = FAMILY_GPT2,
        .architecture = "GPT2LMHeadModel",
        .layers = "transformer.h.",
        .transposed = true,
        .embedding = embedding,
        .block = block,
        .head = head,
        .keys = keys,
        .key_count = KEYS,
        .read = read_config,
};
