/* What a sweep varies beside the grid and the sizes: choices that `ranvier simulate` has a flag of its own
 * for, each a list here. */
#ifndef RANVIER_SIM_SEARCH_AXES_H
#define RANVIER_SIM_SEARCH_AXES_H

#include "runtime/plan/flags.h"

#include <stdio.h>

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

/* Takes a list such as axonn,1f1b; each word is checked as simulate checks its flag. */
int axes_parse(struct axes *axes, enum axis axis, const char *text, struct rv_error_info *err);

/* RV_ENOTBUILT if a value is one that is not built; `base`: a plan that is resolved but for these. */
int axes_check_built(const struct axes *axes, const struct options *base, struct rv_error_info *err);

/* Every combination: `place` begins as zeros; false after the last. */
bool axes_next(const struct axes *axes, int place[AXES]);

/* Whether a combination is worth a look on the grid of `options`, in which it is set: with one stage
 * schedules and messages make no difference, with one replica ZeRO, and with one of either the order of
 * ranks, so the first of them stands for all. Of lists, what one value has no use for (virtual stages but for
 * the interleaved schedule, sequence parallelism without shards) goes with the others only. */
bool axes_differ(const struct axes *axes, const int place[AXES], const struct options *options);

void axes_set(struct options *options, const struct axes *axes, const int place[AXES]);

/* Sets those axes whose bit is not in `given` to what a preset of plans tries: "all" that could be the best,
 * or "megatron": what Megatron-LM has. False: no such preset. */
bool axes_preset(struct axes *axes, const char *preset, unsigned given);

/* What of an axis' preset "all" is not among its values, as "--zero 1,3"; "": nothing is left out. */
void axes_untried(const struct axes *axes, enum axis axis, char *text, size_t text_size);

/* A plan's values that are not the default, as flags of `ranvier simulate`, each after a blank. */
void axes_write(const struct options *options, FILE *out);

/* A plan's values of the axes that have several or another than the default: "tp 2, 1f1b". */
void axes_describe(const struct axes *axes, const struct options *options, char *text, size_t text_size);

#endif
