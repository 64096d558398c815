/* Completion for zsh, by its _arguments: a line an option, with its help. */
#include "runtime/manual/manual.h"

#include <stdbool.h>
#include <string.h>

enum { SHORT_HELP = 72 };

/* A text within a specification of _arguments, which is in single quotes. */
static void put(FILE *out, const char *text, size_t length)
{
        for (size_t i = 0; i < length && text[i] != '\n'; i++)
                if (text[i] == '\'')
                        fputs("'\\''", out);
                else if (strchr("[]:\\", text[i]))
                        fprintf(out, "\\%c", text[i]);
                else
                        putc(text[i], out);
}

/* As much of the help as fits a line, to the end of a word. */
static void put_help(FILE *out, const char *help)
{
        size_t length = strlen(help);
        if (length > SHORT_HELP) {
                length = SHORT_HELP;
                while (length > 0 && help[length] != ' ')
                        length--;
                while (length > 0 && strchr(" ,;:(", help[length - 1]))
                        length--;
        }
        put(out, help, length);
}

/* What completes a value; its names are words without blanks. */
static void put_action(FILE *out, const json_t *words)
{
        const json_t *names = json_object_get(words, "names");
        const bool files = json_is_true(json_object_get(words, "files"));
        const bool list = json_is_true(json_object_get(words, "list"));
        const size_t count = json_array_size(names);
        if (!count) {
                fputs(files ? "_files" : " ", out);
                return;
        }
        fputs(files ? "{_alternative \"words\\:word\\:" : list ? "" : "(", out);
        if (list)
                fputs(files ? "_sequence compadd -" : "_sequence compadd -", out);
        else if (files)
                putc('(', out);
        for (size_t i = 0; i < count; i++)
                fprintf(out, "%s%s", i || list ? " " : "", json_string_value(json_array_get(names, i)));
        fputs(list ? "" : ")", out);
        fputs(files ? "\" \"files\\:file\\:_files\"}" : "", out);
}

static void put_option(void *context, const json_t *option)
{
        FILE *out = context;
        const char *argument = manual_text(option, "argument"), *letter = manual_text(option, "letter");
        for (int is_short = 0; is_short < (*letter ? 2 : 1); is_short++) {
                fprintf(out, " \\\n                        '*%s%s[", is_short ? "-" : "--",
                        is_short ? letter : manual_text(option, "name"));
                put_help(out, manual_text(option, "help"));
                putc(']', out);
                if (*argument) {
                        putc(':', out);
                        put(out, argument, strlen(argument));
                        putc(':', out);
                        put_action(out, json_object_get(option, "values"));
                }
                putc('\'', out);
        }
}

static void put_operands(FILE *out, const json_t *command)
{
        size_t i;
        json_t *operand;
        json_array_foreach(json_object_get(command, "operands"), i, operand)
        {
                const char *name = manual_text(operand, "name");
                if (json_is_true(json_object_get(operand, "repeated")))
                        fputs(" \\\n                        '*:", out);
                else
                        fprintf(out, " \\\n                        '%zu:", i + 1);
                put(out, name, strlen(name));
                putc(':', out);
                put_action(out, operand);
                putc('\'', out);
        }
}

void manual_zsh(FILE *out, const json_t *all)
{
        const json_t *commands = json_object_get(all, "commands");
        size_t i;
        json_t *command;
        fputs("#compdef ranvier\n# Completion of ranvier for zsh, made of the tables of its options.\n"
              "_ranvier() {\n        local curcontext=$curcontext state line\n        local -a commands\n"
              "        commands=(\n",
              out);
        json_array_foreach(commands, i, command)
        {
                fprintf(out, "                '%s:", manual_text(command, "name"));
                put(out, manual_text(command, "summary"), strlen(manual_text(command, "summary")));
                fputs("'\n", out);
        }
        fputs("        )\n        _arguments -C '(- *)--help[list the commands]' '(- *)--version[print the "
              "version]' \\\n"
              "                '1: :->command' '*:: :->arguments'\n        case $state in\n"
              "        command) _describe command commands ;;\n        arguments)\n                case "
              "$words[1] in\n",
              out);
        json_array_foreach(commands, i, command)
        {
                fprintf(out, "                %s)\n                        _arguments",
                        manual_text(command, "name"));
                manual_each_option(command, put_option, out);
                put_operands(out, command);
                fputs(" ;;\n", out);
        }
        fputs("                help) _describe command commands ;;\n                esac ;;\n        "
              "esac\n}\n"
              "_ranvier \"$@\"\n",
              out);
}
