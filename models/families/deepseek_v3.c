/* DeepSeek-V3 (DeepSeek-AI 2024): latent attention, and a mixture of experts beside those that all tokens
 * share; its first blocks have an MLP in their place. */
#include "models/families/deepseek.h"

void deepseek_dense(struct program *p, const struct gpt *gpt, const struct work *work)
{
        struct gpt like = *gpt;
        like.n_inner = gpt->n_expert ? gpt->dense_inner : gpt->n_inner;
        llama_mlp(p, &like, latent_attention(p, gpt, work), false);
}

void deepseek_block(struct program *p, const struct gpt *gpt, const struct work *work)
{
        if (!gpt->n_expert) {
                deepseek_dense(p, gpt, work);
                return;
        }
        const struct experts_block has = {EXPERTS_NAMES, .normalised = gpt->normalised_experts};
        program_output(p, experts_mlp(p, gpt, latent_attention(p, gpt, work), &has));
}

static const struct config_key keys[] = {
        LLAMA_KEYS("intermediate_size"),
        LATENT_KEYS,
        DEEPSEEK_EXPERTS_KEYS,
        {"num_nextn_predict_layers", CONFIG_UNMODELLED, CONFIG_AT(n_further), .max = GPT_MAX_LAYERS},
};
enum { KEYS = sizeof keys / sizeof *keys };

static int read_config(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        const bool sound = config_read(gpt, path, object, keys, KEYS, err) == RV_OK &&
                           latent_read(gpt, path, object, err) == RV_OK &&
                           deepseek_experts_read(gpt, path, object, err) == RV_OK;
        return sound ? RV_OK : RV_EINPUT;
}

void deepseek_write(const struct gpt *gpt, json_t *object)
{
        latent_write(gpt, object);
        deepseek_experts_write(gpt, object);
}

const struct family family_deepseek_v3 = {
        .model_type = "deepseek_v3",
        .architecture = "DeepseekV3ForCausalLM",
        .id = FAMILY_DEEPSEEK_V3,
        .layers = "model.layers.",
        .embedding = llama_embedding,
        .block = deepseek_block,
        .dense = deepseek_dense,
        .head = llama_head,
        .keys = keys,
        .key_count = KEYS,
        .read = read_config,
        .write = deepseek_write,
};
