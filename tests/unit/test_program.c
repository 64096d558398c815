/* What the passes derive of a layer: what a slot holds and what the first part of a backward leaves for the
 * second, against models/memory.c; where a list's values lie; and the lists, against those that were written
 * by hand before there were programs. */
#include "models/families/families.h"
#include "models/memory.h"
#include "tests/unit/golden.h"

#include <string.h>

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
        WAYS = RECOMPUTE_LAYER + 1, /* of recomputation: sets of results are not among them */
        CASES = SIZES * 2 * WAYS * MODES * PLACES * 2
};

/* The i-th of all cases; false: its rows cannot be split over its shards. */
static bool case_of(int i, struct plan_case *c)
{
        const int size = i % SIZES, fused = i / SIZES % 2, recompute = i / SIZES / 2 % WAYS;
        const int mode = i / SIZES / 2 / WAYS % MODES, place = i / SIZES / 2 / WAYS / MODES % PLACES;
        const int mixed = i / SIZES / 2 / WAYS / MODES / PLACES;
        const int shards = mode ? sizes[size].shards : 1;
        c->gpt = (struct gpt){.n_layer = 8,
                              .n_embd = sizes[size].width,
                              .n_head = sizes[size].heads,
                              .vocab_size = sizes[size].vocabulary,
                              .n_positions = sizes[size].length,
                              .tied = true};
        c->work = (struct work){.micro_batch_size = sizes[size].batch,
                                .seq_len = sizes[size].length,
                                .dtype = mixed ? DTYPE_FP16 : DTYPE_FP32,
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

/* Bytes of what a shard has of a slot and of a deferred buffer, of a GPT-2, tensor by tensor as a reader of
 * the model's paper would count them. */
struct counted {
        int64_t embedded, block, head, deferred;
};

static struct counted count_bytes(const struct plan_case *c)
{
        const struct work *work = &c->work;
        const int shards = c->stage.shards;
        const bool scattered = work->sequence_parallel && shards > 1;
        const int64_t T = work->seq_len, N = work->micro_batch_size * T, R = scattered ? N / shards : N;
        const int64_t C = c->gpt.n_embd, H = c->gpt.n_head, V = c->gpt.vocab_size,
                      e = work_element_bytes(work);
        const int64_t row = memory_aligned(R * C * e), own = memory_aligned(N * (C / shards) * e);
        const int64_t qkv = memory_aligned(N * 3 * (C / shards) * e);
        const int64_t wide = memory_aligned(N * (4 * C / shards) * e);
        const int64_t attention = memory_aligned(N * (H / shards) * (work->fused ? 4 : T * e));
        const int64_t of_shard = (V + shards - 1) / shards, pitch = (of_shard + 63) / 64 * 64;
        const int64_t logits = memory_aligned(N * pitch * e); /* rows begin at multiples of 64 elements */
        const bool chunks = work->fused && shards == 1;
        /* both LayerNorms and their statistics, qkv, attention and its output, both residuals, fc and gelu */
        struct counted counted = {.embedded = row,
                                  .block = 4 * row + memory_aligned(4 * R * 4) + qkv + attention + own +
                                           2 * wide,
                                  .head = row + memory_aligned(2 * R * 4) + (chunks ? 0 : logits),
                                  .deferred = 2 * row + qkv + wide};
        if (work->recompute == RECOMPUTE_FULL || work->recompute == RECOMPUTE_LAYER)
                counted.block = row;
        else if (work->recompute == RECOMPUTE_SELECTIVE && !work->fused)
                counted.block -= attention;
        return counted;
}

static void slots_and_deferred_buffers_hold_what_is_counted_by_hand(void **state)
{
        struct plan_case c;
        int cases = 0;
        (void)state;
        for (int i = 0; i < CASES; i++) {
                if (!case_of(i, &c))
                        continue;
                const struct memory_plan plan = {
                        .work = c.work, .micro_batches = 1, .slots = 1, .deferred = 1};
                const struct memory_layout layout = memory_layout(&c.gpt, &c.stage, &plan);
                const struct counted counted = count_bytes(&c);
                assert_int_equal(layout.block, counted.block);
                assert_int_equal(layout.embedded, c.stage.first ? counted.embedded : 0);
                assert_int_equal(layout.head, c.stage.last ? counted.head : 0);
                /* Where a slot keeps what blocks made, the second part of their backward needs the norms'
                 * rows, what attention gave and GELU's: what is left for it finds a place where the rest was,
                 * but for one block's. What is run again needs the input, so all stays. */
                const bool lent = counted.block > layout.message;
                if (c.stage.shards == 1 && c.stage.chunks == 1)
                        assert_int_equal(layout.deferred,
                                         lent ? counted.deferred + layout.message
                                              : c.stage.layers * counted.deferred + layout.embedded);
                if (c.work.recompute == RECOMPUTE_NONE) {
                        struct memory_plan norms = plan;
                        norms.work.recompute = RECOMPUTE_NORMS;
                        assert_int_equal(memory_layout(&c.gpt, &c.stage, &norms).block,
                                         counted.block - 2 * layout.message);
                }
                cases++;
        }
        assert_true(cases > 800);
}

/* ---- placement ---- */

struct memory_of {
        const struct program *program;
        const struct placement *place;
        int64_t bytes[PROGRAM_VALUES]; /* of a store */
        bool there[PROGRAM_VALUES];    /* a store has what was written to it last */
};

static bool is_placed(const struct memory_of *m, int value)
{
        return value >= 0 && m->place->offset[m->place->store[value]] >= 0;
}

static bool overlap(const struct memory_of *m, int a, int b)
{
        const int64_t *offset = m->place->offset;
        return offset[a] >= 0 && offset[b] >= 0 && offset[a] < offset[b] + m->bytes[b] &&
               offset[b] < offset[a] + m->bytes[a];
}

static void write_store(struct memory_of *m, int store)
{
        for (int other = 0; other < m->program->value_count; other++)
                if (other != store && overlap(m, other, store))
                        m->there[other] = false;
        m->there[store] = true;
}

/* What a step reads is there when it begins and while it writes. */
static void assert_step_reads_what_is_there(struct memory_of *m, const struct step *step)
{
        for (int i = 0; i < KERNEL_OPERANDS; i++) {
                const int value = step_reads(m->program, step, i);
                const bool scratch = step_writes(step, i) && value == step->view[i].value;
                if (is_placed(m, value) && !scratch)
                        assert_true(m->there[m->place->store[value]]);
        }
        for (int i = 0; i < KERNEL_OPERANDS; i++)
                if (step_writes(step, i) && is_placed(m, step->view[i].value))
                        write_store(m, m->place->store[step->view[i].value]);
        for (int i = 0; i < KERNEL_OPERANDS; i++)
                if (step->view[i].value >= 0 && is_placed(m, step->view[i].value))
                        assert_true(m->there[m->place->store[step->view[i].value]]);
}

/* With everything that the list writes in one buffer, but what is `fixed`. Returns the sum of all stores. */
static int64_t check_placement(const struct program *p, const struct steps *steps, const bool *fixed,
                               int element_bytes, int64_t *bytes)
{
        struct placement place;
        struct memory_of m = {.program = p, .place = &place};
        int64_t sum = 0;
        program_place(p, steps, fixed, 0, element_bytes, &place);
        for (int value = 0; value < p->value_count; value++) {
                m.bytes[value] =
                        program_stored_elements(p, value, 0) *
                        (p->values[value].type == OPERAND_REAL && element_bytes < 4 ? 4 : element_bytes);
                if (place.offset[value] < 0)
                        continue;
                assert_true(place.offset[value] + m.bytes[value] <= place.bytes);
                sum += m.bytes[value];
        }
        for (int s = 0; s < steps->count; s++)
                assert_step_reads_what_is_there(&m, &steps->at[s]);
        *bytes = place.bytes;
        return sum;
}

/* The same plan of a Llama, whose heads of keys and values are as many as the shards. */
static struct gpt llama_of(const struct plan_case *c)
{
        struct gpt gpt = c->gpt;
        gpt.family = FAMILY_LLAMA;
        gpt.n_kv_head = c->stage.shards;
        gpt.rope_theta = 10000;
        gpt.norm_epsilon = 1e-5;
        return gpt;
}

/* Every pass of every layer. Returns how many lists there are, and adds to `shared` how many of them have
 * values that share their place. */
static int check_layers(const struct gpt *gpt, const struct work *work, int shards, int *shared)
{
        static struct workload w;
        static struct steps steps;
        int lists = 0;
        workload_init(&w, gpt, work, shards);
        for (int layer = 0; layer < LAYERS; layer++)
                for (int pass = 0; pass < (layer == LAYER_VALIDATION ? 1 : LAYER_PASSES); pass++) {
                        const struct program *p = &w.program[layer];
                        bool fixed[PROGRAM_VALUES] = {false};
                        int64_t bytes;
                        workload_steps(&w, (enum layer)layer, (enum layer_pass)pass, &steps);
                        if ((pass == PASS_INPUT || pass == PASS_WEIGHT) && layer == LAYER_BLOCK)
                                program_deferred(p, fixed);
                        if (p->output_gradient >= 0)
                                fixed[p->output_gradient] = true;
                        *shared +=
                                check_placement(p, &steps, fixed, work_element_bytes(work), &bytes) > bytes;
                        lists++;
                }
        return lists;
}

static void values_are_there_when_they_are_read(void **state)
{
        struct plan_case c;
        int shared = 0, lists = 0;
        (void)state;
        for (int i = 0; i < CASES; i++) {
                if (!case_of(i, &c))
                        continue;
                const struct gpt llama = llama_of(&c);
                lists += check_layers(&c.gpt, &c.work, c.stage.shards, &shared);
                lists += check_layers(&llama, &c.work, c.stage.shards, &shared);
                for (int set = RECOMPUTE_NORMS; c.work.recompute == RECOMPUTE_NONE && set < RECOMPUTES;
                     set++) {
                        struct work work = c.work;
                        work.recompute = (enum recompute)set;
                        lists += check_layers(&llama, &work, c.stage.shards, &shared);
                }
        }
        assert_true(lists > 20000 && shared > lists / 3); /* of most lists some values share their place */
}

/* ---- lists ---- */

enum list_kind { LIST_FORWARD, LIST_VALIDATION, LIST_BACKWARD, LIST_INPUT, LIST_WEIGHT, LISTS };
enum { MAX_KERNELS = 4096 };

static int list_of(const struct plan_case *c, enum list_kind kind, struct kernel *kernels)
{
        static const enum kernel_part parts[LISTS] = {
                [LIST_BACKWARD] = PART_BOTH, [LIST_INPUT] = PART_INPUT, [LIST_WEIGHT] = PART_WEIGHT};
        if (kind == LIST_FORWARD || kind == LIST_VALIDATION)
                return workload_forward(&c->gpt, &c->stage, &c->work, kind == LIST_VALIDATION, kernels);
        return workload_backward_part(&c->gpt, &c->stage, &c->work, parts[kind], kernels);
}

static uint64_t checksum_of(uint64_t sum, const struct kernel *k)
{
        const int64_t numbers[] = {k->transpose_a, k->transpose_b, k->accumulate, k->part, k->dtype,
                                   k->batch,       k->m,           k->n,          k->k};
        for (const char *c = kernel_name(k->kind); *c; c++)
                sum = (sum ^ (uint64_t)*c) * 0x100000001b3;
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
                sum = (sum ^ (uint64_t)numbers[i]) * 0x100000001b3; /* FNV-1a, a number at a time */
        return sum;
}

static void write_list(FILE *out, const char *name, const struct kernel *kernels, int count)
{
        fprintf(out, "%s\n", name);
        for (int i = 0; i < count; i++) {
                const struct kernel *k = &kernels[i];
                fprintf(out, "  %s%s%s%s %lld x %lld %lld %lld part %d\n", kernel_name(k->kind),
                        k->transpose_a ? " a^T" : "", k->transpose_b ? " b^T" : "",
                        k->accumulate ? " +=" : "", (long long)k->batch, (long long)k->m, (long long)k->n,
                        (long long)k->k, k->part);
        }
}

/* Some lists in full, and of all of them a checksum for each way to work. */
static void write_lists(FILE *out)
{
        static struct kernel kernels[MAX_KERNELS];
        static const char *const modes[MODES] = {"1 shard", "shards", "shards, sequence parallel"};
        struct plan_case c;
        for (int way = 0; way < 2 * WAYS * MODES; way++) {
                uint64_t sums[LISTS];
                int counts[LISTS] = {0};
                for (int kind = 0; kind < LISTS; kind++)
                        sums[kind] = 0xcbf29ce484222325;
                for (int rest = 0; rest < SIZES * PLACES * 2; rest++) {
                        const int i = rest % SIZES + SIZES * (way + 2 * WAYS * MODES * (rest / SIZES));
                        for (int kind = 0; kind < LISTS && case_of(i, &c); kind++) {
                                const int count = list_of(&c, (enum list_kind)kind, kernels);
                                assert_true(count <= MAX_KERNELS);
                                for (int k = 0; k < count; k++)
                                        sums[kind] = checksum_of(sums[kind], &kernels[k]);
                                counts[kind] += count;
                        }
                }
                fprintf(out, "%s %s %s:", way % 2 ? "fused" : "plain",
                        recompute_name((enum recompute)(way / 2 % WAYS)), modes[way / 2 / WAYS]);
                for (int kind = 0; kind < LISTS; kind++)
                        fprintf(out, " %d %016llx", counts[kind], (unsigned long long)sums[kind]);
                fprintf(out, "\n");
        }
        for (int fused = 0; fused < 2; fused++)
                for (int mode = 0; mode < MODES; mode += 2) {
                        case_of(SIZES * (fused + 2 * WAYS * (mode + MODES * (PLACES - 1))), &c);
                        c.stage.layers = 1;
                        write_list(out, "forward", kernels, list_of(&c, LIST_FORWARD, kernels));
                        write_list(out, "backward", kernels, list_of(&c, LIST_BACKWARD, kernels));
                }
}

/* The file was written by the lists that stood in models/workload.c kernel by kernel before programs did. */
static void lists_are_those_written_by_hand(void **state)
{
        char *text = NULL;
        size_t size;
        FILE *out = open_memstream(&text, &size);
        (void)state;
        assert_non_null(out);
        write_lists(out);
        fclose(out);
        assert_golden(text, "tests/golden/lists.txt");
        free(text);
}

/* A mixture's block, built in memory that held these bytes. */
static struct program *built_over(int byte, const struct gpt *gpt)
{
        const struct work work = {.micro_batch_size = 1, .seq_len = 4, .tp = 1};
        struct program *p = malloc(sizeof *p);
        assert_non_null(p);
        memset(p, byte, sizeof *p);
        program_begin(p, (struct program_split){.shards = 2});
        family_build(p, LAYER_BLOCK, gpt, &work);
        program_finish(p, false);
        return p;
}

static void programs_do_not_depend_on_what_their_memory_held(void **state)
{
        const struct gpt gpt = {.family = FAMILY_MIXTRAL,
                                .n_layer = 2,
                                .n_embd = 32,
                                .n_head = 4,
                                .n_kv_head = 2,
                                .n_inner = 48,
                                .n_expert = 4,
                                .n_expert_chosen = 2,
                                .vocab_size = 50,
                                .n_positions = 16};
        struct program *zeros = built_over(0, &gpt), *ones = built_over(0xff, &gpt);
        (void)state;
        assert_int_equal(zeros->tensor_count, ones->tensor_count);
        assert_int_equal(zeros->value_count, ones->value_count);
        assert_int_equal(zeros->forward.count, ones->forward.count);
        assert_int_equal(zeros->backward.count, ones->backward.count);
        for (int i = 0; i < zeros->tensor_count; i++) {
                assert_int_equal(zeros->tensors[i].split, ones->tensors[i].split);
                assert_int_equal(zeros->tensors[i].axis, ones->tensors[i].axis);
                assert_int_equal(zeros->tensors[i].summed, ones->tensors[i].summed);
        }
        for (int i = 0; i < zeros->forward.count; i++)
                assert_int_equal(zeros->forward.at[i].kind, ones->forward.at[i].kind);
        free(zeros);
        free(ones);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(programs_do_not_depend_on_what_their_memory_held),
                cmocka_unit_test(slots_and_deferred_buffers_hold_what_is_counted_by_hand),
                cmocka_unit_test(values_are_there_when_they_are_read),
                cmocka_unit_test(lists_are_those_written_by_hand),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
