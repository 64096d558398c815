/* A scheduling policy decides what a stage computes next; each is one file in policies/, listed in
 * policies/policies.h. The core asks it whenever the compute lane of a rank is idle, and keeps everything
 * else: messages, buffers, collectives, the optimizer. A policy has no state of its own: it decides from a
 * view, a few counts that the core makes for each question, and says in advance how many micro-batches a
 * stage stores, by which memory is planned.
 *
 * A policy works on virtual micro-batches: a micro-batch in one of the rank's chunks of the model (plan_vmbs
 * in plan.h). Policies without chunks may read "micro-batch". */
#ifndef RANVIER_RUNTIME_SCHED_POLICY_H
#define RANVIER_RUNTIME_SCHED_POLICY_H

#include "runtime/sched/plan.h"

/* What a policy may look at when it decides. "Ready" takes buffers into account: what has no buffer to go
 * into is not ready. */
struct policy_view {
        /* This rank's position in the pipeline, from 0; how many stages there are; how many chunks of the
         * model each rank has; how many micro-batches the batch has. */
        int stage, stages, chunks, micro_batches;
        /* The resolved core_pipeline_limit: --pipeline-limit or its default, and never more than
         * `micro_batches`. */
        int pipeline_limit;
        /* How many forwards and backwards this rank has done in this batch, of all chunks. Of a backward that
         * is split in two parts (see `deferred`), the part that computes the gradient of the input counts. */
        int forwards, backwards;
        /* How many backwards have their gradients of weights too. Equal to `backwards` if they are not
         * split. */
        int weights;
        /* The virtual micro-batch that could go forward now, or -1 for none. The first chunk of the model
         * needs no message: there it is the next one. */
        int forward_ready;
        /* The one that could go backward now, or -1. On the model's last chunk a forward that is done makes
         * it ready, elsewhere a gradient that has arrived; offloaded activations must be back on the
         * device. */
        int backward_ready;
        /* The one whose gradients of weights could be computed now, or -1: the oldest that waits. */
        int weight_ready;
        /* Both a forward and a backward wait in the queue of arrivals, and the forward has waited longer.
         * False on the first stage of a model without chunks, whose forwards wait for nothing. */
        bool forward_came_first;
        /* The stage keeps stored activations in host memory. If not, a slot of the first stage whose backward
         * is done waits for nothing but the word that its message has left. */
        bool offloads;
};

/* What the compute lane does next: nothing for now, or a forward, a backward (of a split one the first part),
 * or the gradients of weights (the second part). */
enum policy_choice { CHOOSE_WAIT, CHOOSE_FORWARD, CHOOSE_BACKWARD, CHOOSE_WEIGHT };

/* Chunks [first, end) of a rank's. */
struct policy_chunks {
        int first, end;
};

/* One policy: a constant object. Its functions are pure, so the same arguments give the same result on every
 * rank and in both worlds. Functions that may be NULL say so. */
struct policy {
        const char *name; /* of --schedule */
        const char *help; /* what --help says of it, without the name */
        /* Forwards and backwards go in the order in which their messages arrive. If not, the order is fixed
         * beforehand, and blocking messages (--p2p blocking) and shards (--tp) can rely on it. */
        bool by_arrival;
        /* Forwards and backwards have a fixed order, but gradients of weights are made where the stage would
         * wait: when that is depends on what has arrived, so shards cannot rely on it. */
        bool fills_waits;
        bool forwards_first; /* all forwards of a batch go before its first backward */
        /* Returns the most virtual micro-batches of `chunks` that `stage` stores activations of at once: from
         * the begin of their forward to the end of their backward (of one in two parts: of the second).
         * `limit` is the view's pipeline_limit. Memory is planned by it: a policy must never have more. */
        int (*stored)(const struct plan *plan, int stage, struct policy_chunks chunks, int limit);
        /* Returns how many input buffers `stage` has: the most virtual micro-batches whose activations have
         * arrived, or may arrive, while their backward is not over (with one in two parts: its second part).
         * A bound: the forwards that the stage before may be ahead of this one's backwards, and `deferred`.
         * With blocking messages it is not asked: nothing is received ahead then, and there are as many as
         * `stored`, and one more if backwards are in two parts. */
        int (*received)(const struct plan *plan, int stage, int limit);
        /* NULL if a backward is one operation. Else the policy splits it: one part computes gradients of
         * inputs, which the previous stage waits for, another part, later, gradients of weights. The function
         * returns the most micro-batches of `stage` whose gradients of weights are outstanding at once,
         * counted from the begin of the first part. */
        int (*deferred)(const struct plan *plan, int stage);
        /* Makes the decision. A choice must be ready in the view; CHOOSE_WAIT leaves the lane idle until the
         * next operation of any lane has completed. In validation the core does not use the answer: all go
         * forward. */
        enum policy_choice (*choose)(const struct policy_view *view);
        /* Return the virtual micro-batch that goes forward, or backward, as the nth (from 0) of a rank. Both
         * are NULL if they go in the order in which they become ready. A policy with several chunks must have
         * them. */
        int (*nth_forward)(const struct plan *plan, int nth);
        int (*nth_backward)(const struct plan *plan, int nth);
        /* Returns how many forwards a stage does before the first one that a backward follows in turn. Needed
         * by blocking messages (--p2p blocking) with several chunks, see blocking.c; else NULL. */
        int (*warm_up)(const struct plan *plan, int stage);
};

/* The choice of the policies of fixed order (1F1B and what derives from it): `warm_up` forwards, then one
 * forward and one backward in turn, beginning with a forward (so warm_up + 1 come before the first backward),
 * then the remaining backwards. It waits for the next in line even if
 * something else is ready. For models of one chunk a rank. */
static inline enum policy_choice policy_in_turn(const struct policy_view *view, int warm_up)
{
        const int all = view->micro_batches;
        if (view->forwards == all || view->forwards - view->backwards > (warm_up < all ? warm_up : all))
                return view->backward_ready >= 0 ? CHOOSE_BACKWARD : CHOOSE_WAIT;
        return view->forward_ready >= 0 ? CHOOSE_FORWARD : CHOOSE_WAIT;
}

/* Buffers of policies that take turns after a warm-up of one forward for each stage after this one: what
 * `stored` and `received` are for them. The stage before stores one more than this one, and its messages do
 * not wait for this one's turn. */
int policy_in_turn_stored(const struct plan *plan, int stage, struct policy_chunks chunks, int limit);
int policy_in_turn_received(const struct plan *plan, int stage, int limit);

/* The same for policies that in addition keep gradients of weights back, on each stage as many as bring what
 * it stores up to the first stage's: `stored`, `received` and `deferred`. The stage before is one forward
 * further, and one gradient of weights more than are kept back may be due. */
int policy_kept_back_stored(const struct plan *plan, int stage, struct policy_chunks chunks, int limit);
int policy_kept_back_received(const struct plan *plan, int stage, int limit);
int policy_kept_back_deferred(const struct plan *plan, int stage);

/* Returns the policy of an id, a constant object; never NULL for the ids below POLICIES. */
const struct policy *policy_get(enum policy_id id);
/* Returns the enum policy_id of the policy with this --schedule name, or -1 if there is none. */
int policy_find(const char *name);

#endif
