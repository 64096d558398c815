/* Folding: where all replicas of a plan, or all shards of a stage, do the same at the same time, one is
 * simulated and stands for all.
 *
 * This module only decides whether they are equal on a platform. predict.c acts on the answer: it tells the
 * platform, so that the collectives of the one replica go to twins of its own places (struct sim_group,
 * PLATFORM_NEAR) and links carry what they would carry with all of them there. */
#ifndef RANVIER_SIM_WORLD_FOLD_H
#define RANVIER_SIM_WORLD_FOLD_H

#include "runtime/plan/options.h"
#include "sim/platform/platform.h"

/* Fold where it is possible; insist, and fail where it is not; or simulate all replicas. */
enum fold { FOLD_AUTO, FOLD_ON, FOLD_OFF };

/* The words that fold_parse takes. */
extern const struct option_words fold_words;

/* Reads "auto", "on" or "off"; for anything else returns RV_EINPUT with a sentence that begins with
 * `option`. */
int fold_parse(const char *option, const char *text, enum fold *fold, struct rv_error_info *err);

/* Returns why the replicas of a resolved plan cannot be folded on this platform, as a clause for a sentence,
 * such as "replicas share links of the fabric"; also if there is only one replica. NULL means that they are
 * equal. The text is constant. */
const char *fold_obstacle(const struct platform *platform, const struct options *options);

/* The same of the shards of a stage, of which the first would stand for all: "there is one shard". They are
 * equal with each other whether replicas are or not. */
const char *fold_shards_obstacle(const struct platform *platform, const struct options *options);

#endif
