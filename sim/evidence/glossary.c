#include "sim/evidence/glossary.h"

#include "runtime/base/file.h"
#include "runtime/base/nearest.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int glossary_open(struct glossary *glossary, struct rv_error_info *err)
{
        char path[1024];
        if (file_find(path, sizeof path, "sim/tables", "glossary", ".json"))
                return rv_fail(err, RV_EINPUT,
                               "sim/tables/glossary.json is not there: was all of the program installed?");
        glossary->document = file_read_json(path, err);
        return glossary->document ? 0 : err->code;
}

void glossary_close(struct glossary *glossary)
{
        json_decref(glossary->document);
        glossary->document = NULL;
}

/* ---- words ---- */

static const char *text_of(const json_t *entry, const char *key)
{
        const char *text = json_string_value(json_object_get(entry, key));
        return text ? text : "";
}

/* Whether a letter is compared: letters, digits and points are, and blanks and dashes, which every source
 * sets as it likes, are not. */
static bool counts(char letter)
{
        return isalnum((unsigned char)letter) || letter == '.';
}

static const char *skip(const char *text, bool pattern)
{
        while (*text && !counts(*text) && !(pattern && (*text == '#' || *text == '*')))
                text++;
        return text;
}

/* Whether a pattern of letters, # (a whole number, which is stored) and at its end * (anything) is `text`. */
static bool fits(const char *pattern, const char *text, int64_t *number)
{
        for (;;) {
                pattern = skip(pattern, true);
                text = skip(text, false);
                if (*pattern == '*')
                        return true;
                if (*pattern == '#' && isdigit((unsigned char)*text)) {
                        char *end;
                        *number = strtoll(text, &end, 10);
                        text = end;
                        pattern++;
                        continue;
                }
                if (!*pattern || !*text || tolower((unsigned char)*pattern) != tolower((unsigned char)*text))
                        return !*pattern && !*text;
                pattern++;
                text++;
        }
}

static bool any_fits(const json_t *names, const char *text, int64_t *number)
{
        for (size_t i = 0; i < json_array_size(names); i++)
                if (fits(json_string_value(json_array_get(names, i)), text, number))
                        return true;
        return false;
}

/* Whether what an entry says of another column of the row, if it does, fits. */
static bool also_fits(const json_t *entry, const char *column, const char *text, int64_t *number)
{
        const char *pattern = text_of(entry, column);
        return !pattern[0] || fits(pattern, text, number);
}

/* The first entry of a list that a text fits, and of those with "notes" or "precision" the row's too; NULL:
 * there is none. */
static const json_t *find(const struct glossary *g, const char *list, const char *text,
                          const struct table_row *row, int64_t *number)
{
        const json_t *entries = json_object_get(g->document, list), *entry;
        size_t i;
        json_array_foreach(entries, i, entry)
        {
                if (any_fits(json_object_get(entry, "names"), text, number) &&
                    also_fits(entry, "notes", row->notes, number) &&
                    also_fits(entry, "precision", row->precision, number))
                        return entry;
        }
        return NULL;
}

/* ---- what cannot be expressed ---- */

/* The first reason stays. */
static void refuse(struct table_row *row, const char *format, ...)
{
        va_list arguments;
        if (row->reason[0])
                return;
        va_start(arguments, format);
        vsnprintf(row->reason, sizeof row->reason, format, arguments);
        va_end(arguments);
}

/* The names of a list of which one may have been meant. */
static const char *nearest_name(const struct glossary *g, const char *list, const char *text)
{
        struct nearest nearest = {.word = text};
        const json_t *entry, *name;
        size_t i, j;
        json_array_foreach(json_object_get(g->document, list), i, entry)
        {
                json_array_foreach(json_object_get(entry, "names"), j, name)
                {
                        nearest_offer(&nearest, json_string_value(name));
                }
        }
        return nearest.known;
}

/* Returns the entry of a cell; NULL with a reason if there is none, or it says why the row cannot be
 * expressed. */
static const json_t *look_up(const struct glossary *g, struct table_row *row, const char *list,
                             const char *column, const char *text, int64_t *number)
{
        const json_t *entry = find(g, list, text, row, number);
        if (entry && !text_of(entry, "reason")[0])
                return entry;
        if (entry) {
                refuse(row, "%s '%.64s': %s", column, text, text_of(entry, "reason"));
                return NULL;
        }
        const char *known = text[0] ? nearest_name(g, list, text) : NULL;
        const int length = known ? (int)strcspn(known, "*") : 0;
        if (!text[0])
                refuse(row, "the source does not say its %s", column);
        else
                refuse(row, "%s '%.64s' is not in the glossary%s%.*s", column, text,
                       known ? "; the nearest there is " : "", length, known ? known : "");
        return NULL;
}

/* ---- a row ---- */

/* Adds flags, with a number in the place of #. */
static void add_flags(struct table_row *row, const char *flags, int64_t number)
{
        for (const char *from = flags; *from;) {
                const size_t used = strlen(row->plan), length = strcspn(from, "#");
                snprintf(row->plan + used, sizeof row->plan - used, "%s%.*s",
                         from == flags && used ? " " : "", (int)length, from);
                from += length;
                if (*from == '#') {
                        const size_t end = strlen(row->plan);
                        snprintf(row->plan + end, sizeof row->plan - end, "%lld", (long long)number);
                        from++;
                }
        }
}

/* The number behind "cut to", in any case; 0: the text has none. */
static int64_t layers_cut_to(const char *text)
{
        static const char words[] = "cut to ";
        for (; *text; text++) {
                size_t same = 0;
                while (words[same] && tolower((unsigned char)text[same]) == words[same])
                        same++;
                if (!words[same])
                        return strtoll(text + same, NULL, 10);
        }
        return 0;
}

static void take_model(const struct glossary *g, struct table_row *row)
{
        char path[1024];
        int64_t number = 0;
        row->kept_layers = layers_cut_to(row->model);
        if (!row->kept_layers)
                row->kept_layers = layers_cut_to(row->notes);
        if (row->model[0] && !find(g, "models", row->model, row, &number) &&
            file_find(path, sizeof path, "models/presets", row->model, ".json") == 0) {
                snprintf(row->preset, sizeof row->preset, "%s", row->model);
                return;
        }
        const json_t *entry = look_up(g, row, "models", "model", row->model, &number);
        if (!entry)
                return;
        snprintf(row->preset, sizeof row->preset, "%s", text_of(entry, "preset"));
        if (file_find(path, sizeof path, "models/presets", row->preset, ".json"))
                refuse(row, "model '%.64s': there is no preset %.64s", row->model, row->preset);
        row->kv_heads = json_integer_value(json_object_get(entry, "kv_heads"));
        row->dense_layers = json_integer_value(json_object_get(entry, "dense_layers"));
}

static void take_gpu(const struct glossary *g, struct table_row *row)
{
        int64_t number = 0;
        const json_t *entry = look_up(g, row, "gpus", "gpu", row->gpu, &number);
        if (!entry)
                return;
        snprintf(row->gpu_name, sizeof row->gpu_name, "%s", text_of(entry, "gpu"));
        snprintf(row->profile, sizeof row->profile, "%s", text_of(entry, "profile"));
        snprintf(row->platform, sizeof row->platform, "%s", text_of(entry, "platform"));
        add_flags(row, text_of(entry, "plan"), 0);
}

static void take_framework(const struct glossary *g, struct table_row *row)
{
        int64_t number = 0;
        const json_t *entry = look_up(g, row, "frameworks", "source", row->source, &number);
        if (!entry)
                return;
        snprintf(row->framework, sizeof row->framework, "%s", text_of(entry, "like"));
        add_flags(row, text_of(entry, "plan"), 0);
        if (row->sizes[GRID_SHARDS] > 1)
                add_flags(row, text_of(entry, "plan_tp"), 0);
        if (row->sizes[GRID_STAGES] > 1 && row->interleave <= 1)
                add_flags(row, text_of(entry, "plan_1f1b"), 0);
}

/* A column whose words are flags of a plan; the cell is then used up. */
static void take_flags(const struct glossary *g, struct table_row *row, const char *list, char *cell)
{
        int64_t number = 0;
        const json_t *entry = look_up(g, row, list, list, cell, &number);
        if (entry)
                add_flags(row, text_of(entry, "plan"), number);
        cell[0] = 0;
}

static void take_unit(const struct glossary *g, struct table_row *row)
{
        int64_t number = 0;
        const json_t *entry = look_up(g, row, "metrics", "metric", row->metric, &number);
        for (int unit = 0; entry && unit < TABLE_UNITS; unit++)
                if (strcmp(text_of(entry, "unit"), table_unit_name((enum table_unit)unit)) == 0)
                        row->unit = (enum table_unit)unit;
}

/* What the rows of a table have in common and none says. */
static void take_common(const json_t *common, struct table_row *row)
{
        const struct {
                const char *key;
                char *cell;
                size_t size;
        } texts[] = {{"source", row->source, sizeof row->source},
                     {"gpu", row->gpu, sizeof row->gpu},
                     {"precision", row->precision, sizeof row->precision},
                     {"recompute", row->recompute, sizeof row->recompute},
                     {"metric", row->metric, sizeof row->metric}};
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
                snprintf(texts[i].cell, texts[i].size, "%s", text_of(common, texts[i].key));
        row->batch = json_integer_value(json_object_get(common, "global_batch"));
        row->seq = json_integer_value(json_object_get(common, "seq_len"));
}

static void check_numbers(struct table_row *row)
{
        const struct {
                const char *column;
                int64_t number;
        } needed[] = {{"gpus", row->gpus},
                      {"tp", row->sizes[GRID_SHARDS]},
                      {"pp", row->sizes[GRID_STAGES]},
                      {"dp", row->sizes[GRID_REPLICAS]},
                      {"micro_batch", row->micro_batch},
                      {"global_batch", row->batch},
                      {"seq_len", row->seq}};
        for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
                if (!needed[i].number)
                        refuse(row, "the source does not say its %s", needed[i].column);
        if (row->reason[0])
                return;
        const int64_t context = row->context > 1 ? row->context : 1;
        const int64_t ranks = row->sizes[GRID_SHARDS] * row->sizes[GRID_STAGES] * row->sizes[GRID_REPLICAS];
        if (ranks > 1000000 || ranks * context != row->gpus)
                refuse(row,
                       "it contradicts itself: tp %lld x pp %lld x cp %lld x dp %lld is not its %lld GPUs",
                       (long long)row->sizes[GRID_SHARDS], (long long)row->sizes[GRID_STAGES],
                       (long long)context, (long long)row->sizes[GRID_REPLICAS], (long long)row->gpus);
        else if (row->experts_over > row->sizes[GRID_REPLICAS] * context * row->sizes[GRID_SHARDS])
                refuse(row, "it contradicts itself: ep %lld of %lld replicas of %lld shards",
                       (long long)row->experts_over, (long long)(row->sizes[GRID_REPLICAS] * context),
                       (long long)row->sizes[GRID_SHARDS]);
        else if (row->batch % (row->sizes[GRID_REPLICAS] * row->micro_batch))
                refuse(row,
                       "it contradicts itself: dp %lld x micro_batch %lld does not divide its batch of %lld",
                       (long long)row->sizes[GRID_REPLICAS], (long long)row->micro_batch,
                       (long long)row->batch);
}

/* What the notes say of memory, such as "peak allocated GiB=66.55": the most bytes that a device's tensors
 * had at once; 0: nothing. */
static double stated_memory(const char *notes)
{
        static const char words[] = "peak allocated GiB=";
        const char *at = strstr(notes, words);
        const double gib = at ? strtod(at + strlen(words), NULL) : 0;
        return gib > 0 && gib < 1e6 ? ldexp(gib, 30) : 0;
}

void glossary_translate(const struct glossary *g, const char *common, struct table_row *row)
{
        if (common)
                take_common(json_object_get(g->document, common), row);
        check_numbers(row);
        take_model(g, row);
        take_framework(g, row);
        take_gpu(g, row);
        take_flags(g, row, "zero", row->zero);
        take_flags(g, row, "recompute", row->recompute);
        take_flags(g, row, "precision", row->precision);
        take_unit(g, row);
        if (row->experts_over > 1) {
                const json_t *experts = json_object_get(g->document, "experts");
                const json_t *dispatcher = find(g, "dispatchers", row->notes, row, &(int64_t){0});
                add_flags(row, text_of(experts, "plan"), row->experts_over);
                add_flags(row, text_of(dispatcher, "plan"), 0);
                if (row->sizes[GRID_SHARDS] > 1)
                        add_flags(row, text_of(experts, "plan_tp"), 0);
        }
        if (row->context > 1)
                snprintf(row->cp, sizeof row->cp, "%lld", (long long)row->context);
        snprintf(row->schedule, sizeof row->schedule, "%s", row->interleave > 1 ? "interleaved" : "1f1b");
        row->memory_bytes = stated_memory(row->notes);
}
