/* Collectives as the messages that they are made of: every step is a SimGrid communication, so that the links
 * they share with each other and with the pipeline are shared in the simulation too. What takes no message,
 * such as starting a step or arithmetic, is slept. The steps are those of collective_phases; priced.c calls
 * this for collectives that it does not price by closed form: those of gradients and weights. */
#ifndef RANVIER_SIM_WORLD_COLLECTIVE_H
#define RANVIER_SIM_WORLD_COLLECTIVE_H

#include "sim/collective/collective_model.h"
#include "sim/world/driver_sim.h"

/* Takes part in a collective of `bytes` (the whole buffer) as member group->ranks.index and returns when it
 * is done on this rank. Must be called in an actor. `costs` come from collective_choose for `shape`. Every
 * member must call it with the same arguments, in the same order for calls on one group. Of a folded group
 * (group->twins) only the one simulated member calls it, and its messages go to its twins. */
void collective_run(const struct sim_group *group, const struct collective_shape *shape,
                    const struct collective_costs *costs, enum collective_kind kind, int64_t bytes);

#endif
