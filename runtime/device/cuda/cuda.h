/* What an open CUDA device holds, for cuda.c and its tests. The rest of the program knows it as struct
 * device (device.h), which is its first member. cuda.c implements the functions of struct device_ops with
 * what the other headers of this folder offer: memory (arena.h), streams, events and tokens (lane.h),
 * kernels (launch.h), products (matmul.h), a library's attention (attention_plans.h), CUDA graphs (graph.h)
 * and the timing of kernels (gate.h). */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_CUDA_H
#define RANVIER_RUNTIME_DEVICE_CUDA_CUDA_H

#include "runtime/device/cuda/arena.h"
#include "runtime/device/cuda/attention_library.h"
#include "runtime/device/cuda/attention_plans.h"
#include "runtime/device/cuda/gate.h"
#include "runtime/device/cuda/graph.h"
#include "runtime/device/cuda/lane.h"
#include "runtime/device/cuda/matmul.h"

struct cuda_device {
        struct device base;
        int gpu;        /* as base.gpu */
        char name[128]; /* "cuda device 0 (NVIDIA H200)", for sentences */
        struct cuda_work work;
        /* Device memory: the workspace of products, the kernels' scratch, and, with a library's attention,
         * what that works in. */
        void *own;
        struct cuda_arena arena; /* what alloc gives */
        struct cuda_lane lanes[DEVICE_LANES];
        /* Kernels that are timed for the recorder, on the compute lane, and that it was not told of yet. */
        struct cuda_queue kernels;
        /* Free events: of tokens, which hold no time, and around timed kernels, which do. */
        struct cuda_events events, timed;
        struct cuda_gate gate; /* before kernels that are timed */
        bool grouped;          /* between begin_group and end_group */
        struct cuda_matmul *matmul;
        struct cuda_attention *attention; /* NULL: attention is our kernels' */
        struct cuda_graphs *graphs;       /* NULL: every kernel is launched by itself */
        /* An event on the compute lane, and the moment of device_seconds' clock at which it was reached:
         * the ends of timed kernels are counted from there. */
        cudaEvent_t reference;
        double reference_seconds;
};

/* Opens the CUDA device: the function that the plugin exports (device_plugin_fn). NULL with a sentence:
 * RV_ENOTBUILT if the machine has no GPU or driver that this build can use, RV_ESYSTEM if CUDA does not
 * give what it needs. */
struct device *device_cuda_open(const struct device_request *request, struct rv_error_info *err);

#endif
