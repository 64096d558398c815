#include "runtime/plan/flags.h"

#include "runtime/base/command_line.h"
#include "runtime/base/parse.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static void *place(const struct flag *flag, struct options *o)
{
        return (char *)o + flag->offset;
}

static const void *place_of(const struct flag *flag, const struct options *o)
{
        return (const char *)o + flag->offset;
}

_Static_assert(sizeof(enum policy_id) == sizeof(int) && sizeof(enum route) == sizeof(int) &&
                       sizeof(enum options_fusion) == sizeof(int) && sizeof(enum plan_order) == sizeof(int) &&
                       sizeof(enum recompute) == sizeof(int) && sizeof(enum dtype) == sizeof(int),
               "choices are stored as ints");

int flag_value(const struct flag *flag, const struct options *o)
{
        assert(flag->store == STORE_BOOL || flag->store == STORE_INT);
        if (flag->value)
                return flag->value(o);
        return flag->store == STORE_BOOL ? *(const bool *)place_of(flag, o) : *(const int *)place_of(flag, o);
}

bool flag_is_zero(const struct flag *flag, const struct options *o)
{
        return flag->store == STORE_REAL ? *(const double *)place_of(flag, o) == 0 : flag_value(flag, o) == 0;
}

void flag_set(const struct flag *flag, struct options *o, int value)
{
        assert(flag->store == STORE_BOOL || flag->store == STORE_INT);
        if (flag->set)
                flag->set(o, value);
        else if (flag->store == STORE_BOOL)
                *(bool *)place(flag, o) = value;
        else
                *(int *)place(flag, o) = value;
}

static const char *const switched[] = {"no", "yes", NULL};

static int parse_value(const struct flag *flag, struct options *o, const char *text,
                       struct rv_error_info *err)
{
        char option[32];
        int which = 0, rc;
        snprintf(option, sizeof option, "--%s", flag->name);
        if (flag->parse)
                return flag->parse(o, text, err);
        if (!flag->argument && !text) {
                flag_set(flag, o, true);
                return 0;
        }
        if (!flag->argument || flag->names) {
                rc = parse_name(option, text, flag->argument ? flag->names : switched, &which, err);
                if (rc == 0)
                        flag_set(flag, o, which);
                return rc;
        }
        if (flag->store == STORE_TEXT)
                return parse_path(option, text, place(flag, o), err);
        if (flag->store == STORE_INT)
                return parse_count(option, text, (int)flag->min, (int)flag->max, place(flag, o), err);
        return parse_int(option, text, flag->min, flag->max, place(flag, o), err);
}

static uint64_t bit_of(const struct flag *flag)
{
        int count;
        return UINT64_C(1) << (flag - flags_all(&count));
}

bool flag_is_given(const struct flag *flag, const struct options *o)
{
        return o->given & bit_of(flag);
}

void flag_give(const struct flag *flag, struct options *o)
{
        o->given |= bit_of(flag);
}

void flag_take_back(const struct flag *flag, struct options *o)
{
        o->given &= ~bit_of(flag);
}

int flag_parse(const struct flag *flag, struct options *o, const char *text, struct rv_error_info *err)
{
        const int rc = parse_value(flag, o, text, err);
        if (rc == 0)
                flag_give(flag, o);
        return rc;
}

char *flag_write(const struct flag *flag, const struct options *o, char text[FLAG_TEXT])
{
        if (flag->write)
                flag->write(o, text, FLAG_TEXT);
        else if (flag->names)
                snprintf(text, FLAG_TEXT, "%s", flag->names[flag_value(flag, o)]);
        else if (!flag->argument)
                snprintf(text, FLAG_TEXT, "%s", flag_value(flag, o) ? "yes" : "no");
        else if (flag->store == STORE_INT)
                snprintf(text, FLAG_TEXT, "%d", flag_value(flag, o));
        else if (flag->store == STORE_WHOLE)
                snprintf(text, FLAG_TEXT, "%lld", (long long)*(const int64_t *)place_of(flag, o));
        else {
                const char *given = *(const char *const *)place_of(flag, o);
                snprintf(text, FLAG_TEXT, "%s", given ? given : "");
        }
        return text;
}

bool flag_words(const struct flag *flag, bool list, struct option_words *words)
{
        const bool file = flag->store == STORE_TEXT && !flag->parse;
        *words = (struct option_words){.names = flag->names, .files = file};
        if (flag->words)
                *words = *flag->words;
        if (list && !flag->argument)
                words->names = switched;
        words->list = words->list || list;
        return words->names || words->folder || words->files;
}

bool flag_equal(const struct flag *flag, const struct options *a, const struct options *b)
{
        char one[FLAG_TEXT], other[FLAG_TEXT];
        return strcmp(flag_write(flag, a, one), flag_write(flag, b, other)) == 0;
}

/* ---- what does not go together ---- */

static bool holds(const struct flag_condition *condition, const struct flag *flag, const struct options *o)
{
        const int value = flag_value(flag, o);
        switch (condition->how) {
        case IS:
                return value == condition->value;
        case IS_NOT:
                return value != condition->value;
        case ABOVE:
                return value > condition->value;
        default:
                return value < condition->value;
        }
}

bool flag_conflicts(const struct flag_conflict *conflict, const struct options *o)
{
        for (int i = 0; i < FLAG_CONDITIONS && conflict->flags[i]; i++)
                if (!holds(&conflict->when[i], conflict->flags[i], o))
                        return false;
        return !conflict->also || conflict->also(o);
}

/* {flag} and <flag> become what the plan has. */
static int refuse(const struct flag_conflict *conflict, const struct options *o, struct rv_error_info *err)
{
        char sentence[512];
        size_t end = 0;
        if (!err)
                return conflict->code;
        for (const char *at = conflict->sentence; *at;) {
                const bool given = *at == '{';
                if (!given && *at != '<') {
                        const size_t plain = strcspn(at, "{<");
                        end += (size_t)snprintf(sentence + end, sizeof sentence - end, "%.*s", (int)plain,
                                                at);
                        at += plain;
                        continue;
                }
                char name[32], value[FLAG_TEXT];
                const size_t length = strcspn(at + 1, "}>");
                snprintf(name, sizeof name, "%.*s", (int)length, at + 1);
                const struct flag *flag = flag_named(name);
                if (given)
                        end += (size_t)snprintf(sentence + end, sizeof sentence - end, "--%s%s", name,
                                                flag->argument ? " " : "");
                if (flag->argument)
                        end += (size_t)snprintf(sentence + end, sizeof sentence - end, "%s",
                                                flag_write(flag, o, value));
                at += length + 2;
        }
        return rv_fail(err, conflict->code, "%s", sentence);
}

static bool is_given(const struct flag *flag, const struct options *o)
{
        return flag->store == STORE_WHOLE ? *(const int64_t *)place_of(flag, o) != 0
                                          : flag_value(flag, o) != 0;
}

static const struct flag_conflict *first_conflict(const struct options *o)
{
        int count;
        const struct flag *flags = flags_all(&count);
        for (int i = 0; i < count; i++)
                for (const struct flag_conflict *c = flags[i].conflicts; c && c->sentence; c++)
                        if (flag_conflicts(c, o))
                                return c;
        return NULL;
}

bool flags_conflict(const struct options *o)
{
        return first_conflict(o);
}

int flags_check(const struct options *o, struct rv_error_info *err)
{
        int count;
        const struct flag *flags = flags_all(&count);
        for (int i = 0; i < count; i++)
                if (flags[i].required && !is_given(&flags[i], o))
                        return rv_fail(err, RV_EINPUT, "--%s is missing: %s", flags[i].name,
                                       flags[i].required);
        const struct flag_conflict *conflict = first_conflict(o);
        return conflict ? refuse(conflict, o, err) : 0;
}

/* ---- for argp ---- */

/* Keys of options without a short form. */
enum { KEY_FLAGS = 0x100, MAX_FLAGS = 64 };

static error_t common_parser(int key, char *text, struct argp_state *state)
{
        struct options *o = state->input;
        int count;
        const struct flag *flags = flags_all(&count);
        if (key < KEY_FLAGS || key >= KEY_FLAGS + count)
                return ARGP_ERR_UNKNOWN;
        return flag_parse(&flags[key - KEY_FLAGS], o, text, command_line_error(state)) == 0 ? 0 : EINVAL;
}

static error_t plan_parser(int key, char *text, struct argp_state *state)
{
        struct options *o = state->input;
        if (key == ARGP_KEY_INIT) {
                state->child_inputs[0] = o;
                return 0;
        }
        if (key == ARGP_KEY_ARG && !o->model) {
                o->model = text;
                return 0;
        }
        return common_parser(key, text, state);
}

/* The rows of a scope, each with the words that it takes. */
static void add_rows(enum flag_scope scope, struct argp_option *rows)
{
        static struct option_words words[MAX_FLAGS];
        int count;
        const struct flag *flags = flags_all(&count);
        assert(count <= MAX_FLAGS);
        for (int i = 0; i < count; i++) {
                if (flags[i].scope != scope)
                        continue;
                *rows++ = (struct argp_option){.name = flags[i].name,
                                               .key = KEY_FLAGS + i,
                                               .arg = flags[i].argument ? flags[i].argument : "no",
                                               .flags = flags[i].argument ? 0 : OPTION_ARG_OPTIONAL,
                                               .doc = flags[i].help,
                                               .group = 1};
                if (flag_words(&flags[i], false, &words[i]))
                        *rows++ = (struct argp_option)OPTION_WORDS(flags[i].name, &words[i]);
        }
}

const struct argp *options_common_argp(void)
{
        static struct argp_option rows[2 * MAX_FLAGS + 1];
        static const struct argp argp = {.options = rows, .parser = common_parser};
        if (!rows[0].name)
                add_rows(FLAG_OF_MANY, rows);
        return &argp;
}

const struct argp *options_argp(void)
{
        enum { BEFORE = 2 };
        static struct argp_option rows[BEFORE + 2 * MAX_FLAGS + 1] = {
                {.doc = "The plan: MODEL is a preset's name or a Hugging "
                        "Face style config.json, or a folder with one",
                 .group = 1},
                OPTION_WORDS("MODEL", &gpt_words)};
        static struct argp_child children[2];
        static const struct argp argp = {.options = rows, .parser = plan_parser, .children = children};
        if (!rows[BEFORE].name)
                add_rows(FLAG_OF_ONE, rows + BEFORE);
        children[0].argp = options_common_argp();
        return &argp;
}
