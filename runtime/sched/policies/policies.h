/* The list of scheduling policies, one line for each: POLICY(ID, object) stands for the enumerator POLICY_ID
 * of enum policy_id (plan.h) and for `const struct policy policy_object`, which a file of this folder
 * defines. The order is that in which --help lists the policies and a sweep tries them.
 *
 * plan.h and policy.c expand the list. To add a policy, write its file and add a line here: --schedule, its
 * help and the sweeps find it by that. What a policy must implement is struct policy in
 * runtime/sched/policy.h. */
#ifndef RANVIER_RUNTIME_SCHED_POLICIES_POLICIES_H
#define RANVIER_RUNTIME_SCHED_POLICIES_POLICIES_H

#define POLICY_LIST(POLICY)                                                                                  \
        POLICY(AXONN, axonn)                                                                                 \
        POLICY(1F1B, 1f1b)                                                                                   \
        POLICY(EAGER, eager)                                                                                 \
        POLICY(INTERLEAVED, interleaved)                                                                     \
        POLICY(ZERO_BUBBLE, zero_bubble)                                                                     \
        POLICY(ZERO_BUBBLE_H2, zero_bubble_h2)                                                               \
        POLICY(REVERSE_FIRST_K, reverse_first_k)                                                             \
        POLICY(FAST_FORWARD, fast_forward)                                                                   \
        POLICY(GPIPE, gpipe)

#endif
