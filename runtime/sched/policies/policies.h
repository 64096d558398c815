/* The policies, a line each, in the order in which --help lists them and a sweep tries them: POLICY(id,
 * object) is enum policy_id's POLICY_id and `const struct policy policy_object` of a file in this folder. */
#ifndef RANVIER_RUNTIME_SCHED_POLICIES_POLICIES_H
#define RANVIER_RUNTIME_SCHED_POLICIES_POLICIES_H

#define POLICY_LIST(POLICY)                                                                                  \
        POLICY(AXONN, axonn)                                                                                 \
        POLICY(1F1B, 1f1b)                                                                                   \
        POLICY(EAGER, eager)                                                                                 \
        POLICY(INTERLEAVED, interleaved)                                                                     \
        POLICY(ZERO_BUBBLE, zero_bubble)                                                                     \
        POLICY(REVERSE_FIRST_K, reverse_first_k)                                                             \
        POLICY(FAST_FORWARD, fast_forward)                                                                   \
        POLICY(GPIPE, gpipe)

#endif
