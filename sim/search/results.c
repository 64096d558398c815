#include "sim/search/results.h"

#include "runtime/base/file.h"
#include "runtime/base/number.h"
#include "runtime/sched/policy.h"
#include "sim/world/interval.h"
#include "sim/search/search.h"

#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int by_seconds(const void *left, const void *right)
{
        return search_order(*(const struct job *const *)left, *(const struct job *const *)right);
}

/* Most characters of a plan's other choices. */
enum { RESULTS_HOW = 160 };

/* ---- the best ---- */

enum { SHOWN = 5 };

/* The simulated plans of a group, the fastest first; of equally fast ones the one that was first on paper.
 * Returns how many; `list` has room for all jobs. */
static int rank_group(const struct results *r, const struct space_group *group, const struct job **list)
{
        int count = 0;
        for (int i = 0; i < r->jobs->count; i++)
                if (r->jobs->list[i].outcome.state == OUTCOME_DONE && search_has(group, &r->jobs->list[i]))
                        list[count++] = &r->jobs->list[i];
        if (count > 0)
                qsort(list, (size_t)count, sizeof *list, by_seconds);
        return count;
}

static const struct job *best_of(const struct results *r, const struct space_group *group)
{
        return search_look(group, r->jobs).best;
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
                axes_describe(&r->ask->space.axes, o, how, sizeof how);
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

/* The interval around a simulated time. */
static char *describe_interval(const struct job *job, char *text, size_t text_size)
{
        char low[NUMBER_TEXT], high[NUMBER_TEXT];
        const struct interval interval =
                interval_of(job->candidate->machine, &job->candidate->options, job->outcome.figures.median);
        snprintf(text, text_size, "not known");
        if (interval.known)
                snprintf(text, text_size, "[%s, %s]", number_seconds(low, interval.low_seconds),
                         number_seconds(high, interval.high_seconds));
        return text;
}

static void print_plan(const struct results *r, const struct space_group *group, const struct job *job,
                       FILE *out)
{
        char how[RESULTS_HOW], interval[2 * NUMBER_TEXT];
        axes_describe(&r->ask->space.axes, &job->candidate->options, how, sizeof how);
        const struct options *o = &job->candidate->options;
        const struct figures *f = &job->outcome.figures;
        char grid[32], seconds[NUMBER_TEXT], tokens[NUMBER_TEXT], device[NUMBER_TEXT], host[NUMBER_TEXT];
        char peak[16] = "-";
        snprintf(grid, sizeof grid, "%d x %d", o->pp, o->dp);
        if (f->percent_of_peak > 0)
                snprintf(peak, sizeof peak, "%.1f %%", f->percent_of_peak);
        fprintf(out, "%6d  %7s  %9s  %11d  %9s  %11s  %14s  %20s  %11s  %7s  %12s  %12s  %7.1f%s%s\n",
                group->gpus, yes_no(group->offload), grid, o->micro_batch_size, recompute_name(o->recompute),
                o->offload_activations ? "offloaded" : "kept", number_seconds(seconds, f->median),
                describe_interval(job, interval, sizeof interval), number_count(tokens, f->tokens_per_second),
                peak, number_bytes(device, (double)f->device_peak_bytes),
                number_bytes(host, (double)job->outcome.host_bytes), f->training_days, how[0] ? "  " : "",
                how);
}

static void print_group(const struct results *r, const struct space_group *group, const struct job **list,
                        FILE *out)
{
        const int count = rank_group(r, group, list);
        for (int i = 0; i < count && i < SHOWN; i++)
                print_plan(r, group, list[i], out);
        if (count == 0)
                fprintf(out, "%6d  %7s  %s\n", group->gpus, yes_no(group->offload),
                        group->count        ? "no simulation succeeded"
                        : group->considered ? "none fits"
                                            : "no combination is a plan");
}

/* What offloading gains on as many devices. The groups are neighbours. */
static void print_gain(const struct results *r, const struct space_group *without, FILE *out)
{
        const struct space_group *with = without + 1;
        const struct job *a = best_of(r, without), *b = best_of(r, with);
        if (a && b) {
                double gain = 100 * (a->outcome.figures.median / b->outcome.figures.median - 1);
                double memory = (double)b->outcome.figures.device_total_bytes /
                                (double)a->outcome.figures.device_total_bytes;
                fprintf(out,
                        "on %d GPU%s offloading %s %.1f %% throughput, and takes %.2f times the device "
                        "memory\n",
                        with->gpus, rv_plural(with->gpus), gain < 0 ? "costs" : "gains", fabs(gain), memory);
        } else if (b && without->considered > 0 && without->count == 0) {
                fprintf(out, "on %d GPU%s no plan fits without offloading\n", with->gpus,
                        rv_plural(with->gpus));
        }
}

/* Why no plan of a group fits: what the one says that is nearest to it, as far as its table. */
static void print_reason(const struct space_group *group, FILE *out)
{
        int length = (int)strcspn(group->nearest.sentence, ":");
        fprintf(out, "on %d GPU%s %s offloading none of %d plans fits; the nearest: %.*s\n", group->gpus,
                rv_plural(group->gpus), group->offload ? "with" : "without", group->considered, length,
                group->nearest.sentence);
}

/* For each number of devices, whose groups are neighbours, the best plan. */
static void print_commands(const struct results *r, FILE *out)
{
        for (int i = 0; i < r->groups->count;) {
                const int gpus = r->groups->groups[i].gpus;
                const struct job *best = NULL;
                for (; i < r->groups->count && r->groups->groups[i].gpus == gpus; i++) {
                        const struct job *own = best_of(r, &r->groups->groups[i]);
                        if (own && (!best || own->outcome.figures.median < best->outcome.figures.median))
                                best = own;
                }
                if (!best)
                        continue;
                fprintf(out, "the best on %d GPU%s again:\n", gpus, rv_plural(gpus));
                fputs("  ", out);
                ask_print_command(r->ask, &best->candidate->options, out);
        }
}

/* What of the plans was not simulated, and how far behind it is. */
static void print_left(const struct results *r, FILE *out)
{
        for (int i = 0; i < r->groups->count; i++) {
                const struct space_group *group = &r->groups->groups[i];
                const struct search_state state = search_look(group, r->jobs);
                if (group->chosen == group->count || !state.best)
                        continue;
                const double slower = 100 * (state.next_seconds / state.best->candidate->paper_seconds - 1);
                fprintf(out,
                        "on %d GPU%s %s offloading %d of %d plans were simulated, and took %.3f to %.3f of "
                        "their time on "
                        "paper; on paper the best of the others takes %.1f %% %s than the winner\n",
                        group->gpus, rv_plural(group->gpus), group->offload ? "with" : "without",
                        group->chosen, group->count, state.min, state.max, fabs(slower),
                        slower < 0 ? "less" : "longer");
        }
}

static void print_counts(const struct results *r, FILE *out)
{
        char a[NUMBER_TEXT], b[NUMBER_TEXT], c[NUMBER_TEXT];
        int considered = 0, fitting = 0, needless = 0;
        for (int i = 0; i < r->groups->count; i++) {
                considered += r->groups->groups[i].considered;
                fitting += r->groups->groups[i].fitting;
                needless += r->groups->groups[i].needless;
        }
        fprintf(out, "%s plans considered: all weighed against the memories, the %s that fit run on paper, ",
                number_count(a, considered), number_count(b, fitting));
        number_count(c, r->jobs->count);
        if (r->ask->space.simulate == SPACE_AUTO)
                fprintf(out,
                        "%s of these simulated: until the next on paper would not be the best were it %.0f "
                        "%% "
                        "faster than any of them against paper\n",
                        c, 100 * r->ask->space.margin);
        else if (r->ask->space.simulate == SPACE_ALL)
                fprintf(out, "%s of these simulated\n", c);
        else
                fprintf(out, "the best %s of these simulated, as --simulate asks\n", c);
        if (needless)
                fprintf(out,
                        "%d plans that offload activations are left out: on paper they are not faster for it "
                        "than the "
                        "same that keep them, which fit\n",
                        needless);
}

static int by_count(const void *left, const void *right)
{
        return ((const struct space_exclusion *)right)->count - ((const struct space_exclusion *)left)->count;
}

/* Combinations that are no plans, over all groups: how many for which reason, as said of the first of them.
 */
static void print_exclusions(const struct results *r, FILE *out)
{
        enum { REASONS = 12 };
        struct space_exclusion all[SPACE_EXCLUSIONS];
        int count = 0, combinations = 0;
        for (int i = 0; i < r->groups->count; i++)
                for (int e = 0; e < r->groups->groups[i].exclusions; e++) {
                        const struct space_exclusion *own = &r->groups->groups[i].excluded[e];
                        space_exclude(all, &count, own->count, own->number, &own->first);
                        combinations += own->count;
                }
        if (count == 0)
                return;
        qsort(all, (size_t)count, sizeof *all, by_count);
        fprintf(out, "%d combinations of what was asked for are no plans, or have no price:\n", combinations);
        for (int i = 0; i < count && i < REASONS; i++)
                fprintf(out, "  %d, such as: %s\n", all[i].count, all[i].first.sentence);
        if (count > REASONS)
                fprintf(out, "  and others for %d other reasons\n", count - REASONS);
}

static void print_untried(const struct results *r, FILE *out)
{
        int left = 0;
        for (int i = 0; i < r->ask->space.axes.count; i++) {
                char text[128];
                axis_untried(&r->ask->space.axes.axis[i], &r->ask->space.base, text, sizeof text);
                if (text[0])
                        fprintf(out, "%s%s", left++ ? ", " : "not tried: ", text);
        }
        for (int recompute = 0; recompute < RECOMPUTES; recompute++)
                if (recompute < RECOMPUTE_LAYER && !(r->ask->space.recompute & 1u << recompute))
                        fprintf(out, "%s--recompute %s",
                                left++ ? ", " : "not tried: ", recompute_name((enum recompute)recompute));
        if (left)
                fputs(r->ask->plans ? "; name them in lists to try them\n"
                                    : "; --plans all tries all of these, or name them in lists\n",
                      out);
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

/* Of the best plans, what the first line says of the one of which the least was measured. */
static void find_caveat(const struct results *r, char text[MACHINE_CAVEAT])
{
        const struct job *min = NULL;
        text[0] = 0;
        for (int i = 0; i < r->groups->count; i++) {
                const struct job *job = best_of(r, &r->groups->groups[i]);
                if (job && (!min || outcome_measured_less(&job->outcome, &min->outcome)))
                        min = job;
        }
        if (min)
                machine_caveat(min->candidate->machine, min->outcome.shapes_measured, min->outcome.shapes,
                               text);
}

/* What is to be known before the figures. */
static void print_remarks(const struct results *r, FILE *out)
{
        json_t *remarks = machine_remarks(&r->groups->machines[0], &r->ask->space.base);
        for (size_t i = 0; i < json_array_size(remarks); i++)
                fprintf(out, "note: %s\n", json_string_value(json_array_get(remarks, i)));
        json_decref(remarks);
}

void results_print(const struct results *r, FILE *out)
{
        const struct options *o = &r->ask->space.base;
        const struct flag_values *policies = axes_values(&r->ask->space.axes, "schedule");
        const char *schedules = policies->count > 1 ? "several schedules"
                                                    : policy_get((enum policy_id)policies->values[0])->name;
        const struct job **list = calloc((size_t)r->jobs->count + 1, sizeof(const struct job *));
        char caveat[MACHINE_CAVEAT];
        find_caveat(r, caveat);
        bool fused = r->groups->count > 0 && r->groups->groups[0].fused;
        const char *every = r->ask->checkpoints.text;
        fprintf(out, "%s, batch %lld x %d tokens, %s, %s precision%s%s%s%s: the best plans, simulated%s%s\n",
                o->gpt.name, (long long)o->batch_size, o->seq_len, schedules,
                precision_name(o->dtype, o->format), fused ? ", fused kernels" : "",
                every ? ", a checkpoint every " : "", every ? every : "",
                every && r->ask->checkpoints.steps ? " batches" : "", caveat[0] ? "; " : "", caveat);
        print_remarks(r, out);
        fprintf(out, "%6s  %7s  %9s  %11s  %9s  %11s  %14s  %20s  %11s  %7s  %12s  %12s  %7s\n", "GPUs",
                "offload", "pp x dp", "micro-batch", "recompute", "activations", "time per batch",
                "nine times in ten", "tokens/s", "of peak", "memory a GPU", "host a GPU", "days");
        for (int i = 0; list && i < r->groups->count; i++)
                print_group(r, &r->groups->groups[i], list, out);
        for (int i = 0; i < r->groups->count; i++) {
                const struct space_group *group = &r->groups->groups[i];
                if (r->ask->space.offload == SPACE_BOTH && !group->offload)
                        print_gain(r, group, out);
                if (group->considered > 0 && group->fitting == 0)
                        print_reason(group, out);
        }
        print_counts(r, out);
        print_left(r, out);
        print_exclusions(r, out);
        print_untried(r, out);
        print_basis(r, out);
        print_commands(r, out);
        free(list);
}

/* ---- the CSV ---- */

/* A name and a comma; a comma of its own would begin another column. */
static void write_name(FILE *out, const char *name)
{
        for (; *name; name++)
                fputc(*name == ',' || *name == '\n' || *name == '\r' ? ' ' : *name, out);
        fputc(',', out);
}

static void write_line(FILE *out, const struct space_group *group, const struct job *job, int rank)
{
        const struct options *o = &job->candidate->options;
        const struct figures *f = &job->outcome.figures;
        char peak[32] = "";
        if (f->percent_of_peak > 0)
                snprintf(peak, sizeof peak, "%.9g", f->percent_of_peak);
        fprintf(out,
                "%d,%s,%d,%d,%d,%s,%s,%.9g,%.9g,%s,%lld,%lld,%lld,%.9g,%.9g,%.9g,%.9g,%.9g,%d,%d,%s,%s,%d,%s,"
                "%d,%s,%d,%.9g,",
                group->gpus, yes_no(group->offload), o->pp, o->dp, o->micro_batch_size,
                recompute_name(o->recompute), yes_no(o->offload_activations), f->median, f->tokens_per_second,
                peak, (long long)f->device_peak_bytes, (long long)f->device_total_bytes,
                (long long)job->outcome.host_bytes, f->training_days, f->pipeline_seconds,
                f->allreduce_seconds, f->optimizer_seconds, f->bubble_fraction, rank == 1, o->tp,
                yes_no(o->sequence_parallel), policy_get(o->policy)->name, o->virtual_stages,
                o->blocking ? "blocking" : "async", o->zero, o->order == ORDER_STAGES ? "stages" : "replicas",
                rank, job->candidate->paper_seconds);
        const struct machine *m = job->candidate->machine;
        const int ep = o->ep > 1 ? o->ep : 1, cp = o->cp > 1 ? o->cp : 1;
        fprintf(out, "%d,%d,%s,", ep, cp, yes_no(o->offload_parameters));
        write_name(out, o->gpt.name);
        write_name(out, m->platform.name);
        fprintf(out, "%lld,%d,%lld\n", (long long)o->batch_size, o->seq_len,
                (long long)machine_capacity(m, o).bytes[MEMORY_DEVICE]);
}

int results_write_csv(const struct results *r, const char *path, struct rv_error_info *err)
{
        struct file_writer writer;
        const struct job **list = calloc((size_t)r->jobs->count + 1, sizeof(const struct job *));
        int rc = list ? file_writer_open(&writer, path, err)
                      : rv_fail(err, RV_ESYSTEM, "no memory for the results");
        if (rc) {
                free(list);
                return rc;
        }
        fputs("gpus,offload,pp,dp,micro_batch_size,recompute,offload_activations,batch_seconds,tokens_per_"
              "second,"
              "percent_of_peak,device_peak_bytes,device_total_bytes,host_peak_bytes,training_days,"
              "pipeline_seconds,allreduce_seconds,optimizer_seconds,bubble_fraction,best,tp,sequence_"
              "parallel,schedule,virtual_stages,p2p,zero,"
              "order,rank,paper_seconds,ep,cp,offload_parameters,model,machine,batch_size,seq_len,device_"
              "memory_bytes\n",
              writer.stream);
        for (int i = 0; i < r->groups->count; i++) {
                const struct space_group *group = &r->groups->groups[i];
                const int count = rank_group(r, group, list);
                for (int c = 0; c < group->chosen; c++) /* by their time on paper */
                        for (int rank = 0; rank < count; rank++)
                                if (list[rank]->candidate == &group->candidates[c])
                                        write_line(writer.stream, group, list[rank], rank + 1);
        }
        free(list);
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
