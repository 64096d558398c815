/* Zero-bubble ZB-H1 (Qi et al. 2023, section 2.2): 1F1B whose backward is two operations. The gradient of the
 * input goes first, so the previous stage waits for less; that of the weights fills the time in which a stage
 * of 1F1B has nothing to do at the end of a batch. For that stage i keeps i of them back, so that all stages
 * have as many micro-batches under way as 1F1B's first: its memory is the bound. With forwards, and both
 * parts, of tF, tB and tW the bubble is (p - 1)(tF + tB - tW); that of 1F1B is (p - 1)(tF + tB + tW). The
 * order is fixed in advance. */
#include "runtime/sched/policy.h"

#include "runtime/base/minmax.h"

static int zero_bubble_stored(const struct plan *plan, int stage, int chunk, int limit)
{
        (void)stage;
        (void)chunk;
        (void)limit;
        return min_int(plan->pp, plan->micro_batches);
}

/* The stage before is one forward further, and one gradient of weights more than are kept back may be due. */
static int zero_bubble_received(const struct plan *plan, int stage, int limit)
{
        (void)stage;
        (void)limit;
        return min_int(plan->pp + 2, plan->micro_batches);
}

/* Those that are kept back, and the one whose turn it is. */
static int zero_bubble_deferred(const struct plan *plan, int stage)
{
        return min_int(stage + 1, plan->micro_batches);
}

static enum policy_choice zero_bubble_choose(const struct policy_view *view)
{
        int waiting = view->backwards - view->weights;
        if (waiting > view->stage || (waiting > 0 && view->backwards == view->micro_batches))
                return CHOOSE_WEIGHT;
        return policy_in_turn(view, view->stages - view->stage - 1);
}

const struct policy policy_zero_bubble = {.name = "zero-bubble",
                                          .help = "1f1b whose gradients of weights fill the bubble (ZB-H1)",
                                          .stored = zero_bubble_stored,
                                          .received = zero_bubble_received,
                                          .deferred = zero_bubble_deferred,
                                          .choose = zero_bubble_choose};
