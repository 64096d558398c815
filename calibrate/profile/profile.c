#include "calibrate/profile/profile.h"

#include "calibrate/profile/surface_file.h"
#include "runtime/base/file.h"
#include "runtime/base/nearest.h"
#include "runtime/base/version.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char PRESETS[] = "calibrate/profiles";
const struct option_words profile_words = {.folder = PRESETS, .files = true, .list = true};
/* What ends a kernel's name, by what its tensors are stored as. */
static const char *const suffixes[PROFILE_FORMATS] = {[DTYPE_FP32] = "",
                                                      [DTYPE_FP16] = "_half",
                                                      [DTYPE_BF16] = "_bf16",
                                                      [DTYPES - 1 + FORMAT_FP8] = "_fp8",
                                                      [DTYPES - 1 + FORMAT_NVFP4] = "_nvfp4"};

static const char *const line_names[PROFILE_LINES] = {
        [LINE_COPY] = "copy",
        [LINE_COPY_BACK] = "copy_back",
        [LINE_COPY_BOTH] = "copy_both",
        [LINE_COPY_BACK_BOTH] = "copy_back_both",
        [LINE_MESSAGE] = "message",
        [LINE_ALLREDUCE] = "allreduce",
        [LINE_ALLREDUCE_FP16] = "allreduce_half",
        [LINE_ALLREDUCE_BF16] = "allreduce_bf16",
        [LINE_FETCH] = "fetch",
        [LINE_OFFLOADED_UPDATE] = "offloaded_update",
        [LINE_WRITE_BACK] = "write_back",
        [LINE_LAYER_GATHER] = "layer_gather",
        [LINE_SNAPSHOT] = "snapshot",
        [LINE_FILE] = "file",
        [LINE_FILE_WORK] = "file_work",
};

const char *profile_line_name(enum profile_line line)
{
        return line_names[line];
}

enum profile_line profile_allreduce_line(enum dtype dtype)
{
        static const enum profile_line lines[DTYPES] = {[DTYPE_FP32] = LINE_ALLREDUCE,
                                                        [DTYPE_FP16] = LINE_ALLREDUCE_FP16,
                                                        [DTYPE_BF16] = LINE_ALLREDUCE_BF16};
        return lines[dtype];
}

/* ---- names of kernels in the file ---- */

void profile_kernel_name(char name[PROFILE_NAME], enum kernel_kind kind, int format)
{
        snprintf(name, PROFILE_NAME, "%s%s", kernel_name(kind), suffixes[format]);
}

/* The kernel of that name, or -1. */
static int kernel_of_name(const char *name, int *format)
{
        char kind[PROFILE_NAME];
        size_t length = strlen(name), suffix = 0;
        *format = DTYPE_FP32;
        for (int with = DTYPE_FP16; with < PROFILE_FORMATS; with++) {
                size_t end = strlen(suffixes[with]);
                if (length > end && strcmp(name + length - end, suffixes[with]) == 0) {
                        *format = with;
                        suffix = end;
                }
        }
        snprintf(kind, sizeof kind, "%.*s", (int)(length - suffix), name);
        return kernel_kind_of(kind);
}

/* ---- reading: every value is checked where it is read, and a complaint says which value of which file ----
 */

struct reader {
        const char *path;
        struct rv_error_info *err;
};

/* Where in the document a value stands, such as loads[1].kernels.matmul.points[3]. */
struct place {
        char text[160];
};

__attribute__((format(printf, 1, 2))) static struct place place(const char *format, ...)
{
        struct place place;
        va_list list;
        va_start(list, format);
        vsnprintf(place.text, sizeof place.text, format, list);
        va_end(list);
        return place;
}

static int read_real(struct reader *r, struct place where, const json_t *object, const char *key, double min,
                     double *value)
{
        json_t *found = json_object_get(object, key);
        char right[32];
        snprintf(right, sizeof right, min == DBL_MIN ? "above 0" : "at least %g", min);
        if (!json_is_number(found))
                return rv_fail(r->err, RV_EINPUT, "%s: %s: needs \"%s\", a number that is %s", r->path,
                               where.text, key, right);
        *value = json_number_value(found);
        if (!(*value >= min && *value <= DBL_MAX))
                return rv_fail(r->err, RV_EINPUT, "%s: %s: \"%s\" is %g, must be %s", r->path, where.text,
                               key, *value, right);
        return RV_OK;
}

/* Seconds of one thing: sums of them must stay far from where numbers end. */
static int read_seconds(struct reader *r, struct place where, const json_t *object, const char *key,
                        double min, double *seconds)
{
        int rc = read_real(r, where, object, key, min, seconds);
        if (rc == RV_OK && *seconds > MODEL_MAX_SECONDS)
                return rv_fail(r->err, RV_EINPUT, "%s: %s: \"%s\" is %g, must be at most %g", r->path,
                               where.text, key, *seconds, MODEL_MAX_SECONDS);
        return rc;
}

static int read_int(struct reader *r, struct place where, const json_t *object, const char *key, int64_t min,
                    int64_t max, int64_t *value)
{
        json_t *found = json_object_get(object, key);
        if (!json_is_integer(found))
                return rv_fail(r->err, RV_EINPUT,
                               "%s: %s: needs \"%s\", a whole number that is at least %lld", r->path,
                               where.text, key, (long long)min);
        *value = json_integer_value(found);
        if (*value < min || *value > max)
                return rv_fail(r->err, RV_EINPUT, "%s: %s: \"%s\" is %lld, must be %lld to %lld", r->path,
                               where.text, key, (long long)*value, (long long)min, (long long)max);
        return RV_OK;
}

/* A flag that may be left out (false). */
static int read_flag(struct reader *r, struct place where, const json_t *object, const char *key,
                     unsigned char *value)
{
        json_t *found = json_object_get(object, key);
        if (found && !json_is_boolean(found))
                return rv_fail(r->err, RV_EINPUT, "%s: %s: \"%s\" must be true or false", r->path, where.text,
                               key);
        *value = json_is_true(found);
        return RV_OK;
}

/* The array `key` of `object`, which may be left out; `*array` is then NULL. */
static int read_array(struct reader *r, struct place where, const json_t *object, const char *key,
                      json_t **array)
{
        *array = json_object_get(object, key);
        if (*array && !json_is_array(*array))
                return rv_fail(r->err, RV_EINPUT, "%s: %s: \"%s\" must be an array", r->path, where.text,
                               key);
        return RV_OK;
}

/* How good a fit was, in the file: all of it may be left out, since a datasheet has no residuals. */
static const struct {
        const char *name;
        size_t offset; /* of a double in struct fit_quality */
} qualities[] = {
        {"median_error", offsetof(struct fit_quality, median_error)},
        {"worst_error", offsetof(struct fit_quality, worst_error)},
        {"left_out_median_error", offsetof(struct fit_quality, left_out_median_error)},
        {"left_out_worst_error", offsetof(struct fit_quality, left_out_worst_error)},
};
enum { QUALITIES = sizeof qualities / sizeof *qualities };

static double *quality_at(struct fit_quality *quality, int i)
{
        return (void *)((char *)quality + qualities[i].offset);
}

static int read_quality(struct reader *r, struct place where, const json_t *fit, struct fit_quality *quality)
{
        int64_t count = 0;
        int rc = RV_OK;
        if (json_object_get(fit, "points"))
                rc = read_int(r, where, fit, "points", 0, INT32_MAX, &count);
        for (int i = 0; i < QUALITIES && rc == RV_OK; i++)
                if (json_object_get(fit, qualities[i].name))
                        rc = read_real(r, where, fit, qualities[i].name, 0, quality_at(quality, i));
        quality->points = (int)count;
        return rc;
}

/* A relative standard error, which may be left out. */
static int read_error(struct reader *r, struct place where, const json_t *object, double *error)
{
        return json_object_get(object, "error") ? read_real(r, where, object, "error", DBL_MIN, error)
                                                : RV_OK;
}

/* The object `key` of `parent`, which may be null or left out; `*object` is then NULL. */
static int find_object(struct reader *r, struct place where, const json_t *parent, const char *key,
                       json_t **object)
{
        *object = json_object_get(parent, key);
        if (json_is_null(*object))
                *object = NULL;
        if (*object && !json_is_object(*object))
                return rv_fail(r->err, RV_EINPUT, "%s: %s: \"%s\" must be an object", r->path, where.text,
                               key);
        return RV_OK;
}

static int read_parameter(struct reader *r, struct place where, const json_t *object,
                          const struct model_parameter *parameter, struct kernel_model *model)
{
        double *value = model_at(model, parameter);
        int rc = read_real(r, where, object, parameter->name, parameter->not_zero ? DBL_MIN : 0, value);
        if (rc != RV_OK)
                return rc;
        if (*value > parameter->max)
                return rv_fail(r->err, RV_EINPUT, "%s: %s: \"%s\" is %g, must be at most %g", r->path,
                               where.text, parameter->name, *value, parameter->max);
        if (parameter->whole && *value != floor(*value))
                return rv_fail(r->err, RV_EINPUT, "%s: %s: \"%s\" is %g, must be a whole number", r->path,
                               where.text, parameter->name, *value);
        return RV_OK;
}

/* Whether a model may have a member of that name. All are optional, so one that is misspelt would otherwise
 * be left out without a word. */
static bool in_model(const char *name)
{
        bool known = strcmp(name, "points") == 0;
        for (int i = 0; i < MODEL_PARAMETERS && !known; i++)
                known = strcmp(name, model_parameters[i].name) == 0;
        for (int i = 0; i < QUALITIES && !known; i++)
                known = strcmp(name, qualities[i].name) == 0;
        return known;
}

static int check_members(struct reader *r, struct place where, json_t *object)
{
        const char *name;
        json_t *value;
        char names[400] = "";
        json_object_foreach(object, name, value)
        {
                if (in_model(name))
                        continue;
                struct nearest nearest = {.word = name};
                for (int i = 0; i < MODEL_PARAMETERS; i++)
                        nearest_offer(&nearest, model_parameters[i].name);
                if (nearest.known)
                        return rv_fail(r->err, RV_EINPUT,
                                       "%s: %s: \"%.40s\" is not one of a model's parameters; the nearest is "
                                       "\"%s\"",
                                       r->path, where.text, name, nearest.known);
                for (int i = 0; i < MODEL_PARAMETERS; i++)
                        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "",
                                 model_parameters[i].name);
                return rv_fail(r->err, RV_EINPUT, "%s: %s: \"%.40s\" is not one of a model's parameters: %s",
                               r->path, where.text, name, names);
        }
        return RV_OK;
}

/* What means nothing without another. */
static int check_pairs(struct reader *r, struct place where, const json_t *object)
{
        static const char *const pairs[][2] = {{"cache_bytes", "cache_bytes_per_second"},
                                               {"long_dimension", "long_efficiency"},
                                               {"batch_multiple", "odd_batch_seconds"}};
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
                if (!json_object_get(object, pairs[i][0]) != !json_object_get(object, pairs[i][1]))
                        return rv_fail(r->err, RV_EINPUT, "%s: %s: needs \"%s\" and \"%s\", or neither",
                                       r->path, where.text, pairs[i][0], pairs[i][1]);
        return RV_OK;
}

static int read_model(struct reader *r, struct place where, const json_t *parent, struct kernel_model *model)
{
        json_t *found;
        int rc = find_object(r, where, parent, "model", &found);
        if (rc == RV_OK && !found && json_object_get(parent, "fit"))
                return rv_fail(
                        r->err, RV_EINPUT,
                        "%s: %s: has a \"fit\", in the format of before kernels had models; measure it "
                        "again with ranvier calibrate, or write it as a \"model\": its "
                        "\"overhead_seconds\", \"flops_per_second\", \"bytes_per_second\" (1 / seconds), "
                        "\"exposed\": 1",
                        r->path, where.text);
        if (rc != RV_OK || !found)
                return rc;
        where = place("%.140s.model", where.text);
        model->present = true;
        rc = check_members(r, where, found);
        for (int i = 0; i < MODEL_PARAMETERS && rc == RV_OK; i++)
                if (json_object_get(found, model_parameters[i].name))
                        rc = read_parameter(r, where, found, &model_parameters[i], model);
        if (rc == RV_OK)
                rc = check_pairs(r, where, found);
        return rc == RV_OK ? read_quality(r, where, found, &model->quality) : rc;
}

static int read_line_fit(struct reader *r, struct place where, const json_t *parent, struct line_fit *fit)
{
        json_t *found;
        int rc = find_object(r, where, parent, "fit", &found);
        if (rc != RV_OK || !found)
                return rc;
        where = place("%.140s.fit", where.text);
        fit->present = true;
        if ((rc = read_seconds(r, where, found, "latency_seconds", 0, &fit->latency_seconds)) == RV_OK &&
            (rc = read_seconds(r, where, found, "seconds_per_byte", 0, &fit->seconds_per_byte)) == RV_OK)
                rc = read_error(r, where, found, &fit->error);
        if (rc == RV_OK)
                rc = read_quality(r, where, found, &fit->quality);
        return rc;
}

/* Heads of queries to one of keys, which may be left out (1). */
static int read_group(struct reader *r, struct place where, const json_t *object, struct kernel *kernel)
{
        const bool has_heads = kernel_descriptor(kernel->kind)->split == SPLIT_HEADS;
        int64_t group = 1;
        int rc = RV_OK;
        if (json_object_get(object, "group"))
                rc = read_int(r, where, object, "group", 1, has_heads ? UCHAR_MAX : 1, &group);
        if (rc == RV_OK && kernel->batch % group != 0)
                return rv_fail(r->err, RV_EINPUT,
                               "%s: %s: \"group\" is %lld, which does not divide \"batch\"", r->path,
                               where.text, (long long)group);
        kernel->group = (unsigned char)group;
        return rc;
}

/* The experts of a grouped product. */
static int read_experts(struct reader *r, struct place where, const json_t *object, struct kernel *kernel)
{
        int64_t experts = 0;
        int rc = RV_OK;
        if (kernel_descriptor(kernel->kind)->split == SPLIT_EXPERTS)
                rc = read_int(r, where, object, "experts", 1, SHRT_MAX, &experts);
        kernel->experts = (short)experts;
        return rc;
}

/* The fourth width of a kind that has one. */
static int read_width(struct reader *r, struct place where, const json_t *object, struct kernel *kernel)
{
        const struct kernel_descriptor *of = kernel_descriptor(kernel->kind);
        bool has = false;
        for (int i = 0; i < KERNEL_OPERANDS; i++)
                has = has || of->operands[i].extent == EXTENT_ROWS_L;
        kernel->l = 0;
        return has ? read_int(r, where, object, "l", 1, INT64_MAX, &kernel->l) : RV_OK;
}

static int read_kernel_point(struct reader *r, struct place where, const json_t *object,
                             struct kernel_point *point)
{
        struct kernel *kernel = &point->kernel;
        int64_t samples;
        int rc = RV_OK;
        if ((rc = read_int(r, where, object, "m", 1, INT64_MAX, &kernel->m)) == RV_OK &&
            (rc = read_int(r, where, object, "n", 0, INT64_MAX, &kernel->n)) == RV_OK &&
            (rc = read_int(r, where, object, "k", 0, INT64_MAX, &kernel->k)) == RV_OK &&
            (rc = read_int(r, where, object, "batch", 1, INT64_MAX, &kernel->batch)) == RV_OK &&
            (rc = read_group(r, where, object, kernel)) == RV_OK &&
            (rc = read_experts(r, where, object, kernel)) == RV_OK &&
            (rc = read_width(r, where, object, kernel)) == RV_OK &&
            (rc = read_flag(r, where, object, "transpose_a", &kernel->transpose_a)) == RV_OK &&
            (rc = read_flag(r, where, object, "transpose_b", &kernel->transpose_b)) == RV_OK &&
            (rc = read_flag(r, where, object, "accumulate", &kernel->accumulate)) == RV_OK &&
            (rc = read_flag(r, where, object, "wide", &kernel->wide)) == RV_OK &&
            (rc = read_seconds(r, where, object, "seconds", DBL_MIN, &point->seconds)) == RV_OK &&
            (rc = read_real(r, where, object, "p10", 0, &point->p10)) == RV_OK &&
            (rc = read_real(r, where, object, "p90", 0, &point->p90)) == RV_OK &&
            (rc = read_int(r, where, object, "samples", 1, INT32_MAX, &samples)) == RV_OK)
                point->samples = (int)samples;
        return rc == RV_OK ? read_error(r, where, object, &point->error) : rc;
}

/* Whether kernels of a kind may have a format of their own. */
static bool has_formats(enum kernel_kind kind)
{
        return kernel_descriptor(kind)->products == 1 || kind == KERNEL_QUANTIZE ||
               kind == KERNEL_TRANSPOSE_QUANTIZED;
}

/* A kernel in such a format; those of their own are of tensors in bf16. */
static struct kernel in_format(struct kernel kernel, int format)
{
        kernel.dtype = (unsigned char)(format < DTYPES ? format : DTYPE_BF16);
        kernel.format = (unsigned char)(format < DTYPES ? FORMAT_STORED : format - (DTYPES - 1));
        return kernel;
}

static int format_of(const struct kernel *kernel)
{
        return profile_format((enum dtype)kernel->dtype, (enum product_format)kernel->format);
}

/* All of one kernel: its model, and points that are added to the load's. */
static int read_kernel(struct reader *r, struct place where, const char *name, const json_t *entry,
                       struct profile_load *load)
{
        int format;
        json_t *array, *item;
        size_t i;
        int kind = kernel_of_name(name, &format), rc;
        if (kind < 0)
                return rv_fail(r->err, RV_EINPUT, "%s: %s: there is no kernel of that name", r->path,
                               where.text);
        if (format >= DTYPES && !has_formats((enum kernel_kind)kind))
                return rv_fail(
                        r->err, RV_EINPUT,
                        "%s: %s: only products, and what makes copies for them, have a format of their "
                        "own",
                        r->path, where.text);
        if (format == DTYPE_FP32 && kernel_descriptor((enum kernel_kind)kind)->only_mixed)
                return rv_fail(r->err, RV_EINPUT,
                               "%s: %s: this kernel works on half precision only, its name is \"%s%s\" or "
                               "\"%s%s\"",
                               r->path, where.text, name, suffixes[DTYPE_FP16], name, suffixes[DTYPE_BF16]);
        if (!json_is_object(entry))
                return rv_fail(r->err, RV_EINPUT, "%s: %s: must be an object with \"model\", \"points\"",
                               r->path, where.text);
        if ((rc = read_model(r, where, entry, &load->models[format][kind])) != RV_OK ||
            (rc = read_array(r, where, entry, "points", &array)) != RV_OK)
                return rc;
        json_array_foreach(array, i, item)
        {
                struct kernel_point *point = &load->points[load->point_count++];
                point->kernel = in_format((struct kernel){.kind = (enum kernel_kind)kind}, format);
                rc = read_kernel_point(r, place("%.120s.points[%zu]", where.text, i), item, point);
                if (rc != RV_OK)
                        return rc;
        }
        return RV_OK;
}

/* In a profile that nobody measured, which may be older than a kind: whose model a kind without one has. Both
 * move their bytes, or are bound by products. */
static void lend_models(struct profile_load *load)
{
        static const struct {
                enum kernel_kind kind, like;
        } lent[] = {{KERNEL_ROUTE, KERNEL_SWIGLU},
                    {KERNEL_ROUTE_BACKWARD, KERNEL_SWIGLU},
                    {KERNEL_PERMUTE, KERNEL_SWIGLU},
                    {KERNEL_UNPERMUTE, KERNEL_SWIGLU},
                    {KERNEL_EXPERT_ENDS, KERNEL_SWIGLU},
                    {KERNEL_SPLIT_COLUMNS, KERNEL_SWIGLU},
                    {KERNEL_JOIN_COLUMNS, KERNEL_SWIGLU},
                    {KERNEL_NARROW, KERNEL_SWIGLU},
                    {KERNEL_WIDEN, KERNEL_SWIGLU},
                    {KERNEL_LAST_COLUMNS, KERNEL_SWIGLU},
                    {KERNEL_SET_LAST_COLUMNS, KERNEL_SWIGLU},
                    {KERNEL_LATENT_QKV, KERNEL_SWIGLU},
                    {KERNEL_LATENT_QKV_BACKWARD, KERNEL_SWIGLU},
                    {KERNEL_WEIGHTED_SWIGLU, KERNEL_SWIGLU},
                    {KERNEL_WEIGHTED_SWIGLU_BACKWARD, KERNEL_SWIGLU_BACKWARD},
                    {KERNEL_SQUARED_RELU, KERNEL_SWIGLU},
                    {KERNEL_SQUARED_RELU_BACKWARD, KERNEL_GELU_BACKWARD},
                    {KERNEL_GROUPED_MATMUL, KERNEL_MATMUL},
                    {KERNEL_GROUPED_MATMUL_BACKWARD, KERNEL_MATMUL}};
        for (enum dtype dtype = DTYPE_FP32; dtype < DTYPES; dtype++)
                for (size_t i = 0; i < sizeof lent / sizeof *lent; i++) {
                        struct kernel_model *models = load->models[dtype];
                        if (!models[lent[i].kind].present)
                                models[lent[i].kind] = models[lent[i].like];
                }
}

static int read_kernels(struct reader *r, struct place where, const json_t *kernels,
                        struct profile_load *load)
{
        const char *name;
        json_t *entry;
        size_t total = 0;
        json_object_foreach((json_t *)kernels, name, entry) total +=
                json_array_size(json_object_get(entry, "points"));
        load->points = calloc(total + 1, sizeof *load->points);
        if (!load->points)
                return rv_fail(r->err, RV_ESYSTEM, "%s: no memory for %zu kernel points", r->path, total);
        json_object_foreach((json_t *)kernels, name, entry)
        {
                int rc = read_kernel(r, place("%.60s.kernels.%.40s", where.text, name), name, entry, load);
                if (rc != RV_OK)
                        return rc;
        }
        return RV_OK;
}

static int by_bytes(const void *a, const void *b)
{
        int64_t x = ((const struct line_point *)a)->bytes, y = ((const struct line_point *)b)->bytes;
        return (x > y) - (x < y);
}

static int read_line_points(struct reader *r, struct place where, const json_t *array,
                            struct profile_curve *curve)
{
        json_t *item;
        size_t i;
        curve->points = calloc(json_array_size(array) + 1, sizeof *curve->points);
        if (!curve->points)
                return rv_fail(r->err, RV_ESYSTEM, "%s: no memory for the points of %s", r->path, where.text);
        json_array_foreach((json_t *)array, i, item)
        {
                struct place here = place("%.120s.points[%zu]", where.text, i);
                struct line_point *point = &curve->points[curve->count++];
                int rc;
                if ((rc = read_int(r, here, item, "bytes", 1, INT64_MAX, &point->bytes)) != RV_OK ||
                    (rc = read_seconds(r, here, item, "seconds", DBL_MIN, &point->seconds)) != RV_OK ||
                    (rc = read_error(r, here, item, &point->error)) != RV_OK)
                        return rc;
        }
        qsort(curve->points, (size_t)curve->count, sizeof *curve->points, by_bytes);
        for (int j = 1; j < curve->count; j++)
                if (curve->points[j].bytes == curve->points[j - 1].bytes)
                        return rv_fail(r->err, RV_EINPUT, "%s: %s: two points are of %lld bytes", r->path,
                                       where.text, (long long)curve->points[j].bytes);
        return RV_OK;
}

static int read_line(struct reader *r, struct place where, const json_t *entry, struct profile_curve *curve)
{
        json_t *array;
        if (!json_is_object(entry))
                return rv_fail(r->err, RV_EINPUT, "%s: %s: must be an object with \"fit\", \"points\"",
                               r->path, where.text);
        int rc = read_line_fit(r, where, entry, &curve->fit);
        if (rc == RV_OK && !curve->fit.present)
                rc = rv_fail(r->err, RV_EINPUT, "%s: %s: needs \"fit\", an object", r->path, where.text);
        if (rc == RV_OK)
                rc = read_array(r, where, entry, "points", &array);
        return rc == RV_OK ? read_line_points(r, where, array, curve) : rc;
}

/* What takes time by its bytes; all of it may be left out. */
static int read_lines(struct reader *r, struct place where, const json_t *object, struct profile_load *load)
{
        const char *name;
        json_t *lines = json_object_get(object, "lines"), *entry;
        if (lines && !json_is_object(lines))
                return rv_fail(r->err, RV_EINPUT, "%s: %s: \"lines\" must be an object", r->path, where.text);
        json_object_foreach(lines, name, entry)
        {
                struct place here = place("%.60s.lines.%.40s", where.text, name);
                int line = 0;
                while (line < PROFILE_LINES && strcmp(name, line_names[line]) != 0)
                        line++;
                if (line == PROFILE_LINES)
                        return rv_fail(r->err, RV_EINPUT, "%s: %s: there is no line of that name", r->path,
                                       here.text);
                int rc = read_line(r, here, entry, &load->lines[line]);
                if (rc != RV_OK)
                        return rc;
        }
        return RV_OK;
}

static int read_table(struct reader *r, struct place where, const char *name, const json_t *entry,
                      struct profile_tables *tables)
{
        struct profile_table table;
        int format;
        const int kind = kernel_of_name(name, &format);
        if (kind < 0 || tables_kind((enum kernel_kind)kind) != kind)
                return rv_fail(
                        r->err, RV_EINPUT,
                        "%s: %s: tables are of \"matmul\", \"grouped_matmul\" and \"attention\" with \"\", "
                        "\"_half\", \"_bf16\", \"_fp8\" or \"_nvfp4\" behind",
                        r->path, where.text);
        const struct kernel like = in_format((struct kernel){.kind = (enum kernel_kind)kind}, format);
        table.kind = like.kind;
        table.dtype = (enum dtype)like.dtype;
        table.format = (enum product_format)like.format;
        int rc = surface_read(&table.surface, entry, tables_form(table.kind), r->path, where.text, r->err);
        if (rc == RV_OK && !tables_add(tables, &table)) {
                surface_free(&table.surface);
                rc = rv_fail(r->err, RV_ESYSTEM, "%s: no memory for %s", r->path, where.text);
        }
        return rc;
}

/* What was measured of many shapes; all of it may be left out. */
static int read_tables(struct reader *r, struct place where, const json_t *object, struct profile_load *load)
{
        const char *name;
        json_t *tables, *entry;
        int rc = find_object(r, where, object, "tables", &tables);
        if (rc == RV_OK && json_object_get(object, "sustained_rate"))
                rc = read_real(r, where, object, "sustained_rate", DBL_MIN, &load->tables.sustained);
        if (rc != RV_OK)
                return rc;
        json_object_foreach(tables, name, entry)
        {
                rc = read_table(r, place("%.60s.tables.%.40s", where.text, name), name, entry, &load->tables);
                if (rc != RV_OK)
                        return rc;
        }
        return RV_OK;
}

/* What launches cost, which may be left out. */
static int read_launch(struct reader *r, struct place where, const json_t *load, const char *key,
                       struct profile_launch *launch)
{
        const json_t *found = json_object_get(load, key);
        if (!found)
                return RV_OK;
        if (!json_is_object(found))
                return rv_fail(r->err, RV_EINPUT,
                               "%s: %s: \"%s\" must be an object with \"host_seconds\", \"lane_seconds\"",
                               r->path, where.text, key);
        where = place("%.120s.%s", where.text, key);
        int rc = read_seconds(r, where, found, "host_seconds", 0, &launch->host_seconds);
        return rc == RV_OK ? read_seconds(r, where, found, "lane_seconds", 0, &launch->lane_seconds) : rc;
}

static int read_load(struct reader *r, struct place where, const json_t *object, struct profile_load *load)
{
        static const char *const known[] = {
                "ranks",  "op_overhead_seconds", "error", "launch", "graph", "kernels", "lines",
                "tables", "sustained_rate"};
        int64_t ranks = 0;
        int rc = file_check_keys(r->path, where.text, object, known, sizeof known / sizeof *known, r->err);
        if (rc != RV_OK || (rc = read_int(r, where, object, "ranks", 1, INT32_MAX, &ranks)) != RV_OK ||
            (rc = read_seconds(r, where, object, "op_overhead_seconds", 0, &load->op_overhead_seconds)) !=
                    RV_OK ||
            (rc = read_error(r, where, object, &load->error)) != RV_OK ||
            (rc = read_launch(r, where, object, "launch", &load->launch)) != RV_OK ||
            (rc = read_launch(r, where, object, "graph", &load->graph)) != RV_OK)
                return rc;
        load->ranks = (int)ranks;
        const json_t *kernels = json_object_get(object, "kernels");
        if (!json_is_object(kernels))
                return rv_fail(r->err, RV_EINPUT,
                               "%s: %s: needs \"kernels\", an object with an entry a kernel", r->path,
                               where.text);
        rc = read_kernels(r, where, kernels, load);
        if (rc == RV_OK)
                rc = read_tables(r, where, object, load);
        return rc == RV_OK ? read_lines(r, where, object, load) : rc;
}

static int read_loads(struct reader *r, const json_t *document, struct profile *profile)
{
        const json_t *loads = json_object_get(document, "loads");
        size_t i;
        json_t *item;
        if (!json_is_array(loads) || json_array_size(loads) == 0)
                return rv_fail(r->err, RV_EINPUT, "%s: needs \"loads\", an array of at least one load",
                               r->path);
        profile->loads = calloc(json_array_size(loads), sizeof *profile->loads);
        if (!profile->loads)
                return rv_fail(r->err, RV_ESYSTEM, "%s: no memory for %zu loads", r->path,
                               json_array_size(loads));
        json_array_foreach((json_t *)loads, i, item)
        {
                struct profile_load *load = &profile->loads[i];
                profile->load_count++;
                int rc = read_load(r, place("loads[%zu]", i), item, load);
                if (rc != RV_OK)
                        return rc;
                if (!profile->measured)
                        lend_models(load);
                for (size_t j = 0; j < i; j++)
                        if (profile->loads[j].ranks == load->ranks)
                                return rv_fail(r->err, RV_EINPUT,
                                               "%s: loads[%zu] and loads[%zu] are both for %d ranks", r->path,
                                               j, i, load->ranks);
        }
        return RV_OK;
}

static int read_text(struct reader *r, const json_t *document, const char *key, char *text, size_t text_size)
{
        const char *found = json_string_value(json_object_get(document, key));
        if (!found || !*found)
                return rv_fail(r->err, RV_EINPUT, "%s: needs \"%s\", a text", r->path, key);
        snprintf(text, text_size, "%s", found);
        return RV_OK;
}

/* A name alone, or an object with what the device says of itself; all of it but the name may be left out. */
static int read_device(struct reader *r, const json_t *document, struct profile_device *device)
{
        const json_t *found = json_object_get(document, "device");
        const struct place where = place("device");
        const char *driver = json_string_value(json_object_get(found, "driver"));
        int64_t processors = 0;
        int rc;
        if (!json_is_object(found))
                return read_text(r, document, "device", device->name, sizeof device->name);
        snprintf(device->driver, sizeof device->driver, "%s", driver ? driver : "");
        if ((rc = read_text(r, found, "name", device->name, sizeof device->name)) == RV_OK &&
            json_object_get(found, "processors"))
                rc = read_int(r, where, found, "processors", 0, INT32_MAX, &processors);
        if (rc == RV_OK && json_object_get(found, "clock_hertz"))
                rc = read_real(r, where, found, "clock_hertz", 0, &device->clock_hertz);
        if (rc == RV_OK && json_object_get(found, "memory_clock_hertz"))
                rc = read_real(r, where, found, "memory_clock_hertz", 0, &device->memory_clock_hertz);
        if (rc == RV_OK && json_object_get(found, "overhead_bytes"))
                rc = read_int(r, where, found, "overhead_bytes", 0, INT64_MAX, &device->overhead_bytes);
        device->processors = (int)processors;
        return rc;
}

/* A number, or an object with one for each precision; the first is then that of what is not named. */
static int read_peaks(struct reader *r, const json_t *document, struct profile *profile)
{
        const struct place where = place("peak_flops_per_second");
        json_t *found = json_object_get(document, "peak_flops_per_second"), *value;
        const char *name;
        int rc = RV_OK;
        if (!json_is_object(found))
                return read_real(r, place("the profile"), document, "peak_flops_per_second", 0,
                                 &profile->peak_flops_per_second);
        json_object_foreach(found, name, value)
        {
                enum dtype dtype;
                enum product_format format;
                if (!precision_of_name(name, &dtype, &format))
                        return rv_fail(r->err, RV_EINPUT,
                                       "%s: %s: \"%.40s\" is none of fp32, mixed, bf16, fp8 and nvfp4",
                                       r->path, where.text, name);
                double *peak = &profile->peaks[profile_format(dtype, format)];
                if ((rc = read_real(r, where, found, name, DBL_MIN, peak)) != RV_OK)
                        return rc;
                if (profile->peak_flops_per_second == 0)
                        profile->peak_flops_per_second = *peak;
        }
        return rc;
}

static json_t *peaks_json(const struct profile *profile)
{
        json_t *peaks = json_object();
        for (int format = 0; format < PROFILE_FORMATS; format++)
                if (profile->peaks[format] > 0) {
                        const struct kernel of = in_format((struct kernel){.kind = KERNEL_MATMUL}, format);
                        json_object_set_new(
                                peaks, precision_name((enum dtype)of.dtype, (enum product_format)of.format),
                                json_real(profile->peaks[format]));
                }
        if (json_object_size(peaks) > 0)
                return peaks;
        json_decref(peaks);
        return json_real(profile->peak_flops_per_second);
}

/* What --logits auto is. */
static int read_logits(struct reader *r, const json_t *document, struct profile *profile)
{
        const json_t *found = json_object_get(document, "logits");
        const char *text = json_string_value(found);
        profile->whole_logits = text && strcmp(text, "all") == 0;
        if (found && !profile->whole_logits)
                return rv_fail(
                        r->err, RV_EINPUT,
                        "%s: \"logits\" must be \"all\" or left out: whether --logits auto makes those "
                        "of a micro-batch at once, as where the profile was measured",
                        r->path);
        return RV_OK;
}

/* What --fusion auto is; without it, as the kernels are. */
static int read_fusion(struct reader *r, const json_t *document, struct profile *profile)
{
        const json_t *found = json_object_get(document, "fusion");
        const char *text = json_string_value(found);
        profile->unfused = text && strcmp(text, "off") == 0;
        if (found && !profile->unfused)
                return rv_fail(r->err, RV_EINPUT,
                               "%s: \"fusion\" must be \"off\" or left out: whether --fusion auto leaves the "
                               "profile's fused kernels alone",
                               r->path);
        return RV_OK;
}

/* An object that is kept as it is, and may be left out. */
static int read_kept(struct reader *r, const json_t *document, const char *key, json_t **kept)
{
        json_t *found = json_object_get(document, key);
        if (found && !json_is_object(found))
                return rv_fail(r->err, RV_EINPUT, "%s: \"%s\" must be an object", r->path, key);
        *kept = json_incref(found);
        return RV_OK;
}

static int read_warnings(struct reader *r, const json_t *document, struct profile *profile)
{
        json_t *found = json_object_get(document, "warnings"), *text;
        size_t i;
        bool sound = !found || json_is_array(found);
        json_array_foreach(found, i, text) sound = sound && json_is_string(text);
        if (!sound)
                return rv_fail(r->err, RV_EINPUT, "%s: \"warnings\" must be an array of texts", r->path);
        profile->warnings = json_incref(found);
        return RV_OK;
}

static int read_profile(struct reader *r, const json_t *document, struct profile *profile)
{
        static const char *const known[] = {"ranvier",
                                            "kind",
                                            "device",
                                            "source",
                                            "sources",
                                            "measured",
                                            "machine",
                                            "fitted_on",
                                            "products",
                                            "fusion",
                                            "logits",
                                            "warnings",
                                            "peak_flops_per_second",
                                            "device_memory_bytes",
                                            "host_link_bytes_per_second",
                                            "waiting",
                                            "loads"};
        struct place top = place("the profile");
        const char *kind = json_string_value(json_object_get(document, "kind"));
        int rc;
        if (!json_is_string(json_object_get(document, "ranvier")) || !kind || strcmp(kind, "profile") != 0)
                return rv_fail(
                        r->err, RV_EINPUT,
                        "%s: is not a profile of ranvier calibrate, which has \"ranvier\": a version and "
                        "\"kind\": \"profile\"%s%.64s%s",
                        r->path, kind ? "; this one's kind is \"" : "", kind ? kind : "", kind ? "\"" : "");
        /* Written before there was a second precision: kernels of one, and lines of other names. */
        if (json_object_get(document, "element_bytes"))
                return rv_fail(r->err, RV_EINPUT,
                               "%s: is a profile in the format of before mixed precision, with one "
                               "\"element_bytes\" for all kernels; measure it again with ranvier calibrate",
                               r->path);
        if ((rc = file_check_keys(r->path, "a profile", document, known, sizeof known / sizeof *known,
                                  r->err)) != RV_OK)
                return rc;
        if (!json_is_boolean(json_object_get(document, "measured")))
                return rv_fail(r->err, RV_EINPUT, "%s: needs \"measured\", true or false", r->path);
        profile->measured = json_is_true(json_object_get(document, "measured"));
        if ((rc = read_device(r, document, &profile->device)) == RV_OK &&
            (rc = read_text(r, document, "source", profile->source, sizeof profile->source)) == RV_OK &&
            (rc = read_kept(r, document, "machine", &profile->machine)) == RV_OK &&
            (rc = read_kept(r, document, "sources", &profile->sources)) == RV_OK &&
            (rc = read_kept(r, document, "fitted_on", &profile->fitted_on)) == RV_OK &&
            (rc = read_kept(r, document, "products", &profile->products)) == RV_OK &&
            (rc = read_peaks(r, document, profile)) == RV_OK &&
            (rc = read_fusion(r, document, profile)) == RV_OK &&
            (rc = read_logits(r, document, profile)) == RV_OK &&
            (rc = read_warnings(r, document, profile)) == RV_OK &&
            (rc = read_int(r, top, document, "device_memory_bytes", 0, INT64_MAX,
                           &profile->device_memory_bytes)) == RV_OK &&
            (!json_object_get(document, "host_link_bytes_per_second") ||
             (rc = read_real(r, top, document, "host_link_bytes_per_second", 0,
                             &profile->host_link_bytes_per_second)) == RV_OK) &&
            (!json_object_get(document, "waiting") ||
             (rc = read_real(r, top, document, "waiting", 0, &profile->waiting)) == RV_OK))
                rc = read_loads(r, document, profile);
        for (int i = 0; rc == RV_OK && i < profile->load_count; i++)
                for (enum dtype dtype = DTYPE_FP16; dtype < DTYPES; dtype++)
                        profile->loads[i].lent[dtype] =
                                strcmp(profile->device.name, "cpu") != 0 &&
                                !json_object_get(profile->sources, dtype_precision(dtype));
        return rc;
}

/* A preset's name if there is such a preset and the text is no path; else the path itself. */
static int profile_path(char *path, size_t path_size, const char *name_or_path, struct rv_error_info *err)
{
        char names[512], near[FILE_NEAREST];
        if (!strchr(name_or_path, '/') && file_find(path, path_size, PRESETS, name_or_path, ".json") == RV_OK)
                return RV_OK;
        FILE *stream = fopen(name_or_path, "r");
        if (!stream) {
                file_list(names, sizeof names, PRESETS, ".json");
                return rv_fail(err, RV_EINPUT,
                               "profile \"%.128s\" is neither a file that can be read nor a preset (%.256s); "
                               "\"ranvier "
                               "calibrate --out FILE\" measures one%s",
                               name_or_path, *names ? names : "there are none",
                               file_nearest(near, PRESETS, name_or_path, ".json"));
        }
        fclose(stream);
        if (strlen(name_or_path) >= path_size)
                return rv_fail(err, RV_EINPUT, "profile \"%.64s...\": the path is longer than %zu characters",
                               name_or_path, path_size - 1);
        memcpy(path, name_or_path, strlen(name_or_path) + 1);
        return RV_OK;
}

int profile_load(struct profile *profile, const char *name_or_path, struct rv_error_info *err)
{
        memset(profile, 0, sizeof *profile);
        int rc = profile_path(profile->path, sizeof profile->path, name_or_path, err);
        if (rc != RV_OK)
                return rc;
        json_t *document = file_read_json(profile->path, err);
        if (!document)
                return RV_EINPUT;
        struct reader reader = {profile->path, err};
        rc = read_profile(&reader, document, profile);
        json_decref(document);
        if (rc != RV_OK)
                profile_free(profile);
        return rc;
}

void profile_load_free(struct profile_load *load)
{
        free(load->points);
        tables_free(&load->tables);
        for (int line = 0; line < PROFILE_LINES; line++)
                free(load->lines[line].points);
        memset(load, 0, sizeof *load);
}

void profile_free(struct profile *profile)
{
        for (int i = 0; i < profile->load_count; i++)
                profile_load_free(&profile->loads[i]);
        free(profile->loads);
        json_decref(profile->machine);
        json_decref(profile->sources);
        json_decref(profile->fitted_on);
        json_decref(profile->products);
        json_decref(profile->warnings);
        memset(profile, 0, sizeof *profile);
}

const char *profile_caution(const struct profile *profile)
{
        const bool said = strstr(profile->source, "NOT measured") || strstr(profile->source, "not measured");
        return profile->measured || said ? "" : "NOT measured; ";
}

/* ---- writing ---- */

static void set_quality(json_t *object, const struct fit_quality *quality)
{
        struct fit_quality copy = *quality;
        if (quality->points == 0)
                return;
        json_object_set_new(object, "points", json_integer(quality->points));
        for (int i = 0; i < QUALITIES; i++)
                json_object_set_new(object, qualities[i].name, json_real(*quality_at(&copy, i)));
}

static json_t *model_json(const struct kernel_model *model)
{
        struct kernel_model copy = *model;
        json_t *object = json_object();
        for (int i = 0; i < MODEL_PARAMETERS; i++) {
                const struct model_parameter *parameter = &model_parameters[i];
                const double value = *model_at(&copy, parameter);
                if (value > 0)
                        json_object_set_new(object, parameter->name,
                                            parameter->whole ? json_integer((json_int_t)value)
                                                             : json_real(value));
        }
        set_quality(object, &model->quality);
        return object;
}

static void set_error(json_t *object, double error)
{
        if (error > 0)
                json_object_set_new(object, "error", json_real(error));
}

static json_t *kernel_point_json(const struct kernel_point *point)
{
        const struct kernel *kernel = &point->kernel;
        json_t *object =
                json_pack("{s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:f, s:f, s:f, s:i}", "m",
                          (json_int_t)kernel->m, "n", (json_int_t)kernel->n, "k", (json_int_t)kernel->k,
                          "batch", (json_int_t)kernel->batch, "transpose_a", kernel->transpose_a,
                          "transpose_b", kernel->transpose_b, "accumulate", kernel->accumulate, "seconds",
                          point->seconds, "p10", point->p10, "p90", point->p90, "samples", point->samples);
        if (kernel_group(kernel) > 1)
                json_object_set_new(object, "group", json_integer(kernel_group(kernel)));
        if (kernel->wide)
                json_object_set_new(object, "wide", json_true());
        if (kernel->experts)
                json_object_set_new(object, "experts", json_integer(kernel->experts));
        if (kernel->l)
                json_object_set_new(object, "l", json_integer((json_int_t)kernel->l));
        set_error(object, point->error);
        return object;
}

/* A kernel's model and points; NULL if it has neither. */
static json_t *kernel_json(const struct profile_load *load, enum kernel_kind kind, int format)
{
        const struct kernel_model *model = &load->models[format][kind];
        json_t *points = json_array(), *entry = NULL;
        for (int i = 0; i < load->point_count; i++)
                if (load->points[i].kernel.kind == kind && format_of(&load->points[i].kernel) == format)
                        json_array_append_new(points, kernel_point_json(&load->points[i]));
        if (model->present || json_array_size(points) > 0) {
                entry = json_object();
                if (model->present)
                        json_object_set_new(entry, "model", model_json(model));
                json_object_set(entry, "points", points);
        }
        json_decref(points);
        return entry;
}

static json_t *kernels_json(const struct profile_load *load)
{
        json_t *kernels = json_object();
        for (int format = 0; format < PROFILE_FORMATS; format++) {
                for (int kind = 0; kind < KERNEL_KINDS; kind++) {
                        json_t *entry = kernel_json(load, (enum kernel_kind)kind, format);
                        char name[PROFILE_NAME];
                        profile_kernel_name(name, (enum kernel_kind)kind, format);
                        if (entry)
                                json_object_set_new(kernels, name, entry);
                }
        }
        return kernels;
}

static json_t *line_json(const struct profile_curve *curve)
{
        const struct line_fit *fit = &curve->fit;
        json_t *points = json_array();
        for (int i = 0; i < curve->count; i++) {
                const struct line_point *point = &curve->points[i];
                json_t *object =
                        json_pack("{s:I, s:f}", "bytes", (json_int_t)point->bytes, "seconds", point->seconds);
                set_error(object, point->error);
                json_array_append_new(points, object);
        }
        json_t *object = json_pack("{s:f, s:f}", "latency_seconds", fit->latency_seconds, "seconds_per_byte",
                                   fit->seconds_per_byte);
        set_error(object, fit->error);
        set_quality(object, &fit->quality);
        return json_pack("{s:o, s:o}", "fit", object, "points", points);
}

static void set_tables(json_t *load, const struct profile_tables *tables)
{
        json_t *object = json_object();
        for (int i = 0; i < tables->count; i++) {
                const struct profile_table *table = &tables->tables[i];
                char name[PROFILE_NAME];
                profile_kernel_name(name, table->kind, profile_format(table->dtype, table->format));
                json_object_set_new(object, name, surface_json(&table->surface));
        }
        if (tables->sustained > 0)
                json_object_set_new(load, "sustained_rate", json_real(tables->sustained));
        if (tables->count > 0)
                json_object_set(load, "tables", object);
        json_decref(object);
}

static void set_launch(json_t *load, const char *key, const struct profile_launch *launch)
{
        if (launch->host_seconds > 0)
                json_object_set_new(load, key,
                                    json_pack("{s:f, s:f}", "host_seconds", launch->host_seconds,
                                              "lane_seconds", launch->lane_seconds));
}

static json_t *load_json(const struct profile_load *load)
{
        json_t *lines = json_object(), *object;
        for (int line = 0; line < PROFILE_LINES; line++)
                if (load->lines[line].fit.present)
                        json_object_set_new(lines, line_names[line], line_json(&load->lines[line]));
        object = json_pack("{s:i, s:f, s:o, s:o}", "ranks", load->ranks, "op_overhead_seconds",
                           load->op_overhead_seconds, "kernels", kernels_json(load), "lines", lines);
        set_error(object, load->error);
        set_launch(object, "launch", &load->launch);
        set_launch(object, "graph", &load->graph);
        set_tables(object, &load->tables);
        return object;
}

static json_t *device_json(const struct profile_device *device)
{
        if (!device->driver[0])
                return json_string(device->name);
        return json_pack("{s:s, s:s, s:i, s:f, s:f, s:I}", "name", device->name, "driver", device->driver,
                         "processors", device->processors, "clock_hertz", device->clock_hertz,
                         "memory_clock_hertz", device->memory_clock_hertz, "overhead_bytes",
                         (json_int_t)device->overhead_bytes);
}

/* The caller's to free; NULL with a sentence. `path`: for the sentence. */
static json_t *profile_json(const struct profile *profile, const char *path, struct rv_error_info *err)
{
        json_t *document =
                json_pack("{s:s, s:s, s:o, s:b, s:s, s:o, s:I, s:f}", "ranvier", RANVIER_VERSION, "kind",
                          "profile", "device", device_json(&profile->device), "measured", profile->measured,
                          "source", profile->source, "peak_flops_per_second", peaks_json(profile),
                          "device_memory_bytes", (json_int_t)profile->device_memory_bytes,
                          "host_link_bytes_per_second", profile->host_link_bytes_per_second);
        if (!document) {
                rv_fail(err, RV_EINPUT, "%s: the device and source of a profile must be UTF-8", path);
                return NULL;
        }
        if (profile->unfused)
                json_object_set_new(document, "fusion", json_string("off"));
        if (profile->whole_logits)
                json_object_set_new(document, "logits", json_string("all"));
        if (profile->waiting > 0)
                json_object_set_new(document, "waiting", json_real(profile->waiting));
        if (profile->machine)
                json_object_set(document, "machine", profile->machine);
        if (profile->sources)
                json_object_set(document, "sources", profile->sources);
        if (profile->fitted_on)
                json_object_set(document, "fitted_on", profile->fitted_on);
        if (profile->products)
                json_object_set(document, "products", profile->products);
        if (profile->warnings)
                json_object_set(document, "warnings", profile->warnings);
        json_t *loads = json_array();
        for (int i = 0; i < profile->load_count; i++)
                json_array_append_new(loads, load_json(&profile->loads[i]));
        json_object_set_new(document, "loads", loads);
        return document;
}

int profile_save(const struct profile *profile, const char *path, bool print, struct rv_error_info *err)
{
        json_t *document = profile_json(profile, path, err);
        int rc = document ? file_write_json(path, document, err) : (int)err->code;
        if (rc == RV_OK && print)
                rc = file_print_json(document, err);
        json_decref(document);
        return rc;
}

static void add_warning(struct profile *profile, json_t *sentence)
{
        if (!profile->warnings)
                profile->warnings = json_array();
        json_array_append_new(profile->warnings, sentence);
}

bool profile_warn(struct profile *profile, const struct profile_load *load, double min, double max)
{
        static const double SUM_OFF = 0.05, LARGE_ERROR = 0.15;
        const bool off = min < 1 - SUM_OFF || max > 1 + SUM_OFF, large = load->error > LARGE_ERROR;
        char what[160] = "";
        if (off)
                snprintf(what, sizeof what,
                         "kernels add up to %.1f to %.1f %% of the passes they were timed in", 100 * min,
                         100 * max);
        if (large)
                snprintf(what + strlen(what), sizeof what - strlen(what), "%sthe standard error is %.1f %%",
                         off ? " and " : "", 100 * load->error);
        if (!off && !large)
                return false;
        add_warning(profile,
                    json_sprintf("with %d rank%s at work %s: something else was running on this machine; "
                                 "measure again when it is idle",
                                 load->ranks, rv_plural(load->ranks), what));
        return true;
}

void profile_warn_of_company(struct profile *profile, const struct profile_load *load, double disturbed)
{
        add_warning(
                profile,
                json_sprintf(
                        "with %d rank%s at work something else was running on this machine: %.1f %% of the "
                        "kernels' samples were disturbed by it, and left out",
                        load->ranks, rv_plural(load->ranks), 100 * disturbed));
}

/* ---- asking ---- */

const char *profile_date(const struct profile *profile, char text[16])
{
        const char *date = json_string_value(json_object_get(profile->machine, "date"));
        snprintf(text, 16, "%.10s", date ? date : "");
        return text;
}

const struct profile_load *profile_load_for(const struct profile *profile, int ranks_per_node)
{
        const struct profile_load *best = NULL;
        for (int i = 0; i < profile->load_count; i++) {
                const struct profile_load *load = &profile->loads[i];
                int distance = abs(load->ranks - ranks_per_node);
                int best_distance = best ? abs(best->ranks - ranks_per_node) : 0;
                /* Between two that are equally near, the busier one: a prediction errs on the slow side. */
                if (!best || distance < best_distance ||
                    (distance == best_distance && load->ranks > best->ranks))
                        best = load;
        }
        return best;
}

double profile_line_seconds(const struct profile_load *load, enum profile_line line, int64_t bytes,
                            bool fits_only)
{
        const struct profile_curve *curve = &load->lines[line];
        const struct line_point *p = curve->points;
        if (!curve->fit.present)
                return NAN;
        int above = 0;
        while (above < curve->count && p[above].bytes < bytes)
                above++;
        if (!fits_only && above < curve->count && p[above].bytes == bytes)
                return p[above].seconds;
        if (fits_only || above == 0 || above == curve->count)
                return curve->fit.latency_seconds + (double)bytes * curve->fit.seconds_per_byte;
        double part = (double)(bytes - p[above - 1].bytes) / (double)(p[above].bytes - p[above - 1].bytes);
        return p[above - 1].seconds + part * (p[above].seconds - p[above - 1].seconds);
}

double profile_line_error(const struct profile_load *load, enum profile_line line, int64_t bytes,
                          bool fits_only)
{
        const struct profile_curve *curve = &load->lines[line];
        const struct line_point *p = curve->points;
        int above = 0;
        while (above < curve->count && p[above].bytes < bytes)
                above++;
        if (!fits_only && above < curve->count && p[above].bytes == bytes)
                return p[above].error;
        if (fits_only || above == 0 || above == curve->count)
                return curve->fit.error;
        const bool known = p[above - 1].error > 0 && p[above].error > 0;
        return known ? fmax(p[above - 1].error, p[above].error) : 0;
}

int profile_no_line(const struct profile *profile, const struct profile_load *load, enum profile_line line,
                    struct rv_error_info *err)
{
        static const char *const options[PROFILE_LINES] = {
                [LINE_COPY] = "",
                [LINE_COPY_BACK] = "",
                [LINE_COPY_BOTH] = "",
                [LINE_COPY_BACK_BOTH] = "",
                [LINE_MESSAGE] = " --ranks 2 (or more)",
                [LINE_ALLREDUCE] = " --ranks 2 (or more)",
                [LINE_ALLREDUCE_FP16] = " --ranks 2 (or more) --precision fp32,mixed",
                [LINE_ALLREDUCE_BF16] = " --ranks 2 (or more) --precision fp32,bf16",
                [LINE_FETCH] = " --precision fp32,mixed --offload",
                [LINE_OFFLOADED_UPDATE] = " --precision fp32,mixed --offload",
                [LINE_WRITE_BACK] = " --precision fp32,mixed --offload",
                [LINE_LAYER_GATHER] = "",
                [LINE_SNAPSHOT] = "",
                [LINE_FILE] = "",
                [LINE_FILE_WORK] = "",
        };
        char cure[160];
        if (profile->measured)
                snprintf(cure, sizeof cure, "\"ranvier calibrate%s\" measures it", options[line]);
        else
                snprintf(cure, sizeof cure, "add \"%s\" with a \"fit\" to the \"lines\" of its loads",
                         line_names[line]);
        return rv_fail(
                err, RV_EINPUT,
                "profile %.160s has no line \"%s\" under a load of %d rank%s, which this plan needs; %s",
                profile->path, line_names[line], load->ranks, rv_plural(load->ranks), cure);
}

/* The other 16-bit dtype, where what is known of that holds for this one; else this one. */
static enum dtype lent_by(const struct profile_load *load, enum dtype dtype)
{
        return load->lent[dtype] ? dtype_twin(dtype) : dtype;
}

static bool has_fused(const struct profile_load *load, enum dtype dtype)
{
        for (int i = 0; i < load->point_count; i++)
                if (load->points[i].kernel.kind == KERNEL_ATTENTION && load->points[i].kernel.dtype == dtype)
                        return true;
        const struct kernel attention = {.kind = KERNEL_ATTENTION, .dtype = (unsigned char)dtype};
        return load->models[dtype][KERNEL_ATTENTION].present || tables_find(&load->tables, &attention);
}

bool profile_has_fused(const struct profile_load *load, enum dtype dtype)
{
        return has_fused(load, dtype) || has_fused(load, lent_by(load, dtype));
}

/* Whether the load has kernels in a precision, beside the products that are measured in any. */
static bool has_precision(const struct profile_load *load, enum dtype dtype)
{
        for (int kind = 0; kind < KERNEL_KINDS; kind++)
                if (kind != KERNEL_MATMUL && load->models[dtype][kind].present)
                        return true;
        for (int i = 0; i < load->point_count; i++)
                if (load->points[i].kernel.kind != KERNEL_MATMUL &&
                    format_of(&load->points[i].kernel) == (int)dtype)
                        return true;
        return false;
}

bool profile_has_precision(const struct profile *profile, enum dtype dtype)
{
        for (int i = 0; i < profile->load_count; i++)
                if (has_precision(&profile->loads[i], dtype))
                        return true;
        return false;
}

static bool has_any_precision(const struct profile_load *load)
{
        for (enum dtype dtype = DTYPE_FP32; dtype < DTYPES; dtype++)
                if (has_precision(load, dtype))
                        return true;
        return false;
}

/* Names the precisions that the load has, and `too`, with `between` them; returns how many. */
static int write_precisions(const struct profile_load *load, int too, const char *between, char *text,
                            size_t size)
{
        int count = 0;
        text[0] = 0;
        for (enum dtype dtype = DTYPE_FP32; dtype < DTYPES; dtype++)
                if (has_precision(load, dtype) || (int)dtype == too)
                        snprintf(text + strlen(text), size - strlen(text), "%s%s", count++ ? between : "",
                                 dtype_precision(dtype));
        return count;
}

/* What a written profile says of what it has not, under a name among its sources; NULL: nothing. */
static const char *source_of(const struct profile *profile, const char *name)
{
        return json_string_value(json_object_get(profile->sources, name));
}

static int no_such_precision(const struct profile *profile, const struct profile_load *load, enum dtype dtype,
                             struct rv_error_info *err)
{
        char there[64], all[64];
        write_precisions(load, -1, " or ", there, sizeof there);
        int count = write_precisions(load, (int)dtype, ",", all, sizeof all);
        const char *why = source_of(profile, dtype_precision(dtype));
        if (!profile->measured)
                return rv_fail(
                        err, RV_EINPUT,
                        "profile %.160s has kernels of --precision %s only, this plan is of --precision "
                        "%s%s%.200s: take --precision %s, or a profile that has the other",
                        profile->path, there, dtype_precision(dtype), why ? "; " : "", why ? why : "", there);
        return rv_fail(err, RV_EINPUT,
                       "profile %.160s has kernels of --precision %s only, this plan is of --precision %s: "
                       "take --precision %s, or measure %s with ranvier calibrate --precision %s",
                       profile->path, there, dtype_precision(dtype), there, count == 2 ? "both" : "all", all);
}

static int no_fused_kernels(const struct profile *profile, enum dtype dtype, struct rv_error_info *err)
{
        const char *why = source_of(profile, "fusion");
        if (!profile->measured)
                return rv_fail(
                        err, RV_EINPUT,
                        "profile %.160s has no fused kernels (such as attention) in --precision %s, which "
                        "--fusion on needs, and a Llama in any plan%s%.200s: take --fusion off, or another "
                        "profile",
                        profile->path, dtype_precision(dtype), why ? "; " : "", why ? why : "");
        return rv_fail(
                err, RV_EINPUT,
                "profile %.160s has no fused kernels (such as attention) in --precision %s, which "
                "--fusion on needs, and a Llama in any plan: leave that out, or measure them with ranvier "
                "calibrate --fusion on",
                profile->path, dtype_precision(dtype));
}

/* A measured kind may lack its model (one shape tells nothing of others), a written one has nothing but
 * models.
 */
static int no_such_kernel(const struct profile *profile, const struct profile_load *load,
                          const struct kernel *kernel, bool fits_only, struct rv_error_info *err)
{
        char name[PROFILE_NAME], cure[192], group[48] = "";
        const enum dtype dtype = (enum dtype)kernel->dtype;
        if (!has_precision(load, dtype) && !has_precision(load, lent_by(load, dtype)) &&
            has_any_precision(load))
                return no_such_precision(profile, load, dtype, err);
        if (kernel_descriptor(kernel->kind)->fused && !profile_has_fused(load, dtype))
                return no_fused_kernels(profile, dtype, err);
        profile_kernel_name(name, kernel->kind, format_of(kernel));
        if (kernel->format != FORMAT_STORED)
                snprintf(cure, sizeof cure, "take --precision bf16, or a profile that knows %s", name);
        else if (!profile->measured)
                snprintf(cure, sizeof cure, "add a \"model\" of \"%s\" to the \"kernels\" of its loads",
                         name);
        else if (fits_only)
                snprintf(cure, sizeof cure,
                         "measure more shapes of it (ranvier calibrate with more --model or "
                         "--micro-batch-size), "
                         "or leave out --fits-only");
        else
                snprintf(cure, sizeof cure,
                         "measure it: run ranvier calibrate again with this plan's --model, "
                         "--micro-batch-size, --seq-len, --pp, --tp, --precision and --fusion");
        if (kernel_group(kernel) > 1)
                snprintf(group, sizeof group, ", group %d", kernel_group(kernel));
        if (kernel->experts)
                snprintf(group, sizeof group, ", %d experts", kernel->experts);
        if (kernel->l)
                snprintf(group, sizeof group, ", l %lld", (long long)kernel->l);
        return rv_fail(err, RV_EINPUT,
                       "profile %.160s has no %s of kernel %s (batch %lld, m %lld, n %lld, k %lld%s) under a "
                       "load of %d rank%s; %s",
                       profile->path, fits_only ? "model" : "measurement or model", name,
                       (long long)kernel->batch, (long long)kernel->m, (long long)kernel->n,
                       (long long)kernel->k, group, load->ranks, rv_plural(load->ranks), cure);
}

/* The point of exactly this shape; NULL if there is none, or it is not to be used. */
static const struct kernel_point *point_of(const struct profile_load *load, const struct kernel *kernel,
                                           bool fits_only)
{
        for (int i = 0; i < load->point_count && !fits_only; i++)
                if (kernel_same(&load->points[i].kernel, kernel))
                        return &load->points[i];
        return NULL;
}

/* What a load says of one kernel, by a point or else a model of it. */
struct known {
        double seconds, error; /* relative; 0: not known */
        double median_error;   /* of the model's points; 0: not known, or not by a model */
        enum profile_source source;
};

/* A model by which a kernel that has none of its own is priced, of those that go with products in a format of
 * their own; NULL: there is none such. */
static const struct kernel_model *model_like(const struct profile_load *load, const struct kernel *kernel)
{
        const bool copies = kernel->kind == KERNEL_QUANTIZE || kernel->kind == KERNEL_MAXIMUM ||
                            kernel->kind == KERNEL_TRANSPOSE_QUANTIZED;
        const bool fused = kernel->format != FORMAT_STORED && kernel_descriptor(kernel->kind)->fused &&
                           kernel_descriptor(kernel->kind)->parts == 0;
        const struct kernel_model *stored = load->models[kernel->dtype];
        const struct kernel_model *model = copies && stored[kernel->kind].present ? &stored[kernel->kind]
                                           : copies                               ? &stored[KERNEL_SWIGLU]
                                           : fused ? &load->models[format_of(kernel)][KERNEL_MATMUL]
                                                   : NULL;
        return model && model->present ? model : NULL;
}

static bool is_known_as(const struct profile_load *load, const struct kernel *kernel, bool fits_only,
                        struct known *known)
{
        const struct kernel_point *point = point_of(load, kernel, fits_only);
        const struct kernel_model *own = &load->models[format_of(kernel)][kernel->kind],
                                  *model = own->present ? own : model_like(load, kernel);
        if (point) {
                *known = (struct known){point->seconds, point->error, 0, PROFILE_POINT};
                return true;
        }
        *known = (struct known){.source = PROFILE_TABLE};
        if (tables_price(&load->tables, kernel, &known->seconds, &known->error))
                return true;
        if (model)
                *known = (struct known){model_seconds(model, kernel), model->error,
                                        model->quality.median_error, PROFILE_MODEL};
        return model != NULL;
}

static bool is_known(const struct profile_load *load, const struct kernel *kernel, bool fits_only,
                     struct known *known)
{
        struct kernel lent = *kernel;
        lent.dtype = (unsigned char)lent_by(load, (enum dtype)kernel->dtype);
        return is_known_as(load, kernel, fits_only, known) || is_known_as(load, &lent, fits_only, known);
}

/* All of its parts' one after the other. Their errors are taken for one and the same, which is the worst. */
static bool parts_are_known(const struct profile_load *load, const struct kernel *kernel, bool fits_only,
                            struct known *sum)
{
        struct kernel parts[KERNEL_PARTS];
        const int count = kernel_parts(kernel, parts);
        double error_seconds = 0;
        bool errors = true;
        *sum = (struct known){.source = PROFILE_POINT};
        for (int i = 0; i < count; i++) {
                struct known part;
                if (!is_known(load, &parts[i], fits_only, &part))
                        return false;
                sum->seconds += part.seconds;
                error_seconds += part.seconds * part.error;
                errors = errors && part.error > 0;
                sum->median_error = fmax(sum->median_error, part.median_error);
                if (part.source > sum->source)
                        sum->source = part.source;
        }
        if (errors && sum->seconds > 0)
                sum->error = error_seconds / sum->seconds;
        return count > 0;
}

/* What only passes over memory in fp32, where fp32 was not measured: one in 16 bits of as many bytes. */
static bool halves_are_known(const struct profile_load *load, const struct kernel *kernel, bool fits_only,
                             struct known *known)
{
        const bool passes = kernel->kind == KERNEL_SQUARED_NORM || kernel->kind == KERNEL_CLEAR ||
                            kernel->kind == KERNEL_RESIDUAL || kernel->kind == KERNEL_NARROW;
        struct kernel halves = *kernel;
        bool found = false;
        halves.m *= 2;
        for (int dtype = DTYPE_FP16; passes && kernel->dtype == DTYPE_FP32 && !found && dtype <= DTYPE_BF16;
             dtype++) {
                halves.dtype = (unsigned char)dtype;
                found = is_known(load, &halves, fits_only, known);
        }
        return found;
}

static bool find_price(const struct profile_load *load, const struct kernel *kernel, bool fits_only,
                       struct known *known)
{
        return is_known(load, kernel, fits_only, known) || parts_are_known(load, kernel, fits_only, known) ||
               halves_are_known(load, kernel, fits_only, known);
}

bool profile_has_products(const struct profile_load *load, enum product_format format)
{
        enum { SIZE = 4096 }; /* of a product like any other */
        const struct kernel product = {.kind = KERNEL_MATMUL,
                                       .transpose_b = 1,
                                       .dtype = DTYPE_BF16,
                                       .format = (unsigned char)format,
                                       .batch = 1,
                                       .m = SIZE,
                                       .n = SIZE,
                                       .k = SIZE};
        struct known known;
        return find_price(load, &product, false, &known);
}

double profile_kernel_error(const struct profile_load *load, const struct kernel *kernel, bool fits_only)
{
        struct known known;
        return find_price(load, kernel, fits_only, &known) ? known.error : 0;
}

double profile_fit_error(const struct profile_load *load, const struct kernel *kernel, bool fits_only)
{
        struct known known;
        return find_price(load, kernel, fits_only, &known) ? known.median_error : 0;
}

int profile_kernel_seconds(const struct profile *profile, const struct profile_load *load,
                           const struct kernel *kernel, bool fits_only, double *seconds,
                           enum profile_source *source, struct rv_error_info *err)
{
        struct known known;
        if (!find_price(load, kernel, fits_only, &known))
                return no_such_kernel(profile, load, kernel, fits_only, err);
        *seconds = known.seconds;
        if (source)
                *source = known.source;
        return RV_OK;
}
