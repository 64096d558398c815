/* A decoder-only transformer as its hyperparameters, in the words of a Hugging Face config.json of GPT-2. A
 * struct gpt is plain data: it is copied freely and owns nothing.
 *
 * gpt_load reads one from a preset or a file and checks it. Everything else about a model (its tensors,
 * kernels, memory) is derived from it by partition.h, workload.h and memory.h. Enum recompute is here
 * because the count of a batch's operations depends on it. */
#ifndef RANVIER_MODELS_GPT_H
#define RANVIER_MODELS_GPT_H

#include "runtime/base/error.h"
#include "runtime/base/words.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum gpt_family {
        FAMILY_GPT2,
        FAMILY_LLAMA,
        FAMILY_MISTRAL,
        FAMILY_QWEN2,
        FAMILY_QWEN3,
        FAMILY_MIXTRAL,
        FAMILY_QWEN3_MOE,
        FAMILY_DEEPSEEK_V3,
        FAMILY_NEMOTRON,
        FAMILY_DEEPSEEK_V2,
        FAMILIES
}; /* a row each in models/families */

/* The limits of what is read: far above any model that exists, and low enough that no product of a model's
 * sizes overflows. */
enum {
        GPT_MAX_LAYERS = 10000,
        GPT_MAX_WIDTH = 131072,
        GPT_MAX_INNER = 4 * GPT_MAX_WIDTH,
        GPT_MAX_HEADS = 1024,
        GPT_MAX_EXPERTS = 1024,
        GPT_MAX_VOCABULARY = 2097152,
        GPT_MAX_POSITIONS = 262144
};

/* How rotary positions beyond those of a first training are squeezed together (rope_scaling of a
 * config.json). Members that a type does not name are 0. */
enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_TYPES };
struct rope_scaling {
        enum rope_type type;
        double factor; /* all but the default: slow columns turn by so much less */
        /* Of llama3 and yarn: columns that turn less often than `low` in `positions` tokens are slow, those
         * that turn more often than `high` are left alone. */
        double low, high;
        int positions;
        /* Of yarn: by how much what is rotated is longer; 0: 0.1 ln factor + 1. */
        double length;
        /* Of yarn in latent attention: `length` is the quotient of 0.1 mscale ln factor + 1 for these two,
         * and scores are multiplied by the square of the second one's; 0: not given. */
        double mscale, mscale_all;
};

struct gpt {
        char name[64];
        enum gpt_family family;
        /* Blocks, the width of activations (C), heads of queries, and tokens of the vocabulary. */
        int n_layer, n_embd, n_head, vocab_size;
        int n_positions; /* tokens of the longest sequence */
        int n_kv_head;   /* heads of keys and values; 0: as many as n_head (gpt_kv_heads) */
        int n_inner;     /* width inside the MLP; 0: 4 n_embd (gpt_inner) */
        int head_size;   /* columns of a head; 0: n_embd / n_head (gpt_head_size) */
        /* Multi-head latent attention, of whose heads head_size is the width of queries and keys: the columns
         * that queries, and keys and values, are made of (q_rank 0: queries are made of the layer's input;
         * kv_rank 0: attention is not of this kind); of a head's last columns, which are rotated; of a value.
         * rope_size of other attention: of a head's first columns, which are rotated; 0: all are.
         * And whether pairs that turn with each other lie side by side. */
        int q_rank, kv_rank, rope_size, value_size;
        bool rope_interleaved;
        /* Tokens that a token's attention looks back on, itself with them (sliding_window); 0: all. Longer
         * sequences are refused (gpt_check_length), since no kernel leaves any out. */
        int window;
        /* The base of rotary positions and the epsilon of RMSNorm; 0 in families that have neither. */
        double rope_theta, norm_epsilon;
        struct rope_scaling rope_scaling;
        /* Products of attention, and of the MLP, have biases; only of families whose files have such keys. */
        bool attention_bias, mlp_bias;
        /* A mixture of experts: how many a layer has, and how many of them a token goes to; 0: none. n_inner
         * is then the width inside one. And the coefficient of the loss that balances them. */
        int n_expert, n_expert_chosen;
        double balance_loss;
        /* So many of its first blocks have no experts (n_dense < n_layer), and an MLP of this width; 0 where
         * all blocks are of one kind. */
        int n_dense, dense_inner;
        /* The weights of a token's experts add up to 1; only of families whose files have such a key. */
        bool normalised_experts;
        /* An MLP beside the mixture that all tokens go through, as wide as so many experts; 0: none. */
        int n_shared;
        /* Experts are chosen among those of n_group_chosen of n_group groups; 0 or 1: among all. */
        int n_group, n_group_chosen;
        bool best_of_group;  /* groups are chosen by their best expert; else by their two best */
        double routed_scale; /* what the weights of experts are multiplied by; 0: 1 */
        /* Scores are the logistic function of logits, and have a correction when experts are chosen by them;
         * else softmax without one. */
        bool logistic_router;
        bool tied;    /* the output projection is the token embedding (tie_word_embeddings) */
        bool dropout; /* its file asks for dropout, which is not modelled */
        /* Layers behind the last one that predict further tokens, which are not modelled either; their
         * weights in files are left alone. */
        int n_further;
};

/* Returns one sentence on what the model's file asks for and is not modelled, to be shown to the user; NULL
 * where there is nothing to say. The text is static. */
const char *gpt_warning(const struct gpt *gpt);

/* Where presets are (file_find), and the words that gpt_load takes. */
#define GPT_PRESETS "models/presets"
extern const struct option_words gpt_words;

/* Reads a model: a preset's name (models/presets), or the path of a config.json or of a folder with one.
 * Whatever is wrong with it is RV_EINPUT with a sentence. */
int gpt_load(struct gpt *gpt, const char *name_or_path, struct rv_error_info *err);

/* Returns the model as a config.json that gpt_from_json reads; the caller owns the result. */
json_t *gpt_to_json(const struct gpt *gpt);
/* Adds to such an object what transformers looks for beside it: the class of the model, and that its weights
 * are fp32. */
void gpt_add_architecture(const struct gpt *gpt, json_t *config);
/* Reads a model from parsed JSON, as gpt_load does. `path` stands in the sentences of errors, and names the
 * model where the object has no "name". */
int gpt_from_json(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err);

/* Checks a model that was not read from a file: that it is within the limits above, and that its heads
 * divide its width if they are not of a size of their own. RV_EINPUT comes with a sentence that names the key
 * and the limit. */
int gpt_check(const struct gpt *gpt, struct rv_error_info *err);

/* Returns the heads of keys and values; fewer than n_head where groups of heads share them. */
static inline int gpt_kv_heads(const struct gpt *gpt)
{
        return gpt->n_kv_head ? gpt->n_kv_head : gpt->n_head;
}
/* Whether attention may be by kernels that store its scores, so that selective recomputation frees something:
 * a GPT-2's. That of the other families is always the fused kernel. */
static inline bool gpt_stores_scores(const struct gpt *gpt)
{
        return gpt->family == FAMILY_GPT2;
}
/* Returns the columns of a head of queries, keys or values. */
static inline int gpt_head_size(const struct gpt *gpt)
{
        return gpt->head_size ? gpt->head_size : gpt->n_embd / gpt->n_head;
}
/* Returns the columns of a head that rotary positions turn. */
static inline int gpt_rope_size(const struct gpt *gpt)
{
        return gpt->rope_size ? gpt->rope_size : gpt_head_size(gpt);
}
/* Returns the columns of a head's value as the model has them; a kernel of attention may be given more. */
static inline int gpt_value_size(const struct gpt *gpt)
{
        return gpt->value_size ? gpt->value_size : gpt_head_size(gpt);
}
/* Returns the width inside the MLP, in elements. */
static inline int gpt_inner(const struct gpt *gpt)
{
        return gpt->n_inner ? gpt->n_inner : 4 * gpt->n_embd;
}

/* Whether two models are the same but for their names. */
bool gpt_same(const struct gpt *a, const struct gpt *b);

/* Checks that `shards` can share the model evenly: they must divide its heads of queries, its heads of keys
 * and values, and the width inside the MLP. Else RV_EPLAN with a sentence. */
int gpt_check_shards(const struct gpt *gpt, int shards, struct rv_error_info *err);

/* Returns the tokens of the longest sequence that the model's attention is computed exactly for: n_positions,
 * or its sliding window if that is less. Where nobody says how long sequences are, they are so long. */
static inline int gpt_longest(const struct gpt *gpt)
{
        return gpt->window && gpt->window < gpt->n_positions ? gpt->window : gpt->n_positions;
}
/* Checks that sequences are no longer than that. Else RV_EPLAN with a sentence. */
int gpt_check_length(const struct gpt *gpt, int seq_len, struct rv_error_info *err);
/* Checks that the experts of a layer can be spread over `ranks` ranks evenly. Else RV_EPLAN with a
 * sentence. */
int gpt_check_experts(const struct gpt *gpt, int ranks, struct rv_error_info *err);

/* Returns the parameters of the whole model; a tied embedding counts once. */
int64_t gpt_parameters(const struct gpt *gpt);

/* What a block's backward computes again, so that it need not be stored. */
enum recompute {
        RECOMPUTE_NONE,
        /* A block from its stored input on, but without its last product, whose result nobody reads; of a
         * mixture beside shared experts, without the last of both. */
        RECOMPUTE_FULL,
        /* Scores and softmax of attention, (T,T) a head (Korthikanti et al. 2022). */
        RECOMPUTE_SELECTIVE,
        /* As full, and the last product too, as frameworks do that wrap a layer whole. */
        RECOMPUTE_LAYER,
        /* Results that cost little to make again: those of norms, of SwiGLU, of both. */
        RECOMPUTE_NORMS,
        RECOMPUTE_SWIGLU,
        RECOMPUTE_NORMS_SWIGLU,
        RECOMPUTES
};
extern const struct option_words recompute_words;
const char *recompute_name(enum recompute recompute); /* "none", "full", ..., "norms+swiglu" */
/* Returns the enum recompute of a name, or -1. Both words of a set may come in either order, with a plus or
 * a comma between them. */
int recompute_of_name(const char *name);
static inline bool recompute_has_norms(enum recompute recompute)
{
        return recompute == RECOMPUTE_NORMS || recompute == RECOMPUTE_NORMS_SWIGLU;
}
static inline bool recompute_has_swiglu(enum recompute recompute)
{
        return recompute == RECOMPUTE_SWIGLU || recompute == RECOMPUTE_NORMS_SWIGLU;
}
/* Returns a rank that grows with what is computed again: none (0), one of norms and swiglu, both, selective,
 * full, layer (5). */
int recompute_depth(enum recompute recompute);

/* Returns the floating-point operations of one batch of `batch` sequences of `seq_len` tokens, forward and
 * backward. It counts products alone, and attention as if it were not causal: for GPT-2 what Narayanan et
 * al. 2021 count (eq. 3, whose 96 = 3 x 24 + 24 B s l h^2 includes one recomputation of the layers; without
 * it the factor is 72). Our full recomputation stops before a block's last product, so with it GPT-2's
 * factor is 88; layer has 96. Selective adds Q K^T once more. It does not add P V, whose result is stored
 * because backward needs it (frameworks that wrap all of attention run that product too, 2 B s^2 l h more).
 * Norms and swiglu add no products. */
double gpt_batch_flops(const struct gpt *gpt, int64_t batch, int seq_len, enum recompute recompute);

#endif
