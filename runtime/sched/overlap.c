/* Gradients that are summed over the replicas while the last backward of a stage goes on. That backward is a
 * chain of ranges: each makes the gradients of a range of parameters final, from the end of memory, where the
 * last layers are, to its beginning. The core says how far a range is to go, to where the next chunk of an
 * all-reduce begins; the world, which knows where layers begin, goes at least as far, or to where the
 * backward ends, and says how far it came. So layers are not known here, nor chunks there; and a world that
 * cannot part a backward does it at once. If the policy has backwards in two operations (weights.c), both of
 * the last micro-batch's are such chains: the first makes final what the world does not leave to the second,
 * and then goes on without a range; the second, the last of all, makes the rest final. If a rank has several
 * chunks of the model, the last backward of each is such a chain, and the last chunk's comes first: it ends
 * where the parameters of the chunk before begin. With shards, and with parts of sequences, a range is a
 * chain of parts and collectives itself (tensor.c); what shards have alike lies together, of all layers, and
 * is final last.
 *
 * What is final may be summed as soon as it has been looked through for overflow, because sums are made in
 * place: in mixed precision a look at the new range follows each but the very last, on the compute lane. At
 * what is left the optimizer looks when all backwards are over, as it looks at everything otherwise. Ranks
 * agree on the overflow after that, as ever.
 *
 * The compute lane is taken from the first range to the last, so the rest of the core sees one backward. All
 * members of a group sum their chunks in one order, from behind, however far each of them is. */
#include "runtime/sched/state.h"

#include <assert.h>

bool overlap_planned(const struct plan *plan)
{
        return plan->overlap_allreduce && plan->dp > 1 && !plan->forward_only;
}

static void set_range(const struct core *core, struct op *backward, int64_t end)
{
        assert(end > 0);
        backward->offset = regions_chunk_begin(&core->optimizer.regions, end);
        backward->count = end - backward->offset;
}

/* Of those in its chunk of the model. Micro-batches go through several chunks in order. */
static bool is_last(const struct core *core, const struct op *backward)
{
        const int m = core->plan.micro_batches;
        if (core->plan.virtual_stages > 1)
                return backward->micro_batch == m - 1;
        return backward->parts & OP_INPUT_GRADIENT ? core->backwards_started == m
                                                   : core->weights_done == m - 1;
}

void overlap_begin(const struct core *core, struct op *backward)
{
        if (overlap_planned(&core->plan) && is_last(core, backward))
                set_range(core, backward, core->optimizer.final);
}

/* Of the ranges, and of the looks at what they made final. */
static bool has(const struct core *core, const struct op *op)
{
        return overlap_planned(&core->plan) && op->of == OP_BACKWARD && op->count > 0;
}

static bool goes_on(struct core *core, struct op *op)
{
        const bool look = op->kind == OP_CHECK_OVERFLOW;
        if (!op->further && op->chunk == 0)
                return false;
        assert(op->offset > 0 && op->offset + op->count == core->optimizer.final);
        if (core->plan.mixed && !look) {
                core_continue(core, op)->kind = OP_CHECK_OVERFLOW;
                return true;
        }
        core->optimizer.final = regions_layers_end(&core->optimizer.regions, op->offset);
        if (!op->further || core->optimizer.final == 0)
                return false; /* a stage without layers has nothing behind its head */
        struct op *next = core_continue(core, op);
        next->kind = OP_BACKWARD;
        next->range++;
        next->segment = 0;
        next->further = false;
        set_range(core, next, core->optimizer.final);
        return true;
}

const struct chain overlap_chain = {has, goes_on};
