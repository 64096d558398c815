#include "sim/evidence/verdict.h"

#include "runtime/base/file.h"
#include "runtime/base/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool predicted(const struct measured_run *run)
{
        return run->job && run->job->outcome.state == OUTCOME_DONE;
}

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
        if (predicted(run))
                fprintf(out, "%10.5g %11s %-9s %+7.1f %%%s%s\n", measured_prediction(run), measured,
                        short_unit(row->unit), 100 * measured_error(run), run->fitted ? "  fitted" : "",
                        run->fits ? "" : "  does not fit");
        else
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

static bool from_one_source(const struct measured_run *a, const struct measured_run *b)
{
        return strcmp(a->row->source, b->row->source) == 0;
}

static void print_source(const struct measured *m, int first, FILE *out)
{
        struct errors errors = {0};
        for (int i = 0; i < m->count; i++) {
                if (!from_one_source(&m->runs[first], &m->runs[i]))
                        continue;
                if (i < first)
                        return;
                if (predicted(&m->runs[i]))
                        add_error(&errors, &m->runs[i]);
        }
        const char *source = m->runs[first].row->source;
        print_line(source[0] ? source : "of no stated source", &errors, out);
}

/* A framework is a machine of its own, so where several sources were asked each has a line. */
static void print_sources(const struct measured *m, FILE *out)
{
        bool several = false;
        for (int i = 0; i < m->count; i++)
                several |= !from_one_source(&m->runs[0], &m->runs[i]);
        for (int i = 0; several && i < m->count; i++)
                print_source(m, i, out);
}

static void print_errors(const struct measured *m, FILE *out)
{
        fprintf(out, "%-32s %5s %14s %10s %10s\n", "runs", "", "mean |error|", "mean", "worst");
        for (int kind = 0; kind < KINDS; kind++) {
                struct errors errors = {0};
                for (int i = 0; i < m->count; i++)
                        if (predicted(&m->runs[i]) && belongs(&m->runs[i], kind))
                                add_error(&errors, &m->runs[i]);
                print_line(kinds[kind], &errors, out);
        }
        print_sources(m, out);
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
                        if (!predicted(&m->runs[j]) || !belongs(&m->runs[j], of[i].kind) ||
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

/* ---- whether the best plan is found ---- */

/* Plans to choose from: the same GPUs and model and, if `batch`, the same batch. */
static bool rivals(const struct measured_run *a, const struct measured_run *b, bool batch)
{
        const struct table_row *x = a->row, *y = b->row;
        return a->candidate.machine == b->candidate.machine && x->layers == y->layers &&
               x->hidden == y->hidden && x->heads == y->heads && x->seq == y->seq && x->vocab == y->vocab &&
               strcmp(x->preset, y->preset) == 0 && (!batch || x->batch == y->batch);
}

/* Seconds, of a sequence if batches differ: what the measured figure says, or is predicted to. */
static double cost(const struct measured_run *run, bool batch, bool measured)
{
        const double figure = measured ? run->row->low : measured_prediction(run);
        const double seconds = run->row->unit <= TABLE_MILLISECONDS ? figure : 1 / figure;
        const bool rate =
                run->row->unit > TABLE_MILLISECONDS; /* what is done a second counts the batch already */
        return batch || rate ? seconds : seconds / (double)run->row->batch;
}

enum { BEST = 3 };

/* The place (from 1) that the fastest of the rivals of `run` has in the prediction; 0: `run` is not the first
 * of them, or there are not more than BEST. */
static int place_of_fastest(const struct measured *m, const struct measured_run *run, bool batch)
{
        const struct measured_run *fastest = run;
        int count = 0, place = 1;
        for (int i = 0; i < m->count; i++) {
                const struct measured_run *other = &m->runs[i];
                if (!predicted(other) || !rivals(run, other, batch))
                        continue;
                if (other < run)
                        return 0;
                count++;
                if (cost(other, batch, true) < cost(fastest, batch, true))
                        fastest = other;
        }
        for (int i = 0; i < m->count; i++) {
                const struct measured_run *other = &m->runs[i];
                place += predicted(other) && rivals(run, other, batch) &&
                         cost(other, batch, false) < cost(fastest, batch, false);
        }
        return count > BEST ? place : 0;
}

static void print_places(const struct measured *m, bool batch, FILE *out)
{
        int groups = 0, first = 0, found = 0;
        for (int i = 0; i < m->count; i++) {
                const int place = predicted(&m->runs[i]) ? place_of_fastest(m, &m->runs[i], batch) : 0;
                groups += place > 0;
                first += place == 1;
                found += place > 0 && place <= BEST;
        }
        if (groups)
                fprintf(out,
                        "best plan  of %d groups of more than %d plans with equal GPUs%s, the truly "
                        "fastest%s is predicted "
                        "first in %d and among the best %d in %d\n",
                        groups, BEST, batch ? ", model and batch" : " and model",
                        batch ? "" : " (seconds a sequence)", first, BEST, found);
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

static void print_failures(const struct measured *m, FILE *out)
{
        for (int i = 0; i < m->count; i++) {
                const struct measured_run *run = &m->runs[i];
                if (!predicted(run))
                        fprintf(out, "not predicted: %s:%d: %s\n", run->table->path, run->row->line,
                                run->skipped ? run->why.sentence : run->job->outcome.failure);
        }
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
                if (predicted(run) && (!min || outcome_measured_less(&run->job->outcome, &min->job->outcome)))
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
        print_places(m, true, out);
        print_places(m, false, out);
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
                "predicted_high\n");
        for (int i = 0; i < m->count; i++) {
                const struct measured_run *run = &m->runs[i];
                if (!predicted(run))
                        continue;
                const struct figures *f = &run->job->outcome.figures;
                double low, high;
                char interval[64] = ",";
                if (measured_interval(run, &low, &high))
                        snprintf(interval, sizeof interval, "%.9g,%.9g", low, high);
                fprintf(out, "%s,%d,%lld,%s,%s,%s,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%s,%s\n",
                        run->table->path, run->row->line, (long long)run->row->gpus, run->name,
                        run->fitted ? "yes" : "no", table_unit_name(run->row->unit), run->row->low,
                        run->row->high, measured_prediction(run), measured_error(run), f->median,
                        f->pipeline_seconds, f->allreduce_seconds, f->optimizer_seconds, f->bubble_fraction,
                        run->fits ? "yes" : "no", interval);
        }
        return file_writer_commit(&writer, err);
}
