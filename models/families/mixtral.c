/* Mixtral (Jiang et al. 2024): Llama's blocks with a mixture of experts for the MLP. The weights of a token's
 * experts are the softmax over their logits alone. */
#include "models/config.h"
#include "models/families/families.h"

static void block(struct program *p, const struct gpt *gpt, const struct work *work)
{
        const struct program_experts experts = {.count = gpt->n_expert,
                                                .chosen = gpt->n_expert_chosen,
                                                .inner = gpt_inner(gpt),
                                                .router = "block_sparse_moe.gate",
                                                .names = {"block_sparse_moe.experts.%d.w1",
                                                          "block_sparse_moe.experts.%d.w3",
                                                          "block_sparse_moe.experts.%d.w2"},
                                                .normalised = true,
                                                .factor = 1,
                                                .balance = gpt->balance_loss};
        const int middle = llama_attention(p, gpt, work);
        const int norm = program_rmsnorm(p, "post_attention_layernorm", middle, gpt->norm_epsilon);
        program_output(p, program_residual(p, program_mixture(p, &experts, norm), middle));
}

static const struct config_key keys[] = {
        {"hidden_act", CONFIG_ONLY, .right = {"\"silu\""}, .written = true},
        {"sliding_window", CONFIG_ONLY, .right = {"null"}},
        {"router_jitter_noise", CONFIG_ONLY, .right = {"0"}},
        {"quantization_config", CONFIG_ONLY, .right = {"null"}},
        {"num_hidden_layers", CONFIG_COUNT, CONFIG_AT(n_layer), .max = GPT_MAX_LAYERS},
        {"hidden_size", CONFIG_COUNT, CONFIG_AT(n_embd), .max = GPT_MAX_WIDTH},
        {"num_attention_heads", CONFIG_COUNT, CONFIG_AT(n_head), .max = GPT_MAX_HEADS},
        {"num_key_value_heads", CONFIG_OPTIONAL, CONFIG_AT(n_kv_head), .max = GPT_MAX_HEADS},
        {"intermediate_size", CONFIG_COUNT, CONFIG_AT(n_inner), .max = GPT_MAX_INNER},
        {"num_local_experts", CONFIG_COUNT, CONFIG_AT(n_expert), .max = GPT_MAX_EXPERTS},
        {"num_experts_per_tok", CONFIG_COUNT, CONFIG_AT(n_expert_chosen), .max = GPT_MAX_EXPERTS},
        {"vocab_size", CONFIG_COUNT, CONFIG_AT(vocab_size), .max = GPT_MAX_VOCABULARY},
        {"max_position_embeddings", CONFIG_COUNT, CONFIG_AT(n_positions), .max = GPT_MAX_POSITIONS},
        /* What transformers takes where the file does not say. */
        {"rms_norm_eps", CONFIG_REAL, CONFIG_AT(norm_epsilon), .min = 1e-12, .max = 1, .absent = 1e-5},
        {"rope_theta", CONFIG_REAL, CONFIG_AT(rope_theta), .min = 1, .max = 1e12, .absent = 1e6},
        {"router_aux_loss_coef", CONFIG_REAL, CONFIG_AT(balance_loss), .max = 1000, .absent = 1e-3},
        {"tie_word_embeddings", CONFIG_TIED, .absent = false},
        {"attention_dropout", .kind = CONFIG_DROPOUT},
        {"output_router_logits", .kind = CONFIG_OTHER},
        {"head_dim", .kind = CONFIG_OTHER},
};
enum { KEYS = sizeof keys / sizeof *keys };

static int read_config(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        if (config_read(gpt, path, object, keys, KEYS, err) != RV_OK ||
            llama_read_heads(gpt, path, object, err) != RV_OK)
                return RV_EINPUT;
        if (gpt->n_expert_chosen > gpt->n_expert)
                return config_wrong(path, "num_experts_per_tok",
                                    json_object_get(object, "num_experts_per_tok"), err,
                                    "a number up to num_local_experts, %d, was expected", gpt->n_expert);
        if (!json_is_true(json_object_get(object, "output_router_logits")))
                gpt->balance_loss =
                        0; /* transformers adds the loss only where the file asks for the logits */
        return RV_OK;
}

const struct family family_mixtral = {
        .model_type = "mixtral",
        .id = FAMILY_MIXTRAL,
        .layers = "model.layers.",
        .embedding = llama_embedding,
        .block = block,
        .head = llama_head,
        .keys = keys,
        .key_count = KEYS,
        .read = read_config,
};
