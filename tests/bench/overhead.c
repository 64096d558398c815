/* What the core, the engine, the trace and the driver cost beside kernels: a batch of a GPT with one layer a
 * stage, so small that its kernels take no time, but for some that hold the device's lane for a millisecond
 * each: one in each layer's forward and one in its backward (the worst case), or every matrix product. A
 * batch's seconds are divided by those of the kernels on the rank that has the most to do, and in a pipeline
 * one forward and backward more, while it fills and drains. Kernels that are so long by the clock are a
 * GPU's: what polling takes from a core that computes is in polling.c. Beside it, of the rank where it is
 * most: what part of the batch the host's thread handles completions (the core, the engine, the trace, and
 * launching what comes next), that in seconds an operation, and what part of the batch it runs at all. Prints
 * name, unit, min, median, max. `overhead PP DP`, with so many ranks. */
#include "runtime/base/number.h"
#include "runtime/plan/options.h"
#include "runtime/real/driver_real.h"
#include "runtime/sched/policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MICRO_BATCHES = 32, REPEATS = 7 };

static const double HELD = 1e-3; /* seconds */

/* Kinds of kernels that take so long. */
#define KIND(kind) (UINT64_C(1) << (kind))
static const struct load {
        const char *name;
        uint64_t held;
} loads[] = {{"one kernel", KIND(KERNEL_SOFTMAX) | KIND(KERNEL_SOFTMAX_BACKWARD)},
             {"products", KIND(KERNEL_MATMUL)}};
static const enum policy_id policies[] = {POLICY_AXONN, POLICY_1F1B};
enum { LOADS = sizeof loads / sizeof *loads, POLICIES_MEASURED = sizeof policies / sizeof *policies };

/* What a batch gives; see above. */
enum figure { BATCH, HANDLING, OPERATION, HOST, FIGURES };
static const char *const units[FIGURES] = {[BATCH] = "batch / its kernels",
                                           [HANDLING] = "core and loop / batch",
                                           [OPERATION] = "seconds",
                                           [HOST] = "host's thread / batch"};

/* What the lane did: see device_record_fn. */
struct kernels {
        uint64_t hold; /* kinds */
        double seconds;
        int held;
};

static void hold(void *context, const struct kernel *kernel, double seconds, double end)
{
        struct kernels *k = context;
        if (!(k->hold & KIND(kernel->kind))) {
                k->seconds += seconds;
                return;
        }
        while (device_seconds() < end - seconds + HELD)
                ;
        k->seconds += HELD;
        k->held++;
}

struct bench {
        struct driver_real real;
        struct engine engine;
        struct trace trace;
        struct ledger ledger;
        struct kernels kernels;
        struct device *device;
};

static void fail(const char *sentence)
{
        fprintf(stderr, "overhead: %s\n", sentence);
        exit(1);
}

static struct options plan_of(int pp, int dp, enum policy_id policy)
{
        struct options o;
        options_init(&o);
        o.gpt = (struct gpt){
                .name = "bench", .n_layer = pp, .n_embd = 8, .n_head = 1, .vocab_size = 16, .n_positions = 8};
        o.pp = pp;
        o.dp = dp;
        o.policy = policy;
        o.micro_batch_size = 1;
        o.batch_size = MICRO_BATCHES * dp;
        o.seq_len = o.gpt.n_positions;
        o.bucket_parameters = 1 << 20;
        o.device = "cpu";
        return o;
}

static void open_bench(struct bench *b, struct net *net, const struct optim *optim, const struct options *o)
{
        struct rv_error_info err = {0};
        const struct plan plan = options_plan(o, false);
        const struct stage stage = options_stage(o, plan_stage(&plan, net->rank));
        const struct memory_plan memory = options_memory(o, stage.index);
        struct core_stage part = options_core_stage(o, stage.index, plan_shard(&plan, net->rank));
        const struct device_request request = {.threads = 1, .local_ranks = net->local_ranks};
        *b = (struct bench){.device = device_open("cpu", &request, &err)};
        if (!b->device)
                fail(err.sentence);
        b->real = (struct driver_real){.device = b->device,
                                       .net = net,
                                       .optim = optim,
                                       .plan = plan,
                                       .mean = 1.0 / ((double)o->batch_size * o->seq_len),
                                       .loss_scale = 1};
        b->real.nn = nn_open(b->device, &o->gpt, &stage, &memory, true, &err);
        if (!b->real.nn)
                fail(err.sentence);
        nn_initialize(b->real.nn, 1, 1);
        part.replica = plan_replica(&plan, net->rank);
        void *core = malloc(core_bytes(&plan, &part));
        if (!core)
                fail("no memory for the core");
        trace_init(&b->trace);
        ledger_init(&b->ledger);
        engine_init(&b->engine, core_init(core, &plan, &part), driver_real(&b->real), &b->trace, &b->ledger,
                    net->rank);
        b->engine.message_bytes = b->real.nn->layout.message;
        b->device->recorder = hold;
        b->device->recorder_context = &b->kernels;
}

static void close_bench(struct bench *b)
{
        free(b->engine.core);
        engine_free(&b->engine);
        driver_real_free(&b->real);
        trace_free(&b->trace);
        nn_close(b->real.nn);
        b->device->ops->close(b->device);
}

static double thread_seconds(void)
{
        struct timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* As driver_real_run: seconds that the host's thread handled completions, and how many. */
static double run_timed(struct bench *b, int *operations)
{
        double start = device_seconds();
        driver_real_start(&b->real, &b->engine);
        double handling = device_seconds() - start;
        for (*operations = 0; !engine_done(&b->engine);) {
                start = device_seconds();
                if (driver_real_poll(&b->real, &b->engine)) {
                        handling += device_seconds() - start;
                        ++*operations;
                } else {
                        driver_real_rest(&b->real);
                }
        }
        return handling;
}

/* One batch: its figures, each of the rank where it is most; on rank 0. */
static void run(struct bench *b, uint64_t hold_kinds, double figures[FIGURES])
{
        enum { KERNELS = FIGURES, GATHERED };
        struct net *net = b->real.net;
        double mine[GATHERED], all[2 * GATHERED] = {0}, max[GATHERED] = {0};
        int operations;
        b->kernels = (struct kernels){.hold = hold_kinds};
        net->ops->barrier(net);
        const double before = thread_seconds();
        mine[HANDLING] = run_timed(b, &operations);
        mine[HOST] = thread_seconds() - before;
        b->device->ops->synchronize(b->device);
        if (b->kernels.held < 2 * MICRO_BATCHES)
                fail("a forward or backward has no kernel that holds the lane");
        mine[BATCH] = b->engine.ended - b->engine.started;
        mine[KERNELS] = b->kernels.seconds;
        mine[OPERATION] = mine[HANDLING] / operations;
        net->ops->gather(net, mine, sizeof mine, all);
        for (int i = 0; i < net->ranks * GATHERED; i++)
                max[i % GATHERED] = fmax(max[i % GATHERED], all[i]);
        figures[BATCH] = max[BATCH] / (max[KERNELS] * (MICRO_BATCHES + b->real.plan.pp - 1) / MICRO_BATCHES);
        figures[HANDLING] = max[HANDLING] / max[BATCH];
        figures[OPERATION] = max[OPERATION];
        figures[HOST] = max[HOST] / max[BATCH];
}

static void print(const struct load *load, const struct plan *plan, double figures[REPEATS][FIGURES])
{
        for (int figure = 0; figure < FIGURES; figure++) {
                double values[REPEATS];
                for (int i = 0; i < REPEATS; i++)
                        values[i] = figures[i][figure];
                const double median = quantile(values, REPEATS, 0.5);
                printf("%s pp %d dp %d %s,%s,%.5g,%.5g,%.5g\n", policy_get(plan->policy)->name, plan->pp,
                       plan->dp, load->name, units[figure], values[0], median, values[REPEATS - 1]);
        }
}

/* All in turn, many times. */
static void measure(struct bench *benches)
{
        double figures[POLICIES_MEASURED][LOADS][REPEATS][FIGURES];
        for (int repeat = -1; repeat < REPEATS; repeat++) /* the first is not counted */
                for (int i = 0; i < POLICIES_MEASURED; i++)
                        for (int j = 0; j < LOADS; j++)
                                run(&benches[i], loads[j].held, figures[i][j][repeat < 0 ? 0 : repeat]);
        for (int i = 0; i < POLICIES_MEASURED; i++)
                for (int j = 0; j < LOADS; j++)
                        if (benches->real.net->rank == 0)
                                print(&loads[j], &benches[i].real.plan, figures[i][j]);
}

int main(int argc, char **argv)
{
        static const struct optim optim = {
                .lr = 1e-3, .steps = 1, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
        struct rv_error_info err = {0};
        struct net *net = net_mpi_open(&argc, &argv, &err);
        if (!net)
                fail(err.sentence);
        const int pp = argc == 3 ? atoi(argv[1]) : 0, dp = argc == 3 ? atoi(argv[2]) : 0;
        if (pp < 1 || dp < 1 || pp * dp != net->ranks || net->ranks > 2)
                fail("usage: overhead PP DP, with PP x DP ranks, at most 2");
        net_mpi_groups(net, (int[NET_WORLD]){pp > 1 ? 0 : -1, dp > 1 ? 0 : -1, -1});
        struct bench benches[POLICIES_MEASURED];
        for (int i = 0; i < POLICIES_MEASURED; i++) {
                const struct options o = plan_of(pp, dp, policies[i]);
                open_bench(&benches[i], net, &optim, &o);
        }
        measure(benches);
        for (int i = 0; i < POLICIES_MEASURED; i++)
                close_bench(&benches[i]);
        net->ops->close(net);
        return 0;
}
