/* The contract of runtime/device/device.h, over the CPU device. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "runtime/nn/nn.h"
#include "tests/unit/numbers.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct device *open_cpu(void)
{
        struct rv_error_info err = {0};
        struct device *device = device_cpu_open(1, &err);
        assert_non_null(device);
        return device;
}

/* Kernels in the order in which they ran. */
struct recording {
        struct kernel kernels[6000];
        int count;
        double min_seconds;
};

static void record_kernel(void *context, const struct kernel *kernel, double seconds, double end)
{
        (void)end;
        struct recording *recording = context;
        recording->kernels[recording->count++] = *kernel;
        recording->min_seconds = fmin(recording->min_seconds, seconds);
}

static void kernels_run_in_the_order_of_their_launch(void **state)
{
        (void)state;
        struct device *device = open_cpu();
        struct recording *recording = calloc(1, sizeof *recording);
        assert_non_null(recording);
        device->recorder = record_kernel;
        device->recorder_context = recording;
        real x[6000] = {0};
        double sum;
        for (int i = 0; i < 6000; i++) /* far more than a queue holds at first */
                kernels_squared_norm(device, &sum, x, i, i % 2 == 0);
        device->ops->synchronize(device);
        assert_int_equal(recording->count, 6000);
        for (int i = 0; i < 6000; i++) {
                const struct kernel expected = {
                        .kind = KERNEL_SQUARED_NORM, .accumulate = i % 2 == 0, .batch = 1, .m = i};
                assert_true(kernel_same(&recording->kernels[i], &expected));
        }
        assert_true(recording->min_seconds >= 0);
        device->ops->close(device);
        free(recording);
}

static void copies_on_a_lane_run_in_order(void **state)
{
        (void)state;
        struct device *device = open_cpu();
        enum { CELLS = 5000 };
        int32_t cells[CELLS] = {42};
        for (int i = 1; i < CELLS; i++) /* each copies what the one before it brought */
                device->ops->copy(device, DEVICE_DEVICE_TO_HOST, &cells[i], &cells[i - 1], sizeof *cells);
        device->ops->synchronize(device);
        for (int i = 0; i < CELLS; i++)
                assert_int_equal(cells[i], 42);
        device->ops->close(device);
}

/* Holds the compute lane until the test lets it go. */
static void hold_lane(void *context, const struct kernel *kernel, double seconds, double end)
{
        (void)end;
        (void)kernel;
        (void)seconds;
        atomic_bool *go = context;
        while (!atomic_load(go))
                sched_yield();
}

static int wait_for_token(struct device *device)
{
        int token;
        while ((token = device->ops->poll(device)) < 0)
                sched_yield();
        return token;
}

static void lanes_run_at_the_same_time(void **state)
{
        (void)state;
        struct device *device = open_cpu();
        atomic_bool go = false;
        device->recorder = hold_lane;
        device->recorder_context = &go;
        real x[4] = {1, 2, 3, 4};
        double sum = 0;
        int32_t from = 7, up = 0, down = 0;
        kernels_squared_norm(device, &sum, x, 4, false);
        device->ops->record(device, DEVICE_COMPUTE, 0);
        device->ops->copy(device, DEVICE_HOST_TO_DEVICE, &up, &from, sizeof from);
        device->ops->record(device, DEVICE_HOST_TO_DEVICE, 1);
        assert_int_equal(wait_for_token(device), 1); /* the compute lane is held all the while */
        device->ops->copy(device, DEVICE_DEVICE_TO_HOST, &down, &up, sizeof from);
        device->ops->record(device, DEVICE_DEVICE_TO_HOST, 2);
        assert_int_equal(wait_for_token(device), 2);
        assert_int_equal(down, 7);
        assert_int_equal(device->ops->poll(device), -1);
        atomic_store(&go, true);
        assert_int_equal(wait_for_token(device), 0);
        assert_true(sum == 30);
        device->ops->close(device);
}

static void poll_returns_each_token_once_and_a_lane_s_in_order(void **state)
{
        (void)state;
        struct device *device = open_cpu();
        enum { TOKENS = 9000 };
        bool seen[TOKENS] = {false};
        int last[DEVICE_LANES] = {-1, -1, -1};
        for (int token = 0; token < TOKENS; token++)
                device->ops->record(device, (enum device_lane)(token % DEVICE_LANES), token);
        for (int i = 0; i < TOKENS; i++) {
                const int token = wait_for_token(device);
                assert_in_range(token, 0, TOKENS - 1);
                assert_false(seen[token]);
                seen[token] = true;
                assert_true(token > last[token % DEVICE_LANES]);
                last[token % DEVICE_LANES] = token;
        }
        device->ops->synchronize(device);
        assert_int_equal(device->ops->poll(device), -1);
        device->ops->close(device);
}

static void an_event_is_reached_after_the_work_before_it(void **state)
{
        (void)state;
        struct device *device = open_cpu();
        enum { N = 20000, ROUNDS = 200 };
        static real x[N];
        for (int i = 0; i < N; i++)
                x[i] = 1;
        for (int round = 0; round < ROUNDS; round++) {
                double sum = 0;
                kernels_squared_norm(device, &sum, x, N, false);
                device->ops->record(device, DEVICE_COMPUTE, round);
                assert_int_equal(wait_for_token(device), round);
                assert_true(sum == N);
        }
        device->ops->close(device);
}

struct slow_lane {
        atomic_bool started, finished;
};

static void be_slow(void *context, const struct kernel *kernel, double seconds, double end)
{
        (void)end;
        (void)kernel;
        (void)seconds;
        struct slow_lane *slow = context;
        atomic_store(&slow->started, true);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        atomic_store(&slow->finished, true);
}

static void synchronize_waits_for_what_is_running(void **state)
{
        (void)state;
        struct device *device = open_cpu();
        struct slow_lane slow = {false, false};
        device->recorder = be_slow;
        device->recorder_context = &slow;
        real x = 1;
        double sum;
        kernels_squared_norm(device, &sum, &x, 1, false);
        while (!atomic_load(&slow.started)) /* now the queue is empty, and the lane at work */
                sched_yield();
        device->ops->synchronize(device);
        assert_true(atomic_load(&slow.finished));
        device->ops->close(device);
}

static void memory_is_zeroed_aligned_and_counted_by_space_and_category(void **state)
{
        (void)state;
        struct device *device = open_cpu();
        struct memory_bytes expected = {0};
        uint64_t random = 5;
        for (int i = 0; i < 600; i++) {
                const enum memory_space space = (enum memory_space)random_below(&random, MEMORY_SPACES);
                const enum memory_category category =
                        (enum memory_category)random_below(&random, MEMORY_CATEGORIES);
                const int64_t bytes = random_below(&random, 5000);
                unsigned char *memory = device->ops->alloc(device, space, category, bytes);
                assert_non_null(memory);
                assert_int_equal((uintptr_t)memory % MEMORY_ALIGNMENT, 0);
                for (int64_t byte = 0; byte < bytes; byte++)
                        assert_int_equal(memory[byte], 0);
                memset(memory, 255, (size_t)bytes);
                expected.in[space][category] += (bytes + 63) / 64 * 64;
        }
        assert_memory_equal(&device->bytes, &expected, sizeof expected);
        device->ops->close(device);
}

static bool allocates(struct device *device, enum memory_space space, int64_t bytes)
{
        return device->ops->alloc(device, space, MEMORY_WEIGHTS, bytes) != NULL;
}

static void each_space_has_its_limit_and_both_one_together(void **state)
{
        (void)state;
        struct device *device = open_cpu();
        device->limit_bytes[MEMORY_DEVICE] = 10000; /* 156 x 64 + 16 */
        device->limit_bytes[MEMORY_HOST] = 20032;
        device->shared_limit_bytes = 25024;
        assert_false(allocates(device, MEMORY_DEVICE, 10001));
        assert_true(allocates(device, MEMORY_DEVICE, 4000)); /* 4032 */
        assert_false(allocates(device, MEMORY_DEVICE, 5953));
        assert_true(allocates(device, MEMORY_DEVICE, 5952)); /* to 9984, and the 16 bytes are no 64 */
        assert_false(allocates(device, MEMORY_DEVICE, 1));
        assert_false(allocates(device, MEMORY_HOST, 15041)); /* its own limit would allow it */
        assert_true(allocates(device, MEMORY_HOST, 15040));
        assert_false(allocates(device, MEMORY_HOST, 1)); /* both are full together */
        assert_int_equal(memory_total(&device->bytes, MEMORY_DEVICE), 9984);
        assert_int_equal(memory_total(&device->bytes, MEMORY_HOST), 15040);
        device->shared_limit_bytes = 0; /* two memories: no common limit */
        assert_true(allocates(device, MEMORY_HOST, 20032 - 15040));
        assert_false(allocates(device, MEMORY_HOST, 1));
        device->ops->close(device);
}

static void a_device_begins_with_the_memory_of_the_machine(void **state)
{
        (void)state;
        struct device *device = open_cpu();
        assert_int_equal(device->limit_bytes[MEMORY_DEVICE], device_cpu_memory_bytes());
        assert_int_equal(device->limit_bytes[MEMORY_HOST], device_cpu_memory_bytes());
        assert_int_equal(device->shared_limit_bytes, device_cpu_memory_bytes());
        device->ops->close(device);
}

struct spent {
        double seconds, busy_seconds; /* on the clock, and of the processor by all threads */
};

/* From the first of `count` copies of `bytes` each, queued at once on `lane`, to the event behind them. What
 * arrives is checked. */
static struct spent time_copies(struct device *device, enum device_lane lane, int count, int64_t bytes)
{
        unsigned char *from = malloc((size_t)bytes), *to = calloc((size_t)count, (size_t)bytes);
        assert_true(from && to);
        for (int64_t i = 0; i < bytes; i++)
                from[i] = (unsigned char)(i * 7 + i / 1000);
        const clock_t before = clock();
        const double start = device_seconds();
        for (int i = 0; i < count; i++)
                device->ops->copy(device, lane, to + i * bytes, from, bytes);
        device->ops->record(device, lane, 1);
        while (device->ops->poll(device) < 0)
                nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        const struct spent spent = {device_seconds() - start, (double)(clock() - before) / CLOCKS_PER_SEC};
        for (int i = 0; i < count; i++)
                assert_memory_equal(to + i * bytes, from, (size_t)bytes);
        free(from);
        free(to);
        return spent;
}

/* The lower bound always holds. The upper one counts what the copies take by themselves in the same moment,
 * and is for one of many tries to keep: others may have the processors meanwhile. */
static void check_pace(double bytes_per_second, enum device_lane lane, int count, int64_t bytes)
{
        enum { TRIES = 50 };
        struct device *free_running = open_cpu(), *paced = open_cpu();
        const double link = (double)count * (double)bytes / bytes_per_second;
        double min = INFINITY;
        paced->host_link_bytes_per_second = bytes_per_second;
        for (int i = 0; i < TRIES && min > 2; i++) {
                const double seconds = time_copies(paced, lane, count, bytes).seconds;
                assert_true(seconds >= link);
                min = fmin(min, seconds / (link + time_copies(free_running, lane, count, bytes).seconds));
        }
        if (min > 2)
                fail_msg("%d copies of %lld bytes took %.2f times as long as they and the link take", count,
                         (long long)bytes, min);
        free_running->ops->close(free_running);
        paced->ops->close(paced);
}

static void copies_are_paced_to_the_link(void **state)
{
        (void)state;
        check_pace(1e9, DEVICE_HOST_TO_DEVICE, 1, 8 << 20); /* 8.4 ms */
        check_pace(1e9, DEVICE_DEVICE_TO_HOST, 1, (8 << 20) + 1);
        check_pace(1e9, DEVICE_DEVICE_TO_HOST, 7, 1234567);
        check_pace(1e8, DEVICE_HOST_TO_DEVICE, 2000, 1001); /* 10 us each: waking up late must not add up */
}

static void a_paced_copy_leaves_the_processor_to_others(void **state)
{
        (void)state;
        struct device *device = open_cpu();
        device->host_link_bytes_per_second = 1e8;
        const struct spent spent = time_copies(device, DEVICE_HOST_TO_DEVICE, 1, 5 << 20);
        assert_true(spent.seconds >= 0.05);
        assert_true(spent.busy_seconds < spent.seconds / 2);
        device->ops->close(device);
}

static void a_rank_has_the_threads_of_its_processors_or_its_share_of_all(void **state)
{
        struct rv_error_info err;
        cpu_set_t mine, one;
        (void)state;
        unsetenv("OMP_NUM_THREADS");
        assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
        const int all = (int)sysconf(_SC_NPROCESSORS_ONLN);
        assert_int_equal(device_cpu_threads(1, &err), CPU_COUNT(&mine));
        assert_in_range(device_cpu_threads(2, &err), 1, all > 1 ? all / 2 : 1);
        assert_int_equal(device_cpu_threads(2 * all, &err), 1);
        CPU_ZERO(&one);
        for (size_t i = 0; CPU_COUNT(&one) == 0; i++)
                if (CPU_ISSET(i, &mine))
                        CPU_SET(i, &one);
        assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
        assert_int_equal(device_cpu_threads(1, &err), 1);
        setenv("OMP_NUM_THREADS", "3,2", 1);
        assert_int_equal(device_cpu_threads(2, &err), 3);
        setenv("OMP_NUM_THREADS", "3 or 4", 1);
        assert_int_equal(device_cpu_threads(2, &err), RV_EINPUT);
        assert_string_equal(err.sentence, "OMP_NUM_THREADS is '3 or 4': must be 1 to 4096 threads");
        unsetenv("OMP_NUM_THREADS");
        assert_int_equal(sched_setaffinity(0, sizeof mine, &mine), 0);
}

/* A compute lane whose kernel ends when it is let go. */
static void be_held(void *context, const struct kernel *kernel, double seconds, double end)
{
        (void)end;
        (void)kernel;
        (void)seconds;
        while (!atomic_load((atomic_bool *)context))
                sched_yield();
}

/* A wait that slept would last for days while the lane is held. */
static void a_host_with_a_processor_of_its_own_looks_for_a_while_before_it_sleeps(void **state)
{
        (void)state;
        const double days = 1e6;
        struct device *device = open_cpu();
        atomic_bool released = false;
        device->recorder = be_held;
        device->recorder_context = &released;
        real x = 1;
        double sum;
        device->awake_seconds = days;
        kernels_squared_norm(device, &sum, &x, 1, false);
        device->ops->record(device, DEVICE_COMPUTE, 1);
        device->ops->wait(device, days);
        assert_int_equal(device->ops->poll(device), -1);
        device->awake_seconds = 0; /* the while is over */
        const double start = device_seconds();
        device->ops->wait(device, 0.01);
        assert_true(device_seconds() >= start + 0.01);
        assert_int_equal(device->ops->poll(device), -1);
        atomic_store(&released, true);
        device->ops->wait(device, days);
        assert_int_equal(device->ops->poll(device), 1);
        device->ops->close(device);
}

static void only_a_host_beside_fewer_threads_than_processors_has_one_of_its_own(void **state)
{
        (void)state;
        const int share = device_cpu_share(1);
        for (int threads = 1; threads <= share; threads++) {
                struct rv_error_info err = {0};
                const struct device_request request = {.threads = threads, .local_ranks = 1};
                struct device *device = device_open("cpu", &request, &err);
                assert_non_null(device);
                assert_int_equal(device->awake_seconds > 0, threads < share);
                device->ops->close(device);
        }
}

static void more_memory_than_there_is_is_refused(void **state)
{
        (void)state;
        struct device *device = open_cpu();
        const struct memory_bytes none = {0};
        assert_false(allocates(device, MEMORY_DEVICE, (int64_t)1 << 50));
        assert_false(allocates(device, MEMORY_HOST, INT64_MAX));
        assert_memory_equal(&device->bytes, &none, sizeof none);

        struct rv_error_info err = {0};
        const struct gpt huge = {.name = "huge",
                                 .n_layer = 400,
                                 .n_embd = 20000,
                                 .n_head = 100,
                                 .vocab_size = 50000,
                                 .n_positions = 1024,
                                 .tied = true};
        const struct memory_plan plan = {.work = {1, 1024, .real_bytes = sizeof(real)},
                                         .micro_batches = 1,
                                         .slots = 1,
                                         .gradient_buffers = 1};
        const struct stage stage = partition_stage(&huge, 1, 0);
        assert_null(nn_open(device, &huge, &stage, &plan, true, &err));
        assert_non_null(strstr(err.sentence, "huge"));
        assert_int_equal(err.code, RV_ESYSTEM);
        device->ops->close(device);
}

/* A small model and plan drawn at random. */
static struct gpt random_gpt(uint64_t *random)
{
        const int heads = 1 + (int)random_below(random, 4);
        return (struct gpt){.name = "random",
                            .n_layer = 1 + (int)random_below(random, 5),
                            .n_embd = heads * (1 + (int)random_below(random, 9)),
                            .n_head = heads,
                            .vocab_size = 1 + (int)random_below(random, 50),
                            .n_positions = 16,
                            .tied = random_below(random, 2) == 1};
}

static void a_stage_takes_the_memory_that_is_predicted_to_the_byte(void **state)
{
        (void)state;
        uint64_t random = 77;
        for (int i = 0; i < 200; i++) {
                const struct gpt gpt = random_gpt(&random);
                const int stages = 1 + (int)random_below(&random, gpt.n_layer);
                const struct stage stage = partition_stage(&gpt, stages, (int)random_below(&random, stages));
                const bool offloads = random_below(&random, 2) == 1;
                const bool mixed = random_below(&random, 2) == 1;
                const int64_t staged = random_below(&random, 3),
                              parameters = partition_parameters(&gpt, &stage);
                const struct memory_plan plan = {
                        .work = {.micro_batch_size = 1 + (int)random_below(&random, 3),
                                 .seq_len = 1 + (int)random_below(&random, 16),
                                 .dtype = mixed ? DTYPE_FP16 : DTYPE_FP32,
                                 .real_bytes = sizeof(real),
                                 .recompute = (enum recompute)random_below(&random, RECOMPUTES)},
                        .micro_batches = 1 + (int)random_below(&random, 5),
                        .slots = 1 + (int)random_below(&random, 4),
                        .input_buffers = stage.first ? 0 : 2,
                        .gradient_buffers = 1 + (int)random_below(&random, 3),
                        .host_slots = (int)random_below(&random, 3),
                        .stage_messages = random_below(&random, 2) == 1,
                        .staged_gradients = staged == 2 ? parameters : staged * (parameters / 2),
                        .offload = mixed && offloads,
                        .update_parameters = mixed && offloads ? 1 + random_below(&random, 3000) : 0,
                        .update_buffers = mixed && offloads ? 3 : 0};
                struct device *device = open_cpu();
                struct rv_error_info err = {0};
                struct nn_stage *nn = nn_open(device, &gpt, &stage, &plan, true, &err);
                assert_non_null(nn);
                struct memory_bytes predicted;
                memory_stage(&gpt, &stage, &plan, &predicted);
                assert_memory_equal(&device->bytes, &predicted, sizeof predicted);
                if (staged == 2)
                        assert_ptr_equal(nn_host_gradients(nn, 1), nn_at(nn, nn->host_gradients, 1));
                if (staged == 1) /* the last tensor of the last stage, or the first of the first */
                        assert_ptr_equal(nn_host_gradients(nn, stage.last ? parameters - parameters / 2 : 0),
                                         nn->host_gradients);
                nn_close(nn);
                device->ops->close(device);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(kernels_run_in_the_order_of_their_launch),
                cmocka_unit_test(copies_on_a_lane_run_in_order),
                cmocka_unit_test(lanes_run_at_the_same_time),
                cmocka_unit_test(poll_returns_each_token_once_and_a_lane_s_in_order),
                cmocka_unit_test(an_event_is_reached_after_the_work_before_it),
                cmocka_unit_test(synchronize_waits_for_what_is_running),
                cmocka_unit_test(memory_is_zeroed_aligned_and_counted_by_space_and_category),
                cmocka_unit_test(each_space_has_its_limit_and_both_one_together),
                cmocka_unit_test(a_device_begins_with_the_memory_of_the_machine),
                cmocka_unit_test(copies_are_paced_to_the_link),
                cmocka_unit_test(a_paced_copy_leaves_the_processor_to_others),
                cmocka_unit_test(a_rank_has_the_threads_of_its_processors_or_its_share_of_all),
                cmocka_unit_test(a_host_with_a_processor_of_its_own_looks_for_a_while_before_it_sleeps),
                cmocka_unit_test(only_a_host_beside_fewer_threads_than_processors_has_one_of_its_own),
                cmocka_unit_test(more_memory_than_there_is_is_refused),
                cmocka_unit_test(a_stage_takes_the_memory_that_is_predicted_to_the_byte),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
