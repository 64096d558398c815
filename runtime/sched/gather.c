/* ZeRO-3 (Rajbhandari et al. 2020): every replica has a share of each layer's weights and gradients. A
 * forward or backward is a chain of units, the embedding, each block and the head: a unit's weights are
 * all-gathered before it is computed, and backward its gradients are reduced to their shares, scattered, when
 * it has been.
 *
 * Weights come one unit ahead: the next unit's are gathered from when this one's work begins, so two units'
 * are there at most. A unit's gradients are reduced from the end of its work on, behind the weights that were
 * asked for before. The head's weights are still there when its backward begins, and an embedding's backward
 * needs none. Of a tied head only the LayerNorm's gradients are reduced with it: the others are the
 * embedding's too, and complete at the end.
 *
 * If the plan's communication blocks, gradients are reduced before anything goes on: the next unit's weights
 * are asked for, and its work begins, after that.
 *
 * The compute lane is taken from the first weights to the last gradients, so the rest of the core sees one
 * operation. Replicas must go through their micro-batches in the same order, because a lane keeps its order;
 * on the one stage that there is every policy has one. */
#include "runtime/sched/state.h"

#include <assert.h>
#include <string.h>

bool gather_planned(const struct plan *plan)
{
        return plan->zero == 3;
}

/* The unit that is the nth of the pass under way: 0 is the embedding, on a stage that has it, and so on. */
static bool is_embedding(const struct core *core, int nth)
{
        const struct gather_state *g = &core->gather;
        const int unit = g->pass.kind == OP_FORWARD ? nth : g->units - 1 - nth;
        return core_is_first(core, g->pass.chunk) && unit == 0;
}

static bool is_head(const struct core *core, int nth)
{
        const struct gather_state *g = &core->gather;
        const int unit = g->pass.kind == OP_FORWARD ? nth : g->units - 1 - nth;
        return core_is_last(core, g->pass.chunk) && unit == g->units - 1;
}

/* Parameters whose weights are gathered before the nth unit of the pass. */
static int64_t weights_of(const struct core *core, int nth)
{
        const bool backward = core->gather.pass.kind == OP_BACKWARD;
        if (is_embedding(core, nth))
                return backward ? 0 : core->units.embedding;
        if (is_head(core, nth))
                return backward ? 0 : core->units.head;
        return core->units.block;
}

/* And whose gradients are reduced after it. */
static int64_t gradients_of(const struct core *core, int nth)
{
        if (core->gather.pass.kind == OP_FORWARD)
                return 0;
        return is_embedding(core, nth) ? core->units.embedding
               : is_head(core, nth)    ? core->units.head_gradient
                                       : core->units.block;
}

/* Units without weights to be gathered, or gradients to be reduced, are passed over. */
static void pass_over(struct core *core)
{
        struct gather_state *g = &core->gather;
        while (g->gathers_issued < g->units && weights_of(core, g->gathers_issued) == 0)
                g->gathers_issued++;
        while (g->scatters_issued < g->units && gradients_of(core, g->scatters_issued) == 0)
                g->scatters_issued++;
}

void gather_begin(struct core *core, struct op *pass)
{
        struct gather_state *g = &core->gather;
        if (!gather_planned(&core->plan))
                return;
        assert(g->units == 0);
        memcpy(&g->pass, pass, sizeof *pass);
        g->units =
                (int)core->units.blocks + core_is_first(core, pass->chunk) + core_is_last(core, pass->chunk);
        pass_over(core);
        const bool begun = gather_next(core, pass);
        assert(begun);
        (void)begun;
}

/* Blocking: the gradients of the units before the nth have been reduced. */
static bool held_up(const struct core *core, int nth)
{
        const struct gather_state *g = &core->gather;
        return core->plan.blocking && nth > 0 && gradients_of(core, nth - 1) > 0 && g->scatters_done < nth;
}

static bool weights_there(const struct core *core, int nth)
{
        return weights_of(core, nth) == 0 || core->gather.gathers_done > nth;
}

static struct op part_of(const struct core *core, int nth)
{
        struct op op;
        memcpy(&op, &core->gather.pass, sizeof op);
        op.segment = nth;
        return op;
}

static struct op collective(const struct core *core, enum op_kind kind, int nth, int64_t count)
{
        struct op op = part_of(core, nth);
        op_become(&op, kind);
        op.group = GROUP_DATA;
        op.count = count;
        op.bytes = count * core->plan.element_bytes;
        return op;
}

bool gather_next(struct core *core, struct op *op)
{
        struct gather_state *g = &core->gather;
        if (g->scatters_issued < g->computed) {
                *op = collective(core, OP_REDUCE_SCATTER, g->scatters_issued,
                                 gradients_of(core, g->scatters_issued));
                g->scatters_issued++;
                g->scattering++;
        } else if (g->gathers_issued < g->units && g->gathers_issued <= g->begun &&
                   !held_up(core, g->gathers_issued)) {
                *op = collective(core, OP_ALL_GATHER, g->gathers_issued, weights_of(core, g->gathers_issued));
                g->gathers_issued++;
        } else if (g->begun < g->units && g->begun == g->computed && weights_there(core, g->begun) &&
                   !held_up(core, g->begun)) {
                *op = part_of(core, g->begun++);
        } else {
                return false;
        }
        pass_over(core);
        return true;
}

static bool has(const struct core *core, const struct op *op)
{
        return gather_planned(&core->plan) && op_of_pass(op);
}

static bool goes_on(struct core *core, struct op *op)
{
        struct gather_state *g = &core->gather;
        if (op->kind == OP_ALL_GATHER) {
                g->gathers_done = op->segment + 1;
        } else if (op->kind == OP_REDUCE_SCATTER) {
                g->scatters_done = op->segment + 1;
                g->scattering--;
        } else {
                g->computed++;
        }
        if (g->computed < g->units || g->scatters_issued < g->units || g->scattering > 0)
                return true;
        memcpy(op, &g->pass, sizeof *op);
        memset(g, 0, sizeof *g); /* what is over leaves no trace */
        return false;
}

const struct chain gather_chain = {has, goes_on};
