/* Reading: a file becomes items, by a tool's table items become flags of a plan. */
#include "runtime/launch/table.h"

#include "runtime/base/nearest.h"
#include "runtime/base/parse.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- items ---- */

int launch_add_item(struct launch *l, const char *key, const char *value, int line, struct rv_error_info *err)
{
        enum { MOST_ITEMS = 4096 }; /* each is looked for among all, and in the text */
        if (l->item_count == MOST_ITEMS)
                return rv_fail(
                        err, RV_EINPUT,
                        "%s:%d: is key number %d: so many are of no launch of a training, at most %d were "
                        "expected",
                        l->path, line, MOST_ITEMS + 1, MOST_ITEMS);
        struct launch_item *more = realloc(l->items, (size_t)(l->item_count + 1) * sizeof *more);
        if (more)
                l->items = more;
        struct launch_item item = {more ? strdup(key) : NULL, more ? strdup(value) : NULL, line};
        if (!item.key || !item.value) {
                free(item.key);
                free(item.value);
                return rv_fail(err, RV_ESYSTEM, "no memory for what %s says", l->path);
        }
        l->items[l->item_count++] = item;
        return 0;
}

const struct launch_item *launch_item(const struct launch *l, const char *key)
{
        for (int i = l->item_count - 1; i >= 0; i--)
                if (strcmp(l->items[i].key, key) == 0)
                        return &l->items[i];
        return NULL;
}

const char *launch_value(const struct launch *l, const char *key)
{
        const struct launch_item *item = launch_item(l, key);
        return item ? item->value : NULL;
}

static bool is_off(const char *value)
{
        char *end;
        if (*value && strtod(value, &end) == 0 && !*end)
                return true;
        return launch_lists("false False FALSE no No none None null", value);
}

bool launch_is_on(const struct launch *l, const char *key)
{
        const char *value = launch_value(l, key);
        return value && !is_off(value);
}

int launch_wrong(const struct launch *l, const char *key, enum rv_error code, struct rv_error_info *err,
                 const char *format, ...)
{
        const struct launch_item *item = launch_item(l, key);
        char sentence[640];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(sentence, sizeof sentence, format, arguments);
        va_end(arguments);
        if (!item)
                return rv_fail(err, code, "%s: %s is not there; %s", l->path, key, sentence);
        return rv_fail(err, code, "%s:%d: %s%s%.80s; %s", l->path, item->line, key,
                       *item->value ? " is " : "", item->value, sentence);
}

int launch_number(const struct launch *l, const char *key, int64_t *value, struct rv_error_info *err)
{
        const char *text = launch_value(l, key);
        if (!text || parse_int(key, text, INT32_MIN, INT32_MAX, value, NULL) == 0)
                return 0;
        return launch_wrong(l, key, RV_EINPUT, err, "a whole number was expected, of at most %d", INT32_MAX);
}

bool launch_lists(const char *list, const char *word)
{
        const size_t length = strlen(word);
        for (const char *at = list; length && (at = strstr(at, word)); at++)
                if ((at == list || at[-1] == ' ') && (!at[length] || at[length] == ' '))
                        return true;
        return false;
}

/* ---- words ---- */

int launch_say(struct launch *l, const char *flag, const char *text, const char *key,
               struct rv_error_info *err)
{
        const struct launch_item *item = key ? launch_item(l, key) : NULL;
        struct launch_word *more = realloc(l->words, (size_t)(l->word_count + 1) * sizeof *more);
        if (more)
                l->words = more;
        struct launch_word word = {flag_named(flag), more ? strdup(text) : NULL, item ? key : NULL,
                                   more && item ? strdup(item->value) : NULL, item ? item->line : 0};
        if (!word.text || (item && !word.found)) {
                free(word.text);
                free(word.found);
                return rv_fail(err, RV_ESYSTEM, "no memory for what %s says", l->path);
        }
        l->words[l->word_count++] = word;
        return 0;
}

const char *launch_said(const struct launch *l, const char *flag)
{
        for (int i = l->word_count - 1; i >= 0; i--)
                if (strcmp(l->words[i].flag->name, flag) == 0)
                        return l->words[i].text;
        return NULL;
}

static void add_name(char *list, size_t size, const char *name)
{
        const size_t length = strlen(list);
        if (!launch_lists(list, name))
                snprintf(list + length, size - length, " %s", name);
}

/* ---- the table ---- */

static bool matches(const char *pattern, const char *key)
{
        const size_t length = strlen(pattern);
        const bool begins = length > 0 && pattern[length - 1] == '*';
        return begins ? strncmp(pattern, key, length - 1) == 0 : strcmp(pattern, key) == 0;
}

static bool means_nothing(const struct launch_tool *tool, const char *key)
{
        if (key[0] == '-' && key[1] != '-') /* a letter, of who starts the program */
                return true;
        for (const char *const *name = tool->nothing; *name; name++)
                if (matches(*name, key))
                        return true;
        return false;
}

const struct launch_row *launch_row(const struct launch_tool *tool, const char *key)
{
        for (const struct launch_row *row = tool->rows; row->theirs; row++)
                if (strcmp(row->theirs, key) == 0)
                        return row;
        return NULL;
}

/* Keys that no row has. */
static int check_keys(struct launch *l, struct rv_error_info *err)
{
        for (int i = 0; i < l->item_count; i++) {
                const struct launch_item *item = &l->items[i];
                if (launch_row(l->tool, item->key) || (l->tool->knows && l->tool->knows(item->key)))
                        continue;
                if (means_nothing(l->tool, item->key)) {
                        l->nothing_count += !launch_lists(l->nothing, item->key);
                        add_name(l->nothing, sizeof l->nothing, item->key);
                        continue;
                }
                struct nearest nearest = {.word = item->key};
                for (const struct launch_row *row = l->tool->rows; row->theirs; row++)
                        nearest_offer(&nearest, row->theirs);
                return rv_fail(
                        err, RV_ENOTBUILT,
                        "%s:%d: what %.80s changes is not known here%s%s%s; without it the file can be "
                        "read (docs/launch.md lists what is known of %s)",
                        l->path, item->line, item->key, nearest.known ? " (the nearest known is " : "",
                        nearest.known ? nearest.known : "", nearest.known ? ")" : "", l->tool->title);
        }
        return 0;
}

char *launch_choice(const char *values, const char *word, bool ours, char text[FLAG_TEXT])
{
        char theirs[FLAG_TEXT], own[FLAG_TEXT];
        text[0] = 0;
        for (int length; sscanf(values, " %63[^= ]=%63s%n", theirs, own, &length) == 2; values += length)
                if (strcmp(ours ? theirs : own, word) == 0)
                        return snprintf(text, FLAG_TEXT, "%s", ours ? own : theirs), text;
        return text;
}

/* What is right of a row with choices, in a sentence. */
static void list_choices(const struct launch_row *row, char *text, size_t size)
{
        size_t end = 0;
        text[0] = 0;
        for (const char *at = row->values; *at && end < size; at += strcspn(at, " "), at += *at == ' ') {
                const size_t length = strcspn(at, row->how == ROW_CHOICE ? "=" : " ");
                end += (size_t)snprintf(text + end, size - end, "%s%.*s", end ? ", " : "", (int)length, at);
        }
}

static int take_row(struct launch *l, const struct launch_row *row, struct rv_error_info *err)
{
        const struct launch_item *item = launch_item(l, row->theirs);
        char text[FLAG_TEXT], right[256];
        const bool flag = row->how == ROW_VALUE || row->how == ROW_CHOICE || row->how == ROW_SWITCH;
        if (!item && launch_lists(l->automatic, row->theirs))
                return 0; /* neither the tool's default nor a value: what ranvier takes */
        if (!item)
                return flag && row->absent ? launch_say(l, row->ours, row->absent, NULL, err) : 0;
        const char *mark = strchr(item->value, MARK);
        if (mark && row->how != ROW_UNMODELLED && row->how != ROW_GPUS)
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: %s is %.*s, whose value is not in the file: set it there", l->path,
                               item->line, row->theirs, (int)strcspn(mark + 1, "\2"), mark + 1);
        switch (row->how) {
        case ROW_VALUE:
                return launch_say(l, row->ours, item->value, row->theirs, err);
        case ROW_CHOICE:
                if (launch_choice(row->values, item->value, true, text)[0])
                        return launch_say(l, row->ours, text, row->theirs, err);
                list_choices(row, right, sizeof right);
                return launch_wrong(l, row->theirs, RV_ENOTBUILT, err, "%s are built", right);
        case ROW_SWITCH:
                snprintf(text, sizeof text, "%.*s", (int)strcspn(row->values, " "), row->values);
                return !is_off(item->value) ? launch_say(l, row->ours, text, row->theirs, err)
                       : row->absent        ? launch_say(l, row->ours, row->absent, row->theirs, err)
                                            : 0;
        case ROW_ONLY:
                if (launch_lists(row->values, *item->value ? item->value : "true"))
                        return 0;
                list_choices(row, right, sizeof right);
                return launch_wrong(l, row->theirs, RV_ENOTBUILT, err, "%s%s", row->why ? row->why : right,
                                    row->why ? "" : " is what is built");
        case ROW_UNMODELLED:
                if (!is_off(item->value))
                        add_name(l->unmodelled, sizeof l->unmodelled, row->theirs);
                return 0;
        default:
                return 0;
        }
}

static int translate(struct launch *l, struct rv_error_info *err)
{
        int rc = check_keys(l, err);
        for (const struct launch_row *row = l->tool->rows; rc == 0 && row->theirs; row++)
                rc = take_row(l, row, err);
        return rc ? rc : l->tool->read(l, err);
}

/* ---- into options ---- */

static int apply(const struct launch *l, struct options *o, bool predicts, struct rv_error_info *err)
{
        for (int i = 0; i < l->word_count; i++) {
                const struct launch_word *word = &l->words[i];
                struct rv_error_info why;
                if (strcmp(word->flag->name, "like") == 0 && !predicts)
                        continue;
                if (flag_parse(word->flag, o, word->text, &why))
                        return rv_fail(err, why.code, "%s:%d: %s%s%.80s: %s", l->path, word->line,
                                       word->theirs ? word->theirs : l->tool->title,
                                       word->found && *word->found ? " is " : "",
                                       word->found ? word->found : "", why.sentence);
        }
        return 0;
}

/* How many ranks the sizes of the grid make that are said; 0: that is no number of ranks. */
static int ranks_said(const struct launch *l)
{
        static const char *const axes[] = {"dp", "pp", "tp", "cp"};
        int64_t ranks = 1;
        for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
                int64_t size = 1;
                const char *text = launch_said(l, axes[i]);
                if ((text && parse_int(axes[i], text, 1, 1 << 20, &size, NULL)) || ranks * size > 1 << 20)
                        return 0;
                ranks *= size;
        }
        return (int)ranks;
}

int launch_take(struct launch *l, bool predicts, struct options *o, struct rv_error_info *err)
{
        int rc = translate(l, err);
        if (rc == 0 && l->tool->like && !launch_said(l, "like"))
                rc = launch_say(l, "like", l->tool->like, NULL, err);
        if (!l->gpus && launch_said(l, "dp"))
                l->gpus = ranks_said(l);
        return rc ? rc : apply(l, o, predicts, err);
}

/* --from FILE or --from=FILE; NULL: neither. */
static const char *find_from(int argc, char *const *argv)
{
        static const char flag[] = "--from";
        const size_t length = sizeof flag - 1;
        for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
                if (strncmp(argv[i], flag, length) == 0 && (!argv[i][length] || argv[i][length] == '='))
                        return argv[i][length] ? argv[i] + length + 1 : argv[i + 1];
        return NULL;
}

int launch_open(struct launch *l, int argc, char *const *argv, bool predicts, struct options *o,
                struct rv_error_info *err)
{
        const char *path = find_from(argc, argv);
        if (!path || !*path)
                return 0;
        snprintf(l->path, sizeof l->path, "%s", path);
        const int rc = launch_read_file(l, err);
        return rc ? rc : launch_take(l, predicts, o, err);
}

/* ---- what follows from other flags ---- */

static int store(struct options *o, const char *name, int64_t value, struct rv_error_info *err)
{
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)value);
        return flag_parse(flag_named(name), o, text, err);
}

/* Whether the trainer would choose in how many micro-batches a replica has its part of a batch. */
static bool batch_is_automatic(const struct launch *l)
{
        return launch_lists(l->automatic, "gradient_accumulation_steps");
}

static int settle_grid(const struct launch *l, struct options *o, int gpus, struct rv_error_info *err)
{
        const int64_t others = (int64_t)o->pp * o->tp * options_context_ranks(o);
        int rc = 0;
        if (!flag_is_given(flag_named("dp"), o) && gpus > 0) {
                if (gpus % others)
                        return rv_fail(
                                err, RV_EPLAN,
                                "%s: its --tp %d x --pp %d x --cp %d do not divide %d GPUs, so there is no "
                                "number of replicas",
                                l->path, o->tp, o->pp, options_context_ranks(o), gpus);
                rc = store(o, "dp", gpus / others, err);
        }
        const int64_t each =
                (int64_t)o->dp * l->micro_batches; /* sequences of a batch for one of a micro-batch */
        if (rc == 0 && l->tool == &launch_deepspeed && !o->micro_batch_size && o->batch_size &&
            !batch_is_automatic(l)) {
                if (o->batch_size % each)
                        return rv_fail(err, RV_EPLAN,
                                       "%s: its batch of %lld is not of whole micro-batches on %d replicas, "
                                       "%d on each",
                                       l->path, (long long)o->batch_size, o->dp, l->micro_batches);
                rc = store(o, "micro-batch-size", o->batch_size / each, err);
        }
        if (rc == 0 && !o->batch_size && o->micro_batch_size && l->micro_batches && !batch_is_automatic(l))
                rc = store(o, "batch-size", each * o->micro_batch_size, err);
        if (rc == 0 && l->share_groups > 1 && o->zero && !o->shard_replicas) {
                if (options_replicas(o) % l->share_groups)
                        return rv_fail(err, RV_EPLAN,
                                       "%s: its %d groups of replicas do not divide %d replicas", l->path,
                                       l->share_groups, options_replicas(o));
                rc = store(o, "shard-replicas", options_replicas(o) / l->share_groups, err);
        }
        return rc;
}

/* What only lets work go on beside other work is left out where that is not built for the plan. */
static void leave_out(struct launch *l, struct options *o)
{
        static const char *const beside[] = {"overlap-allreduce", "tp-overlap", "sequence-parallel"};
        for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
                const struct flag *flag = flag_named(beside[i]);
                struct options without = *o;
                flag_set(flag, &without, 0);
                if (!launch_said(l, beside[i]) || flag_is_zero(flag, o) || !flags_conflict(o) ||
                    flags_conflict(&without))
                        continue;
                flag_set(flag, o, 0);
                add_name(l->left_out, sizeof l->left_out, beside[i]);
        }
}

int launch_settle(struct launch *l, struct options *o, int gpus, struct rv_error_info *err)
{
        if (!l->tool)
                return 0;
        if (!o->model && (l->model[0] || l->described)) {
                o->model = l->model[0] ? l->model : l->path;
                o->described = l->described;
        }
        if (!o->model && l->no_model[0])
                return rv_fail(err, RV_EINPUT, "%s", l->no_model);
        const int rc = settle_grid(l, o, gpus, err);
        if (rc == 0)
                leave_out(l, o);
        return rc;
}

int launch_check_automatic(const struct launch *l, const struct options *o, struct rv_error_info *err)
{
        const bool micro_batch =
                !o->micro_batch_size && launch_lists(l->automatic, "train_micro_batch_size_per_gpu");
        const bool batch =
                !o->batch_size && (launch_lists(l->automatic, "train_batch_size") || batch_is_automatic(l));
        if (!micro_batch && !batch)
                return 0;
        return rv_fail(err, RV_EINPUT, "%s: %s is \"auto\", which the trainer fills in: say it by %s",
                       l->path,
                       micro_batch                                      ? "train_micro_batch_size_per_gpu"
                       : launch_lists(l->automatic, "train_batch_size") ? "train_batch_size"
                                                                        : "gradient_accumulation_steps",
                       micro_batch ? "--micro-batch-size" : "--batch-size");
}

/* ---- what is told ---- */

void launch_print(const struct launch *l, const char *command, const struct options *predicted, FILE *stream)
{
        if (!l->tool)
                return;
        fprintf(stream, "ranvier %s: %s: of %s", command, l->path, l->tool->title);
        if (l->nothing_count)
                fprintf(stream, "; %d flag%s without a meaning for time and memory", l->nothing_count,
                        rv_plural(l->nothing_count));
        if (l->unmodelled[0])
                fprintf(stream, "; not modelled:%s", l->unmodelled);
        if (l->left_out[0])
                fprintf(stream, "; not built with this plan, and left out:%s", l->left_out);
        if (l->automatic[0])
                fprintf(stream, "; \"auto\" there, and here as given or the default:%s", l->automatic);
        fprintf(stream, "\n");
        if (predicted && !predicted->framework && !l->tool->like && l->tool != &launch_ranvier)
                fprintf(stream,
                        "ranvier %s: predicted as ranvier's own kernels would run it: --like NAME predicts "
                        "another "
                        "framework's (ranvier frameworks lists them)\n",
                        command);
}

static json_t *names_json(const char *list)
{
        json_t *names = json_array();
        char name[256];
        for (int length; sscanf(list, " %255s%n", name, &length) == 1; list += length)
                json_array_append_new(names, json_string(name));
        return names;
}

json_t *launch_json(const struct launch *l)
{
        json_t *flags = json_object();
        for (int i = 0; i < l->word_count; i++)
                json_object_set_new(flags, l->words[i].flag->name, json_string(l->words[i].text));
        return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "path", l->path, "tool", l->tool->title,
                         "flags", flags, "without_meaning", names_json(l->nothing), "not_modelled",
                         names_json(l->unmodelled), "left_out", names_json(l->left_out), "automatic",
                         names_json(l->automatic));
}

void launch_close(struct launch *l)
{
        for (int i = 0; i < l->item_count; i++) {
                free(l->items[i].key);
                free(l->items[i].value);
        }
        for (int i = 0; i < l->word_count; i++) {
                free(l->words[i].text);
                free(l->words[i].found);
        }
        free(l->items);
        free(l->words);
        json_decref(l->described);
        *l = (struct launch){.gpus = 0};
}
