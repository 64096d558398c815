/* Folding: where all replicas of a plan do the same at the same time, one is simulated and stands for all.
 * Its collectives with the others go to twins of its own place (struct sim_group), so that links carry what
 * they would carry with all replicas there. */
#ifndef RANVIER_SIM_WORLD_FOLD_H
#define RANVIER_SIM_WORLD_FOLD_H

#include "runtime/plan/options.h"
#include "sim/platform/platform.h"

enum fold { FOLD_AUTO, FOLD_ON, FOLD_OFF };

/* auto, on or off. */
int fold_parse(const char *option, const char *text, enum fold *fold, struct rv_error_info *err);

/* Why the replicas of a plan differ on this platform, as a clause; NULL: they are equal. */
const char *fold_obstacle(const struct platform *platform, const struct options *options);

#endif
