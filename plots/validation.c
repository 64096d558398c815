#include "plots/validation.h"

#include "plots/figure.h"
#include "plots/figures.h"
#include "runtime/base/csv.h"
#include "runtime/base/number.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS = 64 };
enum column { FITTED, ERROR, SECONDS, LOW, MEASURED_LOW, HIGH, MEASURED_HIGH, COLUMNS };

static const char *const names[COLUMNS] = {"fitted",       "error",          "batch_seconds", "predicted_low",
                                           "measured_low", "predicted_high", "measured_high"};

static int find_columns(char *const *cells, int count, int at[COLUMNS], const char *path,
                        struct rv_error_info *err)
{
        for (int c = 0; c < COLUMNS; c++) {
                at[c] = csv_find(cells, count, names[c]);
                if (at[c] < 0)
                        return rv_fail(err, RV_EINPUT,
                                       "%s:1: the column %s is missing; is it a CSV of ranvier validate?",
                                       path, names[c]);
        }
        return 0;
}

static bool number(const char *text, double *value)
{
        char *end;
        *value = strtod(text, &end);
        return *text && !*end && isfinite(*value);
}

/* An interval is of the run's own unit, and a measured value may be given as from one to another. */
static bool take_run(struct validation_run *run, char *const *cells, const int at[COLUMNS])
{
        double low, high, measured_low, measured_high;
        if (!number(cells[at[SECONDS]], &run->seconds) || !number(cells[at[ERROR]], &run->error) ||
            run->seconds <= 0 || run->error <= -1)
                return false;
        run->fitted = strcmp(cells[at[FITTED]], "yes") == 0;
        run->known = number(cells[at[LOW]], &low) && number(cells[at[HIGH]], &high) &&
                     number(cells[at[MEASURED_LOW]], &measured_low) &&
                     number(cells[at[MEASURED_HIGH]], &measured_high);
        run->inside = run->known && measured_high >= low && measured_low <= high;
        return true;
}

static int read_runs(struct file_lines *lines, struct validation_run **runs, int *count,
                     struct rv_error_info *err)
{
        char *cells[CELLS];
        int at[COLUMNS], width = 0, rc;
        while ((rc = file_next_line(lines, err)) > 0) {
                const int found = csv_split(lines->line, cells, CELLS);
                if (!width) {
                        width = found;
                        rc = find_columns(cells, found, at, lines->path, err);
                        if (rc)
                                return rc;
                        continue;
                }
                struct validation_run *more = realloc(*runs, (size_t)(*count + 1) * sizeof *more);
                if (!more)
                        return rv_fail(err, RV_ESYSTEM, "no memory for the runs of %s", lines->path);
                *runs = more;
                if (found != width || !take_run(&more[*count], cells, at))
                        return rv_fail(
                                err, RV_EINPUT,
                                "%s:%lld: no run of ranvier validate: %d cells were expected, among them "
                                "the numbers batch_seconds and error",
                                lines->path, (long long)lines->number, width);
                ++*count;
        }
        return rc < 0 || *count > 0 ? rc
                                    : rv_fail(err, RV_EINPUT, "%s: there are no runs in it", lines->path);
}

struct validation_run *validation_read(const char *path, int *count, struct rv_error_info *err)
{
        struct file_lines lines = {.path = path, .stream = fopen(path, "rb")};
        struct validation_run *runs = NULL;
        *count = 0;
        if (!lines.stream) {
                rv_fail(err, RV_EINPUT, "%s: cannot be read: %s", path, strerror(errno));
                return NULL;
        }
        const int rc = read_runs(&lines, &runs, count, err);
        fclose(lines.stream);
        free(lines.line);
        if (rc) {
                free(runs);
                return NULL;
        }
        return runs;
}

char *validation_summary(const struct validation_run *runs, int count, char text[VALIDATION_TEXT])
{
        double sum = 0, worst = 0, *errors = calloc((size_t)count, sizeof *errors);
        int own = 0, known = 0, inside = 0;
        for (int i = 0; i < count; i++)
                own += !runs[i].fitted;
        const bool all = own == 0;
        own = 0;
        for (int i = 0; i < count; i++) {
                known += runs[i].known;
                inside += runs[i].inside;
                if (runs[i].fitted && !all)
                        continue;
                const double error = fabs(runs[i].error);
                sum += error;
                worst = fmax(worst, error);
                if (errors)
                        errors[own] = error;
                own++;
        }
        const double median = errors ? quantile(errors, own, 0.5) : NAN;
        free(errors);
        snprintf(text, VALIDATION_TEXT,
                 "%d run%s: median error %.1f %%, mean %.1f %%, worst %.1f %%, of %d that %s fitted on; %d "
                 "of %d "
                 "within their intervals",
                 count, rv_plural(count), 100 * median, 100 * sum / own, 100 * worst, own,
                 all ? "something was" : "nothing was", inside, known);
        return text;
}

int figures_validation(const char *out, const char *path, struct rv_error_info *err)
{
        static const char *const series[] = {"nothing was fitted on", "something was fitted on"};
        struct figure figure;
        char text[VALIDATION_TEXT], variable[24], label[64];
        int count, blocks = 0;
        struct validation_run *runs = validation_read(path, &count, err);
        if (!runs)
                return (int)err->code;
        int rc = figure_open(&figure, "evidence", out, err);
        for (int fitted = 0; rc == 0 && fitted < 2; fitted++) {
                int found = 0;
                for (int i = 0; i < count; i++)
                        if (runs[i].fitted == (fitted == 1)) {
                                fprintf(figure.data, "%.9g\t%.9g\n", runs[i].seconds / (1 + runs[i].error),
                                        runs[i].seconds);
                                found++;
                        }
                if (!found)
                        continue;
                fputs("\n\n", figure.data);
                snprintf(variable, sizeof variable, "series_%d", ++blocks);
                snprintf(label, sizeof label, "%s (%d)", series[fitted], found);
                figure_text(&figure, variable, label);
        }
        if (rc == 0) {
                figure_number(&figure, "series", blocks);
                snprintf(text, sizeof text, "%d runs", count);
                figure_text(&figure, "summary", text);
                rc = figure_draw(&figure, err);
        }
        free(runs);
        return rc;
}
