/* What the passes derive of a layer, against models/memory.c: what a slot holds, and what the first part of a
 * backward leaves for the second. That what is listed is what runs, test_workload shows. */
#include "models/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct plan_case {
        struct gpt gpt;
        struct work work;
        struct stage stage;
};

static const struct {
        int width, heads, vocabulary, shards, batch, length;
} sizes[] = {{64, 4, 101, 2, 2, 16},
             {96, 8, 1001, 4, 3, 20},
             {48, 3, 77, 3, 1, 33},
             {64, 16, 50, 8, 5, 8},
             {768, 12, 50257, 2, 8, 1024}};
enum {
        SIZES = sizeof sizes / sizeof *sizes,
        PLACES = 4,
        MODES = 3,
        CASES = SIZES * 2 * RECOMPUTES * MODES * PLACES * 2
};

/* The i-th of all cases; false: its rows cannot be split over its shards. */
static bool case_of(int i, struct plan_case *c)
{
        const int size = i % SIZES, fused = i / SIZES % 2, recompute = i / SIZES / 2 % RECOMPUTES;
        const int mode = i / SIZES / 2 / RECOMPUTES % MODES,
                  place = i / SIZES / 2 / RECOMPUTES / MODES % PLACES;
        const int mixed = i / SIZES / 2 / RECOMPUTES / MODES / PLACES;
        const int shards = mode ? sizes[size].shards : 1;
        c->gpt = (struct gpt){.n_layer = 8,
                              .n_embd = sizes[size].width,
                              .n_head = sizes[size].heads,
                              .vocab_size = sizes[size].vocabulary,
                              .n_positions = sizes[size].length,
                              .tied = true};
        c->work = (struct work){.micro_batch_size = sizes[size].batch,
                                .seq_len = sizes[size].length,
                                .element_bytes = mixed ? 2 : 4,
                                .recompute = (enum recompute)recompute,
                                .fused = fused,
                                .tp = shards,
                                .sequence_parallel = mode == 2};
        c->stage = (struct stage){.stages = 1,
                                  .chunks = 1,
                                  .layers = 2,
                                  .shards = shards,
                                  .first = place == 0 || place == 3,
                                  .last = place == 2 || place == 3};
        return mode != 2 || sizes[size].batch * sizes[size].length % shards == 0;
}

static int64_t kept_bytes(const struct program *p, const struct plan_case *c, enum recompute recompute,
                          bool chunked)
{
        bool kept[PROGRAM_VALUES];
        program_kept(p, recompute, chunked, kept);
        return program_bytes(p, kept, c->work.element_bytes, NULL);
}

static void a_slot_holds_what_backward_reads(void **state)
{
        static struct workload w;
        struct plan_case c;
        int cases = 0;
        (void)state;
        for (int i = 0; i < CASES; i++) {
                if (!case_of(i, &c))
                        continue;
                const struct memory_plan plan = {.work = c.work, .micro_batches = 1, .slots = 1};
                const struct memory_layout layout = memory_layout(&c.gpt, &c.stage, &plan);
                workload_init(&w, &c.gpt, &c.work, c.stage.shards);
                assert_int_equal(kept_bytes(&w.block, &c, work_recomputation(&c.work), false), layout.block);
                if (c.stage.first)
                        assert_int_equal(kept_bytes(&w.embedding, &c, RECOMPUTE_NONE, w.loss_rows > 0),
                                         layout.embedded);
                if (c.stage.last)
                        assert_int_equal(kept_bytes(&w.head, &c, RECOMPUTE_NONE, w.loss_rows > 0),
                                         layout.final_ln + layout.final_stats + layout.logits);
                cases++;
        }
        assert_true(cases > 800);
}

static void the_first_part_leaves_what_the_second_reads(void **state)
{
        static struct workload w;
        struct plan_case c;
        bool deferred[PROGRAM_VALUES];
        int cases = 0;
        (void)state;
        for (int i = 0; i < CASES; i++) {
                if (!case_of(i, &c) || c.stage.shards > 1)
                        continue;
                const struct memory_plan plan = {
                        .work = c.work, .micro_batches = 1, .slots = 1, .deferred = 1};
                const struct memory_layout layout = memory_layout(&c.gpt, &c.stage, &plan);
                workload_init(&w, &c.gpt, &c.work, 1);
                program_deferred(&w.block, deferred);
                assert_int_equal(program_bytes(&w.block, deferred, c.work.element_bytes, NULL),
                                 layout.deferred_block);
                cases++;
        }
        assert_true(cases >= 320);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_slot_holds_what_backward_reads),
                cmocka_unit_test(the_first_part_leaves_what_the_second_reads),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
