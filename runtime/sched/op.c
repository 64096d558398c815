#include "runtime/sched/op.h"

const char *op_name(enum op_kind kind)
{
        static const char *const names[OP_KINDS] = {
                [OP_LOAD] = "load",
                [OP_RECEIVE_ACTIVATION] = "receive activation",
                [OP_FORWARD] = "forward",
                [OP_SEND_ACTIVATION] = "send activation",
                [OP_RECEIVE_GRADIENT] = "receive gradient",
                [OP_BACKWARD] = "backward",
                [OP_SEND_GRADIENT] = "send gradient",
                [OP_ALLREDUCE] = "all-reduce",
                [OP_NORM] = "norm",
                [OP_REDUCE_SCALARS] = "reduce scalars",
                [OP_UPDATE] = "update",
                [OP_CHECK_OVERFLOW] = "check overflow",
                [OP_REDUCE_OVERFLOW] = "reduce overflow",
                [OP_CLEAR] = "clear",
                [OP_FETCH] = "fetch",
                [OP_WRITE_BACK] = "write back",
                [OP_STORE_ACTIVATIONS] = "store activations",
                [OP_FETCH_ACTIVATIONS] = "fetch activations",
                [OP_STAGE_OUT] = "stage out",
                [OP_STAGE_IN] = "stage in",
                [OP_TENSOR] = "tensor",
                [OP_REDUCE_SCATTER] = "reduce-scatter",
                [OP_ALL_GATHER] = "all-gather",
        };
        return names[kind];
}

const char *op_lane_name(enum op_lane lane)
{
        static const char *const names[LANES] = {
                [LANE_COMPUTE] = "compute",
                [LANE_HOST_TO_DEVICE] = "host to device",
                [LANE_DEVICE_TO_HOST] = "device to host",
                [LANE_RECEIVE_PREVIOUS] = "receive from previous",
                [LANE_RECEIVE_NEXT] = "receive from next",
                [LANE_SEND_PREVIOUS] = "send to previous",
                [LANE_SEND_NEXT] = "send to next",
                [LANE_COLLECTIVE] = "collective",
                [LANE_SCALARS] = "scalars",
                [LANE_TENSOR] = "tensor",
        };
        return names[lane];
}
