/* How kernels are launched and take shared memory: in one place, so that the same sources also compile as
 * C++ for a CUDA that is emulated (tests/emulated), which brings its own. Every .cu file includes this
 * header, by itself or through element.cuh, reduce.cuh or ptx.cuh, and uses neither <<<...>>> nor extern
 * __shared__ otherwise. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_LAUNCH_CUH
#define RANVIER_RUNTIME_DEVICE_CUDA_LAUNCH_CUH

#include "runtime/device/cuda/launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

/* Launches kernel<<<grid, block, shared_bytes, stream>>>(...). Commas between a template's arguments need
 * parentheses around the kernel. Errors are what cudaGetLastError returns afterwards. */
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                          \
        kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

/* Declares `name`, the block's dynamic shared memory, aligned to 16 bytes; inside a kernel. */
#define CUDA_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]

/* Returns whether host code has set *word, in pinned memory of its own, to `turn` or a later one; numbers
 * may wrap around. For a loop that waits for it: if it is not yet, the call takes half a microsecond beside
 * the way over the link. */
static __device__ __forceinline__ bool host_reached(const volatile uint32_t *word, uint32_t turn)
{
        if ((int32_t)(*word - turn) >= 0)
                return true;
        __nanosleep(500);
        return false;
}

#endif
