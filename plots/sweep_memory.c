#include "plots/figure.h"
#include "plots/figures.h"
#include "plots/sweep.h"

#include "runtime/base/number.h"

#include <math.h>

enum { TEXTS_UP_TO = 8 }; /* numbers of GPUs; with more, bars are too narrow for all texts */

/* Place (from 1), bytes of the largest GPU, their text, those of all GPUs, plan. Returns whether any plan's
 * text has two lines. Without `texts_fit` the text is a bare number, in the unit of the axis. */
static bool write_bars(const struct sweep *sweep, bool offload, bool texts_fit, double unit, FILE *data)
{
        bool two_lines = false;
        for (int i = 0; i < sweep->pair_count; i++) {
                const struct sweep_plan *plan = sweep->pairs[i].best[offload];
                char each[NUMBER_TEXT], all[NUMBER_TEXT], text[SWEEP_TEXT];
                if (!plan) {
                        fprintf(data, "%d 0 \"%s\" \"\" \"\"\n", i + 1, texts_fit ? "no plan" : "–");
                        continue;
                }
                double bytes = (double)plan->device_peak_bytes;
                if (texts_fit)
                        number_bytes(each, bytes);
                else
                        snprintf(each, sizeof each, "%.1f", bytes / unit);
                two_lines |= sweep_plan_text(text, sweep, plan);
                fprintf(data, "%d %.9g \"%s\" \"%s in all\" \"%s\"\n", i + 1, bytes / unit, each,
                        number_bytes(all, (double)plan->device_total_bytes), text);
        }
        fprintf(data, "\n\n");
        return two_lines;
}

/* Place, and what a GPU has of memory in `unit`, where that is known and not far beyond the bars. Returns the
 * most. */
static double write_limits(const struct sweep *sweep, int64_t longest, double unit, FILE *data)
{
        int64_t most = 0;
        fprintf(data, "nan nan\n"); /* gnuplot does not count a block without lines */
        for (int i = 0; i < sweep->pair_count; i++) {
                const struct sweep_pair *pair = &sweep->pairs[i];
                const int64_t limit = pair->best[pair->best[0] ? 0 : 1]->device_memory_bytes;
                if (limit == 0 || limit > 3 * longest)
                        continue;
                fprintf(data, "%d %.9g\n", i + 1, (double)limit / unit);
                most = limit > most ? limit : most;
        }
        fprintf(data, "\n\n");
        return (double)most / unit;
}

int figures_sweep_memory(const char *out, const char *path, struct rv_error_info *err)
{
        struct sweep sweep;
        struct figure figure;
        int rc = sweep_read(&sweep, path, err);
        if (rc)
                return rc;
        rc = figure_open(&figure, "sweep-memory", out, err);
        if (rc == 0) {
                bool texts_fit = sweep.pair_count <= TEXTS_UP_TO;
                int64_t max = 1;
                for (int i = 0; i < sweep.count; i++)
                        if (sweep.plans[i].best && sweep.plans[i].device_peak_bytes > max)
                                max = sweep.plans[i].device_peak_bytes;
                double unit = figure_bytes_unit(&figure, max);
                bool two_lines = write_bars(&sweep, false, texts_fit, unit, figure.data);
                two_lines |= write_bars(&sweep, true, texts_fit, unit, figure.data);
                figure_number(&figure, "two_lines", two_lines);
                const double limit = write_limits(&sweep, max, unit, figure.data);
                sweep_name_source(&figure, path);
                sweep_describe(&figure, &sweep);
                sweep_explain_plans(&figure, &sweep);
                figure_number(&figure, "without", sweep.has[0]);
                figure_number(&figure, "with", sweep.has[1]);
                sweep_name_numbers(&figure, &sweep);
                figure_number(&figure, "texts_fit", texts_fit);
                figure_number(&figure, "limits", limit > 0);
                figure_number(&figure, "most", fmax((double)max / unit, limit));
                rc = figure_draw(&figure, err);
        }
        sweep_free(&sweep);
        return rc;
}
