/* The names of the grid's axes (runtime/sched/plan.h), for all who read, print or list them. */
#ifndef RANVIER_RUNTIME_PLAN_GRID_H
#define RANVIER_RUNTIME_PLAN_GRID_H

#include "runtime/sched/plan.h"

struct grid_axis_names {
        const char *size;  /* the flag, column and member that holds how many there are: "pp" */
        const char *place; /* one of them, and the member that holds its number: "stage" */
        bool always;       /* named even where the grid has only one along this axis */
};
extern const struct grid_axis_names grid_axes[GRID_AXES];

/* Whether an axis is named in texts of a grid of these sizes. */
bool grid_names(const int sizes[GRID_AXES], enum grid_axis axis);

/* Writes the sizes as "pp 2 x dp 3", with `before` in front of each name and `times` between two. Returns
 * `text`.
 */
enum { GRID_TEXT = 96 };
char *grid_text(char text[GRID_TEXT], const int sizes[GRID_AXES], const char *before, const char *times);

/* Writes where a rank lies: "stage 1, replica 0". Returns `text`. */
char *grid_place(char text[GRID_TEXT], const struct plan *plan, int rank);

#endif
