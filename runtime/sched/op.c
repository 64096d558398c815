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
                [OP_ADD_REPLICA] = "add replica",
                [OP_ALLREDUCE] = "all-reduce",
                [OP_NORM] = "norm",
                [OP_REDUCE_SCALARS] = "reduce scalars",
                [OP_UPDATE] = "update",
                [OP_CHECK_OVERFLOW] = "check overflow",
                [OP_REDUCE_OVERFLOW] = "reduce overflow",
                [OP_CLEAR] = "clear",
                [OP_FETCH] = "fetch",
                [OP_WRITE_BACK] = "write back",
                [OP_FETCH_WEIGHTS] = "fetch weights",
                [OP_STORE_WEIGHTS] = "store weights",
                [OP_STORE_ACTIVATIONS] = "store activations",
                [OP_FETCH_ACTIVATIONS] = "fetch activations",
                [OP_STAGE_OUT] = "stage out",
                [OP_STAGE_IN] = "stage in",
                [OP_TENSOR] = "tensor",
                [OP_REDUCE_SCATTER] = "reduce-scatter",
                [OP_ALL_GATHER] = "all-gather",
                [OP_DECISION] = "decision",
                [OP_SNAPSHOT] = "snapshot",
                [OP_WRITE] = "write",
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
                [LANE_TENSOR_Z] = "tensor z",
                [LANE_DECISION] = "decision",
                [LANE_SHARES] = "shares",
                [LANE_FILES] = "files",
        };
        return names[lane];
}

enum op_lane op_lane_of(enum op_kind kind)
{
        static const enum op_lane lanes[OP_KINDS] = {
                [OP_LOAD] = LANE_HOST_TO_DEVICE,
                [OP_RECEIVE_ACTIVATION] = LANE_RECEIVE_PREVIOUS,
                [OP_FORWARD] = LANE_COMPUTE,
                [OP_SEND_ACTIVATION] = LANE_SEND_NEXT,
                [OP_RECEIVE_GRADIENT] = LANE_RECEIVE_NEXT,
                [OP_BACKWARD] = LANE_COMPUTE,
                [OP_SEND_GRADIENT] = LANE_SEND_PREVIOUS,
                [OP_ADD_REPLICA] = LANE_COMPUTE,
                [OP_ALLREDUCE] = LANE_COLLECTIVE,
                [OP_NORM] = LANE_COMPUTE,
                [OP_REDUCE_SCALARS] = LANE_SCALARS,
                [OP_UPDATE] = LANE_COMPUTE,
                [OP_CHECK_OVERFLOW] = LANE_COMPUTE,
                [OP_REDUCE_OVERFLOW] = LANE_SCALARS,
                [OP_CLEAR] = LANE_COMPUTE,
                [OP_FETCH] = LANE_HOST_TO_DEVICE,
                [OP_WRITE_BACK] = LANE_DEVICE_TO_HOST,
                [OP_FETCH_WEIGHTS] = LANE_HOST_TO_DEVICE,
                [OP_STORE_WEIGHTS] = LANE_DEVICE_TO_HOST,
                [OP_STORE_ACTIVATIONS] = LANE_DEVICE_TO_HOST,
                [OP_FETCH_ACTIVATIONS] = LANE_HOST_TO_DEVICE,
                [OP_STAGE_OUT] = LANE_DEVICE_TO_HOST,
                [OP_STAGE_IN] = LANE_HOST_TO_DEVICE,
                [OP_TENSOR] = LANE_TENSOR,
                [OP_REDUCE_SCATTER] = LANE_COLLECTIVE,
                [OP_ALL_GATHER] = LANE_COLLECTIVE,
                [OP_DECISION] = LANE_DECISION,
                [OP_SNAPSHOT] = LANE_DEVICE_TO_HOST,
                [OP_WRITE] = LANE_FILES,
        };
        return lanes[kind];
}

enum op_lane op_lane_opposite(enum op_lane lane)
{
        switch (lane) {
        case LANE_SEND_PREVIOUS:
                return LANE_RECEIVE_NEXT;
        case LANE_SEND_NEXT:
                return LANE_RECEIVE_PREVIOUS;
        case LANE_RECEIVE_PREVIOUS:
                return LANE_SEND_NEXT;
        case LANE_RECEIVE_NEXT:
                return LANE_SEND_PREVIOUS;
        default:
                return LANES;
        }
}

bool op_lane_to_previous(enum op_lane lane)
{
        return lane == LANE_RECEIVE_PREVIOUS || lane == LANE_SEND_PREVIOUS;
}
