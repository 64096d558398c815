/* The first of the invariants that keep the two worlds one: the kernels that a real stage launches are, in
 * order, the list that models/workload gives for it. Recorded at the device, over random models and plans. */
#include "runtime/nn/nn.h"
#include "runtime/optim/optim.h"
#include "tests/unit/numbers.h"

static const uint64_t seed = 4711;

struct recording {
        struct kernel kernels[256];
        int count;
};

static void record_kernel(void *context, const struct kernel *kernel, double seconds, double end)
{
        (void)end;
        (void)seconds;
        struct recording *recording = context;
        if (recording->count <
            256) /* more is found out by assert_ran: an assertion belongs to the test's thread */
                recording->kernels[recording->count] = *kernel;
        recording->count++;
}

static void assert_same_kernel(const struct kernel *ran, const struct kernel *listed, int index)
{
        if (kernel_same(ran, listed) && ran->part == listed->part)
                return;
        print_error("kernel %d: ran %s (batch %lld, %lld x %lld x %lld, part %d), listed %s (batch %lld, "
                    "%lld x %lld "
                    "x %lld, part %d)\n",
                    index, kernel_name(ran->kind), (long long)ran->batch, (long long)ran->m,
                    (long long)ran->n, (long long)ran->k, ran->part, kernel_name(listed->kind),
                    (long long)listed->batch, (long long)listed->m, (long long)listed->n,
                    (long long)listed->k, listed->part);
        fail();
}

/* What ran since the last call is what `listed` says; begins anew. */
static void assert_ran(struct device *device, const struct kernel *listed, int count)
{
        struct recording *recording = device->recorder_context;
        device->ops->synchronize(device);
        assert_int_equal(recording->count, count);
        for (int i = 0; i < count; i++)
                assert_same_kernel(&recording->kernels[i], &listed[i], i);
        recording->count = 0;
}

/* In half precision the look for an overflow, and what follows one; then the norm, then updates of buckets,
 * the last of them smaller. What the norm counts must be what it is to count, too: see test_optim, where the
 * norms of the stages of every layout add up to one. */
static void check_optimizer(struct device *device, struct nn_stage *nn)
{
        const struct optim optim = {.lr = 1e-3, .steps = 10, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
        const int64_t bucket = nn->parameters / 3 + 1;
        const bool half = work_half(&nn->plan.work);
        struct kernel listed[3 + 3 * WORKLOAD_UPDATE_KERNELS];
        int count = 0, updates = 0;
        if (half) {
                optim_check_overflow(nn, 1);
                optim_clear(nn);
                listed[count++] = workload_overflow(nn->parameters, HALF_FP16);
                listed[count++] = workload_clear(nn->parameters, HALF_FP16);
        }
        optim_norm(nn);
        listed[count++] = workload_norm(&nn->gpt, &nn->stage, half);
        for (int64_t offset = 0; offset < nn->parameters; offset += bucket) {
                const int64_t left = nn->parameters - offset, size = left < bucket ? left : bucket;
                optim_update(nn, &optim, 0, offset, size, nn->plan.offload ? updates++ : -1);
                count += workload_update(size, half, &listed[count]);
        }
        assert_ran(device, listed, count);
}

static void check_stage(struct device *device, const struct gpt *gpt, const struct stage *stage,
                        const struct work *work, bool offload)
{
        const struct memory_plan plan = {.work = *work,
                                         .micro_batches = 2,
                                         .slots = 2,
                                         .input_buffers = stage->first ? 0 : 2,
                                         .gradient_buffers = 1,
                                         .offload = offload,
                                         .update_parameters = partition_parameters(gpt, stage) / 3 + 1,
                                         .update_buffers = offload ? 3 : 0};
        struct rv_error_info err = {0};
        struct nn_stage *nn = nn_open(device, gpt, stage, &plan, true, &err);
        assert_non_null(nn);
        nn_initialize(nn, seed);
        struct kernel listed[256];
        for (int loss_only = 0; loss_only < 2; loss_only++) {
                nn_forward(nn, 1, stage->first ? -1 : 1, 1, 1.0, loss_only);
                assert_ran(device, listed, workload_forward(gpt, stage, &plan.work, loss_only, listed));
        }
        nn_backward(nn, 1, stage->first ? -1 : 1, 1, 0);
        assert_ran(device, listed, workload_backward(gpt, stage, &plan.work, listed));
        check_optimizer(device, nn);
        nn_close(nn);
}

static void a_stage_launches_what_the_workload_lists(void **state)
{
        (void)state;
        print_message("seed %llu\n", (unsigned long long)seed);
        uint64_t random = seed;
        int checked = 0;
        for (int i = 0; i < 60; i++) {
                const int heads = 1 + (int)random_below(&random, 4);
                const struct gpt gpt = {.name = "random",
                                        .n_layer = 1 + (int)random_below(&random, 5),
                                        .n_embd = heads * (1 + (int)random_below(&random, 9)),
                                        .n_head = heads,
                                        .vocab_size = 1 + (int)random_below(&random, 50),
                                        .n_positions = 16,
                                        .tied = i % 2 == 0};
                const int stages = 1 + (int)random_below(&random, gpt.n_layer);
                const bool half = i % 3 > 0, offload = i % 3 == 2;
                const struct work work = {.micro_batch_size = 1 + (int)random_below(&random, 3),
                                          .seq_len = 1 + (int)random_below(&random, 16),
                                          .element_bytes = half ? 2 : sizeof(real),
                                          .recompute = random_below(&random, 2) == 1};
                struct rv_error_info err = {0};
                struct device *device = device_cpu_open(1, &err);
                assert_non_null(device);
                struct recording recording = {.count = 0};
                device->recorder = record_kernel;
                device->recorder_context = &recording;
                for (int s = 0; s < stages; s++, checked++) {
                        const struct stage stage = partition_stage(&gpt, stages, s);
                        check_stage(device, &gpt, &stage, &work, offload);
                }
                device->ops->close(device);
        }
        assert_true(checked > 100);
}

/* A pipeline's norms count every parameter of the model once, whatever the number of stages. */
static void the_norms_of_a_pipeline_count_each_parameter_once(void **state)
{
        (void)state;
        for (int tied = 0; tied < 2; tied++) {
                const struct gpt gpt = {.name = "tiny",
                                        .n_layer = 5,
                                        .n_embd = 8,
                                        .n_head = 2,
                                        .vocab_size = 11,
                                        .n_positions = 8,
                                        .tied = tied};
                for (int stages = 1; stages <= gpt.n_layer; stages++) {
                        int64_t counted = 0;
                        for (int s = 0; s < stages; s++) {
                                const struct stage stage = partition_stage(&gpt, stages, s);
                                counted += workload_norm(&gpt, &stage, false).m;
                        }
                        assert_int_equal(counted, gpt_parameters(&gpt));
                }
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_stage_launches_what_the_workload_lists),
                cmocka_unit_test(the_norms_of_a_pipeline_count_each_parameter_once),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
