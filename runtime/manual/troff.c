/* A man page, in the macros of man(7). */
#include "runtime/manual/manual.h"

#include "runtime/base/version.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 66 };

/* ---- text ---- */

/* Characters that mean something to troff; a dash is one that can be copied. */
static void put(FILE *out, const char *text, size_t length)
{
        for (size_t i = 0; i < length; i++)
                if (text[i] == '\\')
                        fputs("\\e", out);
                else if (text[i] == '-')
                        fputs("\\-", out);
                else
                        putc(text[i], out);
}

/* Words in lines of the source, none of which begins like a request. */
static void put_words(FILE *out, const char *text, size_t length)
{
        size_t column = 0;
        for (size_t at = 0; at < length;) {
                const size_t blanks = strspn(text + at, " ");
                at += blanks;
                const size_t rest = length - at, to_blank = strcspn(text + at, " \n");
                const size_t word = to_blank < rest ? to_blank : rest;
                if (word == 0)
                        break;
                if (column && column + 1 + word > LINE)
                        column = 0, putc('\n', out);
                else if (column)
                        column++, putc(' ', out);
                if (column == 0 && (text[at] == '.' || text[at] == '\''))
                        fputs("\\&", out);
                put(out, text + at, word);
                column += word;
                at += word;
        }
        if (column)
                putc('\n', out);
}

/* A line of an example, as it is. */
static void put_line(FILE *out, const char *line, size_t length)
{
        if (length && (line[0] == '.' || line[0] == '\''))
                fputs("\\&", out);
        put(out, line, length);
        putc('\n', out);
}

/* Paragraphs: lines that begin with two blanks are shown as they are, all others are filled. */
static void put_text(FILE *out, const char *text)
{
        bool shown = false,
             fresh = true; /* within lines that are shown; nothing stands in this paragraph yet */
        for (const char *line = text; *line;) {
                const size_t length = strcspn(line, "\n");
                const bool literal = strncmp(line, "  ", 2) == 0;
                if (literal != shown && length)
                        fputs(literal ? fresh ? ".nf\n" : ".PP\n.nf\n" : ".fi\n", out);
                if (length == 0 && line[1] && line[1] != '\n' && !fresh) {
                        fputs(shown ? ".fi\n.PP\n" : ".PP\n", out);
                        shown = false;
                        fresh = true;
                } else if (length) {
                        if (!literal && shown)
                                fputs(".PP\n", out);
                        shown = literal;
                        fresh = false;
                        (literal ? put_line : put_words)(out, line, length);
                }
                line += length + (line[length] == '\n');
        }
        if (shown)
                fputs(".fi\n", out);
}

/* ---- options ---- */

/* The words that are right, where the help does not have them all. */
static void put_values(FILE *out, const json_t *option)
{
        const json_t *names = json_object_get(json_object_get(option, "values"), "names");
        bool told = true;
        for (size_t i = 0; i < json_array_size(names); i++)
                told = told &&
                       strstr(manual_text(option, "help"), json_string_value(json_array_get(names, i)));
        if (told)
                return;
        fputs(".br\nKnown are:", out);
        for (size_t i = 0; i < json_array_size(names); i++) {
                fputs(i == 0 ? "\n" : ",\n", out);
                const char *name = json_string_value(json_array_get(names, i));
                put(out, name, strlen(name));
        }
        fputs(".\n", out);
}

static void put_option(FILE *out, const json_t *option)
{
        const char *name = manual_text(option, "name"), *letter = manual_text(option, "letter");
        const char *argument = manual_text(option, "argument"), *help = manual_text(option, "help");
        fputs(".TP\n", out);
        if (*letter)
                fprintf(out, "\\fB\\-%s\\fR, ", letter);
        fputs("\\fB\\-\\-", out);
        put(out, name, strlen(name));
        fputs("\\fR", out);
        if (*manual_text(option, "optional"))
                fprintf(out, "[=\\fI%s\\fR]", manual_text(option, "optional"));
        if (*argument) {
                fputs(" \\fI", out);
                put(out, argument, strlen(argument));
                fputs("\\fR", out);
        }
        putc('\n', out);
        put_words(out, help, strlen(help));
        put_values(out, option);
}

static void put_groups(FILE *out, const json_t *command)
{
        size_t i, j;
        json_t *group, *option;
        fputs(".SH OPTIONS\n", out);
        json_array_foreach(json_object_get(command, "groups"), i, group)
        {
                const char *heading = manual_text(group, "heading");
                const size_t colon = strcspn(heading, ":"), length = strlen(heading);
                if (*heading) {
                        fputs(".SS \"", out);
                        put(out, heading, colon);
                        fputs("\"\n", out);
                        if (colon + 1 < length)
                                put_words(out, heading + colon + 1, length - colon - 1);
                } else if (i > 0)
                        fputs(".SS \"Help\"\n", out);
                json_array_foreach(json_object_get(group, "options"), j, option)
                {
                        put_option(out, option);
                }
        }
}

/* ---- pages ---- */

/* The day of SOURCE_DATE_EPOCH, where a build is to be repeated, or else this one. */
static void put_title(FILE *out, const char *title)
{
        const char *epoch = getenv("SOURCE_DATE_EPOCH");
        const time_t now = epoch ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
        struct tm day;
        char date[16];
        strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
        fputs(".TH ", out);
        for (const char *at = title; *at; at++)
                *at == '-' ? (void)fputs("\\-", out) : (void)putc(toupper((unsigned char)*at), out);
        fprintf(out, " 1 %s \"ranvier %s\" \"User Commands\"\n", date, RANVIER_VERSION);
}

static void put_status(FILE *out)
{
        fputs(".SH \"EXIT STATUS\"\n.TP\n.B 0\ndone\n.TP\n.B 1\nthe work failed\n.TP\n.B 2\n"
              "wrong usage or input, which one sentence on standard error says\n",
              out);
}

static void put_see_also(FILE *out, const json_t *all, const json_t *command)
{
        size_t i;
        json_t *other;
        fputs(".SH \"SEE ALSO\"\n", out);
        if (command)
                fputs(".BR ranvier (1)", out);
        json_array_foreach(json_object_get(all, "commands"), i, other)
        {
                const char *name = manual_text(other, "name");
                if (other != command)
                        fprintf(out, "%s.BR ranvier\\-%s (1)", i || command ? " ,\n" : "", name);
        }
        putc('\n', out);
}

static void put_commands(FILE *out, const json_t *all)
{
        size_t i;
        json_t *command;
        fputs(".SH COMMANDS\n", out);
        json_array_foreach(json_object_get(all, "commands"), i, command)
        {
                const char *summary = manual_text(command, "summary");
                fprintf(out, ".TP\n.BR ranvier\\-%s (1)\n", manual_text(command, "name"));
                put_words(out, summary, strlen(summary));
        }
        fputs(".SH OPTIONS\n.TP\n.B \\-\\-help\nPrint the commands and an example of their use\n.TP\n"
              ".B \\-\\-version\nPrint the version\n",
              out);
}

static void put_name(FILE *out, const char *name, const char *summary)
{
        fputs(".SH NAME\n", out);
        put(out, name, strlen(name));
        fputs(" \\- ", out);
        put(out, summary, strlen(summary));
        fputs("\n.SH SYNOPSIS\n", out);
}

void manual_page(FILE *out, const json_t *all, const json_t *command)
{
        char name[64] = "ranvier";
        if (command)
                snprintf(name, sizeof name, "ranvier-%s", manual_text(command, "name"));
        put_title(out, name);
        put_name(out, name,
                 command ? manual_text(command, "summary") : "train GPTs in parallel, and predict such runs");
        if (command) {
                const char *usage = manual_text(command, "usage");
                fprintf(out, ".B ranvier %s\n[\\fIOPTION\\fR...]", manual_text(command, "name"));
                fputs(*usage ? " \\fI" : "", out);
                put(out, usage, strlen(usage));
                fputs(*usage ? "\\fR\n" : "\n", out);
        } else
                fputs(".B ranvier\n\\fICOMMAND\\fR [\\fIOPTION\\fR...]\n", out);
        fputs(".SH DESCRIPTION\n", out);
        put_text(out, manual_text(command ? command : all, "about"));
        if (command)
                put_groups(out, command);
        else
                put_commands(out, all);
        const char *more = manual_text(command ? command : all, "more");
        if (*more) {
                fputs(".SH EXAMPLES\n", out);
                put_text(out, more + strspn(more, "\n"));
        }
        put_status(out);
        put_see_also(out, all, command);
}
