/* The steps of a backward, or of a part of one: with what is run again before it is read, and nothing done in
 * place that the other part reads later. */
#include "models/program.h"

#include <string.h>

/* Rows that both parts read whole are gathered in each: what is kept between them is a shard's own. */
static bool is_listed(const struct step *step, enum kernel_part parts)
{
        if (parts == PART_BOTH)
                return true;
        if (step->kind == KERNEL_TENSOR_ALL_GATHER)
                return step->part & parts;
        return parts == PART_INPUT ? step->part != PART_WEIGHT : !(step->part & PART_INPUT);
}

/* ---- what is run again ---- */

static int maker_of(const struct program *p, int value)
{
        for (int s = 0; s < p->forward.count; s++)
                for (int i = 0; i < KERNEL_OPERANDS; i++)
                        if (p->forward.at[s].view[i].value == value && step_writes(&p->forward.at[s], i))
                                return s;
        return -1;
}

/* Whether a set names what a step makes by its i-th operand; a norm's statistics stay. */
static bool is_named(enum recompute recompute, const struct step *step, int i)
{
        enum { NORM_OF_FUSED = 5 };
        switch (step->kind) {
        case KERNEL_SWIGLU:
        case KERNEL_WEIGHTED_SWIGLU:
                return recompute_has_swiglu(recompute);
        case KERNEL_LAYERNORM:
        case KERNEL_RMSNORM:
                return i == 0 && recompute_has_norms(recompute);
        case KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM:
                return i == NORM_OF_FUSED && recompute_has_norms(recompute);
        default:
                return false;
        }
}

/* A forward step as it runs again: of a norm behind a product, whose result is stored, the norm alone. */
static struct step again_of(const struct program *p, enum recompute recompute, const struct step *step)
{
        const struct view *v = step->view;
        if (step->kind != KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM || !program_stores(p, recompute, v[0].value))
                return *step;
        return (struct step){.kind = KERNEL_LAYERNORM,
                             .unit = step->unit,
                             .scalar = {step->scalar[0]},
                             .view = {v[5], v[6], v[0], v[7], v[8]}};
}

/* What a step makes a copy of, or finds the scale of, which is stored where that is; -1: it does neither. */
static int quantized_by(const struct program *p, const struct step *step)
{
        enum { SCALED = 1, QUANTIZED = 2 };
        return step->kind == KERNEL_QUANTIZE  ? step_reads(p, step, QUANTIZED)
               : step->kind == KERNEL_MAXIMUM ? step_reads(p, step, SCALED)
                                              : -1;
}

/* Whether `value`, an activation of the forward, is stored. */
bool program_stores(const struct program *p, enum recompute recompute, int value)
{
        if (recompute == RECOMPUTE_NONE)
                return true;
        if (recompute == RECOMPUTE_FULL || recompute == RECOMPUTE_LAYER)
                return false; /* the layer's input alone, which no step of it makes */
        const int maker = maker_of(p, value);
        const int of = maker >= 0 ? quantized_by(p, &p->forward.at[maker]) : -1;
        if (of >= 0)
                return program_stores(p, recompute, of);
        for (int i = 0; recompute != RECOMPUTE_SELECTIVE && maker >= 0 && i < KERNEL_OPERANDS; i++)
                if (p->forward.at[maker].view[i].value == value)
                        return !is_named(recompute, &p->forward.at[maker], i);
        const int unit = maker >= 0 ? p->forward.at[maker].unit : -1;
        for (int s = 0; s < p->forward.count; s++) /* of attention what its softmax made, and made that of */
                if (p->forward.at[s].kind == KERNEL_SOFTMAX && p->forward.at[s].unit == unit)
                        return maker > s;
        return true;
}

/* Marks the forward steps that must run again for `value` to be there. */
static void need(const struct program *p, enum recompute recompute, int value, bool again[PROGRAM_STEPS])
{
        const int maker = value >= 0 && !program_stores(p, recompute, value) ? maker_of(p, value) : -1;
        if (maker < 0 || again[maker])
                return;
        again[maker] = true;
        const struct step step = again_of(p, recompute, &p->forward.at[maker]);
        for (int i = 0; i < KERNEL_OPERANDS; i++)
                need(p, recompute, step_reads(p, &step, i), again);
}

/* Where a norm runs again whose statistics are not stored, its sums are added up again. */
static void sum_again(const struct program *p, enum recompute recompute, bool again[PROGRAM_STEPS])
{
        for (int s = 0; s + 1 < p->forward.count; s++)
                if (p->forward.at[s].kind == KERNEL_TENSOR_X_ALLREDUCE &&
                    p->values[p->forward.at[s].view[0].value].role == ROLE_GATHERED)
                        again[s] =
                                again[s + 1] && (recompute == RECOMPUTE_FULL || recompute == RECOMPUTE_LAYER);
}

/* Where a collective runs again beside other steps, what waits for it does so, too. */
static void join_again(const struct program *p, bool again[PROGRAM_STEPS])
{
        bool beside = false;
        for (int s = 0; s < p->forward.count; s++) {
                again[s] |= beside && p->forward.at[s].kind == KERNEL_JOIN;
                if (again[s] && kernel_collective(p->forward.at[s].kind))
                        beside = p->forward.at[s].beside;
        }
}

/* Marks the forward steps that make what the steps [first, end) read and is not there. */
static void mark_again(const struct program *p, enum recompute recompute, enum kernel_part parts, int first,
                       int end, bool again[PROGRAM_STEPS])
{
        for (int s = first; s < end; s++)
                for (int i = 0; i < KERNEL_OPERANDS && is_listed(&p->backward.at[s], parts); i++)
                        need(p, recompute, step_reads(p, &p->backward.at[s], i), again);
        if (recompute == RECOMPUTE_LAYER && parts & PART_INPUT && p->output >= 0)
                need(p, recompute, p->output, again);
        join_again(p, again);
        sum_again(p, recompute, again);
}

void program_run_again(const struct program *p, enum recompute recompute, bool again[PROGRAM_STEPS])
{
        memset(again, 0, PROGRAM_STEPS * sizeof *again);
        mark_again(p, recompute, PART_BOTH, 0, p->backward.count, again);
}

static void run_again_for(const struct program *p, enum recompute recompute, enum kernel_part parts,
                          int first, int end, struct steps *out)
{
        bool again[PROGRAM_STEPS] = {false};
        mark_again(p, recompute, parts, first, end, again);
        for (int s = 0; s < p->forward.count; s++)
                if (again[s])
                        program_add_step(out, again_of(p, recompute, &p->forward.at[s]));
}

/* ---- in place ---- */

/* Whether a step is of the other part, if the backward is in two. */
static bool is_of_other(const struct step *step, enum kernel_part parts)
{
        return parts != PART_BOTH && is_listed(step, parts == PART_INPUT ? PART_WEIGHT : PART_INPUT);
}

/* Whether a step of the other part reads `value`. */
static bool is_read_later(const struct program *p, enum kernel_part parts, int value)
{
        for (int s = 0; s < p->backward.count; s++)
                for (int i = 0; i < KERNEL_OPERANDS; i++)
                        if (is_of_other(&p->backward.at[s], parts) &&
                            step_reads(p, &p->backward.at[s], i) == value)
                                return true;
        return false;
}

/* The operand of rows that a step adds to; -1: there is none. */
static int added_to(const struct program *p, const struct step *step)
{
        const struct kernel_operand *operands = kernel_descriptor(step->kind)->operands;
        for (int i = 0; step->accumulate && i < KERNEL_OPERANDS && operands[i].name; i++)
                if (operands[i].reads == WHEN_ACCUMULATING &&
                    p->values[step->view[i].value].role == ROLE_FLOW)
                        return i;
        return -1;
}

/* Whether what a step adds to `past` must not lie where that does: `past` is read later; or what the step
 * makes is, and `past` is the gradient of the layer's output, whose memory is not kept for that. */
static bool needs_own_memory(const struct program *p, enum kernel_part parts, int past, int made)
{
        return is_read_later(p, parts, past) || (past == p->output_gradient && is_read_later(p, parts, made));
}

/* A step that adds to a value which must stay as it is writes its own, and that value is added to it. */
static void list_step(const struct program *p, enum kernel_part parts, const struct step *step,
                      struct steps *out)
{
        struct step *listed = program_add_step(out, *step);
        const int to = added_to(p, step), past = to >= 0 ? step_reads(p, step, to) : -1;
        if (past < 0 || !needs_own_memory(p, parts, past, step->view[to].value))
                return;
        listed->accumulate = 0;
        struct step sum = {.kind = KERNEL_RESIDUAL, .unit = step->unit};
        sum.view[0] = sum.view[1] = step->view[to];
        sum.view[1].value = (short)past;
        program_add_step(out, sum);
}

void program_list_backward(const struct program *p, enum recompute recompute, enum kernel_part parts,
                           struct steps *out)
{
        const struct steps *from = &p->backward;
        const bool whole = recompute == RECOMPUTE_FULL || recompute == RECOMPUTE_LAYER;
        out->count = 0;
        if (whole)
                run_again_for(p, recompute, parts, 0, from->count, out);
        for (int s = 0; s < from->count; s++) {
                int end = s + 1;
                while (end < from->count && from->at[end].unit == from->at[s].unit)
                        end++;
                const bool begins = s == 0 || from->at[s - 1].unit != from->at[s].unit;
                if (!whole && begins)
                        run_again_for(p, recompute, parts, s, end, out);
                if (is_listed(&from->at[s], parts))
                        list_step(p, parts, &from->at[s], out);
        }
}
