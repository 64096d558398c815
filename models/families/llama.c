/* Llama (Touvron et al. 2023): pre-RMSNorm blocks, rotary positions, grouped queries, SwiGLU; biases only
 * where the file asks for them. */
#include "models/families/llama.h"

#include "models/families/rope.h"
#include "runtime/base/file.h"

#include <math.h>
#include <string.h>

void llama_embedding(struct program *p, const struct gpt *gpt, const struct work *work)
{
        const int tokens = program_tokens(p, "tokens", work->micro_batch_size, work->seq_len);
        program_output(
                p, program_embedding(p, "model.embed_tokens", NULL, tokens, gpt->vocab_size, 0, gpt->n_embd));
}

int llama_add_to(struct program *p, int x, const char *name, int y, bool bias)
{
        return bias ? program_bias_residual(p, name, y, x) : program_residual(p, y, x);
}

int llama_attention_of(struct program *p, const struct gpt *gpt, int x, int norm,
                       const struct llama_block *has)
{
        const int64_t C = gpt->n_embd, H = gpt->n_head, KV = gpt_kv_heads(gpt), hs = gpt_head_size(gpt);
        enum { HEADS = 0, INNER_HEADS = 1 }; /* axes of weights, outputs first */
        const struct linear_piece qkv_of[] = {
                {"self_attn.q_proj", H * hs}, {"self_attn.k_proj", KV * hs}, {"self_attn.v_proj", KV * hs}};
        const struct rope_angles angles = rope_angles_of(gpt);
        const double length = rope_length(gpt), scale = length * length / sqrt((double)hs);
        int qkv = program_linear_of(p, 3, qkv_of, norm, 2, (int64_t[]){H + 2 * KV, hs}, HEADS);
        if (has->qkv_bias)
                qkv = program_bias_of(p, 3, qkv_of, qkv);
        if (has->head_norms)
                qkv = program_head_norms(p, "self_attn.q_norm", "self_attn.k_norm", qkv, H,
                                         gpt->norm_epsilon);
        qkv = program_rope(p, qkv, H, gpt_rope_size(gpt), &angles);
        const int attention = program_grouped_attention(p, qkv, H, scale);
        const int y = program_linear(p, "self_attn.o_proj", attention, 1, &C, INNER_HEADS);
        return llama_add_to(p, x, "self_attn.o_proj", y, has->output_bias);
}

int llama_attention(struct program *p, const struct gpt *gpt, const struct work *work,
                    const struct llama_block *has)
{
        const int x = program_input(p, work->micro_batch_size, work->seq_len, gpt->n_embd);
        return llama_attention_of(p, gpt, x, program_rmsnorm(p, "input_layernorm", x, gpt->norm_epsilon),
                                  has);
}

void llama_mlp(struct program *p, const struct gpt *gpt, int middle, bool bias)
{
        const int64_t C = gpt->n_embd, F = gpt_inner(gpt);
        enum { HALVES = 1, INNER = 1 };
        const struct linear_piece gates_of[] = {{"mlp.gate_proj", F}, {"mlp.up_proj", F}};
        const int norm_2 = program_rmsnorm(p, "post_attention_layernorm", middle, gpt->norm_epsilon);
        int gates = program_linear_of(p, 2, gates_of, norm_2, 2, (int64_t[]){2, F}, HALVES);
        if (bias)
                gates = program_bias_of(p, 2, gates_of, gates);
        const int y = program_linear(p, "mlp.down_proj", program_swiglu(p, gates), 1, &C, INNER);
        program_output(p, llama_add_to(p, middle, "mlp.down_proj", y, bias));
}

void llama_block(struct program *p, const struct gpt *gpt, const struct work *work,
                 const struct llama_block *has)
{
        llama_mlp(p, gpt, llama_attention(p, gpt, work, has), has->mlp_bias);
}

void llama_head(struct program *p, const struct gpt *gpt, const struct work *work, bool loss_only)
{
        const int targets = program_tokens(p, "targets", work->micro_batch_size, work->seq_len);
        const int x = program_input(p, work->micro_batch_size, work->seq_len, gpt->n_embd);
        const int norm = program_rmsnorm(p, "model.norm", x, gpt->norm_epsilon);
        program_loss(p, "lm_head", norm, gpt->vocab_size, targets, loss_only);
}

static void block(struct program *p, const struct gpt *gpt, const struct work *work)
{
        llama_block(p, gpt, work,
                    &(struct llama_block){.qkv_bias = gpt->attention_bias,
                                          .output_bias = gpt->attention_bias,
                                          .mlp_bias = gpt->mlp_bias});
}

/* ---- config.json ---- */

static const struct config_key keys[] = {
        LLAMA_KEYS("intermediate_size"),
        {"attention_bias", CONFIG_BOOL, CONFIG_AT(attention_bias), .absent = false},
        {"mlp_bias", CONFIG_BOOL, CONFIG_AT(mlp_bias), .absent = false},
        {"sliding_window", CONFIG_ONLY, .right = {"null"}},
        {"num_key_value_heads", CONFIG_OPTIONAL, CONFIG_AT(n_kv_head), .max = GPT_MAX_HEADS},
        {"head_dim", CONFIG_OPTIONAL, CONFIG_AT(head_size), .max = GPT_MAX_WIDTH},
};
enum { KEYS = sizeof keys / sizeof *keys };

/* Where the file does not say, heads share the width, and each of queries has one of keys and values. */
int llama_read_heads(struct gpt *gpt, const char *path, struct rv_error_info *err)
{
        if (!gpt->head_size && gpt->n_embd % gpt->n_head)
                return rv_fail(
                        err, RV_EINPUT,
                        "%s:%d: num_attention_heads %d does not divide hidden_size %d, and there is no "
                        "head_dim",
                        path, file_line_of(path, "num_attention_heads"), gpt->n_head, gpt->n_embd);
        const bool own = gpt->head_size > 0;
        gpt->head_size = gpt_head_size(gpt);
        gpt->n_kv_head = gpt_kv_heads(gpt);
        if (gpt->n_head % gpt->n_kv_head)
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: num_key_value_heads %d does not divide num_attention_heads %d", path,
                               file_line_of(path, "num_key_value_heads"), gpt->n_kv_head, gpt->n_head);
        if (gpt->head_size % 2)
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: a head has %s %d columns; rotary positions need an even number", path,
                               file_line_of(path, own ? "head_dim" : "num_attention_heads"),
                               own ? "head_dim =" : "hidden_size / num_attention_heads =", gpt->head_size);
        if ((int64_t)gpt->n_head * gpt->head_size > GPT_MAX_WIDTH)
                return rv_fail(err, RV_EINPUT, "%s:%d: %d heads of head_dim %d are wider than %d together",
                               path, file_line_of(path, "head_dim"), gpt->n_head, gpt->head_size,
                               GPT_MAX_WIDTH);
        return RV_OK;
}

int llama_read(struct gpt *gpt, const char *path, const json_t *object, const struct config_key *own,
               int count, struct rv_error_info *err)
{
        const bool sound = config_read(gpt, path, object, own, count, err) == RV_OK &&
                           llama_read_heads(gpt, path, err) == RV_OK &&
                           rope_read(gpt, path, object, err) == RV_OK;
        return sound ? RV_OK : RV_EINPUT;
}

static int read_config(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        return llama_read(gpt, path, object, keys, KEYS, err);
}

const struct family family_llama = {
        .model_type = "llama",
        .id = FAMILY_LLAMA,
        .architecture = "LlamaForCausalLM",
        .layers = "model.layers.",
        .embedding = llama_embedding,
        .block = block,
        .head = llama_head,
        .keys = keys,
        .key_count = KEYS,
        .read = read_config,
        .write = rope_write,
};
