#include "models/partition.h"

#include <assert.h>
#include <stdio.h>

struct stage partition_stage(const struct gpt *gpt, int stages, int index)
{
        assert(1 <= stages && stages <= gpt->n_layer && 0 <= index && index < stages);
        int each = gpt->n_layer / stages, more = gpt->n_layer % stages;
        return (struct stage){
                .index = index,
                .stages = stages,
                .first_layer = index * each + (index < more ? index : more),
                .layers = each + (index < more ? 1 : 0),
                .first = index == 0,
                .last = index == stages - 1,
        };
}

/* Identities of the tensors outside the blocks; block b's follow from FIRST_BLOCK_ID. */
enum { WTE_ID, WPE_ID, LNF_W_ID, LNF_B_ID, HEAD_ID, FIRST_BLOCK_ID = 16 };

/* The list under construction; `out` may be NULL. */
struct list {
        struct tensor *out;
        int count;
        int64_t elements;
};

static void add(struct list *list, const char *name, int block, int rows, int cols, enum tensor_init init,
                uint32_t id)
{
        int64_t elements = (int64_t)rows * cols;
        if (list->out) {
                struct tensor *tensor = &list->out[list->count];
                *tensor = (struct tensor){.rows = rows,
                                          .cols = cols,
                                          .offset = list->elements,
                                          .elements = elements,
                                          .decay = init == INIT_NORMAL || init == INIT_NORMAL_RESIDUAL,
                                          .init = init,
                                          .id = id};
                if (block < 0)
                        snprintf(tensor->name, sizeof tensor->name, "%s", name);
                else
                        snprintf(tensor->name, sizeof tensor->name, "transformer.h.%d.%s", block, name);
        }
        list->count++;
        list->elements += elements;
}

/* `block` counts over the whole model. */
static void add_block(struct list *list, int C, int block)
{
        const struct {
                const char *name;
                int rows, cols;
                enum tensor_init init;
        } tensors[BLOCK_TENSORS] = {
                [BLOCK_LN1_W] = {"ln_1.weight", 1, C, INIT_ONE},
                [BLOCK_LN1_B] = {"ln_1.bias", 1, C, INIT_ZERO},
                [BLOCK_QKV_W] = {"attn.c_attn.weight", 3 * C, C, INIT_NORMAL},
                [BLOCK_QKV_B] = {"attn.c_attn.bias", 1, 3 * C, INIT_ZERO},
                [BLOCK_PROJ_W] = {"attn.c_proj.weight", C, C, INIT_NORMAL_RESIDUAL},
                [BLOCK_PROJ_B] = {"attn.c_proj.bias", 1, C, INIT_ZERO},
                [BLOCK_LN2_W] = {"ln_2.weight", 1, C, INIT_ONE},
                [BLOCK_LN2_B] = {"ln_2.bias", 1, C, INIT_ZERO},
                [BLOCK_FC_W] = {"mlp.c_fc.weight", 4 * C, C, INIT_NORMAL},
                [BLOCK_FC_B] = {"mlp.c_fc.bias", 1, 4 * C, INIT_ZERO},
                [BLOCK_FCPROJ_W] = {"mlp.c_proj.weight", C, 4 * C, INIT_NORMAL_RESIDUAL},
                [BLOCK_FCPROJ_B] = {"mlp.c_proj.bias", 1, C, INIT_ZERO},
        };
        for (int role = 0; role < BLOCK_TENSORS; role++)
                add(list, tensors[role].name, block, tensors[role].rows, tensors[role].cols,
                    tensors[role].init, (uint32_t)(FIRST_BLOCK_ID + block * BLOCK_TENSORS + role));
}

static struct list list_tensors(const struct gpt *gpt, const struct stage *stage, struct tensor *out)
{
        struct list list = {.out = out};
        int C = gpt->n_embd, V = gpt->vocab_size;
        if (stage->first) {
                add(&list, "transformer.wte.weight", -1, V, C, INIT_NORMAL, WTE_ID);
                add(&list, "transformer.wpe.weight", -1, gpt->n_positions, C, INIT_NORMAL, WPE_ID);
        }
        for (int block = 0; block < stage->layers; block++)
                add_block(&list, C, stage->first_layer + block);
        if (stage->last) {
                add(&list, "transformer.ln_f.weight", -1, 1, C, INIT_ONE, LNF_W_ID);
                add(&list, "transformer.ln_f.bias", -1, 1, C, INIT_ZERO, LNF_B_ID);
                if (!gpt->tied)
                        add(&list, "lm_head.weight", -1, V, C, INIT_NORMAL, HEAD_ID);
                else if (!stage->first)
                        add(&list, "transformer.wte.weight", -1, V, C, INIT_NORMAL, WTE_ID);
        }
        return list;
}

int partition_tensors(const struct gpt *gpt, const struct stage *stage, struct tensor *out)
{
        return list_tensors(gpt, stage, out).count;
}

int64_t partition_parameters(const struct gpt *gpt, const struct stage *stage)
{
        return list_tensors(gpt, stage, NULL).elements;
}

int partition_block_tensor(const struct stage *stage, int block, enum tensor_role role)
{
        if (block < 0 || block >= stage->layers)
                return -1;
        return (stage->first ? 2 : 0) + block * BLOCK_TENSORS + (int)role;
}

int partition_wte(const struct stage *stage)
{
        return stage->first ? 0 : -1;
}

int partition_wpe(const struct stage *stage)
{
        return stage->first ? 1 : -1;
}

int partition_lnf_weight(const struct stage *stage)
{
        return stage->last ? (stage->first ? 2 : 0) + stage->layers * BLOCK_TENSORS : -1;
}

int partition_head(const struct gpt *gpt, const struct stage *stage)
{
        if (!stage->last)
                return -1;
        return gpt->tied && stage->first ? partition_wte(stage) : partition_lnf_weight(stage) + 2;
}
