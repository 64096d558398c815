/* Mixtral (Jiang et al. 2024): Llama's blocks with a mixture of experts for the MLP. The weights of a token's
 * experts are the softmax over their logits alone. */
#include "models/families/llama.h"
#include "models/families/rope.h"

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
        const int middle = llama_attention(p, gpt, work, &(struct llama_block){0});
        const int norm = program_rmsnorm(p, "post_attention_layernorm", middle, gpt->norm_epsilon);
        program_output(p, program_residual(p, program_mixture(p, &experts, norm), middle));
}

static const struct config_key keys[] = {
        LLAMA_KEYS,
        {"sliding_window", CONFIG_OPTIONAL, CONFIG_AT(window), .max = 1 << 30},
        {"router_jitter_noise", CONFIG_ONLY, .right = {"0"}},
        {"num_key_value_heads", CONFIG_OPTIONAL, CONFIG_AT(n_kv_head), .max = GPT_MAX_HEADS},
        {"head_dim", CONFIG_OPTIONAL, CONFIG_AT(head_size), .max = GPT_MAX_WIDTH},
        {"num_local_experts", CONFIG_COUNT, CONFIG_AT(n_expert), .max = GPT_MAX_EXPERTS},
        {"num_experts_per_tok", CONFIG_COUNT, CONFIG_AT(n_expert_chosen), .max = GPT_MAX_EXPERTS},
        {"router_aux_loss_coef", CONFIG_REAL, CONFIG_AT(balance_loss), .max = 1000, .absent = 1e-3},
        {"output_router_logits", .kind = CONFIG_OTHER},
};
enum { KEYS = sizeof keys / sizeof *keys };

static int read_config(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        if (llama_read(gpt, path, object, keys, KEYS, err) != RV_OK)
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

/* The loss that balances experts is added where the logits of routers are asked for. */
static void write_config(const struct gpt *gpt, json_t *object)
{
        rope_write(gpt, object);
        json_object_set_new(object, "output_router_logits", json_boolean(gpt->balance_loss > 0));
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
        .write = write_config,
};
