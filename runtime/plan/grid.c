#include "runtime/plan/grid.h"

#include <stdio.h>

const struct grid_axis_names grid_axes[GRID_AXES] = {
        [GRID_STAGES] = {"pp", "stage", true},
        [GRID_REPLICAS] = {"dp", "replica", true},
        [GRID_SHARDS] = {"tp", "shard", false},
};

bool grid_names(const int sizes[GRID_AXES], enum grid_axis axis)
{
        return grid_axes[axis].always || sizes[axis] > 1;
}

char *grid_text(char text[GRID_TEXT], const int sizes[GRID_AXES], const char *before, const char *times)
{
        size_t length = 0;
        for (int axis = 0; axis < GRID_AXES; axis++)
                if (grid_names(sizes, (enum grid_axis)axis))
                        length += (size_t)snprintf(text + length, GRID_TEXT - length, "%s%s%s %d",
                                                   length ? times : "", before, grid_axes[axis].size,
                                                   sizes[axis]);
        return text;
}

char *grid_place(char text[GRID_TEXT], const struct plan *plan, int rank)
{
        size_t length = 0;
        for (int axis = 0; axis < GRID_AXES; axis++)
                if (grid_names(plan->sizes, (enum grid_axis)axis))
                        length += (size_t)snprintf(text + length, GRID_TEXT - length, "%s%s %d",
                                                   length ? ", " : "", grid_axes[axis].place,
                                                   plan_place(plan, rank, (enum grid_axis)axis));
        return text;
}
