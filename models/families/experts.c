#include "models/families/experts.h"

#include "models/families/rope.h"
#include "runtime/base/file.h"

static int mixture(struct program *p, const struct gpt *gpt, int x, const struct experts_block *has)
{
        const struct program_experts experts = {.count = gpt->n_expert,
                                                .chosen = gpt->n_expert_chosen,
                                                .inner = gpt_inner(gpt),
                                                .router = has->router,
                                                .names = {has->names[0], has->names[1], has->names[2]},
                                                .correction = gpt->logistic_router ? "e_score_correction_bias"
                                                                                   : NULL,
                                                .logistic = gpt->logistic_router,
                                                .normalised = has->normalised,
                                                .factor = gpt->routed_scale != 0 ? gpt->routed_scale : 1,
                                                .balance = gpt->balance_loss,
                                                .groups = gpt->n_group,
                                                .chosen_groups = gpt->n_group_chosen,
                                                .best_of_group = gpt->best_of_group};
        return program_mixture(p, &experts, x);
}

/* What all tokens go through: one MLP, as wide as all shared experts. */
static int shared(struct program *p, const struct gpt *gpt, int x)
{
        const int64_t C = gpt->n_embd, F = (int64_t)gpt->n_shared * gpt_inner(gpt);
        enum { HALVES = 1, INNER = 1 };
        const struct linear_piece gates_of[] = {{"mlp.shared_experts.gate_proj", F},
                                                {"mlp.shared_experts.up_proj", F}};
        const int gates = program_linear_of(p, 2, gates_of, x, 2, (int64_t[]){2, F}, HALVES);
        return program_linear(p, "mlp.shared_experts.down_proj", program_swiglu(p, gates), 1, &C, INNER);
}

int experts_mlp(struct program *p, const struct gpt *gpt, int x, const struct experts_block *has)
{
        const int norm = program_rmsnorm(p, "post_attention_layernorm", x, gpt->norm_epsilon);
        const int routed = mixture(p, gpt, norm, has);
        const int all = gpt->n_shared ? program_residual(p, shared(p, gpt, norm), routed) : routed;
        return program_residual(p, all, x);
}

void experts_block(struct program *p, const struct gpt *gpt, const struct work *work,
                   const struct experts_block *has)
{
        program_output(p, experts_mlp(p, gpt, llama_attention(p, gpt, work, &has->attention), has));
}

int experts_read(struct gpt *gpt, const char *path, const json_t *object, const char *experts,
                 const struct config_key *keys, int count, struct rv_error_info *err)
{
        if (llama_read(gpt, path, object, keys, count, err) != RV_OK)
                return RV_EINPUT;
        if (gpt->n_expert_chosen > gpt->n_expert)
                return config_wrong(path, "num_experts_per_tok",
                                    json_object_get(object, "num_experts_per_tok"), err,
                                    "a number up to %s, %d, was expected", experts, gpt->n_expert);
        if (!json_is_true(json_object_get(object, "output_router_logits")))
                gpt->balance_loss =
                        0; /* transformers adds the loss only where the file asks for the logits */
        return RV_OK;
}

/* The loss that balances experts is added where the logits of routers are asked for. */
void experts_write(const struct gpt *gpt, json_t *object)
{
        rope_write(gpt, object);
        json_object_set_new(object, "output_router_logits", json_boolean(gpt->balance_loss > 0));
}

/* ---- DeepSeek's keys ---- */

/* How a number came about that may be a default. */
static const char *said(const json_t *object, const char *key)
{
        return json_is_integer(json_object_get(object, key)) ? "is" : "is missing, which means";
}

/* Transformers too takes 8 groups, and 4 of them, where the file does not say. */
static int check_groups(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        gpt->n_group = gpt->n_group ? gpt->n_group : 8;
        gpt->n_group_chosen = gpt->n_group_chosen ? gpt->n_group_chosen : 4;
        const int groups = gpt->n_group, most = gpt->n_expert / groups * gpt->n_group_chosen;
        if (gpt->n_expert % groups || (groups > 1 && gpt->n_expert == groups))
                return rv_fail(
                        err, RV_EINPUT,
                        "%s:%d: n_group %s %d, 1 was expected, or a divisor of n_routed_experts %d that "
                        "leaves two experts or more in a group",
                        path, file_line_of(path, "n_group"), said(object, "n_group"), groups, gpt->n_expert);
        if (gpt->n_group_chosen > groups)
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: topk_group %s %d, a number up to n_group %d was expected", path,
                               file_line_of(path, "topk_group"), said(object, "topk_group"),
                               gpt->n_group_chosen, groups);
        if (gpt->n_expert_chosen > most)
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: num_experts_per_tok is %d, and the groups that topk_group %d chooses "
                               "have only %d experts",
                               path, file_line_of(path, "num_experts_per_tok"), gpt->n_expert_chosen,
                               gpt->n_group_chosen, most);
        return RV_OK;
}

/* Where a file of DeepSeek-V3 does not say, the first 3 blocks have no experts, in transformers too. */
static int read_dense(const struct gpt *gpt, int *dense, const char *path, const json_t *object,
                      struct rv_error_info *err)
{
        const char *key = "first_k_dense_replace";
        int64_t count = gpt->family == FAMILY_DEEPSEEK_V2 ? 0 : 3;
        if (json_object_get(object, key) &&
            file_need_int(path, object, key, 0, GPT_MAX_LAYERS, &count, err) != RV_OK)
                return RV_EINPUT;
        *dense = (int)count;
        return RV_OK;
}

int deepseek_experts_read(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        int dense, inner = 0;
        const struct {
                const char *key;
                int max, *member;
        } needed[] = {{"n_routed_experts", GPT_MAX_EXPERTS, &gpt->n_expert},
                      {"num_experts_per_tok", GPT_MAX_EXPERTS, &gpt->n_expert_chosen},
                      {"moe_intermediate_size", GPT_MAX_INNER, &inner}};
        gpt->logistic_router = gpt->family != FAMILY_DEEPSEEK_V2;
        if (read_dense(gpt, &dense, path, object, err) != RV_OK)
                return RV_EINPUT;
        if (dense >= gpt->n_layer) {
                gpt->n_expert = gpt->n_expert_chosen = gpt->n_shared = gpt->n_group = gpt->n_group_chosen = 0;
                return RV_OK;
        }
        for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
                int64_t count;
                if (file_need_int(path, object, needed[i].key, 1, needed[i].max, &count, err) != RV_OK)
                        return RV_EINPUT;
                *needed[i].member = (int)count;
        }
        gpt->n_dense = dense;
        gpt->dense_inner = gpt->n_inner;
        gpt->n_inner = inner;
        if (!json_object_get(object, "n_shared_experts"))
                gpt->n_shared = gpt->family == FAMILY_DEEPSEEK_V2 ? 2 : 1;
        return check_groups(gpt, path, object, err);
}

void deepseek_experts_write(const struct gpt *gpt, json_t *object)
{
        const bool experts = gpt->n_expert > 0;
        json_object_set_new(object, "first_k_dense_replace",
                            json_integer(experts ? gpt->n_dense : gpt->n_layer));
        if (!experts)
                return;
        json_object_set_new(object, "intermediate_size", json_integer(gpt->dense_inner));
        json_object_set_new(object, "moe_intermediate_size", json_integer(gpt->n_inner));
}
