#include "runtime/base/describe.h"

#include "runtime/base/command_line.h"
#include "runtime/base/file.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_TEXT = 16384, WORD = 64 };

/* What is collected: the groups by their numbers, and the entries that say words. */
struct description {
        json_t *groups; /* {"number":, "heading":, "options": [...]} */
        json_t *words;  /* by name: WORDS */
};

const struct option_words *option_words(const struct argp_option *option)
{
        const int entry = OPTION_DOC | OPTION_HIDDEN;
        return (option->flags & entry) == entry ? (const void *)option->arg : NULL;
}

/* ---- words ---- */

static void add_folder(json_t *names, const char *folder)
{
        char line[NAMES_TEXT], *place = NULL;
        file_list(line, sizeof line, folder, ".json");
        for (char *name = strtok_r(line, " ", &place); name; name = strtok_r(NULL, " ", &place))
                json_array_append_new(names, json_string(name));
}

static json_t *describe_words(const struct option_words *words)
{
        json_t *names = json_array();
        for (int i = 0; words->names && words->names[i]; i++)
                json_array_append_new(names, json_string(words->names[i]));
        if (words->folder)
                add_folder(names, words->folder);
        return json_pack("{s:o, s:b, s:b}", "names", names, "files", words->files, "list", words->list);
}

/* ---- options ---- */

/* The options of a group, which is made where it is new. argp shows groups 0, 1, 2 ... and then -n ... -1. */
static json_t *group_of(struct description *d, int number)
{
        size_t at = 0;
        for (; at < json_array_size(d->groups); at++) {
                json_t *group = json_array_get(d->groups, at);
                const int other = (int)json_integer_value(json_object_get(group, "number"));
                if (other == number)
                        return group;
                if ((number >= 0) == (other >= 0) ? other > number : number >= 0)
                        break;
        }
        json_t *group = json_pack("{s:i, s:s, s:[]}", "number", number, "heading", "", "options");
        json_array_insert_new(d->groups, at, group);
        return group;
}

static void add_option(json_t *group, const struct argp_option *o)
{
        const char letter[] = {(char)o->key, 0};
        json_t *option = json_pack("{s:s, s:s}", "name", o->name, "help", o->doc ? o->doc : "");
        if (o->key > 0 && o->key < 128 && isprint(o->key))
                json_object_set_new(option, "letter", json_string(letter));
        if (o->arg) /* "optional": it may be left out, and else follows behind an equals sign */
                json_object_set_new(option, o->flags & OPTION_ARG_OPTIONAL ? "optional" : "argument",
                                    json_string(o->arg));
        json_array_append_new(json_object_get(group, "options"), option);
}

static bool ends_options(const struct argp_option *o)
{
        return !o->name && !o->key && !o->doc && !o->group;
}

static void collect(struct description *d, const struct argp *argp)
{
        int number = 0;
        for (const struct argp_option *o = argp->options; o && !ends_options(o); o++) {
                const struct option_words *words = option_words(o);
                number = o->group ? o->group : !o->name && !o->key ? number + 1 : number;
                if (words)
                        json_object_set_new(d->words, o->name, describe_words(words));
                else if (o->name && !(o->flags & OPTION_HIDDEN))
                        add_option(group_of(d, number), o);
                else if (!o->name && o->doc)
                        json_object_set_new(group_of(d, number), "heading", json_string(o->doc));
        }
        for (const struct argp_child *child = argp->children; child && child->argp; child++)
                collect(d, child->argp);
}

/* Options get the words that entries say of them. */
static void give_words(const struct description *d)
{
        size_t i, j;
        json_t *group, *option;
        json_array_foreach(d->groups, i, group)
        {
                json_object_del(group, "number");
                json_array_foreach(json_object_get(group, "options"), j, option)
                {
                        const char *name = json_string_value(json_object_get(option, "name"));
                        json_object_set(option, "values", json_object_get(d->words, name));
                }
        }
}

/* ---- operands ---- */

/* Of "[MODEL]" or "INPUT..." the name; a word of which nothing is said is a file. */
static json_t *describe_operand(const struct description *d, const char *word, size_t length)
{
        char name[WORD];
        size_t used = 0;
        for (size_t i = 0; i < length && used + 1 < sizeof name; i++)
                if (!strchr("[].", word[i]) || (word[i] == '.' && i + 1 < length && isalpha(word[i + 1])))
                        name[used++] = word[i];
        name[used] = 0;
        json_t *words = json_object_get(d->words, name);
        json_t *operand = words ? json_deep_copy(words)
                                : json_pack("{s:[], s:b, s:b}", "names", "files", true, "list", false);
        json_object_set_new(operand, "name", json_string(name));
        return operand;
}

static json_t *describe_operands(const struct description *d, const char *text)
{
        json_t *operands = json_array();
        while (text && *text) {
                const size_t length = strcspn(text, " ");
                const bool repeated = strstr(text, "...") && !strchr(text, ' ');
                json_t *operand = describe_operand(d, text, length);
                if (repeated)
                        json_object_set_new(operand, "repeated", json_true());
                json_array_append_new(operands, operand);
                text += length + strspn(text + length, " ");
        }
        return operands;
}

/* ---- texts ---- */

/* What stands before ('\v' and so `after` is false) or behind the options. */
static json_t *describe_text(const struct argp *argp, bool after)
{
        const char *mark = argp->doc ? strchr(argp->doc, '\v') : NULL;
        char *text = !argp->doc ? strdup("") : after ? strdup(mark ? mark + 1 : "") : strdup(argp->doc);
        if (text && !after && mark)
                text[mark - argp->doc] = 0;
        const int key = after ? ARGP_KEY_HELP_POST_DOC : ARGP_KEY_HELP_PRE_DOC;
        char *shown = text && argp->help_filter ? argp->help_filter(key, text, NULL) : text;
        json_t *result = shown ? json_string(shown) : NULL;
        if (shown != text)
                free(shown);
        free(text);
        return result;
}

json_t *describe_options(const struct argp *argp)
{
        struct description d = {.groups = json_array(), .words = json_object()};
        collect(&d, argp);
        give_words(&d);
        json_t *all = json_pack("{s:o, s:o, s:s, s:o, s:o}", "about", describe_text(argp, false), "more",
                                describe_text(argp, true), "usage", argp->args_doc ? argp->args_doc : "",
                                "operands", describe_operands(&d, argp->args_doc), "groups", d.groups);
        json_decref(d.words);
        return all;
}
