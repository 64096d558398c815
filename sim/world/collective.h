/* Collectives as the messages they are made of: every step is a SimGrid communication, so that the links they
 * share with each other and with the pipeline are shared in the simulation too. What takes no message, such
 * as starting a step or arithmetic, is slept. */
#ifndef RANVIER_SIM_WORLD_COLLECTIVE_H
#define RANVIER_SIM_WORLD_COLLECTIVE_H

#include "sim/collective/collective_model.h"
#include "sim/world/driver_sim.h"

/* In an actor of the `group->ranks.index`-th member: takes part in a collective that goes as `costs` says
 * (collective_choose), returns when it is done on this rank. Every member must call it with the same
 * arguments, in the same order for calls on one group. Of a folded group (group->twins) one member alone
 * does, whose messages go to its twins. */
void collective_run(const struct sim_group *group, const struct collective_shape *shape,
                    const struct collective_costs *costs, enum collective_kind kind, int64_t bytes);

#endif
