#include "sim/evidence/ranks.h"

#include "runtime/plan/flags.h"

#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BEST = 3 };

/* Plans to choose from: the same GPUs, framework, model and precision and, if `batch`, the same batch. */
static bool rivals(const struct measured_run *a, const struct measured_run *b, bool batch)
{
        const struct table_row *x = a->row, *y = b->row;
        return a->candidate.machine == b->candidate.machine && strcmp(x->framework, y->framework) == 0 &&
               x->seq == y->seq && gpt_same(&a->candidate.options.gpt, &b->candidate.options.gpt) &&
               flag_equal(flag_named("precision"), &a->candidate.options, &b->candidate.options) &&
               (!batch || x->batch == y->batch);
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

/* ---- sets of rivals ---- */

/* Costs of runs that can be compared, in the order of the table. */
struct order {
        int count;
        double *measured, *predicted, *work;
};

static bool order_open(struct order *order, int most)
{
        const size_t room = (size_t)most + 1;
        *order = (struct order){0, malloc(room * sizeof(double)), malloc(room * sizeof(double)),
                                malloc(2 * room * sizeof(double))};
        return order->measured && order->predicted && order->work;
}

static void order_close(struct order *order)
{
        free(order->measured);
        free(order->predicted);
        free(order->work);
}

static void add(struct order *order, const struct measured_run *run, bool batch)
{
        order->measured[order->count] = cost(run, batch, true);
        order->predicted[order->count++] = cost(run, batch, false);
}

static double correlation(const struct order *order)
{
        return gsl_stats_spearman(order->measured, 1, order->predicted, 1, (size_t)order->count, order->work);
}

/* Collects the rivals of `run`; returns false if it is not the first of them, or there are not more than
 * BEST. */
static bool collect(const struct measured *m, const struct measured_run *run, bool batch, struct order *order)
{
        order->count = 0;
        for (int i = 0; measured_predicted(run) && i < m->count; i++) {
                const struct measured_run *other = &m->runs[i];
                if (!measured_predicted(other) || !rivals(run, other, batch))
                        continue;
                if (other < run)
                        return false;
                add(order, other, batch);
        }
        return order->count > BEST;
}

/* The place (from 1) that the fastest has in the prediction. */
static int place_of_fastest(const struct order *order)
{
        int fastest = 0, place = 1;
        for (int i = 1; i < order->count; i++)
                if (order->measured[i] < order->measured[fastest])
                        fastest = i;
        for (int i = 0; i < order->count; i++)
                place += order->predicted[i] < order->predicted[fastest];
        return place;
}

static void print_group(const struct measured_run *run, const struct order *order, FILE *out)
{
        fprintf(out,
                "order      %s on %lld GPUs, batch %lld: %d plans, the truly fastest is predicted at place "
                "%d, rank correlation %.2f\n",
                run->candidate.options.gpt.name, (long long)run->row->gpus, (long long)run->row->batch,
                order->count, place_of_fastest(order), correlation(order));
}

static void print_places(const struct measured *m, bool batch, bool each, struct order *order, FILE *out)
{
        int groups = 0, first = 0, found = 0;
        double sum = 0, least = 1;
        for (int i = 0; i < m->count; i++) {
                if (!collect(m, &m->runs[i], batch, order))
                        continue;
                const int place = place_of_fastest(order);
                const double order_met = correlation(order);
                groups++;
                first += place == 1;
                found += place <= BEST;
                sum += order_met;
                least = fmin(least, order_met);
                if (each)
                        print_group(&m->runs[i], order, out);
        }
        if (groups)
                fprintf(out,
                        "best plan  of %d groups of more than %d plans with equal GPUs%s, the truly "
                        "fastest%s is predicted "
                        "first in %d and among the best %d in %d; rank correlation (Spearman) %.3f in the "
                        "mean, %.3f at "
                        "least\n",
                        groups, BEST, batch ? ", model and batch" : " and model",
                        batch ? "" : " (seconds a sequence)", first, BEST, found, sum / groups, least);
}

/* ---- all runs of a framework ---- */

/* What a GPU needs for a token, in seconds: of all models and numbers of GPUs. */
static void print_framework(const struct measured *m, int index, struct order *order, FILE *out)
{
        const char *framework = m->runs[index].row->framework;
        order->count = 0;
        for (int i = 0; i < m->count; i++) {
                const struct table_row *row = m->runs[i].row;
                if (!measured_predicted(&m->runs[i]) || strcmp(row->framework, framework) != 0)
                        continue;
                if (i < index)
                        return;
                add(order, &m->runs[i], false);
                const double share = row->unit == TABLE_TOKENS_PER_SECOND_PER_GPU
                                             ? 1
                                             : (double)row->gpus / (double)row->seq /
                                                       (row->unit == TABLE_MILLISECONDS ? 1e3 : 1);
                order->measured[order->count - 1] *= share;
                order->predicted[order->count - 1] *= share;
        }
        if (order->count > BEST)
                fprintf(out,
                        "order      of all %d runs by %s, by tokens a second of a GPU: rank correlation "
                        "%.3f\n",
                        order->count, framework, correlation(order));
}

void ranks_print(const struct measured *m, bool groups, FILE *out)
{
        struct order order;
        if (order_open(&order, m->count)) {
                print_places(m, true, groups, &order, out);
                print_places(m, false, false, &order, out);
                for (int i = 0; i < m->count; i++)
                        if (measured_predicted(&m->runs[i]) && m->runs[i].row->framework[0])
                                print_framework(m, i, &order, out);
        }
        order_close(&order);
}
