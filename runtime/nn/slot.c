#include "runtime/nn/slot.h"

#include <math.h>

/* Takes the next `bytes` of a slot. */
static void *take(char **at, int64_t bytes)
{
        void *taken = *at;
        *at += bytes;
        return taken;
}

int slot_chunk_layers(const struct nn_stage *nn)
{
        return nn->stage.layers / nn->stage.chunks;
}

/* A slot holds: the embedding if it can be the model's first chunk's, block after block, then what the last
 * chunk stores if it can be that one's. */
static char *block_start(const struct nn_stage *nn, int slot, int place)
{
        const struct memory_layout *l = &nn->layout;
        const bool embedded = nn->stage.chunks == 1 || slot < nn->plan.embedded_slots;
        return (char *)nn->slots[slot] + (embedded ? l->embedded : 0) + place * l->block;
}

struct block_slot slot_block(const struct nn_stage *nn, int slot, int block)
{
        const struct memory_layout *l = &nn->layout;
        const struct nn_shape s = slot_shape(nn);
        char *stored = block_start(nn, slot, block % slot_chunk_layers(nn));
        char *at = work_recomputes_blocks(&nn->plan.work) ? nn->work_block : stored;
        struct block_slot b;
        b.stats1 = take(&at, l->block_stats); /* both LayerNorms' share one buffer */
        b.stats2 = b.stats1 + 2 * s.R;
        b.ln1 = take(&at, l->block_ln1);
        b.qkv = take(&at, l->block_qkv);
        b.attention = work_recomputes_scores(&nn->plan.work) ? nn->work_block : take(&at, l->block_attention);
        b.atty = take(&at, l->block_atty);
        b.residual1 = take(&at, l->block_residual1);
        b.ln2 = take(&at, l->block_ln2);
        b.fc = take(&at, l->block_fc);
        b.gelu = take(&at, l->block_gelu);
        b.residual2 = work_recomputes_blocks(&nn->plan.work) ? stored : at;
        return b;
}

void *slot_embedded(const struct nn_stage *nn, int slot)
{
        return nn->slots[slot];
}

void *slot_block_input(const struct nn_stage *nn, int slot, int block, int input)
{
        if (block % slot_chunk_layers(nn) > 0)
                return slot_block(nn, slot, block - 1).residual2;
        return nn->stage.first && block == 0 ? slot_embedded(nn, slot) : nn->inputs[input];
}

struct final_slot slot_final(const struct nn_stage *nn, int slot)
{
        char *at = block_start(nn, slot, slot_chunk_layers(nn));
        struct final_slot f;
        f.stats = take(&at, nn->layout.final_stats);
        f.ln = take(&at, nn->layout.final_ln);
        f.logits = nn->work_logits ? nn->work_logits : at;
        return f;
}

struct deferred_block slot_deferred(const struct nn_stage *nn, int deferred, int block)
{
        const struct memory_layout *l = &nn->layout;
        char *at = (char *)nn->deferred[deferred] + l->embedded + block * l->deferred_block;
        struct deferred_block d;
        d.output = take(&at, l->work_c);
        d.fc = take(&at, l->work_4c);
        d.residual = take(&at, l->work_c);
        d.qkv = take(&at, l->work_qkv);
        return d;
}

void *slot_deferred_embedded(const struct nn_stage *nn, int deferred)
{
        return nn->deferred[deferred];
}

void *slot_tensor(const struct nn_stage *nn, void *flat, int tensor)
{
        return nn_at(nn, flat, nn->tensors[tensor].offset);
}

void *slot_block_tensor(const struct nn_stage *nn, void *flat, int block, enum tensor_role role)
{
        return slot_tensor(nn, flat, partition_block_tensor(&nn->stage, block, role));
}

struct nn_shape slot_shape(const struct nn_stage *nn)
{
        const int64_t B = nn->plan.work.micro_batch_size, T = nn->plan.work.seq_len;
        const int64_t C = nn->gpt.n_embd, hs = C / nn->gpt.n_head;
        const int shards = nn->stage.shards;
        const int64_t loss_rows = workload_loss_rows(&nn->gpt, &nn->stage, &nn->plan.work);
        return (struct nn_shape){.B = B,
                                 .T = T,
                                 .N = B * T,
                                 .C = C,
                                 .V = partition_vocabulary(&nn->gpt, &nn->stage),
                                 .H = nn->gpt.n_head / shards,
                                 .hs = hs,
                                 .L = loss_rows ? loss_rows : B * T,
                                 .R = nn->plan.work.sequence_parallel ? B * T / shards : B * T,
                                 .S = C / shards,
                                 .F = 4 * C / shards,
                                 .scale = 1 / sqrt((double)hs)};
}
