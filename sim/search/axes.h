/* The axes of a sweep: the flags of a plan for which a sweep takes a list of values (flag.axis), beside grid,
 * sizes and recomputation. sweep.c fills the lists, space.c goes through their combinations, results.c names
 * a plan by them. */
#ifndef RANVIER_SIM_SEARCH_AXES_H
#define RANVIER_SIM_SEARCH_AXES_H

#include "runtime/plan/flags.h"

#include <stdio.h>

enum { AXES = 24 };

struct axes {
        int count;
        struct axis {
                const struct flag *flag;
                /* The values to try, in order. */
                struct flag_values list;
                /* The list was given on the command line, so that a preset leaves it alone. */
                bool given;
        } axis[AXES];
};

/* Makes an axis of every flag that is one, each with the default of a plan as its only value. */
void axes_init(struct axes *axes);

/* Return the axis, or the values, of the flag of this name, which must be an axis. */
struct axis *axes_named(struct axes *axes, const char *flag);
const struct flag_values *axes_values(const struct axes *axes, const char *flag);

/* Replaces the list by the one in `text`, such as axonn,1f1b. A word that simulate would not take for the
 * flag, or that is there twice, is RV_EINPUT. A switch takes the words yes and no. */
int axis_parse(struct axis *axis, const char *text, struct rv_error_info *err);

/* Returns RV_ENOTBUILT if a value of some axis is one that is not built. `base` is a plan that is complete
 * but for the axes. */
int axes_check_built(const struct axes *axes, const struct options *base, struct rv_error_info *err);

/* Moves `place`, the index of a value for each axis, to the next combination that differs on axis `at` or an
 * earlier one; the last axis gives every combination. It begins as zeros. Returns false after the last one;
 * `place` is zeros again then. */
bool axes_next(const struct axes *axes, int place[AXES], int at);

/* Returns which of all combinations, counted from 0, a place is, and how many there are. */
int64_t axes_index(const struct axes *axes, const int place[AXES]);
int64_t axes_combinations(const struct axes *axes);

/* Returns AXES_WORTH if a combination, which is set in `options` (axes_set), is worth a look on their grid,
 * else the axis at which to move on. Where an axis makes no difference (schedules with one stage, ZeRO with
 * one replica), the first of its values stands for all. What one value has no use for (virtual stages but for
 * the interleaved schedule) is not combined with it, if the lists have something else for both. */
enum { AXES_WORTH = -1 };
int axes_needless(const struct axes *axes, const int place[AXES], const struct options *options);

/* Returns the last axis that the number of ranks depends on. */
int axes_of_grid(const struct axes *axes);

/* Sets the values of a combination in `options`. */
void axes_set(struct options *options, const struct axes *axes, const int place[AXES]);

/* Sets the lists that were not given to what a preset of plans tries: "all", which is what could be the best,
 * or "megatron", which is what Megatron-LM has. Returns false if there is no such preset. */
bool axes_preset(struct axes *axes, const char *preset);

/* Writes the values of preset "all" that the axis does not have, such as "--zero 1,3"; "" if it has all, or
 * the axis changes nothing in plans of the model of `base`. */
void axis_untried(const struct axis *axis, const struct options *base, char *text, size_t text_size);

/* Writes the values of a plan that are not the default, and those that its framework has otherwise, as flags
 * of `ranvier simulate`, each after a blank. */
void axes_write(const struct options *options, FILE *out);

/* Writes the values of a plan for a table, such as "tp 2, 1f1b": those of axes that were varied or set to
 * another value than the default. A value that is the default is named only where the flag has a label for
 * it. */
void axes_describe(const struct axes *axes, const struct options *options, char *text, size_t text_size);

#endif
