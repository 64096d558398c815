/* 1F1B (PipeDream-Flush, Narayanan et al. 2021): a warm-up of one forward for each stage after this one, then
 * one forward and one backward in turn, then the remaining backwards. The order is fixed in advance: a stage
 * waits for the next in line even if something else is ready. */
#include "runtime/sched/policy.h"

static int least(int a, int b)
{
        return a < b ? a : b;
}

static int one_f_one_b_stored(const struct plan *plan, int stage, int chunk, int limit)
{
        (void)chunk;
        (void)limit;
        return least(plan->pp - stage, plan->micro_batches);
}

/* The stage before stores one more than this one, and its messages do not wait for this stage's turn. */
static int one_f_one_b_received(const struct plan *plan, int stage, int limit)
{
        (void)limit;
        return least(plan->pp - stage + 1, plan->micro_batches);
}

static enum policy_choice one_f_one_b_choose(const struct policy_view *view)
{
        int warm_up = least(view->stages - view->stage - 1, view->micro_batches);
        bool backward_next =
                view->forwards == view->micro_batches || view->forwards - view->backwards > warm_up;
        if (backward_next)
                return view->backward_ready >= 0 ? CHOOSE_BACKWARD : CHOOSE_WAIT;
        return view->forward_ready >= 0 ? CHOOSE_FORWARD : CHOOSE_WAIT;
}

const struct policy policy_1f1b = {.name = "1f1b",
                                   .stored = one_f_one_b_stored,
                                   .received = one_f_one_b_received,
                                   .choose = one_f_one_b_choose};
