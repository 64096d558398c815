/* A good plan soon: from a few plans that need little memory, one choice after another is changed to its best
 * value, until none is better. It is not the best of all, but so near to it that a search that begins with
 * its time can leave out most plans unrun (space.reach, space.larger). */
#ifndef RANVIER_SIM_SEARCH_CLIMB_H
#define RANVIER_SIM_SEARCH_CLIMB_H

#include "sim/search/walk.h"

/* Returns the seconds on paper of the best plan that it meets, over groups[count] of one machine, of which
 * gpus, offload and fused are set, with `times` the memory; INFINITY: none that fits. */
double climb(const struct space_group *groups, int count, const struct space *space,
             const struct machine *machine, double times, struct paper_memo *memo);

#endif
