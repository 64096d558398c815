/* Qwen3's mixtures (Yang et al. 2025): Qwen3's attention, and many small experts for the MLP of every layer.
 */
#include "models/families/experts.h"

#include "runtime/base/file.h"

static void dense(struct program *p, const struct gpt *gpt, const struct work *work)
{
        struct gpt like = *gpt;
        like.n_inner = gpt->dense_inner;
        llama_block(p, &like, work,
                    &(struct llama_block){.head_norms = true,
                                          .qkv_bias = gpt->attention_bias,
                                          .output_bias = gpt->attention_bias});
}

static void block(struct program *p, const struct gpt *gpt, const struct work *work)
{
        experts_block(p, gpt, work,
                      &(struct experts_block){EXPERTS_NAMES, .normalised = gpt->normalised_experts,
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
        {"decoder_sparse_step", CONFIG_ONLY, .right = {"1"}, .written = true},
        /* Layers without experts, whose MLP is of this width. */
        {"mlp_only_layers", .kind = CONFIG_OTHER},
        {"intermediate_size", CONFIG_OPTIONAL, CONFIG_AT(dense_inner), .max = GPT_MAX_INNER},
};
enum { KEYS = sizeof keys / sizeof *keys };

static int read_config(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        const json_t *dense = json_object_get(object, "mlp_only_layers");
        int64_t inner;
        if (experts_read(gpt, path, object, EXPERTS, keys, KEYS, err) != RV_OK)
                return RV_EINPUT;
        if (dense && !json_is_null(dense) && !json_is_array(dense))
                return config_wrong(path, "mlp_only_layers", dense, err, "an array of layers was expected");
        for (size_t i = 0; i < json_array_size(dense); i++) {
                const json_t *layer = json_array_get(dense, i);
                if (!json_is_integer(layer) || json_integer_value(layer) != (json_int_t)i ||
                    (int)i + 1 >= gpt->n_layer)
                        return config_wrong(path, "mlp_only_layers", dense, err,
                                            "only the first layers, [0,1,...], are built without experts, "
                                            "and not all of them");
        }
        gpt->n_dense = (int)json_array_size(dense);
        return gpt->n_dense > 0 && !gpt->dense_inner
                       ? file_need_int(path, object, "intermediate_size", 1, GPT_MAX_INNER, &inner, err)
                       : RV_OK;
}

static void write_config(const struct gpt *gpt, json_t *object)
{
        json_t *dense = json_array();
        for (int layer = 0; layer < gpt->n_dense; layer++)
                json_array_append_new(dense, json_integer(layer));
        json_object_set_new(object, "mlp_only_layers", dense);
        experts_write(gpt, object);
}

const struct family family_qwen3_moe = {
        .model_type = "qwen3_moe",
        .architecture = "Qwen3MoeForCausalLM",
        .id = FAMILY_QWEN3_MOE,
        .layers = "model.layers.",
        .embedding = llama_embedding,
        .block = block,
        .dense = dense,
        .head = llama_head,
        .keys = keys,
        .key_count = KEYS,
        .read = read_config,
        .write = write_config,
};
