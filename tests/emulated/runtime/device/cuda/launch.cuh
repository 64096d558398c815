/* Shadows the product's header of this name: how kernels are launched and take shared memory, emulated. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_LAUNCH_CUH
#define RANVIER_RUNTIME_DEVICE_CUDA_LAUNCH_CUH

#include "runtime/device/cuda/launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                          \
        emulated::launch_kernel(#kernel, kernel, (grid), (block), (shared_bytes), (stream), ##__VA_ARGS__)

#define CUDA_DYNAMIC_SHARED(name) unsigned char *const name = emulated::dynamic_shared()

/* A kernel that waits for host code begins again when that has made another call of the runtime. */
static inline bool host_reached(const volatile uint32_t *word, uint32_t turn)
{
        if ((int32_t)(*word - turn) < 0)
                emulated::wait_for_host();
        return true;
}

#endif
