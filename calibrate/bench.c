#include "calibrate/bench.h"

#include "runtime/nn/nn.h"
#include "runtime/optim/optim.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* A kernel that ran: its own seconds, and when it ended. */
struct record {
        struct kernel kernel;
        double seconds, end;
};

const struct optim bench_optim = {.lr = 1e-4,
                                  .min_lr = 1e-4,
                                  .steps = 1,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .epsilon = 1e-8,
                                  .weight_decay = 0.1,
                                  .clip = 1};

struct bench {
        struct device *device;
        struct nn_stage *stage;
        struct family_run run;
        struct record *log; /* written on the compute lane, read when it is idle */
        int log_count, log_capacity;
        int starts[8], start_count; /* the log's count when each operation of the pass began */
        bool met[8];                /* this operation waited for the other ranks before it began */
        int fed;                    /* operations that keep the lane busy */
        struct loss_scaler scaler;  /* half: as in training, so that gradients are as large */
};

enum { TOKEN_OPERATION, TOKEN_FED };

struct device *bench_device(const struct request *request, struct rv_error_info *err)
{
        struct device *device = device_cpu_open(request->threads, err);
        if (device)
                device->host_link_bytes_per_second = request->host_link_bytes_per_second;
        return device;
}

static void record_kernel(void *context, const struct kernel *kernel, double seconds, double end)
{
        struct bench *bench = context;
        assert(bench->log_count < bench->log_capacity);
        bench->log[bench->log_count++] = (struct record){*kernel, seconds, end};
}

void bench_poll_until(struct device *device, struct net *net, int token)
{
        struct net_done done;
        while (device->ops->poll(device) != token) {
                net->ops->test(net, &done);
                sched_yield();
        }
}

/* Starts an operation's entry in the log; its kernels are launched after this. */
static void begin_operation(struct bench *bench)
{
        bench->starts[bench->start_count++] = bench->log_count;
}

static void end_operation(struct bench *bench, struct net *net)
{
        bench->device->ops->record(bench->device, DEVICE_COMPUTE, TOKEN_OPERATION);
        bench_poll_until(bench->device, net, TOKEN_OPERATION);
}

/* Text-like enough: tokens spread over the vocabulary, so that embedding rows are as scattered as in a run.
 */
static int fill_tokens(struct bench *bench, struct rv_error_info *err)
{
        int64_t count = (int64_t)bench->run.plan.work.micro_batch_size * bench->run.plan.work.seq_len;
        int64_t bytes = count * (int64_t)sizeof(int32_t);
        int32_t *tokens = malloc((size_t)bytes);
        uint64_t state = 1;
        if (!tokens)
                return rv_fail(err, RV_ESYSTEM, "no memory for %lld tokens", (long long)count);
        for (int64_t i = 0; i < count; i++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                tokens[i] = (int32_t)((state >> 33) % (uint64_t)bench->run.gpt.vocab_size);
        }
        struct device *device = bench->device;
        device->ops->copy(device, DEVICE_HOST_TO_DEVICE, bench->stage->tokens, tokens, bytes);
        device->ops->copy(device, DEVICE_HOST_TO_DEVICE, bench->stage->targets, tokens, bytes);
        device->ops->synchronize(device);
        free(tokens);
        return RV_OK;
}

static int open_stage(struct bench *bench, const struct request *request, struct rv_error_info *err)
{
        enum { MOST_OPTIMIZER_KERNELS = 8 };
        const struct family_run *run = &bench->run;
        bench->device = bench_device(request, err);
        if (!bench->device)
                return RV_ESYSTEM;
        bench->stage = nn_open(bench->device, &run->gpt, &run->stage, &run->plan, true, err);
        if (!bench->stage)
                return RV_ESYSTEM;
        const struct work *work = &run->plan.work;
        bench->log_capacity = workload_forward(&run->gpt, &run->stage, work, false, NULL) +
                              workload_backward(&run->gpt, &run->stage, work, NULL) + MOST_OPTIMIZER_KERNELS;
        bench->log = malloc((size_t)bench->log_capacity * sizeof *bench->log);
        if (!bench->log)
                return rv_fail(err, RV_ESYSTEM, "no memory to record %d kernels", bench->log_capacity);
        nn_initialize(bench->stage, 1);
        loss_scaler_init(&bench->scaler);
        return fill_tokens(bench, err);
}

struct bench *bench_open(const struct family_run *run, const struct request *request,
                         struct rv_error_info *err)
{
        struct bench *bench = calloc(1, sizeof *bench);
        if (!bench) {
                rv_fail(err, RV_ESYSTEM, "no memory to measure %s", run->gpt.name);
                return NULL;
        }
        bench->run = *run;
        if (open_stage(bench, request, err) == RV_OK)
                return bench;
        bench_close(bench);
        return NULL;
}

void bench_close(struct bench *bench)
{
        if (bench->stage)
                nn_close(bench->stage);
        if (bench->device)
                bench->device->ops->close(bench->device);
        free(bench->log);
        free(bench);
}

/* The first kernel of an operation takes what it takes. A later one takes from the end of the kernel before
 * it to its own end: so the cost of getting from kernel to kernel, which is real, is in the sum. */
static void keep_samples(const struct bench *bench, struct samples *samples)
{
        int operation = 0;
        for (int i = 0; i < bench->log_count; i++) {
                const struct record *record = &bench->log[i];
                bool first = operation < bench->start_count && bench->starts[operation] == i;
                if (first)
                        operation++;
                double since = i > 0 ? record->end - bench->log[i - 1].end : record->seconds;
                samples_add_kernel(samples, &record->kernel, first ? record->seconds : since);
                if (first && i > 0 && !bench->met[operation - 1])
                        series_add(&samples->gaps, since - record->seconds);
        }
}

/* What the compute lane spent in the forward and backward, the pass's first two operations. */
static double pass_seconds(const struct bench *bench)
{
        double seconds = 0;
        for (int operation = 0; operation < 2; operation++) {
                int first = bench->starts[operation];
                int after =
                        operation + 1 < bench->start_count ? bench->starts[operation + 1] : bench->log_count;
                seconds += bench->log[after - 1].end - bench->log[first].end + bench->log[first].seconds;
        }
        return seconds;
}

/* In a run the norm and the updates begin at the same time on all ranks, since all-reduces come before them;
 * and they are limited by the memory that the ranks share. So here too. `ranks`: at work. */
static void meet(struct bench *bench, struct net *net, int ranks)
{
        if (ranks == 1)
                return;
        net->ops->barrier(net);
        bench->met[bench->start_count] = true;
}

static bool half_of(const struct bench *bench)
{
        return work_half(&bench->run.plan.work);
}

/* Gradients of one scale do not add to those of another, nor to ones that overflowed. */
static void clear_unseen(struct bench *bench)
{
        device_record_fn *recorder = bench->device->recorder;
        bench->device->recorder = NULL;
        optim_clear(bench->stage);
        bench->device->ops->synchronize(bench->device);
        bench->device->recorder = recorder;
}

static void check_overflow(struct bench *bench, struct net *net, int ranks,
                           const struct family_optimizer *optimizer)
{
        struct nn_stage *stage = bench->stage;
        if (optimizer->parameters <= stage->parameters) {
                meet(bench, net, ranks);
                begin_operation(bench);
                kernels_overflow(bench->device, &stage->scalars[NN_OVERFLOW], stage->gradients,
                                 optimizer->parameters, optim_overflow_limit(1));
                end_operation(bench, net);
        }
}

static void clear(struct bench *bench, struct net *net, int ranks, const struct family_optimizer *optimizer)
{
        struct nn_stage *stage = bench->stage;
        if (optimizer->parameters <= stage->parameters) {
                meet(bench, net, ranks);
                begin_operation(bench);
                kernels_clear(bench->device, stage->gradients, optimizer->parameters);
                end_operation(bench, net);
        }
}

static void norm_and_updates(struct bench *bench, struct net *net, int ranks,
                             const struct family_optimizer *optimizer)
{
        struct nn_stage *stage = bench->stage;
        const double scale = half_of(bench) ? bench->scaler.scale : 1;
        if (optimizer->norm.m <= stage->parameters) {
                meet(bench, net, ranks);
                begin_operation(bench);
                kernels_squared_norm(bench->device, &stage->scalars[NN_SQUARED_NORM], stage->gradients,
                                     optimizer->norm.m, false);
                end_operation(bench, net);
        }
        double squared_norm = stage->scalars[NN_SQUARED_NORM] / (scale * scale);
        stage->scalars[NN_GRADIENT_SCALE] = optim_clip_factor(&bench_optim, squared_norm) / scale;
        int64_t offset = 0;
        for (int i = 0; i < optimizer->update_count; i++) {
                if (optimizer->updates[i] > stage->parameters - offset)
                        continue;
                meet(bench, net, ranks);
                begin_operation(bench);
                optim_update(stage, &bench_optim, 0, offset, optimizer->updates[i], -1);
                end_operation(bench, net);
                offset += optimizer->updates[i];
        }
}

/* A run clears after an overflow instead of updating; here it does both, and the scale changes as in a run.
 */
static void optimizer_operations(struct bench *bench, struct net *net, int ranks,
                                 const struct family_optimizer *optimizer)
{
        if (!half_of(bench)) {
                norm_and_updates(bench, net, ranks, optimizer);
                return;
        }
        check_overflow(bench, net, ranks, optimizer);
        bool overflow = bench->stage->scalars[NN_OVERFLOW] != 0;
        if (overflow)
                clear_unseen(bench);
        norm_and_updates(bench, net, ranks, optimizer);
        clear(bench, net, ranks, optimizer);
        loss_scaler_step(&bench->scaler, overflow);
}

double bench_pass(struct bench *bench, struct net *net, int ranks, int turn, struct samples *samples)
{
        const struct work *work = &bench->run.plan.work;
        double scale = 1.0 / (work->micro_batch_size * (double)work->seq_len);
        if (half_of(bench))
                scale *= bench->scaler.scale;
        bench->log_count = bench->start_count = 0;
        memset(bench->met, 0, sizeof bench->met);
        bench->device->recorder = record_kernel;
        bench->device->recorder_context = bench;
        begin_operation(bench);
        nn_forward(bench->stage, 0, -1, 0, scale, false);
        end_operation(bench, net);
        begin_operation(bench);
        nn_backward(bench->stage, 0, -1, 0, 0);
        end_operation(bench, net);
        if (bench->run.optimizer_count > 0)
                optimizer_operations(bench, net, ranks,
                                     &bench->run.optimizers[turn % bench->run.optimizer_count]);
        bench->device->recorder = NULL;
        if (half_of(bench))
                clear_unseen(bench);
        if (samples)
                keep_samples(bench, samples);
        return pass_seconds(bench);
}

int bench_peak(const struct request *request, struct net *net, int repetitions, struct samples *samples,
               struct rv_error_info *err)
{
        const int64_t size = BENCH_PEAK_SIZE, bytes = size * size * (int64_t)sizeof(real);
        const struct matmul product = {.m = size, .n = size, .k = size};
        struct bench bench = {.log_capacity = repetitions + 1, .device = bench_device(request, err)};
        real *matrices[3];
        int rc = RV_OK;
        if (!bench.device)
                return RV_ESYSTEM;
        bench.log = malloc((size_t)bench.log_capacity * sizeof *bench.log);
        for (int i = 0; i < 3; i++) {
                matrices[i] = bench.device->ops->alloc(bench.device, MEMORY_DEVICE, MEMORY_WORKSPACE, bytes);
                if (!matrices[i] || !bench.log) {
                        rc = rv_fail(err, RV_ESYSTEM, "no memory for matrices of %d x %d", BENCH_PEAK_SIZE,
                                     BENCH_PEAK_SIZE);
                        goto out;
                }
        }
        bench.device->recorder = record_kernel;
        bench.device->recorder_context = &bench;
        for (int i = 0; i <= repetitions; i++) { /* the first one warms up */
                kernels_matmul(bench.device, &product, matrices[0], matrices[1], matrices[2]);
                end_operation(&bench, net);
                if (i > 0)
                        samples_add_kernel(samples, &bench.log[i].kernel, bench.log[i].seconds);
        }
out:
        bench.device->ops->close(bench.device);
        free(bench.log);
        return rc;
}

void bench_feed(struct bench *bench)
{
        enum { WAITING_BEHIND = 2 };
        while (bench->device->ops->poll(bench->device) == TOKEN_FED)
                bench->fed--;
        for (; bench->fed < WAITING_BEHIND; bench->fed++) {
                nn_forward(bench->stage, 0, -1, 0, 1, false);
                bench->device->ops->record(bench->device, DEVICE_COMPUTE, TOKEN_FED);
        }
}

void bench_drain(struct bench *bench)
{
        bench->device->ops->synchronize(bench->device);
        while (bench->device->ops->poll(bench->device) == TOKEN_FED)
                bench->fed--;
        assert(bench->fed == 0);
}
