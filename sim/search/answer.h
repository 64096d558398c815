/* What `ranvier plan` says of the best plan beside its figures: what its time depends on, which other plan
 * comes next and where that would win, and which changes of the machine or of the question would gain most.
 * All of it is found on paper (sim/world/paper_batch.h), by trying what is said on the plans that the search
 * has found. */
#ifndef RANVIER_SIM_SEARCH_ANSWER_H
#define RANVIER_SIM_SEARCH_ANSWER_H

#include "sim/search/jobs.h"

/* What a batch waits for. */
enum answer_part {
        /* Kernels; where stages wait for each other, theirs. */
        ANSWER_KERNELS,
        /* Collectives in the midst of passes: of shards, of spread experts, and of parts of sequences. */
        ANSWER_SHARDS,
        /* Collectives of gradients and weights among replicas. */
        ANSWER_REPLICAS,
        /* Messages between stages. */
        ANSWER_MESSAGES,
        /* Copies between host and device. */
        ANSWER_COPIES,
        /* What launches cost the host of the framework. */
        ANSWER_LAUNCHES,
        ANSWER_PARTS
};
/* Returns a name for JSON, such as "replicas". */
const char *answer_part_name(enum answer_part part);

struct answer_shares {
        /* Of the batch's time, what it would be shorter by if the part took no time, as far as a tenth less
         * of it shows. They add up to about 1. */
        double share[ANSWER_PARTS];
        /* The part's messages leave a node. */
        bool far[ANSWER_PARTS];
};

/* Changes that are tried. Links are faster in latency and in rate. */
enum answer_what {
        ANSWER_MEMORY,     /* devices with twice the memory */
        ANSWER_NETWORK,    /* links between nodes twice as fast */
        ANSWER_NODE_LINKS, /* links inside nodes twice as fast */
        ANSWER_HOST_LINKS, /* copies twice as fast */
        ANSWER_BATCH,      /* twice the sequences a batch */
        ANSWER_FP8,        /* linear layers in fp8 */
        ANSWER_CHANGES
};
const char *answer_change_name(enum answer_what what);

struct answer_change {
        enum answer_what what;
        /* Of throughput, with the plan that is best then: 0.1 is a tenth more. */
        double gain;
        /* That plan. */
        struct options options;
};

/* Where the second plan would be the faster one: links between nodes, or inside nodes, that are `factor`
 * times as fast, or a batch of `factor` times as many sequences. */
struct answer_win {
        enum answer_what what;
        double factor;
};

struct answer {
        /* Simulated; they belong to the jobs. `second` is the best that divides the work in another way (see
         * answer_is_other); NULL if there is none. */
        const struct job *best, *second;
        struct answer_shares shares;
        /* [change_count]: what gains something, most first. */
        struct answer_change changes[ANSWER_CHANGES];
        int change_count;
        /* [win_count]: the nearest condition of each kind. */
        struct answer_win wins[ANSWER_CHANGES];
        int win_count;
};

/* Returns whether two plans divide the work in different ways: another grid, or other shares of the
 * optimizer's state, gradients or weights. Plans that differ in the order of the same work only, or in where
 * its data lie, do not. */
bool answer_is_other(const struct options *a, const struct options *b);

/* Returns the candidate, of all groups, that is best on paper among those other than `best`, or NULL. */
const struct candidate *answer_next(const struct space_groups *groups, const struct candidate *best);

/* Finds the answer from what was explored and simulated, with up to `processes` at once. `recompute` has a
 * bit for each enum recompute that plans may have. If no simulation succeeded, answer->best is NULL and
 * nothing else is said. RV_ESYSTEM: no process or memory. */
int answer_find(struct answer *answer, const struct space_groups *groups, const struct jobs *jobs,
                unsigned recompute, int processes, struct rv_error_info *err);

#endif
