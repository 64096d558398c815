/* All-reduces as the messages they are made of: every step is a SimGrid communication, so that the links they
 * share with each other and with the pipeline are shared in the simulation too. */
#ifndef RANVIER_SIM_COLLECTIVE_H
#define RANVIER_SIM_COLLECTIVE_H

#include "sim/driver_sim.h"

struct collective_costs {
        double step_seconds;            /* software cost of starting one step */
        double reduce_seconds_per_byte; /* arithmetic on what arrived */
        int segments; /* parts of a ring step's block: one is reduced while the next arrives */
};

/* Buffers below this many bytes go by recursive doubling, which has fewer steps; larger ones by a ring, which
 * sends less (Thakur, Rabenseifner & Gropp 2005, section 4.4; the ring is their bandwidth-optimal choice). */
enum { COLLECTIVE_RING_FROM_BYTES = 4096 };

/* In an actor of the `group->index`-th member: takes part in an all-reduce of `bytes`, returns when it is
 * done on this rank. Every member must call it, in the same order for calls on one group. */
void collective_allreduce(const struct sim_group *group, int64_t bytes, const struct collective_costs *costs);

#endif
