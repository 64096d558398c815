#include "tests/paper/paper.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct event {
        double seconds;
        uint64_t order; /* ties: first scheduled, first done */
        int rank;
        struct op op;
};

/* A message, or a receive, that waits for its counterpart; one FIFO a (receiver, direction). */
struct waiting {
        int rank;
        struct op op;
        double seconds;
};

struct fifo {
        struct waiting *items;
        int head, count, capacity;
};

struct member {
        struct paper *paper;
        int rank;
        struct engine engine;
        double lane_free[LANES];
        bool overflow;
        struct fifo sends[2], receives[2]; /* towards this rank: activations (0), gradients (1) */
        struct fifo collectives[GROUP_WORLD + 1];
        struct fifo order; /* the same, of all groups, on the lane of collectives */
};

struct paper {
        struct plan plan;
        int ranks;
        bool eager;
        paper_seconds_fn *seconds;
        paper_watch_fn *issued, *completed;
        void *context;
        struct member *members;
        struct event *heap;
        int events, capacity;
        uint64_t order;
        double now;
};

static void *grow(void *items, int count, int *capacity, size_t size)
{
        if (count < *capacity)
                return items;
        *capacity = *capacity ? 2 * *capacity : 16;
        items = realloc(items, (size_t)*capacity * size);
        assert(items);
        return items;
}

static void push(struct fifo *fifo, int rank, const struct op *op, double seconds)
{
        fifo->items = grow(fifo->items, fifo->head + fifo->count, &fifo->capacity, sizeof *fifo->items);
        fifo->items[fifo->head + fifo->count++] = (struct waiting){rank, *op, seconds};
}

static struct waiting pop(struct fifo *fifo)
{
        assert(fifo->count > 0);
        struct waiting first = fifo->items[fifo->head++];
        if (--fifo->count == 0)
                fifo->head = 0;
        return first;
}

static bool before(const struct event *a, const struct event *b)
{
        return a->seconds < b->seconds || (!(a->seconds > b->seconds) && a->order < b->order);
}

static void swap(struct event *a, struct event *b)
{
        struct event c = *a;
        *a = *b;
        *b = c;
}

static void schedule(struct paper *paper, double seconds, int rank, const struct op *op)
{
        paper->heap = grow(paper->heap, paper->events, &paper->capacity, sizeof *paper->heap);
        int i = paper->events++;
        paper->heap[i] = (struct event){seconds, paper->order++, rank, *op};
        for (; i > 0 && before(&paper->heap[i], &paper->heap[(i - 1) / 2]); i = (i - 1) / 2)
                swap(&paper->heap[i], &paper->heap[(i - 1) / 2]);
}

static struct event next_event(struct paper *paper)
{
        struct event first = paper->heap[0];
        paper->heap[0] = paper->heap[--paper->events];
        for (int i = 0;;) {
                int least = i, left = 2 * i + 1, right = left + 1;
                if (left < paper->events && before(&paper->heap[left], &paper->heap[least]))
                        least = left;
                if (right < paper->events && before(&paper->heap[right], &paper->heap[least]))
                        least = right;
                if (least == i)
                        return first;
                swap(&paper->heap[i], &paper->heap[least]);
                i = least;
        }
}

/* Lets a message and the receive for it meet, if both are there. An eager send has completed already. */
static void match(struct paper *paper, int receiver, int direction)
{
        struct member *m = &paper->members[receiver];
        while (m->sends[direction].count && m->receives[direction].count) {
                struct waiting send = pop(&m->sends[direction]), receive = pop(&m->receives[direction]);
                double end = paper->eager && send.seconds > paper->now ? send.seconds : paper->now;
                if (!paper->eager) {
                        end = paper->now + send.seconds;
                        schedule(paper, end, send.rank, &send.op);
                }
                const int stage = plan_stage(&paper->plan, send.rank);
                core_set_piece(&paper->plan, &receive.op, core_message_piece(&paper->plan, stage, &send.op));
                schedule(paper, end, receiver, &receive.op);
        }
}

static int group_members(const struct plan *plan, int rank, enum op_group group, int *ranks)
{
        int count = 0, replica = plan_replica(plan, rank), stage = plan_stage(plan, rank);
        if (group == GROUP_EMBEDDING) {
                ranks[count++] = plan_rank(plan, replica, 0, 0);
                ranks[count++] = plan_rank(plan, replica, plan->pp - 1, 0);
        } else if (group == GROUP_DATA) {
                for (int i = 0; i < plan->dp; i++)
                        ranks[count++] = plan_rank(plan, i, stage, 0);
        } else {
                for (int i = 0; i < plan->pp * plan->dp; i++)
                        ranks[count++] = i;
        }
        return count;
}

/* When a collective of `ranks` that have all come to it starts: at once, or when their lanes are free. */
static double collective_start(const struct paper *paper, const int *ranks, int count, enum op_lane lane)
{
        double start = paper->now;
        for (int i = 0; !paper->eager && i < count; i++)
                if (paper->members[ranks[i]].lane_free[lane] > start)
                        start = paper->members[ranks[i]].lane_free[lane];
        return start;
}

/* Whether the next of the rank's collectives on that lane, or with eager ones of that group, is of the group.
 */
static bool is_next(const struct paper *paper, int rank, const struct op *op)
{
        const struct member *m = &paper->members[rank];
        if (m->collectives[op->group].count == 0)
                return false;
        return paper->eager || op->lane != LANE_COLLECTIVE ||
               m->order.items[m->order.head].op.group == op->group;
}

/* The first of the group; with eager ones others may stand before it. */
static void take_from_order(struct fifo *order, enum op_group group)
{
        int at = order->head;
        while (order->items[at].op.group != group)
                at++;
        memmove(&order->items[order->head + 1], &order->items[order->head],
                (size_t)(at - order->head) * sizeof *order->items);
        pop(order);
}

/* A collective ends everywhere once every member of its group has come to it. */
static void meet(struct paper *paper, int rank, const struct op *op)
{
        int *ranks = malloc((size_t)paper->ranks * sizeof *ranks);
        assert(ranks);
        int count = group_members(&paper->plan, rank, op->group, ranks);
        bool all = true, overflow = false;
        assert(count > 0);
        for (int i = 0; i < count; i++) {
                all = all && is_next(paper, ranks[i], op);
                overflow = overflow || paper->members[ranks[i]].overflow;
        }
        double seconds = paper->seconds(paper->context, rank, op);
        double end = collective_start(paper, ranks, count, op->lane) + seconds;
        for (int i = 0; all && i < count; i++) {
                struct member *member = &paper->members[ranks[i]];
                struct waiting w = pop(&member->collectives[op->group]);
                assert(w.op.kind == op->kind && w.op.count == op->count);
                if (op->lane == LANE_COLLECTIVE)
                        take_from_order(&member->order, op->group);
                w.op.overflow = op->kind == OP_REDUCE_OVERFLOW && overflow;
                member->lane_free[op->lane] = end;
                schedule(paper, end, ranks[i], &w.op);
        }
        for (int i = 0; all && i < count; i++) { /* what waited behind it */
                const struct fifo *order = &paper->members[ranks[i]].order;
                if (op->lane == LANE_COLLECTIVE && order->count) {
                        const struct op next = order->items[order->head].op;
                        meet(paper, ranks[i], &next);
                }
        }
        free(ranks);
}

static void issue_send(struct paper *paper, int rank, const struct op *op)
{
        int direction = op->kind == OP_SEND_GRADIENT;
        int receiver =
                direction ? plan_previous_rank(&paper->plan, rank) : plan_next_rank(&paper->plan, rank);
        double seconds = paper->seconds(paper->context, rank, op);
        if (paper->eager) {
                struct member *m = &paper->members[rank];
                double start = m->lane_free[op->lane] > paper->now ? m->lane_free[op->lane] : paper->now;
                m->lane_free[op->lane] = start + seconds;
                schedule(paper, start + seconds, rank, op);
                seconds = start + seconds;
        }
        push(&paper->members[receiver].sends[direction], rank, op, seconds);
        match(paper, receiver, direction);
}

static void issue(void *world, const struct op *op)
{
        struct member *member = world;
        struct paper *paper = member->paper;
        int rank = member->rank, direction = op->kind == OP_RECEIVE_GRADIENT;
        if (paper->issued)
                paper->issued(paper->context, rank, op);
        switch (op->kind) {
        case OP_SEND_ACTIVATION:
        case OP_SEND_GRADIENT:
                issue_send(paper, rank, op);
                break;
        case OP_RECEIVE_ACTIVATION:
        case OP_RECEIVE_GRADIENT:
                push(&member->receives[direction], rank, op, 0);
                match(paper, rank, direction);
                break;
        case OP_ALLREDUCE:
        case OP_REDUCE_SCATTER:
        case OP_ALL_GATHER:
        case OP_REDUCE_OVERFLOW:
        case OP_REDUCE_SCALARS:
                push(&member->collectives[op->group], rank, op, 0);
                if (op->lane == LANE_COLLECTIVE)
                        push(&member->order, rank, op, 0);
                meet(paper, rank, op);
                break;
        default: {
                struct op done = *op;
                if (op->kind == OP_BACKWARD && op->count > 0) { /* whole layers, as far as is asked for */
                        done.offset = op->offset / PAPER_LAYER * PAPER_LAYER;
                        done.count = op->offset + op->count - done.offset;
                        done.more = done.offset > 0;
                }
                double *lane_free = &member->lane_free[op->lane];
                *lane_free = (*lane_free > paper->now ? *lane_free : paper->now) +
                             paper->seconds(paper->context, rank, &done);
                schedule(paper, *lane_free, rank, &done);
        }
        }
}

static double now(void *world)
{
        return ((struct member *)world)->paper->now;
}

struct paper *paper_new(const struct plan *plan, int64_t parameters, bool eager, paper_seconds_fn *seconds,
                        paper_watch_fn *issued, paper_watch_fn *completed, void *context)
{
        struct paper *paper = calloc(1, sizeof *paper);
        assert(paper);
        *paper = (struct paper){.plan = *plan,
                                .ranks = plan->pp * plan->dp,
                                .eager = eager,
                                .seconds = seconds,
                                .issued = issued,
                                .completed = completed,
                                .context = context};
        paper->members = calloc((size_t)paper->ranks, sizeof *paper->members);
        assert(paper->members);
        for (int rank = 0; rank < paper->ranks; rank++) {
                struct member *m = &paper->members[rank];
                const struct core_stage part = {.stage = plan_stage(plan, rank),
                                                .parameters = parameters,
                                                .slot_bytes = PAPER_SLOT_BYTES,
                                                .embedded_bytes = PAPER_EMBEDDED_BYTES,
                                                .head_bytes = PAPER_HEAD_BYTES,
                                                .replica = plan_replica(plan, rank)};
                void *memory = malloc(core_bytes(plan, &part));
                assert(memory);
                m->paper = paper;
                m->rank = rank;
                struct driver driver = {.issue = issue, .now = now, .world = m};
                struct core *core = core_init(memory, plan, &part);
                engine_init(&m->engine, core, driver, NULL, NULL, rank);
        }
        return paper;
}

void paper_delete(struct paper *paper)
{
        for (int rank = 0; rank < paper->ranks; rank++) {
                struct member *m = &paper->members[rank];
                for (int i = 0; i < 2; i++) {
                        free(m->sends[i].items);
                        free(m->receives[i].items);
                }
                for (int i = 0; i <= GROUP_WORLD; i++)
                        free(m->collectives[i].items);
                free(m->order.items);
                free(m->engine.core);
                engine_free(&m->engine);
        }
        free(paper->members);
        free(paper->heap);
        free(paper);
}

struct engine *paper_engine(struct paper *paper, int rank)
{
        return &paper->members[rank].engine;
}

void paper_overflow(struct paper *paper, int rank)
{
        paper->members[rank].overflow = true;
}

double paper_run(struct paper *paper)
{
        double start = paper->now;
        for (int rank = 0; rank < paper->ranks; rank++)
                engine_start(&paper->members[rank].engine);
        while (paper->events) {
                struct event event = next_event(paper);
                paper->now = event.seconds;
                if (paper->completed)
                        paper->completed(paper->context, event.rank, &event.op);
                engine_complete(&paper->members[event.rank].engine, &event.op);
        }
        for (int rank = 0; rank < paper->ranks; rank++) {
                paper->members[rank].overflow = false;
                if (!engine_done(&paper->members[rank].engine))
                        return -1;
        }
        return paper->now - start;
}
