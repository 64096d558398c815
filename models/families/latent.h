/* Multi-head latent attention (DeepSeek-AI 2024): keys and values are made of few columns of a token, which
 * all heads share, and so may queries be. For the families whose blocks have it, whatever follows it. */
#ifndef RANVIER_MODELS_FAMILIES_LATENT_H
#define RANVIER_MODELS_FAMILIES_LATENT_H

#include "models/families/families.h"

/* A block up to the sum behind its attention, which it returns. */
int latent_attention(struct program *, const struct gpt *, const struct work *);

/* The rows of a table of keys that all have; qk_nope_head_dim is the reader's and the writer's below. */
#define LATENT_KEYS                                                                                          \
        {"q_lora_rank", CONFIG_OPTIONAL, CONFIG_AT(q_rank), .max = GPT_MAX_WIDTH},                           \
                {"kv_lora_rank", CONFIG_COUNT, CONFIG_AT(kv_rank), .max = GPT_MAX_WIDTH},                    \
                {"qk_rope_head_dim", CONFIG_COUNT, CONFIG_AT(rope_size), .max = GPT_MAX_WIDTH},              \
                {"v_head_dim", CONFIG_COUNT, CONFIG_AT(value_size), .max = GPT_MAX_WIDTH},                   \
                {"rope_interleave", CONFIG_BOOL, CONFIG_AT(rope_interleaved), .absent = true},               \
                {"qk_nope_head_dim", .kind = CONFIG_OTHER}, {"qk_head_dim", .kind = CONFIG_OTHER},           \
                {"head_dim", .kind = CONFIG_OTHER},                                                          \
                {"num_key_value_heads", CONFIG_OPTIONAL, CONFIG_AT(n_kv_head), .max = GPT_MAX_HEADS},        \
        {                                                                                                    \
                "attention_bias", CONFIG_ONLY, .right = { "false" }                                          \
        }

/* Reads what is not in such a table, once that has been read, and rotary positions. */
int latent_read(struct gpt *, const char *path, const json_t *object, struct rv_error_info *err);

/* Adds what is not in such a table, and rotary positions. */
void latent_write(const struct gpt *, json_t *object);

#endif
