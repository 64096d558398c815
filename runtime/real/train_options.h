/* The command line of `ranvier train`. */
#ifndef RANVIER_RUNTIME_REAL_TRAIN_OPTIONS_H
#define RANVIER_RUNTIME_REAL_TRAIN_OPTIONS_H

#include "runtime/real/trainer.h"
#include "runtime/base/command_line.h"

/* Fills `settings`, which keeps pointing into argv, for the ranks of `net`. Returns 0, COMMAND_LINE_DONE
 * (help was asked for, and printed by the first rank), or a negative rv_error. */
int train_options_parse(struct train_settings *settings, int argc, char **argv, const struct net *net,
                        struct rv_error_info *err);

/* The report's "training" as the command line has it: every option of the training itself, by its name ("-"
 * is
 * "_"). The caller owns it. */
json_t *train_options_json(const struct train_settings *settings);

/* Whether this rank was started as rank 0 was, in all that must be the same on every rank; otherwise `err`
 * names what differs. Collective, for ranks whose options are right; `done`: help was asked for, and settings
 * are not read. The result is this rank's: ranks have yet to agree. */
int train_options_compare(const struct train_settings *settings, bool done, struct net *net,
                          struct rv_error_info *err);

#endif
