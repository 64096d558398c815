/* What the core, the engine, the trace and the driver cost beside kernels: a batch of a GPT with one layer a
 * stage, so small that its kernels take no time, but for one of each layer's forward and one of its backward,
 * which hold the device's lane for a millisecond. A batch's seconds are divided by those of the kernels on
 * the rank that has the most to do, and in a pipeline one forward and backward more, before it and behind it.
 * So long kernels by the clock are a GPU's: what polling takes from a core that computes is in polling.c.
 * Prints name, min, median, max. `overhead PP DP`, with so many ranks. */
#include "runtime/driver_real.h"
#include "runtime/engine/report.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { MICRO_BATCHES = 64, REPEATS = 11 };

static const double HELD = 1e-3; /* seconds */

/* What the lane did: see device_record_fn. */
struct kernels {
        double seconds;
        int held;
};

static void hold(void *context, const struct kernel *kernel, double seconds, double end)
{
        struct kernels *k = context;
        if (kernel->kind != KERNEL_SOFTMAX && kernel->kind != KERNEL_SOFTMAX_BACKWARD) {
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
        struct core_stage part = options_core_stage(o, stage.index, 0);
        *b = (struct bench){.device = device_cpu_open(1, &err)};
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
        nn_initialize(b->real.nn, 1);
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

/* One batch: its seconds on the slowest rank through those of an ideal one; on rank 0. */
static double run(struct bench *b)
{
        struct net *net = b->real.net;
        const int ranks = net->ranks;
        double mine[2], all[2 * 2] = {0}, longest = 0, most = 0;
        b->kernels = (struct kernels){0};
        net->ops->barrier(net);
        driver_real_run(&b->real, &b->engine);
        b->device->ops->synchronize(b->device);
        if (b->kernels.held != 2 * MICRO_BATCHES)
                fail("a forward and backward are to hold the lane twice; is softmax no kernel any more?");
        mine[0] = b->engine.ended - b->engine.started;
        mine[1] = b->kernels.seconds;
        net->ops->gather(net, mine, sizeof mine, all);
        for (int i = 0; i < ranks; i++) {
                longest = fmax(longest, all[2 * i]);
                most = fmax(most, all[2 * i + 1]);
        }
        return longest / (most * (MICRO_BATCHES + b->real.plan.pp - 1) / MICRO_BATCHES);
}

static void print(const char *schedule, const struct plan *plan, double *ratios)
{
        report_quantile(ratios, REPEATS, 0.5);
        printf("%s pp %d dp %d,%.5f,%.5f,%.5f\n", schedule, plan->pp, plan->dp, ratios[0],
               report_quantile(ratios, REPEATS, 0.5), ratios[REPEATS - 1]);
}

int main(int argc, char **argv)
{
        static const struct optim optim = {
                .lr = 1e-3, .steps = 1, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
        static const enum policy_id policies[2] = {POLICY_AXONN, POLICY_1F1B};
        struct rv_error_info err = {0};
        struct net *net = net_mpi_open(&argc, &argv, &err);
        if (!net)
                fail(err.sentence);
        const int pp = argc == 3 ? atoi(argv[1]) : 0, dp = argc == 3 ? atoi(argv[2]) : 0;
        if (pp < 1 || dp < 1 || pp * dp != net->ranks || net->ranks > 2)
                fail("usage: overhead PP DP, with PP x DP ranks, at most 2");
        net_mpi_groups(net, pp > 1 ? 0 : -1, dp > 1 ? 0 : -1, -1);
        struct bench b[2];
        double ratios[2][REPEATS];
        for (int i = 0; i < 2; i++) {
                const struct options o = plan_of(pp, dp, policies[i]);
                open_bench(&b[i], net, &optim, &o);
        }
        for (int repeat = -1; repeat < REPEATS; repeat++) /* the first is not counted */
                for (int i = 0; i < 2; i++)
                        ratios[i][repeat < 0 ? 0 : repeat] = run(&b[i]);
        for (int i = 0; i < 2; i++) {
                if (net->rank == 0)
                        print(i ? "1f1b" : "axonn", &b[i].real.plan, ratios[i]);
                close_bench(&b[i]);
        }
        net->ops->close(net);
        return 0;
}
