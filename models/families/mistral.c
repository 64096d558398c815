/* Mistral (Jiang et al. 2023): a Llama whose attention may look back on so many tokens only. Sequences that
 * are no longer than that are the same; longer ones are refused where a plan is checked. */
#include "models/families/llama.h"
#include "models/families/rope.h"

static void block(struct program *p, const struct gpt *gpt, const struct work *work)
{
        llama_block(p, gpt, work, &(struct llama_block){0});
}

static const struct config_key keys[] = {
        LLAMA_KEYS("intermediate_size"),
        {"num_key_value_heads", CONFIG_COUNT, CONFIG_AT(n_kv_head), .max = GPT_MAX_HEADS},
        {"head_dim", CONFIG_OPTIONAL, CONFIG_AT(head_size), .max = GPT_MAX_WIDTH},
        {"sliding_window", CONFIG_OPTIONAL, CONFIG_AT(window), .max = 1 << 30},
};
enum { KEYS = sizeof keys / sizeof *keys };

static int read_config(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        if (!json_object_get(object, "sliding_window"))
                gpt->window = 4096; /* what transformers takes where the file does not say */
        return llama_read(gpt, path, object, keys, KEYS, err);
}

const struct family family_mistral = {
        .model_type = "mistral",
        .architecture = "MistralForCausalLM",
        .id = FAMILY_MISTRAL,
        .layers = "model.layers.",
        .embedding = llama_embedding,
        .block = block,
        .head = llama_head,
        .keys = keys,
        .key_count = KEYS,
        .read = read_config,
        .write = rope_write,
};
