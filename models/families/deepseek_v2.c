/* DeepSeek-V2 (DeepSeek-AI 2024): DeepSeek-V3's blocks, whose routers take the softmax of all logits, without
 * a correction, and choose groups, which lie on one device, by their best expert. */
#include "models/families/deepseek.h"

#include "runtime/base/file.h"

#include <string.h>

static const struct config_key keys[] = {
        LLAMA_KEYS("intermediate_size"),
        LATENT_KEYS,
        DEEPSEEK_SIZE_KEYS,
        {"norm_topk_prob", CONFIG_ONLY, .right = {"false"}, .written = true},
        {"routed_scaling_factor", CONFIG_REAL, CONFIG_AT(routed_scale), .min = 1e-6, .max = 1e6, .absent = 1},
        {"scoring_func", CONFIG_ONLY, .right = {"\"softmax\""}, .written = true},
        {"topk_method", CONFIG_ONLY, .right = {"\"greedy\"", "\"group_limited_greedy\""}},
};
enum { KEYS = sizeof keys / sizeof *keys };

static const char in_groups[] = "group_limited_greedy";

/* Experts are chosen in groups where topk_method says so, and the file then says how many there are. */
static int read_groups(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        const char *method = json_string_value(json_object_get(object, "topk_method"));
        int64_t count;
        gpt->best_of_group = method && strcmp(method, in_groups) == 0;
        if (!gpt->best_of_group) {
                gpt->n_group = gpt->n_group_chosen = 1;
                return RV_OK;
        }
        return file_need_int(path, object, "n_group", 1, GPT_MAX_EXPERTS, &count, err) == RV_OK
                       ? file_need_int(path, object, "topk_group", 1, GPT_MAX_EXPERTS, &count, err)
                       : RV_EINPUT;
}

static int read_config(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        const bool sound = config_read(gpt, path, object, keys, KEYS, err) == RV_OK &&
                           latent_read(gpt, path, object, err) == RV_OK &&
                           read_groups(gpt, path, object, err) == RV_OK &&
                           deepseek_experts_read(gpt, path, object, err) == RV_OK;
        return sound ? RV_OK : RV_EINPUT;
}

static void write_config(const struct gpt *gpt, json_t *object)
{
        deepseek_write(gpt, object);
        json_object_set_new(object, "topk_method", json_string(gpt->best_of_group ? in_groups : "greedy"));
}

const struct family family_deepseek_v2 = {
        .model_type = "deepseek_v2",
        .architecture = "DeepseekV2ForCausalLM",
        .id = FAMILY_DEEPSEEK_V2,
        .layers = "model.layers.",
        .embedding = llama_embedding,
        .block = deepseek_block,
        .dense = deepseek_dense,
        .head = llama_head,
        .keys = keys,
        .key_count = KEYS,
        .read = read_config,
        .write = write_config,
};
