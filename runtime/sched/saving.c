/* A checkpoint behind a batch: all ranks know from the batch's sums that there is one. When everything else
 * of the batch is over, its state is copied to host memory, and the next batch begins as soon as the copy is
 * there; that is what a checkpoint costs. The copy is written beside the batches that follow. There is one
 * place for a copy, so that on slow files the next one waits until it is written. */
#include "runtime/sched/state.h"

void saving_want(struct core *core)
{
        core->saving = SAVING_WANTED;
}

static struct op of_checkpoint(const struct core *core, enum op_kind kind)
{
        struct op op = core_new_op(kind);
        op.bytes = core->checkpoint_bytes;
        return op;
}

/* Nothing is under way, and nothing else can begin: the batch is over. */
static bool is_due(const struct core *core)
{
        return core->saving == SAVING_WANTED && !core->writing && core->in_flight == 0;
}

bool saving_next(struct core *core, struct op *op)
{
        if (is_due(core)) {
                *op = of_checkpoint(core, OP_SNAPSHOT);
                core->saving = SAVING_COPIES;
                return true;
        }
        if (core->saving != SAVING_COPIED)
                return false;
        *op = of_checkpoint(core, OP_WRITE);
        core->saving = SAVING_NONE;
        core->writing = true;
        return true;
}

void saving_complete(struct core *core, const struct op *op)
{
        if (op->kind == OP_SNAPSHOT)
                core->saving = SAVING_COPIED;
        else
                core->writing = false;
}

bool saving_done(const struct core *core)
{
        return core->saving == SAVING_NONE;
}

bool core_writing(const struct core *core)
{
        return core->writing;
}
