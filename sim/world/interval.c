#include "sim/world/interval.h"

#include "runtime/plan/framework.h"
#include "sim/world/paper_batch.h"

#include <math.h>
#include <stdlib.h>
#include <stdio.h>

static const double NORMAL_95 = 1.6448536269514722; /* a normal error is further up once in twenty times */
static const double TRIED = 0.5;    /* how much a price is changed to see whether it matters */
static const double MATTERS = 1e-4; /* of the batch, when the price is changed by that much */

const char *interval_part_name(enum interval_part part)
{
        static const char *const names[INTERVAL_PARTS] = {"drift",  "kernels",  "messages", "all-reduces",
                                                          "copies", "launches", "runs"};
        return names[part];
}

/* A kernel of the batch. Kernels of one group have one error. */
struct asked {
        struct kernel kernel;
        int group;
};

/* What is changed at a time: the prices of one part of the batch, of the kernels only one group's. */
struct change {
        enum interval_part part;
        int group;
        const struct kernel *only; /* instead of a group; NULL: the group */
        double way;                /* 1: a standard error higher, -1: lower */
        bool tried;                /* by TRIED instead */
};

/* Prices are changed by no more than this; what a larger error does is taken in proportion. */
static const double MAX_CHANGE = 0.5;

struct propagation {
        const struct machine *machine;
        const struct options *options;
        double batch; /* seconds, on paper */
        struct asked *kernels;
        int kernel_count, kernel_capacity, group_count;
        bool used[INTERVAL_PARTS];
        const struct change *change; /* NULL: none, kernels are noted */
        double largest;              /* error among the prices that were changed last */
};

static int find(const struct propagation *p, const struct kernel *kernel)
{
        int i = 0;
        while (i < p->kernel_count && !kernel_same(&p->kernels[i].kernel, kernel))
                i++;
        return i;
}

static bool has_point(const struct propagation *p, const struct kernel *kernel)
{
        const struct machine *m = p->machine;
        enum profile_source source = PROFILE_MODEL;
        double seconds;
        profile_kernel_seconds(&m->profile, m->load, kernel, m->fits_only, &seconds, &source, NULL);
        return source == PROFILE_POINT;
}

/* Of a measured shape a new group; else that of its kind, or of all kernels if nothing was measured. */
static int group_of(const struct propagation *p, const struct kernel *kernel)
{
        const bool measured = p->machine->profile.measured;
        for (int i = 0; i < p->kernel_count && !has_point(p, kernel); i++) {
                const struct kernel *other = &p->kernels[i].kernel;
                const bool same_kind = other->kind == kernel->kind && other->dtype == kernel->dtype &&
                                       other->format == kernel->format;
                if ((same_kind || !measured) && !has_point(p, other))
                        return p->kernels[i].group;
        }
        return p->group_count;
}

static void note_kernel(struct propagation *p, const struct kernel *kernel)
{
        if (find(p, kernel) < p->kernel_count)
                return;
        if (p->kernel_count == p->kernel_capacity) {
                p->kernel_capacity = p->kernel_capacity ? 2 * p->kernel_capacity : 64;
                p->kernels = realloc(p->kernels, (size_t)p->kernel_capacity * sizeof *p->kernels);
                if (!p->kernels)
                        abort();
        }
        const int group = group_of(p, kernel);
        p->group_count += group == p->group_count;
        p->kernels[p->kernel_count++] = (struct asked){*kernel, group};
}

static enum interval_part part_of(enum price_of price)
{
        static const enum interval_part parts[] = {
                [PRICE_KERNEL] = INTERVAL_KERNELS, [PRICE_MESSAGE] = INTERVAL_MESSAGES,
                [PRICE_ALLREDUCE] = INTERVAL_SUMS, [PRICE_TENSOR] = INTERVAL_SUMS,
                [PRICE_COPY] = INTERVAL_COPIES,    [PRICE_HOST] = INTERVAL_LAUNCHES};
        return parts[price];
}

/* The measured line of a part; NULL: the platform states what its links take, without an error. */
static const struct profile_load *line_of(const struct propagation *p, enum interval_part part,
                                          enum profile_line *line)
{
        const struct platform *platform = &p->machine->platform;
        const enum dtype dtype = p->options->dtype;
        *line = part == INTERVAL_MESSAGES ? LINE_MESSAGE
                : part == INTERVAL_SUMS   ? profile_allreduce_line(dtype)
                                          : LINE_COPY;
        return part == INTERVAL_MESSAGES ? platform->messages
               : part == INTERVAL_SUMS   ? platform->allreduces[dtype]
                                         : platform->copies;
}

static double error_of(const struct propagation *p, enum interval_part part, const struct kernel *kernel,
                       int64_t bytes)
{
        const struct machine *m = p->machine;
        enum profile_line line;
        if (part == INTERVAL_COMMON)
                return m->load->error;
        if (part == INTERVAL_LAUNCHES)
                return framework_host_error(p->options->framework, m->profile.device.name);
        if (part == INTERVAL_KERNELS)
                return profile_kernel_error(m->load, kernel, m->fits_only);
        const struct profile_load *load = line_of(p, part, &line);
        return load ? profile_line_error(load, line, bytes, m->fits_only) : 0;
}

static bool is_changed(const struct propagation *p, enum interval_part part, const struct kernel *kernel)
{
        const struct change *change = p->change;
        if (change->part == INTERVAL_COMMON)
                return part == INTERVAL_KERNELS;
        if (change->part != part || part != INTERVAL_KERNELS)
                return change->part == part;
        if (change->only)
                return kernel_same(change->only, kernel);
        const int i = find(p, kernel);
        return i < p->kernel_count && p->kernels[i].group == change->group;
}

/* By what a price is multiplied. */
static double factor(void *context, enum price_of price, const struct kernel *kernel, int64_t bytes)
{
        struct propagation *p = context;
        const enum interval_part part = part_of(price);
        if (!p->change) {
                p->used[part] = true;
                if (kernel)
                        note_kernel(p, kernel);
                return 1;
        }
        if (!is_changed(p, part, kernel))
                return 1;
        const double error = p->change->tried ? TRIED : error_of(p, p->change->part, kernel, bytes);
        p->largest = fmax(p->largest, error);
        return 1 + p->change->way * error;
}

static double batch_with(struct propagation *p, const struct change *change)
{
        const struct price_nudge nudge = {factor, p};
        p->change = change;
        p->largest = 0;
        return paper_batch_nudged(p->machine, p->options, &nudge, NULL);
}

/* Half of what the batch differs by between the change up and the change down, relative. */
static double effect_of(struct propagation *p, struct change change)
{
        double scale = 1;
        change.way = 1;
        double up = batch_with(p, &change);
        if (p->largest > MAX_CHANGE) {
                change.way = scale = MAX_CHANGE / p->largest;
                up = batch_with(p, &change);
        }
        change.way = -scale;
        return fabs(up - batch_with(p, &change)) / 2 / scale / p->batch;
}

/* Whether a price has no error although the batch depends on it; says which. */
static bool lacks_kernel_error(struct propagation *p, struct interval *interval)
{
        for (int i = 0; i < p->kernel_count; i++) {
                const struct kernel *kernel = &p->kernels[i].kernel;
                const struct change tried = {.part = INTERVAL_KERNELS, .only = kernel, .tried = true};
                char name[PROFILE_NAME];
                if (error_of(p, INTERVAL_KERNELS, kernel, 0) > 0 || effect_of(p, tried) < MATTERS)
                        continue;
                profile_kernel_name(
                        name, kernel->kind,
                        profile_format((enum dtype)kernel->dtype, (enum product_format)kernel->format));
                snprintf(interval->unknown, sizeof interval->unknown,
                         "profile %.100s does not say the error of %s", p->machine->profile.path, name);
                return true;
        }
        return false;
}

static bool lacks_line_error(struct propagation *p, enum interval_part part, struct interval *interval)
{
        const struct change change = {.part = part}, tried = {.part = part, .tried = true};
        enum profile_line line;
        if (effect_of(p, change) > 0 || effect_of(p, tried) < MATTERS)
                return false;
        if (!line_of(p, part, &line)) {
                interval->links_exact = true;
                return false;
        }
        snprintf(interval->unknown, sizeof interval->unknown,
                 "profile %.100s does not say the error of line %s", p->machine->profile.path,
                 profile_line_name(line));
        return true;
}

static void propagate(struct propagation *p, struct interval *interval)
{
        double squares = 0;
        for (int part = 0; part < INTERVAL_PARTS; part++) {
                double sum = 0;
                const int groups = part == INTERVAL_KERNELS ? p->group_count : 1;
                for (int group = 0; group < groups; group++) {
                        const struct change change = {.part = (enum interval_part)part, .group = group};
                        const double effect = part == INTERVAL_RUNS
                                                      ? framework_run_error(p->options->framework,
                                                                            p->machine->profile.device.name)
                                                      : effect_of(p, change);
                        sum += effect * effect;
                }
                interval->relative[part] = sqrt(sum);
                squares += sum;
        }
        interval->all = sqrt(squares);
}

struct interval interval_of(const struct machine *machine, const struct options *options,
                            double batch_seconds)
{
        struct interval interval = {0};
        struct propagation *p = calloc(1, sizeof *p);
        if (!p)
                abort();
        p->machine = machine;
        p->options = options;
        p->batch = batch_with(p, NULL);
        if (machine->kinds > 1)
                snprintf(interval.unknown, sizeof interval.unknown,
                         "GPUs of several kinds have errors of several profiles");
        else if (!(p->batch > 0)) /* NAN too */
                snprintf(interval.unknown, sizeof interval.unknown,
                         "the world on paper, which carries errors to the batch, cannot price this plan");
        else if (!lacks_kernel_error(p, &interval) && !lacks_line_error(p, INTERVAL_MESSAGES, &interval) &&
                 !lacks_line_error(p, INTERVAL_SUMS, &interval) &&
                 !lacks_line_error(p, INTERVAL_COPIES, &interval))
                interval.known = true;
        if (interval.known)
                propagate(p, &interval);
        if (interval.all > 1) {
                interval.known = false;
                snprintf(interval.unknown, sizeof interval.unknown,
                         "profile %.100s was measured with errors of more than what it measured; measure "
                         "again on an idle machine",
                         machine->profile.path);
        }
        free(p->kernels);
        free(p);
        interval.low_seconds = batch_seconds * exp(-NORMAL_95 * interval.all);
        interval.high_seconds = batch_seconds * exp(NORMAL_95 * interval.all);
        return interval;
}
