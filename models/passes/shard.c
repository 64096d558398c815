/* The collectives of a layer's shards. Every step is asked what it can work with: a product with whole
 * rows of tokens, which are gathered, and parts of anything else; what works on rows with some of them; and
 * nothing with parts of a sum, which are summed first. What comes out follows from what went in. Of a grid of
 * shards (Singh et al. 2024) those along y and those along x are asked one after the other: along y lie heads
 * and the MLP's columns, along x the columns of the residual stream, so a value is a part of a sum of one of
 * the two at most. */
#include "models/program.h"

#include <assert.h>

enum { TOKEN_AXES = 3, STREAM_AXIS = 2 };

enum along { ALONG_Y, ALONG_X, ALONG };

static int shards_of(const struct program *p, enum along along)
{
        return along == ALONG_X ? p->shards_x : p->shards;
}

static int *state_at(struct program *p, enum along along, int value)
{
        return along == ALONG_X ? &p->values[value].state_x : &p->values[value].state;
}

static int state_of(const struct program *p, enum along along, int value)
{
        return *state_at((struct program *)p, along, value);
}

static bool is_whole_parameter(const struct program *p, int value)
{
        if (p->values[value].role == ROLE_GRADIENT) /* a parameter is followed by its gradient */
                value--;
        return p->values[value].role == ROLE_PARAMETER && p->values[value].state == STATE_WHOLE;
}

/* Whether it is a step of a mixture whose experts shards do not split: each sends what rows it has. */
static bool is_of_whole_experts(const struct program *p, const struct step *step)
{
        return p->whole_experts && (kernel_of_mixture(step->kind) || kernel_of_experts(step->kind));
}

/* Whether a step can work on some rows of tokens alone: by its kind, and products with weights that all
 * shards have. What works on heads has all of the rows, as attention has: of rotary positions it matters
 * which they are. */
static bool works_on_rows(const struct program *p, const struct step *step)
{
        const struct kernel_descriptor *kind = kernel_descriptor(step->kind);
        if (is_of_whole_experts(p, step))
                return true;
        if (step->kind == KERNEL_MATMUL)
                return is_whole_parameter(p, step->view[1].value) ||
                       is_whole_parameter(p, step->view[2].value);
        return kind->split == SPLIT_ROWS && !kind->heads && !kind->whole_tokens;
}

/* Whether a step makes parts of a sum of such parts: it is linear, or adds two of them. */
static bool keeps_parts(const struct program *p, enum along along, const struct step *step)
{
        enum { Y, X };
        if (step->kind != KERNEL_RESIDUAL)
                return kernel_descriptor(step->kind)->linear;
        return state_of(p, along, step_reads(p, step, Y)) == STATE_PARTIAL &&
               state_of(p, along, step_reads(p, step, X)) == STATE_PARTIAL;
}

static const struct kernel_operand *operand_of(const struct step *step, int i)
{
        return &kernel_descriptor(step->kind)->operands[i];
}

/* ---- what comes out ---- */

/* Which axis of `to` lies where `axis` lies in `from`; -1: `axis` is not in `from`. */
static int same_place(unsigned from, unsigned to, int axis)
{
        int place = 0;
        if (!(from & (1U << axis)))
                return -1;
        for (int i = 0; i < axis; i++)
                place += (int)(from >> i & 1);
        for (int i = 0; i < VALUE_AXES; i++)
                if ((to >> i) & 1 && place-- == 0)
                        return i;
        return -1;
}

/* The state of c, of a product: split as one of its operands is, or, where what is summed over is split, a
 * part of a sum. */
static int product_state(const struct program *p, enum along along, const struct view *a,
                         const struct view *b, const struct view *c)
{
        const int left = state_of(p, along, a->value), right = state_of(p, along, b->value);
        int at = -1;
        if (left >= 0 && (a->cols & (1U << left))) {
                assert(right >= 0 && same_place(a->cols, b->rows, left) == right);
                return STATE_PARTIAL;
        }
        assert(right < 0 || !(b->rows & (1U << right))); /* what is summed over is split on both sides */
        if (left >= 0) {
                at = same_place(a->rows, c->rows, left);
                at = at >= 0 ? at : same_place(a->batch, c->batch, left);
        }
        if (at < 0 && right >= 0)
                at = same_place(b->cols, c->cols, right);
        return at >= 0 ? at : STATE_WHOLE;
}

static int operand_with(const struct step *step, enum operand_extent extent)
{
        for (int i = 0; i < KERNEL_OPERANDS && operand_of(step, i)->name; i++)
                if (operand_of(step, i)->extent == extent && step->view[i].value >= 0)
                        return i;
        return -1;
}

/* The first tensor of rows that a step reads; -1: there is none. */
static int rows_read(const struct program *p, const struct step *step)
{
        for (int i = 0; i < KERNEL_OPERANDS && operand_of(step, i)->name; i++)
                if (step_reads(p, step, i) >= 0 && operand_has_rows(operand_of(step, i)))
                        return step_reads(p, step, i);
        return -1;
}

/* Of what works on rows: that of the first tensor of rows that it reads. */
static int rows_state(const struct program *p, enum along along, const struct step *step)
{
        const int value = rows_read(p, step);
        return value < 0 ? STATE_WHOLE : state_of(p, along, value);
}

/* The same, of a tensor of rows that it writes, whose axes may be fewer or more: split is the same one from
 * the last. */
static int written_rows_state(const struct program *p, enum along along, const struct step *step,
                              const struct value *written)
{
        const int state = rows_state(p, along, step);
        return state < 0 ? state : state - p->values[rows_read(p, step)].axes + written->axes;
}

/* Whether a row has one of it, whatever heads the row is made of: of shards that have other heads each has
 * all of it, or, of its gradient, a part of the sum. */
static bool is_one_a_row(const struct kernel_operand *operand)
{
        return operand->extent == EXTENT_2M || operand->extent == EXTENT_M ||
               operand->extent == EXTENT_SHARED;
}

/* Of a vector that rows are summed into, or heads, of which each shard has others. */
static int summed_state(const struct program *p, enum along along, const struct step *step, int vector)
{
        const int rows = rows_state(p, along, step), mn = operand_with(step, EXTENT_MN);
        if (rows == STATE_ROWS || (rows >= 0 && kernel_descriptor(step->kind)->heads))
                return STATE_PARTIAL;
        return rows < 0 ? STATE_WHOLE : same_place(step->view[mn].cols, step->view[vector].cols, rows);
}

/* Of rows of a table, of which shards have other rows, or other columns. */
static int embedding_state(const struct program *p, enum along along, const struct step *step)
{
        const int table = state_of(p, along, step->view[2].value);
        return table < 0 ? STATE_WHOLE : table == 0 ? STATE_PARTIAL : STREAM_AXIS;
}

/* Of an attention's result: split by heads, as qkv is, whose last axis but one they are. */
static int heads_state(const struct program *p, enum along along, const struct step *step, int operand)
{
        int heads = STATE_WHOLE;
        for (int i = 0; i < KERNEL_OPERANDS && operand_of(step, i)->name; i++)
                if (operand_of(step, i)->extent == EXTENT_QKV && step_reads(p, step, i) >= 0)
                        heads = state_of(p, along, step->view[i].value);
        const enum operand_extent extent = operand_of(step, operand)->extent;
        return heads < 0 || extent == EXTENT_QKV ? heads : extent == EXTENT_MK ? 2 : 1;
}

/* Of a step that makes parts of a sum of such parts. */
static int linear_state(const struct program *p, enum along along, const struct step *step)
{
        for (int i = 0; i < KERNEL_OPERANDS && operand_of(step, i)->name; i++) {
                const int value = step_reads(p, step, i);
                if (value >= 0 && state_of(p, along, value) == STATE_PARTIAL)
                        return STATE_PARTIAL;
        }
        return STATE_WHOLE;
}

/* Of a product on some rows of tokens: its rows, or, summed over rows, a part of a sum. */
static int product_of_rows_state(const struct value *made)
{
        return made->role == ROLE_GRADIENT ? STATE_PARTIAL : STATE_ROWS;
}

/* Of a mixture whose experts are not split, what has rows of tokens. An expert's gradient is no part of a sum
 * of shards', and where its rows end each shard knows for itself. */
static int whole_experts_state(const struct value *made)
{
        enum { ROWS_AXES = 3 }; /* (B,T,...), of chosen experts, their columns, or both */
        return made->role != ROLE_GRADIENT && made->axes >= ROWS_AXES ? STATE_ROWS : STATE_WHOLE;
}

static const struct view *operand_view(const struct step *step, enum operand_extent one,
                                       enum operand_extent other)
{
        const int i = operand_with(step, one);
        return &step->view[i >= 0 ? i : operand_with(step, other)];
}

static void set_states(struct program *p, enum along along, const struct step *step)
{
        for (int i = 0; i < KERNEL_OPERANDS && operand_of(step, i)->name; i++) {
                if (!step_writes(step, i))
                        continue;
                const struct value *value = &p->values[step->view[i].value];
                int *state = state_at(p, along, step->view[i].value);
                if (is_of_whole_experts(p, step))
                        *state = whole_experts_state(value);
                else if (kernel_descriptor(step->kind)->split == SPLIT_HEADS)
                        *state = heads_state(p, along, step, i);
                else if (step->kind == KERNEL_EMBEDDING)
                        *state = embedding_state(p, along, step);
                else if (kernel_descriptor(step->kind)->linear)
                        *state = linear_state(p, along, step);
                else if (value->role == ROLE_GRADIENT && operand_is_summed(operand_of(step, i)))
                        *state = summed_state(p, along, step, i);
                else if (kernel_descriptor(step->kind)->split == SPLIT_ROWS)
                        *state = value->role == ROLE_NUMBER ? STATE_PARTIAL
                                 : is_one_a_row(operand_of(step, i)) && rows_state(p, along, step) >= 0
                                         ? (value->role == ROLE_FLOW ? STATE_PARTIAL : STATE_WHOLE)
                                         : written_rows_state(p, along, step, value);
                else if (kernel_descriptor(step->kind)->products == 1)
                        *state = state_of(p, along, step->view[0].value) == STATE_ROWS
                                         ? product_of_rows_state(value)
                                         : product_state(p, along, operand_view(step, EXTENT_MK, EXTENT_MK),
                                                         operand_view(step, EXTENT_KN, EXTENT_EKN),
                                                         operand_view(step, EXTENT_MN, EXTENT_EMN));
        }
}

/* ---- collectives ---- */

static struct view tokens_of(const struct program *p, int value)
{
        const unsigned all = (1U << p->values[value].axes) - 1;
        return (struct view){.value = (short)value,
                             .rows = TOKEN_AXES,
                             .cols = (unsigned char)(all & ~(unsigned)TOKEN_AXES),
                             .picked = -1};
}

/* A collective that makes another value of `value`, which is the same to an adjoint. */
static int add_collective(struct program *p, enum along along, struct steps *steps, enum kernel_kind kind,
                          int value, int state, int unit, unsigned char part)
{
        struct value made = p->values[value];
        made.origin = value;
        made.overwrites = -1;
        if (made.role == ROLE_INPUT)
                made.role = ROLE_ACTIVATION;
        const int out = program_add_value(p, made);
        *state_at(p, along, out) = state;
        program_add_step(steps, (struct step){.kind = kind,
                                              .unit = unit,
                                              .part = part,
                                              .view = {tokens_of(p, out), tokens_of(p, value)}});
        return out;
}

/* The sum of the shards' parts `value`. Whoever reads it later must read what is returned. */
static int sum(struct program *p, enum along along, struct steps *steps, int value, int unit,
               unsigned char part)
{
        const bool scatters = along == ALONG_Y && p->sequence_parallel;
        const enum kernel_kind kind = scatters           ? KERNEL_TENSOR_REDUCE_SCATTER
                                      : along == ALONG_X ? KERNEL_TENSOR_X_ALLREDUCE
                                                         : KERNEL_TENSOR_ALLREDUCE;
        return add_collective(p, along, steps, kind, value, scatters ? STATE_ROWS : STATE_WHOLE, unit, part);
}

/* How many sums of a row's columns a norm needs, before what it makes of them: of LayerNorm two, for mean and
 * variance. 0: it is no norm of the residual stream. */
static int norm_sums(const struct program *p, const struct step *step)
{
        const bool layernorm = step->kind == KERNEL_LAYERNORM || step->kind == KERNEL_LAYERNORM_BACKWARD;
        const bool rmsnorm = step->kind == KERNEL_RMSNORM || step->kind == KERNEL_RMSNORM_BACKWARD;
        return rows_state(p, ALONG_X, step) < 0 ? 0 : layernorm ? 2 : rmsnorm ? 1 : 0;
}

/* Those of rows whose columns are split along x are added up. */
static void sum_for_norm(struct program *p, struct steps *steps, const struct step *norm)
{
        const int count = norm_sums(p, norm);
        if (count == 0)
                return;
        struct value sums = p->values[rows_read(p, norm)];
        sums.role = ROLE_GATHERED;
        sums.type = OPERAND_REAL;
        sums.extent[STREAM_AXIS] = count;
        sums.overwrites = sums.origin = -1;
        sums.state_x = STATE_WHOLE;
        const struct view view = tokens_of(p, program_add_value(p, sums));
        program_add_step(steps, (struct step){.kind = KERNEL_TENSOR_X_ALLREDUCE,
                                              .unit = norm->unit,
                                              .part = norm->part,
                                              .view = {view, view}});
}

static void read_instead(struct program *p, struct step *step, int i, int value)
{
        if (step_writes(step, i))
                p->values[step->view[i].value].overwrites = value;
        else
                step->view[i].value = (short)value;
}

/* The loss over a vocabulary of which a shard has a part: numbers of each row, which are gathered, then the
 * loss, and what it leaves in the logits, from the numbers of all. */
static void part_loss(struct program *p, struct steps *steps, const struct step *loss)
{
        enum { LOSS, LOGITS, TARGETS, NUMBERS };
        const struct value logits = p->values[loss->view[LOGITS].value];
        const struct value numbers = {.name = "numbers",
                                      .role = ROLE_ACTIVATION,
                                      .type = OPERAND_REAL,
                                      .axes = 4,
                                      .extent = {p->shards, logits.extent[0], logits.extent[1], 3},
                                      .state = STATE_WHOLE,
                                      .state_x = STATE_WHOLE,
                                      .overwrites = -1,
                                      .origin = -1,
                                      .gradient = -1};
        const short all = (short)program_add_value(p, numbers);
        const struct view whole = {.value = all, .rows = 15, .picked = -1};
        const struct view by_shard = {.value = all, .rows = 7, .cols = 8, .picked = -1};
        struct step first = *loss, after = *loss;
        first.kind = KERNEL_CROSS_ENTROPY_LOSS;
        first.view[LOSS] = (struct view){.value = -1};
        first.view[LOGITS].value = (short)step_reads(p, loss, LOGITS);
        first.view[NUMBERS] = after.view[NUMBERS] = whole;
        program_add_step(steps, first);
        program_add_step(steps, (struct step){.kind = KERNEL_TENSOR_ALL_GATHER,
                                              .unit = loss->unit,
                                              .view = {by_shard, by_shard}});
        if (loss->kind == KERNEL_CROSS_ENTROPY_LOSS) /* of the numbers alone: N rows of 3 a shard */
                after.view[LOGITS] = (struct view){.value = all, .rows = 6, .cols = 9, .picked = -1};
        program_add_step(steps, after);
}

/* ---- forward ---- */

/* The collectives that a step of the forward needs before it; `whole` says of rows what they were gathered
 * to; 0: they were not. */
static void bring_together(struct program *p, enum along along, struct step *step, int whole[PROGRAM_VALUES])
{
        const bool parts = keeps_parts(p, along, step);
        for (int i = 0; i < KERNEL_OPERANDS && operand_of(step, i)->name; i++) {
                const int value = step_reads(p, step, i);
                if (value < 0)
                        continue;
                const int state = state_of(p, along, value);
                if (state == STATE_PARTIAL && p->values[value].role != ROLE_NUMBER && !parts)
                        read_instead(p, step, i, sum(p, along, &p->forward, value, step->unit, 0));
                if (state != STATE_ROWS || works_on_rows(p, step))
                        continue;
                if (!whole[value])
                        whole[value] = add_collective(p, along, &p->forward, KERNEL_TENSOR_ALL_GATHER, value,
                                                      STATE_WHOLE, step->unit, 0);
                read_instead(p, step, i, whole[value]);
        }
}

void program_shard_forward(struct program *p)
{
        struct steps from = p->forward;
        int whole[PROGRAM_VALUES] = {0};
        if (p->shards == 1 && p->shards_x == 1)
                return;
        p->forward.count = 0;
        for (int s = 0; s < from.count; s++) {
                struct step step = from.at[s];
                for (int along = 0; along < ALONG; along++)
                        if (shards_of(p, (enum along)along) > 1)
                                bring_together(p, (enum along)along, &step, whole);
                sum_for_norm(p, &p->forward, &step);
                for (int along = 0; along < ALONG; along++)
                        if (shards_of(p, (enum along)along) > 1)
                                set_states(p, (enum along)along, &step);
                if (p->shards > 1 && step.chunked && works_on_rows(p, &step) &&
                    p->values[step_reads(p, &step, 1)].state >= 0)
                        part_loss(p, &p->forward, &step);
                else
                        program_add_step(&p->forward, step);
        }
        for (int along = 0; along < ALONG && p->output >= 0; along++)
                if (state_of(p, (enum along)along, p->output) == STATE_PARTIAL)
                        p->output = sum(p, (enum along)along, &p->forward, p->output, p->units++, 0);
}

/* ---- backward ---- */

/* Gathers what the steps [first, end) of one unit read rows of, for all of them at once, and for all that
 * read the same later. */
static void gather_for_unit(struct program *p, struct steps *from, int first, int end)
{
        for (int s = first; s < end; s++) {
                struct step *step = &from->at[s];
                for (int i = 0; i < KERNEL_OPERANDS && operand_of(step, i)->name; i++) {
                        const int value = works_on_rows(p, step) ? -1 : step_reads(p, step, i);
                        if (value < 0 || p->values[value].state != STATE_ROWS)
                                continue;
                        const int all = add_collective(p, ALONG_Y, &p->backward, KERNEL_TENSOR_ALL_GATHER,
                                                       value, STATE_WHOLE, step->unit, 0);
                        struct step *gather = &p->backward.at[p->backward.count - 1];
                        for (int r = s; r < from->count; r++)
                                for (int j = 0; j < KERNEL_OPERANDS; j++)
                                        if (!works_on_rows(p, &from->at[r]) &&
                                            from->at[r].view[j].value == value) {
                                                gather->part |= from->at[r].part;
                                                from->at[r].view[j].value = (short)all;
                                        }
                }
        }
}

/* The part of the step that wrote a value. */
static unsigned char part_of_maker(const struct steps *steps, int value)
{
        for (int s = 0; s < steps->count; s++)
                for (int i = 0; i < KERNEL_OPERANDS; i++)
                        if (steps->at[s].view[i].value == value && step_writes(&steps->at[s], i))
                                return steps->at[s].part;
        return 0;
}

/* Adds up the parts that a step of the backward, `from`, reads; `sums` says of parts what they were added up
 * to; 0: they were not. */
static void add_up(struct program *p, enum along along, const struct steps *from, struct step *step,
                   int sums[PROGRAM_VALUES])
{
        for (int i = 0; i < KERNEL_OPERANDS && operand_of(step, i)->name; i++) {
                const int value = step_reads(p, step, i);
                if (value < 0 || p->values[value].role != ROLE_FLOW ||
                    state_of(p, along, value) != STATE_PARTIAL || kernel_descriptor(step->kind)->linear)
                        continue;
                if (!sums[value])
                        sums[value] =
                                sum(p, along, &p->backward, value, step->unit, part_of_maker(from, value));
                read_instead(p, step, i, sums[value]);
        }
}

void program_shard_backward(struct program *p)
{
        struct steps from = p->backward;
        int sums[PROGRAM_VALUES] = {0};
        if (p->shards == 1 && p->shards_x == 1)
                return;
        if (p->output_gradient >= 0) {
                p->values[p->output_gradient].state = p->sequence_parallel ? STATE_ROWS : STATE_WHOLE;
                p->values[p->output_gradient].state_x = p->values[p->output].state_x;
        }
        p->backward.count = 0;
        for (int s = 0; s < from.count; s++) {
                int end = s + 1;
                while (end < from.count && from.at[end].unit == from.at[s].unit)
                        end++;
                if (p->shards > 1 && (s == 0 || from.at[s - 1].unit != from.at[s].unit))
                        gather_for_unit(p, &from, s, end);
                struct step *step = &from.at[s];
                for (int along = 0; along < ALONG; along++)
                        if (shards_of(p, (enum along)along) > 1)
                                add_up(p, (enum along)along, &from, step, sums);
                sum_for_norm(p, &p->backward, step);
                for (int along = 0; along < ALONG; along++)
                        if (shards_of(p, (enum along)along) > 1)
                                set_states(p, (enum along)along, step);
                program_add_step(&p->backward, *step);
        }
}
