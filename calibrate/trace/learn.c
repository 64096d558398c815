#include "calibrate/trace/learn.h"

#include "calibrate/profile/fit.h"
#include "calibrate/samples.h"
#include "runtime/base/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The seconds of what a trace has not, where a prediction asks for it: the norm of gradients that are not
 * clipped, and what a 16-bit optimizer of ours does beside the update. */
static const double NOTHING = 1e-9;

static void *resized(void *array, size_t count, size_t element_bytes)
{
        void *larger = realloc(array, count * element_bytes);
        if (!larger)
                abort();
        return larger;
}

void learn_add(struct learned *learned, const struct shared_step *step)
{
        learned->steps = resized(learned->steps, (size_t)learned->count + 1, sizeof *learned->steps);
        learned->steps[learned->count++] = *step;
}

void learn_free(struct learned *learned)
{
        for (int i = 0; i < learned->count; i++)
                free(learned->steps[i].kernels);
        free(learned->steps);
        *learned = (struct learned){0};
}

int learn_leave_out(struct learned *learned)
{
        const int count = learned->count;
        double *seconds = calloc((size_t)count + 1, sizeof *seconds);
        bool *taken = calloc((size_t)count + 1, sizeof *taken);
        int kept = 0;
        if (!seconds || !taken)
                abort();
        for (int i = 0; i < count; i++)
                seconds[i] = learned->steps[i].seconds;
        steps_steady(seconds, count, taken);
        for (int i = 0; i < count; i++)
                if (taken[i])
                        learned->steps[kept++] = learned->steps[i];
                else
                        free(learned->steps[i].kernels);
        free(seconds);
        free(taken);
        learned->count = kept;
        return count - kept;
}

/* ---- points ---- */

/* Mean seconds of a step's kernels that do the same as kernel `index`, the first of them; 0: it is not. */
static double mean_of_same(const struct layers *layers, const struct shared_step *step, int index)
{
        const struct kernel *kernel = &layers->kernels[index];
        double sum = 0;
        int count = 0;
        for (int i = 0; i < layers->count; i++) {
                if (!kernel_same(&layers->kernels[i], kernel))
                        continue;
                if (i < index)
                        return 0;
                sum += share_seconds(&step->kernels[i]);
                count++;
        }
        return fmax(sum / count / step->micro_batches, NOTHING);
}

/* One sample a step: what interrupts one of many equal kernels is in the step's time too. */
static void add_step(struct samples *samples, const struct layers *layers, const struct shared_step *step)
{
        for (int i = 0; i < layers->count; i++) {
                const double seconds = mean_of_same(layers, step, i);
                if (seconds > 0)
                        samples_add_kernel(samples, &layers->kernels[i], seconds, false);
        }
        samples_add_kernel(samples, &layers->update, fmax(step->optimizer, NOTHING), false);
        samples_add_kernel(samples, &layers->norm, fmax(step->norm / layers->norms, NOTHING), false);
        samples_end_round(samples);
}

static double median_of(const struct learned *learned, double (*of)(const struct shared_step *step))
{
        double *values = resized(NULL, (size_t)learned->count, sizeof *values);
        for (int i = 0; i < learned->count; i++)
                values[i] = of(&learned->steps[i]);
        const double median = quantile(values, learned->count, 0.5);
        free(values);
        return median;
}

static double optimizer_of(const struct shared_step *step)
{
        return step->optimizer;
}

static double norm_of(const struct shared_step *step)
{
        return step->norm;
}

static double other_of(const struct shared_step *step)
{
        return step->other;
}

double learn_other(const struct learned *learned)
{
        return median_of(learned, other_of);
}

static double host_of(const struct shared_step *step)
{
        return step->host / step->micro_batches;
}

/* ---- parts ---- */

/* Means over the steps of what each kernel of the layers took. Not medians: where something else takes the
 * processor now and then, short operators mostly escape it and long ones never do, so that their medians
 * would tell of different machines. */
static struct share *mean_shares(const struct learned *learned)
{
        const int count = learned->layers->count;
        struct share *means = resized(NULL, (size_t)count, sizeof *means);
        memset(means, 0, (size_t)count * sizeof *means);
        for (int step = 0; step < learned->count; step++) {
                const struct shared_step *shared = &learned->steps[step];
                const double part = 1.0 / (shared->micro_batches * learned->count);
                for (int i = 0; i < count; i++) {
                        means[i].product += part * shared->kernels[i].product;
                        means[i].quadratic += part * shared->kernels[i].quadratic;
                        means[i].linear += part * shared->kernels[i].linear;
                        means[i].constant += part * shared->kernels[i].constant;
                }
        }
        return means;
}

/* ---- launches ---- */

/* A forward and a backward take as long as the host launches them, or the GPU works, whichever is longer. */
struct passes {
        double gpu[2]; /* seconds */
        int kernels[2];
};

static struct passes passes_of(const struct learned *learned)
{
        const struct layers *layers = learned->layers;
        struct passes passes = {.kernels = {layers->forward, layers->count - layers->forward}};
        struct share *shares = mean_shares(learned);
        for (int i = 0; i < layers->count; i++)
                passes.gpu[i >= layers->forward] += share_seconds(&shares[i]);
        free(shares);
        return passes;
}

static double take(const struct passes *passes, double host)
{
        return fmax(passes->gpu[0], host * passes->kernels[0]) +
               fmax(passes->gpu[1], host * passes->kernels[1]);
}

/* The most that the host may take for a kernel, up to `most`, if both passes take `seconds`. */
static double host_within(const struct passes *passes, double seconds, double most)
{
        enum { HALVINGS = 60 };
        double low = 0, high = most;
        if (take(passes, most) <= seconds)
                return most;
        for (int i = 0; i < HALVINGS; i++) {
                const double middle = (low + high) / 2;
                *(take(passes, middle) <= seconds ? &low : &high) = middle;
        }
        return low;
}

int learn_launches(const struct learned *learned, double step_seconds, struct learned_launches *launches,
                   struct rv_error_info *err)
{
        static const double SHORT = 0.9; /* the clock of a GPU is not the same at all times */
        const int micro_batches = learned->steps[0].micro_batches;
        const double profiled = median_of(learned, host_of) / learned->layers->count,
                     rest = median_of(learned, optimizer_of) + median_of(learned, norm_of) +
                            learn_other(learned);
        const struct passes passes = passes_of(learned);
        const double working = take(&passes, 0) * micro_batches;
        *launches = (struct learned_launches){.host = profiled,
                                              .profiled = profiled,
                                              .launching = profiled * learned->layers->count * micro_batches,
                                              .working = working};
        if (step_seconds <= 0)
                return RV_OK;
        if (profiled <= 0)
                return rv_fail(err, RV_EINPUT,
                               "--step-time is for a GPU's trace: what a CPU takes is in the trace itself");
        if (step_seconds < SHORT * (working + rest)) {
                char given[NUMBER_TEXT], least[NUMBER_TEXT];
                return rv_fail(
                        err, RV_EINPUT,
                        "--step-time: %s is less than the %s that the GPU works in a step of the trace",
                        number_seconds(given, step_seconds), number_seconds(least, working + rest));
        }
        launches->host = host_within(&passes, fmax(step_seconds - rest, working) / micro_batches, profiled);
        return RV_OK;
}

/* All kernels of a kind together, or all that stand for others. */
struct total {
        struct share share;
        double flops, bytes;
        int count;
};

static void add_kernel(struct total *total, const struct kernel *kernel, const struct share *share)
{
        total->share.product += share->product;
        total->share.quadratic += share->quadratic;
        total->share.linear += share->linear;
        total->share.constant += share->constant;
        total->flops += kernel_flops(kernel);
        total->bytes += kernel_bytes(kernel);
        total->count++;
}

/* ---- models ---- */

/* Products of the trace, one point a shape: what of each is the product itself. */
static struct kernel_point *product_points(const struct learned *learned, const struct share *shares,
                                           int *count)
{
        const struct layers *layers = learned->layers;
        struct kernel_point *points = resized(NULL, (size_t)layers->count, sizeof *points);
        *count = 0;
        for (int i = 0; i < layers->count; i++) {
                struct kernel product = layers->kernels[i];
                int at = 0;
                if (!layers_product(&product) || shares[i].product <= 0)
                        continue;
                product.kind = KERNEL_MATMUL;
                while (at < *count && !kernel_same(&points[at].kernel, &product))
                        at++;
                if (at == *count)
                        points[(*count)++] = (struct kernel_point){.kernel = product};
                points[at].seconds += shares[i].product;
                points[at].samples++;
        }
        for (int i = 0; i < *count; i++)
                points[i].seconds /= points[i].samples;
        return points;
}

/* Adds to a model what grows with the bytes, and what does not grow at all. */
static void add_rest(struct kernel_model *model, const struct total *total)
{
        model->present = true;
        model->overhead_seconds += total->share.constant / total->count;
        if (total->share.linear <= 0)
                return;
        const double before = model->bytes_per_second > 0 ? model->exposed / model->bytes_per_second : 0;
        model->bytes_per_second = 1 / (before + total->share.linear / total->bytes);
        model->exposed = 1;
}

static struct kernel_model model_of(const struct total *total, enum kernel_kind kind,
                                    const struct kernel_model *product)
{
        struct kernel_model model = {0};
        if (kernel_descriptor(kind)->products == 1)
                model = *product;
        else if (total->share.quadratic > 0)
                model.flops_per_second = total->flops / total->share.quadratic;
        add_rest(&model, total);
        return model;
}

/* Kinds that the trace's model has not: products as the others, what moves its bytes by the bytes of all. */
static void model_unseen(struct kernel_model *model, enum kernel_kind kind, const struct total *moving,
                         const struct kernel_model *product)
{
        const struct kernel_descriptor *of = kernel_descriptor(kind);
        const bool optimizer = kind == KERNEL_OVERFLOW || kind == KERNEL_UNSCALE || kind == KERNEL_CLEAR;
        if (optimizer)
                *model = (struct kernel_model){.present = true, .overhead_seconds = NOTHING};
        else if (of->products == 1 && of->split != SPLIT_EXPERTS && !of->parts)
                *model = *product;
        else if (of->products == 0 && !of->only_predicted && !kernel_of_mixture(kind) &&
                 moving->share.linear > 0) {
                *model = (struct kernel_model){0};
                add_rest(model, moving);
        }
}

static void set_models(const struct learned *learned, const struct kernel_model *product,
                       struct profile_load *load)
{
        const struct layers *layers = learned->layers;
        struct kernel_model *models = load->models[layers->kernels[0].dtype];
        struct total totals[KERNEL_KINDS] = {0}, moving = {0};
        struct share *shares = mean_shares(learned);
        for (int i = 0; i < layers->count; i++) {
                const struct kernel *kernel = &layers->kernels[i];
                add_kernel(&totals[kernel->kind], kernel, &shares[i]);
                if (kernel_descriptor(kernel->kind)->products == 0)
                        add_kernel(&moving, kernel, &shares[i]);
        }
        free(shares);
        for (int kind = 0; kind < KERNEL_KINDS; kind++) {
                const bool mixed = kernel_descriptor((enum kernel_kind)kind)->only_mixed;
                if (kind == KERNEL_ADAMW || kind == KERNEL_SQUARED_NORM)
                        continue; /* fitted: by their bytes */
                models[kind] = (struct kernel_model){0};
                if (mixed && layers->kernels[0].dtype == DTYPE_FP32)
                        continue;
                if (totals[kind].count)
                        models[kind] = model_of(&totals[kind], (enum kernel_kind)kind, product);
                else
                        model_unseen(&models[kind], (enum kernel_kind)kind, &moving, product);
        }
}

struct profile_load learn_load(const struct learned *learned, int processors,
                               const struct learned_launches *launches, struct fit_quality *products)
{
        struct samples samples;
        const bool mixed = learned->layers->kernels[0].dtype != DTYPE_FP32;
        int count, starts = 0;
        samples_init(&samples, 1, 0);
        for (int i = 0; i < learned->count; i++) {
                add_step(&samples, learned->layers, &learned->steps[i]);
                starts += 2 * learned->steps[i].micro_batches + 1 + (learned->steps[i].norm > 0) + mixed;
        }
        struct profile_load load = samples_load(&samples, processors);
        samples_free(&samples);
        struct share *shares = mean_shares(learned);
        struct kernel_point *points = product_points(learned, shares, &count);
        const struct kernel_model product = fit_kernels(
                points, count, KERNEL_MATMUL, (enum dtype)learned->layers->kernels[0].dtype, processors);
        free(points);
        free(shares);
        *products = product.quality;
        set_models(learned, &product, &load);
        if (launches->host > 0)
                load.launch = load.graph = (struct profile_launch){.host_seconds = launches->host};
        load.op_overhead_seconds = learn_other(learned) * learned->count / starts;
        return load;
}

double learn_peak(const struct learned *learned)
{
        int count;
        double peak = 0;
        struct share *shares = mean_shares(learned);
        struct kernel_point *points = product_points(learned, shares, &count);
        for (int i = 0; i < count; i++)
                peak = fmax(peak, kernel_flops(&points[i].kernel) / points[i].seconds);
        free(points);
        free(shares);
        return peak;
}

/* ---- by kind ---- */

/* What a kind takes, and what another profile says that it takes. */
struct kind_total {
        struct total total;
        double against;
};

static int add_to_kind(struct kind_total kinds[KERNEL_KINDS], const struct kernel *kernel,
                       const struct share *share, const struct profile *against, struct rv_error_info *err)
{
        double seconds = 0;
        add_kernel(&kinds[kernel->kind].total, kernel, share);
        if (!against)
                return RV_OK;
        const int rc = profile_kernel_seconds(against, profile_load_for(against, 1), kernel, false, &seconds,
                                              NULL, err);
        kinds[kernel->kind].against += seconds;
        return rc;
}

static json_t *kind_json(enum kernel_kind kind, const struct kind_total *of, bool against)
{
        const struct share *share = &of->total.share;
        json_t *object =
                json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f}", "kernel", kernel_name(kind), "number",
                          of->total.count, "seconds", share_seconds(share), "flops", share->product, "pairs",
                          share->quadratic, "tokens", share->linear, "nothing", share->constant);
        if (against)
                json_object_set_new(object, "against", json_real(of->against));
        return object;
}

json_t *learn_json(const struct learned *learned, const struct profile *against, struct rv_error_info *err)
{
        const struct layers *layers = learned->layers;
        const struct share update = {.constant = median_of(learned, optimizer_of)},
                           norm = {.constant = median_of(learned, norm_of) / layers->norms};
        struct kind_total kinds[KERNEL_KINDS] = {0};
        struct share *shares = mean_shares(learned);
        int rc = add_to_kind(kinds, &layers->update, &update, against, err);
        for (int i = 0; i < layers->norms && rc == RV_OK; i++)
                rc = add_to_kind(kinds, &layers->norm, &norm, against, err);
        for (int i = 0; i < layers->count && rc == RV_OK; i++)
                rc = add_to_kind(kinds, &layers->kernels[i], &shares[i], against, err);
        free(shares);
        if (rc != RV_OK)
                return NULL;
        json_t *array = json_array();
        for (int kind = 0; kind < KERNEL_KINDS; kind++)
                if (kinds[kind].total.count)
                        json_array_append_new(array,
                                              kind_json((enum kernel_kind)kind, &kinds[kind], against));
        return array;
}

static double number_at(const json_t *object, const char *key)
{
        return json_number_value(json_object_get(object, key));
}

static void print_kind(const json_t *kind, double all)
{
        static const char *const parts[] = {"flops", "pairs", "tokens", "nothing"};
        const double seconds = number_at(kind, "seconds"), against = number_at(kind, "against");
        char number[NUMBER_TEXT];
        printf("  %-31s %6d %13s %5.1f %% ", json_string_value(json_object_get(kind, "kernel")),
               (int)number_at(kind, "number"), number_seconds(number, seconds),
               all > 0 ? 100 * seconds / all : 0);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
                printf(" %5.1f %%", seconds > 0 ? 100 * number_at(kind, parts[i]) / seconds : 0);
        if (json_object_get(kind, "against"))
                printf(" %13s %+7.1f %%", number_seconds(number, against),
                       seconds > 0 ? 100 * (against / seconds - 1) : 0);
        printf("\n");
}

void learn_print(const json_t *kinds)
{
        static const char *const keys[] = {"number", "seconds", "flops",  "pairs",
                                           "tokens", "nothing", "against"};
        const bool against = json_object_get(json_array_get(kinds, 0), "against") != NULL;
        json_t *all = json_pack("{s:s}", "kernel", "all"), *kind;
        size_t i;
        printf("\n%-33s %6s %13s %7s  %s\n", "a micro-batch and an update", "", "", "",
               "of which grows with");
        printf("  %-31s %6s %13s %7s  %7s %7s %7s %7s%s\n", "kernel", "number", "time", "share", "flops",
               "pairs", "tokens", "nothing", against ? "       against     error" : "");
        json_array_foreach((json_t *)kinds, i, kind)
        {
                for (size_t key = 0; key < sizeof keys / sizeof *keys; key++)
                        if (json_object_get(kind, keys[key]))
                                json_object_set_new(
                                        all, keys[key],
                                        json_real(number_at(all, keys[key]) + number_at(kind, keys[key])));
        }
        json_array_foreach((json_t *)kinds, i, kind)
        {
                print_kind(kind, number_at(all, "seconds"));
        }
        print_kind(all, number_at(all, "seconds"));
        json_decref(all);
}
