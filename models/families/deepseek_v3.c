/* DeepSeek-V3 (DeepSeek-AI 2024): a Llama whose attention is multi-head latent attention. */
#include "models/families/latent.h"
#include "models/families/llama.h"
#include "runtime/base/file.h"

static void block(struct program *p, const struct gpt *gpt, const struct work *work)
{
        llama_mlp(p, gpt, latent_attention(p, gpt, work), false);
}

static const struct config_key keys[] = {
        LLAMA_KEYS("intermediate_size"),
        LATENT_KEYS,
        {"first_k_dense_replace", .kind = CONFIG_OTHER},
        {"moe_intermediate_size", .kind = CONFIG_OTHER},
        {"num_nextn_predict_layers", .kind = CONFIG_OTHER}, /* transformers too has no such layers */
};
enum { KEYS = sizeof keys / sizeof *keys };

/* Where the file does not say, transformers takes 3. */
static int check_dense(const struct gpt *gpt, const char *path, const json_t *object,
                       struct rv_error_info *err)
{
        const char *key = "first_k_dense_replace";
        int64_t dense = 3;
        if (json_object_get(object, key) &&
            file_need_int(path, object, key, 0, GPT_MAX_LAYERS, &dense, err) != RV_OK)
                return RV_EINPUT;
        if (dense < gpt->n_layer)
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: %s is %lld of %d layers; experts of deepseek_v3 are not built yet",
                               path, file_line_of(path, key), key, (long long)dense, gpt->n_layer);
        return RV_OK;
}

static int read_config(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        const bool sound = config_read(gpt, path, object, keys, KEYS, err) == RV_OK &&
                           check_dense(gpt, path, object, err) == RV_OK &&
                           latent_read(gpt, path, object, err) == RV_OK;
        return sound ? RV_OK : RV_EINPUT;
}

static void write_config(const struct gpt *gpt, json_t *object)
{
        json_object_set_new(object, "first_k_dense_replace", json_integer(gpt->n_layer));
        latent_write(gpt, object);
}

const struct family family_deepseek_v3 = {
        .model_type = "deepseek_v3",
        .architecture = "DeepseekV3ForCausalLM",
        .id = FAMILY_DEEPSEEK_V3,
        .layers = "model.layers.",
        .embedding = llama_embedding,
        .block = block,
        .head = llama_head,
        .keys = keys,
        .key_count = KEYS,
        .read = read_config,
        .write = write_config,
};
