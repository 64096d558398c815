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
        enum { FEW = 4 };
        static const double QUARTER = 0.25, LONGER = 1.05;
        double *seconds = resized(NULL, (size_t)learned->count + 1, sizeof *seconds);
        int kept = 0;
        const int count = learned->count;
        for (int i = 0; i < count; i++)
                seconds[i] = learned->steps[i].seconds;
        const double longest = count < FEW ? INFINITY : LONGER * quantile(seconds, count, QUARTER);
        free(seconds);
        for (int i = 0; i < count; i++)
                if (learned->steps[i].seconds <= longest)
                        learned->steps[kept++] = learned->steps[i];
                else
                        free(learned->steps[i].kernels);
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

static void set_launches(const struct learned *learned, struct profile_load *load)
{
        const double host = median_of(learned, host_of) / learned->layers->count;
        if (host > 0)
                load->launch = load->graph = (struct profile_launch){.host_seconds = host};
}

struct profile_load learn_load(const struct learned *learned, int processors, struct fit_quality *products)
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
        set_launches(learned, &load);
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

/* ---- what is printed ---- */

static void print_total(const char *name, const struct total *total, double all)
{
        const double seconds = share_seconds(&total->share), percent = seconds > 0 ? 100 / seconds : 0;
        char number[NUMBER_TEXT];
        printf("  %-31s %6d %13s %5.1f %%  %5.1f %% %5.1f %% %5.1f %% %5.1f %%\n", name, total->count,
               number_seconds(number, seconds), 100 * seconds / all, percent * total->share.product,
               percent * total->share.quadratic, percent * total->share.linear,
               percent * total->share.constant);
}

void learn_print(const struct learned *learned, const struct fit_quality *products)
{
        const struct layers *layers = learned->layers;
        struct total totals[KERNEL_KINDS] = {0}, all = {0};
        struct share *shares = mean_shares(learned);
        for (int i = 0; i < layers->count; i++) {
                add_kernel(&totals[layers->kernels[i].kind], &layers->kernels[i], &shares[i]);
                add_kernel(&all, &layers->kernels[i], &shares[i]);
        }
        free(shares);
        printf("\n%-33s %6s %13s %7s  %s\n", "a micro-batch, as our kernels", "", "", "",
               "of which grows with");
        printf("  %-31s %6s %13s %7s  %7s %7s %7s %7s\n", "kernel", "number", "time", "share", "flops",
               "pairs", "tokens", "nothing");
        for (int kind = 0; kind < KERNEL_KINDS; kind++)
                if (totals[kind].count)
                        print_total(kernel_name((enum kernel_kind)kind), &totals[kind],
                                    share_seconds(&all.share));
        print_total("all", &all, share_seconds(&all.share));
        printf("\nproducts of %d shapes by one model: residuals %.1f %% in the median, %.1f %% at worst; "
               "each "
               "shape by the others %.1f %%, %.1f %%\n",
               products->points, 100 * products->median_error, 100 * products->worst_error,
               100 * products->left_out_median_error, 100 * products->left_out_worst_error);
}
