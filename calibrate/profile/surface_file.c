#include "calibrate/profile/surface_file.h"

#include "runtime/base/file.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char *const passes[SURFACE_PASSES] = {"forward", "input_gradient", "weight_gradient"};

/* What the file calls the coordinates' lengths. */
static const char *const coordinates[SURFACE_FORMS][SURFACE_COORDINATES] = {
        [SURFACE_PRODUCT] = {"m", "n", "k", "batch", "odd_m", "pass"},
        [SURFACE_ATTENTION] = {"m", NULL, "k", "batch", "group", "pass"}};

static const struct {
        const char *name;
        size_t offset; /* of a double in struct surface_model */
        double min;
} figures[] = {
        {"processors", offsetof(struct surface_model, processors), 1},
        {"flops_per_second", offsetof(struct surface_model, flops_per_second), DBL_MIN},
        {"bytes_per_second", offsetof(struct surface_model, bytes_per_second), DBL_MIN},
        {"input_bytes", offsetof(struct surface_model, input_bytes), DBL_MIN},
        {"output_bytes", offsetof(struct surface_model, output_bytes), DBL_MIN},
        {"efficiency", offsetof(struct surface_model, efficiency), DBL_MIN},
        {"memory_efficiency", offsetof(struct surface_model, memory_efficiency), DBL_MIN},
        {"overhead_seconds", offsetof(struct surface_model, overhead_seconds), 0},
        {"half_tile", offsetof(struct surface_model, half_tile), 0},
        {"fill", offsetof(struct surface_model, fill), 0},
};
enum { MODEL_FIGURES = sizeof figures / sizeof *figures };

static const struct {
        const char *name;
        size_t offset; /* of a double in struct surface_quality */
} qualities[] = {
        {"left_out_median", offsetof(struct surface_quality, left_out_median)},
        {"left_out_tenth", offsetof(struct surface_quality, left_out_tenth)},
        {"regions_median", offsetof(struct surface_quality, regions_median)},
        {"regions_tenth", offsetof(struct surface_quality, regions_tenth)},
};
enum { QUALITIES = sizeof qualities / sizeof *qualities };

#define FIELD(structure, row) ((double *)(void *)((char *)(structure) + (row).offset))

/* ---- reading ---- */

struct reader {
        const char *path, *where;
        struct rv_error_info *err;
};

static int missing(const struct reader *r, const char *key, const char *right)
{
        return rv_fail(r->err, RV_EINPUT, "%s: %s: needs \"%s\", %s", r->path, r->where, key, right);
}

static int read_model(const struct reader *r, const json_t *object, struct surface_model *model)
{
        const json_t *found = json_object_get(object, "model");
        int rc = RV_OK;
        if (!json_is_object(found))
                return missing(r, "model", "an object");
        for (int i = 0; i < MODEL_FIGURES && rc == RV_OK; i++)
                rc = file_need_real(r->path, found, figures[i].name, figures[i].min, DBL_MAX,
                                    FIELD(model, figures[i]), r->err);
        return rc;
}

static int read_kriging(const struct reader *r, const json_t *object, enum surface_form form,
                        struct surface_kriging *kriging)
{
        const json_t *lengths = json_object_get(object, "lengths");
        int rc = file_need_real(r->path, object, "nugget", 1e-9, DBL_MAX, &kriging->nugget, r->err);
        if (rc == RV_OK)
                rc = file_need_real(r->path, object, "spread", 0, DBL_MAX, &kriging->spread, r->err);
        if (rc == RV_OK && !json_is_object(lengths))
                return missing(r, "lengths", "an object");
        for (int i = 0; i < SURFACE_COORDINATES && rc == RV_OK; i++) {
                kriging->length[i] = 1;
                if (coordinates[form][i])
                        rc = file_need_real(r->path, lengths, coordinates[form][i], 1e-9, DBL_MAX,
                                            &kriging->length[i], r->err);
        }
        return rc;
}

static double *varying(enum surface_form form, struct surface_shape *shape)
{
        return form == SURFACE_PRODUCT ? &shape->m : &shape->batch;
}

static int pass_of(const char *text, size_t length)
{
        for (int pass = 0; pass < SURFACE_PASSES; pass++)
                if (strlen(passes[pass]) == length && strncmp(passes[pass], text, length) == 0)
                        return pass;
        return -1;
}

/* The numbers before a colon. */
static bool read_key(const char **text, enum surface_form form, struct surface_point *point)
{
        const size_t length = strcspn(*text, " ");
        const int pass = pass_of(*text, length);
        struct surface_shape *s = &point->shape;
        double *const products[] = {&s->batch, &s->n, &s->k}, *const heads[] = {&s->m, &s->k, &s->group};
        const char *at = *text + length;
        *s = (struct surface_shape){1, 1, 1, 1, 1};
        for (int i = 0; i < 3 && pass >= 0; i++) {
                char *end;
                double *value = form == SURFACE_PRODUCT ? products[i] : heads[i];
                *value = strtod(at, &end);
                if (end == at || !(*value > 0 && *value < 1e12))
                        return false;
                at = end;
        }
        point->pass = pass < 0 ? SURFACE_FORWARD : (enum surface_pass)pass;
        if (form == SURFACE_ATTENTION)
                s->n = s->m;
        *text = at + 1;
        return pass >= 0 && *at == ':';
}

static int count_points(const char *text)
{
        int count = 1;
        for (; *text; text++)
                count += *text == ',';
        return count;
}

static bool read_text(const char *text, enum surface_form form, struct surface_point *points, int *count)
{
        struct surface_point point;
        if (!read_key(&text, form, &point))
                return false;
        for (bool more = true; more;) {
                char *end;
                *varying(form, &point.shape) = strtod(text, &end);
                point.seconds = strtod(end, &end) * 1e-6;
                if (!(*varying(form, &point.shape) > 0 && point.seconds > 0 && point.seconds < 1e6))
                        return false;
                if (form == SURFACE_ATTENTION)
                        point.shape.n = point.shape.m;
                points[(*count)++] = point;
                more = *end == ',';
                if (!more && *end)
                        return false;
                text = end + 1;
        }
        return true;
}

static int read_points(const struct reader *r, const json_t *object, enum surface_form form,
                       struct surface_point **points, int *count)
{
        const json_t *array = json_object_get(object, "shapes");
        json_t *text;
        size_t i;
        int room = 0;
        if (!json_is_array(array))
                return missing(r, "shapes", "an array of texts");
        json_array_foreach((json_t *)array, i, text) if (json_is_string(text)) room +=
                count_points(json_string_value(text));
        *points = malloc((size_t)(room + 1) * sizeof **points);
        if (!*points)
                return rv_fail(r->err, RV_ESYSTEM, "%s: no memory for %d points", r->path, room);
        json_array_foreach((json_t *)array, i, text)
        {
                if (!json_is_string(text) || !read_text(json_string_value(text), form, *points, count))
                        return rv_fail(r->err, RV_EINPUT,
                                       "%s: %s.shapes[%zu]: must be a text such as \"forward %s: 1024 12.5, "
                                       "2048 20.1\" (%s, then its values and microseconds)",
                                       r->path, r->where, i,
                                       form == SURFACE_PRODUCT ? "1 4096 4096" : "2048 128 1",
                                       form == SURFACE_PRODUCT ? "pass, batch, n, k: m"
                                                               : "pass, tokens, head, group: batch");
        }
        return RV_OK;
}

static int read_training(const struct reader *r, const json_t *object, struct surface *surface)
{
        const json_t *found = json_object_get(object, "training");
        struct surface_training *training = &surface->training;
        if (!found)
                return RV_OK;
        int rc = read_kriging(r, found, surface->form, &training->kriging);
        return rc == RV_OK ? read_points(r, found, surface->form, &training->points, &training->count) : rc;
}

static int read_ratios(const struct reader *r, const json_t *object, struct surface *surface)
{
        const json_t *found = json_object_get(object, "ratios");
        int rc = RV_OK;
        for (int pass = 0; pass < SURFACE_PASSES && rc == RV_OK; pass++)
                if (json_object_get(found, passes[pass]))
                        rc = file_need_real(r->path, found, passes[pass], 1e-3, 1e3, &surface->ratio[pass],
                                            r->err);
        return rc;
}

static int read_quality(const struct reader *r, const json_t *object, struct surface_quality *quality)
{
        const json_t *found = json_object_get(object, "quality");
        const char *region = json_string_value(json_object_get(found, "region"));
        int rc = RV_OK;
        snprintf(quality->region, sizeof quality->region, "%s", region ? region : "");
        for (int i = 0; i < QUALITIES && found && rc == RV_OK; i++)
                rc = file_need_real(r->path, found, qualities[i].name, 0, DBL_MAX,
                                    FIELD(quality, qualities[i]), r->err);
        return rc;
}

int surface_read(struct surface *surface, const json_t *object, enum surface_form form, const char *path,
                 const char *where, struct rv_error_info *err)
{
        const struct reader r = {path, where, err};
        *surface = (struct surface){.form = form};
        int rc = read_model(&r, object, &surface->model);
        if (rc == RV_OK)
                rc = read_kriging(&r, object, form, &surface->kriging);
        if (rc == RV_OK)
                rc = read_ratios(&r, object, surface);
        if (rc == RV_OK)
                rc = read_quality(&r, object, &surface->quality);
        if (rc == RV_OK)
                rc = read_points(&r, object, form, &surface->points, &surface->count);
        if (rc == RV_OK)
                rc = read_training(&r, object, surface);
        if (rc == RV_OK && !surface_prepare(surface))
                rc = rv_fail(err, RV_ESYSTEM, "%s: no memory for %d points", path, surface->count);
        if (rc != RV_OK)
                surface_free(surface);
        return rc;
}

/* ---- writing ---- */

static void set_kriging(json_t *object, enum surface_form form, const struct surface_kriging *kriging)
{
        json_t *lengths = json_object();
        for (int i = 0; i < SURFACE_COORDINATES; i++)
                if (coordinates[form][i])
                        json_object_set_new(lengths, coordinates[form][i], json_real(kriging->length[i]));
        json_object_set_new(object, "lengths", lengths);
        json_object_set_new(object, "nugget", json_real(kriging->nugget));
        json_object_set_new(object, "spread", json_real(kriging->spread));
}

static int compare(double a, double b)
{
        return (a > b) - (a < b);
}

/* Of two points: 0, or which comes first; what varies within a text decides last. */
static int compare_keys(const struct surface_point *a, const struct surface_point *b, bool product)
{
        const struct surface_shape *x = &a->shape, *y = &b->shape;
        int rc = (int)a->pass - (int)b->pass;
        rc = rc ? rc : compare(product ? x->batch : x->group, product ? y->batch : y->group);
        rc = rc ? rc : compare(product ? x->n : x->m, product ? y->n : y->m);
        return rc ? rc : compare(x->k, y->k);
}

static int by_product(const void *a, const void *b)
{
        const struct surface_point *x = a, *y = b;
        int rc = compare_keys(x, y, true);
        rc = rc ? rc : compare(x->shape.m, y->shape.m);
        return rc ? rc : compare(x->seconds, y->seconds);
}

static int by_attention(const void *a, const void *b)
{
        const struct surface_point *x = a, *y = b;
        int rc = compare_keys(x, y, false);
        rc = rc ? rc : compare(x->shape.batch, y->shape.batch);
        return rc ? rc : compare(x->seconds, y->seconds);
}

static void write_texts(FILE *stream, enum surface_form form, const struct surface_point *points, int count,
                        json_t *array, char **text)
{
        const bool product = form == SURFACE_PRODUCT;
        for (int i = 0; i < count; i++) {
                struct surface_shape s = points[i].shape;
                if (i == 0 || compare_keys(&points[i - 1], &points[i], product) != 0) {
                        rewind(stream);
                        fprintf(stream, "%s %.10g %.10g %.10g: ", passes[points[i].pass],
                                product ? s.batch : s.m, product ? s.n : s.k, product ? s.k : s.group);
                }
                const bool last = i + 1 == count || compare_keys(&points[i], &points[i + 1], product) != 0;
                fprintf(stream, "%.10g %.4g%s", *varying(form, &s), 1e6 * points[i].seconds,
                        last ? "" : ", ");
                if (last) {
                        fputc(0, stream);
                        fflush(stream);
                        json_array_append_new(array, json_string(*text));
                }
        }
}

static json_t *points_json(enum surface_form form, const struct surface_point *points, int count)
{
        struct surface_point *sorted = malloc((size_t)(count + 1) * sizeof *sorted);
        json_t *array = json_array();
        char *text = NULL;
        size_t size;
        FILE *stream = open_memstream(&text, &size);
        if (!sorted || !stream)
                abort();
        memcpy(sorted, points, (size_t)count * sizeof *sorted);
        qsort(sorted, (size_t)count, sizeof *sorted, form == SURFACE_PRODUCT ? by_product : by_attention);
        write_texts(stream, form, sorted, count, array, &text);
        fclose(stream);
        free(text);
        free(sorted);
        return array;
}

json_t *surface_json(const struct surface *surface)
{
        struct surface copy = *surface;
        json_t *object = json_object(), *model = json_object(), *ratios = json_object(),
               *quality = json_object();
        for (int i = 0; i < MODEL_FIGURES; i++)
                json_object_set_new(model, figures[i].name, json_real(*FIELD(&copy.model, figures[i])));
        for (int i = 0; i < QUALITIES; i++)
                json_object_set_new(quality, qualities[i].name,
                                    json_real(*FIELD(&copy.quality, qualities[i])));
        json_object_set_new(quality, "region", json_string(copy.quality.region));
        for (int pass = 0; pass < SURFACE_PASSES; pass++)
                if (surface->ratio[pass] > 0)
                        json_object_set_new(ratios, passes[pass], json_real(surface->ratio[pass]));
        json_object_set_new(object, "model", model);
        set_kriging(object, surface->form, &surface->kriging);
        json_object_set_new(object, "ratios", ratios);
        json_object_set_new(object, "quality", quality);
        json_object_set_new(object, "shapes", points_json(surface->form, surface->points, surface->count));
        if (surface->training.count > 0) {
                json_t *training = json_object();
                set_kriging(training, surface->form, &surface->training.kriging);
                json_object_set_new(
                        training, "shapes",
                        points_json(surface->form, surface->training.points, surface->training.count));
                json_object_set_new(object, "training", training);
        }
        return object;
}
