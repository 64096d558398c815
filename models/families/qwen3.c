/* Qwen3 (Yang et al. 2025): a Llama that normalises each head of queries and of keys before it rotates them.
 */
#include "models/families/llama.h"
#include "models/families/rope.h"

static void block(struct program *p, const struct gpt *gpt, const struct work *work)
{
        llama_block(p, gpt, work,
                    &(struct llama_block){.head_norms = true,
                                          .qkv_bias = gpt->attention_bias,
                                          .output_bias = gpt->attention_bias});
}

static const struct config_key keys[] = {
        LLAMA_KEYS("intermediate_size"),
        {"num_key_value_heads", CONFIG_COUNT, CONFIG_AT(n_kv_head), .max = GPT_MAX_HEADS},
        {"head_dim", CONFIG_COUNT, CONFIG_AT(head_size), .max = GPT_MAX_WIDTH},
        {"attention_bias", CONFIG_BOOL, CONFIG_AT(attention_bias), .absent = false},
        {"use_sliding_window", CONFIG_ONLY, .right = {"false"}},
};
enum { KEYS = sizeof keys / sizeof *keys };

static int read_config(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        return llama_read(gpt, path, object, keys, KEYS, err);
}

const struct family family_qwen3 = {
        .model_type = "qwen3",
        .architecture = "Qwen3ForCausalLM",
        .id = FAMILY_QWEN3,
        .layers = "model.layers.",
        .embedding = llama_embedding,
        .block = block,
        .head = llama_head,
        .keys = keys,
        .key_count = KEYS,
        .read = read_config,
        .write = rope_write,
};
