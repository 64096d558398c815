/* Products whose operands are copies in a format with fewer bits, as Transformer Engine has them: of linear
 * layers, forward and backward, but not attention, nor a router. Every operand is quantized right before the
 * first product that reads it, or before it is gathered. The tensor cores read both operands along what is
 * summed over, so the gradient of weights reads transposed copies of what went in and of the gradient of what
 * came out: those are written beside the others. */
#include "models/program.h"

#include <string.h>

struct quantizing {
        struct program *p;
        enum product_format format;
        bool maxima, weights_each_pass;
        bool weight[PROGRAM_VALUES]; /* parameters that such products read */
        /* The copies of a value; -1: none yet. */
        short copy[PROGRAM_VALUES], transposed[PROGRAM_VALUES];
};

/* ---- which products ---- */

/* The place of an operand of one of two extents; -1: the kind has none. */
static int operand_with(const struct step *step, enum operand_extent one, enum operand_extent other)
{
        const struct kernel_operand *operands = kernel_descriptor(step->kind)->operands;
        for (int i = 0; i < KERNEL_OPERANDS && operands[i].name; i++)
                if (operands[i].extent == one || operands[i].extent == other)
                        return i;
        return -1;
}

/* The places of a product's two factors. Returns false for any other step. */
static bool factors_of(const struct step *step, int factors[2])
{
        factors[0] = operand_with(step, EXTENT_MK, EXTENT_MK);
        factors[1] = operand_with(step, EXTENT_KN, EXTENT_EKN);
        return kernel_descriptor(step->kind)->products == 1 && factors[0] >= 0 && factors[1] >= 0;
}

/* Whether experts are chosen by a value, or by what a collective made of it. */
static bool is_routed_by(const struct program *p, int value)
{
        enum { LOGITS = 4 };
        for (int s = 0; s < p->forward.count; s++)
                if (p->forward.at[s].kind == KERNEL_ROUTE &&
                    value_root(p, p->forward.at[s].view[LOGITS].value) == value)
                        return true;
        return false;
}

static void mark_forward(struct quantizing *q)
{
        struct steps *steps = &q->p->forward;
        int factors[2];
        for (int s = 0; s < steps->count; s++) {
                struct step *step = &steps->at[s];
                if (!factors_of(step, factors))
                        continue;
                const int weight = step->view[factors[1]].value,
                          made = step->view[operand_with(step, EXTENT_MN, EXTENT_MN)].value;
                if (q->p->values[weight].role != ROLE_PARAMETER || is_routed_by(q->p, made))
                        continue;
                q->weight[weight] = true;
                step->format = (unsigned char)q->format;
        }
}

/* Whether a value is the gradient of a parameter that such products read. */
static bool is_gradient_of_weight(const struct quantizing *q, int value)
{
        if (value < 0 || q->p->values[value].role != ROLE_GRADIENT)
                return false;
        for (int weight = 0; weight < q->p->value_count; weight++)
                if (q->weight[weight] && q->p->values[weight].gradient == value)
                        return true;
        return false;
}

static void mark_backward(struct quantizing *q)
{
        struct steps *steps = &q->p->backward;
        int factors[2];
        for (int s = 0; s < steps->count; s++) {
                struct step *step = &steps->at[s];
                if (!factors_of(step, factors))
                        continue;
                const int made = step->view[operand_with(step, EXTENT_MN, EXTENT_EMN)].value;
                if (q->weight[step->view[factors[0]].value] || q->weight[step->view[factors[1]].value] ||
                    is_gradient_of_weight(q, made))
                        step->format = (unsigned char)q->format;
        }
}

/* ---- copies ---- */

static short add_copy(struct quantizing *q, int of, int origin)
{
        struct value copy = q->p->values[of];
        copy.format = (unsigned char)q->format;
        copy.overwrites = copy.gradient = -1;
        copy.origin = origin;
        if (copy.role == ROLE_INPUT)
                copy.role = ROLE_ACTIVATION;
        else if (copy.role == ROLE_PARAMETER)
                copy.role = ROLE_GATHERED; /* of one pass */
        return (short)program_add_value(q->p, copy);
}

static struct view of_value(struct view like, short value)
{
        like.value = value;
        return like;
}

/* A view as the value lies in memory. */
static struct view lying(struct view view)
{
        const struct view seen = view;
        if (seen.rows > seen.cols) {
                view.rows = seen.cols;
                view.cols = seen.rows;
        }
        return view;
}

/* Appends the step that finds what `x` is scaled by, and returns a view of that. */
static struct view find_scale(struct quantizing *q, struct steps *to, const struct step *step, struct view x)
{
        const enum value_role role = q->p->values[x.value].role;
        struct value scale = {.name = "scale",
                              .role = role == ROLE_FLOW        ? ROLE_FLOW
                                      : role == ROLE_PARAMETER ? ROLE_GATHERED
                                                               : ROLE_ACTIVATION,
                              .type = OPERAND_REAL,
                              .axes = 1,
                              .extent = {1},
                              .state = STATE_WHOLE,
                              .state_x = STATE_WHOLE,
                              .overwrites = -1,
                              .origin = -1,
                              .gradient = -1};
        const struct view view = {.value = (short)program_add_value(q->p, scale), .rows = 1, .picked = -1};
        program_add_step(to, (struct step){.kind = KERNEL_MAXIMUM,
                                           .unit = step->unit,
                                           .part = step->part,
                                           .view = {view, x}});
        return view;
}

/* Appends the step that makes one of the copies of what `step` sees as `x`, or both. */
static void quantize(struct quantizing *q, struct steps *to, const struct step *step, struct view x,
                     bool copy, bool transposed)
{
        enum { COPY, TRANSPOSED, OF, SCALE };
        struct step made = {.kind = KERNEL_QUANTIZE,
                            .unit = step->unit,
                            .part = step->part,
                            .format = (unsigned char)q->format,
                            .experts = (short)program_step_experts(q->p, step)};
        x = lying(x);
        if (q->maxima)
                made.view[SCALE] = find_scale(q, to, step, x);
        if (copy) {
                q->copy[x.value] = add_copy(q, x.value, -1);
                made.view[COPY] = of_value(x, q->copy[x.value]);
        }
        if (transposed) {
                q->transposed[x.value] = add_copy(q, x.value, -1);
                made.view[TRANSPOSED] = of_value(x, q->transposed[x.value]);
        }
        made.view[OF] = x;
        program_add_step(to, made);
}

/* Appends the step that transposes the copy of a value. */
static void transpose(struct quantizing *q, struct steps *to, const struct step *step, struct view x)
{
        x = lying(x);
        q->transposed[x.value] = add_copy(q, x.value, -1);
        program_add_step(to, (struct step){.kind = KERNEL_TRANSPOSE_QUANTIZED,
                                           .unit = step->unit,
                                           .part = step->part,
                                           .format = (unsigned char)q->format,
                                           .view = {of_value(x, q->transposed[x.value]),
                                                    of_value(x, q->copy[x.value])}});
}

/* ---- who reads ---- */

static bool reads(const struct program *p, const struct step *step, int value)
{
        for (int i = 0; i < KERNEL_OPERANDS; i++)
                if (step_reads(p, step, i) == value)
                        return true;
        return false;
}

/* Whether a marked product of such a part reads a value; 0: of a forward. */
static bool is_read_by_part(const struct program *p, const struct steps *steps, int value, unsigned char part)
{
        for (int s = 0; s < steps->count; s++)
                if (steps->at[s].format != FORMAT_STORED && steps->at[s].part == part &&
                    reads(p, &steps->at[s], value))
                        return true;
        return false;
}

/* Whether a step gathers rows that marked products alone read. */
static bool gathers_for_products(const struct program *p, const struct steps *steps, const struct step *step)
{
        if (!program_gathers_rows(p, step) || p->values[step->view[0].value].type != OPERAND_STORED)
                return false;
        for (int s = 0; s < steps->count; s++)
                if (steps->at[s].format == FORMAT_STORED && reads(p, &steps->at[s], step->view[0].value))
                        return false;
        return true;
}

/* ---- forward ---- */

/* A gather of copies: of `from`, into one that is called `made`. */
static void gather(struct quantizing *q, struct steps *to, struct step step, short from, short made[])
{
        const int whole = step.view[0].value;
        made[whole] = add_copy(q, whole, from);
        step.view[0].value = made[whole];
        step.view[1].value = from;
        step.format = (unsigned char)q->format;
        program_add_step(to, step);
}

/* The copy of a parameter that is made in each pass. */
static void copy_weight(struct quantizing *q, struct steps *to, const struct step *step, struct view *weight)
{
        if (!q->weights_each_pass)
                return;
        if (q->copy[weight->value] < 0)
                quantize(q, to, step, *weight, true, false);
        weight->value = q->copy[weight->value];
}

static void forward(struct quantizing *q)
{
        struct program *p = q->p;
        const struct steps from = p->forward;
        int factors[2];
        p->forward.count = 0;
        for (int s = 0; s < from.count; s++) {
                struct step step = from.at[s];
                if (gathers_for_products(p, &from, &step)) {
                        const struct view rows = step.view[1];
                        if (q->copy[rows.value] < 0)
                                quantize(q, &p->forward, &step, rows, true, true);
                        gather(q, &p->forward, step, q->copy[rows.value], q->copy);
                        continue;
                }
                if (step.format != FORMAT_STORED && factors_of(&step, factors)) {
                        struct view *x = &step.view[factors[0]];
                        if (q->copy[x->value] < 0) /* a backward gathers again what was gathered */
                                quantize(q, &p->forward, &step, *x, true, p->values[x->value].origin < 0);
                        x->value = q->copy[x->value];
                        copy_weight(q, &p->forward, &step, &step.view[factors[1]]);
                }
                program_add_step(&p->forward, step);
        }
}

/* ---- backward ---- */

/* A gather for products: of what went in as the forward left it, else of a copy that is made before. */
static void gather_backward(struct quantizing *q, const struct steps *from, const struct step *step)
{
        const struct program *p = q->p;
        const struct view rows = step->view[1];
        if (q->transposed[rows.value] >= 0 && !is_read_by_part(p, from, step->view[0].value, PART_INPUT)) {
                gather(q, &q->p->backward, *step, q->transposed[rows.value], q->transposed);
                return;
        }
        if (q->copy[rows.value] < 0) {
                struct step before = *step;
                before.part = PART_INPUT;
                quantize(q, &q->p->backward, &before, rows, true, false);
        }
        gather(q, &q->p->backward, *step, q->copy[rows.value], q->copy);
}

/* Has a factor of a product of the backward be a copy, which is made before if it is not there. */
static void copy_factor(struct quantizing *q, const struct steps *from, const struct step *step,
                        struct view *factor)
{
        const int value = factor->value;
        struct steps *to = &q->p->backward;
        if (q->weight[value]) {
                copy_weight(q, to, step, factor);
                return;
        }
        if (step->part == PART_INPUT) {
                if (q->copy[value] < 0)
                        quantize(q, to, step, *factor, true, is_read_by_part(q->p, from, value, PART_WEIGHT));
                factor->value = q->copy[value];
                return;
        }
        if (q->transposed[value] < 0 && q->copy[value] >= 0)
                transpose(q, to, step, *factor);
        else if (q->transposed[value] < 0)
                quantize(q, to, step, *factor, false, true);
        factor->value = q->transposed[value];
}

static void backward(struct quantizing *q)
{
        struct program *p = q->p;
        const struct steps from = p->backward;
        int factors[2];
        p->backward.count = 0;
        for (int value = 0; value < PROGRAM_VALUES; value++) /* of the forward, which lie no more */
                q->copy[value] = -1;
        for (int s = 0; s < from.count; s++) {
                struct step step = from.at[s];
                if (gathers_for_products(p, &from, &step)) {
                        gather_backward(q, &from, &step);
                        continue;
                }
                if (step.format != FORMAT_STORED && factors_of(&step, factors))
                        for (int i = 0; i < 2; i++)
                                copy_factor(q, &from, &from.at[s], &step.view[factors[i]]);
                program_add_step(&p->backward, step);
        }
}

void program_quantize(struct program *p, enum product_format format, bool maxima, bool weights_each_pass)
{
        struct quantizing q = {
                .p = p, .format = format, .maxima = maxima, .weights_each_pass = weights_each_pass};
        for (int value = 0; value < PROGRAM_VALUES; value++)
                q.copy[value] = q.transposed[value] = -1;
        mark_forward(&q);
        mark_backward(&q);
        forward(&q);
        backward(&q);
}
