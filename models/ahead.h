/* The collectives of a grid of shards along z beside the products of a pass (Singh et al. 2024): weights are
 * gathered ahead, and gradients are summed behind. All of them run one after the other. */
#ifndef RANVIER_MODELS_AHEAD_H
#define RANVIER_MODELS_AHEAD_H

#include "models/work.h"

/* The collectives along z in a list of kernels. */
struct ahead {
        int gathers, scatters;
};
void ahead_count(struct ahead *, const struct kernel *);

/* Returns how many entries the list of a pass grows by. */
int ahead_joins(const struct ahead *, const struct work *work);

/* Reorders such a list, of `count` kernels and room for as many more: each gather begins when the one before
 * is awaited, by the kernel that reads what it brings; and what a reduce-scatter leaves is added to the
 * gradient behind the next one, or at the end. So at most two gathers, or what they brought, are in memory,
 * and two gradients. Collectives say how many of them may go on (`left`). */
void ahead_order(struct kernel *list, int count, const struct work *work);

#endif
