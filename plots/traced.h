/* What the figures of a trace share: how operations look, and which batch is drawn. */
#ifndef RANVIER_PLOTS_TRACED_H
#define RANVIER_PLOTS_TRACED_H

#include "plots/figure.h"

#include "runtime/engine/trace.h"

/* What an operation is drawn as; plots/style.gp has the colours and names, in this order. */
enum look {
        LOOK_FORWARD = 1,
        LOOK_BACKWARD,
        LOOK_OPTIMIZER,
        LOOK_COLLECTIVE,
        LOOK_MESSAGE,
        LOOK_LOAD,
        LOOK_FETCH,
        LOOK_WRITE_BACK,
        LOOK_ACTIVATIONS, /* copied to the host and back */
        LOOK_WAITING,
        LOOKS
};
enum look traced_look(enum op_kind kind);

/* Sets the variable looks to the numbers of those that are used, as words: the legend. */
void traced_legend(struct figure *figure, const bool used[LOOKS]);

/* The batch `asked` for, or (-1) the middle one of the trace; `ranks`: how many the trace has. RV_EINPUT if
 * the trace is empty or has no such batch. */
int traced_choose_batch(const struct trace *trace, const char *path, int asked, int *batch, int *ranks,
                        struct rv_error_info *err);

#endif
