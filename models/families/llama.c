/* Llama (Touvron et al. 2023): pre-RMSNorm blocks, rotary positions, grouped queries, SwiGLU, no biases. */
#include "models/config.h"
#include "models/families/families.h"
#include "runtime/base/file.h"

#include <string.h>

static void embedding(struct program *p, const struct gpt *gpt, const struct work *work)
{
        const int tokens = program_tokens(p, "tokens", work->micro_batch_size, work->seq_len);
        program_output(
                p, program_embedding(p, "model.embed_tokens", NULL, tokens, gpt->vocab_size, 0, gpt->n_embd));
}

static void block(struct program *p, const struct gpt *gpt, const struct work *work)
{
        const int64_t C = gpt->n_embd, H = gpt->n_head, KV = gpt_kv_heads(gpt), hs = C / H,
                      F = gpt_inner(gpt);
        enum { HEADS = 0, INNER_HEADS = 1, HALVES = 1, INNER = 1 }; /* axes of weights, outputs first */
        const struct linear_piece qkv_of[] = {
                {"self_attn.q_proj", H * hs}, {"self_attn.k_proj", KV * hs}, {"self_attn.v_proj", KV * hs}};
        const struct linear_piece gates_of[] = {{"mlp.gate_proj", F}, {"mlp.up_proj", F}};
        const int x = program_input(p, work->micro_batch_size, work->seq_len, C);
        const int norm_1 = program_rmsnorm(p, "input_layernorm", x, gpt->norm_epsilon);
        int qkv = program_linear_of(p, 3, qkv_of, norm_1, 2, (int64_t[]){H + 2 * KV, hs}, HEADS);
        qkv = program_rope(p, qkv, H, gpt->rope_theta);
        const int attention = program_grouped_attention(p, qkv, H);
        int middle = program_linear(p, "self_attn.o_proj", attention, 1, &C, INNER_HEADS);
        middle = program_residual(p, middle, x);
        const int norm_2 = program_rmsnorm(p, "post_attention_layernorm", middle, gpt->norm_epsilon);
        const int gates = program_linear_of(p, 2, gates_of, norm_2, 2, (int64_t[]){2, F}, HALVES);
        const int y = program_linear(p, "mlp.down_proj", program_swiglu(p, gates), 1, &C, INNER);
        program_output(p, program_residual(p, y, middle));
}

static void head(struct program *p, const struct gpt *gpt, const struct work *work, bool loss_only)
{
        const int targets = program_tokens(p, "targets", work->micro_batch_size, work->seq_len);
        const int x = program_input(p, work->micro_batch_size, work->seq_len, gpt->n_embd);
        const int norm = program_rmsnorm(p, "model.norm", x, gpt->norm_epsilon);
        program_loss(p, "lm_head", norm, gpt->vocab_size, targets, loss_only);
}

/* ---- config.json ---- */

static const struct config_count counts[] = {
        {"num_hidden_layers", offsetof(struct gpt, n_layer), GPT_MOST_LAYERS, false},
        {"hidden_size", offsetof(struct gpt, n_embd), GPT_MOST_WIDTH, false},
        {"num_attention_heads", offsetof(struct gpt, n_head), GPT_MOST_HEADS, false},
        {"num_key_value_heads", offsetof(struct gpt, n_kv_head), GPT_MOST_HEADS, true},
        {"intermediate_size", offsetof(struct gpt, n_inner), GPT_MOST_INNER, false},
        {"vocab_size", offsetof(struct gpt, vocab_size), GPT_MOST_VOCABULARY, false},
        {"max_position_embeddings", offsetof(struct gpt, n_positions), GPT_MOST_POSITIONS, false},
};

static const double theta_absent = 10000, epsilon_absent = 1e-6; /* as transformers has them */

/* What the keys that are not read may say, near to which a misspelt one is found. */
static int check_keys(const char *path, const json_t *object, struct rv_error_info *err)
{
        static const struct config_only only[] = {
                {"hidden_act", {"\"silu\""}},     {"attention_bias", {"false"}},
                {"mlp_bias", {"false"}},          {"rope_scaling", {"null"}},
                {"sliding_window", {"null"}},     {"partial_rotary_factor", {"1"}},
                {"quantization_config", {"null"}}};
        static const char *const known[] = {"num_hidden_layers",
                                            "hidden_size",
                                            "num_attention_heads",
                                            "num_key_value_heads",
                                            "intermediate_size",
                                            "vocab_size",
                                            "max_position_embeddings",
                                            "name",
                                            "model_type",
                                            "tie_word_embeddings",
                                            "rms_norm_eps",
                                            "rope_theta",
                                            "rope_scaling",
                                            "rope_parameters",
                                            "head_dim",
                                            "hidden_act",
                                            "attention_bias",
                                            "attention_dropout",
                                            "mlp_bias",
                                            "sliding_window"};
        const int status = file_check_keys(path, "a model", object, known, sizeof known / sizeof *known, err);
        return status != RV_OK ? status
                               : config_check_only(path, object, only, sizeof only / sizeof *only, err);
}

static int read_number(const char *path, const json_t *object, const char *key, double least, double most,
                       double *number, struct rv_error_info *err)
{
        return json_object_get(object, key) ? file_need_real(path, object, key, least, most, number, err)
                                            : RV_OK;
}

/* Newer files have the rotary embedding's numbers in an object of their own. */
static int read_rope(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        const json_t *rope = json_object_get(object, "rope_parameters");
        const json_t *from = json_is_object(rope) ? rope : object, *type = json_object_get(rope, "rope_type");
        gpt->rope_theta = theta_absent;
        if (type && (!json_is_string(type) || strcmp(json_string_value(type), "default") != 0))
                return config_wrong(path, "rope_type", type, err, "only \"default\" is built");
        return read_number(path, from, "rope_theta", 1, 1e12, &gpt->rope_theta, err);
}

static int check_heads(const struct gpt *gpt, const char *path, const json_t *object,
                       struct rv_error_info *err)
{
        const json_t *size = json_object_get(object, "head_dim");
        if (gpt->n_embd % gpt->n_head)
                return rv_fail(err, RV_EINPUT, "%s:%d: num_attention_heads %d does not divide hidden_size %d",
                               path, file_line_of(path, "num_attention_heads"), gpt->n_head, gpt->n_embd);
        const int hs = gpt->n_embd / gpt->n_head;
        if (gpt->n_head % gpt_kv_heads(gpt))
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: num_key_value_heads %d does not divide num_attention_heads %d", path,
                               file_line_of(path, "num_key_value_heads"), gpt->n_kv_head, gpt->n_head);
        if (hs % 2)
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: a head has hidden_size / num_attention_heads = %d columns; rotary "
                               "positions need an even number",
                               path, file_line_of(path, "num_attention_heads"), hs);
        if (size && !json_is_null(size) && json_integer_value(size) != hs)
                return config_wrong(path, "head_dim", size, err,
                                    "only hidden_size / num_attention_heads (%d) is built", hs);
        return RV_OK;
}

static int read_config(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        gpt->norm_epsilon = epsilon_absent;
        if (check_keys(path, object, err) != RV_OK ||
            config_read_counts(gpt, path, object, counts, sizeof counts / sizeof *counts, err) != RV_OK ||
            check_heads(gpt, path, object, err) != RV_OK || read_rope(gpt, path, object, err) != RV_OK ||
            read_number(path, object, "rms_norm_eps", 1e-12, 1, &gpt->norm_epsilon, err) != RV_OK)
                return RV_EINPUT;
        gpt->dropout = json_number_value(json_object_get(object, "attention_dropout")) > 0;
        return config_read_tied(gpt, path, object, false, err);
}

static json_t *write_config(const struct gpt *gpt)
{
        return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:b, s:s}", "name",
                         gpt->name, "model_type", "llama", "num_hidden_layers", gpt->n_layer, "hidden_size",
                         gpt->n_embd, "num_attention_heads", gpt->n_head, "num_key_value_heads",
                         gpt_kv_heads(gpt), "intermediate_size", gpt_inner(gpt), "vocab_size",
                         gpt->vocab_size, "max_position_embeddings", gpt->n_positions, "rms_norm_eps",
                         gpt->norm_epsilon, "rope_theta", gpt->rope_theta, "tie_word_embeddings", gpt->tied,
                         "hidden_act", "silu");
}

const struct family family_llama = {
        .model_type = "llama",
        .id = FAMILY_LLAMA,
        .layers = "model.layers.",
        .embedding = embedding,
        .block = block,
        .head = head,
        .read = read_config,
        .write = write_config,
};
