#define _DEFAULT_SOURCE /* strsep */
#include "sim/world/frameworks.h"

#include "runtime/base/command_line.h"
#include "runtime/base/file.h"
#include "runtime/base/setting.h"
#include "runtime/plan/framework.h"

#include <errno.h>
#include <string.h>

static const char documentation[] = "Lists the frameworks that a prediction can be like (--like), or shows "
                                    "one: its terms, in the order in "
                                    "which they are applied, each with its source.\v"
                                    "  ranvier frameworks megatron\n"
                                    "  ranvier frameworks megatron --json\n"
                                    "  ranvier simulate llama3-8b ... --like torchtitan --without launches\n";

struct asked {
        const char *name; /* NULL: all */
        bool json;
};

/* clang-format off */
static const struct setting option_rows[] = {
        {SETTING_SET, "json", .offset = offsetof(struct asked, json), .help = "Print it as JSON"},
        {.help = NULL},
};
/* clang-format on */

static error_t parse_option(int key, char *text, struct argp_state *state)
{
        struct asked *asked = state->input;
        if (key != ARGP_KEY_ARG)
                return settings_take(option_rows, asked, key, text, command_line_error(state));
        if (!asked->name) {
                asked->name = text;
                return 0;
        }
        rv_fail(command_line_error(state), RV_EINPUT, "'%.80s' is one word too many: one FRAMEWORK", text);
        return EINVAL;
}

static const char *text_of(const json_t *object, const char *key)
{
        return json_string_value(json_object_get(object, key));
}

/* A text in lines of a terminal, each after some blanks. */
static void print_wrapped(const char *before, const char *text)
{
        enum { LINE = 110, INDENT = 13 };
        int column = printf("%-*s", INDENT, before);
        for (const char *at = text; *at;) {
                const int word = (int)strcspn(at, " "), blanks = (int)strspn(at + word, " ");
                if (column > INDENT && column + 1 + word > LINE)
                        column = printf("\n%*s", INDENT, "") - 1;
                column += printf("%s%.*s", column > INDENT ? " " : "", word, at);
                at += word + blanks;
        }
        printf("\n");
}

/* Flags of plans: what a term sets, or when. */
static void print_flags(const char *before, const json_t *flags)
{
        const char *name;
        json_t *value;
        char text[512] = "";
        json_object_foreach((json_t *)flags, name, value)
        {
                const char *given = json_string_value(value);
                snprintf(text + strlen(text), sizeof text - strlen(text), "%s--%s%s%s", text[0] ? " " : "",
                         name, given ? " " : "", given ? given : "");
        }
        if (text[0])
                print_wrapped(before, text);
}

static void print_term(const json_t *term)
{
        static const char *const origins[][2] = {
                {"source", "  source"}, {"assumption", "  assumed"}, {"fitted_on", "  fitted on"}};
        printf("\n");
        print_wrapped(text_of(term, "name"), "");
        print_wrapped("", text_of(term, "says"));
        print_flags("  flags", json_object_get(term, "flags"));
        print_flags("  when", json_object_get(term, "when"));
        for (size_t i = 0; i < sizeof origins / sizeof *origins; i++)
                if (text_of(term, origins[i][0]))
                        print_wrapped(origins[i][1], text_of(term, origins[i][0]));
}

/* As the file has it, with what it is like joined in; or, of all, names and titles. */
static int print_json(const char *name, struct rv_error_info *err)
{
        char names[512], *rest = framework_list(names, sizeof names);
        struct framework framework;
        json_t *all = json_object();
        int rc = 0;
        for (char *one; rc == 0 && !name && (one = strsep(&rest, " "));) {
                rc = framework_load(&framework, one, NULL, err);
                if (rc == 0) {
                        json_object_set_new(all, one, json_string(text_of(framework.document, "title")));
                        framework_free(&framework);
                }
        }
        if (name && (rc = framework_load(&framework, name, NULL, err)) == 0) {
                json_object_update(all, framework.document);
                json_object_set_new(all, "name", json_string(framework.name));
                framework_free(&framework);
        }
        if (rc == 0)
                rc = file_print_json(all, err);
        json_decref(all);
        return rc;
}

static int show(const char *name, struct rv_error_info *err)
{
        struct framework framework;
        const int rc = framework_load(&framework, name, NULL, err);
        if (rc)
                return rc;
        const json_t *terms = json_object_get(framework.document, "terms");
        const char *like = text_of(framework.document, "like");
        printf("%s: %s%s%s\n", framework.name, text_of(framework.document, "title"), like ? "; like " : "",
               like ? like : "");
        for (size_t i = 0; i < json_array_size(terms); i++)
                print_term(json_array_get(terms, i));
        framework_free(&framework);
        return 0;
}

static int list(struct rv_error_info *err)
{
        char names[512], *rest = framework_list(names, sizeof names);
        int rc = 0;
        for (char *name; rc == 0 && (name = strsep(&rest, " "));) {
                struct framework framework;
                rc = framework_load(&framework, name, NULL, err);
                if (rc)
                        break;
                const json_t *aliases = json_object_get(framework.document, "aliases");
                printf("%-20s %s", framework.name, text_of(framework.document, "title"));
                for (size_t i = 0; i < json_array_size(aliases); i++)
                        printf("%s%s", i ? ", " : " (also: ", json_string_value(json_array_get(aliases, i)));
                printf("%s\n", json_array_size(aliases) ? ")" : "");
                framework_free(&framework);
        }
        return rc;
}

int frameworks_main(int argc, char **argv)
{
        struct rv_error_info err = {.code = RV_OK};
        static const struct argp_option words[] = {OPTION_WORDS("FRAMEWORK", &framework_words), {0}};
        const struct argp names = {.options = words};
        const struct argp_child children[] = {{&names, 0, NULL, 0}, {0}};
        struct argp_option options[SETTINGS + 1];
        settings_options(option_rows, options, 1);
        const struct argp argp = {options, parse_option, "[FRAMEWORK]", documentation, children, NULL, NULL};
        struct asked asked = {0};
        int rc = command_line_parse(&argp, argc, argv, &asked, false, &err);
        if (rc == 0 && asked.json)
                rc = print_json(asked.name, &err);
        else if (rc == 0)
                rc = asked.name ? show(asked.name, &err) : list(&err);
        return command_line_end("frameworks", rc, &err);
}
