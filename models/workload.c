#include "models/workload.h"

#include "models/families/families.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t workload_loss_rows(const struct gpt *gpt, const struct stage *stage, const struct work *work)
{
        if (!work->fused || stage->shards > 1)
                return 0;
        const int64_t N = (int64_t)work->micro_batch_size * work->seq_len;
        const int64_t most = work->logits_bytes ? work->logits_bytes : WORKLOAD_LOGITS_BYTES;
        const int64_t row = (int64_t)partition_vocabulary(gpt, stage) * work->element_bytes;
        const int64_t groups = (N + WORKLOAD_LOSS_ROWS - 1) / WORKLOAD_LOSS_ROWS;
        const int64_t fitting = most / (row * WORKLOAD_LOSS_ROWS), each = fitting ? fitting : 1;
        const int64_t chunks = (groups + each - 1) / each, balanced = (groups + chunks - 1) / chunks;
        return balanced * WORKLOAD_LOSS_ROWS < N ? balanced * WORKLOAD_LOSS_ROWS : N;
}

typedef void layer_fn(struct program *, const struct gpt *, const struct work *);

static void derive(struct program *program, layer_fn *layer, const struct gpt *gpt, const struct work *work,
                   int shards)
{
        program_begin(program, shards, work->sequence_parallel);
        layer(program, gpt, work);
        program_finish(program, work->fused);
}

void workload_init(struct workload *w, const struct gpt *gpt, const struct work *work, int shards)
{
        const struct stage whole = {.stages = 1, .chunks = 1, .shards = shards};
        w->work = *work;
        w->loss_rows = workload_loss_rows(gpt, &whole, work);
        derive(&w->embedding, gpt2_embedding, gpt, work, shards);
        derive(&w->block, gpt2_block, gpt, work, shards);
        derive(&w->head, gpt2_head, gpt, work, shards);
}

void workload_validation(struct program *program, const struct gpt *gpt, const struct work *work, int shards)
{
        derive(program, gpt2_validation, gpt, work, shards);
}

static bool same_work(const struct work *a, const struct work *b)
{
        return a->micro_batch_size == b->micro_batch_size && a->seq_len == b->seq_len &&
               a->element_bytes == b->element_bytes && a->recompute == b->recompute && a->bf16 == b->bf16 &&
               a->fused == b->fused && a->sequence_parallel == b->sequence_parallel &&
               a->logits_bytes == b->logits_bytes;
}

const struct workload *workloads_get(struct workloads *table, const struct gpt *gpt, const struct work *work,
                                     int shards)
{
        for (int i = 0; i < table->count; i++)
                if (same_work(&table->at[i]->work, work) && table->at[i]->block.shards == shards)
                        return table->at[i];
        struct workload **at = realloc(table->at, (size_t)(table->count + 1) * sizeof(struct workload *));
        if (!at)
                return NULL;
        table->at = at;
        at[table->count] = malloc(sizeof *at[0]);
        if (!at[table->count])
                return NULL;
        workload_init(at[table->count], gpt, work, shards);
        return at[table->count++];
}

void workloads_free(struct workloads *table)
{
        for (int i = 0; i < table->count; i++)
                free(table->at[i]);
        free(table->at);
        *table = (struct workloads){0};
}

/* The list under construction; `out` may be NULL. */
struct list {
        struct kernel *out;
        int count;
        enum half half;
};

static void add(struct list *list, struct kernel kernel)
{
        if (list->out)
                list->out[list->count] = kernel;
        list->count++;
}

/* The steps that are run for some rows after others. */
static void add_chunked(struct list *list, const struct program *program, const struct steps *steps,
                        int64_t rows)
{
        for (int s = 0; s < steps->count; s++)
                if (steps->at[s].chunked)
                        add(list, program_kernel(program, &steps->at[s], list->half, rows));
}

/* All steps of a layer, in order; of a head whose loss is made in chunks those that are not. */
static void add_layer(struct list *list, const struct program *program, const struct steps *steps,
                      int64_t loss_rows)
{
        for (int s = 0; s < steps->count; s++)
                if (!steps->at[s].chunked || !loss_rows)
                        add(list, program_kernel(program, &steps->at[s], list->half, 0));
}

/* The loss of a chunk of rows after another, and in a training pass the gradients of what made its logits. */
static void add_chunks(struct list *list, const struct workload *w, const struct program *head)
{
        const int64_t N = (int64_t)w->work.micro_batch_size * w->work.seq_len;
        for (int64_t first = 0; first < N; first += w->loss_rows) {
                const int64_t left = N - first, rows = left < w->loss_rows ? left : w->loss_rows;
                add_chunked(list, head, &head->forward, rows);
                add_chunked(list, head, &head->backward, rows);
        }
}

/* As many layers as the stage has; the list of one is copied. */
static void add_blocks(struct list *list, const struct workload *w, const struct steps *steps, int layers)
{
        const int first = list->count;
        if (layers == 0)
                return;
        add_layer(list, &w->block, steps, 0);
        const int each = list->count - first;
        for (int layer = 1; layer < layers; layer++) {
                if (list->out)
                        memcpy(&list->out[list->count], &list->out[first], (size_t)each * sizeof *list->out);
                list->count += each;
        }
}

static struct list begin(const struct workload *w, struct kernel *out)
{
        return (struct list){.out = out, .half = work_format(&w->work)};
}

static int list_forward(const struct workload *w, const struct stage *stage, const struct program *head,
                        struct kernel *out)
{
        struct list list = begin(w, out);
        if (stage->first)
                add_layer(&list, &w->embedding, &w->embedding.forward, 0);
        add_blocks(&list, w, &w->block.forward, stage->layers);
        if (stage->last)
                add_layer(&list, head, &head->forward, w->loss_rows);
        if (stage->last && w->loss_rows && head->forward_only)
                add_chunks(&list, w, head);
        return list.count;
}

int workload_list_forward(const struct workload *w, const struct stage *stage, struct kernel *out)
{
        assert(stage->shards == w->block.shards);
        return list_forward(w, stage, &w->head, out);
}

int workload_list_backward(const struct workload *w, const struct stage *stage, enum kernel_part parts,
                           struct kernel *out)
{
        struct list list = begin(w, out);
        struct steps steps;
        assert(stage->shards == w->block.shards);
        if (stage->last) {
                if (w->loss_rows && parts & PART_INPUT)
                        add_chunks(&list, w, &w->head);
                program_list_backward(&w->head, RECOMPUTE_NONE, parts, &steps);
                add_layer(&list, &w->head, &steps, w->loss_rows);
        }
        program_list_backward(&w->block, work_recomputation(&w->work), parts, &steps);
        add_blocks(&list, w, &steps, stage->layers);
        if (stage->first) {
                program_list_backward(&w->embedding, RECOMPUTE_NONE, parts, &steps);
                add_layer(&list, &w->embedding, &steps, 0);
        }
        return list.count;
}

int workload_forward(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                     bool loss_only, struct kernel *out)
{
        struct workload w;
        struct program validation;
        workload_init(&w, gpt, work, stage->shards);
        if (loss_only && stage->last)
                workload_validation(&validation, gpt, work, stage->shards);
        return list_forward(&w, stage, loss_only ? &validation : &w.head, out);
}

int workload_backward(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                      struct kernel *out)
{
        return workload_backward_part(gpt, stage, work, PART_BOTH, out);
}

int workload_backward_part(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                           enum kernel_part parts, struct kernel *out)
{
        struct workload w;
        workload_init(&w, gpt, work, stage->shards);
        return workload_list_backward(&w, stage, parts, out);
}

int workload_backward_most(const struct gpt *gpt, const struct stage *stage, const struct work *work)
{
        struct workload w;
        int most = 0;
        workload_init(&w, gpt, work, stage->shards);
        for (int parts = PART_INPUT; parts <= PART_BOTH; parts++) {
                int count = workload_list_backward(&w, stage, (enum kernel_part)parts, NULL);
                most = count > most ? count : most;
        }
        return most;
}

/* What it counts is a prefix of the stage's parameters: a last stage's own copy of a tied head is its last
 * tensor, and before it lies what all shards have, which the first of them counts. */
struct kernel workload_norm(const struct gpt *gpt, const struct stage *stage, enum half half)
{
        int64_t counted = partition_parameters(gpt, stage);
        if (gpt->tied && stage->last && !stage->first)
                counted -= (int64_t)partition_vocabulary(gpt, stage) * gpt->n_embd;
        if (stage->shard > 0)
                counted -= partition_replicated(gpt, stage, NULL);
        return (struct kernel){
                .kind = KERNEL_SQUARED_NORM, .half = (unsigned char)half, .batch = 1, .m = counted};
}

int workload_update(int64_t parameters, enum half half, struct kernel out[WORKLOAD_UPDATE_KERNELS])
{
        struct kernel kernel = {.half = (unsigned char)half, .batch = 1, .m = parameters};
        struct list list = {.out = out};
        if (half) {
                kernel.kind = KERNEL_UNSCALE;
                add(&list, kernel);
        }
        kernel.kind = KERNEL_ADAMW;
        add(&list, kernel);
        return list.count;
}

struct kernel workload_overflow(int64_t parameters, enum half half)
{
        return (struct kernel){
                .kind = KERNEL_OVERFLOW, .half = (unsigned char)half, .batch = 1, .m = parameters};
}

struct kernel workload_clear(int64_t parameters, enum half half)
{
        return (struct kernel){
                .kind = KERNEL_CLEAR, .half = (unsigned char)half, .batch = 1, .m = parameters};
}

static double flops_of(const struct program *program, const struct steps *steps)
{
        double flops = 0;
        for (int s = 0; s < steps->count; s++) {
                const struct kernel kernel = program_kernel(program, &steps->at[s], HALF_NONE, 0);
                flops += kernel_flops(&kernel);
        }
        return flops;
}

/* Of a block on its own, forward and backward. */
static double block_flops(const struct gpt *gpt, const struct work *work)
{
        struct program block;
        struct steps backward;
        derive(&block, gpt2_block, gpt, work, 1);
        program_list_backward(&block, work_recomputation(work), PART_BOTH, &backward);
        return flops_of(&block, &block.forward) + flops_of(&block, &backward);
}

int workload_balanced(const struct gpt *gpt, const struct work *work, int stages)
{
        struct work whole = *work;
        whole.tp = 1;
        whole.sequence_parallel = false;
        const double tokens = (double)work->micro_batch_size * work->seq_len;
        const double head = 6 * tokens * gpt->n_embd * gpt->vocab_size, block = block_flops(gpt, &whole);
        const int most = gpt->n_layer - (stages - 1);
        int best = most;
        double least = INFINITY;
        assert(2 <= stages && stages <= gpt->n_layer);
        for (int last = most; last >= 1; last--) {
                const int other = (gpt->n_layer - last + stages - 2) / (stages - 1); /* the longest of them */
                const double longest = fmax(other * block, last * block + head);
                if (longest < least) {
                        least = longest;
                        best = last;
                }
        }
        return best;
}
