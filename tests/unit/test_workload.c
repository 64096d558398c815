/* The first of the invariants that keep the two worlds one: the kernels that a real stage launches are, in
 * order, the list that models/workload gives for it. Noted at the device, over random models and plans. */
#include "runtime/nn/nn.h"
#include "runtime/optim/optim.h"
#include "tests/unit/numbers.h"

#include <string.h>

static const uint64_t seed = 4711;

/* A device that notes what it is asked for and runs no kernel: the CPU device's memory and copies. */
enum { MAX_KERNELS = 256 };
struct listener {
        struct device_ops ops;
        struct kernel kernels[MAX_KERNELS];
        int count, grouped; /* launches since the last look; of them inside of a group */
        int groups;
        bool open;
        int reservations;
        int64_t reserved[MEMORY_SPACES];
};

static struct listener *listener_of(struct device *device)
{
        return device->recorder_context; /* a device has no other place for what its user knows of it */
}

static void note_launch(struct device *device, const struct kernel *kernel, const struct kernel_args *args)
{
        (void)args;
        struct listener *listener = listener_of(device);
        assert_true(listener->count < MAX_KERNELS);
        listener->kernels[listener->count++] = *kernel;
        listener->grouped += listener->open;
}

static void note_begin(struct device *device)
{
        struct listener *listener = listener_of(device);
        assert_false(listener->open);
        listener->open = true;
        listener->groups++;
}

static void note_end(struct device *device)
{
        assert_true(listener_of(device)->open);
        listener_of(device)->open = false;
}

static int note_reserve(struct device *device, const int64_t bytes[MEMORY_SPACES], struct rv_error_info *err)
{
        (void)err;
        struct listener *listener = listener_of(device);
        assert_int_equal(memory_total(&device->bytes, MEMORY_DEVICE), 0);
        assert_int_equal(memory_total(&device->bytes, MEMORY_HOST), 0);
        listener->reservations++;
        memcpy(listener->reserved, bytes, sizeof listener->reserved);
        return RV_OK;
}

static struct device *listener_open(struct listener *listener)
{
        struct rv_error_info err = {0};
        struct device *device = device_cpu_open(1, &err);
        assert_non_null(device);
        *listener = (struct listener){.ops = *device->ops};
        listener->ops.launch = note_launch;
        listener->ops.begin_group = note_begin;
        listener->ops.end_group = note_end;
        listener->ops.reserve = note_reserve;
        device->ops = &listener->ops;
        device->recorder_context = listener;
        return device;
}

static void assert_same_kernel(const struct kernel *ran, const struct kernel *listed, int index)
{
        if (kernel_same(ran, listed) && ran->part == listed->part)
                return;
        print_error("kernel %d: ran %s (format %d, batch %lld, %lld x %lld x %lld, part %d), listed %s "
                    "(format %d, batch %lld, %lld x %lld x %lld, part %d)\n",
                    index, kernel_name(ran->kind), ran->dtype, (long long)ran->batch, (long long)ran->m,
                    (long long)ran->n, (long long)ran->k, ran->part, kernel_name(listed->kind), listed->dtype,
                    (long long)listed->batch, (long long)listed->m, (long long)listed->n,
                    (long long)listed->k, listed->part);
        fail();
}

/* What was launched since the last call is what `listed` says, all of it or nothing in `groups`; begins anew.
 */
static void assert_launched(struct device *device, const struct kernel *listed, int count, int groups)
{
        struct listener *listener = listener_of(device);
        assert_int_equal(listener->count, count);
        for (int i = 0; i < count; i++)
                assert_same_kernel(&listener->kernels[i], &listed[i], i);
        assert_int_equal(listener->groups, groups);
        assert_int_equal(listener->grouped, groups ? count : 0);
        assert_false(listener->open);
        listener->count = listener->grouped = listener->groups = 0;
}

/* In mixed precision the look for an overflow, and what follows one; then the norm, then updates of buckets,
 * the last of them smaller. What the norm counts must be what it is to count, too: see test_optim, where the
 * norms of the stages of every layout add up to one. */
static void check_optimizer(struct device *device, struct nn_stage *nn)
{
        const struct optim optim = {.lr = 1e-3, .steps = 10, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
        const int64_t bucket = nn->parameters / 3 + 1;
        const enum dtype dtype = nn->plan.work.dtype;
        const bool wide = nn->plan.work.wide_gradients;
        const enum dtype gradients = wide ? DTYPE_FP32 : dtype;
        struct kernel listed[3 + 3 * WORKLOAD_UPDATE_KERNELS];
        int count = 0, updates = 0;
        if (dtype != DTYPE_FP32) {
                optim_check_overflow(nn, 0, nn->parameters, 1);
                optim_clear(nn);
                listed[count++] = workload_overflow(nn->parameters, dtype, wide);
                listed[count++] = workload_clear(nn->parameters, gradients);
        }
        optim_norm(nn);
        listed[count++] = workload_norm(&nn->gpt, &nn->stage, gradients);
        for (int64_t offset = 0; offset < nn->parameters; offset += bucket) {
                const int64_t left = nn->parameters - offset, size = left < bucket ? left : bucket;
                optim_update(nn, &optim, 0, offset, offset, size, nn->plan.offload ? updates++ : -1);
                count += workload_update(size, dtype, wide, &listed[count]);
                listed[count - 1].wide = wide;
        }
        assert_launched(device, listed, count, 0);
}

static struct memory_plan random_plan(const struct gpt *gpt, const struct stage *stage,
                                      const struct work *work, bool offload)
{
        return (struct memory_plan){.work = *work,
                                    .micro_batches = 2,
                                    .slots = 2,
                                    .input_buffers = stage->first ? 0 : 2,
                                    .gradient_buffers = 1,
                                    .deferred = 2,
                                    .offload = offload,
                                    .update_parameters = partition_parameters(gpt, stage) / 3 + 1,
                                    .update_buffers = offload ? 3 : 0};
}

static void check_stage(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                        bool offload)
{
        struct listener listener;
        struct device *device = listener_open(&listener);
        const struct memory_plan plan = random_plan(gpt, stage, work, offload);
        struct rv_error_info err = {0};
        struct nn_stage *nn = nn_open(device, gpt, stage, &plan, true, &err);
        assert_non_null(nn);
        nn_initialize(nn, seed, 1);
        struct kernel listed[MAX_KERNELS];
        for (int loss_only = 0; loss_only < 2; loss_only++) {
                nn_forward(nn, 0, 1, stage->first ? -1 : 1, 1, loss_only);
                assert_launched(device, listed, workload_forward(gpt, stage, &plan.work, loss_only, listed),
                                1);
        }
        nn_backward(nn, 0, 1, stage->first ? -1 : 1, 1, 0);
        assert_launched(device, listed, workload_backward(gpt, stage, &plan.work, listed), 1);
        nn_backward_part(nn, 1, stage->first ? -1 : 1, 1, 0, 1, PART_INPUT);
        assert_launched(device, listed, workload_backward_part(gpt, stage, &plan.work, PART_INPUT, listed),
                        1);
        nn_backward_part(nn, 1, stage->first ? -1 : 1, 1, -1, 1, PART_WEIGHT);
        assert_launched(device, listed, workload_backward_part(gpt, stage, &plan.work, PART_WEIGHT, listed),
                        1);
        check_optimizer(device, nn);
        nn_close(nn);
        device->ops->close(device);
}

/* Notes what shards do together among the kernels. */
static void note_collective(struct device *device, const struct nn_stage *nn)
{
        const struct nn_collective *t = nn->collective;
        struct listener *listener = listener_of(device);
        assert_true(listener->count < MAX_KERNELS);
        listener->kernels[listener->count++] =
                (struct kernel){.kind = t->kind, .dtype = (unsigned char)t->dtype, .m = t->elements};
}

/* A pass in segments, each a group of kernels, and what is done together between them: the list. */
static void assert_passed(struct device *device, const struct nn_stage *nn, const struct kernel *listed,
                          int count)
{
        struct listener *listener = listener_of(device);
        assert_int_equal(listener->count, count);
        for (int i = 0; i < count; i++) {
                const struct kernel *ran = &listener->kernels[i];
                if (!kernel_collective(listed[i].kind)) {
                        assert_same_kernel(ran, &listed[i], i);
                        continue;
                }
                assert_string_equal(kernel_name(ran->kind), kernel_name(listed[i].kind));
                assert_int_equal(ran->m, listed[i].m * listed[i].n);
                assert_int_equal(ran->dtype, listed[i].dtype);
        }
        assert_int_equal(listener->groups, nn->segment + 1);
        listener->count = listener->grouped = listener->groups = 0;
}

static void check_shard(const struct gpt *gpt, const struct stage *stage, const struct work *work)
{
        struct listener listener;
        struct device *device = listener_open(&listener);
        const struct memory_plan plan = random_plan(gpt, stage, work, false);
        struct rv_error_info err = {0};
        struct nn_stage *nn = nn_open(device, gpt, stage, &plan, true, &err);
        assert_non_null(nn);
        nn_initialize(nn, seed, 1);
        const int input = stage->first ? -1 : 1;
        struct kernel listed[MAX_KERNELS];
        for (int loss_only = 0; loss_only < 2; loss_only++) {
                for (nn->segment = 0; nn_forward(nn, 0, 1, input, 1, loss_only); nn->segment++)
                        note_collective(device, nn);
                assert_passed(device, nn, listed, workload_forward(gpt, stage, work, loss_only, listed));
        }
        for (nn->segment = 0; nn_backward(nn, 0, 1, input, 1, 0); nn->segment++)
                note_collective(device, nn);
        assert_passed(device, nn, listed, workload_backward(gpt, stage, work, listed));
        check_optimizer(device, nn);
        nn_close(nn);
        device->ops->close(device);
}

static void shards_launch_what_the_workload_lists(void **state)
{
        (void)state;
        uint64_t random = seed;
        for (int i = 0; i < 48; i++) {
                const int shards = i % 2 ? 2 : 4;
                const struct gpt gpt = {.name = "random",
                                        .n_layer = 1 + (int)random_below(&random, 3),
                                        .n_embd = 4 * (1 + (int)random_below(&random, 9)),
                                        .n_head = 4,
                                        .vocab_size = 1 + (int)random_below(&random, 50),
                                        .n_positions = 16,
                                        .tied = i % 3 == 0};
                const struct work work = {.micro_batch_size = 1 + (int)random_below(&random, 3),
                                          .seq_len = 4 * (1 + (int)random_below(&random, 4)),
                                          .dtype = i % 5 == 0 ? DTYPE_FP16 : DTYPE_FP32,
                                          .real_bytes = sizeof(real),
                                          .recompute = (enum recompute)random_below(&random, RECOMPUTES),
                                          .fused = i % 4 > 1,
                                          .sequence_parallel = i % 8 > 3};
                const int stages = 1 + (int)random_below(&random, gpt.n_layer);
                for (int s = 0; s < stages; s++) {
                        const struct stage whole = partition_stage(&gpt, stages, s);
                        const struct stage shard =
                                partition_shard(&whole, shards, (int)random_below(&random, shards));
                        check_shard(&gpt, &shard, &work);
                }
        }
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
                const bool mixed = i % 3 > 0, offload = i % 3 == 2, bf16 = mixed && i % 5 < 2,
                           fused = i % 4 > 1;
                const struct work work = {.micro_batch_size = 1 + (int)random_below(&random, 3),
                                          .seq_len = 1 + (int)random_below(&random, 16),
                                          .dtype = !mixed ? DTYPE_FP32
                                                   : bf16 ? DTYPE_BF16
                                                          : DTYPE_FP16,
                                          .wide_gradients = bf16 && i % 2 == 0,
                                          .real_bytes = sizeof(real),
                                          .recompute = (enum recompute)random_below(&random, RECOMPUTES),
                                          .fused = fused,
                                          .logits_bytes = i % 8 > 3 ? 1 : 0}; /* chunks of 16 rows, or one */
                for (int s = 0; s < stages; s++, checked++) {
                        const struct stage stage = partition_stage(&gpt, stages, s);
                        check_stage(&gpt, &stage, &work, offload);
                }
        }
        assert_true(checked > 100);
}

/* A device that sets memory aside is asked once, for what its stage then takes; not by a second one. */
static void memory_is_reserved_once_and_then_taken_whole(void **state)
{
        (void)state;
        const struct gpt gpt = {.name = "tiny",
                                .n_layer = 2,
                                .n_embd = 8,
                                .n_head = 2,
                                .vocab_size = 11,
                                .n_positions = 8,
                                .tied = true};
        for (int choice = 0; choice < 32; choice++) {
                const bool mixed = choice & 1, fused = choice & 2, optimizer = choice & 4;
                const struct work work = {.micro_batch_size = 5,
                                          .seq_len = 8,
                                          .dtype = mixed ? DTYPE_FP16 : DTYPE_FP32,
                                          .real_bytes = sizeof(real),
                                          .fused = fused,
                                          .logits_bytes = choice & 8 ? 1 : 0};
                const struct stage stages[] = {partition_stage(&gpt, 2, 0), partition_stage(&gpt, 2, 1)};
                struct rv_error_info err = {0};
                struct listener listener;
                struct device *device = listener_open(&listener);
                struct nn_stage *nn[2];
                for (int i = 0; i < 2; i++) {
                        const int s = choice & 16 ? 1 - i : i; /* either stage comes first */
                        const struct memory_plan plan = random_plan(&gpt, &stages[s], &work, mixed);
                        nn[i] = nn_open(device, &gpt, &stages[s], &plan, optimizer, &err);
                        assert_non_null(nn[i]);
                        assert_int_equal(listener.reservations, 1);
                        for (int space = 0; i == 0 && space < MEMORY_SPACES; space++)
                                assert_int_equal(memory_total(&device->bytes, (enum memory_space)space),
                                                 listener.reserved[space]);
                }
                nn_close(nn[0]);
                nn_close(nn[1]);
                device->ops->close(device);
        }
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
                                counted += workload_norm(&gpt, &stage, DTYPE_FP32).m;
                        }
                        assert_int_equal(counted, gpt_parameters(&gpt));
                }
        }
}

/* Asked for twice each pass, of more works than the table has room for. */
static void a_table_lists_what_a_workload_of_its_own_does(void **state)
{
        (void)state;
        const struct gpt gpt = {.name = "tiny",
                                .n_layer = 4,
                                .n_embd = 8,
                                .n_head = 2,
                                .vocab_size = 64,
                                .n_positions = 8,
                                .tied = true};
        const struct stage stage = partition_stage(&gpt, 1, 0);
        struct workloads table = {0};
        struct kernel listed[MAX_KERNELS], known[MAX_KERNELS];
        for (int i = 0; i < WORKLOADS + 24; i++) {
                const struct work work = {.micro_batch_size = 1 + i % (WORKLOADS + 8),
                                          .seq_len = 8,
                                          .real_bytes = sizeof(real),
                                          .recompute = (enum recompute)(i % RECOMPUTES),
                                          .fused = i % 3 == 0,
                                          .logits_bytes = i < 16 ? i % 2 : 0};
                for (int backward = 0; backward < 2; backward++) {
                        const int count = backward ? workload_backward(&gpt, &stage, &work, listed)
                                                   : workload_forward(&gpt, &stage, &work, false, listed);
                        const struct workload *w = workloads_get(&table, &gpt, &work, 1);
                        assert_non_null(w);
                        for (int again = 0; again < 2; again++) {
                                memset(known, 0, sizeof known);
                                assert_int_equal(backward
                                                         ? workload_list_backward(w, &stage, PART_BOTH, known)
                                                         : workload_list_forward(w, &stage, known),
                                                 count);
                                for (int k = 0; k < count; k++)
                                        assert_same_kernel(&known[k], &listed[k], k);
                        }
                }
        }
        workloads_free(&table);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_stage_launches_what_the_workload_lists),
                cmocka_unit_test(shards_launch_what_the_workload_lists),
                cmocka_unit_test(memory_is_reserved_once_and_then_taken_whole),
                cmocka_unit_test(the_norms_of_a_pipeline_count_each_parameter_once),
                cmocka_unit_test(a_table_lists_what_a_workload_of_its_own_does),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
