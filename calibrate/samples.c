#include "calibrate/samples.h"

#include "calibrate/profile/fit.h"
#include "runtime/base/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *resized(void *array, size_t count, size_t element_bytes)
{
        void *larger = realloc(array, count * element_bytes);
        if (!larger)
                abort();
        return larger;
}

void series_add(struct series *series, double value)
{
        if (series->count == series->capacity) {
                series->capacity = series->capacity ? 2 * series->capacity : 16;
                series->values = resized(series->values, (size_t)series->capacity, sizeof *series->values);
        }
        series->values[series->count++] = value;
}

double series_quantile(struct series *series, double q)
{
        return series->count ? quantile(series->values, series->count, q) : 0;
}

static int compare(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

/* Sorts the samples; returns those that nothing disturbed, or all if there are none. */
static struct series undisturbed(const struct series *series)
{
        int first = 0;
        qsort(series->values, (size_t)series->count, sizeof *series->values, compare);
        while (first < series->count && series->values[first] < 0)
                first++;
        first = first < series->count ? first : 0;
        return (struct series){.values = series->values + first, .count = series->count - first};
}

/* An operation's seconds are a sum over kernels, and only means add up: the same shape may stand where its
 * operands are in a cache and where they are not, and a median would take a side. The tenth of the samples at
 * each end (from three on at least one) is left out, since a kernel that another process interrupted says
 * nothing about kernels. */
static double trimmed_mean(const struct series *all)
{
        const struct series good = undisturbed(all), *series = &good;
        int min = series->count >= 3 ? 1 : 0, cut = series->count / 10 > min ? series->count / 10 : min;
        double sum = 0;
        for (int i = cut; i < series->count - cut; i++)
                sum += series->values[i];
        return sum / (series->count - 2 * cut);
}

void samples_init(struct samples *samples, int ranks, int run_count)
{
        *samples = (struct samples){.ranks = ranks, .run_count = run_count};
        samples->passes = resized(NULL, (size_t)run_count + 1, sizeof *samples->passes);
        memset(samples->passes, 0, (size_t)run_count * sizeof *samples->passes);
}

void samples_add_kernel(struct samples *samples, const struct kernel *kernel, double seconds, bool disturbed)
{
        int i = 0;
        while (i < samples->kernel_count && !kernel_same(&samples->kernels[i].kernel, kernel))
                i++;
        if (i == samples->kernel_count) {
                samples->kernels = resized(samples->kernels, (size_t)i + 1, sizeof *samples->kernels);
                samples->kernels[samples->kernel_count++] = (struct kernel_series){.kernel = *kernel};
        }
        series_add(&samples->kernels[i].seconds, disturbed ? -seconds : seconds);
}

void samples_add_line(struct samples *samples, enum profile_line line, int64_t bytes, double seconds)
{
        struct line_set *set = &samples->lines[line];
        int i = 0;
        while (i < set->count && set->lines[i].bytes != bytes)
                i++;
        if (i == set->count) {
                set->lines = resized(set->lines, (size_t)i + 1, sizeof *set->lines);
                set->lines[set->count++] = (struct line_series){.bytes = bytes};
        }
        series_add(&set->lines[i].seconds, seconds);
}

/* Operations of an optimizer phase add up to the phase, as kernels do to an operation. */
static double line_seconds(enum profile_line line, struct series *seconds)
{
        bool adds_up = line == LINE_FETCH || line == LINE_OFFLOADED_UPDATE || line == LINE_WRITE_BACK;
        return adds_up ? trimmed_mean(seconds) : series_quantile(seconds, 0.5);
}

/* What was added since the last round; it is sorted in place, which leaves what was added before alone. */
static struct series round_of(const struct series *seconds, int *counted)
{
        struct series round = {.values = seconds->values + *counted, .count = seconds->count - *counted};
        *counted = seconds->count;
        return round;
}

void samples_end_round(struct samples *samples)
{
        for (int i = 0; i < samples->kernel_count; i++) {
                struct kernel_series *kernel = &samples->kernels[i];
                const struct series *ends = &kernel->ends;
                int counted = ends->count ? (int)ends->values[ends->count - 1] : 0;
                struct series round = round_of(&kernel->seconds, &counted);
                if (!round.count)
                        continue;
                series_add(&kernel->rounds, trimmed_mean(&round));
                series_add(&kernel->ends, counted);
        }
        for (int line = 0; line < PROFILE_LINES; line++)
                for (int i = 0; i < samples->lines[line].count; i++) {
                        struct line_series *sizes = &samples->lines[line].lines[i];
                        struct series round = round_of(&sizes->seconds, &sizes->counted);
                        if (round.count)
                                series_add(&sizes->rounds, line_seconds((enum profile_line)line, &round));
                }
}

/* ---- company ---- */

/* The median of the rounds without the last `without`, in which something was left undisturbed; 0: there is
 * none. */
static double usual_round(const struct series *rounds, int without)
{
        double *values = resized(NULL, (size_t)rounds->count + 1, sizeof *values);
        int count = 0;
        for (int r = 0; r < rounds->count - without; r++)
                if (rounds->values[r] > 0)
                        values[count++] = rounds->values[r];
        const double usual = count ? quantile(values, count, 0.5) : 0;
        free(values);
        return usual;
}

bool samples_settled(const struct samples *samples)
{
        double now = 0, before = 0;
        for (int i = 0; i < samples->kernel_count; i++) {
                const struct kernel_series *kernel = &samples->kernels[i];
                if (usual_round(&kernel->rounds, 1) == 0)
                        continue;
                now += kernel->seconds.count * usual_round(&kernel->rounds, 0);
                before += kernel->seconds.count * usual_round(&kernel->rounds, 1);
        }
        return before > 0 && fabs(now / before - 1) <= 0.01;
}

/* What all kernels took in a round over what they usually take; 0: they were disturbed. */
static double pace_of(const struct samples *samples, int round)
{
        double sum = 0, usual = 0;
        for (int i = 0; i < samples->kernel_count; i++) {
                const struct kernel_series *kernel = &samples->kernels[i];
                if (kernel->rounds.count != samples->kernels[0].rounds.count ||
                    kernel->rounds.values[round] < 0)
                        continue;
                sum += kernel->seconds.count * kernel->rounds.values[round];
                usual += kernel->seconds.count * usual_round(&kernel->rounds, 0);
        }
        return usual > 0 ? sum / usual : 0;
}

static void leave_out_round(struct kernel_series *kernel, int round)
{
        const int first = round ? (int)kernel->ends.values[round - 1] : 0;
        for (int i = first; i < (int)kernel->ends.values[round]; i++)
                kernel->seconds.values[i] = -fabs(kernel->seconds.values[i]);
        kernel->rounds.values[round] = -fabs(kernel->rounds.values[round]);
}

int samples_leave_out_rounds(struct samples *samples)
{
        enum { FEW = 4 };
        const double normal = 1.4826; /* the standard deviation over the median deviation */
        const int rounds = samples->kernel_count ? samples->kernels[0].rounds.count : 0;
        int left_out = 0;
        if (rounds < FEW)
                return 0;
        double *pace = resized(NULL, (size_t)rounds, sizeof *pace),
               *off = resized(NULL, (size_t)rounds, sizeof *off);
        for (int r = 0; r < rounds; r++)
                pace[r] = off[r] = pace_of(samples, r);
        const double usual = quantile(off, rounds, 0.5);
        for (int r = 0; r < rounds; r++)
                off[r] = fabs(pace[r] - usual);
        const double most = usual + fmax(0.05, 4 * normal * quantile(off, rounds, 0.5));
        for (int r = 0; r < rounds; r++) {
                if (pace[r] <= most)
                        continue;
                left_out++;
                for (int i = 0; i < samples->kernel_count; i++)
                        if (samples->kernels[i].rounds.count == rounds)
                                leave_out_round(&samples->kernels[i], r);
        }
        free(pace);
        free(off);
        return left_out;
}

double samples_disturbed(const struct samples *samples)
{
        int64_t disturbed = 0, all = 0;
        for (int i = 0; i < samples->kernel_count; i++)
                for (int j = 0; j < samples->kernels[i].seconds.count; j++, all++)
                        disturbed += samples->kernels[i].seconds.values[j] < 0;
        return all ? (double)disturbed / (double)all : 0;
}

static void line_set_free(struct line_set *set)
{
        for (int i = 0; i < set->count; i++) {
                free(set->lines[i].seconds.values);
                free(set->lines[i].rounds.values);
        }
        free(set->lines);
}

void samples_free(struct samples *samples)
{
        for (int i = 0; i < samples->kernel_count; i++) {
                free(samples->kernels[i].seconds.values);
                free(samples->kernels[i].rounds.values);
                free(samples->kernels[i].ends.values);
        }
        for (int i = 0; i < samples->run_count; i++)
                free(samples->passes[i].values);
        free(samples->kernels);
        free(samples->passes);
        free(samples->gaps.values);
        for (int i = 0; i < 4; i++)
                free(samples->launches[i / 2][i % 2].values);
        free(samples->recorded.values);
        for (int line = 0; line < PROFILE_LINES; line++)
                line_set_free(&samples->lines[line]);
        memset(samples, 0, sizeof *samples);
}

static void gather_series(struct series *series, struct net *net)
{
        int64_t bytes = (int64_t)series->count * (int64_t)sizeof *series->values;
        double *all = NULL;
        if (net->rank == 0)
                all = resized(NULL, (size_t)net->ranks * (size_t)series->count + 1, sizeof *all);
        net->ops->gather(net, series->values, bytes, all);
        if (net->rank == 0) {
                free(series->values);
                series->values = all;
                series->count *= net->ranks;
                series->capacity = series->count + 1;
        }
}

static void gather_lines(struct line_set *set, struct net *net)
{
        for (int i = 0; i < set->count; i++) {
                gather_series(&set->lines[i].seconds, net);
                gather_series(&set->lines[i].rounds, net);
        }
}

void samples_gather(struct samples *samples, struct net *net)
{
        for (int i = 0; i < samples->kernel_count; i++) {
                gather_series(&samples->kernels[i].seconds, net);
                gather_series(&samples->kernels[i].rounds, net);
        }
        for (int i = 0; i < samples->run_count; i++)
                gather_series(&samples->passes[i], net);
        gather_series(&samples->gaps, net);
        for (int i = 0; i < 4; i++)
                gather_series(&samples->launches[i / 2][i % 2], net);
        gather_series(&samples->recorded, net);
        for (int line = 0; line < PROFILE_LINES; line++)
                if (line != LINE_MESSAGE && line < LINE_SNAPSHOT) /* the last ones are of files */
                        gather_lines(&samples->lines[line], net);
}

static int by_bytes(const void *a, const void *b)
{
        int64_t x = ((const struct line_point *)a)->bytes, y = ((const struct line_point *)b)->bytes;
        return (x > y) - (x < y);
}

double samples_error(const double *rounds, int count, double value)
{
        double sum = 0, squares = 0;
        if (count < 2)
                return 0;
        for (int i = 0; i < count; i++)
                sum += rounds[i];
        for (int i = 0; i < count; i++)
                squares += (rounds[i] - sum / count) * (rounds[i] - sum / count);
        return sqrt(squares / (count - 1) * (1 + 1.0 / count)) / value;
}

/* Points and fit; the caller owns the points. */
static struct profile_curve curve_of(enum profile_line line, struct line_set *set)
{
        struct profile_curve curve = {.count = set->count};
        curve.points = resized(NULL, (size_t)set->count + 1, sizeof *curve.points);
        for (int i = 0; i < set->count; i++) {
                struct line_series *size = &set->lines[i];
                const double seconds = line_seconds(line, &size->seconds);
                curve.points[i] =
                        (struct line_point){size->bytes, seconds,
                                            samples_error(size->rounds.values, size->rounds.count, seconds)};
        }
        qsort(curve.points, (size_t)curve.count, sizeof *curve.points, by_bytes);
        curve.fit = fit_line(curve.points, curve.count);
        return curve;
}

/* How much slower than in all of them the kernels were in one round of a rank: weighted by what they took
 * together, among those that were timed in as many rounds as the first one. NAN: all were disturbed. */
static double drift_of(const struct samples *samples, const struct kernel_point *points, int round)
{
        double sum = 0, weight = 0;
        for (int i = 0; i < samples->kernel_count; i++) {
                const struct kernel_series *series = &samples->kernels[i];
                if (series->rounds.count != samples->kernels[0].rounds.count ||
                    series->rounds.values[round] < 0)
                        continue;
                sum += series->seconds.count * (series->rounds.values[round] - points[i].seconds);
                weight += series->seconds.count * points[i].seconds;
        }
        return sum / weight;
}

/* The error that the drift of so many rounds, of each rank one behind the other, shows. Ranks of one machine
 * share its moods, so that a round is one observation, however many ranks there are: their mean, as a batch
 * needs all of them. Rounds are few, so it is widened by Student's t. */
static double drift_error(const double *drift, int rounds, int ranks)
{
        const int each = rounds / ranks;
        double *shared = resized(NULL, (size_t)each + 1, sizeof *shared);
        int count = 0;
        for (int r = 0; r < each; r++) {
                shared[count] = 0;
                for (int rank = 0; rank < ranks; rank++)
                        shared[count] += drift[rank * each + r] / ranks;
                count += !isnan(shared[count]);
        }
        const double error = count > 1 ? fit_widened(samples_error(shared, count, 1), count - 1) : 0;
        free(shared);
        return error;
}

/* Splits what rounds differ by in what all kernels share, the load's error, and what each has beside that. Of
 * the kernels' own there are dozens in a batch, whose too small and too large ones make up for each other. */
static void find_errors(const struct samples *samples, struct profile_load *load)
{
        const int rounds = samples->kernel_count ? samples->kernels[0].rounds.count : 0;
        double *drift = resized(NULL, (size_t)rounds + 1, sizeof *drift);
        double *own = NULL;
        for (int r = 0; r < rounds; r++)
                drift[r] = 1 + drift_of(samples, load->points, r);
        load->error = drift_error(drift, rounds, samples->ranks);
        for (int i = 0; i < samples->kernel_count; i++) {
                const struct series *series = &samples->kernels[i].rounds;
                int count = 0;
                own = resized(own, (size_t)series->count + 1, sizeof *own);
                for (int r = 0; r < series->count; r++) {
                        own[count] = series->values[r] / (series->count == rounds ? drift[r] : 1);
                        count += own[count] > 0; /* not of a disturbed round, whose drift may be unknown */
                }
                load->points[i].error = samples_error(own, count, load->points[i].seconds);
        }
        free(own);
        free(drift);
}

static struct kernel_point kernel_point(struct kernel_series *series)
{
        struct series good = undisturbed(&series->seconds);
        for (int i = 0; i < good.count; i++)
                good.values[i] = fabs(good.values[i]);
        return (struct kernel_point){.kernel = series->kernel,
                                     .seconds = trimmed_mean(&good),
                                     .p10 = series_quantile(&good, 0.1),
                                     .p90 = series_quantile(&good, 0.9),
                                     .samples = good.count};
}

/* Zeros where nothing was launched for this. */
static struct profile_launch launch_of(struct series seconds[2])
{
        return (struct profile_launch){.host_seconds = series_quantile(&seconds[0], 0.5),
                                       .lane_seconds = series_quantile(&seconds[1], 0.5)};
}

double samples_timing_cost(struct samples *samples)
{
        const double cost =
                series_quantile(&samples->recorded, 0.5) - launch_of(samples->launches[1]).lane_seconds;
        return samples->recorded.count > 0 && cost > 0 ? cost : 0;
}

/* Samples, and means of them, without what timing them cost; no kernel takes less than one that has nothing
 * to do. Negative ones are those that were disturbed. */
static void without_cost(struct series *series, double cost, double least)
{
        for (int i = 0; i < series->count; i++) {
                const double seconds = fmax(fabs(series->values[i]) - cost, least);
                series->values[i] = series->values[i] < 0 ? -seconds : seconds;
        }
}

void samples_take_off_timing(struct samples *samples)
{
        const double cost = samples_timing_cost(samples);
        const double least = launch_of(samples->launches[1]).lane_seconds;
        for (int i = 0; cost > 0 && i < samples->kernel_count; i++) {
                without_cost(&samples->kernels[i].seconds, cost, least);
                without_cost(&samples->kernels[i].rounds, cost, least);
        }
}

static bool of_optimizer(enum kernel_kind kind)
{
        return kind == KERNEL_SQUARED_NORM || kind == KERNEL_ADAMW || kind == KERNEL_OVERFLOW ||
               kind == KERNEL_UNSCALE || kind == KERNEL_CLEAR;
}

void samples_stretch(struct samples *samples, double factor, const struct kernel *apart)
{
        for (int i = 0; i < samples->kernel_count; i++) {
                struct kernel_series *series = &samples->kernels[i];
                if (of_optimizer((enum kernel_kind)series->kernel.kind) ||
                    kernel_same(&series->kernel, apart))
                        continue;
                for (int j = 0; j < series->seconds.count; j++)
                        series->seconds.values[j] *= factor;
                for (int j = 0; j < series->rounds.count; j++)
                        series->rounds.values[j] *= factor;
        }
}

struct profile_load samples_load(struct samples *samples, int processors)
{
        struct profile_load load = {.ranks = samples->ranks,
                                    .op_overhead_seconds = series_quantile(&samples->gaps, 0.5),
                                    .launch = launch_of(samples->launches[0]),
                                    .graph = launch_of(samples->launches[1]),
                                    .point_count = samples->kernel_count};
        load.points = resized(NULL, (size_t)samples->kernel_count + 1, sizeof *load.points);
        for (int i = 0; i < samples->kernel_count; i++)
                load.points[i] = kernel_point(&samples->kernels[i]);
        find_errors(samples, &load);
        for (enum dtype dtype = DTYPE_FP32; dtype < DTYPES; dtype++)
                for (int kind = 0; kind < KERNEL_KINDS; kind++)
                        load.models[dtype][kind] = fit_kernels(load.points, load.point_count,
                                                               (enum kernel_kind)kind, dtype, processors);
        for (int line = 0; line < PROFILE_LINES; line++)
                load.lines[line] = curve_of((enum profile_line)line, &samples->lines[line]);
        return load;
}
