#include "sim/evidence/measured.h"

#include "runtime/base/command_line.h"
#include "runtime/plan/flags.h"
#include "runtime/plan/grid.h"
#include "runtime/report/report.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which machine ---- */

/* The first whose name begins the GPU's: with its profile and its platform. */
#define GPUS(EACH)                                                                                           \
        EACH("A100", "a100-published", "selene")                                                             \
        EACH("V100-32GB (DGX-2H)", "v100-published", "dgx-2h")                                               \
        EACH("V100", "v100-datasheet", "summit")                                                             \
        EACH("H100", "h100-published", "dgx-h100")                                                           \
        EACH("H200", "h200", "dgx-h200")
#define AS_ROW(gpu, profile, platform)  {gpu, profile, platform},
#define AS_TEXT(gpu, profile, platform) ", " gpu " (" profile ", " platform ")"
static const struct {
        const char *gpu, *profile, *platform;
} gpus[] = {GPUS(AS_ROW)};
const char *const measured_gpus = &GPUS(AS_TEXT)[sizeof ", " - 1];

static int fail_row(const struct measured_run *run, enum rv_error code, const char *sentence,
                    struct rv_error_info *err)
{
        return rv_fail(err, code, "%.160s:%d: %.320s", run->table->path, run->row->line, sentence);
}

static const char *text_or_null(const char *text)
{
        return text[0] ? text : NULL;
}

static int name_machine(const struct measured_run *run, const struct measured_defaults *defaults,
                        const char **profile, const char **platform, struct rv_error_info *err)
{
        *profile = defaults->profile ? defaults->profile : text_or_null(run->row->profile);
        *platform = defaults->platform ? defaults->platform : text_or_null(run->row->platform);
        for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
                if (strncmp(run->row->gpu, gpus[i].gpu, strlen(gpus[i].gpu)) == 0) {
                        *profile = *profile ? *profile : gpus[i].profile;
                        *platform = *platform ? *platform : gpus[i].platform;
                        break;
                }
        if (*profile && *platform)
                return 0;
        return rv_fail(
                err, RV_EINPUT,
                "no profile and platform are known for gpu '%.40s': give --profile and --platform; known "
                "are %s",
                run->row->gpu, measured_gpus);
}

/* The machine of that many GPUs, opened if it is the first run on it. `machines` has room. */
static int open_machine(struct measured *m, struct measured_run *run, const char *profile,
                        const char *platform, struct rv_error_info *err)
{
        const int devices = (int)run->row->gpus;
        for (int i = 0; i < m->machine_count; i++) {
                const struct measured_machine *known = &m->machines[i];
                if (strcmp(known->profile, profile) == 0 && strcmp(known->platform, platform) == 0 &&
                    known->machine.gpus == devices) {
                        run->candidate.machine = &known->machine;
                        return 0;
                }
        }
        struct measured_machine *opened = &m->machines[m->machine_count];
        opened->profile = profile;
        opened->platform = platform;
        const int rc = machine_open(&opened->machine, profile, platform, devices, false, err);
        if (rc)
                return rc;
        opened->machine.no_graphs = true; /* frameworks launch kernel by kernel */
        m->machine_count++;
        run->candidate.machine = &opened->machine;
        return 0;
}

/* ---- which plan ---- */

enum { WORDS = 64, LONGEST = 1024 };

struct words {
        char text[LONGEST], *argv[WORDS + 1];
        int argc;
        size_t used;
};

/* Adds the words of a printf-style text that blanks part. */
static void add_words(struct words *words, const char *text)
{
        for (const char *from = text; *from;) {
                size_t blank = strspn(from, " "), length = strcspn(from + blank, " ");
                from += blank;
                if (length && words->argc < WORDS && words->used + length < LONGEST) {
                        char *word = words->text + words->used;
                        memcpy(word, from, length);
                        word[length] = 0;
                        words->argv[words->argc++] = word;
                        words->used += length + 1;
                }
                from += length;
        }
}

static bool ends_with(const char *text, const char *end)
{
        size_t length = strlen(text), tail = strlen(end);
        return length >= tail && strcmp(text + length - tail, end) == 0;
}

static int set_flag(struct options *o, const char *flag, const char *text, struct rv_error_info *err)
{
        return flag_parse(flag_named(flag), o, text, err);
}

static int set_number(struct options *o, const char *flag, int64_t number, struct rv_error_info *err)
{
        char text[32];
        snprintf(text, sizeof text, "%lld", (long long)number);
        return set_flag(o, flag, text, err);
}

static int take_recompute(struct options *o, const char *recompute, struct rv_error_info *err)
{
        char what[TABLE_TEXT];
        const char *sequence = "+sequence";
        snprintf(what, sizeof what, "%s", recompute);
        if (ends_with(what, sequence)) {
                what[strlen(what) - strlen(sequence)] = 0;
                if (set_flag(o, "sequence-parallel", NULL, err))
                        return err->code;
        }
        if (!recompute[0])
                return 0;
        /* what others call full runs a layer whole again */
        return set_flag(o, "recompute", strcmp(what, "full") == 0 ? "layer" : what, err);
}

/* Virtual stages where the table does not say: the fewest, from two on, that divide the layers. */
static int64_t fewest_virtual_stages(const struct table_row *row)
{
        for (int64_t v = 2; v * row->sizes[GRID_STAGES] <= row->layers; v++)
                if (row->layers % (v * row->sizes[GRID_STAGES]) == 0)
                        return v;
        return 1;
}

static int take_schedule(struct options *o, const struct table_row *row, struct rv_error_info *err)
{
        if (!row->schedule[0])
                return 0;
        if (strcmp(row->schedule, "zero3") == 0) {
                const int rc = set_flag(o, "zero", "3", err);
                return rc ? rc : set_flag(o, "schedule", "1f1b", err);
        }
        if (strcmp(row->schedule, "axonn") == 0) { /* it waits for no message, and fills nodes with stages */
                int rc = set_flag(o, "p2p", "async", err);
                if (rc == 0)
                        rc = set_flag(o, "order", "stages", err);
                if (rc)
                        return rc;
        }
        if (strcmp(row->schedule, "interleaved") == 0) {
                const int64_t v = row->interleave ? row->interleave : fewest_virtual_stages(row);
                if (v <= 1)
                        return set_flag(o, "schedule", "1f1b", err);
                int rc = set_number(o, "virtual-stages", v, err);
                if (rc)
                        return rc;
        }
        return set_flag(o, "schedule", row->schedule, err);
}

/* A preset with what the row says otherwise: fewer layers, fewer of them without experts, other heads of
 * keys; and longer sequences than the preset's, which rotary positions have no limit for. */
static int take_preset(const struct table_row *row, struct gpt *gpt, struct rv_error_info *err)
{
        int rc = gpt_load(gpt, row->preset, err);
        if (rc || !row->framework[0])
                return rc;
        if (row->kept_layers > gpt->n_layer)
                return rv_fail(err, RV_EINPUT, "model '%.64s' cannot be cut to %lld layers: it has %d",
                               row->model, (long long)row->kept_layers, gpt->n_layer);
        if (row->kept_layers > 0)
                gpt->n_layer = (int)row->kept_layers;
        if (row->dense_layers > 0)
                gpt->n_dense = (int)row->dense_layers;
        if (row->kv_heads > 0)
                gpt->n_kv_head = (int)row->kv_heads;
        if (gpt->rope_theta > 0 && row->seq > gpt->n_positions)
                gpt->n_positions = (int)row->seq;
        return gpt_check(gpt, err);
}

static int take_model(const struct table_row *row, struct gpt *gpt, struct rv_error_info *err)
{
        if (row->preset[0])
                return take_preset(row, gpt, err);
        *gpt = (struct gpt){.n_layer = (int)row->layers,
                            .n_embd = (int)row->hidden,
                            .n_head = (int)row->heads,
                            .vocab_size = (int)(row->vocab ? row->vocab : 51200),
                            .n_positions = (int)row->seq,
                            .tied = true};
        snprintf(gpt->name, sizeof gpt->name, "%.48s", row->model[0] ? row->model : "the model");
        return gpt_check(gpt, err);
}

/* The columns that are called as a flag and hold what it takes. */
enum { FLAG_COLUMNS = 5 };
struct flag_column {
        const char *flag, *text;
};
static void list_flag_columns(const struct table_row *row, struct flag_column columns[FLAG_COLUMNS])
{
        columns[0] = (struct flag_column){"zero", row->zero};
        columns[1] = (struct flag_column){"shard-replicas", row->shard_replicas};
        columns[2] = (struct flag_column){"cp", row->cp};
        columns[3] = (struct flag_column){"precision", row->precision};
        columns[4] = (struct flag_column){"like", row->like};
}

static int take_flags(struct options *o, const struct table_row *row, struct rv_error_info *err)
{
        struct flag_column columns[FLAG_COLUMNS];
        int rc = 0;
        list_flag_columns(row, columns);
        for (int i = 0; rc == 0 && i < FLAG_COLUMNS; i++)
                if (columns[i].text[0])
                        rc = set_flag(o, columns[i].flag, columns[i].text, err);
        return rc;
}

/* What the row's columns say; the limits of flags hold. */
static int take_columns(struct options *o, const struct table_row *row, struct rv_error_info *err)
{
        const struct {
                const char *flag;
                int64_t number;
        } columns[] = {
                {"batch-size", row->batch}, {"micro-batch-size", row->micro_batch}, {"seq-len", row->seq}};
        int rc = 0;
        for (int axis = 0; rc == 0 && axis < GRID_AXES; axis++)
                rc = set_number(o, grid_axes[axis].size, row->sizes[axis], err);
        for (size_t i = 0; rc == 0 && i < sizeof columns / sizeof *columns; i++)
                rc = set_number(o, columns[i].flag, columns[i].number, err);
        if (rc || !row->tp_grid[0])
                return rc;
        rc = set_flag(o, "tp", row->tp_grid, err);
        if (rc == 0 && o->tp != row->sizes[GRID_SHARDS])
                return rv_fail(err, RV_EINPUT, "tp_grid %s has %d shards, and column tp says %lld",
                               row->tp_grid, o->tp, (long long)row->sizes[GRID_SHARDS]);
        return rc;
}

static bool any_size(const int sizes[GRID_AXES])
{
        for (int axis = 0; axis < GRID_AXES; axis++)
                if (sizes[axis])
                        return true;
        return false;
}

/* Whether the words give a flag whose column the row fills; `*flag` is then its name. */
static bool says_flag_again(const struct table_row *row, const struct words *words, const char **flag)
{
        struct flag_column columns[FLAG_COLUMNS];
        list_flag_columns(row, columns);
        for (int i = 0; i < FLAG_COLUMNS; i++)
                for (int j = 1; columns[i].text[0] && j < words->argc; j++) {
                        const size_t length = strcspn(words->argv[j], "=");
                        *flag = columns[i].flag;
                        if (length == strlen(*flag) + 2 &&
                            strncmp(words->argv[j] + 2, *flag, length - 2) == 0)
                                return true;
                }
        return false;
}

/* The flags of the column plan, which may say nothing that another column says; then those of the framework
 * for what nobody says: --like's, or else the one that the source's name says. */
static int parse_more(struct measured *m, const struct table_row *row, struct options *o,
                      struct rv_error_info *err)
{
        struct words words = {.argv = {"ranvier validate"}, .argc = 1};
        struct options own = *o;
        const char *flag;
        memset(own.sizes, 0, sizeof own.sizes);
        own.micro_batch_size = own.seq_len = 0;
        own.batch_size = 0;
        add_words(&words, row->plan);
        if (says_flag_again(row, &words, &flag))
                return rv_fail(err, RV_EINPUT,
                               "plan '%.64s' says --%s, and so does a column; one of the two is right",
                               row->plan, flag);
        int rc = command_line_parse(options_argp(), words.argc, words.argv, &own, true, err);
        if (rc == COMMAND_LINE_DONE)
                return rv_fail(err, RV_EINPUT, "plan '%.64s' asks for help; flags of a plan were expected",
                               row->plan);
        if (rc)
                return rc;
        if (own.model)
                return rv_fail(err, RV_EINPUT, "plan: '%.64s' is no flag; the model is in columns",
                               own.model);
        if (own.from)
                return rv_fail(err, RV_EINPUT, "plan '%.64s' names a file of a plan; flags were expected",
                               row->plan);
        if (any_size(own.sizes) || own.micro_batch_size || own.seq_len || own.batch_size)
                return rv_fail(err, RV_EINPUT,
                               "plan '%.64s' says what a column says: pp, dp, tp, batch, micro_batch or seq",
                               row->plan);
        memcpy(own.sizes, o->sizes, sizeof own.sizes);
        own.micro_batch_size = o->micro_batch_size, own.seq_len = o->seq_len, own.batch_size = o->batch_size;
        *o = own;
        if (!o->like && row->framework[0])
                o->like = row->framework;
        return frameworks_take(&m->frameworks, o, err);
}

/* The plan of a row: the command line's, and what the row says. */
static int take_plan(struct measured *m, struct measured_run *run, const struct measured_defaults *defaults,
                     struct rv_error_info *err)
{
        const struct table_row *row = run->row;
        struct options *o = &run->candidate.options;
        *o = defaults->plan;
        int rc = take_model(row, &o->gpt, err);
        if (rc == 0)
                rc = take_recompute(o, row->recompute, err);
        if (rc == 0)
                rc = take_schedule(o, row, err);
        if (rc == 0)
                rc = take_flags(o, row, err);
        if (rc == 0)
                rc = take_columns(o, row, err);
        return rc ? rc : parse_more(m, row, o, err);
}

static void add_to_name(struct measured_run *run, const char *format, ...)
{
        const size_t used = strlen(run->name);
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(run->name + used, sizeof run->name - used, format, arguments);
        va_end(arguments);
}

/* After its columns, where there is no plan. */
static void name_row(struct measured_run *run)
{
        const struct table_row *row = run->row;
        add_to_name(run, "%.48s s%lld b%lld mb%lld tp%lld pp%lld dp%lld", row->model, (long long)row->seq,
                    (long long)row->batch, (long long)row->micro_batch, (long long)row->sizes[GRID_SHARDS],
                    (long long)row->sizes[GRID_STAGES], (long long)row->sizes[GRID_REPLICAS]);
}

static void name_run(struct measured_run *run)
{
        const struct options *o = &run->candidate.options;
        if (!run->row->preset[0])
                add_to_name(run, "h%d l%d", o->gpt.n_embd, o->gpt.n_layer);
        else if (run->row->kept_layers)
                add_to_name(run, "%.48s l%d", o->gpt.name, o->gpt.n_layer);
        else
                add_to_name(run, "%.48s", o->gpt.name);
        char shards[FLAG_TEXT];
        add_to_name(run, " s%d b%lld mb%d tp%s pp%d dp%d", o->seq_len, (long long)o->batch_size,
                    o->micro_batch_size, flag_write(flag_named("tp"), o, shards), o->pp, o->dp);
        if (o->cp > 1)
                add_to_name(run, " cp%d", o->cp);
        if (o->ep > 1)
                add_to_name(run, " ep%d", o->ep);
        add_to_name(run, " %s", recompute_name(o->recompute));
        if (o->virtual_stages > 1)
                add_to_name(run, " v%d", o->virtual_stages);
        else if (o->zero)
                add_to_name(run, " zero%d", o->zero);
        if (o->shard_replicas)
                add_to_name(run, "%s%d", o->zero == 1 ? " in groups of " : " hsdp", o->shard_replicas);
        if (o->sequence_parallel)
                add_to_name(run, " sp");
}

/* ---- all of them ---- */

/* A plan and a machine of the row; what is wrong with them is said without file and line. */
static int settle_run(struct measured *m, struct measured_run *run, const struct measured_defaults *defaults,
                      struct rv_error_info *err)
{
        struct options *o = &run->candidate.options;
        const char *profile = NULL, *platform = NULL;
        int rc = take_plan(m, run, defaults, err);
        if (rc == 0)
                rc = name_machine(run, defaults, &profile, &platform, err);
        if (rc == 0)
                rc = machine_choose_precision(profile, o, err); /* if nothing says it */
        if (rc == 0)
                rc = options_resolve_gpt(o, (int)run->row->gpus, err);
        if (rc && run->row->framework[0])
                name_row(run);
        else
                name_run(run);
        if (rc == 0)
                rc = open_machine(m, run, profile, platform, err);
        return rc ? rc : machine_settle(run->candidate.machine, o, err);
}

/* Whether a figure of the profile, or of the framework on this GPU, was fitted on the run. A framework's says
 * the plan and what was measured: runs of one plan differ in their formats. */
static bool is_fitted(const struct measured_run *run)
{
        const struct profile *profile = &run->candidate.machine->profile;
        char words[MEASURED_NAME + 32];
        snprintf(words, sizeof words, "%s: %.9g ", run->name, run->row->low);
        return json_object_get(profile->fitted_on, run->name) != NULL ||
               framework_fitted_on(run->candidate.options.framework, profile->device.name, words);
}

/* What is not built is passed over; so is, of a table whose words are others', all that stands in the way of
 * a row. */
static int open_run(struct measured *m, struct measured_run *run, const struct measured_defaults *defaults,
                    struct rv_error_info *err)
{
        int rc = 0;
        if (run->row->reason[0]) {
                rc = rv_fail(&run->why, RV_ENOTBUILT, "%s", run->row->reason);
                name_row(run);
        } else
                rc = settle_run(m, run, defaults, &run->why);
        if (rc == RV_ENOTBUILT || (rc && rc != RV_ESYSTEM && run->row->framework[0])) {
                run->skipped = true;
                run->candidate.machine = NULL;
                return 0;
        }
        if (rc)
                return fail_row(run, rc, run->why.sentence, err);
        run->fitted = is_fitted(run);
        machine_choose_logits(run->candidate.machine, &run->candidate.options);
        run->capacity = machine_capacity(run->candidate.machine, &run->candidate.options);
        run->fits = capacity_check(&run->candidate.options, &run->capacity, &run->need, NULL) == 0;
        return 0;
}

/* The jobs of what is not skipped, the longest first. */
static int list_jobs(struct measured *m, struct rv_error_info *err)
{
        const struct candidate **candidates = calloc((size_t)m->count + 1, sizeof(const struct candidate *));
        int count = 0;
        for (int i = 0; candidates && i < m->count; i++)
                if (!m->runs[i].skipped)
                        candidates[count++] = &m->runs[i].candidate;
        m->jobs.tokens = report_tokens(0);
        m->jobs.intervals = true;
        int rc = candidates ? jobs_add(&m->jobs, candidates, count, err)
                            : rv_fail(err, RV_ESYSTEM, "no memory for %d runs", m->count);
        free(candidates);
        for (int i = 0; rc == 0 && i < m->count; i++)
                for (int j = 0; j < m->jobs.count; j++)
                        if (m->jobs.list[j].candidate == &m->runs[i].candidate)
                                m->runs[i].job = &m->jobs.list[j];
        return rc;
}

int measured_open(struct measured *m, const struct table *tables, int count,
                  const struct measured_defaults *defaults, struct rv_error_info *err)
{
        int rows = 0, rc = 0;
        for (int i = 0; i < count; i++)
                rows += tables[i].count;
        *m = (struct measured){.runs = calloc((size_t)rows + 1, sizeof *m->runs),
                               .machines = calloc((size_t)rows + 1, sizeof *m->machines)};
        if (!m->runs || !m->machines)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d runs", rows);
        for (int i = 0; rc == 0 && i < count; i++)
                for (int j = 0; rc == 0 && j < tables[i].count; j++) {
                        struct measured_run *run = &m->runs[m->count++];
                        run->table = &tables[i];
                        run->row = &tables[i].rows[j];
                        rc = open_run(m, run, defaults, err);
                }
        return rc ? rc : list_jobs(m, err);
}

void measured_close(struct measured *m)
{
        for (int i = 0; i < m->machine_count; i++)
                machine_close(&m->machines[i].machine);
        free(m->machines);
        frameworks_free(&m->frameworks);
        free(m->runs);
        free(m->jobs.list);
        *m = (struct measured){0};
}

/* ---- what came out ---- */

/* What the row would have measured of batches of so many seconds. */
static double figure_of(const struct measured_run *run, double seconds)
{
        const struct options *o = &run->candidate.options;
        const double flops_per_second = gpt_batch_flops(&o->gpt, o->batch_size, o->seq_len, o->recompute) /
                                        seconds / (double)run->row->gpus;
        switch (run->row->unit) {
        case TABLE_MILLISECONDS:
                return 1e3 * seconds;
        case TABLE_TOKENS_PER_SECOND_PER_GPU:
                return (double)o->batch_size * o->seq_len / seconds / (double)run->row->gpus;
        case TABLE_TFLOPS_PER_GPU:
                return 1e-12 * flops_per_second;
        case TABLE_PERCENT_OF_PEAK:
                return 100 * flops_per_second /
                       machine_peak_flops_per_second(run->candidate.machine, o->dtype, o->format);
        default:
                return seconds;
        }
}

bool measured_predicted(const struct measured_run *run)
{
        return run->job && run->job->outcome.state == OUTCOME_DONE;
}

double measured_prediction(const struct measured_run *run)
{
        return figure_of(run, measured_predicted(run) ? run->job->outcome.figures.median : NAN);
}

bool measured_interval(const struct measured_run *run, double *low, double *high)
{
        if (!measured_predicted(run) || !(run->job->outcome.figures.low > 0))
                return false;
        const double a = figure_of(run, run->job->outcome.figures.low);
        const double b = figure_of(run, run->job->outcome.figures.high);
        *low = fmin(a, b); /* a rate is high where seconds are few */
        *high = fmax(a, b);
        return true;
}

double measured_error(const struct measured_run *run)
{
        const double predicted = measured_prediction(run), low = run->row->low, high = run->row->high;
        return predicted < low    ? predicted / low - 1
               : predicted > high ? predicted / high - 1
                                  : predicted * 0;
}

double measured_memory(const struct measured_run *run)
{
        return (double)run->job->outcome.figures.live_peak_bytes;
}

double measured_memory_error(const struct measured_run *run)
{
        return measured_memory(run) / run->row->memory_bytes - 1;
}
