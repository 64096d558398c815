#include "models/families/families.h"

const struct family *family_at(enum gpt_family id)
{
        static const struct family *const families[FAMILIES] = {
                [FAMILY_GPT2] = &family_gpt2,           [FAMILY_LLAMA] = &family_llama,
                [FAMILY_MISTRAL] = &family_mistral,     [FAMILY_QWEN2] = &family_qwen2,
                [FAMILY_QWEN3] = &family_qwen3,         [FAMILY_MIXTRAL] = &family_mixtral,
                [FAMILY_QWEN3_MOE] = &family_qwen3_moe, [FAMILY_DEEPSEEK_V3] = &family_deepseek_v3,
                [FAMILY_NEMOTRON] = &family_nemotron,   [FAMILY_DEEPSEEK_V2] = &family_deepseek_v2,
        };
        return families[id];
}

void family_build(struct program *program, enum layer layer, const struct gpt *gpt, const struct work *work)
{
        const struct family *family = family_at(gpt->family);
        if (layer == LAYER_EMBEDDING)
                family->embedding(program, gpt, work);
        else if (layer == LAYER_BLOCK)
                family->block(program, gpt, work);
        else if (layer != LAYER_DENSE)
                family->head(program, gpt, work, layer == LAYER_VALIDATION);
        else if (gpt->n_dense > 0)
                family->dense(program, gpt, work);
}
