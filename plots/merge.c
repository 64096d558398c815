#include "plots/profiled.h"

#include "runtime/base/file.h"
#include "runtime/engine/trace.h"
#include "runtime/kineto/kineto.h"

#include <string.h>

/* The timeline's ranks are processes whose numbers no process and no GPU of the trace has; and where viewers
 * put them: above all others. */
enum { FIRST_PROCESS = 1 << 23, ABOVE = -(1 << 23) };
_Static_assert(FIRST_PROCESS + TRACE_MAX_RANKS <= TRACE_FIRST_THREAD,
               "no thread has the number of a process");

struct merging {
        FILE *out;
        double later; /* microseconds that are added to the times of a file */
        bool any;     /* an event was written */
};

static void write_event(struct merging *m, json_t *event)
{
        const json_t *at = json_object_get(event, "ts");
        if (json_is_number(at))
                json_object_set_new(event, "ts", json_real(json_number_value(at) + m->later));
        fputs(m->any ? ",\n" : "", m->out);
        json_dumpf(event, m->out, JSON_COMPACT | JSON_REAL_PRECISION(15));
        m->any = true;
}

/* The name of a rank: "predicted rank 0 (stage 0)". */
static void rename_process(json_t *event)
{
        json_t *arguments = json_object_get(event, "args");
        const char *kind = json_string_value(json_object_get(event, "name"));
        const char *name = json_string_value(json_object_get(arguments, "name"));
        if (kind && name && strcmp(kind, "process_name") == 0)
                json_object_set_new(arguments, "name", json_sprintf("predicted %s", name));
        const json_t *place = json_object_get(arguments, "sort_index");
        if (kind && place && strcmp(kind, "process_sort_index") == 0)
                json_object_set_new(arguments, "sort_index", json_integer(json_integer_value(place) + ABOVE));
}

static int take_predicted(void *context, const json_t *event, struct rv_error_info *err)
{
        json_t *copy = json_deep_copy(event);
        if (!copy)
                return rv_fail(err, RV_ESYSTEM, "no memory for an event");
        json_object_set_new(copy, "pid",
                            json_integer(json_integer_value(json_object_get(event, "pid")) + FIRST_PROCESS));
        rename_process(copy);
        write_event(context, copy);
        json_decref(copy);
        return 0;
}

static int take_traced(void *context, const json_t *event, struct rv_error_info *err)
{
        json_t *copy = json_copy((json_t *)event);
        if (!copy)
                return rv_fail(err, RV_ESYSTEM, "no memory for an event");
        write_event(context, copy);
        json_decref(copy);
        return 0;
}

int profiled_merge(const struct profiled *p, const char *timeline, const char *trace, const char *path,
                   struct rv_error_info *err)
{
        struct file_writer writer;
        int rc = file_writer_open(&writer, path, err);
        if (rc)
                return rc;
        struct merging m = {.out = writer.stream, .later = -1e6 * p->batch_seconds};
        fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", m.out);
        rc = kineto_each(timeline, take_predicted, &m, err);
        m.later = -p->step_microseconds;
        if (rc == 0)
                rc = kineto_each(trace, take_traced, &m, err);
        if (rc) {
                file_writer_abandon(&writer);
                return rc;
        }
        fputs("\n]}\n", m.out);
        return file_writer_commit(&writer, err);
}
