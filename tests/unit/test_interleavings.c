/* Every order in which messages, computations and copies can complete, for small plans: no order leads to a
 * deadlock, and all end in the same place. A state is the bytes of all cores, the operations in flight and
 * the messages under way; states seen before are not explored again.
 *
 * A stage that offloads activations stores at least five micro-batches, which is too many states for a whole
 * pipeline. Such a stage is also explored alone: its neighbours are then anything that keeps to causality,
 * and gradients come in any order. */
#include "runtime/sched/core.h"
#include "runtime/sched/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define XXH_INLINE_ALL /* hashes are most of the work */
#include <xxhash.h>

enum { STAGES = 3, RANKS = 6, MAX_OPS = 16, MAX_MESSAGES = 8, CORE_BYTES = 2048 };

struct rank {
        _Alignas(16) unsigned char core[CORE_BYTES];
        struct op ops[MAX_OPS]; /* in flight, by lane, then in issue order */
        int op_count;
        int inbox[3]
                 [MAX_MESSAGES]; /* sent to this rank and not received: activations, gradients, decisions */
        int inbox_count[3];
        int collectives[GROUP_WORLD + 1]; /* issued so far */
        int batch;                        /* from 0 */
        /* What each group does together in passes, the last of it: see note_collective. */
        int together[GROUP_WORLD][6];
        uint64_t digest[2]; /* of the rank as it is, or 0: see touch */
};

struct world {
        int received;  /* a stage alone: micro-batches that came from the previous stage */
        int to_return; /* and, a bit each, those that the next one has and whose gradient is to come */
        struct rank ranks[RANKS]; /* the first `ranks` of the search */
};

struct search {
        struct plan plan;
        int64_t parameters;
        int ranks;       /* pp x dp, or 1: */
        int alone;       /* the stage that is explored alone, or -1 */
        int blocks;      /* zero 2 and 3 */
        bool tied_units; /* zero 2 and 3: the head's and the embedding's are one */
        bool loose;      /* a send completes at any time after it began; else together with its receive
                            (rendezvous) */
        bool all_orders; /* of the optimizer phase too */
        bool overflow;
        bool saves;     /* a checkpoint follows each batch */
        int more;       /* batches that follow the first */
        bool disagrees; /* shards are expected to take different decisions */
        uint64_t (*seen)[2];
        size_t capacity, states, core_bytes[RANKS];
        const char *deadlock;
};

static int stage_of(const struct search *s, int r)
{
        return s->alone >= 0 ? s->alone : plan_stage(&s->plan, r);
}

/* What shards have alike is the last parameter, but for the last stage's copy of an embedding. */
static int64_t common_offset(const struct search *s, int r)
{
        const bool copy = s->plan.tied && s->plan.pp > 1 && stage_of(s, r) == s->plan.pp - 1;
        return s->parameters - 1 - (copy ? s->plan.embedding_parameters : 0);
}

static struct core_stage part_of(const struct search *s, int r)
{
        return (struct core_stage){.stage = stage_of(s, r),
                                   .parameters = s->parameters,
                                   .expert_parameters = s->plan.ep > 1,
                                   .slot_bytes = 1,
                                   .replicated_offset = common_offset(s, r),
                                   .replicated_count = s->plan.zero < 2 && s->plan.sequence_parallel,
                                   .common_offset = common_offset(s, r),
                                   .common_count = s->plan.tp > 1,
                                   .replica = plan_replica(&s->plan, r),
                                   .shard = plan_shard(&s->plan, r),
                                   .units = {.blocks = s->blocks,
                                             .tied = s->tied_units,
                                             .embedding = 1,
                                             .block = 1 + (s->plan.ep > 1),
                                             .head = 1,
                                             .experts = s->plan.ep > 1,
                                             .sums.block = {0, s->plan.sequence_parallel}}};
}

/* 128 bits of it; the first are never 0, which stands for none. */
static void digest(const void *bytes, size_t count, uint64_t key[2])
{
        const XXH128_hash_t hash = XXH3_128bits(bytes, count);
        key[0] = hash.low64 | 1;
        key[1] = hash.high64;
}

/* Of operations in flight, what differs between states. */
static void hash_rank(const struct rank *rank, size_t core_bytes, uint64_t key[2])
{
        enum { OP_WORDS = 11 };
        int words[2 + MAX_OPS * OP_WORDS + 3 * (1 + MAX_MESSAGES)], *at = words;
        uint64_t parts[3][2];
        *at++ = rank->op_count;
        for (int i = 0; i < rank->op_count; i++, at += OP_WORDS) {
                const struct op *op = &rank->ops[i];
                const int own[OP_WORDS] = {(int)op->kind, (int)op->of,  op->micro_batch, op->slot,
                                           op->input,     op->gradient, op->host_slot,   op->bucket,
                                           op->chunk,     op->segment,  op->range};
                memcpy(at, own, sizeof own);
        }
        for (int d = 0; d < 3; at += rank->inbox_count[d++]) {
                *at++ = rank->inbox_count[d];
                memcpy(at, rank->inbox[d], (size_t)rank->inbox_count[d] * sizeof *at);
        }
        *at++ = rank->batch;
        digest(rank->core, core_bytes, parts[0]);
        digest(words, (size_t)(at - words) * sizeof *words, parts[1]);
        digest(rank->collectives, sizeof rank->collectives, parts[2]);
        digest(parts, sizeof parts, key);
}

/* A rank that is about to change: what it was is no longer what it is. Most steps change one or two of all.
 */
static struct rank *touch(struct world *w, int r)
{
        w->ranks[r].digest[0] = 0;
        return &w->ranks[r];
}

static void hash_world(const struct search *s, struct world *w, uint64_t key[2])
{
        struct {
                uint64_t ranks[RANKS][2];
                int received, to_return;
        } seen;
        memset(&seen, 0, sizeof seen);
        seen.received = w->received;
        seen.to_return = w->to_return;
        for (int r = 0; r < s->ranks; r++) {
                struct rank *rank = &w->ranks[r];
                const bool known = rank->digest[0], looked_at = !known || s->states % 256 == 0;
                if (looked_at)
                        hash_rank(rank, s->core_bytes[r], seen.ranks[r]);
                if (known && looked_at) /* whatever changes it touches it */
                        assert_memory_equal(seen.ranks[r], rank->digest, sizeof rank->digest);
                memcpy(known ? seen.ranks[r] : rank->digest, known ? rank->digest : seen.ranks[r],
                       sizeof rank->digest);
        }
        digest(&seen, sizeof seen, key);
}

/* True if this state is new. */
static bool remember(struct search *s, struct world *w)
{
        if (2 * (s->states + 1) > s->capacity) {
                size_t old = s->capacity, new = old ? 2 * old : 1u << 16;
                uint64_t(*table)[2] = calloc(new, sizeof *table);
                assert_non_null(table);
                for (size_t i = 0; i < old; i++)
                        if (s->seen[i][0]) {
                                size_t at = s->seen[i][0] % new;
                                while (table[at][0])
                                        at = (at + 1) % new;
                                memcpy(table[at], s->seen[i], sizeof table[at]);
                        }
                free(s->seen);
                s->seen = table;
                s->capacity = new;
        }
        uint64_t key[2];
        hash_world(s, w, key);
        size_t at = key[0] % s->capacity;
        for (; s->seen[at][0]; at = (at + 1) % s->capacity)
                if (memcmp(s->seen[at], key, sizeof key) == 0)
                        return false;
        memcpy(s->seen[at], key, sizeof key);
        s->states++;
        return true;
}

static struct core *core_of(struct rank *rank)
{
        return (struct core *)(void *)rank->core;
}

/* Operations in flight are kept by lane, so that states which differ only in the order of issue on different
 * lanes are the same bytes. */
static void keep(struct rank *rank, const struct op *op)
{
        assert_true(rank->op_count < MAX_OPS);
        int i = rank->op_count++;
        for (; i > 0 && rank->ops[i - 1].lane > op->lane; i--)
                rank->ops[i] = rank->ops[i - 1];
        rank->ops[i] = *op;
}

static void send(const struct search *s, struct world *w, int r, const struct op *op)
{
        int d = op->kind == OP_SEND_GRADIENT;
        if (s->alone >= 0) {
                if (d == 0 && !s->plan.forward_only)
                        w->to_return |= 1 << op->micro_batch;
                return;
        }
        const struct plan *plan = &s->plan;
        struct rank *to = touch(w, d ? plan_previous_rank(plan, r) : plan_next_rank(plan, r));
        assert_true(to->inbox_count[d] < MAX_MESSAGES);
        to->inbox[d][to->inbox_count[d]++] = core_message_vmb(plan, plan_stage(plan, r), op);
}

/* Shard 0 tells the others what it has decided. */
static void tell(const struct search *s, struct world *w, int r, const struct op *op)
{
        for (int shard = 1; shard < s->plan.tp; shard++) {
                struct rank *to = touch(w, r + shard * plan_stride(&s->plan, GRID_SHARDS));
                assert_true(to->inbox_count[2] < MAX_MESSAGES);
                to->inbox[2][to->inbox_count[2]++] = core_decision_number(&s->plan, op);
        }
}

static bool tells(const struct search *s, int r, const struct op *op)
{
        return op->kind == OP_DECISION && plan_shard(&s->plan, r) == 0;
}

static bool is_collective(const struct op *op)
{
        return op_lane_of_replicas(op->lane) || op->lane == LANE_SCALARS || op->lane == LANE_TENSOR ||
               op->lane == LANE_TENSOR_Z;
}

/* All shards, or with zero 3 replicas, must do the same at the same time: what a collective is about is not
 * in its count. */
static void note_collective(struct rank *rank, const struct op *op)
{
        const int what[] = {(int)op->kind, (int)op->of, op->micro_batch, op->chunk, op->segment, op->range};
        if (is_collective(op) && op_of_pass(op))
                memcpy(rank->together[op->group], what, sizeof what);
}

/* Behind the parts of a pass of a grid: two gathers, of which the next part waits for none and the one behind
 * it for the first, a sum along x beside that and the next one, a reduce-scatter, and what waits for these.
 */
static const struct {
        enum op_group group;
        bool beside, joins;
        unsigned char left;
} behind_parts[] = {{GROUP_TENSOR_Z, true, false, 1}, {GROUP_TENSOR_Z, true, false, 1},
                    {GROUP_TENSOR_X, true, false, 0}, {GROUP_TENSOR_Z, true, false, 1},
                    {GROUP_TENSOR_X, false, true, 0}, {GROUP_TENSOR_Z, false, true, 0}};
enum { BEHIND_PARTS = sizeof behind_parts / sizeof *behind_parts };

static int under_way(const struct rank *rank, enum op_lane lane)
{
        int count = 0;
        for (int i = 0; i < rank->op_count; i++)
                count += rank->ops[i].lane == lane;
        return count;
}

static void check_part(const struct plan *plan, const struct rank *rank, const struct op *op)
{
        const bool part = (op->kind == OP_FORWARD || op->kind == OP_BACKWARD) && op->segment > 0;
        if (plan->tp_z <= 1 || !part)
                return;
        assert_true(under_way(rank, LANE_TENSOR_Z) <= behind_parts[op->segment - 1].left ||
                    behind_parts[op->segment - 1].group == GROUP_TENSOR_X);
        assert_true(under_way(rank, LANE_TENSOR) == 0 || op->segment == 3 || op->segment == 4);
}

/* A snapshot is of a state that nothing changes, and overwrites none that is not written. */
static void check_snapshot(const struct rank *rank, const struct op *op)
{
        if (op->kind == OP_SNAPSHOT)
                assert_int_equal(rank->op_count, 0);
        if (op->kind == OP_WRITE)
                assert_int_equal(under_way(rank, LANE_FILES) + under_way(rank, LANE_DEVICE_TO_HOST), 0);
}

static void drain(const struct search *s, struct world *w, int r)
{
        struct rank *rank = touch(w, r);
        struct op op;
        while (core_next(core_of(rank), &op)) {
                if (op.kind == OP_SEND_ACTIVATION || op.kind == OP_SEND_GRADIENT)
                        send(s, w, r, &op);
                else if (tells(s, r, &op))
                        tell(s, w, r, &op);
                else if (is_collective(&op))
                        op.serial = ++rank->collectives[op.group]; /* how many its members must have issued */
                note_collective(rank, &op);
                check_part(&s->plan, rank, &op);
                check_snapshot(rank, &op);
                keep(rank, &op);
        }
}

static bool same_group(const struct plan *plan, int a, int b, enum op_group group)
{
        if (group == GROUP_EMBEDDING) /* of its members, one asks: those between do not count */
                return plan_replica(plan, a) == plan_replica(plan, b) &&
                       plan_shard(plan, a) == plan_shard(plan, b) &&
                       (plan_stage(plan, b) == 0 || plan_stage(plan, b) == plan->pp - 1);
        if (group == GROUP_WORLD || plan_stage(plan, a) != plan_stage(plan, b))
                return group == GROUP_WORLD;
        if (plan_group_of_shards(group))
                return plan_group(plan, a, group).first == plan_group(plan, b, group).first;
        const int ep = plan_expert_ranks(plan), one = plan_replica(plan, a), other = plan_replica(plan, b);
        if (group == GROUP_CONTEXT)
                return one / plan_context_ranks(plan) == other / plan_context_ranks(plan);
        if (group == GROUP_EXPERTS)
                return one / ep == other / ep;
        const int shares = plan_share_ranks(plan);
        if (group == GROUP_SHARERS)
                return one / shares == other / shares;
        if (group == GROUP_SHARE_DATA)
                return one % shares == other % shares;
        if (group == GROUP_EXPERT_DATA)
                return one % ep == other % ep;
        return plan_shard(plan, a) == plan_shard(plan, b);
}

/* Whether all members of its group have come to the collective. A stage alone waits for nobody. */
static bool met(const struct search *s, const struct world *w, int r, const struct op *op)
{
        for (int i = 0; i < s->ranks; i++)
                if (same_group(&s->plan, r, i, op->group) && w->ranks[i].collectives[op->group] < op->serial)
                        return false;
        return true;
}

/* In how many ways the i-th operation in flight on rank r can be the next to complete. */
static int ways(const struct search *s, const struct world *w, int r, int i)
{
        const struct rank *rank = &w->ranks[r];
        const struct op *op = &rank->ops[i];
        for (int j = 0; j < i; j++) /* a lane keeps its order */
                if (rank->ops[j].lane == op->lane)
                        return 0;
        if (is_collective(op))
                return met(s, w, r, op);
        switch (op->kind) {
        case OP_RECEIVE_ACTIVATION:
                return s->alone >= 0 || rank->inbox_count[0] > 0;
        case OP_RECEIVE_GRADIENT:
                return s->alone >= 0 ? __builtin_popcount((unsigned)w->to_return) : rank->inbox_count[1] > 0;
        case OP_SEND_ACTIVATION:
        case OP_SEND_GRADIENT:
                return s->loose;
        case OP_DECISION:
                return tells(s, r, op) || rank->inbox_count[2] > 0;
        default:
                return 1;
        }
}

static struct op take(struct rank *rank, int i)
{
        struct op op = rank->ops[i];
        rank->op_count--;
        memmove(&rank->ops[i], &rank->ops[i + 1], (size_t)(rank->op_count - i) * sizeof op);
        return op;
}

/* Whether passes are parts with collectives between them, and of which group these are. */
static bool chained(const struct plan *plan)
{
        return plan_parts_passes(plan);
}

static enum op_group together_in_passes(const struct plan *plan)
{
        return plan->cp > 1     ? GROUP_CONTEXT
               : plan->ep > 1   ? GROUP_EXPERTS
               : plan->tp_z > 1 ? GROUP_TENSOR_Z
                                : GROUP_TENSOR;
}

static void complete(const struct search *s, struct world *w, int r, int i, int way);

/* The oldest of what was sent to a rank. */
static int take_sent(struct rank *rank, int d)
{
        const int number = rank->inbox[d][0];
        rank->inbox_count[d]--;
        memmove(rank->inbox[d], rank->inbox[d] + 1, (size_t)rank->inbox_count[d] * sizeof(int));
        return number;
}

/* Takes the message that a receive on rank r is for; a rendezvous ends the send with it. */
static int receive(const struct search *s, struct world *w, int r, int d)
{
        const int piece = take_sent(touch(w, r), d);
        int sender = d ? plan_next_rank(&s->plan, r) : plan_previous_rank(&s->plan, r);
        for (int j = 0; !s->loose && j < w->ranks[sender].op_count; j++)
                if (w->ranks[sender].ops[j].lane == (d ? LANE_SEND_PREVIOUS : LANE_SEND_NEXT)) {
                        complete(s, w, sender, j, 0);
                        break;
                }
        return piece;
}

/* What the neighbours of a stage alone send: activations in order, gradients in any. */
static int receive_alone(struct world *w, int d, int way)
{
        if (d == 0)
                return w->received++;
        int micro_batch = 0;
        for (;; micro_batch++)
                if ((w->to_return & 1 << micro_batch) && way-- == 0)
                        break;
        w->to_return &= ~(1 << micro_batch);
        return micro_batch;
}

static void fill_part_of_grid(struct op *op)
{
        const bool computes = op->kind == OP_FORWARD || op->kind == OP_BACKWARD;
        op->more = op->kind == OP_TENSOR || (computes && op->segment < BEHIND_PARTS);
        if (!op->more || !computes)
                return;
        op->group = behind_parts[op->segment].group;
        op->beside = behind_parts[op->segment].beside;
        op->joins = behind_parts[op->segment].joins;
        op->left = behind_parts[op->segment].left;
}

/* Of several shards, or with spread experts, a forward or backward has two parts, and what is done together
 * between them. With parts of sequences it has three, or of one stage four: those between compute beside what
 * is done together, and the last one when that is over. With experts as well, rows are exchanged behind
 * that, and a fourth part follows. */
static void fill_part(const struct search *s, struct op *op)
{
        if (s->plan.tp_z > 1) {
                fill_part_of_grid(op);
                return;
        }
        const bool computes = op->kind == OP_FORWARD || op->kind == OP_BACKWARD, ring = s->plan.cp > 1,
                   rows = ring && s->plan.ep > 1;
        const int last = !ring ? 1 : s->plan.pp == 1 || rows ? 3 : 2, joined = last - rows;
        op->more = op->kind == OP_TENSOR || (computes && op->segment < last);
        if (!op->more || !computes)
                return;
        op->group = rows && op->segment == joined ? GROUP_EXPERTS : together_in_passes(&s->plan);
        op->beside = ring && op->segment < joined - 1;
        op->joins = ring && op->segment == joined - 1;
}

static void complete(const struct search *s, struct world *w, int r, int i, int way)
{
        struct rank *rank = touch(w, r);
        struct op op = take(rank, i);
        if (op.kind == OP_RECEIVE_ACTIVATION || op.kind == OP_RECEIVE_GRADIENT) {
                int d = op.kind == OP_RECEIVE_GRADIENT;
                core_set_vmb(&s->plan, &op, s->alone >= 0 ? receive_alone(w, d, way) : receive(s, w, r, d));
        }
        if (op.kind == OP_DECISION && !tells(s, r, &op))
                core_set_decision(&s->plan, &op, take_sent(rank, 2));
        op.overflow = op.kind == OP_REDUCE_OVERFLOW && s->overflow;
        if (chained(&s->plan))
                fill_part(s, &op);
        if (op.kind == OP_BACKWARD && op.count > 0) /* every parameter is a layer; a chunk begins with one */
                op.further = op.offset > op.chunk;
        if (op.kind == OP_REDUCE_SCALARS)
                op.more = s->saves;
        core_complete(core_of(rank), &op);
        drain(s, w, r);
        if (rank->batch == s->more || !core_done(core_of(rank)))
                return;
        rank->batch++;
        core_start(core_of(rank));
        drain(s, w, r);
}

/* The optimizer phase comes after all of a rank's messages are received and nothing that others do can change
 * or prevent its steps: one order of them stands for all, where not all are asked for. */
static bool sums(enum op_kind of)
{
        return of == OP_ALLREDUCE || of == OP_REDUCE_SCATTER || of == OP_ALL_GATHER;
}

static bool commutes(const struct search *s, const struct op *op)
{
        if (op_of_pass(op) && is_collective(op))
                return false;
        switch (op->kind) {
        case OP_CHECK_OVERFLOW:
        case OP_NORM:
        case OP_UPDATE:
        case OP_CLEAR:
        case OP_FETCH:
        case OP_WRITE_BACK:
                return !s->all_orders;
        default:
                return !s->all_orders && (is_collective(op) || sums(op->of));
        }
}

static void explore(struct search *s, struct world *w);

/* What of a world means something. */
static void copy_world(const struct search *s, struct world *to, const struct world *from)
{
        to->received = from->received;
        to->to_return = from->to_return;
        for (int r = 0; r < s->ranks; r++) {
                const struct rank *rank = &from->ranks[r];
                memcpy(to->ranks[r].core, rank->core, s->core_bytes[r]);
                memcpy(to->ranks[r].ops, rank->ops, (size_t)rank->op_count * sizeof *rank->ops);
                memcpy(&to->ranks[r].op_count, &rank->op_count,
                       sizeof *rank - offsetof(struct rank, op_count));
        }
}

/* Explores what follows if rank r's i-th operation completes next, in each way that it can. */
static bool follow(struct search *s, const struct world *w, int r, int i)
{
        int count = ways(s, w, r, i);
        for (int way = 0; way < count; way++) {
                struct world next;
                copy_world(s, &next, w);
                complete(s, &next, r, i, way);
                explore(s, &next);
        }
        return count > 0;
}

/* Shards, or replicas, that have come to the same collective do the same in it. */
static void check_collectives(struct search *s, const struct world *w)
{
        const enum op_group groups[] = {GROUP_TENSOR, GROUP_EXPERTS, GROUP_CONTEXT,
                                        plan_unit_group(&s->plan)};
        for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
                for (int a = 0; a < s->ranks; a++)
                        for (int b = 0; b < a; b++) {
                                const struct rank *one = &w->ranks[a], *other = &w->ranks[b];
                                const enum op_group group = groups[i];
                                if (same_group(&s->plan, a, b, group) &&
                                    one->collectives[group] == other->collectives[group] &&
                                    memcmp(one->together[group], other->together[group],
                                           sizeof one->together[group]))
                                        s->deadlock = "ranks do different things together";
                        }
}

static bool is_over(const struct search *s, const struct rank *rank)
{
        const struct core *core = (const struct core *)(const void *)rank->core;
        return rank->batch == s->more && core_done(core) && !core_writing(core);
}

static void explore(struct search *s, struct world *w)
{
        if (s->deadlock || !remember(s, w))
                return;
        check_collectives(s, w);
        bool moved = false, done = true;
        for (int r = 0; r < s->ranks && !moved; r++)
                for (int i = 0; i < w->ranks[r].op_count && !moved; i++)
                        moved = commutes(s, &w->ranks[r].ops[i]) && follow(s, w, r, i);
        if (!moved)
                for (int r = 0; r < s->ranks; r++)
                        for (int i = 0; i < w->ranks[r].op_count; i++)
                                moved = follow(s, w, r, i) || moved;
        for (int r = 0; r < s->ranks; r++)
                done = done && is_over(s, &w->ranks[r]);
        if (!moved && !done)
                s->deadlock = "came to rest before every stage was done";
        if (done && moved)
                s->deadlock = "a stage says that it is done and still has work";
}

/* Explores from the start of a batch; returns the number of states. */
static size_t search_all(struct search s)
{
        const struct plan *plan = &s.plan;
        struct world w;
        memset(&w, 0, sizeof w);
        for (int r = 0; r < s.ranks; r++) {
                const struct core_stage part = part_of(&s, r);
                s.core_bytes[r] = core_bytes(plan, &part);
                assert_true(s.core_bytes[r] <= CORE_BYTES);
                core_start(core_init(w.ranks[r].core, plan, &part));
        }
        for (int r = 0; r < s.ranks; r++)
                drain(&s, &w, r);
        explore(&s, &w);
        free(s.seen);
        if (s.disagrees)
                assert_non_null(s.deadlock);
        else if (s.deadlock)
                fail_msg("%s, %d x %d x %d, stage %d, %d micro-batches, limit %d, %s sends%s%s%s%s%s: %s",
                         policy_get(plan->policy)->name, plan->pp, plan->virtual_stages, plan->dp, s.alone,
                         plan->micro_batches, plan->pipeline_limit, s.loose ? "loose" : "rendezvous",
                         plan->offload_activations ? ", offloaded activations" : "",
                         plan->offload ? ", offload" : "", plan->stage_messages ? ", staged" : "",
                         plan->blocking ? ", blocking" : "", s.overflow ? ", overflow" : "", s.deadlock);
        return s.states;
}

static size_t explore_plan(const struct plan *plan, bool loose)
{
        return search_all((struct search){
                .plan = *plan, .parameters = 1, .ranks = plan->pp, .alone = -1, .loose = loose});
}

/* Every plan, as `make test-exhaustive` asks; else those that take seconds. */
static bool is_exhaustive(void)
{
        return getenv("RANVIER_EXHAUSTIVE");
}

/* Loose sends of AxoNN at 3 stages x 4 micro-batches with a limit of 3 or 4 have 24 million states, minutes,
 * and staged 3 x 3 have a million: `make test-exhaustive` explores them, untied (what a tied embedding adds
 * comes after all messages). */
static bool affordable(const struct plan *plan)
{
        const int size = plan->pp * plan->micro_batches;
        const bool small = plan->stage_messages ? size < 9 : size < 12 || plan->pipeline_limit <= 2;
        if (small || plan->policy != POLICY_AXONN)
                return true;
        return !plan->tied && is_exhaustive();
}

static size_t explore_variants(struct plan plan)
{
        size_t states = 0;
        for (int forward_only = 0; forward_only <= 1; forward_only++)
                for (int tied = 0; tied <= 1; tied++) {
                        plan.forward_only = forward_only;
                        plan.tied = plan.clip = tied;
                        states += explore_plan(&plan, false);
                        if (affordable(&plan))
                                states += explore_plan(&plan, true);
                }
        return states;
}

static struct plan small_plan(void)
{
        struct plan plan;
        memset(&plan, 0, sizeof plan);
        plan.pp = plan.dp = plan.tp = plan.virtual_stages = plan.micro_batches = 1;
        plan.embedding_parameters = plan.bucket_parameters = plan.allreduce_buckets = 1;
        return plan;
}

static size_t explore_shards(const struct plan *plan, bool disagrees)
{
        struct search search = {
                .plan = *plan, .parameters = 2, .ranks = 2 * plan->pp, .alone = -1, .disagrees = disagrees};
        size_t states = search_all(search);
        search.loose = true;
        return disagrees ? states : states + search_all(search);
}

/* Backwards in two parts, with collectives in both, but where the second is made when a stage would wait.
 * Loose sends of two micro-batches have a million states, with parts of sequences millions. */
static size_t explore_parts_with_collectives(struct plan plan)
{
        size_t states = 0;
        for (int id = 0; id < POLICIES; id++) {
                const struct policy *policy = policy_get((enum policy_id)id);
                plan.policy = (enum policy_id)id;
                if (!policy->deferred)
                        continue;
                plan.micro_batches = 2;
                if ((plan.cp > 1 || !is_exhaustive()) && !policy->fills_waits) {
                        states += search_all((struct search){
                                .plan = plan, .parameters = 2, .ranks = 2 * plan.pp, .alone = -1});
                        plan.micro_batches = 1;
                }
                states += explore_shards(&plan, policy->fills_waits);
        }
        return states;
}

/* Two shards of one and of two stages, or two replicas that have experts or sequences together, never
 * disagree: an order that is fixed in advance is the same for both, and so is AxoNN's on a first and a last
 * stage. On one between, which goes by arrival, replicas can, which is why that is refused
 * (runtime/plan/rows.c). */
static void no_interleaving_of_shards_experts_or_sequences_deadlocks(void **state)
{
        (void)state;
        static const enum policy_id policies[] = {POLICY_AXONN, POLICY_GPIPE, POLICY_1F1B};
        size_t states = 0;
        struct plan plan = small_plan();
        for (int variant = 0; variant < 2 * 2 * 3 * 3; variant++) {
                const bool experts = variant >= 12; /* or sequences */
                if (!is_exhaustive() && variant / 4 % 3 != variant % 3)
                        continue; /* each policy with a third */
                plan.tp = experts ? 1 : 2;
                plan.dp = experts ? 2 : 1;
                plan.ep = variant / 12 == 1 ? 2 : 1;
                plan.cp = variant / 12 == 2 ? 2 : 1;
                plan.pp = 1 + variant % 2;
                plan.tied = plan.clip = variant / 2 % 2;
                plan.sequence_parallel = plan.tied && !experts;
                plan.zero = plan.tied && experts;
                plan.policy = policies[variant / 4 % 3];
                plan.micro_batches = (plan.pp == 1 ? 3 : 2) - (plan.cp > 1); /* whose parts are more */
                states += explore_shards(&plan, false);
        }
        plan.ep = 2; /* and sequences */
        plan.micro_batches = 1;
        states += explore_shards(&plan, false);
        plan.pp = 3;
        plan.policy = POLICY_AXONN;
        plan.micro_batches = 2;
        plan.cp = 1;
        explore_shards(&plan, true);
        plan.dp = plan.ep = 1;
        plan.tp = 2;
        plan.zero = 0;
        plan.pp = 2;
        states += explore_parts_with_collectives(plan);
        plan.tp = 1;
        plan.dp = plan.cp = 2;
        states += explore_parts_with_collectives(plan);
        plan.tp = 2;
        plan.dp = plan.cp = 1;
        /* Activations that are offloaded come back in one order, if that of backwards is fixed. */
        plan.pp = 1;
        plan.policy = POLICY_GPIPE;
        plan.micro_batches = 5;
        plan.offload_activations = true;
        states += explore_shards(&plan, false);
        plan.tp = 1;
        plan.dp = plan.cp = 2;
        states += search_all((struct search){.plan = plan, .parameters = 2, .ranks = 2, .alone = -1});
        print_message("# %zu states\n", states);
        assert_true(states > 1000);
}

/* Shards that gather and reduce-scatter along z beside their parts, and sum along x or not. */
static void no_interleaving_of_collectives_beside_parts_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        struct plan plan = small_plan();
        plan.policy = POLICY_1F1B;
        plan.tp_z = 2;
        for (int variant = 0; variant < 3; variant++) {
                plan.tp_x = variant == 2 ? 2 : 1;
                plan.tp = plan.tp_x * plan.tp_z;
                plan.pp = variant == 1 ? 2 : 1;
                plan.micro_batches = variant == 0 ? 3 : 1;
                states += search_all((struct search){
                        .plan = plan, .parameters = 2, .ranks = plan.tp * plan.pp, .alone = -1});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 1000);
}

/* On a stage between others shard 0 decides, and the other one follows. With two micro-batches loose sends
 * have millions of states, and so have three. The first of two stages keeps its order even where one shard
 * hears late that a message has left, which shows with more micro-batches than it lets in at once. */
static void no_interleaving_of_shards_that_follow_decisions_deadlocks(void **state)
{
        (void)state;
        const bool exhaustive = is_exhaustive();
        size_t states = 0;
        struct plan plan = small_plan();
        plan.tp = 2;
        plan.pp = STAGES;
        for (plan.micro_batches = 1; plan.micro_batches <= (exhaustive ? 3 : 2); plan.micro_batches++)
                for (plan.pipeline_limit = 1; plan.pipeline_limit <= plan.micro_batches;
                     plan.pipeline_limit++) {
                        struct search search = {.plan = plan, .parameters = 2, .ranks = RANKS, .alone = -1};
                        states += search_all(search);
                        search.loose = true;
                        if (plan.micro_batches == 1 || (exhaustive && plan.micro_batches == 2))
                                states += search_all(search);
                }
        plan.pp = plan.pipeline_limit = 2;
        plan.micro_batches = 3;
        states += explore_shards(&plan, false);
        print_message("# %zu states\n", states);
        assert_true(states > 100000);
}

/* Of the policies whose backward is one operation: what comes first, all forwards first, and in turn. */
static const enum policy_id three[] = {POLICY_AXONN, POLICY_GPIPE, POLICY_1F1B};

static void no_interleaving_of_small_plans_deadlocks(void **state)
{
        (void)state;
        const int most = is_exhaustive() ? 4 : 3; /* of all stages */
        size_t states = 0;
        struct plan plan = small_plan();
        for (plan.pp = 1; plan.pp <= STAGES; plan.pp++)
                for (plan.micro_batches = 1; plan.micro_batches <= (plan.pp < STAGES ? 4 : most);
                     plan.micro_batches++) {
                        plan.policy = POLICY_AXONN;
                        for (plan.pipeline_limit = 1; plan.pipeline_limit <= plan.micro_batches;
                             plan.pipeline_limit++)
                                states += explore_variants(plan);
                        plan.pipeline_limit = 0;
                        for (int i = 0; i < 6; i++) {
                                plan.policy =
                                        (enum policy_id[]){POLICY_GPIPE, POLICY_1F1B, POLICY_EAGER}[i % 3];
                                plan.blocking = i >= 3;
                                states += explore_variants(plan);
                        }
                        plan.blocking = false;
                }
        print_message("# %zu states\n", states);
        assert_true(states > 100000);
}

/* Staged: a send begins after a copy, and a receive's data is there after one. */
static void no_interleaving_of_staged_plans_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        struct plan plan = small_plan();
        plan.stage_messages = plan.stage_allreduce = true;
        for (plan.pp = 2; plan.pp <= STAGES; plan.pp++)
                for (plan.micro_batches = 1; plan.micro_batches <= (plan.pp == 2 ? 4 : 3);
                     plan.micro_batches++)
                        for (int i = 0; i < 3; i++) {
                                plan.policy = (enum policy_id[]){POLICY_AXONN, POLICY_GPIPE, POLICY_1F1B}[i];
                                plan.blocking = false;
                                states += explore_variants(plan);
                                plan.blocking = true;
                                if (plan.policy != POLICY_AXONN)
                                        states += explore_variants(plan);
                        }
        print_message("# %zu states\n", states);
        assert_true(states > 100000);
}

static size_t explore_chunks(int pp, int chunks, int micro_batches, bool loose, bool staged, bool blocking)
{
        struct plan plan = small_plan();
        plan.policy = POLICY_INTERLEAVED;
        plan.pp = pp;
        plan.virtual_stages = chunks;
        plan.micro_batches = micro_batches;
        plan.stage_messages = staged;
        plan.blocking = blocking;
        size_t states = explore_plan(&plan, loose);
        plan.forward_only = true;
        if (pp < 3 || blocking || is_exhaustive())
                states += explore_plan(&plan, loose);
        return states;
}

/* Chunks of the model on each rank: messages go around, and a receive lane brings those of several chunks. */
static void no_interleaving_of_chunks_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        for (int loose = 0; loose <= 1; loose++)
                states += explore_chunks(2, 1, 4, loose, false, false) +
                          explore_chunks(2, 2, 2, loose, false, false) +
                          explore_chunks(2, 3, 2, loose, false, false) +
                          explore_chunks(2, 2, 2, loose, true, false) +
                          explore_chunks(2, 2, 4, loose, false, true) +
                          explore_chunks(2, 3, 4, loose, true, true) +
                          explore_chunks(3, 2, 6, loose, false, true);
        states += explore_chunks(2, 2, 4, false, false, false) + explore_chunks(3, 2, 3, false, false, false);
        if (is_exhaustive())
                states += explore_chunks(2, 2, 4, true, false, false) +
                          explore_chunks(2, 3, 4, false, false, false) +
                          explore_chunks(2, 2, 4, false, true, false) +
                          explore_chunks(3, 1, 6, false, false, false);
        print_message("# %zu states\n", states);
        assert_true(states > 100000);
}

/* Backwards in two parts, where the second waits for nobody; messages asynchronous, blocking, and staged. */
static void no_interleaving_of_parted_backwards_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        const int less = is_exhaustive() ? 0 : 1;
        struct plan plan = small_plan();
        for (int id = 0; id < POLICIES; id++) {
                if (!policy_get((enum policy_id)id)->deferred)
                        continue;
                plan.policy = (enum policy_id)id;
                for (plan.pp = 1; plan.pp <= STAGES; plan.pp++)
                        for (plan.micro_batches = 1; plan.micro_batches <= (plan.pp == 3 ? 3 : 4) - less;
                             plan.micro_batches++)
                                for (int variant = 0; variant < (plan.pp == 2 ? 4 : 2); variant++) {
                                        plan.blocking = variant & 1;
                                        plan.stage_messages = variant & 2;
                                        states += explore_plan(&plan, false) + explore_plan(&plan, true);
                                }
        }
        print_message("# %zu states\n", states);
        assert_true(states > 10000);
}

/* A stage alone that offloads activations; it stores at most `stored` of them. */
static size_t explore_alone(enum policy_id policy, int pp, int stage, int stored, int micro_batches)
{
        struct plan plan = small_plan();
        plan.pp = pp;
        plan.micro_batches = micro_batches;
        plan.policy = policy;
        plan.pipeline_limit = stored;
        plan.offload_activations = true;
        struct core_limits limits = core_limits(&plan, stage);
        assert_int_equal(limits.host_slots, stored);
        assert_int_equal(limits.slots, 4);
        return search_all(
                (struct search){.plan = plan, .parameters = 1, .ranks = 1, .alone = stage, .loose = true});
}

static void no_interleaving_deadlocks_a_stage_that_offloads_activations(void **state)
{
        (void)state;
        size_t states = explore_alone(POLICY_AXONN, 2, 0, 5, 5) + explore_alone(POLICY_1F1B, 5, 0, 5, 5) +
                        explore_alone(POLICY_1F1B, 5, 0, 5, 6) + explore_alone(POLICY_GPIPE, 2, 0, 5, 5) +
                        explore_alone(POLICY_GPIPE, 2, 1, 5, 5) + explore_alone(POLICY_GPIPE, 1, 0, 7, 7);
        if (is_exhaustive())
                states += explore_alone(POLICY_AXONN, 2, 0, 5, 6) + explore_alone(POLICY_AXONN, 3, 1, 5, 5) +
                          explore_alone(POLICY_1F1B, 6, 1, 5, 6) + explore_alone(POLICY_GPIPE, 2, 0, 6, 6) +
                          explore_alone(POLICY_GPIPE, 3, 1, 5, 5);
        print_message("# %zu states\n", states);
        assert_true(states > 100000);
}

/* Two stages together, of which one offloads, or with gpipe both. */
static void no_interleaving_of_two_stages_that_offload_activations_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        struct plan plan = small_plan();
        plan.pp = 2;
        plan.micro_batches = plan.pipeline_limit = 5;
        plan.offload_activations = true;
        for (int i = 0; i < 2; i++) {
                plan.policy = i ? POLICY_GPIPE : POLICY_AXONN;
                states += explore_plan(&plan, false);
                if (is_exhaustive())
                        states += explore_plan(&plan, true);
        }
        print_message("# %zu states\n", states);
        assert_true(states > 100000);
}

/* A checkpoint behind each of three batches: its write may end in the batch that follows, or hold up the
 * snapshot behind that; what ranks exchange of two batches is under way at once. */
static void no_interleaving_of_checkpoints_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        for (int variant = 0; variant < 16; variant++) {
                struct plan plan = small_plan();
                plan.pp = variant & 1 ? 2 : 1;
                plan.dp = variant & 1 ? 1 : 2;
                plan.clip = variant & 2;
                plan.mixed = plan.offload = variant & 4;
                plan.zero = variant & 1 ? 0 : variant & 2 ? 1 : 0;
                plan.tied = true;
                states += search_all((struct search){.plan = plan,
                                                     .parameters = 2,
                                                     .ranks = 2,
                                                     .alone = -1,
                                                     .loose = true,
                                                     .saves = true,
                                                     .more = 2,
                                                     .overflow = plan.mixed && variant & 8});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 1000);
}

/* Two and four logical replicas on two stages, or on two replicas of one. */
static void no_interleaving_of_logical_replicas_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        for (int variant = 0; variant < 40; variant++) {
                const int way = variant / 8; /* the last two with blocking messages, which axonn has not */
                struct plan plan = small_plan();
                plan.blocking = way >= 3;
                plan.policy = three[plan.blocking ? way - 2 : way];
                plan.pp = variant & 1 ? 2 : 1;
                plan.dp = variant & 1 ? 1 : 2;
                plan.zero = plan.dp > 1 && variant & 4;
                plan.logical = variant & 2 ? 2 : 4;
                plan.micro_batches = 4;
                plan.mixed = variant & 4;
                plan.tied = true;
                assert_true(core_stands_for(&plan));
                states += search_all((struct search){
                        .plan = plan, .parameters = 2, .ranks = 2, .alone = -1, .loose = true});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 1000);
}

/* Four updates and two chunks, every order of sums, copies and updates: over two replicas, and over two
 * stages with a shared embedding that straddles two updates. */
static void no_interleaving_of_the_optimizer_phase_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        for (int variant = 0; variant < 32; variant++) {
                struct plan plan = small_plan();
                plan.stage_allreduce = variant & 16;
                plan.clip = variant & 1;
                plan.mixed = true;
                plan.offload = variant & 2;
                plan.pp = variant & 4 ? 2 : 1;
                plan.dp = variant & 4 ? 1 : 2;
                plan.tied = true;
                plan.embedding_parameters = 3;
                plan.bucket_parameters = plan.offload ? 6 : 2;
                plan.allreduce_buckets = plan.offload ? 1 : 3;
                states += search_all((struct search){.plan = plan,
                                                     .parameters = 8,
                                                     .ranks = 2,
                                                     .alone = -1,
                                                     .loose = true,
                                                     .all_orders = true,
                                                     .overflow = variant & 8});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 10000);
}

/* Sums beside the last backward: two replicas of one stage, and of two, whose last backwards end in any order
 * among sums, looks for overflow, copies and messages. */
static void no_interleaving_of_overlapped_sums_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        for (int variant = 0; variant < 96; variant++) {
                struct plan plan = small_plan();
                plan.policy = three[variant / 16 % 3];
                plan.zero = variant / 48;
                plan.overlap_allreduce = true;
                plan.pp = variant & 1 ? 2 : 1;
                plan.dp = 2;
                plan.micro_batches = plan.pp == 1 ? 2 : 1;
                plan.mixed = variant & 2;
                plan.clip = variant & 4;
                plan.stage_allreduce = variant & 8;
                plan.tied = true;
                states += search_all((struct search){.plan = plan,
                                                     .parameters = plan.pp == 1 ? 3 : 2,
                                                     .ranks = 2 * plan.pp,
                                                     .alone = -1,
                                                     .loose = true,
                                                     .all_orders = plan.pp == 1,
                                                     .overflow = plan.mixed && variant & 8});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 10000);
}

/* Two chunks a rank, whose last backwards have others between them where there are two stages. */
static void no_interleaving_of_overlapped_sums_of_chunks_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        for (int variant = 0; variant < 10; variant++) {
                struct plan plan = small_plan();
                plan.policy = POLICY_INTERLEAVED;
                plan.virtual_stages = 2;
                plan.zero = variant & 1;
                plan.overlap_allreduce = true;
                plan.pp = variant & 8 ? 2 : 1;
                plan.dp = 2;
                plan.micro_batches = 2;
                plan.mixed = variant & 2 || plan.pp == 2;
                plan.stage_allreduce = variant & 4;
                plan.tied = true;
                states += search_all((struct search){.plan = plan,
                                                     .parameters = 3,
                                                     .ranks = 2 * plan.pp,
                                                     .alone = -1,
                                                     .all_orders = plan.pp == 1,
                                                     .overflow = plan.mixed && variant & 4});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 1000);
}

/* Two shards of each of two replicas, or two replicas with parts of the same sequences: sums of these beside
 * parts of a last backward, between which shards sum, or beside which keys go around. */
static void no_interleaving_of_overlapped_sums_of_shards_or_sequences_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        for (int variant = 0; variant < 32; variant++) {
                const bool sequences = variant >= 16;
                struct plan plan = small_plan();
                plan.policy = three[variant % 3];
                plan.dp = 2;
                plan.tp = sequences ? 1 : 2;
                plan.cp = sequences ? 2 : 1;
                plan.micro_batches = sequences ? 2 : 1;
                plan.overlap_allreduce = true;
                plan.zero = variant & 1;
                plan.mixed = variant & 2;
                plan.sequence_parallel = !sequences && variant & 4;
                plan.stage_allreduce = variant & 8;
                states += search_all((struct search){.plan = plan,
                                                     .parameters = 3,
                                                     .ranks = plan.tp * plan.dp,
                                                     .alone = -1,
                                                     .all_orders = sequences,
                                                     .overflow = plan.mixed && variant & 8});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 1000);
}

/* Zero: two replicas of one stage in every order, and of two stages that share an embedding. */
static void no_interleaving_of_shared_updates_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        for (int variant = 0; variant < 32; variant++) {
                struct plan plan = small_plan();
                plan.zero = 1;
                plan.stage_allreduce = variant & 16;
                plan.clip = variant & 1;
                plan.mixed = true;
                plan.offload = variant & 2;
                plan.pp = variant & 4 ? 2 : 1;
                plan.dp = 2;
                plan.tied = true;
                plan.embedding_parameters = 3;
                plan.bucket_parameters = plan.offload ? 3 : 1;
                plan.allreduce_buckets = plan.offload ? 1 : 4;
                states += search_all((struct search){.plan = plan,
                                                     .parameters = 8,
                                                     .ranks = 2 * plan.pp,
                                                     .alone = -1,
                                                     .loose = true,
                                                     .all_orders = plan.pp == 1,
                                                     .overflow = variant & 8});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 10000);
}

/* Zero 3: two replicas whose work ends in any order among each other's; and one among its copies of offloaded
 * activations. */
static void no_interleaving_of_gathered_units_deadlocks(void **state)
{
        (void)state;
        static const enum plan_gathered gathered[] = {GATHERED_FOR_PASS, GATHERED_FOR_MICRO_BATCH,
                                                      GATHERED_FOR_BATCH};
        size_t states = 0;
        for (int variant = 0; variant < 3 * 3 * 16; variant++) {
                struct plan plan = small_plan();
                plan.zero = 3;
                plan.dp = 2;
                plan.policy = three[variant / 16 % 3];
                plan.gathered = gathered[variant / 48];
                plan.blocking = variant & 1 && plan.policy != POLICY_AXONN;
                plan.offload_activations = plan.policy == POLICY_GPIPE && variant & 2;
                plan.clip = plan.mixed = variant & 4;
                plan.prefetch = variant % 4;
                plan.unit_layers = plan.prefetch == 3 ? 2 : 1;
                plan.micro_batches = plan.offload_activations ? 5 : 3;
                states += search_all((struct search){.plan = plan,
                                                     .parameters = 2,
                                                     .ranks = plan.offload_activations ? 1 : 2,
                                                     .alone = plan.offload_activations ? 0 : -1,
                                                     .blocks = 3,
                                                     .tied_units = variant & 8,
                                                     .all_orders = true,
                                                     .overflow = plan.mixed});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 10000);
}

/* Zero 2: of gradients, and of weights behind updates; of the last unit the second replica has nothing. */
static void no_interleaving_of_reduced_units_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        for (int variant = 0; variant < 8; variant++) {
                struct plan plan = small_plan();
                plan.zero = plan.dp = 2;
                plan.policy = variant & 1 ? POLICY_GPIPE : POLICY_1F1B;
                plan.gathered = variant & 2 ? GATHERED_FOR_BATCH : GATHERED_FOR_PASS;
                plan.clip = plan.mixed = plan.offload = variant & 4;
                plan.blocking = variant == 5;
                plan.micro_batches = 3;
                states += search_all((struct search){.plan = plan,
                                                     .parameters = 3,
                                                     .ranks = 2,
                                                     .alone = -1,
                                                     .blocks = 2,
                                                     .all_orders = true,
                                                     .overflow = plan.mixed && variant & 1});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 10000);
}

/* Zero 1 in groups of two of four replicas, which sum all gradients and gather weights in their groups; and
 * of one of two, in every order. */
static void no_interleaving_of_updates_that_groups_share_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        for (int variant = 0; variant < 16; variant++) {
                struct plan plan = small_plan();
                plan.zero = 1;
                plan.sharers = variant & 1 ? 2 : 1;
                plan.dp = 2 * plan.sharers;
                plan.mixed = plan.offload = variant & 2;
                plan.clip = variant & 4;
                plan.overlap_allreduce = variant & 8;
                plan.micro_batches = 2;
                plan.bucket_parameters = plan.offload ? 6 : 2;
                plan.allreduce_buckets = 1;
                states += search_all((struct search){.plan = plan,
                                                     .parameters = 5,
                                                     .ranks = plan.dp,
                                                     .alone = -1,
                                                     .all_orders = plan.sharers == 1,
                                                     .overflow = plan.mixed && plan.clip});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 10000);
}

/* Zero 3 with shares of weights in host memory: a reduction waits for fetches that it does not need, so that
 * its place among the collectives is the same on every replica. */
static void no_interleaving_of_fetched_shares_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        for (int variant = 0; variant < 12; variant++) {
                struct plan plan = small_plan();
                plan.zero = 3;
                plan.dp = 2;
                plan.offload_parameters = true;
                plan.policy = variant & 1 ? POLICY_GPIPE : POLICY_1F1B;
                plan.clip = plan.mixed = variant & 2;
                plan.prefetch = variant / 4;
                plan.blocking = variant == 4;
                plan.micro_batches = 2;
                plan.bucket_parameters = 3;
                states += search_all((struct search){.plan = plan,
                                                     .parameters = 2,
                                                     .ranks = 2,
                                                     .alone = -1,
                                                     .blocks = 3,
                                                     .all_orders = true,
                                                     .overflow = variant == 3});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 10000);
}

/* Two shards of each of two replicas, whose units are chains themselves, and two replicas that have parts of
 * the same sequences. */
static void no_interleaving_of_units_in_parts_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        for (int variant = 0; variant < 16; variant++) {
                struct plan plan = small_plan();
                plan.zero = variant & 1 ? 2 : 3;
                plan.dp = 2;
                plan.tp = variant & 2 ? 2 : 1;
                plan.cp = variant & 2 ? 1 : 2;
                plan.sequence_parallel = variant & 2;
                plan.prefetch = variant & 4 ? 1 : 0;
                plan.gathered = variant & 8 ? GATHERED_FOR_BATCH : GATHERED_FOR_PASS;
                plan.micro_batches = plan.tp == 1 ? 2 : 1;
                states += search_all((struct search){.plan = plan,
                                                     .parameters = 3,
                                                     .ranks = 2 * plan.tp,
                                                     .alone = -1,
                                                     .blocks = 1,
                                                     .tied_units = variant & 4,
                                                     .all_orders = plan.tp == 1});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 10000);
}

/* Zero 3 with experts spread over two of four replicas, and over two, which share nothing of them. */
static void no_interleaving_of_units_with_spread_experts_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        for (int variant = 0; variant < 16; variant++) {
                if (!is_exhaustive() && (variant & 1) != variant >> 3)
                        continue; /* offloaded with 4 replicas, and not with 2 */
                struct plan plan = small_plan();
                plan.zero = 3;
                plan.ep = 2;
                plan.dp = variant & 1 ? 4 : 2;
                plan.prefetch = variant & 2 ? 1 : 0;
                plan.gathered = variant & 4 ? GATHERED_FOR_BATCH : GATHERED_FOR_PASS;
                plan.offload_parameters = variant & 8;
                plan.micro_batches = plan.dp == 2 ? 2 : 1;
                states += search_all((struct search){.plan = plan,
                                                     .parameters = 3,
                                                     .ranks = plan.dp,
                                                     .alone = -1,
                                                     .blocks = 1,
                                                     .tied_units = true,
                                                     .all_orders = plan.dp == 2});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 10000);
}

/* Hybrid shards: two groups of one replica, in every order, and of two. They sum units beside the last
 * backward. */
static void no_interleaving_of_hybrid_shards_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        for (int variant = 0; variant < 32; variant++) {
                struct plan plan = small_plan();
                plan.zero = variant & 8 ? 2 : 3;
                plan.sharers = variant & 16 ? 2 : 1;
                plan.dp = 2 * plan.sharers;
                plan.prefetch = variant & 1;
                plan.gathered = variant & 2 ? GATHERED_FOR_BATCH : GATHERED_FOR_PASS;
                plan.mixed = plan.clip = variant & 4;
                plan.micro_batches = plan.sharers == 1 ? 2 : 1;
                states += search_all((struct search){.plan = plan,
                                                     .parameters = 3,
                                                     .ranks = plan.dp,
                                                     .alone = -1,
                                                     .blocks = 1,
                                                     .tied_units = true,
                                                     .all_orders = plan.sharers == 1,
                                                     .overflow = plan.mixed});
        }
        print_message("# %zu states\n", states);
        assert_true(states > 10000);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(no_interleaving_of_small_plans_deadlocks),
                cmocka_unit_test(no_interleaving_of_staged_plans_deadlocks),
                cmocka_unit_test(no_interleaving_of_parted_backwards_deadlocks),
                cmocka_unit_test(no_interleaving_of_shards_experts_or_sequences_deadlocks),
                cmocka_unit_test(no_interleaving_of_collectives_beside_parts_deadlocks),
                cmocka_unit_test(no_interleaving_of_shards_that_follow_decisions_deadlocks),
                cmocka_unit_test(no_interleaving_of_chunks_deadlocks),
                cmocka_unit_test(no_interleaving_deadlocks_a_stage_that_offloads_activations),
                cmocka_unit_test(no_interleaving_of_two_stages_that_offload_activations_deadlocks),
                cmocka_unit_test(no_interleaving_of_checkpoints_deadlocks),
                cmocka_unit_test(no_interleaving_of_logical_replicas_deadlocks),
                cmocka_unit_test(no_interleaving_of_the_optimizer_phase_deadlocks),
                cmocka_unit_test(no_interleaving_of_shared_updates_deadlocks),
                cmocka_unit_test(no_interleaving_of_overlapped_sums_deadlocks),
                cmocka_unit_test(no_interleaving_of_overlapped_sums_of_chunks_deadlocks),
                cmocka_unit_test(no_interleaving_of_overlapped_sums_of_shards_or_sequences_deadlocks),
                cmocka_unit_test(no_interleaving_of_gathered_units_deadlocks),
                cmocka_unit_test(no_interleaving_of_reduced_units_deadlocks),
                cmocka_unit_test(no_interleaving_of_updates_that_groups_share_deadlocks),
                cmocka_unit_test(no_interleaving_of_fetched_shares_deadlocks),
                cmocka_unit_test(no_interleaving_of_units_in_parts_deadlocks),
                cmocka_unit_test(no_interleaving_of_units_with_spread_experts_deadlocks),
                cmocka_unit_test(no_interleaving_of_hybrid_shards_deadlocks),
        };
        return cmocka_run_group_tests_name("interleavings", tests, NULL, NULL);
}
