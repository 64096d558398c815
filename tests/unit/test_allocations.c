/* What a training allocates while it runs: queues and tables grow to what a schedule needs, and beside that
 * our own code asks for no memory. The linker hands us its calls (tests/mk/real.mk). Not covered: what
 * libraries ask for (Open MPI, BLAS, the C library itself), several ranks, a trace, which grows with what it
 * records, and what a command does between batches (log, report, checkpoint). */
#include "runtime/real/driver_real.h"
#include "runtime/plan/options.h"
#include "tests/unit/numbers.h"

#include <stdatomic.h>
#include <sys/mman.h>

/* Queues and tables double when they are full. How full a queue gets is a matter of which of the host and its
 * lanes comes first, so that one may still grow late; but all of them together grow a handful of times (from
 * 64 commands to 1,024: four), while what is asked for in every batch, or in every fourth, is asked for more
 * often. */
enum { BATCHES = 64, MAX_CALLS = BATCHES / 4 };

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

/* What differs from one training to the next. */
struct training {
        const char *name;
        bool fused, offload, forward_only;
        enum dtype dtype;
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
        o.dtype = t->dtype;
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
        for (int batch = 0; batch < BATCHES; batch++, driver.step++)
                driver_real_run(&driver, &engine);
        const int asked = atomic_load(&calls);
        print_message("%s: %d calls before, %d in %d batches\n", t->name, opening, asked, BATCHES);
        assert_true(asked < MAX_CALLS);
        free(core);
        engine_free(&engine);
        driver_real_free(&driver);
        nn_close(driver.nn);
        device->ops->close(device);
}

static void batches_allocate_nothing_but_longer_queues(void **state)
{
        static const struct training trainings[] = {
                {.name = "fp32", .threads = 1},
                {.name = "fp32, fused, clipped, 2 threads", .fused = true, .clip = 1, .threads = 2},
                {.name = "bf16, fused", .fused = true, .dtype = DTYPE_BF16, .threads = 2},
                {.name = "fp16, offloaded", .dtype = DTYPE_FP16, .offload = true, .threads = 1},
                {.name = "validation", .fused = true, .forward_only = true, .threads = 2},
        };
        (void)state;
        for (size_t i = 0; i < sizeof trainings / sizeof *trainings; i++)
                check(&trainings[i]);
}

int main(int argc, char **argv)
{
        struct rv_error_info err = {0};
        const struct CMUnitTest tests[] = {cmocka_unit_test(batches_allocate_nothing_but_longer_queues)};
        net = net_mpi_open(&argc, &argv, &err);
        if (!net) {
                fprintf(stderr, "test_allocations: %s\n", err.sentence);
                return 1;
        }
        net_mpi_groups(net, (int[NET_WORLD]){-1, -1, -1});
        const int failed = cmocka_run_group_tests(tests, NULL, NULL);
        net->ops->close(net);
        return failed;
}
