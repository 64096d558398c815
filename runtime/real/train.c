/* `ranvier train`: a GPT, trained for real on pp x dp ranks. */
#include "runtime/base/file.h"
#include "runtime/base/command_line.h"
#include "runtime/base/number.h"
#include "runtime/net/paced.h"
#include "runtime/report/report.h"
#include "runtime/real/about.h"
#include "runtime/real/kernel_times.h"
#include "runtime/real/limits.h"
#include "runtime/real/routes.h"
#include "runtime/real/collect.h"
#include "runtime/real/keep.h"
#include "runtime/real/supervise.h"
#include "runtime/real/train_options.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
        WARM_UP_BATCHES = 2, /* not counted in the report's times: first touch of memory, connections */
        TRACED_BATCHES = 3,  /* the last ones, if a trace is asked for */
        STOPPED = 75,        /* the exit status: EX_TEMPFAIL, try again */
        MAX_STUCK_STEPS = 20 /* that overflow in a row with the least loss scale */
};

/* One run on this rank; losses and the log are rank 0's. */
struct run {
        struct train_settings settings;
        struct trainer trainer;
        struct net *net;
        char *command;
        double *losses; /* [steps] */
        double first_validation, last_validation;
        struct kernel_times *kernels; /* NULL: not asked for */
        FILE *log;                    /* NULL: none */
        int log_reason;               /* errno of the first write to it that failed; 0: none */
        struct keeper *keeper;        /* NULL: no checkpoints are kept */
        struct keeper_done kept;
        int64_t resumed_bytes;  /* of a checkpoint, that all ranks read, */
        double resumed_seconds; /* in so long */
        int64_t begin,
                end; /* the steps that this run does: [begin, end), the latter less where it was stopped */
        double started, last_line; /* seconds of the clock: of training, of the last line of progress */
};

/* Of this process: it was asked to stop, as soon as what it has done is kept. */
static volatile int asked_to_stop;

static double tokens_of_batch(const struct run *run)
{
        return (double)run->settings.plan.batch_size * run->settings.plan.seq_len;
}

static bool validates(const struct run *run)
{
        return run->settings.validation_fraction > 0;
}

/* ---- progress and log, on rank 0 ---- */

static void print_progress(struct run *run, int64_t step, const struct trainer_result *result,
                           double validation)
{
        double now = device_seconds();
        int64_t steps = run->settings.optim.steps;
        bool terminal = isatty(STDERR_FILENO), last = step + 1 == steps;
        bool news = !isnan(validation) || result->skipped;
        if (!last && now - run->last_line < (terminal ? 0.2 : 5) && !news)
                return;
        run->last_line = now;
        double each = (now - run->started) / (double)(step + 1 - run->begin),
               left = each * (double)(steps - step - 1);
        char mark[96] = "";
        if (result->skipped && run->settings.plan.dtype == DTYPE_BF16)
                snprintf(mark, sizeof mark, "   overflow: step skipped");
        else if (result->skipped)
                snprintf(mark, sizeof mark, "   overflow: step skipped, loss scale 2^%d",
                         ilogb(run->trainer.scaler.scale));
        if (!isnan(validation))
                snprintf(mark + strlen(mark), sizeof mark - strlen(mark), "   validation %.4f", validation);
        fprintf(stderr, "%sstep %lld/%lld   loss %.4f%s   %.0f tokens/s   %d:%02d left%s",
                terminal ? "\r\033[K" : "", (long long)step + 1, (long long)steps, result->loss, mark,
                tokens_of_batch(run) / each, (int)left / 60, (int)left % 60,
                terminal && !last && !news ? "" : "\n");
}

/* Cuts a log behind the rows of the first `steps` steps. RV_EINPUT: it has fewer, or is none. */
static int cut_log(FILE *stream, const char *path, const char *header, int64_t steps,
                   struct rv_error_info *err)
{
        char *line = NULL;
        size_t size = 0;
        int64_t rows = -1;
        off_t end = 0;
        for (ssize_t length; rows < steps && (length = getline(&line, &size, stream)) > 0; rows++) {
                const bool right = rows < 0 ? strcmp(line, header) == 0 : strtoll(line, NULL, 10) == rows + 1;
                if (!right || line[length - 1] != '\n')
                        break;
                end += length;
        }
        free(line);
        if (rows < steps)
                return rv_fail(
                        err, RV_EINPUT,
                        "--log %s: has not the rows of the %lld steps that the training goes on behind: "
                        "its own log or a new file was expected",
                        path, (long long)steps);
        if (fseeko(stream, end, SEEK_SET) != 0 || ftruncate(fileno(stream), end) != 0)
                return rv_fail(err, RV_ESYSTEM, "--log %s: cannot be written: %s", path, strerror(errno));
        return 0;
}

/* It is written as the training goes, so that it stays however that ends. */
static int open_log(struct run *run, struct rv_error_info *err)
{
        static const char
                plain[] = "step,train_loss,val_loss,lr,tokens_per_second,batch_seconds\n",
                mixed[] = "step,train_loss,val_loss,lr,tokens_per_second,batch_seconds,loss_scale,skipped\n";
        const char *path = run->settings.log, *header = options_mixed(&run->settings.plan) ? mixed : plain;
        if (run->net->rank != 0 || !path)
                return 0;
        run->log = run->begin > 0 ? fopen(path, "r+b") : NULL;
        const bool there = run->log;
        if (!there)
                run->log = fopen(path, "wb");
        if (!run->log)
                return rv_fail(err, RV_EINPUT, "--log %s: cannot be written: %s", path, strerror(errno));
        if (there)
                return cut_log(run->log, path, header, run->begin, err);
        fputs(header, run->log);
        return 0;
}

/* The loss scale is the one that this step was computed with. */
static void write_log(struct run *run, int64_t step, const struct trainer_result *result, double validation)
{
        if (!run->log)
                return;
        const struct batch_times *times = &run->trainer.times[step];
        double seconds = times->ended - times->started;
        char trained[32] = "", validated[32] = ""; /* empty: none, or lost */
        if (!isnan(result->loss))
                snprintf(trained, sizeof trained, "%.9g", result->loss);
        if (!isnan(validation))
                snprintf(validated, sizeof validated, "%.9g", validation);
        fprintf(run->log, "%lld,%s,%s,%.9g,%.6g,%.6g", (long long)step + 1, trained, validated,
                optim_lr(&run->settings.optim, step), tokens_of_batch(run) / seconds, seconds);
        if (options_mixed(&run->settings.plan))
                fprintf(run->log, ",%.0f,%d", run->trainer.train.driver.loss_scale, result->skipped);
        fputc('\n', run->log);
        if (fflush(run->log) != 0 && run->log_reason == 0)
                run->log_reason = errno;
}

/* ---- training ---- */

/* What it looks at is the same on every rank, so that all stop together. */
static int diverged(const struct run *run, const char *what, double value, int64_t step,
                    struct rv_error_info *err)
{
        if (isfinite(value))
                return 0;
        return rv_fail(err, RV_ESYSTEM,
                       "the %s of step %lld is %s: a lower --lr (now %g)%s may keep the training stable",
                       what, (long long)step + 1, isnan(value) ? "not a number" : "infinite",
                       run->settings.optim.lr, run->settings.optim.clip > 0 ? "" : " or --clip 1");
}

/* Halving the loss scale has not helped, and it is halved no more. */
static int check_scale(const struct run *run, int64_t step, struct rv_error_info *err)
{
        const struct loss_scaler *scaler = &run->trainer.scaler;
        if (scaler->stuck < MAX_STUCK_STEPS)
                return 0;
        if (run->settings.plan.dtype == DTYPE_BF16)
                return rv_fail(
                        err, RV_ESYSTEM,
                        "gradients were infinite or not a number in the last %d steps up to step %lld: a "
                        "lower --lr (now %g) may keep the training stable",
                        scaler->stuck, (long long)step + 1, run->settings.optim.lr);
        return rv_fail(
                err, RV_ESYSTEM,
                "gradients overflowed fp16 in the last %d steps up to step %lld although the loss scale "
                "is at its least, 2^%d: a lower --lr (now %g) may keep the training stable",
                scaler->stuck, (long long)step + 1, ilogb(scaler->scale), run->settings.optim.lr);
}

/* What stops the training after a step. The loss of a skipped step may be anything: what overflowed may have
 * been an activation, and a lower scale may still help. How many such steps there can be, check_scale says.
 */
static int check_step(const struct run *run, int64_t step, const struct trainer_result *result,
                      struct rv_error_info *err)
{
        if (result->skipped)
                return check_scale(run, step, err);
        int rc = diverged(run, "loss", result->loss, step, err);
        return rc ? rc : diverged(run, "gradient norm", result->squared_norm, step, err);
}

/* The first step that the report's times may count. */
static int64_t first_measured(const struct run *run)
{
        const bool warms_up = run->settings.optim.steps - run->begin > 2 * WARM_UP_BATCHES;
        return run->begin + (warms_up ? WARM_UP_BATCHES : 0);
}

static struct trainer_result take_step(struct run *run, int64_t step)
{
        struct trainer *t = &run->trainer;
        const bool record = run->settings.plan.trace && step >= run->settings.optim.steps - TRACED_BATCHES;
        if (!run->kernels || step < first_measured(run))
                return trainer_step(t, step, record);
        kernel_times_begin(run->kernels, t->device);
        const struct trainer_result result = trainer_step(t, step, record);
        kernel_times_end(run->kernels, t->device, t->times[step].ended - t->times[step].started);
        return result;
}

/* Behind a step: what is printed, logged and kept. */
static void note_step(struct run *run, int64_t step, const struct trainer_result *result, double validation)
{
        const struct history history = {run->losses, run->first_validation};
        run->losses[step] = result->loss;
        if (run->net->rank == 0) {
                print_progress(run, step, result, validation);
                write_log(run, step, result, validation);
        }
        /* The rows of a checkpoint's steps are on the disk before it is. */
        if (run->keeper && keeper_after_step(run->keeper, step, result, &history) && run->log)
                fsync(fileno(run->log));
}

static int train(struct run *run, struct rv_error_info *err)
{
        const struct train_settings *s = &run->settings;
        int64_t steps = s->optim.steps;
        trainer_start_clock(&run->trainer);
        if (run->begin == 0)
                run->first_validation = validates(run) ? trainer_validate(&run->trainer) : NAN;
        run->last_validation = run->first_validation;
        run->started = run->last_line = device_seconds();
        for (int64_t step = run->begin; step < steps && run->end == steps; step++) {
                if (run->keeper)
                        keeper_before_step(run->keeper);
                struct trainer_result result = take_step(run, step);
                double validation = NAN;
                if (check_step(run, step, &result, err))
                        return err->code;
                if (!isfinite(result.loss))
                        result.loss = NAN; /* lost, in a skipped step: one word for it everywhere */
                bool due = step + 1 == steps || (s->validate_every && (step + 1) % s->validate_every == 0);
                if (due && validates(run)) {
                        run->last_validation = validation = trainer_validate(&run->trainer);
                        if (diverged(run, "validation loss", validation, step, err))
                                return err->code;
                }
                note_step(run, step, &result, validation);
                if (result.stops > 0)
                        run->end = step + 1;
        }
        return 0;
}

/* ---- the report ---- */

/* What every rank tells rank 0 about its memory. */
struct rank_memory {
        struct memory_bytes bytes;
        int64_t live_peak, host_peak;
        int64_t used; /* of its device's memory, by all who use it, as the driver counts; -1: not known */
        /* Of spread experts: the largest share of rows of a rank, on average and at most; 0: there are none
         */
        double mean_load, largest_load;
};

/* What rank 0 knows in the end: of every rank, batch by batch where it says batches. */
struct results {
        struct batch_times *times;
        int batches;
        struct rank_memory *memory;
        struct kernel_summary *kernels; /* NULL: not asked for */
};

static int64_t used_bytes(struct device *device)
{
        int64_t free_bytes, total_bytes;
        if (!device->ops->memory)
                return -1;
        device->ops->memory(device, &free_bytes, &total_bytes);
        return total_bytes - free_bytes;
}

static struct rank_memory own_memory(const struct run *run)
{
        struct rank_memory memory = {.bytes = run->trainer.device->bytes,
                                     .live_peak = run->trainer.ledger.total_peak[MEMORY_DEVICE]};
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        memory.host_peak = usage.ru_maxrss * 1024;
        run->trainer.device->ops->synchronize(run->trainer.device); /* it then knows of its products */
        memory.used = used_bytes(run->trainer.device);
        const struct driver_real *driver = &run->trainer.train.driver;
        memory.mean_load = driver->loads > 0 ? driver->load_sum / (double)driver->loads : 0;
        memory.largest_load = driver->load_max;
        return memory;
}

/* Puts the times of the steps to report first in trainer.times and returns how many they are, the same on
 * every rank: those after the warm-up that were not skipped, for a skipped one has no update; all of them if
 * there is no other. */
static int pick_batches(struct run *run)
{
        const struct trainer *t = &run->trainer;
        const int64_t steps = run->end,
                      first = first_measured(run) < steps ? first_measured(run) : run->begin;
        int updated = 0, kept = 0;
        for (int64_t step = first; step < steps; step++)
                updated += !t->skipped[step];
        for (int64_t step = first; step < steps; step++)
                if (updated == 0 || !t->skipped[step])
                        t->times[kept++] = t->times[step];
        return kept;
}

/* The first `batches` of trainer.times, batch by batch and rank by rank; on rank 0 only. */
static struct batch_times *gather_times(struct run *run, int batches)
{
        struct net *net = run->net;
        size_t count = (size_t)batches * (size_t)net->ranks;
        struct batch_times *all = NULL, *by_batch = NULL;
        if (net->rank == 0) {
                all = malloc(count * sizeof *all);
                by_batch = malloc(count * sizeof *by_batch);
                if (!all || !by_batch)
                        abort();
        }
        net->ops->gather(net, run->trainer.times, batches * (int64_t)sizeof *all, all);
        for (int rank = 0; all && rank < net->ranks; rank++)
                for (int batch = 0; batch < batches; batch++)
                        by_batch[batch * net->ranks + rank] = all[rank * batches + batch];
        free(all);
        return by_batch;
}

/* Every rank's, on rank 0 only; NULL if not asked for. */
static struct kernel_summary *gather_kernels(struct run *run)
{
        struct net *net = run->net;
        if (!run->kernels || run->kernels->batches == 0)
                return NULL;
        struct kernel_summary *mine = malloc(sizeof *mine), *all = NULL;
        if (net->rank == 0)
                all = malloc((size_t)net->ranks * sizeof *all);
        if (!mine || (net->rank == 0 && !all))
                abort();
        kernel_times_summary(run->kernels, mine);
        net->ops->gather(net, mine, sizeof *mine, all);
        free(mine);
        return all;
}

/* What rank 0's device says of itself, and what every rank's has of its memory in use. */
static json_t *device_json(const struct run *run, const struct rank_memory *memory)
{
        const struct device *device = run->trainer.device;
        const struct device_description *d = &device->description;
        json_t *used = json_array();
        for (int i = 0; i < run->net->ranks; i++)
                json_array_append_new(used, memory[i].used < 0 ? json_null() : json_integer(memory[i].used));
        return json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:s?, s:b, s:i, s:i, s:i, s:s?, s:i, s:i, s:I, s:o}",
                         "kind", device->ops->name, "name", d->name, "driver", d->driver, "processors",
                         d->processors, "clock_hertz", d->clock_hertz, "memory_clock_hertz",
                         d->memory_clock_hertz, "cpu_kernels", d->cpu_kernels, "graphs",
                         device->ops->begin_group && !run->settings.no_graphs, "products", d->products,
                         "refused_products", d->refused_products, "timed_products", d->timed_products,
                         "attention", d->attention[0] ? d->attention : NULL, "attention_shapes",
                         d->attention_shapes, "library_attention_shapes", d->library_attention_shapes,
                         "overhead_bytes", (json_int_t)device->overhead_bytes, "used_bytes", used);
}

/* What a rank's experts had of a layer's rows, of all ranks and of those that had most. */
struct loads {
        double mean, largest, exponent;
};

static struct loads loads_of(const struct run *run, const struct rank_memory *memory)
{
        struct loads loads = {0};
        for (int i = 0; i < run->net->ranks; i++) {
                loads.mean += memory[i].mean_load / run->net->ranks;
                loads.largest = fmax(loads.largest, memory[i].largest_load);
        }
        if (loads.mean > 0)
                loads.exponent = routing_exponent(&run->settings.plan.gpt, run->settings.plan.ep, loads.mean);
        return loads;
}

static void print_loads(const struct run *run, const struct rank_memory *memory)
{
        const struct loads loads = loads_of(run, memory);
        if (loads.mean > 0)
                printf("experts     the rank with most rows had %.2f times an even share on average, %.2f at "
                       "most; "
                       "as of simulate --routing-exponent %.2f\n",
                       loads.mean, loads.largest, loads.exponent);
}

static json_t *loads_json(const struct run *run, const struct rank_memory *memory)
{
        const struct loads loads = loads_of(run, memory);
        if (loads.mean == 0)
                return NULL;
        return json_pack("{s:f, s:f, s:f}", "mean_load", loads.mean, "largest_load", loads.largest,
                         "routing_exponent", loads.exponent);
}

/* Of rank 0. */
static json_t *kept_json(const struct keeper_done *kept)
{
        json_t *each = json_array();
        for (int i = 0; i < kept->begun; i++)
                json_array_append_new(each,
                                      json_pack("{s:I, s:f, s:f}", "step", (json_int_t)kept->each[i].step,
                                                "exposed_seconds", kept->each[i].exposed_seconds,
                                                "writing_seconds", kept->each[i].writing_seconds));
        return json_pack("{s:i, s:i, s:I, s:o}", "complete", kept->checkpoints, "failed", kept->failed,
                         "bytes_of_rank_0", (json_int_t)kept->bytes, "each", each);
}

static json_t *extra_members(const struct run *run, const struct results *results)
{
        const struct train_settings *s = &run->settings;
        const struct trainer *t = &run->trainer;
        bool validated = validates(run), mixed = options_mixed(&s->plan);
        json_t *training = json_pack(
                "{s:s, s:s?, s:i, s:o, s:o, s:f, s:f}", "data", s->data, "init", s->init, "threads",
                s->threads, "loss_scale", mixed ? json_real(t->scaler.scale) : json_null(), "skipped_steps",
                mixed ? json_integer(t->optim.skipped) : json_null(), "host_link_bytes_per_second",
                s->host_link_bytes_per_second, "net_link_bytes_per_second", s->net_link_bytes_per_second);
        if (run->keeper)
                json_object_set_new(training, "checkpoints", kept_json(&run->kept));
        if (run->begin > 0)
                json_object_update_new(training,
                                       json_pack("{s:I, s:I, s:f}", "resumed_behind", (json_int_t)run->begin,
                                                 "resumed_bytes", (json_int_t)run->resumed_bytes,
                                                 "resumed_seconds", run->resumed_seconds));
        json_t *options = train_options_json(s);
        json_object_update(training, options);
        json_decref(options);
        return json_pack(
                "{s:o, s:{s:I}, s:o, s:o, s:o, s:o*, s:o*}", "device", device_json(run, results->memory),
                "capacity", "device_bytes", (json_int_t)t->device->limit_bytes[MEMORY_DEVICE], "training",
                training, "first_validation_loss", validated ? json_real(run->first_validation) : json_null(),
                "last_validation_loss", validated ? json_real(run->last_validation) : json_null(), "kernels",
                results->kernels ? kernel_summary_json(results->kernels, run->net->ranks) : NULL, "experts",
                loads_json(run, results->memory));
}

static int write_report(struct run *run, const struct results *results, struct rv_error_info *err)
{
        int ranks = run->net->ranks, batches = results->batches, rc = 0;
        const struct rank_memory *memory = results->memory;
        double *seconds = malloc((size_t)batches * sizeof *seconds);
        struct memory_bytes *bytes = malloc((size_t)ranks * sizeof *bytes);
        int64_t *live = malloc((size_t)ranks * sizeof *live), host = 0;
        if (!seconds || !bytes || !live)
                abort();
        for (int i = 0; i < ranks; i++) {
                bytes[i] = memory[i].bytes;
                live[i] = memory[i].live_peak;
                host = memory[i].host_peak > host ? memory[i].host_peak : host;
        }
        struct phases phases = phases_median(results->times, batches, ranks, seconds);
        json_t *extra = extra_members(run, results);
        struct report report = {
                .world = "real",
                .command = run->command,
                .options = &run->settings.plan,
                .batch_seconds = seconds,
                .batches = batches,
                .pipeline_seconds = phases.pipeline_seconds,
                .allreduce_seconds = phases.allreduce_seconds,
                .optimizer_seconds = phases.optimizer_seconds,
                .busiest_seconds = phases.busiest_seconds,
                .tensor_seconds = phases.tensor_seconds,
                .bubble_fraction = phases.bubble_fraction,
                .tokens = (int64_t)report_tokens(run->settings.tokens),
                .days_wanted = report_days_wanted(&run->settings.plan.gpt, run->settings.tokens),
                .ranks = ranks,
                .rank_bytes = bytes,
                .rank_live_peak = live,
                .host_peak_bytes = host,
                .loss = run->losses,
                .losses = (int)run->settings.optim.steps,
                .extra = extra,
        };
        if (run->settings.json)
                rc = report_print_json(&report, err);
        else
                report_print(&report, stdout);
        if (rc == 0 && run->settings.plan.report)
                rc = report_write(&report, run->settings.plan.report, err);
        json_decref(extra);
        free(seconds);
        free(bytes);
        free(live);
        return rc;
}

/* Beside what the report says of memory by category. */
static void print_device(const struct run *run, const struct rank_memory *memory)
{
        const struct device *device = run->trainer.device;
        char bytes[NUMBER_TEXT];
        if (memory[0].used < 0)
                return;
        printf("\ndevice      %s, driver %s, CUDA graphs %s\n", device->description.name,
               device->description.driver, run->settings.no_graphs ? "off" : "on");
        if (run->settings.products)
                printf("products    %d of %d shapes by the algorithms that were timed in %s\n",
                       device->description.timed_products, device->description.products,
                       run->settings.products);
        if (device->description.attention[0])
                printf("attention   %d of %d shapes by %s, the others by our kernels\n",
                       device->description.library_attention_shapes, device->description.attention_shapes,
                       device->description.attention);
        else if (run->settings.attention == ATTENTION_AUTO)
                printf("attention   by our kernels: cuDNN, or its plugin, is not there (--attention "
                       "cudnn says what is missing)\n");
        printf("in use      %s of its memory, by all who use it, as the driver counts\n",
               number_bytes(bytes, (double)memory[0].used));
}

static void print_kept(const struct keeper_done *kept)
{
        char bytes[NUMBER_TEXT];
        double exposed = 0, writing = 0;
        for (int i = 0; i < kept->begun; i++) {
                exposed += kept->each[i].exposed_seconds;
                writing += kept->each[i].writing_seconds;
        }
        if (kept->checkpoints == 0)
                printf("checkpoints none was kept\n");
        else
                printf("checkpoints %d kept, of %s a rank; training waited %.3f s for them, and %.3f s were "
                       "written beside it\n",
                       kept->checkpoints, number_bytes(bytes, (double)kept->bytes), exposed, writing);
}

static void print_losses(const struct run *run, int batches)
{
        int64_t steps = run->settings.optim.steps, skipped = run->trainer.optim.skipped;
        printf("\nloss        %.4f in step 1, %.4f in step %lld\n", run->losses[0], run->losses[steps - 1],
               (long long)steps);
        if (validates(run))
                printf("validation  %.4f before, %.4f after\n", run->first_validation, run->last_validation);
        if (run->keeper)
                print_kept(&run->kept);
        const struct options *plan = &run->settings.plan;
        const char *missing = batches < steps - first_measured(run) ? " and are not in the times" : "";
        if (plan->dtype == DTYPE_BF16)
                printf("overflows   %lld of %lld steps were skipped%s\n", (long long)skipped,
                       (long long)steps, missing);
        else if (options_mixed(plan))
                printf("loss scale  2^%d at the end; %lld of %lld steps were skipped%s\n",
                       ilogb(run->trainer.scaler.scale), (long long)skipped, (long long)steps, missing);
}

/* Goes on after a failure, so that what can be kept of a long training is kept; `err` has the first one. */
static void note(struct rv_error_info *err, const struct rv_error_info *late)
{
        if (err->code == RV_OK)
                *err = *late;
}

/* On rank 0. */
static void write_results(struct run *run, const struct results *results, struct rv_error_info *err)
{
        const struct options *o = &run->settings.plan;
        struct rv_error_info report = {0}, trace = {0}, log = {0}, output = {0};
        if (run->log && fclose(run->log) != 0 && run->log_reason == 0)
                run->log_reason = errno;
        if (run->log && run->log_reason)
                rv_fail(&log, RV_ESYSTEM, "%s: could not be written: %s", run->settings.log,
                        strerror(run->log_reason));
        run->log = NULL;
        if (results->batches > 0) {
                write_report(run, results, &report);
        }
        if (results->batches > 0 && !run->settings.json) {
                print_device(run, results->memory);
                print_losses(run, results->batches);
                print_loads(run, results->memory);
        }
        if (results->kernels && !run->settings.json)
                kernel_summary_print(results->kernels, run->net->ranks, stdout);
        if (o->trace) {
                json_t *plan = report_plan_json(o);
                trace_write(&run->trainer.trace, o->trace,
                            &(struct trace_origin){.world = "real",
                                                   .layout = &run->trainer.plan,
                                                   .model = o->gpt.name,
                                                   .machine = run->trainer.device->description.name,
                                                   .plan = plan},
                            &trace);
                json_decref(plan);
        }
        file_check_printed(&output);
        note(err, &log);
        note(err, &report);
        note(err, &trace);
        note(err, &output);
}

enum { MODEL_PATH = 1024 };

/* Where the trained model goes. Returns `path`. */
static const char *model_path(const struct run *run, char path[MODEL_PATH])
{
        snprintf(path, MODEL_PATH, run->keeper ? "%s/model" : "%s", run->settings.checkpoint);
        return path;
}

/* A training that was asked to stop ends with a status of its own. */
static int say_stopped(const struct run *run)
{
        const int64_t steps = run->settings.optim.steps;
        if (run->net->rank == 0 && run->kept.step == run->end)
                fprintf(stderr,
                        "ranvier train: stopped behind step %lld of %lld, as asked: --resume %s goes on from "
                        "there\n",
                        (long long)run->end, (long long)steps, run->settings.checkpoint);
        else if (run->net->rank == 0)
                fprintf(stderr,
                        "ranvier train: stopped behind step %lld of %lld, as asked, but this state was not "
                        "kept\n",
                        (long long)run->end, (long long)steps);
        return run->kept.step == run->end ? STOPPED : 1;
}

/* Collective; the outputs are rank 0's. */
static int finish(struct run *run, struct rv_error_info *err)
{
        const struct train_settings *s = &run->settings;
        char path[MODEL_PATH];
        struct results results = {.batches = pick_batches(run)};
        struct rank_memory mine = own_memory(run);
        results.memory = calloc((size_t)run->net->ranks, sizeof *results.memory);
        if (!results.memory)
                abort();
        if (s->checkpoint)
                collect_checkpoint(run->net, &s->plan, run->trainer.nn, model_path(run, path), s->optim.steps,
                                   err);
        run->net->ops->gather(run->net, &mine, sizeof mine, results.memory);
        results.times = gather_times(run, results.batches);
        results.kernels = gather_kernels(run);
        if (s->plan.trace)
                collect_trace(run->net, &run->trainer.trace);
        if (run->net->rank == 0)
                write_results(run, &results, err);
        free(results.times);
        free(results.memory);
        free(results.kernels);
        return net_agree(run->net, err->code, err);
}

/* The kinds of groups: the first and last stage of a replica share an embedding, shard by shard; the replicas
 * of a stage share gradients, shard by shard, those of spread experts among the replicas that have the same
 * ones; the shards of a stage, the ranks that share its experts, and those that have parts of the same
 * sequences have collectives in every layer. The first member of a group is its colour. */
static void make_groups(const struct run *run)
{
        const struct plan plan = options_plan(&run->settings.plan, false);
        const int rank = run->net->rank, stage = plan_stage(&plan, rank);
        const bool shares = plan.tied && (stage == 0 || stage == plan.pp - 1);
        int colours[NET_WORLD];
        colours[NET_EMBEDDING] = shares ? plan_group(&plan, rank, GROUP_EMBEDDING).first : -1;
        colours[NET_DATA] = plan.dp > 1 ? plan_group(&plan, rank, GROUP_DATA).first : -1;
        colours[NET_TENSOR] = plan.tp > 1 ? plan_group(&plan, rank, GROUP_TENSOR).first : -1;
        colours[NET_EXPERTS] = plan.ep > 1 ? plan_group(&plan, rank, GROUP_EXPERTS).first : -1;
        colours[NET_EXPERT_DATA] = plan.ep > 1 ? plan_group(&plan, rank, GROUP_EXPERT_DATA).first : -1;
        colours[NET_CONTEXT] = plan.cp > 1 ? plan_group(&plan, rank, GROUP_CONTEXT).first : -1;
        colours[NET_SHARERS] = plan_hybrid(&plan) ? plan_group(&plan, rank, GROUP_SHARERS).first : -1;
        colours[NET_SHARE_DATA] = plan_hybrid(&plan) ? plan_group(&plan, rank, GROUP_SHARE_DATA).first : -1;
        net_mpi_groups(run->net, colours);
}

static int check_memory(struct run *run, struct rv_error_info *err)
{
        struct device *device = run->trainer.device;
        const struct device_request request = trainer_device_request(&run->settings, run->net);
        limits_apply(device, &run->settings.plan, run->net);
        limits_choose_logits(&run->settings.plan, device, run->net);
        return limits_check(&run->settings.plan, device, &request, run->net, err);
}

/* The device failed where no call could say so. Other ranks wait for what this one has not sent yet: the
 * whole job ends. */
static void end_job(void *context, const char *sentence)
{
        struct run *run = context;
        fprintf(stderr, "ranvier train: rank %d: %s\n", run->net->rank, sentence);
        net_mpi_abort(run->net, 1);
}

static int open_device(struct run *run, struct rv_error_info *err)
{
        int rc = trainer_open_device(&run->trainer, &run->settings, run->net, err);
        if (rc == 0) {
                run->trainer.device->fail = end_job;
                run->trainer.device->fail_context = run;
        }
        return rc;
}

/* Measures what the machine can do, on all ranks at once as they will train: every rank must call it. */
static int open_kernels(struct run *run, struct rv_error_info *err)
{
        const struct options *plan = &run->settings.plan;
        if (!run->settings.kernels)
                return 0;
        run->net->ops->barrier(run->net);
        run->kernels = malloc(sizeof *run->kernels);
        if (!run->kernels)
                return rv_fail(err, RV_ESYSTEM, "no host memory for the times of kernels");
        struct device_request request = trainer_device_request(&run->settings, run->net);
        request.products = NULL; /* of the training */
        request.attention = ATTENTION_OURS;
        kernel_times_init(run->kernels, &plan->gpt, plan->tp);
        return machine_rates_measure(&run->kernels->rates, options_device(plan), &request, plan->dtype, err);
}

/* From a checkpoint. */
static int go_on(struct run *run, struct rv_error_info *err)
{
        struct history history = {.losses = run->losses};
        const double start = device_seconds();
        const int rc = resume(&run->trainer, &run->begin, &history, &run->resumed_bytes, err);
        run->resumed_seconds = device_seconds() - start;
        run->first_validation = history.first_validation;
        const bool done = run->begin == run->settings.optim.steps;
        if (rc == 0 && run->net->rank == 0)
                fprintf(stderr, "ranvier train: goes on behind step %lld of %lld%s\n", (long long)run->begin,
                        (long long)run->settings.optim.steps,
                        done ? ": only the model was left to be written; there are no times for a report"
                             : "");
        return rc;
}

/* Once is a wish; who sends SIGTERM again wants the process to end at once. SIGUSR1 stays a wish: train
 * --restarts repeats it. */
static void ask_to_stop(int number)
{
        (void)number;
        asked_to_stop = 1;
}

static int open_keeper(struct run *run, struct rv_error_info *err)
{
        const struct sigaction once = {.sa_handler = ask_to_stop,
                                       .sa_flags = (int)(SA_RESETHAND | SA_RESTART)},
                               often = {.sa_handler = ask_to_stop, .sa_flags = SA_RESTART};
        const int rc = keeper_open(&run->keeper, &run->trainer, err);
        if (rc == 0) {
                sigaction(SIGTERM, &once, NULL);
                sigaction(SIGUSR1, &often, NULL);
        }
        run->trainer.train.driver.stops = &asked_to_stop;
        return rc;
}

static int run_training(struct run *run, struct rv_error_info *err)
{
        make_groups(run);
        run->losses = calloc((size_t)run->settings.optim.steps + 1, sizeof *run->losses);
        run->end = run->settings.optim.steps;
        int rc = run->losses ? 0 : rv_fail(err, RV_ESYSTEM, "no host memory for the losses");
        rc = net_agree(run->net, rc, err);
        if (rc == 0 && run->settings.net_link_bytes_per_second > 0)
                rc = net_pace(run->net, run->settings.net_link_bytes_per_second, err);
        if (rc == 0)
                rc = open_kernels(run, err);
        if (rc == 0)
                rc = open_device(run, err);
        rc = net_agree(run->net, rc, err);
        if (rc == 0) /* these three are alike on every rank */
                rc = routes_choose(&run->settings.plan, run->trainer.device, run->net, err);
        if (rc == 0)
                rc = check_memory(run, err);
        if (rc == 0)
                rc = trainer_open_data(&run->trainer, err);
        if (rc == 0) /* the data was opened alike on every rank */
                rc = net_agree(run->net, trainer_open_init(&run->trainer, err), err);
        if (rc == 0)
                rc = trainer_open(&run->trainer, err);
        rc = net_agree(run->net, rc, err);
        if (rc == 0)
                rc = trainer_compare_init(&run->trainer, err);
        if (rc == 0 && run->settings.resume)
                rc = go_on(run, err);
        if (rc == 0)
                rc = net_agree(run->net, open_log(run, err), err);
        if (rc == 0 && train_options_keep(&run->settings))
                rc = open_keeper(run, err);
        if (rc == 0) {
                rc = train(run, err); /* which fails alike on all ranks */
                if (run->keeper)
                        run->kept = keeper_finish(run->keeper);
        }
        if (rc == 0 && run->end == run->settings.optim.steps)
                rc = finish(run, err);
        if (run->log)
                fclose(run->log);
        keeper_close(run->keeper);
        trainer_close(&run->trainer);
        free(run->kernels);
        free(run->losses);
        return rc;
}

static void warn_of_short_sums(const struct options *o)
{
        const struct plan plan = options_plan(o, false);
        if (!options_sums_short(o))
                return;
        fprintf(stderr,
                "ranvier train: warning: gradients of %d micro-batches are added up in bf16, in 8 bits: "
                "those of 32 were 1 to 3 %% off, of 512 24 to 43 %%; %s adds them up in fp32\n",
                plan.micro_batches, options_exact_sums(o));
}

/* What rank 0 says of a plan that is carried out all the same. */
static void warn(const struct options *o)
{
        if (gpt_warning(&o->gpt))
                fprintf(stderr, "ranvier train: warning: %s: %s\n", o->gpt.name, gpt_warning(&o->gpt));
        warn_of_short_sums(o);
}

/* Whether only words are asked for, which need no MPI: it does not start everywhere. */
static bool asks_for_words(int argc, char **argv)
{
        static const char *const words[] = {"--help", "--usage", "--version", "--describe"};
        for (size_t i = 0; argc == 2 && i < sizeof words / sizeof *words; i++)
                if (strcmp(argv[1], words[i]) == 0)
                        return !getenv("OMPI_COMM_WORLD_SIZE");
        return false;
}

static int say_words(int argc, char **argv)
{
        struct rv_error_info err = {0};
        struct train_settings settings;
        const struct net alone = {.ranks = 1, .local_ranks = 1};
        const int rc = train_options_parse(&settings, argc, argv, &alone, &err);
        return command_line_end("train", rc, &err);
}

int main(int argc, char **argv)
{
        struct rv_error_info err = {0};
        struct run run = {0};
        if (argc == 2 && strcmp(argv[1], "--about") == 0)
                return about_main();
        if (asks_for_words(argc, argv))
                return say_words(argc, argv);
        if (supervise_is_asked(argc, argv))
                return supervise(argc, argv);
        run.net = net_mpi_open(&argc, &argv, &err);
        if (!run.net) {
                fprintf(stderr, "ranvier train: %s\n", err.sentence);
                return rv_exit_status(&err);
        }
        run.command = command_line_text("ranvier train", argc, argv);
        int rc = run.command ? train_options_parse(&run.settings, argc, argv, run.net, &err)
                             : rv_fail(&err, RV_ESYSTEM, "no memory for the command line");
        bool done = rc == COMMAND_LINE_DONE;
        rc = net_agree(run.net, done ? 0 : rc, &err);
        if (rc == 0) /* before anything that could wait for ever for a rank that was started otherwise */
                rc = net_agree(run.net, train_options_compare(&run.settings, done, run.net, &err), &err);
        if (rc == 0 && !done && run.net->rank == 0)
                warn(&run.settings.plan);
        if (rc == 0 && !done)
                rc = run_training(&run, &err);
        if (rc && run.net->rank == 0)
                fprintf(stderr, "ranvier train: %s\n", err.sentence);
        const bool stopped = rc == 0 && !done && run.end < run.settings.optim.steps;
        const int status = rc ? rv_exit_status(&err) : stopped ? say_stopped(&run) : 0;
        free(run.command);
        train_options_free(&run.settings);
        run.net->ops->close(run.net);
        return status;
}
