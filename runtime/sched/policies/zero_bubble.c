/* Zero-bubble ZB-H1 (Qi et al. 2023, section 2.2): 1F1B whose backward is two operations. The gradient of the
 * input goes first, so the previous stage waits for less; that of the weights fills the time in which a stage
 * of 1F1B has nothing to do at the end of a batch. For that stage i keeps i of them back, so that all stages
 * have as many micro-batches under way as 1F1B's first: its memory is the bound. With forwards, and both
 * parts, of tF, tB and tW the bubble is (p - 1)(tF + tB - tW); that of 1F1B is (p - 1)(tF + tB + tW). The
 * order is fixed in advance. */
#include "runtime/sched/policy.h"

static enum policy_choice zero_bubble_choose(const struct policy_view *view)
{
        int waiting = view->backwards - view->weights;
        if (waiting > view->stage || (waiting > 0 && view->backwards == view->micro_batches))
                return CHOOSE_WEIGHT;
        return policy_in_turn(view, view->stages - view->stage - 1);
}

const struct policy policy_zero_bubble = {.name = "zero-bubble",
                                          .help = "1f1b whose gradients of weights fill the bubble (ZB-H1)",
                                          .stored = policy_kept_back_stored,
                                          .received = policy_kept_back_received,
                                          .deferred = policy_kept_back_deferred,
                                          .choose = zero_bubble_choose};
