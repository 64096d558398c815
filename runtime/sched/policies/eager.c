/* Eager 1F1B (Zhuang et al., MLSys 2023): 1F1B with twice the warm-up, two forwards for each stage after this
 * one. While one micro-batch's messages are under way a stage has another one to work on, so that messages of
 * up to half of a forward and a backward cost no time; it stores up to 2 (p - i) - 1 micro-batches on stage i
 * instead of p - i. */
#include "runtime/sched/policy.h"

#include "runtime/base/minmax.h"

static int eager_stored(const struct plan *plan, int stage, struct policy_chunks chunks, int limit)
{
        (void)chunks;
        (void)limit;
        return min_int(2 * (plan->pp - stage) - 1, plan->micro_batches);
}

/* The stage before stores two more than this one, and its messages do not wait for this stage's turn. */
static int eager_received(const struct plan *plan, int stage, int limit)
{
        (void)limit;
        return min_int(2 * (plan->pp - stage) + 1, plan->micro_batches);
}

static enum policy_choice eager_choose(const struct policy_view *view)
{
        return policy_in_turn(view, 2 * (view->stages - view->stage - 1));
}

const struct policy policy_eager = {
        .name = "eager-1f1b",
        .help = "1f1b with twice the warm-up, which hides messages and costs memory",
        .stored = eager_stored,
        .received = eager_received,
        .choose = eager_choose};
