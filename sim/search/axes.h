/* The axes of a sweep: the flags of a plan that are lists there (flag.axis), beside grid and sizes. */
#ifndef RANVIER_SIM_SEARCH_AXES_H
#define RANVIER_SIM_SEARCH_AXES_H

#include "runtime/plan/flags.h"

#include <stdio.h>

enum { AXES = 16 };

struct axes {
        int count;
        struct axis {
                const struct flag *flag;
                struct flag_values list;
                bool given; /* on the command line */
        } axis[AXES];
};

/* One value each: the default of a plan. */
void axes_init(struct axes *axes);

/* The axis of a flag, which must be one. */
struct axis *axes_named(struct axes *axes, const char *flag);
const struct flag_values *axes_values(const struct axes *axes, const char *flag);

/* Takes a list such as axonn,1f1b; each word is checked as simulate checks its flag. */
int axis_parse(struct axis *axis, const char *text, struct rv_error_info *err);

/* RV_ENOTBUILT if a value is one that is not built; `base`: a plan that is resolved but for these. */
int axes_check_built(const struct axes *axes, const struct options *base, struct rv_error_info *err);

/* Every combination: `place` begins as zeros; false after the last. */
bool axes_next(const struct axes *axes, int place[AXES]);

/* Whether a combination is worth a look on the grid of `options`, in which it is set. Where an axis makes no
 * difference (schedules with one stage, ZeRO with one replica), the first of its values stands for all. What
 * one value has no use for (virtual stages but for the interleaved schedule) is not combined with it, if the
 * lists have something else for both. */
bool axes_differ(const struct axes *axes, const int place[AXES], const struct options *options);

void axes_set(struct options *options, const struct axes *axes, const int place[AXES]);

/* Sets those axes that are not given to what a preset of plans tries: "all" that could be the best, or
 * "megatron": what Megatron-LM has. False: no such preset. */
bool axes_preset(struct axes *axes, const char *preset);

/* What of preset "all" is not among an axis' values, as "--zero 1,3"; "": nothing is left out. */
void axis_untried(const struct axis *axis, char *text, size_t text_size);

/* A plan's values that are not the default, as flags of `ranvier simulate`, each after a blank. */
void axes_write(const struct options *options, FILE *out);

/* A plan's values of the axes that have several or another than the default: "tp 2, 1f1b". */
void axes_describe(const struct axes *axes, const struct options *options, char *text, size_t text_size);

#endif
