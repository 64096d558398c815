/* Products of tensor shards beside the collectives before and behind them (asynchronous tensor parallelism).
 * A product whose results the shards add up, or of whose input each has some rows, is in pieces of rows of
 * tokens: while a piece is summed, or the next one is gathered, another is computed. What a backward gathers
 * for the gradient of weights comes in one piece, beside that of the input, which is then summed beside the
 * gradient of weights (Shoeybi et al.'s Megatron-LM does the same). Every piece of a sum has the terms that
 * it has in the whole sum. */
#include "models/program.h"

#include <assert.h>

enum { TOKEN_AXES = 3, MADE = 0, OF = 1 };

/* The rows of tokens that are in pieces whole: those of a shard that has some of them. */
static int64_t shared_rows(const struct program *p, int64_t rows)
{
        return p->sequence_parallel ? rows / p->shards : rows;
}

int program_pieces(const struct program *p, int64_t rows)
{
        const int64_t most = shared_rows(p, rows);
        return p->pieces < most ? p->pieces : (int)most;
}

int64_t program_piece_row(const struct program *p, int64_t rows, int piece)
{
        const int64_t whole = shared_rows(p, rows);
        return rows_before_piece(whole, program_pieces(p, rows), piece) * (rows / whole);
}

bool program_gathers_rows(const struct program *p, const struct step *step)
{
        return step->kind == KERNEL_TENSOR_ALL_GATHER && p->values[step->view[OF].value].state == STATE_ROWS;
}

struct overlapping {
        const struct program *p;
        struct steps from, *to;
        bool summed[PROGRAM_STEPS]; /* of `from`: behind its product already */
        /* What the last collective makes, if it runs beside what follows; -1: nothing is under way. */
        int under_way;
};

/* ---- what there is to overlap ---- */

static bool is_product_of_rows(const struct step *step)
{
        const struct kernel_descriptor *kind = kernel_descriptor(step->kind);
        if (kernel_collective(step->kind) || kind->products != 1 || kind->split != SPLIT_BLOCKS)
                return false;
        for (int i = 0; i < KERNEL_OPERANDS && kind->operands[i].name; i++) {
                const enum operand_extent extent = kind->operands[i].extent;
                if ((extent == EXTENT_MN || extent == EXTENT_MK) &&
                    (step->view[i].batch || step->view[i].rows != TOKEN_AXES))
                        return false;
        }
        return true;
}

static bool sums_rows(const struct step *step)
{
        return (kernel_sums(step->kind) || step->kind == KERNEL_TENSOR_REDUCE_SCATTER) &&
               step->view[MADE].rows == TOKEN_AXES;
}

/* The product of rows of tokens that makes what collective `at` sums; -1: something else does. */
static int maker_of(const struct steps *steps, int at)
{
        const short value = steps->at[at].view[OF].value;
        for (int s = at - 1; s >= 0; s--)
                for (int i = 0; i < KERNEL_OPERANDS; i++)
                        if (steps->at[s].view[i].value == value)
                                return is_product_of_rows(&steps->at[s]) && step_writes(&steps->at[s], i)
                                               ? s
                                               : -1;
        return -1;
}

/* The sum of what product `at` makes; -1: there is none. */
static int sum_of(const struct steps *steps, int at)
{
        for (int s = at + 1; is_product_of_rows(&steps->at[at]) && s < steps->count; s++)
                if (sums_rows(&steps->at[s]) && maker_of(steps, s) == at)
                        return s;
        return -1;
}

static bool reads(const struct program *p, const struct step *step, int value)
{
        for (int i = 0; value >= 0 && i < KERNEL_OPERANDS; i++)
                if (step->view[i].value >= 0 && step_reads(p, step, i) == value)
                        return true;
        return false;
}

/* ---- the list ---- */

static struct step *add(struct overlapping *o, struct step step)
{
        if (kernel_collective(step.kind) && !kernel_of_shards_z(step.kind)) /* which wait for none */
                o->under_way = step.beside ? step.view[MADE].value : -1;
        return program_add_step(o->to, step);
}

static void join(struct overlapping *o, int unit)
{
        add(o, (struct step){.kind = KERNEL_JOIN, .unit = unit, .view = {{.value = -1}}});
}

static void add_piece(struct overlapping *o, struct step step, int64_t rows, int piece, bool beside)
{
        step.first = program_piece_row(o->p, rows, piece);
        step.rows = program_piece_row(o->p, rows, piece + 1) - step.first;
        step.beside = beside;
        add(o, step);
}

static int64_t rows_of(const struct program *p, const struct step *collective)
{
        const int64_t *extent = p->values[collective->view[OF].value].extent;
        return extent[0] * extent[1];
}

/* The last sum runs beside the steps up to its reader, where there are any. */
static void add_summed(struct overlapping *o, int product, int sum)
{
        const int64_t rows = rows_of(o->p, &o->from.at[sum]);
        const int count = program_pieces(o->p, rows);
        for (int i = 0; i < count; i++) {
                add_piece(o, o->from.at[product], rows, i, false);
                add_piece(o, o->from.at[sum], rows, i, i + 1 < count || sum > product + 1);
        }
}

/* The product comes right behind the gather. */
static void add_gathered(struct overlapping *o, int gather)
{
        const struct step *rows_gathered = &o->from.at[gather], *product = rows_gathered + 1;
        const int64_t rows = rows_of(o->p, rows_gathered);
        const int count = program_pieces(o->p, rows);
        add_piece(o, *rows_gathered, rows, 0, false);
        for (int i = 0; i < count; i++) {
                if (i + 1 < count)
                        add_piece(o, *rows_gathered, rows, i + 1, true);
                else if (count > 1)
                        join(o, product->unit);
                add_piece(o, *product, rows, i, false);
        }
}

/* A gather of rows; returns how many steps it took. */
static int overlap_gather(struct overlapping *o, int at)
{
        struct step *gather = &o->from.at[at], *next = gather + 1;
        assert(at + 1 < o->from.count);
        if (is_product_of_rows(next) && reads(o->p, next, gather->view[MADE].value)) {
                add_gathered(o, at);
                return 2;
        }
        gather->beside = !kernel_collective(next->kind) && !reads(o->p, next, gather->view[MADE].value);
        add(o, *gather);
        return 1;
}

/* A product whose results are summed; returns how many steps it took. */
static int overlap_sum(struct overlapping *o, int at, int sum)
{
        struct step whole = o->from.at[sum];
        o->summed[sum] = true;
        if (o->under_way < 0 || sum == at + 1) {
                add_summed(o, at, sum);
                return sum == at + 1 ? 2 : 1;
        }
        whole.beside = 1;
        add(o, o->from.at[at]);
        add(o, whole);
        return 1;
}

static int overlap_step(struct overlapping *o, int at)
{
        const struct step *step = &o->from.at[at];
        const int sum = sum_of(&o->from, at);
        if (o->summed[at])
                return 1;
        if (!kernel_collective(step->kind) && reads(o->p, step, o->under_way))
                join(o, step->unit);
        if (program_gathers_rows(o->p, step))
                return overlap_gather(o, at);
        if (sum >= 0)
                return overlap_sum(o, at, sum);
        add(o, *step);
        return 1;
}

void program_overlap(const struct program *p, struct steps *steps)
{
        if (p->shards * p->shards_x == 1)
                return;
        struct overlapping o = {.p = p, .from = *steps, .to = steps, .under_way = -1};
        steps->count = 0;
        for (int s = 0; s < o.from.count;)
                s += overlap_step(&o, s);
        if (o.under_way >= 0)
                join(&o, o.from.at[o.from.count - 1].unit);
}
