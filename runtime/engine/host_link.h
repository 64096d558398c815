/* A device's link to the host, on which a copy in one direction slows down a copy in the other. It tells the
 * simulated worlds (paper.c, sim/world/priced.c) when a copy ends, from what it would take alone and beside
 * another. Each direction has one copy under way at a time; who waits behind it is the caller's matter. */
#ifndef RANVIER_RUNTIME_ENGINE_HOST_LINK_H
#define RANVIER_RUNTIME_ENGINE_HOST_LINK_H

#include "runtime/sched/op.h"

#include <stdbool.h>

enum host_link_way { HOST_LINK_TO_DEVICE, HOST_LINK_TO_HOST };

/* Returns the direction of a lane between host and device. */
static inline enum host_link_way host_link_way_of(enum op_lane lane)
{
        return lane == LANE_DEVICE_TO_HOST ? HOST_LINK_TO_HOST : HOST_LINK_TO_DEVICE;
}

/* Returns the other direction. */
static inline enum host_link_way host_link_back(enum host_link_way way)
{
        return way == HOST_LINK_TO_HOST ? HOST_LINK_TO_DEVICE : HOST_LINK_TO_HOST;
}

/* The state of a link. All zero: nothing is copied. */
struct host_link {
        /* By enum host_link_way, the copy under way. */
        struct {
                bool copying;
                double left; /* the part of the copy that is left at `since`, from 1 to 0 */
                double alone,
                        both; /* seconds of all of it: alone, and while the other direction copies too */
        } copies[2];
        double since; /* seconds of the caller's clock */
};

/* Begins a copy at `now`, when the one before it in the same direction has ended. What the other direction
 * has copied stays copied, but from now on it goes at another speed: if it is copying, its host_link_end is
 * a different one. */
void host_link_begin(struct host_link *link, enum host_link_way way, double now, double alone, double both);

/* Returns when the copy under way in a direction ends, in seconds of the caller's clock, if no other
 * begins. */
double host_link_end(const struct host_link *link, enum host_link_way way);

#endif
