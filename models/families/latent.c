#include "models/families/latent.h"

#include "models/families/rope.h"
#include "runtime/base/file.h"

#include <math.h>

/* Of the inner norms, whatever the file says of the others. */
static const double inner_epsilon = 1e-6;

enum { HEADS = 0, INNER_HEADS = 1 }; /* axes of weights, outputs first */

/* Queries (B,T,H,hs) of the layer's input, or of the few columns that are made of that. */
static int queries(struct program *p, const struct gpt *gpt, int x)
{
        const int64_t heads[] = {gpt->n_head, gpt_head_size(gpt)}, rank = gpt->q_rank;
        if (!rank)
                return program_linear(p, "self_attn.q_proj", x, 2, heads, HEADS);
        const int few = program_linear(p, "self_attn.q_a_proj", x, 1, &rank, STATE_WHOLE);
        const int norm = program_rmsnorm(p, "self_attn.q_a_layernorm", few, inner_epsilon);
        return program_linear(p, "self_attn.q_b_proj", norm, 2, heads, HEADS);
}

/* Queries come after what all shards make alike: in the backward they then are the first to have a gradient
 * of the input, and where that is a part of a sum it is added up before the others are added to it. */
int latent_attention(struct program *p, const struct gpt *gpt, const struct work *work)
{
        const int64_t C = gpt->n_embd, H = gpt->n_head, hs = gpt_head_size(gpt), v = gpt->value_size;
        const int64_t few = gpt->kv_rank + gpt->rope_size, made[] = {H, hs - gpt->rope_size + v};
        const struct latent_heads heads = {.values = v,
                                           .angles = rope_angles_of(gpt),
                                           .length = rope_length(gpt),
                                           .interleaved = gpt->rope_interleaved};
        int parts[2];
        const int x = program_input(p, work->micro_batch_size, work->seq_len, C);
        const int norm = program_rmsnorm(p, "input_layernorm", x, gpt->norm_epsilon);
        const int both = program_linear(p, "self_attn.kv_a_proj_with_mqa", norm, 1, &few, STATE_WHOLE);
        program_split_columns(p, both, gpt->kv_rank, parts);
        const int inner = program_rmsnorm(p, "self_attn.kv_a_layernorm", parts[0], inner_epsilon);
        const int kv = program_linear(p, "self_attn.kv_b_proj", inner, 2, made, HEADS);
        const int qkv = program_latent_qkv(p, queries(p, gpt, norm), kv, parts[1], &heads);
        int attention = program_grouped_attention(p, qkv, H, rope_scores(gpt) / sqrt((double)hs));
        if (v < hs)
                attention = program_narrow(p, attention, v);
        const int y = program_linear(p, "self_attn.o_proj", attention, 1, &C, INNER_HEADS);
        return program_residual(p, y, x);
}

/* ---- config.json ---- */

static int check_heads(const struct gpt *gpt, const char *path, struct rv_error_info *err)
{
        if (gpt_kv_heads(gpt) != gpt->n_head)
                return rv_fail(
                        err, RV_EINPUT,
                        "%s:%d: num_key_value_heads is %d, and of latent attention they are as many as "
                        "num_attention_heads",
                        path, file_line_of(path, "num_key_value_heads"), gpt->n_kv_head);
        if (gpt->rope_size % 2)
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: qk_rope_head_dim is %d; rotary positions need an even number", path,
                               file_line_of(path, "qk_rope_head_dim"), gpt->rope_size);
        if (gpt->value_size > gpt->head_size)
                return rv_fail(
                        err, RV_EINPUT,
                        "%s:%d: v_head_dim is %d; values wider than a head of queries (%d columns) are "
                        "not built",
                        path, file_line_of(path, "v_head_dim"), gpt->value_size, gpt->head_size);
        if ((int64_t)gpt->n_head * gpt->head_size > GPT_MAX_WIDTH)
                return rv_fail(err, RV_EINPUT, "%s:%d: %d heads of %d columns are wider than %d together",
                               path, file_line_of(path, "num_attention_heads"), gpt->n_head, gpt->head_size,
                               GPT_MAX_WIDTH);
        return RV_OK;
}

int latent_read(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        int64_t first = 0;
        if (!json_object_get(object, "q_lora_rank"))
                return rv_fail(err, RV_EINPUT,
                               "%s: q_lora_rank is missing, a whole number or null was expected", path);
        if (file_need_int(path, object, "qk_nope_head_dim", 1, GPT_MAX_WIDTH, &first, err) != RV_OK)
                return RV_EINPUT;
        gpt->head_size = (int)first + gpt->rope_size;
        gpt->n_kv_head = gpt_kv_heads(gpt);
        return check_heads(gpt, path, err) == RV_OK ? rope_read(gpt, path, object, err) : RV_EINPUT;
}

void latent_write(const struct gpt *gpt, json_t *object)
{
        json_object_set_new(object, "qk_nope_head_dim", json_integer(gpt->head_size - gpt->rope_size));
        rope_write(gpt, object);
}
