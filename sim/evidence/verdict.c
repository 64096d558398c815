#include "sim/evidence/verdict.h"

#include "sim/evidence/ranks.h"

#include "runtime/base/file.h"
#include "runtime/base/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a line a run ---- */

static const char *short_unit(enum table_unit unit)
{
        static const char *const names[TABLE_UNITS] = {"s", "ms", "Tflop/s", "% of peak", "tokens/s"};
        return names[unit];
}

static void print_run(const struct measured_run *run, FILE *out)
{
        const struct table_row *row = run->row;
        char measured[48];
        snprintf(measured, sizeof measured, row->low == row->high ? "%.5g" : "%.5g-%.5g", row->low,
                 row->high);
        fprintf(out, "%5lld  %-52s ", (long long)row->gpus, run->name);
        if (measured_predicted(run)) {
                char memory[2 * NUMBER_TEXT] = "", bytes[NUMBER_TEXT];
                if (row->memory_bytes > 0)
                        snprintf(memory, sizeof memory, "  %s %+.1f %%",
                                 number_bytes(bytes, measured_memory(run)), 100 * measured_memory_error(run));
                fprintf(out, "%10.5g %11s %-9s %+7.1f %%%s%s%s\n", measured_prediction(run), measured,
                        short_unit(row->unit), 100 * measured_error(run), memory,
                        run->fitted ? "  fitted" : "", run->fits ? "" : "  does not fit");
        } else
                fprintf(out, "%10s %11s %-9s\n", "-", measured, short_unit(row->unit));
}

static void print_runs(const struct measured *m, FILE *out)
{
        fprintf(out, "%5s  %-52s %10s %11s %-9s %9s\n", "GPUs", "plan", "predicted", "measured", "", "error");
        for (int i = 0; i < m->count; i++)
                print_run(&m->runs[i], out);
}

/* ---- errors together ---- */

struct errors {
        int count;
        double sum, sum_absolute, worst;
        const struct measured_run *worst_run;
};

enum { ALL, FITTED, HELD_OUT, ONE_NODE, SEVERAL_NODES, KINDS };
static const char *const kinds[KINDS] = {"all", "that something was fitted on", "that nothing was fitted on",
                                         "of those, on one node", "of those, on several"};

static bool belongs(const struct measured_run *run, int kind)
{
        const bool one_node = run->row->gpus <= run->candidate.machine->platform.gpus_per_node;
        switch (kind) {
        case ALL:
                return true;
        case FITTED:
                return run->fitted;
        case ONE_NODE:
                return !run->fitted && one_node;
        case SEVERAL_NODES:
                return !run->fitted && !one_node;
        default:
                return !run->fitted;
        }
}

static void add_error(struct errors *errors, const struct measured_run *run)
{
        const double error = measured_error(run);
        errors->count++;
        errors->sum += error;
        errors->sum_absolute += fabs(error);
        if (!errors->worst_run || fabs(error) > fabs(errors->worst)) {
                errors->worst = error;
                errors->worst_run = run;
        }
}

static void print_line(const char *name, const struct errors *e, FILE *out)
{
        if (e->count)
                fprintf(out, "%-32s %5d %12.2f %% %+8.2f %% %+8.1f %%  %s:%d\n", name, e->count,
                        100 * e->sum_absolute / e->count, 100 * e->sum / e->count, 100 * e->worst,
                        e->worst_run->table->path, e->worst_run->row->line);
}

/* Whose errors belong together: those of a source, or, where the framework is known, of a framework on a GPU,
 * mixtures of experts and fitted runs apart. */
enum { GROUP_NAME = 2 * TABLE_TEXT };
static const char *group_of(const struct measured_run *run, char name[GROUP_NAME])
{
        const struct table_row *row = run->row;
        if (row->framework[0])
                snprintf(name, GROUP_NAME, "%s, %s, %s%s", row->framework, row->gpu_name,
                         run->candidate.options.gpt.n_expert > 0 ? "experts" : "dense",
                         run->fitted ? ", fitted" : "");
        else
                snprintf(name, GROUP_NAME, "%s", row->source[0] ? row->source : "of no stated source");
        return name;
}

/* The errors of the group that the run is the first of. */
static void print_group(const struct measured *m, int first, FILE *out)
{
        struct errors errors = {0};
        char name[GROUP_NAME], other[GROUP_NAME];
        group_of(&m->runs[first], name);
        for (int i = 0; i < m->count; i++) {
                if (!measured_predicted(&m->runs[i]) || strcmp(name, group_of(&m->runs[i], other)) != 0)
                        continue;
                if (i < first)
                        return;
                add_error(&errors, &m->runs[i]);
        }
        print_line(name, &errors, out);
}

/* A framework is a machine of its own, so where several sources were asked each has a line. */
static void print_groups(const struct measured *m, FILE *out)
{
        char name[GROUP_NAME], other[GROUP_NAME];
        bool several = false;
        for (int i = 0; i < m->count; i++)
                several |= strcmp(group_of(&m->runs[0], name), group_of(&m->runs[i], other)) != 0;
        for (int i = 0; several && i < m->count; i++)
                if (measured_predicted(&m->runs[i]))
                        print_group(m, i, out);
}

static void print_errors(const struct measured *m, FILE *out)
{
        fprintf(out, "%-32s %5s %14s %10s %10s\n", "runs", "", "mean |error|", "mean", "worst");
        for (int kind = 0; kind < KINDS; kind++) {
                struct errors errors = {0};
                for (int i = 0; i < m->count; i++)
                        if (measured_predicted(&m->runs[i]) && belongs(&m->runs[i], kind))
                                add_error(&errors, &m->runs[i]);
                print_line(kinds[kind], &errors, out);
        }
        print_groups(m, out);
}

/* ---- intervals ---- */

/* Of a band, some of it. */
static bool lies_inside(const struct measured_run *run, double low, double high)
{
        return run->row->high >= low && run->row->low <= high;
}

static void print_intervals(const struct measured *m, FILE *out)
{
        static const struct {
                int kind;
                const char *name;
        } of[] = {{ALL, "all"}, {HELD_OUT, "those that nothing was fitted on"}};
        for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
                int known = 0, inside = 0;
                for (int j = 0; j < m->count; j++) {
                        double low, high;
                        if (!measured_predicted(&m->runs[j]) || !belongs(&m->runs[j], of[i].kind) ||
                            !measured_interval(&m->runs[j], &low, &high))
                                continue;
                        known++;
                        inside += lies_inside(&m->runs[j], low, high);
                }
                if (known)
                        fprintf(out, "%s %d of %d measured figures lie in the interval of nine in ten (%s)\n",
                                i == 0 ? "intervals " : "          ", inside, known, of[i].name);
        }
}

/* ---- memory ---- */

static void print_memory(const struct measured *m, FILE *out)
{
        const struct measured_run *worst = NULL;
        double sum = 0, max = 0;
        int count = 0;
        for (int i = 0; i < m->count; i++) {
                const struct measured_run *run = &m->runs[i];
                if (!measured_predicted(run) || !(run->row->memory_bytes > 0))
                        continue;
                const double error = measured_memory_error(run);
                count++;
                sum += fabs(error);
                if (!worst || fabs(error) > fabs(max)) {
                        worst = run;
                        max = error;
                }
        }
        if (worst)
                fprintf(out,
                        "memory     most bytes in use, of %d runs: mean |error| %.2f %%, worst %+.1f %%  "
                        "%s:%d\n",
                        count, 100 * sum / count, 100 * max, worst->table->path, worst->row->line);
}

/* ---- what it rests on ---- */

static void print_fitted_on(const struct measured *m, int index, FILE *out)
{
        const struct profile *profile = &m->machines[index].machine.profile;
        const char *name;
        json_t *where;
        for (int i = 0; i < index; i++)
                if (strcmp(m->machines[i].profile, m->machines[index].profile) == 0)
                        return;
        fprintf(out, "profile    %s: %s%s\n", profile->path, profile_caution(profile), profile->source);
        if (!profile->fitted_on || json_object_size(profile->fitted_on) == 0) {
                fprintf(out, "           fitted on no run\n");
                return;
        }
        fprintf(out, "           fitted on %zu run%s:\n", json_object_size(profile->fitted_on),
                rv_plural((long long)json_object_size(profile->fitted_on)));
        json_object_foreach(profile->fitted_on, name, where)
        {
                const char *text = json_string_value(where);
                fprintf(out, "             %s (%s)\n", name, text ? text : "");
        }
}

static const char *failure_of(const struct measured_run *run)
{
        return run->skipped ? run->why.sentence : run->job->outcome.failure;
}

static bool fail_alike(const struct measured_run *a, const struct measured_run *b)
{
        return !measured_predicted(b) && a->table == b->table && strcmp(failure_of(a), failure_of(b)) == 0;
}

/* Every run that was not predicted, those with one reason on one line. */
static void print_failures(const struct measured *m, FILE *out)
{
        int failed = 0;
        for (int i = 0; i < m->count; i++) {
                const struct measured_run *run = &m->runs[i];
                bool first = !measured_predicted(run);
                failed += first;
                for (int j = 0; first && j < i; j++)
                        first = !fail_alike(run, &m->runs[j]);
                if (!first)
                        continue;
                fprintf(out, "not predicted: %s:%d", run->table->path, run->row->line);
                for (int j = i + 1; j < m->count; j++)
                        if (fail_alike(run, &m->runs[j]))
                                fprintf(out, ",%d", m->runs[j].row->line);
                fprintf(out, ": %s\n", failure_of(run));
        }
        if (failed)
                fprintf(out, "not predicted: %d of %d runs, which are in no error below\n", failed, m->count);
}

static bool has_text(const json_t *list, const char *text)
{
        for (size_t i = 0; i < json_array_size(list); i++)
                if (strcmp(json_string_value(json_array_get(list, i)), text) == 0)
                        return true;
        return false;
}

/* Of the runs, the one of which the least was measured. */
static void print_caveat(const struct measured *m, FILE *out)
{
        const struct measured_run *min = NULL;
        char caveat[MACHINE_CAVEAT] = "";
        for (int i = 0; i < m->count; i++) {
                const struct measured_run *run = &m->runs[i];
                if (measured_predicted(run) &&
                    (!min || outcome_measured_less(&run->job->outcome, &min->job->outcome)))
                        min = run;
        }
        if (min)
                machine_caveat(min->candidate.machine, min->job->outcome.shapes_measured,
                               min->job->outcome.shapes, caveat);
        if (caveat[0])
                fprintf(out, "note: %s, of the run that rests on the least: %s\n", caveat, min->name);
}

/* What is to be known before the figures, each sentence once. */
static void print_remarks(const struct measured *m, FILE *out)
{
        json_t *said = json_array(), *remark;
        size_t index;
        for (int i = 0; i < m->count; i++) {
                const struct candidate *candidate = &m->runs[i].candidate;
                json_t *remarks =
                        candidate->machine ? machine_remarks(candidate->machine, &candidate->options) : NULL;
                json_array_foreach(remarks, index, remark)
                {
                        if (has_text(said, json_string_value(remark)))
                                continue;
                        fprintf(out, "note: %s\n", json_string_value(remark));
                        json_array_append(said, remark);
                }
                json_decref(remarks);
        }
        json_decref(said);
        print_caveat(m, out);
}

/* Runs took place: one whose plan needs more than its GPUs have ran with another. Its error counts all the
 * same, as what is wrong may be the prediction of memory. */
static void print_shortages(const struct measured *m, FILE *out)
{
        const struct measured_run *worst = NULL;
        double max = 0;
        int count = 0;
        for (int i = 0; i < m->count; i++) {
                const struct measured_run *run = &m->runs[i];
                if (run->skipped || run->fits)
                        continue;
                const double excess =
                        (double)capacity_needs(&run->need) / (double)capacity_has(&run->capacity, &run->need);
                count++;
                if (!worst || excess > max) {
                        worst = run;
                        max = excess;
                }
        }
        if (!worst)
                return;
        char needs[NUMBER_TEXT], has[NUMBER_TEXT];
        fprintf(out,
                "%d run%s not fit as written, the worst needs %s of %s (%.160s:%d): is a column missing or "
                "wrong, such as recompute, or --zero 1 in plan, or did it keep less than is counted here? "
                "Errors count %s\n",
                count, count == 1 ? " does" : "s do",
                number_bytes(needs, (double)capacity_needs(&worst->need)),
                number_bytes(has, (double)capacity_has(&worst->capacity, &worst->need)), worst->table->path,
                worst->row->line, count == 1 ? "it" : "them");
}

void verdict_print(const struct measured *m, bool rows, FILE *out)
{
        print_remarks(m, out);
        if (rows) {
                print_runs(m, out);
                fprintf(out, "\n");
        }
        print_failures(m, out);
        print_shortages(m, out);
        print_errors(m, out);
        print_intervals(m, out);
        print_memory(m, out);
        ranks_print(m, rows, out);
        for (int i = 0; i < m->machine_count; i++)
                print_fitted_on(m, i, out);
}

/* ---- the CSV ---- */

int verdict_write_csv(const struct measured *m, const char *path, struct rv_error_info *err)
{
        struct file_writer writer;
        int rc = file_writer_open(&writer, path, err);
        if (rc)
                return rc;
        FILE *out = writer.stream;
        fprintf(out,
                "table,line,gpus,plan,fitted,unit,measured_low,measured_high,predicted,error,batch_seconds,"
                "pipeline_seconds,allreduce_seconds,optimizer_seconds,bubble_fraction,fits,predicted_low,"
                "predicted_high,framework,gpu,model\n");
        for (int i = 0; i < m->count; i++) {
                const struct measured_run *run = &m->runs[i];
                if (!measured_predicted(run))
                        continue;
                const struct figures *f = &run->job->outcome.figures;
                double low, high;
                char interval[64] = ",";
                if (measured_interval(run, &low, &high))
                        snprintf(interval, sizeof interval, "%.9g,%.9g", low, high);
                fprintf(out,
                        "%s,%d,%lld,%s,%s,%s,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%s,%s,%s,%s,%s\n",
                        run->table->path, run->row->line, (long long)run->row->gpus, run->name,
                        run->fitted ? "yes" : "no", table_unit_name(run->row->unit), run->row->low,
                        run->row->high, measured_prediction(run), measured_error(run), f->median,
                        f->pipeline_seconds, f->allreduce_seconds, f->optimizer_seconds, f->bubble_fraction,
                        run->fits ? "yes" : "no", interval, run->row->framework, run->row->gpu_name,
                        run->candidate.options.gpt.n_expert > 0 ? "experts" : "dense");
        }
        return file_writer_commit(&writer, err);
}
