/* What operations take, predicted: kernels priced by a profile, messages and all-reduces over SimGrid's
 * links. */
#ifndef RANVIER_SIM_PRICED_H
#define RANVIER_SIM_PRICED_H

#include "sim/collective.h"
#include "sim/platform.h"
#include "sim/price.h"

struct priced {
        const struct price_list *prices;
        const struct platform *platform;
};

/* `priced` must live as long as the physics. */
struct sim_physics priced_physics(struct priced *priced);

#endif
