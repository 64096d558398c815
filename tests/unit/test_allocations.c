/* What a training allocates while it runs: in its first batches queues and tables grow to what a schedule
 * needs, and after them our own code asks for no memory. The linker hands us its calls (tests/mk/real.mk).
 * Not covered: what libraries ask for (Open MPI, BLAS, the C library itself), several ranks, a trace, which
 * grows with what it records, and what a command does between batches (log, report, checkpoint). */
#include "runtime/driver_real.h"
#include "runtime/engine/options.h"
#include "tests/unit/numbers.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { FIRST = 2, MORE = 4 };

#ifdef __SANITIZE_ADDRESS__
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
        return "detect_leaks=0"; /* Open MPI keeps memory to its end */
}
#endif

static atomic_int calls; /* of any of these, by any thread */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__real_mmap(void *at, size_t length, int protection, int flags, int file, off_t offset);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_mmap(void *at, size_t length, int protection, int flags, int file, off_t offset);

void *__wrap_malloc(size_t size)
{
        atomic_fetch_add(&calls, 1);
        return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
        atomic_fetch_add(&calls, 1);
        return __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
        atomic_fetch_add(&calls, 1);
        return __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
        atomic_fetch_add(&calls, 1);
        return __real_aligned_alloc(alignment, size);
}

void *__wrap_mmap(void *at, size_t length, int protection, int flags, int file, off_t offset)
{
        atomic_fetch_add(&calls, 1);
        return __real_mmap(at, length, protection, flags, file, offset);
}

static struct net *net;

static const struct device_ops *real_ops;

/* Whether the host has launched all that it can: it then polls in vain, and knows of `settled` events of the
 * compute lane, or waits for all. */
enum { KERNELS = 1 << 16, TOKENS = 1 << 12 };
static atomic_bool launched_all;
static atomic_int settled;
static int events, polled, launched; /* the host's own: of the compute lane */
static bool of_compute[TOKENS];
static int events_before[KERNELS]; /* each kernel of the lane */
static int ran;                    /* the lane's own */

static void watched_launch(struct device *device, const struct kernel *kernel, const struct kernel_args *args)
{
        assert_true(launched < KERNELS);
        events_before[launched++] = events;
        atomic_store(&settled, polled);
        atomic_store(&launched_all, false);
        real_ops->launch(device, kernel, args);
}

static void watched_record(struct device *device, enum device_lane lane, int token)
{
        assert_in_range(token, 0, TOKENS - 1);
        of_compute[token] = lane == DEVICE_COMPUTE;
        events += of_compute[token];
        real_ops->record(device, lane, token);
}

static int watched_poll(struct device *device)
{
        const int token = real_ops->poll(device);
        if (token >= 0) {
                polled += of_compute[token];
        } else {
                atomic_store(&settled, polled);
                atomic_store(&launched_all, true);
        }
        return token;
}

static void watched_synchronize(struct device *device)
{
        atomic_store(&settled, INT_MAX);
        atomic_store(&launched_all, true);
        real_ops->synchronize(device);
}

/* Holds the lane up behind each kernel until the host has launched all that the events before it allow, so
 * that its queue becomes as long as the schedule lets it, however busy the machine is. */
static void hold(void *context, const struct kernel *kernel, double seconds, double end)
{
        (void)context;
        (void)kernel;
        (void)seconds;
        (void)end;
        const int before = events_before[ran++];
        while (!atomic_load(&launched_all) || atomic_load(&settled) < before)
                sched_yield();
}

/* What differs from one training to the next. */
struct training {
        const char *name;
        bool fused, mixed, bf16, offload, forward_only;
        int threads;
        double clip;
};

static struct options options_of(const struct training *t)
{
        struct options o;
        options_init(&o);
        o.gpt = (struct gpt){.name = "allocations",
                             .n_layer = 3,
                             .n_embd = 48,
                             .n_head = 3,
                             .vocab_size = 83,
                             .n_positions = 40};
        o.micro_batch_size = 2;
        o.batch_size = 10;
        o.seq_len = o.gpt.n_positions;
        o.clip = t->clip;
        o.fused = t->fused;
        o.mixed = t->mixed;
        o.bf16 = t->bf16;
        o.offload = t->offload;
        o.bucket_parameters = 20000;
        o.device = "cpu";
        return o;
}

/* Batches of a training on one rank, as trainer.c opens and runs it. */
static void check(const struct training *t)
{
        static const struct optim optim = {
                .lr = 1e-3, .steps = 100, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
        const struct options o = options_of(t);
        const struct stage stage = options_stage(&o, 0);
        const struct memory_plan memory = options_memory(&o, 0);
        struct core_stage part = options_core_stage(&o, 0, 0);
        struct rv_error_info err = {0};
        struct device *device = device_cpu_open(t->threads, &err);
        assert_non_null(device);
        struct driver_real driver = {.device = device,
                                     .net = net,
                                     .optim = &optim,
                                     .plan = options_plan(&o, t->forward_only),
                                     .mean = 1.0 / ((double)o.batch_size * o.seq_len),
                                     .loss_scale = 1};
        driver.nn = nn_open(device, &o.gpt, &stage, &memory, true, &err);
        assert_non_null(driver.nn);
        nn_initialize(driver.nn, 1, 1);
        void *core = malloc(core_bytes(&driver.plan, &part));
        assert_non_null(core);
        struct engine engine;
        struct ledger ledger;
        ledger_init(&ledger);
        engine_init(&engine, core_init(core, &driver.plan, &part), driver_real(&driver), NULL, &ledger, 0);
        const int opening = atomic_exchange(&calls, 0);
        assert_true(opening > 5); /* else nothing is counted */
        struct device_ops watched = *device->ops;
        watched.launch = watched_launch;
        watched.record = watched_record;
        watched.poll = watched_poll;
        watched.synchronize = watched_synchronize;
        real_ops = device->ops;
        device->ops = &watched;
        events = polled = launched = ran = 0;
        device->recorder = hold;
        for (int batch = 0; batch < FIRST; batch++, driver.step++)
                driver_real_run(&driver, &engine);
        device->ops->synchronize(device);
        device->recorder = NULL;
        device->ops = real_ops;
        const int first = atomic_exchange(&calls, 0);
        for (int batch = 0; batch < MORE; batch++, driver.step++)
                driver_real_run(&driver, &engine);
        const int more = atomic_load(&calls);
        print_message("%s: %d calls before, %d in %d batches, %d in %d more\n", t->name, opening, first,
                      FIRST, more, MORE);
        assert_int_equal(more, 0);
        free(core);
        engine_free(&engine);
        driver_real_free(&driver);
        nn_close(driver.nn);
        device->ops->close(device);
}

static void batches_after_the_first_allocate_nothing(void **state)
{
        static const struct training trainings[] = {
                {.name = "fp32", .threads = 1},
                {.name = "fp32, fused, clipped, 2 threads", .fused = true, .clip = 1, .threads = 2},
                {.name = "bf16, fused", .fused = true, .mixed = true, .bf16 = true, .threads = 2},
                {.name = "fp16, offloaded", .mixed = true, .offload = true, .threads = 1},
                {.name = "validation", .fused = true, .forward_only = true, .threads = 2},
        };
        (void)state;
        for (size_t i = 0; i < sizeof trainings / sizeof *trainings; i++)
                check(&trainings[i]);
}

int main(int argc, char **argv)
{
        struct rv_error_info err = {0};
        const struct CMUnitTest tests[] = {cmocka_unit_test(batches_after_the_first_allocate_nothing)};
        net = net_mpi_open(&argc, &argv, &err);
        if (!net) {
                fprintf(stderr, "test_allocations: %s\n", err.sentence);
                return 1;
        }
        net_mpi_groups(net, -1, -1, -1);
        const int failed = cmocka_run_group_tests(tests, NULL, NULL);
        net->ops->close(net);
        return failed;
}
