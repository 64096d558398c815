#include "plots/traced.h"

#include <string.h>

enum look traced_look(const struct trace_record *record)
{
        switch (record->kind) {
        case OP_FORWARD:
                return LOOK_FORWARD;
        case OP_BACKWARD:
                return record->parts == OP_INPUT_GRADIENT    ? LOOK_BACKWARD_INPUTS
                       : record->parts == OP_WEIGHT_GRADIENT ? LOOK_BACKWARD_WEIGHTS
                                                             : LOOK_BACKWARD;
        case OP_NORM:
        case OP_UPDATE:
        case OP_CHECK_OVERFLOW:
        case OP_CLEAR:
        case OP_ADD_REPLICA:
                return LOOK_OPTIMIZER;
        case OP_ALLREDUCE:
        case OP_REDUCE_SCATTER:
        case OP_ALL_GATHER:
        case OP_REDUCE_SCALARS:
        case OP_REDUCE_OVERFLOW:
                return LOOK_COLLECTIVE;
        case OP_TENSOR:
                return LOOK_SHARDS;
        case OP_SEND_ACTIVATION:
        case OP_SEND_GRADIENT:
        case OP_STAGE_OUT:
        case OP_STAGE_IN:
                return LOOK_MESSAGE;
        case OP_LOAD:
                return LOOK_LOAD;
        case OP_FETCH:
        case OP_FETCH_WEIGHTS:
                return LOOK_FETCH;
        case OP_WRITE_BACK:
        case OP_STORE_WEIGHTS:
                return LOOK_WRITE_BACK;
        case OP_STORE_ACTIVATIONS:
        case OP_FETCH_ACTIVATIONS:
                return LOOK_ACTIVATIONS;
        case OP_SNAPSHOT:
        case OP_WRITE:
                return LOOK_CHECKPOINT;
        default: /* receives last from when they are posted */
                return LOOK_WAITING;
        }
}

void traced_legend(struct figure *figure, const bool used[LOOKS])
{
        char words[4 * LOOKS] = "";
        for (int g = 1; g < LOOKS; g++)
                if (used[g])
                        sprintf(words + strlen(words), "%d ", g);
        figure_text(figure, "looks", words);
}

int traced_choose_batch(const struct trace *trace, const char *path, int asked, int *batch, int *ranks,
                        struct rv_error_info *err)
{
        if (trace->count == 0)
                return rv_fail(err, RV_EINPUT, "%s: the trace has no operations", path);
        int first = trace->records[0].batch, last = first;
        bool found = false;
        *ranks = 0;
        for (int64_t i = 0; i < trace->count; i++) {
                const struct trace_record *r = &trace->records[i];
                first = r->batch < first ? r->batch : first;
                last = r->batch > last ? r->batch : last;
                *ranks = r->rank >= *ranks ? r->rank + 1 : *ranks;
        }
        *batch = asked < 0 ? first + (last - first) / 2 : asked;
        for (int64_t i = 0; i < trace->count; i++)
                found |= trace->records[i].batch == *batch;
        if (!found)
                return rv_fail(err, RV_EINPUT, "%s: has no batch %d; its batches go from %d to %d", path,
                               *batch, first, last);
        return 0;
}
