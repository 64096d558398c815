#include "models/families/experts.h"

#include "models/families/rope.h"

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
                                                .chosen_groups = gpt->n_group_chosen};
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
