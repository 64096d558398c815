#include "plots/profiled.h"

#include "plots/run.h"
#include "plots/traced.h"

#include "runtime/base/file.h"
#include "runtime/base/number.h"
#include "runtime/kineto/steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[PROFILED_ROWS] = {[PROFILED_STEP] = "step",
                                                 [PROFILED_FORWARD] = "forward",
                                                 [PROFILED_BACKWARD] = "backward",
                                                 [PROFILED_OPTIMIZER] = "optimizer",
                                                 [PROFILED_BETWEEN] = "in no kernel",
                                                 [PROFILED_COLLECTIVES] = "collectives",
                                                 [PROFILED_PRODUCTS] = "products",
                                                 [PROFILED_ATTENTION] = "attention",
                                                 [PROFILED_NORMS] = "norms",
                                                 [PROFILED_ACTIVATIONS] = "activations",
                                                 [PROFILED_EMBEDDINGS] = "embeddings",
                                                 [PROFILED_LOSS] = "loss",
                                                 [PROFILED_ELEMENTS] = "elementwise, copies",
                                                 [PROFILED_FOREIGN] = "no kernel of ours"};

/* The kind of work that a class of operators does. */
static enum profiled_row row_of(enum operator_class class)
{
        switch (class) {
        case OPERATOR_PRODUCT:
                return PROFILED_PRODUCTS;
        case OPERATOR_ATTENTION:
        case OPERATOR_SOFTMAX:
                return PROFILED_ATTENTION;
        case OPERATOR_NORM:
                return PROFILED_NORMS;
        case OPERATOR_ACTIVATION:
                return PROFILED_ACTIVATIONS;
        case OPERATOR_EMBEDDING:
                return PROFILED_EMBEDDINGS;
        case OPERATOR_LOSS:
                return PROFILED_LOSS;
        case OPERATOR_FOREIGN:
        case OPERATOR_UNKNOWN:
                return PROFILED_FOREIGN;
        default:
                return PROFILED_ELEMENTS;
        }
}

static const char *text_at(const json_t *object, const char *key)
{
        const char *text = json_string_value(json_object_get(object, key));
        return text ? text : "";
}

static double number_at(const json_t *object, const char *key)
{
        return json_number_value(json_object_get(object, key));
}

/* What no kernel takes of a step. */
static void find_between(double row[PROFILED_ROWS])
{
        row[PROFILED_BETWEEN] = fmax(0, row[PROFILED_STEP] - row[PROFILED_FORWARD] - row[PROFILED_BACKWARD] -
                                                row[PROFILED_OPTIMIZER]);
}

/* ---- the prediction ---- */

/* The kernels of a stage; NULL: the timeline does not have them. */
static const json_t *kernels_of(const struct trace *trace, int stage)
{
        size_t i;
        json_t *stages;
        json_array_foreach(json_object_get(trace->about, "kernels"), i, stages)
        {
                if (stage >= (int)number_at(stages, "first") && stage <= (int)number_at(stages, "last"))
                        return json_object_get(stages, "kernels");
        }
        return NULL;
}

/* A kernel's kind by its name; KERNEL_KINDS: there is none. */
static enum kernel_kind kernel_named(const char *name)
{
        int kind = 0;
        while (kind < KERNEL_KINDS && strcmp(kernel_name((enum kernel_kind)kind), name) != 0)
                kind++;
        return (enum kernel_kind)kind;
}

static void take_kernels(struct profiled *p, const json_t *kernels)
{
        size_t i;
        json_t *kernel;
        json_array_foreach((json_t *)kernels, i, kernel)
        {
                const double seconds = number_at(kernel, "seconds");
                const bool forward = strcmp(text_at(kernel, "pass"), op_name(OP_FORWARD)) == 0;
                const enum operator_class class =
                        operator_class_of(kernel_named(text_at(kernel, "kernel")),
                                          json_is_true(json_object_get(kernel, "batched")));
                p->predicted[forward ? PROFILED_FORWARD : PROFILED_BACKWARD] += seconds;
                p->predicted[row_of(class)] += seconds;
                p->predicted_flops += class == OPERATOR_PRODUCT ? number_at(kernel, "flops") : 0;
        }
}

/* Returns whether the rank has operations: of folded ranks one has those of all. */
static bool take_records(struct profiled *p, const struct trace *trace)
{
        double end = 0;
        bool seen = false;
        p->batch_seconds = INFINITY;
        for (int64_t i = 0; i < trace->count; i++) {
                const struct trace_record *r = &trace->records[i];
                if (r->batch != p->batch)
                        continue;
                p->batch_seconds = fmin(p->batch_seconds, r->issued);
                end = fmax(end, r->end);
                const enum look look = traced_look(r);
                seen |= r->rank == p->rank;
                if (r->rank == p->rank && look == LOOK_OPTIMIZER && r->lane == LANE_COMPUTE)
                        p->predicted[PROFILED_OPTIMIZER] += r->end - r->start;
                if (r->rank == p->rank && (look == LOOK_COLLECTIVE || look == LOOK_SHARDS))
                        p->predicted[PROFILED_COLLECTIVES] += r->end - r->start;
        }
        p->predicted[PROFILED_STEP] = end - p->batch_seconds;
        return seen;
}

static int take_timeline(struct profiled *p, const struct trace *trace, const char *path, int rank,
                         struct rv_error_info *err)
{
        int ranks;
        const int rc = traced_choose_batch(trace, path, -1, &p->batch, &ranks, err);
        if (rc)
                return rc;
        if (rank >= ranks)
                return rv_fail(err, RV_EINPUT, "%s: has no rank %d; its ranks go from 0 to %d", path, rank,
                               ranks - 1);
        const json_t *kernels = kernels_of(trace, plan_stage(&trace->layout, rank));
        if (!kernels)
                return rv_fail(err, RV_EINPUT,
                               "%s: does not say what kernels take, which a timeline of ranvier simulate "
                               "--trace does; beside a profiler's trace goes one of these",
                               path);
        p->rank = rank;
        snprintf(p->model, sizeof p->model, "%s", text_at(trace->about, "model"));
        snprintf(p->machine, sizeof p->machine, "%s", text_at(trace->about, "machine"));
        take_kernels(p, kernels);
        if (!take_records(p, trace))
                return rv_fail(err, RV_EINPUT, "%s: has no operations of rank %d in batch %d", path, rank,
                               p->batch);
        find_between(p->predicted);
        return 0;
}

static int read_timeline(struct profiled *p, const char *path, int rank, struct rv_error_info *err)
{
        struct trace trace;
        int rc = trace_read(&trace, path, err);
        if (rc == 0)
                rc = take_timeline(p, &trace, path, rank, err);
        trace_free(&trace);
        return rc;
}

/* ---- the trace ---- */

/* Where the last operator of a backward is; the step's last operator, if it has no backward. */
static int last_backward(const struct traced_steps *steps, const struct trace_step *step)
{
        int last = -1;
        for (int i = step->first; i < step->first + step->count; i++)
                last = steps->operators[i].backward >= 0 ? i : last;
        return last >= 0 ? last : step->first + step->count - 1;
}

/* An operator of a forward or backward. A product without shapes has the batched ones' name, or not. */
static void take_work(struct profiled *p, const struct traced_steps *steps, const struct step_operator *of,
                      double seconds)
{
        const struct kineto_event *event = &steps->trace->events[of->event];
        enum operator_class class = of->row->class;
        if (class == OPERATOR_PRODUCT) {
                const struct kernel product = operator_product(steps->trace, event);
                if (product.batch > 1 || (!product.batch && strstr(event->name, "bmm")))
                        class = OPERATOR_ATTENTION;
                else
                        p->measured_flops += product.batch ? kernel_flops(&product) : 0;
        }
        p->measured[of->backward >= 0 ? PROFILED_BACKWARD : PROFILED_FORWARD] += seconds;
        p->measured[row_of(class)] += seconds;
}

/* On a GPU what an operator launched takes. On a CPU the operator, and the host's time between it and the one
 * before, as calibrate --from-trace has it; `now` is up to where that was gone through, microseconds. */
static double seconds_of(const struct traced_steps *steps, const struct step_operator *of, double *now)
{
        if (steps->trace->on_gpu)
                return step_seconds(steps, of);
        const double from = isinf(*now) ? of->start : *now;
        *now = isinf(*now) ? of->end : fmax(*now, of->end);
        return 1e-6 * fmax(0, of->end - from);
}

static void take_step(struct profiled *p, const struct traced_steps *steps, const struct trace_step *step)
{
        const int last = last_backward(steps, step);
        double now = INFINITY; /* before the first operator there is none */
        p->measured[PROFILED_STEP] += 1e-6 * (step->end - step->start);
        for (int i = step->first; i < step->first + step->count; i++) {
                const struct step_operator *of = &steps->operators[i];
                if (of->row->class == OPERATOR_HOST)
                        continue;
                const double seconds = seconds_of(steps, of, &now);
                if (of->row->class == OPERATOR_COLLECTIVE)
                        p->measured[PROFILED_COLLECTIVES] += seconds;
                else if (of->row->class == OPERATOR_OPTIMIZER || i > last)
                        p->measured[PROFILED_OPTIMIZER] += seconds;
                else
                        take_work(p, steps, of, seconds);
        }
}

/* The means of the steps that are taken. */
static void take_steps(struct profiled *p, const struct traced_steps *steps)
{
        double *seconds = calloc((size_t)steps->count, sizeof *seconds);
        bool *taken = calloc((size_t)steps->count, sizeof *taken);
        if (!seconds || !taken)
                abort();
        for (int i = 0; i < steps->count; i++)
                seconds[i] = 1e-6 * (steps->steps[i].end - steps->steps[i].start);
        p->left_out = steps_steady(seconds, steps->count, taken);
        p->steps = steps->count - p->left_out;
        p->step_microseconds = INFINITY;
        for (int i = 0; i < steps->count; i++)
                if (taken[i]) {
                        p->step_microseconds = fmin(p->step_microseconds, steps->steps[i].start);
                        take_step(p, steps, &steps->steps[i]);
                }
        for (int row = 0; row < PROFILED_ROWS; row++)
                p->measured[row] /= p->steps;
        p->measured_flops /= p->steps;
        p->step_microseconds += steps->trace->begin;
        find_between(p->measured);
        free(seconds);
        free(taken);
}

static int read_trace(struct profiled *p, const char *path, struct rv_error_info *err)
{
        struct kineto trace = {0};
        struct traced_steps steps = {0};
        int rc = kineto_read(&trace, path, err);
        if (rc == RV_OK)
                rc = steps_find(&steps, &trace, path, err);
        if (rc == RV_OK && steps.operator_count == 0)
                rc = rv_fail(err, RV_EINPUT, "%.200s: the steps of the trace have no operators", path);
        if (rc == RV_OK) {
                snprintf(p->device, sizeof p->device, "%s",
                         !trace.on_gpu ? "a CPU"
                         : *trace.gpu  ? trace.gpu
                                       : "a GPU");
                take_steps(p, &steps);
        }
        steps_free(&steps);
        kineto_free(&trace);
        return rc;
}

int profiled_read(struct profiled *p, const char *timeline, const char *trace, int rank,
                  struct rv_error_info *err)
{
        *p = (struct profiled){0};
        const int rc = read_timeline(p, timeline, rank, err);
        return rc ? rc : read_trace(p, trace, err);
}

/* ---- what is printed ---- */

static void print_row(const struct profiled *p, enum profiled_row row, const char *indent, FILE *out)
{
        const double predicted = p->predicted[row], measured = p->measured[row];
        char a[NUMBER_TEXT], b[NUMBER_TEXT], error[NUMBER_TEXT] = "-";
        if (predicted == 0 && measured == 0)
                return;
        if (measured > 0 && predicted > 0)
                snprintf(error, sizeof error, "%+.1f %%", runs_error_percent(predicted, measured));
        fprintf(out, "  %s%-*s %13s %6.1f %% %13s %6.1f %% %10s\n", indent, 22 - (int)strlen(indent),
                names[row], number_seconds(a, predicted), 100 * predicted / p->predicted[PROFILED_STEP],
                number_seconds(b, measured), 100 * measured / p->measured[PROFILED_STEP], error);
}

/* Whether both have done the same work. */
static void print_work(const struct profiled *p, FILE *out)
{
        static const double APART = 0.05;
        if (p->measured_flops == 0) {
                fprintf(out,
                        "\nThe trace has no shapes: whether it is of the same model and micro-batches as the "
                        "prediction is not known.\n");
                return;
        }
        fprintf(out, "\nThe products of a step are %.4g floating-point operations; predicted are %.4g.\n",
                p->measured_flops, p->predicted_flops);
        if (fabs(p->predicted_flops / p->measured_flops - 1) > APART)
                fprintf(out,
                        "That is not the same work: is it the same model, with as many tokens in a step of a "
                        "GPU as in a batch of a rank?\n");
}

void profiled_print(const struct profiled *p, FILE *out)
{
        fprintf(out, "%s%spredicted%s%s (rank %d, batch %d), beside %d step%s on %s\n", p->model,
                *p->model ? ", " : "", *p->machine ? " on " : "", p->machine, p->rank, p->batch, p->steps,
                rv_plural(p->steps), p->device);
        if (p->left_out)
                fprintf(out,
                        "%d step%s took over 5 %% longer than the quarter that took least, and %s left out\n",
                        p->left_out, rv_plural(p->left_out), p->left_out == 1 ? "is" : "are");
        fprintf(out, "\n  %-22s %13s %8s %13s %8s %10s\n", "", "predicted", "", "measured", "", "error");
        for (int row = PROFILED_STEP; row <= PROFILED_BETWEEN; row++)
                print_row(p, (enum profiled_row)row, row == PROFILED_STEP ? "" : "  ", out);
        fprintf(out, "  forward and backward, by kind of work\n");
        for (int row = PROFILED_PRODUCTS; row < PROFILED_ROWS; row++)
                print_row(p, (enum profiled_row)row, "  ", out);
        if (p->predicted[PROFILED_COLLECTIVES] > 0 || p->measured[PROFILED_COLLECTIVES] > 0)
                fprintf(out, "  beside all of it\n");
        print_row(p, PROFILED_COLLECTIVES, "  ", out);
        if (p->measured[PROFILED_FORWARD] + p->measured[PROFILED_BACKWARD] + p->measured[PROFILED_OPTIMIZER] >
            p->measured[PROFILED_STEP])
                fprintf(out, "\nThe kernels of a step took longer than the host's step, which did not wait "
                             "for them: let "
                             "each step end with a wait, such as loss.item().\n");
        print_work(p, out);
}

static void write_row(FILE *out, const char *name, double predicted, double measured)
{
        fprintf(out, "\"%s\",%.9g,%.9g,", name, predicted, measured);
        if (measured > 0)
                fprintf(out, "%.6g", runs_error_percent(predicted, measured));
        fputc('\n', out);
}

int profiled_write_csv(const struct profiled *p, const char *path, struct rv_error_info *err)
{
        struct file_writer writer;
        const int rc = file_writer_open(&writer, path, err);
        if (rc)
                return rc;
        fputs("what,predicted,measured,error_percent\n", writer.stream);
        for (int row = 0; row < PROFILED_ROWS; row++)
                write_row(writer.stream, names[row], p->predicted[row], p->measured[row]);
        write_row(writer.stream, "floating-point operations of products", p->predicted_flops,
                  p->measured_flops);
        return file_writer_commit(&writer, err);
}
