#include "runtime/engine/report.h"

#include "runtime/plan/flags.h"
#include "runtime/plan/grid.h"
#include "runtime/sched/policy.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare_doubles(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

double report_quantile(double *values, int count, double q)
{
        assert(count > 0 && q >= 0 && q <= 1);
        qsort(values, (size_t)count, sizeof *values, compare_doubles);
        double place = q * (count - 1);
        int below = (int)place;
        if (below >= count - 1)
                return values[count - 1];
        return values[below] + (place - below) * (values[below + 1] - values[below]);
}

char *report_bytes(char text[REPORT_TEXT], double bytes)
{
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
        int unit = 0;
        for (; fabs(bytes) >= 1023.995 && unit < 5; unit++)
                bytes /= 1024;
        snprintf(text, REPORT_TEXT, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
        return text;
}

char *report_seconds(char text[REPORT_TEXT], double seconds)
{
        double size = fabs(seconds);
        if (size >= 1 || size == 0)
                snprintf(text, REPORT_TEXT, "%.3f s", seconds);
        else if (size >= 1e-3)
                snprintf(text, REPORT_TEXT, "%.3f ms", seconds * 1e3);
        else
                snprintf(text, REPORT_TEXT, "%.3f us", seconds * 1e6);
        return text;
}

char *report_count(char text[REPORT_TEXT], double count)
{
        char digits[REPORT_TEXT];
        if (fabs(count) >= 1e15) {
                snprintf(text, REPORT_TEXT, "%.3g", count);
                return text;
        }
        int length = snprintf(digits, sizeof digits, "%.0f", count), out = 0;
        for (int i = 0; i < length; i++) {
                text[out++] = digits[i];
                int left = length - 1 - i;
                if (left && left % 3 == 0 && digits[i] != '-')
                        text[out++] = ',';
        }
        text[out] = 0;
        return text;
}

/* What the JSON and the table both say, worked out once. */
struct figures {
        double median, p10, p90;
        double tokens_per_second, flops_per_gpu_per_second, percent_of_peak, training_days;
        int largest; /* the rank with the most bytes */
        int64_t device_peak_bytes, device_total_bytes, live_peak_bytes;
        int64_t host_bytes, host_total_bytes; /* that devices copy from and to: the largest rank's, and all */
        bool uses_host;                       /* worth a part of the table */
};

static void weigh_ranks(const struct report *r, struct figures *f)
{
        f->device_peak_bytes = -1;
        for (int rank = 0; rank < r->ranks; rank++) {
                int64_t sum = memory_total(&r->rank_bytes[rank], MEMORY_DEVICE);
                f->device_total_bytes += sum;
                f->host_total_bytes += memory_total(&r->rank_bytes[rank], MEMORY_HOST);
                f->uses_host |= memory_uses_host(&r->rank_bytes[rank]);
                if (sum > f->device_peak_bytes) {
                        f->device_peak_bytes = sum;
                        f->largest = rank;
                }
                if (r->rank_live_peak && r->rank_live_peak[rank] > f->live_peak_bytes)
                        f->live_peak_bytes = r->rank_live_peak[rank];
        }
        f->host_bytes = memory_total(&r->rank_bytes[f->largest], MEMORY_HOST);
}

static int work_out(const struct report *r, struct figures *f)
{
        *f = (struct figures){0};
        double *sorted = malloc((size_t)r->batches * sizeof *sorted);
        if (!sorted)
                return -1;
        memcpy(sorted, r->batch_seconds, (size_t)r->batches * sizeof *sorted);
        f->median = report_quantile(sorted, r->batches, 0.5);
        f->p10 = report_quantile(sorted, r->batches, 0.1);
        f->p90 = report_quantile(sorted, r->batches, 0.9);
        free(sorted);
        const struct options *o = r->options;
        const struct work work = options_work(o);
        double flops = gpt_batch_flops(&o->gpt, o->batch_size, o->seq_len, work_recomputation(&work));
        f->tokens_per_second = (double)o->batch_size * o->seq_len / f->median;
        f->flops_per_gpu_per_second = flops / f->median / r->ranks;
        if (r->peak_flops_per_gpu_per_second > 0)
                f->percent_of_peak = 100 * f->flops_per_gpu_per_second / r->peak_flops_per_gpu_per_second;
        f->training_days = (double)r->tokens / f->tokens_per_second / 86400;
        weigh_ranks(r, f);
        return 0;
}

static json_t *flag_json(const struct flag *flag, const struct options *o)
{
        char text[FLAG_TEXT];
        flag_write(flag, o, text);
        if (!flag->argument)
                return json_boolean(flag_value(flag, o));
        if (flag->store == STORE_REAL)
                return json_real(strtod(text, NULL));
        const bool number = flag->store == STORE_WHOLE || flag->store == STORE_INT;
        return number && !flag->names && !flag->write ? json_integer(strtoll(text, NULL, 10))
                                                      : json_string(text);
}

/* The flags as they hold, with "_" for "-". */
json_t *report_plan_json(const struct options *given)
{
        const struct plan core = options_plan(given, false);
        struct options o = *given;
        o.pipeline_limit = o.policy == POLICY_AXONN ? core_pipeline_limit(&core) : 0;
        o.fusion = o.fused ? FUSION_ON : FUSION_OFF;
        o.messages = core.stage_messages ? ROUTE_STAGED : ROUTE_DIRECT;
        o.allreduce = core.stage_allreduce ? ROUTE_STAGED : ROUTE_DIRECT;
        json_t *plan = json_object();
        int count;
        const struct flag *flags = flags_all(&count);
        for (int i = 0; i < count; i++) {
                char key[32];
                if (flags[i].report == REPORT_NEVER ||
                    (flags[i].report == REPORT_IF_SET && !flag_value(&flags[i], &o)))
                        continue;
                snprintf(key, sizeof key, "%s", flags[i].name);
                for (char *dash; (dash = strchr(key, '-'));)
                        *dash = '_';
                json_object_set_new(plan, key, flag_json(&flags[i], &o));
        }
        json_object_set_new(plan, "micro_batches", json_integer(core.micro_batches));
        return plan;
}

const char *report_first_difference(const json_t *a, const json_t *b)
{
        const char *key;
        const json_t *value;
        json_object_foreach((json_t *)a, key, value)
        {
                if (strcmp(key, "name") != 0 && !json_equal(value, json_object_get(b, key)))
                        return key;
        }
        json_object_foreach((json_t *)b, key, value)
        {
                if (strcmp(key, "name") != 0 && !json_object_get(a, key))
                        return key;
        }
        return NULL;
}

static json_t *categories_json(const int64_t bytes[MEMORY_CATEGORIES])
{
        json_t *object = json_object();
        for (int c = 0; c < MEMORY_CATEGORIES; c++)
                json_object_set_new(object, memory_category_name((enum memory_category)c),
                                    json_integer(bytes[c]));
        return object;
}

static json_t *ranks_json(const struct report *r)
{
        struct plan plan = options_plan(r->options, false);
        json_t *list = json_array();
        for (int rank = 0; rank < r->ranks; rank++) {
                json_t *one =
                        json_pack("{s:i, s:o, s:I, s:o, s:o}", "rank", rank, "bytes",
                                  categories_json(r->rank_bytes[rank].in[MEMORY_DEVICE]), "total_bytes",
                                  (json_int_t)memory_total(&r->rank_bytes[rank], MEMORY_DEVICE), "host_bytes",
                                  categories_json(r->rank_bytes[rank].in[MEMORY_HOST]), "live_peak_bytes",
                                  r->rank_live_peak ? json_integer(r->rank_live_peak[rank]) : json_null());
                for (int axis = 0; axis < GRID_AXES; axis++)
                        json_object_set_new(one, grid_axes[axis].place,
                                            json_integer(plan_place(&plan, rank, (enum grid_axis)axis)));
                json_array_append_new(list, one);
        }
        return list;
}

static json_t *memory_json(const struct report *r, const struct figures *f)
{
        return json_pack("{s:I, s:o, s:o, s:I, s:i, s:o, s:I, s:o}", "device_peak_bytes",
                         (json_int_t)f->device_peak_bytes, "live_peak_bytes",
                         r->rank_live_peak ? json_integer(f->live_peak_bytes) : json_null(),
                         "host_peak_bytes",
                         r->host_peak_bytes > 0 ? json_integer(r->host_peak_bytes) : json_null(),
                         "device_total_bytes", (json_int_t)f->device_total_bytes, "largest_rank", f->largest,
                         "by_category", categories_json(r->rank_bytes[f->largest].in[MEMORY_DEVICE]),
                         "host_offloaded_bytes", (json_int_t)f->host_bytes, "host_by_category",
                         categories_json(r->rank_bytes[f->largest].in[MEMORY_HOST]));
}

json_t *report_json(const struct report *r)
{
        struct figures f;
        if (work_out(r, &f))
                return NULL;
        json_t *json = json_pack(
                "{s:s, s:s, s:s, s:o, s:o, s:{s:f, s:f, s:f, s:i}, s:f, s:f, s:o, s:f, s:I, s:{s:f, s:f, "
                "s:f, s:f, s:f, s:f}, "
                "s:o, s:o}",
                "ranvier", RANVIER_VERSION, "world", r->world, "command", r->command ? r->command : "",
                "model", gpt_to_json(&r->options->gpt), "plan", report_plan_json(r->options), "batch_seconds",
                "median", f.median, "p10", f.p10, "p90", f.p90, "batches", r->batches, "tokens_per_second",
                f.tokens_per_second, "flops_per_gpu_per_second", f.flops_per_gpu_per_second,
                "percent_of_peak", f.percent_of_peak > 0 ? json_real(f.percent_of_peak) : json_null(),
                "training_days", f.training_days, "training_tokens", (json_int_t)r->tokens, "phases",
                "pipeline_seconds", r->pipeline_seconds, "allreduce_seconds", r->allreduce_seconds,
                "optimizer_seconds", r->optimizer_seconds, "busiest_seconds", r->busiest_seconds,
                "tensor_seconds", r->tensor_seconds, "bubble_fraction", r->bubble_fraction, "memory",
                memory_json(r, &f), "ranks", ranks_json(r));
        if (json && r->high_seconds > 0) {
                json_t *batch = json_object_get(json, "batch_seconds");
                json_object_set_new(batch, "low", json_real(r->low_seconds));
                json_object_set_new(batch, "high", json_real(r->high_seconds));
        }
        if (json && r->loss) {
                json_t *loss = json_array();
                for (int i = 0; i < r->losses; i++)
                        json_array_append_new(loss,
                                              isfinite(r->loss[i]) ? json_real(r->loss[i]) : json_null());
                json_object_set_new(json, "loss", loss);
        }
        if (json && r->extra)
                json_object_update_missing(json, r->extra);
        return json;
}

static void print_speed(const struct report *r, const struct figures *f, FILE *out)
{
        char a[REPORT_TEXT];
        fprintf(out, "  time per batch      %14s", report_seconds(a, f->median));
        if (r->batches > 1) {
                char b[REPORT_TEXT], c[REPORT_TEXT];
                fprintf(out, "   median of %d batches; p10 %s, p90 %s", r->batches, report_seconds(b, f->p10),
                        report_seconds(c, f->p90));
        }
        if (r->high_seconds > 0) {
                char b[REPORT_TEXT], c[REPORT_TEXT];
                fprintf(out, "   [%s, %s] nine times in ten", report_seconds(b, r->low_seconds),
                        report_seconds(c, r->high_seconds));
        }
        fprintf(out, "\n");
        fprintf(out, "  tokens per second   %14s\n", report_count(a, f->tokens_per_second));
        bool tera = f->flops_per_gpu_per_second >= 1e12;
        snprintf(a, sizeof a, "%.2f %s", f->flops_per_gpu_per_second / (tera ? 1e12 : 1e9),
                 tera ? "Tflop/s" : "Gflop/s");
        fprintf(out, "  flops per device    %14s", a);
        if (f->percent_of_peak > 0)
                fprintf(out, "   %.1f %% of peak", f->percent_of_peak);
        fprintf(out, "\n");
        if (r->tokens > 0 && r->days_wanted)
                fprintf(out, "  training            %9.1f days   for %.4g billion tokens\n", f->training_days,
                        (double)r->tokens / 1e9);
}

bool report_days_wanted(const struct gpt *gpt, bool given)
{
        return given || gpt_parameters(gpt) >= 1000000000;
}

/* Share of the pipeline phase that a rank computes less, on average, than the busiest one: a part of the
 * bubble that more micro-batches do not reduce. */
static double uneven_fraction(const struct report *r)
{
        return r->pipeline_seconds > 0 ? r->busiest_seconds / r->pipeline_seconds - (1 - r->bubble_fraction)
                                       : 0;
}

static void print_phases(const struct report *r, FILE *out)
{
        const double SHOWN = 0.0005; /* as 0.1 % */
        char a[REPORT_TEXT];
        fprintf(out, "  pipeline            %14s   bubble %.1f %%", report_seconds(a, r->pipeline_seconds),
                100 * r->bubble_fraction);
        double uneven = uneven_fraction(r);
        if (r->options->pp > 1 && uneven >= SHOWN)
                fprintf(out, " (%.1f %% from uneven stages)", 100 * uneven);
        fprintf(out, "\n");
        if (r->options->tp > 1)
                fprintf(out, "    shards together   %14s\n", report_seconds(a, r->tensor_seconds));
        fprintf(out, "  all-reduce          %14s\n", report_seconds(a, r->allreduce_seconds));
        fprintf(out, "  optimizer           %14s\n", report_seconds(a, r->optimizer_seconds));
}

static void print_categories(const int64_t bytes[MEMORY_CATEGORIES], FILE *out)
{
        char a[REPORT_TEXT];
        for (int c = 0; c < MEMORY_CATEGORIES; c++)
                if (bytes[c])
                        fprintf(out, "    %-17s %14s\n", memory_category_name((enum memory_category)c),
                                report_bytes(a, (double)bytes[c]));
}

static void print_memory(const struct report *r, const struct figures *f, FILE *out)
{
        char a[REPORT_TEXT], b[REPORT_TEXT];
        fprintf(out, "  device memory       %14s", report_bytes(a, (double)f->device_peak_bytes));
        if (r->ranks > 1)
                fprintf(out, "   rank %d, the largest of %d; %s in all", f->largest, r->ranks,
                        report_bytes(b, (double)f->device_total_bytes));
        fprintf(out, "\n");
        print_categories(r->rank_bytes[f->largest].in[MEMORY_DEVICE], out);
        if (f->uses_host) {
                fprintf(out, "  host buffers        %14s", report_bytes(a, (double)f->host_bytes));
                if (r->ranks > 1)
                        fprintf(out, "   rank %d; %s in all", f->largest,
                                report_bytes(b, (double)f->host_total_bytes));
                fprintf(out, "\n");
                print_categories(r->rank_bytes[f->largest].in[MEMORY_HOST], out);
        }
        if (r->host_peak_bytes > 0)
                fprintf(out, "  host memory         %14s   all of a process, the largest rank's\n",
                        report_bytes(a, (double)r->host_peak_bytes));
}

static bool any_stored_on_host(const struct report *r)
{
        for (int rank = 0; rank < r->ranks; rank++)
                if (r->rank_bytes[rank].in[MEMORY_HOST][MEMORY_ACTIVATIONS])
                        return true;
        return false;
}

/* What of the plan is not as it is by default, so that the line that every table begins with stays short. */
static void print_choices(const struct report *r, FILE *out)
{
        const struct options *o = r->options;
        const struct plan plan = options_plan(o, false);
        const char *activations =
                any_stored_on_host(r) ? "activations offloaded" : "too few activations stored to offload any";
        static const char *const precisions[HALF_FORMATS] = {NULL, "mixed precision", "bf16 precision"};
        static const char *const recomputed[RECOMPUTES] = {
                [RECOMPUTE_SELECTIVE] = "attention scores recomputed",
                [RECOMPUTE_FULL] = "activations recomputed",
                [RECOMPUTE_LAYER] = "whole layers recomputed",
                [RECOMPUTE_NORMS] = "norms recomputed",
                [RECOMPUTE_SWIGLU] = "SwiGLU recomputed",
                [RECOMPUTE_NORMS_SWIGLU] = "norms and SwiGLU recomputed"};
        const struct work work = options_work(o);
        const char *const choices[] = {
                precisions[options_format(o)],
                o->offload ? "optimizer offloaded" : NULL,
                plan.zero == 1   ? "optimizer shared by replicas"
                : plan.zero == 3 ? "weights, gradients and optimizer shared by replicas"
                                 : NULL,
                o->offload_activations ? activations : NULL,
                recomputed[work_recomputation(&work)],
                o->fused ? "fused kernels" : NULL,
                plan.stage_messages ? "messages staged" : NULL,
                plan.stage_allreduce ? "all-reduces staged" : NULL,
                o->sequence_parallel ? "sequence parallel" : NULL,
        };
        const char *before = "  ";
        for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
                if (choices[i]) {
                        fprintf(out, "%s%s", before, choices[i]);
                        before = ", ";
                }
        if (before[0] == ',')
                fprintf(out, "\n");
}

static void print_remarks(const json_t *remarks, FILE *out)
{
        for (size_t i = 0; i < json_array_size(remarks); i++)
                fprintf(out, "  note: %s\n", json_string_value(json_array_get(remarks, i)));
}

void report_print(const struct report *r, FILE *out)
{
        struct figures f;
        if (work_out(r, &f))
                return;
        const struct options *o = r->options;
        char grid[GRID_TEXT];
        fprintf(out, "%s on %d rank%s (%s), %s, micro-batch %d, batch %lld x %d tokens, %s%s%s\n",
                o->gpt.name, r->ranks, rv_plural(r->ranks), grid_text(grid, o->sizes, "", " x "),
                policy_get(o->policy)->name, o->micro_batch_size, (long long)o->batch_size, o->seq_len,
                strcmp(r->world, "real") == 0 ? "measured" : "simulated",
                r->caveat && r->caveat[0] ? ": " : "", r->caveat ? r->caveat : "");
        print_choices(r, out);
        print_remarks(r->remarks, out);
        print_speed(r, &f, out);
        print_phases(r, out);
        print_memory(r, &f, out);
}
