#include "sim/platform/collective_table.h"

#include "runtime/base/csv.h"
#include "runtime/base/file.h"
#include "runtime/base/nearest.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const operations[COLLECTIVE_KINDS] = {[COLLECTIVE_ALLREDUCE] = "all_reduce",
                                                         [COLLECTIVE_REDUCE_SCATTER] = "reduce_scatter",
                                                         [COLLECTIVE_ALL_GATHER] = "all_gather",
                                                         [COLLECTIVE_ALL_TO_ALL] = "alltoall"};

double collective_bus_share(enum collective_kind kind, int members)
{
        return (kind == COLLECTIVE_ALLREDUCE ? 2.0 : 1.0) * (members - 1) / members;
}

/* ---- columns ---- */

enum column { OPERATION, GPUS, NODES, BYTES, TIME_S, TIME_US, BUS_RATE, COLUMNS };
/* MOST: of groups, and of sizes of one: a row is looked for among them. */
enum { CELLS = COLUMNS, MOST = 4096 };

static const char *const column_names[COLUMNS] = {
        [OPERATION] = "operation",
        [GPUS] = "gpus",
        [NODES] = "nodes",
        [BYTES] = "bytes",
        [TIME_S] = "seconds",
        [TIME_US] = "microseconds",
        [BUS_RATE] = "bus_gb_per_second",
};

/* The table that is being read. */
struct reading {
        struct file_lines lines;
        bool sourced;
        enum column columns[COLUMNS]; /* in the order of the file */
        int column_count;             /* 0: the line of columns has not come yet */
        struct collective_table *table;
        int before; /* series of earlier tables */
        struct rv_error_info *err;
};

/* "FILE:LINE: " and a sentence. */
#define WRONG(r, ...) wrong_line(r, rv_fail((r)->err, RV_EINPUT, __VA_ARGS__))

static int wrong_line(const struct reading *r, int code)
{
        char sentence[sizeof r->err->sentence];
        snprintf(sentence, sizeof sentence, "%s", r->err->sentence);
        rv_fail(r->err, RV_EINPUT, "%s:%lld: %s", r->lines.path, (long long)r->lines.number, sentence);
        return code;
}

static bool has_column(const struct reading *r, enum column column)
{
        for (int i = 0; i < r->column_count; i++)
                if (r->columns[i] == column)
                        return true;
        return false;
}

static int take_columns(struct reading *r, char *const *cells, int count)
{
        for (int i = 0; i < count; i++) {
                struct nearest nearest = {.word = cells[i]};
                int column = 0;
                while (column < COLUMNS && strcmp(column_names[column], cells[i]) != 0)
                        nearest_offer(&nearest, column_names[column++]);
                if (column == COLUMNS)
                        return WRONG(r,
                                     "the column \"%.40s\" is not known%s%s%s; columns are operation, gpus, "
                                     "nodes, bytes and seconds, microseconds or bus_gb_per_second",
                                     cells[i], nearest.known ? ", the nearest is \"" : "",
                                     nearest.known ? nearest.known : "", nearest.known ? "\"" : "");
                if (has_column(r, (enum column)column))
                        return WRONG(r, "the column \"%s\" is there twice", cells[i]);
                r->columns[r->column_count++] = (enum column)column;
        }
        if (!has_column(r, OPERATION) || !has_column(r, GPUS) || !has_column(r, BYTES))
                return WRONG(r, "a table of collectives needs the columns operation, gpus and bytes");
        if (has_column(r, TIME_S) + has_column(r, TIME_US) + has_column(r, BUS_RATE) != 1)
                return WRONG(r, "a table of collectives needs one column of seconds, microseconds or "
                                "bus_gb_per_second");
        return 0;
}

/* ---- rows ---- */

struct row {
        int kind;
        double values[COLUMNS];
};

static int take_cell(const struct reading *r, enum column column, const char *text, struct row *row)
{
        char *end;
        const bool whole = column == GPUS || column == NODES || column == BYTES;
        if (column == OPERATION) {
                row->kind = 0;
                while (row->kind < COLLECTIVE_KINDS && strcmp(operations[row->kind], text) != 0)
                        row->kind++;
                if (row->kind == COLLECTIVE_KINDS)
                        return WRONG(r,
                                     "the operation \"%.40s\" is not known, must be all_reduce, all_gather, "
                                     "reduce_scatter or alltoall",
                                     text);
                return 0;
        }
        errno = 0;
        const double value = strtod(text, &end);
        if (end == text || *end || !isfinite(value) || value <= 0 || (whole && value != floor(value)))
                return WRONG(r, "%s is \"%.40s\", must be a %snumber greater than 0", column_names[column],
                             text, whole ? "whole " : "");
        if ((column == GPUS || column == NODES) && value > 1e6)
                return WRONG(r, "%s is %s, must be at most 1000000", column_names[column], text);
        row->values[column] = value;
        return 0;
}

static double row_seconds(const struct reading *r, const struct row *row)
{
        if (has_column(r, TIME_S))
                return row->values[TIME_S];
        if (has_column(r, TIME_US))
                return 1e-6 * row->values[TIME_US];
        return row->values[BYTES] *
               collective_bus_share((enum collective_kind)row->kind, (int)row->values[GPUS]) /
               (1e9 * row->values[BUS_RATE]);
}

/* The series of a row in its table, a new one if there is none; NULL with a sentence. */
static struct collective_series *series_of(struct reading *r, const struct row *row)
{
        struct collective_table *t = r->table;
        const int gpus = (int)row->values[GPUS], nodes = (int)row->values[NODES];
        for (int i = r->before; i < t->count; i++) {
                struct collective_series *series = &t->series[i];
                if ((int)series->kind == row->kind && series->gpus == gpus && series->nodes == nodes)
                        return series;
        }
        if (t->count - r->before == MOST) {
                WRONG(r, "is of group number %d of an operation, GPUs and nodes, at most %d were expected",
                      MOST + 1, MOST);
                return NULL;
        }
        struct collective_series *grown = realloc(t->series, (size_t)(t->count + 1) * sizeof *grown);
        if (!grown) {
                rv_fail(r->err, RV_ESYSTEM, "no memory for a table of collectives");
                return NULL;
        }
        t->series = grown;
        grown[t->count] = (struct collective_series){
                .kind = (enum collective_kind)row->kind, .gpus = gpus, .nodes = nodes};
        return &grown[t->count++];
}

/* Puts a point in its place by bytes. */
static int add_point(const struct reading *r, struct collective_series *series, struct collective_point point)
{
        int at = series->count;
        while (at > 0 && series->points[at - 1].bytes >= point.bytes)
                at--;
        if (at < series->count && series->points[at].bytes == point.bytes) {
                if (series->points[at].seconds == point.seconds)
                        return 0;
                return WRONG(r,
                             "%s of %.0f bytes among %d GPUs of %d node%s is there twice, with %.6g s and "
                             "%.6g s; keep one",
                             operations[series->kind], point.bytes, series->gpus, series->nodes,
                             rv_plural(series->nodes), series->points[at].seconds, point.seconds);
        }
        if (series->count == MOST)
                return WRONG(r, "is size number %d of %s among %d GPUs, at most %d were expected", MOST + 1,
                             operations[series->kind], series->gpus, MOST);
        struct collective_point *grown = realloc(series->points, (size_t)(series->count + 1) * sizeof *grown);
        if (!grown)
                return rv_fail(r->err, RV_ESYSTEM, "no memory for %d points of a collective", series->count);
        series->points = grown;
        memmove(&grown[at + 1], &grown[at], (size_t)(series->count - at) * sizeof *grown);
        grown[at] = point;
        series->count++;
        return 0;
}

static int take_row(struct reading *r, char *const *cells, int count)
{
        struct row row = {.values = {[NODES] = 1}};
        if (count != r->column_count)
                return WRONG(r, "the line has %d cells, must have %d, one for each column", count,
                             r->column_count);
        for (int i = 0; i < count; i++) {
                int rc = take_cell(r, r->columns[i], cells[i], &row);
                if (rc)
                        return rc;
        }
        const double seconds = row_seconds(r, &row), gpus = row.values[GPUS], nodes = row.values[NODES];
        if (gpus < 2)
                return WRONG(r, "gpus is 1, must be at least 2: a collective has several members");
        if (fmod(gpus, nodes) != 0)
                return WRONG(r, "%.0f GPUs on %.0f nodes are not as many on each", gpus, nodes);
        if (!(seconds >= 1e-9 && seconds <= 3600))
                return WRONG(r, "the row says %.3g s, must be from 1e-9 to 3600 s (is the unit right?)",
                             seconds);
        struct collective_series *series = series_of(r, &row);
        if (!series)
                return (int)r->err->code;
        return add_point(r, series, (struct collective_point){row.values[BYTES], seconds});
}

/* "# source: ..." */
static void take_comment(struct reading *r)
{
        static const char word[] = "source:";
        char *source = r->table->source;
        const size_t used = strlen(source), size = sizeof r->table->source;
        const char *text = r->lines.line + 1;
        text += strspn(text, " \t");
        if (strncmp(text, word, sizeof word - 1) != 0)
                return;
        text += sizeof word - 1;
        text += strspn(text, " \t");
        if (!*text)
                return;
        snprintf(source + used, size - used, "%s%s", used ? ". " : "", text);
        r->sourced = true;
}

static int take_line(struct reading *r)
{
        char *cells[CELLS];
        if (r->lines.line[0] == '#') {
                take_comment(r);
                return 0;
        }
        if (!r->lines.line[strspn(r->lines.line, " \t")])
                return 0;
        const int count = csv_split(r->lines.line, cells, CELLS);
        if (!r->sourced)
                return WRONG(r, "a comment must come first that says where the figures are from: # source: "
                                "...");
        if (count < 0)
                return WRONG(r, "the line has more than %d cells, or a quote without its end", CELLS);
        return r->column_count ? take_row(r, cells, count) : take_columns(r, cells, count);
}

int collective_table_read(struct collective_table *table, const char *path, struct rv_error_info *err)
{
        struct reading r = {.lines = {.path = path}, .table = table, .before = table->count, .err = err};
        int rc = 1;
        r.lines.stream = fopen(path, "r");
        if (!r.lines.stream)
                return rv_fail(err, RV_EINPUT, "%s: the table of measured collectives cannot be read: %s",
                               path, strerror(errno));
        while (rc == 1) {
                rc = file_next_line(&r.lines, err);
                if (rc == 1 && take_line(&r))
                        rc = err->code;
        }
        if (rc == 0 && (!r.column_count || !table->count))
                rc = rv_fail(err, RV_EINPUT, "%s: the table of measured collectives has no rows", path);
        fclose(r.lines.stream);
        free(r.lines.line);
        return rc;
}

void collective_table_free(struct collective_table *table)
{
        for (int i = 0; i < table->count; i++)
                free(table->series[i].points);
        free(table->series);
        *table = (struct collective_table){0};
}

/* ---- what was measured ---- */

const struct collective_series *collective_table_next(const struct collective_table *table,
                                                      const struct collective_series *series)
{
        for (const struct collective_series *s = series + 1; s < table->series + table->count; s++)
                if (s->kind == series->kind && s->gpus == series->gpus && s->nodes == series->nodes)
                        return s;
        return NULL;
}

double collective_series_seconds(const struct collective_series *series, double bytes, double *at)
{
        const struct collective_point *points = series->points, *last = &points[series->count - 1];
        const double inside = fmin(fmax(bytes, points->bytes), last->bytes);
        if (at)
                *at = inside;
        int above = 0;
        while (above < series->count - 1 && points[above].bytes < inside)
                above++;
        const struct collective_point *b = &points[above], *a = above > 0 ? b - 1 : b;
        if (a == b)
                return b->seconds;
        const double part = log(inside / a->bytes) / log(b->bytes / a->bytes);
        return a->seconds * pow(b->seconds / a->seconds, part);
}
