/* What an open CUDA device holds, for cuda.c and its tests. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_CUDA_H
#define RANVIER_RUNTIME_DEVICE_CUDA_CUDA_H

#include "runtime/device/cuda/arena.h"
#include "runtime/device/cuda/gate.h"
#include "runtime/device/cuda/graph.h"
#include "runtime/device/cuda/lane.h"
#include "runtime/device/cuda/matmul.h"

struct cuda_device {
        struct device base;
        int gpu;
        char name[128]; /* "cuda device 0 (NVIDIA H200)", for sentences */
        struct cuda_work work;
        void *own; /* device memory: the workspace of products, then the kernels' scratch */
        struct cuda_arena arena;
        struct cuda_lane lanes[DEVICE_LANES];
        struct cuda_queue kernels; /* that are timed for the recorder, on the compute lane */
        struct cuda_events events, timed;
        struct cuda_gate gate; /* before kernels that are timed */
        bool grouped;          /* between begin_group and end_group */
        struct cuda_matmul *matmul;
        struct cuda_graphs *graphs; /* NULL: every kernel is launched by itself */
        cudaEvent_t reference;      /* of timed kernels: reached at this moment of device_seconds' clock */
        double reference_seconds;
};

struct device *device_cuda_open(const struct device_request *request, struct rv_error_info *err);

#endif
