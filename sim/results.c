#include "sim/results.h"

#include "models/file.h"
#include "runtime/engine/report.h"
#include "runtime/sched/policy.h"

#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Most characters of a plan's other choices. */
enum { RESULTS_HOW = 160 };

/* ---- the best ---- */

static bool belongs(const struct job *job, const struct space_group *group)
{
        return job->candidate >= group->candidates && job->candidate < group->candidates + group->count;
}

const struct job *results_best(const struct results *r, const struct space_group *group)
{
        const struct job *best = NULL;
        for (int i = 0; i < r->jobs->count; i++) {
                const struct job *job = &r->jobs->list[i];
                if (job->outcome.state != OUTCOME_DONE || !belongs(job, group))
                        continue;
                double difference = best ? job->outcome.batch_seconds - best->outcome.batch_seconds : -1;
                if (difference < 0 || (difference == 0 && job->candidate < best->candidate))
                        best = job;
        }
        return best;
}

int results_say_failures(const struct results *r, FILE *stream)
{
        int failures = 0;
        for (int i = 0; i < r->jobs->count; i++) {
                const struct job *job = &r->jobs->list[i];
                const struct options *o = &job->candidate->options;
                if (job->outcome.state == OUTCOME_DONE)
                        continue;
                failures++;
                char how[RESULTS_HOW];
                axes_describe(&r->space->axes, o, how, sizeof how);
                fprintf(stream, "ranvier sweep: pp %d x dp %d%s%s%s, micro-batch %d%s%s%s failed: %s\n",
                        o->pp, o->dp, how[0] ? ", " : "", how, o->offload ? " offloaded" : "",
                        o->micro_batch_size, o->recompute ? ", recompute " : "",
                        o->recompute ? recompute_name(o->recompute) : "",
                        o->offload_activations ? ", activations offloaded" : "",
                        job->outcome.state == OUTCOME_FAILED ? job->outcome.failure
                                                             : "nothing is known of it");
        }
        return failures;
}

/* ---- the table ---- */

static const char *yes_no(bool value)
{
        return value ? "yes" : "no";
}

static void print_plan(const struct results *r, const struct space_group *group, const struct job *job,
                       FILE *out)
{
        char how[RESULTS_HOW];
        axes_describe(&r->space->axes, &job->candidate->options, how, sizeof how);
        const struct options *o = &job->candidate->options;
        const struct outcome *f = &job->outcome;
        char grid[32], seconds[REPORT_TEXT], tokens[REPORT_TEXT], device[REPORT_TEXT], host[REPORT_TEXT];
        char peak[16] = "-";
        snprintf(grid, sizeof grid, "%d x %d", o->pp, o->dp);
        if (f->percent_of_peak > 0)
                snprintf(peak, sizeof peak, "%.1f %%", f->percent_of_peak);
        fprintf(out, "%6d  %7s  %9s  %11d  %9s  %11s  %14s  %11s  %7s  %12s  %12s  %7.1f%s%s\n", group->gpus,
                yes_no(group->offload), grid, o->micro_batch_size, recompute_name(o->recompute),
                o->offload_activations ? "offloaded" : "kept", report_seconds(seconds, f->batch_seconds),
                report_count(tokens, f->tokens_per_second), peak,
                report_bytes(device, (double)f->device_peak_bytes),
                report_bytes(host, (double)f->host_peak_bytes), f->training_days, how[0] ? "  " : "", how);
}

static void print_group(const struct results *r, const struct space_group *group, FILE *out)
{
        const struct job *best = results_best(r, group);
        if (best)
                print_plan(r, group, best, out);
        else
                fprintf(out, "%6d  %7s  %s\n", group->gpus, yes_no(group->offload),
                        group->count ? "no simulation succeeded" : "none fits");
}

/* What offloading gains on as many devices. The groups are neighbours. */
static void print_gain(const struct results *r, const struct space_group *without, FILE *out)
{
        const struct space_group *with = without + 1;
        const struct job *a = results_best(r, without), *b = results_best(r, with);
        if (a && b) {
                double gain = 100 * (a->outcome.batch_seconds / b->outcome.batch_seconds - 1);
                double memory = (double)b->outcome.device_total_bytes / (double)a->outcome.device_total_bytes;
                fprintf(out,
                        "on %d GPU%s offloading %s %.1f %% throughput, and takes %.2f times the device "
                        "memory\n",
                        with->gpus, with->gpus == 1 ? "" : "s", gain < 0 ? "costs" : "gains", fabs(gain),
                        memory);
        } else if (b && without->count == 0) {
                fprintf(out, "on %d GPU%s no plan fits without offloading\n", with->gpus,
                        with->gpus == 1 ? "" : "s");
        }
}

/* Why no plan of a group fits: what the one says that is nearest to it, as far as its table. */
static void print_reason(const struct space_group *group, FILE *out)
{
        int length = (int)strcspn(group->nearest.sentence, ":");
        fprintf(out, "on %d GPU%s %s offloading none of %d plans fits; the nearest: %.*s\n", group->gpus,
                group->gpus == 1 ? "" : "s", group->offload ? "with" : "without", group->considered, length,
                group->nearest.sentence);
}

static void print_counts(const struct results *r, FILE *out)
{
        char a[REPORT_TEXT], b[REPORT_TEXT], c[REPORT_TEXT];
        int considered = 0, fitting = 0;
        for (int i = 0; i < r->groups->count; i++) {
                considered += r->groups->groups[i].considered;
                fitting += r->groups->groups[i].fitting;
        }
        fprintf(out,
                "%s plans considered: all weighed against the memories, the %s that fit estimated, the best "
                "%s "
                "of these simulated (--simulate %d)\n",
                report_count(a, considered), report_count(b, fitting), report_count(c, r->jobs->count),
                r->space->simulate);
}

/* Predictions are as good as what they rest on. */
static void print_basis(const struct results *r, FILE *out)
{
        const struct machine *m = &r->groups->machines[0];
        fprintf(out, "profile    %s: %s%s\n", m->profile.path, profile_caution(&m->profile),
                m->profile.source);
        fprintf(out, "platform   %s: %s\n", m->platform.name, m->platform.source);
        if (m->platform.note[0])
                fprintf(out, "note       %s\n", m->platform.note);
}

void results_print(const struct results *r, FILE *out)
{
        const struct options *o = &r->space->base;
        const bool several = r->space->axes.axis[AXIS_SCHEDULE].count > 1;
        const char *schedules =
                several ? "several schedules"
                        : policy_get((enum policy_id)r->space->axes.axis[AXIS_SCHEDULE].values[0])->name;
        bool fused = r->groups->count > 0 && r->groups->groups[0].fused;
        fprintf(out, "%s, batch %lld x %d tokens, %s, %s precision%s: the best plans, simulated\n",
                o->gpt.name, (long long)o->batch_size, o->seq_len, schedules,
                half_precision(options_format(o)), fused ? ", fused kernels" : "");
        fprintf(out, "%6s  %7s  %9s  %11s  %9s  %11s  %14s  %11s  %7s  %12s  %12s  %7s\n", "GPUs", "offload",
                "pp x dp", "micro-batch", "recompute", "activations", "time per batch", "tokens/s", "of peak",
                "memory a GPU", "host a GPU", "days");
        for (int i = 0; i < r->groups->count; i++)
                print_group(r, &r->groups->groups[i], out);
        for (int i = 0; i < r->groups->count; i++) {
                const struct space_group *group = &r->groups->groups[i];
                if (r->space->offload == SPACE_BOTH && !group->offload)
                        print_gain(r, group, out);
                if (group->fitting == 0)
                        print_reason(group, out);
        }
        print_counts(r, out);
        print_basis(r, out);
}

/* ---- the CSV ---- */

static void write_line(FILE *out, const struct space_group *group, const struct job *job, bool best)
{
        const struct options *o = &job->candidate->options;
        const struct outcome *f = &job->outcome;
        char peak[32] = "";
        if (f->percent_of_peak > 0)
                snprintf(peak, sizeof peak, "%.9g", f->percent_of_peak);
        fprintf(out,
                "%d,%s,%d,%d,%d,%s,%s,%.9g,%.9g,%s,%lld,%lld,%lld,%.9g,%.9g,%.9g,%.9g,%.9g,%d,%d,%s,%s,%d,%s,"
                "%d,%s\n",
                group->gpus, yes_no(group->offload), o->pp, o->dp, o->micro_batch_size,
                recompute_name(o->recompute), yes_no(o->offload_activations), f->batch_seconds,
                f->tokens_per_second, peak, (long long)f->device_peak_bytes, (long long)f->device_total_bytes,
                (long long)f->host_peak_bytes, f->training_days, f->pipeline_seconds, f->allreduce_seconds,
                f->optimizer_seconds, f->bubble_fraction, best, o->tp, yes_no(o->sequence_parallel),
                policy_get(o->policy)->name, o->virtual_stages, o->blocking ? "blocking" : "async", o->zero,
                o->order == ORDER_STAGES ? "stages" : "replicas");
}

int results_write_csv(const struct results *r, const char *path, struct rv_error_info *err)
{
        struct file_writer writer;
        int rc = file_writer_open(&writer, path, err);
        if (rc)
                return rc;
        fputs("gpus,offload,pp,dp,micro_batch_size,recompute,offload_activations,batch_seconds,tokens_per_"
              "second,"
              "percent_of_peak,device_peak_bytes,device_total_bytes,host_peak_bytes,training_days,"
              "pipeline_seconds,allreduce_seconds,optimizer_seconds,bubble_fraction,best,tp,sequence_"
              "parallel,schedule,virtual_stages,p2p,zero,"
              "order\n",
              writer.stream);
        for (int i = 0; i < r->groups->count; i++) {
                const struct space_group *group = &r->groups->groups[i];
                const struct job *best = results_best(r, group);
                for (int c = 0; c < group->count; c++) /* in the order of the estimates */
                        for (int j = 0; j < r->jobs->count; j++) {
                                const struct job *job = &r->jobs->list[j];
                                if (job->candidate == &group->candidates[c] &&
                                    job->outcome.state == OUTCOME_DONE)
                                        write_line(writer.stream, group, job, job == best);
                        }
        }
        return file_writer_commit(&writer, err);
}

/* ---- the figures ---- */

static int plot(const char *program, const char *figure, const char *out, const char *csv,
                struct rv_error_info *err)
{
        char *arguments[] = {"ranvier-plot", "plot", (char *)figure, (char *)out, (char *)csv, NULL};
        pid_t child;
        int status = 0, error = posix_spawn(&child, program, NULL, NULL, arguments, environ);
        if (error)
                return rv_fail(err, RV_ESYSTEM, "%s cannot be started: %s", program, strerror(error));
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
                ;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                return rv_fail(err, RV_ESYSTEM, "ranvier plot %s did not draw %s", figure, out);
        return 0;
}

int results_plot(const char *csv, const char *prefix, struct rv_error_info *err)
{
        static const char *const figures[][2] = {{"sweep-throughput", "throughput"},
                                                 {"sweep-memory", "memory"}};
        char folder[1024], program[1100], out[1100];
        if (file_program_folder(folder, sizeof folder))
                return rv_fail(err, RV_ESYSTEM,
                               "the folder of this program cannot be told, to find ranvier-plot");
        snprintf(program, sizeof program, "%s/ranvier-plot", folder);
        fflush(NULL);
        for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
                snprintf(out, sizeof out, "%.1000s-%s.png", prefix, figures[i][1]);
                int rc = plot(program, figures[i][0], out, csv, err);
                if (rc)
                        return rc;
        }
        return 0;
}
