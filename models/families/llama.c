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

static const struct config_key keys[] = {
        {"hidden_act", CONFIG_ONLY, .right = {"\"silu\""}, .written = true},
        {"attention_bias", CONFIG_ONLY, .right = {"false"}},
        {"mlp_bias", CONFIG_ONLY, .right = {"false"}},
        {"rope_scaling", CONFIG_ONLY, .right = {"null"}},
        {"sliding_window", CONFIG_ONLY, .right = {"null"}},
        {"partial_rotary_factor", CONFIG_ONLY, .right = {"1"}},
        {"quantization_config", CONFIG_ONLY, .right = {"null"}},
        {"num_hidden_layers", CONFIG_COUNT, CONFIG_AT(n_layer), .max = GPT_MAX_LAYERS},
        {"hidden_size", CONFIG_COUNT, CONFIG_AT(n_embd), .max = GPT_MAX_WIDTH},
        {"num_attention_heads", CONFIG_COUNT, CONFIG_AT(n_head), .max = GPT_MAX_HEADS},
        {"num_key_value_heads", CONFIG_OPTIONAL, CONFIG_AT(n_kv_head), .max = GPT_MAX_HEADS},
        {"intermediate_size", CONFIG_COUNT, CONFIG_AT(n_inner), .max = GPT_MAX_INNER},
        {"vocab_size", CONFIG_COUNT, CONFIG_AT(vocab_size), .max = GPT_MAX_VOCABULARY},
        {"max_position_embeddings", CONFIG_COUNT, CONFIG_AT(n_positions), .max = GPT_MAX_POSITIONS},
        /* What transformers takes where the file does not say. */
        {"rms_norm_eps", CONFIG_REAL, CONFIG_AT(norm_epsilon), .min = 1e-12, .max = 1, .absent = 1e-6},
        {"rope_theta", CONFIG_REAL, CONFIG_AT(rope_theta), .min = 1, .max = 1e12, .absent = 10000},
        {"tie_word_embeddings", CONFIG_TIED, .absent = false},
        {"attention_dropout", .kind = CONFIG_DROPOUT},
        {"rope_parameters", .kind = CONFIG_OTHER},
        {"head_dim", .kind = CONFIG_OTHER},
};
enum { KEYS = sizeof keys / sizeof *keys };

/* Newer files have the rotary embedding's numbers in an object of their own. */
static int read_rope(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        const json_t *rope = json_object_get(object, "rope_parameters"),
                     *type = json_object_get(rope, "rope_type");
        if (type && (!json_is_string(type) || strcmp(json_string_value(type), "default") != 0))
                return config_wrong(path, "rope_type", type, err, "only \"default\" is built");
        return json_object_get(rope, "rope_theta")
                       ? file_need_real(path, rope, "rope_theta", 1, 1e12, &gpt->rope_theta, err)
                       : RV_OK;
}

/* Each head of queries has one of keys and values where the file does not say. */
static int read_heads(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        const json_t *size = json_object_get(object, "head_dim");
        if (gpt->n_embd % gpt->n_head)
                return rv_fail(err, RV_EINPUT, "%s:%d: num_attention_heads %d does not divide hidden_size %d",
                               path, file_line_of(path, "num_attention_heads"), gpt->n_head, gpt->n_embd);
        const int hs = gpt->n_embd / gpt->n_head;
        gpt->n_kv_head = gpt_kv_heads(gpt);
        if (gpt->n_head % gpt->n_kv_head)
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
        const bool sound = config_read(gpt, path, object, keys, KEYS, err) == RV_OK &&
                           read_heads(gpt, path, object, err) == RV_OK &&
                           read_rope(gpt, path, object, err) == RV_OK;
        return sound ? RV_OK : RV_EINPUT;
}

const struct family family_llama = {
        .model_type = "llama",
        .id = FAMILY_LLAMA,
        .architecture = "LlamaForCausalLM",
        .layers = "model.layers.",
        .embedding = embedding,
        .block = block,
        .head = head,
        .keys = keys,
        .key_count = KEYS,
        .read = read_config,
};
