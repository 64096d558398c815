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

static bool is_report(const char *path)
{
        const char *suffix = strrchr(path, '.');
        return suffix && strcmp(suffix, ".json") == 0;
}

/* The loss before training, as step 0, from the report of the training; none if it did not validate. */
static int copy_first_validation(const char *path, FILE *data, struct rv_error_info *err)
{
        json_t *report = file_read_json(path, err);
        if (!report)
                return RV_EINPUT;
        const json_t *loss = json_object_get(report, "first_validation_loss");
        int rc = 0;
        if (!loss)
                rc = rv_fail(err, RV_EINPUT,
                             "%s: has no \"first_validation_loss\": the report of ranvier train was expected",
                             path);
        else if (json_is_number(loss))
                fprintf(data, "0 nan %.9g\n", json_number_value(loss));
        json_decref(report);
        return rc;
}

/* `report` may be NULL. */
static int add_series(struct figure *figure, const char *path, const char *report, int number,
                      struct rv_error_info *err)
{
        FILE *csv = fopen(path, "r");
        if (!csv)
                return rv_fail(err, RV_EINPUT, "%s: cannot be read: %s", path, strerror(errno));
        int rc = report ? copy_first_validation(report, figure->data, err) : 0;
        if (rc == 0)
                rc = copy_losses(path, csv, figure->data, err);
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
        int series = 0;
        if (is_report(paths[0]))
                rc = rv_fail(err, RV_EINPUT,
                             "%s: a report follows the CSV file of its training; none is before it",
                             paths[0]);
        for (int i = 0, next; i < count && rc == 0; i = next) {
                next = i + 1 < count && is_report(paths[i + 1]) ? i + 2 : i + 1;
                rc = add_series(&figure, paths[i], next == i + 2 ? paths[i + 1] : NULL, ++series, err);
        }
        if (rc) {
                figure_abandon(&figure);
                return rc;
        }
        figure_number(&figure, "series", series);
        return figure_draw(&figure, err);
}
