#include "runtime/engine/trace.h"

#include "runtime/base/file.h"
#include "runtime/base/version.h"
#include "runtime/plan/grid.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void trace_init(struct trace *trace)
{
        *trace = (struct trace){0};
}

void trace_free(struct trace *trace)
{
        free(trace->records);
        free(trace->memory);
        json_decref(trace->about);
        trace_init(trace);
}

/* Room for one more; a trace with holes would be worse than none. */
static void *grow(void *items, int64_t count, int64_t *capacity, size_t size)
{
        if (count < *capacity)
                return items;
        *capacity = *capacity ? 2 * *capacity : 256;
        items = realloc(items, (size_t)*capacity * size);
        if (!items)
                abort();
        return items;
}

void trace_add(struct trace *trace, const struct trace_record *record)
{
        trace->records = grow(trace->records, trace->count, &trace->capacity, sizeof *record);
        trace->records[trace->count++] = *record;
}

void trace_add_memory(struct trace *trace, const struct trace_memory *memory)
{
        trace->memory = grow(trace->memory, trace->memory_count, &trace->memory_capacity, sizeof *memory);
        trace->memory[trace->memory_count++] = *memory;
}

/* chrome://tracing's own colour names; Perfetto colours by the event's name. */
static const char *colour(enum op_kind kind)
{
        if (op_copies(kind))
                return kind == OP_LOAD ? "grey" : "yellow";
        switch (kind) {
        case OP_FORWARD:
                return "rail_response";
        case OP_BACKWARD:
                return "rail_animation";
        case OP_UPDATE:
        case OP_NORM:
        case OP_CHECK_OVERFLOW:
        case OP_CLEAR:
        case OP_ADD_REPLICA:
                return "good";
        case OP_TENSOR:
                return "bad";
        default:
                return "grey";
        }
}

/* The number of a lane's thread. Perfetto takes thread 0, and one that has its process's number, for the
 * process's first: two lanes would be drawn as one, and operations be lost. */
static int thread_of(enum op_lane lane)
{
        return TRACE_FIRST_THREAD + (int)lane;
}

/* Names a lane's thread, and puts it where the lane is among the lanes. */
static void name_thread(FILE *out, int rank, enum op_lane lane)
{
        const int thread = thread_of(lane);
        fprintf(out,
                "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n",
                rank, thread, op_lane_name(lane));
        fprintf(out,
                "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%d,\"tid\":%d,\"args\":{"
                "\"sort_index\":%d}},\n",
                rank, thread, (int)lane);
}

/* Names a process for every rank and a thread for every lane that has records. */
static int write_names(const struct trace *trace, FILE *out, const struct plan *layout,
                       struct rv_error_info *err)
{
        int ranks = 0;
        for (int64_t i = 0; i < trace->count; i++)
                if (trace->records[i].rank >= ranks)
                        ranks = trace->records[i].rank + 1;
        unsigned *lanes = calloc((size_t)ranks + 1, sizeof *lanes);
        if (!lanes)
                return rv_fail(err, RV_ESYSTEM, "out of memory for the names of %d ranks", ranks);
        for (int64_t i = 0; i < trace->count; i++)
                lanes[trace->records[i].rank] |= 1u << trace->records[i].lane;
        for (int rank = 0; rank < ranks; rank++) {
                char place[GRID_TEXT];
                if (!lanes[rank])
                        continue;
                fprintf(out,
                        "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank %d "
                        "(%s)\"}},\n",
                        rank, rank, grid_place(place, layout, rank));
                fprintf(out,
                        "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"args\":{\"sort_index\":%"
                        "d}},\n",
                        rank, rank);
                for (int lane = 0; lane < LANES; lane++)
                        if (lanes[rank] & 1u << lane)
                                name_thread(out, rank, (enum op_lane)lane);
        }
        free(lanes);
        return 0;
}

static const char *part_name(int parts)
{
        return parts == OP_INPUT_GRADIENT ? "input" : "weights";
}

/* Of a collective in the midst of a pass: whose it is, but of the shards of a stage that are no grid. */
static const char *const groups[] = {[GROUP_TENSOR_X] = "x",
                                     [GROUP_TENSOR_Z] = "z",
                                     [GROUP_EXPERTS] = "experts",
                                     [GROUP_CONTEXT] = "context"};

static const char *group_name(enum op_group group)
{
        return (size_t)group < sizeof groups / sizeof *groups ? groups[group] : NULL;
}

static enum op_group group_named(const char *name)
{
        for (size_t i = 0; name && i < sizeof groups / sizeof *groups; i++)
                if (groups[i] && strcmp(groups[i], name) == 0)
                        return (enum op_group)i;
        return GROUP_TENSOR;
}

static void write_record(const struct trace_record *r, FILE *out)
{
        /* Rounded before they are subtracted, so that start + duration gives back the end to the nanosecond.
         */
        int64_t start = llround(r->start * 1e9), end = llround(r->end * 1e9);
        char name[64], of[128] = "", chunk[32] = "";
        if (r->parts)
                snprintf(name, sizeof name, "%s of %s %d", op_name(r->kind), part_name(r->parts),
                         r->micro_batch);
        else if (r->chunk > 0)
                snprintf(name, sizeof name, "%s %d in chunk %d", op_name(r->kind), r->micro_batch, r->chunk);
        else if (r->micro_batch >= 0)
                snprintf(name, sizeof name, "%s %d", op_name(r->kind), r->micro_batch);
        else
                snprintf(name, sizeof name, "%s", op_name(r->kind));
        if (r->chunk > 0)
                snprintf(chunk, sizeof chunk, ",\"chunk\":%d", r->chunk);
        if (r->of != r->kind)
                snprintf(of, sizeof of, ",\"of\":\"%s\"", op_name(r->of));
        if (r->segment > 0)
                snprintf(of + strlen(of), sizeof of - strlen(of), ",\"segment\":%d", r->segment);
        if (r->range > 0)
                snprintf(of + strlen(of), sizeof of - strlen(of), ",\"range\":%d", r->range);
        if (group_name(r->group))
                snprintf(of + strlen(of), sizeof of - strlen(of), ",\"group\":\"%s\"", group_name(r->group));
        if (r->beside)
                snprintf(of + strlen(of), sizeof of - strlen(of), ",\"beside\":true");
        if (r->parts)
                snprintf(of + strlen(of), sizeof of - strlen(of), ",\"part\":\"%s\"", part_name(r->parts));
        fprintf(out,
                "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cname\":\"%"
                "s\","
                "\"args\":{\"kind\":\"%s\",\"micro_batch\":%d,\"bucket\":%d,\"bytes\":%lld,\"batch\":%d,"
                "\"issued\":%.9f,\"order\":%llu%s%s}}",
                name, r->rank, thread_of(r->lane), (double)start / 1e3, (double)(end - start) / 1e3,
                colour(r->kind), op_name(r->kind), r->micro_batch, r->bucket, (long long)r->bytes, r->batch,
                r->issued, (unsigned long long)r->order, chunk, of);
}

/* Counters: the viewers draw each as areas on top of each other. The host has one where something is
 * offloaded. */
static void write_memory(const struct trace_memory *m, bool host, FILE *out)
{
        fprintf(out,
                "{\"ph\":\"C\",\"name\":\"device bytes in use\",\"pid\":%d,\"ts\":%.3f,"
                "\"args\":{\"activations\":%lld,\"messages\":%lld}},\n",
                m->rank, m->seconds * 1e6, (long long)m->activations, (long long)m->messages);
        if (host)
                fprintf(out,
                        "{\"ph\":\"C\",\"name\":\"host bytes in use\",\"pid\":%d,\"ts\":%.3f,"
                        "\"args\":{\"activations\":%lld}},\n",
                        m->rank, m->seconds * 1e6, (long long)m->host_activations);
}

static bool any_on_host(const struct trace *trace)
{
        for (int64_t i = 0; i < trace->memory_count; i++)
                if (trace->memory[i].host_activations)
                        return true;
        return false;
}

/* One end of a message: where it is received, and the send or receive itself. The sends to a place have the
 * same order as its receives, for messages do not overtake each other. */
struct message_end {
        int batch, rank;
        enum op_lane lane;
        bool received;
        const struct trace_record *record;
};

static int by_place(const void *a, const void *b)
{
        const struct message_end *x = a, *y = b;
        const int64_t keys[][2] = {{x->batch, y->batch},
                                   {x->rank, y->rank},
                                   {x->lane, y->lane},
                                   {x->received, y->received},
                                   {(int64_t)x->record->order, (int64_t)y->record->order}};
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
                if (keys[i][0] != keys[i][1])
                        return keys[i][0] < keys[i][1] ? -1 : 1;
        return 0;
}

static bool same_place(const struct message_end *a, const struct message_end *b)
{
        return a->batch == b->batch && a->rank == b->rank && a->lane == b->lane;
}

/* Lists both ends of all messages, sorted, in memory that the caller frees; NULL without memory. */
static struct message_end *list_messages(const struct trace *trace, const struct plan *layout, int64_t *count)
{
        struct message_end *ends = malloc(((size_t)trace->count + 1) * sizeof *ends);
        *count = 0;
        for (int64_t i = 0; ends && i < trace->count; i++) {
                const struct trace_record *r = &trace->records[i];
                const bool sent = r->kind == OP_SEND_ACTIVATION || r->kind == OP_SEND_GRADIENT;
                const bool received = r->kind == OP_RECEIVE_ACTIVATION || r->kind == OP_RECEIVE_GRADIENT;
                if ((!sent && !received) || op_lane_opposite(r->lane) == LANES)
                        continue;
                ends[(*count)++] =
                        (struct message_end){.record = r,
                                             .batch = r->batch,
                                             .rank = sent ? op_lane_peer(layout, r->rank, r->lane) : r->rank,
                                             .lane = sent ? op_lane_opposite(r->lane) : r->lane,
                                             .received = received};
        }
        if (ends)
                qsort(ends, (size_t)*count, sizeof *ends, by_place);
        return ends;
}

/* One end of an arrow, "s" or "f", within the event that it belongs to: viewers find that by the moment. */
static void write_arrow_end(FILE *out, const char *end, const char *what, int64_t number,
                            const struct trace_record *r, int64_t nanoseconds)
{
        fprintf(out,
                "{\"ph\":\"%s\",\"cat\":\"message\",\"name\":\"%s\",\"id\":%lld,\"pid\":%d,\"tid\":%d,\"ts\":"
                "%.3f%s},\n",
                end, what, (long long)number, r->rank, thread_of(r->lane), (double)nanoseconds / 1e3,
                *end == 'f' ? ",\"bp\":\"e\"" : "");
}

static void write_arrow(FILE *out, int64_t number, const struct trace_record *sent,
                        const struct trace_record *received)
{
        const int64_t begin = llround(sent->start * 1e9), end = llround(received->end * 1e9);
        const char *what = sent->kind == OP_SEND_ACTIVATION ? "activation" : "gradient";
        const int64_t inside = end > llround(received->start * 1e9) ? end - 1 : end;
        if (inside <= begin)
                return;
        write_arrow_end(out, "s", what, number, sent, begin);
        write_arrow_end(out, "f", what, number, received, inside);
}

/* The arrows from sends to receives. A place where the two sides do not agree has none. */
static int write_arrows(const struct trace *trace, FILE *out, const struct plan *layout,
                        struct rv_error_info *err)
{
        int64_t count;
        struct message_end *ends = list_messages(trace, layout, &count);
        if (!ends)
                return rv_fail(err, RV_ESYSTEM, "out of memory for the messages of a trace");
        for (int64_t first = 0, next; first < count && count / 2 <= TRACE_MAX_ARROWS; first = next) {
                int64_t sent = 0, received = 0;
                for (next = first; next < count && same_place(&ends[next], &ends[first]); next++)
                        *(ends[next].received ? &received : &sent) += 1;
                bool agree = sent == received;
                for (int64_t i = first; i < first + sent && agree; i++)
                        agree = ends[i].record->micro_batch == ends[i + sent].record->micro_batch;
                for (int64_t i = first; i < first + sent && agree; i++)
                        write_arrow(out, i, ends[i].record, ends[i + sent].record);
        }
        free(ends);
        return 0;
}

static int write_header(FILE *out, const struct trace_origin *origin, struct rv_error_info *err)
{
        json_t *about = json_pack("{s:s, s:s}", "ranvier", RANVIER_VERSION, "world", origin->world);
        for (int axis = 0; axis < GRID_AXES; axis++)
                json_object_set_new(about, grid_axes[axis].size, json_integer(origin->layout->sizes[axis]));
        json_object_set_new(about, "order", json_integer(origin->layout->order));
        if (origin->model)
                json_object_set_new(about, "model", json_string(origin->model));
        if (origin->machine)
                json_object_set_new(about, "machine", json_string(origin->machine));
        if (origin->plan)
                json_object_set(about, "plan", origin->plan);
        if (origin->kernels)
                json_object_set(about, "kernels", origin->kernels);
        char *text = json_dumps(about, JSON_COMPACT);
        json_decref(about);
        if (!text)
                return rv_fail(err, RV_ESYSTEM, "out of memory for the header of a trace");
        fprintf(out, "{\"displayTimeUnit\":\"ms\",\"otherData\":%s,\"traceEvents\":[\n", text);
        free(text);
        return 0;
}

int trace_write(const struct trace *trace, const char *path, const struct trace_origin *origin,
                struct rv_error_info *err)
{
        struct file_writer writer;
        int rc = file_writer_open(&writer, path, err);
        if (rc)
                return rc;
        FILE *out = writer.stream;
        rc = write_header(out, origin, err);
        if (rc == 0)
                rc = write_names(trace, out, origin->layout, err);
        if (rc == 0)
                rc = write_arrows(trace, out, origin->layout, err);
        if (rc) {
                file_writer_abandon(&writer);
                return rc;
        }
        bool host = any_on_host(trace);
        for (int64_t i = 0; i < trace->memory_count; i++)
                write_memory(&trace->memory[i], host, out);
        for (int64_t i = 0; i < trace->count; i++) {
                write_record(&trace->records[i], out);
                fputs(i + 1 < trace->count ? ",\n" : "\n", out);
        }
        fputs("]}\n", out);
        return file_writer_commit(&writer, err);
}

static int not_a_trace(const char *path, struct rv_error_info *err)
{
        return rv_fail(err, RV_EINPUT, "%s:1: not a trace that ranvier train or simulate wrote", path);
}

/* The sizes of the grid's axes; one that a trace of an older version does not have is 1. Traces of before
 * there were shards say pp alone: then there are as many replicas as can be. */
static int take_grid(struct plan *layout, const json_t *facts, const char *path, struct rv_error_info *err)
{
        char text[GRID_TEXT];
        int64_t ranks = 1;
        for (int axis = 0; axis < GRID_AXES; axis++) {
                const json_t *size = json_object_get(facts, grid_axes[axis].size);
                const json_int_t number = size ? json_integer_value(size) : 1;
                if ((size || axis == GRID_STAGES) && !json_is_integer(size))
                        return not_a_trace(path, err);
                layout->sizes[axis] = number == (int)number ? (int)number : INT_MAX;
        }
        if (!json_object_get(facts, grid_axes[GRID_REPLICAS].size))
                layout->dp =
                        layout->pp >= 1 && layout->pp <= TRACE_MAX_RANKS ? TRACE_MAX_RANKS / layout->pp : 1;
        for (int axis = 0; axis < GRID_AXES; axis++) { /* each step checked: the product may not fit */
                const int size = layout->sizes[axis];
                ranks = size >= 1 && size <= TRACE_MAX_RANKS ? ranks * size : TRACE_MAX_RANKS + 1;
                if (ranks > TRACE_MAX_RANKS)
                        return rv_fail(err, RV_EINPUT, "%s:1: %s is no grid of 1 to %d ranks", path,
                                       grid_text(text, layout->sizes, "", " x "), TRACE_MAX_RANKS);
        }
        return 0;
}

static int read_header(struct trace *trace, struct file_lines *source, struct rv_error_info *err)
{
        static const char opening[] = "\"traceEvents\":[";
        const int found = file_next_line(source, err);
        if (found < 0)
                return found;
        bool ours = found && source->length >= sizeof opening - 1 &&
                    strcmp(source->line + source->length - (sizeof opening - 1), opening) == 0;
        json_t *header = NULL;
        if (ours) {
                char *whole = malloc(source->length + 3);
                if (!whole)
                        return rv_fail(err, RV_ESYSTEM, "%s: out of memory", source->path);
                memcpy(whole, source->line, source->length);
                memcpy(whole + source->length, "]}", 3);
                header = json_loads(whole, 0, NULL);
                free(whole);
        }
        const char *version, *world;
        int order = ORDER_STAGES, rc = 0;
        struct plan *layout = &trace->layout;
        ours = header && json_unpack(header, "{s:{s:s, s:s, s?i}}", "otherData", "ranvier", &version, "world",
                                     &world, "order", &order) == 0;
        ours = ours && order >= 0 && order < PLAN_ORDERS && strlen(world) < sizeof trace->world;
        if (ours) {
                layout->order = (enum plan_order)order;
                strcpy(trace->world, world);
                trace->about = json_incref(json_object_get(header, "otherData"));
                rc = take_grid(layout, trace->about, source->path, err);
        } else {
                rc = not_a_trace(source->path, err);
        }
        json_decref(header);
        return rc;
}

static int find_kind(const char *name)
{
        for (int kind = 0; kind < OP_KINDS; kind++)
                if (strcmp(name, op_name((enum op_kind)kind)) == 0)
                        return kind;
        return -1;
}

/* A number of an event, and what it may be. */
struct range {
        const char *name;
        int64_t value, min, max;
};

/* 30 years: in nanoseconds it fits into 64 bits. */
#define MAX_MICROSECONDS 1e15

static int read_event(struct trace *trace, const struct file_lines *source, const json_t *event,
                      struct rv_error_info *err)
{
        json_error_t error;
        const char *kind_name, *of_name = NULL, *part = NULL, *group = NULL;
        int rank, thread, chunk = 0, micro_batch, bucket, batch, segment = 0, range = 0, beside = 0;
        json_int_t bytes, order;
        double ts, dur, issued;
        if (json_unpack_ex((json_t *)event, &error, 0,
                           "{s:i, s:i, s:F, s:F, s:{s:s, s:i, s:i, s:I, s:i, s:F, s:I, s?i, s?s, s?i, s?s, "
                           "s?s, s?i, s?b}}",
                           "pid", &rank, "tid", &thread, "ts", &ts, "dur", &dur, "args", "kind", &kind_name,
                           "micro_batch", &micro_batch, "bucket", &bucket, "bytes", &bytes, "batch", &batch,
                           "issued", &issued, "order", &order, "chunk", &chunk, "of", &of_name, "segment",
                           &segment, "part", &part, "group", &group, "range", &range, "beside", &beside))
                return rv_fail(err, RV_EINPUT, "%s:%lld: %s in a trace event", source->path,
                               (long long)source->number, error.text);
        int kind = find_kind(kind_name);
        if (kind < 0)
                return rv_fail(err, RV_EINPUT, "%s:%lld: kind '%.40s' is no operation", source->path,
                               (long long)source->number, kind_name);
        int of = of_name ? find_kind(of_name) : kind;
        if (of < 0)
                return rv_fail(err, RV_EINPUT, "%s:%lld: of '%.40s' is no operation", source->path,
                               (long long)source->number, of_name);
        int parts = !part                          ? 0
                    : strcmp(part, "input") == 0   ? OP_INPUT_GRADIENT
                    : strcmp(part, "weights") == 0 ? OP_WEIGHT_GRADIENT
                                                   : -1;
        if (parts < 0)
                return rv_fail(err, RV_EINPUT, "%s:%lld: part '%.40s' is neither input nor weights",
                               source->path, (long long)source->number, part);
        if (group && group_named(group) == GROUP_TENSOR)
                return rv_fail(err, RV_EINPUT, "%s:%lld: group '%.40s' is none of x, z, experts and context",
                               source->path, (long long)source->number, group);
        const int64_t large = 1 << 30;
        const struct range whole[] = {{"pid", rank, 0, plan_ranks(&trace->layout) - 1},
                                      {"tid", thread, thread_of(0), thread_of(LANES - 1)},
                                      {"micro_batch", micro_batch, -1, large},
                                      {"bucket", bucket, -1, large},
                                      {"bytes", bytes, 0, INT64_MAX},
                                      {"batch", batch, 0, large},
                                      {"order", order, 0, INT64_MAX},
                                      {"chunk", chunk, 0, large},
                                      {"segment", segment, 0, large},
                                      {"range", range, 0, large}};
        for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
                if (whole[i].value < whole[i].min || whole[i].value > whole[i].max)
                        return rv_fail(err, RV_EINPUT, "%s:%lld: %s is %lld, %lld to %lld was expected",
                                       source->path, (long long)source->number, whole[i].name,
                                       (long long)whole[i].value, (long long)whole[i].min,
                                       (long long)whole[i].max);
        if (fabs(ts) > MAX_MICROSECONDS || dur < 0 || dur > MAX_MICROSECONDS ||
            fabs(issued) > MAX_MICROSECONDS / 1e6)
                return rv_fail(err, RV_EINPUT,
                               "%s:%lld: ts %g, dur %g and issued %g are no times: dur must not be negative, "
                               "and none beyond 30 years",
                               source->path, (long long)source->number, ts, dur, issued);
        int64_t start = llround(ts * 1e3), end = start + llround(dur * 1e3);
        trace_add(trace, &(struct trace_record){.rank = rank,
                                                .batch = batch,
                                                .kind = (enum op_kind)kind,
                                                .of = (enum op_kind)of,
                                                .lane = (enum op_lane)(thread - TRACE_FIRST_THREAD),
                                                .chunk = chunk,
                                                .micro_batch = micro_batch,
                                                .bucket = bucket,
                                                .segment = segment,
                                                .range = range,
                                                .parts = parts,
                                                .group = group_named(group),
                                                .beside = beside,
                                                .bytes = bytes,
                                                .issued = issued,
                                                .start = (double)start / 1e9,
                                                .end = (double)end / 1e9,
                                                .order = (uint64_t)order});
        return 0;
}

static int read_line(struct trace *trace, struct file_lines *source, struct rv_error_info *err)
{
        if (source->length && source->line[source->length - 1] == ',')
                source->line[--source->length] = 0;
        json_error_t error;
        json_t *event = json_loadb(source->line, source->length, 0, &error);
        if (!event)
                return rv_fail(err, RV_EINPUT, "%s:%lld: not valid JSON: %s (is the file cut short?)",
                               source->path, (long long)source->number, error.text);
        const char *phase = json_string_value(json_object_get(event, "ph"));
        int rc = 0;
        if (!phase)
                rc = rv_fail(err, RV_EINPUT, "%s:%lld: an event without \"ph\"", source->path,
                             (long long)source->number);
        else if (strcmp(phase, "X") == 0)
                rc = read_event(trace, source, event, err);
        json_decref(event);
        return rc;
}

int trace_read(struct trace *trace, const char *path, struct rv_error_info *err)
{
        trace_init(trace);
        struct file_lines source = {.path = path, .stream = fopen(path, "r")};
        if (!source.stream)
                return rv_fail(err, RV_EINPUT, "%s: cannot be read: %s", path, strerror(errno));
        int rc = read_header(trace, &source, err);
        bool closed = false;
        while (rc == 0 && !closed && (rc = file_next_line(&source, err)) > 0) {
                closed = strcmp(source.line, "]}") == 0;
                rc = closed ? 0 : read_line(trace, &source, err);
        }
        if (rc == 0 && !closed)
                rc = rv_fail(err, RV_EINPUT, "%s:%lld: the trace ends before its closing ]}", path,
                             (long long)source.number);
        if (rc)
                trace_free(trace);
        free(source.line);
        fclose(source.stream);
        return rc;
}
