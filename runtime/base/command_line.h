/* Command lines: read by argp, which here neither prints an error nor ends the process. */
#ifndef RANVIER_RUNTIME_BASE_COMMAND_LINE_H
#define RANVIER_RUNTIME_BASE_COMMAND_LINE_H

#include "runtime/base/error.h"

#include <argp.h>
#include <stdbool.h>

/* Whether every option in argv[1 ...] is one of `argp` or its children, written in full, and has an argument
 * if and only if it takes one. getopt_long, below argp, would take `--pipeline 2` for `--pipeline-limit 2`.
 * Values are not looked at, nor what stands behind `--` or behind an option whose key is one of the `ends`
 * (to a 0). Returns 0, RV_EINPUT, or RV_ENOTBUILT for an option of something that is not built; the sentence
 * names the option and, if there is one, the one that was probably meant. */
int command_line_check(const struct argp *argp, int argc, char *const *argv, const int *ends,
                       struct rv_error_info *err);

/* Parses a command line: what argp_parse does, without ever ending the process or printing an error. Knows
 * --help, --usage and --version itself. `input` goes to `argp`'s parser. A parser that finds a value wrong
 * fills command_line_error(state) (with rv_fail or parse_int) and returns EINVAL. Everything else that can
 * be wrong (an unknown or ambiguous option, a missing or needless argument, one word too many) becomes a
 * sentence here. Help is printed to stdout unless `quiet` (ranks but the first), under the name argv[0] with
 * "ranvier-x" read as "ranvier x". Returns 0, COMMAND_LINE_DONE (help was asked for: exit 0), RV_EINPUT,
 * RV_ENOTBUILT (exit 2), or RV_ESYSTEM (help could not be printed). */
enum { COMMAND_LINE_DONE = 1 };
int command_line_parse(const struct argp *argp, int argc, char **argv, void *input, bool quiet,
                       struct rv_error_info *err);

/* Where a parser under command_line_parse says what is wrong; NULL under plain argp_parse. */
struct rv_error_info *command_line_error(const struct argp_state *state);

/* The command line as it was written, for the report, with `name` for argv[0]. The caller frees it; NULL: no
 * memory. */
char *command_line_text(const char *name, int argc, char **argv);

#endif
