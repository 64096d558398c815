/* Products whose results shards add up, in pieces of rows of tokens: while a piece is summed over the shards,
 * the next one is computed, as in asynchronous tensor parallelism. Every piece of a sum has the terms that it
 * has in the whole sum. */
#include "models/program.h"

enum { TOKEN_AXES = 3, C = 2, MADE = 0, OF = 1 };

/* The product of rows of tokens that makes what collective `at` sums; -1: something else does. */
static int maker_of(const struct steps *steps, int at)
{
        const short value = steps->at[at].view[OF].value;
        for (int s = at - 1; s >= 0; s--)
                for (int i = 0; i < KERNEL_OPERANDS; i++)
                        if (steps->at[s].view[i].value == value) {
                                const struct view *v = steps->at[s].view;
                                return steps->at[s].kind == KERNEL_MATMUL && i == C && !v[C].batch &&
                                                       v[C].rows == TOKEN_AXES && v[0].rows == TOKEN_AXES
                                               ? s
                                               : -1;
                        }
        return -1;
}

static bool sums_rows(const struct step *step)
{
        return step->kind == KERNEL_TENSOR_ALLREDUCE && step->view[MADE].rows == TOKEN_AXES;
}

/* The sum that is to run in pieces behind those of product `at`; -1: there is none. */
static int sum_of(const struct steps *steps, int at)
{
        for (int s = at + 1; s < steps->count; s++)
                if (sums_rows(&steps->at[s]) && maker_of(steps, s) == at)
                        return s;
        return -1;
}

/* The last sum runs beside the steps up to `next`, where there are any, and is awaited there. */
static void add_pieces(const struct program *p, const struct steps *from, int product, int sum, int pieces,
                       struct steps *to)
{
        const int64_t *extent = p->values[from->at[sum].view[OF].value].extent, rows = extent[0] * extent[1];
        const int64_t count = pieces < rows ? pieces : rows;
        for (int64_t i = 0; i < count; i++) {
                struct step *piece = program_add_step(to, from->at[product]);
                struct step *summed = program_add_step(to, from->at[sum]);
                piece->first = summed->first = i * rows / count;
                piece->rows = summed->rows = (i + 1) * rows / count - piece->first;
                summed->beside = i + 1 < count || sum > product + 1;
        }
}

void program_overlap(const struct program *p, int pieces, struct steps *steps)
{
        const struct steps from = *steps;
        bool summed[PROGRAM_STEPS] = {false}; /* in pieces, farther above */
        if (p->shards == 1 || pieces <= 1)
                return;
        steps->count = 0;
        for (int s = 0; s < from.count; s++) {
                const int sum = from.at[s].kind == KERNEL_MATMUL ? sum_of(&from, s) : -1;
                if (sum >= 0) {
                        add_pieces(p, &from, s, sum, pieces, steps);
                        summed[sum] = true;
                        s += sum == s + 1;
                } else if (summed[s]) {
                        program_add_step(steps, (struct step){.kind = KERNEL_JOIN, .unit = from.at[s].unit});
                } else {
                        program_add_step(steps, from.at[s]);
                }
        }
}
