/* The command line of `ranvier train`. */
#ifndef RANVIER_RUNTIME_TRAIN_OPTIONS_H
#define RANVIER_RUNTIME_TRAIN_OPTIONS_H

#include "runtime/trainer.h"

/* Fills `settings`, which keeps pointing into argv. Returns 0, OPTIONS_DONE (help was asked for), or a
 * negative rv_error. `quiet`: help is not printed (ranks but the first). */
int train_options_parse(struct train_settings *settings, int argc, char **argv, int ranks, bool quiet,
                        struct rv_error_info *err);

#endif
