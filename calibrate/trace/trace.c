#include "calibrate/trace/trace.h"

#include "calibrate/machine.h"
#include "runtime/kineto/found.h"
#include "calibrate/trace/learn.h"
#include "runtime/base/file.h"
#include "runtime/base/number.h"
#include "runtime/device/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Traces that are read, and what follows from them. */
struct session {
        const struct trace_request *request;
        struct kineto trace;
        struct traced_steps steps;
        struct layers layers;
        struct learned learned;
};

static int read_traces(struct session *s, struct rv_error_info *err)
{
        const struct trace_request *request = s->request;
        for (int i = 0; i < request->file_count; i++) {
                const int rc = kineto_read(&s->trace, request->files[i], err);
                if (rc != RV_OK)
                        return rc;
        }
        return steps_find(&s->steps, &s->trace, request->files[0], err);
}

/* ---- the profile ---- */

static bool has_products(const struct traced_steps *steps, const struct trace_step *step)
{
        for (int i = step->first; i < step->first + step->count; i++)
                if (steps->operators[i].row->class == OPERATOR_PRODUCT ||
                    steps->operators[i].row->class == OPERATOR_ATTENTION)
                        return true;
        return false;
}

static int check_shapes(const struct session *s, struct rv_error_info *err)
{
        const struct kineto *trace = &s->trace;
        if (s->steps.operator_count == 0)
                return rv_fail(err, RV_EINPUT, "%.200s: the steps of the trace have no operators",
                               s->request->files[0]);
        if (trace->shaped)
                return RV_OK;
        return rv_fail(err, RV_EINPUT,
                       "%.200s: the trace has no shapes (record_shapes was off), so that %d %s cannot be "
                       "mapped: profile again with record_shapes=True",
                       s->request->files[0], trace->on_gpu ? trace->on_gpu : s->steps.operator_count,
                       trace->on_gpu ? "kernels and copies of the GPU" : "operators");
}

/* The format that tensors are stored in is that of the products. */
static int find_layers(struct session *s, struct rv_error_info *err)
{
        int dtype = -1;
        for (int i = 0; i < s->steps.count && dtype < 0; i++)
                dtype = share_dtype(&s->steps, &s->steps.steps[i]);
        if (dtype < 0)
                return rv_fail(err, RV_EINPUT,
                               "%.200s: no matrix product in fp32, fp16 or bf16 is in the trace's steps",
                               s->request->files[0]);
        return layers_init(&s->layers, s->request->gpt, s->request->micro_batch_size, s->request->seq_len,
                           (enum dtype)dtype, err);
}

/* The file that a step is of. */
static const char *path_of(const struct session *s, const struct trace_step *step)
{
        return s->request->files[s->trace.events[s->steps.operators[step->first].event].file];
}

static int share_steps(struct session *s, struct rv_error_info *err)
{
        s->learned.layers = &s->layers;
        for (int i = 0; i < s->steps.count; i++) {
                struct shared_step shared = {
                        .kernels = malloc((size_t)s->layers.count * sizeof *shared.kernels)};
                if (!shared.kernels)
                        abort();
                if (!has_products(&s->steps, &s->steps.steps[i])) {
                        free(shared.kernels);
                        continue;
                }
                const int rc = share_step(&shared, &s->layers, &s->steps, &s->steps.steps[i],
                                          path_of(s, &s->steps.steps[i]), err);
                if (rc != RV_OK) {
                        free(shared.kernels);
                        return rc;
                }
                learn_add(&s->learned, &shared);
        }
        return RV_OK;
}

static json_t *sources_of(const struct session *s)
{
        char text[NUMBER_TEXT];
        const struct trace_request *request = s->request;
        return json_pack(
                "{s:o, s:o, s:s}", "trace",
                json_sprintf(
                        "PyTorch's profiler: %d step%s of %s, micro-batches of %d sequences of %d tokens",
                        s->learned.count, rv_plural(s->learned.count), request->gpt->name,
                        request->micro_batch_size, request->seq_len),
                "other",
                json_sprintf(
                        "%s a step are in no kernel's points: what is before the forward, between "
                        "backward and optimizer, and behind; op_overhead_seconds has them in equal parts",
                        number_seconds(text, learn_other(&s->learned))),
                "like", "the trace's PyTorch");
}

/* Of a GPU's trace. */
static void print_launches(const struct learned_launches *launches, double step_seconds)
{
        char host[NUMBER_TEXT], profiled[NUMBER_TEXT], working[NUMBER_TEXT];
        if (launches->host <= 0)
                return;
        printf("\nlaunches: %s of the host a kernel", number_seconds(host, launches->host));
        if (launches->host < launches->profiled)
                printf(", %s while the profiler ran", number_seconds(profiled, launches->profiled));
        printf("\n");
        if (step_seconds > 0 || launches->launching <= launches->working)
                return;
        printf("          the host launched for %s of a step's forward and backward, where the GPU worked "
               "%s:\n",
               number_seconds(host, launches->launching), number_seconds(working, launches->working));
        printf("          the profiler makes that longer than it is; --step-time tells what a step takes "
               "without it\n");
}

static int write_profile(struct session *s, struct rv_error_info *err)
{
        const struct trace_request *request = s->request;
        struct fit_quality products;
        struct learned_launches launches;
        int rc = learn_launches(&s->learned, request->step_seconds, &launches, err);
        if (rc != RV_OK)
                return rc;
        struct profile profile = {.measured = true,
                                  .whole_logits = true,
                                  .device_memory_bytes = s->trace.on_gpu ? s->trace.gpu_memory_bytes
                                                                         : device_cpu_memory_bytes(),
                                  .load_count = 1,
                                  .sources = sources_of(s)};
        profile.loads = calloc(1, sizeof *profile.loads);
        if (!profile.loads)
                abort();
        profile.loads[0] =
                learn_load(&s->learned, s->trace.on_gpu ? s->trace.gpu_processors : 0, &launches, &products);
        profile.peak_flops_per_second = learn_peak(&s->learned);
        snprintf(profile.path, sizeof profile.path, "%s", request->out);
        snprintf(profile.device.name, sizeof profile.device.name, "%s",
                 !s->trace.on_gpu  ? "cpu"
                 : s->trace.gpu[0] ? s->trace.gpu
                                   : "a GPU");
        snprintf(profile.source, sizeof profile.source,
                 "a trace by PyTorch's profiler: %d step%s of %.60s; peak: the fastest of its products",
                 s->learned.count, rv_plural(s->learned.count), request->gpt->name);
        if (!request->json)
                print_launches(&launches, request->step_seconds);
        if (!request->json)
                printf("\nproducts of %d shapes by one model: residuals %.1f %% in the median, %.1f %% at "
                       "worst; "
                       "each "
                       "shape by the others %.1f %%, %.1f %%\n",
                       products.points, 100 * products.median_error, 100 * products.worst_error,
                       100 * products.left_out_median_error, 100 * products.left_out_worst_error);
        rc = profile_save(&profile, request->out, false, err);
        profile_free(&profile);
        return rc;
}

/* What kernels take, by kind, beside what another profile says. */
static int add_kinds(struct session *s, json_t *found, struct rv_error_info *err)
{
        struct profile against;
        const char *name = s->request->against;
        const int rc = name ? profile_load(&against, name, err) : RV_OK;
        if (rc != RV_OK)
                return rc;
        json_t *kinds = learn_json(&s->learned, name ? &against : NULL, err);
        if (name)
                profile_free(&against);
        if (!kinds)
                return err->code;
        if (!s->request->json)
                learn_print(kinds);
        json_object_set_new(found, "kernels", kinds);
        return RV_OK;
}

static int map_steps(struct session *s, json_t *found, struct rv_error_info *err)
{
        int rc = check_shapes(s, err);
        if (rc == RV_OK)
                rc = find_layers(s, err);
        if (rc == RV_OK)
                rc = share_steps(s, err);
        if (rc != RV_OK)
                return rc;
        const int left_out = learn_leave_out(&s->learned);
        if (left_out && !s->request->json)
                printf("\n%d step%s took over 5 %% longer than the quarter that took least, and %s left "
                       "out\n",
                       left_out, rv_plural(left_out), left_out == 1 ? "is" : "are");
        return add_kinds(s, found, err);
}

static int run(struct session *s, struct rv_error_info *err)
{
        int rc = read_traces(s, err);
        if (rc != RV_OK)
                return rc;
        json_t *found = found_json(&s->steps);
        if (!s->request->json)
                found_print(found, stdout);
        if (s->request->gpt)
                rc = map_steps(s, found, err);
        if (rc == RV_OK && s->request->out)
                rc = write_profile(s, err);
        if (rc == RV_OK && s->request->found)
                rc = file_write_json(s->request->found, found, err);
        if (rc == RV_OK && s->request->json)
                rc = file_print_json(found, err);
        json_decref(found);
        return rc;
}

int trace_run(const struct trace_request *request, struct rv_error_info *err)
{
        struct session s = {.request = request};
        const int rc = run(&s, err);
        learn_free(&s.learned);
        layers_free(&s.layers);
        steps_free(&s.steps);
        kineto_free(&s.trace);
        return rc;
}
