/* 1F1B (PipeDream-Flush, Narayanan et al. 2021): a warm-up of one forward for each stage after this one, then
 * one forward and one backward in turn, then the remaining backwards. */
#include "runtime/sched/policy.h"

#include "runtime/base/minmax.h"

static int one_f_one_b_stored(const struct plan *plan, int stage, int chunk, int limit)
{
        (void)chunk;
        (void)limit;
        return min_int(plan->pp - stage, plan->micro_batches);
}

/* The stage before stores one more than this one, and its messages do not wait for this stage's turn. */
static int one_f_one_b_received(const struct plan *plan, int stage, int limit)
{
        (void)limit;
        return min_int(plan->pp - stage + 1, plan->micro_batches);
}

static enum policy_choice one_f_one_b_choose(const struct policy_view *view)
{
        return policy_in_turn(view, view->stages - view->stage - 1);
}

const struct policy policy_1f1b = {.name = "1f1b",
                                   .help = "one forward, one backward",
                                   .stored = one_f_one_b_stored,
                                   .received = one_f_one_b_received,
                                   .choose = one_f_one_b_choose};
