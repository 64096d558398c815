/* The command line of `ranvier train`: the options of the training itself, and, by runtime/plan, those of
 * the plan. */
#ifndef RANVIER_RUNTIME_REAL_TRAIN_OPTIONS_H
#define RANVIER_RUNTIME_REAL_TRAIN_OPTIONS_H

#include "runtime/real/trainer.h"
#include "runtime/base/command_line.h"

/* Parses and checks the command line for the ranks of `net`, and resolves the plan and all defaults.
 * `settings` keeps pointing into argv. Help is printed by rank 0 alone, which alone checks that the outputs
 * can be written. Returns 0; COMMAND_LINE_DONE if help was asked for; or a negative rv_error with a sentence.
 * Not collective: the ranks have yet to agree on the result.
 *
 * With --restarts nobody has started ranks yet: the plan is then checked for those that are to be started
 * (options_ranks), whatever `net` says. */
int train_options_parse(struct train_settings *settings, int argc, char **argv, const struct net *net,
                        struct rv_error_info *err);

/* Removes options by these names (without "--", up to a NULL), each with its value, from a command line that
 * train_options_parse took. Returns how many words are left. */
int train_options_drop(int argc, char **argv, const char *const *names);

/* Returns whether the state of the training is kept (--checkpoint-every). */
bool train_options_keep(const struct train_settings *settings);

/* Frees what the settings own. */
void train_options_free(struct train_settings *settings);

/* Returns the options of the training itself for the report's "training", each under its name with "_" for
 * "-". The caller owns it. */
json_t *train_options_json(const struct train_settings *settings);

/* Returns rank 0's JSON on every rank, the caller's to free; NULL if rank 0's is. Collective. */
json_t *train_options_first(struct net *net, const json_t *mine);

/* Checks that this rank was started as rank 0 was: the same model, plan and training, in all that must be the
 * same on every rank. If not, `err` names what differs. `done` says that help was asked for; then `settings`
 * is not read. Returns 0, RV_EINPUT, or RV_ESYSTEM without memory. Collective, for ranks whose options are
 * right; the result is this rank's, and the ranks have yet to agree on it (net_agree). */
int train_options_compare(const struct train_settings *settings, bool done, struct net *net,
                          struct rv_error_info *err);

#endif
