#include "runtime/report/report.h"

#include "runtime/base/number.h"
#include "runtime/plan/flags.h"
#include "runtime/plan/grid.h"
#include "runtime/sched/policy.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void weigh_ranks(const struct report *r, struct figures *f)
{
        f->device_peak_bytes = -1;
        for (int rank = 0; rank < r->ranks; rank++) {
                int64_t sum = memory_total(&r->rank_bytes[rank], MEMORY_DEVICE);
                f->device_total_bytes += sum;
                if (sum > f->device_peak_bytes) {
                        f->device_peak_bytes = sum;
                        f->largest_rank = rank;
                }
                if (r->rank_live_peak && r->rank_live_peak[rank] > f->live_peak_bytes)
                        f->live_peak_bytes = r->rank_live_peak[rank];
        }
        f->host_offloaded_bytes = memory_total(&r->rank_bytes[f->largest_rank], MEMORY_HOST);
}

int report_figures(const struct report *r, struct figures *f, struct rv_error_info *err)
{
        double *sorted = malloc((size_t)r->batches * sizeof *sorted);
        if (!sorted)
                return rv_fail(err, RV_ESYSTEM, "no memory for the times of %d batches", r->batches);
        memcpy(sorted, r->batch_seconds, (size_t)r->batches * sizeof *sorted);
        const struct options *o = r->options;
        const struct work work = options_work(o);
        const double flops = gpt_batch_flops(&o->gpt, o->batch_size, o->seq_len, work_recomputation(&work));
        *f = (struct figures){.median = quantile(sorted, r->batches, 0.5),
                              .p10 = quantile(sorted, r->batches, 0.1),
                              .p90 = quantile(sorted, r->batches, 0.9),
                              .low = r->low_seconds,
                              .high = r->high_seconds,
                              .batches = r->batches,
                              .training_tokens = r->tokens,
                              .pipeline_seconds = r->pipeline_seconds,
                              .allreduce_seconds = r->allreduce_seconds,
                              .optimizer_seconds = r->optimizer_seconds,
                              .busiest_seconds = r->busiest_seconds,
                              .tensor_seconds = r->tensor_seconds,
                              .bubble_fraction = r->bubble_fraction,
                              .host_peak_bytes = r->host_peak_bytes};
        free(sorted);
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
        const bool whole = (flag->set || flag->names) && !text[strspn(text, "0123456789")];
        return number && (whole || (!flag->names && !flag->write)) ? json_integer(strtoll(text, NULL, 10))
                                                                   : json_string(text);
}

/* The flags as they hold, with "_" for "-". */
json_t *report_plan_json(const struct options *given)
{
        const struct plan core = options_plan(given, false);
        struct options o = *given, defaults;
        options_init(&defaults);
        o.pipeline_limit = o.policy == POLICY_AXONN ? core_pipeline_limit(&core) : 0;
        o.fusion = o.fused ? FUSION_ON : FUSION_OFF;
        o.messages = core.stage_messages ? ROUTE_STAGED : ROUTE_DIRECT;
        o.allreduce = core.stage_allreduce || core.stage_shards ? ROUTE_STAGED : ROUTE_DIRECT;
        json_t *plan = json_object();
        int count;
        const struct flag *flags = flags_all(&count);
        for (int i = 0; i < count; i++) {
                char key[32];
                if (flags[i].report == REPORT_NEVER ||
                    (flags[i].report == REPORT_IF_SET && flag_is_zero(&flags[i], &o)) ||
                    (flags[i].report == REPORT_IF_CHANGED && flag_equal(&flags[i], &o, &defaults)))
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
                if (bytes[c] || c != MEMORY_FRAMEWORK) /* which runs of our own never have */
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

/* The memory of the rank that needs most on its device, by category. */
static void add_categories(json_t *json, const struct report *r, const struct figures *f)
{
        json_t *memory = json_object_get(json, "memory");
        const struct memory_bytes *largest = &r->rank_bytes[f->largest_rank];
        json_object_set_new(memory, "by_category", categories_json(largest->in[MEMORY_DEVICE]));
        json_object_set_new(memory, "host_by_category", categories_json(largest->in[MEMORY_HOST]));
}

json_t *report_json(const struct report *r)
{
        struct figures f;
        struct rv_error_info ignored;
        if (report_figures(r, &f, &ignored))
                return NULL;
        json_t *json = json_pack("{s:s, s:s, s:s, s:o, s:o}", "ranvier", RANVIER_VERSION, "world", r->world,
                                 "command", r->command ? r->command : "", "model",
                                 gpt_to_json(&r->options->gpt), "plan", report_plan_json(r->options));
        if (!json)
                return NULL;
        figures_write(&f, json);
        add_categories(json, r, &f);
        json_object_set_new(json, "ranks", ranks_json(r));
        if (r->loss) {
                json_t *loss = json_array();
                for (int i = 0; i < r->losses; i++)
                        json_array_append_new(loss,
                                              isfinite(r->loss[i]) ? json_real(r->loss[i]) : json_null());
                json_object_set_new(json, "loss", loss);
        }
        if (r->extra)
                json_object_update_missing(json, r->extra);
        return json;
}

static void print_speed(const struct report *r, const struct figures *f, FILE *out)
{
        char a[NUMBER_TEXT];
        fprintf(out, "  time per batch      %14s", number_seconds(a, f->median));
        if (r->batches > 1) {
                char b[NUMBER_TEXT], c[NUMBER_TEXT];
                fprintf(out, "   median of %d batches; p10 %s, p90 %s", r->batches, number_seconds(b, f->p10),
                        number_seconds(c, f->p90));
        }
        if (r->high_seconds > 0) {
                char b[NUMBER_TEXT], c[NUMBER_TEXT];
                fprintf(out, "   [%s, %s] nine times in ten", number_seconds(b, r->low_seconds),
                        number_seconds(c, r->high_seconds));
        }
        fprintf(out, "\n");
        fprintf(out, "  tokens per second   %14s\n", number_count(a, f->tokens_per_second));
        fprintf(out, "  flops per device    %14s", number_flops(a, f->flops_per_gpu_per_second));
        if (f->percent_of_peak > 0)
                fprintf(out, "   %.1f %% of peak", f->percent_of_peak);
        fprintf(out, "\n");
        if (r->tokens > 0 && r->days_wanted)
                fprintf(out, "  training            %9.1f days   for %.4g billion tokens\n", f->training_days,
                        (double)r->tokens / 1e9);
}

double report_tokens(double given)
{
        return given > 0 ? given : 300e9;
}

bool report_days_wanted(const struct gpt *gpt, double given)
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
        char a[NUMBER_TEXT];
        fprintf(out, "  pipeline            %14s   bubble %.1f %%", number_seconds(a, r->pipeline_seconds),
                100 * r->bubble_fraction);
        double uneven = uneven_fraction(r);
        if (r->options->pp > 1 && uneven >= SHOWN)
                fprintf(out, " (%.1f %% from uneven stages)", 100 * uneven);
        fprintf(out, "\n");
        if (r->options->tp > 1)
                fprintf(out, "    shards together   %14s\n", number_seconds(a, r->tensor_seconds));
        fprintf(out, "  all-reduce          %14s\n", number_seconds(a, r->allreduce_seconds));
        fprintf(out, "  optimizer           %14s\n", number_seconds(a, r->optimizer_seconds));
}

static void print_categories(const int64_t bytes[MEMORY_CATEGORIES], FILE *out)
{
        char a[NUMBER_TEXT];
        for (int c = 0; c < MEMORY_CATEGORIES; c++)
                if (bytes[c])
                        fprintf(out, "    %-17s %14s\n", memory_category_name((enum memory_category)c),
                                number_bytes(a, (double)bytes[c]));
}

static void print_host_buffers(const struct report *r, const struct figures *f, FILE *out)
{
        char a[NUMBER_TEXT];
        bool any = false; /* worth a part of the table */
        int64_t all = 0;
        for (int rank = 0; rank < r->ranks; rank++) {
                any |= memory_uses_host(&r->rank_bytes[rank]);
                all += memory_total(&r->rank_bytes[rank], MEMORY_HOST);
        }
        if (!any)
                return;
        fprintf(out, "  host buffers        %14s", number_bytes(a, (double)f->host_offloaded_bytes));
        if (r->ranks > 1)
                fprintf(out, "   rank %d; %s in all", (int)f->largest_rank, number_bytes(a, (double)all));
        fprintf(out, "\n");
        print_categories(r->rank_bytes[f->largest_rank].in[MEMORY_HOST], out);
}

static void print_memory(const struct report *r, const struct figures *f, FILE *out)
{
        char a[NUMBER_TEXT], b[NUMBER_TEXT];
        fprintf(out, "  device memory       %14s", number_bytes(a, (double)f->device_peak_bytes));
        if (r->ranks > 1)
                fprintf(out, "   rank %d, the largest of %d; %s in all", (int)f->largest_rank, r->ranks,
                        number_bytes(b, (double)f->device_total_bytes));
        fprintf(out, "\n");
        print_categories(r->rank_bytes[f->largest_rank].in[MEMORY_DEVICE], out);
        print_host_buffers(r, f, out);
        if (r->host_peak_bytes > 0)
                fprintf(out, "  host memory         %14s   all of a process, the largest rank's\n",
                        number_bytes(a, (double)r->host_peak_bytes));
}

static bool any_stored_on_host(const struct report *r)
{
        for (int rank = 0; rank < r->ranks; rank++)
                if (r->rank_bytes[rank].in[MEMORY_HOST][MEMORY_ACTIVATIONS])
                        return true;
        return false;
}

/* Says how many layers virtual stages have, where these differ. */
static bool unequal_chunks(const struct options *o, char *text, size_t size)
{
        const int stages = o->pp * o->virtual_stages, fewest = o->gpt.n_layer / stages;
        snprintf(text, size, "virtual stages of %d or %d layers", fewest, fewest + 1);
        return o->virtual_stages > 1 && o->gpt.n_layer % stages > 0;
}

/* What of the plan is not as it is by default, so that the line that every table begins with stays short. */
static void print_choices(const struct report *r, FILE *out)
{
        const struct options *o = r->options;
        const struct plan plan = options_plan(o, false);
        const char *activations =
                any_stored_on_host(r) ? "activations offloaded" : "too few activations stored to offload any";
        static const char *const precisions[DTYPES] = {NULL, "mixed precision", "bf16 precision"};
        static const char *const formats[FORMATS] = {NULL, "bf16 precision with products in fp8",
                                                     "bf16 precision with products in nvfp4"};
        static const char *const recomputed[RECOMPUTES] = {
                [RECOMPUTE_SELECTIVE] = "attention scores recomputed",
                [RECOMPUTE_FULL] = "activations recomputed",
                [RECOMPUTE_LAYER] = "whole layers recomputed",
                [RECOMPUTE_NORMS] = "norms recomputed",
                [RECOMPUTE_SWIGLU] = "SwiGLU recomputed",
                [RECOMPUTE_NORMS_SWIGLU] = "norms and SwiGLU recomputed"};
        const struct work work = options_work(o);
        char layers[64];
        const char *const choices[] = {
                o->format == FORMAT_STORED ? precisions[o->dtype] : formats[o->format],
                o->dtype == DTYPE_BF16   ? (plan_keeps_fp32(&plan) ? NULL : "gradients in bf16")
                : plan_keeps_fp32(&plan) ? "gradients in fp32"
                                         : NULL,
                o->offload ? "optimizer offloaded" : NULL,
                plan.offload_parameters ? "weights offloaded" : NULL,
                plan.zero == 1   ? "optimizer shared by replicas"
                : plan.zero == 2 ? "gradients and optimizer shared by replicas"
                : plan.zero == 3 ? "weights, gradients and optimizer shared by replicas"
                                 : NULL,
                o->offload_activations ? activations : NULL,
                recomputed[work_recomputation(&work)],
                o->fused ? "fused kernels" : NULL,
                plan.stage_messages ? "messages staged" : NULL,
                plan.stage_allreduce || plan.stage_shards ? "all-reduces staged" : NULL,
                o->sequence_parallel ? "sequence parallel" : NULL,
                unequal_chunks(o, layers, sizeof layers) ? layers : NULL,
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
        struct rv_error_info ignored;
        if (report_figures(r, &f, &ignored))
                return;
        const struct options *o = r->options;
        char grid[GRID_TEXT];
        fprintf(out, "%s on %d rank%s (%s), %s, micro-batch %d, batch %lld x %d tokens, %s%s%s\n",
                o->gpt.name, r->ranks, rv_plural(r->ranks), options_grid(grid, o, "", " x "),
                policy_get(o->policy)->name, o->micro_batch_size, (long long)o->batch_size, o->seq_len,
                strcmp(r->world, "real") == 0 ? "measured" : "simulated",
                r->caveat && r->caveat[0] ? ": " : "", r->caveat ? r->caveat : "");
        print_choices(r, out);
        print_remarks(r->remarks, out);
        print_speed(r, &f, out);
        print_phases(r, out);
        print_memory(r, &f, out);
}
