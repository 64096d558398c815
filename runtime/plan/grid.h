/* The names of the axes of the grid of ranks, whose sizes are in struct plan (runtime/sched/plan.h). Whoever
 * prints, reads or lists sizes and places iterates over this table, so that messages, reports and columns
 * name them alike. */
#ifndef RANVIER_RUNTIME_PLAN_GRID_H
#define RANVIER_RUNTIME_PLAN_GRID_H

#include "runtime/sched/plan.h"

struct grid_axis_names {
        /* The flag, the column and the member of a report that say how many there are: "pp". */
        const char *size;
        /* What one of them is called, and the member of a report that has its number: "stage". */
        const char *place;
        /* The axis is named even if the grid has only one along it. */
        bool always;
};
/* Indexed by enum grid_axis. */
extern const struct grid_axis_names grid_axes[GRID_AXES];

/* Returns whether texts about a grid of these sizes name the axis: always, or only from two along it on. */
bool grid_names(const int sizes[GRID_AXES], enum grid_axis axis);

/* Writes the sizes of the axes that are named, such as "pp 2 x dp 3", with `before` in front of each name (""
 * or "--") and `times` between two axes (" x "). Returns `text`. */
enum { GRID_TEXT = 96 };
char *grid_text(char text[GRID_TEXT], const int sizes[GRID_AXES], const char *before, const char *times);

/* Writes the place of a rank in the grid of a plan, such as "stage 1, replica 0". Returns `text`. */
char *grid_place(char text[GRID_TEXT], const struct plan *plan, int rank);

#endif
