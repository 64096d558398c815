/* What a sweep varies beside the grid and the sizes: choices that `ranvier simulate` has a flag of its own
 * for, each a list here. */
#ifndef RANVIER_SIM_AXES_H
#define RANVIER_SIM_AXES_H

#include "runtime/engine/options.h"

enum axis {
        AXIS_SHARDS,            /* --tp */
        AXIS_SEQUENCE_PARALLEL, /* no, yes */
        AXIS_SCHEDULE,
        AXIS_VIRTUAL_STAGES,
        AXIS_P2P,
        AXIS_ZERO,
        AXIS_ORDER,
        AXES
};

enum { AXIS_VALUES = 16 };

struct axes {
        struct axis_values {
                int values[AXIS_VALUES], count;
        } axis[AXES];
};

/* One value each: the default of a plan. */
void axes_init(struct axes *axes);

const char *axis_option(enum axis axis); /* "tp" */

/* Takes a list such as axonn,1f1b; each word is checked as simulate checks its flag. */
int axes_parse(struct axes *axes, enum axis axis, const char *text, struct rv_error_info *err);

/* RV_ENOTBUILT if a value is one that is not built; `base`: a plan that is resolved but for these. */
int axes_check_built(const struct axes *axes, const struct options *base, struct rv_error_info *err);

/* Every combination: `place` begins as zeros; false after the last. */
bool axes_next(const struct axes *axes, int place[AXES]);

/* Whether a combination is worth a look on this grid: with one stage schedules and messages, with one replica
 * ZeRO, and with one of either the order of ranks make no difference, so the first of them stands for all. */
bool axes_differ(const int place[AXES], int pp, int dp);

void axes_set(struct options *options, const struct axes *axes, const int place[AXES]);

/* A plan's values of the axes that have several or another than the default: "tp 2, 1f1b". */
void axes_describe(const struct axes *axes, const struct options *options, char *text, size_t text_size);

#endif
