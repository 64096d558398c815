/* Mixtral (Jiang et al. 2024): Llama's blocks with a mixture of experts for the MLP. The weights of a token's
 * experts are the softmax over their logits alone. */
#include "models/families/experts.h"

static void block(struct program *p, const struct gpt *gpt, const struct work *work)
{
        experts_block(p, gpt, work,
                      &(struct experts_block){.router = "block_sparse_moe.gate",
                                              .names = {"block_sparse_moe.experts.%d.w1",
                                                        "block_sparse_moe.experts.%d.w3",
                                                        "block_sparse_moe.experts.%d.w2"},
                                              .normalised = true});
}

#define EXPERTS "num_local_experts"
static const struct config_key keys[] = {
        LLAMA_KEYS("intermediate_size"),
        EXPERTS_KEYS(EXPERTS),
        {"sliding_window", CONFIG_OPTIONAL, CONFIG_AT(window), .max = 1 << 30},
        {"router_jitter_noise", CONFIG_ONLY, .right = {"0"}},
        {"num_key_value_heads", CONFIG_OPTIONAL, CONFIG_AT(n_kv_head), .max = GPT_MAX_HEADS},
        {"head_dim", CONFIG_OPTIONAL, CONFIG_AT(head_size), .max = GPT_MAX_WIDTH},
};
enum { KEYS = sizeof keys / sizeof *keys };

static int read_config(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        return experts_read(gpt, path, object, EXPERTS, keys, KEYS, err);
}

const struct family family_mixtral = {
        .model_type = "mixtral",
        .architecture = "MixtralForCausalLM",
        .id = FAMILY_MIXTRAL,
        .layers = "model.layers.",
        .embedding = llama_embedding,
        .block = block,
        .head = llama_head,
        .keys = keys,
        .key_count = KEYS,
        .read = read_config,
        .write = experts_write,
};
