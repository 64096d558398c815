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

static int gather(struct program *p, struct steps *steps, const struct step *of, int keys)
{
        const int all = add_all(p, keys);
        add(steps, of,
            (struct step){.kind = KERNEL_CONTEXT_ALL_GATHER, .view = {rows_of(p, all), rows_of(p, keys)}});
        return all;
}

/* The keys and values of all ranks, from those that `qkv` has beside queries. */
static int gather_keys(struct program *p, struct steps *steps, const struct step *of, struct view qkv,
                       enum value_role role)
{
        const int keys = add_keys(p, "keys", role, of, qkv.value);
        add(steps, of,
            (struct step){.kind = KERNEL_LAST_COLUMNS, .view = {rows_of(p, keys), rows_of(p, qkv.value)}});
        return gather(p, steps, of, keys);
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

static void forward(struct program *p, struct steps *steps, const struct step *attention)
{
        enum { Y, LSE, QKV };
        const struct view *v = attention->view;
        const int all = gather_keys(p, steps, attention, v[QKV], ROLE_ACTIVATION), ranks = p->context_ranks;
        struct value own = p->values[v[Y].value];
        int y = program_add_value(p, own);
        add(steps, attention, *attention)->view[Y].value = (short)y;
        for (int distance = 1; distance < ranks; distance++) {
                y = next_sums(p, y, v[Y].value, distance == ranks - 1);
                add(steps, attention,
                    (struct step){.kind = KERNEL_CONTEXT_ATTENTION,
                                  .heads = attention->heads,
                                  .scalar = {attention->scalar[0], distance},
                                  .view = {of_value(v[Y], y), v[LSE], v[QKV], rows_at(p, all, distance)}});
        }
}

static void backward(struct program *p, struct steps *steps, const struct step *attention)
{
        enum { DQKV, ROWS, DY, Y, LSE, QKV };
        const struct view *v = attention->view;
        const int all = gather_keys(p, steps, attention, v[QKV], ROLE_FLOW);
        const int own = add_keys(p, "d keys", ROLE_FLOW, attention, v[DQKV].value),
                  gradients = add_all(p, own);
        add(steps, attention, *attention);
        for (int distance = 1; distance < p->context_ranks; distance++)
                add(steps, attention,
                    (struct step){.kind = KERNEL_CONTEXT_ATTENTION_BACKWARD,
                                  .heads = attention->heads,
                                  .scalar = {attention->scalar[0], distance},
                                  .view = {v[DQKV], rows_at(p, gradients, distance), v[ROWS], v[DY], v[LSE],
                                           v[QKV], rows_at(p, all, distance)}});
        add(steps, attention,
            (struct step){.kind = KERNEL_LAST_COLUMNS,
                          .view = {rows_at(p, gradients, 0), rows_of(p, v[DQKV].value)}});
        add(steps, attention,
            (struct step){.kind = KERNEL_CONTEXT_REDUCE_SCATTER,
                          .view = {rows_of(p, own), rows_of(p, gradients)}});
        add(steps, attention,
            (struct step){.kind = KERNEL_SET_LAST_COLUMNS,
                          .view = {rows_of(p, v[DQKV].value), rows_of(p, own)}});
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
