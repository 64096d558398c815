/* Matrix products of the CUDA device, alone or with what is fused to them: cuBLASLt's, planned once for
 * each shape. A plan is the first algorithm that cuBLASLt proposes for a shape and the alignment of its
 * operands, so that the choice, and with it the bits, are the same in every run; or the fastest, as it was
 * timed by a calibration and kept. cuda.c sends all kinds of kernels here that launch.h does not have. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_MATMUL_H
#define RANVIER_RUNTIME_DEVICE_CUDA_MATMUL_H

#include "runtime/device/cuda/launch.h"

#include <stddef.h>

/* The device memory that algorithms may work in: as much as NVIDIA recommends for Hopper; older GPUs need
 * less. */
enum { CUDA_MATMUL_WORKSPACE_BYTES = 32 << 20 };

/* Which algorithms products have. */
struct cuda_products {
        const char *gpu;  /* the device's name */
        const char *json; /* what cuda_matmul_products returned in some run; NULL: nothing is known */
        bool timed;       /* the others are timed when they are first met; else cuBLASLt's first proposals */
};

/* A handle of cuBLASLt and the plans made so far. */
struct cuda_matmul;
/* Makes one. `work` and `workspace`, CUDA_MATMUL_WORKSPACE_BYTES of device memory aligned to 256, stay the
 * caller's and must outlive it. NULL with a sentence: RV_ESYSTEM without memory, or if cuBLASLt does not
 * start; RV_EINPUT if products->json is not for this GPU and this cuBLASLt. */
struct cuda_matmul *cuda_matmul_new(const struct cuda_work *work, void *workspace,
                                    const struct cuda_products *products, struct rv_error_info *err);
/* Frees it; NULL is allowed. */
void cuda_matmul_delete(struct cuda_matmul *);

/* Queues a product, of any kind that has one, with what is fused to it. Returns NULL, or why it failed, in
 * a string that stays. Fused kinds that cuBLASLt has no kernel for (odd or misaligned shapes) are a plain
 * product and the elementwise kernel that follows it where nothing is fused; the LayerNorm of a fused kind
 * is always a kernel of its own. */
const char *cuda_matmul(struct cuda_matmul *, cudaStream_t stream, const struct kernel *kernel,
                        const struct kernel_args *args);

/* Stores how many shapes are planned, for how many of these cuBLASLt had nothing fused, and how many have an
 * algorithm that was timed. With RANVIER_CUDA_PLANS in the environment each plan is told on stderr when it is
 * made. */
void cuda_matmul_count(const struct cuda_matmul *, struct device_description *description);

/* Returns the algorithms that are known by timing, as JSON (choices.h), which the caller frees; NULL: none.
 */
char *cuda_matmul_products(const struct cuda_matmul *);

#endif
