/* Completion for bash: a function, and what it knows of every command as cases. */
#include "runtime/manual/manual.h"

#include <stdbool.h>
#include <string.h>

/* Lists of words that several options share are written once, as _ranvier_words_N. */
struct lists {
        json_t *known;
        const char *command;
        FILE *out;
};

static const char completer[] =
        "_ranvier()\n"
        "{\n"
        "        local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} option='' position=1 i word\n"
        "        local words='' files='' list='' before=''\n"
        "        COMPREPLY=()\n"
        "        if ((COMP_CWORD == 1)) || { ((COMP_CWORD == 2)) && [[ $command == help ]]; }; then\n"
        "                mapfile -t COMPREPLY < <(compgen -W \"$_ranvier_commands\" -- \"$cur\")\n"
        "                return\n"
        "        fi\n"
        "        for ((i = 2; i < COMP_CWORD; i++)); do\n"
        "                word=${COMP_WORDS[i]}\n"
        "                if [[ $word == = ]]; then\n"
        "                        continue\n"
        "                elif [[ -n $option ]]; then\n"
        "                        option=''\n"
        "                elif [[ $word == -* ]]; then\n"
        "                        _ranvier_value \"$command\" \"$word\" && option=$word\n"
        "                else\n"
        "                        position=$((position + 1))\n"
        "                fi\n"
        "        done\n"
        "        [[ $cur == = ]] && cur=''\n"
        "        words='' files='' list=''\n"
        "        if [[ -n $option ]]; then\n"
        "                _ranvier_value \"$command\" \"$option\"\n"
        "        elif [[ $cur == -* ]]; then\n"
        "                _ranvier_options \"$command\"\n"
        "        else\n"
        "                _ranvier_operand \"$command\" \"$position\"\n"
        "        fi\n"
        "        if [[ -n $list && $cur == *,* ]]; then\n"
        "                before=${cur%,*},\n"
        "                cur=${cur##*,}\n"
        "        fi\n"
        "        mapfile -t COMPREPLY < <(compgen -P \"$before\" -W \"$words\" -- \"$cur\")\n"
        "        if [[ -n $files ]]; then\n"
        "                compopt -o filenames 2>/dev/null\n"
        "                mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen -P \"$before\" -f -- "
        "\"$cur\")\n"
        "        fi\n"
        "}\n"
        "complete -F _ranvier ranvier\n";

/* The number of a list, from 0, which is added where it is new. */
static size_t number_of(const struct lists *lists, json_t *names)
{
        size_t i = 0;
        while (i < json_array_size(lists->known) && !json_equal(json_array_get(lists->known, i), names))
                i++;
        if (i == json_array_size(lists->known))
                json_array_append(lists->known, names);
        return i;
}

/* What stands behind a case's pattern. */
static void put_words(const struct lists *lists, const json_t *words)
{
        json_t *names = json_object_get(words, "names");
        if (json_array_size(names))
                fprintf(lists->out, " words=$_ranvier_words_%zu", number_of(lists, names));
        if (json_is_true(json_object_get(words, "files")))
                fputs(" files=1", lists->out);
        if (json_is_true(json_object_get(words, "list")))
                fputs(" list=1", lists->out);
        fputs(" ;;\n", lists->out);
}

static void put_value(void *context, const json_t *option)
{
        const struct lists *lists = context;
        const char *letter = manual_text(option, "letter");
        if (!*manual_text(option, "argument"))
                return;
        fprintf(lists->out, "        %s:--%s", lists->command, manual_text(option, "name"));
        if (*letter)
                fprintf(lists->out, "|%s:-%s", lists->command, letter);
        putc(')', lists->out);
        put_words(lists, json_object_get(option, "values"));
}

static void put_name(void *context, const json_t *option)
{
        fprintf(context, " --%s", manual_text(option, "name"));
}

static void put_operands(const struct lists *lists, const json_t *command)
{
        size_t i;
        json_t *operand;
        json_array_foreach(json_object_get(command, "operands"), i, operand)
        {
                const bool repeated = json_is_true(json_object_get(operand, "repeated"));
                if (repeated)
                        fprintf(lists->out, "        %s:*)", lists->command);
                else
                        fprintf(lists->out, "        %s:%zu)", lists->command, i + 1);
                put_words(lists, operand);
        }
}

void manual_bash(FILE *out, const json_t *all)
{
        struct lists lists = {.known = json_array(), .out = out};
        const json_t *commands = json_object_get(all, "commands");
        size_t i, j;
        json_t *command, *names, *name;
        fputs("# Completion of ranvier for bash, made of the tables of its options.\n# shellcheck "
              "shell=bash\n"
              "_ranvier_commands='help --help --version",
              out);
        json_array_foreach(commands, i, command)
        {
                fprintf(out, " %s", manual_text(command, "name"));
        }
        fputs("'\n_ranvier_options()\n{\n        case $1 in\n", out);
        json_array_foreach(commands, i, command)
        {
                fprintf(out, "        %s) words='", manual_text(command, "name"));
                manual_each_option(command, put_name, out);
                fputs("' ;;\n", out);
        }
        fputs("        esac\n}\n", out);
        for (int operands = 0; operands < 2; operands++) {
                fprintf(out, "%s_ranvier_%s()\n{\n        case $1:$2 in\n",
                        operands ? "# The same of the word number $2, from 1, that is no option.\n"
                                 : "# Sets words, files and list to what the value of option $2 of command "
                                   "$1 may be; "
                                   "fails if it takes none.\n",
                        operands ? "operand" : "value");
                json_array_foreach(commands, i, command)
                {
                        lists.command = manual_text(command, "name");
                        if (operands)
                                put_operands(&lists, command);
                        else
                                manual_each_option(command, put_value, &lists);
                }
                fputs("        *) return 1 ;;\n        esac\n}\n", out);
        }
        json_array_foreach(lists.known, i, names)
        {
                fprintf(out, "_ranvier_words_%zu='", i);
                json_array_foreach(names, j, name)
                {
                        fprintf(out, "%s%s", j ? " " : "", json_string_value(name));
                }
                fputs("'\n", out);
        }
        fputs(completer, out);
        json_decref(lists.known);
}
