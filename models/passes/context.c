/* Attention of ranks that have two pieces of every sequence each (context parallelism). The attention of a
 * program is that to a rank's own keys, since its two pieces lie in their order. Behind it come the keys of
 * the others, one rank's after another's: the sums of its queries go on from rank to rank. In the backward
 * each rank's keys and values are there again, and their gradients are summed for their owner. */
#include "models/program.h"

#include <assert.h>
#include <stdio.h>

enum { TOKEN_AXES = 3, HEADS = 2 };

/* Tokens as rows, of the rank that is `picked`, or of all ranks. */
static struct view rows_of(const struct program *p, int value)
{
        const struct value *of = &p->values[value];
        const unsigned all = (1U << of->axes) - 1, rows = of->of_ranks ? 2 * TOKEN_AXES + 1 : TOKEN_AXES;
        return (struct view){.value = (short)value,
                             .rows = (unsigned char)rows,
                             .cols = (unsigned char)(all & ~rows),
                             .picked = -1};
}

/* Of what all ranks have, that of the rank that is `distance` before this one. */
static struct view rows_at(const struct program *p, int value, int distance)
{
        struct view view = rows_of(p, value);
        view.rows = 2 * TOKEN_AXES;
        view.picked = 0;
        view.at = (unsigned char)distance;
        return view;
}

/* A rank's keys and values (B,T, 2 KV, hs), in memory of their own, or the gradients of them. */
static int add_keys(struct program *p, const char *name, enum value_role role, const struct step *attention,
                    int qkv)
{
        const struct value *of = &p->values[qkv];
        const int64_t heads = attention->heads ? attention->heads : of->extent[of->axes - 2];
        struct value keys = {.role = role,
                             .type = OPERAND_STORED,
                             .axes = 4,
                             .extent = {of->extent[0], of->extent[1], 2 * heads, of->extent[of->axes - 1]},
                             .state = of->state >= 0 ? HEADS : STATE_WHOLE,
                             .state_x = STATE_WHOLE,
                             .overwrites = -1,
                             .origin = -1,
                             .gradient = -1};
        snprintf(keys.name, sizeof keys.name, "%s", name);
        return program_add_value(p, keys);
}

/* The same of all ranks. */
static int add_all(struct program *p, int keys)
{
        struct value all = p->values[keys];
        assert(all.axes < VALUE_AXES);
        for (int axis = all.axes++; axis > 0; axis--)
                all.extent[axis] = all.extent[axis - 1];
        all.extent[0] = p->context_ranks;
        all.state += all.state >= 0;
        all.of_ranks = true;
        return program_add_value(p, all);
}

/* Appends a step of the same unit and part as `of`. */
static struct step *add(struct steps *steps, const struct step *of, struct step step)
{
        step.unit = of->unit;
        step.part = of->part;
        return program_add_step(steps, step);
}

/* The keys and values that `qkv` has beside queries. */
static int own_keys(struct program *p, struct steps *steps, const struct step *of, struct view qkv,
                    enum value_role role)
{
        const int keys = add_keys(p, "keys", role, of, qkv.value);
        add(steps, of,
            (struct step){.kind = KERNEL_LAST_COLUMNS, .view = {rows_of(p, keys), rows_of(p, qkv.value)}});
        return keys;
}

/* Those of all ranks. */
static int gather(struct program *p, struct steps *steps, const struct step *of, int keys)
{
        const int all = add_all(p, keys);
        add(steps, of,
            (struct step){.kind = KERNEL_CONTEXT_ALL_GATHER, .view = {rows_of(p, all), rows_of(p, keys)}});
        return all;
}

static struct view of_value(struct view like, int value)
{
        like.value = (short)value;
        return like;
}

/* What a step makes of y, whose memory it takes over: the last makes what others read. */
static int next_sums(struct program *p, int y, int last, bool is_last)
{
        int next = last;
        if (!is_last)
                next = program_add_value(p, p->values[last]);
        p->values[next].overwrites = y;
        return next;
}

/* ---- a ring ---- */

/* What keys, or gradients, become at the next rank; -1: there are none. */
static int shifted(struct program *p, int value)
{
        return value < 0 ? -1 : program_add_value(p, p->values[value]);
}

/* Sends what there is of the two to the next rank, beside what follows; `to` are what comes from the rank
 * before.
 */
static void shift(struct program *p, struct steps *steps, const struct step *of, const int from[2], int to[2])
{
        struct step step = {.kind = KERNEL_CONTEXT_SHIFT, .beside = 1};
        int at = 0;
        for (int i = 0; i < 2; i++) {
                to[i] = shifted(p, from[i]);
                if (to[i] < 0)
                        continue;
                step.view[at++] = rows_of(p, to[i]);
                step.view[at++] = rows_of(p, from[i]);
        }
        add(steps, of, at ? step : (struct step){.kind = KERNEL_JOIN});
}

/* ---- forward ---- */

/* Attention to keys and values, seen by `keys`, of the rank so far before this one. */
static int attend(struct program *p, struct steps *steps, const struct step *attention, int distance,
                  struct view keys, int y)
{
        enum { Y, LSE, QKV };
        const struct view *v = attention->view;
        const int next = next_sums(p, y, v[Y].value, distance == p->context_ranks - 1);
        add(steps, attention,
            (struct step){.kind = KERNEL_CONTEXT_ATTENTION,
                          .heads = attention->heads,
                          .scalar = {attention->scalar[0], distance},
                          .view = {of_value(v[Y], next), v[LSE], v[QKV], keys}});
        return next;
}

/* Attention to its own keys. */
static int attend_own(struct program *p, struct steps *steps, const struct step *attention)
{
        const struct value sums = p->values[attention->view[0].value];
        const int y = program_add_value(p, sums);
        add(steps, attention, *attention)->view[0].value = (short)y;
        return y;
}

static void forward_gathered(struct program *p, struct steps *steps, const struct step *attention, int keys)
{
        const int all = gather(p, steps, attention, keys);
        int y = attend_own(p, steps, attention);
        for (int distance = 1; distance < p->context_ranks; distance++)
                y = attend(p, steps, attention, distance, rows_at(p, all, distance), y);
}

static void forward_ring(struct program *p, struct steps *steps, const struct step *attention, int own)
{
        int keys[2] = {own, -1}, next[2];
        shift(p, steps, attention, keys, next);
        int y = attend_own(p, steps, attention);
        for (int distance = 1; distance < p->context_ranks; distance++) {
                keys[0] = next[0];
                const int sent[2] = {distance < p->context_ranks - 1 ? keys[0] : -1, -1};
                shift(p, steps, attention, sent, next);
                y = attend(p, steps, attention, distance, rows_of(p, keys[0]), y);
        }
}

static void forward(struct program *p, struct steps *steps, const struct step *attention)
{
        enum { QKV = 2 };
        const int keys = own_keys(p, steps, attention, attention->view[QKV], ROLE_ACTIVATION);
        (p->context_gathers ? forward_gathered : forward_ring)(p, steps, attention, keys);
}

/* ---- backward ---- */

enum { DQKV, ROWS, DY, Y, LSE, QKV };

static void attend_back(struct steps *steps, const struct step *attention, int distance,
                        struct view gradients, struct view keys)
{
        const struct view *v = attention->view;
        add(steps, attention,
            (struct step){.kind = KERNEL_CONTEXT_ATTENTION_BACKWARD,
                          .heads = attention->heads,
                          .scalar = {attention->scalar[0], distance},
                          .view = {v[DQKV], gradients, v[ROWS], v[DY], v[LSE], v[QKV], keys}});
}

/* Of the gradient of queries, keys and values, the last two. */
static void put_keys(const struct program *p, struct steps *steps, const struct step *attention,
                     int gradients)
{
        add(steps, attention,
            (struct step){.kind = KERNEL_SET_LAST_COLUMNS,
                          .view = {rows_of(p, attention->view[DQKV].value), rows_of(p, gradients)}});
}

static void backward_gathered(struct program *p, struct steps *steps, const struct step *attention, int keys)
{
        const int dqkv = attention->view[DQKV].value, all = gather(p, steps, attention, keys);
        const int own = add_keys(p, "d keys", ROLE_FLOW, attention, dqkv), gradients = add_all(p, own);
        add(steps, attention, *attention);
        for (int distance = 1; distance < p->context_ranks; distance++)
                attend_back(steps, attention, distance, rows_at(p, gradients, distance),
                            rows_at(p, all, distance));
        add(steps, attention,
            (struct step){.kind = KERNEL_LAST_COLUMNS, .view = {rows_at(p, gradients, 0), rows_of(p, dqkv)}});
        add(steps, attention,
            (struct step){.kind = KERNEL_CONTEXT_REDUCE_SCATTER,
                          .view = {rows_of(p, own), rows_of(p, gradients)}});
        put_keys(p, steps, attention, own);
}

/* sum += x, which are gradients of keys. */
static void add_gradients(const struct program *p, struct steps *steps, const struct step *attention, int sum,
                          int x)
{
        add(steps, attention,
            (struct step){.kind = KERNEL_RESIDUAL, .view = {rows_of(p, sum), rows_of(p, x)}});
}

/* Gradients are sent on, beside the next rank's keys, when this rank's are in them. */
static void backward_ring(struct program *p, struct steps *steps, const struct step *attention, int own)
{
        const int last = p->context_ranks - 1, dqkv = attention->view[DQKV].value;
        int sent[2] = {own, -1}, come[2];
        shift(p, steps, attention, sent, come);
        add(steps, attention, *attention);
        for (int distance = 1; distance <= last; distance++) {
                const int keys = come[0], gradients = add_keys(p, "d keys", ROLE_FLOW, attention, dqkv);
                sent[0] = distance < last ? keys : -1;
                shift(p, steps, attention, sent, come);
                attend_back(steps, attention, distance, rows_of(p, gradients), rows_of(p, keys));
                if (come[1] >= 0) {
                        add(steps, attention, (struct step){.kind = KERNEL_JOIN});
                        add_gradients(p, steps, attention, come[1], gradients);
                }
                sent[1] = come[1] >= 0 ? come[1] : gradients;
        }
        sent[0] = -1;
        shift(p, steps, attention, sent, come); /* beside: the columns of its own */
        const int sum = own_keys(p, steps, attention, attention->view[DQKV], ROLE_FLOW);
        add(steps, attention, (struct step){.kind = KERNEL_JOIN});
        add_gradients(p, steps, attention, sum, come[1]);
        put_keys(p, steps, attention, sum);
}

static void backward(struct program *p, struct steps *steps, const struct step *attention)
{
        const int keys = own_keys(p, steps, attention, attention->view[QKV], ROLE_FLOW);
        (p->context_gathers ? backward_gathered : backward_ring)(p, steps, attention, keys);
}

static void spread(struct program *p, struct steps *steps)
{
        const struct steps from = *steps;
        steps->count = 0;
        for (int s = 0; s < from.count; s++)
                if (from.at[s].kind == KERNEL_ATTENTION)
                        forward(p, steps, &from.at[s]);
                else if (from.at[s].kind == KERNEL_ATTENTION_BACKWARD)
                        backward(p, steps, &from.at[s]);
                else
                        program_add_step(steps, from.at[s]);
}

void program_context(struct program *p)
{
        if (p->context_ranks == 1)
                return;
        spread(p, &p->forward);
        spread(p, &p->backward);
}
