/* Gradient fast-forwarding (Oh et al., EuroSys 2022): the gradient of the input, for which the stage before
 * waits, goes first; those of the weights are made when a stage of 1F1B would wait, be it for a message or
 * because all buffers are taken. What zero-bubble fixes in advance follows here from what arrives. A stage
 * has as many micro-batches under way as 1F1B's first, as of zero-bubble. */
#include "runtime/sched/policy.h"

static enum policy_choice forwarding_choose(const struct policy_view *view)
{
        const enum policy_choice turn = policy_in_turn(view, view->stages - view->stage - 1);
        return turn == CHOOSE_WAIT && view->weight_ready >= 0 ? CHOOSE_WEIGHT : turn;
}

const struct policy policy_fast_forward = {
        .name = "fast-forward",
        .help = "1f1b that makes gradients of weights only where it would wait",
        .fills_waits = true,
        .stored = policy_kept_back_stored,
        .received = policy_kept_back_received,
        .deferred = policy_kept_back_deferred,
        .choose = forwarding_choose};
