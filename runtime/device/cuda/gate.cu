/* The kernel that gate.h puts before others. */
#include "runtime/device/cuda/gate.h"
#include "runtime/device/cuda/launch.cuh"

static __global__ void wait_for_host(volatile uint32_t *words, uint32_t turn, int64_t tries)
{
        for (int64_t i = 0; i < tries; i++)
                if (host_reached(&words[0], turn))
                        return;
        words[1] = turn;
}

cudaError_t cuda_wait_for_host(cudaStream_t stream, volatile uint32_t *words, uint32_t turn, int64_t tries)
{
        CUDA_LAUNCH(wait_for_host, dim3(1), dim3(1), 0, stream, words, turn, tries);
        return cudaGetLastError();
}
