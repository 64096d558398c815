/* Interleaved 1F1B (Narayanan et al. 2021, section 2.2; Megatron-LM's virtual pipeline stages): a rank works
 * on V chunks of the model, so the pipeline fills in steps of a V-th of a stage. Micro-batches go in groups
 * of p, one for each rank: a group through the first chunk, then through the second and so on; backward
 * through the last chunk first. A warm-up of 2 (p - i - 1) + (V - 1) p forwards on rank i, then one forward
 * and one backward in turn, then the remaining backwards. The order is fixed in advance, as 1F1B's is. With
 * equal chunks and no messages the bubble is (p - 1) / (m V) of the work. */
#include "runtime/sched/policy.h"

static int least(int a, int b)
{
        return a < b ? a : b;
}

/* Forwards before the first backward's turn: the last one goes just before it. */
static int warm_up(int stages, int stage, int chunks)
{
        return 2 * (stages - stage - 1) + (chunks - 1) * stages;
}

/* Of the first `count` forwards, those in `chunk`; of the first backwards, those in chunk V - 1 - `chunk`. */
static int of_chunk(const struct plan *plan, int count, int chunk)
{
        const int round = plan->pp * plan->virtual_stages, beyond = count % round - chunk * plan->pp;
        return count / round * plan->pp + (beyond < 0 ? 0 : least(beyond, plan->pp));
}

/* A round of all chunks is like the next: it is enough to look at the first. */
static int interleaved_stored(const struct plan *plan, int stage, int chunk, int limit)
{
        const int pieces = plan_pieces(plan), round = plan->pp * plan->virtual_stages;
        const int ahead = warm_up(plan->pp, stage, plan->virtual_stages) + 1;
        int most = 0;
        (void)limit;
        for (int backwards = 0; backwards < least(round, pieces); backwards++) {
                const int stored = of_chunk(plan, least(ahead + backwards, pieces), chunk) -
                                   of_chunk(plan, backwards, plan->virtual_stages - 1 - chunk);
                most = stored > most ? stored : most;
        }
        return most;
}

/* The rank before is two forwards further at most. The last rank sends to the first what that one sent on its
 * way before, of all chunks but the last. */
static int interleaved_received(const struct plan *plan, int stage, int limit)
{
        const int pieces = plan_pieces(plan), round = plan->pp * plan->virtual_stages;
        const int last = plan->virtual_stages - 1;
        int most = 0;
        (void)limit;
        if (stage > 0)
                return least(warm_up(plan->pp, stage - 1, plan->virtual_stages) + 1, pieces);
        const int ahead = warm_up(plan->pp, 0, plan->virtual_stages) + 1;
        for (int backwards = 0; backwards < least(round, pieces); backwards++) {
                const int forwards = least(ahead + backwards, pieces);
                const int received = forwards - of_chunk(plan, forwards, last) -
                                     (backwards - of_chunk(plan, backwards, last));
                most = received > most ? received : most;
        }
        return most;
}

static enum policy_choice interleaved_choose(const struct policy_view *view)
{
        const int pieces = view->micro_batches * view->chunks;
        const int ahead = least(warm_up(view->stages, view->stage, view->chunks), pieces);
        if (view->forwards == pieces || view->forwards - view->backwards > ahead)
                return view->backward_ready >= 0 ? CHOOSE_BACKWARD : CHOOSE_WAIT;
        return view->forward_ready >= 0 ? CHOOSE_FORWARD : CHOOSE_WAIT;
}

static int piece(const struct plan *plan, int nth, bool backward)
{
        const int round = plan->pp * plan->virtual_stages, in_round = nth % round;
        const int step = in_round / plan->pp, chunk = backward ? plan->virtual_stages - 1 - step : step;
        return chunk * plan->micro_batches + nth / round * plan->pp + in_round % plan->pp;
}

static int interleaved_warm_up(const struct plan *plan, int stage)
{
        return least(warm_up(plan->pp, stage, plan->virtual_stages), plan_pieces(plan));
}

static int interleaved_forward(const struct plan *plan, int nth)
{
        return piece(plan, nth, false);
}

static int interleaved_backward(const struct plan *plan, int nth)
{
        return piece(plan, nth, true);
}

const struct policy policy_interleaved = {.name = "interleaved",
                                          .stored = interleaved_stored,
                                          .received = interleaved_received,
                                          .choose = interleaved_choose,
                                          .warm_up = interleaved_warm_up,
                                          .nth_forward = interleaved_forward,
                                          .nth_backward = interleaved_backward};
