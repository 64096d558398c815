/* A scheduling policy: what a stage computes next. One file a policy. */
#ifndef RANVIER_RUNTIME_SCHED_POLICY_H
#define RANVIER_RUNTIME_SCHED_POLICY_H

#include "runtime/sched/plan.h"

/* What a policy may look at, always when the compute lane is idle. */
struct policy_view {
        int stage, stages, chunks, micro_batches;
        int pipeline_limit;      /* axonn's, resolved (never 0) */
        int forwards, backwards; /* done on this rank, of all chunks; of backwards in parts the input's */
        int weights;             /* the other part, done */
        int forward_ready;       /* piece that could go forward, or -1. On the first stage: the next one */
        int backward_ready;      /* piece that could go backward, or -1. On the last stage: forward done */
        int weight_ready;        /* piece whose other part could go, or -1 */
        bool forward_came_first; /* both are ready and arrived as messages: the forward's came first */
};

enum policy_choice { CHOOSE_WAIT, CHOOSE_FORWARD, CHOOSE_BACKWARD, CHOOSE_WEIGHT };

struct policy {
        const char *name;
        /* Most micro-batches that lie between forward and the end of backward in `chunk` of `stage`, resolved
         * limit given. */
        int (*stored)(const struct plan *plan, int stage, int chunk, int limit);
        /* Most pieces that lie between the arrival of their activations and the end of backward. */
        int (*received)(const struct plan *plan, int stage, int limit);
        /* Backward is two operations: most micro-batches whose gradient of weights is still to come, counting
         * from the begin of the first part. NULL: it is one. */
        int (*deferred)(const struct plan *plan, int stage);
        enum policy_choice (*choose)(const struct policy_view *view);
        /* The piece that goes forward, or backward, as the nth of a rank. NULL, both: in the order in which
         * they can. A policy of several chunks says it. */
        int (*nth_forward)(const struct plan *plan, int nth);
        int (*nth_backward)(const struct plan *plan, int nth);
        /* Of several chunks, else NULL: forwards before the first that a backward follows in turn. Blocking
         * messages of the two go together, after both, with those that the next two wait for: see blocking.c.
         */
        int (*warm_up)(const struct plan *plan, int stage);
};

extern const struct policy policy_axonn, policy_gpipe, policy_1f1b, policy_interleaved, policy_zero_bubble;

const struct policy *policy_get(enum policy_id id);
int policy_find(const char *name); /* enum policy_id, or -1 */

#endif
