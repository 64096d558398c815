/* The command line of `ranvier train`. */
#ifndef RANVIER_RUNTIME_TRAIN_OPTIONS_H
#define RANVIER_RUNTIME_TRAIN_OPTIONS_H

#include "runtime/trainer.h"

/* Fills `settings`, which keeps pointing into argv, for the ranks of `net`. Returns 0, OPTIONS_DONE (help was
 * asked for, and printed by the first rank), or a negative rv_error. */
int train_options_parse(struct train_settings *settings, int argc, char **argv, const struct net *net,
                        struct rv_error_info *err);

#endif
