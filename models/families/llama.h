/* Llama and the families that are like it: what of a block differs, and what their config.json have in
 * common. Each has a file with its row and its table of keys (mistral.c, qwen2.c, qwen3.c). */
#ifndef RANVIER_MODELS_FAMILIES_LLAMA_H
#define RANVIER_MODELS_FAMILIES_LLAMA_H

#include "models/families/families.h"

/* What a family's blocks have besides a Llama's. */
struct llama_block {
        bool qkv_bias;    /* the products that make queries, keys and values have biases */
        bool output_bias; /* the product behind attention has one */
        bool mlp_bias;    /* all three of the MLP have one */
        bool head_norms;  /* each head of queries and of keys is normalised before it is rotated */
};

void llama_embedding(struct program *, const struct gpt *, const struct work *);
/* Adds a product's result y, with its bias if there is one, to the residual stream x. */
int llama_add_to(struct program *, int x, const char *name, int y, bool bias);
/* A block's attention of `norm`, which is a norm of x, and its sum with x, which it returns. Without norms of
 * heads no norm is made here. */
int llama_attention_of(struct program *, const struct gpt *, int x, int norm, const struct llama_block *);
/* A block up to the sum behind its attention, which it returns; what is behind that sum, `middle`, up to the
 * layer's output; and a whole one. */
int llama_attention(struct program *, const struct gpt *, const struct work *, const struct llama_block *);
void llama_mlp(struct program *, const struct gpt *, int middle, bool bias);
void llama_block(struct program *, const struct gpt *, const struct work *, const struct llama_block *);
void llama_head(struct program *, const struct gpt *, const struct work *, bool loss_only);

/* Completes and checks how many heads there are and how wide, which a table has read. */
int llama_read_heads(struct gpt *, const char *path, struct rv_error_info *err);
/* Reads the keys of a table that begins with LLAMA_KEYS, and rotary positions. */
int llama_read(struct gpt *, const char *path, const json_t *object, const struct config_key *keys, int count,
               struct rv_error_info *err);

/* The rows of a table that all have; `inner` is the key of the width inside the MLP. Where the file does not
 * say, transformers takes what is here. And with them those of a Llama's own functions. */
#define LLAMA_KEYS(inner)                                                                                    \
        {"hidden_act", CONFIG_ONLY, .right = {"\"silu\""}, .written = true},                                 \
                {"partial_rotary_factor", CONFIG_ONLY, .right = {"1"}},                                      \
                {"rms_norm_eps", CONFIG_REAL, CONFIG_AT(norm_epsilon),                                       \
                 .min = 1e-12,   .max = 1,    .absent = 1e-6},                                               \
                LLAMA_SIZE_KEYS(inner)
#define LLAMA_SIZE_KEYS(inner)                                                                               \
        {"quantization_config", CONFIG_ONLY, .right = {"null"}},                                             \
                {"num_hidden_layers", CONFIG_COUNT, CONFIG_AT(n_layer), .max = GPT_MAX_LAYERS},              \
                {"hidden_size", CONFIG_COUNT, CONFIG_AT(n_embd), .max = GPT_MAX_WIDTH},                      \
                {"num_attention_heads", CONFIG_COUNT, CONFIG_AT(n_head), .max = GPT_MAX_HEADS},              \
                {inner, CONFIG_COUNT, CONFIG_AT(n_inner), .max = GPT_MAX_INNER},                             \
                {"vocab_size", CONFIG_COUNT, CONFIG_AT(vocab_size), .max = GPT_MAX_VOCABULARY},              \
                {"max_position_embeddings", CONFIG_COUNT, CONFIG_AT(n_positions), .max = GPT_MAX_POSITIONS}, \
                {"rope_theta", CONFIG_REAL, CONFIG_AT(rope_theta), .min = 1, .max = 1e12, .absent = 10000},  \
                {"tie_word_embeddings", CONFIG_BOOL, CONFIG_AT(tied), .absent = false},                      \
                {"attention_dropout", .kind = CONFIG_DROPOUT}, {"rope_scaling", .kind = CONFIG_OTHER},       \
                {"rope_parameters", .kind = CONFIG_OTHER},                                                   \
        {                                                                                                    \
                "layer_types", .kind = CONFIG_ONLY_EACH, .right = { "\"full_attention\"" }                   \
        }

#endif
