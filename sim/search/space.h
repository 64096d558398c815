/* The plans that a search considers, for sweep and plan. space_explore enumerates them (walk.h), counts those
 * that are no plans and those that do not fit the memory, and orders the others by their time on paper. It
 * simulates nothing: search.h chooses from the result. */
#ifndef RANVIER_SIM_SEARCH_SPACE_H
#define RANVIER_SIM_SEARCH_SPACE_H

#include "runtime/base/parse.h"
#include "sim/search/axes.h"
#include "sim/world/machine.h"

/* Which of two choices are tried, as bits. */
enum space_choice { SPACE_NO = 1, SPACE_YES = 2, SPACE_BOTH = 3 };

/* What is asked for. */
struct space {
        /* The plan that all candidates begin from, resolved for one device. */
        struct options base;
        struct int_list gpus, micro_batch_sizes;
        /* Empty means every divisor of the devices up to the layers. */
        struct int_list stages;
        struct axes axes;
        enum fold fold;
        enum space_choice offload;
        /* Has the bit 1 << r for each enum recompute r to try. */
        unsigned recompute;
        /* SPACE_BOTH means that it is tried where a stage stores many micro-batches, and kept where it is
         * faster. */
        enum space_choice offload_activations;
        /* Plans of each group to simulate: SPACE_AUTO, SPACE_ALL, or so many of the best on paper. */
        int simulate;
        /* SPACE_AUTO: by what share a plan may be faster, against its time on paper, than all that were
         * simulated (search.h). */
        double margin;
        /* Plans whose time on paper is more than so many times the best one's are no candidates, and are not
         * run on paper where that is certain before. 0: all that fit are candidates. */
        double reach;
        /* Looks also for the best plan that would fit devices with so many times the memory (group.larger),
         * where it is faster than all that fit. 0: does not. */
        double larger;
        /* Processes that weigh plans at once, at most SPACE_WORKERS; 0 stands for 1: the caller's own. */
        int workers;
        /* Called again and again, as plans are weighed, with the share of the combinations that were looked
         * at, if it is not NULL; when it returns false, the search ends with what it has. */
        bool (*tick)(void *context, double share);
        /* Returns 0 where a plan may be a candidate, else an error with a sentence that says why not; asked
         * of those that fit and may be fast enough. NULL: all may. */
        int (*allows)(void *allowing, const struct options *plan, struct rv_error_info *why);
        void *context, *allowing; /* of tick, and of allows */
};
enum { SPACE_WORKERS = 64 };
enum { SPACE_AUTO = 0, SPACE_ALL = -1 };

/* A plan that fits. */
struct candidate {
        struct options options;
        const struct machine *machine;
        /* Its place in the order of the plans of its group; numbers may be left out. */
        int64_t number;
        /* Seconds of a batch, on paper. */
        double paper_seconds;
};

/* Combinations that are no plans, or cannot be priced, for one reason. */
struct space_exclusion {
        int count;
        /* What was said of the first of them, and its number. */
        struct rv_error_info first;
        int64_t number;
};
enum { SPACE_EXCLUSIONS = 48 };

/* Counts `combinations`, the first of which is `number`, in the entry of that reason, which is the same
 * sentence but for its numbers, or adds an entry. If the list is full, a new reason is counted with the last
 * one. */
void space_exclude(struct space_exclusion list[SPACE_EXCLUSIONS], int *count, int combinations,
                   int64_t number, const struct rv_error_info *why);

/* Plans of one number of devices, with or without offloading. */
struct space_group {
        int gpus;
        bool offload, fused;
        /* Plans that were considered; those of them whose work alone takes longer than the reach of the best
         * (none without a reach; how many depends on how early that was found); and, of the others, which
         * were weighed against the memory, those that fit. */
        int considered, slow, fitting;
        /* Plans that fit but need a price that the profile lacks; they are counted as excluded too. */
        int unpriced;
        /* What was said of the first of them, and its number. */
        struct rv_error_info no_price;
        int64_t no_price_number;
        /* Plans that fit but that space.allows does not have, and what it said of one of them. */
        int forbidden;
        struct rv_error_info why_forbidden;
        /* Plans that fit and offload activations, but are not faster for it than the same plan that keeps
         * them. */
        int needless;
        /* [count]: the other plans that fit, the best on paper first. */
        struct candidate *candidates;
        int count;
        /* See space.larger; its machine is NULL if there is none. */
        struct candidate larger;
        /* How many of them, from the first on, are simulated or going to be. */
        int chosen;
        /* [exclusions], by reason; the last one may be of several reasons. With a reach only some
         * of them are told. */
        struct space_exclusion excluded[SPACE_EXCLUSIONS];
        int exclusions;
        /* If some plan does not fit: what was said of the one that is nearest to it, by how many times it
         * is too large, and its number. */
        struct rv_error_info nearest;
        double nearest_excess;
        int64_t nearest_number;
};

struct space_groups {
        /* [machine_count]: one for each number of devices. */
        struct machine *machines;
        /* [count], by number of devices, each first without offloading. */
        struct space_group *groups;
        int machine_count, count;
        /* `tick` ended the search before all was weighed. */
        bool stopped;
};

/* Opens the machines, enumerates the plans, weighs them and runs those that fit on paper. A number of devices
 * for which no combination is a plan is RV_EPLAN; a group in which nothing fits is no error. The other errors
 * are those of machine_open and machine_settle. `space` must live as long as the groups. The caller calls
 * space_free, after an error too. */
int space_explore(struct space_groups *groups, const struct space *space, const char *profile,
                  const char *platform, bool fits_only, struct rv_error_info *err);
void space_free(struct space_groups *groups);

#endif
