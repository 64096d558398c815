/* Matrix products of the CUDA device: cuBLASLt's, planned once a shape. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_MATMUL_H
#define RANVIER_RUNTIME_DEVICE_CUDA_MATMUL_H

#include "runtime/device/cuda/launch.h"

#include <stddef.h>

enum { CUDA_MATMUL_WORKSPACE_BYTES = 32 << 20 }; /* as NVIDIA recommends for Hopper; older GPUs need less */

struct cuda_matmul;
/* `workspace`: CUDA_MATMUL_WORKSPACE_BYTES of device memory, aligned to 256. NULL with a sentence. */
struct cuda_matmul *cuda_matmul_new(const struct cuda_work *work, void *workspace, struct rv_error_info *err);
void cuda_matmul_delete(struct cuda_matmul *);

/* Queues a product, of any kind that has one, with what is fused to it. NULL, or why it failed, in a string
 * that stays. Fused kinds that cuBLASLt has no kernel for (odd or misaligned shapes) are a plain product and
 * the elementwise kernel that follows it where nothing is fused. */
const char *cuda_matmul(struct cuda_matmul *, cudaStream_t stream, const struct kernel *kernel,
                        const struct kernel_args *args);

/* How many shapes are planned, and how many of these are a product and another kernel; for tests. */
size_t cuda_matmul_plans(const struct cuda_matmul *, size_t *unfused);

#endif
