#include "runtime/engine/paper.h"

#include "runtime/base/agenda.h"
#include "runtime/engine/host_link.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An operation that was issued and has not completed. It stands in a list of those that wait for something,
 * or in the agenda; the room of one that is over is used again. */
struct paper_op {
        struct op op;
        struct member *member;
        double seconds; /* messages: of transit, or, eager, when it arrives */
        int next; /* in the list that it waits in, or of unused ones; of a send in the agenda its receive;
                     -1: none */
};

struct list {
        int first, last;
};

/* The copies of one direction between host and device. */
struct copies {
        int under_way;   /* -1: none */
        unsigned serial; /* of the moment noted last for its end */
        struct list waiting;
};

enum { GROUPS = GROUP_WORLD + 1 };

struct member {
        struct paper *paper;
        int rank, stage;
        struct member *next, *previous; /* stages */
        struct engine engine;
        double lane_free[LANES];
        bool overflow;
        bool is_through;                   /* of a run that ends with the pipeline */
        struct list sends[2], receives[2]; /* towards this rank: activations (0), gradients (1) */
        struct list collectives[GROUPS];
        struct list
                order; /* of LANE_COLLECTIVE: the groups of those that wait, in order (a copy of the op) */
        struct host_link link;
        struct copies copies[2]; /* by enum host_link_way */
};

struct paper {
        struct plan plan;
        struct paper_setting setting;
        int replicas, ranks;    /* that are run */
        struct member *members; /* [ranks]: replica x pp + stage */
        struct paper_op *ops;
        int capacity, unused; /* unused: the first, or -1 */
        int *group;           /* [ranks]: room for the members of a group */
        double *through;      /* [ranks]: the caller's; not NULL: the run ends with the pipeline */
        struct agenda agenda;
        double now;
};

/* ---- operations and lists of them ---- */

static int keep(struct member *member, const struct op *op)
{
        struct paper *paper = member->paper;
        if (paper->unused < 0) {
                const int old = paper->capacity, new = old ? 2 * old : 64;
                paper->ops = realloc(paper->ops, (size_t) new * sizeof *paper->ops);
                if (!paper->ops)
                        abort(); /* a driver cannot fail */
                for (int i = old; i < new; i++)
                        paper->ops[i].next = i + 1 < new ? i + 1 : -1;
                paper->capacity = new;
                paper->unused = old;
        }
        const int kept = paper->unused;
        paper->unused = paper->ops[kept].next;
        paper->ops[kept].op = *op;
        paper->ops[kept].member = member;
        paper->ops[kept].next = -1;
        return kept;
}

static void forget(struct paper *paper, int kept)
{
        paper->ops[kept].next = paper->unused;
        paper->unused = kept;
}

static void append(struct paper *paper, struct list *list, int kept)
{
        if (list->first < 0)
                list->first = kept;
        else
                paper->ops[list->last].next = kept;
        list->last = kept;
}

static int take_first(struct paper *paper, struct list *list)
{
        const int kept = list->first;
        list->first = paper->ops[kept].next;
        paper->ops[kept].next = -1;
        return kept;
}

static double later(double a, double b)
{
        return a > b ? a : b;
}

/* What an entry of the agenda is about: an operation completes, the copy in one direction of a member's link
 * may be over, or a member begins. It and the number of the operation, direction or member are one small
 * number in the place of a pointer. */
enum about { COMPLETES, COPIED, BEGINS, ABOUTS };

static void *as_what(enum about about, int number)
{
        return (void *)((intptr_t)number * ABOUTS + (intptr_t)about);
}

static void complete_at(struct paper *paper, int kept, double seconds)
{
        agenda_note(&paper->agenda, seconds, as_what(COMPLETES, kept), 0);
}

static double seconds_of(const struct paper *paper, int rank, const struct op *op)
{
        const struct paper_physics *physics = &paper->setting.physics;
        return physics->seconds(physics->context, rank, op);
}

/* ---- who talks to whom ---- */

/* The member that is, or stands for, a rank of the plan; its shard is the first. */
static struct member *member_of(const struct paper *paper, int rank)
{
        const int replica = paper->setting.folded ? 0 : plan_replica(&paper->plan, rank);
        return &paper->members[replica * paper->plan.pp + plan_stage(&paper->plan, rank)];
}

/* The replicas that are run of those that share with one, or have the same share. */
static int sharers(const struct paper *paper, int replica, enum op_group group, int *replicas)
{
        const int ranks = plan_share_ranks(&paper->plan);
        int count = 0;
        for (int i = 0; i < paper->replicas; i++)
                if (group == GROUP_SHARERS ? i / ranks == replica / ranks : i % ranks == replica % ranks)
                        replicas[count++] = i;
        return count;
}

/* Indices of the members of a rank's group that are run. */
static int group_members(const struct paper *paper, const struct member *of, enum op_group group,
                         int *members)
{
        const int pp = paper->plan.pp, me = (int)(of - paper->members), pipeline = me - of->stage;
        int count = 0;
        switch (group) {
        case GROUP_EMBEDDING:
                members[count++] = pipeline;
                members[count++] = pipeline + pp - 1;
                break;
        case GROUP_DATA:
                for (int i = 0; i < paper->replicas; i++)
                        members[count++] = i * pp + of->stage;
                break;
        case GROUP_EXPERT_DATA:
                for (int i = me / pp % plan_expert_replicas(&paper->plan); i < paper->replicas;
                     i += plan_expert_replicas(&paper->plan))
                        members[count++] = i * pp + of->stage;
                break;
        case GROUP_SHARERS:
        case GROUP_SHARE_DATA:
                count = sharers(paper, me / pp, group, members);
                for (int i = 0; i < count; i++)
                        members[i] = members[i] * pp + of->stage;
                break;
        case GROUP_TENSOR:
        case GROUP_TENSOR_X:
        case GROUP_TENSOR_Z:
        case GROUP_EXPERTS:
        case GROUP_CONTEXT:
                members[count++] = me;
                break;
        default:
                for (int i = 0; i < paper->ranks; i++)
                        members[count++] = i;
        }
        return count;
}

/* ---- messages ---- */

/* Lets a message and the receive for it meet, if both are there. An eager send has completed already. */
static void match(struct paper *paper, struct member *receiver, int direction)
{
        while (receiver->sends[direction].first >= 0 && receiver->receives[direction].first >= 0) {
                const int sent = take_first(paper, &receiver->sends[direction]);
                const int kept = take_first(paper, &receiver->receives[direction]);
                const struct paper_op *send = &paper->ops[sent];
                double end = later(send->seconds, paper->now);
                if (!paper->setting.eager)
                        end = paper->now + send->seconds;
                core_set_vmb(&paper->plan, &paper->ops[kept].op,
                             core_message_vmb(&paper->plan, send->member->stage, &send->op));
                if (paper->setting.eager)
                        forget(paper, sent);
                else
                        paper->ops[sent].next = kept;
                complete_at(paper, paper->setting.eager ? kept : sent, end);
        }
}

static void issue_send(struct member *member, const struct op *op)
{
        struct paper *paper = member->paper;
        const int direction = op->kind == OP_SEND_GRADIENT;
        struct member *receiver = direction ? member->previous : member->next;
        double seconds = seconds_of(paper, member->rank, op);
        if (paper->setting.eager) {
                double *lane_free = &member->lane_free[op->lane];
                seconds = *lane_free = later(*lane_free, paper->now) + seconds;
                complete_at(paper, keep(member, op), seconds);
        }
        const int kept = keep(member, op);
        paper->ops[kept].seconds = seconds;
        append(paper, &receiver->sends[direction], kept);
        match(paper, receiver, direction);
}

/* ---- collectives ---- */

/* When a collective whose members have all come to it starts: at once, or when their lanes are free. */
static double collective_start(const struct paper *paper, const int *members, int count, enum op_lane lane)
{
        double start = paper->now;
        for (int i = 0; !paper->setting.eager && i < count; i++)
                start = later(start, paper->members[members[i]].lane_free[lane]);
        return start;
}

/* Whether the next of the member's collectives on that lane, or with eager ones of that group, is of the
 * group. */
static bool is_next(const struct paper *paper, const struct member *m, const struct op *op)
{
        if (m->collectives[op->group].first < 0)
                return false;
        return paper->setting.eager || op->lane != LANE_COLLECTIVE ||
               paper->ops[m->order.first].op.group == op->group;
}

/* The first of the group; with eager ones others may stand before it. */
static void take_from_order(struct paper *paper, struct list *order, enum op_group group)
{
        int before = -1, at = order->first;
        while (paper->ops[at].op.group != group) {
                before = at;
                at = paper->ops[at].next;
        }
        if (before < 0) {
                order->first = paper->ops[at].next;
        } else {
                paper->ops[before].next = paper->ops[at].next;
                if (order->last == at)
                        order->last = before;
        }
        forget(paper, at);
}

static void meet(struct member *member, const struct op *op);

/* What waited behind a collective that has begun on these members. */
static void look_behind(struct paper *paper, const struct member *of, enum op_group group)
{
        int *members = malloc((size_t)paper->ranks * sizeof *members);
        if (!members)
                abort(); /* a driver cannot fail */
        const int count = group_members(paper, of, group, members);
        for (int i = 0; i < count; i++) {
                struct member *other = &paper->members[members[i]];
                if (other->order.first >= 0) {
                        const struct op next = paper->ops[other->order.first].op;
                        meet(other, &next);
                }
        }
        free(members);
}

/* A collective ends everywhere once every member of its group has come to it. */
static void meet(struct member *member, const struct op *op)
{
        struct paper *paper = member->paper;
        const int count = group_members(paper, member, op->group, paper->group);
        bool overflow = false, behind = false;
        for (int i = 0; i < count; i++) {
                const struct member *other = &paper->members[paper->group[i]];
                if (!is_next(paper, other, op))
                        return;
                overflow = overflow || other->overflow;
        }
        const double end =
                collective_start(paper, paper->group, count, op->lane) + seconds_of(paper, member->rank, op);
        for (int i = 0; i < count; i++) {
                struct member *other = &paper->members[paper->group[i]];
                const int kept = take_first(paper, &other->collectives[op->group]);
                struct op *its = &paper->ops[kept].op;
                assert(its->kind == op->kind && its->count == op->count);
                its->overflow = op->kind == OP_REDUCE_OVERFLOW && overflow;
                if (op->lane == LANE_COLLECTIVE) {
                        take_from_order(paper, &other->order, op->group);
                        behind = behind || other->order.first >= 0;
                }
                other->lane_free[op->lane] = end;
                complete_at(paper, kept, end);
        }
        if (behind)
                look_behind(paper, member, op->group);
}

static void issue_collective(struct member *member, const struct op *op)
{
        struct paper *paper = member->paper;
        append(paper, &member->collectives[op->group], keep(member, op));
        if (op->lane == LANE_COLLECTIVE)
                append(paper, &member->order, keep(member, op));
        meet(member, op);
}

/* ---- copies that slow each other down ---- */

/* Says when the copy under way ends, if none begins before. */
static void note_end(struct member *member, enum host_link_way way)
{
        agenda_note(&member->paper->agenda, host_link_end(&member->link, way),
                    as_what(COPIED, 2 * (int)(member - member->paper->members) + (int)way),
                    ++member->copies[way].serial);
}

static void begin_copy(struct member *member, enum host_link_way way)
{
        struct paper *paper = member->paper;
        struct copies *own = &member->copies[way];
        const enum host_link_way back = host_link_back(way);
        if (own->under_way >= 0 || own->waiting.first < 0)
                return;
        own->under_way = take_first(paper, &own->waiting);
        const struct paper_physics *physics = &paper->setting.physics;
        const struct op *op = &paper->ops[own->under_way].op;
        host_link_begin(&member->link, way, paper->now, seconds_of(paper, member->rank, op),
                        physics->both_ways(physics->context, member->rank, op));
        note_end(member, way);
        if (member->copies[back].under_way >= 0 && member->link.copies[back].copying)
                note_end(member, back);
}

static bool is_copy(enum op_lane lane)
{
        return lane == LANE_HOST_TO_DEVICE || lane == LANE_DEVICE_TO_HOST;
}

static void issue_copy(struct member *member, const struct op *op)
{
        const enum host_link_way way = host_link_way_of(op->lane);
        append(member->paper, &member->copies[way].waiting, keep(member, op));
        begin_copy(member, way);
}

static void complete(struct paper *paper, int kept);

/* The copy is over, unless its end was said anew since this was noted. */
static void end_copy(struct member *member, enum host_link_way way, unsigned serial)
{
        const int kept = member->copies[way].under_way;
        if (kept < 0 || member->copies[way].serial != serial)
                return;
        member->copies[way].under_way = -1;
        begin_copy(member, way);
        complete(member->paper, kept);
}

/* ---- the driver's two functions ---- */

static void issue_plain(struct member *member, const struct op *op)
{
        struct paper *paper = member->paper;
        const struct paper_physics *physics = &paper->setting.physics;
        const int kept = keep(member, op);
        if (physics->fill)
                physics->fill(physics->context, member->rank, &paper->ops[kept].op);
        double *lane_free = &member->lane_free[op->lane];
        *lane_free = later(*lane_free, paper->now) + seconds_of(paper, member->rank, &paper->ops[kept].op);
        complete_at(paper, kept, *lane_free);
}

/* What the rank does when it has worked on all micro-batches, beside sending the last gradient. */
static bool follows_pipeline(const struct member *member, const struct op *op)
{
        return op->of != OP_SEND_ACTIVATION && op->of != OP_SEND_GRADIENT &&
               core_pipeline_done(member->engine.core);
}

/* What would follow waits for ever, as nobody says that it is over. */
static void leave_pipeline(struct member *member)
{
        if (!member->is_through)
                member->paper->through[member - member->paper->members] = member->paper->now;
        member->is_through = true;
}

static void issue(void *world, const struct op *op)
{
        struct member *member = world;
        struct paper *paper = member->paper;
        const int direction = op->kind == OP_RECEIVE_GRADIENT;
        if (paper->through && follows_pipeline(member, op)) {
                leave_pipeline(member);
                return;
        }
        if (paper->setting.issued)
                paper->setting.issued(paper->setting.physics.context, member->rank, op);
        switch (op->kind) {
        case OP_SEND_ACTIVATION:
        case OP_SEND_GRADIENT:
                issue_send(member, op);
                break;
        case OP_RECEIVE_ACTIVATION:
        case OP_RECEIVE_GRADIENT:
                append(paper, &member->receives[direction], keep(member, op));
                match(paper, member, direction);
                break;
        case OP_ALLREDUCE:
        case OP_REDUCE_SCATTER:
        case OP_ALL_GATHER:
        case OP_REDUCE_OVERFLOW:
        case OP_REDUCE_SCALARS:
                issue_collective(member, op);
                break;
        default:
                if (is_copy(op->lane) && paper->setting.physics.both_ways)
                        issue_copy(member, op);
                else
                        issue_plain(member, op);
        }
}

static double now(void *world)
{
        return ((struct member *)world)->paper->now;
}

/* ---- a world ---- */

static const struct list empty = {-1, -1};

static bool build_member(struct paper *paper, int replica, int stage)
{
        struct member *m = &paper->members[replica * paper->plan.pp + stage];
        struct core_stage part = paper->setting.stages[stage];
        part.stage = stage;
        part.replica = replica;
        void *memory = malloc(core_bytes(&paper->plan, &part));
        if (!memory)
                return false;
        m->paper = paper;
        m->rank = plan_rank(&paper->plan, replica, stage, 0);
        m->stage = stage;
        m->next = member_of(paper, plan_next_rank(&paper->plan, m->rank));
        m->previous = member_of(paper, plan_previous_rank(&paper->plan, m->rank));
        m->order = empty;
        for (int i = 0; i < 2; i++) {
                m->sends[i] = m->receives[i] = empty;
                m->copies[i] = (struct copies){-1, 0, empty};
        }
        for (int i = 0; i < GROUPS; i++)
                m->collectives[i] = empty;
        engine_init(&m->engine, core_init(memory, &paper->plan, &part),
                    (struct driver){.issue = issue, .now = now, .world = m}, NULL, NULL, m->rank);
        return true;
}

struct paper *paper_new(const struct paper_setting *setting)
{
        const struct plan *plan = setting->plan;
        struct paper *paper = calloc(1, sizeof *paper);
        if (!paper)
                return NULL;
        *paper = (struct paper){
                .plan = *plan, .setting = *setting, .replicas = setting->folded ? 1 : plan->dp, .unused = -1};
        paper->ranks = paper->replicas * plan->pp;
        paper->members = calloc((size_t)paper->ranks, sizeof *paper->members);
        paper->group = malloc(((size_t)paper->ranks + 1) *
                              sizeof *paper->group); /* a pipeline of one has both ends */
        bool built = paper->members && paper->group;
        for (int i = 0; built && i < paper->ranks; i++)
                built = build_member(paper, i / plan->pp, i % plan->pp);
        paper->setting.plan = NULL; /* copied; the stages were of use above only */
        paper->setting.stages = NULL;
        if (built)
                return paper;
        paper_delete(paper);
        return NULL;
}

void paper_delete(struct paper *paper)
{
        for (int i = 0; paper && paper->members && i < paper->ranks; i++) {
                free(paper->members[i].engine.core);
                engine_free(&paper->members[i].engine);
        }
        if (paper) {
                agenda_free(&paper->agenda);
                free(paper->members);
                free(paper->group);
                free(paper->ops);
        }
        free(paper);
}

double paper_now(const struct paper *paper)
{
        return paper->now;
}

struct engine *paper_engine(struct paper *paper, int rank)
{
        struct member *member = member_of(paper, rank);
        return member->rank == rank ? &member->engine : NULL;
}

void paper_overflow(struct paper *paper, int rank)
{
        member_of(paper, rank)->overflow = true;
}

static void complete_one(struct paper *paper, int kept)
{
        const struct op done = paper->ops[kept].op;
        struct member *member = paper->ops[kept].member;
        forget(paper, kept);
        if (paper->setting.completed)
                paper->setting.completed(paper->setting.physics.context, member->rank, &done);
        engine_complete(&member->engine, &done);
}

/* A message completes at both of its ends, one after the other. */
static void complete(struct paper *paper, int kept)
{
        const int next = paper->ops[kept].next;
        complete_one(paper, kept);
        if (next >= 0)
                complete_one(paper, next);
}

static void happen(struct paper *paper, const struct agenda_entry *entry)
{
        const int what = (int)(intptr_t)entry->what, number = what / ABOUTS;
        paper->now = entry->seconds;
        switch ((enum about)(what % ABOUTS)) {
        case COMPLETES:
                complete(paper, number);
                break;
        case COPIED:
                end_copy(&paper->members[number / 2], (enum host_link_way)(number % 2), entry->serial);
                break;
        default:
                engine_start(&paper->members[number].engine);
        }
}

/* Begins a batch, each rank at its time (NULL: now), and goes on until nothing is left to happen. */
static void run(struct paper *paper, const double *begins)
{
        struct agenda_entry entry;
        for (int i = 0; i < paper->ranks; i++)
                if (begins)
                        agenda_note(&paper->agenda, begins[i], as_what(BEGINS, i), 0);
                else
                        engine_start(&paper->members[i].engine);
        while (agenda_take(&paper->agenda, INFINITY, &entry))
                happen(paper, &entry);
}

static bool all(const struct paper *paper, bool (*is)(const struct member *member))
{
        for (int i = 0; i < paper->ranks; i++)
                if (!is(&paper->members[i]))
                        return false;
        return true;
}

static bool is_done(const struct member *member)
{
        return engine_done(&member->engine);
}

static bool is_through(const struct member *member)
{
        return member->is_through;
}

double paper_run(struct paper *paper)
{
        const double start = paper->now;
        run(paper, NULL);
        for (int i = 0; i < paper->ranks; i++)
                paper->members[i].overflow = false;
        return all(paper, is_done) ? paper->now - start : -1;
}

bool paper_run_pipeline(struct paper *paper, double *through)
{
        paper->through = through;
        run(paper, NULL);
        paper->through = NULL;
        return all(paper, is_through);
}

double paper_run_after(struct paper *paper, const double *through)
{
        assert(paper->plan.micro_batches == 0);
        run(paper, through);
        return all(paper, is_done) ? paper->now : -1;
}
