#include "plots/run.h"

#include "runtime/base/file.h"
#include "runtime/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const json_t *need_object(const struct run *run, const json_t *object, const char *key,
                                 struct rv_error_info *err)
{
        const json_t *member = json_object_get(object, key);
        if (json_is_object(member))
                return member;
        rv_fail(err, RV_EINPUT, "%s:%d: a report needs the object \"%s\", which is not there", run->path,
                file_line_of(run->path, key), key);
        return NULL;
}

static const char *need_text(const struct run *run, const json_t *object, const char *key,
                             struct rv_error_info *err)
{
        const char *text = json_string_value(json_object_get(object, key));
        if (!text)
                rv_fail(err, RV_EINPUT, "%s:%d: a report needs the text \"%s\", which is not there",
                        run->path, file_line_of(run->path, key), key);
        return text;
}

static int need_count(const struct run *run, const json_t *object, const char *key, int *count,
                      struct rv_error_info *err)
{
        int64_t number = 0;
        const int rc = file_need_int(run->path, object, key, 1, 1 << 30, &number, err);
        *count = (int)number;
        return rc;
}

static int read_plan(struct run *run, struct rv_error_info *err)
{
        const json_t *plan = need_object(run, run->document, "plan", err);
        if (!plan)
                return RV_EINPUT;
        int rc = need_count(run, plan, "micro_batch_size", &run->micro_batch_size, err);
        if (rc == 0)
                rc = need_count(run, plan, "seq_len", &run->seq_len, err);
        for (int axis = 0; rc == 0 && axis < GRID_AXES; axis++)
                rc = need_count(run, plan, grid_axes[axis].size, &run->sizes[axis], err);
        if (rc)
                return rc;
        run->context_ranks = 1;
        if (json_object_get(plan, "cp"))
                rc = need_count(run, plan, "cp", &run->context_ranks, err);
        if (rc)
                return rc;
        run->schedule = need_text(run, plan, "schedule", err);
        if (!run->schedule)
                return RV_EINPUT;
        plan_text_schedule(run->how, plan);
        plan_text_memory(run->saving, plan);
        return file_need_int(run->path, plan, "batch_size", 1, INT64_C(1) << 40, &run->batch_size, err);
}

enum { MAX_BYTES_LOG2 = 60 };

/* Categories that reports of version 0.1.0 did not have yet, and a framework's, may be missing, and are then
 * 0.
 */
static int read_categories(struct run *run, const json_t *categories, enum memory_space space,
                           struct rv_error_info *err)
{
        for (int c = 0; c < MEMORY_CATEGORIES; c++) {
                const char *name = memory_category_name((enum memory_category)c);
                if ((c == MEMORY_MASTER || c == MEMORY_BUCKETS || c == MEMORY_FRAMEWORK) &&
                    !json_object_get(categories, name))
                        continue;
                int rc = file_need_int(run->path, categories, name, 0, INT64_C(1) << MAX_BYTES_LOG2,
                                       &run->bytes.in[space][c], err);
                if (rc)
                        return rc;
        }
        return 0;
}

/* So may host memory, and what a device has. */
static int read_memory(struct run *run, struct rv_error_info *err)
{
        const json_t *memory = need_object(run, run->document, "memory", err);
        const json_t *device = memory ? need_object(run, memory, "by_category", err) : NULL;
        if (!device)
                return RV_EINPUT;
        int rc = read_categories(run, device, MEMORY_DEVICE, err);
        const json_t *known = json_object_get(memory, "host_by_category");
        if (rc == 0 && known && !json_is_null(known)) {
                const json_t *host = need_object(run, memory, "host_by_category", err);
                rc = host ? read_categories(run, host, MEMORY_HOST, err) : RV_EINPUT;
        }
        const json_t *capacity = json_object_get(run->document, "capacity");
        if (rc == 0 && capacity)
                rc = file_need_int(run->path, capacity, "device_bytes", 0, INT64_C(1) << MAX_BYTES_LOG2,
                                   &run->device_capacity_bytes, err);
        return rc;
}

static int read_run(struct run *run, const char *path, struct rv_error_info *err)
{
        run->path = path;
        run->document = file_read_json(path, err);
        if (!run->document)
                return RV_EINPUT;
        if (!json_object_get(run->document, "ranvier"))
                return rv_fail(
                        err, RV_EINPUT,
                        "%s: has no \"ranvier\" member: a report of ranvier train or simulate was expected",
                        path);
        const char *world = need_text(run, run->document, "world", err);
        if (!world)
                return RV_EINPUT;
        run->simulated = strcmp(world, "simulated") == 0;
        if (!run->simulated && strcmp(world, "real") != 0)
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: world is \"%s\", \"real\" or \"simulated\" was expected", path,
                               file_line_of(path, "world"), world);
        const json_t *model = need_object(run, run->document, "model", err);
        int rc = model ? gpt_from_json(&run->gpt, path, model, err) : RV_EINPUT;
        if (rc == 0)
                rc = read_plan(run, err);
        if (rc == 0)
                rc = figures_read(&run->figures, path, run->document, err);
        return rc ? rc : read_memory(run, err);
}

struct run *runs_read(char *const *paths, int count, struct rv_error_info *err)
{
        struct run *runs = calloc((size_t)count, sizeof *runs);
        if (!runs) {
                rv_fail(err, RV_ESYSTEM, "out of memory for %d reports", count);
                return NULL;
        }
        for (int i = 0; i < count; i++)
                if (read_run(&runs[i], paths[i], err)) {
                        runs_free(runs, count);
                        return NULL;
                }
        return runs;
}

void runs_free(struct run *runs, int count)
{
        for (int i = 0; runs && i < count; i++)
                json_decref(runs[i].document);
        free(runs);
}

static int check_same(const struct run *p, const struct run *m, const char *room, struct rv_error_info *err)
{
        const json_t *a = json_object_get(p->document, room), *b = json_object_get(m->document, room);
        const char *key = report_first_difference(a, b);
        if (!key)
                return 0;
        const unsigned flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(9);
        char *mine = json_dumps(json_object_get(a, key), flags),
             *theirs = json_dumps(json_object_get(b, key), flags);
        int rc = rv_fail(err, RV_EINPUT, "%s and %s are not of the same %s: %s is %s and %s", p->path,
                         m->path, room, key, mine ? mine : "not there", theirs ? theirs : "not there");
        free(mine);
        free(theirs);
        return rc;
}

/* A rank of one thread takes about twice as long as one of two; a GPU's does not. */
static int check_threads(const struct run *p, const struct run *m, struct rv_error_info *err)
{
        const json_t *device = json_object_get(m->document, "device");
        const char *kind = json_string_value(json_object_get(device, "kind"));
        const json_t *predicted = json_object_get(json_object_get(p->document, "profile"), "threads");
        const json_t *measured = json_object_get(json_object_get(m->document, "training"), "threads");
        if (!kind || strcmp(kind, "cpu") != 0 || !json_is_integer(predicted) || !json_is_integer(measured) ||
            json_equal(predicted, measured))
                return 0;
        return rv_fail(err, RV_EINPUT,
                       "%s was made with %lld threads a rank, %s with %lld: calibrate and train "
                       "with the same --threads",
                       p->path, json_integer_value(predicted), m->path, json_integer_value(measured));
}

int runs_check_pair(const struct run *predicted, const struct run *measured, struct rv_error_info *err)
{
        if (!predicted->simulated && measured->simulated)
                return rv_fail(
                        err, RV_EINPUT,
                        "%s is measured and %s predicted: the prediction comes first, then the measurement",
                        predicted->path, measured->path);
        if (!predicted->simulated)
                return rv_fail(err, RV_EINPUT,
                               "%s is measured, a prediction (ranvier simulate --report) was expected",
                               predicted->path);
        if (measured->simulated)
                return rv_fail(err, RV_EINPUT,
                               "%s is predicted, a measurement (ranvier train --report) was expected",
                               measured->path);
        int rc = check_same(predicted, measured, "model", err);
        if (rc == 0)
                rc = check_same(predicted, measured, "plan", err);
        return rc ? rc : check_threads(predicted, measured, err);
}

double runs_error_percent(double predicted, double measured)
{
        return 100 * (predicted / measured - 1);
}
