/* All commands and options as one page of Markdown: docs/reference.md. */
#include "runtime/manual/manual.h"

#include <stdbool.h>
#include <string.h>

/* Characters that mean something to Markdown, or end a cell of a table, are themselves; lines are one. */
static void put(FILE *out, const char *text)
{
        for (; *text; text++)
                if (*text == '\n')
                        putc(' ', out);
                else if (*text == '<')
                        fputs("&lt;", out);
                else
                        fprintf(out, "%s%c", strchr("\\`*_[]|", *text) ? "\\" : "", *text);
}

/* Words of an option or operand; of a list of files only that they may be files. */
static void put_words(FILE *out, const json_t *words, const char *help)
{
        const json_t *names = json_object_get(words, "names");
        bool told = true;
        for (size_t i = 0; i < json_array_size(names); i++)
                told = told && strstr(help, json_string_value(json_array_get(names, i)));
        for (size_t i = 0; !told && i < json_array_size(names); i++)
                fprintf(out, "%s`%s`",
                        i       ? ", "
                        : *help ? ". Known are: "
                                : "one of ",
                        json_string_value(json_array_get(names, i)));
        if (!*help && json_is_true(json_object_get(words, "files")))
                fputs(told ? "a file" : ", or a file", out);
}

static void put_operands(FILE *out, const json_t *command)
{
        size_t i;
        json_t *operand;
        json_array_foreach(json_object_get(command, "operands"), i, operand)
        {
                fprintf(out, "\n- `%s`: ", manual_text(operand, "name"));
                put_words(out, operand, "");
        }
        if (json_array_size(json_object_get(command, "operands")))
                putc('\n', out);
}

static void put_option(FILE *out, const json_t *option)
{
        const char *letter = manual_text(option, "letter"), *argument = manual_text(option, "argument");
        fputs("| ", out);
        if (*letter)
                fprintf(out, "`-%s` ", letter);
        fprintf(out, "`--%s%s", manual_text(option, "name"), *argument ? " " : "");
        for (; *argument; argument++)
                fprintf(out, "%s%c", *argument == '|' ? "\\" : "", *argument);
        if (*manual_text(option, "optional"))
                fprintf(out, "[=%s]", manual_text(option, "optional"));
        fputs("` | ", out);
        put(out, manual_text(option, "help"));
        put_words(out, json_object_get(option, "values"), manual_text(option, "help"));
        fputs(" |\n", out);
}

/* The three that every command has are told once. */
static bool is_common(const json_t *option)
{
        const char *name = manual_text(option, "name");
        return strcmp(name, "help") == 0 || strcmp(name, "usage") == 0 || strcmp(name, "version") == 0;
}

static void put_options(FILE *out, const json_t *group)
{
        bool begun = false;
        size_t i;
        json_t *option;
        json_array_foreach(json_object_get(group, "options"), i, option)
        {
                if (is_common(option))
                        continue;
                fputs(begun ? "" : "\n| option | |\n|---|---|\n", out);
                begun = true;
                put_option(out, option);
        }
}

static void put_command(FILE *out, const json_t *command)
{
        size_t i;
        json_t *group;
        fprintf(out, "\n## ranvier %s\n\n", manual_text(command, "name"));
        put(out, manual_text(command, "about"));
        fprintf(out, "\n\n`ranvier %s [OPTION...]%s%s`\n", manual_text(command, "name"),
                *manual_text(command, "usage") ? " " : "", manual_text(command, "usage"));
        put_operands(out, command);
        json_array_foreach(json_object_get(command, "groups"), i, group)
        {
                const char *heading = manual_text(group, "heading");
                if (*heading) {
                        fputs("\n**", out);
                        put(out, heading);
                        fputs("**\n", out);
                }
                put_options(out, group);
        }
}

void manual_markdown(FILE *out, const json_t *all)
{
        size_t i;
        json_t *command;
        fputs("# All commands and options\n\nMade by `make reference` of what the programs say of their own "
              "command lines (`--describe`), as the man pages are; do not edit it.\nEvery command ends with "
              "status 0 (done), 1 (the work failed) or 2 (wrong usage or input), and has `--help`, `--usage` "
              "and `--version`.\n\n| command | "
              "|\n|---|---|\n",
              out);
        json_array_foreach(json_object_get(all, "commands"), i, command)
        {
                const char *name = manual_text(command, "name");
                fprintf(out, "| [`ranvier %s`](#ranvier-%s) | ", name, name);
                put(out, manual_text(command, "summary"));
                fputs(" |\n", out);
        }
        json_array_foreach(json_object_get(all, "commands"), i, command)
        {
                put_command(out, command);
        }
}
