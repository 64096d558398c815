/* The plans that a sweep considers: enumerated, those dropped that do not fit, the others ordered by
 * estimate.
 */
#ifndef RANVIER_SIM_SPACE_H
#define RANVIER_SIM_SPACE_H

#include "sim/axes.h"
#include "sim/machine.h"

enum { SPACE_LIST = 64 }; /* most entries of a list on the command line */

struct space_list {
        int values[SPACE_LIST], count;
};

enum space_choice { SPACE_NO = 1, SPACE_YES = 2, SPACE_BOTH = 3 }; /* as bits */

/* What is asked for. */
struct space {
        struct options
                base; /* resolved for one device; grid, sizes and the choices below are the candidates' */
        struct space_list gpus, micro_batch_sizes;
        struct space_list stages; /* empty: every divisor of the devices up to the layers */
        struct axes axes;
        enum fold fold;
        enum space_choice offload;
        unsigned recompute;                    /* bit 1 << enum recompute each */
        enum space_choice offload_activations; /* SPACE_BOTH: tried where it may win */
        int simulate;                          /* of each number of devices with and without offloading */
};

/* A plan that fits. */
struct candidate {
        struct options options;
        const struct machine *machine;
        int number;               /* in the order in which they were considered */
        double estimated_seconds; /* of a batch; NAN: not known */
};

/* Plans of one number of devices, with or without offloading. */
struct space_group {
        int gpus;
        bool offload, fused;
        bool excluded; /* plans that offload in fp32: counted as considered, and none is a plan */
        int considered, fitting;
        struct candidate *candidates; /* the best by estimate, best first, at most space.simulate */
        int count;
        struct rv_error_info nearest; /* none fits: what the one says that is nearest to it */
};

struct space_groups {
        struct machine *machines;   /* [space.gpus.count] */
        struct space_group *groups; /* by devices, each first without offloading */
        int machine_count, count;
};

/* Opens the machines, and enumerates, weighs and estimates. A number of devices that no grid of the space
 * divides into is an error. The caller frees, after an error too; `space` must live as long. */
int space_explore(struct space_groups *groups, const struct space *space, const char *profile,
                  const char *platform, bool fits_only, struct rv_error_info *err);
void space_free(struct space_groups *groups);

#endif
