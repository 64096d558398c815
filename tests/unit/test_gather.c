/* ZeRO-3's passes: weights gathered a unit ahead, gradients reduced behind. The core's stream of operations,
 * run on paper, takes what a closed form says. */
#include "runtime/engine/paper.h"
#include "runtime/engine/phases.h"
#include "tests/unit/noise.h"
#include "tests/unit/numbers.h"

#include <string.h>

enum { UNITS = 9, SEED = 1905, PASSES = 4000 };

/* Of a unit, in the order of work: seconds of its work, of its weights before it, of its gradients after it.
 */
struct moment {
        double compute, gather, scatter;
};

/* The closed form: seconds until all is computed and reduced. */
static double expected_seconds(const struct moment *steps, int count, bool blocking)
{
        double network = 0, began = 0, computed = 0;
        for (int i = 0; i < count; i++) {
                const double reduced = i > 0 ? steps[i - 1].scatter : 0;
                double weights = 0;
                if (blocking && reduced > 0)
                        began = computed = network = fmax(network, computed) + reduced;
                if (steps[i].gather > 0)
                        weights = network = fmax(network, began) + steps[i].gather;
                if (!blocking && reduced > 0)
                        network = fmax(network, computed) + reduced;
                began = fmax(weights, computed);
                computed = began + steps[i].compute;
        }
        return fmax(network, computed) + (count > 0 ? steps[count - 1].scatter : 0);
}

/* A model of so many units, and what they take. */
struct job {
        struct plan plan;
        struct core_units units;
        struct moment forward[UNITS], backward[UNITS];
        int count;
        double work; /* seconds of all that was computed */
};

static double job_seconds(void *context, int rank, const struct op *op)
{
        struct job *job = context;
        if (!op_of_pass(op))
                return 0;
        const struct moment *step = &(op->of == OP_FORWARD ? job->forward : job->backward)[op->segment];
        switch (op->kind) {
        case OP_ALL_GATHER:
                return step->gather;
        case OP_REDUCE_SCATTER:
                return step->scatter;
        default:
                job->work += rank == 0 ? step->compute : 0;
                return step->compute;
        }
}

static double stream_seconds(struct job *job, struct phases *phases)
{
        const struct core_stage stage = {.parameters = 1, .slot_bytes = 1, .units = job->units};
        struct paper *paper = paper_new(&(struct paper_setting){
                .plan = &job->plan, .stages = &stage, .physics = {.seconds = job_seconds, .context = job}});
        assert_non_null(paper);
        job->work = 0;
        const double seconds = paper_run(paper);
        const struct batch_times times[] = {engine_times(paper_engine(paper, 0)),
                                            engine_times(paper_engine(paper, 1))};
        *phases = phases_of(times, 2);
        paper_delete(paper);
        return seconds;
}

/* Two replicas; every unit has weights, and backward all but the head and the embedding gather them. */
static void open_job(struct job *job, int blocks, enum policy_id policy, int micro_batches)
{
        *job = (struct job){.count = blocks + 2, .units = {blocks, 1, 1, 1, 1}};
        assert_true(job->count <= UNITS);
        memset(&job->plan, 0, sizeof job->plan);
        job->plan.pp = job->plan.tp = job->plan.virtual_stages = 1;
        job->plan.dp = 2;
        job->plan.zero = 3;
        job->plan.policy = policy;
        job->plan.micro_batches = micro_batches;
        job->plan.bucket_parameters = job->plan.allreduce_buckets = job->plan.element_bytes = 1;
}

static bool gathers_backward(const struct job *job, int nth)
{
        return nth > 0 && nth < job->count - 1;
}

static void fill(struct job *job, double compute, double gather, double scatter)
{
        for (int i = 0; i < job->count; i++) {
                job->forward[i] = (struct moment){compute, gather, 0};
                job->backward[i] = (struct moment){compute, gathers_backward(job, i) ? gather : 0, scatter};
        }
}

static void assert_stream(struct job *job, double each)
{
        struct phases phases;
        assert_close(stream_seconds(job, &phases), job->plan.micro_batches * each, 1e-13);
}

static void without_a_network_a_pass_is_its_work(void **state)
{
        (void)state;
        struct job job;
        open_job(&job, 5, POLICY_AXONN, 3);
        fill(&job, 2, 0, 0);
        assert_stream(&job, 2 * 2 * job.count);
}

/* Work hides all but the first gather of a forward, and the last reduction. */
static void longer_work_hides_the_network(void **state)
{
        (void)state;
        struct job job;
        open_job(&job, 6, POLICY_GPIPE, 2);
        fill(&job, 5, 3, 0);
        assert_stream(&job, 3 + 2 * 5 * job.count);
        fill(&job, 5, 3, 2);
        assert_stream(&job, 3 + 2 * 5 * job.count + 2);
}

/* And a longer network hides all but the last work of a forward. Backward it begins beside the head's work,
 * with the first block's weights: from then on it is busy with a reduction and a gather for each, in turn. */
static void a_longer_network_hides_the_work(void **state)
{
        (void)state;
        struct job job;
        open_job(&job, 7, POLICY_1F1B, 2);
        fill(&job, 1, 4, 0);
        assert_stream(&job, 4 * job.count + 1 + 4 * 7 + 2);
        fill(&job, 1, 4, 4);
        assert_stream(&job, 4 * job.count + 1 + 4 * (7 + job.count));
}

/* Reductions that hold up all else: neither they nor the gathers behind them are hidden. */
static void blocking_reductions_hold_up_the_work(void **state)
{
        (void)state;
        struct job job;
        open_job(&job, 7, POLICY_1F1B, 2);
        job.plan.blocking = true;
        fill(&job, 5, 3, 2);
        assert_stream(&job, 3 + 5 * job.count + (5 + 2) * job.count + 3 * 7);
        fill(&job, 5, 0, 2);
        assert_stream(&job, 5 * job.count + (5 + 2) * job.count);
}

/* Not two units ahead: after a long one, the weights of the second one behind it are not there. */
static void weights_are_one_unit_ahead(void **state)
{
        (void)state;
        struct job job;
        open_job(&job, 7, POLICY_AXONN, 1);
        fill(&job, 0, 1, 0);
        job.forward[3].compute = 100;
        assert_stream(&job, 4 + 100 + (job.count - 5) + 7);
}

static void random_job(struct job *job, uint64_t *random)
{
        static const enum policy_id policies[] = {POLICY_AXONN, POLICY_GPIPE, POLICY_1F1B};
        open_job(job, 1 + (int)random_below(random, UNITS - 2), policies[random_below(random, 3)],
                 1 + (int)random_below(random, 4));
        job->plan.blocking = job->plan.policy != POLICY_AXONN && random_below(random, 2);
        int64_t *counts[] = {&job->units.embedding, &job->units.block, &job->units.head,
                             &job->units.head_gradient};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
                *counts[i] = random_below(random, 4) > 0; /* of nothing nothing is gathered or reduced */
        const struct core_units u = job->units;
        for (int i = 0; i < job->count; i++) {
                const bool first = i == 0, last = i == job->count - 1;
                const int64_t weights = first ? u.embedding : last ? u.head : u.block;
                const int64_t gradients = first ? u.head_gradient : last ? u.embedding : u.block;
                const double work[] = {1 + random_number(random), 1 + random_number(random)};
                job->forward[i] = (struct moment){work[0], weights ? 1.1 + random_number(random) : 0, 0};
                job->backward[i] = (struct moment){
                        work[1], gathers_backward(job, i) && u.block ? 1.1 + random_number(random) : 0,
                        gradients ? 1.1 + random_number(random) : 0};
        }
}

static void random_passes_take_what_the_closed_form_says(void **state)
{
        (void)state;
        uint64_t random = SEED;
        for (int pass = 0; pass < PASSES; pass++) {
                struct job job;
                struct phases phases;
                random_job(&job, &random);
                const bool blocking = job.plan.blocking;
                const double each = expected_seconds(job.forward, job.count, blocking) +
                                    expected_seconds(job.backward, job.count, blocking);
                assert_close(stream_seconds(&job, &phases), job.plan.micro_batches * each, 1e-12);
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
                cmocka_unit_test(weights_are_one_unit_ahead),
                cmocka_unit_test(random_passes_take_what_the_closed_form_says),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
