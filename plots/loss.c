#include "plots/figure.h"
#include "plots/figures.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char header[] = "step,train_loss,val_loss,lr,tokens_per_second,batch_seconds";

/* One number of a CSV line, up to the next comma; `*at` moves behind it. NAN if empty and that is allowed. */
static int take_number(const char *path, int line, const char *name, bool may_be_empty, char **at,
                       double *value, struct rv_error_info *err)
{
        size_t length = strcspn(*at, ",\r\n");
        char *end = *at;
        *value = NAN;
        if (length)
                *value = strtod(*at, &end);
        if (end != *at + length || (length ? !isfinite(*value) : !may_be_empty))
                return rv_fail(err, RV_EINPUT, "%s:%d: %s is '%.*s', a number was expected", path, line, name,
                               (int)length, *at);
        *at += length + ((*at)[length] == ',');
        return 0;
}

static int count_columns(const char *line)
{
        int columns = 1;
        for (const char *at = line; (at = strchr(at, ',')); at++)
                columns++;
        return columns;
}

/* Copies step and losses to the figure, as "step train val" with NaN where there is none. */
static int copy_losses(const char *path, FILE *csv, FILE *data, struct rv_error_info *err)
{
        char line[512];
        int number = 1, rows = 0;
        if (!fgets(line, sizeof line, csv) || strncmp(line, header, sizeof header - 1) != 0)
                return rv_fail(err, RV_EINPUT, "%s:1: the columns of ranvier train's CSV were expected: %s",
                               path, header);
        const int columns = count_columns(line);
        while (fgets(line, sizeof line, csv)) {
                char *at = line;
                double step, train, validation;
                number++;
                if (count_columns(line) != columns)
                        return rv_fail(err, RV_EINPUT,
                                       "%s:%d: has %d of the %d columns (is the file cut short?)", path,
                                       number, count_columns(line), columns);
                int rc = take_number(path, number, "step", false, &at, &step, err);
                if (rc == 0)
                        rc = take_number(path, number, "train_loss", true, &at, &train, err);
                if (rc == 0)
                        rc = take_number(path, number, "val_loss", true, &at, &validation, err);
                if (rc)
                        return rc;
                fprintf(data, "%.9g %.9g %.9g\n", step, train, validation);
                rows += !isnan(train); /* a skipped step's may be lost */
        }
        fprintf(data, "\n\n");
        if (rows == 0)
                return rv_fail(err, RV_EINPUT, "%s: has no steps", path);
        return 0;
}

static int add_series(struct figure *figure, const char *path, int number, struct rv_error_info *err)
{
        FILE *csv = fopen(path, "r");
        if (!csv)
                return rv_fail(err, RV_EINPUT, "%s: cannot be read: %s", path, strerror(errno));
        int rc = copy_losses(path, csv, figure->data, err);
        fclose(csv);
        const char *slash = strrchr(path, '/');
        char variable[32], name[128];
        snprintf(variable, sizeof variable, "series_%d", number);
        snprintf(name, sizeof name, "%s", slash ? slash + 1 : path);
        char *suffix = strrchr(name, '.');
        if (suffix && suffix != name)
                *suffix = 0;
        figure_text(figure, variable, name);
        return rc;
}

int figures_loss(const char *out, char *const *paths, int count, struct rv_error_info *err)
{
        struct figure figure;
        int rc = figure_open(&figure, "loss", out, err);
        if (rc)
                return rc;
        for (int i = 0; i < count && rc == 0; i++)
                rc = add_series(&figure, paths[i], i + 1, err);
        if (rc) {
                figure_abandon(&figure);
                return rc;
        }
        figure_number(&figure, "series", count);
        return figure_draw(&figure, err);
}
