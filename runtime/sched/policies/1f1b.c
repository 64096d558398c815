/* 1F1B (PipeDream-Flush, Narayanan et al. 2021): a warm-up of one forward for each stage after this one, then
 * one forward and one backward in turn, then the remaining backwards. */
#include "runtime/sched/policy.h"

static enum policy_choice one_f_one_b_choose(const struct policy_view *view)
{
        return policy_in_turn(view, view->stages - view->stage - 1);
}

const struct policy policy_1f1b = {.name = "1f1b",
                                   .help = "one forward, one backward",
                                   .stored = policy_in_turn_stored,
                                   .received = policy_in_turn_received,
                                   .choose = one_f_one_b_choose};
