/* Every order in which messages and computations can complete, for small plans: no order leads to a deadlock,
 * and all end in the same place. A state is the bytes of all cores, the operations in flight and the messages
 * under way; states seen before are not explored again. */
#include "runtime/sched/core.h"
#include "runtime/sched/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STAGES = 3, MOST_OPS = 16, MOST_MESSAGES = 8, CORE_BYTES = 1024 };

struct rank {
        _Alignas(16) unsigned char core[CORE_BYTES];
        struct op ops[MOST_OPS]; /* in flight, by lane, then in issue order */
        int op_count;
        int inbox[2][MOST_MESSAGES]; /* sent to this rank and not received: activations, gradients */
        int inbox_count[2];
        int collectives[GROUP_WORLD + 1]; /* issued so far */
};

struct world {
        struct rank ranks[STAGES];
};

struct search {
        struct plan plan;
        bool loose; /* a send completes at any time after it began; else together with its receive
                       (rendezvous) */
        uint64_t (*seen)[2];
        size_t capacity, states;
        const char *deadlock;
};

static uint64_t hash_words(const void *bytes, size_t count, uint64_t h)
{
        assert_true(count % sizeof(uint32_t) == 0);
        for (size_t i = 0; i < count; i += sizeof(uint32_t)) {
                uint32_t word;
                memcpy(&word, (const unsigned char *)bytes + i, sizeof word);
                h = (h ^ word) * 0x9FB21C651E98DF25u;
                h ^= h >> 32;
        }
        return h;
}

static uint64_t hash_world(const struct search *s, const struct world *w, uint64_t h)
{
        for (int r = 0; r < s->plan.pp; r++) {
                const struct rank *rank = &w->ranks[r];
                h = hash_words(rank->core, core_bytes(&s->plan, r, 1), h);
                for (int i = 0; i < rank->op_count; i++) {
                        int words[] = {(int)rank->ops[i].kind, rank->ops[i].micro_batch, rank->ops[i].slot,
                                       rank->ops[i].input, rank->ops[i].gradient};
                        h = hash_words(words, sizeof words, h);
                }
                h = hash_words(rank->inbox_count, sizeof rank->inbox_count, h);
                for (int d = 0; d < 2; d++)
                        h = hash_words(rank->inbox[d], (size_t)rank->inbox_count[d] * sizeof(int), h);
                h = hash_words(rank->collectives, sizeof rank->collectives, h);
        }
        return h;
}

/* True if this state is new. */
static bool remember(struct search *s, const struct world *w)
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
        uint64_t a = hash_world(s, w, 0xCBF29CE484222325u) | 1, b = hash_world(s, w, 0x9E3779B97F4A7C15u);
        size_t at = a % s->capacity;
        for (; s->seen[at][0]; at = (at + 1) % s->capacity)
                if (s->seen[at][0] == a && s->seen[at][1] == b)
                        return false;
        s->seen[at][0] = a;
        s->seen[at][1] = b;
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
        assert_true(rank->op_count < MOST_OPS);
        int i = rank->op_count++;
        for (; i > 0 && rank->ops[i - 1].lane > op->lane; i--)
                rank->ops[i] = rank->ops[i - 1];
        rank->ops[i] = *op;
}

static void drain(struct world *w, int r)
{
        struct rank *rank = &w->ranks[r];
        struct op op;
        while (core_next(core_of(rank), &op)) {
                keep(rank, &op);
                if (op.kind == OP_SEND_ACTIVATION || op.kind == OP_SEND_GRADIENT) {
                        int d = op.kind == OP_SEND_GRADIENT;
                        struct rank *to = &w->ranks[d ? r - 1 : r + 1];
                        assert_true(to->inbox_count[d] < MOST_MESSAGES);
                        to->inbox[d][to->inbox_count[d]++] = op.micro_batch;
                } else if (op.lane == LANE_COLLECTIVE) {
                        rank->collectives[op.group]++;
                }
        }
}

/* Whether the i-th operation in flight on rank r can be the next to complete. */
static bool may_complete(const struct search *s, const struct world *w, int r, int i)
{
        const struct rank *rank = &w->ranks[r];
        const struct op *op = &rank->ops[i];
        int last = s->plan.pp - 1;
        for (int j = 0; j < i; j++) /* a lane keeps its order */
                if (rank->ops[j].lane == op->lane)
                        return false;
        switch (op->kind) {
        case OP_RECEIVE_ACTIVATION:
                return rank->inbox_count[0] > 0;
        case OP_RECEIVE_GRADIENT:
                return rank->inbox_count[1] > 0;
        case OP_SEND_ACTIVATION:
        case OP_SEND_GRADIENT:
                return s->loose;
        case OP_ALLREDUCE: /* of the embedding: dp is 1 here */
                return w->ranks[0].collectives[op->group] == w->ranks[last].collectives[op->group];
        case OP_REDUCE_SCALARS:
                for (int j = 0; j <= last; j++)
                        if (w->ranks[j].collectives[GROUP_WORLD] < rank->collectives[GROUP_WORLD])
                                return false;
                return true;
        default:
                return true;
        }
}

static struct op take(struct rank *rank, int i)
{
        struct op op = rank->ops[i];
        rank->op_count--;
        memmove(&rank->ops[i], &rank->ops[i + 1], (size_t)(rank->op_count - i) * sizeof op);
        return op;
}

static void complete(const struct search *s, struct world *w, int r, int i)
{
        struct rank *rank = &w->ranks[r];
        struct op op = take(rank, i);
        if (op.kind == OP_RECEIVE_ACTIVATION || op.kind == OP_RECEIVE_GRADIENT) {
                int d = op.kind == OP_RECEIVE_GRADIENT, sender = d ? r + 1 : r - 1;
                op.micro_batch = rank->inbox[d][0];
                rank->inbox_count[d]--;
                memmove(rank->inbox[d], rank->inbox[d] + 1, (size_t)rank->inbox_count[d] * sizeof(int));
                for (int j = 0; !s->loose && j < w->ranks[sender].op_count; j++)
                        if (w->ranks[sender].ops[j].lane == (d ? LANE_SEND_PREVIOUS : LANE_SEND_NEXT)) {
                                complete(s, w, sender, j);
                                break;
                        }
        }
        core_complete(core_of(rank), &op);
        drain(w, r);
}

/* The optimizer phase comes after all of a rank's messages are received and nothing that others do can change
 * or prevent its steps: one order of them stands for all. */
static bool commutes(const struct op *op)
{
        return op->lane == LANE_COLLECTIVE || op->kind == OP_NORM || op->kind == OP_UPDATE;
}

static void explore(struct search *s, const struct world *w)
{
        if (s->deadlock || !remember(s, w))
                return;
        bool moved = false, done = true;
        for (int only_commuting = 1; only_commuting >= 0 && !moved; only_commuting--)
                for (int r = 0; r < s->plan.pp; r++)
                        for (int i = 0; i < w->ranks[r].op_count; i++) {
                                if (!may_complete(s, w, r, i) ||
                                    (only_commuting && (moved || !commutes(&w->ranks[r].ops[i]))))
                                        continue;
                                struct world next = *w;
                                complete(s, &next, r, i);
                                explore(s, &next);
                                moved = true;
                        }
        for (int r = 0; r < s->plan.pp; r++) {
                done = done && core_done((const struct core *)(const void *)w->ranks[r].core);
        }
        if (!moved && !done)
                s->deadlock = "came to rest before every stage was done";
        if (done && moved)
                s->deadlock = "a stage says that it is done and still has work";
}

static size_t explore_plan(const struct plan *plan, bool loose)
{
        struct search s = {.plan = *plan, .loose = loose};
        struct world w;
        memset(&w, 0, sizeof w);
        for (int r = 0; r < plan->pp; r++) {
                assert_true(core_bytes(plan, r, 1) <= CORE_BYTES);
                core_start(core_init(w.ranks[r].core, plan, r, 1));
        }
        for (int r = 0; r < plan->pp; r++)
                drain(&w, r);
        explore(&s, &w);
        free(s.seen);
        if (s.deadlock)
                fail_msg("%s, %d stages, %d micro-batches, limit %d, %s sends: %s",
                         policy_get(plan->policy)->name, plan->pp, plan->micro_batches, plan->pipeline_limit,
                         loose ? "loose" : "rendezvous", s.deadlock);
        return s.states;
}

/* Loose sends of AxoNN at 3 stages x 4 micro-batches with a limit of 3 or 4 have 24 million states, minutes:
 * `make test-exhaustive` explores them, untied (what a tied embedding adds comes after all messages). */
static bool affordable(const struct plan *plan)
{
        if (plan->pp * plan->micro_batches < 12 || plan->policy != POLICY_AXONN || plan->pipeline_limit <= 2)
                return true;
        return !plan->tied && getenv("RANVIER_EXHAUSTIVE");
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

static void no_interleaving_of_small_plans_deadlocks(void **state)
{
        (void)state;
        size_t states = 0;
        struct plan plan;
        memset(&plan, 0, sizeof plan);
        plan.dp = 1;
        plan.embedding_parameters = plan.bucket_parameters = plan.allreduce_buckets = 1;
        for (plan.pp = 1; plan.pp <= STAGES; plan.pp++)
                for (plan.micro_batches = 1; plan.micro_batches <= 4; plan.micro_batches++) {
                        plan.policy = POLICY_AXONN;
                        for (plan.pipeline_limit = 1; plan.pipeline_limit <= plan.micro_batches;
                             plan.pipeline_limit++)
                                states += explore_variants(plan);
                        plan.pipeline_limit = 0;
                        for (plan.policy = POLICY_GPIPE; plan.policy < POLICIES; plan.policy++)
                                states += explore_variants(plan);
                }
        print_message("# %zu states\n", states);
        assert_true(states > 100000);
}

int main(void)
{
        const struct CMUnitTest tests[] = {cmocka_unit_test(no_interleaving_of_small_plans_deadlocks)};
        return cmocka_run_group_tests_name("interleavings", tests, NULL, NULL);
}
