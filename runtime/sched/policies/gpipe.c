/* GPipe (Huang et al. 2019): every forward, then every backward. Stores all micro-batches. */
#include "runtime/sched/policy.h"

static int gpipe_stored(const struct plan *plan, int stage, struct policy_chunks chunks, int limit)
{
        (void)stage;
        (void)chunks;
        (void)limit;
        return plan->micro_batches;
}

static int gpipe_received(const struct plan *plan, int stage, int limit)
{
        (void)stage;
        (void)limit;
        return plan->micro_batches;
}

static enum policy_choice gpipe_choose(const struct policy_view *view)
{
        if (view->forwards < view->micro_batches)
                return view->forward_ready >= 0 ? CHOOSE_FORWARD : CHOOSE_WAIT;
        return view->backward_ready >= 0 ? CHOOSE_BACKWARD : CHOOSE_WAIT;
}

const struct policy policy_gpipe = {.name = "gpipe",
                                    .help = "all forward, then all backward",
                                    .forwards_first = true,
                                    .stored = gpipe_stored,
                                    .received = gpipe_received,
                                    .choose = gpipe_choose};
