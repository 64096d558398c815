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
        bool fits_only; /* copies by their line even where they were measured */
        enum half half; /* what gradients are stored as */
};

/* Whether the profile has what the copies of a plan with these options take, where they are taken as
 * measured; else a sentence that names what is missing. */
int priced_check_lines(const struct platform *platform, const struct options *options,
                       const struct profile *profile, struct rv_error_info *err);

/* `priced` must live as long as the physics. */
struct sim_physics priced_physics(struct priced *priced);

#endif
