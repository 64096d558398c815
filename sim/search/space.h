/* The plans that a sweep considers: enumerated, those counted that are no plans and that do not fit, the
 * others ordered by their time on paper. */
#ifndef RANVIER_SIM_SEARCH_SPACE_H
#define RANVIER_SIM_SEARCH_SPACE_H

#include "runtime/base/parse.h"
#include "sim/search/axes.h"
#include "sim/world/machine.h"

enum space_choice { SPACE_NO = 1, SPACE_YES = 2, SPACE_BOTH = 3 }; /* as bits */

/* What is asked for. */
struct space {
        struct options
                base; /* resolved for one device; grid, sizes and the choices below are the candidates' */
        struct int_list gpus, micro_batch_sizes;
        struct int_list stages; /* empty: every divisor of the devices up to the layers */
        struct axes axes;
        enum fold fold;
        enum space_choice offload;
        unsigned recompute;                    /* bit 1 << enum recompute each */
        enum space_choice offload_activations; /* SPACE_BOTH: tried where it may win */
        int simulate; /* plans of each group: SPACE_AUTO, SPACE_ALL, or so many of the best on paper */
};
enum { SPACE_AUTO = 0, SPACE_ALL = -1 };

/* A plan that fits. */
struct candidate {
        struct options options;
        const struct machine *machine;
        int number;           /* in the order in which they were considered */
        double paper_seconds; /* of a batch, on paper */
};

/* Combinations that are no plans, or cannot be priced, for one reason. */
struct space_exclusion {
        int count;
        struct rv_error_info first; /* what was said of the first of them */
};
enum { SPACE_EXCLUSIONS = 12 };

/* Counts `combinations` in the entry of that reason (the same sentence but for its numbers); a new reason
 * beyond the room of the list goes with the last one. */
void space_exclude(struct space_exclusion list[SPACE_EXCLUSIONS], int *count, int combinations,
                   const struct rv_error_info *why);

/* Plans of one number of devices, with or without offloading. */
struct space_group {
        int gpus;
        bool offload, fused;
        int considered, fitting;
        int unpriced; /* of those that fit, what the profile does not know all prices of; counted as excluded
                       */
        struct rv_error_info no_price; /* what was said of the first of them */
        int needless; /* and plans that offload activations and are not faster for it than those that keep
                         them */
        struct candidate *candidates; /* the others, the best on paper first */
        int count;
        int chosen; /* how many of them, from the first on, are simulated */
        struct space_exclusion
                excluded[SPACE_EXCLUSIONS]; /* by reason; the last one may be of several reasons */
        int exclusions;
        struct rv_error_info nearest; /* none fits: what the one says that is nearest to it */
};

struct space_groups {
        struct machine *machines;   /* [space.gpus.count] */
        struct space_group *groups; /* by devices, each first without offloading */
        int machine_count, count;
};

/* Opens the machines, and enumerates, weighs and runs on paper. A number of devices that no grid of the space
 * divides into is an error. The caller frees, after an error too; `space` must live as long. */
int space_explore(struct space_groups *groups, const struct space *space, const char *profile,
                  const char *platform, bool fits_only, struct rv_error_info *err);
void space_free(struct space_groups *groups);

#endif
