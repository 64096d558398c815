/* The backward of a layer: the adjoints of its forward's steps, in reverse. Of a product the gradient of its
 * input comes before that of its weights, and behind both those of the vectors of what follows it in place; a
 * gradient that comes past a residual connection is added to where it lies. */
#include "models/program.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { PENDING = 4 };

struct adjoint {
        struct program *p;
        int gradient[PROGRAM_VALUES];          /* of an activation, as far as it has come; -1: none yet */
        unsigned char written[PROGRAM_VALUES]; /* of a gradient that is made part by part: which are there */
        struct step pending[PENDING];          /* vectors' gradients that wait for their product's */
        int pending_count;
        int unit;
};

/* A new gradient, with the extents of what it is of. */
static int new_gradient(struct adjoint *a, int of)
{
        struct value value = a->p->values[of];
        char name[VALUE_NAME];
        snprintf(name, sizeof name, "d %.*s", VALUE_NAME - 3, value.name);
        memcpy(value.name, name, sizeof name);
        value.role = ROLE_FLOW;
        value.state = value.state_x = STATE_WHOLE;
        value.overwrites = value.origin = value.gradient = -1;
        return program_add_value(a->p, value);
}

/* The gradient `over`, after a step that works in place. */
static int overwriting(struct adjoint *a, int over)
{
        struct value value = a->p->values[over];
        value.overwrites = over;
        return program_add_value(a->p, value);
}

static int gradient_of(const struct adjoint *a, int value)
{
        const int gradient = a->gradient[value_root(a->p, value)];
        assert(gradient >= 0);
        return gradient;
}

static void set_gradient(struct adjoint *a, int value, int gradient)
{
        a->gradient[value_root(a->p, value)] = gradient;
}

static struct view of_value(struct view like, int value)
{
        like.value = (short)value;
        return like;
}

/* What a forward step read, which is what any collective made it of: those gather again. */
static struct view saved(const struct adjoint *a, struct view view)
{
        return of_value(view, value_root(a->p, view.value));
}

static struct view transposed(struct view view)
{
        const unsigned char rows = view.rows;
        view.rows = view.cols;
        view.cols = rows;
        return view;
}

static bool lies_transposed(const struct view *view)
{
        return view->rows > view->cols;
}

static struct step *emit(struct adjoint *a, struct step step)
{
        step.unit = a->unit;
        return program_add_step(&a->p->backward, step);
}

static void defer(struct adjoint *a, struct step step)
{
        assert(a->pending_count < PENDING);
        a->pending[a->pending_count++] = step;
}

static void bias_gradient(struct adjoint *a, const struct view *bias, struct view dy)
{
        const struct value *b = &a->p->values[bias->value];
        defer(a, (struct step){.kind = KERNEL_BIAS_BACKWARD,
                               .part = PART_WEIGHT,
                               .accumulate = 1,
                               .view = {of_value(*bias, b->gradient), dy}});
}

/* ---- products ---- */

/* Of c = a b the gradient of what `seen` shows, left times right; where that lies transposed, its transpose.
 */
static void product_gradient(struct adjoint *a, struct view seen, struct view left, struct view right)
{
        const struct value *value = &a->p->values[seen.value];
        struct step step = {.kind = KERNEL_MATMUL, .part = PART_INPUT};
        if (value->role == ROLE_PARAMETER) {
                step.part = PART_WEIGHT;
                step.accumulate = 1;
                seen.value = (short)value->gradient;
        } else {
                const int of = value_root(a->p, seen.value);
                int gradient = a->gradient[of];
                const bool pick = seen.picked >= 0;
                if (gradient < 0) {
                        gradient = new_gradient(a, of);
                } else if (!pick || a->written[gradient] >> seen.at & 1) {
                        step.accumulate = 1;
                        gradient = overwriting(a, gradient);
                }
                if (pick)
                        a->written[gradient] |= (unsigned char)(1U << seen.at);
                set_gradient(a, of, gradient);
                seen.value = (short)gradient;
        }
        const bool swap = lies_transposed(&seen);
        step.view[0] = swap ? transposed(right) : left;
        step.view[1] = swap ? transposed(left) : right;
        step.view[2] = swap ? transposed(seen) : seen;
        emit(a, step);
}

static void product(struct adjoint *a, struct view left, struct view right, struct view dy)
{
        const struct view l = saved(a, left), r = saved(a, right);
        if (a->p->values[l.value].type == OPERAND_STORED)
                product_gradient(a, l, dy, transposed(r));
        product_gradient(a, r, transposed(l), dy);
        for (int i = 0; i < a->pending_count; i++)
                emit(a, a->pending[i]);
        a->pending_count = 0;
}

/* ---- what follows a product in place ---- */

static void residual(struct adjoint *a, const struct view *past, int gradient)
{
        const int x = value_root(a->p, past->value);
        /* A layer's input gradient lies where its output's did, so the residual's must come first. */
        assert(a->gradient[x] < 0 &&
               "all that reads x, such as norms, is built before a residual sum with x");
        a->gradient[x] = gradient;
}

/* Of what is made of h, element by element, into memory of its own: the gradient of h, in place. */
static int of_elements(struct adjoint *a, enum kernel_kind kind, const struct view *g, const struct view *h)
{
        const int dh = overwriting(a, gradient_of(a, g->value));
        const int unit = a->unit;
        a->unit = a->p->units++;
        emit(a, (struct step){.kind = kind, .part = PART_INPUT, .view = {of_value(*g, dh), saved(a, *h)}});
        a->unit = unit;
        return dh;
}

/* Of a norm whose input is x the gradient of that, added to what came past it. */
static void norm(struct adjoint *a, const struct view *x, struct step step)
{
        const int of = value_root(a->p, x->value), past = a->gradient[of];
        const int dx = past >= 0 ? overwriting(a, past) : new_gradient(a, of);
        const int unit = a->unit;
        a->unit = a->p->units++;
        step.part = PART_BOTH;
        step.accumulate = past >= 0;
        step.view[0] = of_value(*x, dx);
        emit(a, step);
        a->unit = unit;
        set_gradient(a, of, dx);
}

static struct view gradient_of_parameter(const struct adjoint *a, const struct view *w)
{
        return of_value(*w, a->p->values[w->value].gradient);
}

static void layernorm(struct adjoint *a, const struct view *y, const struct view *stats, const struct view *x,
                      const struct view *w, const struct view *b, double more)
{
        norm(a, x,
             (struct step){.kind = KERNEL_LAYERNORM_BACKWARD,
                           .scalar = {more},
                           .view = {{.value = -1},
                                    gradient_of_parameter(a, w),
                                    gradient_of_parameter(a, b),
                                    of_value(*y, gradient_of(a, y->value)),
                                    saved(a, *x),
                                    *stats,
                                    *w}});
}

static void rmsnorm(struct adjoint *a, const struct step *step)
{
        enum { Y, RSTD, X, W };
        const struct view *v = step->view;
        norm(a, &v[X],
             (struct step){.kind = KERNEL_RMSNORM_BACKWARD,
                           .scalar = {step->scalar[0]},
                           .view = {{.value = -1},
                                    gradient_of_parameter(a, &v[W]),
                                    of_value(v[Y], gradient_of(a, v[Y].value)),
                                    saved(a, v[X]),
                                    v[RSTD],
                                    v[W]}});
}

/* In place of the gradient of what is normalised; that of values passes. */
static void head_norms(struct adjoint *a, const struct step *step)
{
        enum { Y, RSTD, X, W };
        const struct view *v = step->view;
        const int dx = overwriting(a, gradient_of(a, v[Y].value)), unit = a->unit;
        a->unit = a->p->units++;
        emit(a, (struct step){.kind = KERNEL_HEAD_RMSNORM_BACKWARD,
                              .part = PART_BOTH,
                              .heads = step->heads,
                              .view = {of_value(v[Y], dx), gradient_of_parameter(a, &v[W]), saved(a, v[X]),
                                       v[RSTD], v[W]}});
        a->unit = unit;
        set_gradient(a, v[X].value, dx);
}

/* ---- mixture of experts ---- */

/* The step that made the order of the rows by which `index`, of a permutation, says where they go. */
static const struct step *router_of(const struct adjoint *a, int index)
{
        enum { PLACE = 1, SOURCE = 2 };
        const struct step *step = a->p->forward.at;
        while (step->kind != KERNEL_ROUTE ||
               (step->view[PLACE].value != index && step->view[SOURCE].value != index))
                step++;
        return step;
}

static void unpermute(struct adjoint *a, const struct view *y, const struct view *x, const struct view *place)
{
        enum { SOURCE = 2 };
        const int dx = new_gradient(a, x->value);
        emit(a, (struct step){.kind = KERNEL_PERMUTE,
                              .part = PART_INPUT,
                              .view = {of_value(*x, dx), of_value(*y, gradient_of(a, y->value)),
                                       router_of(a, place->value)->view[SOURCE]}});
        set_gradient(a, x->value, dx);
}

static void permute(struct adjoint *a, const struct view *y, const struct view *x, const struct view *source)
{
        enum { PLACE = 1 };
        const int of = value_root(a->p, x->value), past = a->gradient[of];
        const int dx = past >= 0 ? overwriting(a, past) : new_gradient(a, of);
        emit(a, (struct step){.kind = KERNEL_UNPERMUTE,
                              .part = PART_INPUT,
                              .accumulate = past >= 0,
                              .view = {of_value(*x, dx), of_value(*y, gradient_of(a, y->value)),
                                       router_of(a, source->value)->view[PLACE]}});
        set_gradient(a, of, dx);
}

static void grouped_product(struct adjoint *a, const struct view *x, const struct view *w,
                            const struct view *y, const struct view *ends)
{
        const struct view dy = of_value(*y, gradient_of(a, y->value)), to = transposed(*w);
        const int dx = new_gradient(a, x->value);
        emit(a, (struct step){.kind = KERNEL_GROUPED_MATMUL,
                              .part = PART_INPUT,
                              .view = {dy, to, of_value(*x, dx), *ends}});
        emit(a, (struct step){
                        .kind = KERNEL_GROUPED_MATMUL_BACKWARD,
                        .part = PART_WEIGHT,
                        .accumulate = 1,
                        .view = {transposed(dy), *x, of_value(to, a->p->values[w->value].gradient), *ends}});
        set_gradient(a, x->value, dx);
}

/* Of rows that were sent, or came back, the gradients come back, or are sent. */
static void exchange(struct adjoint *a, const struct step *step)
{
        enum { Y, X, ALL_ENDS };
        const struct view *v = step->view;
        const int dx = new_gradient(a, v[X].value);
        emit(a, (struct step){.kind = step->kind == KERNEL_EXPERT_DISPATCH ? KERNEL_EXPERT_COMBINE
                                                                           : KERNEL_EXPERT_DISPATCH,
                              .part = PART_INPUT,
                              .view = {of_value(v[X], dx), of_value(v[Y], gradient_of(a, v[Y].value)),
                                       v[ALL_ENDS]}});
        set_gradient(a, v[X].value, dx);
}

static void weighted_swiglu(struct adjoint *a, const struct view *y, const struct view *gates,
                            const struct view *weights, const struct view *ends)
{
        const int dgates = new_gradient(a, gates->value), dweights = new_gradient(a, weights->value);
        emit(a, (struct step){.kind = KERNEL_WEIGHTED_SWIGLU_BACKWARD,
                              .part = PART_INPUT,
                              .view = {of_value(*gates, dgates), of_value(*weights, dweights),
                                       of_value(*y, gradient_of(a, y->value)), *gates, *weights, *ends}});
        set_gradient(a, gates->value, dgates);
        set_gradient(a, weights->value, dweights);
}

static void route(struct adjoint *a, const struct step *step)
{
        enum { WEIGHTS, PLACE, SOURCE, ENDS, LOGITS, FORWARD_SCALARS = 4 };
        const struct view *v = step->view;
        const int of = value_root(a->p, v[LOGITS].value), dlogits = new_gradient(a, of);
        struct step back = {.kind = KERNEL_ROUTE_BACKWARD,
                            .part = PART_INPUT,
                            .view = {of_value(v[LOGITS], dlogits),
                                     of_value(v[WEIGHTS], gradient_of(a, v[WEIGHTS].value)), v[WEIGHTS],
                                     v[PLACE], v[ENDS], saved(a, v[LOGITS])}};
        memcpy(back.scalar, step->scalar, FORWARD_SCALARS * sizeof *back.scalar);
        emit(a, back);
        set_gradient(a, of, dlogits);
}

static void swiglu(struct adjoint *a, const struct view *y, const struct view *gates)
{
        const int of = value_root(a->p, gates->value), d = new_gradient(a, of), unit = a->unit;
        a->unit = a->p->units++;
        emit(a, (struct step){.kind = KERNEL_SWIGLU_BACKWARD,
                              .part = PART_INPUT,
                              .view = {of_value(*gates, d), of_value(*y, gradient_of(a, y->value)),
                                       saved(a, *gates)}});
        a->unit = unit;
        set_gradient(a, of, d);
}

/* The inverse rotation, in place. */
static void rope(struct adjoint *a, const struct step *step)
{
        const int g = overwriting(a, gradient_of(a, step->view[0].value));
        struct step inverse = *step;
        inverse.part = PART_INPUT;
        inverse.view[0].value = (short)g;
        inverse.scalar[1] = -step->scalar[1];
        emit(a, inverse);
        set_gradient(a, step_reads(a->p, step, 0), g);
}

static void attention(struct adjoint *a, const struct step *step)
{
        enum { Y, LSE, QKV };
        const struct view *v = step->view;
        struct value rows = a->p->values[v[LSE].value];
        strcpy(rows.name, "rows");
        rows.role = ROLE_FLOW;
        const int scratch = program_add_value(a->p, rows),
                  dqkv = new_gradient(a, value_root(a->p, v[QKV].value));
        emit(a, (struct step){.kind = KERNEL_ATTENTION_BACKWARD,
                              .scalar = {step->scalar[0]},
                              .heads = step->heads,
                              .part = PART_INPUT,
                              .view = {of_value(v[QKV], dqkv), of_value(v[LSE], scratch),
                                       of_value(v[Y], gradient_of(a, v[Y].value)), v[Y], v[LSE],
                                       saved(a, v[QKV])}});
        set_gradient(a, v[QKV].value, dqkv);
}

/* The gradient of what a step of rows made of one value, and of nothing else. */
static struct view new_gradient_of(struct adjoint *a, const struct view *x)
{
        const int of = value_root(a->p, x->value);
        assert(a->gradient[of] < 0);
        set_gradient(a, of, new_gradient(a, of));
        return of_value(*x, a->gradient[of]);
}

static void split_columns(struct adjoint *a, const struct view *first, const struct view *second,
                          const struct view *x)
{
        const struct view left = of_value(*first, gradient_of(a, first->value));
        const struct view right = of_value(*second, gradient_of(a, second->value));
        emit(a, (struct step){.kind = KERNEL_JOIN_COLUMNS,
                              .part = PART_INPUT,
                              .view = {new_gradient_of(a, x), left, right}});
}

static void latent_qkv(struct adjoint *a, const struct step *step)
{
        enum { QKV, Q, KV, SHARED };
        const struct view *v = step->view, dqkv = of_value(v[QKV], gradient_of(a, v[QKV].value));
        struct step back = *step;
        back.kind = KERNEL_LATENT_QKV_BACKWARD;
        back.part = PART_INPUT;
        for (int i = Q; i <= SHARED; i++)
                back.view[i - 1] = new_gradient_of(a, &v[i]);
        back.view[3] = dqkv;
        emit(a, back);
}

static void narrow(struct adjoint *a, const struct view *y, const struct view *x)
{
        const struct view dy = of_value(*y, gradient_of(a, y->value));
        emit(a, (struct step){.kind = KERNEL_WIDEN, .part = PART_INPUT, .view = {new_gradient_of(a, x), dy}});
}

/* ---- the adjoint of a step ---- */

static void adjoint_of(struct adjoint *a, const struct step *step)
{
        const struct view *v = step->view;
        int g;
        a->unit = step->unit;
        switch (step->kind) {
        case KERNEL_MATMUL:
                product(a, v[0], v[1], of_value(v[2], gradient_of(a, v[2].value)));
                break;
        case KERNEL_BIAS:
                g = gradient_of(a, v[0].value);
                set_gradient(a, step_reads(a->p, step, 0), g);
                bias_gradient(a, &v[1], of_value(v[0], g));
                break;
        case KERNEL_BIAS_RESIDUAL:
                g = gradient_of(a, v[0].value);
                set_gradient(a, step_reads(a->p, step, 0), g);
                bias_gradient(a, &v[1], of_value(v[0], g));
                residual(a, &v[2], g);
                break;
        case KERNEL_BIAS_GELU:
                g = of_elements(a, KERNEL_GELU_BACKWARD, &v[0], &v[1]);
                set_gradient(a, step_reads(a->p, step, 1), g);
                bias_gradient(a, &v[2], of_value(v[1], g));
                break;
        case KERNEL_MATMUL_BIAS:
                g = gradient_of(a, v[0].value);
                bias_gradient(a, &v[3], of_value(v[0], g));
                product(a, v[1], v[2], of_value(v[0], g));
                break;
        case KERNEL_MATMUL_BIAS_GELU:
                g = of_elements(a, KERNEL_GELU_BACKWARD, &v[0], &v[1]);
                bias_gradient(a, &v[4], of_value(v[1], g));
                product(a, v[2], v[3], of_value(v[1], g));
                break;
        case KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM:
                layernorm(a, &v[5], &v[6], &v[0], &v[7], &v[8], step->scalar[0]);
                a->unit = step->unit; /* what is left is a product with its residual */
                /* fallthrough */
        case KERNEL_MATMUL_BIAS_RESIDUAL:
                g = gradient_of(a, v[0].value);
                bias_gradient(a, &v[3], of_value(v[0], g));
                residual(a, &v[4], g);
                product(a, v[1], v[2], of_value(v[0], g));
                break;
        case KERNEL_LAYERNORM:
                layernorm(a, &v[0], &v[1], &v[2], &v[3], &v[4], step->scalar[0]);
                break;
        case KERNEL_RMSNORM:
                rmsnorm(a, step);
                break;
        case KERNEL_HEAD_RMSNORM:
                head_norms(a, step);
                break;
        case KERNEL_SWIGLU:
                swiglu(a, &v[0], &v[1]);
                break;
        case KERNEL_SQUARED_RELU:
                set_gradient(a, v[1].value, of_elements(a, KERNEL_SQUARED_RELU_BACKWARD, &v[0], &v[1]));
                break;
        case KERNEL_ROPE:
                rope(a, step);
                break;
        case KERNEL_SPLIT_COLUMNS:
                split_columns(a, &v[0], &v[1], &v[2]);
                break;
        case KERNEL_LATENT_QKV:
                latent_qkv(a, step);
                break;
        case KERNEL_NARROW:
                narrow(a, &v[0], &v[1]);
                break;
        case KERNEL_ROUTE:
                route(a, step);
                break;
        case KERNEL_PERMUTE:
                permute(a, &v[0], &v[1], &v[2]);
                break;
        case KERNEL_UNPERMUTE:
                unpermute(a, &v[0], &v[1], &v[2]);
                break;
        case KERNEL_GROUPED_MATMUL:
                grouped_product(a, &v[0], &v[1], &v[2], &v[3]);
                break;
        case KERNEL_WEIGHTED_SWIGLU:
                weighted_swiglu(a, &v[0], &v[1], &v[2], &v[3]);
                break;
        case KERNEL_EXPERT_DISPATCH:
        case KERNEL_EXPERT_COMBINE:
                exchange(a, step);
                break;
        case KERNEL_RESIDUAL:
                g = gradient_of(a, v[0].value);
                set_gradient(a, step_reads(a->p, step, 0), g);
                residual(a, &v[1], g);
                break;
        case KERNEL_SOFTMAX:
                g = overwriting(a, gradient_of(a, v[0].value));
                emit(a, (struct step){.kind = KERNEL_SOFTMAX_BACKWARD,
                                      .scalar = {step->scalar[0]},
                                      .part = PART_INPUT,
                                      .view = {of_value(v[0], g), v[0]}});
                set_gradient(a, step_reads(a->p, step, 0), g);
                break;
        case KERNEL_ATTENTION:
                attention(a, step);
                break;
        case KERNEL_CROSS_ENTROPY: /* its forward leaves the gradient of the logits in their place */
                set_gradient(a, step_reads(a->p, step, 1), v[1].value);
                break;
        case KERNEL_EMBEDDING:
                g = gradient_of(a, v[0].value);
                emit(a, (struct step){.kind = KERNEL_EMBEDDING_BACKWARD,
                                      .part = PART_WEIGHT,
                                      .accumulate = 1,
                                      .view = {gradient_of_parameter(a, &v[2]),
                                               v[3].value < 0 ? v[3] : gradient_of_parameter(a, &v[3]),
                                               of_value(v[0], g), v[1]}});
                break;
        default: /* a collective, or of a validation: nothing to do */
                break;
        }
        /* The loss's products run a chunk of rows after another, as their forward does. */
        for (int s = 0; step->chunked && s < a->p->backward.count; s++)
                if (a->p->backward.at[s].unit == step->unit)
                        a->p->backward.at[s].chunked = 1;
}

void program_backward(struct program *p)
{
        struct adjoint a = {.p = p};
        for (int i = 0; i < PROGRAM_VALUES; i++)
                a.gradient[i] = -1;
        if (p->output >= 0) {
                p->output_gradient = new_gradient(&a, p->output);
                set_gradient(&a, p->output, p->output_gradient);
        }
        for (int s = p->forward.count - 1; s >= 0; s--)
                adjoint_of(&a, &p->forward.at[s]);
        assert(a.pending_count == 0); /* a bias follows its product */
        if (p->input >= 0)
                p->input_gradient = a.gradient[value_root(p, p->input)];
}
