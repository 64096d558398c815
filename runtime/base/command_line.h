/* Whether the options of a command line are ones that a program has. */
#ifndef RANVIER_ENGINE_COMMAND_LINE_H
#define RANVIER_ENGINE_COMMAND_LINE_H

#include "runtime/base/error.h"

#include <argp.h>

/* Whether every option in argv[1 ...] is one of `argp` or its children, written in full, and has an argument
 * if and only if it takes one. getopt_long, below argp, would take `--pipeline 2` for `--pipeline-limit 2`.
 * Values are not looked at, nor what stands behind `--` or behind an option whose key is one of the `ends`
 * (to a 0). Returns 0, RV_EINPUT, or RV_ENOTBUILT for an option of something that is not built; the sentence
 * names the option and, if there is one, the one that was probably meant. */
int command_line_check(const struct argp *argp, int argc, char *const *argv, const int *ends,
                       struct rv_error_info *err);

#endif
