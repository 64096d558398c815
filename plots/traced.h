/* What the figures of a trace (timeline.c, optimizer.c) share: as what operations are drawn, the legend, and
 * which batch is shown. The trace itself is read by runtime/engine/trace.h. */
#ifndef RANVIER_PLOTS_TRACED_H
#define RANVIER_PLOTS_TRACED_H

#include "plots/figure.h"

#include "runtime/engine/trace.h"

/* What an operation is drawn as; plots/style.gp has the colours and names, in this order. */
enum look {
        LOOK_FORWARD = 1,
        LOOK_BACKWARD,
        /* The two parts of a backward where the schedule splits it. */
        LOOK_BACKWARD_INPUTS,
        LOOK_BACKWARD_WEIGHTS,
        LOOK_OPTIMIZER,
        LOOK_COLLECTIVE,
        /* A collective of shards in the midst of a pass. */
        LOOK_SHARDS,
        LOOK_MESSAGE,
        LOOK_LOAD,
        LOOK_FETCH,
        LOOK_WRITE_BACK,
        /* Activations that are copied to the host and back. */
        LOOK_ACTIVATIONS,
        /* Copied, and written. */
        LOOK_CHECKPOINT,
        /* A receive, which lasts from when it is posted and not from when bytes flow. */
        LOOK_WAITING,
        LOOKS
};
/* Returns the look of an operation; kinds that have none of their own get LOOK_WAITING. */
enum look traced_look(const struct trace_record *record);

/* Sets the script's variable looks to the numbers of the looks that are used, parted by blanks, for the
 * legend. used[0] is not looked at. */
void traced_legend(struct figure *figure, const bool used[LOOKS]);

/* Chooses the batch to draw: `asked`, or, if that is -1, the middle one of the trace. Fills `batch`, and
 * `ranks` with how many ranks the trace has. RV_EINPUT, with `path` in the sentence, if the trace is empty or
 * has no such batch. */
int traced_choose_batch(const struct trace *trace, const char *path, int asked, int *batch, int *ranks,
                        struct rv_error_info *err);

#endif
