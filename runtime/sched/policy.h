/* A scheduling policy decides what a stage computes next; each is one file in policies/. The core asks it
 * whenever the compute lane of a rank is idle, and keeps everything else: messages, buffers, collectives, the
 * optimizer.
 *
 * A policy works on virtual micro-batches: a micro-batch in one of the rank's chunks of the model (plan_vmbs
 * in plan.h). Policies without chunks may read "micro-batch". */
#ifndef RANVIER_RUNTIME_SCHED_POLICY_H
#define RANVIER_RUNTIME_SCHED_POLICY_H

#include "runtime/sched/plan.h"

/* What a policy may look at when it decides. */
struct policy_view {
        int stage, stages, chunks, micro_batches;
        int pipeline_limit;      /* --pipeline-limit, or its default; never 0 */
        int forwards, backwards; /* how many this rank has done, of all chunks; of a backward that is split in
                                    two parts (see `deferred`), the parts that compute gradients of inputs */
        int weights;             /* how many parts that compute gradients of weights it has done */
        int forward_ready;  /* the virtual micro-batch that could go forward now, or -1 for none. The first
                               stage needs no message: there it is the next one */
        int backward_ready; /* the one that could go backward now, or -1. On the last stage a forward that is
                               done makes it ready */
        int weight_ready;   /* the one whose gradients of weights could be computed now, or -1 */
        bool forward_came_first; /* both are ready, both by a message, and the forward's message came first */
};

enum policy_choice { CHOOSE_WAIT, CHOOSE_FORWARD, CHOOSE_BACKWARD, CHOOSE_WEIGHT };

struct policy {
        const char *name; /* of --schedule */
        const char *help; /* what --help says of it, without the name */
        /* Forwards and backwards go in the order in which their messages arrive. If not, the order is fixed
         * beforehand, and blocking messages (--p2p blocking) and shards (--tp) can rely on it. */
        bool by_arrival;
        bool forwards_first; /* all forwards of a batch go before its first backward */
        /* The most micro-batches that `chunk` of `stage` stores activations of at once: from the begin of
         * their forward to the end of their backward. `limit` is the view's pipeline_limit. Memory is planned
         * by it. */
        int (*stored)(const struct plan *plan, int stage, int chunk, int limit);
        /* The most virtual micro-batches that hold an input buffer of `stage` at once: from the arrival of
         * their activations to the end of their backward. */
        int (*received)(const struct plan *plan, int stage, int limit);
        /* NULL if a backward is one operation. Else the policy splits it: one part computes gradients of
         * inputs, which the previous stage waits for, another part, later, gradients of weights. The function
         * returns the most micro-batches of `stage` whose gradients of weights are outstanding at once,
         * counted from the begin of the first part. */
        int (*deferred)(const struct plan *plan, int stage);
        /* The decision. A choice must be ready in the view; CHOOSE_WAIT leaves the lane idle until the next
         * operation of any lane has completed. */
        enum policy_choice (*choose)(const struct policy_view *view);
        /* The virtual micro-batch that goes forward, or backward, as the nth of a rank. Both are NULL if they
         * go in the order in which they become ready. A policy with several chunks must say it. */
        int (*nth_forward)(const struct plan *plan, int nth);
        int (*nth_backward)(const struct plan *plan, int nth);
        /* How many forwards a stage does before the first one that a backward follows in turn. Needed by
         * blocking messages (--p2p blocking) with several chunks, see blocking.c; else NULL. */
        int (*warm_up)(const struct plan *plan, int stage);
};

/* One forward and one backward in turn after `warm_up` forwards, then the remaining backwards: the choice of
 * the policies of fixed order. They wait for the next in line even if something else is ready. */
static inline enum policy_choice policy_in_turn(const struct policy_view *view, int warm_up)
{
        const int all = view->micro_batches;
        if (view->forwards == all || view->forwards - view->backwards > (warm_up < all ? warm_up : all))
                return view->backward_ready >= 0 ? CHOOSE_BACKWARD : CHOOSE_WAIT;
        return view->forward_ready >= 0 ? CHOOSE_FORWARD : CHOOSE_WAIT;
}

const struct policy *policy_get(enum policy_id id);
int policy_find(const char *name); /* enum policy_id, or -1 */

#endif
