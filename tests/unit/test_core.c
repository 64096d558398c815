/* Properties of the schedule over random plans and random durations, in the world on paper (which they are:
 * tests/paper/observer.c); and the closed forms. */
#include "runtime/sched/policy.h"
#include "tests/paper/observer.h"
#include "tests/paper/equal_stages.h"
#include "tests/unit/sanitized.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PLANS = SANITIZED ? 1000 : 4000, ALL_PLANS = 12000, SEED = 20221101 };

static uint64_t random_next(uint64_t *state)
{
        uint64_t z = *state += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
}

static int random_int(uint64_t *state, int min, int max)
{
        return min + (int)(random_next(state) % (uint64_t)(max - min + 1));
}

struct watch {
        struct plan plan;
        int64_t parameters;
        uint64_t random;
        struct paper *paper;
        struct observer *observer;
        uint64_t decisions; /* hash of everything issued, in order */
};

static double random_seconds(void *context, int rank, const struct op *op)
{
        struct watch *w = context;
        (void)rank;
        (void)op;
        return (double)(random_next(&w->random) >> 11) * 0x1p-53 * (random_int(&w->random, 0, 3) ? 1 : 10);
}

static void on_issue(void *context, int rank, const struct op *op)
{
        struct watch *w = context;
        w->decisions = (w->decisions ^ (uint64_t)((rank * 64 + (int)op->kind) * 4096 + op->micro_batch + 1)) *
                       0x100000001B3u;
        observer_issue(w->observer, rank, op, core_in_use(paper_engine(w->paper, rank)->core));
}

static void on_complete(void *context, int rank, const struct op *op)
{
        struct watch *w = context;
        observer_complete(w->observer, rank, op);
}

static void share_units(uint64_t *random, struct plan *plan, int64_t *parameters)
{
        plan->zero = plan->pp > 1 ? 2 : random_int(random, 2, 3);
        plan->unit_layers = random_int(random, 0, 5);
        plan->prefetch = random_int(random, 0, 6);
        plan->gathered = (enum plan_gathered)random_int(random, 0, GATHERED_FOR_BATCH);
        plan->offload_activations = plan->offload_activations && plan->policy != POLICY_AXONN;
        plan->sharers = plan->dp == 4 ? random_int(random, 0, 2) : 0;
        if (plan->zero == 3 && !plan_hybrid(plan))
                return;
        *parameters = 0;
        for (int stage = 0; stage < plan->pp; stage++) { /* as many as a stage keeps at most */
                const struct core_units units = paper_units(plan, stage);
                const int64_t kept = core_unit_place(plan, &units, core_units_of(plan, &units).all);
                *parameters = kept > *parameters ? kept : *parameters;
        }
        plan->embedding_parameters =
                random_int(random, 1, *parameters < PAPER_EMBEDDING ? (int)*parameters : PAPER_EMBEDDING);
        plan->stage_allreduce = false;
}

static struct plan random_plan(uint64_t *random, int64_t *parameters)
{
        *parameters = random_int(random, 1, 100);
        struct plan plan;
        memset(&plan, 0, sizeof plan);
        plan.pp = random_int(random, 1, 8);
        plan.dp = random_int(random, 1, 4);
        plan.tp = plan.virtual_stages = 1;
        plan.order = (enum plan_order)random_int(random, 0, PLAN_ORDERS - 1);
        plan.micro_batches = random_int(random, 1, 14);
        plan.policy = (enum policy_id)random_int(random, 0, POLICIES - 1);
        plan.pipeline_limit = random_int(random, 0, 1) ? random_int(random, 0, 16) : 0;
        if (plan.policy == POLICY_INTERLEAVED) { /* every micro-batch is one of a group of pp */
                plan.virtual_stages = random_int(random, 1, 4);
                plan.micro_batches = plan.pp * random_int(random, 1, 3);
        }
        plan.forward_only = random_int(random, 0, 9) == 0;
        plan.tied = random_int(random, 0, 1);
        plan.clip = random_int(random, 0, 1);
        plan.mixed = random_int(random, 0, 2) > 0;
        plan.offload = plan.mixed && random_int(random, 0, 1);
        plan.offload_activations = random_int(random, 0, 1);
        plan.message_bytes = 1;
        plan.embedding_parameters = random_int(random, 1, (int)*parameters);
        plan.bucket_parameters = random_int(random, 1, 120);
        plan.allreduce_buckets = random_int(random, 1, 4);
        plan.element_bytes = 4;
        plan.stage_messages = random_int(random, 0, 2) == 0;
        plan.stage_allreduce = random_int(random, 0, 2) == 0;
        plan.zero = plan.dp > 1 && random_int(random, 0, 1);
        if (plan.zero && plan.virtual_stages == 1 && !policy_get(plan.policy)->deferred &&
            random_int(random, 0, 1))
                share_units(random, &plan, parameters);
        plan.overlap_allreduce = plan.zero <= 1 && *parameters > PAPER_CHUNK * (plan.virtual_stages - 1) &&
                                 random_int(random, 0, 1);
        plan.blocking = plan.policy != POLICY_AXONN && random_int(random, 0, 2) == 0;
        return plan;
}

/* Whether experts can be spread over replicas of such a plan, and parts of sequences (runtime/plan/rows.c
 * says what is refused). */
static bool can_spread_experts(const struct plan *plan)
{
        return plan->dp > 1 && !policy_get(plan->policy)->deferred &&
               (plan->policy != POLICY_AXONN || plan->pp <= 2);
}

static bool can_spread_sequences(const struct plan *plan)
{
        return plan->dp > 1 && (plan->pp == 1 || !policy_get(plan->policy)->fills_waits) &&
               (plan->policy != POLICY_AXONN || plan->pp <= 2);
}

/* Over all replicas, or over neighbours. */
static int spread_over(uint64_t *random, const struct plan *plan)
{
        return plan->dp == 4 && random_int(random, 0, 1) ? 2 : plan->dp;
}

/* Experts, of some sequences too, or, of others, sequences. */
static void spread_plan(uint64_t *random, struct plan *plan)
{
        if (random_int(random, 0, 1))
                return;
        if (can_spread_experts(plan) && random_int(random, 0, 1)) {
                plan->ep = spread_over(random, plan);
                plan->cp = random_int(random, 0, 2) ? 1 : spread_over(random, plan);
                plan->overlap_allreduce = plan->offload_activations = false;
                plan->zero = plan->zero ? 1 : 0;
                plan->sharers = 0;
        } else if (can_spread_sequences(plan)) {
                plan->cp = spread_over(random, plan);
                plan->offload_activations &= plan->policy != POLICY_AXONN || plan->pp == 1;
        }
}

/* Shards, of which the first one decides where they could disagree. */
static void split_stages(uint64_t *random, struct plan *plan)
{
        if ((plan->policy != POLICY_AXONN && plan->zero < 2) || plan->ep > 1 || plan->cp > 1 ||
            random_int(random, 0, 1))
                return;
        plan->tp = 2;
        plan->sequence_parallel = plan->zero >= 2 && random_int(random, 0, 1);
        plan->offload_activations = plan->overlap_allreduce = false;
}

/* Logical replicas, where the plan has none of what is refused with them. */
static void stand_for_others(uint64_t *random, struct plan *plan)
{
        plan->logical = 1 << random_int(random, 0, 3);
        if (!core_stands_for(plan))
                plan->logical = 0;
}

/* Runs a batch; returns the first broken property, if any. */
static const char *run_batch(struct watch *w, bool eager)
{
        bool overflow = w->plan.mixed && !w->plan.forward_only && random_int(&w->random, 0, 2) == 0;
        for (int twice = 0; overflow && twice < 2; twice++)
                paper_overflow(w->paper, random_int(&w->random, 0, w->plan.pp * w->plan.dp - 1));
        w->observer = observer_new(&w->plan, w->parameters, eager, overflow);
        bool ended = paper_run(w->paper) >= 0;
        if (ended)
                observer_end(w->observer);
        const char *broken = observer_broken(w->observer);
        observer_delete(w->observer);
        return broken ? broken : ended ? NULL : "the batch ends";
}

/* Runs two batches of a random plan; returns the hash of its decisions, and the first broken property if any.
 * Adds to `spread` where its experts are spread over replicas, and to `parted` where its sequences are. */
static uint64_t run_random(uint64_t seed, int *spread, int *parted, const char **broken, char *text,
                           size_t text_size)
{
        struct watch w = {.random = seed};
        w.plan = random_plan(&w.random, &w.parameters);
        spread_plan(&w.random, &w.plan);
        split_stages(&w.random, &w.plan);
        stand_for_others(&w.random, &w.plan);
        bool eager = random_int(&w.random, 0, 1);
        w.paper = paper_of_equal_stages(&w.plan, w.parameters, eager, random_seconds, on_issue, on_complete,
                                        &w);
        *spread += w.plan.ep > 1;
        *parted += w.plan.cp > 1;
        *broken = NULL;
        for (int batch = 0; batch < 2 && !*broken; batch++)
                *broken = run_batch(&w, eager);
        paper_delete(w.paper);
        snprintf(text, text_size,
                 "seed %llu: %s, pp %d x %d, dp %d, tp %d, experts over %d, sequences over %d, %d "
                 "micro-batches, "
                 "limit "
                 "%d%s%s%s%s%s%s%s%s%s%s%s%s%s",
                 (unsigned long long)seed, policy_get(w.plan.policy)->name, w.plan.pp, w.plan.virtual_stages,
                 w.plan.dp, w.plan.tp, plan_expert_ranks(&w.plan), plan_context_ranks(&w.plan),
                 w.plan.micro_batches, w.plan.pipeline_limit, eager ? ", eager" : "",
                 w.plan.forward_only ? ", forward only" : "", w.plan.tied ? ", tied" : "",
                 w.plan.clip ? ", clip" : "", w.plan.mixed ? ", mixed" : "",
                 w.plan.offload ? ", offload" : "",
                 w.plan.offload_activations ? ", offloaded activations" : "",
                 w.plan.stage_messages ? ", staged messages" : "",
                 w.plan.stage_allreduce ? ", staged all-reduces" : "", w.plan.blocking ? ", blocking" : "",
                 w.plan.zero == 3   ? ", zero 3"
                 : w.plan.zero == 2 ? ", zero 2"
                 : w.plan.zero      ? ", zero"
                                    : "",
                 w.plan.order == ORDER_REPLICAS ? ", replicas first" : "",
                 w.plan.overlap_allreduce ? ", overlapped all-reduces" : "");
        return w.decisions;
}

static void every_property_holds_over_random_plans_and_durations(void **state)
{
        (void)state;
        const int plans = is_every_case_taken() ? ALL_PLANS : PLANS;
        int spread = 0, parted = 0;
        for (int i = 0; i < plans; i++) {
                const char *broken;
                char text[320];
                run_random((uint64_t)SEED + (uint64_t)i, &spread, &parted, &broken, text, sizeof text);
                if (broken)
                        fail_msg("not true that %s (%s)", broken, text);
        }
        print_message("# %d plans from seed %d, %d of them with experts and %d with sequences spread over "
                      "replicas\n",
                      plans, SEED, spread, parted);
        assert_true(spread >= plans / 24 && parted >= plans / 24);
}

static void the_same_input_gives_the_same_decisions(void **state)
{
        (void)state;
        uint64_t previous = 0;
        int differ = 0;
        for (int i = 0; i < 500; i++) {
                const char *broken;
                char text[320];
                uint64_t seed = (uint64_t)SEED * 3 + (uint64_t)i;
                int spread = 0, parted = 0;
                uint64_t one = run_random(seed, &spread, &parted, &broken, text, sizeof text);
                uint64_t two = run_random(seed, &spread, &parted, &broken, text, sizeof text);
                if (one != two)
                        fail_msg("decisions differ between two runs of %s", text);
                differ += one != previous;
                previous = one;
        }
        assert_true(differ > 490); /* the hash does tell decisions apart */
}

struct fixed {
        double forward, backward, message;
        double weights;           /* the other part, where a backward is parted */
        double store, fetch_back; /* of offloaded activations */
        double allreduce, fetch, update, write_back;
        double stage_out, stage_in;
};

static double fixed_seconds(void *context, int rank, const struct op *op)
{
        const struct fixed *f = context;
        const double seconds[OP_KINDS] = {
                [OP_FORWARD] = f->forward,         [OP_BACKWARD] = f->backward,
                [OP_SEND_ACTIVATION] = f->message, [OP_SEND_GRADIENT] = f->message,
                [OP_STORE_ACTIVATIONS] = f->store, [OP_FETCH_ACTIVATIONS] = f->fetch_back,
                [OP_ALLREDUCE] = f->allreduce,     [OP_FETCH] = f->fetch,
                [OP_UPDATE] = f->update,           [OP_WRITE_BACK] = f->write_back,
                [OP_STAGE_OUT] = f->stage_out,     [OP_STAGE_IN] = f->stage_in,
        };
        (void)rank;
        if (op->kind == OP_BACKWARD && op->parts == OP_WEIGHT_GRADIENT)
                return f->weights;
        return seconds[op->kind];
}

/* Up to POLICIES: those of fixed order with one chunk, and with axonn all whose backward is one operation. */
static const enum policy_id fixed_order[] = {POLICY_GPIPE, POLICY_1F1B, POLICIES},
                            whole_backward[] = {POLICY_AXONN, POLICY_GPIPE, POLICY_1F1B, POLICIES};

static struct plan simple_plan(enum policy_id policy, int pp, int m)
{
        struct plan plan;
        memset(&plan, 0, sizeof plan);
        plan.pp = pp;
        plan.dp = plan.tp = plan.virtual_stages = 1;
        plan.micro_batches = m;
        plan.policy = policy;
        plan.bucket_parameters = plan.allreduce_buckets = 1;
        return plan;
}

static double fixed_run(const struct plan *plan, int64_t parameters, struct fixed f)
{
        struct paper *paper = paper_of_equal_stages(plan, parameters, false, fixed_seconds, NULL, NULL, &f);
        double seconds = paper_run(paper);
        paper_delete(paper);
        return seconds;
}

static double fixed_batch(enum policy_id policy, int pp, int m, int limit, struct fixed f)
{
        struct plan plan = simple_plan(policy, pp, m);
        plan.pipeline_limit = limit;
        return fixed_run(&plan, 1, f);
}

static void assert_seconds(double found, double expected, const char *what, int pp, int m)
{
        if (fabs(found - expected) > 1e-9 * expected)
                fail_msg("%s, %d stages, %d micro-batches: %.9g s, expected %.9g s", what, pp, m, found,
                         expected);
}

static void without_messages_a_batch_takes_m_plus_p_minus_1_micro_batches(void **state)
{
        (void)state;
        struct fixed f = {.forward = 1, .backward = 2};
        for (int pp = 1; pp <= 8; pp++)
                for (int m = 1; m <= 20; m++)
                        for (const enum policy_id *id = fixed_order; *id != POLICIES; id++)
                                assert_seconds(fixed_batch(*id, pp, m, 0, f),
                                               (m + pp - 1) * (f.forward + f.backward), policy_get(*id)->name,
                                               pp, m);
}

static struct plan interleaved_plan(int pp, int chunks, int m)
{
        struct plan plan = simple_plan(POLICY_INTERLEAVED, pp, m);
        plan.virtual_stages = chunks;
        return plan;
}

static void check_bubble(int pp, int chunks, int m, bool blocking, struct fixed job)
{
        struct plan plan = interleaved_plan(pp, chunks, m);
        plan.blocking = blocking;
        const double work = m * chunks * (job.forward + job.backward);
        const double bubble = fixed_run(&plan, 1, job) - work;
        if (bubble * m * chunks != (pp - 1) * work)
                fail_msg("%d x %d, %d micro-batches: bubble %.17g s of %.17g s", pp, chunks, m, bubble, work);
}

/* Narayanan et al. 2021, section 2.2.2: the bubble is (p - 1) / (m V) of the work, which m micro-batches on V
 * chunks are. All times are whole numbers, so the sums are exact. */
static void interleaving_leaves_the_bubble_of_its_paper_exactly(void **state)
{
        (void)state;
        const struct fixed jobs[] = {
                {.forward = 1, .backward = 2}, {.forward = 3, .backward = 3}, {.forward = 5, .backward = 2}};
        for (int blocking = 0; blocking <= 1; blocking++)
                for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
                        for (int pp = 1; pp <= 8; pp++)
                                for (int chunks = 1; chunks <= 6; chunks++)
                                        for (int m = pp; m <= 4 * pp; m += pp)
                                                check_bubble(pp, chunks, m, blocking, jobs[i]);
}

/* Qi et al. 2023, table 2: ZB-H1's bubble is (p - 1)(tF + tB - tW), where a pipeline is full (m >= p) and no
 * shorter than what it is to be filled with (tF >= tW); 1F1B's is (p - 1)(tF + tB + tW). */
static void the_bubble_of_zero_bubble_h1_is_its_papers(void **state)
{
        (void)state;
        const struct fixed jobs[] = {{.forward = 1, .backward = 1, .weights = 1},
                                     {.forward = 3, .backward = 4, .weights = 2},
                                     {.forward = 1, .backward = 1.5, .weights = 0.5},
                                     {.forward = 1, .backward = 1.25, .weights = 1}};
        for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
                for (int pp = 1; pp <= 12; pp++)
                        for (int m = pp; m <= 4 * pp; m++) {
                                const struct fixed f = jobs[i];
                                const double all = f.forward + f.backward + f.weights;
                                assert_seconds(fixed_batch(POLICY_ZERO_BUBBLE, pp, m, 0, f),
                                               m * all + (pp - 1) * (all - 2 * f.weights), "zero-bubble", pp,
                                               m);
                                struct fixed whole = f;
                                whole.backward += f.weights;
                                assert_seconds(fixed_batch(POLICY_1F1B, pp, m, 0, whole),
                                               m * all + (pp - 1) * all, "1f1b", pp, m);
                        }
}

/* With all weights left to the second part: the bubble is (p - 1)(tF + tB), as a stage waits for gradients of
 * inputs alone; fast-forward makes gradients of weights in it too, and is never slower than that or faster
 * than the work and what cannot be filled. */
static void gradients_of_inputs_that_go_first_shorten_the_bubble(void **state)
{
        (void)state;
        const struct fixed jobs[] = {{.forward = 1, .backward = 1, .weights = 1},
                                     {.forward = 3, .backward = 4, .weights = 2},
                                     {.forward = 1, .backward = 1.5, .weights = 0.5},
                                     {.forward = 1, .backward = 2.75, .weights = 0.25}};
        for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
                for (int pp = 1; pp <= 12; pp++)
                        for (int m = pp; m <= 4 * pp; m++) {
                                const struct fixed f = jobs[i];
                                const double all = f.forward + f.backward + f.weights;
                                const double reversed = m * all + (pp - 1) * (f.forward + f.backward);
                                assert_seconds(fixed_batch(POLICY_REVERSE_FIRST_K, pp, m, 0, f), reversed,
                                               "reverse-first-k", pp, m);
                                const double forwarded = fixed_batch(POLICY_FAST_FORWARD, pp, m, 0, f);
                                const double least = m * all + (pp - 1) * (all - 2 * f.weights);
                                if (forwarded < least - 1e-9 || forwarded > reversed + 1e-9)
                                        fail_msg("fast-forward, %d stages, %d micro-batches: %.9g s of %.9g "
                                                 "to %.9g s",
                                                 pp, m, forwarded, least, reversed);
                        }
}

/* When a stage's compute lane first and last worked. */
struct worked {
        struct fixed fixed;
        struct paper *paper;
        double begin[12], end[12];
};

static double worked_seconds(void *context, int rank, const struct op *op)
{
        return fixed_seconds(&((struct worked *)context)->fixed, rank, op);
}

static void worked_from(void *context, int rank, const struct op *op)
{
        struct worked *w = context;
        if ((op->kind == OP_FORWARD || op->kind == OP_BACKWARD) && w->begin[rank] < 0)
                w->begin[rank] = paper_now(w->paper);
}

static void worked_to(void *context, int rank, const struct op *op)
{
        struct worked *w = context;
        if (op->kind == OP_FORWARD || op->kind == OP_BACKWARD)
                w->end[rank] = paper_now(w->paper);
}

/* Qi et al. 2023, section 2.3: where forwards and both parts take equally long and the longer warm-up is
 * filled (m >= 2p - 1), no stage waits between its first and its last operation: stage i works from i to
 * 3m + i. So a batch, which ends with the last stage, is as long as ZB-H1's. */
static void stages_of_zero_bubble_h2_never_wait_between_equal_parts(void **state)
{
        (void)state;
        for (int pp = 1; pp <= 12; pp++)
                for (int m = 2 * pp - 1; m <= 5 * pp; m++) {
                        const struct plan plan = simple_plan(POLICY_ZERO_BUBBLE_H2, pp, m);
                        struct worked w = {.fixed = {.forward = 1, .backward = 1, .weights = 1}};
                        for (int stage = 0; stage < pp; stage++)
                                w.begin[stage] = -1;
                        w.paper = paper_of_equal_stages(&plan, 1, false, worked_seconds, worked_from,
                                                        worked_to, &w);
                        const double found = paper_run(w.paper);
                        paper_delete(w.paper);
                        for (int stage = 0; stage < pp; stage++)
                                if (w.begin[stage] != stage || w.end[stage] != 3 * m + stage)
                                        fail_msg("stage %d of %d, %d micro-batches: from %g to %g s, "
                                                 "expected %d to %d",
                                                 stage, pp, m, w.begin[stage], w.end[stage], stage,
                                                 3 * m + stage);
                        assert_seconds(found, 3 * m + pp - 1, "zero-bubble-h2", pp, m);
                        assert_seconds(fixed_batch(POLICY_ZERO_BUBBLE, pp, m, 0, w.fixed), found,
                                       "zero-bubble", pp, m);
                }
}

/* The paper's memory: 2p - 1 micro-batches on every stage; on stage i, 2i of them wait for their weights'
 * turn.
 */
static void zero_bubble_h2_stores_2_p_minus_1_micro_batches(void **state)
{
        (void)state;
        for (int pp = 1; pp <= 8; pp++)
                for (int m = 1; m <= 20; m++) {
                        const struct plan plan = simple_plan(POLICY_ZERO_BUBBLE_H2, pp, m);
                        for (int stage = 0; stage < pp; stage++) {
                                const struct core_limits limits = core_limits(&plan, stage);
                                assert_int_equal(limits.slots, m < 2 * pp - 1 ? m : 2 * pp - 1);
                                assert_int_equal(limits.deferred, m < 2 * stage + 1 ? m : 2 * stage + 1);
                        }
                }
}

/* No more than 1F1B's first stage: p micro-batches; on stage i, i of them wait for their weights' turn. */
static void zero_bubble_h1_stores_no_more_than_1f1b(void **state)
{
        (void)state;
        for (int pp = 1; pp <= 8; pp++)
                for (int m = 1; m <= 20; m++) {
                        struct plan plan = simple_plan(POLICY_1F1B, pp, m);
                        const int max = core_limits(&plan, 0).slots;
                        plan.policy = POLICY_ZERO_BUBBLE;
                        for (int stage = 0; stage < pp; stage++) {
                                const struct core_limits limits = core_limits(&plan, stage);
                                assert_int_equal(limits.slots, max);
                                assert_int_equal(limits.deferred, stage < m ? stage + 1 : m);
                        }
                }
}

/* Its warm-up and one more, of all chunks: chunks have their most at different times. On the last stage the
 * slot of the chunk with the head is its own: one, since that micro-batch's backward comes next. */
static void interleaved_stores_its_warm_up_and_one_more(void **state)
{
        (void)state;
        for (int pp = 2; pp <= 8; pp++)
                for (int chunks = 2; chunks <= 4; chunks++)
                        for (int rounds = 1; rounds <= 4; rounds++) {
                                struct plan plan = simple_plan(POLICY_INTERLEAVED, pp, rounds * pp);
                                plan.virtual_stages = chunks;
                                const int all = plan_vmbs(&plan);
                                for (int stage = 0; stage < pp; stage++) {
                                        const int most = 2 * (pp - stage - 1) + (chunks - 1) * pp + 1;
                                        const int slots = core_limits(&plan, stage).slots;
                                        const bool head = stage == pp - 1;
                                        assert_true(head ? slots <= most + 1
                                                         : slots == (most < all ? most : all));
                                        assert_int_equal(core_head_slots(&plan, stage), head);
                                }
                        }
}

static void a_single_micro_batch_pays_every_message(void **state)
{
        (void)state;
        struct fixed f = {.forward = 1, .backward = 2, .message = 0.25};
        for (int pp = 1; pp <= 8; pp++)
                assert_seconds(fixed_batch(POLICY_AXONN, pp, 1, 0, f), 3.0 * pp + 2 * 0.25 * (pp - 1),
                               "axonn", pp, 1);
}

static void a_staged_message_takes_its_two_copies_more(void **state)
{
        (void)state;
        struct fixed f = {.forward = 1, .backward = 2, .message = 0.25, .stage_out = 0.5, .stage_in = 0.125};
        for (const enum policy_id *id = whole_backward; *id != POLICIES; id++)
                for (int pp = 1; pp <= 8; pp++) {
                        struct plan plan = simple_plan(*id, pp, 1);
                        plan.stage_messages = true;
                        assert_seconds(fixed_run(&plan, 1, f), 3.0 * pp + 2 * (0.25 + 0.5 + 0.125) * (pp - 1),
                                       policy_get(*id)->name, pp, 1);
                }
}

/* One stage's gradients become final in n ranges, over a backward of n; a sum each. Shorter sums than ranges
 * leave the last one behind the backward, longer ones all but the part of the first backward before them. */
static double overlapped_seconds(void *context, int rank, const struct op *op)
{
        const struct fixed *f = context;
        if (op->kind == OP_BACKWARD && op->count > 0)
                return (double)op->count / PAPER_LAYER * f->backward;
        return fixed_seconds(context, rank, op);
}

static void sums_beside_the_last_backward_leave_one_of_them_behind_it(void **state)
{
        (void)state;
        for (int n = 1; n <= 20; n++)
                for (int each = 0; each < 2; each++) {
                        struct plan plan = simple_plan(POLICY_AXONN, 1, 3);
                        struct fixed f = {.forward = 1, .backward = 2, .allreduce = each ? 3 : 0.5};
                        plan.dp = 2;
                        plan.overlap_allreduce = true;
                        plan.bucket_parameters = PAPER_LAYER;
                        struct paper *paper = paper_of_equal_stages(&plan, n * PAPER_LAYER, false,
                                                                    overlapped_seconds, NULL, NULL, &f);
                        const double found = paper_run(paper), before = 3.0 * 1 + 2.0 * 2;
                        assert_seconds(found, before + (each ? 2 + 3.0 * n : 2.0 * n + 0.5), "overlapped", 1,
                                       n);
                        paper_delete(paper);
                }
}

/* Interleaved, the first stage's last p backwards of each chunk follow each other without a pause, and a
 * chunk's gradients are final when its last one ends: its sum has those of the chunks before it to hide
 * behind. */
static void sums_of_chunks_hide_behind_the_backwards_of_the_chunks_before(void **state)
{
        (void)state;
        for (int pp = 1; pp <= 4; pp++)
                for (int chunks = 2; chunks <= 4; chunks++)
                        for (int twentieth = 1; twentieth <= 200; twentieth += 13) {
                                struct plan plan = simple_plan(POLICY_INTERLEAVED, pp, 3 * pp);
                                struct fixed f = {.forward = 1, .backward = 2, .allreduce = twentieth / 20.0};
                                plan.virtual_stages = chunks;
                                const double before = fixed_run(&plan, 1, f);
                                plan.dp = 2;
                                plan.overlap_allreduce = true;
                                plan.bucket_parameters = PAPER_CHUNK;
                                const double exposed = fmax(
                                        f.allreduce, chunks * f.allreduce - (chunks - 1) * pp * f.backward);
                                assert_seconds(fixed_run(&plan, chunks * PAPER_CHUNK, f), before + exposed,
                                               "interleaved", pp, 3 * pp);
                        }
}

/* Copy out, sum and copy in are a pipeline of three stages, through which the chunks go one after another;
 * the shared embedding goes through it once more, alone. */
static void n_staged_allreduces_take_n_plus_2_of_the_longest_part(void **state)
{
        (void)state;
        for (int n = 1; n <= 20; n++)
                for (int tied = 0; tied <= 1; tied++) {
                        struct plan plan = simple_plan(POLICY_AXONN, 1 + tied, 1);
                        struct fixed f = {.stage_out = 2, .allreduce = 3, .stage_in = 1};
                        plan.dp = 2;
                        plan.tied = tied;
                        plan.embedding_parameters = 1;
                        plan.stage_allreduce = true;
                        assert_seconds(fixed_run(&plan, n, f), 2 + 3 * n + 1 + tied * (2 + 3 + 1), "staged",
                                       1 + tied, 1);
                }
}

/* How many blocking messages, one after another, a batch of equal stages takes beyond (m + p - 1)(tf + tb).
 * One micro-batch waits for 2 (p - 1). Each further one is received and sent on by a stage in the middle,
 * which computes nothing meanwhile: gpipe does that on the way there and on the way back, 1F1B has a message
 * of the one kind beside each of the other (but its second micro-batch meets the first one's gradient once
 * only, where a message is no longer than what is computed). With two stages there is nobody in the middle.
 */
static int blocking_messages(enum policy_id policy, int pp, int m)
{
        if (pp == 1)
                return 0;
        int once = 2 * (pp - 1), others = m - 1, middle = pp > 2 ? 2 : 1;
        if (policy == POLICY_GPIPE)
                return once + others * 2 * middle;
        return once + others * middle - (pp > 2 && others > 0);
}

static void blocking_messages_are_paid_for_one_after_another(void **state)
{
        (void)state;
        const struct fixed jobs[] = {{.forward = 1, .backward = 2, .message = 0.25},
                                     {.forward = 1.25, .backward = 1.25, .message = 0.5},
                                     {.forward = 2, .backward = 1, .message = 1},
                                     {.forward = 1, .backward = 3, .message = 0.001}};
        for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
                for (const enum policy_id *id = fixed_order; *id != POLICIES; id++)
                        for (int pp = 1; pp <= 8; pp++)
                                for (int m = 1; m <= 20; m++) {
                                        const struct fixed f = jobs[i];
                                        struct plan plan = simple_plan(*id, pp, m);
                                        plan.blocking = true;
                                        assert_seconds(fixed_run(&plan, 1, f),
                                                       (m + pp - 1) * (f.forward + f.backward) +
                                                               blocking_messages(plan.policy, pp, m) *
                                                                       f.message,
                                                       policy_get(plan.policy)->name, pp, m);
                                }
}

/* AxoNN's seconds a micro-batch once the pipeline is full. */
static double axonn_steady(int pp, int limit, struct fixed f)
{
        int m = 40 * pp;
        return (fixed_batch(POLICY_AXONN, pp, 2 * m, limit, f) - fixed_batch(POLICY_AXONN, pp, m, limit, f)) /
               m;
}

/* Twice the warm-up hides messages of up to half of a forward and a backward: a batch takes what it takes to
 * fill and to drain the pipeline, and a forward and a backward for each micro-batch. 1F1B waits for each
 * round trip. */
static void eager_1f1b_hides_messages_that_1f1b_waits_for(void **state)
{
        (void)state;
        const struct fixed jobs[] = {{.forward = 1, .backward = 2, .message = 0.25},
                                     {.forward = 1, .backward = 2, .message = 1.5},
                                     {.forward = 1, .backward = 1, .message = 1}};
        for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
                for (int pp = 2; pp <= 8; pp++)
                        for (int m = 2 * pp; m <= 8 * pp; m += pp) {
                                const struct fixed f = jobs[i];
                                const double busy = f.forward + f.backward;
                                const double once = (m + pp - 1) * busy + 2 * (pp - 1) * f.message;
                                assert_seconds(fixed_batch(POLICY_EAGER, pp, m, 0, f), once, "eager-1f1b", pp,
                                               m);
                                if (fixed_batch(POLICY_1F1B, pp, m, 0, f) <= once)
                                        fail_msg(
                                                "1f1b of %d stages and %d micro-batches waits for no message",
                                                pp, m);
                        }
}

/* A micro-batch can not take less than max(tf + tb, round trip / L), round trip p (tf + tb) + 2 (p - 1) c.
 * With L = 2 p AxoNN attains it. With its default L = p the round trip has no slack: wherever a forward and a
 * returning backward meet on a stage, one waits for the other, the round trip grows, and up to a quarter is
 * lost on top. */
static void axonn_attains_the_round_trip_law_with_a_pipeline_limit_of_twice_the_stages(void **state)
{
        (void)state;
        const struct fixed jobs[] = {{.forward = 1, .backward = 2},
                                     {.forward = 1, .backward = 2, .message = 0.25},
                                     {.forward = 1.03, .backward = 1.98, .message = 0.02},
                                     {.forward = 20, .backward = 60, .message = 3}};
        for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
                for (int pp = 2; pp <= 16; pp *= 2) {
                        struct fixed f = jobs[i];
                        double busy = f.forward + f.backward;
                        double round_trip = pp * busy + 2 * (pp - 1) * f.message;
                        assert_true(round_trip / (2 * pp) < busy); /* so the law says tf + tb */
                        assert_seconds(axonn_steady(pp, 2 * pp, f), busy, "axonn, limit 2 p", pp, 40 * pp);
                        double tight = axonn_steady(pp, pp, f), law = round_trip / pp;
                        if (tight < law * (1 - 1e-9) || tight > law * 1.25)
                                fail_msg("limit %d: %.6g s a micro-batch, the law says at least %.6g s", pp,
                                         tight, law);
                }
}

/* Offloading activations at no cost changes no schedule. */
static void offloaded_activations_that_copy_at_once_cost_nothing(void **state)
{
        (void)state;
        struct fixed f = {.forward = 1, .backward = 2, .message = 0.25};
        for (int id = 0; id < POLICIES; id++)
                for (int pp = 1; pp <= 8; pp++)
                        for (int m = 5; m <= 20; m += 5) {
                                struct plan plan = simple_plan((enum policy_id)id, pp, m);
                                plan.pipeline_limit = 2 * pp;
                                if (id == POLICY_INTERLEAVED) {
                                        plan.micro_batches = m * pp / 5;
                                        plan.virtual_stages = 1 + m / 10;
                                }
                                double without = fixed_run(&plan, 1, f);
                                plan.offload_activations = true;
                                assert_seconds(fixed_run(&plan, 1, f), without,
                                               policy_get((enum policy_id)id)->name, pp, m);
                        }
}

/* A copy no longer than the computation beside it is hidden, on every stage: the next backward's activations
 * are fetched while this one's runs. */
static void copies_of_activations_are_hidden_behind_computation(void **state)
{
        (void)state;
        struct fixed f = {.forward = 1, .backward = 2, .store = 1, .fetch_back = 2};
        for (int pp = 1; pp <= 8; pp++)
                for (int m = 5; m <= 20; m++)
                        for (const enum policy_id *id = fixed_order; *id != POLICIES; id++) {
                                struct plan plan = simple_plan(*id, pp, m);
                                plan.offload_activations = true;
                                assert_seconds(fixed_run(&plan, 1, f),
                                               (m + pp - 1) * (f.forward + f.backward), policy_get(*id)->name,
                                               pp, m);
                        }
}

/* One stage, gpipe. A slower fetch: two micro-batches are there when the backwards begin, each of the others
 * is fetched when a slot becomes free, and so paces them. A slower store: two forwards are ahead, then one a
 * store, and the backwards wait for no store. */
static void slower_copies_of_activations_set_the_pace(void **state)
{
        (void)state;
        for (int m = 5; m <= 20; m++) {
                struct plan plan = simple_plan(POLICY_GPIPE, 1, m);
                plan.offload_activations = true;
                struct fixed fetches = {.forward = 2, .backward = 2, .store = 1, .fetch_back = 3};
                assert_seconds(fixed_run(&plan, 1, fetches), 2 * m + 2 + 3 * (m - 2) + 2, "slow fetches", 1,
                               m);
                struct fixed stores = {.forward = 1, .backward = 2, .store = 3};
                assert_seconds(fixed_run(&plan, 1, stores), 1 + 3 * (m - 2) + 1 + 2 * m, "slow stores", 1, m);
        }
}

/* Offloaded, nothing to wait for: three stages of a pipeline, each as long as the others. */
static void n_offloaded_updates_take_n_plus_2_of_them(void **state)
{
        (void)state;
        struct fixed f = {.fetch = 2, .update = 2, .write_back = 2};
        for (int n = 1; n <= 20; n++) {
                struct plan plan = simple_plan(POLICY_AXONN, 1, 1);
                plan.mixed = plan.offload = true;
                plan.bucket_parameters = 3;
                assert_seconds(fixed_run(&plan, n < 3 ? 3 : n, f), ((n < 3 ? 3 : n) + 2) * 2, "offloaded", 1,
                               1);
                plan.bucket_parameters = 300; /* a stage smaller than a bucket: thirds of the stage */
                assert_seconds(fixed_run(&plan, 3 * n, f), 5 * 2, "one bucket", 1, 1);
        }
}

/* Chunks of `buckets` buckets, three updates each, behind all-reduces of `slow` seconds a chunk: all but the
 * last chunk's updates hide behind them. With clipping, all updates come after the last all-reduce, but what
 * there are buffers for has been fetched. */
static void offloaded_updates_hide_behind_slower_allreduces(void **state)
{
        (void)state;
        for (int buckets = 1; buckets <= 4; buckets++)
                for (int chunks = 1; chunks <= 5; chunks++) {
                        struct plan plan = simple_plan(POLICY_AXONN, 1, 1);
                        plan.dp = 2;
                        plan.mixed = plan.offload = true;
                        plan.bucket_parameters = 3;
                        plan.allreduce_buckets = buckets;
                        int updates = 3 * buckets;
                        struct fixed f = {.allreduce = updates + 5, .fetch = 1, .update = 1, .write_back = 1};
                        double reduced = chunks * f.allreduce;
                        assert_seconds(fixed_run(&plan, updates * chunks, f), reduced + updates + 1,
                                       "offloaded", 1, 1);
                        plan.clip = true;
                        assert_seconds(fixed_run(&plan, updates * chunks, f), reduced + updates * chunks + 1,
                                       "offloaded, clipped", 1, 1);
                }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_property_holds_over_random_plans_and_durations),
                cmocka_unit_test(the_same_input_gives_the_same_decisions),
                cmocka_unit_test(without_messages_a_batch_takes_m_plus_p_minus_1_micro_batches),
                cmocka_unit_test(interleaving_leaves_the_bubble_of_its_paper_exactly),
                cmocka_unit_test(the_bubble_of_zero_bubble_h1_is_its_papers),
                cmocka_unit_test(zero_bubble_h1_stores_no_more_than_1f1b),
                cmocka_unit_test(interleaved_stores_its_warm_up_and_one_more),
                cmocka_unit_test(stages_of_zero_bubble_h2_never_wait_between_equal_parts),
                cmocka_unit_test(zero_bubble_h2_stores_2_p_minus_1_micro_batches),
                cmocka_unit_test(gradients_of_inputs_that_go_first_shorten_the_bubble),
                cmocka_unit_test(a_single_micro_batch_pays_every_message),
                cmocka_unit_test(blocking_messages_are_paid_for_one_after_another),
                cmocka_unit_test(a_staged_message_takes_its_two_copies_more),
                cmocka_unit_test(sums_beside_the_last_backward_leave_one_of_them_behind_it),
                cmocka_unit_test(sums_of_chunks_hide_behind_the_backwards_of_the_chunks_before),
                cmocka_unit_test(n_staged_allreduces_take_n_plus_2_of_the_longest_part),
                cmocka_unit_test(eager_1f1b_hides_messages_that_1f1b_waits_for),
                cmocka_unit_test(axonn_attains_the_round_trip_law_with_a_pipeline_limit_of_twice_the_stages),
                cmocka_unit_test(offloaded_activations_that_copy_at_once_cost_nothing),
                cmocka_unit_test(copies_of_activations_are_hidden_behind_computation),
                cmocka_unit_test(slower_copies_of_activations_set_the_pace),
                cmocka_unit_test(n_offloaded_updates_take_n_plus_2_of_them),
                cmocka_unit_test(offloaded_updates_hide_behind_slower_allreduces),
        };
        return cmocka_run_group_tests_name("core", tests, NULL, NULL);
}
