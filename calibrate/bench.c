#include "calibrate/bench.h"

#include "runtime/nn/nn.h"
#include "runtime/optim/optim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A kernel that ran: its own seconds, when it ended, and what the process had computed until then. Until
 * `noted` this was written down, which is no part of the next kernel. */
struct record {
        struct kernel kernel;
        double seconds, end, noted, computed;
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
        bool gpu;
        struct record *log; /* written on the compute lane, read when it is idle */
        bool *resumed;      /* of each record: it began when what stands in for an exchange had ended */
        int log_count, log_capacity;
        int starts[8], start_count; /* the log's count when each operation of the pass began */
        struct record before[8];    /* and when that was */
        bool met[8];                /* this operation waited for the other ranks before it began */
        struct kernel *parted;      /* what only a backward in two parts launches (family_parted) */
        int parted_count;
        int fed;                   /* operations that keep the lane busy */
        struct loss_scaler scaler; /* 16 bits: as in training, so that gradients are as large */
};

enum { TOKEN_OPERATION, TOKEN_FED };

struct device *bench_device(const struct request *request, bool graphs, struct rv_error_info *err)
{
        const struct device_request how = {.threads = request->threads,
                                           .host_link_bytes_per_second = request->host_link_bytes_per_second,
                                           .local_rank = request->local_rank,
                                           .local_ranks = request->local_ranks,
                                           .no_graphs = !graphs,
                                           .products = request->products,
                                           .time_products = request->time_products,
                                           .attention = request->attention,
                                           .cpu_kernels = request->cpu_kernels};
        return device_open(request->device, &how, err);
}

/* Processor time of all threads of this process. */
static double computed_seconds(void)
{
        struct timespec time;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void record_kernel(void *context, const struct kernel *kernel, double seconds, double end)
{
        struct bench *bench = context;
        assert(bench->log_count < bench->log_capacity);
        struct record *record = &bench->log[bench->log_count++];
        *record = (struct record){*kernel, seconds, end, end, 0};
        if (bench->gpu)
                return;
        record->computed = computed_seconds();
        record->noted = device_seconds();
}

/* Seconds that neither the kernel nor another thread of this process computed, since the record before or
 * since its operation began: something else had the processor. 0 if it is so little that waking a thread may
 * take as long. (With several threads it looks as if there were none: the others compute meanwhile.) */
static double lost_seconds(const struct bench *bench, int i, int operation)
{
        const double little = 100e-6;
        const struct record *record = &bench->log[i];
        const struct record *from = operation >= 0 ? &bench->before[operation] : &bench->log[i - 1];
        const double lost = record->end - from->end - (record->computed - from->computed);
        return !bench->gpu && lost > little ? lost : 0;
}

int bench_poll(struct device *device, struct net *net)
{
        struct net_done done;
        const int token = device->ops->poll(device);
        if (token < 0) {
                net->ops->test(net, &done);
                device_rest(device, net->ranks > 1); /* as in a run */
        }
        return token;
}

void bench_poll_until(struct device *device, struct net *net, int token)
{
        while (bench_poll(device, net) != token)
                ;
}

/* Starts an operation's entry in the log; its kernels are launched after this. */
static void begin_operation(struct bench *bench)
{
        bench->before[bench->start_count] =
                (struct record){.end = device_seconds(), .computed = computed_seconds()};
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
        enum { MAX_OPTIMIZER_KERNELS = 8 };
        const struct family_run *run = &bench->run;
        bench->device = bench_device(request, false, err);
        if (!bench->device)
                return err->code;
        struct stage stage = run->stage;
        stage.context_rank = request->local_rank % work_context_ranks(&run->plan.work);
        bench->stage = nn_open(bench->device, &run->gpt, &stage, &run->plan, true, err);
        if (!bench->stage)
                return RV_ESYSTEM;
        const struct work *work = &run->plan.work;
        bench->parted = family_parted(run, &bench->parted_count);
        bench->log_capacity = workload_forward(&run->gpt, &run->stage, work, false, NULL) +
                              2 * workload_backward_max(&run->gpt, &run->stage, work) + MAX_OPTIMIZER_KERNELS;
        bench->log = malloc((size_t)bench->log_capacity * sizeof *bench->log);
        bench->resumed = calloc((size_t)bench->log_capacity, sizeof *bench->resumed);
        if (!bench->log || !bench->resumed)
                return rv_fail(err, RV_ESYSTEM, "no memory to record %d kernels", bench->log_capacity);
        nn_initialize(bench->stage, 1, request->threads);
        loss_scaler_init(&bench->scaler, work->dtype);
        return fill_tokens(bench, err);
}

const struct device_description *bench_description(const struct bench *bench)
{
        return &bench->device->description;
}

char *bench_products(const struct bench *bench)
{
        struct device *device = bench->device;
        return device->ops->products ? device->ops->products(device) : NULL;
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
        bench->gpu = request_gpu(request);
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
        free(bench->parted);
        free(bench->resumed);
        free(bench->log);
        free(bench);
}

/* A kernel that something else interrupted was disturbed, and so is the next one, which finds caches emptied.
 *
 * The first kernel of an operation, or behind an exchange, takes what it takes. A later one takes from the
 * end of the kernel before it to its own end: so the cost of getting from kernel to kernel, which is real, is
 * in the sum. On a GPU it is in the kernel's own seconds, between two events; what lies between one kernel's
 * events and the next one's is the recorder's. */
static void keep_samples(const struct bench *bench, struct samples *samples)
{
        int operation = 0;
        bool lost = false;
        for (int i = 0; i < bench->log_count; i++) {
                const struct record *record = &bench->log[i];
                bool first = operation < bench->start_count && bench->starts[operation] == i;
                if (first)
                        operation++;
                double since = i > 0 ? record->end - bench->log[i - 1].noted : record->seconds;
                const bool alone = first || bench->resumed[i] || bench->gpu, lost_before = lost;
                lost = lost_seconds(bench, i, first ? operation - 1 : -1) > 0;
                samples_add_kernel(samples, &record->kernel, alone ? record->seconds : since,
                                   lost || lost_before);
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
                for (int i = first + 1; i < after; i++)
                        if (bench->resumed[i]) /* without what stood in */
                                seconds -= bench->log[i].end - bench->log[i - 1].end - bench->log[i].seconds;
                        else
                                seconds -= lost_seconds(bench, i, -1) + bench->log[i - 1].noted -
                                           bench->log[i - 1].end;
                seconds -= lost_seconds(bench, first, operation);
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
        return work_mixed(&bench->run.plan.work);
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

/* Of a model that was cut, all that there is: its kernel's fit needs a point. */
static int64_t at_most(const struct nn_stage *stage, int64_t parameters)
{
        return parameters < stage->parameters ? parameters : stage->parameters;
}

static void check_overflow(struct bench *bench, struct net *net, int ranks,
                           const struct family_optimizer *optimizer)
{
        struct nn_stage *stage = bench->stage;
        meet(bench, net, ranks);
        begin_operation(bench);
        optim_check_overflow(stage, 0, at_most(stage, optimizer->parameters),
                             optim_overflow_limit(1, stage->plan.work.dtype));
        end_operation(bench, net);
}

static void clear(struct bench *bench, struct net *net, int ranks, const struct family_optimizer *optimizer)
{
        struct nn_stage *stage = bench->stage;
        meet(bench, net, ranks);
        begin_operation(bench);
        optim_clear_first(stage, at_most(stage, optimizer->parameters));
        end_operation(bench, net);
}

static void norm_and_updates(struct bench *bench, struct net *net, int ranks,
                             const struct family_optimizer *optimizer)
{
        struct nn_stage *stage = bench->stage;
        const double scale = half_of(bench) ? bench->scaler.scale : 1;
        meet(bench, net, ranks);
        begin_operation(bench);
        optim_norm_of_first(stage, at_most(stage, optimizer->norm.m));
        end_operation(bench, net);
        double squared_norm = stage->scalars[NN_SQUARED_NORM] / (scale * scale);
        stage->scalars[NN_GRADIENT_SCALE] = optim_clip_factor(&bench_optim, squared_norm) / scale;
        int64_t offset = 0;
        for (int i = 0; i < optimizer->update_count; i++) {
                if (optimizer->updates[i] > stage->parameters - offset)
                        continue;
                meet(bench, net, ranks);
                begin_operation(bench);
                optim_update(stage, &bench_optim, 0, offset, offset, optimizer->updates[i], -1);
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
                clear(bench, net, ranks, optimizer);
                return;
        }
        check_overflow(bench, net, ranks, optimizer);
        bool overflow = optim_overflows(bench->stage, bench->stage->scalars[NN_OVERFLOW]);
        if (overflow)
                clear_unseen(bench);
        norm_and_updates(bench, net, ranks, optimizer);
        clear(bench, net, ranks, optimizer);
        loss_scaler_step(&bench->scaler, overflow);
}

/* Rows of keys go nowhere, and those that come are this rank's own. */
static void copy_shifted(const struct nn_collective *what)
{
        const size_t bytes = (size_t)what->elements * (what->dtype == DTYPE_FP32 ? sizeof(real) : 2);
        const size_t each = what->all_too ? bytes / 2 : bytes;
        memcpy(what->all, what->own, each);
        if (what->all_too)
                memcpy(what->all_too, what->own_too, each);
}

/* In the place of an exchange of rows of experts: as many rows for each as if all were alike, which are some
 * of this rank's own. */
static void copy_experts_rows(struct nn_stage *nn)
{
        const struct nn_collective *what = nn->collective;
        const int experts = nn->gpt.n_expert, ranks = nn->stage.expert_ranks;
        const int64_t rows =
                (int64_t)nn->plan.work.micro_batch_size * nn->plan.work.seq_len * nn->gpt.n_expert_chosen;
        if (what->kind != KERNEL_EXPERT_COUNTS) {
                const size_t bytes = what->dtype == DTYPE_FP32 ? sizeof(real) : 2;
                memcpy(what->all, what->own, (size_t)what->elements * bytes);
                return;
        }
        for (int i = 0; i < ranks * experts; i++)
                ((int32_t *)what->all)[i] = (int32_t)(rows * (i % experts + 1) / experts);
}

/* The exchange behind a segment of a pass is none, but the next one finds rows. */
static void stand_in(struct bench *bench)
{
        const enum kernel_kind kind = bench->stage->collective->kind;
        if (!kernel_of_experts(kind) && !kernel_of_context(kind))
                return;
        bench->device->ops->synchronize(bench->device);
        if (kernel_of_experts(kind))
                copy_experts_rows(bench->stage);
        else
                copy_shifted(bench->stage->collective);
        if (bench->log_count < bench->log_capacity)
                bench->resumed[bench->log_count] = true;
}

/* A rank's kernels, one segment after the other: collectives of shards are left out. */
static void run_forward(struct bench *bench)
{
        struct nn_stage *nn = bench->stage;
        for (nn->segment = 0; nn_forward(nn, 0, 0, -1, 0, false); nn->segment++)
                stand_in(bench);
}

static void run_backward(struct bench *bench)
{
        struct nn_stage *nn = bench->stage;
        for (nn->segment = 0; nn_backward(nn, 0, 0, -1, 0, 0); nn->segment++)
                stand_in(bench);
}

static void run_backward_part(struct bench *bench, int gradient, enum kernel_part part)
{
        struct nn_stage *nn = bench->stage;
        for (nn->segment = 0; nn_backward_part(nn, 0, -1, 0, gradient, 0, part); nn->segment++)
                stand_in(bench);
}

static void begin_log(struct bench *bench)
{
        bench->log_count = bench->start_count = 0;
        memset(bench->met, 0, sizeof bench->met);
        memset(bench->resumed, 0, (size_t)bench->log_capacity * sizeof *bench->resumed);
        bench->device->recorder = record_kernel;
        bench->device->recorder_context = bench;
}

/* The loss's scale, as a run sets it. */
static void set_scale(struct bench *bench)
{
        const struct work *work = &bench->run.plan.work;
        const double scale = 1.0 / (work->micro_batch_size * (double)work->seq_len);
        bench->stage->loss_scale = half_of(bench) ? scale * bench->scaler.scale : scale;
}

/* The samples of what nothing else launches: the others have theirs from passes as most plans run them. */
static void keep_parted_samples(const struct bench *bench, struct samples *samples)
{
        for (int i = 1; i < bench->log_count; i++)
                for (int j = 0; j < bench->parted_count; j++)
                        if (kernel_same(&bench->log[i].kernel, &bench->parted[j]))
                                samples_add_kernel(samples, &bench->log[i].kernel,
                                                   bench->gpu || bench->resumed[i]
                                                           ? bench->log[i].seconds
                                                           : bench->log[i].end - bench->log[i - 1].noted,
                                                   lost_seconds(bench, i, -1) > 0);
}

void bench_parted_pass(struct bench *bench, struct net *net, struct samples *samples)
{
        if (bench->parted_count == 0)
                return;
        set_scale(bench);
        run_forward(bench);
        begin_log(bench);
        begin_operation(bench);
        run_backward_part(bench, 0, PART_INPUT);
        end_operation(bench, net);
        begin_operation(bench);
        run_backward_part(bench, -1, PART_WEIGHT);
        end_operation(bench, net);
        bench->device->recorder = NULL;
        clear_unseen(bench);
        keep_parted_samples(bench, samples);
}

double bench_pass(struct bench *bench, struct net *net, int ranks, int turn, struct samples *samples)
{
        set_scale(bench);
        begin_log(bench);
        begin_operation(bench);
        run_forward(bench);
        end_operation(bench, net);
        begin_operation(bench);
        run_backward(bench);
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

double bench_plain_pass(struct bench *bench, struct net *net)
{
        const double start = device_seconds();
        run_forward(bench);
        end_operation(bench, net);
        run_backward(bench);
        end_operation(bench, net);
        const double seconds = device_seconds() - start;
        optim_clear(bench->stage);
        bench->device->ops->synchronize(bench->device);
        return seconds;
}

/* ---- the peak ---- */

struct kernel bench_peak_kernel(const struct request *request, int size)
{
        enum dtype dtype = DTYPE_FP32;
        if (request_gpu(request))
                dtype = request->precisions[DTYPE_BF16]   ? DTYPE_BF16
                        : request->precisions[DTYPE_FP16] ? DTYPE_FP16
                                                          : DTYPE_FP32;
        return (struct kernel){.kind = KERNEL_MATMUL,
                               .dtype = (unsigned char)dtype,
                               .batch = 1,
                               .m = size,
                               .n = size,
                               .k = size};
}

/* Square matrices on a device of their own. */
struct product {
        struct bench bench;
        void *matrices[3];
        struct kernel kernel;
};

/* Random numbers of magnitude 0.5 to 1: a GPU computes with zeros faster than with anything else, since it
 * then draws less power. */
static int fill_matrix(struct device *device, void *matrix, const struct kernel *kernel,
                       struct rv_error_info *err)
{
        const int64_t elements = kernel->m * kernel->n,
                      element_bytes = kernel->dtype ? 2 : (int64_t)sizeof(real);
        void *numbers = malloc((size_t)(elements * element_bytes));
        uint64_t state = 1;
        if (!numbers)
                return rv_fail(err, RV_ESYSTEM, "no memory for a matrix of %lld x %lld", (long long)kernel->m,
                               (long long)kernel->n);
        for (int64_t i = 0; i < elements; i++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                const uint64_t sign = state >> 40 & 0x8000;
                if (kernel->dtype == DTYPE_BF16)
                        ((uint16_t *)numbers)[i] = (uint16_t)(0x3f00 | (state >> 57) | sign);
                else if (kernel->dtype == DTYPE_FP16)
                        ((uint16_t *)numbers)[i] = (uint16_t)(0x3800 | (state >> 54) | sign);
                else
                        ((real *)numbers)[i] = (sign ? -0.5F : 0.5F) * (1 + (real)(state >> 56) / 256);
        }
        device->ops->copy(device, DEVICE_HOST_TO_DEVICE, matrix, numbers, elements * element_bytes);
        device->ops->synchronize(device);
        free(numbers);
        return RV_OK;
}

int bench_matrices(struct device *device, const struct kernel *kernel, void *matrices[3],
                   struct rv_error_info *err)
{
        const int64_t bytes = memory_aligned(kernel->m * kernel->n *
                                             (kernel->dtype != DTYPE_FP32 ? 2 : (int64_t)sizeof(real)));
        const int64_t reserved[MEMORY_SPACES] = {[MEMORY_DEVICE] = 3 * bytes};
        if (device_reserve(device, reserved, err) != RV_OK)
                return err->code;
        device->dtype = (enum dtype)kernel->dtype;
        for (int i = 0; i < 3; i++) {
                matrices[i] = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WORKSPACE, bytes);
                if (!matrices[i])
                        return rv_fail(err, RV_ESYSTEM, "no memory for matrices of %lld x %lld",
                                       (long long)kernel->m, (long long)kernel->n);
        }
        const int rc = fill_matrix(device, matrices[0], kernel, err);
        return rc == RV_OK ? fill_matrix(device, matrices[1], kernel, err) : rc;
}

static void close_product(struct product *product)
{
        if (product->bench.device)
                product->bench.device->ops->close(product->bench.device);
        free(product->bench.log);
}

static int open_product(struct product *product, const struct request *request, int size, int max_launches,
                        struct rv_error_info *err)
{
        const struct kernel kernel = bench_peak_kernel(request, size);
        struct device *device = bench_device(request, false, err);
        *product =
                (struct product){.bench = {.device = device, .log_capacity = max_launches}, .kernel = kernel};
        if (!device || bench_matrices(device, &kernel, product->matrices, err) != RV_OK)
                return err->code;
        product->bench.log = malloc((size_t)max_launches * sizeof *product->bench.log);
        if (!product->bench.log)
                return rv_fail(err, RV_ESYSTEM, "no memory to record %d kernels", max_launches);
        device->recorder = record_kernel;
        device->recorder_context = &product->bench;
        return RV_OK;
}

/* Seconds of one product of the first `size` rows and columns. */
static double run_product(struct product *product, struct net *net, int size)
{
        struct bench *bench = &product->bench;
        const struct matmul mm = {.m = size, .n = size, .k = size};
        kernels_matmul(bench->device, &mm, product->matrices[0], product->matrices[1], product->matrices[2]);
        end_operation(bench, net);
        return bench->log[bench->log_count - 1].seconds;
}

int bench_peak_size(const struct request *request, struct net *net, struct rv_error_info *err)
{
        enum { CPU = 1024, MIN = 256, MAX = 8192, LAUNCHES = 16 };
        const double enough = 1e-3;
        struct product product;
        int size = MIN;
        if (!request_gpu(request))
                return CPU;
        int rc = open_product(&product, request, MAX, LAUNCHES, err);
        while (rc == RV_OK && size < MAX) {
                run_product(&product, net, size); /* warms up */
                if (run_product(&product, net, size) >= enough)
                        break;
                size *= 2;
        }
        close_product(&product);
        return rc == RV_OK ? size : 0;
}

int bench_peak(const struct request *request, struct net *net, int size, int repetitions,
               struct samples *samples, struct rv_error_info *err)
{
        struct product product;
        int rc = open_product(&product, request, size, repetitions + 1, err);
        for (int i = 0; i <= repetitions && rc == RV_OK; i++) { /* the first one warms up */
                double seconds = run_product(&product, net, size);
                if (i > 0)
                        samples_add_kernel(samples, &product.kernel, seconds, false);
        }
        close_product(&product);
        return rc;
}

/* ---- work for a lane ---- */

void bench_feed(struct bench *bench)
{
        enum { WAITING_BEHIND = 2 };
        while (bench->device->ops->poll(bench->device) == TOKEN_FED)
                bench->fed--;
        for (; bench->fed < WAITING_BEHIND; bench->fed++) {
                bench->stage->segment = 0;
                nn_forward(bench->stage, 0, 0, -1, 0, false);
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
