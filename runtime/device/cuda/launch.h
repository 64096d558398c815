/* The CUDA device's own kernels, as cuda.c calls them: each queues one kernel of models/kernels/kernel.h on
 * `stream`, with operands packed as runtime/device/kernels.h says, and does not wait. Products, but for
 * those of experts, are cuBLASLt's (matmul.h).
 *
 * Every kernel adds its sums in an order that depends on shapes and the GPU alone (how many multiprocessors
 * it has), so that the same input gives the same bits: no atomic addition of floating-point numbers. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_LAUNCH_H
#define RANVIER_RUNTIME_DEVICE_CUDA_LAUNCH_H

#ifdef __cplusplus
extern "C" {
#endif

#include "runtime/device/device.h"

#include <cuda_runtime_api.h>

/* What kernels may use of the device, and what they choose their grids by. One kernel at a time uses the
 * scratch: all run on one stream. */
struct cuda_work {
        void *scratch;  /* CUDA_SCRATCH_BYTES of device memory, aligned to 256; not zeroed */
        int processors; /* multiprocessors */
        int capability; /* 10 major + minor: 90 */
};
enum { CUDA_SCRATCH_BYTES = 32 << 20 };

/* The widest head, in elements, that fused attention and norms of heads have kernels for. */
enum { CUDA_WIDEST_HEAD = 128 };

/* Queues one kernel, or the few launches that it is made of, on `stream`. Returns what cudaGetLastError
 * says after the launch; cudaErrorInvalidValue for a shape or format that it cannot do. */
typedef cudaError_t cuda_launch_fn(cudaStream_t stream, const struct kernel *kernel,
                                   const struct kernel_args *args, const struct cuda_work *work);

/* The kernels by the file that has them. cuda_cross_entropy is both kinds, cross_entropy and
 * cross_entropy_loss; softmax is for attention that is not fused. */
/* embedding.cu */
cuda_launch_fn cuda_embedding, cuda_embedding_backward;
/* layernorm.cu */
cuda_launch_fn cuda_layernorm, cuda_layernorm_backward, cuda_rmsnorm, cuda_rmsnorm_backward;
/* head_rmsnorm.cu */
cuda_launch_fn cuda_head_rmsnorm, cuda_head_rmsnorm_backward;
/* elementwise.cu */
cuda_launch_fn cuda_bias, cuda_bias_backward, cuda_bias_gelu, cuda_gelu_backward, cuda_bias_residual,
        cuda_residual, cuda_squared_relu, cuda_squared_relu_backward;
/* rope.cu */
cuda_launch_fn cuda_rope;
/* columns.cu */
cuda_launch_fn cuda_split_columns, cuda_join_columns, cuda_narrow, cuda_widen, cuda_last_columns,
        cuda_set_last_columns;
/* latent.cu */
cuda_launch_fn cuda_latent_qkv, cuda_latent_qkv_backward;
/* swiglu.cu */
cuda_launch_fn cuda_swiglu, cuda_swiglu_backward, cuda_weighted_swiglu, cuda_weighted_swiglu_backward;
/* experts.cu */
cuda_launch_fn cuda_route, cuda_route_backward, cuda_expert_ends, cuda_permute, cuda_unpermute;
/* grouped.cu */
cuda_launch_fn cuda_grouped_matmul, cuda_grouped_matmul_backward;
/* softmax.cu */
cuda_launch_fn cuda_softmax, cuda_softmax_backward;
/* cross_entropy.cu */
cuda_launch_fn cuda_cross_entropy;
/* optimizer.cu */
cuda_launch_fn cuda_squared_norm, cuda_adamw, cuda_overflow, cuda_unscale, cuda_clear;
/* attention.cu, attention_backward.cu, attention_fp32.cu */
cuda_launch_fn cuda_attention, cuda_attention_backward, cuda_context_attention,
        cuda_context_attention_backward;
/* Of attention_backward in 16 bits the `rows` alone. */
cuda_launch_fn cuda_attention_rows;

#ifdef __cplusplus
}
#endif
#endif
