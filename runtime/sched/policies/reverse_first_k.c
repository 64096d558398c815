/* Reverse first-k (Oh et al., EuroSys 2022), on 1F1B's order: the first part of a backward goes through all
 * layers, but leaves the gradients of the weights of the first k (--deferred-layers) to the second part,
 * which follows at once. In a pipeline the stage before gets its gradient sooner: with tW' for the weights of
 * k layers the bubble is (p - 1)(tF + tB + tW - tW'), where 1F1B's is (p - 1)(tF + tB + tW). With
 * --overlap-allreduce the layers behind the first k are summed over the replicas from the first part on. A
 * stage stores what it stores with 1F1B, and one buffer of gradients. */
#include "runtime/sched/policy.h"

static int reverse_deferred(const struct plan *plan, int stage)
{
        (void)plan;
        (void)stage;
        return 1;
}

static enum policy_choice reverse_choose(const struct policy_view *view)
{
        return view->weight_ready >= 0 ? CHOOSE_WEIGHT : policy_in_turn(view, view->stages - view->stage - 1);
}

const struct policy policy_reverse_first_k = {
        .name = "reverse-first-k",
        .help = "1f1b; gradients of the weights of a stage's first layers last, see --deferred-layers",
        .stored = policy_in_turn_stored,
        .received = policy_in_turn_received,
        .deferred = reverse_deferred,
        .choose = reverse_choose};
