/* AxoNN (Singh & Bhatele, IPDPS 2022): message-driven. A stage works on whatever message came first; the last
 * stage goes from a micro-batch's forward straight to its backward; the first keeps up to pipeline_limit
 * micro-batches under way, one more for each whose backward has returned. So the first stage's order is
 * fixed, as the last one's is: where a slot is all that a forward waits for, that waits for no other rank. */
#include "runtime/sched/policy.h"

static int axonn_stored(const struct plan *plan, int stage, struct policy_chunks chunks, int limit)
{
        (void)chunks;
        return stage == plan->pp - 1 ? 1 : limit;
}

static int axonn_received(const struct plan *plan, int stage, int limit)
{
        (void)plan;
        (void)stage;
        return limit;
}

static enum policy_choice axonn_choose(const struct policy_view *view)
{
        bool forward = view->forward_ready >= 0, backward = view->backward_ready >= 0;
        if (view->stage == view->stages - 1)
                return backward ? CHOOSE_BACKWARD : forward ? CHOOSE_FORWARD : CHOOSE_WAIT;
        if (view->stage == 0) {
                const bool due = view->forwards < view->micro_batches &&
                                 view->forwards - view->backwards < view->pipeline_limit;
                if (due && (forward || !view->offloads))
                        return forward ? CHOOSE_FORWARD : CHOOSE_WAIT;
                return backward ? CHOOSE_BACKWARD : CHOOSE_WAIT;
        }
        if (forward && backward)
                return view->forward_came_first ? CHOOSE_FORWARD : CHOOSE_BACKWARD;
        return forward ? CHOOSE_FORWARD : backward ? CHOOSE_BACKWARD : CHOOSE_WAIT;
}

const struct policy policy_axonn = {.name = "axonn",
                                    .help = "message-driven, the default",
                                    .by_arrival = true,
                                    .stored = axonn_stored,
                                    .received = axonn_received,
                                    .choose = axonn_choose};
