/* --tp-overlap: a list of work in pieces does what the whole list does, to every row once; nothing is read
 * before it is there, and what runs beside a collective touches none of its rows or memory. */
#include "models/memory.h"
#include "models/workload.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 36, MODELS = 5 };

static const char *const presets[MODELS] = {"tiny", "llama-tiny", "mixtral-tiny", "deepseek-tiny",
                                            "nemotron-tiny"};

struct lists {
        struct workload whole, pieces;
        struct steps before, after;
        enum layer layer;
        enum layer_pass pass;
        char name[160];
};

/* ---- each of the lists that there are ---- */

static void check_layers(struct lists *l, const struct gpt *gpt, void check(struct lists *))
{
        for (int i = 0; i < LAYERS * 4; i++) {
                l->layer = (enum layer)(i / 4);
                l->pass = (enum layer_pass)(i % 4);
                if ((l->layer == LAYER_DENSE && gpt->n_dense == 0) ||
                    (l->layer == LAYER_VALIDATION && l->pass != PASS_FORWARD))
                        continue;
                workload_steps(&l->whole, l->layer, l->pass, &l->before);
                workload_steps(&l->pieces, l->layer, l->pass, &l->after);
                const size_t end = strlen(l->name);
                snprintf(l->name + end, sizeof l->name - end, ", layer %d, pass %d", l->layer, l->pass);
                check(l);
                l->name[end] = 0;
        }
}

static void check_all(void check(struct lists *))
{
        struct lists *l = calloc(1, sizeof *l);
        assert_non_null(l);
        for (int i = 0; i < MODELS * 2 * 2 * RECOMPUTES * 5; i++) {
                static const int company[][3] = {{2, 1, 1}, {4, 1, 1}, {2, 2, 1}, {2, 1, 2}, {2, 1, 3}};
                const int model = i % MODELS, split = i / MODELS % 2, fused = i / MODELS / 2 % 2;
                const enum recompute recompute = (enum recompute)(i / MODELS / 4 % RECOMPUTES);
                const int *with = company[i / MODELS / 4 / RECOMPUTES], pieces = 1 + i % 8;
                struct gpt gpt;
                struct rv_error_info err;
                if (gpt_load(&gpt, presets[model], &err))
                        fail_msg("%s", err.sentence);
                if ((with[1] > 1 && gpt.n_expert == 0) || (with[2] > 1 && !fused) ||
                    !partition_recomputes(&gpt, recompute))
                        continue;
                struct work work = {.micro_batch_size = 2,
                                    .seq_len = ROWS / 2,
                                    .recompute = recompute,
                                    .fused = fused,
                                    .tp = with[0],
                                    .ep = with[1],
                                    .cp = with[2],
                                    .sequence_parallel = split,
                                    .cp_gathers = i % 3 == 0};
                workload_init(&l->whole, &gpt, &work, work.tp);
                work.tp_overlap = pieces;
                workload_init(&l->pieces, &gpt, &work, work.tp);
                snprintf(l->name, sizeof l->name, "%s, %s%s, %s, tp %d ep %d cp %d, %d pieces",
                         presets[model], split ? "rows " : "", fused ? "fused" : "unfused",
                         recompute_name(recompute), work.tp, work.ep, work.cp, pieces);
                check_layers(l, &gpt, check);
        }
        free(l);
}

/* ---- the same work ---- */

static bool is_piece_of(const struct step *piece, const struct step *whole)
{
        struct step all = *piece;
        all.first = all.rows = 0;
        all.beside = whole->beside;
        return memcmp(&all, whole, sizeof all) == 0;
}

/* Whether pieces of `whole` bring all rows, one after the other, as often as it is in the list. */
static bool brings_all_rows(const struct lists *l, const struct step *whole)
{
        int64_t rows = 0;
        bool in_order = true;
        for (int s = 0; s < l->after.count; s++) {
                const struct step *piece = &l->after.at[s];
                if (!is_piece_of(piece, whole))
                        continue;
                rows %= ROWS;
                in_order = in_order && piece->first == rows;
                rows += piece->rows ? piece->rows : ROWS;
        }
        return in_order && rows == ROWS;
}

static bool is_of_list(const struct steps *list, const struct step *piece)
{
        for (int s = 0; s < list->count; s++)
                if (is_piece_of(piece, &list->at[s]))
                        return true;
        return piece->kind == KERNEL_JOIN;
}

/* Operations of a list, and bytes of its collectives. */
static void add_up(const struct program *p, const struct steps *steps, double sums[2])
{
        for (int s = 0; s < steps->count; s++) {
                const struct kernel kernel = program_kernel(p, &steps->at[s], DTYPE_FP32, 0);
                if (kernel_collective(kernel.kind))
                        sums[1] += (double)kernel_collective_bytes(&kernel, 4);
                else
                        sums[0] += kernel_flops(&kernel);
        }
}

static void check_work(struct lists *l)
{
        double whole[2] = {0, 0}, pieces[2] = {0, 0};
        for (int s = 0; s < l->before.count; s++)
                if (l->before.at[s].kind != KERNEL_JOIN && !brings_all_rows(l, &l->before.at[s]))
                        fail_msg("%s: not every row of step %d is there once", l->name, s);
        for (int s = 0; s < l->after.count; s++)
                if (!is_of_list(&l->before, &l->after.at[s]))
                        fail_msg("%s: step %d is of nothing in the whole list", l->name, s);
        add_up(&l->whole.program[l->layer], &l->before, whole);
        add_up(&l->pieces.program[l->layer], &l->after, pieces);
        if (fabs(pieces[0] - whole[0]) > 1e-9 * whole[0] || pieces[1] != whole[1])
                fail_msg("%s: %g operations and %g bytes in pieces, whole %g and %g", l->name, pieces[0],
                         pieces[1], whole[0], whole[1]);
}

static void pieces_do_the_work_of_the_whole_list(void **state)
{
        (void)state;
        check_all(check_work);
}

/* ---- nothing is read before it is there, or written while it is sent ---- */

/* Which rows of a value are there. */
struct rows {
        bool listed; /* the list writes them */
        bool there[ROWS];
};

/* A part of a value: a shard's rows [first, end), and bytes of its store. */
struct range {
        int value, first, end;
        int64_t begin_byte, end_byte;
};

static struct range range_of(const struct program *p, const struct step *step, int value)
{
        const int shards = p->values[value].state == STATE_ROWS ? p->shards : 1;
        const int bytes = (int)program_elements_bytes(&p->values[value], 1, 4);
        struct range range = {.value = value, .end = ROWS / shards};
        range.end_byte = bytes * program_stored_elements(p, value, 0);
        if (step->rows) {
                range.first = (int)step->first / shards;
                range.end = (int)(step->first + step->rows) / shards;
                range.begin_byte = step->first ? bytes * program_elements(p, value, step->first) : 0;
                range.end_byte = bytes * program_elements(p, value, step->first + step->rows);
        }
        return range;
}

static bool passes_on(const struct program *p, int value)
{
        const enum value_role role = value < 0 ? ROLE_NUMBER : p->values[value].role;
        return role == ROLE_ACTIVATION || role == ROLE_FLOW || role == ROLE_GATHERED;
}

static void check_reads(const struct lists *l, int s, const struct rows all[])
{
        const struct program *p = &l->pieces.program[l->layer];
        const struct step *step = &l->after.at[s];
        for (int i = 0; i < KERNEL_OPERANDS; i++) {
                const int value = step->kind == KERNEL_JOIN ? -1 : step_reads(p, step, i);
                if (!passes_on(p, value) || !all[value].listed ||
                    (step_writes(step, i) && step->view[i].value == value)) /* its own scratch, or in place */
                        continue;
                const struct range range = range_of(p, step, value);
                for (int row = range.first; row < range.end; row++)
                        if (!all[value].there[row])
                                fail_msg("%s: step %d reads row %d of value %d before it is there", l->name,
                                         s, row, value);
        }
}

static void bring(const struct program *p, const struct step *step, struct rows all[])
{
        for (int i = 0; i < KERNEL_OPERANDS && step->kind != KERNEL_JOIN; i++) {
                if (!step_writes(step, i) || !passes_on(p, step->view[i].value))
                        continue;
                const struct range range = range_of(p, step, step->view[i].value);
                memset(all[range.value].there + range.first, true, (size_t)(range.end - range.first));
        }
}

static bool meet(const struct placement *at, struct range a, struct range b)
{
        const int64_t one = at->offset[at->store[a.value]], other = at->offset[at->store[b.value]];
        if (one >= 0 && other >= 0)
                return one + a.begin_byte < other + b.end_byte && other + b.begin_byte < one + a.end_byte;
        return at->store[a.value] == at->store[b.value] && a.begin_byte < b.end_byte &&
               b.begin_byte < a.end_byte;
}

static void check_apart(const struct lists *l, const struct placement *at, int sent, int s)
{
        const struct program *p = &l->pieces.program[l->layer];
        const struct step *one = &l->after.at[sent], *other = &l->after.at[s];
        for (int i = 0; i < KERNEL_OPERANDS; i++)
                for (int j = 0; j < KERNEL_OPERANDS; j++) {
                        const int a = one->view[i].value, b = other->view[j].value;
                        if (passes_on(p, a) && passes_on(p, b) &&
                            (step_writes(one, i) || step_writes(other, j)) &&
                            meet(at, range_of(p, one, a), range_of(p, other, b)))
                                fail_msg("%s: step %d touches what collective %d does, values %d and %d",
                                         l->name, s, sent, b, a);
                }
}

static void check_order(struct lists *l)
{
        const struct program *p = &l->pieces.program[l->layer];
        struct rows all[PROGRAM_VALUES] = {{0}};
        struct placement at;
        int sent = -1;
        workload_place(&l->pieces, l->layer, l->pass, &l->after, &at);
        for (int s = 0; s < l->after.count; s++)
                for (int i = 0; i < KERNEL_OPERANDS; i++)
                        if (l->after.at[s].kind != KERNEL_JOIN && step_writes(&l->after.at[s], i))
                                all[l->after.at[s].view[i].value].listed = true;
        for (int s = 0; s < l->after.count; s++) {
                const struct step *step = &l->after.at[s];
                if (kernel_collective(step->kind)) {
                        if (sent >= 0)
                                bring(p, &l->after.at[sent], all);
                        sent = step->beside ? s : -1;
                } else if (sent >= 0) {
                        check_apart(l, &at, sent, s);
                }
                check_reads(l, s, all);
                if (!step->beside)
                        bring(p, step, all);
        }
        if (sent >= 0)
                fail_msg("%s: nothing waits for collective %d", l->name, sent);
}

static void nothing_is_read_before_it_is_there_or_touched_while_it_is_sent(void **state)
{
        (void)state;
        check_all(check_order);
}

/* ---- which products overlap ---- */

/* A list, a word a step: products and the collectives of shards, those that run beside others with a star. */
static void describe(const struct steps *steps, char *text, size_t size)
{
        text[0] = 0;
        for (int s = 0; s < steps->count; s++) {
                const struct step *step = &steps->at[s];
                const char *name = step->kind == KERNEL_JOIN                    ? "join"
                                   : step->kind == KERNEL_TENSOR_ALLREDUCE      ? "sum"
                                   : step->kind == KERNEL_TENSOR_ALL_GATHER     ? "gather"
                                   : step->kind == KERNEL_TENSOR_REDUCE_SCATTER ? "scatter"
                                                                                : kernel_name(step->kind);
                const size_t end = strlen(text);
                snprintf(text + end, size - end, "%s%s%s", s ? " " : "", name, step->beside ? "*" : "");
        }
}

static void a_block_s_lists_are_these(void **state)
{
        (void)state;
        static const struct {
                bool split;
                enum layer_pass pass;
                const char *list;
        } cases[] = {
                {false, PASS_FORWARD,
                 "rmsnorm matmul rope attention matmul sum* matmul sum residual rmsnorm matmul swiglu matmul "
                 "sum* matmul sum residual"},
                {true, PASS_FORWARD,
                 "rmsnorm gather gather* matmul join matmul rope attention matmul scatter* matmul scatter "
                 "residual rmsnorm gather gather* matmul join matmul swiglu matmul scatter* matmul scatter "
                 "residual"},
                {false, PASS_BACKWARD,
                 "matmul matmul swiglu_backward matmul sum* matmul sum* matmul join rmsnorm_backward matmul "
                 "matmul attention_backward rope matmul sum* matmul sum* matmul join rmsnorm_backward"},
                {true, PASS_BACKWARD,
                 "gather gather* matmul join matmul matmul swiglu_backward gather* matmul scatter* matmul "
                 "join "
                 "rmsnorm_backward gather gather* matmul join matmul matmul attention_backward rope gather* "
                 "matmul scatter* matmul join rmsnorm_backward"},
                {true, PASS_INPUT,
                 "gather gather* matmul join matmul swiglu_backward matmul scatter* matmul scatter "
                 "rmsnorm_backward residual gather gather* matmul join matmul attention_backward rope matmul "
                 "scatter* matmul scatter rmsnorm_backward residual"},
                {true, PASS_WEIGHT, "gather matmul gather matmul gather matmul gather matmul"},
        };
        struct workload *w = calloc(1, sizeof *w);
        struct gpt gpt;
        struct rv_error_info err;
        assert_non_null(w);
        assert_int_equal(gpt_load(&gpt, "llama-tiny", &err), 0);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                const struct work work = {.micro_batch_size = 1,
                                          .seq_len = 16,
                                          .fused = true,
                                          .tp = 2,
                                          .tp_overlap = 2,
                                          .sequence_parallel = cases[i].split};
                struct steps steps;
                char text[1024];
                workload_init(w, &gpt, &work, 2);
                workload_steps(w, LAYER_BLOCK, cases[i].pass, &steps);
                describe(&steps, text, sizeof text);
                assert_string_equal(text, cases[i].list);
        }
        free(w);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(pieces_do_the_work_of_the_whole_list),
                cmocka_unit_test(nothing_is_read_before_it_is_there_or_touched_while_it_is_sent),
                cmocka_unit_test(a_block_s_lists_are_these),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
