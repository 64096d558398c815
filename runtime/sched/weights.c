/* Backwards in two parts, for policies that say so: the gradient of the input, which goes to the previous
 * stage at once, and later that of the weights, for which nobody waits. In between a micro-batch keeps its
 * stored activations, its input and a buffer of what its products were given by backward; which one goes
 * next is decided when the compute lane is idle, and of those that wait it is the oldest. */
#include "runtime/sched/state.h"

#include <assert.h>
#include <string.h>

bool weights_parted(const struct core *core)
{
        return core->limits.deferred > 0;
}

static struct core_pool buffers_of(const struct core *core)
{
        return (struct core_pool){0, core->limits.deferred, true};
}

bool weights_room(const struct core *core)
{
        return !weights_parted(core) ||
               buffer_free(core_tables((struct core *)core).deferred_users, buffers_of(core)) > 0;
}

int weights_ready(const struct core *core)
{
        return core->deferred > 0 ? core_tables((struct core *)core).deferred[0].vmb : -1;
}

void weights_begin_input(struct core *core, struct op *op)
{
        struct core_tables t = core_tables(core);
        op->parts = OP_INPUT_GRADIENT;
        op->deferred = buffer_acquire(t.deferred_users, buffers_of(core), NULL, -1, 1);
}

void weights_defer(struct core *core, const struct op *input_part)
{
        struct core_tables t = core_tables(core);
        struct deferred *deferred = &t.deferred[core->deferred++];
        deferred->vmb = core_vmb(core, input_part);
        deferred->buffer = input_part->deferred;
}

struct op weights_begin(struct core *core)
{
        struct core_tables t = core_tables(core);
        const struct deferred oldest = t.deferred[0];
        struct op op = core_op_of_vmb(core, OP_BACKWARD, oldest.vmb);
        assert(core->deferred > 0);
        core->deferred--;
        memmove(t.deferred, t.deferred + 1, (size_t)core->deferred * sizeof *t.deferred);
        memset(&t.deferred[core->deferred], 0, sizeof *t.deferred);
        op.parts = OP_WEIGHT_GRADIENT;
        op.input = core_is_first(core, op.chunk) ? -1 : t.input_of[oldest.vmb];
        op.slot = t.slot_of[oldest.vmb];
        op.deferred = oldest.buffer;
        overlap_begin(core, &op);
        return op;
}

void weights_done(struct core *core, const struct op *op)
{
        core->weights_done++;
        if (op->deferred >= 0)
                buffer_release(core_tables(core).deferred_users, op->deferred);
}
