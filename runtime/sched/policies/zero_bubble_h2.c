/* Zero-bubble ZB-H2 (Qi et al. 2023, section 2.3): ZB-H1 with the longer warm-up of eager 1F1B, up to
 * 2 (p - i) - 1 forwards on stage i, which fill the time before a stage's first backward too. The last
 * gradients of weights fill what is behind its last one: for that stage i keeps 2 i of them back. So all
 * stages have up to 2 p - 1 micro-batches under way. Where forwards and both parts take equally long a stage
 * never waits between its first and its last operation; stage i begins, and ends, i forwards after the first
 * one. The order is fixed in advance. */
#include "runtime/sched/policy.h"

#include "runtime/base/minmax.h"

static int zero_bubble_h2_stored(const struct plan *plan, int stage, struct policy_chunks chunks, int limit)
{
        (void)stage;
        (void)chunks;
        (void)limit;
        return min_int(2 * plan->pp - 1, plan->micro_batches);
}

/* The stage before is two forwards further, and one gradient of weights more than are kept back may be due.
 */
static int zero_bubble_h2_received(const struct plan *plan, int stage, int limit)
{
        (void)stage;
        (void)limit;
        return min_int(2 * plan->pp + 2, plan->micro_batches);
}

/* Those that are kept back, and the one whose turn it is. */
static int zero_bubble_h2_deferred(const struct plan *plan, int stage)
{
        return min_int(2 * stage + 1, plan->micro_batches);
}

static enum policy_choice zero_bubble_h2_choose(const struct policy_view *view)
{
        int waiting = view->backwards - view->weights;
        if (waiting > 2 * view->stage || (waiting > 0 && view->backwards == view->micro_batches))
                return CHOOSE_WEIGHT;
        return policy_in_turn(view, 2 * (view->stages - view->stage - 1));
}

const struct policy policy_zero_bubble_h2 = {
        .name = "zero-bubble-h2",
        .help = "zero-bubble with twice the warm-up, no bubble between equal parts (ZB-H2)",
        .stored = zero_bubble_h2_stored,
        .received = zero_bubble_h2_received,
        .deferred = zero_bubble_h2_deferred,
        .choose = zero_bubble_h2_choose};
