#include "plots/sweep.h"

#include "models/gpt.h"
#include "runtime/base/csv.h"
#include "runtime/base/number.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The columns that the figures need, of those that the sweep writes; from FIRST_OPTIONAL on, files of older
 * versions may lack them. */
enum column {
        GPUS,
        OFFLOAD,
        PP,
        DP,
        MICRO_BATCH_SIZE,
        RECOMPUTE,
        OFFLOAD_ACTIVATIONS,
        TOKENS_PER_SECOND,
        PERCENT_OF_PEAK,
        DEVICE_PEAK_BYTES,
        DEVICE_TOTAL_BYTES,
        BEST,
        FIRST_OPTIONAL,
        TP = FIRST_OPTIONAL,
        VIRTUAL_STAGES,
        EP,
        CP,
        ZERO,
        SCHEDULE,
        P2P,
        OFFLOAD_PARAMETERS,
        MODEL,
        MACHINE,
        BATCH_SIZE,
        SEQ_LEN,
        DEVICE_MEMORY_BYTES,
        COLUMNS
};
static const char *const column_names[COLUMNS] = {"gpus",
                                                  "offload",
                                                  "pp",
                                                  "dp",
                                                  "micro_batch_size",
                                                  "recompute",
                                                  "offload_activations",
                                                  "tokens_per_second",
                                                  "percent_of_peak",
                                                  "device_peak_bytes",
                                                  "device_total_bytes",
                                                  "best",
                                                  "tp",
                                                  "virtual_stages",
                                                  "ep",
                                                  "cp",
                                                  "zero",
                                                  "schedule",
                                                  "p2p",
                                                  "offload_parameters",
                                                  "model",
                                                  "machine",
                                                  "batch_size",
                                                  "seq_len",
                                                  "device_memory_bytes"};

enum { MAX_FIELDS = 64 };
#define MAX_BYTES (INT64_C(1) << 60)

/* One line of the file, cut into fields in place. */
struct row {
        const char *path;
        int line;
        char *fields[MAX_FIELDS];
        int count;
        int place[COLUMNS]; /* which field a column is; kept from the first line */
};

/* Cuts `text` at its commas. */
static int split(struct row *row, char *text, struct rv_error_info *err)
{
        row->count = 0;
        for (char *at = text; at;) {
                if (row->count == MAX_FIELDS)
                        return rv_fail(err, RV_EINPUT, "%s:%d: has more than %d columns", row->path,
                                       row->line, MAX_FIELDS);
                row->fields[row->count++] = at;
                at = strchr(at, ',');
                if (at)
                        *at++ = 0;
        }
        return 0;
}

static int find_columns(struct row *row, struct rv_error_info *err)
{
        for (int c = 0; c < COLUMNS; c++) {
                row->place[c] = csv_find(row->fields, row->count, column_names[c]);
                if (c < FIRST_OPTIONAL && row->place[c] < 0)
                        return rv_fail(err, RV_EINPUT,
                                       "%s:%d: has no column '%s'; the CSV of ranvier sweep was expected",
                                       row->path, row->line, column_names[c]);
        }
        return 0;
}

static int take_real(const struct row *row, enum column column, double min, double max, double *value,
                     struct rv_error_info *err)
{
        const char *text = row->fields[row->place[column]];
        char *end;
        *value = strtod(text, &end);
        if (end == text || *end)
                return rv_fail(err, RV_EINPUT, "%s:%d: %s is '%.40s', a number was expected", row->path,
                               row->line, column_names[column], text);
        if (!(*value >= min && *value <= max))
                return rv_fail(err, RV_EINPUT, "%s:%d: %s is %.40s, from %g to %g was expected", row->path,
                               row->line, column_names[column], text, min, max);
        return 0;
}

static int take_whole(const struct row *row, enum column column, int64_t min, int64_t max, int64_t *value,
                      struct rv_error_info *err)
{
        const char *text = row->fields[row->place[column]];
        char *end;
        errno = 0;
        long long number = strtoll(text, &end, 10);
        if (end == text || *end)
                return rv_fail(err, RV_EINPUT, "%s:%d: %s is '%.40s', a whole number was expected", row->path,
                               row->line, column_names[column], text);
        if (errno || number < min || number > max)
                return rv_fail(err, RV_EINPUT, "%s:%d: %s is %.40s, from %lld to %lld was expected",
                               row->path, row->line, column_names[column], text, (long long)min,
                               (long long)max);
        *value = number;
        return 0;
}

/* The text of a column that may be missing, and is then "". */
static const char *optional_text(const struct row *row, enum column column)
{
        return row->place[column] < 0 ? "" : row->fields[row->place[column]];
}

/* What older files do not have keeps its value. */
static int take_optional(const struct row *row, struct sweep_plan *plan, struct rv_error_info *err)
{
        const struct {
                enum column column;
                int min;
                int *value;
        } counts[] = {{TP, 1, &plan->tp},
                      {VIRTUAL_STAGES, 1, &plan->virtual_stages},
                      {EP, 1, &plan->ep},
                      {CP, 1, &plan->cp},
                      {ZERO, 0, &plan->zero}};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                int64_t number = *counts[i].value;
                int rc = row->place[counts[i].column] < 0
                                 ? 0
                                 : take_whole(row, counts[i].column, counts[i].min, 1 << 24, &number, err);
                if (rc)
                        return rc;
                *counts[i].value = (int)number;
        }
        snprintf(plan->schedule, sizeof plan->schedule, "%s", optional_text(row, SCHEDULE));
        plan->blocking = strcmp(optional_text(row, P2P), "blocking") == 0;
        plan->offload_parameters = strcmp(optional_text(row, OFFLOAD_PARAMETERS), "yes") == 0;
        if (row->place[DEVICE_MEMORY_BYTES] < 0)
                return 0;
        return take_whole(row, DEVICE_MEMORY_BYTES, 0, MAX_BYTES, &plan->device_memory_bytes, err);
}

/* What the plans are of is in every line, and the same in all. */
static int take_subject(const struct row *row, struct sweep *sweep, struct rv_error_info *err)
{
        int rc = 0;
        snprintf(sweep->model, sizeof sweep->model, "%s", optional_text(row, MODEL));
        snprintf(sweep->machine, sizeof sweep->machine, "%s", optional_text(row, MACHINE));
        if (row->place[BATCH_SIZE] >= 0)
                rc = take_whole(row, BATCH_SIZE, 1, INT64_C(1) << 40, &sweep->batch_size, err);
        if (rc == 0 && row->place[SEQ_LEN] >= 0)
                rc = take_whole(row, SEQ_LEN, 1, 1 << 30, &sweep->seq_len, err);
        return rc;
}

static int take_grid(const struct row *row, struct sweep_plan *plan, struct rv_error_info *err)
{
        const struct {
                enum column column;
                int *value;
        } counts[] = {{GPUS, &plan->gpus},
                      {PP, &plan->pp},
                      {DP, &plan->dp},
                      {MICRO_BATCH_SIZE, &plan->micro_batch_size}};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                int64_t number;
                int rc = take_whole(row, counts[i].column, 1, 1 << 24, &number, err);
                if (rc)
                        return rc;
                *counts[i].value = (int)number;
        }
        return 0;
}

static int take_choices(const struct row *row, struct sweep_plan *plan, struct rv_error_info *err)
{
        const struct {
                enum column column;
                const char *no, *yes;
                bool *value;
        } choices[] = {{OFFLOAD, "no", "yes", &plan->offload},
                       {OFFLOAD_ACTIVATIONS, "no", "yes", &plan->offload_activations},
                       {BEST, "0", "1", &plan->best}};
        for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
                const char *text = row->fields[row->place[choices[i].column]];
                *choices[i].value = strcmp(text, choices[i].yes) == 0;
                if (!*choices[i].value && strcmp(text, choices[i].no) != 0)
                        return rv_fail(err, RV_EINPUT, "%s:%d: %s is '%.40s', '%s' or '%s' was expected",
                                       row->path, row->line, column_names[choices[i].column], text,
                                       choices[i].no, choices[i].yes);
        }
        return 0;
}

static int take_recompute(const struct row *row, struct sweep_plan *plan, struct rv_error_info *err)
{
        static const char letters[RECOMPUTES] = {
                [RECOMPUTE_SELECTIVE] = 's', [RECOMPUTE_FULL] = 'r',   [RECOMPUTE_LAYER] = 'l',
                [RECOMPUTE_NORMS] = 'n',     [RECOMPUTE_SWIGLU] = 'g', [RECOMPUTE_NORMS_SWIGLU] = 'e'};
        const char *text = row->fields[row->place[RECOMPUTE]];
        const int which = recompute_of_name(text);
        if (which < 0)
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: recompute is '%.40s', 'none', 'selective', 'full', 'layer', 'norms', "
                               "'swiglu' or "
                               "'norms+swiglu' was expected",
                               row->path, row->line, text);
        plan->recompute = letters[which];
        return 0;
}

static int take_plan(const struct row *row, struct sweep_plan *plan, struct rv_error_info *err)
{
        *plan = (struct sweep_plan){
                .line = row->line, .percent_of_peak = NAN, .tp = 1, .virtual_stages = 1, .ep = 1, .cp = 1};
        int rc = take_grid(row, plan, err);
        if (rc == 0)
                rc = take_optional(row, plan, err);
        if (rc == 0)
                rc = take_choices(row, plan, err);
        if (rc == 0)
                rc = take_recompute(row, plan, err);
        if (rc == 0)
                rc = take_real(row, TOKENS_PER_SECOND, 1e-12, 1e18, &plan->tokens_per_second, err);
        if (rc == 0)
                rc = take_whole(row, DEVICE_PEAK_BYTES, 0, MAX_BYTES, &plan->device_peak_bytes, err);
        if (rc == 0)
                rc = take_whole(row, DEVICE_TOTAL_BYTES, 0, MAX_BYTES, &plan->device_total_bytes, err);
        if (rc == 0 && *row->fields[row->place[PERCENT_OF_PEAK]])
                rc = take_real(row, PERCENT_OF_PEAK, 0, 1000, &plan->percent_of_peak, err);
        return rc;
}

static int add_plan(struct sweep *sweep, const struct sweep_plan *plan, struct rv_error_info *err)
{
        if (sweep->count == sweep->capacity) {
                int capacity = sweep->capacity ? 2 * sweep->capacity : 64;
                struct sweep_plan *plans = realloc(sweep->plans, (size_t)capacity * sizeof *plans);
                if (!plans)
                        return rv_fail(err, RV_ESYSTEM, "out of memory for %d plans", capacity);
                sweep->plans = plans;
                sweep->capacity = capacity;
        }
        sweep->plans[sweep->count++] = *plan;
        return 0;
}

static int read_plans(struct sweep *sweep, const char *path, FILE *csv, struct rv_error_info *err)
{
        struct row row = {.path = path};
        struct file_lines lines = {.path = path, .stream = csv};
        int rc = 0, columns = 0;
        while (rc == 0 && (rc = file_next_line(&lines, err)) > 0) {
                struct sweep_plan plan;
                row.line++;
                rc = split(&row, lines.line, err);
                if (row.line == 1) {
                        columns = row.count;
                        rc = rc ? rc : find_columns(&row, err);
                        continue;
                }
                if (rc == 0 && row.count != columns)
                        rc = rv_fail(err, RV_EINPUT,
                                     "%s:%d: has %d fields where line 1 names %d columns; is it cut short?",
                                     path, row.line, row.count, columns);
                if (rc == 0)
                        rc = take_plan(&row, &plan, err);
                if (rc == 0)
                        rc = take_subject(&row, sweep, err);
                if (rc == 0)
                        rc = add_plan(sweep, &plan, err);
        }
        free(lines.line);
        if (rc == 0 && row.line == 0)
                return rv_fail(err, RV_EINPUT, "%s: is empty; the CSV of ranvier sweep was expected", path);
        if (rc == 0 && sweep->count == 0)
                return rv_fail(err, RV_EINPUT, "%s: has columns but no plans", path);
        return rc;
}

static int by_gpus(const void *a, const void *b)
{
        const struct sweep_pair *x = a, *y = b;
        return (x->gpus > y->gpus) - (x->gpus < y->gpus);
}

static struct sweep_pair *pair_of(struct sweep *sweep, int gpus)
{
        for (int i = 0; i < sweep->pair_count; i++)
                if (sweep->pairs[i].gpus == gpus)
                        return &sweep->pairs[i];
        sweep->pairs[sweep->pair_count] = (struct sweep_pair){.gpus = gpus};
        return &sweep->pairs[sweep->pair_count++];
}

static int pair_plans(struct sweep *sweep, const char *path, struct rv_error_info *err)
{
        const struct sweep_plan *first = NULL;
        sweep->pairs = malloc((size_t)sweep->count * sizeof *sweep->pairs);
        if (!sweep->pairs)
                return rv_fail(err, RV_ESYSTEM, "out of memory for %d plans", sweep->count);
        for (int i = 0; i < sweep->count; i++) {
                const struct sweep_plan *plan = &sweep->plans[i];
                if (!plan->best)
                        continue;
                const struct sweep_plan **best = &pair_of(sweep, plan->gpus)->best[plan->offload];
                if (*best)
                        return rv_fail(
                                err, RV_EINPUT,
                                "%s:%d: is the best plan of %d GPUs with offload '%s', and so is line %d",
                                path, plan->line, plan->gpus, plan->offload ? "yes" : "no", (*best)->line);
                *best = plan;
                sweep->has[plan->offload] = true;
                first = first ? first : plan;
                sweep->several_schedules |= strcmp(plan->schedule, first->schedule) != 0;
        }
        if (sweep->pair_count == 0)
                return rv_fail(err, RV_EINPUT, "%s: no plan is marked as the best (column 'best')", path);
        qsort(sweep->pairs, (size_t)sweep->pair_count, sizeof *sweep->pairs, by_gpus);
        return 0;
}

int sweep_read(struct sweep *sweep, const char *path, struct rv_error_info *err)
{
        *sweep = (struct sweep){0};
        FILE *csv = fopen(path, "r");
        if (!csv)
                return rv_fail(err, RV_EINPUT, "%s: cannot be read: %s", path, strerror(errno));
        int rc = read_plans(sweep, path, csv, err);
        fclose(csv);
        if (rc == 0)
                rc = pair_plans(sweep, path, err);
        if (rc)
                sweep_free(sweep);
        return rc;
}

void sweep_free(struct sweep *sweep)
{
        free(sweep->plans);
        free(sweep->pairs);
        *sweep = (struct sweep){0};
}

/* What makes a plan beside its grid, micro-batch and what saves memory; "" if nothing does. */
static void write_rest(char text[SWEEP_TEXT], const struct sweep *sweep, const struct sweep_plan *plan)
{
        const struct {
                const char *name;
                int number, unsaid; /* up to which the name is left out */
        } parts[] = {{"V ", plan->virtual_stages, 1},
                     {"ZeRO-", plan->zero, 0},
                     {"ep ", plan->ep, 1},
                     {"cp ", plan->cp, 1}};
        size_t length = 0;
        *text = 0;
        if (sweep->several_schedules)
                length = (size_t)snprintf(text, SWEEP_TEXT, "%s", plan->schedule);
        if (plan->blocking)
                length += (size_t)snprintf(text + length, SWEEP_TEXT - length, "%sblocking",
                                           length ? ", " : "");
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
                if (parts[i].number > parts[i].unsaid)
                        length += (size_t)snprintf(text + length, SWEEP_TEXT - length, "%s%s%d",
                                                   length ? ", " : "", parts[i].name, parts[i].number);
}

bool sweep_plan_text(char text[SWEEP_TEXT], const struct sweep *sweep, const struct sweep_plan *plan)
{
        const char recompute[] = {' ', plan->recompute, 0};
        char rest[SWEEP_TEXT], shards[24] = "";
        if (plan->tp > 1)
                snprintf(shards, sizeof shards, " × %d", plan->tp);
        write_rest(rest, sweep, plan);
        snprintf(text, SWEEP_TEXT, "%d × %d%s, b %d%s%s%s%s%.80s", plan->pp, plan->dp, shards,
                 plan->micro_batch_size, plan->recompute ? recompute : "",
                 plan->offload_activations ? " a" : "", plan->offload_parameters ? " w" : "",
                 *rest ? "\\n" : "", rest);
        return *rest;
}

double sweep_gain_percent(const struct sweep_pair *pair)
{
        if (!pair->best[0] || !pair->best[1])
                return NAN;
        return 100 * (pair->best[1]->tokens_per_second / pair->best[0]->tokens_per_second - 1);
}

void sweep_name_numbers(struct figure *figure, const struct sweep *sweep)
{
        char words[4096] = "", *at = words;
        for (int i = 0; i < sweep->pair_count && at < words + sizeof words - 16; i++)
                at += sprintf(at, "%d ", sweep->pairs[i].gpus);
        figure_text(figure, "numbers", words);
}

void sweep_explain_plans(struct figure *figure, const struct sweep *sweep)
{
        static const struct {
                char letter;
                const char *key;
        } recomputations[] = {{'s', ", s scores recomputed"},       {'r', ", r recomputed"},
                              {'l', ", l layers recomputed whole"}, {'n', ", n norms recomputed"},
                              {'g', ", g SwiGLU recomputed"},       {'e', ", e norms and SwiGLU recomputed"}};
        char text[320];
        bool activations = false, parameters = false, shards = false;
        for (int i = 0; i < sweep->count; i++) {
                activations |= sweep->plans[i].best && sweep->plans[i].offload_activations;
                parameters |= sweep->plans[i].best && sweep->plans[i].offload_parameters;
                shards |= sweep->plans[i].best && sweep->plans[i].tp > 1;
        }
        snprintf(text, sizeof text, "stages × replicas%s, b micro-batch", shards ? " × shards" : "");
        for (size_t r = 0; r < sizeof recomputations / sizeof *recomputations; r++)
                for (int i = 0; i < sweep->count; i++)
                        if (sweep->plans[i].best && sweep->plans[i].recompute == recomputations[r].letter) {
                                strcat(text, recomputations[r].key);
                                break;
                        }
        if (activations)
                strcat(text, ", a activations offloaded");
        if (parameters)
                strcat(text, ", w weights offloaded");
        figure_text(figure, "plan_key", text);
}

void sweep_describe(struct figure *figure, const struct sweep *sweep)
{
        char text[320] = "", batch[NUMBER_TEXT];
        size_t length = 0;
        const char *schedule = sweep->several_schedules ? "" : sweep->plans[0].schedule;
        if (*sweep->model)
                length += (size_t)snprintf(text, sizeof text, ": %s", sweep->model);
        if (*sweep->model && sweep->batch_size)
                length += (size_t)snprintf(text + length, sizeof text - length, ", batch %s × %lld tokens",
                                           number_count(batch, (double)sweep->batch_size),
                                           (long long)sweep->seq_len);
        if (*sweep->model && *sweep->machine)
                length += (size_t)snprintf(text + length, sizeof text - length, ", %s", sweep->machine);
        if (*sweep->model && *schedule)
                snprintf(text + length, sizeof text - length, ", %s", schedule);
        figure_text(figure, "what", text);
}

void sweep_name_source(struct figure *figure, const char *path)
{
        const char *slash = strrchr(path, '/');
        figure_text(figure, "source", slash ? slash + 1 : path);
}
