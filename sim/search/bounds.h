/* What all processes of a search have found out about its plans (walk.h), in memory that they share: from
 * what the work of a batch follows from, to the seconds that it takes at least. */
#ifndef RANVIER_SIM_SEARCH_BOUNDS_H
#define RANVIER_SIM_SEARCH_BOUNDS_H

#include "sim/search/axes.h"

#include <stdatomic.h>

enum {
        BOUND_STAGES,
        BOUND_SIZE,
        BOUND_RECOMPUTE,
        BOUND_PARTED,
        BOUND_UNITS,
        BOUND_WIDE,
        BOUND_SPLIT, /* a framework's may follow from other flags */
        BOUND_LOGITS,
        BOUND_OFFLOADED, /* activations, by which schedule */
        BOUND_AXES,      /* values of the axes; of those that the work does not follow from, 0 */
        BOUND_KEYS = BOUND_AXES + AXES
};

/* Begins as all zeros. */
struct bounds {
        struct {
                _Atomic int state;
                double key[BOUND_KEYS], seconds;
        } entries[1 << 15];
};

/* Returns whether a key is known, and its seconds. */
bool bounds_find(const struct bounds *bounds, const double key[BOUND_KEYS], double *seconds);

/* Keeps them, if there is room near their place. Several processes may keep the same. */
void bounds_keep(struct bounds *bounds, const double key[BOUND_KEYS], double seconds);

#endif
