#include "models/families/families.h"

void gpt2_embedding(struct program *p, const struct gpt *gpt, const struct work *work)
{
        const int tokens = program_tokens(p, "tokens", work->micro_batch_size, work->seq_len);
        program_output(p, program_embedding(p, tokens, gpt->vocab_size, gpt->n_positions, gpt->n_embd));
}

void gpt2_block(struct program *p, const struct gpt *gpt, const struct work *work)
{
        const int64_t C = gpt->n_embd, H = gpt->n_head, hs = C / H;
        enum { HEADS = 1, INNER_HEADS = 1, INNER = 1, OUTER = 0 }; /* axes of weights, outputs first */
        const int x = program_input(p, work->micro_batch_size, work->seq_len, C);
        const int ln_1 = program_layernorm(p, "ln_1", x);
        int qkv = program_linear(p, "attn.c_attn", ln_1, 3, (int64_t[]){3, H, hs}, HEADS);
        qkv = program_bias(p, "attn.c_attn", qkv);
        const int attention = program_attention(p, qkv);
        int middle = program_linear(p, "attn.c_proj", attention, 1, &C, INNER_HEADS);
        middle = program_bias_residual(p, "attn.c_proj", middle, x);
        const int ln_2 = program_layernorm(p, "ln_2", middle);
        const int fc = program_linear(p, "mlp.c_fc", ln_2, 1, (int64_t[]){4 * C}, OUTER);
        const int gelu = program_bias_gelu(p, "mlp.c_fc", fc);
        const int y = program_linear(p, "mlp.c_proj", gelu, 1, &C, INNER);
        program_output(p, program_bias_residual(p, "mlp.c_proj", y, middle));
}

static void head(struct program *p, const struct gpt *gpt, const struct work *work, bool loss_only)
{
        const int targets = program_tokens(p, "targets", work->micro_batch_size, work->seq_len);
        const int x = program_input(p, work->micro_batch_size, work->seq_len, gpt->n_embd);
        program_loss(p, "lm_head", program_layernorm(p, "ln_f", x), gpt->vocab_size, targets, loss_only);
}

void gpt2_head(struct program *p, const struct gpt *gpt, const struct work *work)
{
        head(p, gpt, work, false);
}

void gpt2_validation(struct program *p, const struct gpt *gpt, const struct work *work)
{
        head(p, gpt, work, true);
}
