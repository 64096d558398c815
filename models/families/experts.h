/* What families share that have a mixture of experts for the MLP: the mixture, the block where the rest is a
 * Llama's, and the keys of their config.json that say which experts a token goes to and how they are
 * balanced. */
#ifndef RANVIER_MODELS_FAMILIES_EXPERTS_H
#define RANVIER_MODELS_FAMILIES_EXPERTS_H

#include "models/families/llama.h"

/* What a family's mixtures are. What files that have such keys say of them is in struct gpt. */
struct experts_block {
        const char *router, *names[3]; /* see struct program_experts */
        /* The weights of a token's experts are the softmax over their logits alone; else over all. */
        bool normalised;
        struct llama_block attention;
};

/* What files of most families call these. */
#define EXPERTS_NAMES                                                                                        \
        .router = "mlp.gate",                                                                                \
        .names = {"mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj", "mlp.experts.%d.down_proj"}

/* The norm, the mixture and, of models that have them, the experts that all tokens share, of x, with the sum
 * of all, which is returned; and a whole block. */
int experts_mlp(struct program *, const struct gpt *, int x, const struct experts_block *);
void experts_block(struct program *, const struct gpt *, const struct work *, const struct experts_block *);

/* Reads the keys of a table that has LLAMA_KEYS and, with the key that says how many experts a layer has,
 * EXPERTS_KEYS. */
int experts_read(struct gpt *, const char *path, const json_t *object, const char *experts,
                 const struct config_key *keys, int count, struct rv_error_info *err);
/* Adds to a config.json what is not in such a table. */
void experts_write(const struct gpt *, json_t *object);

/* Completes a model that was read by a table with LLAMA_KEYS("intermediate_size") and DEEPSEEK_SIZE_KEYS: its
 * first blocks, of which it may have only such, have an MLP of that width, the others experts. A model
 * without experts has n_expert 0, and 0 in all that counts them. What the file does not say is DeepSeek-V2's
 * of that family, else DeepSeek-V3's, as transformers takes it. */
int deepseek_experts_read(struct gpt *, const char *path, const json_t *object, struct rv_error_info *err);
/* Adds to a config.json what is not in such a table, and the widths as they are called there. */
void deepseek_experts_write(const struct gpt *, json_t *object);

/* The rows of a table that all have. */
#define EXPERTS_KEYS(experts)                                                                                \
        {experts, CONFIG_COUNT, CONFIG_AT(n_expert), .max = GPT_MAX_EXPERTS},                                \
                {"num_experts_per_tok", CONFIG_COUNT, CONFIG_AT(n_expert_chosen), .max = GPT_MAX_EXPERTS},   \
                {"router_aux_loss_coef", CONFIG_REAL, CONFIG_AT(balance_loss), .max = 1000, .absent = 1e-3}, \
        {                                                                                                    \
                "output_router_logits", .kind = CONFIG_OTHER                                                 \
        }

/* The rows for DeepSeek's mixtures; and with them those of DeepSeek-V3. Transformers too has no loss that
 * balances their experts. */
#define DEEPSEEK_SIZE_KEYS                                                                                   \
        {"n_routed_experts", CONFIG_OPTIONAL, CONFIG_AT(n_expert), .max = GPT_MAX_EXPERTS},                  \
                {"num_experts_per_tok", CONFIG_OPTIONAL, CONFIG_AT(n_expert_chosen),                         \
                 .max = GPT_MAX_EXPERTS},                                                                    \
                {"n_shared_experts", CONFIG_OPTIONAL, CONFIG_AT(n_shared), .max = GPT_MAX_EXPERTS},          \
                {"n_group", CONFIG_OPTIONAL, CONFIG_AT(n_group), .max = GPT_MAX_EXPERTS},                    \
                {"topk_group", CONFIG_OPTIONAL, CONFIG_AT(n_group_chosen), .max = GPT_MAX_EXPERTS},          \
                {"moe_layer_freq", CONFIG_ONLY, .right = {"1"}, .written = true},                            \
                {"moe_intermediate_size", .kind = CONFIG_OTHER},                                             \
                {"first_k_dense_replace", .kind = CONFIG_OTHER}, {"aux_loss_alpha", .kind = CONFIG_OTHER},   \
        {                                                                                                    \
                "seq_aux", .kind = CONFIG_OTHER                                                              \
        }
#define DEEPSEEK_EXPERTS_KEYS                                                                                \
        DEEPSEEK_SIZE_KEYS, {"norm_topk_prob", CONFIG_BOOL, CONFIG_AT(normalised_experts), .absent = true},  \
                {"routed_scaling_factor",                                                                    \
                 CONFIG_REAL,                                                                                \
                 CONFIG_AT(routed_scale),                                                                    \
                 .min = 1e-6,                                                                                \
                 .max = 1e6,                                                                                 \
                 .absent = 2.5},                                                                             \
                {"scoring_func", CONFIG_ONLY, .right = {"\"sigmoid\""}, .written = true},                    \
        {                                                                                                    \
                "topk_method", CONFIG_ONLY, .right = {"\"noaux_tc\""}, .written = true                       \
        }

#endif
