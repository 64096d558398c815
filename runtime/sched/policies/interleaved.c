/* Interleaved 1F1B (Narayanan et al. 2021, section 2.2; Megatron-LM's virtual pipeline stages): a rank works
 * on V chunks of the model, so the pipeline fills in steps of a V-th of a stage. Micro-batches go in groups
 * of p, one for each rank: a group through the first chunk, then through the second and so on; backward
 * through the last chunk first. A warm-up of 2 (p - i - 1) + (V - 1) p forwards on rank i, then one forward
 * and one backward in turn, then the remaining backwards. The order is fixed in advance, as 1F1B's is. With
 * equal chunks and no messages the bubble is (p - 1) / (m V) of the work. */
#include "runtime/sched/policy.h"

#include "runtime/base/minmax.h"

/* Forwards before the first backward's turn: the last one goes just before it. */
static int warm_up(int stages, int stage, int chunks)
{
        return 2 * (stages - stage - 1) + (chunks - 1) * stages;
}

/* Of the first `count` forwards, those in `chunk`; of the first backwards, those in chunk V - 1 - `chunk`. */
static int of_chunk(const struct plan *plan, int count, int chunk)
{
        const int round = plan->pp * plan->virtual_stages, beyond = count % round - chunk * plan->pp;
        return count / round * plan->pp + (beyond < 0 ? 0 : min_int(beyond, plan->pp));
}

/* A round of all chunks is like the next: it is enough to look at the first. */
static int interleaved_stored(const struct plan *plan, int stage, struct policy_chunks chunks, int limit)
{
        const int vmbs = plan_vmbs(plan), round = plan->pp * plan->virtual_stages;
        const int ahead = warm_up(plan->pp, stage, plan->virtual_stages) + 1;
        int max = 0;
        (void)limit;
        for (int backwards = 0; backwards < min_int(round, vmbs); backwards++) {
                int stored = 0;
                for (int chunk = chunks.first; chunk < chunks.end; chunk++)
                        stored += of_chunk(plan, min_int(ahead + backwards, vmbs), chunk) -
                                  of_chunk(plan, backwards, plan->virtual_stages - 1 - chunk);
                max = max_int(max, stored);
        }
        return max;
}

/* The rank before is two forwards further at most. The last rank sends to the first what that one sent on its
 * way before, of all chunks but the last. */
static int interleaved_received(const struct plan *plan, int stage, int limit)
{
        const int vmbs = plan_vmbs(plan), round = plan->pp * plan->virtual_stages;
        const int last = plan->virtual_stages - 1;
        int max = 0;
        (void)limit;
        if (stage > 0)
                return min_int(warm_up(plan->pp, stage - 1, plan->virtual_stages) + 1, vmbs);
        const int ahead = warm_up(plan->pp, 0, plan->virtual_stages) + 1;
        for (int backwards = 0; backwards < min_int(round, vmbs); backwards++) {
                const int forwards = min_int(ahead + backwards, vmbs);
                const int received = forwards - of_chunk(plan, forwards, last) -
                                     (backwards - of_chunk(plan, backwards, last));
                max = received > max ? received : max;
        }
        return max;
}

static enum policy_choice interleaved_choose(const struct policy_view *view)
{
        const int vmbs = view->micro_batches * view->chunks;
        const int ahead = min_int(warm_up(view->stages, view->stage, view->chunks), vmbs);
        if (view->forwards == vmbs || view->forwards - view->backwards > ahead)
                return view->backward_ready >= 0 ? CHOOSE_BACKWARD : CHOOSE_WAIT;
        return view->forward_ready >= 0 ? CHOOSE_FORWARD : CHOOSE_WAIT;
}

static int vmb(const struct plan *plan, int nth, bool backward)
{
        const int round = plan->pp * plan->virtual_stages, in_round = nth % round;
        const int step = in_round / plan->pp, chunk = backward ? plan->virtual_stages - 1 - step : step;
        return chunk * plan->micro_batches + nth / round * plan->pp + in_round % plan->pp;
}

static int interleaved_warm_up(const struct plan *plan, int stage)
{
        return min_int(warm_up(plan->pp, stage, plan->virtual_stages), plan_vmbs(plan));
}

static int interleaved_forward(const struct plan *plan, int nth)
{
        return vmb(plan, nth, false);
}

static int interleaved_backward(const struct plan *plan, int nth)
{
        return vmb(plan, nth, true);
}

const struct policy policy_interleaved = {.name = "interleaved",
                                          .help = "1f1b on --virtual-stages chunks of the model a rank, with "
                                                  "a shorter bubble and more messages",
                                          .stored = interleaved_stored,
                                          .received = interleaved_received,
                                          .choose = interleaved_choose,
                                          .warm_up = interleaved_warm_up,
                                          .nth_forward = interleaved_forward,
                                          .nth_backward = interleaved_backward};
