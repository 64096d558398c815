#include "models/families/experts.h"

#include "models/families/rope.h"

void experts_block(struct program *p, const struct gpt *gpt, const struct work *work,
                   const struct experts_block *has)
{
        const struct program_experts experts = {.count = gpt->n_expert,
                                                .chosen = gpt->n_expert_chosen,
                                                .inner = gpt_inner(gpt),
                                                .router = has->router,
                                                .names = {has->names[0], has->names[1], has->names[2]},
                                                .normalised = has->normalised,
                                                .factor = 1,
                                                .balance = gpt->balance_loss};
        const int middle = llama_attention(p, gpt, work, &has->attention);
        const int norm = program_rmsnorm(p, "post_attention_layernorm", middle, gpt->norm_epsilon);
        program_output(p, program_residual(p, program_mixture(p, &experts, norm), middle));
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
