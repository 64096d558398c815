#include "models/memory.h"

static const char *const names[MEMORY_CATEGORIES] = {
        [MEMORY_WEIGHTS] = "weights",   [MEMORY_GRADIENTS] = "gradients",
        [MEMORY_MASTER] = "master",     [MEMORY_OPTIMIZER] = "optimizer",
        [MEMORY_BUCKETS] = "buckets",   [MEMORY_ACTIVATIONS] = "activations",
        [MEMORY_MESSAGES] = "messages", [MEMORY_WORKSPACE] = "workspace",
        [MEMORY_TOKENS] = "tokens",
};

const char *memory_category_name(enum memory_category category)
{
        return names[category];
}

const char *memory_space_name(enum memory_space space)
{
        return space == MEMORY_HOST ? "host" : "device";
}

int64_t memory_total(const struct memory_bytes *bytes, enum memory_space space)
{
        int64_t total = 0;
        for (int category = 0; category < MEMORY_CATEGORIES; category++)
                total += bytes->in[space][category];
        return total;
}

bool memory_uses_host(const struct memory_bytes *bytes)
{
        const int64_t *host = bytes->in[MEMORY_HOST];
        return memory_total(bytes, MEMORY_HOST) > host[MEMORY_WORKSPACE] + host[MEMORY_TOKENS];
}

int64_t memory_host_shown(const struct memory_bytes *bytes)
{
        return memory_uses_host(bytes) ? memory_total(bytes, MEMORY_HOST) : 0;
}

int64_t memory_aligned(int64_t bytes)
{
        return (bytes + MEMORY_ALIGNMENT - 1) / MEMORY_ALIGNMENT * MEMORY_ALIGNMENT;
}

/* Bytes that one block's buffers take of a slot. */
static int64_t block_bytes(const struct memory_layout *layout)
{
        return layout->block_ln1 + layout->block_qkv + layout->block_attention + layout->block_atty +
               layout->block_residual1 + layout->block_ln2 + layout->block_fc + layout->block_gelu +
               layout->block_residual2 + layout->block_stats;
}

/* The largest two units that follow each other. */
static int64_t two_units(const struct gpt *gpt)
{
        const struct partition_units u = partition_units(gpt);
        const int64_t end = u.embedding > u.head ? u.embedding : u.head;
        return u.block + (end > u.block || gpt->n_layer == 1 ? end : u.block);
}

struct memory_layout memory_layout(const struct gpt *gpt, const struct stage *stage,
                                   const struct memory_plan *plan)
{
        const struct work *work = &plan->work;
        int64_t T = work->seq_len, N = work->micro_batch_size * T, e = work->element_bytes;
        const int shards = stage->shards, C = gpt->n_embd;
        const bool scattered = work->sequence_parallel && shards > 1;
        int64_t R = scattered ? N / shards : N; /* rows that a shard has of what is not split */
        int64_t wide_e = e > 4 ? e : 4;         /* of what is never stored in half precision */
        int64_t loss_rows = workload_loss_rows(gpt, stage, work);
        int64_t logits = memory_aligned((loss_rows ? loss_rows : N) * partition_vocabulary(gpt, stage) * e);
        int64_t parameters = partition_parameters(gpt, stage);
        int64_t sharded = plan->shard_parameters ? plan->shard_parameters : parameters;
        int64_t update = plan->update_parameters < sharded ? plan->update_parameters : sharded;
        int64_t all = memory_aligned(N * C * e);            /* one (B,T,C), */
        int64_t row = memory_aligned(R * C * e);            /* of which a shard has these rows, */
        int64_t own = memory_aligned(N * (C / shards) * e); /* or its heads' columns */
        int64_t qkv = memory_aligned(N * 3 * (C / shards) * e),
                wide = memory_aligned(N * (4 * C / shards) * e);
        /* (B,H,T,T), or, fused, one number a row of it */
        int64_t attention = memory_aligned(N * (gpt->n_head / shards) * (work->fused ? wide_e : T * e));
        struct memory_layout layout = {
                .block_ln1 = row,
                .block_qkv = qkv,
                .block_attention = attention,
                .block_atty = own,
                .block_residual1 = row,
                .block_ln2 = row,
                .block_fc = wide,
                .block_gelu = wide,
                .block_residual2 = row,
                .block_stats = memory_aligned(4 * R * wide_e),
                .embedded = stage->first ? row : 0,
                .final_ln = stage->last ? row : 0,
                .final_stats = stage->last ? memory_aligned(2 * R * wide_e) : 0,
                .logits = stage->last && !loss_rows ? logits : 0,
                .work_logits = stage->last && loss_rows ? logits : 0,
                .message = row,
                .work_c = all,
                .work_4c = wide,
                .work_qkv = qkv,
                .work_attention = attention,
                .work_gather = scattered ? all : 0,
                .work_losses = stage->last && shards > 1 ? memory_aligned(3 * shards * N * wide_e) : 0,
                .work_scalars = memory_aligned(MEMORY_SCALARS * (int64_t)sizeof(double)),
                .tokens = memory_aligned(plan->micro_batches * N * (int64_t)sizeof(int32_t)),
                .parameters = memory_aligned((plan->gathered ? sharded : parameters) * e),
                .gathered = plan->gathered ? memory_aligned(two_units(gpt) * e) : 0,
                .staged = memory_aligned(plan->staged_gradients * e),
                .optimizer = memory_aligned(sharded * wide_e),
                .bucket = plan->offload ? memory_aligned(update * 4) : 0,
        };
        int64_t whole = block_bytes(&layout);
        layout.block = work_recomputes_blocks(work)   ? layout.block_residual2
                       : work_recomputes_scores(work) ? whole - layout.block_attention
                                                      : whole;
        layout.work_block = whole - layout.block;
        layout.slot = layout.embedded + stage->layers / stage->chunks * layout.block + layout.final_ln +
                      layout.final_stats + layout.logits;
        layout.deferred_block = 2 * row + qkv + wide;
        layout.deferred = stage->layers / stage->chunks * layout.deferred_block + layout.embedded;
        layout.zeros = plan->deferred ? memory_aligned(gpt->n_embd * e) : 0;
        return layout;
}

bool memory_countable(const struct gpt *gpt, const struct memory_plan *plan)
{
        const struct work *work = &plan->work;
        double N = (double)work->micro_batch_size * work->seq_len, C = gpt->n_embd;
        /* No buffer has more elements a token than these together, and a block has ten buffers. Of attention
         * a head has a row of scores, or, fused, one number, which is as wide as two elements at most. */
        double attention = (work->fused ? 2.0 : (double)work->seq_len) * gpt->n_head;
        double widest = 4 * C + attention + gpt->vocab_size + 4;
        double slot = (10.0 * gpt->n_layer + 4) * N * widest;
        double parameters = 2.0 * (double)gpt_parameters(gpt);
        double staged = plan->stage_messages ? plan->slots + plan->input_buffers + plan->gradient_buffers : 0;
        double buffers = plan->slots + plan->host_slots + plan->input_buffers + plan->gradient_buffers +
                         plan->deferred + staged + 4.0;
        return work->element_bytes * buffers * slot + 22 * parameters + 16 * N * plan->micro_batches < 0x1p60;
}

/* fp32 copies that the update works on: of parameters and gradients, and the two moments. */
static void count_master(const struct memory_layout *layout, const struct memory_plan *plan,
                         struct memory_bytes *bytes)
{
        if (!plan->offload) {
                bytes->in[MEMORY_DEVICE][MEMORY_MASTER] = 2 * layout->optimizer;
                bytes->in[MEMORY_DEVICE][MEMORY_OPTIMIZER] = 2 * layout->optimizer;
                return;
        }
        bytes->in[MEMORY_HOST][MEMORY_MASTER] = layout->optimizer;
        bytes->in[MEMORY_HOST][MEMORY_OPTIMIZER] = 2 * layout->optimizer;
        bytes->in[MEMORY_DEVICE][MEMORY_BUCKETS] = plan->update_buffers * 4 * layout->bucket;
}

int memory_staged_outputs(const struct stage *stage, const struct memory_plan *plan)
{
        if (!plan->stage_messages)
                return 0;
        if (!stage->last)
                return plan->slots;
        const bool shared = plan->head_slots == plan->slots; /* with chunks whose output is sent */
        return stage->chunks == 1 ? 0 : shared ? plan->slots : plan->slots - plan->head_slots;
}

/* Buffers of messages on the host: outputs that are sent, inputs, gradients that come and go. */
static int staged_messages(const struct stage *stage, const struct memory_plan *plan)
{
        if (!plan->stage_messages)
                return 0;
        return memory_staged_outputs(stage, plan) + plan->input_buffers + plan->gradient_buffers;
}

int64_t memory_workspace(const struct memory_layout *l)
{
        return l->work_c + l->work_4c + l->work_qkv + l->work_attention + l->work_block + l->work_gather +
               l->work_losses + l->work_logits;
}

int64_t memory_slot(const struct memory_layout *layout, const struct stage *stage,
                    const struct memory_plan *plan, int index)
{
        int64_t bytes = layout->slot;
        if (stage->chunks > 1 && index >= plan->embedded_slots)
                bytes -= layout->embedded;
        if (stage->chunks > 1 && index < plan->slots - plan->head_slots)
                bytes -= layout->final_ln + layout->final_stats + layout->logits;
        return bytes;
}

void memory_stage(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan,
                  struct memory_bytes *bytes)
{
        struct memory_layout layout = memory_layout(gpt, stage, plan);
        *bytes = (struct memory_bytes){0};
        int64_t *device = bytes->in[MEMORY_DEVICE];
        device[MEMORY_WEIGHTS] = layout.parameters + layout.gathered;
        device[MEMORY_GRADIENTS] = layout.parameters + layout.gathered;
        if (work_half(&plan->work))
                count_master(&layout, plan, bytes);
        else
                device[MEMORY_OPTIMIZER] = 2 * layout.optimizer;
        device[MEMORY_ACTIVATIONS] = plan->slots * layout.slot + plan->deferred * layout.deferred;
        for (int i = 0; stage->chunks > 1 && i < plan->slots; i++)
                device[MEMORY_ACTIVATIONS] -= layout.slot - memory_slot(&layout, stage, plan, i);
        bytes->in[MEMORY_HOST][MEMORY_ACTIVATIONS] = plan->host_slots * layout.slot;
        bytes->in[MEMORY_HOST][MEMORY_GRADIENTS] = layout.staged;
        bytes->in[MEMORY_HOST][MEMORY_MESSAGES] = staged_messages(stage, plan) * layout.message;
        device[MEMORY_MESSAGES] = (plan->input_buffers + plan->gradient_buffers) * layout.message;
        device[MEMORY_WORKSPACE] = memory_workspace(&layout) + layout.zeros;
        bytes->in[MEMORY_HOST][MEMORY_WORKSPACE] = layout.work_scalars;
        for (int space = 0; space < MEMORY_SPACES; space++)
                bytes->in[space][MEMORY_TOKENS] = (stage->first + stage->last) * layout.tokens;
}
