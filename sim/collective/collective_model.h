/* The time of a collective by closed form, and the algorithm that a communication library would choose for
 * it.
 *
 * A collective is described in three steps: collective_shape says how its members lie on a platform,
 * collective_choose says which algorithm, protocol and costs the platform's library would use for that shape
 * and buffer, and collective_phases expands both into phases of equal steps. collective_estimate adds the
 * phases up; sim/world/collective.c runs the same phases message by message in SimGrid, so that the two can
 * be compared. collective_seconds does all of it at once.
 *
 * Callers are the world on paper, the collectives of shards, the choice among NCCL's algorithms, and
 * SimGrid's world. This module does not use SimGrid, and it does not see other traffic on the same links or
 * the trunks of a fabric. */
#ifndef RANVIER_SIM_COLLECTIVE_COLLECTIVE_MODEL_H
#define RANVIER_SIM_COLLECTIVE_COLLECTIVE_MODEL_H

#include "sim/platform/platform.h"

/* The members of a collective: the GPUs of ranks first + i stride, for i from 0 to count - 1.
 *
 * `beside` is the size of the block of consecutive GPUs around a member (block boundaries are multiples of
 * it) in which every GPU has such a group. All these groups are taken to do the same at the same time and to
 * share the rails that they send over. 1 means that the group is alone. */
struct collective_group {
        int first, stride, count, beside;
};

/* How a group lies on its platform. Latencies are in seconds, rates in bytes per second. */
struct collective_shape {
        /* Number of members. */
        int size;
        /* The number of nodes that the members are on, and how many members each node has. per_node is 0 if
         * not all nodes have equally many. */
        int nodes, per_node;
        /* The fewest members that any node has, over whose rails as many rings leave it: NCCL makes as many
         * as the node that has fewest can. */
        int rings;
        /* A step in which all members send at once to a neighbour in their node ("near"): the latency of a
         * message, and the rate that each member gets. */
        double near_seconds, near_bytes_per_second;
        /* The same for a step whose messages go to other nodes ("far"). Both are 0 if there is one node. */
        double far_seconds, far_bytes_per_second;
        /* The rate of a message between nodes if only one member of each node sends. */
        double far_alone_bytes_per_second;
        /* The rate that a member's near and far messages share when they are under way at once, which is its
         * PCI Express link. 0 means that they share no link. */
        double both_bytes_per_second;
};

/* Looks up where the members are and returns the slowest latency and rate among the first 64 of them, whose
 * pattern of places the others repeat. */
struct collective_shape collective_shape(const struct platform *platform,
                                         const struct collective_group *group);

/* How one collective is done and what it costs beside its messages. */
struct collective_costs {
        enum collective_algorithm algorithm;
        /* Index into collective_rules.protocols for NCCL; 0 for the other libraries, which have one
         * protocol. */
        int protocol;
        /* Seconds before the first step, and the least that the collective takes in all. */
        double start_seconds, min_seconds;
        /* Software time, in seconds, to start a step inside a node or between nodes; the latency of the links
         * is not in it. */
        double near_step_seconds, far_step_seconds;
        /* Bytes that cross the links for each byte of the buffer, such as 1 / efficiency of a protocol. */
        double near_bytes_per_byte, far_bytes_per_byte;
        /* Seconds of arithmetic for each byte that arrives and is summed. */
        double reduce_seconds_per_byte;
        /* Seconds to copy a byte of a member's block (buffer / members), paid once in a collective. */
        double copy_seconds_per_byte;
        /* Segments that a ring step's block is divided into: one is reduced while the next one arrives. */
        int segments;
        /* Largest part of the buffer that a tree sends at a time. */
        int64_t chunk_bytes;
};

/* Chooses as the platform's library does for a buffer of `bytes` and element type `dtype`. `bytes` is the
 * whole buffer: what an all-reduce sums, what a reduce-scatter begins with, what an all-gather ends with.
 * Where the platform has measured collectives the costs are scaled to meet them (collective_meet). On the
 * local platform the arithmetic, the start of steps or the bytes on the links are set such that an
 * all-reduce between the measured ranks takes the time that the profile has for `bytes` and `dtype`. */
struct collective_costs collective_choose(const struct platform *platform,
                                          const struct collective_shape *shape, enum collective_kind kind,
                                          int64_t bytes, enum dtype dtype);

/* What collective_choose does where nothing was measured: by the library's rules and the platform's links
 * alone. */
struct collective_costs collective_library_choice(const struct platform *platform,
                                                  const struct collective_shape *shape,
                                                  enum collective_kind kind, int64_t bytes, enum dtype dtype);

/* Returns the seconds that a collective takes by what was measured on the platform, between measured sizes,
 * members and nodes too, and on from them by the library's closed form. NAN if nothing of its kind was
 * measured: inside a node for a group that is inside one, between nodes for others. */
double collective_measured_seconds(const struct platform *platform, const struct collective_shape *shape,
                                   enum collective_kind kind, int64_t bytes, enum dtype dtype);

/* Scales costs such that collective_estimate gives `seconds`, and SimGrid's steps with them: everything but
 * the latency of the links. Where that alone takes longer, it is what remains. */
void collective_meet(const struct collective_shape *shape, struct collective_costs *costs,
                     enum collective_kind kind, int64_t bytes, double seconds);

/* Returns the seconds of the whole collective if nothing else crosses its links; 0 for fewer than two
 * members. `costs` come from collective_choose, or are the caller's own. */
double collective_estimate(const struct collective_shape *shape, const struct collective_costs *costs,
                           enum collective_kind kind, int64_t bytes);

/* Returns the seconds of a collective of `group` done as the platform's library chooses: shape, choice and
 * estimate together. `dtype` is the element type of the buffer. Returns 0 for fewer than two members and for
 * a platform without links of its own, as one read from a SimGrid file is. */
double collective_seconds(const struct platform *platform, const struct collective_group *group,
                          enum collective_kind kind, int64_t bytes, enum dtype dtype);

/* Returns the seconds from the first part of a large broadcast, round a ring of all members, to the last
 * member: a step for each of them, by NCCL's protocol for much data where the library is NCCL. */
double collective_ring_fill(const struct platform *platform, const struct collective_shape *shape);

/* An exchange (COLLECTIVE_ALL_TO_ALL): every member sends a part of its buffer to each other at once. Seconds
 * before its messages, and bytes on the links for each byte of a part that goes to a member of the same node,
 * or to another node. */
struct collective_exchange {
        double start_seconds, near_per_byte, far_per_byte;
};

/* Return what an exchange of `bytes` of each member, its own part included, costs: as it was measured on the
 * platform if it was, or by its library's start and its links alone. */
struct collective_exchange collective_exchange(const struct platform *platform,
                                               const struct collective_shape *shape, int64_t bytes,
                                               enum dtype dtype);
struct collective_exchange collective_library_exchange(const struct platform *platform,
                                                       const struct collective_shape *shape, int64_t bytes,
                                                       enum dtype dtype);

/* Makes of an exchange of rows, of which each token has `chosen` for experts that lie anywhere, one that
 * sends a token to every node once, to the member with the sender's place, which passes it on to the members
 * of its node that have one of its experts, to each once (DeepEP, Zhao et al. 2025); and of their sums, which
 * come back, the same. How many nodes, or members, have one of them is the mean of independent draws. */
void collective_exchange_once(const struct collective_shape *shape, int64_t chosen,
                              struct collective_exchange *exchange);

/* Returns the seconds of an exchange of even parts if nothing else crosses its links: messages in a node and
 * to other nodes go at the same time. */
double collective_exchange_seconds(const struct collective_shape *shape,
                                   const struct collective_exchange *exchange, int64_t bytes);

/* ---- what collective.c runs and collective_estimate adds up ---- */

/* Which members exchange messages in a step. Members are numbered by their index in the group. */
enum collective_pattern {
        /* Each member sends to the next one and receives from the previous one. */
        PATTERN_RING,
        /* The same among the members of a node. */
        PATTERN_NEAR_RING,
        /* The same among the members that have the same place in their nodes. */
        PATTERN_FAR_RING,
        /* Near and far ring at once, which stands for the rings of several rails together. */
        PATTERN_BOTH_RINGS,
        /* Each member exchanges with the one whose index differs by the bit `distance`. */
        PATTERN_PAIRS,
        /* Members beyond the largest power of two, which is `distance`, send to member index - distance,
         * which stands for them in the steps that follow. */
        PATTERN_JOIN,
        /* The same members get the result back. */
        PATTERN_LEAVE,
        /* A level of a binomial tree: odd multiples of `distance` send to the even multiple before them. */
        PATTERN_UP,
        /* The same level backwards. */
        PATTERN_DOWN,
        /* The two binary trees towards their roots, all rounds and all parts of the buffer. If the group is
         * on several nodes, members are those of the same place of all nodes. */
        PATTERN_TREES_UP,
        /* The same from the roots to the leaves. */
        PATTERN_TREES_DOWN
};

/* A run of equal steps of a collective. */
struct collective_phase {
        enum collective_pattern pattern;
        /* `steps` is the number of steps, or of rounds of the trees. `distance` is explained with the
         * patterns; for trees it is the number of parts that the buffer is sent in. */
        int steps, distance;
        /* Some of the messages are between nodes; then far_bytes count, else near_bytes (both for
         * PATTERN_BOTH_RINGS). */
        bool far;
        /* Bytes of a message on the links, what the protocol adds included. */
        int64_t near_bytes, far_bytes;
        /* Seconds of each step: before its message, and of arithmetic after it. */
        double software_seconds, arithmetic_seconds;
        /* Segments of a message; the arithmetic of one runs beside the transfer of the next. */
        int segments;
};

enum { COLLECTIVE_PHASES = 80 };

/* Expands a collective into phases, in the order in which they run. Fills `phases` and returns how many there
 * are; 0 for fewer than two members. An algorithm that is not defined for `kind` or for the shape is
 * replaced: trees and the binomial tree by a ring where nothing is summed for all, doubling by halving, a
 * hierarchy by a ring unless there are several nodes with equally many members, two at least. */
int collective_phases(const struct collective_shape *shape, const struct collective_costs *costs,
                      enum collective_kind kind, int64_t bytes,
                      struct collective_phase phases[COLLECTIVE_PHASES]);

/* Returns the largest power of two that is at most `n`, which is at least 1. */
int collective_power(int n);

/* The two binary trees of COLLECTIVE_TREE among members 0 to count - 1; `tree` is 0 or 1. A leaf of one tree
 * is an inner member of the other, so that both together use the links of all members.
 *
 * collective_tree_parent returns the parent of member `index`, or -1 for the root; collective_tree_depth
 * returns how many edges lie between it and the root. */
int collective_tree_parent(int tree, int index, int count);
int collective_tree_depth(int tree, int index, int count);
/* Writes the children of member `index` to `children` and returns how many there are, 0 to 2. */
int collective_tree_children(int tree, int index, int count, int children[2]);

#endif
