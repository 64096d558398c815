/* A device's link to the host, whose two directions slow each other down: of each direction the copy under
 * way. */
#ifndef RANVIER_RUNTIME_ENGINE_HOST_LINK_H
#define RANVIER_RUNTIME_ENGINE_HOST_LINK_H

#include "runtime/sched/op.h"

#include <stdbool.h>

enum host_link_way { HOST_LINK_TO_DEVICE, HOST_LINK_TO_HOST };

/* Of a lane between host and device. */
static inline enum host_link_way host_link_way_of(enum op_lane lane)
{
        return lane == LANE_DEVICE_TO_HOST ? HOST_LINK_TO_HOST : HOST_LINK_TO_DEVICE;
}

/* The other direction. */
static inline enum host_link_way host_link_back(enum host_link_way way)
{
        return way == HOST_LINK_TO_HOST ? HOST_LINK_TO_DEVICE : HOST_LINK_TO_HOST;
}

/* All zero: nothing is copied. */
struct host_link {
        struct {
                bool copying;
                double left;        /* of the copy, 1 to 0, at `since` */
                double alone, both; /* seconds of all of it, alone and while the other direction copies too */
        } copies[2];                /* by enum host_link_way */
        double since;               /* seconds of the caller's clock */
};

/* A copy begins at `now`, behind the one before it. What either direction has done stays done, so that the
 * end of a copy under way in the other direction, if there is one (copying), is another from now on. */
void host_link_begin(struct host_link *link, enum host_link_way way, double now, double alone, double both);

/* When the copy of that direction, which is under way, ends if no other begins. */
double host_link_end(const struct host_link *link, enum host_link_way way);

#endif
