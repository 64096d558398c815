/* The lists that the passes derive, against models/workload.c's. */
#include "models/families/families.h"


#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct list {
        struct kernel at[8192];
        int count;
};

static void take(struct list *list, const struct program *p, const struct step *step, enum half half,
                 int64_t rows)
{
        list->at[list->count++] = program_kernel(p, step, half, rows);
}

static void take_forward(struct list *list, const struct program *p, enum half half)
{
        for (int s = 0; s < p->forward.count; s++)
                take(list, p, &p->forward.at[s], half, 0);
}

/* The chunked steps of the head, rows after rows. */
static void take_chunks(struct list *list, const struct program *p, enum half half, int64_t N, int64_t rows,
                        bool loss_only)
{
        for (int64_t first = 0; first < N; first += rows) {
                const int64_t left = N - first, now = left < rows ? left : rows;
                for (int s = 0; s < p->forward.count; s++)
                        if (p->forward.at[s].chunked)
                                take(list, p, &p->forward.at[s], half, now);
                for (int s = 0; !loss_only && s < p->backward.count; s++)
                        if (p->backward.at[s].chunked)
                                take(list, p, &p->backward.at[s], half, now);
        }
}

static void stage_forward(struct list *list, const struct gpt *gpt, const struct stage *stage,
                          const struct work *work, bool loss_only)
{
        struct program p;
        const enum half half = work_format(work);
        const int64_t rows = workload_loss_rows(gpt, stage, work), N = (int64_t)work->micro_batch_size * work->seq_len;
        if (stage->first) {
                program_begin(&p, stage->shards, work->sequence_parallel);
                gpt2_embedding(&p, gpt, work);
                program_finish(&p, work->fused);
                take_forward(list, &p, half);
        }
        program_begin(&p, stage->shards, work->sequence_parallel);
        gpt2_block(&p, gpt, work);
        program_finish(&p, work->fused);
        for (int block = 0; block < stage->layers; block++)
                take_forward(list, &p, half);
        if (!stage->last)
                return;
        program_begin(&p, stage->shards, work->sequence_parallel);
        gpt2_head(&p, gpt, work, loss_only);
        program_finish(&p, work->fused);
        for (int s = 0; s < p.forward.count; s++)
                if (!p.forward.at[s].chunked || !rows)
                        take(list, &p, &p.forward.at[s], half, 0);
        if (rows && loss_only)
                take_chunks(list, &p, half, N, rows, true);
}

static void stage_backward(struct list *list, const struct gpt *gpt, const struct stage *stage,
                           const struct work *work, enum kernel_part parts)
{
        struct program p;
        struct steps steps;
        const enum half half = work_format(work);
        const int64_t rows = workload_loss_rows(gpt, stage, work), N = (int64_t)work->micro_batch_size * work->seq_len;
        if (stage->last) {
                program_begin(&p, stage->shards, work->sequence_parallel);
                gpt2_head(&p, gpt, work, false);
                program_finish(&p, work->fused);
                if (rows && parts & PART_INPUT)
                        take_chunks(list, &p, half, N, rows, false);
                program_list_backward(&p, RECOMPUTE_NONE, parts, &steps);
                for (int s = 0; s < steps.count; s++)
                        if (!steps.at[s].chunked || !rows)
                                take(list, &p, &steps.at[s], half, 0);
        }
        program_begin(&p, stage->shards, work->sequence_parallel);
        gpt2_block(&p, gpt, work);
        program_finish(&p, work->fused);
        program_list_backward(&p, work_recomputation(work), parts, &steps);
        for (int block = 0; block < stage->layers; block++)
                for (int s = 0; s < steps.count; s++)
                        take(list, &p, &steps.at[s], half, 0);
        if (stage->first) {
                program_begin(&p, stage->shards, work->sequence_parallel);
                gpt2_embedding(&p, gpt, work);
                program_finish(&p, work->fused);
                program_list_backward(&p, RECOMPUTE_NONE, parts, &steps);
                for (int s = 0; s < steps.count; s++)
                        take(list, &p, &steps.at[s], half, 0);
        }
}

static void say(const struct kernel *k)
{
        printf("    %-32s%s%s%s part %d half %d: %lld x %lld %lld %lld\n", kernel_name(k->kind), k->transpose_a ? " ta" : "",
               k->transpose_b ? " tb" : "", k->accumulate ? " +" : "", k->part, k->half, (long long)k->batch, (long long)k->m,
               (long long)k->n, (long long)k->k);
}

static bool same(const struct kernel *a, const struct kernel *b)
{
        return kernel_same(a, b) && a->part == b->part;
}

static int compare(const char *what, const struct list *derived, const struct list *today)
{
        int i = 0;
        while (i < derived->count && i < today->count && same(&derived->at[i], &today->at[i]))
                i++;
        if (i == derived->count && i == today->count)
                return 0;
        printf("%s: %d and %d kernels, the %d-th differs\n", what, derived->count, today->count, i);
        for (int j = i > 2 ? i - 2 : 0; j < i + 3; j++) {
                if (j < derived->count)
                        say(&derived->at[j]);
                if (j < today->count)
                        say(&today->at[j]);
        }
        return 1;
}

int main(void)
{
        static const struct {
                int C, H, V, tp, B, T;
        } sizes[] = {{64, 4, 101, 2, 2, 16}, {96, 8, 1001, 4, 3, 20}, {48, 3, 77, 3, 1, 33}, {64, 16, 50, 8, 5, 8}};
        static struct list derived, today;
        int bad = 0, all = 0;
        for (int size = 0; size < 4; size++)
                for (int at = 0; at < 2 * 4 * 3 * 4 * 2; at++) {
                        int left = at;
                        const int fused = left % 2, recompute = left / 2 % 4, mode = left / 8 % 3, place = left / 24 % 4,
                                  mixed = left / 96;
                        struct gpt gpt = {.n_layer = 8, .n_embd = sizes[size].C, .n_head = sizes[size].H,
                                          .vocab_size = sizes[size].V, .n_positions = sizes[size].T, .tied = true};
                        const int tp = mode ? sizes[size].tp : 1;
                        struct work work = {.micro_batch_size = sizes[size].B, .seq_len = sizes[size].T,
                                            .element_bytes = mixed ? 2 : 4, .recompute = (enum recompute)recompute,
                                            .fused = fused, .tp = tp, .sequence_parallel = mode == 2,
                                            .logits_bytes = 16 * sizes[size].V * 8};
                        struct stage whole = {.stages = 1, .chunks = 1, .layers = 2, .shards = tp,
                                              .first = place == 0 || place == 3, .last = place == 2 || place == 3};
                        if (mode == 2 && (sizes[size].B * sizes[size].T) % tp)
                                continue;
                        char what[128];
                        for (int kind = 0; kind < 5; kind++) {
                                derived.count = today.count = 0;
                                snprintf(what, sizeof what, "size %d fused %d recompute %s tp %d sp %d place %d mixed %d list %d",
                                         size, fused, recompute_name((enum recompute)recompute), tp, mode == 2, place, mixed, kind);
                                if (kind < 2) {
                                        stage_forward(&derived, &gpt, &whole, &work, kind);
                                        today.count = workload_forward(&gpt, &whole, &work, kind, today.at);
                                } else {
                                        const enum kernel_part parts = kind == 2 ? PART_BOTH : kind == 3 ? PART_INPUT : PART_WEIGHT;
                                        stage_backward(&derived, &gpt, &whole, &work, parts);
                                        today.count = workload_backward_part(&gpt, &whole, &work, parts, today.at);
                                }
                                bad += compare(what, &derived, &today);
                                all++;
                        }
                }
        printf("%d of %d lists differ\n", bad, all);
        return bad > 0;
}
