#include "calibrate/import.h"

#include "calibrate/profile/profile.h"
#include "calibrate/profile/surface_fit.h"
#include "models/shape_table.h"
#include "runtime/base/file.h"
#include "runtime/base/number.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a GPU's datasheet says, and how well its memory is used by kernels that no table is of. */
struct datasheet {
        char path[256];
        json_t *document;
        const char *name;
        int64_t ranks;
        double processors, memory_bytes, bytes_per_second, memory_efficiency, start_seconds;
        double memory_error; /* the relative standard error of memory_efficiency; 0: not stated */
        double attention_backward;
        double peaks[PROFILE_FORMATS];
};

struct import {
        const struct import_request *request;
        struct datasheet datasheet;
        struct profile_tables tables;
        double sustained; /* sustained_rate, once the tables are fitted */
        /* Rows that were not used: of other GPUs; of experts on several GPUs or not spread evenly;
         * collectives. */
        int others, uneven, collectives;
        struct rv_error_info *err;
};

/* ---- the datasheet ---- */

static int need_figure(struct datasheet *sheet, const char *key, double max, double *value,
                       struct rv_error_info *err)
{
        const json_t *object = json_object_get(sheet->document, key);
        if (!json_is_object(object) || !json_is_string(json_object_get(object, "source")))
                return rv_fail(err, RV_EINPUT, "%s: needs \"%s\", an object with \"value\" and \"source\"",
                               sheet->path, key);
        return file_need_real(sheet->path, object, "value", DBL_MIN, max, value, err);
}

static int read_peaks(struct datasheet *sheet, struct rv_error_info *err)
{
        const json_t *object = json_object_get(sheet->document, "peak_flops_per_second");
        const char *name;
        json_t *value;
        if (!json_is_object(object))
                return rv_fail(
                        err, RV_EINPUT,
                        "%s: needs \"peak_flops_per_second\", an object with a number for each of fp32, "
                        "mixed, bf16, fp8, nvfp4 that the GPU has, and \"source\"",
                        sheet->path);
        json_object_foreach((json_t *)object, name, value)
        {
                enum dtype dtype;
                enum product_format format;
                if (strcmp(name, "source") == 0)
                        continue;
                if (!precision_of_name(name, &dtype, &format))
                        return rv_fail(
                                err, RV_EINPUT,
                                "%s: peak_flops_per_second: \"%.40s\" is none of fp32, mixed, bf16, fp8 "
                                "and nvfp4",
                                sheet->path, name);
                int rc = file_need_real(sheet->path, object, name, DBL_MIN, 1e18,
                                        &sheet->peaks[profile_format(dtype, format)], err);
                if (rc != RV_OK)
                        return rc;
        }
        return RV_OK;
}

static int find_datasheet(struct datasheet *sheet, const char *name, struct rv_error_info *err)
{
        char names[256], near[FILE_NEAREST];
        if (!strchr(name, '/') &&
            file_find(sheet->path, sizeof sheet->path, IMPORT_DEVICES, name, ".json") == RV_OK)
                return RV_OK;
        FILE *stream = fopen(name, "r");
        file_list(names, sizeof names, IMPORT_DEVICES, ".json");
        if (!stream)
                return rv_fail(err, RV_EINPUT,
                               "--device: '%.80s' is neither a file that can be read nor a GPU that is known "
                               "(%s)%s",
                               name, names, file_nearest(near, IMPORT_DEVICES, name, ".json"));
        fclose(stream);
        snprintf(sheet->path, sizeof sheet->path, "%s", name);
        return RV_OK;
}

static int read_datasheet(struct datasheet *sheet, const char *name, struct rv_error_info *err)
{
        int rc = find_datasheet(sheet, name, err);
        if (rc != RV_OK)
                return rc;
        sheet->document = file_read_json(sheet->path, err);
        if (!sheet->document)
                return RV_EINPUT;
        const char *kind = json_string_value(json_object_get(sheet->document, "kind"));
        sheet->name = json_string_value(json_object_get(sheet->document, "name"));
        if (!kind || strcmp(kind, "device") != 0 || !sheet->name)
                return rv_fail(err, RV_EINPUT,
                               "%s: describes no device: \"kind\": \"device\" and a \"name\" were expected",
                               sheet->path);
        if ((rc = file_need_int(sheet->path, sheet->document, "ranks", 1, 1024, &sheet->ranks, err)) ||
            (rc = need_figure(sheet, "processors", 1e6, &sheet->processors, err)) ||
            (rc = need_figure(sheet, "memory_bytes", 1e15, &sheet->memory_bytes, err)) ||
            (rc = need_figure(sheet, "bytes_per_second", 1e15, &sheet->bytes_per_second, err)) ||
            (rc = need_figure(sheet, "memory_efficiency", 1, &sheet->memory_efficiency, err)) ||
            (rc = need_figure(sheet, "kernel_start_seconds", 1, &sheet->start_seconds, err)) ||
            (rc = need_figure(sheet, "attention_backward", 100, &sheet->attention_backward, err)))
                return rc;
        const json_t *memory = json_object_get(sheet->document, "memory_efficiency");
        if (json_object_get(memory, "error"))
                rc = file_need_real(sheet->path, memory, "error", DBL_MIN, 1, &sheet->memory_error, err);
        return rc == RV_OK ? read_peaks(sheet, err) : rc;
}

/* Of a format, or of the other one of 16 bits; 0: the GPU has no such products. */
static double peak_of(const struct datasheet *sheet, enum dtype dtype, enum product_format format)
{
        const double peak = sheet->peaks[profile_format(dtype, format)];
        return peak > 0 || format != FORMAT_STORED ? peak : sheet->peaks[dtype_twin(dtype)];
}

/* ---- rows ---- */

/* Whether a row is of the GPU: SXM or PCIe, and how much memory, decide too. */
static bool of_device(const struct import *import, const struct shape_row *row)
{
        return !row->gpu[0] || strcmp(row->gpu, import->datasheet.name) == 0;
}

static struct profile_table *table_of(struct import *import, const struct kernel *kernel)
{
        const enum kernel_kind kind = (enum kernel_kind)tables_kind(kernel->kind);
        struct profile_tables *tables = &import->tables;
        const enum dtype dtype = (enum dtype)kernel->dtype;
        const enum product_format format = (enum product_format)kernel->format;
        struct profile_table *known = tables_of(tables, kind, dtype, format);
        if (known)
                return known;
        const struct profile_table table = {
                .kind = kind, .dtype = dtype, .format = format, .surface.form = tables_form(kind)};
        return tables_add(tables, &table) ? &tables->tables[tables->count - 1] : NULL;
}

static int add_point(struct import *import, struct surface_point **points, int *count,
                     const struct surface_point *point)
{
        if ((*count & (*count - 1)) == 0) { /* room doubles */
                struct surface_point *grown =
                        realloc(*points, (size_t)(*count ? 2 * *count : 1) * sizeof *grown);
                if (!grown)
                        return rv_fail(import->err, RV_ESYSTEM, "no memory for %d points", *count + 1);
                *points = grown;
        }
        (*points)[(*count)++] = *point;
        return RV_OK;
}

/* Seconds in another unit are thousands of times too short or too long. */
static int check_rate(const struct import *import, const struct shape_table *table,
                      const struct shape_row *row, const struct kernel *kernel)
{
        static const double TOO_FAST = 1.2, LONGEST_SECONDS = 1000;
        const double peak =
                peak_of(&import->datasheet, (enum dtype)kernel->dtype, (enum product_format)kernel->format);
        const double rate = kernel_flops(kernel) / row->seconds;
        char flops[NUMBER_TEXT], most[NUMBER_TEXT];
        if (peak == 0)
                return rv_fail(import->err, RV_EINPUT,
                               "%.160s:%d: %s has no %s products: its peak_flops_per_second in %s names none",
                               table->path, row->line, import->datasheet.name,
                               precision_name((enum dtype)kernel->dtype, (enum product_format)kernel->format),
                               import->datasheet.path);
        if (rate > TOO_FAST * peak)
                return rv_fail(import->err, RV_EINPUT,
                               "%.160s:%d: %g seconds would be %s, but %s has %s at most: are the seconds in "
                               "another unit, or of another GPU?",
                               table->path, row->line, row->seconds, number_flops(flops, rate),
                               import->datasheet.name, number_flops(most, peak));
        if (row->seconds > LONGEST_SECONDS)
                return rv_fail(import->err, RV_EINPUT,
                               "%.160s:%d: one kernel of %g seconds: are they in another unit?", table->path,
                               row->line, row->seconds);
        return RV_OK;
}

static int add_kernel(struct import *import, const struct shape_table *table, const struct shape_row *row,
                      const struct kernel *kernel, double seconds)
{
        enum surface_form form;
        struct surface_point point = {.seconds = seconds};
        struct profile_table *to = table_of(import, kernel);
        int rc = check_rate(import, table, row, kernel);
        if (rc != RV_OK)
                return rc;
        if (!to)
                return rv_fail(import->err, RV_ESYSTEM, "no memory for a table");
        surface_shape_of(kernel, &form, &point.shape, &point.pass);
        struct surface *surface = &to->surface;
        return table->form == SHAPES_TRAINING
                       ? add_point(import, &surface->training.points, &surface->training.count, &point)
                       : add_point(import, &surface->points, &surface->count, &point);
}

/* Both products of a layer's experts, in proportion to their flops, without the activation between them. */
static int add_experts(struct import *import, const struct shape_table *table, const struct shape_row *row)
{
        const struct datasheet *sheet = &import->datasheet;
        const double rate = sheet->bytes_per_second * sheet->memory_efficiency;
        const double products = row->seconds - kernel_bytes(&row->kernels[1]) / rate - sheet->start_seconds;
        const double all = kernel_flops(&row->kernels[0]) + kernel_flops(&row->kernels[2]);
        int rc = RV_OK;
        for (int i = 0; i < SHAPE_KERNELS && rc == RV_OK && products > 0; i += 2)
                rc = add_kernel(import, table, row, &row->kernels[i],
                                products * kernel_flops(&row->kernels[i]) / all);
        return rc;
}

/* Engines of inference go over all tokens' rows where their experts are on several GPUs: those rows are left
 * out, as are experts whose rows are not spread evenly. */
static int add_row(struct import *import, const struct shape_table *table, const struct shape_row *row)
{
        if (!of_device(import, row)) {
                import->others++;
                return RV_OK;
        }
        switch (table->form) {
        case SHAPES_COLLECTIVES:
                import->collectives++;
                return RV_OK;
        case SHAPES_EXPERTS:
                if (row->uneven || row->ranks > 1) {
                        import->uneven++;
                        return RV_OK;
                }
                return add_experts(import, table, row);
        default:
                return add_kernel(import, table, row, &row->kernels[0], row->seconds);
        }
}

static int add_table(struct import *import, const char *path)
{
        struct shape_table table;
        const int others = import->others;
        int rc = shape_table_read(&table, path, import->err);
        if (rc != RV_OK)
                return rc;
        for (int i = 0; i < table.count && rc == RV_OK; i++)
                rc = isnan(table.rows[i].seconds)
                             ? rv_fail(import->err, RV_EINPUT, "%.160s:%d: there are no seconds to import",
                                       path, table.rows[i].line)
                             : add_row(import, &table, &table.rows[i]);
        if (rc == RV_OK && import->others - others == table.count)
                rc = rv_fail(import->err, RV_EINPUT,
                             "%.160s: all %d rows are of other GPUs (%s, ...), none of %s", path, table.count,
                             table.rows[0].gpu, import->datasheet.name);
        shape_table_free(&table);
        return rc;
}

/* ---- fits ---- */

static void set_datasheet(const struct datasheet *sheet, struct profile_table *table)
{
        struct surface_model *model = &table->surface.model;
        const double stored = dtype_bytes(table->dtype);
        model->processors = sheet->processors;
        model->flops_per_second = peak_of(sheet, table->dtype, table->format);
        model->bytes_per_second = sheet->bytes_per_second;
        model->input_bytes = table->format == FORMAT_STORED ? stored : format_bytes(table->format, 16) / 16;
        model->output_bytes = stored;
        if (table->kind == KERNEL_ATTENTION)
                table->surface.ratio[SURFACE_INPUT_GRADIENT] = sheet->attention_backward;
}

static int fit_tables(struct import *import)
{
        for (int i = 0; i < import->tables.count; i++) {
                struct profile_table *table = &import->tables.tables[i];
                char name[PROFILE_NAME];
                profile_kernel_name(name, table->kind, profile_format(table->dtype, table->format));
                set_datasheet(&import->datasheet, table);
                if (table->surface.count < SURFACE_LEAST_POINTS)
                        return rv_fail(import->err, RV_EINPUT,
                                       "--import: %d shapes of %s in short loops; at least %d are needed",
                                       table->surface.count, name, SURFACE_LEAST_POINTS);
                if (!surface_fit(&table->surface))
                        return rv_fail(import->err, RV_ESYSTEM, "no memory to fit %s", name);
        }
        return RV_OK;
}

/* The part of the peak's rate that forwards reach in long loops, the median of those that are faster than
 * that in short ones; what power allows. 0: there are too few long loops. */
static double sustained_rate(const struct import *import)
{
        enum { ENOUGH = 20 };
        static const double LIMITED = 0.6;
        const struct surface *surface = NULL;
        for (int i = 0; i < import->tables.count && !surface; i++)
                if (import->tables.tables[i].kind == KERNEL_MATMUL &&
                    import->tables.tables[i].surface.training.count >= ENOUGH)
                        surface = &import->tables.tables[i].surface;
        if (!surface)
                return 0;
        double *rates = malloc((size_t)surface->training.count * sizeof *rates), median = 0;
        int count = 0;
        if (!rates)
                abort();
        for (int i = 0; i < surface->training.count; i++) {
                const struct surface_point *point = &surface->training.points[i];
                const double flops = surface_flops(surface, &point->shape, point->pass);
                const double burst = surface_seconds(surface, &point->shape, point->pass, false, 1, NULL);
                if (point->pass == SURFACE_FORWARD &&
                    flops / burst > LIMITED * surface->model.flops_per_second)
                        rates[count++] = flops / point->seconds / surface->model.flops_per_second;
        }
        if (count >= ENOUGH)
                median = quantile(rates, count, 0.5);
        free(rates);
        return median;
}

/* ---- the profile ---- */

/* Kernels that move their bytes. Products and attention have tables, or the GPU has none. */
static void set_models(const struct datasheet *sheet, struct profile_load *load)
{
        const json_t *special = json_object_get(sheet->document, "kernel_efficiency");
        const enum dtype dtype = sheet->peaks[DTYPE_BF16] > 0 ? DTYPE_BF16 : DTYPE_FP16;
        for (int kind = 0; kind < KERNEL_KINDS; kind++) {
                const struct kernel_descriptor *of = kernel_descriptor((enum kernel_kind)kind);
                const json_t *own = json_object_get(json_object_get(special, of->name), "value");
                if (of->products == 0 && !of->fused)
                        load->models[dtype][kind] = (struct kernel_model){
                                .present = true,
                                .error = sheet->memory_error,
                                .bytes_per_second = sheet->bytes_per_second,
                                .efficiency = own ? json_number_value(own) : sheet->memory_efficiency,
                                .overhead_seconds = sheet->start_seconds};
        }
}

static void set_sustained(const struct import *import, struct profile *profile)
{
        const json_t *stated = json_object_get(import->datasheet.document, "sustained_rate");
        if (import->sustained > 0) {
                profile->loads[0].tables.sustained = import->sustained;
                json_object_set_new(
                        profile->sources, "sustained_rate",
                        json_string("measured: the median part of the peak that forward products "
                                    "reach in long loops, of those that reach 0.6 in short ones"));
        } else if (stated) {
                profile->loads[0].tables.sustained = json_number_value(json_object_get(stated, "value"));
                json_object_set(profile->sources, "sustained_rate", json_object_get(stated, "source"));
        }
}

/* Every figure's source under its name. */
static json_t *sources_of(const struct import *import)
{
        json_t *sources = json_object(), *value;
        const char *key;
        json_object_foreach(import->datasheet.document, key, value)
        {
                json_t *source = json_object_get(value, "source");
                if (json_is_string(source))
                        json_object_set(sources, key, source);
        }
        json_t *special = json_object_get(import->datasheet.document, "kernel_efficiency");
        json_object_foreach(special, key, value)
        {
                json_object_set(sources, key, json_object_get(value, "source"));
        }
        if (import->request->source)
                json_object_set_new(sources, "tables", json_string(import->request->source));
        return sources;
}

static int count_shapes(const struct import *import)
{
        int shapes = 0;
        for (int i = 0; i < import->tables.count; i++)
                shapes += import->tables.tables[i].surface.count +
                          import->tables.tables[i].surface.training.count;
        return shapes;
}

static int write_profile(struct import *import, struct rv_error_info *err)
{
        const struct datasheet *sheet = &import->datasheet;
        struct profile profile = {.measured = false, .device_memory_bytes = (int64_t)sheet->memory_bytes};
        profile.loads = calloc(1, sizeof *profile.loads);
        if (!profile.loads)
                return rv_fail(err, RV_ESYSTEM, "no memory for a profile");
        profile.load_count = 1;
        profile.loads[0].ranks = (int)sheet->ranks;
        profile.loads[0].tables = import->tables;
        import->tables = (struct profile_tables){0}; /* which the profile has now */
        memcpy(profile.peaks, sheet->peaks, sizeof profile.peaks);
        profile.sources = sources_of(import);
        snprintf(profile.device.name, sizeof profile.device.name, "%s", sheet->name);
        set_models(sheet, &profile.loads[0]);
        struct import with = *import;
        with.tables = profile.loads[0].tables;
        set_sustained(&with, &profile);
        snprintf(profile.source, sizeof profile.source,
                 "%d measured shapes of products and attention; other kernels from the datasheet, not "
                 "measured",
                 count_shapes(&with));
        int rc = profile_save(&profile, import->request->out, import->request->json, err);
        profile_free(&profile);
        return rc;
}

/* ---- what is printed ---- */

static void print_tables(const struct import *import)
{
        printf("%s: kernels of %d table%s (%s)\n\n", import->datasheet.name, import->request->table_count,
               rv_plural(import->request->table_count), import->request->out);
        printf("  %-22s %7s %7s  %-17s %-17s\n", "", "", "long", "left out alone", "a region left out");
        printf("  %-22s %7s %7s %8s %8s %8s %8s\n", "kernel", "shapes", "loops", "median", "1 in 10",
               "median", "1 in 10");
        for (int i = 0; i < import->tables.count; i++) {
                const struct profile_table *table = &import->tables.tables[i];
                const struct surface_quality *q = &table->surface.quality;
                char name[PROFILE_NAME];
                profile_kernel_name(name, table->kind, profile_format(table->dtype, table->format));
                printf("  %-22s %7d %7d %7.1f%% %7.1f%% %7.1f%% %7.1f%%  %s\n", name, table->surface.count,
                       table->surface.training.count, 100 * q->left_out_median, 100 * q->left_out_tenth,
                       100 * q->regions_median, 100 * q->regions_tenth, q->region);
        }
        if (import->sustained > 0)
                printf("\nin long loops products reach %.3f of the peak\n", import->sustained);
        if (import->others)
                printf("%d row%s of other GPUs not looked at\n", import->others, rv_plural(import->others));
        if (import->uneven)
                printf("%d row%s of experts on several GPUs, or not spread evenly, left out\n",
                       import->uneven, rv_plural(import->uneven));
        if (import->collectives)
                printf("%d collective%s left out: a platform has those (\"measured_collectives\")\n",
                       import->collectives, rv_plural(import->collectives));
}

static int run(struct import *import)
{
        const struct import_request *request = import->request;
        int rc = read_datasheet(&import->datasheet, request->device, import->err);
        for (int i = 0; i < request->table_count && rc == RV_OK; i++)
                rc = add_table(import, request->tables[i]);
        if (rc == RV_OK)
                rc = fit_tables(import);
        if (rc != RV_OK)
                return rc;
        import->sustained = sustained_rate(import);
        if (!request->json)
                print_tables(import);
        return write_profile(import, import->err);
}

int import_run(const struct import_request *request, struct rv_error_info *err)
{
        struct import import = {.request = request, .err = err};
        int rc = run(&import);
        tables_free(&import.tables);
        json_decref(import.datasheet.document);
        return rc;
}
