#include "models/memory.h"

#include "runtime/base/minmax.h"

static const char *const names[MEMORY_CATEGORIES] = {
        [MEMORY_WEIGHTS] = "weights",   [MEMORY_GRADIENTS] = "gradients",
        [MEMORY_MASTER] = "master",     [MEMORY_OPTIMIZER] = "optimizer",
        [MEMORY_BUCKETS] = "buckets",   [MEMORY_ACTIVATIONS] = "activations",
        [MEMORY_MESSAGES] = "messages", [MEMORY_WORKSPACE] = "workspace",
        [MEMORY_TOKENS] = "tokens",     [MEMORY_FRAMEWORK] = "framework",
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

/* Zero 2 and 3: elements of the nth unit of blocks. */
static int64_t unit_elements(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan,
                             int nth)
{
        const int each = max_int(plan->unit_layers, 1);
        return partition_blocks(gpt, stage, min_int((nth + 1) * each, stage->layers)) -
               partition_blocks(gpt, stage, nth * each);
}

/* How many units from this one on have as many blocks of either kind. */
static int alike(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan, int nth)
{
        const int each = max_int(plan->unit_layers, 1), dense = partition_dense(gpt, stage);
        if ((nth + 1) * each <= dense)
                return dense / each - nth;
        if (nth * each < dense || (nth + 1) * each > stage->layers)
                return 1;
        return stage->layers / each - nth;
}

static int64_t largest_unit(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan)
{
        int64_t largest = 0;
        for (int nth = 0; nth * max_int(plan->unit_layers, 1) < stage->layers;
             nth += alike(gpt, stage, plan, nth))
                largest = max_int64(largest, unit_elements(gpt, stage, plan, nth));
        return largest;
}

/* Of elements of `e` bytes. */
static int64_t unit_place(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan,
                          const struct memory_unit_buffers *buffers, int nth, int64_t e)
{
        const struct partition_units u = partition_stage_units(gpt, stage);
        const bool tied = gpt->tied && stage->first && stage->last;
        const int64_t blocks = nth - buffers->ends,
                      one = tied ? u.embedding + u.head : max_int64(u.embedding, u.head);
        int64_t place = 0;
        if (nth > 0 && buffers->ends > 0)
                place += memory_aligned((buffers->ends == 2 ? u.embedding : one) * e);
        if (nth > 1 && buffers->ends == 2)
                place += memory_aligned(u.head * e);
        if (blocks > 0 && !buffers->own)
                place += blocks * memory_aligned(largest_unit(gpt, stage, plan) * e);
        for (int unit = 0, same; buffers->own && unit < blocks; unit += same) {
                same = min_int(alike(gpt, stage, plan, unit), (int)blocks - unit);
                place += same * memory_aligned(unit_elements(gpt, stage, plan, unit) * e);
        }
        return place;
}

int64_t memory_unit_place(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan,
                          const struct memory_unit_buffers *buffers, int nth)
{
        return unit_place(gpt, stage, plan, buffers, nth, work_element_bytes(&plan->work));
}

int64_t memory_widened_place(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan,
                             int nth)
{
        return unit_place(gpt, stage, plan, &plan->unit_gradients, nth, 4);
}

static int64_t units_bytes(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan,
                           const struct memory_unit_buffers *buffers)
{
        return plan->gathered ? memory_unit_place(gpt, stage, plan, buffers, buffers->ends + buffers->blocks)
                              : 0;
}

static bool stage_has(const struct gpt *gpt, const struct stage *stage, enum layer layer)
{
        const int dense = partition_dense(gpt, stage);
        return layer == LAYER_EMBEDDING ? stage->first
               : layer == LAYER_DENSE   ? dense > 0
               : layer == LAYER_BLOCK   ? stage->layers > dense
                                        : stage->last;
}

/* The blocks of a slot are as long as the longest. */
static int64_t slot_block(const struct gpt *gpt, const struct stage *stage,
                          const struct workload_bytes *bytes)
{
        int64_t longest = 0;
        for (int layer = LAYER_DENSE; layer <= LAYER_BLOCK; layer++)
                if (stage_has(gpt, stage, (enum layer)layer))
                        longest = max_int64(longest, bytes->slot[layer]);
        return longest;
}

/* What the passes of a stage's layers need at once; backwards of its first `deferred` layers are in two
 * parts. */
static int64_t workspace(const struct gpt *gpt, const struct workload_bytes *bytes, const struct stage *stage,
                         int deferred)
{
        const int parted = deferred > 0, all = parted && deferred == stage->layers;
        int64_t max = 0, gathered = 0, reduced = 0;
        for (int layer = 0; layer < LAYERS; layer++) {
                const bool has = stage_has(gpt, stage, (enum layer)layer);
                gathered = max_int64(gathered, has ? bytes->ahead[layer].gathered : 0);
                reduced = max_int64(reduced, has ? bytes->ahead[layer].reduced : 0);
                for (int in_parts = all; has && in_parts <= parted; in_parts++)
                        max = max_int64(max, bytes->workspace[layer][in_parts]);
        }
        return max + WORKLOAD_AHEAD * (gathered + reduced);
}

/* Of the parameters of all of the stage's blocks. */
static int64_t copies(const struct gpt *gpt, const struct stage *stage, const struct workload_bytes *bytes)
{
        const int dense = partition_dense(gpt, stage);
        return dense * bytes->copies[LAYER_DENSE] + (stage->layers - dense) * bytes->copies[LAYER_BLOCK];
}

int memory_deferred_layers(const struct memory_plan *plan, const struct stage *stage)
{
        const int some = plan->deferred_layers;
        return plan->deferred == 0 ? 0 : some > 0 && some < stage->layers ? some : stage->layers;
}

struct memory_layout memory_layout(const struct gpt *gpt, const struct stage *stage,
                                   const struct memory_plan *plan)
{
        const struct work *work = &plan->work;
        const struct workload_bytes bytes = workload_bytes(gpt, work, stage->shards);
        const int64_t N = (int64_t)work->micro_batch_size * work->seq_len, e = work_element_bytes(work);
        const bool scattered = work->sequence_parallel && stage->shards > 1;
        const int64_t rows = scattered ? N / stage->shards : N; /* that a shard has of what is not split */
        const int64_t columns = gpt->n_embd / work_shards_x(work);
        const int64_t wide_e = e > 4 ? e : 4; /* of what is never stored in 16 bits */
        const int64_t parameters = partition_parameters(gpt, stage);
        const int64_t sharded = plan->shard_parameters ? plan->shard_parameters : parameters;
        const bool fp32 = plan->reduce_fp32 || plan->work.wide_gradients; /* gradients, as they are kept */
        const int64_t kept = plan->gathered ? sharded : parameters, kept_e = fp32 ? 4 : e;
        const struct memory_unit_buffers *reduced = &plan->unit_gradients;
        const int64_t update = plan->update_parameters < sharded ? plan->update_parameters : sharded;
        int first, end;
        const int chunk_layers = partition_longest_chunk(stage, &first, &end);
        const int parted = memory_deferred_layers(plan, stage);
        const int64_t spread = work_expert_ranks(&plan->work);
        struct memory_layout layout = {
                .embedded = stage->first ? bytes.slot[LAYER_EMBEDDING] : 0,
                .block = slot_block(gpt, stage, &bytes),
                .head = stage->last ? bytes.slot[LAYER_HEAD] : 0,
                .message = memory_aligned(rows * columns * e),
                .workspace = workspace(gpt, &bytes, stage, parted),
                .work_scalars = memory_aligned(MEMORY_SCALARS * (int64_t)sizeof(double)),
                .ends = spread > 1 ? memory_aligned(spread * gpt->n_expert * (int64_t)sizeof(int32_t)) : 0,
                .deferred_embedded = stage->first && !bytes.output_lent ? bytes.slot[LAYER_EMBEDDING] : 0,
                .deferred_block = bytes.deferred,
                .deferred_lent = bytes.lent,
                .tokens = memory_aligned(plan->micro_batches * N * (int64_t)sizeof(int32_t)),
                .weights = plan->whole_weights ? 0 : memory_aligned(kept * e),
                .gradients = memory_aligned(kept * kept_e),
                .copies = copies(gpt, stage, &bytes),
                .gathered = units_bytes(gpt, stage, plan, &plan->unit_weights),
                .reduced = units_bytes(gpt, stage, plan, reduced),
                .widened = plan->reduce_fp32
                                   ? memory_widened_place(gpt, stage, plan, reduced->ends + reduced->blocks)
                                   : 0,
                .staged = memory_aligned(plan->staged_gradients * (plan->work.wide_gradients ? 4 : e)),
                .optimizer = memory_aligned(sharded * wide_e),
                .bucket = plan->offload ? memory_aligned(update * 4) : 0,
                .bucket_weights = plan->offload_parameters ? memory_aligned(update * e) : 0,
        };
        layout.slot = layout.embedded + chunk_layers * layout.block + layout.head;
        layout.deferred_output = bytes.output_lent ? layout.message : 0;
        layout.deferred = layout.deferred_embedded + parted * layout.deferred_block + layout.deferred_lent +
                          layout.deferred_output;
        return layout;
}

bool memory_countable(const struct gpt *gpt, const struct memory_plan *plan)
{
        const struct work *work = &plan->work;
        double N = (double)work->micro_batch_size * work->seq_len, C = gpt->n_embd;
        /* Elements a token. A block stores two norms, two residuals, queries, keys and values, twice if they
         * are normalised, and what attention makes of them, what latent ones are made of and its norms, and
         * no more than three times the MLP's width in it. Of attention a head has a row of scores, or, fused,
         * one number, which is as wide as two elements at most. */
        double attention = (work->fused ? 2.0 : (double)work->seq_len) * gpt->n_head;
        double heads = (double)gpt->n_head * gpt_head_size(gpt),
               latent = 2.0 * gpt->q_rank + 2.0 * gpt->kv_rank + gpt->rope_size + 2,
               experts = gpt->n_expert_chosen * (4 * C + 3.0 * gpt_inner(gpt)) + 8.0 * gpt->n_expert,
               inner = 3.0 * gpt_inner(gpt) * (1 + gpt->n_shared) + 3.0 * gpt->dense_inner + experts,
               block = 4 * C + 7 * heads + latent + inner + attention + 8,
               ends = 4 * C + 2.0 * gpt->vocab_size;
        double slot = N * (gpt->n_layer * block + ends);
        double parameters = 2.0 * (double)gpt_parameters(gpt);
        double staged = plan->stage_messages ? plan->slots + plan->input_buffers + plan->gradient_buffers : 0;
        double buffers = plan->slots + plan->host_slots + plan->input_buffers + plan->gradient_buffers +
                         plan->deferred + staged + 4.0;
        return work_element_bytes(work) * buffers * slot + 22 * parameters + 16 * N * plan->micro_batches <
               0x1p60;
}

bool memory_copies_gradients(const struct memory_plan *plan)
{
        return work_mixed(&plan->work) && !plan->reduce_fp32 && !plan->work.wide_gradients;
}

/* fp32 copies that the update works on: of parameters and gradients, and the two moments. */
static void count_master(const struct memory_layout *layout, const struct memory_plan *plan,
                         struct memory_bytes *bytes)
{
        const int gradients = memory_copies_gradients(plan);
        if (!plan->offload) {
                bytes->in[MEMORY_DEVICE][MEMORY_MASTER] = (1 + gradients) * layout->optimizer;
                bytes->in[MEMORY_DEVICE][MEMORY_OPTIMIZER] = 2 * layout->optimizer;
                return;
        }
        bytes->in[MEMORY_HOST][MEMORY_MASTER] = layout->optimizer;
        bytes->in[MEMORY_HOST][MEMORY_OPTIMIZER] = 2 * layout->optimizer;
        bytes->in[MEMORY_DEVICE][MEMORY_BUCKETS] = plan->update_buffers * (3 + gradients) * layout->bucket;
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

int64_t memory_slot(const struct memory_layout *layout, const struct stage *stage,
                    const struct memory_plan *plan, int index)
{
        int64_t bytes = layout->slot;
        if (stage->chunks > 1 && index >= plan->embedded_slots)
                bytes -= layout->embedded;
        if (stage->chunks > 1 && index < plan->slots - plan->head_slots)
                bytes -= layout->head;
        if (index < plan->short_first_slots || index >= plan->slots - plan->short_last_slots)
                bytes -= layout->block;
        return bytes;
}

void memory_stage(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan,
                  struct memory_bytes *bytes)
{
        struct memory_layout layout = memory_layout(gpt, stage, plan);
        *bytes = (struct memory_bytes){0};
        int64_t *device = bytes->in[MEMORY_DEVICE];
        device[MEMORY_WEIGHTS] = layout.gathered + layout.copies;
        bytes->in[plan->offload_parameters ? MEMORY_HOST : MEMORY_DEVICE][MEMORY_WEIGHTS] += layout.weights;
        device[MEMORY_GRADIENTS] =
                (1 + plan->gradient_sums) * layout.gradients + layout.reduced + layout.widened;
        if (work_mixed(&plan->work))
                count_master(&layout, plan, bytes);
        else
                device[MEMORY_OPTIMIZER] = 2 * layout.optimizer;
        device[MEMORY_BUCKETS] += plan->update_buffers * layout.bucket_weights;
        device[MEMORY_ACTIVATIONS] = plan->slots * layout.slot + plan->deferred * layout.deferred;
        for (int i = 0; stage->chunks > 1 && i < plan->slots; i++)
                device[MEMORY_ACTIVATIONS] -= layout.slot - memory_slot(&layout, stage, plan, i);
        bytes->in[MEMORY_HOST][MEMORY_ACTIVATIONS] = plan->host_slots * layout.slot;
        bytes->in[MEMORY_HOST][MEMORY_GRADIENTS] = layout.staged;
        bytes->in[MEMORY_HOST][MEMORY_MESSAGES] = staged_messages(stage, plan) * layout.message +
                                                  (plan->stage_shards ? MEMORY_STAGED_SHARDS : 0);
        device[MEMORY_MESSAGES] = (plan->input_buffers + plan->gradient_buffers) * layout.message;
        device[MEMORY_WORKSPACE] = layout.workspace;
        device[MEMORY_FRAMEWORK] = plan->framework_bytes;
        bytes->in[MEMORY_HOST][MEMORY_WORKSPACE] = layout.work_scalars + layout.ends;
        for (int space = 0; space < MEMORY_SPACES; space++)
                bytes->in[space][MEMORY_TOKENS] = (stage->first + stage->last) * layout.tokens;
}
