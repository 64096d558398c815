#include "models/program.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { B_AXIS = 1, T_AXIS = 2, TOKEN_AXES = B_AXIS | T_AXIS };

static unsigned char bit(int axis)
{
        return (unsigned char)(1U << axis);
}

/* Axes [from, to) as a set. */
static unsigned char axes_between(int from, int to)
{
        unsigned set = 0;
        for (int axis = from; axis < to; axis++)
                set |= 1U << axis;
        return (unsigned char)set;
}

int program_add_value(struct program *p, struct value value)
{
        assert(p->value_count < PROGRAM_VALUES);
        p->values[p->value_count] = value;
        return p->value_count++;
}

struct step *program_add_step(struct steps *steps, struct step step)
{
        assert(steps->count < PROGRAM_STEPS);
        for (int i = 0; i < KERNEL_OPERANDS; i++)
                if (step.view[i].rows == 0 && step.view[i].cols == 0)
                        step.view[i].value = -1;
        steps->at[steps->count] = step;
        return &steps->at[steps->count++];
}

static int one_at_least(int count)
{
        return count > 1 ? count : 1;
}

void program_begin(struct program *p, struct program_split split)
{
        split.shards = one_at_least(split.shards);
        split.shards_x = one_at_least(split.shards_x);
        split.shards_z = one_at_least(split.shards_z);
        split.sequence_parallel = split.sequence_parallel && split.shards > 1;
        split.pieces = one_at_least(split.pieces);
        split.expert_ranks = one_at_least(split.expert_ranks);
        split.context_ranks = one_at_least(split.context_ranks);
        p->split = split;
        p->value_count = p->tensor_count = p->units = p->forward.count = p->backward.count = 0;
        p->forward_only = false;
        p->input = p->output = p->output_gradient = p->input_gradient = -1;
}

static int new_value(struct program *p, const char *name, enum value_role role, enum operand_type type,
                     int axes, const int64_t extent[])
{
        struct value value = {.role = role,
                              .type = type,
                              .axes = axes,
                              .state = STATE_WHOLE,
                              .state_x = STATE_WHOLE,
                              .overwrites = -1,
                              .origin = -1,
                              .gradient = -1};
        assert(axes <= VALUE_AXES);
        snprintf(value.name, sizeof value.name, "%s", name);
        memcpy(value.extent, extent, (size_t)axes * sizeof *extent);
        return program_add_value(p, value);
}

static int activation(struct program *p, const char *name, int axes, const int64_t extent[])
{
        return new_value(p, name, ROLE_ACTIVATION, OPERAND_STORED, axes, extent);
}

/* One of the residual stream, whose last axis shards along x share. */
static int stream(struct program *p, const char *name, const int64_t extent[])
{
        const int value = activation(p, name, 3, extent);
        p->values[value].stream = true;
        return value;
}

/* A norm of x. */
static int normalised(struct program *p, const char *name, int x)
{
        const int y = activation(p, name, p->values[x].axes, p->values[x].extent);
        p->values[y].stream = p->values[x].stream;
        return y;
}

static int in_place(struct program *p, int value)
{
        struct value next = p->values[value];
        next.overwrites = value;
        return program_add_value(p, next);
}

static int64_t product_of(const int64_t extent[], int from, int to)
{
        int64_t product = 1;
        for (int axis = from; axis < to; axis++)
                product *= extent[axis];
        return product;
}

/* Its first `leading` axes are the rows of a matrix; 0: it is a vector. `split`: an axis, or STATE_WHOLE;
 * `x`: the axis that is the residual stream's columns, from 1; 0: there is none. */
struct parameter {
        const char *layer, *what;
        int axes, leading, split;
        enum tensor_init init;
        int x;
};

static void add_tensor(struct program *p, int value, const struct parameter *of)
{
        assert(p->tensor_count < PROGRAM_TENSORS);
        struct program_tensor *tensor = &p->tensors[p->tensor_count++];
        const int64_t *extent = p->values[value].extent;
        const int begin = of->split < of->leading ? 0 : of->leading; /* of the axes that are split together */
        *tensor = (struct program_tensor){.value = (short)value,
                                          .matrix = of->leading > 0,
                                          .rows = (int)product_of(extent, 0, of->leading),
                                          .cols = (int)product_of(extent, of->leading, of->axes),
                                          .axis = of->split,
                                          .parts = 1,
                                          .init = of->init,
                                          .copies = 1,
                                          .chosen = 1};
        snprintf(tensor->name, sizeof tensor->name, "%s.%s", of->layer, of->what);
        if (of->x)
                tensor->split_x = of->x <= of->leading ? TENSOR_ROWS : TENSOR_COLS;
        if (of->split == STATE_WHOLE)
                return;
        tensor->split = begin < of->leading ? TENSOR_ROWS : TENSOR_COLS;
        tensor->parts = (int)product_of(extent, begin, of->split);
}

static int parameter(struct program *p, const int64_t extent[], struct parameter of)
{
        char name[VALUE_NAME];
        snprintf(name, sizeof name, "%s.%s", of.layer, of.what);
        const int value = new_value(p, name, ROLE_PARAMETER, OPERAND_STORED, of.axes, extent);
        p->values[value].state = p->shards > 1 ? of.split : STATE_WHOLE;
        p->values[value].state_x = p->shards_x > 1 && of.x ? of.x - 1 : STATE_WHOLE;
        p->values[value].gradient = new_value(p, name, ROLE_GRADIENT, OPERAND_STORED, of.axes, extent);
        add_tensor(p, value, &of);
        return value;
}

struct program_tensor *program_tensor_of(struct program *p, int value)
{
        int i = 0;
        while (p->tensors[i].value != value)
                i++;
        return &p->tensors[i];
}

/* ---- views ---- */

static struct view view(int value, unsigned char rows, unsigned char cols)
{
        return (struct view){.value = (short)value, .rows = rows, .cols = cols, .picked = -1};
}

static struct view batched(int value, unsigned char batch, unsigned char rows, unsigned char cols)
{
        return (struct view){.value = (short)value, .batch = batch, .rows = rows, .cols = cols, .picked = -1};
}

/* An activation as rows of tokens. */
static struct view token_rows(const struct program *p, int value)
{
        return view(value, TOKEN_AXES, axes_between(2, p->values[value].axes));
}

/* All axes, in the layout that they have. */
static struct view all_of(const struct program *p, int value)
{
        return view(value, axes_between(0, p->values[value].axes), 0);
}

static struct view vector(const struct program *p, int value)
{
        return view(value, 0, axes_between(0, p->values[value].axes));
}

static struct step *emit(struct program *p, enum kernel_kind kind, int operands, const struct view views[])
{
        struct step step = {.kind = kind, .unit = p->units++};
        memcpy(step.view, views, (size_t)operands * sizeof *views);
        return program_add_step(&p->forward, step);
}

/* ---- builders ---- */

int program_input(struct program *p, int64_t B, int64_t T, int64_t C)
{
        p->input = stream(p, "input", (int64_t[]){B, T, C});
        p->values[p->input].role = ROLE_INPUT;
        if (p->sequence_parallel)
                p->values[p->input].state = STATE_ROWS;
        if (p->shards_x > 1)
                p->values[p->input].state_x = 2;
        return p->input;
}

int program_tokens(struct program *p, const char *name, int64_t B, int64_t T)
{
        return new_value(p, name, ROLE_INPUT, OPERAND_TOKENS, 2, (int64_t[]){B, T});
}

void program_output(struct program *p, int value)
{
        p->output = value;
}

int program_embedding(struct program *p, const char *table, const char *places, int tokens,
                      int64_t vocabulary, int64_t positions, int64_t C)
{
        const int64_t *bt = p->values[tokens].extent;
        const int wte = parameter(p, (int64_t[]){vocabulary, C},
                                  (struct parameter){table, "weight", 2, 1, 0, INIT_NORMAL, 2});
        const int wpe =
                places ? parameter(p, (int64_t[]){positions, C},
                                   (struct parameter){places, "weight", 2, 1, STATE_WHOLE, INIT_NORMAL, 2})
                       : -1;
        const int x = stream(p, "embedded", (int64_t[]){bt[0], bt[1], C});
        emit(p, KERNEL_EMBEDDING, 4,
             (struct view[]){token_rows(p, x), all_of(p, tokens), all_of(p, wte),
                             places ? all_of(p, wpe) : (struct view){.value = -1}});
        return x;
}

/* The last tensor, which is a weight or a bias, as the pieces that a model's files have of it. */
static void split_tensor(struct program *p, int count, const struct linear_piece pieces[], const char *what)
{
        const struct program_tensor all = p->tensors[--p->tensor_count];
        assert(count == 1 || all.parts == 1 || all.parts == count);
        for (int i = 0; i < count; i++) {
                assert(p->tensor_count < PROGRAM_TENSORS);
                struct program_tensor *tensor = &p->tensors[p->tensor_count++];
                *tensor = all;
                *(all.matrix ? &tensor->rows : &tensor->cols) = (int)pieces[i].rows;
                tensor->parts = count == 1 ? all.parts : 1;
                snprintf(tensor->name, sizeof tensor->name, "%s.%s", pieces[i].name, what);
        }
}

int program_linear_of(struct program *p, int count, const struct linear_piece pieces[], int x, int outs,
                      const int64_t out[], int split)
{
        const struct value in = p->values[x];
        int64_t w_extent[VALUE_AXES], y_extent[VALUE_AXES] = {in.extent[0], in.extent[1]};
        const int ins = in.axes - 2;
        assert(outs + ins <= VALUE_AXES && outs + 2 <= VALUE_AXES);
        memcpy(w_extent, out, (size_t)outs * sizeof *out);
        memcpy(w_extent + outs, in.extent + 2, (size_t)ins * sizeof *out);
        memcpy(y_extent + 2, out, (size_t)outs * sizeof *out);
        const bool to_stream = split >= outs; /* shards add up its results */
        const int w =
                parameter(p, w_extent,
                          (struct parameter){pieces[0].name, "weight", outs + ins, outs, split, INIT_NORMAL,
                                             to_stream   ? 1
                                             : in.stream ? outs + ins
                                                         : 0});
        split_tensor(p, count, pieces, "weight");
        const int y = activation(p, pieces[0].name, 2 + outs, y_extent);
        p->values[y].stream = to_stream;
        emit(p, KERNEL_MATMUL, 3,
             (struct view[]){token_rows(p, x), view(w, axes_between(outs, outs + ins), axes_between(0, outs)),
                             token_rows(p, y)});
        return y;
}

int program_linear(struct program *p, const char *name, int x, int outs, const int64_t out[], int split)
{
        const struct linear_piece whole = {name, product_of(out, 0, outs)};
        return program_linear_of(p, 1, &whole, x, outs, out, split);
}

/* Of a product's result, its weight's first tensor. */
static struct program_tensor *weight_of(struct program *p, int y)
{
        int s = p->forward.count - 1;
        while (p->forward.at[s].kind != KERNEL_MATMUL || p->forward.at[s].view[2].value != y)
                s--;
        return program_tensor_of(p, p->forward.at[s].view[1].value);
}

/* Of a product's result: a bias, split as the product's weight is where that is split by its outputs. */
static int bias_of(struct program *p, const char *name, int y)
{
        const struct value of = p->values[y];
        const struct program_tensor *weight = weight_of(p, y);
        const int axes = of.axes - 2, split = weight->axis;
        return parameter(p, of.extent + 2,
                         (struct parameter){name, "bias", axes, 0, split < axes ? split : STATE_WHOLE,
                                            INIT_ZERO, of.stream});
}

int program_bias_of(struct program *p, int count, const struct linear_piece pieces[], int y)
{
        const int b = bias_of(p, pieces[0].name, y), sum = in_place(p, y);
        split_tensor(p, count, pieces, "bias");
        emit(p, KERNEL_BIAS, 2, (struct view[]){token_rows(p, sum), vector(p, b)});
        return sum;
}

int program_bias(struct program *p, const char *name, int y)
{
        const struct linear_piece whole = {name, product_of(p->values[y].extent, 2, p->values[y].axes)};
        return program_bias_of(p, 1, &whole, y);
}

int program_bias_residual(struct program *p, const char *name, int y, int x)
{
        weight_of(p, y)->init = INIT_NORMAL_RESIDUAL;
        const int b = bias_of(p, name, y), sum = in_place(p, y);
        emit(p, KERNEL_BIAS_RESIDUAL, 3, (struct view[]){token_rows(p, sum), vector(p, b), token_rows(p, x)});
        return sum;
}

int program_bias_gelu(struct program *p, const char *name, int y)
{
        const int b = bias_of(p, name, y), h = in_place(p, y);
        const int g = activation(p, "gelu", p->values[y].axes, p->values[y].extent);
        emit(p, KERNEL_BIAS_GELU, 3, (struct view[]){token_rows(p, g), token_rows(p, h), vector(p, b)});
        return g;
}

static bool is_product(const struct program *p, int y)
{
        for (int s = 0; s < p->forward.count; s++)
                if (p->forward.at[s].kind == KERNEL_MATMUL && p->forward.at[s].view[2].value == y)
                        return true;
        return false;
}

int program_residual(struct program *p, int y, int x)
{
        if (is_product(p, y))
                weight_of(p, y)->init = INIT_NORMAL_RESIDUAL;
        const int sum = in_place(p, y);
        emit(p, KERNEL_RESIDUAL, 2, (struct view[]){token_rows(p, sum), token_rows(p, x)});
        return sum;
}

/* A vector of a norm, which all shards have. */
static int norm_vector(struct program *p, const char *name, const char *what, int x, enum tensor_init init)
{
        const struct value of = p->values[x];
        return parameter(p, of.extent + 2,
                         (struct parameter){name, what, of.axes - 2, 0, STATE_WHOLE, init, of.stream});
}

int program_layernorm(struct program *p, const char *name, int x, double more)
{
        const struct value of = p->values[x];
        const int w = norm_vector(p, name, "weight", x, more == 0 ? INIT_ONE : INIT_ZERO),
                  b = norm_vector(p, name, "bias", x, INIT_ZERO);
        const int y = normalised(p, name, x);
        const int stats = new_value(p, "stats", ROLE_ACTIVATION, OPERAND_REAL, 3,
                                    (int64_t[]){of.extent[0], of.extent[1], 2});
        emit(p, KERNEL_LAYERNORM, 5,
             (struct view[]){token_rows(p, y), all_of(p, stats), token_rows(p, x), vector(p, w),
                             vector(p, b)})
                ->scalar[0] = more;
        return y;
}

int program_rmsnorm(struct program *p, const char *name, int x, double epsilon)
{
        const struct value of = p->values[x];
        const int w = norm_vector(p, name, "weight", x, INIT_ONE);
        const int y = normalised(p, name, x);
        const int rstd = new_value(p, "rstd", ROLE_ACTIVATION, OPERAND_REAL, 2, of.extent);
        emit(p, KERNEL_RMSNORM, 4,
             (struct view[]){token_rows(p, y), all_of(p, rstd), token_rows(p, x), vector(p, w)})
                ->scalar[0] = epsilon;
        return y;
}

int program_head_norms(struct program *p, const char *queries, const char *keys, int qkv, int64_t heads,
                       double epsilon)
{
        const int64_t *e = p->values[qkv].extent, hs = e[3];
        const struct linear_piece pieces[] = {{queries, hs}, {keys, hs}};
        const int w = parameter(p, (int64_t[]){2, hs},
                                (struct parameter){queries, "weight", 2, 0, STATE_WHOLE, INIT_ONE, 0});
        p->tensors[p->tensor_count - 1].summed = true;
        split_tensor(p, 2, pieces, "weight");
        const int y = activation(p, "normalised", 4, e);
        const int rstd =
                new_value(p, "rstd", ROLE_ACTIVATION, OPERAND_REAL, 4, (int64_t[]){e[0], e[1], e[2], 1});
        struct step *step =
                emit(p, KERNEL_HEAD_RMSNORM, 4,
                     (struct view[]){token_rows(p, y), all_of(p, rstd), token_rows(p, qkv), vector(p, w)});
        step->heads = (int)heads;
        step->scalar[0] = epsilon;
        return y;
}

int program_swiglu(struct program *p, int gates)
{
        const int64_t *e = p->values[gates].extent;
        const int y = activation(p, "swiglu", 3, (int64_t[]){e[0], e[1], e[3]});
        emit(p, KERNEL_SWIGLU, 2, (struct view[]){token_rows(p, y), token_rows(p, gates)});
        return y;
}

int program_squared_relu(struct program *p, int h)
{
        const int y = activation(p, "squared_relu", p->values[h].axes, p->values[h].extent);
        emit(p, KERNEL_SQUARED_RELU, 2, (struct view[]){token_rows(p, y), token_rows(p, h)});
        return y;
}

/* ---- mixture of experts ---- */

enum { SORTED_AXES = B_AXIS | T_AXIS | 4 }; /* of rows in the order of experts, (B,T,chosen,...) */

static struct view sorted_rows(const struct program *p, int value)
{
        return view(value, SORTED_AXES, axes_between(3, p->values[value].axes));
}

/* The matrices of a rank's experts, one behind the other; `pieces` are an expert's. */
static int expert_matrices(struct program *p, const struct program_experts *e, int axes,
                           const int64_t extent[], int count, const struct linear_piece pieces[],
                           enum tensor_init init)
{
        const int first = p->tensor_count, split = p->whole_experts ? STATE_WHOLE : 2;
        const int w = parameter(p, extent,
                                (struct parameter){pieces[0].name, "weight", axes, axes - 1, split, init, 0});
        p->tensors[first].parts = 1; /* an expert's own, of which shards have equal parts */
        split_tensor(p, count, pieces, "weight");
        for (int i = first; i < p->tensor_count; i++) {
                p->tensors[i].copies = e->count;
                p->tensors[i].chosen = e->chosen;
        }
        return w;
}

/* A value of rows by expert, like `rows` for balanced experts, with memory for all that may come. */
static int rows_of_experts(struct program *p, const struct program_experts *e, const char *name, int axes,
                           const int64_t extent[])
{
        const int64_t own = e->count / p->expert_ranks, most = own < e->chosen ? own : e->chosen;
        const int64_t tokens = extent[0] * extent[1] / (p->whole_experts ? p->shards : 1);
        const int64_t all = p->expert_ranks * tokens * most;
        const double wanted = ceil(p->expert_capacity * (double)(tokens * extent[2]));
        const int value = activation(p, name, axes, extent);
        if (p->expert_ranks > 1)
                p->values[value].capacity = wanted > 0 && wanted < (double)all ? (int64_t)wanted : all;
        return value;
}

/* y (B,T,chosen,out...) = x w^T, each expert's rows with its own w (experts, out..., in). */
static int grouped_product(struct program *p, const struct program_experts *e, int x, int w, int ends)
{
        const struct value in = p->values[x], weights = p->values[w];
        const int outs = weights.axes - 2, last = weights.axes - 1;
        int64_t extent[VALUE_AXES] = {in.extent[0], in.extent[1], in.extent[2]};
        memcpy(extent + 3, weights.extent + 1, (size_t)outs * sizeof *extent);
        const int y = rows_of_experts(p, e, weights.name, 3 + outs, extent);
        emit(p, KERNEL_GROUPED_MATMUL, 4,
             (struct view[]){sorted_rows(p, x), batched(w, bit(0), bit(last), axes_between(1, last)),
                             sorted_rows(p, y), all_of(p, ends)});
        return y;
}

/* The order of a micro-batch's rows, and their weights in it. */
struct order {
        int weights, place, source, ends;
};

/* What experts are chosen by beside their scores. */
static struct view correction_of(struct program *p, const struct program_experts *e)
{
        const int64_t count = e->count;
        if (!e->correction)
                return (struct view){.value = -1};
        return vector(
                p, parameter(p, &count,
                             (struct parameter){e->router, e->correction, 1, 0, STATE_WHOLE, INIT_ZERO, 0}));
}

static struct order route(struct program *p, const struct program_experts *e, int x)
{
        const int64_t *extent = p->values[x].extent, E = e->count;
        const int64_t rows[] = {extent[0], extent[1], e->chosen};
        assert(e->groups <= 1 || (e->count % e->groups == 0 && e->count / e->groups > 1 &&
                                  e->chosen_groups > 0 && e->chosen_groups <= e->groups));
        const int logits = program_linear(p, e->router, x, 1, &E, STATE_WHOLE);
        const struct order o = {.weights = new_value(p, "weights", ROLE_ACTIVATION, OPERAND_REAL, 3, rows),
                                .place = new_value(p, "place", ROLE_ACTIVATION, OPERAND_INDEX, 3, rows),
                                .source = new_value(p, "source", ROLE_ACTIVATION, OPERAND_INDEX, 3, rows),
                                .ends = new_value(p, "ends", ROLE_ACTIVATION, OPERAND_INDEX, 1, &E)};
        struct step *step =
                emit(p, KERNEL_ROUTE, 6,
                     (struct view[]){all_of(p, o.weights), all_of(p, o.place), all_of(p, o.source),
                                     all_of(p, o.ends), token_rows(p, logits), correction_of(p, e)});
        const double scalars[STEP_SCALARS] = {e->logistic, e->normalised,    e->factor,       e->balance,
                                              e->groups,   e->chosen_groups, e->best_of_group};
        memcpy(step->scalar, scalars, sizeof scalars);
        return o;
}

/* Sends rows to the ranks of their experts. */
static int dispatch(struct program *p, const struct program_experts *e, int rows, int all_ends)
{
        const struct value of = p->values[rows];
        const int sent = rows_of_experts(p, e, of.name, of.axes, of.extent);
        p->values[sent].type = of.type;
        emit(p, KERNEL_EXPERT_DISPATCH, 3,
             (struct view[]){sorted_rows(p, sent), sorted_rows(p, rows), all_of(p, all_ends)});
        return sent;
}

/* And back. */
static int combine(struct program *p, int rows, int all_ends)
{
        const struct value of = p->values[rows];
        const int back = activation(p, of.name, of.axes, of.extent);
        emit(p, KERNEL_EXPERT_COMBINE, 3,
             (struct view[]){sorted_rows(p, back), sorted_rows(p, rows), all_of(p, all_ends)});
        return back;
}

/* The rows that a rank's experts have: its own tokens' or, with several ranks, what all of them send. */
struct expert_rows {
        int rows, weights, ends, all_ends; /* all_ends: -1, one rank has all experts */
};

static struct expert_rows spread(struct program *p, const struct program_experts *e, int sorted,
                                 const struct order *o)
{
        const int64_t all[] = {p->expert_ranks, e->count}, own = e->count / p->expert_ranks;
        struct expert_rows r = {sorted, o->weights, o->ends, -1};
        if (p->expert_ranks == 1)
                return r;
        assert(e->count % p->expert_ranks == 0);
        r.all_ends = new_value(p, "all_ends", ROLE_ACTIVATION, OPERAND_INDEX, 2, all);
        r.ends = new_value(p, "own_ends", ROLE_ACTIVATION, OPERAND_INDEX, 1, &own);
        emit(p, KERNEL_EXPERT_COUNTS, 2,
             (struct view[]){view(r.all_ends, bit(0), bit(1)), view(o->ends, 0, bit(0))});
        emit(p, KERNEL_EXPERT_ENDS, 2, (struct view[]){all_of(p, r.ends), all_of(p, r.all_ends)});
        r.rows = dispatch(p, e, sorted, r.all_ends);
        r.weights = dispatch(p, e, o->weights, r.all_ends);
        return r;
}

int program_mixture(struct program *p, const struct program_experts *e, int x)
{
        const int64_t B = p->values[x].extent[0], T = p->values[x].extent[1], C = p->values[x].extent[2];
        const int64_t own = e->count / p->expert_ranks, F = e->inner;
        const struct linear_piece gates_of[] = {{e->names[0], F}, {e->names[1], F}},
                                  down_of = {e->names[2], C};
        const struct order o = route(p, e, x);
        const int sorted = activation(p, "sorted", 4, (int64_t[]){B, T, e->chosen, C});
        emit(p, KERNEL_PERMUTE, 3,
             (struct view[]){sorted_rows(p, sorted), token_rows(p, x), all_of(p, o.source)});
        const struct expert_rows r = spread(p, e, sorted, &o);
        const int in = expert_matrices(p, e, 4, (int64_t[]){own, 2, F, C}, 2, gates_of, INIT_NORMAL);
        const int gates = grouped_product(p, e, r.rows, in, r.ends);
        const int h = rows_of_experts(p, e, "swiglu", 4, (int64_t[]){B, T, e->chosen, F});
        emit(p, KERNEL_WEIGHTED_SWIGLU, 4,
             (struct view[]){sorted_rows(p, h), sorted_rows(p, gates), all_of(p, r.weights),
                             all_of(p, r.ends)});
        const int out = expert_matrices(p, e, 3, (int64_t[]){own, C, F}, 1, &down_of, INIT_NORMAL_RESIDUAL);
        int back = grouped_product(p, e, h, out, r.ends);
        if (r.all_ends >= 0)
                back = combine(p, back, r.all_ends);
        const int y = activation(p, "mixture", 3, p->values[x].extent);
        emit(p, KERNEL_UNPERMUTE, 3,
             (struct view[]){token_rows(p, y), sorted_rows(p, back), all_of(p, o.place)});
        return y;
}

/* ---- attention ---- */

/* Queries (0), keys (1) or values (2) of qkv (B,T,3,H,hs), a matrix a sequence and head. */
static struct view picked(int qkv, int which, unsigned char rows, unsigned char cols)
{
        struct view v = batched(qkv, bit(0) | bit(3), rows, cols);
        v.picked = 2;
        v.at = (unsigned char)which;
        return v;
}

int program_attention(struct program *p, int qkv)
{
        const int64_t *e = p->values[qkv].extent, B = e[0], T = e[1], H = e[3], hs = e[4];
        const int scores = activation(p, "scores", 4, (int64_t[]){B, H, T, T});
        const int softmax = in_place(p, scores);
        const int y = activation(p, "attention", 4, (int64_t[]){B, T, H, hs});
        const unsigned char BH = bit(0) | bit(1);
        const int unit = p->units;
        emit(p, KERNEL_MATMUL, 3,
             (struct view[]){picked(qkv, 0, T_AXIS, bit(4)), picked(qkv, 1, bit(4), T_AXIS),
                             batched(scores, BH, bit(2), bit(3))});
        struct step *step = emit(p, KERNEL_SOFTMAX, 1, (struct view[]){batched(softmax, BH, bit(2), bit(3))});
        step->unit = unit;
        step->scalar[0] = 1 / sqrt((double)hs);
        emit(p, KERNEL_MATMUL, 3,
             (struct view[]){batched(softmax, BH, bit(2), bit(3)), picked(qkv, 2, T_AXIS, bit(4)),
                             batched(y, bit(0) | bit(2), T_AXIS, bit(3))})
                ->unit = unit;
        return y;
}

int program_rope(struct program *p, int qkv, int64_t heads, int64_t columns, const struct rope_angles *angles)
{
        assert(p->values[qkv].axes == 4);
        const int rotated = in_place(p, qkv);
        struct step *step = emit(p, KERNEL_ROPE, 1, (struct view[]){token_rows(p, rotated)});
        step->heads = (int)(heads + (p->values[qkv].extent[2] - heads) / 2);
        const double scalars[STEP_SCALARS] = {
                angles->theta,  1, angles->taken, angles->by_frequency, angles->by_column, angles->constant,
                (double)columns};
        memcpy(step->scalar, scalars, sizeof scalars);
        return rotated;
}

void program_split_columns(struct program *p, int x, int64_t width, int parts[2])
{
        const int64_t *e = p->values[x].extent, widths[] = {width, e[2] - width};
        for (int i = 0; i < 2; i++)
                parts[i] = activation(p, p->values[x].name, 3, (int64_t[]){e[0], e[1], widths[i]});
        emit(p, KERNEL_SPLIT_COLUMNS, 3,
             (struct view[]){token_rows(p, parts[0]), token_rows(p, parts[1]), token_rows(p, x)});
}

int program_latent_qkv(struct program *p, int q, int kv, int shared, const struct latent_heads *of)
{
        const int64_t *e = p->values[q].extent, H = e[2], hs = e[3];
        assert(of->values <= hs && p->values[kv].extent[3] == hs - p->values[shared].extent[2] + of->values);
        const int qkv = activation(p, "qkv", 4, (int64_t[]){e[0], e[1], 3 * H, hs});
        struct step *step = emit(p, KERNEL_LATENT_QKV, 4,
                                 (struct view[]){token_rows(p, qkv), token_rows(p, q), token_rows(p, kv),
                                                 token_rows(p, shared)});
        step->heads = (int)H;
        const struct rope_angles *a = &of->angles;
        const double scalars[STEP_SCALARS] = {a->theta,     of->length,  a->taken,       a->by_frequency,
                                              a->by_column, a->constant, of->interleaved};
        memcpy(step->scalar, scalars, sizeof scalars);
        return qkv;
}

int program_narrow(struct program *p, int x, int64_t width)
{
        const struct value of = p->values[x];
        const int y = activation(p, of.name, 4, (int64_t[]){of.extent[0], of.extent[1], of.extent[2], width});
        const unsigned char rows = axes_between(0, 3), cols = axes_between(3, 4);
        emit(p, KERNEL_NARROW, 2, (struct view[]){view(y, rows, cols), view(x, rows, cols)});
        return y;
}

int program_grouped_attention(struct program *p, int qkv, int64_t heads, double scale)
{
        const int64_t *e = p->values[qkv].extent, B = e[0], T = e[1];
        const int y = activation(p, "attention", 4, (int64_t[]){B, T, heads, e[3]});
        const int lse = new_value(p, "lse", ROLE_ACTIVATION, OPERAND_REAL, 3, (int64_t[]){B, heads, T});
        struct step *step = emit(
                p, KERNEL_ATTENTION, 3,
                (struct view[]){batched(y, bit(0) | bit(2), T_AXIS, bit(3)), all_of(p, lse), all_of(p, qkv)});
        step->heads = (int)(e[2] - heads) / 2;
        step->scalar[0] = scale;
        return y;
}

void program_loss(struct program *p, const char *name, int x, int64_t vocabulary, int targets, bool loss_only)
{
        const int logits = program_linear(p, name, x, 1, &vocabulary, 0);
        p->values[logits].padded = true;
        p->forward.at[p->forward.count - 1].chunked = 1;
        const int loss = new_value(p, "loss", ROLE_NUMBER, OPERAND_NUMBER, 1, (int64_t[]){1});
        const int left = loss_only ? logits : in_place(p, logits);
        p->forward_only = loss_only;
        emit(p, loss_only ? KERNEL_CROSS_ENTROPY_LOSS : KERNEL_CROSS_ENTROPY, 3,
             (struct view[]){all_of(p, loss), token_rows(p, left), all_of(p, targets)})
                ->chunked = 1;
}

void program_finish(struct program *p, bool fused)
{
        program_shard_forward(p);
        if (fused)
                program_fuse(p, &p->forward);
        if (!p->forward_only) {
                program_backward(p);
                program_shard_backward(p);
                if (fused)
                        program_fuse(p, &p->backward);
                program_context(p);
        }
        program_share(p);
}

/* ---- what steps read and write ---- */

/* A collective of shards: what it makes, and of what, are not in its kind's row. */
static bool is_unlisted(enum kernel_kind kind)
{
        return !kernel_descriptor(kind)->operands[0].name;
}

bool step_writes(const struct step *step, int i)
{
        if (step->view[i].value < 0)
                return false;
        return is_unlisted(step->kind) ? i == 0
                                       : kernel_descriptor(step->kind)->operands[i].writes != WHEN_NEVER;
}

int step_reads(const struct program *p, const struct step *step, int i)
{
        const int value = step->view[i].value;
        if (value < 0 || is_unlisted(step->kind))
                return i == 1 ? value : -1;
        const enum operand_when reads = kernel_descriptor(step->kind)->operands[i].reads;
        if (reads != WHEN_ALWAYS && !(reads == WHEN_ACCUMULATING && step->accumulate))
                return -1;
        const bool in_place = step_writes(step, i) && p->values[value].overwrites >= 0;
        return in_place ? p->values[value].overwrites : value;
}

/* ---- the kernel of a step ---- */

/* A shard's elements along the axes of `set`, of a value as this shard has it. */
static int64_t extent_of(const struct program *p, const struct value *value, unsigned char set, int64_t rows)
{
        int64_t extent = 1;
        const bool tokens = value->role != ROLE_PARAMETER && value->role != ROLE_GRADIENT &&
                            value->role != ROLE_GATHERED && (set & TOKEN_AXES) == TOKEN_AXES;
        for (int axis = 0; axis < value->axes; axis++) {
                if (!(set & bit(axis)) || (tokens && rows && axis < 2))
                        continue;
                const int shards =
                        (value->state == axis ? p->shards : 1) * (value->state_x == axis ? p->shards_x : 1);
                extent *= (value->extent[axis] + shards - 1) / shards;
        }
        if (tokens && rows)
                extent *= rows;
        return tokens && value->state == STATE_ROWS ? extent / p->shards : extent;
}

int64_t program_elements(const struct program *p, int value, int64_t rows)
{
        const struct value *v = &p->values[value];
        return extent_of(p, v, axes_between(0, v->axes), rows);
}

int64_t program_padded(int64_t columns)
{
        return (columns + PROGRAM_PITCH - 1) / PROGRAM_PITCH * PROGRAM_PITCH;
}

int64_t program_pitch(const struct program *p, int value)
{
        const struct value *v = &p->values[value];
        const int64_t columns = extent_of(p, v, bit(v->axes - 1), 0);
        return v->padded ? program_padded(columns) : columns;
}

int64_t program_stored_elements(const struct program *p, int value, int64_t rows)
{
        const struct value *v = &p->values[value];
        if (v->padded)
                return extent_of(p, v, axes_between(0, v->axes - 1), rows) * program_pitch(p, value);
        if (!v->capacity)
                return program_elements(p, value, rows);
        return v->capacity * extent_of(p, v, axes_between(3, v->axes), rows);
}

int64_t program_axis(const struct program *p, int value, int axis)
{
        return extent_of(p, &p->values[value], bit(axis), 0);
}

/* What a step sees by its first tensor of such an extent; NULL: its kind has none. */
static const struct view *view_with(const struct step *step, enum operand_extent extent)
{
        const struct kernel_operand *operands = kernel_descriptor(step->kind)->operands;
        for (int i = 0; i < KERNEL_OPERANDS && operands[i].name; i++) {
                const bool copy = operands[i].type == OPERAND_QUANTIZED && step->view[i].value >= 0;
                if (operands[i].extent == extent && (operands[i].type == OPERAND_STORED || copy))
                        return &step->view[i];
        }
        return NULL;
}

/* The columns of a step's first tensor of such an extent; 0: it has none. */
static int64_t columns_with(const struct program *p, const struct step *step, enum operand_extent extent)
{
        const struct view *v = view_with(step, extent);
        return v ? extent_of(p, &p->values[v->value], v->cols, 0) : 0;
}

/* How many experts each token has, by the first index of a step that says it; 0: none does. */
static int64_t chosen_experts(const struct program *p, const struct step *step)
{
        const struct kernel_operand *operands = kernel_descriptor(step->kind)->operands;
        for (int i = 0; i < KERNEL_OPERANDS && operands[i].name; i++)
                if (operands[i].type == OPERAND_INDEX && p->values[step->view[i].value].axes == 3)
                        return p->values[step->view[i].value].extent[2];
        return 0;
}

/* Whether a matrix lies in memory column by column, as it is seen. */
static bool is_transposed(const struct view *v)
{
        return v->rows > v->cols;
}

static bool sends_rows(enum kernel_kind kind)
{
        return kind == KERNEL_EXPERT_DISPATCH || kind == KERNEL_EXPERT_COMBINE;
}

static struct kernel collective_kernel(const struct program *p, const struct step *step, enum dtype dtype)
{
        if (step->kind == KERNEL_JOIN)
                return (struct kernel){.kind = step->kind, .batch = 1};
        /* All rows of tokens, whoever of the two has them. */
        const bool scattered = p->values[step->view[0].value].state == STATE_ROWS ||
                               step->kind == KERNEL_CONTEXT_REDUCE_SCATTER ||
                               step->kind == KERNEL_TENSOR_Z_REDUCE_SCATTER;
        const struct view *v = &step->view[scattered ? 1 : 0];
        const struct value *value = &p->values[v->value];
        const int matrices = step->kind == KERNEL_CONTEXT_SHIFT && step->view[2].value >= 0 ? 2 : 1;
        return (struct kernel){.kind = step->kind,
                               .part = step->part,
                               .beside = step->beside,
                               .format = step->format,
                               .dtype = (unsigned char)(value->type == OPERAND_STORED ? dtype : DTYPE_FP32),
                               .batch = 1,
                               .m = matrices * extent_of(p, value, v->rows, step->rows),
                               .n = extent_of(p, value, v->cols, 0),
                               .k = p->tokens_once && sends_rows(step->kind) ? value->extent[2] : 0};
}

int program_step_experts(const struct program *p, const struct step *step)
{
        const struct kernel_descriptor *d = kernel_descriptor(step->kind);
        const bool works = d->split == SPLIT_EXPERTS || step->kind == KERNEL_WEIGHTED_SWIGLU ||
                           step->kind == KERNEL_WEIGHTED_SWIGLU_BACKWARD;
        for (int i = 0; works && i < KERNEL_OPERANDS; i++)
                if (d->operands[i].type == OPERAND_INDEX && step->view[i].value >= 0)
                        return (int)p->values[step->view[i].value].extent[0];
        return step->experts;
}

/* Whether a step adds to the gradient of a parameter. */
static bool adds_to_gradient(const struct program *p, const struct step *step)
{
        for (int i = 0; i < KERNEL_OPERANDS; i++)
                if (step_writes(step, i) && p->values[step->view[i].value].role == ROLE_GRADIENT)
                        return true;
        return false;
}

/* What has a format of its own lies so that a product reads both operands along what is summed over, as the
 * tensor cores' 8-bit products need it (cuBLAS: "TN"). */
static void set_format(struct kernel *kernel, const struct step *step)
{
        kernel->format = step->format;
        if (step->kind == KERNEL_QUANTIZE) {
                kernel->transpose_b = step->view[0].value >= 0 && step->view[1].value >= 0;
        } else if (step->format != FORMAT_STORED && kernel_descriptor(step->kind)->products > 0) {
                kernel->transpose_a = 0;
                kernel->transpose_b = 1;
        }
}

struct kernel program_kernel(const struct program *p, const struct step *step, enum dtype dtype, int64_t rows)
{
        if (step->rows)
                rows = step->rows;
        if (kernel_collective(step->kind))
                return collective_kernel(p, step, dtype);
        const struct view *grouped_b = view_with(step, EXTENT_EKN), *grouped_c = view_with(step, EXTENT_EMN);
        const struct view *c = grouped_c ? grouped_c : view_with(step, EXTENT_MN);
        const struct view *a = view_with(step, EXTENT_MK), *out = c ? c : a ? a : &step->view[0];
        const struct view *b = grouped_b ? grouped_b : view_with(step, EXTENT_KN);
        const struct value *value = &p->values[out->value];
        struct kernel kernel = {.kind = step->kind,
                                .accumulate = step->accumulate,
                                .part = step->part,
                                .dtype = (unsigned char)(value->type == OPERAND_REAL ? DTYPE_FP32 : dtype),
                                .batch = out->batch ? extent_of(p, value, out->batch, rows) : 1,
                                .m = extent_of(p, value, out->rows, rows)};
        const int64_t cols = extent_of(p, value, out->cols, rows);
        kernel.n = c ? cols : a ? kernel.m : 0; /* attention's output is (T, hs) a head, of scores (T, T) */
        if (!c && a)
                kernel.k = cols;
        if ((view_with(step, EXTENT_QKV) || view_with(step, EXTENT_QUERIES)) && step->heads)
                kernel.group = (unsigned char)(value->extent[2] / step->heads);
        if (kernel_descriptor(step->kind)->heads)
                kernel.k = value->extent[value->axes - 1];
        kernel.k += columns_with(p, step, EXTENT_ROWS_K) + columns_with(p, step, EXTENT_SHARED);
        kernel.l = columns_with(p, step, EXTENT_ROWS_L);
        if (!a)
                kernel.k += step->kind == KERNEL_EXPERT_ENDS ? p->expert_ranks : chosen_experts(p, step);
        kernel.experts = (short)program_step_experts(p, step);
        if (grouped_b || grouped_c)
                kernel.batch = 1;
        if (c && a && b) {
                kernel.k = extent_of(p, &p->values[a->value], a->cols, rows);
                kernel.transpose_a = is_transposed(a);
                kernel.transpose_b = is_transposed(b);
        }
        kernel.wide = p->wide_gradients && dtype != DTYPE_FP32 && adds_to_gradient(p, step);
        set_format(&kernel, step);
        return kernel;
}
