/* Command lines. Every program of ranvier describes its options to glibc's argp and parses them with
 * command_line_parse, which differs from argp_parse in two ways: it never ends the process, and it never
 * prints an error. Whatever is wrong comes back as one sentence in a struct rv_error_info, so that of
 * many MPI ranks one alone can print it. Tables of options for argp are made by setting.h and
 * runtime/plan/flags.h. */
#ifndef RANVIER_RUNTIME_BASE_COMMAND_LINE_H
#define RANVIER_RUNTIME_BASE_COMMAND_LINE_H

#include "runtime/base/error.h"
#include "runtime/base/words.h"

#include <argp.h>
#include <stdbool.h>

/* An entry for an array of argp's options, which argp itself passes over: `of`, an option's name without
 * dashes or a word of args_doc such as "MODEL", takes these words (a struct option_words). Both pointers are
 * kept. */
#define OPTION_WORDS(of, words)                                                                              \
        {                                                                                                    \
                .name = (of), .arg = (const char *)(words), .flags = OPTION_DOC | OPTION_HIDDEN              \
        }

/* What such an entry says; NULL: `option` is no such entry. */
const struct option_words *option_words(const struct argp_option *option);

/* Checks that every option in argv[1 ...] is one of `argp` or its children, is written in full, and has an
 * argument if and only if it takes one. This is needed because getopt_long, below argp, accepts any
 * unambiguous beginning of a name, and so would take `--pipeline 2` for `--pipeline-limit 2`. Values are not
 * looked at, nor what stands behind `--` or behind an option whose key is one of `ends` (an array that ends
 * with 0). command_line_parse calls this itself.
 *
 * Returns 0; RV_EINPUT for an unknown option or a missing or needless argument; RV_ENOTBUILT for an option of
 * something that is not built; or RV_ESYSTEM without memory. The sentence names the option and, if there is
 * one, the one that was probably meant. */
int command_line_check(const struct argp *argp, int argc, char *const *argv, const int *ends,
                       struct rv_error_info *err);

/* Removes the options by these names (without dashes, up to a NULL), with their values, from a command line
 * that command_line_check finds right; `argv` is closed up, and ends with NULL. Returns how many words are
 * left. */
int command_line_drop(const struct argp *argp, int argc, char **argv, const char *const *names);

/* Parses a command line as argp_parse does, and handles --help, --usage, --version and, which help does not
 * show, --describe (describe.h) itself. `input` is
 * handed to the parser of `argp`. A parser that finds a value wrong fills command_line_error(state) (with
 * rv_fail or a function of parse.h) and returns EINVAL. Everything else that can be wrong (an unknown or
 * ambiguous option, a missing or needless argument, one word too many) becomes a sentence here. Help is
 * printed to stdout, unless `quiet` (for ranks but the first), under the last part of argv[0], in which
 * "ranvier-x" is read as "ranvier x".
 *
 * Returns 0; COMMAND_LINE_DONE if help, usage or version was asked for (the program should exit with 0);
 * RV_EINPUT or RV_ENOTBUILT (exit with 2); or RV_ESYSTEM, for example if the help could not be printed. */
enum { COMMAND_LINE_DONE = 1 };
int command_line_parse(const struct argp *argp, int argc, char **argv, void *input, bool quiet,
                       struct rv_error_info *err);

/* Ends a command: checks that what it printed arrived (file_check_printed), and else, or if it failed, says
 * so on stderr under its name, which is as in "ranvier NAME". `rc` is what the command returned,
 * COMMAND_LINE_DONE included. Returns the exit status. */
int command_line_end(const char *name, int rc, struct rv_error_info *err);

/* Returns the place where a parser that runs under command_line_parse says what is wrong, or NULL if it runs
 * under plain argp_parse. */
struct rv_error_info *command_line_error(const struct argp_state *state);

/* Returns the command line as it was written, for the report: `name` in the place of argv[0], and the words
 * with one space between them. The caller frees it; NULL means that there is no memory. */
char *command_line_text(const char *name, int argc, char **argv);

#endif
