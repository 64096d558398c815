/* Matrices that a grid of shards shares along z, each an even part (Singh et al. 2024): a step that reads one
 * comes behind an all-gather, and what a step adds to the gradient of one is made whole, reduce-scattered,
 * and added to the shard's part. Both live in one pass: weights are gathered again in the backward. */
#include "models/program.h"

static bool is_matrix(struct program *p, int value)
{
        return value >= 0 && p->values[value].role == ROLE_PARAMETER && program_tensor_of(p, value)->matrix;
}

/* All of a matrix as the shards along x and y have it. */
static int add_gathered(struct program *p, int matrix)
{
        struct value value = p->values[matrix];
        value.role = ROLE_GATHERED;
        value.gradient = -1;
        return program_add_value(p, value);
}

/* A shard's part of a gradient, or of what is added to it: one element after another. */
static int add_part(struct program *p, int matrix, enum value_role role)
{
        struct value value = p->values[matrix];
        const int64_t elements = program_elements(p, matrix, 0);
        value.role = role;
        value.axes = 1;
        value.extent[0] = (elements + p->shards_z - 1) / p->shards_z;
        value.state = value.state_x = STATE_WHOLE;
        value.gradient = -1;
        return program_add_value(p, value);
}

static struct view all_of(const struct program *p, int value)
{
        return (struct view){.value = (short)value,
                             .rows = (unsigned char)((1U << p->values[value].axes) - 1),
                             .picked = -1};
}

/* Appends a step of the same unit and part as `of`, on the elements of one value or two. */
static void add(struct program *p, struct steps *steps, const struct step *of, enum kernel_kind kind,
                int made, int from)
{
        struct step step = {
                .kind = kind, .unit = of->unit, .part = of->part, .view = {all_of(p, made), {.value = -1}}};
        if (from >= 0)
                step.view[1] = all_of(p, from);
        program_add_step(steps, step);
}

/* The matrix of which `value` is the gradient; -1: it is of none. A parameter is followed by its gradient. */
static int matrix_of(struct program *p, int value)
{
        if (value < 0 || p->values[value].role != ROLE_GRADIENT || !is_matrix(p, value - 1))
                return -1;
        return value - 1;
}

/* A step that adds to gradients of matrices makes them whole, from zeros if it can only add. */
static void scatter(struct program *p, struct steps *steps, struct step step)
{
        int matrices[KERNEL_OPERANDS], whole[KERNEL_OPERANDS], count = 0;
        for (int i = 0; i < KERNEL_OPERANDS; i++) {
                const int matrix = matrix_of(p, step.view[i].value);
                if (matrix < 0)
                        continue;
                matrices[count] = matrix;
                whole[count] = add_gathered(p, matrix);
                step.view[i].value = (short)whole[count];
                if (step.kind == KERNEL_MATMUL)
                        step.accumulate = 0;
                else
                        add(p, steps, &step, KERNEL_CLEAR, whole[count], -1);
                count++;
        }
        program_add_step(steps, step);
        for (int i = 0; i < count; i++) {
                const int part = add_part(p, matrices[i], ROLE_GATHERED);
                add(p, steps, &step, KERNEL_TENSOR_Z_REDUCE_SCATTER, part, whole[i]);
                add(p, steps, &step, KERNEL_RESIDUAL, add_part(p, matrices[i], ROLE_GRADIENT), part);
        }
}

static void share(struct program *p, struct steps *steps)
{
        const struct steps from = *steps;
        steps->count = 0;
        for (int s = 0; s < from.count; s++) {
                struct step step = from.at[s];
                for (int i = 0; i < KERNEL_OPERANDS; i++) {
                        const int matrix = step.view[i].value;
                        if (!is_matrix(p, matrix))
                                continue;
                        step.view[i].value = (short)add_gathered(p, matrix);
                        add(p, steps, &step, KERNEL_TENSOR_Z_ALL_GATHER, step.view[i].value, matrix);
                }
                scatter(p, steps, step);
        }
}

void program_share(struct program *p)
{
        if (p->shards_z == 1)
                return;
        share(p, &p->forward);
        share(p, &p->backward);
}
