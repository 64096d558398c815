/* The forms in which a report is written: one row a form. */
#include "runtime/base/file.h"
#include "runtime/report/report.h"

#include <string.h>

static int write_json(const struct report *r, const char *path, struct rv_error_info *err)
{
        json_t *json = report_json(r);
        const int rc = json ? file_write_json(path, json, err)
                            : rv_fail(err, RV_ESYSTEM, "no memory for the report");
        json_decref(json);
        return rc;
}

/* By how a file's name ends; the last row is of all others. */
static const struct {
        const char *suffix;
        int (*write)(const struct report *, const char *path, struct rv_error_info *err);
} formats[] = {
        {".md", report_markdown},
        {"", write_json},
};

static bool ends_in(const char *path, const char *suffix)
{
        const size_t length = strlen(path), end = strlen(suffix);
        return length >= end && strcmp(path + length - end, suffix) == 0;
}

int report_print_json(const struct report *r, struct rv_error_info *err)
{
        json_t *json = report_json(r);
        const int rc =
                json ? file_print_json(json, err) : rv_fail(err, RV_ESYSTEM, "no memory for the report");
        json_decref(json);
        return rc;
}

int report_write(const struct report *r, const char *path, struct rv_error_info *err)
{
        int format = 0;
        while (!ends_in(path, formats[format].suffix))
                format++;
        return formats[format].write(r, path, err);
}
