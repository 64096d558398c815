#include "runtime/report/figures.h"

#include "runtime/base/file.h"
#include "runtime/base/number.h"

#define REAL(member)  .type = FIGURE_REAL, .offset = offsetof(struct figures, member)
#define WHOLE(member) .type = FIGURE_WHOLE, .offset = offsetof(struct figures, member)

/* clang-format off */
const struct figure_row figure_rows[] = {
        {"batch_seconds", "median", "time per batch", FIGURE_SECONDS, REAL(median), .needed = true, .min = 1e-12},
        {"batch_seconds", "p10", "10th percentile", FIGURE_SECONDS, REAL(p10), .needed = true, .min = 1e-12},
        {"batch_seconds", "p90", "90th percentile", FIGURE_SECONDS, REAL(p90), .needed = true, .min = 1e-12},
        {"batch_seconds", "low", "nine in ten, from", FIGURE_SECONDS, REAL(low), .known = FIGURE_OR_ABSENT},
        {"batch_seconds", "high", "to", FIGURE_SECONDS, REAL(high), .known = FIGURE_OR_ABSENT},
        {"batch_seconds", "batches", "batches", FIGURE_COUNT, WHOLE(batches)},
        {NULL, "tokens_per_second", "tokens per second", FIGURE_COUNT, REAL(tokens_per_second), .needed = true,
         .min = 1e-12},
        {NULL, "flops_per_gpu_per_second", "flops per device", FIGURE_FLOPS, REAL(flops_per_gpu_per_second)},
        {NULL, "percent_of_peak", "of peak", FIGURE_PERCENT, REAL(percent_of_peak), .known = FIGURE_OR_NULL},
        {NULL, "training_days", "training days", FIGURE_DAYS, REAL(training_days)},
        {NULL, "training_tokens", "training tokens", FIGURE_COUNT, WHOLE(training_tokens)},
        {"phases", "pipeline_seconds", "pipeline", FIGURE_SECONDS, REAL(pipeline_seconds), .needed = true},
        {"phases", "allreduce_seconds", "all-reduce", FIGURE_SECONDS, REAL(allreduce_seconds), .needed = true},
        {"phases", "optimizer_seconds", "optimizer", FIGURE_SECONDS, REAL(optimizer_seconds), .needed = true},
        {"phases", "busiest_seconds", NULL, FIGURE_SECONDS, REAL(busiest_seconds)},
        {"phases", "tensor_seconds", "shards together", FIGURE_SECONDS, REAL(tensor_seconds)},
        {"phases", "bubble_fraction", "bubble", FIGURE_FRACTION, REAL(bubble_fraction), .needed = true, .min = -1},
        {"memory", "device_peak_bytes", "device memory", FIGURE_BYTES, WHOLE(device_peak_bytes), .needed = true},
        {"memory", "device_total_bytes", "all devices", FIGURE_BYTES, WHOLE(device_total_bytes), .needed = true},
        {"memory", "largest_rank", NULL, FIGURE_COUNT, WHOLE(largest_rank)},
        {"memory", "live_peak_bytes", "in use at once", FIGURE_BYTES, WHOLE(live_peak_bytes), .known = FIGURE_OR_NULL},
        {"memory", "host_peak_bytes", "host memory of a process", FIGURE_BYTES, WHOLE(host_peak_bytes),
         .known = FIGURE_OR_NULL},
        {"memory", "host_offloaded_bytes", "host buffers", FIGURE_BYTES, WHOLE(host_offloaded_bytes)},
};
/* clang-format on */
const int figure_count = sizeof figure_rows / sizeof *figure_rows;

double figures_value(const struct figure_row *row, const struct figures *f)
{
        const void *member = (const char *)f + row->offset;
        return row->type == FIGURE_REAL ? *(const double *)member : (double)*(const int64_t *)member;
}

char *figures_text(const struct figure_row *row, double value, char *text)
{
        switch (row->unit) {
        case FIGURE_SECONDS:
                return number_seconds(text, value);
        case FIGURE_BYTES:
                return number_bytes(text, value);
        case FIGURE_COUNT:
                return number_count(text, value);
        case FIGURE_FLOPS:
                return number_flops(text, value);
        case FIGURE_DAYS:
                snprintf(text, NUMBER_TEXT, "%.1f", value);
                return text;
        default:
                snprintf(text, NUMBER_TEXT, "%.1f %%", row->unit == FIGURE_PERCENT ? value : 100 * value);
                return text;
        }
}

void figures_write(const struct figures *f, json_t *report)
{
        for (int i = 0; i < figure_count; i++) {
                const struct figure_row *row = &figure_rows[i];
                const double value = figures_value(row, f);
                json_t *room = row->room ? json_object_get(report, row->room) : report;
                if (!room && json_object_set_new(report, row->room, json_object()) == 0)
                        room = json_object_get(report, row->room);
                if (value == 0 && row->known == FIGURE_OR_ABSENT)
                        continue;
                const bool unknown = value == 0 && row->known == FIGURE_OR_NULL;
                json_object_set_new(room, row->key,
                                    unknown                     ? json_null()
                                    : row->type == FIGURE_WHOLE ? json_integer((json_int_t)value)
                                                                : json_real(value));
        }
}

/* What older reports do not have, and what is not known, is 0. */
static int read_row(struct figures *f, const struct figure_row *row, const char *path, const json_t *room,
                    struct rv_error_info *err)
{
        const json_t *value = json_object_get(room, row->key);
        void *member = (char *)f + row->offset;
        if (!row->needed && !json_is_number(value))
                return RV_OK;
        if (row->type == FIGURE_WHOLE)
                return file_need_int(path, room, row->key, (int64_t)row->min, INT64_C(1) << 60, member, err);
        return file_need_real(path, room, row->key, row->min, 1e18, member, err);
}

/* One that has an end has both, around the median. */
static int read_interval(struct figures *f, const char *path, const json_t *batch, struct rv_error_info *err)
{
        if (!json_object_get(batch, "low") && !json_object_get(batch, "high"))
                return RV_OK;
        const int rc = file_need_real(path, batch, "low", 1e-12, f->median, &f->low, err);
        return rc != RV_OK ? rc : file_need_real(path, batch, "high", f->median, 1e18, &f->high, err);
}

int figures_read(struct figures *f, const char *path, const json_t *report, struct rv_error_info *err)
{
        *f = (struct figures){0};
        for (int i = 0; i < figure_count; i++) {
                const struct figure_row *row = &figure_rows[i];
                const json_t *room = row->room ? json_object_get(report, row->room) : report;
                if (!json_is_object(room))
                        return rv_fail(err, RV_EINPUT,
                                       "%s:%d: a report needs the object \"%s\", which is not there", path,
                                       file_line_of(path, row->room), row->room);
                const int rc = read_row(f, row, path, room, err);
                if (rc != RV_OK)
                        return rc;
        }
        return read_interval(f, path, json_object_get(report, "batch_seconds"), err);
}
