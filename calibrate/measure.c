/* `ranvier calibrate`: measures, in rounds. A round visits every load, and under each load every run of the
 * plan family and every link, so that a machine whose speed drifts is seen in all of its moods by all of
 * them. */
#include "calibrate/bench.h"
#include "runtime/base/command_line.h"
#include "calibrate/crowd.h"
#include "calibrate/family.h"
#include "calibrate/files.h"
#include "calibrate/fits.h"
#include "calibrate/launch.h"
#include "calibrate/links.h"
#include "calibrate/machine.h"
#include "calibrate/overhead.h"
#include "calibrate/phase.h"
#include "calibrate/request.h"
#include "calibrate/samples.h"
#include "runtime/base/child.h"
#include "runtime/base/file.h"
#include "runtime/device/device.h"
#include "runtime/plan/options.h"
#include "runtime/base/number.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_LOADS = 2 };

/* In the environment: the profile's "waiting", measured before there were ranks. */
static const char WAITING[] = "RANVIER_CALIBRATE_WAITING";

/* Which part of the samples may be disturbed without a warning. */
static const double MUCH_COMPANY = 0.02;

/* How long and how often. */
struct effort {
        double seconds;       /* a precision, for all rounds together, if they can be had for that */
        double visit_seconds; /* that a run is repeated for in one visit; less, if less time was asked for */
        int min_rounds, max_rounds, repetitions, phases, max_passes;
        double pass_flops; /* a few seconds on a core; a model with more is cut to fewer blocks */
};
static const struct effort QUICK = {22, 0.15, 2, 4, 4, 1, 40, 2e11},
                           THOROUGH = {70, 0.3, 3, 12, 6, 2, 40, 2e11};
/* A GPU's clock follows its power within a tenth of a second: it is to be at work for longer. */
static const struct effort GPU_QUICK = {15, 0.4, 2, 4, 8, 1, 200, 2e13},
                           GPU_THOROUGH = {45, 1, 3, 8, 16, 2, 400, 2e13};

struct session {
        struct net *net;
        struct request request;
        struct family family;
        struct profile_device device;
        char attention[32];          /* the library that ran some of it; empty: none */
        const char *cpu_kernels;     /* the variant that the CPU device runs; NULL: a GPU computes */
        struct family_room room;     /* of the first rank */
        int64_t device_memory_bytes; /* that a rank may allocate */
        int peak_size;               /* 0: not known yet */
        const struct effort *effort;
        struct samples loads[MAX_LOADS];
        int load_count;
        /* Of each load: how many rounds of this rank were left out, and which part of all kernels' samples.
         */
        int left_out[MAX_LOADS];
        double disturbed[MAX_LOADS];
        bool unwritten;              /* no file can be written */
        int *passes;                 /* of one visit to each run; 0: not known yet */
        double stretched[MAX_LOADS]; /* what kernels of passes were multiplied by; 0: they were not */
        char *products;              /* algorithms that were timed so far, request.products; NULL: none */
        int steps_done, steps;       /* for the progress line; `steps` is 0 until the first round is over */
        double began, reported;
};

/* ---- progress, on the first rank's standard error ---- */

static void show_bar(const struct session *s, double elapsed)
{
        enum { WIDTH = 30 };
        double part = s->steps ? (double)s->steps_done / s->steps : 0;
        int filled = (int)(part * WIDTH);
        fprintf(stderr, "\rcalibrate [%.*s%*s] %3.0f %%", filled, "##############################",
                WIDTH - filled, "", 100 * part);
        if (s->steps)
                fprintf(stderr, ", %.0f s left ", elapsed * (1 - part) / part);
        fflush(stderr);
}

static void show_line(const struct session *s, double elapsed)
{
        if (s->steps)
                fprintf(stderr, "calibrate: %.0f %%, %.0f s left\n", 100.0 * s->steps_done / s->steps,
                        elapsed * (s->steps - s->steps_done) / s->steps_done);
        else
                fprintf(stderr, "calibrate: first round, step %d\n", s->steps_done);
}

static void step_done(struct session *s)
{
        double now = device_seconds();
        bool terminal = isatty(STDERR_FILENO);
        s->steps_done++;
        if (s->net->rank != 0 || now - s->reported < (terminal ? 0.2 : 5))
                return;
        s->reported = now;
        if (terminal)
                show_bar(s, now - s->began);
        else
                show_line(s, now - s->began);
}

/* ---- measuring ---- */

/* Other ranks cannot be told in time that one of them failed: end the job. */
static void give_up(const struct session *s, const struct rv_error_info *err)
{
        fprintf(stderr, "ranvier calibrate: rank %d: %s\n", s->net->rank, err->sentence);
        net_mpi_abort(s->net, rv_exit_status(err));
}

/* How often a run is repeated in a visit, from the length of its warm-up pass. */
static int choose_passes(const struct session *s, const struct family_run *run, double seconds)
{
        int min = run->every_optimizer ? run->optimizer_count : 1;
        const double asked = s->request.seconds > 0 ? s->request.seconds : s->effort->seconds;
        double wanted = ceil(s->effort->visit_seconds * fmin(1, asked / s->effort->seconds) / seconds);
        int passes = wanted > s->effort->max_passes ? s->effort->max_passes : (int)wanted;
        return passes > min ? passes : min;
}

/* So that a product has one algorithm throughout; and whose attention it was. */
static void keep_choices(struct session *s, const struct bench *bench)
{
        const struct device_description *description = bench_description(bench);
        if (description->library_attention_shapes > 0)
                snprintf(s->attention, sizeof s->attention, "%s", description->attention);
        char *products = s->request.time_products ? bench_products(bench) : NULL;
        if (!products)
                return;
        free(s->products);
        s->products = products;
        s->request.products = products;
}

static void visit_run(struct session *s, int round, int index, struct samples *samples)
{
        const struct family_run *run = &s->family.runs[index];
        struct rv_error_info err = {0};
        struct bench *bench = bench_open(run, &s->request, &err);
        if (!bench)
                give_up(s, &err);
        if (samples->ranks > 1)
                s->net->ops->barrier(s->net);
        double start = device_seconds();
        bench_pass(bench, s->net, samples->ranks, 0, NULL);
        if (s->passes[index] == 0)
                s->passes[index] = choose_passes(s, run, device_seconds() - start);
        bench_parted_pass(bench, s->net, samples);
        for (int pass = 0; pass < s->passes[index]; pass++) {
                double seconds = bench_pass(bench, s->net, samples->ranks, pass + round, samples);
                if (request_gpu(&s->request))
                        seconds = bench_plain_pass(bench, s->net);
                series_add(&samples->passes[index], seconds);
        }
        keep_choices(s, bench);
        bench_close(bench);
        step_done(s);
}

/* As many phases of each size on every rank: they meet in each. */
static void visit_phase(struct session *s, const struct family_phase *family_phase, struct samples *samples)
{
        struct rv_error_info err = {0};
        struct phase *phase = phase_open(family_phase, &s->request, &err);
        if (!phase)
                give_up(s, &err);
        for (int turn = -1; turn < s->effort->phases; turn++) /* the first one warms up */
                for (int i = 0; i < family_phase->update_count; i++)
                        phase_run(phase, s->net, samples->ranks, family_phase->updates[i],
                                  turn < 0 ? NULL : samples);
        phase_close(phase);
        step_done(s);
}

static void visit_runs(struct session *s, int round, struct samples *samples)
{
        struct links_receive receive = {0};
        if (samples->ranks > 1)
                links_post_receive(s->net, &receive);
        for (int i = 0; i < s->family.run_count; i++)
                visit_run(s, round, i, samples);
        for (int i = 0; i < s->family.phase_count; i++)
                visit_phase(s, &s->family.phases[i], samples);
        if (samples->ranks > 1)
                links_take_receive(s->net, &receive);
}

/* The run that computes while messages are measured: the middle one of the family. */
static void visit_messages(struct session *s, struct samples *samples)
{
        struct rv_error_info err = {0};
        const struct family_run *run = &s->family.runs[s->family.run_count / 2];
        struct bench *bench = bench_open(run, &s->request, &err);
        if (!bench || links_messages(s->net, bench, s->effort->repetitions, samples, &err) != RV_OK)
                give_up(s, &err);
        bench_close(bench);
        step_done(s);
}

static void visit_links(struct session *s, struct samples *samples)
{
        struct rv_error_info err = {0};
        int repetitions = s->effort->repetitions;
        if (s->peak_size == 0)
                s->peak_size = bench_peak_size(&s->request, s->net, &err);
        if (s->peak_size == 0 || bench_peak(&s->request, s->net, s->peak_size, 2, samples, &err) != RV_OK ||
            overhead_launches(s->net, &s->request, repetitions, samples, &err) != RV_OK ||
            links_copies(s->net, &s->request, repetitions, samples, &err) != RV_OK)
                give_up(s, &err);
        step_done(s);
        if (samples->ranks == 1)
                return;
        visit_messages(s, samples);
        if (links_allreduces(s->net, s->family.reductions, s->family.reduction_count, repetitions, samples,
                             &err) != RV_OK)
                give_up(s, &err);
        step_done(s);
}

/* Few rounds are enough of what takes as long as that, and a load is as good as another. Without a place to
 * write there is a profile all the same. */
static void visit_files(struct session *s, int round, struct samples *samples)
{
        enum { ROUNDS = 3 };
        struct rv_error_info err = {0};
        if (samples == s->loads && s->net->rank == 0 && round < ROUNDS && !s->unwritten)
                s->unwritten = !files_write(s->net, &s->request, samples, &err);
        if (err.code != RV_OK)
                fprintf(stderr, "ranvier calibrate: warning: no file was timed: %s\n", err.sentence);
        if (samples->ranks > 1)
                s->net->ops->barrier(s->net);
}

static void visit_load(struct session *s, int round, struct samples *samples)
{
        struct net *net = s->net;
        if (samples->ranks < net->ranks && net->rank >= samples->ranks) {
                links_sleep(net);
                return;
        }
        if (samples->ranks == net->ranks) { /* as many passes on every rank: they meet in each */
                net->ops->broadcast(net, s->passes, s->family.run_count * (int64_t)sizeof *s->passes, 0);
                net->ops->broadcast(net, &s->peak_size, sizeof s->peak_size, 0);
        }
        visit_runs(s, round, samples);
        visit_links(s, samples);
        visit_files(s, round, samples);
        if (samples->ranks < net->ranks)
                links_wake(net);
}

/* How many rounds there are in all, after `done` of them: as many as there is time for at their speed so far,
 * and up to twice as many as long as kernels have not settled, unless a time was asked for. The first rank
 * decides. */
static int choose_rounds(const struct session *s, int done)
{
        const struct effort *effort = s->effort;
        double seconds = 0;
        for (int dtype = 0; dtype < DTYPES; dtype++)
                seconds += s->request.precisions[dtype] ? effort->seconds : 0;
        if (s->request.seconds)
                seconds = s->request.seconds;
        double each = (device_seconds() - s->began) / done;
        int rounds = (int)fmin(floor(seconds / each), effort->max_rounds);
        bool settled = true;
        if (rounds < effort->min_rounds)
                rounds = effort->min_rounds;
        for (int i = 0; i < s->load_count; i++)
                settled = settled && samples_settled(&s->loads[i]);
        settled = settled || s->request.seconds > 0;
        if (done >= rounds)
                rounds = settled || done >= 2 * rounds ? done : done + 1;
        s->net->ops->broadcast(s->net, &rounds, sizeof rounds, 0);
        return rounds;
}

static void measure(struct session *s)
{
        int rounds = 1;
        s->began = s->reported = device_seconds();
        for (int round = 0; round < rounds; round++) {
                for (int i = 0; i < s->load_count; i++)
                        visit_load(s, round, &s->loads[i]);
                for (int i = 0; i < s->load_count; i++)
                        samples_end_round(&s->loads[i]);
                rounds = choose_rounds(s, round + 1);
                s->steps = s->steps_done / (round + 1) * rounds;
        }
        for (int i = 0; i < s->load_count; i++) {
                s->left_out[i] = samples_leave_out_rounds(&s->loads[i]);
                if (s->loads[i].ranks > 1)
                        samples_gather(&s->loads[i], s->net);
                s->disturbed[i] = samples_disturbed(&s->loads[i]);
        }
        if (s->net->rank == 0 && isatty(STDERR_FILENO))
                fprintf(stderr, "\r%60s\r", "");
}

/* ---- the profile ---- */

static double peak_of(const struct session *s, const struct profile_load *load)
{
        const struct kernel kernel = bench_peak_kernel(&s->request, s->peak_size);
        for (int i = 0; i < load->point_count; i++)
                if (kernel_same(&load->points[i].kernel, &kernel))
                        return kernel_flops(&kernel) / load->points[i].seconds;
        return 0;
}

/* The product that told the peak, "sgemm 1024" or "matmul_bf16 8192". */
static const char *name_peak(const struct session *s, char text[PROFILE_NAME + 16])
{
        const struct kernel kernel = bench_peak_kernel(&s->request, s->peak_size);
        char name[PROFILE_NAME];
        profile_kernel_name(name, kernel.kind, (enum dtype)kernel.dtype);
        snprintf(text, PROFILE_NAME + 16, "%s %d", kernel.dtype != DTYPE_FP32 ? name : "sgemm", s->peak_size);
        return text;
}

/* Seconds that the profile gives so many kernels, launched one by one. Collectives were left out. */
static double sum_of(const struct profile *profile, const struct profile_load *load,
                     const struct kernel *kernels, int count)
{
        double sum = 0, seconds;
        int launches = 0;
        for (int i = 0; i < count; i++) {
                if (kernel_collective(kernels[i].kind))
                        continue;
                launches++;
                if (profile_kernel_seconds(profile, load, &kernels[i], false, &seconds, NULL, NULL) == RV_OK)
                        sum += seconds;
        }
        return fmax(sum, launches * load->launch.host_seconds);
}

/* Whether the whole is the sum of its parts: a run's forward and backward as the profile prices them, kernel
 * by kernel, over what they took. On a GPU the whole was timed by the host, as two operations, with no
 * recorder. */
static double closure(const struct profile *profile, const struct profile_load *load,
                      const struct family_run *run, struct series *passes)
{
        const struct work *work = &run->plan.work;
        const int forward = workload_forward(&run->gpt, &run->stage, work, false, NULL);
        int count;
        struct kernel *kernels = family_pass(run, &count);
        double sum = sum_of(profile, load, kernels, forward) +
                     sum_of(profile, load, kernels + forward, count - forward);
        if (strcmp(profile->device.name, "cpu") != 0)
                sum += 2 * load->op_overhead_seconds;
        free(kernels);
        return sum / series_quantile(passes, 0.5);
}

/* What kernels that are added up miss of the passes that they were timed in is wrong with all of them alike.
 */
static void add_closure_error(struct session *s, const struct profile *profile, int index)
{
        struct profile_load *load = &profile->loads[index];
        double squares = 0;
        for (int i = 0; i < s->family.run_count; i++) {
                const double part = closure(profile, load, &s->family.runs[i], &s->loads[index].passes[i]);
                squares += (part - 1) * (part - 1);
        }
        /* The stretch was found from the same sums, of which it leaves one less to differ. */
        const double stretch = s->stretched[index] > 0 ? s->stretched[index] - 1 : 0;
        const int runs = s->family.run_count;
        squares = stretch == 0 ? squares / runs : runs > 1 ? squares / (runs - 1) : stretch * stretch;
        if (load->error > 0)
                load->error = sqrt(load->error * load->error + squares);
}

/* What the kernels of a load's passes add up to, as a part of what the passes took: the least and the most.
 */
struct sums {
        double min, max;
};

static struct sums sums_of(struct session *s, const struct profile *profile, int load)
{
        struct sums sums = {INFINITY, 0};
        for (int i = 0; i < s->family.run_count; i++) {
                const double part = closure(profile, &profile->loads[load], &s->family.runs[i],
                                            &s->loads[load].passes[i]);
                sums.min = fmin(sums.min, part);
                sums.max = fmax(sums.max, part);
        }
        return sums;
}

/* A GPU rests before each kernel that is timed by itself. In a pass it does not, and runs at the clock that
 * its power allows: what passes take of the sum of their kernels is put on these kernels. But for more than a
 * tenth, which is something else. */
static void stretch_kernels(struct session *s, struct profile *profile, int index)
{
        static const double most = 0.1;
        const struct kernel peak = bench_peak_kernel(&s->request, s->peak_size);
        double inverse = 0;
        for (int i = 0; i < s->family.run_count; i++)
                inverse += 1 / closure(profile, &profile->loads[index], &s->family.runs[i],
                                       &s->loads[index].passes[i]);
        const double factor = inverse / s->family.run_count;
        if (!(fabs(factor - 1) <= most))
                return;
        s->stretched[index] = factor;
        samples_stretch(&s->loads[index], factor, &peak);
        profile_load_free(&profile->loads[index]);
        profile->loads[index] = samples_load(&s->loads[index], s->device.processors);
}

static struct profile make_profile(struct session *s)
{
        char peak[PROFILE_NAME + 16];
        struct profile profile = {.device = s->device,
                                  .measured = true,
                                  .device_memory_bytes = s->device_memory_bytes,
                                  .host_link_bytes_per_second = s->request.host_link_bytes_per_second,
                                  .machine = machine_describe(s->request.threads, s->cpu_kernels),
                                  .load_count = s->load_count};
        if (s->attention[0])
                json_object_set_new(profile.machine, "attention", json_string(s->attention));
        if (s->products)
                profile.products = json_loads(s->products, 0, NULL);
        snprintf(profile.path, sizeof profile.path, "%s", s->request.out);
        profile.waiting = getenv(WAITING) ? atof(getenv(WAITING)) : 0;
        profile.unfused = !s->request.fused;
        profile.whole_logits = request_gpu(&s->request) && s->request.fused;
        snprintf(profile.source, sizeof profile.source,
                 "measured by ranvier calibrate%s; peak: %s, one rank alone, %d thread%s",
                 s->request.quick ? " --quick" : "", name_peak(s, peak), s->request.threads,
                 rv_plural(s->request.threads));
        profile.loads = calloc((size_t)s->load_count, sizeof *profile.loads);
        if (!profile.loads)
                abort();
        for (int i = 0; i < s->load_count; i++) {
                samples_take_off_timing(&s->loads[i]);
                profile.loads[i] = samples_load(&s->loads[i], s->device.processors);
                if (request_gpu(&s->request))
                        stretch_kernels(s, &profile, i);
        }
        for (int i = 0; i < s->load_count; i++)
                add_closure_error(s, &profile, i);
        for (int i = 0; i < s->load_count; i++) {
                const struct sums sums = sums_of(s, &profile, i);
                profile_warn(&profile, &profile.loads[i], sums.min, sums.max);
                if (s->disturbed[i] > MUCH_COMPANY)
                        profile_warn_of_company(&profile, &profile.loads[i], s->disturbed[i]);
        }
        profile.peak_flops_per_second = peak_of(s, &profile.loads[0]);
        return profile;
}

static void print_load(const struct session *s, const struct profile_load *load)
{
        char peak[PROFILE_NAME + 16];
        printf("\n%d rank%s at work: %.1f Gflop/s each in %s\n", load->ranks, rv_plural(load->ranks),
               peak_of(s, load) / 1e9, name_peak(s, peak));
        fits_print(load, stdout);
}

static void print_launches(const struct profile_load *load, double timing_cost)
{
        char host[NUMBER_TEXT], lane[NUMBER_TEXT];
        const struct profile_launch *launches[] = {&load->launch, &load->graph};
        static const char *const names[] = {"launch", "launch in a graph"};
        for (int i = 0; i < 2; i++)
                if (launches[i]->host_seconds > 0)
                        printf("  %-35s %s of the host a kernel, %s from one to the next\n", names[i],
                               number_seconds(host, launches[i]->host_seconds),
                               number_seconds(lane, launches[i]->lane_seconds));
        if (timing_cost > 0)
                printf("  %-35s %s a kernel, which is taken off\n", "timing itself",
                       number_seconds(host, timing_cost));
}

static void print_company(const struct session *s, int load)
{
        printf("  %-35s %.1f %% of the kernels' samples, which something else on the machine disturbed",
               "left out", 100 * s->disturbed[load]);
        if (s->left_out[load])
                printf("; %d rounds of the first rank", s->left_out[load]);
        printf("\n");
}

static void print_closure(struct session *s, const struct profile *profile, int load)
{
        const struct sums sums = sums_of(s, profile, load);
        printf("  %-35s kernels add up to %.1f to %.1f %% of the passes they were timed in\n", "sum",
               100 * sums.min, 100 * sums.max);
        if (s->stretched[load] > 0)
                printf("  %-35s kernels take %.3f times what they took when they were timed one by one\n",
                       "in passes", s->stretched[load]);
        if (profile->loads[load].error > 0)
                printf("  %-35s %.1f %% that all kernels share: drift from round to round, and that sum\n",
                       "standard error", 100 * profile->loads[load].error);
}

static void print_warnings(const struct profile *profile)
{
        for (size_t i = 0; i < json_array_size(profile->warnings); i++)
                printf("\nWARNING: %s\n", json_string_value(json_array_get(profile->warnings, i)));
}

/* A GPU: the device and what it runs at. */
static void print_device(const struct profile_device *device)
{
        if (device->driver[0])
                printf("%s, driver %s, %d multiprocessors at %.0f MHz, memory at %.0f MHz\n", device->name,
                       device->driver, device->processors, device->clock_hertz / 1e6,
                       device->memory_clock_hertz / 1e6);
}

/* Of the products whose algorithms were timed: how many have another than cuBLASLt's first proposal, and what
 * those take, once each, of what the first would. */
static void print_products(const json_t *products)
{
        const char *name;
        json_t *each;
        double seconds = 0, first = 0;
        int others = 0;
        json_t *chosen = json_object_get(products, "chosen");
        json_object_foreach(chosen, name, each)
        {
                seconds += json_number_value(json_object_get(each, "seconds"));
                first += json_number_value(json_object_get(each, "first_seconds"));
                others += json_integer_value(json_object_get(each, "proposal")) > 1;
        }
        if (first > 0)
                printf("%zu products timed, %d faster by another than cuBLASLt's first proposal; all of them "
                       "once: %.1f %% of the time\n",
                       json_object_size(chosen), others, 100 * seconds / first);
}

static void print_profile(struct session *s, const struct profile *profile)
{
        char text[NUMBER_TEXT];
        print_device(&profile->device);
        print_products(profile->products);
        if (profile->host_link_bytes_per_second > 0)
                printf("copies paced to a link of %.3g GB/s\n", 1e-9 * profile->host_link_bytes_per_second);
        if (profile->waiting > 0)
                printf("where ranks share processors, one that waits takes %.2f of what one that computes "
                       "takes\n",
                       profile->waiting);
        for (int i = 0; i < profile->load_count; i++) {
                const struct profile_load *load = &profile->loads[i];
                print_load(s, load);
                print_launches(load, samples_timing_cost(&s->loads[i]));
                printf("  %-35s %s\n", "between operations", number_seconds(text, load->op_overhead_seconds));
                print_closure(s, profile, i);
                if (!request_gpu(&s->request))
                        print_company(s, i);
        }
        print_warnings(profile);
}

/* Kernels of the family that were not run, since blocks or parameters were cut to fit. */
static int count_missing(const struct family *family, const struct profile_load *load)
{
        int missing = 0;
        for (int i = 0; i < family->kernel_count; i++) {
                int j = 0;
                while (j < load->point_count && !kernel_same(&load->points[j].kernel, &family->kernels[i]))
                        j++;
                missing += j == load->point_count;
        }
        return missing;
}

static int write_profile(struct session *s, struct rv_error_info *err)
{
        struct profile profile = make_profile(s);
        int missing = count_missing(&s->family, &profile.loads[0]);
        int rc = profile_save(&profile, s->request.out, s->request.json, err);
        if (rc == RV_OK && !s->request.json) {
                print_profile(s, &profile);
                if (missing)
                        printf("\n%d kernel%s of the family did not fit and will be taken from the fits\n",
                               missing, rv_plural(missing));
                printf("\nprofile written to %s (%.0f s)\n", s->request.out, device_seconds() - s->began);
                rc = file_check_printed(err);
        }
        profile_free(&profile);
        return rc;
}

/* ---- the command ---- */

/* A quarter of the machine's memory, shared by all ranks: a run needs room beside what is measured. */
static int find_room_of_cpu(struct session *s, struct rv_error_info *err)
{
        const int64_t all = device_cpu_memory_bytes(), share = all / 4 / s->request.ranks;
        struct device *device = bench_device(&s->request, false, err);
        if (!device)
                return err->code;
        s->cpu_kernels = device->description.cpu_kernels;
        device->ops->close(device);
        snprintf(s->device.name, sizeof s->device.name, "cpu");
        s->device_memory_bytes = all / s->request.ranks;
        s->room = (struct family_room){{share, share}, share, s->effort->pass_flops, 0, false};
        return RV_OK;
}

/* All that a rank may allocate of its GPU. Its host memory is the machine's. */
static int find_room_of_gpu(struct session *s, struct rv_error_info *err)
{
        struct device *device = bench_device(&s->request, false, err);
        if (!device)
                return err->code;
        const struct device_description *description = &device->description;
        s->device = (struct profile_device){.processors = description->processors,
                                            .clock_hertz = description->clock_hertz,
                                            .memory_clock_hertz = description->memory_clock_hertz,
                                            .overhead_bytes = device->overhead_bytes};
        snprintf(s->device.name, sizeof s->device.name, "%s", description->name);
        snprintf(s->device.driver, sizeof s->device.driver, "%s", description->driver);
        s->device_memory_bytes = device->limit_bytes[MEMORY_DEVICE];
        s->room = (struct family_room){
                .bytes = {[MEMORY_DEVICE] = s->device_memory_bytes,
                          [MEMORY_HOST] = device_cpu_memory_bytes() / 4 / s->request.ranks},
                .flops = s->effort->pass_flops,
                .widest_head = device->widest_head,
                .whole_logits = request_gpu(&s->request) && s->request.fused};
        device->ops->close(device);
        return RV_OK;
}

static int find_room(struct session *s, struct rv_error_info *err)
{
        const bool gpu = request_gpu(&s->request);
        if (s->request.quick)
                s->effort = gpu ? &GPU_QUICK : &QUICK;
        else
                s->effort = gpu ? &GPU_THOROUGH : &THOROUGH;
        return gpu ? find_room_of_gpu(s, err) : find_room_of_cpu(s, err);
}

/* Without a word to the other ranks. */
static int prepare(struct session *s, struct rv_error_info *err)
{
        int rc = family_init(&s->family, &s->request, &s->room, err);
        if (rc != RV_OK)
                return rc;
        samples_init(&s->loads[s->load_count++], 1, s->family.run_count);
        if (s->net->ranks > 1)
                samples_init(&s->loads[s->load_count++], s->net->ranks, s->family.run_count);
        s->passes = calloc((size_t)s->family.run_count, sizeof *s->passes);
        if (!s->passes)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d runs", s->family.run_count);
        return s->net->rank == 0 ? request_check_out(&s->request, err) : RV_OK;
}

/* All ranks measure the same family, also where one has more memory than another, and all or none begin. */
static int calibrate(struct session *s, struct rv_error_info *err)
{
        struct net *net = s->net;
        int rc = net_agree(net, find_room(s, err), err);
        if (rc != RV_OK)
                return rc;
        net->ops->broadcast(net, &s->room, sizeof s->room, 0);
        rc = net_agree(net, prepare(s, err), err);
        if (rc != RV_OK)
                goto out;
        measure(s);
        rc = net_agree(net, net->rank == 0 ? write_profile(s, err) : RV_OK, err);
out:
        for (int i = 0; i < s->load_count; i++)
                samples_free(&s->loads[i]);
        free(s->passes);
        free(s->products);
        family_free(&s->family);
        return rc;
}

/* What a child of this process found. */
struct answer {
        struct rv_error_info err; /* code RV_OK: it has the room */
        struct family_room room;
};

static int find_and_tell(void *context, int to)
{
        struct session *s = context;
        struct rv_error_info err = {0};
        find_room(s, &err);
        const struct answer answer = {err, s->room};
        return child_tell(to, &answer, sizeof answer);
}

/* The same by a child, so that this process, which becomes mpirun, never opens the GPU: what a driver keeps
 * for a process would stay beside the ranks. */
static int find_room_apart(struct session *s, struct rv_error_info *err)
{
        struct child child;
        struct answer answer;
        char end[96];
        int status;
        if (!request_gpu(&s->request))
                return find_room(s, err);
        const int rc = child_start(&child, find_and_tell, s, "that opens the GPU", err);
        if (rc)
                return rc;
        if (child_answer(&child, &answer, sizeof answer, &status) < sizeof answer)
                return rv_fail(err, RV_ESYSTEM, "the process that was to open the GPU %s, without an answer",
                               child_end(status, end, sizeof end));
        *err = answer.err;
        s->room = answer.room;
        return answer.err.code;
}

static int measure_crowd(const struct request *request, struct rv_error_info *err)
{
        double waiting;
        char text[32];
        fprintf(stderr,
                "ranvier calibrate: %d ranks would share the processors: %d are measured, and simulate lets "
                "more of them share\n",
                request->asked_ranks, request->ranks);
        const int rc = crowd_measure(request, &waiting, err);
        if (rc == RV_OK) {
                snprintf(text, sizeof text, "%.6f", waiting);
                setenv(WAITING, text, 1);
        }
        return rc;
}

/* As the user started it. Everything that can be wrong with the command line is found before there are ranks:
 * mpirun would add a dozen lines of its own to our sentence. */
static int start(int argc, char **argv)
{
        struct rv_error_info err = {0};
        struct session session = {0};
        int rc = request_parse(&session.request, argc, argv, 0, false, &err);
        if (rc == COMMAND_LINE_DONE)
                return 0;
        const bool traced = session.request.trace.file_count > 0;
        if (rc == RV_OK && (traced || session.request.import.table_count > 0)) {
                rc = traced ? trace_run(&session.request.trace, &err)
                            : import_run(&session.request.import, &err);
                if (rc == RV_OK)
                        rc = file_check_printed(&err);
                if (rc == RV_OK)
                        return 0;
        }
        if (rc == RV_OK)
                rc = find_room_apart(&session, &err);
        if (rc == RV_OK)
                rc = family_init(&session.family, &session.request, &session.room, &err);
        family_free(&session.family);
        if (rc == RV_OK)
                rc = request_check_out(&session.request, &err);
        if (rc == RV_OK && session.request.ranks < session.request.asked_ranks)
                rc = measure_crowd(&session.request, &err);
        const bool bound = !request_gpu(&session.request) &&
                           session.request.threads <= 1; /* several threads need several cores */
        if (rc == RV_OK)
                launch(session.request.ranks, bound, argv, &err);
        fprintf(stderr, "ranvier calibrate: %s\n", err.sentence);
        return rv_exit_status(&err);
}

int main(int argc, char **argv)
{
        if (launch_is_needed())
                return start(argc, argv);
        struct rv_error_info err = {0};
        struct session session = {.net = net_mpi_open(&argc, &argv, &err)};
        struct net *net = session.net;
        if (!net) {
                fprintf(stderr, "ranvier calibrate: %s\n", err.sentence);
                return rv_exit_status(&err);
        }
        int rc = request_parse(&session.request, argc, argv, net->ranks, net->rank != 0, &err);
        bool done = rc == COMMAND_LINE_DONE;
        session.request.local_ranks = net->local_ranks;
        session.request.local_rank = net->local_rank;
        if (rc == RV_OK && session.request.threads == 0) {
                session.request.threads = device_cpu_threads(net->local_ranks, &err);
                rc = session.request.threads < 0 ? session.request.threads : RV_OK;
        }
        if (rc == RV_OK && (session.request.import.table_count > 0 || session.request.trace.file_count > 0))
                rc = rv_fail(&err, RV_EINPUT, "%s measures nothing: run it without mpirun",
                             session.request.import.table_count > 0 ? "--import" : "--from-trace");
        rc = net_agree(net, done ? RV_OK : rc, &err);
        for (int i = 0; rc == RV_OK && !done && net->rank == 0 && i < session.request.gpt_count; i++)
                if (gpt_warning(&session.request.gpts[i]))
                        fprintf(stderr, "ranvier calibrate: warning: %s: %s\n", session.request.gpts[i].name,
                                gpt_warning(&session.request.gpts[i]));
        if (rc == RV_OK && !done)
                rc = calibrate(&session, &err);
        if (rc && net->rank == 0)
                fprintf(stderr, "ranvier calibrate: %s\n", err.sentence);
        net->ops->close(net);
        return rc ? rv_exit_status(&err) : 0;
}
