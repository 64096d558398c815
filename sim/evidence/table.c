#include "sim/evidence/table.h"

#include "sim/evidence/glossary.h"

#include "runtime/base/csv.h"
#include "runtime/base/file.h"
#include "runtime/base/nearest.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char table_help[] =
        "Columns, in any order: gpus, tp, pp, dp, batch, micro_batch and seq; the model, as preset "
        "(llama3-8b, "
        "or the path of a config.json) or, of a GPT-2, as layers, hidden and heads; and what was measured: "
        "batch_seconds, or \"iteration time (ms)\", or measured with unit (batch_seconds, "
        "tokens_per_second_per_gpu and, of a GPT-2, tflops_per_gpu or percent_of_peak; a range such as "
        "49.4-54.78 is a band). They may be there too: "
        "vocab (of a GPT-2, 51200 if not), gpu (chooses profile and platform), profile, platform, zero, "
        "shard_replicas, cp, precision, like (as the flags), tp_grid (2x2x1, where tp is 4), recompute (as "
        "the "
        "flag, but full "
        "is a layer whole; +sequence for sequence parallelism), schedule (1f1b, interleaved, gpipe, axonn, "
        "zero-bubble; zero3), interleave (virtual stages), plan (more flags, as on a command line), source, "
        "model (a name for the reader). Where a row says nothing the command line's flags count. "
        "Columns whose names begin with note are yours; any other is refused. Two forms of others are read "
        "too, and their words "
        "looked up in sim/tables/glossary.json: source, model, gpu, gpus, tp, pp, cp, ep, dp, vp, zero, "
        "micro_batch, "
        "global_batch, seq_len, recompute, precision, metric (tokens/s/GPU, s/step, ms/step), value, notes; "
        "and the playbook of "
        "nanotron's: model, gpus, tp, pp, dp, micro_batch, zero, tokens/s/GPU. Of these, rows that cannot be "
        "expressed are listed "
        "with the reason, and the others predicted.";

static const char *const units[TABLE_UNITS] = {"batch_seconds", "milliseconds", "tflops_per_gpu",
                                               "percent_of_peak", "tokens_per_second_per_gpu"};

const char *table_unit_name(enum table_unit unit)
{
        return units[unit];
}

/* ---- the columns ---- */

enum column_type {
        COLUMN_NUMBER,
        COLUMN_TEXT,
        COLUMN_NOTE,
        COLUMN_UNIT,
        COLUMN_STATED, /* a number that may be followed by a remark, or missing: that becomes the row's reason
                        */
        COLUMN_MEASURED,
        COLUMN_SECONDS,
        COLUMN_MS
};

struct column {
        const char *name, *other_name; /* ours; another spelling, or NULL */
        enum column_type type;
        size_t offset, size; /* of the member; size: of a text */
        bool needed;
};

#define NUMBER(member, other, needed)                                                                        \
        {                                                                                                    \
#member, other, COLUMN_NUMBER, offsetof(struct table_row, member), 0, needed                 \
        }
#define AXIS(name, other, axis)                                                                              \
        {                                                                                                    \
                name, other, COLUMN_NUMBER, offsetof(struct table_row, sizes[axis]), 0, true                 \
        }
#define TEXT(member)                                                                                         \
        {                                                                                                    \
#member, NULL, COLUMN_TEXT, offsetof(struct table_row, member),                              \
                        sizeof((struct table_row *)0)->member, false                                         \
        }
#define STATED(name, member)                                                                                 \
        {                                                                                                    \
                name, NULL, COLUMN_STATED, offsetof(struct table_row, member), 0, true                       \
        }

static const struct column own_columns[] = {
        NUMBER(gpus, "# GPUs", true),
        NUMBER(batch, "global batch", true),
        NUMBER(micro_batch, "micro batch", true),
        NUMBER(layers, "# layers", false),
        NUMBER(hidden, "hidden size", false),
        NUMBER(heads, "attention heads", false),
        NUMBER(seq, "sequence length", true),
        NUMBER(vocab, "vocabulary size", false),
        AXIS("tp", "tensor parallelism", GRID_SHARDS),
        AXIS("pp", "pipeline parallelism", GRID_STAGES),
        AXIS("dp", "data parallelism", GRID_REPLICAS),
        NUMBER(interleave, NULL, false),
        TEXT(source),
        TEXT(model),
        TEXT(gpu),
        TEXT(preset),
        TEXT(profile),
        TEXT(platform),
        TEXT(recompute),
        TEXT(schedule),
        TEXT(zero),
        TEXT(shard_replicas),
        TEXT(cp),
        TEXT(tp_grid),
        TEXT(precision),
        TEXT(like),
        TEXT(plan),
        {"note", "Parameters (billion)", COLUMN_NOTE, 0, 0, false}, /* the other follows from the shape */
        {"unit", NULL, COLUMN_UNIT, 0, 0, false},
        {"measured", NULL, COLUMN_MEASURED, 0, 0, false},
        {"batch_seconds", NULL, COLUMN_SECONDS, 0, 0, false},
        {"iteration time (ms)", NULL, COLUMN_MS, 0, 0, false},
};

static const struct column run_columns[] = {
        TEXT(source),
        TEXT(model),
        TEXT(gpu),
        STATED("gpus", gpus),
        STATED("tp", sizes[GRID_SHARDS]),
        STATED("pp", sizes[GRID_STAGES]),
        STATED("cp", context),
        STATED("ep", experts_over),
        STATED("dp", sizes[GRID_REPLICAS]),
        STATED("vp", interleave),
        TEXT(zero),
        STATED("micro_batch", micro_batch),
        STATED("global_batch", batch),
        STATED("seq_len", seq),
        TEXT(recompute),
        TEXT(precision),
        TEXT(metric),
        {"value", NULL, COLUMN_MEASURED, 0, 0, true},
        TEXT(notes),
};

static const struct column playbook_columns[] = {
        TEXT(model),
        STATED("gpus", gpus),
        STATED("tp", sizes[GRID_SHARDS]),
        STATED("pp", sizes[GRID_STAGES]),
        STATED("dp", sizes[GRID_REPLICAS]),
        STATED("micro_batch", micro_batch),
        TEXT(zero),
        {"tokens/s/GPU", NULL, COLUMN_MEASURED, 0, 0, true},
        {"note", "MFU%", COLUMN_NOTE, 0, 0, false}, /* counts tied embeddings in different ways */
        {"note: pairs", "pair ratio", COLUMN_NOTE, 0, 0, false}, /* ZeRO-0 against ZeRO-1 */
};
#undef NUMBER
#undef AXIS
#undef TEXT
#undef STATED

enum { CELLS = 64 };

/* A table is of the first form whose mark it has among its columns; ours has none. */
static const struct form {
        const char *mark;
        const struct column *columns;
        int count;
        bool translated;    /* its words are the glossary's */
        const char *common; /* where the glossary has what all its rows have in common; NULL: nowhere */
} forms[] = {
        {"metric", run_columns, sizeof run_columns / sizeof *run_columns, true, NULL},
        {"tokens/s/GPU", playbook_columns, sizeof playbook_columns / sizeof *playbook_columns, true,
         "playbook"},
        {NULL, own_columns, sizeof own_columns / sizeof *own_columns, false, NULL},
};

static const struct form *form_of(char *const *cells, int count)
{
        const struct form *form = forms;
        for (; form->mark; form++)
                for (int i = 0; i < count; i++)
                        if (strcmp(cells[i], form->mark) == 0)
                                return form;
        return form;
}

static const struct column *column_of(const struct form *form, const char *name)
{
        for (int i = 0; i < form->count; i++)
                if (strcmp(form->columns[i].name, name) == 0 ||
                    (form->columns[i].other_name && strcmp(form->columns[i].other_name, name) == 0))
                        return &form->columns[i];
        for (int i = 0; i < form->count; i++)
                if (form->columns[i].type == COLUMN_NOTE && strncmp(name, "note", 4) == 0)
                        return &form->columns[i];
        return NULL;
}

/* ---- cells ---- */

struct reader {
        const char *path;
        int line;
        const struct form *form; /* NULL before the line that names the columns */
        const struct column *columns[CELLS];
        int count;
        struct glossary glossary;
        struct rv_error_info *err;
};

static int fail_cell(const struct reader *r, const struct column *column, const char *text, const char *right)
{
        return rv_fail(r->err, RV_EINPUT, "%.160s:%d: %s '%.40s' is not %s", r->path, r->line, column->name,
                       text, right);
}

static int read_number(const struct reader *r, const struct column *column, const char *text, int64_t *value)
{
        char *end;
        if (!*text && !column->needed)
                return 0;
        errno = 0;
        *value = strtoll(text, &end, 10);
        if (end == text || *end || errno || *value < 1 || *value > 1000000000)
                return fail_cell(r, column, text, "a whole number of 1 or more");
        return 0;
}

/* A whole number, with a remark in parentheses behind it or none: "4096 (stated only for the 7B run)". A
 * source that does not say it, or says something else, cannot be expressed, and spoils no other row. */
static void read_stated(const struct column *column, const char *text, int64_t *value, struct table_row *row)
{
        char *end;
        errno = 0;
        *value = strtoll(text, &end, 10);
        end += strspn(end, " ");
        if (!*text || (end > text && (!*end || *end == '(') && !errno && *value >= 1 && *value <= 1000000000))
                return;
        *value = 0;
        if (!row->reason[0])
                snprintf(row->reason, sizeof row->reason, "%s '%.40s' is not a whole number of 1 or more",
                         column->name, text);
}

static bool positive(double number)
{
        return number > 0 && number < INFINITY;
}

/* A number, or two with a dash between them. */
static int read_measured(const struct reader *r, const struct column *column, const char *text,
                         struct table_row *row)
{
        char *end;
        row->low = row->high = strtod(text, &end);
        if (*end == '-')
                row->high = strtod(end + 1, &end);
        if (*end || !positive(row->low) || !positive(row->high) || row->high < row->low)
                return fail_cell(r, column, text, "a number greater than 0, or a range of two");
        return 0;
}

static int read_unit(const struct reader *r, const struct column *column, const char *text,
                     struct table_row *row)
{
        for (int i = 0; i < TABLE_UNITS; i++)
                if (strcmp(text, units[i]) == 0) {
                        row->unit = (enum table_unit)i;
                        return 0;
                }
        return fail_cell(
                r, column, text,
                "batch_seconds, milliseconds, tokens_per_second_per_gpu, tflops_per_gpu or percent_of_peak");
}

static int read_cell(const struct reader *r, const struct column *column, const char *text,
                     struct table_row *row)
{
        char *member = (char *)row + column->offset;
        switch (column->type) {
        case COLUMN_NUMBER:
                return read_number(r, column, text, (void *)member);
        case COLUMN_TEXT:
                if (strlen(text) >= column->size)
                        return fail_cell(r, column, text, "short enough: it has too many characters");
                strcpy(member, text);
                return 0;
        case COLUMN_NOTE:
                return 0;
        case COLUMN_UNIT:
                return read_unit(r, column, text, row);
        case COLUMN_STATED:
                read_stated(column, text, (void *)member, row);
                return 0;
        case COLUMN_MS:
                row->unit = TABLE_MILLISECONDS;
                return read_measured(r, column, text, row);
        case COLUMN_SECONDS:
        case COLUMN_MEASURED:
                return read_measured(r, column, text, row);
        }
        return 0;
}

/* ---- lines ---- */

static bool measures(const struct column *column)
{
        return column->type >= COLUMN_MEASURED;
}

/* A column that is passed over would be a misspelt one, too. */
static int fail_column(const struct reader *r, const char *name)
{
        struct nearest nearest = {.word = name};
        for (int i = 0; i < r->form->count; i++) {
                nearest_offer(&nearest, r->form->columns[i].name);
                if (r->form->columns[i].other_name)
                        nearest_offer(&nearest, r->form->columns[i].other_name);
        }
        return rv_fail(r->err, RV_EINPUT,
                       "%.160s:%d: '%.40s' is not a known column%s%s; one of your own begins with note "
                       "('note: %.40s')",
                       r->path, r->line, name, nearest.known ? ", the nearest is " : "",
                       nearest.known ? nearest.known : "", name);
}

/* The line that names the columns. */
static int read_header(struct reader *r, char *const *cells, int count)
{
        bool measured = false, unit = false, own_unit = false;
        r->form = form_of(cells, count);
        for (int i = 0; i < count; i++) {
                r->columns[i] = column_of(r->form, cells[i]);
                if (!r->columns[i])
                        return fail_column(r, cells[i]);
                for (int j = 0; j < i; j++)
                        if (r->columns[i] == r->columns[j] && r->columns[i]->type != COLUMN_NOTE)
                                return rv_fail(r->err, RV_EINPUT, "%.160s:%d: there are two columns %s",
                                               r->path, r->line, r->columns[i]->name);
                if (measures(r->columns[i]) && measured)
                        return rv_fail(r->err, RV_EINPUT,
                                       "%.160s:%d: two columns say what was measured; one is right", r->path,
                                       r->line);
                measured |= measures(r->columns[i]);
                unit |= r->columns[i]->type == COLUMN_UNIT;
                own_unit |= measures(r->columns[i]) && r->columns[i]->type != COLUMN_MEASURED;
        }
        if (unit && own_unit)
                return rv_fail(
                        r->err, RV_EINPUT,
                        "%.160s:%d: unit is the unit of column measured; batch_seconds and \"iteration time "
                        "(ms)\" have their own",
                        r->path, r->line);
        r->count = count;
        for (int i = 0; i < r->form->count; i++) {
                bool found = !r->form->columns[i].needed;
                for (int j = 0; j < count; j++)
                        found |= r->columns[j] == &r->form->columns[i];
                if (!found)
                        return rv_fail(r->err, RV_EINPUT, "%.160s:%d: there is no column %s", r->path,
                                       r->line, r->form->columns[i].name);
        }
        if (!measured)
                return rv_fail(r->err, RV_EINPUT,
                               "%.160s:%d: no column says what was measured: batch_seconds, "
                               "\"iteration time (ms)\", or measured with unit",
                               r->path, r->line);
        return r->form->translated ? glossary_open(&r->glossary, r->err) : 0;
}

/* A preset says all of a model, and the flops of one are counted in ways that differ by a tenth from source
 * to source. */
static int check_model(const struct reader *r, const struct table_row *row)
{
        const bool flops = row->unit == TABLE_TFLOPS_PER_GPU || row->unit == TABLE_PERCENT_OF_PEAK;
        const bool shape = row->layers || row->hidden || row->heads || row->vocab;
        if (row->preset[0] && shape)
                return rv_fail(
                        r->err, RV_EINPUT,
                        "%.160s:%d: preset %.40s and layers, hidden, heads or vocab; one of the two says "
                        "which model it is",
                        r->path, r->line, row->preset);
        if (row->preset[0] && flops)
                return rv_fail(r->err, RV_EINPUT,
                               "%.160s:%d: unit %s of preset %.40s, whose flops sources count differently; "
                               "batch_seconds or tokens_per_second_per_gpu was expected",
                               r->path, r->line, units[row->unit], row->preset);
        if (!row->preset[0] && !(row->layers && row->hidden && row->heads))
                return rv_fail(
                        r->err, RV_EINPUT,
                        "%.160s:%d: which model? a preset, or layers, hidden and heads of a GPT-2 were "
                        "expected",
                        r->path, r->line);
        return 0;
}

static int read_row(const struct reader *r, char *const *cells, int count, struct table_row *row)
{
        *row = (struct table_row){.line = r->line};
        if (count != r->count)
                return rv_fail(r->err, RV_EINPUT, "%.160s:%d: %d cells, but the header has %d", r->path,
                               r->line, count, r->count);
        for (int i = 0; i < count; i++) {
                int rc = read_cell(r, r->columns[i], cells[i], row);
                if (rc)
                        return rc;
        }
        if (!r->form->translated)
                return check_model(r, row);
        glossary_translate(&r->glossary, r->form->common, row);
        return 0;
}

static int add_row(struct table *table, const struct table_row *row, struct rv_error_info *err)
{
        struct table_row *rows = table->rows;
        if ((table->count & (table->count - 1)) == 0) /* room doubles */
                rows = realloc(rows, (size_t)(table->count ? 2 * table->count : 1) * sizeof *rows);
        if (!rows)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d rows of %.160s", table->count + 1,
                               table->path);
        table->rows = rows;
        rows[table->count++] = *row;
        return 0;
}

static int read_line(struct table *table, struct reader *r, char *line)
{
        char *cells[CELLS], first[32];
        struct table_row row;
        snprintf(first, sizeof first, "%.*s", (int)strcspn(line, ","), line);
        if (!*line || (*line == '#' && !column_of(&forms[sizeof forms / sizeof *forms - 1], first)))
                return 0;
        int count = csv_split(line, cells, CELLS);
        if (count < 0)
                return rv_fail(r->err, RV_EINPUT,
                               "%.160s:%d: a quote is not closed, or there are more than %d cells", r->path,
                               r->line, CELLS);
        if (!r->form)
                return read_header(r, cells, count);
        int rc = read_row(r, cells, count, &row);
        return rc ? rc : add_row(table, &row, r->err);
}

int table_read(struct table *table, const char *path, struct rv_error_info *err)
{
        *table = (struct table){0};
        snprintf(table->path, sizeof table->path, "%s", path);
        struct reader reader = {.path = path, .err = err};
        struct file_lines lines = {.path = path, .stream = fopen(path, "r")};
        int rc = 0;
        if (!lines.stream)
                return rv_fail(err, RV_EINPUT, "%.160s: %s", path, strerror(errno));
        while (rc == 0 && (rc = file_next_line(&lines, err)) > 0) {
                reader.line++;
                rc = read_line(table, &reader, lines.line);
        }
        if (rc == 0 && table->count == 0)
                rc = rv_fail(err, RV_EINPUT,
                             "%.160s:%d: there is no row: a line that names the columns, then one a run",
                             path, reader.line);
        free(lines.line);
        fclose(lines.stream);
        glossary_close(&reader.glossary);
        if (rc)
                table_free(table);
        return rc;
}

void table_free(struct table *table)
{
        free(table->rows);
        *table = (struct table){0};
}
