#include "plots/figure.h"
#include "plots/figures.h"
#include "plots/sweep.h"

#include <math.h>

/* The frame goes down to this share of the slowest best plan; what is slower still is counted, not drawn. */
static const double drawn_from = 0.4;

/* Axes are logarithmic, so that a gain is as high at few GPUs as at many; so how close two numbers of GPUs
 * are is their ratio. The smallest distance of two neighbours as a share of the axis, 1 if there is one
 * number only. */
static double closest_neighbours(const struct sweep *sweep)
{
        double min = 1;
        const struct sweep_pair *p = sweep->pairs;
        for (int i = 1; i < sweep->pair_count; i++)
                min = fmin(min, log((double)p[i].gpus / p[i - 1].gpus) /
                                        log((double)p[sweep->pair_count - 1].gpus / p[0].gpus));
        return min;
}

/* GPUs, tokens a second, percent of peak, 1 if above the other of the pair, plan. Returns whether any plan's
 * text has two lines. */
static bool write_best(const struct sweep *sweep, int offload, double unit, FILE *data)
{
        bool any = false;
        for (int i = 0; i < sweep->pair_count; i++) {
                const struct sweep_pair *pair = &sweep->pairs[i];
                const struct sweep_plan *plan = pair->best[offload], *other = pair->best[!offload];
                char text[SWEEP_TEXT];
                if (!plan) {
                        fprintf(data, "%d nan nan 1 \"\"\n", pair->gpus);
                        continue;
                }
                bool above = !other || plan->tokens_per_second > other->tokens_per_second ||
                             (plan->tokens_per_second == other->tokens_per_second && offload);
                any |= sweep_plan_text(text, sweep, plan);
                fprintf(data, "%d %.9g %.9g %d \"%s\"\n", pair->gpus, plan->tokens_per_second / unit,
                        plan->percent_of_peak, above, text);
        }
        fprintf(data, "\n\n");
        return any;
}

/* GPUs, tokens a second, 1 with offloading. Returns how many are below `least` and so not drawn. */
static int write_others(const struct sweep *sweep, double min, double unit, int *drawn, FILE *data)
{
        int below = 0;
        *drawn = 0;
        for (int i = 0; i < sweep->count; i++) {
                const struct sweep_plan *plan = &sweep->plans[i];
                if (plan->best)
                        continue;
                if (plan->tokens_per_second < min) {
                        below++;
                        continue;
                }
                fprintf(data, "%d %.9g %d\n", plan->gpus, plan->tokens_per_second / unit, plan->offload);
                ++*drawn;
        }
        return below;
}

/* GPUs, tokens a second of the faster, the gain. */
static int write_gains(const struct sweep *sweep, double unit, FILE *data)
{
        int gains = 0;
        fprintf(data, "nan nan \"\"\n"); /* gnuplot does not count a block without lines */
        for (int i = 0; i < sweep->pair_count; i++) {
                const struct sweep_pair *pair = &sweep->pairs[i];
                double gain = sweep_gain_percent(pair);
                if (isnan(gain))
                        continue;
                fprintf(data, "%d %.9g \"%+.1f %%\"\n", pair->gpus,
                        fmax(pair->best[0]->tokens_per_second, pair->best[1]->tokens_per_second) / unit,
                        gain);
                gains++;
        }
        fprintf(data, "\n\n");
        return gains;
}

static void draw_columns(struct figure *figure, const struct sweep *sweep)
{
        double min = INFINITY, max = 0;
        bool peak_known = false;
        for (int i = 0; i < sweep->count; i++) {
                const struct sweep_plan *plan = &sweep->plans[i];
                if (!plan->best)
                        continue;
                min = fmin(min, plan->tokens_per_second);
                max = fmax(max, plan->tokens_per_second);
                peak_known |= !isnan(plan->percent_of_peak);
        }
        double unit = figure_tokens_unit(figure, max), closest = closest_neighbours(sweep);
        int others;
        bool two_lines = write_best(sweep, 0, unit, figure->data);
        two_lines |= write_best(sweep, 1, unit, figure->data);
        figure_number(figure, "two_lines", two_lines);
        figure_number(figure, "gains", write_gains(sweep, unit, figure->data) > 0);
        int below = write_others(sweep, drawn_from * min, unit, &others, figure->data);
        char title[64] = "other plans simulated";
        if (below)
                snprintf(title, sizeof title, "other plans simulated (%d slower, below the frame)", below);
        figure_text(figure, "others_title", title);
        figure_number(figure, "others", others > 0);
        figure_number(figure, "without", sweep->has[0]);
        figure_number(figure, "with", sweep->has[1]);
        figure_number(figure, "peak_known", peak_known);
        sweep_name_numbers(figure, sweep);
        figure_number(figure, "fewest", sweep->pairs[0].gpus);
        figure_number(figure, "most", sweep->pairs[sweep->pair_count - 1].gpus);
        figure_number(figure, "bottom", (others || below ? drawn_from : 0.7) * min / unit);
        figure_number(figure, "top", max / unit);
        figure_number(figure, "gains_fit", closest > 0.03);
        figure_number(figure, "plans_fit", closest > 0.118);
}

int figures_sweep_throughput(const char *out, const char *path, struct rv_error_info *err)
{
        struct sweep sweep;
        struct figure figure;
        int rc = sweep_read(&sweep, path, err);
        if (rc)
                return rc;
        rc = figure_open(&figure, "sweep-throughput", out, err);
        if (rc == 0) {
                sweep_name_source(&figure, path);
                sweep_describe(&figure, &sweep);
                sweep_explain_plans(&figure, &sweep);
                draw_columns(&figure, &sweep);
                rc = figure_draw(&figure, err);
        }
        sweep_free(&sweep);
        return rc;
}
