/* What a collective takes by closed form, and which algorithm a library would choose for it. No SimGrid. */
#ifndef RANVIER_SIM_COLLECTIVE_COLLECTIVE_MODEL_H
#define RANVIER_SIM_COLLECTIVE_COLLECTIVE_MODEL_H

#include "sim/platform/platform.h"

enum collective_kind { COLLECTIVE_ALLREDUCE, COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_ALL_GATHER };

/* GPUs first + i stride, i < count. `beside`: of the block of so many GPUs that a member lies in, all have
 * such a group, and these do the same at the same time and share what they send over (1: alone). */
struct collective_group {
        int first, stride, count, beside;
};

/* How a group lies on its platform. */
struct collective_shape {
        int size;
        int nodes, per_node; /* members of each node; 0: not as many everywhere */
        /* One step of all members at once: its latency, and the rate of each, inside a node and between
         * nodes. */
        double near_seconds, near_bytes_per_second;
        double far_seconds, far_bytes_per_second;
        double far_alone_bytes_per_second; /* if only one member of each node sends */
        double both_bytes_per_second;      /* for messages of both kinds at once; 0: they share nothing */
};
struct collective_shape collective_shape(const struct platform *platform,
                                         const struct collective_group *group);

/* How a collective goes and what it costs beside its messages. */
struct collective_costs {
        enum collective_algorithm algorithm;
        int protocol;                                   /* of the rules */
        double start_seconds, min_seconds;              /* before it; in all */
        double near_step_seconds, far_step_seconds;     /* software cost of starting a step */
        double near_bytes_per_byte, far_bytes_per_byte; /* on the links, of each byte of the buffer */
        double reduce_seconds_per_byte;                 /* arithmetic on what arrived */
        double copy_seconds_per_byte;                   /* of a member's block, once */
        int segments;        /* of a ring step's block: one is reduced while the next arrives */
        int64_t chunk_bytes; /* of a tree's parts */
};

/* What the platform's library chooses for `bytes`, the whole buffer: what an all-reduce sums, what a
 * reduce-scatter begins with, what an all-gather ends with. */
struct collective_costs collective_choose(const struct platform *platform,
                                          const struct collective_shape *shape, enum collective_kind kind,
                                          int64_t bytes, enum dtype dtype);

/* Seconds of all of it, if nothing else crosses the links. */
double collective_estimate(const struct collective_shape *shape, const struct collective_costs *costs,
                           enum collective_kind kind, int64_t bytes);

/* Both: seconds of a collective of `group` as the platform's library chooses. `dtype`: what the buffer is
 * stored as (the local platform has measured all-reduces of each). 0 for a SimGrid file, whose links are not
 * ours to read. */
double collective_seconds(const struct platform *platform, const struct collective_group *group,
                          enum collective_kind kind, int64_t bytes, enum dtype dtype);

/* ---- what collective.c runs and collective_estimate adds up ---- */

/* Members that a step of equal messages is between. */
enum collective_pattern {
        PATTERN_RING,       /* to the next member, from the previous one */
        PATTERN_NEAR_RING,  /* the same among the members of a node */
        PATTERN_FAR_RING,   /* the same among members in the same place of all nodes */
        PATTERN_BOTH_RINGS, /* near and far at once: the rings of several rails */
        PATTERN_PAIRS,      /* with the member whose index differs by the bit `distance` */
        PATTERN_JOIN,       /* members beyond the largest power of two send to those that stand for them */
        PATTERN_LEAVE,      /* and get the result */
        PATTERN_UP,         /* binomial tree: odd multiples of `distance` send to the even one before them */
        PATTERN_DOWN,       /* and back */
        PATTERN_TREES_UP, /* the two binary trees, all parts; among members of the same place of all nodes */
        PATTERN_TREES_DOWN
};

struct collective_phase {
        enum collective_pattern pattern;
        int steps, distance;
        bool far;                                    /* some of its messages are between nodes */
        int64_t near_bytes, far_bytes;               /* of a message, on the links */
        double software_seconds, arithmetic_seconds; /* of a step: before it, after it */
        int segments;
};

enum { COLLECTIVE_PHASES = 80 };

/* Fills `phases` and returns how many. */
int collective_phases(const struct collective_shape *shape, const struct collective_costs *costs,
                      enum collective_kind kind, int64_t bytes,
                      struct collective_phase phases[COLLECTIVE_PHASES]);

/* The largest power of two that is at most `n`, which is at least 1. */
int collective_power(int n);

/* Parent of member `index` of `count` in one of the two trees, -1 for the root; and how deep it lies. */
int collective_tree_parent(int tree, int index, int count);
int collective_tree_depth(int tree, int index, int count);
/* Its children, up to two; returns how many. */
int collective_tree_children(int tree, int index, int count, int children[2]);

#endif
