/* Nemotron (Parmar et al. 2024; Nvidia 2024): a Llama with LayerNorms whose weights are stored as what they
 * are more than 1, with positions that turn a part of each head, and an MLP without gates, of squared ReLU.
 */
#include "models/families/llama.h"
#include "models/families/rope.h"

static int norm(struct program *p, const char *name, int x)
{
        return program_layernorm(p, name, x, 1);
}

static void block(struct program *p, const struct gpt *gpt, const struct work *work)
{
        const int64_t C = gpt->n_embd, F = gpt_inner(gpt);
        enum { OUTER = 0, INNER = 1 }; /* axes of weights, outputs first */
        const struct llama_block has = {.qkv_bias = gpt->attention_bias, .output_bias = gpt->attention_bias};
        const int x = program_input(p, work->micro_batch_size, work->seq_len, C);
        const int middle = llama_attention_of(p, gpt, x, norm(p, "input_layernorm", x), &has);
        int up = program_linear(p, "mlp.up_proj", norm(p, "post_attention_layernorm", middle), 1, &F, OUTER);
        if (gpt->mlp_bias)
                up = program_bias(p, "mlp.up_proj", up);
        const int y = program_linear(p, "mlp.down_proj", program_squared_relu(p, up), 1, &C, INNER);
        program_output(p, llama_add_to(p, middle, "mlp.down_proj", y, gpt->mlp_bias));
}

static void head(struct program *p, const struct gpt *gpt, const struct work *work, bool loss_only)
{
        const int targets = program_tokens(p, "targets", work->micro_batch_size, work->seq_len);
        const int x = program_input(p, work->micro_batch_size, work->seq_len, gpt->n_embd);
        program_loss(p, "lm_head", norm(p, "model.norm", x), gpt->vocab_size, targets, loss_only);
}

/* ---- config.json ---- */

static const struct config_key keys[] = {
        {"hidden_act", CONFIG_ONLY, .right = {"\"relu2\""}, .written = true},
        {"norm_eps", CONFIG_ONLY, .right = {"1e-5"}, .written = true},
        LLAMA_SIZE_KEYS("intermediate_size"),
        {"attention_bias", CONFIG_BOOL, CONFIG_AT(attention_bias), .absent = false},
        {"mlp_bias", CONFIG_BOOL, CONFIG_AT(mlp_bias), .absent = false},
        {"num_key_value_heads", CONFIG_OPTIONAL, CONFIG_AT(n_kv_head), .max = GPT_MAX_HEADS},
        {"head_dim", CONFIG_OPTIONAL, CONFIG_AT(head_size), .max = GPT_MAX_WIDTH},
        {"partial_rotary_factor", .kind = CONFIG_OTHER},
};
enum { KEYS = sizeof keys / sizeof *keys };

static int read_config(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        const bool sound = config_read(gpt, path, object, keys, KEYS, err) == RV_OK &&
                           llama_read_heads(gpt, path, err) == RV_OK &&
                           rope_read_part(gpt, path, object, err) == RV_OK;
        return sound ? RV_OK : RV_EINPUT;
}

const struct family family_nemotron = {
        .model_type = "nemotron",
        .architecture = "NemotronForCausalLM",
        .id = FAMILY_NEMOTRON,
        .layers = "model.layers.",
        .embedding = llama_embedding,
        .block = block,
        .head = head,
        .keys = keys,
        .key_count = KEYS,
        .read = read_config,
        .write = rope_write_part,
};
