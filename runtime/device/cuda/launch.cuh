/* How kernels are launched and take shared memory: in one place, so that the same sources also compile as C++
 * for a CUDA that is emulated (tests/emulated), which brings its own. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_LAUNCH_CUH
#define RANVIER_RUNTIME_DEVICE_CUDA_LAUNCH_CUH

#include "runtime/device/cuda/launch.h"

#define CUDA_NO_HALF /* no type `half` beside __half: models/workload.h has an enum of that name */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* kernel<<<grid, block, shared_bytes, stream>>>(...); a template's arguments need parentheses around the
 * kernel. */
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                          \
        kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

/* Declares `name`, the block's dynamic shared memory, aligned to 16 bytes; inside a kernel. */
#define CUDA_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]

#endif
