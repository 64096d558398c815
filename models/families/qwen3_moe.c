/* Qwen3's mixtures (Yang et al. 2025): Qwen3's attention, and many small experts for the MLP of every layer.
 */
#include "models/families/experts.h"

static void block(struct program *p, const struct gpt *gpt, const struct work *work)
{
        experts_block(p, gpt, work,
                      &(struct experts_block){.router = "mlp.gate",
                                              .names = {"mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj",
                                                        "mlp.experts.%d.down_proj"},
                                              .normalised = gpt->normalised_experts,
                                              .attention = {.head_norms = true,
                                                            .qkv_bias = gpt->attention_bias,
                                                            .output_bias = gpt->attention_bias}});
}

#define EXPERTS "num_experts"
static const struct config_key keys[] = {
        LLAMA_KEYS("moe_intermediate_size"),
        EXPERTS_KEYS(EXPERTS),
        {"norm_topk_prob", CONFIG_BOOL, CONFIG_AT(normalised_experts), .absent = false},
        {"num_key_value_heads", CONFIG_COUNT, CONFIG_AT(n_kv_head), .max = GPT_MAX_HEADS},
        {"head_dim", CONFIG_OPTIONAL, CONFIG_AT(head_size), .max = GPT_MAX_WIDTH},
        {"attention_bias", CONFIG_BOOL, CONFIG_AT(attention_bias), .absent = false},
        {"use_sliding_window", CONFIG_ONLY, .right = {"false"}},
        /* Layers without experts, whose MLP is of this width. */
        {"decoder_sparse_step", CONFIG_ONLY, .right = {"1"}, .written = true},
        {"mlp_only_layers", CONFIG_ONLY, .right = {"[]", "null"}, .written = true},
        {"intermediate_size", .kind = CONFIG_OTHER},
};
enum { KEYS = sizeof keys / sizeof *keys };

static int read_config(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        return experts_read(gpt, path, object, EXPERTS, keys, KEYS, err);
}

const struct family family_qwen3_moe = {
        .model_type = "qwen3_moe",
        .architecture = "Qwen3MoeForCausalLM",
        .id = FAMILY_QWEN3_MOE,
        .layers = "model.layers.",
        .embedding = llama_embedding,
        .block = block,
        .head = llama_head,
        .keys = keys,
        .key_count = KEYS,
        .read = read_config,
        .write = experts_write,
};
