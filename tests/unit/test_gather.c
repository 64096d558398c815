/* ZeRO-3's passes: weights gathered a unit ahead, gradients reduced behind. The core's stream of operations,
 * run on paper, takes what a closed form says. */
#include "runtime/engine/paper.h"
#include "runtime/engine/phases.h"
#include "tests/unit/noise.h"
#include "tests/unit/numbers.h"

#include <string.h>

enum { UNITS = 9, SEED = 1905, PASSES = 4000, MICRO_BATCHES = 4 };

/* Of a unit, in the order of work: seconds of its work, of its weights before it, of its gradients after it.
 */
struct moment {
        double compute, gather, scatter;
};

/* A model of so many units, and what they take. */
struct job {
        struct plan plan;
        struct core_units units;
        struct moment forward[UNITS], backward[UNITS];
        double between; /* seconds of a sum between groups */
        double fetch;   /* and of a share's way from host memory */
        int count, gathers, scatters;
        double work; /* seconds of all that was computed */
};

static double job_seconds(void *context, int rank, const struct op *op)
{
        struct job *job = context;
        if (!op_of_pass(op))
                return op->kind == OP_ALLREDUCE ? job->between : 0;
        const struct moment *step = &(op->of == OP_FORWARD ? job->forward : job->backward)[op->range];
        switch (op->kind) {
        case OP_FETCH_WEIGHTS:
                return job->fetch;
        case OP_ALL_GATHER:
                job->gathers++;
                return step->gather;
        case OP_REDUCE_SCATTER:
                job->scatters++;
                return step->scatter;
        default:
                job->work += rank == 0 ? step->compute : 0;
                return step->compute;
        }
}

static double stream_seconds(struct job *job, struct phases *phases)
{
        const struct core_stage stage = {
                .parameters = plan_hybrid(&job->plan) ? job->count : 1, .slot_bytes = 1, .units = job->units};
        struct paper *paper = paper_new(&(struct paper_setting){
                .plan = &job->plan, .stages = &stage, .physics = {.seconds = job_seconds, .context = job}});
        assert_non_null(paper);
        job->work = job->gathers = job->scatters = 0;
        const double seconds = paper_run(paper);
        const struct batch_times times[] = {engine_times(paper_engine(paper, 0)),
                                            engine_times(paper_engine(paper, 1))};
        *phases = phases_of(times, 2);
        paper_delete(paper);
        return seconds;
}

/* Two replicas; each unit is gathered one ahead. */
static void open_job(struct job *job, int blocks, enum policy_id policy, int micro_batches)
{
        *job = (struct job){.count = blocks + 2,
                            .units = {.blocks = blocks, .embedding = 1, .block = 1, .head = 1}};
        assert_true(job->count <= UNITS);
        memset(&job->plan, 0, sizeof job->plan);
        job->plan.pp = job->plan.tp = job->plan.virtual_stages = job->plan.prefetch = 1;
        job->plan.dp = 2;
        job->plan.zero = 3;
        job->plan.policy = policy;
        job->plan.micro_batches = micro_batches;
        job->plan.bucket_parameters = job->plan.allreduce_buckets = job->plan.element_bytes = 1;
}

/* Which units of a backward are still there: the head, and the last blocks, as many as there are buffers. */
static bool gathers_backward(const struct job *job, int nth)
{
        const int blocks = job->count - 2;
        return nth > job->plan.prefetch + 1 && nth <= blocks;
}

static void fill(struct job *job, double compute, double gather, double scatter)
{
        for (int i = 0; i < job->count; i++) {
                job->forward[i] = (struct moment){compute, gather, 0};
                job->backward[i] = (struct moment){compute, gather, scatter};
        }
}

/* The closed form, forward and backward in turn: when each unit's work begins and ends. A unit's weights are
 * asked for as soon as the work begins of the unit so many before it, whichever pass that is of, or, none
 * ahead, when the unit before it has ended; then go this one's gradients; both pass in this order. Work waits
 * for its weights and for a buffer for its gradients, of which blocks have two and embedding and head one,
 * and for what its own gradients still do. */
struct timeline {
        double network, computed, reduced[UNITS], ends, last[2]; /* last: reductions of blocks */
        double there[2 * UNITS * MICRO_BATCHES + UNITS];
};

static void ask(const struct job *job, struct timeline *t, int s, double now)
{
        const int batch = 2 * job->count * job->plan.micro_batches, nth = s % job->count;
        const bool back = s / job->count % 2;
        if (s >= batch)
                return;
        t->there[s] = 0;
        if (back && !gathers_backward(job, nth))
                return;
        t->network = fmax(t->network, now) + (back ? job->backward : job->forward)[nth].gather;
        t->there[s] = t->network;
}

static double gradients_free(const struct timeline *t, int unit, int count)
{
        const int blocks = count - 2;
        if (unit == 0 || unit == count - 1)
                return t->ends;
        return fmax(blocks > 1 ? t->last[0] : t->last[1], t->reduced[unit]);
}

static double expected_seconds(const struct job *job)
{
        struct timeline t = {0};
        const int ahead = job->plan.prefetch, count = job->count;
        for (int s = 0; s < ahead; s++)
                ask(job, &t, s, 0);
        for (int s = 0; s < 2 * count * job->plan.micro_batches; s++) {
                const int nth = s % count, unit = s / count % 2 ? count - 1 - nth : nth;
                if (ahead == 0 && nth == 0)
                        ask(job, &t, s, t.computed);
                double begin = fmax(t.computed, t.there[s]);
                if (unit != nth || s / count % 2)
                        begin = fmax(begin, gradients_free(&t, unit, count));
                if (ahead > 0)
                        ask(job, &t, s + ahead, begin);
                t.computed = begin + (s / count % 2 ? job->backward : job->forward)[nth].compute;
                if (ahead == 0 && nth < count - 1)
                        ask(job, &t, s + 1, t.computed);
                if (s / count % 2 == 0)
                        continue;
                t.reduced[unit] = t.network = fmax(t.network, t.computed) + job->backward[nth].scatter;
                if (unit == 0 || unit == count - 1) {
                        t.ends = t.network;
                } else {
                        t.last[0] = t.last[1];
                        t.last[1] = t.network;
                }
        }
        return fmax(t.network, t.computed);
}

static void assert_stream(struct job *job, double seconds)
{
        struct phases phases;
        assert_close(stream_seconds(job, &phases), seconds, 1e-13);
}

static void without_a_network_a_pass_is_its_work(void **state)
{
        (void)state;
        struct job job;
        open_job(&job, 5, POLICY_AXONN, 3);
        fill(&job, 2, 0, 0);
        assert_stream(&job, 3 * 2 * 2 * job.count);
}

/* Work hides all but the first gather of a batch, and the last reduction. */
static void longer_work_hides_the_network(void **state)
{
        (void)state;
        struct job job;
        open_job(&job, 6, POLICY_1F1B, 2);
        fill(&job, 5, 3, 0);
        assert_stream(&job, 3 + 2 * 2 * 5 * job.count);
        fill(&job, 5, 3, 2);
        assert_stream(&job, 3 + 2 * 2 * 5 * job.count + 2);
        job.plan.prefetch =
                0; /* hides none, where none is ahead; the second forward's first is behind a reduction */
        assert_stream(&job, 2 * (3 * (8 + 5) + 2 * 5 * job.count) + 2 + 2);
}

/* And a longer network hides all but the last work of a forward. Backward it begins beside the third block's
 * work, the first whose weights have gone. */
static void a_longer_network_hides_the_work(void **state)
{
        (void)state;
        struct job job;
        open_job(&job, 7, POLICY_1F1B, 1);
        fill(&job, 1, 4, 0);
        assert_stream(&job, 4 * job.count + 1 + 2 + 4 * 5 + 2);
}

/* Reductions that hold up all else: neither they nor the gathers behind them are hidden. */
static void blocking_reductions_hold_up_the_work(void **state)
{
        (void)state;
        struct job job;
        open_job(&job, 7, POLICY_1F1B, 2);
        job.plan.blocking = true;
        fill(&job, 5, 3, 2);
        assert_stream(&job, 2 * (3 + 5 * job.count + (5 + 2) * job.count + 3 * 5));
        fill(&job, 5, 0, 2);
        assert_stream(&job, 2 * (5 * job.count + (5 + 2) * job.count));
}

/* Hybrid shards: of sums between groups no longer than a unit's backward one is left behind the batch, of
 * longer ones the last of a queue that began with the first unit; blocking, all of them are. */
static void sums_between_groups_hide_behind_the_last_backward(void **state)
{
        (void)state;
        struct job job;
        struct phases phases;
        for (int micro_batches = 1; micro_batches <= 3; micro_batches++) {
                open_job(&job, 6, POLICY_1F1B, micro_batches);
                job.plan.sharers = 1;
                fill(&job, 5, 3, 2);
                const double passes = 3 + 2 * 5 * job.count * micro_batches;
                for (int between = 4; between <= 5; between++) {
                        job.between = between;
                        assert_stream(&job, passes + 2 + between);
                        stream_seconds(&job, &phases);
                        assert_close(phases.allreduce_seconds, between, 1e-13);
                }
                job.between = 8;
                assert_stream(&job, passes - 5 * (job.count - 1) + 2 + 8 * job.count);
                job.plan.zero = 2;
                assert_stream(&job, passes - 3 - 5 * (job.count - 1) + 2 + 8 * job.count);
                job.plan.blocking = true;
                assert_stream(&job, passes - 3 + micro_batches * 2 * job.count + 8 * job.count);
        }
}

/* Not two units ahead: after a long one, the weights of the second one behind it are not there. */
static void weights_are_as_many_units_ahead_as_the_plan_says(void **state)
{
        (void)state;
        struct job job;
        open_job(&job, 7, POLICY_AXONN, 1);
        fill(&job, 0, 1, 0);
        job.forward[3].compute = 100;
        assert_stream(&job, 4 + 100 + (job.count - 5) + 5);
        job.plan.prefetch = 2;
        assert_stream(&job, 4 + 100 + (job.count - 6) + 4);
}

/* Shares that come from host memory: work hides both steps where it is longer. One unit ahead they follow
 * each other, two ahead one unit is fetched while another is gathered. */
static void fetches_of_shares_hide_behind_work(void **state)
{
        (void)state;
        struct job job;
        open_job(&job, 6, POLICY_1F1B, 3);
        job.plan.offload_parameters = true;
        fill(&job, 5, 3, 1);
        job.fetch = 2;
        assert_stream(&job, 2 + 3 + 3 * 2 * 5 * job.count + 1);
        open_job(&job, 6, POLICY_1F1B, 1);
        job.plan.offload_parameters = job.plan.forward_only = true;
        fill(&job, 5, 3, 0);
        job.fetch = 6;
        assert_stream(&job, (6 + 3) * job.count + 5);
        job.plan.prefetch = 2;
        assert_stream(&job, 6 * job.count + 3 + 5);
}

/* How often a unit is gathered and reduced in a batch of three micro-batches, of seven blocks. */
static void units_are_gathered_as_often_as_the_plan_says(void **state)
{
        (void)state;
        struct job job;
        struct phases phases;
        for (int tied = 0; tied < 2; tied++) {
                open_job(&job, 7, POLICY_1F1B, 3);
                job.units.tied = tied;
                fill(&job, 1, 1, 1);
                const int all = tied ? 8 : 9;
                stream_seconds(&job, &phases);
                assert_int_equal(job.gathers, 3 * (all + 5));
                assert_int_equal(job.scatters, 3 * all);
                job.plan.gathered = GATHERED_FOR_MICRO_BATCH;
                stream_seconds(&job, &phases);
                assert_int_equal(job.gathers, 3 * all);
                assert_int_equal(job.scatters, 3 * all);
                job.plan.gathered = GATHERED_FOR_BATCH;
                stream_seconds(&job, &phases);
                assert_int_equal(job.gathers, all);
                assert_int_equal(job.scatters, all);
                job.plan.gathered = GATHERED_FOR_PASS;
                job.plan.unit_layers = 3;
                stream_seconds(&job, &phases); /* units of 3, 3 and 1 */
                assert_int_equal(job.gathers, 3 * (all - 4 + 1));
                assert_int_equal(job.scatters, 3 * (all - 4));
                job.plan.zero = 2;
                stream_seconds(&job, &phases); /* all weights are there */
                assert_int_equal(job.gathers, 0);
                assert_int_equal(job.scatters, 3 * (all - 4));
                job.plan.gathered = GATHERED_FOR_BATCH;
                stream_seconds(&job, &phases);
                assert_int_equal(job.gathers, 0);
                assert_int_equal(job.scatters, all - 4);
        }
}

/* Of blocks with spread experts these are gathered and reduced by replicas with the same ones, two groups of
 * two here, and all else by all four. */
static void spread_experts_are_gathered_by_those_that_have_them(void **state)
{
        (void)state;
        struct job job;
        struct phases phases;
        open_job(&job, 6, POLICY_1F1B, 3);
        job.units.block = 5;
        job.units.experts = 3;
        job.units.dense = 2;
        job.units.dense_block = 1;
        job.plan.dp = 4;
        job.plan.ep = 2;
        fill(&job, 1, 1, 1);
        stream_seconds(&job, &phases);
        const int units = 8, with_experts = 4, again = 2 + 2; /* of a backward, with and without experts */
        assert_int_equal(job.gathers, 3 * (units + again + 2 * (with_experts + 2)));
        assert_int_equal(job.scatters, 3 * (units + 2 * with_experts));
        struct core_unit_part parts[CORE_UNIT_PARTS];
        assert_int_equal(core_unit_parts(&job.plan, &job.units, 2, parts), 1);
        const int64_t dense = 1 + 1 + 1; /* shares of the embedding and of two dense blocks, rounded up */
        assert_int_equal(core_unit_parts(&job.plan, &job.units, 3, parts), 2);
        assert_true(parts[0].group == GROUP_EXPERT_DATA && parts[0].offset == 0 && parts[0].count == 3 &&
                    parts[0].place == dense);
        assert_true(parts[1].group == GROUP_DATA && parts[1].offset == 3 && parts[1].count == 2 &&
                    parts[1].place == dense + 2);
        assert_int_equal(core_unit_place(&job.plan, &job.units, 4), dense + 2 + 1);
}

/* Shares of units of blocks of two sizes lie one behind the other. */
static void shares_lie_one_behind_the_other(void **state)
{
        (void)state;
        for (int variant = 0; variant < 5 * 8 * 8 * 2; variant++) {
                const struct core_units units = {.blocks = 7,
                                                 .dense = variant / 5 % 8,
                                                 .tied = variant % 2,
                                                 .embedding = 11,
                                                 .dense_block = 5,
                                                 .block = 9,
                                                 .head = 4};
                struct plan plan = {.dp = 2 + variant % 5, .zero = 3, .unit_layers = variant / 40 % 8};
                int64_t place = 0, all = 0;
                const int count = core_units_of(&plan, &units).all;
                for (int unit = 0; unit < count; unit++) {
                        assert_int_equal(core_unit_place(&plan, &units, unit), place);
                        const int64_t parameters = core_unit_parameters(&plan, &units, unit);
                        place += (parameters + plan.dp - 1) / plan.dp;
                        all += parameters;
                }
                assert_int_equal(core_unit_place(&plan, &units, count), place);
                assert_int_equal(all, 11 + 4 + units.dense * 5 + (7 - units.dense) * 9);
        }
}

static void random_job(struct job *job, uint64_t *random)
{
        const int ahead = (int)random_below(random, 3);
        open_job(job, ahead + 1 + (int)random_below(random, UNITS - 4),
                 random_below(random, 2) ? POLICY_AXONN : POLICY_1F1B,
                 1 + (int)random_below(random, MICRO_BATCHES));
        job->plan.prefetch = ahead;
        for (int i = 0; i < job->count; i++) {
                job->forward[i] = (struct moment){1 + random_number(random), 1.1 + random_number(random), 0};
                job->backward[i] = (struct moment){1 + random_number(random), 1.1 + random_number(random),
                                                   1.1 + random_number(random)};
        }
}

static void random_batches_take_what_the_closed_form_says(void **state)
{
        (void)state;
        uint64_t random = SEED;
        for (int pass = 0; pass < PASSES; pass++) {
                struct job job;
                struct phases phases;
                random_job(&job, &random);
                assert_close(stream_seconds(&job, &phases), expected_seconds(&job), 1e-12);
                assert_close(phases.gathered_seconds + job.work, phases.pipeline_seconds, 1e-12);
                assert_true(fabs(phases.bubble_fraction) < 1e-12);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(without_a_network_a_pass_is_its_work),
                cmocka_unit_test(longer_work_hides_the_network),
                cmocka_unit_test(a_longer_network_hides_the_work),
                cmocka_unit_test(blocking_reductions_hold_up_the_work),
                cmocka_unit_test(sums_between_groups_hide_behind_the_last_backward),
                cmocka_unit_test(weights_are_as_many_units_ahead_as_the_plan_says),
                cmocka_unit_test(fetches_of_shares_hide_behind_work),
                cmocka_unit_test(units_are_gathered_as_often_as_the_plan_says),
                cmocka_unit_test(spread_experts_are_gathered_by_those_that_have_them),
                cmocka_unit_test(shares_lie_one_behind_the_other),
                cmocka_unit_test(random_batches_take_what_the_closed_form_says),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
