#include "runtime/kineto/kineto.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { BUFFER = 1 << 16, LONGEST_VALUE = 64 << 20, MAX_AXES = 16 };

/* A file that is being read, one character after another. */
struct source {
        const char *path;
        gzFile file;
        unsigned char buffer[BUFFER];
        int length, at;
        int64_t line;
        /* The value that was read last, as text. */
        char *text;
        size_t text_length, capacity;
        struct rv_error_info *err;
        /* What is done with each event, and with the list of devices (may be NULL). */
        kineto_visit *each;
        void (*devices)(void *context, const json_t *devices);
        void *context;
};

static void *resized(void *array, size_t count, size_t element_bytes)
{
        void *larger = realloc(array, count * element_bytes);
        if (!larger)
                abort();
        return larger;
}

/* ---- characters ---- */

/* The next character, which stays; -1 at the end, as after an error of the file. */
static int peek(struct source *s)
{
        if (s->at == s->length) {
                s->length = gzread(s->file, s->buffer, BUFFER);
                s->at = 0;
                if (s->length <= 0) {
                        s->length = 0;
                        return -1;
                }
        }
        return s->buffer[s->at];
}

static int next(struct source *s)
{
        const int c = peek(s);
        if (c >= 0)
                s->at++;
        s->line += c == '\n';
        return c;
}

static int peek_word(struct source *s)
{
        int c = peek(s);
        while (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
                next(s);
                c = peek(s);
        }
        return c;
}

static int cut(struct source *s)
{
        return rv_fail(s->err, RV_EINPUT,
                       "%.200s:%lld: the trace ends in the middle (is the file cut short? "
                       "export_chrome_trace must have returned before it is copied)",
                       s->path, (long long)s->line);
}

static int wrong(struct source *s, const char *what)
{
        return rv_fail(s->err, RV_EINPUT,
                       "%.200s:%lld: %s: a trace of torch.profiler was expected, as export_chrome_trace "
                       "writes it",
                       s->path, (long long)s->line, what);
}

/* ---- values ---- */

static void keep(struct source *s, int c)
{
        if (s->text_length + 1 >= s->capacity) {
                s->capacity = s->capacity ? 2 * s->capacity : 4096;
                s->text = resized(s->text, s->capacity, 1);
        }
        s->text[s->text_length++] = (char)c;
        s->text[s->text_length] = 0;
}

static int take_string(struct source *s)
{
        bool escaped = false;
        keep(s, next(s));
        for (;;) {
                const int c = next(s);
                if (c < 0)
                        return cut(s);
                if (s->text_length > LONGEST_VALUE)
                        return wrong(s, "one text has more than 64 MiB");
                keep(s, c);
                if (c == '"' && !escaped)
                        return RV_OK;
                escaped = c == '\\' && !escaped;
        }
}

/* Reads a whole value into s->text: up to where its brackets are closed, or up to what follows a number. */
static int take_value(struct source *s)
{
        int depth = 0;
        s->text_length = 0;
        do {
                const int c = peek(s);
                if (c < 0)
                        return cut(s);
                if (s->text_length > LONGEST_VALUE)
                        return wrong(s, "one value has more than 64 MiB");
                if (c == '"') {
                        const int rc = take_string(s);
                        if (rc != RV_OK)
                                return rc;
                        continue;
                }
                if (depth == 0 && (c == ',' || c == '}' || c == ']'))
                        break;
                depth += (c == '{' || c == '[') - (c == '}' || c == ']');
                keep(s, next(s));
                if (depth == 0 && (c == '}' || c == ']'))
                        break;
        } while (depth > 0 || (peek(s) != ',' && peek(s) != '}' && peek(s) != ']'));
        return s->text_length ? RV_OK : wrong(s, "a value is missing");
}

/* The value that was read last; NULL, with a sentence: it is no JSON. */
static json_t *parsed(struct source *s)
{
        json_error_t error;
        json_t *value = json_loadb(s->text, s->text_length, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
        if (!value)
                rv_fail(s->err, RV_EINPUT, "%.200s:%lld: %s", s->path, (long long)s->line, error.text);
        return value;
}

/* ---- events ---- */

static const char *name_of(struct kineto *trace, const char *name)
{
        if (!trace->names)
                trace->names = json_object();
        if (!json_object_get(trace->names, name))
                json_object_set_new(trace->names, name, json_true());
        return json_object_iter_key(json_object_iter_at(trace->names, name));
}

/* Older files have other words for some categories, and the profiler of a PyTorch without Kineto none. */
static int kind_of(const char *category)
{
        static const struct {
                const char *category;
                enum kineto_kind kind;
        } known[] = {{"cpu_op", KINETO_OPERATOR},
                     {"Operator", KINETO_OPERATOR},
                     {"user_annotation", KINETO_ANNOTATION},
                     {"cuda_runtime", KINETO_RUNTIME},
                     {"cuda_driver", KINETO_RUNTIME},
                     {"Runtime", KINETO_RUNTIME},
                     {"kernel", KINETO_KERNEL},
                     {"Kernel", KINETO_KERNEL},
                     {"gpu_memcpy", KINETO_COPY},
                     {"Memcpy", KINETO_COPY},
                     {"gpu_memset", KINETO_COPY},
                     {"Memset", KINETO_COPY}};
        if (!category)
                return KINETO_OPERATOR;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
                if (strcmp(category, known[i].category) == 0)
                        return (int)known[i].kind;
        return -1;
}

static int64_t integer_of(const json_t *object, const char *key)
{
        const json_t *value = json_object_get(object, key);
        return json_is_integer(value) ? json_integer_value(value) : -1;
}

static int dtype_of_type(const char *type)
{
        static const struct {
                const char *type;
                enum dtype dtype;
        } known[] = {{"float", DTYPE_FP32}, {"c10::BFloat16", DTYPE_BF16}, {"c10::Half", DTYPE_FP16}};
        for (size_t i = 0; type && i < sizeof known / sizeof *known; i++)
                if (strcmp(type, known[i].type) == 0)
                        return (int)known[i].dtype;
        return -1;
}

static void add_shape(struct kineto *trace, int64_t value)
{
        if ((trace->shape_count & (trace->shape_count - 1)) == 0) /* room doubles */
                trace->shapes =
                        resized(trace->shapes, (size_t)(trace->shape_count ? 2 * trace->shape_count : 1),
                                sizeof *trace->shapes);
        trace->shapes[trace->shape_count++] = value;
}

static void add_extents(struct kineto *trace, const json_t *extents)
{
        const size_t axes = json_array_size(extents) < MAX_AXES ? json_array_size(extents) : MAX_AXES;
        add_shape(trace, (int64_t)axes);
        for (size_t axis = 0; axis < axes; axis++)
                add_shape(trace, json_integer_value(json_array_get(extents, axis)));
}

/* A list of tensors, as those of _foreach_ have it, counts as so many inputs. */
static void add_inputs(struct kineto *trace, const json_t *inputs, struct kineto_event *event)
{
        size_t i, j;
        json_t *input, *inner;
        int64_t count = 0;
        bool shaped = false;
        event->shapes = trace->shape_count;
        add_shape(trace, 0);
        json_array_foreach((json_t *)inputs, i, input)
        {
                if (json_is_array(json_array_get(input, 0))) {
                        json_array_foreach(input, j, inner)
                        {
                                add_extents(trace, inner);
                        }
                        count += (int64_t)json_array_size(input);
                        shaped = true;
                        continue;
                }
                add_extents(trace, input);
                shaped = shaped || json_array_size(input) > 0;
                count++;
        }
        trace->shapes[event->shapes] = count;
        trace->shaped += shaped;
}

static int first_dtype(const json_t *types)
{
        size_t i;
        json_t *type;
        json_array_foreach((json_t *)types, i, type)
        {
                const int dtype = dtype_of_type(json_string_value(type));
                if (dtype >= 0)
                        return dtype;
        }
        return -1;
}

static void add_event(struct kineto *trace, const json_t *object, enum kineto_kind kind)
{
        const json_t *arguments = json_object_get(object, "args"),
                     *inputs = json_object_get(arguments, "Input Dims");
        const char *name = json_string_value(json_object_get(object, "name"));
        if ((trace->count & (trace->count - 1)) == 0)
                trace->events = resized(trace->events, (size_t)(trace->count ? 2 * trace->count : 1),
                                        sizeof *trace->events);
        struct kineto_event *event = &trace->events[trace->count++];
        *event = (struct kineto_event){.kind = kind,
                                       .file = trace->files,
                                       .name = name_of(trace, name ? name : ""),
                                       .start = json_number_value(json_object_get(object, "ts")),
                                       .length = json_number_value(json_object_get(object, "dur")),
                                       .thread = integer_of(object, "tid"),
                                       .correlation = integer_of(arguments, "correlation"),
                                       .sequence = integer_of(arguments, "Sequence number"),
                                       .shapes = -1,
                                       .dtype = first_dtype(json_object_get(arguments, "Input type"))};
        if (kind == KINETO_OPERATOR && strncmp(event->name, "ProfilerStep#", 13) == 0)
                event->kind = KINETO_ANNOTATION;
        if (kind == KINETO_OPERATOR && json_is_array(inputs))
                add_inputs(trace, inputs, event);
        trace->on_gpu += kind == KINETO_KERNEL || kind == KINETO_COPY;
}

/* Those that have a duration, of the kinds that are kept. */
static int take_event(void *context, const json_t *event, struct rv_error_info *err)
{
        (void)err;
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const int kind = kind_of(json_string_value(json_object_get(event, "cat")));
        if (kind >= 0 && phase && strcmp(phase, "X") == 0)
                add_event(context, event, (enum kineto_kind)kind);
        return RV_OK;
}

static int read_events(struct source *s)
{
        if (next(s) != '[')
                return wrong(s, "\"traceEvents\" is no list");
        for (int c = peek_word(s); c != ']'; c = peek_word(s)) {
                int rc = c < 0 ? cut(s) : take_value(s);
                json_t *object = rc == RV_OK ? parsed(s) : NULL;
                if (!object)
                        return s->err->code;
                rc = s->each(s->context, object, s->err);
                json_decref(object);
                if (rc != RV_OK)
                        return rc;
                if (peek_word(s) == ',')
                        next(s);
                else if (peek_word(s) != ']')
                        return peek_word(s) < 0 ? cut(s) : wrong(s, "an event is followed by no comma");
        }
        next(s);
        return RV_OK;
}

/* ---- the file ---- */

static void take_device(void *context, const json_t *devices)
{
        struct kineto *trace = context;
        const json_t *device = json_array_get(devices, 0);
        const char *name = json_string_value(json_object_get(device, "name"));
        if (!name)
                return;
        snprintf(trace->gpu, sizeof trace->gpu, "%s", name);
        trace->gpu_memory_bytes = integer_of(device, "totalGlobalMem");
        trace->gpu_processors = (int)integer_of(device, "numSms");
}

/* One member of the outermost object. */
static int read_member(struct source *s, bool *found)
{
        char key[64];
        s->text_length = 0;
        if (peek_word(s) != '"')
                return peek_word(s) < 0 ? cut(s) : wrong(s, "a name was expected");
        int rc = take_string(s);
        if (rc != RV_OK)
                return rc;
        snprintf(key, sizeof key, "%s", s->text);
        if (peek_word(s) != ':')
                return peek_word(s) < 0 ? cut(s) : wrong(s, "a colon was expected");
        next(s);
        if (peek_word(s) < 0)
                return cut(s);
        if (strcmp(key, "\"traceEvents\"") == 0) {
                *found = true;
                return read_events(s);
        }
        if ((rc = take_value(s)) != RV_OK || !s->devices || strcmp(key, "\"deviceProperties\"") != 0)
                return rc;
        json_t *devices = parsed(s);
        if (!devices)
                return s->err->code;
        s->devices(s->context, devices);
        json_decref(devices);
        return RV_OK;
}

static int read_object(struct source *s)
{
        bool found = false;
        next(s);
        while (peek_word(s) != '}') {
                int rc = read_member(s, &found);
                if (rc != RV_OK)
                        return rc;
                if (peek_word(s) == ',')
                        next(s);
                else if (peek_word(s) != '}')
                        return peek_word(s) < 0 ? cut(s) : wrong(s, "a comma was expected");
        }
        return found ? RV_OK : wrong(s, "there is no \"traceEvents\"");
}

/* From the file's first event on, behind those of the files before: doubles then have the digits. */
static void move_events(struct kineto *trace, int first)
{
        static const double APART = 1e6;
        double begin = 0, end = -APART;
        for (int i = first; i < trace->count; i++)
                if (i == first || trace->events[i].start < begin)
                        begin = trace->events[i].start;
        trace->begin = first ? trace->begin : begin;
        for (int i = 0; i < first; i++)
                if (trace->events[i].start + trace->events[i].length > end)
                        end = trace->events[i].start + trace->events[i].length;
        for (int i = first; i < trace->count; i++)
                trace->events[i].start += end + APART - begin;
}

static int read_file(struct source *s, const char *path, struct rv_error_info *err)
{
        int rc;
        s->path = path;
        s->line = 1;
        s->err = err;
        s->file = gzopen(path, "rb");
        if (!s->file)
                rc = rv_fail(err, RV_EINPUT, "'%.200s' cannot be read", path);
        else if (peek_word(s) == '[')
                rc = read_events(s);
        else if (peek_word(s) == '{')
                rc = read_object(s);
        else
                rc = wrong(s, peek_word(s) < 0 ? "the file is empty or cannot be read" : "this is no JSON");
        if (s->file)
                gzclose(s->file);
        free(s->text);
        return rc;
}

int kineto_each(const char *path, kineto_visit *each, void *context, struct rv_error_info *err)
{
        struct source s = {.each = each, .context = context};
        return read_file(&s, path, err);
}

bool kineto_is(const char *path)
{
        char text[BUFFER];
        struct stat info;
        if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) /* what is read from a pipe is gone */
                return false;
        const gzFile file = gzopen(path, "rb");
        const int length = file ? gzread(file, text, sizeof text - 1) : -1;
        if (file)
                gzclose(file);
        text[length > 0 ? length : 0] = 0;
        return text[strspn(text, " \t\r\n")] == '[' ||
               (strstr(text, "\"traceEvents\"") && !strstr(text, "\"ranvier\""));
}

int kineto_read(struct kineto *trace, const char *path, struct rv_error_info *err)
{
        const int first = trace->count;
        struct source s = {.each = take_event, .devices = take_device, .context = trace};
        int rc = read_file(&s, path, err);
        if (rc == RV_OK && trace->count == first)
                rc = rv_fail(err, RV_EINPUT, "%.200s: the trace has no events of a host or GPU", path);
        if (rc == RV_OK)
                move_events(trace, first);
        trace->files += rc == RV_OK;
        return rc;
}

void kineto_free(struct kineto *trace)
{
        free(trace->events);
        free(trace->shapes);
        json_decref(trace->names);
        *trace = (struct kineto){0};
}

int kineto_input_count(const struct kineto *trace, const struct kineto_event *event)
{
        return event->shapes < 0 ? 0 : (int)trace->shapes[event->shapes];
}

struct kineto_input kineto_input(const struct kineto *trace, const struct kineto_event *event, int index)
{
        if (index >= kineto_input_count(trace, event))
                return (struct kineto_input){0};
        const int64_t *at = &trace->shapes[event->shapes + 1];
        for (; index > 0; index--)
                at += 1 + *at;
        return (struct kineto_input){(int)*at, at + 1};
}
