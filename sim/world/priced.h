/* What operations take, predicted: kernels priced by a profile, messages and all-reduces over SimGrid's
 * links. */
#ifndef RANVIER_SIM_WORLD_PRICED_H
#define RANVIER_SIM_WORLD_PRICED_H

#include "sim/world/collective.h"
#include "sim/platform/platform.h"
#include "sim/world/costs.h"

enum { PRICED_SHAPES = 256, PRICED_TENSORS = 1024, PRICED_UNITS = 8 };

/* How a group lies on the platform. */
struct priced_shape {
        int id;
        struct collective_shape shape; /* its size 0: not looked up yet */
        /* The last choice for it. */
        enum collective_kind kind;
        enum dtype dtype;
        int64_t bytes;
        struct collective_costs costs;
};

/* The last collective of shards, where another group or collective did not take its place. */
struct priced_tensor {
        int size, id; /* the group's; 0: none */
        struct kernel collective;
        double seconds;
};

/* Zero 3: a unit's weights or gradients, of so many bytes. */
struct priced_unit {
        enum op_kind kind;
        int64_t bytes;
        double seconds;
};

struct priced {
        const struct costs *costs;
        enum dtype dtype; /* what gradients are stored as */
        struct priced_shape shapes[SIM_GROUPS][PRICED_SHAPES];
        struct priced_tensor tensors[PRICED_TENSORS];
        struct priced_unit units[PRICED_UNITS];
        int unit_count;
};

/* Whether the profile has what the copies of a plan with these options take, where they are taken as
 * measured; else a sentence that names what is missing. */
int priced_check_lines(const struct platform *platform, const struct options *options,
                       const struct profile *profile, struct rv_error_info *err);

/* Seconds of a copy between host and device as it was measured (platform->copies), all of it while the other
 * direction copies too (`both`) or not. */
double priced_copy_seconds(const struct platform *platform, const struct op *op, bool fits_only, bool both);

/* `priced` must live as long as the physics. */
struct sim_physics priced_physics(struct priced *priced);

#endif
