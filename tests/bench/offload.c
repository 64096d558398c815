/* The offloaded optimizer phase against the longest of its parts. Two replicas of a stage run the phase as a
 * training does: the core schedules it, driver_real runs it. The parts alone are the same schedule, in which
 * every other operation is over as soon as it is issued. All four in turn, many times, in one run; first with
 * copies as fast as the processor makes them, then over a link on which they take longer than all else, as
 * those of a GPU do. Under mpirun -n 2. */
#include "runtime/base/number.h"
#include "runtime/plan/options.h"
#include "runtime/real/driver_real.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUCKET = 500000, REPEATS = 9 };

static const struct gpt gpt = {
        .name = "bench", .n_layer = 8, .n_embd = 512, .n_head = 8, .vocab_size = 256, .n_positions = 16};

#define KIND(kind) (1u << (kind))
enum {
        COPIES = KIND(OP_FETCH) | KIND(OP_WRITE_BACK),
        SCALARS = KIND(OP_CHECK_OVERFLOW) | KIND(OP_REDUCE_OVERFLOW) | KIND(OP_REDUCE_SCALARS)
};

/* What is measured: which operations are really done. */
static const struct part {
        const char *name;
        unsigned done;
} parts[] = {{"the phase", SCALARS | KIND(OP_ALLREDUCE) | COPIES | KIND(OP_UPDATE)},
             {"all-reduce alone", KIND(OP_ALLREDUCE)},
             {"copies alone", COPIES},
             {"updates alone", KIND(OP_UPDATE)}};
enum { PARTS = sizeof parts / sizeof *parts };

struct bench {
        struct driver_real real;
        struct engine engine;
        unsigned done;        /* of the part that is measured */
        struct op passed[64]; /* issued, not done, to be completed */
        int passed_count;
};

static void issue(void *world, const struct op *op)
{
        struct bench *b = world;
        struct driver driver = driver_real(&b->real);
        if (b->done & KIND(op->kind)) {
                driver.issue(driver.world, op);
                return;
        }
        if (b->passed_count == sizeof b->passed / sizeof *b->passed)
                abort();
        b->passed[b->passed_count++] = *op;
}

static double now(void *world)
{
        struct driver driver = driver_real(&((struct bench *)world)->real);
        return driver.now(driver.world);
}

/* Seconds of a batch on the slower rank. */
static double run(struct bench *b, unsigned done)
{
        struct net *net = b->real.net;
        double mine, both[2];
        b->done = done;
        net->ops->barrier(net);
        driver_real_start(&b->real, &b->engine);
        while (!engine_done(&b->engine))
                if (b->passed_count > 0) {
                        struct op op = b->passed[--b->passed_count];
                        engine_complete(&b->engine, &op);
                } else if (!driver_real_poll(&b->real, &b->engine)) {
                        driver_real_rest(&b->real);
                }
        mine = b->engine.ended - b->engine.started;
        net->ops->gather(net, &mine, sizeof mine, both);
        return net->rank == 0 ? fmax(both[0], both[1]) : 0;
}

/* Prints one line a part, and the ratio of the phase to the longest; returns that part's median seconds on
 * rank 0. */
static void measure(struct bench *b, const char *title, double median[PARTS])
{
        double seconds[PARTS][REPEATS], longest = 0;
        for (int i = -1; i < REPEATS; i++) /* the first is not counted */
                for (int part = 0; part < PARTS; part++)
                        seconds[part][i < 0 ? 0 : i] = run(b, parts[part].done);
        if (b->real.net->rank > 0)
                return;
        printf("%s\n", title);
        for (int part = 0; part < PARTS; part++) {
                char text[3][NUMBER_TEXT];
                median[part] = quantile(seconds[part], REPEATS, 0.5);
                printf("  %-18s %12s   (%s to %s)\n", parts[part].name, number_seconds(text[0], median[part]),
                       number_seconds(text[1], seconds[part][0]),
                       number_seconds(text[2], seconds[part][REPEATS - 1]));
                if (part > 0)
                        longest = fmax(longest, median[part]);
        }
        printf("  the phase takes %.3f x the longest of its parts, %.2f x their sum\n", median[0] / longest,
               median[0] / (median[1] + median[2] + median[3]));
}

static void open_bench(struct bench *b, struct device *device, struct net *net, const struct optim *optim)
{
        const struct stage stage = partition_stage(&gpt, 1, 0);
        struct rv_error_info err;
        struct options o;
        options_init(&o);
        o.gpt = gpt;
        o.dp = 2;
        o.micro_batch_size = 1;
        o.batch_size = 2;
        o.seq_len = gpt.n_positions;
        o.clip = 0;
        o.dtype = DTYPE_FP16;
        o.offload = true;
        o.bucket_parameters = BUCKET;
        const struct memory_plan memory = options_memory(&o, 0);
        *b = (struct bench){.real = {.device = device,
                                     .net = net,
                                     .optim = optim,
                                     .plan = options_plan(&o, false),
                                     .mean = 1,
                                     .loss_scale = 1}};
        b->real.nn = nn_open(device, &gpt, &stage, &memory, true, &err);
        if (!b->real.nn) {
                fprintf(stderr, "offload: %s\n", err.sentence);
                exit(1);
        }
        const int64_t parameters = b->real.nn->parameters, slot = b->real.nn->layout.slot;
        const struct core_stage part = {.parameters = parameters, .slot_bytes = slot};
        void *core = malloc(core_bytes(&b->real.plan, &part));
        if (!core)
                abort();
        engine_init(&b->engine, core_init(core, &b->real.plan, &part),
                    (struct driver){.issue = issue, .now = now, .world = b}, NULL, NULL, net->rank);
        nn_initialize(b->real.nn, 1, 1);
}

static void close_bench(struct bench *b)
{
        free(b->engine.core);
        engine_free(&b->engine);
        driver_real_free(&b->real);
        nn_close(b->real.nn);
}

int main(int argc, char **argv)
{
        static const struct optim optim = {
                .lr = 1e-3, .steps = 1, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
        struct rv_error_info err = {0};
        struct net *net = net_mpi_open(&argc, &argv, &err);
        struct device *device = net ? device_cpu_open(1, &err) : NULL;
        struct bench b;
        if (!device || net->ranks != 2) {
                fprintf(stderr, "offload: %s\n", device ? "start with mpirun -n 2" : err.sentence);
                return 1;
        }
        net_mpi_groups(net, (int[NET_WORLD]){-1, 0, -1});
        open_bench(&b, device, net, &optim);
        char title[160];
        double median[PARTS] = {0}, rate = 0;
        if (net->rank == 0)
                printf("%lld parameters, buckets of %d in thirds, %d buckets an all-reduce; 2 ranks; medians "
                       "of %d\n",
                       (long long)b.real.nn->parameters, BUCKET, b.real.plan.allreduce_buckets, REPEATS);
        measure(&b,
                "copies as fast as the processor goes (it also sums, updates and polls: lanes share the "
                "cores)",
                median);
        /* The processor's part of everything, with half as much again for the cores' sharing. */
        rate = (double)plan_offloaded_bytes(b.real.nn->parameters) /
               (1.5 * (median[1] + median[2] + median[3]));
        net->ops->broadcast(net, &rate, sizeof rate, 0);
        device->host_link_bytes_per_second = rate;
        snprintf(title, sizeof title, "copies over a link of %.2f GB/s in each direction (--host-link)",
                 rate / 1e9);
        measure(&b, title, median);
        close_bench(&b);
        device->ops->close(device);
        net->ops->close(net);
        return 0;
}
